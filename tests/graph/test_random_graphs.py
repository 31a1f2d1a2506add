"""Random graphs to second order: against differences of NumPy's values, and against JAX where it is installed."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from differences import along
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dualbcast import graph
from dualbcast.graph.expression import Limits

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
    "asked for": lambda x: (getattr(x, "value", None), x * 1.5)[1],  # what waits is computed in between
    "weave": lambda x: np.stack([x, x * 2.0], axis=1).reshape(-1, x.shape[1]),
}
BINARY: dict[str, Callable[..., Any]] = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y * 2.0,
    "multiply": lambda x, y: x * y,
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


@pytest.fixture(autouse=True, scope="module", params=LIMITS)
def limits(request: pytest.FixtureRequest) -> Iterator[None]:
    before = Limits.elements, Limits.statements, Limits.arrays
    Limits.elements, Limits.statements, Limits.arrays = LIMITS[request.param]
    yield
    Limits.elements, Limits.statements, Limits.arrays = before


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


@RELAXED
@given(programs(kinks=True))
def test_against_jax(program: tuple[list[Step], list[Any]]) -> None:
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    steps, args = program
    wrt, tangents = tuple(range(len(args))), tangents_of(args)
    peer = jax.value_and_grad(runner(steps, jax.numpy), wrt)
    expected, slopes = peer(*args)
    found, gradient = graph.value_and_grad(runner(steps), wrt)(*args)
    np.testing.assert_allclose(found, expected, rtol=1e-11)
    scale = 1 + max(float(np.abs(each).max()) for each in slopes)
    for each, slope in zip(gradient, slopes, strict=True):
        np.testing.assert_allclose(each, slope, rtol=1e-9, atol=1e-12 * scale)
    expected = jax.jvp(lambda *inputs: peer(*inputs)[1], tuple(args), tuple(tangents))[1]
    products = graph.jvp(graph.grad(runner(steps), wrt), args, tangents)[1]
    scale = 1 + max(float(np.abs(each).max()) for each in expected)
    for each, product in zip(products, expected, strict=True):
        np.testing.assert_allclose(each, product, rtol=1e-9, atol=1e-11 * scale)
