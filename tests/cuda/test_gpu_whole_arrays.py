"""Whole arrays on a GPU, held against the CPU backend on the same numbers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from corpus_whole import WHOLE, WholeCase
from oracles import numbers_of

from dualbcast import ArgumentError, BoundsError, differentiable_broadcast, graph
from dualbcast.tables import index

pytestmark = pytest.mark.gpu


@pytest.fixture
def xp() -> Any:
    return pytest.importorskip("cupy")


@pytest.mark.parametrize("case", WHOLE, ids=lambda case: case.name)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_corpus(xp: Any, case: WholeCase, dtype: str) -> None:
    function = differentiable_broadcast(whole=case.whole)(case.function)
    numbers, arrays = case.numbers(500, dtype), case.tables(dtype)
    expected, blocks = function.value_and_jacobian(*numbers, **arrays)
    on_device = [xp.asarray(x) for x in numbers], {name: xp.asarray(x) for name, x in arrays.items()}
    value, jacobian = function.value_and_jacobian(*on_device[0], **on_device[1])
    pairs = [*zip(numbers_of(value), numbers_of(expected), strict=True)]
    pairs += [(jacobian[at, name], blocks[at, name]) for at in range(blocks.outputs) for name in blocks.wrt]
    eps = 64 * np.finfo(dtype).eps
    for got, wanted in pairs:
        assert isinstance(got, xp.ndarray)
        np.testing.assert_allclose(got.get(), wanted, rtol=eps, atol=eps)


def test_cotangents_and_gradients(xp: Any) -> None:
    case = next(case for case in WHOLE if case.name == "interpolated")
    function = differentiable_broadcast(whole=case.whole)(case.function)
    (x,), arrays = case.numbers(500), case.tables()
    bar = np.cos(np.arange(500.0))
    _, expected = function.value_and_vjp((x, *arrays.values()), bar, wrt=("fp", "x"))
    given = [xp.asarray(each) for each in (x, *arrays.values())]
    _, found = function.value_and_vjp(tuple(given), xp.asarray(bar), wrt=("fp", "x"))
    for got, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(got.get(), wanted, rtol=1e-12, atol=1e-12)
    gradient = graph.grad(lambda fp: np.sum(function(given[0], given[1], fp) * xp.asarray(bar)))(given[2])
    np.testing.assert_allclose(gradient.get(), expected[0], rtol=1e-12, atol=1e-12)


def test_bounds_and_places(xp: Any) -> None:
    function = differentiable_broadcast(whole="t")(lambda x, t: t[int(x)] + index(0))
    x = np.array([0.0, 1.0, 7.0])
    t = xp.arange(5.0)
    with pytest.raises(BoundsError, match=r"index \(2,\)"):
        function(xp.asarray(x), t)
    np.testing.assert_array_equal(function(xp.asarray(x[:2]), t).get(), [0.0, 2.0])


def test_places_are_there_for_every_stream(xp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are kept, and a call on another stream does not wait for the one that counted them."""
    waits: list[Any] = []
    stream = SimpleNamespace(synchronize=lambda: waits.append(None))
    monkeypatch.setattr(xp.cuda, "get_current_stream", lambda *_: stream)
    function = differentiable_broadcast(lambda x: x + index(0))
    for _ in range(2):
        np.testing.assert_array_equal(function(xp.zeros(6007)).get(), np.arange(6007.0))
    assert len(waits) == 1


def test_a_cotangent_of_another_library_is_named(xp: Any) -> None:
    function = differentiable_broadcast(lambda x, table: table[0] * x, whole="table")
    with pytest.raises(ArgumentError, match="a cotangent is a NumPy array and x is a CuPy array"):
        function.value_and_vjp((xp.ones(3), xp.ones(2)), np.ones(3), wrt="table")
