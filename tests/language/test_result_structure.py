"""Results in the structure that the function returns: tuples, lists, named tuples, dataclasses, nested."""

from __future__ import annotations

import math
from collections import namedtuple
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest

from dualbcast import differentiable_broadcast
from dualbcast.errors import ArgumentError, ShapeError
from dualbcast.ir.nodes import NUMBER, Structure

BACKENDS = ["python", "cpu"]
X = np.linspace(0.5, 2.0, 4)
Y = np.array([[1.0], [2.0]])
SHAPE = (2, 4)
# To be switched on when functions may construct these.


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Any:
    return request.param


class Greeks(NamedTuple):
    delta: float
    gamma: Any


@dataclass(frozen=True)
class Price:
    value: float
    greeks: Greeks
    parts: Any = ()


@dataclass
class Checked:
    """Its check is for numbers, and an array has no truth."""

    low: Any
    high: Any
    width: Any = field(init=False)

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError
        self.width = self.high - self.low


def nested(x, y):
    return x * y, (x, (y * y, 3.0)), (x + y,)


def nested_leaves(x: Any, y: Any) -> tuple[Any, ...]:
    return x * y, x + 0 * y, y * y + 0 * x, np.full(SHAPE, 3.0), x + y


def nested_blocks(x: Any, y: Any) -> dict[str, tuple[Any, ...]]:
    one, zero = np.ones(SHAPE), np.zeros(SHAPE)
    return {"x": (y + zero, one, zero, zero, one), "y": (x + zero, zero, 2 * y + zero, zero, one)}


def assert_equal(got: Any, wanted: Any) -> None:
    assert len(got) == len(wanted)
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_allclose(one, np.broadcast_to(other, SHAPE), rtol=1e-14, atol=1e-15)


def unpack(result: Any) -> tuple[Any, ...]:
    a, (b, (c, d)), (e,) = result
    assert type(result) is type(result[1]) is type(result[1][1]) is type(result[2]) is tuple
    return a, b, c, d, e


def test_nested_tuples(backend: Any) -> None:
    f = differentiable_broadcast(backend=backend)(nested)
    assert_equal(unpack(f(X, Y)), nested_leaves(X, Y))
    value, jacobian = f.value_and_jacobian(X, Y)
    assert_equal(unpack(value), nested_leaves(X, Y))
    blocks = nested_blocks(X, Y)
    assert jacobian.outputs == 5
    assert jacobian.labels == ("0", "1.0", "1.1.0", "1.1.1", "2.0")
    for name in "xy":
        assert_equal(unpack(jacobian[name]), blocks[name])
        for position, label in enumerate(jacobian.labels):
            for key in (position, position - 5, label):
                np.testing.assert_allclose(jacobian[key, name], blocks[name][position])
            np.testing.assert_array_equal(jacobian.dense(label, name), jacobian.dense(position, name))


def test_pullback_and_pushforward_of_nested_tuples(backend: Any) -> None:
    jacobian = differentiable_broadcast(backend=backend)(nested).jacobian(X, Y)
    blocks = nested_blocks(X, Y)
    cotangents = [np.random.default_rng(place).normal(size=SHAPE) for place in range(5)]
    a, b, c, d, e = cotangents
    wanted = [
        sum(block * cotangent for block, cotangent in zip(blocks[name], cotangents, strict=True)) for name in "xy"
    ]
    wanted = [wanted[0].sum(axis=0), wanted[1].sum(axis=1, keepdims=True)]
    for given in ((a, b, c, d, e), ((a, (b, (c, d)), (e,)),), ([a, (b, [c, d]), (e,)],), ((a, b, c, d, e),)):
        for got, exact in zip(jacobian.pullback(*given), wanted, strict=True):
            np.testing.assert_allclose(got, exact, rtol=1e-12)
    pushed = unpack(jacobian.pushforward(2 * X, 3 * Y))
    assert_equal(pushed, [2 * X * in_x + 3 * Y * in_y for in_x, in_y in zip(blocks["x"], blocks["y"], strict=True)])
    for bad in ((a, b), ((a, (b, c), (e,)),), (a, (b, (c, d)), (e,))):
        with pytest.raises(ArgumentError, match="cotangent"):
            jacobian.pullback(*bad)
    with pytest.raises(ShapeError, match="cotangent"):
        jacobian.pullback((a, (b, (c, d[0])), (e,)))


