"""Compiled steps in which errors are caught, and whose captures change in ways that are seldom: no result is stale."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest

import dualbcast.errors
from dualbcast import differentiable_broadcast, graph

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


def test_what_does_not_change_is_still_replayed() -> None:
    member, layers = Sub(), {"a": 2.0}
    compiled = graph.compile(lambda x: scaled(x) * member.scale * layers["a"])
    scaled.scale = 2.0  # type: ignore[attr-defined]
    for _ in range(4):
        np.testing.assert_array_equal(compiled(X), 8 * X)
    assert "replayed, 2 times" in compiled.explain()
