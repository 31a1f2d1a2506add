"""grad, value_and_grad, vjp, jvp, no_grad, stop_gradient, checkpoint: arguments, nesting, closures, errors."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from differences import slopes

from dualbcast import ArgumentError, DTypeError, ShapeError, differentiable_broadcast, graph

X = np.array([0.5, -1.5, 2.0])


# --- arguments and results --------------------------------------------------------------------------------------------


def test_arrays_give_arrays_and_variables_give_variables() -> None:
    gradient = graph.grad(lambda x: np.sum(x**3))
    assert type(gradient(X)) is np.ndarray
    assert isinstance(gradient(graph.Variable(X)), graph.Variable)
    value, slope = graph.value_and_grad(lambda x: x * x)(3.0)
    assert (type(value), type(slope)) == (np.float64, np.float64)
    assert (value, slope) == (9.0, 6.0)


def test_wrt_by_position_and_by_name() -> None:
    def f(x: Any, y: Any, *, z: Any) -> Any:
        return x * y * y * z

    assert graph.grad(f)(2.0, 3.0, z=5.0) == 45
    assert graph.grad(f, wrt=1)(2.0, 3.0, z=5.0) == 60
    assert graph.grad(f, wrt=-1)(2.0, 3.0, z=5.0) == 60
    assert graph.grad(f, wrt="z")(2.0, 3.0, z=5.0) == 18
    assert graph.grad(f, wrt=("y", "x"))(2.0, 3.0, z=5.0) == (60, 45)
    assert graph.grad(f, wrt=[0])(2.0, 3.0, z=5.0) == (45,)
    for wrt in (2, -3, "w", 0.5):
        with pytest.raises(ArgumentError, match="none of the arguments given"):
            graph.grad(f, wrt=wrt)(2.0, 3.0, z=5.0)


def test_arguments_that_are_not_asked_for_may_be_anything() -> None:
    assert graph.grad(lambda x, n, mode: x**n if mode == "power" else x)(3.0, 2, "power") == 6


class Point(NamedTuple):
    x: Any
    y: Any


@dataclasses.dataclass(frozen=True)
class Layer:
    weight: Any
    bias: Any
    label: Any = None


def test_containers_of_arrays() -> None:
    parameters = {"layers": [Layer(X, 1.0), Layer(2 * X, np.float32(2))], "at": Point(3.0, (4.0,)), "none": None}

    def f(p: Any) -> Any:
        first, second = p["layers"]
        assert isinstance(first.weight, graph.Variable)
        return np.sum(first.weight * second.weight) * first.bias + p["at"].x * p["at"].y[0] ** 2

    value, found = graph.value_and_grad(f)(parameters)
    np.testing.assert_allclose(value, 2 * X @ X + 48)
    assert isinstance(found["layers"][0], Layer)
    np.testing.assert_array_equal(found["layers"][0].weight, 2 * X)
    np.testing.assert_array_equal(found["layers"][1].weight, X)
    np.testing.assert_allclose(found["layers"][0].bias, 2 * X @ X)
    assert found["layers"][1].bias == 0
    assert found["layers"][1].bias.dtype == np.float32
    assert found["at"] == Point(16.0, (24.0,))
    assert found["none"] is None
    assert isinstance(parameters["layers"][0].weight, np.ndarray)


def test_dictionaries_of_other_types() -> None:
    found = graph.grad(lambda p: p["b"] * p["a"] ** 2)(collections.OrderedDict(b=2.0, a=3.0))
    assert found == collections.OrderedDict(b=9.0, a=12.0)
    assert type(found) is collections.OrderedDict


def test_what_does_not_depend_has_a_gradient_of_zeros() -> None:
    found = graph.grad(lambda x, _y: np.sum(x), wrt=1)(X, np.ones((2, 2), np.float32))
    assert (found.shape, found.dtype) == ((2, 2), np.float32)
    assert not found.any()
    for constant in (lambda _: 3.0, lambda _: 3, lambda _: np.float32(2), lambda _: graph.Variable(1.0)):
        np.testing.assert_array_equal(graph.grad(constant)(X), [0, 0, 0])


def test_has_aux() -> None:
    def f(x: Any) -> Any:
        return np.sum(x * x), {"double": 2 * x, "text": "kept"}

    (value, aux), found = graph.value_and_grad(f, has_aux=True)(X)
    assert value == X @ X
    assert type(aux["double"]) is np.ndarray
    np.testing.assert_array_equal(found, 2 * X)
    gradient, aux = graph.grad(f, has_aux=True)(X)
    np.testing.assert_array_equal(gradient, 2 * X)
    assert aux["text"] == "kept"
    with pytest.raises(ArgumentError, match="must return a pair"):
        graph.grad(lambda x: np.sum(x), has_aux=True)(X)


def test_gradients_may_be_changed_in_place() -> None:
    first, second = graph.grad(lambda x, y: np.sum(x + y), wrt=(0, 1))(X, X)
    first *= 3
    np.testing.assert_array_equal(second, [1, 1, 1])
    given = np.ones(3)
    (found,) = graph.vjp(lambda x: x, X)[1](given)
    found *= 2
    np.testing.assert_array_equal(given, [1, 1, 1])


def test_large_gradients_may_be_changed_and_are_not_copied_for_that() -> None:
    x, given = np.linspace(0, 1, 40_000), np.ones(40_000)
    for arrays in (
        graph.grad(lambda x, y: np.sum(x + y), wrt=(0, 1))(x, x),
        graph.grad(lambda x, y: np.sum(np.concat([x, y]) * 2), wrt=(0, 1))(x, x),
        (x, given, graph.vjp(lambda v: v, x)[1](given)[0]),
        (x, given, graph.vjp(lambda v: v.reshape(200, 200), x)[1](given.reshape(200, 200))[0]),
    ):
        assert all(array.flags.writeable for array in arrays)
        assert not any(np.shares_memory(a, b) for a, b in itertools.combinations(arrays, 2))
    found = graph.grad(lambda v: np.sum(np.sin(v)))(x)
    assert not isinstance(found.base, np.ndarray)  # memory of the pool
    np.testing.assert_allclose(found, np.cos(x), rtol=1e-15)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (
            lambda: graph.grad(lambda x: x)(X),
            ShapeError,
            r"and the result of <lambda>\(\) has shape \(3,\)",
        ),
        (lambda: graph.grad(lambda x: (x, x))(1.0), ArgumentError, "is a tuple; .*has_aux"),
        (lambda: graph.grad(lambda x: x)(3), DTypeError, "3.0 and not 3"),
        (lambda: graph.grad(lambda x: x)(np.arange(3)), DTypeError, "argument 0: its dtype is int64"),
        (lambda: graph.grad(lambda x: x)({"a": [1.0, True]}), DTypeError, r"argument 0\['a'\]\[1\]"),
        (lambda: graph.grad(lambda x: x)("text"), DTypeError, "which is a str"),
        (lambda: graph.grad(lambda x: x.astype(int))(1.0), DTypeError, "dtype int64, which carries no derivative"),
        (lambda: graph.grad(X, X), ArgumentError, "takes a function, or a Variable; this is an ndarray"),
        (lambda: graph.vjp(3.0), ArgumentError, "takes a function; this is a float"),
        (lambda: graph.grad(graph.Variable(X)), ShapeError, r"has shape \(3,\)"),
        (lambda: graph.grad(graph.Variable(1.0) * 2, X), ArgumentError, "is no Variable but of type ndarray"),
        (lambda: graph.grad(graph.Variable(1.0) * 2, [graph.Variable(1)]), DTypeError, "carries no derivative"),
        (lambda: graph.grad(graph.Variable(1.0, tracked=False) * 2, []), ArgumentError, "was not recorded"),
        (lambda: graph.vjp(lambda x: x, X)[1](1.0), ShapeError, "cotangent has shape"),
        (lambda: graph.vjp(lambda x: x, X)[1]((X, X)), ArgumentError, "1 cotangents are needed"),
        (lambda: graph.jvp(np.sin, X, X), ArgumentError, "tuple like the arguments"),
        (lambda: graph.jvp(np.sin, (X,), ()), ArgumentError, "1 primals and 0 tangents"),
        (lambda: graph.jvp(np.sin, (X,), (1.0,)), ShapeError, "tangent has shape"),
    ],
)
def test_errors_say_what_is_wrong(call: Callable[[], Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        call()


# --- vjp and jvp ------------------------------------------------------------------------------------------------------


def test_vjp_of_many_outputs() -> None:
    matrix = np.arange(6.0).reshape(2, 3)
    value, pullback = graph.vjp(lambda a, x: {"product": a @ x, "sum": np.sum(x), "n": 3}, matrix, X)
    np.testing.assert_allclose(value["product"], matrix @ X)
    assert value["n"] == 3
    for cotangent in (np.array([1.0, -2.0]), np.array([0.0, 5.0])):  # again and again
        to_matrix, to_x = pullback({"product": cotangent, "sum": 10.0, "n": 0})
        np.testing.assert_allclose(to_matrix, np.outer(cotangent, X))
        np.testing.assert_allclose(to_x, cotangent @ matrix + 10)


def test_vjp_is_differentiable_in_the_cotangent_and_the_argument() -> None:
    def f(x: Any, c: Any) -> Any:
        return np.sum(graph.vjp(np.sin, x)[1](c)[0])

    c = np.array([1.0, 2.0, 3.0])
    to_x, to_c = graph.grad(f, wrt=(0, 1))(X, c)
    np.testing.assert_allclose(to_x, -np.sin(X) * c)
    np.testing.assert_allclose(to_c, np.cos(X))


def test_jvp_of_containers() -> None:
    primal, tangent = {"a": X, "b": 2.0}, {"a": X + 1, "b": 3.0}
    value, along = graph.jvp(lambda p, _unused: (p["a"] * p["b"], 7.0), (primal, X), (tangent, None))
    np.testing.assert_allclose(value[0], 2 * X)
    np.testing.assert_allclose(along[0], 2 * (X + 1) + 3 * X)
    assert along[1] == 0


def test_jvp_of_what_does_not_depend() -> None:
    value, along = graph.jvp(lambda x: np.floor(x), (X,), (X,))
    np.testing.assert_array_equal(value, np.floor(X))
    np.testing.assert_array_equal(along, [0, 0, 0])


def test_jvp_where_slopes_are_infinite_along_nothing() -> None:
    """The probe cotangent's value must not count."""
    x = np.array([0.25, 1.0])
    _, along = graph.jvp(lambda v: np.sqrt(v) * np.log(v), (x,), (np.array([1.0, 0.0]),))
    np.testing.assert_allclose(along, [np.log(0.25) + 2, 0])


