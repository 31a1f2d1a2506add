"""Scalar functions with `print` and `assert`, in a module whose assertions pytest does not rewrite."""

# The assertions and the texts are what is tested.
# ruff: noqa: B011, PT015

from __future__ import annotations

import math
from typing import NamedTuple

from dualbcast import derivative

__all__ = ["FUNCTIONS", "formats", "one_print"]


class Pair(NamedTuple):
    left: float
    right: tuple[int, float]


def no_statements(x: float, n: int) -> float:
    return x * n


def one_print(x: float, n: int) -> float:
    print("x is", x, "and n", n)
    return x


def formats(x: float, n: int) -> float:
    print(f"{x:8.3f}|{n:+d}|{x!r}|{x=}|{{}}|{n > 2}|{'text':>6}|{x:.{2}e}", end="")
    print("braces {} {0}", x, sep="{}", end="}\n", flush=True)
    print()
    print(*(x, n), n % 2 == 0, None, "a", sep="")
    return x


def structures(x: float, n: int) -> float:
    print((x,), [x, n], Pair(x, (n, 2.5)), ("text", x), math.pi)
    return x


def paths(x: float, n: int) -> float:
    total = 0.0
    for i in range(n):
        if i == 2:
            print("skipped", i)
            continue
        total += x
        if total > 3.0:
            print("large", total, i)
            break
    else:
        print("to the end")
    for y in (x, total):
        if y > 3.5:
            return y
        print(y)
    return total


def within(x: float) -> float:
    assert x < 4.0, "within"
    print(" inside of a call", x)
    return x * x


def calls(x: float, n: int) -> float:
    y = within(x) if n > 1 else x
    slope = derivative(within)(y) if n > 2 else 0.0
    assert y >= 0, ("negative", y)
    return y + slope


def assertions(x: float, n: int) -> float:
    assert n < 4
    for i in range(n):
        assert i * x < 2.0, f"{i} times {x:.2f} is too much"
    assert x > 0.0, x
    return x


def unreachable(x: float, n: int) -> float:
    if n < 1:
        assert False, "no such n"
    return x


FUNCTIONS = (no_statements, one_print, formats, structures, paths, calls, assertions, unreachable)