def test_labels_that_are_not_there() -> None:
    jacobian = differentiable_broadcast(backend="python")(nested).jacobian(X, Y)
    for label in ("1", "x", "", "1.1.2", "3"):
        with pytest.raises(ArgumentError, match=r"the function has 5: 0, 1\.0, 1\.1\.0, 1\.1\.1, 2\.0"):
            jacobian[label, "x"]


def test_out_of_nested_tuples(backend: Any) -> None:
    f = differentiable_broadcast(backend=backend)(nested)
    a, b, c, d, e = arrays = tuple(np.zeros(SHAPE) for _ in range(5))
    for out in ((a, (b, (c, d)), (e,)), arrays, list(arrays), [a, [b, (c, d)], [e]]):
        for array in arrays:
            array[...] = 0
        result = unpack(f(X, Y, out=out))
        assert all(got is array for got, array in zip(result, arrays, strict=True))
        assert_equal(arrays, nested_leaves(X, Y))
    for out in ((a, None, (e,)), (a, (None, (None, None)), (e,)), (a, None, None, None, e)):
        result = unpack(f(X, Y, out=out))
        assert result[0] is a
        assert result[4] is e
        assert_equal(result, nested_leaves(X, Y))
    with pytest.raises(ArgumentError, match=r"out=\[1\] must be a tuple of 2"):
        f(X, Y, out=(a, (b,), (e,)))
    with pytest.raises(ArgumentError, match="one array for each of 5 outputs; 2 are given"):
        f(X, Y, out=(a, b))
    with pytest.raises(ArgumentError, match="5 outputs"):
        f(X, Y, out=a)


def test_out_of_an_earlier_call(backend: Any) -> None:
    f = differentiable_broadcast(backend=backend)(nested)
    earlier = f.value_and_jacobian(X, Y)
    value, jacobian = f.value_and_jacobian(X + 1, Y, out=earlier)
    assert all(now is before for now, before in zip(unpack(value), unpack(earlier[0]), strict=True))
    assert jacobian[0, "y"] is earlier[1][0, "y"]
    assert_equal(unpack(value), nested_leaves(X + 1, Y))
    assert_equal(unpack(jacobian["y"]), nested_blocks(X + 1, Y)["y"])


def test_numbers_alone_give_numbers() -> None:
    value, jacobian = differentiable_broadcast(nested).value_and_jacobian(2.0, 3.0)
    assert value == (6.0, (2.0, (9.0, 3.0)), (5.0,))
    assert all(isinstance(leaf, np.float64) for leaf in unpack(value))
    assert unpack(jacobian["x"]) == (3.0, 1.0, 0.0, 0.0, 1.0)
    assert jacobian.pullback((1.0, (1.0, (1.0, 1.0)), (1.0,)))[0] == 5.0


STEP = Greeks(2.0, (3.0, 4))


def test_a_captured_named_tuple(backend: Any) -> None:
    f = differentiable_broadcast(backend=backend)(lambda x: (x * STEP.delta, STEP))
    first, step = f(X)
    assert first.tolist() == (2 * X).tolist()
    assert type(step) is Greeks
    assert (step.delta == 2.0).all()
    assert [part.tolist() for part in step.gamma] == [[3.0] * 4, [4] * 4]
    assert step.gamma[1].dtype == np.int64
    jacobian = f.jacobian(X)
    assert jacobian.labels == ("0", "1.delta", "1.gamma.0", "1.gamma.1")
    assert jacobian["0", "x"].tolist() == [2.0] * 4
    assert jacobian["1.gamma.0", "x"].tolist() == [0.0] * 4
    assert type(jacobian["x"][1]) is Greeks
    g = differentiable_broadcast(backend=backend)(lambda x: STEP if x is None else (x, x))
    assert type(g(X)) is tuple


# --- objects that are made in the function ----------------------------------------------------------------------------


def test_a_function_that_returns_a_list(backend: Any) -> None:
    value, jacobian = differentiable_broadcast(backend=backend)(lambda x: [x, 2 * x]).value_and_jacobian(X)
    assert type(value) is list
    assert [part.tolist() for part in value] == [X.tolist(), (2 * X).tolist()]
    assert type(jacobian["x"]) is list
    assert jacobian["1", "x"].tolist() == [2.0] * 4


