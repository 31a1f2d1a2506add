"""Objects of other libraries around Variables: what they do is right, or it is refused; nothing becomes zero unsaid."""

from __future__ import annotations

import collections
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from dualbcast import ArgumentError, DTypeError, differentiable_broadcast, graph

W, A = np.array([1.0, 2.0, 4.0]), np.array([3.0, 5.0, 7.0])


class Unit:
    """The least that a library such as pint does: numbers with a unit, which know NumPy's operators and ufuncs."""

    __array_priority__ = 17.0

    def __init__(self, magnitude: Any) -> None:
        self._magnitude = magnitude

    @property
    def magnitude(self) -> Any:
        return self._magnitude

    def __getattr__(self, name: str) -> Any:
        return getattr(self._magnitude, name)  # dtype, shape and all else

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self._magnitude, dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        plain = [each.magnitude if isinstance(each, Unit) else each for each in inputs]
        return Unit(getattr(ufunc, method)(*plain, **options))

    def __array_function__(self, function: Any, kinds: Any, args: Any, options: Any) -> Any:
        return Unit(function(*[each.magnitude if isinstance(each, Unit) else each for each in args], **options))

    def __mul__(self, other: Any) -> Unit:
        return Unit(self._magnitude * other)

    def __rmul__(self, other: Any) -> Unit:
        return Unit(other * self._magnitude)

    def __matmul__(self, other: Any) -> Unit:
        return Unit(self._magnitude @ other)

    def __rmatmul__(self, other: Any) -> Unit:
        return Unit(other @ self._magnitude)


def of_pint(array: Any) -> Any:
    return pytest.importorskip("pint").UnitRegistry().Quantity(array, "m")


def of_pandas(array: Any) -> Any:
    return pytest.importorskip("pandas").Series(array, index=list("abc"))


def of_pandas_frame(array: Any) -> Any:
    return pytest.importorskip("pandas").DataFrame({"a": array})


def of_xarray(array: Any) -> Any:
    return pytest.importorskip("xarray").DataArray(array, dims="t")


def of_dask(array: Any) -> Any:
    return pytest.importorskip("dask.array").from_array(array)


MAKERS: dict[str, Callable[[Any], Any]] = {
    "fake": Unit,
    "pint": of_pint,
    "pandas": of_pandas,
    "frame": of_pandas_frame,
    "xarray": of_xarray,
    "dask": of_dask,
    "masked": lambda array: np.ma.masked_array(array, [False, True, False]),
    "subclass": lambda array: array.view(np.matrix),
    "objects": lambda array: array.astype(object),
}
EACH = pytest.mark.parametrize("maker", MAKERS)


@differentiable_broadcast
def product(x: Any, y: Any) -> Any:
    return x * y


# What w has a slope of a in.
USES: dict[str, Callable[[Any, Any], Any]] = {
    "w * a": lambda w, a: w * a,
    "a * w": lambda w, a: a * w,
    "ufunc": lambda w, a: np.multiply(w, a),
    "ufunc before": lambda w, a: np.multiply(a, w),
    "BroadcastFunction": lambda w, a: product(w, a),
    "BroadcastFunction before": lambda w, a: product(a, w),
    "w @ a": lambda w, a: w @ a,
    "a @ w": lambda w, a: a @ w,
    "concatenate": lambda w, a: np.concatenate([w, a]),
    "where": lambda w, a: np.where(w > 0, w * np.asarray(a), a),
    "einsum": lambda w, a: np.einsum("i,i->i", w, a),
    "graph": lambda w, a: graph.dot(w, a),
    "indexing": lambda w, a: w[a],
}


def unwrapped(value: Any) -> Any:
    """What a user takes out of what another library gives."""
    for name in ("magnitude", "data"):
        if not isinstance(value, graph.Variable) and hasattr(type(value), name):
            return getattr(value, name)
    return value


@pytest.mark.filterwarnings("ignore:The unit of the quantity is stripped")
@EACH
@pytest.mark.parametrize("use", USES)
def test_an_object_beside_a_variable(maker: str, use: str) -> None:
    """The loss returned as it comes, and taken out of the object; the gradient is right, or there is an exception."""
    foreign = MAKERS[maker](A)
    right = {"concatenate": np.ones(3)}.get(use, A)
    ways: list[Callable[[Any, Any], Any]] = [
        lambda w, a: np.sum(USES[use](w, a)),
        lambda w, a: np.sum(unwrapped(USES[use](w, a))),
        lambda w, a: unwrapped(np.sum(USES[use](w, a))),
    ]
    for way in ways:
        refusal = ""
        try:
            found = graph.grad(way)(W, foreign)
        except (ArgumentError, DTypeError) as error:
            refusal = str(error)
        except (TypeError, ValueError, IndexError, AttributeError):
            refusal = "Write "  # of the other library's, or Python's
        if refusal:
            assert any(hint in refusal for hint in ("Pass ", "pass ", "Return ", "Write ", "Put ", "convert with"))
        else:
            np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize("maker", ["fake", "pint"])
def test_a_quantity_is_right_where_the_user_takes_the_variable_out(maker: str) -> None:
    a = MAKERS[maker](A)
    for loss in (lambda w, a: np.sum(w * a).magnitude, lambda w, a: np.sum((w * a).magnitude), lambda w, a: (w @ a).m):
        if maker == "fake" and loss.__code__.co_names[-1:] == ("m",):
            continue
        np.testing.assert_array_equal(graph.grad(loss)(W, a), A)
    with pytest.raises(ArgumentError, match=r"returns an object of type .*(Quantity|Unit), .* result\.magnitude"):
        graph.grad(lambda w, a: np.sum(w * a))(W, a)


