"""NumPy's functions on Variables, by NumPy's own names for their arguments; and what they do not do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dualbcast import ArgumentError, ShapeError, graph

X = np.array([[0.5, -1.5, 2.0], [1.0, 0.25, -0.75]])

SAME = [
    lambda x: np.sum(a=x, axis=1, keepdims=True),
    lambda x: np.sum(x, 0, np.float32),
    lambda x: np.mean(a=x, axis=(0, 1)),
    lambda x: np.max(a=x, axis=0),
    lambda x: np.amin(x, 1, keepdims=True),
    lambda x: np.prod(a=x, axis=1),
    lambda x: np.std(x, axis=1, ddof=1),
    lambda x: np.var(x, correction=1),
    lambda x: np.cumsum(x, axis=0),
    lambda x: np.cumulative_sum(x, axis=1),
    lambda x: np.add.reduce(x),
    lambda x: np.multiply.reduce(x, axis=1),
    lambda x: np.maximum.reduce(x, axis=None),
    lambda x: np.minimum.reduce(x, axis=1, keepdims=True),
    lambda x: np.add.accumulate(x, axis=1),
    lambda x: np.reshape(x, 6),
    lambda x: np.reshape(x, shape=(3, 2)),
    lambda x: np.ravel(x),
    lambda x: np.transpose(a=x, axes=(1, 0)),
    lambda x: np.permute_dims(x, (1, 0)),
    lambda x: np.matrix_transpose(x),
    lambda x: np.expand_dims(a=x, axis=1),
    lambda x: np.squeeze(x[None], axis=0),
    lambda x: np.broadcast_to(array=x, shape=(2, 2, 3)),
    lambda x: np.flip(m=x),
    lambda x: np.flip(x, axis=(0, 1)),
    lambda x: np.roll(x, shift=1, axis=1),
    lambda x: np.repeat(x, repeats=2),
    lambda x: np.tile(x, reps=2),
    lambda x: np.concatenate((x, X), axis=-1),
    lambda x: np.concatenate([X, x]),
    lambda x: np.stack([x, X], axis=2),
    lambda x: np.vstack((x, X[0])),
    lambda x: np.hstack((x, X)),
    lambda x: np.split(ary=x, indices_or_sections=3, axis=1)[2],
    lambda x: np.unstack(x)[1],
    lambda x: np.take(x, indices=[0, 2], axis=1),
    lambda x: np.take_along_axis(x, np.argsort(x, axis=1), axis=1),
    lambda x: np.where(x > 0, x, -x),
    lambda x: np.where([[True], [False]], x, 0.0),
    lambda x: np.clip(x, -1, 1),
    lambda x: np.clip(x, a_min=0, a_max=None),
    lambda x: np.clip(x, min=-1, max=1),
    lambda x: np.fix(x),
    lambda x: np.copy(x),
    lambda x: np.einsum("ij->j", x, optimize=True),
    lambda x: np.dot(x, X.T),
    lambda x: X.T @ x,
    lambda x: np.matmul(X, x.T),
    lambda x: np.vecdot(x, X),
    lambda x: np.vecdot(x, X, axis=0),
    lambda x: np.take(x, [True, False, True], axis=1),
    lambda x: np.split(x, np.int64(3), axis=1)[1],
    lambda x: np.tile(x, np.array([2, 1])),
    lambda x: np.reshape(x, np.array([3, 2])),
    lambda x: np.gradient(x, axis=np.int64(1)),
    lambda x: np.tensordot(x, X.T, np.int64(1)),
    lambda x: x[0].transpose(np.int64(0)),
    lambda x: np.sin(x, dtype=np.float32),
    lambda x: np.positive(x),
    lambda x: X + x,
    lambda x: np.float64(2) * x,
    lambda x: np.float32(2) - x,
    lambda x: [1.0, 2.0, 3.0] * np.ones(1) * x,
    lambda x: x.sum(0).cumsum(),
    lambda x: x.std(axis=1),
    lambda x: x.var(ddof=1),
    lambda x: x.prod(),
    lambda x: x.min(axis=0, keepdims=True),
    lambda x: x.swapaxes(0, 1).squeeze().flatten(),
    lambda x: x.reshape((3, 2)).reshape(-1).take([1, 1]),
    lambda x: x.transpose([1, 0]).dot(x),
    lambda x: x.clip(-1, 0.5).astype(np.float32),
    lambda x: np.array([[x[0, 0], 0.0], [1.5, x[1, 1] * x[0, 0]]], like=x),
    lambda x: np.asarray((x, X), like=x),
    lambda x: np.array([x[0], x[1]], np.float32, ndmin=3, like=x),
    lambda x: np.sort(x, axis=0, kind="heapsort"),
    lambda x: np.sort(x, stable=True),
    lambda x: x.cumprod(axis=1),
    lambda x: np.fft.fftshift(x),
    lambda x: np.fft.ifftshift(x, axes=1),
    lambda x: np.float_power(abs(x).astype(np.float32), 1.5),
    lambda x: np.float_power(np.float32(2), x.astype(np.float16)),
    lambda x: np.float_power(2, (x > 0).astype(int)),
    lambda x: np.tril(x > 0),
    lambda x: np.triu(x > 0, 1),
    lambda x: np.full_like(x, x[0, 1]),
    lambda x: np.full_like(x, x[1], dtype=None),
    lambda x: np.full_like(x, x[0, 0], dtype=np.float32, shape=(2, 2)),
    lambda x: np.bincount([0, 2, 2], weights=x[0]),
    lambda x: np.bincount(np.array([1, 0, 1]), x[1].astype(np.float32), minlength=4),
]


@pytest.mark.parametrize("at", range(len(SAME)))
def test_results_are_as_of_arrays(at: int) -> None:
    expected, found = SAME[at](X), SAME[at](graph.Variable(X))
    assert isinstance(found, graph.Variable)
    assert (found.shape, found.dtype) == (np.shape(expected), expected.dtype)
    np.testing.assert_allclose(found.value, expected, rtol=1e-6 if expected.dtype == np.float32 else 1e-13)


@pytest.mark.parametrize(
    "function",
    [
        np.argmax, np.argmin, np.argsort, np.any, np.all, np.shape, np.ndim, np.size, np.count_nonzero, np.nonzero,
        np.zeros_like, np.ones_like, np.isposinf, lambda x: np.allclose(x, X), lambda x: np.array_equal(x, X),
        lambda x: np.full_like(x, 3.0), lambda x: np.where(x > 0), lambda x: x.argmax(axis=1), lambda x: x.any(),
        lambda x: x.argmin(), lambda x: x.all(axis=0), np.linalg.matrix_rank,
        lambda x: np.full_like(x, [1.0, 2.0, 3.0], int, shape=(4, 3)), lambda x: np.bincount((x[0] > 0).astype(int)),
        lambda x: np.histogram(x, [-2, 0, 2], density=True), lambda x: np.histogram(x, 3, (-2, 2))[0],
    ],
)  # fmt: skip
def test_what_has_no_derivative_works_on_values(function: Callable[..., Any]) -> None:
    expected, found = function(X), function(graph.Variable(X))
    assert not isinstance(found, graph.Variable)
    np.testing.assert_equal(found, expected)


def test_arguments_may_be_variables_anywhere() -> None:
    x, y = graph.Variable(X), graph.Variable(X[0])
    slope = graph.grad(np.sum(np.concatenate([X, x * 2])), x)
    np.testing.assert_array_equal(slope, np.full((2, 3), 2.0))
    np.testing.assert_array_equal(graph.grad(np.sum(np.where(X > 0, 0.0, y)), y), (X <= 0).sum(0))
    np.testing.assert_array_equal(graph.grad(np.sum(np.matmul(X, y)), y), X.sum(0))
    assert graph.take(X, graph.Variable(np.array([1])), axis=0).value.tolist() == [X[1].tolist()]
    np.testing.assert_array_equal(X[0][graph.Variable(1).item()], -1.5)
    np.testing.assert_array_equal(x[graph.Variable(1) :].value, X[1:])
    np.testing.assert_array_equal(x[graph.Variable(np.array([1, 0])), y > 0].value, X[[1, 0], X[0] > 0])


def test_filled_and_binned_values_have_their_derivatives() -> None:
    w = np.array([0.5, -1.0, 2.0])
    np.testing.assert_array_equal(graph.grad(lambda w: np.sum(np.full_like(w, w[1])))(w), [0, 3, 0])
    sums = lambda w: np.sum(np.bincount([1, 0, 1], weights=w) ** 2)  # noqa: E731
    np.testing.assert_array_equal(graph.grad(sums)(w), [5, -2, 5])
    np.testing.assert_array_equal(graph.hvp(sums, (w,), (w,))[0], [5, -2, 5])
    rows = graph.vmap(lambda w: np.bincount([1, 0, 1], weights=w))(np.stack([w, 2 * w]))
    np.testing.assert_array_equal(rows, [[-1, 2.5], [-2, 5]])


def test_weights_of_another_shape_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"shape \(2,\) with weights of shape \(2, 3\)"):
        np.bincount([0, 1], weights=graph.Variable(X))


def in_place() -> None:
    array = np.ones(3)
    array += graph.Variable(X[0])


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda x: np.partition(x, 1), "np.partition does not work on Variables"),
        (lambda x: np.linalg.tensorinv(x), "np.linalg.tensorinv does not work"),
        (lambda x: np.frexp(x), "frexp does not work on Variables"),
        (lambda x: np.add.outer(x, x), "np.add.outer does not work"),
        (lambda x: np.sum(x, where=X > 0), "np.sum on Variables: .*'where'"),
        (lambda x: np.max(x, initial=0.0), "np.max on Variables: .*'initial'"),
        (lambda x: np.add.accumulate(x, dtype=np.float32), "np.add takes no dtype="),
        (lambda x: np.histogram(x, 3), "lose the derivative of its edges"),
        (lambda x: np.histogram(X, 3, weights=x), "np.bincount"),
        (lambda x: np.histogram(X, np.sort(x[0]), density=True), "lose the derivative"),
        (lambda x: np.histogram(x, 3, range=(x[0, 1], 2.0)), "lose the derivative"),
        (lambda x: np.add(x, x, where=X > 0), "takes no where="),
        (lambda x: np.add(x, x, out=np.empty((2, 3))), "out=.*a derivative cannot follow"),
        (lambda x: np.sum(x, out=np.empty(())), "out=.*use what it returns"),
        (lambda _: in_place(), r"array = array \+ v"),
        (lambda x: np.reshape(x, (3, 2), order="A"), "no order in memory"),
        (lambda x: np.asarray(x), r"v\.value"),
        (lambda x: np.array(x), "stop_gradient"),
        (lambda x: np.array([x[0, 0], x[0, 1]]), r"lose its derivative.*np.stack\(\[v, w\]\)"),
        (lambda x: np.asarray([[x, 0.0], [0.0, x]]), r"np.array\(\[\[v, 0\], \[0, w\]\], like=v\)"),
        (lambda x: np.einsum(x, [0, 1]), "as text first"),
        (lambda x: np.cumulative_sum(x), "needs axis="),
    ],
)  # fmt: skip
def test_errors_say_what_to_write(call: Callable[[Any], Any], match: str) -> None:
    with pytest.raises(ArgumentError, match=match):
        call(graph.Variable(X))


class CupyKernel:
    """What CuPy hands over when one of its ufuncs meets a Variable."""

    def __init__(self, name: str) -> None:
        self.name = name


def test_ufuncs_of_cupy_come_by_its_own_protocol() -> None:
    v = graph.Variable(X)
    found = v.__cupy_override_elementwise_kernel__(CupyKernel("cupy_true_divide"), X + 2, v)
    np.testing.assert_allclose(found.value, (X + 2) / X, rtol=1e-15)
    with pytest.raises(ArgumentError, match="CuPy's my_kernel"):
        v.__cupy_override_elementwise_kernel__(CupyKernel("my_kernel"), v)


def test_constants_convert_to_arrays() -> None:
    constant = graph.stop_gradient(graph.Variable(X))
    np.testing.assert_array_equal(np.asarray(constant), X)
    assert np.asarray(constant, dtype=np.float32).dtype == np.float32
