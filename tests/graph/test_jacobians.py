"""graph.jacobian, hessian and hvp, against formulas by hand and finite differences; containers, nesting, errors."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pytest

from dualbcast import ArgumentError, DTypeError, ShapeError, differentiable_broadcast, graph

X = np.array([0.5, -1.5, 2.0])
MATRIX = np.arange(12.0).reshape(4, 3) - 5
T = np.linspace(0.0, 3.0, 3000)
DATA = 2 * np.exp(-0.7 * T) + 0.1 * np.sin(40 * T)


# --- Jacobians --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_both_directions_give_the_same_jacobian(rows: int) -> None:
    """With fewer outputs than arguments it goes backward, else forward."""
    matrix = MATRIX[:rows]
    found = graph.jacobian(lambda x: np.tanh(matrix @ x))(X)
    np.testing.assert_allclose(found, matrix / np.cosh(matrix @ X)[:, None] ** 2, rtol=1e-12, atol=1e-15)


def test_the_shape_is_that_of_the_result_and_then_of_the_argument() -> None:
    found = graph.jacobian(lambda a: a[:, 0] * np.sum(a))(MATRIX)
    assert found.shape == (4, 4, 3)
    expected = np.zeros((4, 4, 3)) + MATRIX[:, 0][:, None, None]
    expected[np.arange(4), np.arange(4), 0] += MATRIX.sum()
    np.testing.assert_allclose(found, expected, rtol=1e-13)
    assert graph.jacobian(lambda x: np.outer(x, x))(X).shape == (3, 3, 3)
    assert graph.jacobian(lambda x: x)(2.0) == 1.0
    assert np.array_equal(graph.jacobian(lambda x: x)(X), np.eye(3))
    assert np.array_equal(graph.jacobian(lambda x: x[:0])(X), np.zeros((0, 3)))


class Pair(NamedTuple):
    a: Any
    b: Any


def test_containers_of_results_and_arguments() -> None:
    def function(p: Pair, scale: Any) -> Any:
        return {"sum": np.sum(p.a) * p.b, "scaled": [p.a * scale, 3.0]}

    found = graph.jacobian(function, wrt=(0, 1))(Pair(X, 2.0), 5.0)
    (by_pair, by_scale), scaled = found["sum"], found["scaled"]
    assert isinstance(by_pair, Pair)
    np.testing.assert_array_equal(by_pair.a, np.full(3, 2.0))
    assert (by_pair.b, by_scale) == (X.sum(), 0.0)
    np.testing.assert_array_equal(scaled[0][0].a, 5 * np.eye(3))
    np.testing.assert_array_equal(scaled[0][0].b, np.zeros(3))
    np.testing.assert_array_equal(scaled[0][1], X)
    np.testing.assert_array_equal(scaled[1][0].a, np.zeros(3))
    np.testing.assert_array_equal(graph.jacobian(function, wrt="scale")(Pair(X, 2.0), scale=5.0)["scaled"][0], X)


def test_a_jacobian_can_be_differentiated() -> None:
    def trace(x: Any) -> Any:
        return np.sum(np.diagonal(graph.jacobian(lambda y: y**3 * np.sum(y))(x)))

    # The trace of ∂(y³ s)/∂y, s the sum, is Σ 3 y² s + y³.
    expected = 6 * X * X.sum() + 3 * np.sum(X**2) + 3 * X**2
    np.testing.assert_allclose(graph.grad(trace)(X), expected, rtol=1e-13)
    forward = graph.grad(lambda x: np.sum(graph.jacobian(lambda y: np.outer(y, y))(x)))(X)
    np.testing.assert_allclose(forward, np.full(3, 6.0), rtol=1e-13)
    assert isinstance(graph.jacobian(lambda x: x * x)(graph.Variable(X)), graph.Variable)


def test_results_may_be_changed_and_dtypes_are_kept() -> None:
    x = X.astype(np.float32)
    found = graph.jacobian(lambda x: 2 * x)(x)
    assert found.dtype == np.float32
    found[0, 0] = 5
    assert graph.jacobian(lambda x: 2 * x)(x)[0, 0] == 2
    assert graph.hessian(lambda x: np.sum(x**2))(x).dtype == np.float32


# --- Hessians ---------------------------------------------------------------------------------------------------------


def test_a_hessian_is_that_of_the_formula() -> None:
    found = graph.hessian(lambda x: np.sum(x) ** 3 + np.prod(x))(X)
    expected = 6 * X.sum() * np.ones((3, 3))
    for i in range(3):
        for j in range(3):
            expected[i, j] += 0 if i == j else X[3 - i - j]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    quadratic = MATRIX.T @ MATRIX
    np.testing.assert_allclose(graph.hessian(lambda x: x @ quadratic @ x)(X), 2 * quadratic, rtol=1e-13)
    assert graph.hessian(lambda x: x**4)(2.0) == 48.0
    assert np.array_equal(graph.hessian(np.sum)(X), np.zeros((3, 3)))


@differentiable_broadcast
def squared(t: float, y: float, height: float, rate: float) -> float:
    """The square of a residual."""
    r = height * math.exp(-rate * t) - y
    return r * r


def hessian_by_hand(height: float, rate: float) -> np.ndarray[Any, Any]:
    e = np.exp(-rate * T)
    r = height * e - DATA
    first = np.stack([e, -height * T * e])
    second = np.zeros((2, 2, len(T)))
    second[0, 1] = second[1, 0] = -T * e
    second[1, 1] = height * T * T * e
    return 2 * (np.einsum("it,jt->ij", first, first) + second @ r)


WAYS: dict[str, Any] = {
    "operators": lambda p: np.sum((p[0] * np.exp(-p[1] * T) - DATA) ** 2),
    "call": lambda p: np.sum(squared(T, DATA, p[0], p[1])),
    "twice": lambda p: np.sum((p[0] * np.exp(-p[1] * T) - DATA) * (p[0] * np.exp(-p[1] * T) - DATA)),
    "keepdims": lambda p: np.sum(squared(T, DATA, p[0], p[-1]), keepdims=True)[0],
    "mean": lambda p: np.mean(squared(T, DATA, p[0], p[1])) * len(T),
    "inner": lambda p: np.sum(squared(T, DATA, p[0] * 1.0, p[1])),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_hessian_of_a_sum(way: str) -> None:
    with graph.launches() as kernels:
        found = graph.hessian(WAYS[way])(np.array([1.5, 0.5]))
    np.testing.assert_allclose(found, hessian_by_hand(1.5, 0.5), rtol=1e-12)
    # The value, and the value with all derivatives.
    assert sum(kernel.shape == T.shape for kernel in kernels) == 2


def test_the_hessian_of_a_sum_in_containers_of_numbers() -> None:
    expected = hessian_by_hand(1.5, 0.5)

    def loss(p: Any, rate: Any) -> Any:
        return np.sum(squared(T, DATA, p["height"], rate))

    both = graph.hessian(loss, wrt=(0, 1))({"height": 1.5}, 0.5)
    found = [
        [both[0]["height"][0]["height"], both[0]["height"][1]],
        [both[1][0]["height"], both[1][1]],
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    single = graph.hessian(loss, wrt="rate")({"height": 1.5}, rate=0.5)
    np.testing.assert_allclose(single, expected[1, 1], rtol=1e-12)
    assert type(single) is np.float64


OUTER: dict[str, Any] = {
    "scaled": lambda p: -np.sum(np.cos(p[0] * T) * p[1]) / 7,
    "parameters": lambda p: np.sum(np.exp(p[0] * p[0] - np.exp(p[1]) * T)),
    "prior": lambda p: np.sum(np.cos(p[0] * T)) * 1e-3 + p[0] ** 3 * p[1] ** 2,
    "several": lambda p: np.sum(np.cos(p[0] * T)) * np.sum(np.sin(p[1] * T)) * 1e-6 * p[0],
    "logarithm": lambda p: np.log(np.sum(np.exp(-p[0] * T))) * p[1],
    "nested": lambda p: np.sum(np.sin(p[1] * T * np.sum(np.exp(-p[0] * T)) / 1000)),
    "vector": lambda p: np.sum(np.cos(np.sum(p * p) * T)) + p @ p,
    "twice": lambda p: np.sum(np.cos(p[0] * T)) ** 2 * 1e-4 + np.sum(np.cos(p[0] * T + p[1])),
}


@pytest.mark.parametrize("way", OUTER)
def test_numbers_around_sums(way: str) -> None:
    """Sums of functions of the parameters, and functions of sums: held against differences of gradients."""
    function, p = OUTER[way], np.array([0.8, -0.6])
    with graph.launches() as kernels:
        found = graph.hessian(function)(p)
    step, gradient = 1e-3, graph.grad(function)
    expected = np.zeros((2, 2))
    for at in range(2):
        for weight, k in ((45, 1), (-9, 2), (1, 3)):
            moved = k * step * np.eye(2)[at]
            expected[at] += weight * (gradient(p + moved) - gradient(p - moved)) / (60 * step)
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-7 * abs(expected).max())
    np.testing.assert_allclose(found, found.T, rtol=1e-12)
    if way != "nested":  # there the inner sum is differentiated once more for the outer one's numbers
        assert sum(kernel.shape == T.shape for kernel in kernels) <= 4


def test_other_leaves_of_a_sum_take_the_general_way() -> None:
    weights = graph.Variable(DATA)  # carries a derivative of its own
    found = graph.hessian(lambda p: np.sum(weights * squared(T, DATA, p[0], p[1])))(np.array([1.5, 0.5]))
    assert np.shape(found) == (2, 2)
    rows = graph.hessian(lambda p: np.sum(np.sin(p * T)))(np.array([0.5]))
    np.testing.assert_allclose(rows, [[-np.sum(T * T * np.sin(0.5 * T))]], rtol=1e-12)
    many = graph.hessian(lambda x: np.sum(np.sin(x)))(X)
    np.testing.assert_allclose(many, np.diag(-np.sin(X)), rtol=1e-13)
    half = graph.hessian(lambda p: np.sum(squared(T.astype("f4"), 0.0, p[0], p[1])))(np.array([1.5, 0.5], "f4"))
    assert half.dtype == np.float32


def test_a_hessian_can_be_differentiated() -> None:
    def loss(p: Any) -> Any:
        return np.sum(np.exp(-p * T))

    third = graph.grad(graph.hessian(loss))(0.5)
    np.testing.assert_allclose(third, -np.sum(T**3 * np.exp(-0.5 * T)), rtol=1e-12)


# --- products with Hessians -------------------------------------------------------------------------------------------


def test_products_are_those_of_the_hessian() -> None:
    def function(x: Any, scale: Any) -> Any:
        return np.sum(np.tanh(MATRIX @ x) ** 2) * scale * scale

    direction = np.array([1.0, -2.0, 0.5])
    matrix = graph.hessian(function, wrt=(0, 1))(X / 9, 2.0)
    found = graph.hvp(function, (X / 9, 2.0), (direction, 3.0))
    np.testing.assert_allclose(found[0], matrix[0][0] @ direction + 3 * matrix[0][1], rtol=1e-12)
    np.testing.assert_allclose(found[1], matrix[1][0] @ direction + 3 * matrix[1][1], rtol=1e-12)
    alone = graph.hvp(function, (X / 9, 2.0), (direction, None))
    np.testing.assert_allclose(alone[0], matrix[0][0] @ direction, rtol=1e-12)
    step = 1e-5
    slope = graph.grad(function)
    expected = (slope(X / 9 + step * direction, 2.0) - slope(X / 9 - step * direction, 2.0)) / (2 * step)
    np.testing.assert_allclose(alone[0], expected, rtol=1e-7, atol=1e-7)


def test_a_product_of_a_sum_takes_few_kernels() -> None:
    with graph.launches() as kernels:
        graph.hvp(WAYS["call"], (np.array([1.5, 0.5]),), (np.array([1.0, 0.0]),))
    assert sum(kernel.shape == T.shape for kernel in kernels) <= 3


# --- errors -----------------------------------------------------------------------------------------------------------


def test_errors() -> None:
    with pytest.raises(ArgumentError, match="jacobian takes a function"):
        graph.jacobian("cache")  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="a gradient is of one number"):
        graph.hessian(lambda x: x)(X)
    with pytest.raises(DTypeError, match="no derivative"):
        graph.jacobian(lambda x: x)(np.arange(3))
    with pytest.raises(ArgumentError, match="hvp: the tangents are a tuple"):
        graph.hvp(np.sum, (X,), X)
    with pytest.raises(ArgumentError, match="1 primals and 2 tangents"):
        graph.hvp(np.sum, (X,), (X, X))
    with pytest.raises(ShapeError, match="has shape"):
        graph.hvp(np.sum, (X,), (X[:2],))