def test_a_function_that_returns_a_named_tuple(backend: Any) -> None:
    f = differentiable_broadcast(backend=backend)(lambda x: Greeks(x * x, gamma=(x, math.exp(x))))
    value, jacobian = f.value_and_jacobian(X)
    assert type(value) is Greeks
    assert value.delta.tolist() == (X * X).tolist()
    np.testing.assert_allclose(value.gamma[1], np.exp(X))
    np.testing.assert_allclose(jacobian["gamma.1", "x"], np.exp(X))
    assert jacobian["x"].delta.tolist() == (2 * X).tolist()
    ones = np.ones(4)
    np.testing.assert_allclose(jacobian.pullback(Greeks(ones, (ones, ones)))[0], 2 * X + 1 + np.exp(X))
    assert type(jacobian.pushforward(ones)) is Greeks
    out = Greeks(np.zeros(4), (np.zeros(4), np.zeros(4)))
    assert f(X, out=out).delta is out.delta


def test_a_function_that_returns_a_dataclass(backend: Any) -> None:
    f = differentiable_broadcast(backend=backend)(lambda x, y: Price(x * y, Greeks(y, x), parts=(x,)))
    value, jacobian = f.value_and_jacobian(X, Y)
    assert type(value) is Price
    assert type(value.greeks) is Greeks
    assert value.value.tolist() == (X * Y).tolist()
    assert jacobian.labels == ("value", "greeks.delta", "greeks.gamma", "parts.0")
    assert jacobian["value", "x"].tolist() == np.broadcast_to(Y, SHAPE).tolist()
    assert (jacobian["x"].greeks.gamma == 1).all()
    ones = np.ones(SHAPE)
    pulled = jacobian.pullback(Price(ones, Greeks(ones, ones), (ones,)))
    np.testing.assert_allclose(pulled[0], (Y + 2 + 0 * X).sum(axis=0))
    out = Price(*(np.zeros(SHAPE) for _ in range(1)), Greeks(np.zeros(SHAPE), np.zeros(SHAPE)), (np.zeros(SHAPE),))
    assert f(X, Y, out=out).greeks.gamma is out.greeks.gamma


# --- the tree itself --------------------------------------------------------------------------------------------------

GREEKS = Structure(Greeks, (NUMBER, Structure(list, (NUMBER, NUMBER))), ("delta", "gamma"))
PRICE = Structure(Price, (NUMBER, GREEKS, Structure(tuple, ())), ("value", "greeks", "parts"))


def test_a_tree_packs_and_flattens() -> None:
    assert (NUMBER.count, GREEKS.count, PRICE.count) == (1, 3, 4)
    assert PRICE.labels() == ("value", "greeks.delta", "greeks.gamma.0", "greeks.gamma.1")
    assert NUMBER.labels() == ("",)
    packed = PRICE.pack([1, 2, 3, 4])
    assert packed == Price(1, Greeks(2, [3, 4]), ())
    assert PRICE.flatten(packed) == (1, 2, 3, 4)
    assert PRICE.flatten((1, (2, (3, 4)), ())) == (1, 2, 3, 4)
    assert PRICE.flatten([1, 2, 3, 4]) == (1, 2, 3, 4)
    assert PRICE.flatten(Price(1, Greeks(2, None), None)) == (1, 2, None, None)
    assert NUMBER.pack([7]) == 7
    assert NUMBER.flatten((7, 8)) == ((7, 8),)
    for bad in (Greeks(1, 2), 7, (1, 2), {"value": 1}, Price(1, (2, [3]), ())):
        with pytest.raises(ArgumentError, match=r"out.* must be a"):
            PRICE.flatten(bad)


def test_a_check_for_numbers_does_not_see_arrays() -> None:
    tree = Structure(Checked, (NUMBER, NUMBER, NUMBER), ("low", "high", "width"))
    made = tree.pack([X, X + 1, np.ones(4)])
    assert type(made) is Checked
    assert made.low is X
    assert made.width.tolist() == [1.0] * 4
    assert tree.flatten(made)[0] is X


def test_a_named_tuple_whose_new_does_more() -> None:
    class Scaled(namedtuple("Scaled", "a b")):
        __slots__ = ()

        def __new__(cls, a: float) -> Scaled:
            return super().__new__(cls, a, 2 * a)

    made = Structure(Scaled, (NUMBER, NUMBER), ("a", "b")).pack([1, 5])
    assert (type(made), made.a, made.b) == (Scaled, 1, 5)
