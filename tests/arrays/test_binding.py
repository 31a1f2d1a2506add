"""How calls bind: Python's binding, defaults, static arguments, and the kinds of callables that can be decorated."""

from __future__ import annotations

import copy
import enum
import functools
import gc
import inspect
import itertools
import math
import pickle
import weakref
from dataclasses import dataclass, field
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dualbcast import BroadcastFunction, differentiable_broadcast
from dualbcast.errors import ArgumentError, CompileError

BACKENDS = ["python", "cpu"]
X = np.array([0.5, 1.5, -2.0])
Y = np.array([3.0, 4.0, 5.0])


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Any:
    return request.param


# --- Python's binding -------------------------------------------------------------------------------------------------


def only_position(a, b, /, c):
    return a + 10 * b + 100 * c


def with_defaults(a, b=2.0, c=3):
    return a + 10 * b + 100 * c


def by_name_only(a, *, b, c=3.0):
    return a + 10 * b + 100 * c


def everything(a, /, b, c=0.5, *rest, d, e=7):
    return a + 10 * b + 100 * c + 1000 * sum(rest) + 10000 * d + 100000 * e


CALLS = [
    (function, args, dict(zip(names, values, strict=True)))
    for function in (only_position, with_defaults, by_name_only, everything)
    for count, names in itertools.product(
        range(6), [(), ("a",), ("b",), ("c",), ("d",), ("b", "c"), ("c", "b"), ("d", "e"), ("b", "d"), ("a", "b", "c")]
    )
    for args, values in [((1.0, 2.0, 4.0, 8.0, 16.0)[:count], (32.0, 64.0, 128.0)[: len(names)])]
]


@pytest.mark.parametrize(
    ("function", "args", "named"), CALLS, ids=[f"{f.__name__}-{len(a)}-{''.join(n)}" for f, a, n in CALLS]
)
def test_calls_bind_as_pythons_do(function: Any, args: Any, named: Any) -> None:
    f = differentiable_broadcast(backend="python")(function)
    try:
        wanted = function(*args, **named)
    except TypeError:
        with pytest.raises(ArgumentError, match=rf"^{function.__name__}\("):
            f(*args, **named)
    else:
        arrays = tuple(np.array([arg]) for arg in args)
        for _ in range(2):
            assert f(*args, **named) == wanted
            assert f(*arrays, **{name: np.array([value]) for name, value in named.items()}).tolist() == [wanted]


def test_the_names_of_a_jacobian_follow_the_signature(backend: Any) -> None:
    f = differentiable_broadcast(backend=backend)(everything)
    jacobian = f.jacobian(1.0, 2.0, 3.0, 4.0, 5.0, d=6.0)
    assert jacobian.wrt == ("a", "b", "c", "rest_0", "rest_1", "d")
    assert [float(jacobian[name]) for name in jacobian.wrt] == [1, 10, 100, 1000, 1000, 10000]
    # Positions count the parameters with *args spread: e, left out here, is the last.
    assert f.jacobian(1.0, 2.0, 3.0, 4.0, 5.0, d=6.0, wrt=(0, -2, 3)).wrt == ("a", "d", "rest_0")
    assert f.jacobian(1.0, d=6.0, b=X, wrt="b")["b"].tolist() == [10.0] * 3


def test_a_parameter_may_look_like_one_of_the_spread(backend: Any) -> None:
    f = differentiable_broadcast(backend=backend)(lambda rest_0, *rest: rest_0 * rest[0] ** 2)
    jacobian = f.jacobian(2.0, 3.0)
    assert len(set(jacobian.wrt)) == 2
    assert [float(jacobian[position]) for position in range(2)] == [9.0, 12.0]


ERRORS = [
    ((), {}, "everything(a, /, b, c=0.5, *rest, d, e=7) lacks a value for a, b, d"),
    ((1.0,), {"a": 1.0, "b": 2.0, "d": 3.0}, "has no parameter 'a'"),
    ((1.0, 2.0), {"b": 1.0, "d": 3.0}, "gets two values for b"),
    ((1.0, 2.0), {"d": 1.0, "z": 3.0}, "everything(a, /, b, c=0.5, *rest, d, e=7) has no parameter 'z'"),
]


