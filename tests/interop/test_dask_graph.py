"""Dask arrays in the graph: gradients are lazy, one pass over the chunks, and the numbers of NumPy's arrays."""

# Losses have the same parameters, and do not all use them.
# ruff: noqa: ARG005

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from dualbcast import differentiable_broadcast, graph
from dualbcast.errors import ArgumentError, DTypeError, ShapeError

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

from dualbcast.interop.dask_arrays import ChunkCall  # noqa: E402

RANDOM = np.random.default_rng(3)
X, Y, W = RANDOM.normal(size=(200, 12)), RANDOM.normal(size=200), RANDOM.normal(size=12)
CHUNKS = 4


@differentiable_broadcast
def bend(x, w):
    if x > 0:
        return math.tanh(x * w)
    return w * x * x


@pytest.fixture(autouse=True)
def on_this_thread() -> Iterator[None]:
    with dask.config.set(scheduler="synchronous"):
        yield


class Reads:
    """A Dask array in chunks of rows, which counts the chunks that are read."""

    def __init__(self, array: np.ndarray) -> None:
        self.count = 0

        def block(ready: np.ndarray) -> np.ndarray:
            self.count += 1
            return ready

        lazy = da.from_array(array, chunks=(50, *array.shape[1:]))
        self.array = lazy.map_blocks(block, dtype=array.dtype, meta=np.empty((0,) * array.ndim, array.dtype))


def model(parameters: Any, x: Any, y: Any) -> Any:
    return np.mean((np.tanh(x @ parameters["w"] + parameters["b"]) - y) ** 2)


# Functions of a parameter and of Dask arrays, each with more elements than the graph computes at once.
LOSSES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "call": lambda w, x, y: np.sum(bend(x, w)),
    "call before": lambda w, x, y: np.sum(bend(w, x)),
    "composed": lambda w, x, y: np.mean((np.tanh(x * w) - 0.5) ** 2),
    "operators": lambda w, x, y: np.sum(x * w - w / (1 + x * x)) + np.sum(w**2),
    "ufunc": lambda w, x, y: np.sum(np.exp(-(np.multiply(x, w) ** 2))),
    "where": lambda w, x, y: np.sum(np.where(x > 0.3, x * w, w)),
    "matmul": lambda w, x, y: np.mean((np.tanh(x @ w + 0.5) - y) ** 2),
    "matmul before": lambda w, x, y: np.sum((w @ x.T - y) ** 2),
    "axis": lambda w, x, y: np.sum(np.tanh(np.sum(x * w, axis=1) - y)),
    "rows": lambda w, x, y: np.sum(np.sum(bend(x, w), axis=0) ** 2),
    "keepdims": lambda w, x, y: np.sum((bend(x, w) - np.mean(bend(x, w), axis=1, keepdims=True)) ** 2),
    "constant": lambda w, x, y: np.sum(w * w) + 0.0 * np.sum(bend(x, graph.stop_gradient(w))),
    "twice": lambda w, x, y: np.sum(graph.grad(lambda v: np.sum(bend(x, v)))(w) ** 2),
    "checkpoint": lambda w, x, y: np.sum(graph.checkpoint(bend)(x, w)),
    "dtype": lambda w, x, y: np.sum(bend(x, w).astype(np.float32)),
}


