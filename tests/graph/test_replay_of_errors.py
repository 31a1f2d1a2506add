"""Compiled steps in which errors are caught, and whose captures change in ways that are seldom: no result is stale."""

from __future__ import annotations

import abc
import dataclasses
import enum
import functools
import types
from typing import Any, NamedTuple

import numpy as np
import optree
import pytest

import dualbcast.errors
from dualbcast import differentiable_broadcast, fit, graph

X = np.array([1.0, 2.0, 3.0])


def test_a_caught_error_of_linear_algebra_ends_the_recording() -> None:
    def process(K: Any, y: Any) -> Any:  # noqa: N803
        try:
            L = np.linalg.cholesky(K)  # noqa: N806
        except np.linalg.LinAlgError:
            L = np.linalg.cholesky(K + np.eye(2))  # noqa: N806
        return np.sum(np.linalg.solve(L, y) ** 2)

    compiled = graph.compile(graph.value_and_grad(process))
    bad, good, y = np.array([[1.0, 2.0], [2.0, 1.0]]), np.array([[2.0, 0.5], [0.5, 1.0]]), np.ones(2)
    for K in (bad, bad, bad, good, good, bad, good):  # noqa: N806
        lower = np.linalg.cholesky(K + np.eye(2) if K is bad else K)
        np.testing.assert_allclose(compiled(K, y)[0], np.sum(np.linalg.solve(lower, y) ** 2), rtol=1e-14)


def test_a_caught_error_of_a_kernel_ends_the_recording() -> None:
    @differentiable_broadcast(whole="t")
    def looked_up(x: float, t: Any) -> float:
        return t[int(x)] * x

    def step(x: Any) -> Any:
        try:
            return np.sum(looked_up(x, np.arange(3.0)))
        except dualbcast.errors.BoundsError:
            return np.sum(x) * 100

    compiled = graph.compile(step)
    for value in (9.0, 9.0, 9.0, 1.5, 1.5, 9.0, 2.5):
        found = compiled(np.array([value]))
        assert found == (900.0 if value == 9.0 else int(value) * value)


def test_a_program_that_cannot_be_made_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("no memory for it")

    monkeypatch.setattr("dualbcast.graph.transformations.compilation.Program", fail)
    compiled = graph.compile(graph.grad(lambda x: np.sum(x * x)))
    for _ in range(4):
        np.testing.assert_array_equal(compiled(X), 2 * X)
    expected = "not replayed, since no program could be made: RuntimeError: no memory for it"
    assert compiled.explain() == f"1 form of arguments: {expected}"


def scaled(x: Any) -> Any:
    return x * scaled.scale  # type: ignore[attr-defined]


def counted(x: Any) -> Any:
    counted.calls += 1  # type: ignore[attr-defined]
    return x * counted.calls  # type: ignore[attr-defined]


class Base:
    scale = 2.0


class Sub(Base):
    pass


class Slots:
    __slots__ = ("b", "w")


class Doubled:
    def f(self, x: Any) -> Any:
        return x * 2


class Trebled:
    def f(self, x: Any) -> Any:
        return x * 3


def test_attributes_of_functions_are_watched() -> None:
    scaled.scale = 2.0  # type: ignore[attr-defined]
    compiled = graph.compile(scaled)
    for _ in range(3):
        np.testing.assert_array_equal(compiled(X), 2 * X)
    scaled.scale = 5.0  # type: ignore[attr-defined]
    np.testing.assert_array_equal(compiled(X), 5 * X)
    counted.calls = 0  # type: ignore[attr-defined]
    tally = graph.compile(counted)
    assert [float(tally(np.ones(1))[0]) for _ in range(5)] == [1, 2, 3, 4, 5]


def test_a_name_that_hides_an_inherited_one_is_seen() -> None:
    member = Sub()
    compiled = graph.compile(lambda x: x * member.scale)
    for _ in range(3):
        np.testing.assert_array_equal(compiled(X), 2 * X)
    Sub.scale = 5.0
    try:
        np.testing.assert_array_equal(compiled(X), 5 * X)
    finally:
        del Sub.scale
    np.testing.assert_array_equal(compiled(X), 2 * X)