# --- nesting ----------------------------------------------------------------------------------------------------------


def test_perturbations_are_not_confused() -> None:
    """The example of Siskind and Pearlmutter, "Perturbation confusion and referential transparency" (2005)."""
    derivative = graph.grad
    assert derivative(lambda x: x * derivative(lambda y: x + y)(1.0))(1.0) == 1
    assert derivative(lambda x: x * derivative(lambda y: x * y)(2.0))(3.0) == 6
    assert derivative(lambda x: derivative(lambda y: x * y * y)(x))(3.0) == 12
    assert derivative(lambda x: x * derivative(lambda y: y * y)(x))(3.0) == 12
    assert derivative(lambda x: derivative(lambda y: derivative(lambda z: x * y * z * z)(y))(x))(2.0) == 16  # of 8 x
    # The same Variable as the argument and captured.
    assert derivative(lambda x: derivative(lambda y: x * y)(x) * x)(5.0) == 10
    assert graph.jvp(lambda x: x * graph.jvp(lambda y: x + y, (1.0,), (1.0,))[1], (1.0,), (1.0,))[1] == 1


def test_derivatives_of_the_fourth_order() -> None:
    f: Callable[..., Any] = lambda x: np.sin(x) * x  # noqa: E731
    for expected in (
        lambda x: np.cos(x) * x + np.sin(x),
        lambda x: 2 * np.cos(x) - x * np.sin(x),
        lambda x: -3 * np.sin(x) - x * np.cos(x),
        lambda x: -4 * np.cos(x) + x * np.sin(x),
    ):
        f = graph.grad(f)
        np.testing.assert_allclose(f(0.7), expected(0.7), rtol=1e-13)


