"""Random functions of vectors and matrices: values and derivatives of both backends against the same text, run at 40
digits on arrays of mpmath's numbers."""

from __future__ import annotations

import linecache
import random
from typing import Any

import mpmath as mp
import numpy as np
import pytest

from dualbcast import differentiable_broadcast

POINTS, DEEPEST = 3, 3
# What a rounding may become on the way, and values beyond which nothing is compared.
ALLOWED, LARGEST = 1e-10, 1e4
PARAMETERS = {"v": (3,), "w": (3,), "A": (3, 3), "x": ()}
SHAPES = {"scalar": (), "vector": (3,), "matrix": (3, 3)}


class Writer:
    """Draws the text of a function of two vectors, a matrix and a number."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.names = {"vector": ["v", "w"], "matrix": ["A"], "scalar": ["x"]}

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
            f"({one} - 0.5 * {two})",
            f"(-{one})",
            f"({s} * {one})",
            f"({one} * {two})",
            f"({one} / (2.0 + {two} * {two}))",
            f"({one} if {self.test()} else {two})",
            f"np.{self.draw.choice(['exp', 'sin', 'cos', 'tanh', 'arctan'])}(0.4 * {one})",
            f"np.where({one} > {s}, {one}, 0.25 * {two})",
            f"np.{self.draw.choice(['minimum', 'maximum'])}({one}, {two})",
            f"abs({one})",
            f"({one} ** {self.draw.choice([2, 3])})",
        ]
        return self.draw.choice(common) if self.draw.random() < 0.4 else self.draw.choice(makers[kind](s, v, u, m, k))

    def scalars(self, s: str, v: str, u: str, m: str, k: str) -> list[str]:
        i, j = self.index(), self.index()
        return [
            f"({v})[{i}]",
            f"({m})[{i}, {j}]",
            f"({m})[{i}][{j}]",
            f"({v} @ {u})",
            f"np.dot({v}, {u})",
            f"np.vdot({m}, {k})",
            f"np.trace({m} @ {k})",
            f"np.linalg.det(0.5 * {m})",
            f"np.linalg.norm({v})",
            f"np.linalg.norm({m})",
            f"np.sum({m})",
            f"({v}).mean()",
            f"np.var({v}, ddof=1)",
            f"np.prod({v})",
            f"({v}).max()",
            f"np.min({m})",
            f"np.einsum('i,ij,j->', {v}, {m}, {u})",
            f"sum(item * {s} for item in {v})",
        ]

    def vectors(self, s: str, v: str, u: str, m: str, k: str) -> list[str]:
        i = self.index()
        return [
            f"({m} @ {v})",
            f"({v} @ {m})",
            f"(({m}).T @ {v})",
            f"np.cross({v}, {u})",
            f"np.array([{s}, ({v})[{i}], 0.5])",
            f"({m})[{i}]",
            f"({m})[:, {i}]",
            f"({v})[::-1]",
            f"np.roll({v}, {self.draw.choice([1, -1])})",
            f"np.diag({m})",
            f"({m}).sum(axis={self.draw.choice([0, 1])})",
            f"np.concatenate((({v})[:1], ({u})[1:]))",
            f"np.linalg.solve({m} + 6.0 * np.eye(3), {v})",
            f"np.einsum('ij,jk,k->i', {m}, {k}, {v})",
            f"np.max({m}, axis=0)",
            f"np.{self.draw.choice(['cumsum', 'cumprod'])}({v})",
            f"np.cumsum({m}, axis=1)[{i}]",
            f"np.diff(np.concatenate(({v}, {u})), n=3)",
            f"np.var({m}, axis=0)",
        ]

    def matrices(self, s: str, v: str, u: str, m: str, k: str) -> list[str]:
        return [
            f"({m} @ {k})",
            f"np.outer({v}, {u})",
            f"({m}).T",
            f"np.linalg.inv({m} + 6.0 * np.eye(3))",
            f"np.diag({v})",
            f"np.stack([{v}, {u}, {v}])",
            f"np.array([({v}), ({u}), ({s}, 1.0, 2.0)])",
            f"np.tril({m})",
            f"np.triu({m}, 1)",
            f"(({v})[:, None] * ({u})[None])",
            f"({m} + {v})",
            f"({m} * ({v})[:, None])",
            f"np.flip({m}, axis=1)",
            f"({m} - np.mean({m}, axis=1, keepdims=True))",
            f"(np.sum({m}, axis=(0, 1), keepdims=True) * {k})",
            f"({m} + {s} * np.eye(3))",
            f"np.reshape({m}, (3, 3))[::-1]",
        ]

    def index(self) -> int:
        return self.draw.randrange(-3, 3)

    def test(self) -> str:
        return self.draw.choice(["x > 0.1", "v[0] < w[1]", "v @ w > 0.3", "np.trace(A) < x", "np.all(v > -1.5)"])

    def program(self) -> tuple[str, str]:
        """The text, and the kind of its result."""
        lines = ["def f(v, w, A, x):"]
        for name in self.draw.sample("abc", self.draw.randrange(3)):
            kind = self.draw.choice(list(SHAPES))
            lines.append(f"    {name} = {self.expression(kind, 1)}")
            self.names[kind].append(name)
        if self.draw.random() < 0.4:
            lines += ["    u = 0.5 * w", "    for i in range(3):", "        u = 0.3 * u + A[i] * v[i]"]
            self.names["vector"].append("u")
        result = self.draw.choice(list(SHAPES))
        if self.draw.random() < 0.3:
            lines += [f"    if {self.test()}:", f"        return {self.expression(result, 1)}"]
        return "\n".join([*lines, f"    return {self.expression(result)}", ""]), result


# --- the same at 40 digits --------------------------------------------------------------------------------------------


def _exact(values: Any) -> Any:
    return np.vectorize(mp.mpf, otypes=[object])(np.asarray(values, object))


def _element_by_element(name: str) -> Any:
    function = getattr(mp, {"arctan": "atan"}.get(name, name))
    return lambda x: np.vectorize(function, otypes=[object])(np.asarray(x, object))[()]


class _Linalg:
    """`numpy.linalg`, by mpmath's matrices."""

    @staticmethod
    def det(a: Any) -> Any:
        (a, b, c), (d, e, f), (g, h, i) = a
        return a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g)

    @staticmethod
    def norm(a: Any) -> Any:
        return mp.sqrt(np.sum(np.asarray(a) * np.asarray(a)))

    @staticmethod
    def inv(a: Any) -> Any:
        return np.array(mp.inverse(mp.matrix(a.tolist())).tolist(), object)

    @classmethod
    def solve(cls, a: Any, b: Any) -> Any:
        return cls.inv(a) @ b