@pytest.mark.parametrize("kind", ["slots", "module"])
def test_what_is_not_there_yet_is_watched(kind: str) -> None:
    place: Any = Slots() if kind == "slots" else types.ModuleType("place")
    place.w = 2.0
    compiled = graph.compile(lambda x: x * place.w + getattr(place, "b", 0.0))
    for _ in range(3):
        np.testing.assert_array_equal(compiled(X), 2 * X)
    place.b = 5.0
    np.testing.assert_array_equal(compiled(X), 2 * X + 5)


def test_the_order_of_a_dict_is_watched() -> None:
    layers = {"a": 2.0, "b": 3.0}

    def network(x: Any) -> Any:
        for factor in layers.values():
            x = x * factor + 1
        return x

    compiled = graph.compile(network)
    for _ in range(3):
        np.testing.assert_array_equal(compiled(X), (2 * X + 1) * 3 + 1)
    layers["a"] = layers.pop("a")
    np.testing.assert_array_equal(compiled(X), (3 * X + 1) * 2 + 1)


def test_the_class_of_an_object_is_watched() -> None:
    member: Any = Doubled()
    compiled = graph.compile(lambda x: member.f(x))
    for _ in range(3):
        np.testing.assert_array_equal(compiled(X), 2 * X)
    member.__class__ = Trebled
    np.testing.assert_array_equal(compiled(X), 3 * X)


def of_both(x: Any, first: Any, second: Any) -> Any:
    return x * first.w * second.w


def test_two_arguments_of_one_class_are_both_watched() -> None:
    first, second = Slots(), Slots()
    first.w, second.w = 2.0, 3.0
    compiled = graph.compile(of_both)
    for _ in range(3):
        np.testing.assert_array_equal(compiled(X, first, second), 6 * X)
    first.w = 5.0
    np.testing.assert_array_equal(compiled(X, first, second), 15 * X)


SCALE = 2.0


def times_scale(x: Any) -> Any:
    return x * SCALE


@dataclasses.dataclass
class Model:
    w: Any

    def __post_init__(self) -> None:
        self.power = 1

    def __call__(self, x: Any) -> Any:
        return times_scale(x * self.w) ** self.power


class Tuple(NamedTuple):
    w: Any

    def __call__(self, x: Any) -> Any:
        return times_scale(x * self.w)


class Layer:
    def __init__(self, w: Any, function: Any) -> None:
        self.w, self.function = w, function

    def __call__(self, x: Any) -> Any:
        return self.function(x * self.w)


optree.register_pytree_node(
    Layer,
    lambda layer: ((layer.w,), layer.function, ("w",)),
    lambda function, parts: Layer(*parts, function),
    namespace="dualbcast",
)