# Variables hold Dask arrays: see test_dask_graph.py.
@pytest.mark.parametrize("maker", [maker for maker in MAKERS if maker != "dask"])
def test_as_an_argument_to_differentiate_in(maker: str) -> None:
    foreign = MAKERS[maker](A)
    for call in (
        lambda a: graph.grad(lambda z: np.sum(z * z))(a),
        lambda a: graph.vjp(lambda z: z * z, [a]),
        lambda a: graph.jvp(lambda z: z * z, (a,), (A,)),
        lambda a: graph.jvp(lambda z: z * z, (A,), (a,)),
        lambda a: graph.vjp(lambda z: z * z, A)[1](a),
        lambda a: graph.Variable(a),
    ):
        with pytest.raises((ArgumentError, DTypeError), match=r"[Pp]ass |convert with"):
            call(foreign)


class Box:
    def __init__(self, value: Any) -> None:
        self.value = value


class Wrapping(np.ndarray):
    """An array that has a Variable beside it."""

    variable: Any


def wrapping(value: Any) -> Any:
    made = np.zeros(()).view(Wrapping)
    made.variable = value
    return made


def of_objects(value: Any) -> Any:
    made = np.empty((), object)
    made[()] = value
    return made


def of_records(value: Any) -> Any:
    made = np.zeros(1, [("a", object)])
    made["a"][0] = value
    return made[0]


HIDING: dict[str, Callable[[Any], Any]] = {
    "fake": Unit,
    "pint": of_pint,
    "pandas": lambda v: pytest.importorskip("pandas").Series([v, v]),
    "frame": lambda v: pytest.importorskip("pandas").DataFrame({"a": [v]}),
    "xarray": lambda v: pytest.importorskip("xarray").DataArray(v),
    "dataset": lambda v: pytest.importorskip("xarray").Dataset({"a": of_xarray_number(v)}),
    "dask": of_dask,
    "object array": of_objects,
    "record": of_records,
    "subclass": wrapping,
    "own class": Box,
    "namespace": lambda v: types.SimpleNamespace(v=v),
    "set": lambda v: {v},
    "deque": lambda v: collections.deque([v]),
    "proxy": lambda v: types.MappingProxyType({"v": v}),
    "values of a dict": lambda v: {"v": v}.values(),
    "generator": lambda v: (each for each in [v]),
    "function": lambda v: lambda: v,
}


def of_xarray_number(value: Any) -> Any:
    return pytest.importorskip("xarray").DataArray(value)


@pytest.mark.parametrize("hiding", HIDING)
def test_a_result_that_hides_a_variable(hiding: str) -> None:
    def f(w: Any) -> Any:
        return HIDING[hiding](np.sum(w * w))

    for call in (
        lambda: graph.grad(f)(W),
        lambda: graph.value_and_grad(lambda w: (f(w), 1), has_aux=True)(W),
        lambda: graph.vjp(f, W),
        lambda: graph.vjp(lambda w: [w, {"a": f(w)}], W),
        lambda: graph.jvp(f, (W,), (W,)),
        lambda: graph.grad(lambda w: (graph.checkpoint(f)(w), np.sum(w))[1])(W),
        lambda: graph.grad(lambda w: np.sum(graph.grad(f)(w)))(W),
    ):
        with pytest.raises(ArgumentError, match=r"returns an .*no derivative would come through.*(Return|Put) "):
            call()


def test_the_message_says_where_and_what() -> None:
    def loss(w: Any) -> Any:
        return {"fit": np.sum(w), "rest": [Unit(w)]}

    with pytest.raises(ArgumentError) as raised:
        graph.vjp(loss, W)
    message = str(raised.value)
    assert "loss() returns an object of type test_objects_beside_variables.Unit in result['rest'][0]" in message
    assert "result['rest'][0].magnitude" in message


@dataclass
class Model:
    weights: Any
    bias: Any


def test_containers_and_constants_are_no_strangers() -> None:
    def f(w: Any) -> Any:
        return {"model": Model(w * 2.0, None), "rest": [(1, 2.0, True), np.ones(2), np.float32(3)]}

    value, pullback = graph.vjp(f, W)
    np.testing.assert_array_equal(value["model"].weights, W * 2.0)
    cotangent = {"model": Model(A, None), "rest": [(0.0, 0.0, 0.0), np.ones(2), np.float32(0)]}
    np.testing.assert_array_equal(pullback(cotangent)[0], A * 2.0)
    for constant in (3.0, 3, np.float32(3.0), np.array(3.0)):
        np.testing.assert_array_equal(graph.grad(lambda _, constant=constant: constant)(W), np.zeros(3))


@pytest.mark.parametrize("hiding", ["fake", "pint", "xarray", "dask", "object array"])
def test_stop_gradient_does_not_pass_over_what_it_cannot_see(hiding: str) -> None:
    with pytest.raises(ArgumentError, match="x is an"):
        graph.grad(lambda w: np.sum(w) + graph.stop_gradient(HIDING[hiding](np.sum(w))))(W)
    assert graph.stop_gradient({"name": "text", "more": [None, 1]}) == {"name": "text", "more": [None, 1]}