class _NumPy:
    """NumPy on arrays of mpmath's numbers, whose functions it calls for each element."""

    linalg = _Linalg

    def __getattr__(self, name: str) -> Any:
        if name in ("exp", "sin", "cos", "tanh", "arctan"):
            return _element_by_element(name)
        if name in ("array", "eye"):
            return lambda *args: _exact(getattr(np, name)(*args, **({"dtype": object} if name == "array" else {})))
        return getattr(np, name)

    @staticmethod
    def where(*args: Any) -> Any:
        return np.where(*args)[()]

    @staticmethod
    def einsum(subscripts: str, *operands: Any) -> Any:
        return np.einsum(subscripts, *operands, optimize=False)


def function_of(text: str, scope: dict[str, Any]) -> Any:
    filename = f"<vectors {hash(text) & 0xFFFFFFFF:08x}>"
    linecache.cache[filename] = len(text), None, text.splitlines(True), filename
    exec(compile(text, filename, "exec"), scope)
    return scope["f"]


def value_of(exact: Any, at: dict[str, Any], shape: tuple[int, ...]) -> Any:
    """The numbers of the value at a point; None where one is large."""
    value = np.empty(shape, object)
    value[...] = exact(**at)
    numbers = value.reshape(-1)
    return numbers if all(mp.isfinite(each) and abs(each) < LARGEST for each in numbers) else None


