"""Random graphs to second order: against differences of NumPy's values, and against JAX where it is installed.

Others write into their arrays at random places: against the same with copies, and no writes.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from differences import along
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dualbcast import differentiable_broadcast, graph
from dualbcast.graph import frozen
from dualbcast.graph.lazy import Limits

ROWS = np.array([1, 0, 1])
# What may be done to one array, and to two: each expression serves NumPy, Variables and JAX. All arrays have two axes.
UNARY: dict[str, Callable[..., Any]] = {
    "sin": lambda x: np.sin(x),
    "tanh": lambda x: np.tanh(x * 0.7),
    "square": lambda x: x * x * 0.5,
    "gauss": lambda x: np.exp(-(x**2)),
    "log": lambda x: np.log1p(x * x),
    "quotient": lambda x: x / (2.0 + x * x),
    "transpose": lambda x: x.T,
    "sum of rows": lambda x: np.sum(x, axis=0, keepdims=True),
    "mean of columns": lambda x: np.mean(x, axis=1, keepdims=True),
    "var": lambda x: np.var(x, axis=0, keepdims=True),
    "all but the first": lambda x: np.concatenate([x[1:], x[:1] * 2.0]),
    "backwards": lambda x: x[:, ::-1],
    "every other": lambda x: x[:, ::2],
    "rows again": lambda x: x[ROWS % x.shape[0]],
    "one row": lambda x: x[-1][None],
    "cumsum": lambda x: np.cumsum(x, axis=1),
    "prod": lambda x: np.prod(x, axis=1, keepdims=True),
    "reshape": lambda x: np.reshape(x, (x.shape[1], x.shape[0])),
    "softmax": lambda x: np.exp(x) / np.sum(np.exp(x), axis=1, keepdims=True),
    "gram": lambda x: x @ x.T * 0.3,
    "trace": lambda x: np.einsum("ij,ij->", x, x)[None, None] * 0.1,
    "cumprod": lambda x: np.cumprod(x, axis=0),
    "edges": lambda x: np.pad(x, ((1, 0), (0, 1)), mode="edge"),
    "steps": lambda x: np.diff(x, axis=0, prepend=x[:1]),
    "triangle": lambda x: np.triu(x),
    "weighted mean": lambda x: np.average(x, axis=1, weights=x * x + 1.0, keepdims=True),
    "resolvent": lambda x: np.linalg.inv(x.T @ x * 0.1 + np.eye(x.shape[1])),
    "whitened": lambda x: np.linalg.solve(np.linalg.cholesky(x @ x.T + np.eye(x.shape[0])), x),
    "volume": lambda x: np.linalg.det(x @ x.T * 0.1 + np.eye(x.shape[0]))[None, None],
    "asked for": lambda x: (getattr(x, "value", None), x * 1.5)[1],  # what waits is computed in between
    "weave": lambda x: np.stack([x, x * 2.0], axis=1).reshape(-1, x.shape[1]),
}
BINARY: dict[str, Callable[..., Any]] = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y * 2.0,
    "multiply": lambda x, y: x * y,
    "kron": lambda x, y: np.kron(x, y) * 0.5,
    "hypot": lambda x, y: np.sqrt(x * x + y * y + 1.0),
    "matmul": lambda x, y: x @ y * 0.5,
    "outer": lambda x, y: np.einsum("ij,kj->ik", x, y) * 0.5,
    "concatenate": lambda x, y: np.concatenate([x, y], axis=0),
    "side by side": lambda x, y: np.concatenate([x, y], axis=1),
}
# Not smooth, and so not for differences.
KINKS: dict[str, Callable[..., Any]] = {
    "abs": lambda x: abs(x),
    "max": lambda x: np.max(x, axis=0, keepdims=True),
    "min of all": lambda x: np.min(x, keepdims=True),
    "where": lambda x: np.where(x > 0.1, x * x, -x),
    "clip": lambda x: np.clip(x, -0.5, 0.9),
}

Step = tuple[str, tuple[int, ...]]


# From how many elements on operations wait for one another, and how much of them is one kernel. These arrays are small.
LIMITS = {"fused": (0, 200, 24), "in parts": (0, 5, 3), "one by one": (1024, 200, 24)}
# And up to how many bytes arrays are copied.
COPIED = {"fused": -1, "in parts": frozen.COPIED_BYTES, "one by one": -1}


@pytest.fixture(autouse=True, scope="module", params=LIMITS)
def limits(request: pytest.FixtureRequest) -> Iterator[None]:
    before, copied = (Limits.elements, Limits.statements, Limits.arrays), frozen.COPIED_BYTES
    Limits.elements, Limits.statements, Limits.arrays = LIMITS[request.param]
    frozen.COPIED_BYTES = COPIED[request.param]
    yield
    Limits.elements, Limits.statements, Limits.arrays = before
    frozen.COPIED_BYTES = copied


@st.composite
def programs(draw: st.DrawFn, kinks: bool) -> tuple[list[Step], list[Any]]:
    """Steps that apply an operation to results of earlier ones, and the arguments to begin with."""
    seed = draw(st.integers(0, 2**31))
    random = np.random.default_rng(seed)
    shape = st.tuples(st.integers(1, 3), st.integers(1, 3))
    args = [random.uniform(-1, 1, draw(shape)) for _ in range(draw(st.integers(1, 3)))]
    values: list[Any] = list(args)
    steps: list[Step] = []
    unary = {**UNARY, **KINKS} if kinks else UNARY
    for _ in range(draw(st.integers(1, 8))):
        name = draw(st.sampled_from([*unary, *BINARY]))
        at = tuple(draw(st.integers(0, len(values) - 1)) for _ in range(2 if name in BINARY else 1))
        try:
            value = ALL[name](*[values[each] for each in at])
        except ValueError:  # the shapes do not fit; draw another
            continue
        if value.size > 60:
            continue
        steps.append((name, at))
        values.append(value)
    return steps, args


ALL = {**UNARY, **BINARY, **KINKS}


def runner(steps: Sequence[Step], module: Any = None) -> Callable[..., Any]:
    """The program as a function to one number, in NumPy (of arrays or Variables) or in another module like it."""
    functions = ALL
    if module is not None:
        functions = {name: types.FunctionType(each.__code__, {**globals(), "np": module}) for name, each in ALL.items()}  # type: ignore[arg-type]

    def run(*args: Any) -> Any:
        values = list(args)
        for name, at in steps:
            values.append(functions[name](*[values[each] for each in at]))
        return sum((each * each * 0.5 + each).sum() for each in values[len(args) :]) + args[0].sum()

    return run


def tangents_of(args: Sequence[Any]) -> list[Any]:
    random = np.random.default_rng(1)
    return [random.uniform(-1, 1, arg.shape) for arg in args]


RELAXED = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


@settings(RELAXED, max_examples=5)
@given(programs(kinks=False))
def test_against_differences(program: tuple[list[Step], list[Any]]) -> None:
    check_against_differences(*program)


@pytest.mark.slow
@RELAXED
@given(programs(kinks=False))
def test_more_against_differences(program: tuple[list[Step], list[Any]]) -> None:
    check_against_differences(*program)


def check_against_differences(steps: list[Step], args: list[Any]) -> None:
    f, tangents = runner(steps), tangents_of(args)
    wrt = tuple(range(len(args)))
    value, slopes = graph.value_and_grad(f, wrt)(*args)
    np.testing.assert_allclose(value, f(*args), rtol=1e-12)
    directional = along(f, args, tangents)
    found = sum(float(np.vdot(slope, tangent)) for slope, tangent in zip(slopes, tangents, strict=True))
    scale = 1 + max(float(np.abs(each).max()) for each in slopes)
    np.testing.assert_allclose(found, directional, rtol=1e-6, atol=1e-7 * scale)
    gradient = graph.grad(f, wrt)
    expected = along(lambda *inputs: list(gradient(*inputs)), args, tangents)
    products = graph.jvp(gradient, args, tangents)[1]
    scale = 1 + max(float(np.abs(each).max()) for each in expected)
    for each, product in zip(products, expected, strict=True):
        np.testing.assert_allclose(each, product, rtol=1e-5, atol=1e-6 * scale)


@settings(RELAXED, max_examples=3)
@given(programs(kinks=True))
def test_against_jax(program: tuple[list[Step], list[Any]]) -> None:
    jax = pytest.importorskip("jax")
    import jax_derivatives

    steps, args = program
    wrt, tangents = tuple(range(len(args))), tangents_of(args)
    expected, slopes, seconds = jax_derivatives.to_second_order(runner(steps, jax.numpy), args, tangents)
    found, gradient = graph.value_and_grad(runner(steps), wrt)(*args)
    np.testing.assert_allclose(found, expected, rtol=1e-11)
    scale = 1 + max(float(np.abs(each).max()) for each in slopes)
    for each, slope in zip(gradient, slopes, strict=True):
        np.testing.assert_allclose(each, slope, rtol=1e-9, atol=1e-12 * scale)
    products = graph.jvp(graph.grad(runner(steps), wrt), args, tangents)[1]
    scale = 1 + max(float(np.abs(each).max()) for each in seconds)
    for each, product in zip(products, seconds, strict=True):
        np.testing.assert_allclose(each, product, rtol=1e-9, atol=1e-11 * scale)


# --- arrays that are written to ---------------------------------------------------------------------------------------

ROW = st.integers(0, 3)
# What may be written to: arrays that own their memory, views, arrays of foreign memory, and results of kernels.
CONSTANTS: dict[str, Callable[[np.random.Generator], Any]] = {
    "its own": lambda random: random.uniform(-1, 1, (3, 3)),
    "a view": lambda random: random.uniform(-1, 1, (4, 3, 3))[1],
    "turned": lambda random: random.uniform(-1, 1, (3, 3)).T,
    "every other": lambda random: random.uniform(-1, 1, (6, 3))[::2],
    "foreign": lambda random: np.frombuffer(bytearray(random.uniform(-1, 1, 9).tobytes())).reshape(3, 3),
    "float32": lambda random: random.uniform(-1, 1, (3, 3)).astype(np.float32),
    "a kernel's": lambda random: _doubled(random.uniform(-1, 1, (3, 3))),
}


@differentiable_broadcast
def _doubled(x: Any) -> Any:
    return x * 2.0


@differentiable_broadcast
def _bent(x: Any, y: Any) -> Any:
    return x * y if y > 0 else x - y


# How a constant takes part; `c` is one of the arrays above, and x has three rows and columns, too.
TAKES: dict[str, Callable[..., Any]] = {
    "multiply": lambda x, c: x * c,
    "before": lambda x, c: c - x * 0.5,
    "ufunc": lambda x, c: np.hypot(x, c),
    "kernel": lambda x, c: _bent(x, c),
    "kernel before": lambda x, c: _bent(c, x),
    "captured": lambda x, c: differentiable_broadcast(lambda v: v * c + v)(x),
    "matmul": lambda x, c: x @ c,
    "a row": lambda x, c: x * c[1],
    "an index": lambda x, c: x[np.argsort(c[0])] * c,
    "a mask": lambda x, c: np.where(c > 0, x * c, x),
    "joined": lambda x, c: np.concatenate([x[:1], c[1:] * x[1:]]),
    "reshaped": lambda x, c: graph.reshape(graph.reshape(c, (9,)), (3, 3)) * x,
    "einsum": lambda x, c: np.einsum("ij,jk->ik", x, c),
    "checkpoint": lambda x, c: graph.checkpoint(lambda v: np.sin(v) * c)(x),
    "an argument": lambda x, c: graph.checkpoint(lambda v, d: np.tanh(v * d))(x, c),
    "no gradient": lambda x, c: x + graph.stop_gradient(x * c),
}
PLACES: dict[str, Callable[[Any, int], None]] = {
    "in place": lambda array, _: array.__iadd__(0.75),
    "an element": lambda array, row: array.__setitem__((row % 3, 0), 0.875),
    "a row": lambda array, row: array[row % 3].__imul__(-1.5),
    "copyto": lambda array, _: np.copyto(array, 0.25),
    "base": lambda array, _: array.base.__setitem__(..., 0.5) if isinstance(array.base, np.ndarray) else None,
    "out": lambda array, _: np.negative(array, out=array),
    "fill": lambda array, _: array.T.fill(-0.5),
}


@st.composite
def written(draw: st.DrawFn) -> tuple[list[tuple[str, int, int]], list[tuple[int, str, int, int]], list[str], int]:
    """Steps, with the places of Variable and constant; writes, each after a step; kinds of constants; a seed."""
    kinds = draw(st.lists(st.sampled_from([*CONSTANTS]), min_size=1, max_size=3))
    steps = [
        (draw(st.sampled_from([*TAKES])), draw(st.integers(0, at)), draw(st.integers(0, len(kinds) - 1)))
        for at in range(draw(st.integers(1, 6)))
    ]
    # What is captured is read again, and of foreign memory that is refused.
    steps = [("an argument" if s[0] == "checkpoint" and kinds[s[2]] == "foreign" else s[0], *s[1:]) for s in steps]
    # After the constants come the array differentiated in, and a value that was handed out.
    write = st.tuples(st.integers(0, len(steps)), st.sampled_from([*PLACES]), st.integers(0, len(kinds) + 1), ROW)
    return steps, draw(st.lists(write, min_size=1, max_size=8)), kinds, draw(st.integers(0, 2**31))


def check_writes(
    steps: list[tuple[str, int, int]], writes: list[tuple[int, str, int, int]], kinds: list[str], seed: int
) -> tuple[int, int]:
    """Value and gradient are those of the same steps with copies; how many writes were done, and how many refused."""
    random = np.random.default_rng(seed)
    constants = [CONSTANTS[kind](random) for kind in kinds]
    start = random.uniform(-1, 1, (3, 3))
    counts = {True: 0, False: 0}
    before: list[Any] = []

    def disturb(at: int, x: Any, values: list[Any]) -> None:
        targets = [*constants, x, values[-1].value]
        for after, place, target, row in writes:
            if after != at:
                continue
            try:
                PLACES[place](targets[target], row)
                counts[True] += 1
            except ValueError as error:
                if "read-only" not in str(error):
                    raise
                counts[False] += 1

    def forward(v: Any, own: list[Any] | None, x: Any = None) -> Any:
        values = [v]
        for at, (name, of, constant) in enumerate(steps):
            if own is None:
                before.append(np.array(constants[constant], order="K"))
            values.append(TAKES[name](values[of], constants[constant] if own is None else own[at]))
            if own is None:
                disturb(at, x, values)
        return sum((each * each * 0.5 + each).sum() for each in values)

    x = start.copy()
    v = graph.Variable(x)
    total = forward(v, None, x)
    disturb(len(steps), x, [v])
    slope = graph.grad(total, v, record=True)
    again = graph.grad(np.sum(slope * slope), v) if slope.tracked else None
    w = graph.Variable(start.copy())
    expected = forward(w, before)
    expected_slope = graph.grad(expected, w, record=True)
    np.testing.assert_allclose(total.value, expected.value, rtol=1e-13)
    np.testing.assert_allclose(slope.value, expected_slope.value, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(v.value, start)
    if again is not None:
        expected_again = graph.grad(np.sum(expected_slope * expected_slope), w)
        scale = 1 + float(np.abs(expected_again).max())
        np.testing.assert_allclose(again, expected_again, rtol=1e-11, atol=1e-13 * scale)
    # All that was refused is possible once nothing needs the arrays.
    del v, w, total, slope, expected, expected_slope
    for array in (x, *constants):
        array += 1.0
    return counts[True], counts[False]


@settings(RELAXED, max_examples=5)
@given(written())
def test_writes_are_refused_or_have_no_effect(program: Any) -> None:
    check_writes(*program)


@pytest.mark.slow
@settings(RELAXED, max_examples=250)
@given(written())
def test_more_writes_are_refused_or_have_no_effect(program: Any) -> None:
    check_writes(*program)


def test_such_programs_have_writes_of_both_kinds() -> None:
    steps = [("multiply", 0, 0), ("kernel", 1, 1)]
    writes = [(0, "in place", 0, 0), (0, "in place", 1, 0), (2, "a row", 2, 1)]
    done, refused = check_writes(steps, writes, ["its own"] * 2, seed=1)
    # What was handed out is read-only in any case.
    assert (done, refused) == ((1, 2) if frozen.COPIED_BYTES < 0 else (3, 0))