def test_forward_over_reverse_and_reverse_over_forward() -> None:
    def f(x: Any) -> Any:
        return np.sum(np.exp(x) * np.roll(x, 1))

    hessian = np.diag(np.exp(X) * np.roll(X, 1))
    for at in range(3):
        hessian[at, at - 1] += np.exp(X[at])
        hessian[at - 1, at] += np.exp(X[at])
    tangent = np.array([1.0, 2.0, -1.0])
    expected = hessian @ tangent
    np.testing.assert_allclose(graph.jvp(graph.grad(f), (X,), (tangent,))[1], expected, rtol=1e-12)
    np.testing.assert_allclose(graph.grad(lambda x: graph.jvp(f, (x,), (tangent,))[1])(X), expected, rtol=1e-12)
    found = graph.jvp(lambda x: graph.jvp(f, (x,), (tangent,))[1], (X,), (tangent,))[1]
    np.testing.assert_allclose(found, tangent @ expected, rtol=1e-12)


def test_an_inner_gradient_of_what_comes_from_outside() -> None:
    """The inner function does not use its own argument alone: outer derivatives flow through what it captures."""

    def outer(x: Any) -> Any:
        scale = np.sum(x * x)
        return np.sum(graph.grad(lambda y: scale * np.sum(y**3))(np.ones(3)) * x)

    np.testing.assert_allclose(graph.grad(outer)(X), slopes(lambda x: np.sum(3 * (x @ x) * x), (X,))[0], rtol=1e-9)