@pytest.mark.parametrize("wrt", [0, 1])
@pytest.mark.parametrize("loss", LOSSES)
def test_gradients_are_those_of_numpys_arrays(loss: str, wrt: int) -> None:
    function = LOSSES[loss]
    reads = Reads(X)
    value, gradient = graph.value_and_grad(function, wrt)(W, reads.array, da.from_array(Y, chunks=50))
    assert reads.count == 0
    wanted_value, wanted = graph.value_and_grad(function, wrt)(W, X, Y)
    assert (gradient.shape, gradient.dtype) == (wanted.shape, wanted.dtype)
    value, gradient = dask.compute(value, gradient)
    rtol = 1e-5 if loss == "dtype" else 1e-11
    assert value == pytest.approx(wanted_value, rel=rtol)
    np.testing.assert_allclose(gradient, wanted, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("loss", LOSSES)
def test_chunks_may_cut_every_axis(loss: str) -> None:
    function, y = LOSSES[loss], da.from_array(Y, chunks=70)
    found = graph.grad(function)(W, da.from_array(X, chunks=(60, 5)), y).compute()
    rtol = 1e-5 if loss == "dtype" else 1e-11
    np.testing.assert_allclose(found, graph.grad(function)(W, X, Y), rtol=rtol, atol=rtol)


def test_value_and_gradient_of_a_sum_take_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []
    run = ChunkCall.__call__
    monkeypatch.setattr(
        ChunkCall, "__call__", lambda self, *values: ran.append(self.element.label) or run(self, *values)
    )
    reads = Reads(X)
    value, gradient = graph.value_and_grad(lambda w, x: np.sum(np.exp(-bend(x, w))))(W, reads.array)
    assert isinstance(value, da.Array) and isinstance(gradient, da.Array)
    assert reads.count == 0 and ran == []
    value, gradient = dask.compute(value, gradient)
    # One kernel for the value, which is a sum already, and one for the gradient.
    assert reads.count == CHUNKS and len(ran) == 2 * CHUNKS and len(set(ran)) == 2
    reads.count = 0
    ran.clear()
    graph.grad(lambda w, x: np.sum(np.exp(-bend(x, w))))(W, reads.array).compute()
    assert reads.count == CHUNKS and len(ran) == CHUNKS

    def total(w: np.ndarray) -> Any:
        return np.exp(-np.where(X > 0, np.tanh(X * w), w * X * X)).sum()

    assert value == pytest.approx(float(total(W)), rel=1e-12)
    step = np.longdouble(1e-6)
    differences = [(total(W + step * each) - total(W - step * each)) / (2 * step) for each in np.eye(12)]
    np.testing.assert_allclose(gradient, np.array(differences, float), rtol=1e-9)


def test_parameters_in_containers_and_a_model() -> None:
    parameters = {"w": W, "b": 0.5}
    x, y = Reads(X), Reads(Y)
    value, gradient = dask.compute(graph.value_and_grad(model)(parameters, x.array, y.array))[0]
    wanted_value, wanted = graph.value_and_grad(model)(parameters, X, Y)
    assert x.count == y.count == CHUNKS
    assert value == pytest.approx(wanted_value)
    np.testing.assert_allclose(gradient["w"], wanted["w"], rtol=1e-12)
    assert gradient["b"] == pytest.approx(wanted["b"])


def test_products_with_the_jacobian() -> None:
    x = Reads(X)
    value, pullback = graph.vjp(bend, x.array, W)
    wanted_value, wanted_pullback = graph.vjp(bend, X, W)
    for found, wanted in zip((value, *pullback(x.array)), (wanted_value, *wanted_pullback(X)), strict=True):
        np.testing.assert_allclose(found.compute(), wanted, rtol=1e-12, atol=1e-12)
    tangents = RANDOM.normal(size=12)
    found = graph.jvp(lambda x, w: bend(x, w), (x.array, W), (None, tangents))[1]
    np.testing.assert_allclose(found.compute(), graph.jvp(bend, (X, W), (None, tangents))[1], rtol=1e-12)


def test_a_variable_of_a_dask_array_is_lazy() -> None:
    x = Reads(X)
    v = graph.Variable(x.array)
    assert v.value is x.array and v.shape == X.shape and v.dtype == float
    assert repr(v).startswith("Variable(dask.array<") and repr(np.sum(v * 2.0)).startswith("Variable(dask.array<")
    assert x.count == 0
    np.testing.assert_array_equal(np.asarray(graph.stop_gradient(v)), X)


REFUSED: dict[str, Callable[[Any, Any], Any]] = {
    "max": lambda w, x: np.max(x * w),
    "indexing": lambda w, x: np.sum((x * w)[3]),
    "cumsum": lambda w, x: np.sum(np.cumsum(x * w, axis=0)),
    "logsumexp": lambda w, x: graph.logsumexp(x * w),
    "softmax": lambda w, x: np.sum(graph.softmax(x * w)),
    "concat": lambda w, x: np.sum(np.concatenate([x * w, x * w])),
    "einsum": lambda w, x: np.sum(np.einsum("ij,j->ij", x, w)),
}


@pytest.mark.parametrize("operation", REFUSED)
def test_other_operations_are_refused_with_what_to_write(operation: str) -> None:
    with pytest.raises(ArgumentError, match=r"does not work on Variables of Dask arrays, .* Write it by these"):
        graph.grad(REFUSED[operation])(W, Reads(X).array)


@pytest.mark.parametrize("transformation", [graph.jacobian, graph.hessian])
def test_matrices_of_derivatives_are_refused(transformation: Any) -> None:
    lazy = Reads(X).array
    with pytest.raises(ArgumentError, match="concat does not work on Variables of Dask arrays"):
        transformation(lambda w: np.sum(bend(lazy, w)))(W)


def test_a_compiled_step_that_captures_a_dask_array() -> None:
    lazy = Reads(X).array
    step = graph.compile(graph.grad(lambda w: np.sum(np.tanh(lazy * w))))
    for _ in range(3):
        np.testing.assert_allclose(step(W).compute(), graph.grad(lambda w: np.sum(np.tanh(X * w)))(W), rtol=1e-12)
    assert "not replayed" in step.explain()


def test_what_a_variable_cannot_hold() -> None:
    lazy = da.from_array(X, chunks=50)
    with pytest.raises(ShapeError, match="compute_chunk_sizes"):
        graph.Variable(lazy[lazy[:, 0] > 0])
    with pytest.raises(DTypeError, match=r"of z\.real and z\.imag"):
        graph.Variable(lazy.astype(complex))
    with pytest.raises(ArgumentError, match="chunks of type"):
        graph.Variable(da.ma.masked_array(lazy, lazy > 0))
    with pytest.raises(ArgumentError, match="no derivative would come through"):
        graph.grad(lambda w: da.sum(lazy))(W)