def slope_along(moved: Any) -> Any:
    """The derivative of what `moved` gives for a step, at the step 0; None as for `slope_of`."""
    middle, found = moved(mp.mpf(0)), []
    for step in (mp.mpf("1e-12"), mp.mpf("1e-6")):
        ends = moved(step), moved(-step)
        if ends[0] is None or ends[1] is None:
            return None
        found += [(ends[0] - ends[1]) / (2 * step), (ends[0] - middle) / step, (middle - ends[1]) / step]
    size = max([abs(each) for each in found[0]])
    spread = max([abs(each) for other in found[:3] for each in other - found[0]])
    return found[0] if spread < 1e-7 * (1 + size) and size < LARGEST else None


def slope_of(exact: Any, at: dict[str, Any], name: str, place: Any, shape: tuple[int, ...]) -> Any:
    """The derivative by one element of an argument; None where another step gives another one: at a branch, a tie."""

    def moved(step: Any) -> Any:
        array = np.array(at[name], object)
        array[place] += step
        return value_of(exact, {**at, name: array if place else array[()]}, shape)

    return slope_along(moved)


# --- the comparison ---------------------------------------------------------------------------------------------------


def run(function: Any, signature: str, given: dict[str, Any], backend: str) -> tuple[Any, dict[str, Any]]:
    """The value and the blocks of the Jacobian, as arrays of NumPy."""
    xp = pytest.importorskip("cupy") if backend == "cuda" else np
    compiled = differentiable_broadcast(signature=signature, backend=backend)(function)
    value, jacobian = compiled.value_and_jacobian(**{name: xp.asarray(each) for name, each in given.items()})
    host = xp.asnumpy if backend == "cuda" else np.asarray
    return host(value), {name: host(jacobian[name]) for name in PARAMETERS}


def examine(seed: int, backends: tuple[str, ...] = ("python", "cpu")) -> int:
    """Hold the program of a seed against mpmath; how many numbers were compared."""
    text, kind = Writer(seed).program()
    shape, draw = SHAPES[kind], np.random.default_rng(seed)
    given = {name: draw.normal(size=(POINTS, *core)).round(2) for name, core in PARAMETERS.items()}
    written = {"scalar": "()", "vector": "(3)", "matrix": "(3,3)"}[kind]
    function, exact = function_of(text, {"np": np}), function_of(text, {"np": _NumPy()})
    results = [run(function, f"(3),(3),(3,3),()->{written}", given, backend) for backend in backends]
    compared = 0
    with mp.workdps(40):
        for point in range(POINTS):
            at = {name: _exact(each[point])[()] for name, each in given.items()}
            value = value_of(exact, at, shape)
            places = [(name, place) for name, core in PARAMETERS.items() for place in np.ndindex(core)]
            slopes = [None if value is None else slope_of(exact, at, name, place, shape) for name, place in places]
            if value is None or any(each is None for each in slopes):
                continue
            # A rounding in an argument moves the value as the slopes say.
            scale = 1 + max(abs(each) for number in (value, *slopes) for each in number)
            for found, jacobian in results:
                pairs = [("value", found[point], value)]
                for (name, place), slope in zip(places, slopes, strict=True):
                    pairs.append((f"{name}{list(place)}", jacobian[name][(point, ..., *place)], slope))
                for name, got, wanted in pairs:
                    error = np.max(np.abs(np.reshape(got, -1) - wanted.astype(float)))
                    assert error <= ALLOWED * float(scale) ** 2, (seed, text, at, name, got, wanted)
                    compared += wanted.size
    return compared


@pytest.mark.parametrize("part", range(2))
def test_random_programs(part: int) -> None:
    assert sum(examine(seed) for seed in range(5 * part, 5 * part + 5)) > 300


@pytest.mark.slow
@pytest.mark.parametrize("part", range(2))
def test_more_random_programs(part: int) -> None:
    assert sum(examine(seed) for seed in range(1000 + 25 * part, 1025 + 25 * part)) > 5000


@pytest.mark.gpu
@pytest.mark.parametrize("part", range(2))
def test_random_programs_on_a_gpu(part: int) -> None:
    assert sum(examine(seed, ("cuda",)) for seed in range(3 * part, 3 * part + 3)) > 100
