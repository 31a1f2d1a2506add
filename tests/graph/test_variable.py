"""A Variable as a Python object: its attributes, conversions, equality, iteration, copies, errors."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import numpy as np
import pytest

from dualbcast import ArgumentError, DTypeError, ShapeError, graph

X = np.array([[0.5, -1.5, 2.0], [1.0, 0.25, -0.75]])


def test_attributes() -> None:
    v = graph.Variable(X)
    np.testing.assert_array_equal(v.value, X)
    assert not np.shares_memory(v.value, X)
    assert (v.shape, v.ndim, v.size, v.dtype, len(v)) == ((2, 3), 2, 6, np.float64, 2)
    assert v.tracked
    assert v.node is None
    assert v.T.shape == v.mT.shape == (3, 2)
    assert graph.Variable(3.0).shape == ()
    assert graph.Variable([1, 2]).dtype == np.int64
    assert graph.Variable(v).value is v.value
    large = np.zeros(5000)
    assert graph.Variable(large).value is large
    assert not graph.Variable(X, tracked=False).tracked
    assert not graph.Variable(X > 0).tracked
    assert not (graph.Variable(X, tracked=False) * 2).tracked


def test_text() -> None:
    assert repr(graph.Variable([1.0, 2.5])) == "Variable([1. , 2.5])"
    assert repr(graph.Variable(np.float32(2))) == "Variable(2., dtype=float32)"
    assert repr(graph.Variable([1, 2])) == "Variable([1, 2])"
    assert f"{graph.Variable(1.2345):.2f}" == "1.23"
    assert f"{graph.Variable(1.5)}" == "Variable(1.5)"


def test_conversions_of_one_number() -> None:
    assert int(graph.Variable([[2.7]])) == 2
    assert bool(graph.Variable(0.0)) is False
    assert bool(graph.Variable(2.0) > 1) is True
    assert graph.Variable([[2.5]]).item() == 2.5
    assert float(graph.Variable(2.5, tracked=False)) == 2.5
    assert float(graph.Variable(3)) == 3.0
    assert ["a", "b"][graph.Variable(1)] == "b"
    for convert in (float, math.exp, np.float64):
        with pytest.raises(ArgumentError, match="lose its derivative"):
            convert(graph.Variable(2.5))
    with pytest.raises(ArgumentError, match="truth of a Variable of shape"):
        bool(graph.Variable(X))
    with pytest.raises(ArgumentError, match="is not one number"):
        int(graph.Variable(X))


def test_divmod_and_powers_modulo() -> None:
    for mine, plain in (
        (divmod(graph.Variable(X), 0.7), divmod(X, 0.7)),
        (divmod(2.5, graph.Variable(X)), divmod(2.5, X)),
    ):
        for ours, theirs in zip(mine, plain, strict=True):
            np.testing.assert_array_equal(ours.value, theirs)
    slopes = graph.grad(lambda v: divmod(v, 0.7)[1].sum())(X)
    np.testing.assert_array_equal(slopes, np.ones(X.shape))
    with pytest.raises(TypeError, match=r"unsupported operand type\(s\) for \*\* or pow\(\)"):
        pow(graph.Variable(X), 2, 3)


def test_equality_is_of_elements_and_hash_of_the_object() -> None:
    v, w = graph.Variable(X[0]), graph.Variable(X[0])
    assert (v == w).value.tolist() == [True, True, True]
    assert (v != X[1]).value.tolist() == [True, True, True]
    assert hash(v) != hash(w)
    assert {v: 1, w: 2}[v] == 1
    assert (v == None) is False  # noqa: E711
    assert (v != "text") is True


def test_unpacking_and_iteration() -> None:
    first, second = graph.Variable(X)
    assert [each.item() for each in first] == X[0].tolist()
    np.testing.assert_array_equal(second.value, X[1])
    assert [each.item() for each in reversed(graph.Variable(X[0]))] == X[0, ::-1].tolist()
    assert 2.0 in list(X[0])
    for use in (len, list):
        with pytest.raises(ArgumentError, match="no dimensions"):
            use(graph.Variable(1.0))


def test_a_variable_does_not_change() -> None:
    v = graph.Variable(X)
    with pytest.raises(ArgumentError, match=r"np\.where"):
        v[0] = 1.0
    w = v
    w += 1
    np.testing.assert_array_equal(v.value, X)
    np.testing.assert_array_equal(w.value, X + 1)


def test_copies() -> None:
    v = graph.Variable(X)
    assert copy.copy(v) is v
    other = copy.deepcopy(v)
    assert other.value is not X
    np.testing.assert_array_equal(other.value, X)
    assert other.tracked
    loaded = pickle.loads(pickle.dumps(v))
    np.testing.assert_array_equal(loaded.value, X)
    with pytest.raises(ArgumentError, match=r"pickle its \.value"):
        pickle.dumps(v * 2)


def test_arrays_that_mean_more_than_their_data() -> None:
    with pytest.raises(ArgumentError, match="MaskedArray"):
        graph.Variable(np.ma.masked_array(X, X > 0))


@pytest.mark.parametrize("value", [np.array(["a"]), np.array([None]), np.datetime64("2020-01-01")])
def test_only_numbers(value: Any) -> None:
    with pytest.raises(DTypeError, match="a Variable holds numbers"):
        graph.Variable(value)


def test_errors_name_the_operation_and_the_shapes() -> None:
    v = graph.Variable(X)
    for call, match in [
        (lambda: v + np.ones(2), r"add: .*\(2, 3\).*\(2,\)"),
        (lambda: v @ np.ones(2), r"matmul of shapes \(2, 3\) and \(2,\)"),
        (lambda: v.reshape(4, 2), r"reshape of float64\[2, 3\]"),
        (lambda: np.concatenate([v, np.ones((1, 2))]), r"concat of float64\[2, 3\], float64\[1, 2\]"),
        (lambda: np.stack([v, np.ones((1, 2))]), r"stack: the shapes differ: \(2, 3\), \(1, 2\)"),
        (lambda: np.sum(v, axis=2), "sum: there is no axis 2 in an array of 2 dimensions"),
        (lambda: np.sum(v, axis=(0, 0)), "names an axis twice"),
        (lambda: np.broadcast_to(v, (3, 3)), r"broadcast_to of float64\[2, 3\]"),
        (lambda: np.squeeze(v, 0), r"squeeze: axis=0 of an array of shape \(2, 3\)"),
        (lambda: np.split(v, 2, axis=1), "cannot be cut into 2 equal parts"),
        (lambda: np.einsum("ij,jk", v, v), r"einsum 'ij,jk' of shapes \(2, 3\), \(2, 3\): j is"),
        (lambda: v[0, 0, 0], r"indexing of float64\[2, 3\]: too many indices"),
        (lambda: np.max(graph.Variable(np.ones(0))), r"max of float64\[0\]"),
        (lambda: graph.logsumexp(np.ones((2, 0)), axis=1), "over no elements"),
    ]:
        with pytest.raises(ShapeError, match=match):
            call()
    with pytest.raises(IndexError, match="out of bounds"):
        v[5]
    with pytest.raises(ArgumentError, match="an index is of integers"):
        v[graph.Variable(1.0)]


def test_only_public_names_are_listed() -> None:
    assert dir(graph) == sorted(graph.__all__)
    for module in (graph.linalg, graph.fft):
        assert dir(module) == sorted(module.__all__)
    for name in {*graph.__all__} - {"fft", "linalg"}:
        assert getattr(graph, name).__module__.startswith("dualbcast.graph")
        assert getattr(graph, name).__doc__
