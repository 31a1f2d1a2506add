"""How much longer than ordinary programs and numbers those take that once fell out of vectors: `extra_info.ratio`."""

from __future__ import annotations

import math
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
import pytest

from dualbcast import differentiable_broadcast

N, ROUNDS = 4096, 25


def two_loops(x: float, y: float) -> float:
    """625 iterations of two loops."""
    s = x
    for _ in range(25):
        for _ in range(25):
            s = s * 0.99 + 0.01 * x * y / (1.0 + s * s)
    return s


def three_loops(x: float, y: float) -> float:
    """625 iterations of three loops."""
    s = x
    for _ in range(5):
        for _ in range(5):
            for _ in range(25):
                s = s * 0.99 + 0.01 * x * y / (1.0 + s * s)
    return s


def three_whiles(x: float, y: float) -> float:
    """The same, counted by hand."""
    s, i = x, 0
    while i < 5:
        i, j = i + 1, 0
        while j < 5:
            j, k = j + 1, 0
            while k < 25:
                k += 1
                s = s * 0.99 + 0.01 * x * y / (1.0 + s * s)
    return s


def five_loops(x: float, y: float) -> float:
    """The same in five loops."""
    s = x
    for _ in range(5):
        for _ in range(5):
            for _ in range(5):
                for _ in range(5):
                    for _ in range(1):
                        s = s * 0.99 + 0.01 * x * y / (1.0 + s * s)
    return s


def in_turns(slow: Callable[[], Any], ordinary: Callable[[], Any]) -> float:
    """The least time of one by that of the other."""
    least = [math.inf, math.inf]
    for _ in range(ROUNDS):
        for at, call in enumerate((slow, ordinary)):
            began = perf_counter()
            call()
            least[at] = min(least[at], perf_counter() - began)
    return least[0] / least[1]


def compare(benchmark: Any, group: str, name: str, slow: Callable[[], Any], ordinary: Callable[[], Any]) -> None:
    """One row, with the time over that of the case beside it."""
    benchmark.group, benchmark.name = group, name
    with np.errstate(all="ignore"):
        slow()
        ordinary()
        benchmark(slow)
        benchmark.extra_info["ratio"] = in_turns(slow, ordinary)


def arguments(dtype: str) -> tuple[Any, Any]:
    """Numbers between 1/10 and 10."""
    draw = np.random.default_rng(0)
    return tuple(draw.uniform(0.1, 10.0, N).astype(dtype) for _ in range(2))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("function", [three_loops, three_whiles, five_loops], ids=lambda function: function.__name__)
def bench_nests(benchmark: Any, function: Any, dtype: str) -> None:
    """Value and partials, by two loops of as many iterations."""
    x, y = arguments(dtype)
    more, two = (differentiable_broadcast(each).value_and_jacobian for each in (function, two_loops))
    compare(benchmark, f"nested loops, {dtype}", function.__name__, lambda: more(x, y), lambda: two(x, y))


BASES: dict[str, Callable[[Any, Any], tuple[Any, Any]]] = {
    "base 0": lambda x, y: (0 * x, y),
    "negative base": lambda x, y: (-x, y),
    "negative base, whole exponents": lambda x, y: (-x, np.rint(y)),
    "subnormal base": lambda x, y: (x * np.finfo(x.dtype).smallest_subnormal, y),
    "infinite power": lambda x, y: (x + 1, 3000 * y),
}


@pytest.mark.parametrize("product", ["value", "value_and_jacobian"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", BASES)
def bench_powers(benchmark: Any, case: str, dtype: str, product: str) -> None:
    """x ** y, by that of positive numbers."""
    x, y = arguments(dtype)
    y = y / x.dtype.type(5)
    function = differentiable_broadcast(lambda x, y: x**y)
    call = function if product == "value" else function.value_and_jacobian
    unusual = BASES[case](x, y)
    compare(benchmark, f"powers, {product}, {dtype}", case, lambda: call(*unusual), lambda: call(x, y))


@pytest.mark.parametrize("product", ["value", "value_and_jacobian"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def bench_gamma(benchmark: Any, dtype: str, product: str) -> None:
    """The gamma function, by its logarithm."""
    x, _ = arguments(dtype)
    functions = [differentiable_broadcast(each) for each in (lambda x: math.gamma(x), lambda x: math.lgamma(x))]
    calls = functions if product == "value" else [function.value_and_jacobian for function in functions]
    compare(benchmark, f"gamma, {product}, {dtype}", "gamma", lambda: calls[0](x), lambda: calls[1](x))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [1e20, 1e30])
def bench_remainders(benchmark: Any, size: float, dtype: str) -> None:
    """x % y with huge quotients, by ordinary ones."""
    x, y = arguments(dtype)
    function = differentiable_broadcast(lambda x, y: x % y)
    huge = x * x.dtype.type(size)
    compare(benchmark, f"remainders, {dtype}", f"by {size:g}", lambda: function(huge, y), lambda: function(x, y))
