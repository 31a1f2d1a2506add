"""Random functions of complex numbers: values and derivatives of both backends against mpmath at 40 digits."""

from __future__ import annotations

import linecache
import random
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from suites import sampled

from dualbcast import differentiable_broadcast

FUNCTIONS = ["exp", "log", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "atan", "asinh", "atanh"]
POINTS, DEEPEST = 12, 3
# What a rounding may become on the way, and values beyond and below which nothing is compared.
ALLOWED, LARGEST, SMALLEST = 1e-10, 1e4, 1e-100


class Writer:
    """Draws the text of a function of z and w."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.names = ["z", "w"]

    def number(self, depth: int = 0) -> str:
        """An expression that is complex."""
        draw = self.draw
        if depth >= DEEPEST or draw.random() < 0.2:
            return draw.choice([*self.names, *self.names, "0.5j", "(1.5 - 0.25j)", "complex(0.75, x)"])
        one, two = self.number(depth + 1), self.number(depth + 1)
        kind = draw.randrange(8)
        if kind < 3:
            return f"({one} {draw.choice('+-*')} {two})"
        if kind == 3:
            return f"({one} / (2.5 + {two} * {two}.conjugate()))"
        if kind == 4:
            return f"({one} ** {draw.choice([2, 3, -1, -2])})"
        if kind == 5:
            return f"({one} if {self.test()} else {two})"
        if kind == 6:
            return draw.choice(
                [f"{one}.conjugate()", f"(-{one})", f"({self.real(one)} * {two})", f"({one} + {self.real(two)})"]
            )
        return f"cmath.{draw.choice(FUNCTIONS)}(0.4 * {one})"

    def real(self, of: str) -> str:
        return self.draw.choice([f"abs({of})", f"{of}.real", f"{of}.imag", "x"])

    def test(self) -> str:
        name = self.draw.choice(self.names)
        return self.draw.choice([f"{name}.real > 0.1", f"abs({name}) < 1.3", f"{name}.imag <= x", f"{name} != w"])

    def program(self) -> str:
        lines = ["import cmath", "", "", "def f(z, w, x):"]
        for name in self.draw.sample("abc", self.draw.randrange(3)):
            lines.append(f"    {name} = {self.number()}")
            self.names.append(name)
        if self.draw.random() < 0.4:
            lines += ["    u = 0j", "    for _ in range(3):", f"        u = 0.3 * u * u + {self.number(1)}"]
            self.names.append("u")
        if self.draw.random() < 0.4:
            lines += [f"    if {self.test()}:", f"        return {self.number()}"]
        return "\n".join([*lines, f"    return {self.number()}", ""])


class Exact:
    """The module `cmath` at 40 digits. A root of 0 is refused, since it has no derivative."""

    def __getattr__(self, name: str) -> Any:
        function = getattr(mp, name)

        def call(z: Any) -> Any:
            if name == "sqrt" and z == 0:
                raise ZeroDivisionError
            return function(z)

        return call


def function_of(text: str, scope: dict[str, Any]) -> Any:
    filename = f"<complex {hash(text) & 0xFFFFFFFF:08x}>"
    linecache.cache[filename] = len(text), None, text.splitlines(True), filename
    exec(compile(text, filename, "exec"), scope)
    return scope["f"]


def exact_of(text: str) -> Any:
    """The same function of mpmath's numbers."""
    return function_of(text.replace("import cmath", ""), {"cmath": Exact(), "complex": mp.mpc})


def bounded(exact: Any, at: list[Any]) -> Any:
    """The value at a point, or None where it is large or does not exist."""
    try:
        value = mp.mpc(exact(*at))
    except (ZeroDivisionError, ValueError):
        return None
    return value if mp.isfinite(value) and abs(value) < LARGEST else None


def slope(exact: Any, at: list[Any], position: int, direction: Any) -> Any:
    """The derivative along a direction, or None where another step gives another one: at a branch or a cut."""
    found = []
    for step in (mp.mpf("1e-12"), mp.mpf("-1e-12"), mp.mpf("1e-6")):
        ends = [
            bounded(exact, [x + sign * step * direction if k == position else x for k, x in enumerate(at)])
            for sign in (1, -1)
        ]
        middle = bounded(exact, at)
        if None in ends or middle is None:
            return None
        found += [(ends[0] - ends[1]) / (2 * step), (ends[0] - middle) / step]
    spread = max(abs(each - found[0]) for each in found[:4])
    return found[0] if spread < 1e-7 * (1 + abs(found[0])) and abs(found[0]) < LARGEST else None


def run(function: Any, given: tuple[Any, ...], backend: str) -> tuple[Any, Any]:
    """The value and the blocks of the Jacobian, as arrays of NumPy."""
    xp = pytest.importorskip("cupy") if backend == "cuda" else np
    value, jacobian = differentiable_broadcast(backend=backend)(function).value_and_jacobian(*map(xp.asarray, given))
    if backend != "cuda":
        return value, jacobian
    return value.get(), {name: jacobian[name].get() for name in jacobian.wrt}


def examine(seed: int, backends: tuple[str, ...] = ("python", "cpu")) -> int:
    """Hold the program of a seed against mpmath; how many numbers were compared."""
    text = Writer(seed).program()
    draw, compared = np.random.default_rng(seed), 0
    z, w = (draw.normal(size=POINTS).round(2) + 1j * draw.normal(size=POINTS).round(2) for _ in range(2))
    x = draw.normal(size=POINTS).round(2)
    function, exact = function_of(text, {"__name__": "fuzzed"}), exact_of(text)
    results = [run(function, (z, w, x), backend) for backend in backends]
    directions = {
        "z.real": (0, 1),
        "z.imag": (0, mp.mpc(0, 1)),
        "w.real": (1, 1),
        "w.imag": (1, mp.mpc(0, 1)),
        "x": (2, 1),
    }
    with mp.workdps(40):
        for place in range(POINTS):
            at = [mp.mpc(z[place]), mp.mpc(w[place]), mp.mpf(float(x[place]))]
            value = bounded(exact, at)
            slopes = {name: slope(exact, at, *how) for name, how in directions.items()}
            # What a root is taken of may have underflown.
            if value is None or None in slopes.values() or 0 < abs(value) < SMALLEST:
                continue
            # A rounding in an argument moves the value as the slopes say.
            scale = 1 + abs(value) + sum(map(abs, slopes.values()))
            for found, jacobian in results:
                pairs = [("value", found[place], value)]
                pairs += [(name, jacobian[name][place], each) for name, each in slopes.items()]
                for name, got, wanted in pairs:
                    error = abs(complex(got) - complex(wanted))
                    assert error <= ALLOWED * scale**2, (
                        seed,
                        text,
                        z[place],
                        w[place],
                        x[place],
                        name,
                        got,
                        complex(wanted),
                    )
                    compared += 1
    return compared


@pytest.mark.parametrize("part", sampled(range(2), 2))
def test_random_programs(part: int) -> None:
    assert sum(examine(seed) for seed in range(10 * part, 10 * part + 10)) > 300


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_more_random_programs(part: int) -> None:
    assert sum(examine(seed) for seed in range(1000 + 50 * part, 1050 + 50 * part)) > 1500


@pytest.mark.gpu
@pytest.mark.parametrize("part", range(2))
def test_random_programs_on_a_gpu(part: int) -> None:
    assert sum(examine(seed, ("cuda",)) for seed in range(2 * part, 2 * part + 2)) > 20
