"""Element-wise arithmetic on Variables: ufuncs, operators, choices, casts, and BroadcastFunctions."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from differences import along, slopes
from scipy import special
from suites import sampled

import dualbcast
from dualbcast import derivative, differentiable_broadcast, graph

X = np.array([[0.3, 0.9, 0.55], [0.7, 0.2, 0.8]])
Y = np.array([0.45, 0.6, 0.25])

UNARY = """
    absolute arccos arcsin arcsinh arctan arctanh cbrt cos cosh deg2rad degrees exp exp2 expm1 fabs log log10 log1p log2
    negative positive rad2deg reciprocal sin sinh sqrt square tan tanh
"""
BINARY = """
    add arctan2 copysign divide float_power fmax fmin fmod hypot logaddexp logaddexp2 maximum minimum multiply power
    remainder subtract true_divide
"""
OPERATIONS: list[tuple[str, Callable[..., Any], tuple[Any, ...]]] = [
    *[(name, getattr(np, name), (X,)) for name in UNARY.split()],
    *[(name, getattr(np, name), (X, Y)) for name in BINARY.split()],
    ("arccosh", np.arccosh, (X + 1,)),
    ("expit", special.expit, (X,)),
    ("gammaln", special.gammaln, (X + 0.5,)),
    ("xlogy", special.xlogy, (X, Y)),
    ("numbers before", lambda x: (1.5 + x) * (2 - x) / (3 / x) + 2.0**x, (X,)),
    ("numbers behind", lambda x: (x + 1.5) * (x - 2) / 3 - (-x) + (+x), (X,)),
    ("a square", lambda x: x**2, (-X,)),
    ("a cube", lambda x: x**3, (-X,)),
    ("an exponent of zero", lambda x: x**0 + x, (X,)),
    ("an exponent of one", lambda x: x**1, (X,)),
    ("a negative exponent", lambda x: x**-2, (-X,)),
    ("a fractional exponent", lambda x: x**0.3, (X,)),
    ("a Variable as the exponent", lambda x, y: x**y, (X, Y)),
    ("a remainder", lambda x, y: x % y, (X + 2.03, Y)),
    ("abs", lambda x: abs(x - 0.5), (X,)),
    ("an array before", lambda x: X * x + (X - x) / X, (Y,)),
    ("an array behind", lambda x: x * X - x / X, (Y,)),
    ("modf", lambda x: np.modf(x)[0] * 2, (X + 1,)),
    ("divmod", lambda x, y: np.divmod(x, y)[1], (X + 2.03, Y)),
    ("numbers of no dimensions", lambda x, y: np.sin(x) * y, (np.array(0.3), np.array(1.2))),
]  # fmt: skip


@pytest.mark.parametrize("row", sampled(OPERATIONS, 2), ids=lambda row: row[0])
def test_derivatives_to_second_order(row: tuple[str, Callable[..., Any], tuple[Any, ...]]) -> None:
    _, function, args = row
    weights = np.random.default_rng(3).uniform(0.5, 1.5, np.shape(function(*args)))
    wrt = tuple(range(len(args)))

    def weighted(*inputs: Any) -> Any:
        return np.sum(weights * function(*inputs))

    np.testing.assert_allclose(function(*map(graph.Variable, args)).value, function(*args), rtol=1e-14)
    gradient = graph.grad(weighted, wrt=wrt)
    found = gradient(*args)
    for each, slope in zip(found, slopes(weighted, args), strict=True):
        np.testing.assert_allclose(each, slope, rtol=2e-9, atol=1e-9)
    tangents = [np.random.default_rng(4).uniform(-1, 1, arg.shape) for arg in args]
    expected = along(lambda *inputs: list(gradient(*inputs)), args, tangents)

    def product(*inputs: Any) -> Any:
        return sum(np.sum(each * tangent) for each, tangent in zip(gradient(*inputs), tangents, strict=True))

    for each, slope in zip(graph.grad(product, wrt=wrt)(*args), expected, strict=True):
        np.testing.assert_allclose(each, slope, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("name", ["floor", "ceil", "rint", "trunc", "sign"])
def test_steps_end_differentiation(name: str) -> None:
    found = getattr(np, name)(graph.Variable(X))
    assert not found.tracked
    np.testing.assert_array_equal(found.value, getattr(np, name)(X))
    slope = graph.grad(lambda x: np.sum(x * getattr(np, name)(x)))(X + 0.1)
    np.testing.assert_array_equal(slope, getattr(np, name)(X + 0.1))


@pytest.mark.parametrize("name", ["less", "less_equal", "greater", "greater_equal", "equal", "not_equal"])
def test_comparisons_are_constants(name: str) -> None:
    found = getattr(np, name)(graph.Variable(X), 0.55)
    assert found.dtype == np.bool_
    assert not found.tracked
    np.testing.assert_array_equal(found.value, getattr(np, name)(X, 0.55))


def test_integers_are_as_in_numpy() -> None:
    n = np.array([5, -3, 2], np.int8)
    v = graph.Variable(n)
    assert not v.tracked
    for function in (
        lambda x: x + x, lambda x: x * 3, lambda x: x / 2, lambda x: x // 2, lambda x: x % 3, lambda x: -x,
        lambda x: abs(x), lambda x: x & 3, lambda x: x | 1, lambda x: x ^ 2, lambda x: ~x, lambda x: x**2,
    ):  # fmt: skip
        expected = function(n)
        assert function(v).dtype == expected.dtype
        np.testing.assert_array_equal(function(v).value, expected)


def test_dtypes_promote_as_in_numpy() -> None:
    single, double = graph.Variable(np.ones(2, np.float32)), graph.Variable(np.ones(2))
    assert (single * 2.5).dtype == np.float32
    assert (2 * single).dtype == np.float32
    assert (single * np.float64(2)).dtype == np.float64
    assert [(single ** np.float64(n)).dtype for n in (2, 2.5)] == [np.float64, np.float64]
    assert (single + double).dtype == np.float64
    assert (single * np.arange(2)).dtype == np.float64
    assert np.where(single > 0, single, 0.0).dtype == np.float32
    half = graph.Variable(np.ones(2, np.float16))
    assert np.exp(half).dtype == np.float16
    slopes_of = graph.grad(lambda a, b, c: np.sum(a * b * c), wrt=(0, 1, 2))(single.value, double.value, half.value)
    assert [each.dtype for each in slopes_of] == [np.float32, np.float64, np.float16]


def test_casts_convert_the_cotangent_back() -> None:
    x = np.array([0.5, 1.5], np.float32)
    slope = graph.grad(lambda v: np.sum(v.astype("float64") ** 2))(x)
    assert slope.dtype == np.float32
    np.testing.assert_array_equal(slope, [1.0, 3.0])
    assert not graph.Variable(x).astype(int).tracked


@pytest.mark.parametrize("size", [5, 3000])
@pytest.mark.parametrize("dtype", [">f4", ">f8", "<f8", ">f2"])
def test_gradients_in_the_other_byte_order(dtype: str, size: int) -> None:
    x = (np.arange(size) % 4).astype(dtype)
    for f, wanted in (
        (lambda v: np.sum(v * v + v), 2 * x.astype(float) + 1),
        (lambda v: np.sum(v + v) + np.sum(v[1:] * 2), np.where(np.arange(size) > 0, 4, 2)),
        (lambda v: np.sum(graph.grad(lambda u: np.sum(u**3))(v)), 6 * x.astype(float)),
        (lambda v: np.max(v * v[:1]), np.zeros(size)),
    ):
        np.testing.assert_array_equal(graph.grad(f)(x)[1:], wanted[1:])
    np.testing.assert_array_equal(graph.jvp(lambda v: v * v, (x,), (x,))[1], 2 * x.astype(float) ** 2)


def test_maximum_takes_the_first_on_a_tie_as_kernels_do() -> None:
    both = graph.grad(lambda x, y: np.sum(np.maximum(x, y)), wrt=(0, 1))(np.ones(2), np.ones(2))
    np.testing.assert_array_equal(both, [[1, 1], [0, 0]])


def test_where_sends_nothing_to_the_other_side() -> None:
    x = np.array([-1.0, 4.0])
    both = graph.grad(lambda a, b: np.sum(np.where(x > 0, a, b)), wrt=(0, 1))(x, x)
    np.testing.assert_array_equal(both, [[0, 1], [1, 0]])


# --- BroadcastFunctions -----------------------------------------------------------------------------------------------


class Pair(NamedTuple):
    first: Any
    second: Any


@differentiable_broadcast
def two(x: Any, y: Any) -> Any:
    if x > y:
        return Pair(x * y, math.sin(x))
    return Pair(x - y * y, y)


def two_in_numpy(x: Any, y: Any) -> tuple[Any, Any]:
    return np.where(x > y, x * y, x - y * y), np.where(x > y, np.sin(x), y)


def test_a_broadcast_function_is_recorded() -> None:
    found = two(graph.Variable(X), graph.Variable(Y))
    assert isinstance(found, Pair)
    expected = two_in_numpy(X, Y)
    for each, value in zip(found, expected, strict=True):
        np.testing.assert_allclose(each.value, value, rtol=1e-14)

    def loss(x: Any, y: Any, function: Any) -> Any:
        first, second = function(x, y)
        return np.sum(first * second + second)

    wrt = (0, 1)
    gradient = graph.grad(lambda x, y: loss(x, y, two), wrt=wrt)
    for each, slope in zip(gradient(X, Y), slopes(lambda x, y: loss(x, y, two_in_numpy), (X, Y)), strict=True):
        np.testing.assert_allclose(each, slope, rtol=1e-9)
    tangents = (X + 1, Y - 2)
    expected = along(lambda x, y: list(gradient(x, y)), (X, Y), tangents)
    for each, product in zip(graph.jvp(gradient, (X, Y), tangents)[1], expected, strict=True):
        np.testing.assert_allclose(each, product, rtol=1e-7)


def test_of_two_outputs_one_may_be_unused() -> None:
    for at in (0, 1):
        found = graph.grad(lambda x, at=at: np.sum(two(x, Y)[at]))(X)
        expected = slopes(lambda x, at=at: np.sum(two_in_numpy(x, Y)[at]), (X,))[0]
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_arguments_bind_as_ever() -> None:
    @differentiable_broadcast(static="mode")
    def f(x: Any, scale: Any = 2.0, *rest: Any, mode: str = "sum", shift: Any = None) -> Any:
        total = x * scale
        for each in rest:
            total = total + each * each if mode == "sum" else total * each
        return total if shift is None else total + shift * x

    x, y = np.array([1.0, 2.0]), np.array([3.0, 5.0])
    np.testing.assert_array_equal(graph.grad(lambda v: np.sum(f(v)))(x), [2, 2])
    np.testing.assert_array_equal(graph.grad(lambda v: np.sum(f(x, v)))(y), x)
    np.testing.assert_array_equal(graph.grad(lambda v: np.sum(f(x, 1.0, v, mode="sum")))(y), 2 * y)
    np.testing.assert_array_equal(graph.grad(lambda v: np.sum(f(x, 1.0, v, v, mode="product")))(y), 2 * x * y)
    np.testing.assert_array_equal(graph.grad(lambda v: np.sum(f(x, shift=v)))(y), x)
    np.testing.assert_array_equal(graph.grad(lambda v: np.sum(f(v, shift=v)))(y), 2 + 2 * y)


def test_derivatives_of_broadcast_arguments_are_summed() -> None:
    @differentiable_broadcast
    def f(x: Any, y: Any, z: Any) -> Any:
        return x * y * z

    x, y, z = np.array(2.0), np.array([[1.0], [3.0]]), np.array([5.0, 7.0, 11.0])
    found = graph.grad(lambda *each: np.sum(f(*each)), wrt=(0, 1, 2))(x, y, z)
    np.testing.assert_array_equal(found[0], (y * z).sum())
    np.testing.assert_array_equal(found[1], (x * y**0 * z).sum(1, keepdims=True))
    np.testing.assert_array_equal(found[2], (x * y * z**0).sum(0))


def test_integer_outputs_carry_nothing() -> None:
    @differentiable_broadcast
    def f(x: Any) -> Any:
        return int(x), x * x, x > 1

    whole, square, above = f(graph.Variable([0.5, 2.5]))
    assert (whole.tracked, square.tracked, above.tracked) == (False, True, False)
    np.testing.assert_array_equal(graph.grad(lambda x: np.sum(f(x)[1] * f(x)[0]))(np.array([0.5, 2.5])), [0.0, 10.0])


def test_a_branch_that_is_not_taken_gives_no_nan() -> None:
    @differentiable_broadcast
    def root(x: Any) -> Any:
        return math.sqrt(x) if x > 0 else 0.0

    np.testing.assert_array_equal(graph.grad(lambda x: np.sum(root(x)))(np.array([0.0, 4.0])), [0.0, 0.25])
    second = graph.grad(lambda x: np.sum(graph.grad(lambda v: np.sum(root(v)))(x)))(np.array([0.0, 4.0]))
    np.testing.assert_allclose(second, [0.0, -0.25 * 4**-1.5], rtol=1e-14)


def test_what_is_not_differentiable_is_an_error() -> None:
    @dualbcast.not_differentiable
    def level(x: Any) -> Any:
        return int(4 * x) * 1.0

    f = differentiable_broadcast(lambda x: x * level(x))
    with pytest.raises(dualbcast.CompileError, match="marked as not differentiable"):
        graph.grad(lambda x: np.sum(f(x)))(X)


W = graph.Variable(np.array([1.0, 2.0, 3.0]))


@differentiable_broadcast
def with_captured(x: Any) -> Any:
    return W * x * x


def test_captured_variables_get_their_gradients() -> None:
    loss = np.sum(with_captured(Y))
    np.testing.assert_allclose(graph.grad(loss, W), Y**2, rtol=1e-15)
    x = graph.Variable(Y)
    found = graph.grad(np.sum(with_captured(x) * W), (x, W))
    np.testing.assert_allclose(found[0], 2 * W.value**2 * Y, rtol=1e-14)
    np.testing.assert_allclose(found[1], 2 * W.value * Y**2, rtol=1e-14)


@dataclasses.dataclass(eq=False)
class Spring:
    stiffness: Any

    @differentiable_broadcast
    def energy(self, x: Any) -> Any:
        return self.stiffness * x * x / 2


def test_variables_that_a_method_captures() -> None:
    spring = Spring(graph.Variable(np.array([2.0, 4.0])))
    loss = np.sum(spring.energy(np.array([1.0, 3.0])))
    np.testing.assert_array_equal(graph.grad(loss, spring.stiffness), [0.5, 4.5])
    spring.stiffness = graph.Variable(np.array([1.0, 1.0]))
    assert spring.energy(np.array([1.0, 3.0])).value.tolist() == [0.5, 4.5]


def test_derivatives_of_scalar_functions_are_recorded() -> None:
    def f(x: Any, a: Any) -> Any:
        return a * x * x * x if x > 1.5 else math.sin(x)

    x = np.array([1.0, 2.0, 3.0])
    slope = derivative(f)
    np.testing.assert_allclose(slope(graph.Variable(x), 2.0).value, slope(x, 2.0), rtol=1e-15)
    found = graph.grad(lambda x, a: np.sum(slope(x, a)), wrt=(0, 1))(x, 2.0)
    np.testing.assert_allclose(found[0], [-math.sin(1.0), 24.0, 36.0], rtol=1e-13)
    np.testing.assert_allclose(found[1], 3 * (4.0 + 9.0), rtol=1e-13)
    np.testing.assert_allclose(graph.vmap(graph.grad(lambda x: slope(x, a=2.0)))(x), found[0], rtol=1e-13)


def test_jacobians_are_of_arrays() -> None:
    with pytest.raises(dualbcast.ArgumentError, match="x is a Variable"):
        two.value_and_jacobian(graph.Variable(X), Y)
    with pytest.raises(dualbcast.ArgumentError, match="out= does not go with Variables"):
        with_captured(graph.Variable(Y), out=np.empty(3))


def test_shapes_that_do_not_fit() -> None:
    with pytest.raises(dualbcast.ShapeError, match=r"multiply: .*\(2, 3\).*\(2,\)"):
        graph.Variable(X) * np.ones(2)


def test_ufuncs_without_a_rule() -> None:
    with pytest.raises(dualbcast.ArgumentError, match="no derivative rule for the ufunc struve"):
        special.struve(graph.Variable(Y), 1.0)
