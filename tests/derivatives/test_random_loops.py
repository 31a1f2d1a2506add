"""Random loops in which values go from variable to variable: their derivatives against dual numbers in plain Python.

In each order of elimination, with loops and branches differentiated in their variables and in the sources.
"""

from __future__ import annotations

import linecache
import math
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from forced_ways import WAYS, forced

from dualbcast import differentiable_broadcast

NAMES = "abcdef"
WRT = NAMES[:3]
POINTS = np.random.default_rng(1).uniform(-0.9, 1.1, (len(WRT), 4))


class Dual:
    """A number and its derivatives; nothing of the package."""

    def __init__(self, value: float, slopes: Any = 0.0) -> None:
        self.value, self.slopes = value, slopes + np.zeros(len(WRT))

    @staticmethod
    def of(x: Any) -> Dual:
        return x if isinstance(x, Dual) else Dual(float(x))

    def __add__(self, other: Any) -> Dual:
        other = Dual.of(other)
        return Dual(self.value + other.value, self.slopes + other.slopes)

    def __sub__(self, other: Any) -> Dual:
        return self + Dual.of(other) * -1.0

    def __mul__(self, other: Any) -> Dual:
        other = Dual.of(other)
        return Dual(self.value * other.value, self.slopes * other.value + other.slopes * self.value)

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: Any) -> Dual:
        return Dual.of(other) - self

    def __lt__(self, other: Any) -> bool:
        return bool(self.value < Dual.of(other).value)

    def __gt__(self, other: Any) -> bool:
        return bool(self.value > Dual.of(other).value)


def through(function: Callable[[float], float], slope: Callable[[float], float]) -> Callable[[Any], Dual]:
    def of(x: Any) -> Dual:
        x = Dual.of(x)
        return Dual(function(x.value), x.slopes * slope(x.value))

    return of


MATH = SimpleNamespace(
    sin=through(math.sin, math.cos),
    cos=through(math.cos, lambda x: -math.sin(x)),
    tanh=through(math.tanh, lambda x: 1 - math.tanh(x) ** 2),
)


class Writer:
    """Draws a function of a, b and c whose loops mostly move values about."""

    def __init__(self, seed: int) -> None:
        self.random, self.lines, self.left = random.Random(seed), ["def drawn(a, b, c):"], 28
        self.lines.append("    d, e, f = a, b * c, 0.5")
        self.block(1, 0)
        self.lines.append(f"    for k in range({self.random.randint(2, 5)}):")
        self.block(2, 1)
        if self.random.random() < 0.5:
            self.lines += ["    n = 0", "    while n < 3:"]
            self.block(2, 1)
            self.lines.append("        n += 1")
        self.lines.append("    return a + 1.3 * b - 0.7 * c + d * e + 0.6 * f")
        self.text = "\n".join(self.lines) + "\n"

    def name(self) -> str:
        return self.random.choice(NAMES)

    def atom(self) -> str:
        return self.name() if self.random.random() < 0.85 else f"{self.random.uniform(-1, 1):.2f}"

    def expression(self, depth: int = 0) -> str:
        drawn = self.random.random()
        if drawn < 0.22 or depth > 2:
            return self.atom()
        if drawn < 0.4:
            return f"math.{self.random.choice(['sin', 'cos', 'tanh'])}({self.name()})"
        return f"({self.expression(depth + 1)} {self.random.choice('+-*')} {self.expression(depth + 1)})"

    def block(self, depth: int, loops: int) -> None:
        pad = "    " * depth
        for _ in range(self.random.randint(1, 5)):
            self.left -= 1
            drawn = self.random.random()
            if self.left < 0 or drawn < 0.35:
                self.lines.append(f"{pad}{self.name()} = {self.name()}")
            elif drawn < 0.68:
                self.lines.append(f"{pad}{self.name()} = math.tanh({self.expression()} + 0.0 * a)")
            elif drawn < 0.75:
                one, other = self.random.sample(NAMES, 2)
                self.lines.append(f"{pad}{one}, {other} = {other}, {one}")
            elif drawn < 0.88 and depth < 4:
                self.lines.append(f"{pad}if {self.name()} > {self.random.uniform(-0.5, 0.9):.2f}:")
                self.block(depth + 1, loops)
                if self.random.random() < 0.6:
                    self.lines.append(f"{pad}else:")
                    self.block(depth + 1, loops)
            elif depth < 4 and loops < 2:
                self.lines.append(f"{pad}for k{loops} in range({self.random.randint(1, 4)}):")
                self.block(depth + 1, loops + 1)
            else:
                self.lines.append(f"{pad}{self.name()} = 0.4 * {self.expression()}")


def function_of(text: str, seed: int, module: Any) -> Any:
    filename = f"<random loop {seed}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    namespace: dict[str, Any] = {"math": module}
    exec(compile(text, filename, "exec"), namespace)
    return namespace["drawn"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seeds", [range(20), pytest.param(range(20, 100), marks=pytest.mark.slow)], ids=["20", "80"])
def test_derivatives_are_those_of_dual_numbers(seeds: range, way: str) -> None:
    for seed in seeds:
        text = Writer(seed).text
        exact = function_of(text, seed, MATH)
        units = np.eye(len(WRT))
        wanted = [Dual.of(exact(*map(Dual, point, units))) for point in POINTS.T]
        values = np.array([result.value for result in wanted])
        slopes = np.array([result.slopes for result in wanted])
        if not (np.isfinite(slopes).all() and abs(values).max() < 1e4 and abs(slopes).max() < 1e5):
            continue
        with forced(way):
            value, jacobian = differentiable_broadcast(backend="python")(
                function_of(text, seed, math)
            ).value_and_jacobian(*POINTS)
        found = np.array([np.broadcast_to(jacobian[name], values.shape) for name in WRT]).T
        np.testing.assert_allclose(np.broadcast_to(value, values.shape), values, 1e-9, 1e-9, err_msg=text)
        np.testing.assert_allclose(found, slopes, 1e-7, 1e-7 * (1 + abs(slopes).max()), err_msg=text)
