"""Random functions of complex vectors and matrices: values and derivatives of both backends against the same text, run
at 40 digits on arrays of mpmath's numbers."""

from __future__ import annotations

import random
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from test_vector_programs import function_of, slope_along, value_of

from dualbcast import differentiable_broadcast

POINTS, DEEPEST = 2, 3
ALLOWED = 1e-10
# The numbers v, w and A are complex.
PARAMETERS = {"v": (2,), "w": (2,), "A": (2, 2), "x": ()}
SHAPES = {"scalar": (), "vector": (2,), "matrix": (2, 2)}


class Writer:
    """Draws the text of a function of two complex vectors, a complex matrix and a real number."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.names = {"vector": ["v", "w"], "matrix": ["A"], "scalar": ["x", "0.5j", "(1.5 - 0.25j)"]}

    def expression(self, kind: str, depth: int = 0) -> str:
        if depth >= DEEPEST or self.draw.random() < 0.15:
            return self.draw.choice(self.names[kind])
        makers = {"scalar": self.scalars, "vector": self.vectors, "matrix": self.matrices}
        s, v, u, m, k = (
            self.expression(each, depth + 1) for each in ("scalar", "vector", "vector", "matrix", "matrix")
        )
        one, two = self.expression(kind, depth + 1), self.expression(kind, depth + 1)
        common = [
            f"({one} + {two})",
            f"({one} - 0.5j * {two})",
            f"(-{one})",
            f"({s} * {one})",
            f"({one} * {two})",
            f"({one} / (3.0 + abs({two})))",
            f"({one} if {self.test()} else {two})",
            f"np.{self.draw.choice(['exp', 'sin', 'cos'])}(0.4 * {one})",
            f"np.conj({one})",
            f"({one}).real",
            f"(({one}).imag * 1j)",
            f"({one} ** 2)",
        ]
        return self.draw.choice(common) if self.draw.random() < 0.4 else self.draw.choice(makers[kind](s, v, u, m, k))

    def scalars(self, s: str, v: str, u: str, m: str, k: str) -> list[str]:
        i, j = self.index(), self.index()
        return [
            f"({v})[{i}]",
            f"({m})[{i}, {j}]",
            f"({v} @ {u})",
            f"np.vdot({v}, {u})",
            f"np.vdot({m}, {k})",
            f"np.trace({m} @ {k})",
            f"np.linalg.det(0.5 * {m})",
            f"np.linalg.norm({v} + 1.0)",
            f"np.sum({m})",
            f"({v}).mean()",
            f"np.prod({v})",
            f"np.var({m})",
            f"np.einsum('i,ij,j->', {v}, {m}, {u})",
            f"sum(item * {s} for item in {v})",
        ]

    def vectors(self, s: str, v: str, u: str, m: str, _k: str) -> list[str]:
        i = self.index()
        return [
            f"({m} @ {v})",
            f"(({m}).conj().T @ {v})",
            f"np.array([{s}, ({v})[{i}]])",
            f"({m})[{i}]",
            f"({m})[:, {i}]",
            f"({v})[::-1]",
            f"np.diag({m})",
            f"({m}).sum(axis={self.draw.choice([0, 1])})",
            f"np.concatenate((({v})[:1], ({u})[1:]))",
            f"np.linalg.solve({m} + 8.0 * np.eye(2), {v})",
            f"np.cumsum({v})",
            f"np.diff(np.concatenate(({v}, ({u})[:1])))",
            f"np.where({self.test()}, {v}, 0.25 * {u})",
        ]

    def matrices(self, s: str, v: str, u: str, m: str, k: str) -> list[str]:
        return [
            f"({m} @ {k})",
            f"np.outer({v}, {u})",
            f"({m}).T",
            f"np.linalg.inv({m} + 8.0 * np.eye(2))",
            f"np.diag({v})",
            f"np.stack([{v}, {u}])",
            f"np.array([{v}, ({s}, 1.0)])",
            f"np.triu({m}, 1)",
            f"(({v})[:, None] * ({u})[None])",
            f"({m} + {v})",
            f"({m} + {s} * np.eye(2))",
        ]

    def index(self) -> int:
        return self.draw.randrange(-2, 2)

    def test(self) -> str:
        return self.draw.choice(["x > 0.1", "v[0].real < w[1].imag", "abs(A[0, 1]) > 1.0", "(v @ w).real > 0.3"])

    def program(self) -> tuple[str, str]:
        """The text, and the kind of its result."""
        lines = ["def f(v, w, A, x):"]
        for name in self.draw.sample("abc", self.draw.randrange(3)):
            kind = self.draw.choice(list(SHAPES))
            lines.append(f"    {name} = {self.expression(kind, 1)}")
            self.names[kind].append(name)
        if self.draw.random() < 0.4:
            lines += ["    u = 0.5 * w", "    for i in range(2):", "        u = 0.3j * u + A[i] * v[i]"]
            self.names["vector"].append("u")
        result = self.draw.choice(list(SHAPES))
        if self.draw.random() < 0.3:
            lines += [f"    if {self.test()}:", f"        return 1j * {self.expression(result, 1)}"]
        return "\n".join([*lines, f"    return 1j * {self.expression(result)}", ""]), result


# --- the same at 40 digits --------------------------------------------------------------------------------------------


class Array(np.ndarray):
    """An array of mpmath's complex numbers, with the attributes that NumPy gives to its own."""

    real = property(lambda self: _each(mp.re, self))
    imag = property(lambda self: _each(mp.im, self))