def test_a_plain_array_inside_another_transformation() -> None:
    def outer(x: Any) -> Any:
        value, slope = graph.value_and_grad(lambda y: x * y)(2.0)
        assert isinstance(value, graph.Variable)
        return value * slope

    assert graph.grad(outer)(3.0) == 12


def test_a_broadcast_function_is_a_function_too() -> None:
    cube = differentiable_broadcast(lambda x: x * x * x)
    assert graph.grad(cube)(2.0) == 12
    assert graph.grad(graph.grad(cube))(2.0) == 12
    np.testing.assert_array_equal(graph.jvp(cube, (X,), (X,))[1], 3 * X**3)


# --- recorded values, closures ----------------------------------------------------------------------------------------


def test_gradients_of_a_recorded_value() -> None:
    w, b = graph.Variable(X), graph.Variable(2.0)
    loss = np.sum(w * w) * b
    found = graph.grad(loss, {"w": w, "b": [b]})
    np.testing.assert_array_equal(found["w"], 4 * X)
    assert found["b"] == [X @ X]
    np.testing.assert_array_equal(graph.grad(loss, w), 4 * X)  # again


def test_of_an_intermediate_value_and_what_it_comes_from() -> None:
    x = graph.Variable(3.0)
    y = x * x
    z = y * x
    assert graph.grad(z, (x, y)) == (27.0, 3.0)
    assert graph.grad(z, z) == 1
    assert graph.grad(y, z) == 0


def test_a_recorded_gradient_is_differentiated_again() -> None:
    x = graph.Variable(X)
    slope = graph.grad(np.sum(x**4), x, record=True)
    assert isinstance(slope, graph.Variable)
    np.testing.assert_allclose(graph.grad(np.sum(slope), x), 12 * X**2)


