"""`vmap`: it gives what a loop over the batch gives, for every operation, with derivatives inside and around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import test_array_functions
import test_arrays
import test_linalg
from operation_cases import Case
from suites import sampled

from dualbcast import ArgumentError, ShapeError, differentiable_broadcast, graph, index

BATCH = 3
CASES = [
    *test_arrays.CASES,
    *[each for module in (test_array_functions, test_linalg) for each in module.CASES],
    *[Case(name, f, f, shapes) for name, f, shapes in (*test_array_functions.NOT_IN_JAX, *test_linalg.NOT_IN_JAX)],
]
# Their shapes or ranks depend on values.
READ_VALUES = {each.name for each in CASES if "lstsq" in each.name}
VECTORISED = [each for each in CASES if each.name not in READ_VALUES]
EACH = pytest.mark.parametrize("case", VECTORISED, ids=lambda case: case.name)


def batches(case: Case) -> list[Any]:
    random = np.random.default_rng(11)
    return [np.stack([each + 0.05 * random.normal(size=each.shape) for _ in range(BATCH)]) for each in case.arguments()]


def rows(args: list[Any], axes: tuple[Any, ...]) -> list[list[Any]]:
    return [[arg if axis is None else arg[at] for arg, axis in zip(args, axes, strict=True)] for at in range(BATCH)]


def mixes(count: int) -> list[tuple[Any, ...]]:
    """All arguments have the batch; all but the first; all but the last."""
    both = [(None, *[0] * (count - 1)), (*[0] * (count - 1), None)] if count > 1 else []
    return [(0,) * count, *both]


@EACH
def test_values_are_those_of_a_loop_of_numpy(case: Case) -> None:
    full = batches(case)
    for axes in mixes(len(full)):
        args = [each[0] if axis is None else each for each, axis in zip(full, axes, strict=True)]
        expected = np.stack([case.reference(*each) for each in rows(args, axes)])
        found = graph.vmap(case.function, axes)(*args)
        assert type(found) is np.ndarray
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("case", sampled(VECTORISED, 2), ids=lambda case: case.name)
def test_derivatives_are_those_of_a_loop(case: Case) -> None:
    """Those inside, for each element of the batch; and around, of a number that all elements go into."""
    full = batches(case)
    wrt = tuple(range(len(full)))

    def number(*args: Any) -> Any:
        return np.sum(case.function(*args) ** 2)

    for axes in mixes(len(full)):
        args = [each[0] if axis is None else each for each, axis in zip(full, axes, strict=True)]
        singles = [graph.grad(number, wrt)(*each) for each in rows(args, axes)]
        inside = graph.vmap(graph.grad(number, wrt), axes)(*args)
        around = graph.grad(lambda *each, axes=axes: np.sum(graph.vmap(number, axes)(*each)), wrt)(*args)
        for at, axis in enumerate(axes):
            expected = np.stack([each[at] for each in singles])
            close = {"rtol": 1e-9, "atol": 1e-9 * (1 + np.abs(expected).max(initial=0))}
            np.testing.assert_allclose(inside[at], expected, **close)
            np.testing.assert_allclose(around[at], expected.sum(0) if axis is None else expected, **close)


@differentiable_broadcast
def bent(x: Any, y: Any) -> Any:
    return x * y if x > y else x - y * y


W, X, Y = (np.random.default_rng(at).normal(size=shape) for at, shape in enumerate([(3, 2), (5, 3), (5, 2)]))


def loss(w: Any, x: Any, y: Any) -> Any:
    return np.sum(bent(np.tanh(x @ w), y) ** 2)


@pytest.mark.parametrize(
    "transformed",
    [
        lambda w, x, y: graph.hessian(loss)(w, x, y),
        lambda w, x, _: graph.jacobian(lambda w: np.tanh(x @ w), 0)(w),
        lambda _, x, y: graph.jacobian(lambda x: np.tanh(x[:1] * y), 0)(x),
        lambda w, x, y: graph.hvp(lambda w: loss(w, x, y), (w,), (np.ones((3, 2)),))[0],
        lambda w, x, _: graph.jvp(lambda w, x: np.tanh(x @ w), (w, x), (w * 2.0, None))[1],
        lambda w, x, y: graph.vjp(lambda w, x: np.tanh(x @ w), w, x)[1](y)[0],
        lambda w, x, y: graph.value_and_grad(lambda w: (loss(w, x, y), y), has_aux=True)(w)[1],
        lambda w, x, y: graph.grad(lambda w: np.sum(graph.grad(loss)(w, x, y) ** 2))(w),
        lambda w, x, y: graph.grad(lambda w: graph.checkpoint(loss)(w, x, y))(w),
        lambda w, x, y: graph.grad(lambda w: loss(graph.stop_gradient(w), x, y) * np.sum(w))(w),
        lambda w, *_: graph.grad(lambda w: np.sum(w * w) * 1.0)(w),
        lambda w, x, y: graph.vmap(lambda row: loss(w, x, row))(np.stack([y, y * 2.0])),
    ],
)  # fmt: skip
def test_transformations_inside(transformed: Callable[..., Any]) -> None:
    expected = np.stack([transformed(W, x, y) for x, y in zip(X, Y, strict=True)])
    found = graph.vmap(transformed, (None, 0, 0))(W, X, Y)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


def test_a_pullback_takes_batches_of_cotangents() -> None:
    value, pullback = graph.vjp(lambda w: np.tanh(X @ w).ravel(), W)
    rows_of_jacobian = graph.vmap(pullback)(np.eye(value.size))[0]
    np.testing.assert_allclose(rows_of_jacobian, graph.jacobian(lambda w: np.tanh(X @ w).ravel())(W), rtol=1e-12)


def test_one_kernel_serves_the_batch() -> None:
    x = np.random.default_rng(0).normal(size=(40, 50))
    with graph.launches() as kernels:
        found = graph.vmap(lambda row: np.sum(np.tanh(row) * row + 1))(x)
    np.testing.assert_allclose(found, np.sum(np.tanh(x) * x + 1, axis=1), rtol=1e-13)
    assert len(kernels) == 1


def test_axes_of_containers() -> None:
    model = {"w": W, "b": np.stack([Y[0], Y[1]])}

    def f(model: Any, x: Any, *, scale: Any) -> Any:
        return {"y": np.tanh(x @ model["w"] + model["b"]) * scale, "parts": [model["b"], 1.5], "none": None}

    axes = ({"w": None, "b": 0}, 1)
    found = graph.vmap(f, axes, {"y": 1, "parts": [0, None], "none": None})(model, X[:2].T, scale=np.array([1.0, 2.0]))
    expected = np.tanh(X[:2] @ W + model["b"]) * np.array([[1.0], [2.0]])
    np.testing.assert_allclose(found["y"], expected.T, rtol=1e-13)
    np.testing.assert_array_equal(found["parts"][0], model["b"])
    assert (found["parts"][1], found["none"]) == (1.5, None)
    np.testing.assert_array_equal(graph.vmap(lambda _: 2.0)(X), np.full(5, 2.0))
    np.testing.assert_array_equal(graph.vmap(lambda x: x, in_axes=np.int64(1))(X), X.T)
    np.testing.assert_array_equal(graph.vmap(lambda _: X[0], out_axes=-1)(X), np.stack([X[0]] * 5, axis=-1))


def test_batches_of_indices_and_shapes() -> None:
    at = np.array([2, 0, 0, 1, -1])
    np.testing.assert_array_equal(graph.vmap(lambda x, i: x[i])(X, at), X[np.arange(5), at])
    np.testing.assert_array_equal(graph.vmap(lambda i: graph.take(W, i, axis=0))(at), W[at])
    np.testing.assert_array_equal(graph.vmap(lambda x: np.zeros_like(x) + np.shape(x)[0])(X), np.full((5, 3), 3.0))
    mask = np.array([True, False, True])
    np.testing.assert_array_equal(graph.vmap(lambda x, i: x[mask, i])(np.stack([W] * 5), at % 2), W[mask][:, at % 2].T)
    slopes = graph.grad(lambda x: np.sum(graph.vmap(lambda x, i: x[i])(x, at)))(X)
    np.testing.assert_array_equal(slopes, np.eye(3)[at])


def test_results_are_arrays_of_their_own_and_empty_batches_are_empty() -> None:
    x = np.ones((4, 2))
    found = graph.vmap(lambda row: row)(x)
    found[:] = 7.0
    np.testing.assert_array_equal(x, 1.0)
    assert graph.vmap(lambda row: np.sum(np.tanh(row) @ W))(np.ones((0, 3))).shape == (0,)


def test_it_is_replayed() -> None:
    plain = graph.vmap(graph.grad(loss), (None, 0, 0))
    compiled = graph.compile(plain)
    for scale in (1.0, 2.0, 3.0, 4.0):
        np.testing.assert_array_equal(compiled(W * scale, X, Y), plain(W * scale, X, Y))
    assert "replayed, 2 times" in compiled.explain()


def test_it_is_as_of_jax() -> None:
    jax = pytest.importorskip("jax")

    def peer(w: Any, x: Any, y: Any) -> Any:
        return ((jax.numpy.tanh(x @ w) - y) ** 2).sum()

    def ours(w: Any, x: Any, y: Any) -> Any:
        return np.sum((np.tanh(x @ w) - y) ** 2)

    with jax.enable_x64():
        for axes, out, args in [
            ((None, 0, 0), 0, (W, X, Y)),
            ((None, 1, 0), 2, (W, X.T, Y)),
            ((None, 0, None), -1, (W, X, Y[0])),
        ]:
            expected = jax.vmap(jax.grad(peer), axes, out)(*args)
            np.testing.assert_allclose(graph.vmap(graph.grad(ours), axes, out)(*args), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: graph.vmap(lambda x: x * 2 if np.sum(x) > 0 else x)(X), ArgumentError, "inside vmap.*np.where"),
        (lambda: graph.vmap(lambda x: x * x.value)(X), ArgumentError, "inside vmap"),
        (lambda: graph.vmap(lambda x: x[x > 0])(X), ArgumentError, "mask as an index"),
        (lambda: graph.vmap(lambda x: np.argmax(x))(X), ArgumentError, "inside vmap"),
        (lambda: graph.vmap(lambda x, _: x)(X, Y[:4]), ShapeError, r"5 in arguments\[0\], 4 in arguments\[1\]"),
        (lambda: graph.vmap(lambda x: x, 2)(X), ShapeError, "no axis 2"),
        (lambda: graph.vmap(lambda x, _: x)(X, 2.0), ShapeError, "which is a float; in_axes=None"),
        (lambda: graph.vmap(lambda x: x, None)(X), ArgumentError, "no batch"),
        (lambda: graph.vmap(lambda x: x, (0, 0))(X), ArgumentError, "2 entries"),
        (lambda: graph.vmap(lambda x: x, ({"a": 0},))(X), ArgumentError, "not like"),
        (lambda: graph.vmap(lambda x: x, out_axes=None)(X), ArgumentError, "out_axes is None"),
        (lambda: graph.vmap(lambda x: np.convolve(x, x))(X[:0]), ArgumentError, "the batch is empty"),
        (lambda: graph.vmap(3), ArgumentError, "vmap takes a function"),
        (lambda: inside(lambda x, v: graph.grad(np.sum(x * v), v)), ArgumentError, "taken in arguments"),
    ],
)  # fmt: skip
def test_errors(call: Callable[[], Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        call()


def inside(function: Callable[..., Any]) -> Any:
    v = graph.Variable(X[0])
    return graph.vmap(lambda x: function(x, v))(X)


def test_a_variable_that_has_left_its_batch_is_refused() -> None:
    kept = []
    graph.vmap(lambda x: kept.append(x) or x)(X)
    with pytest.raises(ArgumentError, match="inside vmap"):
        np.sum(kept[0])
    for function in (lambda x: x * kept[0], lambda _: kept[0], lambda x: graph.grad(lambda x: np.sum(x * kept[0]))(x)):
        with pytest.raises(ArgumentError, match="inside vmap"):
            graph.vmap(function)(X)


@differentiable_broadcast(whole="table")
def looked_up(x: Any, table: Any) -> Any:
    i = index(0)
    return table[i] * x + table[(i + 1) % len(table)], x * x


@pytest.mark.parametrize("axes", [(0, None), (0, 0), (None, 0)])
def test_arrays_that_a_function_reads_as_a_whole(axes: Any) -> None:
    x, table = (X if axis == 0 else X[0] for axis in axes)
    pairs = [(X[at] if axes[0] == 0 else x, X[at] if axes[1] == 0 else table) for at in range(5)]
    found = graph.vmap(looked_up, axes)(x, table)
    np.testing.assert_allclose(np.stack(found), np.stack([looked_up(*each) for each in pairs], axis=1), rtol=1e-14)

    def number(x: Any, table: Any) -> Any:
        y, z = looked_up(x, table)
        return np.sum(y * y + z)

    slopes = graph.vmap(graph.grad(number, (0, 1)), axes)(x, table)
    singles = [graph.grad(number, (0, 1))(*each) for each in pairs]
    for at in range(2):
        np.testing.assert_allclose(slopes[at], np.stack([each[at] for each in singles]), rtol=1e-12)


@pytest.mark.slow
@EACH
def test_second_derivatives_are_those_of_a_loop(case: Case) -> None:
    full = batches(case)
    tangents = [np.random.default_rng(12).normal(size=each.shape) for each in full]

    def number(*args: Any) -> Any:
        return np.sum(case.function(*args) ** 2)

    def product(*given: Any) -> Any:
        return graph.hvp(number, given[: len(full)], given[len(full) :])

    found = graph.vmap(product)(*full, *tangents)
    singles = [product(*each) for each in zip(*full, *tangents, strict=True)]
    for at, each in enumerate(found):
        expected = np.stack([single[at] for single in singles])
        np.testing.assert_allclose(each, expected, rtol=1e-8, atol=1e-8 * (1 + np.abs(expected).max(initial=0)))


def test_levels_are_kept_apart() -> None:
    def inner(x: Any, y: Any) -> Any:
        return np.sum(x * y**2) + np.sum(x) ** 2

    x, y = X[:, :2], Y[:3]
    found = graph.vmap(lambda x: graph.vmap(graph.grad(lambda y: inner(x, y)))(y))(x)
    np.testing.assert_allclose(found, 2 * x[:, None] * y, rtol=1e-14)
    found = graph.vmap(lambda x: graph.vmap(lambda y: graph.grad(lambda x: inner(x, y))(x))(y))(x)
    np.testing.assert_allclose(found, y**2 + 2 * x.sum(1)[:, None, None], rtol=1e-14)
    found = graph.vmap(graph.grad(lambda x: np.sum(graph.vmap(lambda y: inner(x, y))(y) ** 2)))(x)
    expected = [graph.grad(lambda x: sum(inner(x, row) ** 2 for row in y))(each) for each in x]
    np.testing.assert_allclose(found, np.stack(expected), rtol=1e-12)