def _each(function: Any, x: Any) -> Any:
    return np.vectorize(function, otypes=[object])(np.asarray(x, object)).view(Array)[()]


def _array(items: Any) -> Any:
    return _each(lambda x: mp.mpc(x.item() if isinstance(x, np.ndarray) else x), np.array(items, object))


class _Linalg:
    @staticmethod
    def det(a: Any) -> Any:
        return a[0, 0] * a[1, 1] - a[0, 1] * a[1, 0]

    @staticmethod
    def norm(a: Any) -> Any:
        return mp.mpc(mp.sqrt(sum(abs(each) ** 2 for each in a)))

    @staticmethod
    def inv(a: Any) -> Any:
        return _array(mp.inverse(mp.matrix(a.tolist())).tolist())

    @classmethod
    def solve(cls, a: Any, b: Any) -> Any:
        return cls.inv(a) @ b


class _NumPy:
    """NumPy on arrays of mpmath's numbers, whose functions it calls for each element."""

    linalg = _Linalg

    def __getattr__(self, name: str) -> Any:
        if name in ("exp", "sin", "cos", "conj"):
            return lambda x: _each(getattr(mp, name), x)
        if name == "array":
            return _array
        if name == "eye":
            return lambda size: _array(np.eye(size))
        function = getattr(np, name)

        def call(*args: Any, **named: Any) -> Any:
            found = function(*args, **named)
            return found.view(Array) if isinstance(found, np.ndarray) else found

        return call

    @staticmethod
    def vdot(a: Any, b: Any) -> Any:
        return sum(mp.conj(x) * y for x, y in zip(np.ravel(a), np.ravel(b), strict=True))

    @staticmethod
    def var(a: Any) -> Any:
        middle = sum(a.flat) / a.size
        return mp.mpc(sum(abs(each - middle) ** 2 for each in a.flat) / a.size)

    @staticmethod
    def where(test: bool, one: Any, two: Any) -> Any:
        return one if test else two

    @staticmethod
    def einsum(_subscripts: str, v: Any, m: Any, u: Any) -> Any:
        return v @ m @ u


def slope_of(exact: Any, at: dict[str, Any], name: str, place: Any, unit: Any, shape: tuple[int, ...]) -> Any:
    """The derivative along a part of one element; None where another step gives another one."""

    def moved(step: Any) -> Any:
        array = np.array(at[name], object).view(Array)
        array[place] += step * unit
        return value_of(exact, {**at, name: array if place else array[()]}, shape)

    return slope_along(moved)


# --- the comparison ---------------------------------------------------------------------------------------------------


def examine(seed: int, backends: tuple[str, ...] = ("python", "cpu")) -> int:
    """Hold the program of a seed against mpmath; how many numbers were compared."""
    text, kind = Writer(seed).program()
    shape, draw = SHAPES[kind], np.random.default_rng(seed)
    given = {name: draw.normal(size=(POINTS, *core)).round(2) for name, core in PARAMETERS.items()}
    given |= {name: each + 1j * draw.normal(size=each.shape).round(2) for name, each in given.items() if name != "x"}
    written = {"scalar": "()", "vector": "(2)", "matrix": "(2,2)"}[kind]
    function, exact = function_of(text, {"np": np}), function_of(text, {"np": _NumPy()})
    results = []
    for backend in backends:
        compiled = differentiable_broadcast(signature=f"(2),(2),(2,2),()->{written}", backend=backend)(function)
        value, jacobian = compiled.value_and_jacobian(**given)
        results.append((value, {name: np.asarray(jacobian[name]) for name in jacobian.wrt}))
    units = {"real": mp.mpc(1), "imag": mp.mpc(0, 1)}
    compared = 0
    with mp.workdps(40):
        for point in range(POINTS):
            at = {name: _each(mp.mpc if name != "x" else mp.mpf, each[point]) for name, each in given.items()}
            value = value_of(exact, at, shape)
            places = [
                (name if name == "x" else f"{name}.{part}", name, place, units[part] if name != "x" else mp.mpf(1))
                for name, core in PARAMETERS.items()
                for place in np.ndindex(core)
                for part in (units if name != "x" else ["real"])
            ]
            slopes = [None if value is None else slope_of(exact, at, *each[1:], shape) for each in places]
            if value is None or any(each is None for each in slopes):
                continue
            # A rounding in an argument moves the value as the slopes say.
            scale = 1 + max(abs(each) for number in (value, *slopes) for each in number)
            for found, jacobian in results:
                pairs = [("value", found[point], value)]
                for (block, _, place, _), slope in zip(places, slopes, strict=True):
                    pairs.append((f"{block}{list(place)}", jacobian[block][(point, ..., *place)], slope))
                for name, got, wanted in pairs:
                    error = np.max(np.abs(np.reshape(got, -1) - wanted.astype(complex)))
                    assert error <= ALLOWED * float(scale) ** 2, (seed, text, at, name, got, wanted)
                    compared += wanted.size
    return compared


@pytest.mark.parametrize("part", range(2))
def test_random_programs(part: int) -> None:
    assert sum(examine(seed) for seed in range(5 * part, 5 * part + 5)) > 150


@pytest.mark.slow
@pytest.mark.parametrize("part", range(2))
def test_more_random_programs(part: int) -> None:
    assert sum(examine(seed) for seed in range(1000 + 25 * part, 1025 + 25 * part)) > 2000