@pytest.mark.parametrize(("args", "named", "words"), ERRORS)
def test_a_wrong_call_names_the_signature(args: Any, named: Any, words: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        differentiable_broadcast(everything)(*args, **named)
    assert words in str(caught.value)


def test_too_many_arguments() -> None:
    with pytest.raises(
        ArgumentError, match=r"^by_name_only\(a, \*, b, c=3.0\) takes 1 argument by position, and 2 are"
    ):
        differentiable_broadcast(by_name_only)(1.0, 2.0, b=1.0)


def test_keywords_that_calls_take_themselves() -> None:
    def f(x, *, out):
        return x + out

    with pytest.raises(ArgumentError, match="keyword-only parameter out"):
        differentiable_broadcast(f)


def test_arguments_by_name_come_in_any_order(backend: Any) -> None:
    f = differentiable_broadcast(backend=backend)(lambda a, b: a + 10 * b)
    for _ in range(2):
        assert f(a=X, b=Y).tolist() == f(b=Y, a=X).tolist() == (X + 10 * Y).tolist()


# --- defaults ---------------------------------------------------------------------------------------------------------


def test_a_default_number_is_compiled_in_unless_wrt_names_it(backend: Any) -> None:
    f = differentiable_broadcast(backend=backend)(lambda x, k=2.0, n=3: k * x**n)
    value, jacobian = f.value_and_jacobian(X)
    assert value.tolist() == (2 * X**3).tolist()
    assert jacobian.wrt == ("x",)
    np.testing.assert_allclose(jacobian["x"], 6 * X**2)
    for wrt in ("k", 1, -2):
        jacobian = f.jacobian(X, wrt=wrt)
        assert jacobian.wrt == ("k",)
        assert jacobian["k"].tolist() == (X**3).tolist()
    assert f.jacobian(X, 5.0).wrt == ("x", "k")
    assert f.jacobian(X, wrt=("x", "k")).pullback(np.ones(3))[1].shape == ()
    with pytest.raises(ArgumentError, match="n is an int, which carries no derivative"):
        f.jacobian(X, wrt="n")
    source = f.inspect_source("float64", product="value")
    assert "2.0" in source
    assert "k[" not in source
    assert f(X.astype("f4")).dtype == np.float32
    assert f(X.astype("f4"), k=np.float64(2)).dtype == np.float64


@pytest.mark.parametrize("number", [2.0, 2, np.float64(2), np.float32(2), np.longdouble(2)], ids=repr)
def test_a_default_number_is_weak(number: Any, backend: Any) -> None:
    f = differentiable_broadcast(backend=backend)(functools.partial(scaled, shift=number))
    x = X.astype("f4")
    assert f(x).dtype == np.float32
    if not isinstance(number, int):
        assert f.jacobian(x, wrt="shift")["shift"].dtype == np.float32


def test_the_decorators_wrt_makes_a_default_an_argument(backend: Any) -> None:
    f = differentiable_broadcast(backend=backend, wrt=("k",))(lambda x, k=2.0: k * x)
    assert f.jacobian(X)["k"].tolist() == X.tolist()
    assert f(X).tolist() == (2 * X).tolist()


def test_none_as_a_default_is_known(backend: Any) -> None:
    @differentiable_broadcast(backend=backend)
    def f(x, weight=None):
        if weight is None:
            return x * x
        return x * weight

    for value, jacobian in (
        f.value_and_jacobian(X),
        f.value_and_jacobian(X, None),
        f.value_and_jacobian(X, weight=None),
    ):
        assert value.tolist() == (X * X).tolist()
        assert jacobian["x"].tolist() == (2 * X).tolist()
    value, jacobian = f.value_and_jacobian(X, Y)
    assert value.tolist() == (X * Y).tolist()
    assert jacobian["weight"].tolist() == X.tolist()
    with pytest.raises(ArgumentError, match="weight is no array or number in this call"):
        f.jacobian(X, wrt="weight")
    with pytest.raises(ArgumentError, match="x is None, not an array"):
        f(None)


def test_text_and_tuples_and_objects_as_defaults(backend: Any) -> None:
    record = SimpleNamespace(rate=3.0)

    @differentiable_broadcast(backend=backend)
    def f(x, mode="square", weights=(1.0, 2), settings=record):
        y = x * x if mode == "square" else x
        return y * weights[0] + weights[1] * settings.rate

    assert f(X).tolist() == (X * X + 6).tolist()
    assert f(X, "".join(["squ", "are"])).tolist() == (X * X + 6).tolist()
    record.rate = 5.0
    assert f(X).tolist() == (X * X + 10).tolist()
    with pytest.raises(ArgumentError, match=r"mode is a str, not an array or a number.*static='mode'"):
        f(X, "plain")


def test_an_array_as_a_default_is_an_argument(backend: Any) -> None:
    weights = np.array([[1.0], [2.0]], np.float32)

    @differentiable_broadcast(backend=backend)
    def f(x, w=weights):
        return x * w

    value, jacobian = f.value_and_jacobian(X)
    assert value.tolist() == (X * weights).tolist()
    assert jacobian.wrt == ("x", "w")
    assert jacobian.pullback(np.ones((2, 3)))[1].tolist() == [[X.sum()], [X.sum()]]
    weights[0] = 5.0
    assert f(X).tolist() == (X * weights).tolist()
    assert f(X, 2.0).tolist() == (2 * X).tolist()
    assert str(f._binder) == "f(x, w=...)"


# --- static arguments -------------------------------------------------------------------------------------------------


@differentiable_broadcast(static=("mode",))
def moded(x, mode="sin", k=1.0):
    if mode is None:
        return k * x
    return k * math.sin(x) if mode == "sin" else k * x**2


def test_static_arguments_are_known(backend: Any) -> None:
    f = differentiable_broadcast(backend=backend)(moded)
    np.testing.assert_allclose(f(X), np.sin(X), rtol=1e-15)
    np.testing.assert_allclose(f(X, "sin"), np.sin(X), rtol=1e-15)
    assert f(X, None).tolist() == X.tolist()
    value, jacobian = f.value_and_jacobian(X, mode="square", k=3.0)
    np.testing.assert_allclose(value, 3 * X**2)
    assert jacobian.wrt == ("x", "k")
    np.testing.assert_allclose(jacobian["x"], 6 * X)
    assert f.jacobian(X, "sin", 1.0, wrt=2).wrt == ("k",)
    assert "sin" not in f.explain("float64", "square", product="value").operations
    assert "sin" in f.explain("float64", "sin", product="value").operations
    assert f.inspect_ir("float64", mode="sin") == f.inspect_ir("float64", "sin")


def test_a_static_argument_may_be_text_or_a_number(backend: Any) -> None:
    f = differentiable_broadcast(static="mode", backend=backend)(lambda x, mode: x if mode == "same" else x**mode)
    assert f(X, "same").tolist() == X.tolist()
    assert f(X, 2).tolist() == (X * X).tolist()


def test_there_is_no_derivative_in_what_is_static() -> None:
    for wrt in ("mode", 1, ("x", "mode")):
        with pytest.raises(ArgumentError, match="mode is static"):
            moded.jacobian(X, "sin", wrt=wrt)
    with pytest.raises(ArgumentError, match="mode is static"):
        differentiable_broadcast(static="mode", wrt=("x", "mode"))(moded.__wrapped__)


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@dataclass(frozen=True)
class Config:
    rate: float
    label: str = field(default="", compare=False)


def takes_static(x, s):
    return x if s is None else x + 1


PAIRS: list[tuple[Any, Any]] = [
    (1, 1.0),
    (1, True),
    (1.0, True),
    (0.0, -0.0),
    ((1, (2.0,)), (1, (2,))),
    ((0.0,), (-0.0,)),
    (Config(1), Config(1.0)),
    (Config(1.0, "a"), Config(1.0, "b")),
    (Colour.RED, Colour.BLUE),
    ("a", "b"),
    ("1", 1),
    (None, False),
    (np.float64(1), 1.0),
    (frozenset({1}), frozenset({1.0})),
    (abs, float),
]


@pytest.mark.parametrize(("one", "other"), PAIRS, ids=str)
def test_static_values_that_differ_have_kernels_of_their_own(one: Any, other: Any) -> None:
    f = differentiable_broadcast(static="s", backend="python")(takes_static)
    for value in (one, other, one, other, copy.copy(one)):
        f(1.0, value)
    assert len(f._dispatch.programs) == 2
    assert sorted(str(form.slots[1].object) for form, _ in f._dispatch.programs) == sorted(map(str, (one, other)))


def test_what_a_static_value_is_reaches_the_kernel(backend: Any) -> None:
    f = differentiable_broadcast(static=["s"], backend=backend)(
        lambda x, *, s=(1.0,): x / s[0] if s[0] > 0 else 1 / s[0]
    )
    assert f(X).tolist() == X.tolist()
    assert f(X, s=(4.0, 1)).tolist() == (X / 4).tolist()
    with np.errstate(divide="ignore"):
        assert f(X, s=(0.0,)).tolist() == [math.inf] * 3
        assert f(X, s=(-0.0,)).tolist() == [-math.inf] * 3
    assert f(2, s=(4,)) == 0.5


def test_equal_objects_that_are_not_the_same_are_told_apart(backend: Any) -> None:
    class Rate:
        def __init__(self, value: float) -> None:
            self.value = value

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 1

    f = differentiable_broadcast(static="rate", backend=backend)(lambda x, rate: x * rate.value)
    one, two = Rate(2.0), Rate(3.0)
    assert [f(1.0, rate) for rate in (one, two, one)] == [2.0, 3.0, 2.0]
    one.value = 7.0
    assert [f(1.0, rate) for rate in (one, two)] == [7.0, 3.0]


def test_a_function_can_be_static(backend: Any) -> None:
    f = differentiable_broadcast(static="g", backend=backend)(lambda x, g: g(x) * 2)
    assert f(X, math.fabs).tolist() == (2 * abs(X)).tolist()
    value, jacobian = f.value_and_jacobian(X, lambda x: x * x)
    assert value.tolist() == (2 * X * X).tolist()
    assert jacobian["x"].tolist() == (4 * X).tolist()


def test_what_cannot_be_static() -> None:
    f = differentiable_broadcast(static="s")(takes_static)
    for value in ([1.0], {"a": 1}, {1}, ([1],), (X,)):
        with pytest.raises(ArgumentError, match=r"s is static, and a .* cannot be.*Pass"):
            f(1.0, value)
    with pytest.raises(ArgumentError, match="s is static, and an array cannot be"):
        f(1.0, X)
    for static in ("z", ("s", "z"), "x_0", (0,)):
        with pytest.raises(ArgumentError, match="names no parameter"):
            differentiable_broadcast(static=static)(takes_static)
    with pytest.raises(ArgumentError, match=r"the arguments of \*xs are arrays"):
        differentiable_broadcast(static="xs")(lambda *xs: xs[0])
    with pytest.raises(ArgumentError, match="default of s is an array"):
        differentiable_broadcast(static="s")(lambda x, s=X: x + s)
    with pytest.raises(CompileError, match="s is of type Fraction"):
        f(1.0, Fraction(1, 2))


# --- what can be decorated --------------------------------------------------------------------------------------------


def scaled(x, k=2.0, *, shift=0.5):
    """Scale and shift."""
    return k * x + shift


class Line:
    """A callable."""

    def __init__(self, slope: float) -> None:
        self.slope = slope

    def __call__(self, x, k=1.0):
        return self.slope * x * k

    def at(self, x):
        return self.slope * x


PARTIALS: list[tuple[Any, str]] = [
    (functools.partial(scaled, k=3.0), "(x, *, k=3.0, shift=0.5)"),
    (functools.partial(scaled, shift=1), "(x, k=2.0, *, shift=1)"),
    (functools.partial(functools.partial(scaled, k=3.0), shift=2.0, k=4.0), "(x, *, k=4.0, shift=2.0)"),
    (functools.partial(scaled, 1.5), "(k=2.0, *, shift=0.5)"),
    (Line(3.0), "(x, k=1.0)"),
    (Line(3.0).at, "(x)"),
    (functools.partial(Line(3.0).at), "(x)"),
    (staticmethod(scaled), "(x, k=2.0, *, shift=0.5)"),
    (differentiable_broadcast(scaled), "(x, k=2.0, *, shift=0.5)"),
    (functools.partial(differentiable_broadcast(scaled), k=5.0), "(x, *, k=5.0, shift=0.5)"),
    (SimpleNamespace(py_func=scaled, __name__="scaled"), "(x, k=2.0, *, shift=0.5)"),
]


@pytest.mark.parametrize(("thing", "signature"), PARTIALS, ids=[f"{type(p).__name__}{s}" for p, s in PARTIALS])
def test_what_can_be_decorated(thing: Any, signature: str, backend: Any) -> None:
    if isinstance(thing, SimpleNamespace):
        dispatcher = type("Dispatcher", (), {"__call__": lambda _, x: scaled(x)})()
        vars(dispatcher).update(vars(thing))
        thing = dispatcher
    f = BroadcastFunction(thing, backend=backend)
    assert str(inspect.signature(f)) == signature
    plain = thing.__wrapped__ if isinstance(thing, BroadcastFunction) else thing
    assert f(X).tolist() == [float(plain(x)) for x in X.tolist()]
    step = 1e-6
    wanted = [(float(plain(x + step)) - float(plain(x - step))) / (2 * step) for x in X.tolist()]
    np.testing.assert_allclose(f.jacobian(X)[0], wanted, rtol=1e-8)


def test_a_partials_arguments(backend: Any) -> None:
    f = differentiable_broadcast(backend=backend)(functools.partial(scaled, k=Y))
    value, jacobian = f.value_and_jacobian(X)
    assert value.tolist() == (Y * X + 0.5).tolist()
    assert jacobian.wrt == ("x", "k")
    assert f(X, k=2.0).tolist() == (2 * X + 0.5).tolist()
    with pytest.raises(ArgumentError, match="two values for k"):
        f(X, 3.0)
    with pytest.raises(ArgumentError, match="no parameter z"):
        differentiable_broadcast(functools.partial(scaled, z=1.0))
    with pytest.raises(ArgumentError, match="two values for x"):
        differentiable_broadcast(functools.partial(scaled, 1.0))(x=2.0)
    assert differentiable_broadcast(functools.partial(lambda *xs: xs[0] - xs[1], 5.0))(X).tolist() == (5 - X).tolist()


def test_a_wrapper_is_the_function(backend: Any) -> None:
    def doubled(function):
        @functools.wraps(function)
        def wrapper(x, y):
            return 2 * x * y

        return wrapper

    f = differentiable_broadcast(backend=backend)(doubled(lambda x: x))
    assert str(inspect.signature(f)) == "(x, y)"
    assert f(X, Y).tolist() == (2 * X * Y).tolist()


def test_a_static_name_stays_with_a_function_decorated_again() -> None:
    assert differentiable_broadcast(backend="python")(moded)(2.0, "square") == 4.0
    again = differentiable_broadcast(backend="python")(functools.partial(moded, k=3.0))
    assert again(2.0, "square") == 12.0
    assert again(2.0, mode="square") == 12.0


def test_a_callable_object_whose_call_is_decorated(backend: Any) -> None:
    class Power:
        @differentiable_broadcast(static="n", backend=backend)
        def __call__(self, x, n="two"):
            return x * x if n == "two" else x * self.slope

        slope = 5.0

    power = Power()
    assert power(X).tolist() == (X * X).tolist()
    assert differentiable_broadcast(backend=backend)(power)(X, "other").tolist() == (5 * X).tolist()


def test_numba_dispatchers(backend: Any) -> None:
    numba = pytest.importorskip("numba")
    f = differentiable_broadcast(backend=backend)(numba.njit(scaled))
    assert f(X).tolist() == (2 * X + 0.5).tolist()


# --- methods ----------------------------------------------------------------------------------------------------------


class Model:
    def __init__(self, slope: float, weights: Any = None) -> None:
        self.slope, self.weights = slope, weights

    @differentiable_broadcast
    def price(self, x, k=1.0):
        """A price."""
        return self.slope * x * k

    @differentiable_broadcast(static="mode", wrt="x")
    def weighted(self, x, mode="plus"):
        return x * self.weights + self.slope if mode == "plus" else x * self.weights


@dataclass(frozen=True)
class Frozen:
    slope: float

    @differentiable_broadcast
    def price(self, x):
        return self.slope * x


class Slotted:
    __slots__ = ("slope",)

    def __init__(self, slope: float) -> None:
        self.slope = slope

    @differentiable_broadcast
    def price(self, x):
        return self.slope * x


@pytest.mark.parametrize("kind", [Model, Frozen, Slotted])
def test_methods(kind: Any) -> None:
    two, three = kind(2.0), kind(3.0)
    for _ in range(2):
        assert two.price(X).tolist() == (2 * X).tolist()
        assert three.price(x=X).tolist() == (3 * X).tolist()
        assert two.price.jacobian(X)["x"].tolist() == [2.0] * 3
    assert isinstance(kind.price, BroadcastFunction)
    assert isinstance(two.price, BroadcastFunction)
    assert "self" not in inspect.signature(two.price).parameters
    assert two.price.__wrapped__(4.0) == 8.0


def test_a_methods_kernels_are_kept_with_the_object() -> None:
    model = Model(2.0)
    assert model.price is model.price
    assert model.price.__name__ == "price"
    model.price(X)
    (program,) = model.price._dispatch.programs.values()
    model.price(X + 1)
    assert list(model.price._dispatch.programs.values()) == [program]
    model.slope = 5.0
    assert model.price(X).tolist() == (5 * X).tolist()


def test_a_copy_of_an_object_has_methods_of_its_own() -> None:
    model = Model(2.0, Y)
    model.price(X)
    for twin in (copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        twin.slope = 3.0
        assert twin.price(X).tolist() == (3 * X).tolist()
        assert model.price(X).tolist() == (2 * X).tolist()


def test_objects_are_not_kept_alive() -> None:
    model = Model(2.0, Y)
    model.price(X)
    model.weighted.jacobian(X)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_an_inherited_method_and_its_override() -> None:
    class Child(Model):
        @differentiable_broadcast(backend="python")
        def price(self, x):
            return self.slope * x + 1

    child = Child(2.0)
    assert child.price(X).tolist() == (2 * X + 1).tolist()
    assert super(Child, child).price(X).tolist() == (2 * X).tolist()
    assert child.price(X).tolist() == (2 * X + 1).tolist()


def test_the_arrays_of_an_object() -> None:
    model = Model(0.5, Y.copy())
    assert model.weighted(X).tolist() == (X * Y + 0.5).tolist()
    assert model.weighted(X, "times").tolist() == (X * Y).tolist()
    model.weights = 2 * Y
    value, jacobian = model.weighted.value_and_jacobian(X, wrt=("x", "self.weights"))
    assert value.tolist() == (X * 2 * Y + 0.5).tolist()
    assert jacobian["x"].tolist() == (2 * Y).tolist()
    assert jacobian["self.weights"].tolist() == X.tolist()
    assert model.weighted.jacobian(X).wrt == ("x",)
    model.weights = 3
    assert model.weighted(X).tolist() == (3 * X + 0.5).tolist()


# --- as an object -----------------------------------------------------------------------------------------------------


@differentiable_broadcast(static="mode")
def pickled(x, mode="a"):
    return 2 * x if mode == "a" else x


renamed = differentiable_broadcast(backend="python", wrt="x")(scaled)
of_partial = differentiable_broadcast(functools.partial(scaled, k=3.0))
of_object = differentiable_broadcast(Line(3.0))


def test_a_function_pickles_by_its_name() -> None:
    assert pickle.loads(pickle.dumps(pickled)) is pickled
    assert pickle.loads(pickle.dumps(Model.price)) is Model.price
    assert len(pickle.dumps(pickled)) < 100


@pytest.mark.parametrize("transport", [copy.copy, copy.deepcopy, lambda f: pickle.loads(pickle.dumps(f))])
@pytest.mark.parametrize("f", [pickled, renamed, of_partial, of_object, Model(2.0).price, Model.price])
def test_functions_can_be_copied_and_pickled(f: Any, transport: Any) -> None:
    twin = transport(f)
    assert isinstance(twin, BroadcastFunction)
    assert twin._options == f._options
    assert str(inspect.signature(twin)) == str(inspect.signature(f))
    if f is not Model.price:
        assert twin(X).tolist() == f(X).tolist()


def test_a_deep_copy_goes_with_its_object() -> None:
    line = Line(3.0)
    pair = {"line": line, "f": differentiable_broadcast(line)}
    twin = copy.deepcopy(pair)
    twin["line"].slope = 4.0
    assert (twin["f"](1.0), pair["f"](1.0)) == (4.0, 3.0)