def test_closures_over_variables() -> None:
    """A tracked Variable that a function captures gets its gradient from outside."""
    w = graph.Variable(2.0)
    inner = graph.grad(lambda x: w * w * x)(graph.Variable(3.0))
    assert graph.grad(inner, w) == 4
    assert graph.grad(graph.grad(lambda x: w * x)(graph.Variable(3.0)), w) == 1

    def loss(p: Any) -> Any:
        return (lambda x: x * p["a"])(p["b"]) * w

    value, found = graph.value_and_grad(loss)({"a": 2.0, "b": 5.0})
    assert (value, found) == (20, {"a": 10.0, "b": 4.0})


def test_one_variable_many_times() -> None:
    x = graph.Variable(X)
    y = np.concatenate([x, x, x * x])
    np.testing.assert_allclose(graph.grad(np.sum(y * y), x), 4 * X + 4 * X**3)
    _, pullback = graph.vjp(lambda v: (v, v, v * 2), X)
    np.testing.assert_array_equal(pullback((X, X, X))[0], 4 * X)
    assert graph.grad(lambda a, b: np.sum(a * b), wrt=(0, 1))(x, x)[0].value.tolist() == X.tolist()


def test_rebinding() -> None:
    def f(x: Any) -> Any:
        total = x
        total += x * x
        total *= 2
        return total

    assert graph.grad(f)(3.0) == 14


# --- without a derivative ---------------------------------------------------------------------------------------------


def test_stop_gradient() -> None:
    assert graph.grad(lambda x: x * graph.stop_gradient(x * x))(3.0) == 9
    found = graph.stop_gradient({"a": [graph.Variable(1.0)], "b": X})
    assert not found["a"][0].tracked
    assert found["b"] is X


def test_no_grad() -> None:
    x = graph.Variable(3.0)
    with graph.no_grad():
        y = x * x
        with graph.no_grad():
            pass
        assert not (x * x).tracked
        assert graph.grad(lambda v: v * v)(3.0) == 6  # a transformation works inside
        assert not graph.grad(lambda v: v * v * x)(x).tracked
    assert not y.tracked
    assert (x * x).tracked

    @graph.no_grad()
    def constant(v: Any) -> Any:
        return v * v

    assert not constant(x).tracked
    assert graph.grad(lambda v: v * constant(v))(3.0) == 9
    with pytest.raises(ZeroDivisionError), graph.no_grad():
        raise ZeroDivisionError
    assert (x * x).tracked


def test_a_backward_pass_records_nothing_unless_it_is_asked_for() -> None:
    seen = []

    @graph.checkpoint  # its pull runs while the backward pass does
    def watched(x: Any) -> Any:
        seen.append(graph.Variable(1.0) * 1.0)
        return x * x

    x = graph.Variable(2.0)
    assert not isinstance(graph.grad(watched(x) * x, x), graph.Variable)
    assert graph.grad(lambda v: v * v)(graph.Variable(3.0)).tracked
    assert len(seen) == 2


# --- checkpoint -------------------------------------------------------------------------------------------------------


def test_checkpoint_changes_no_derivative() -> None:
    def f(p: Any, x: Any, *, power: int) -> Any:
        hidden = np.tanh(p["w"] * x)
        return {"sum": np.sum(hidden**power), "hidden": hidden, "text": "t"}

    def loss(function: Any) -> Any:
        def total(p: Any, x: Any) -> Any:
            result = function(p, x, power=3)
            assert result["text"] == "t"
            return result["sum"] * np.sum(result["hidden"] * x)

        return total

    p, x = {"w": X, "b": 1.0}, X + 0.2
    plain, checked = loss(f), loss(graph.checkpoint(f))
    for wrt in (0, 1):
        expected, found = graph.grad(plain, wrt)(p, x), graph.grad(checked, wrt)(p, x)
        assert str(found) == str(expected)
    tangents = ({"w": X * 2, "b": 0.5}, X)
    second = [graph.jvp(graph.grad(each, wrt=(0, 1)), (p, x), tangents)[1] for each in (plain, checked)]
    np.testing.assert_allclose(second[0][0]["w"], second[1][0]["w"], rtol=1e-12)
    np.testing.assert_allclose(second[0][1], second[1][1], rtol=1e-12)
    assert second[0][0]["w"].any()