@pytest.mark.parametrize("make", [Model, Tuple, lambda w: Layer(w, times_scale)])
def test_what_methods_of_arguments_read_is_watched(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = graph.compile(lambda model, x: model(x))
    for _ in range(3):
        np.testing.assert_array_equal(compiled(make(np.ones(3)), X), 2 * X)
    monkeypatch.setattr(f"{__name__}.SCALE", 5.0)
    np.testing.assert_array_equal(compiled(make(np.ones(3)), X), 5 * X)


def test_attributes_of_arguments_that_are_no_fields_are_watched() -> None:
    compiled, model = graph.compile(lambda model, x: model(x)), Model(np.ones(3))
    for _ in range(3):
        np.testing.assert_array_equal(compiled(model, X), 2 * X)
    assert "replayed, 1 time" in compiled.explain()
    model.power = 2
    np.testing.assert_array_equal(compiled(model, X), (2 * X) ** 2)


@functools.wraps(np.sum)
def scaled_sum(x: Any) -> Any:
    return np.sum(x) * SCALE


def test_a_function_that_wraps_one_of_numpy_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = graph.compile(lambda x: scaled_sum(x))
    for _ in range(3):
        assert compiled(X) == 12.0
    monkeypatch.setattr(f"{__name__}.SCALE", 5.0)
    assert compiled(X) == 30.0


class Kind(enum.Enum):
    scaled = "times"


NAMES: Any = {"in a dict": {"name": "times"}, "a key": {"times": None}, "a member": Kind.scaled}


@pytest.mark.parametrize("where", ["an argument", "in a tuple", *NAMES])
def test_functions_that_getattr_finds_in_a_module_are_watched(where: str) -> None:
    functions: Any = types.ModuleType("functions")
    exec("scale = 2.0\ndef times(x): return x * scale", functions.__dict__)
    steps: Any = {
        "an argument": lambda x, name: getattr(functions, name)(x),
        "in a tuple": lambda x, _: [getattr(functions, each)(x) for each in ("times", "times")][1],
        "in a dict": lambda x, _: getattr(functions, NAMES["in a dict"]["name"])(x),
        "a key": lambda x, _: [getattr(functions, each)(x) for each in NAMES["a key"]][-1],
        "a member": lambda x, _: getattr(functions, NAMES["a member"].value)(x),
    }
    compiled = graph.compile(steps[where])
    for _ in range(3):
        np.testing.assert_array_equal(compiled(X, "times"), 2 * X)
    assert "replayed, 1 time" in compiled.explain()
    functions.scale = 5.0
    np.testing.assert_array_equal(compiled(X, "times"), 5 * X)


class Meta(type):
    scale = 2.0


class Made(metaclass=Meta):
    pass


class Other:
    scale = 5.0


def test_metaclasses_and_bases_are_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    class Child(Base):
        pass

    compiled = graph.compile(lambda x: x * Made.scale * Child.scale)
    for _ in range(3):
        np.testing.assert_array_equal(compiled(X), 4 * X)
    monkeypatch.setattr(Meta, "scale", 3.0)
    np.testing.assert_array_equal(compiled(X), 6 * X)
    Child.__bases__ = (Other,)
    np.testing.assert_array_equal(compiled(X), 15 * X)


class Abstract(abc.ABC):
    scale = 2.0

    @abc.abstractmethod
    def given(self) -> float: ...


class Concrete(Abstract):
    def given(self) -> float:
        return self.scale


MODEL, CONCRETE, KIND = Model(2.0), Concrete(), Kind.scaled
STEPS: Any = {
    "a dataclass": lambda x: MODEL(x),
    "of an abstract class": lambda x: x * CONCRETE.given(),
    "of an Enum": lambda x: x * 2 if KIND is Kind.scaled else x,
}


@pytest.mark.parametrize("what", STEPS)
def test_captured_objects_of_the_usual_kinds_are_replayed(what: str) -> None:
    compiled = graph.compile(STEPS[what])
    for _ in range(4):
        compiled(X)
    assert compiled.explain() == "1 form of arguments: replayed, 2 times"


@differentiable_broadcast
def product(x: float, y: float) -> float:
    return x * x * y


@differentiable_broadcast(signature="(n),()->()")
def first_times(x: Any, y: float) -> float:
    return x[0] * x[0] * y


@differentiable_broadcast
def residual(x: float, y: float) -> float:
    return y - x


POINTS = np.array([1.0, 2.0, 3.0])
RESULTS: Any = {
    "a Jacobian": (product.jacobian(X, 2.0), lambda blocks: blocks["x"]),
    "a Hessian": (product.hessian(X, 2.0), lambda blocks: blocks["x", "y"]),
    "a Jacobian of vectors": (first_times.jacobian(X[:, None], 2.0), lambda blocks: blocks["x"][:, 0]),
    "a pullback": (product.vjp(POINTS, 2.0)[1], lambda pullback: pullback(np.ones(3))[0]),
    "a fit": (fit.least_squares(residual, X[:, None], np.ones((3, 1)), wrt="y"), lambda found: found["y"][:, 0]),
}


@pytest.mark.parametrize("name", RESULTS)
def test_arrays_in_results_of_the_package_are_watched(name: str) -> None:
    result, part = RESULTS[name]
    compiled = graph.compile(lambda x: x * part(result))
    for _ in range(4):
        np.testing.assert_array_equal(compiled(X), X * part(result))
    assert "replayed, 2 times" in compiled.explain()
    (POINTS if name == "a pullback" else part(result))[0] = 50.0
    np.testing.assert_array_equal(compiled(X), X * part(result))


def test_what_does_not_change_is_still_replayed() -> None:
    member, layers = Sub(), {"a": 2.0}
    compiled = graph.compile(lambda x: scaled(x) * member.scale * layers["a"])
    scaled.scale = 2.0  # type: ignore[attr-defined]
    for _ in range(4):
        np.testing.assert_array_equal(compiled(X), 8 * X)
    assert "replayed, 2 times" in compiled.explain()