def test_checkpoint_of_what_is_captured() -> None:
    w = graph.Variable(2.0)
    v = w * w

    @graph.checkpoint
    def f(x: Any) -> Any:
        return x * v * w  # both, of which one depends on the other

    x = graph.Variable(3.0)
    assert graph.grad(f(x) * x, (x, w)) == (2 * 3 * 8, 9 * 3 * 4)
    gradient = graph.grad(f(x) * x, w, record=True)
    np.testing.assert_allclose(graph.grad(gradient, (x, w)), (6 * 12, 9 * 12))


@pytest.mark.parametrize("n", [3, 3000])  # large ones wait for their values
@pytest.mark.parametrize(
    "segment",
    [
        lambda u, y: u * y + np.sum(y),
        lambda u, y: u * y + (u @ y) * y,  # the product needs the value of y after the first factor has met it
        lambda u, y: np.exp(y),  # noqa: ARG005
        lambda u, y: y,  # noqa: ARG005
    ],
)
def test_checkpoint_of_what_was_computed_outside(segment: Callable[..., Any], n: int) -> None:
    x = np.linspace(0.1, 1.0, n)

    def checked(x: Any) -> Any:
        y = np.sin(x) * 2.0
        return np.sum(graph.checkpoint(lambda u: segment(u, y))(x) ** 2 * y)

    def plain(x: Any) -> Any:
        y = np.sin(x) * 2.0
        return np.sum(segment(x, y) ** 2 * y)

    np.testing.assert_allclose(graph.grad(checked)(x), graph.grad(plain)(x), rtol=1e-11)
    for one, other in zip(graph.hvp(checked, (x,), (x,)), graph.hvp(plain, (x,), (x,)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


def test_checkpoints_in_checkpoints() -> None:
    w = graph.Variable(2.0)
    inner = graph.checkpoint(lambda x: np.sin(x) * w)
    outer = graph.checkpoint(lambda x: inner(inner(x)) * x)
    plain = lambda x: np.sin(np.sin(x) * w) * w * x  # noqa: E731
    x = graph.Variable(0.7)
    for found, expected in zip(graph.grad(outer(x), (x, w)), graph.grad(plain(x), (x, w)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-14)
    np.testing.assert_allclose(
        graph.grad(graph.grad(lambda v: outer(v)))(0.7), graph.grad(graph.grad(plain))(0.7), rtol=1e-13
    )


def test_checkpoint_with_a_transformation_inside() -> None:
    w = graph.Variable(3.0)
    f = graph.checkpoint(lambda x: graph.grad(lambda y: y**3 * w)(x))
    x = graph.Variable(2.0)
    assert f(x).item() == 36
    assert graph.grad(f(x), (x, w)) == (36.0, 12.0)
    assert graph.grad(lambda v: f(v))(2.0) == 36


def test_checkpoint_computes_again_in_the_backward_pass() -> None:
    calls = []

    @graph.checkpoint
    def f(x: Any) -> Any:
        calls.append(x.tracked)
        return np.sin(x)

    y = f(graph.Variable(1.0))
    assert calls == [False]
    with graph.no_grad():
        f(graph.Variable(1.0))
    assert len(calls) == 2
    graph.grad(lambda x: f(x))(1.0)
    assert calls[2:] == [False, True]
    assert y.tracked


# --- depth ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_graphs_of_great_depth() -> None:
    def chain(x: Any) -> Any:
        for _ in range(100_000):
            x = x[::-1]
        return np.sum(x * np.array([1.0, 2.0]))

    np.testing.assert_array_equal(graph.grad(chain)(np.zeros(2)), [1, 2])
    y = graph.Variable(X)
    for _ in range(100_000):
        y = y[::-1]
    del y  # a graph that nobody goes back through is freed without recursion, too


def test_a_diamond_is_walked_once_for_each_node() -> None:
    """With one walk for each path, 60 doublings would not end."""

    def f(x: Any) -> Any:
        for _ in range(60):
            x = (x + x) / 2
        return x

    assert graph.grad(f)(1.0) == 1
