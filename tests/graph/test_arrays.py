"""Every operation of the graph: its value is NumPy's, its derivatives to second order are those of differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from operation_cases import TO_SECOND_ORDER, Case, Check, check_float32

from dualbcast import ArgumentError, graph

Array = Any


def logsumexp(x: Array, axis: Any = None, keepdims: bool = False) -> Array:
    return np.log(np.sum(np.exp(x), axis=axis, keepdims=keepdims))


def softmax(x: Array, axis: Any = -1) -> Array:
    return np.exp(x) / np.sum(np.exp(x), axis=axis, keepdims=True)


INDEX = np.array([2, 0, 2, 2, -1])
MASK = np.array([True, False, True])
GRID = np.array([[0, 3, 1], [1, 1, 2]])

# Where one expression serves for both, as NumPy's functions work on Variables.
SAME: list[tuple[str, Callable[..., Any], tuple[Any, ...]]] = [
    ("sum of all", lambda x: np.sum(x), ((2, 3),)),
    ("sum over an axis", lambda x: np.sum(x, axis=1), ((2, 3, 2),)),
    ("sum over axes", lambda x: np.sum(x, axis=(0, -1), keepdims=True), ((2, 3, 2),)),
    ("sum over no axes", lambda x: np.sum(x, axis=()), ((2, 3),)),
    ("sum of a number", lambda x: np.sum(x), ((),)),
    ("mean", lambda x: np.mean(x), ((2, 3),)),
    ("mean over an axis", lambda x: x.mean(axis=0, keepdims=True), ((4, 3),)),
    ("var", lambda x: np.var(x), ((2, 3),)),
    ("var over an axis", lambda x: np.var(x, axis=-1, ddof=1), ((2, 4),)),
    ("std", lambda x: np.std(x, axis=0, keepdims=True), ((5, 2),)),
    ("max", lambda x: np.max(x), ((2, 3),)),
    ("max over axes", lambda x: np.max(x, axis=(0, 2)), ((2, 3, 4),)),
    ("min over an axis", lambda x: x.min(axis=1, keepdims=True), ((2, 3),)),
    ("prod", lambda x: np.prod(x), ((5,),)),
    ("prod over axes", lambda x: np.prod(x, axis=(0, 2)), ((2, 3, 3),)),
    ("prod over an axis", lambda x: np.prod(x, axis=1, keepdims=True), ((2, 7),)),
    ("prod with a zero", lambda x: np.prod(x), ([2.0, 0.0, 3.0, -1.0],)),
    ("prod with two zeros", lambda x: np.prod(x, axis=0), ([[2.0, 1.0], [0.0, 0.0], [0.0, 3.0]],)),
    ("prod with three zeros", lambda x: np.prod(x), ([0.0, 0.0, 3.0, 0.0],)),
    ("cumsum", lambda x: np.cumsum(x, axis=1), ((2, 4),)),
    ("cumsum of all", lambda x: np.cumsum(x), ((2, 2),)),
    ("reshape", lambda x: np.reshape(x, (3, -1)), ((2, 6),)),
    ("ravel", lambda x: x.ravel(), ((2, 3),)),
    ("transpose", lambda x: x.T, ((2, 3),)),
    ("permutation", lambda x: np.transpose(x, (2, 0, 1)), ((2, 3, 4),)),
    ("transpose method", lambda x: x.transpose(1, 2, 0), ((2, 3, 4),)),
    ("swapaxes", lambda x: np.swapaxes(x, 0, -1), ((2, 3, 2),)),
    ("moveaxis", lambda x: np.moveaxis(x, (0, 1), (-1, 0)), ((2, 3, 4),)),
    ("expand_dims", lambda x: np.expand_dims(x, (0, 2)), ((2, 3),)),
    ("squeeze", lambda x: np.squeeze(x), ((1, 3, 1),)),
    ("squeeze an axis", lambda x: np.squeeze(x, axis=-1), ((1, 3, 1),)),
    ("broadcast_to", lambda x: np.broadcast_to(x, (2, 3, 2)), ((3, 1),)),
    ("flip", lambda x: np.flip(x, 1), ((2, 3),)),
    ("roll", lambda x: np.roll(x, 2, axis=0), ((5, 2),)),
    ("roll of all", lambda x: np.roll(x, -1), ((2, 2),)),
    ("repeat", lambda x: np.repeat(x, 3, axis=1), ((2, 2),)),
    ("tile", lambda x: np.tile(x, (2, 1, 2)), ((2, 3),)),
    ("concatenate", lambda x, y: np.concatenate([x, y, x], axis=1), ((2, 1), (2, 3))),
    ("concatenate all", lambda x, y: np.concatenate([x, y], axis=None), ((2, 1), (3,))),
    ("stack", lambda x, y: np.stack([x, y], axis=-1), ((2, 3), (2, 3))),
    ("vstack", lambda x, y: np.vstack([x, y]), ((3,), (2, 3))),
    ("hstack", lambda x, y: np.hstack([x, y]), ((3,), (2,))),
    ("split, a part unused", lambda x: np.split(x, 3, axis=1)[1], ((2, 6),)),
    ("split at positions", lambda x: np.split(x, [1, 3])[0] * np.sum(np.split(x, [1, 3])[2]), ((5,),)),
    ("split at positions that overlap", lambda x: np.split(x, [3, 1])[2], ((5,),)),
    ("unpacking", lambda x: (lambda a, b: a * b)(*x), ((2, 3),)),
    ("an integer", lambda x: x[1], ((3, 2),)),
    ("integers", lambda x: x[1, -1], ((3, 2),)),
    ("a slice", lambda x: x[1:3], ((4, 2),)),
    ("slices with steps", lambda x: x[::-2, 1::2], ((5, 4),)),
    ("an empty slice", lambda x: x[2:2], ((3,),)),
    ("ellipsis and a new axis", lambda x: x[..., None, 0], ((2, 3),)),
    ("an index array", lambda x: x[INDEX], ((3, 2),)),
    ("an index list", lambda x: x[[0, 0, 1]], ((3,),)),
    ("an index array of two dimensions", lambda x: x[GRID], ((4, 2),)),
    ("an index array behind a slice", lambda x: x[:, INDEX], ((2, 3, 2),)),
    ("an index array before a slice", lambda x: x[INDEX, 1:], ((3, 3),)),
    ("index arrays", lambda x: x[GRID, GRID[::-1]], ((4, 4),)),
    ("index arrays apart", lambda x: x[INDEX, :, INDEX], ((3, 2, 3),)),
    ("an index array and an integer", lambda x: x[INDEX, 1], ((3, 2),)),
    ("a mask", lambda x: x[MASK], ((3, 2),)),
    ("a mask of all axes", lambda x: x[GRID > 1], ((2, 3),)),
    ("a mask behind a slice", lambda x: x[1:, MASK], ((3, 3),)),
    ("a mask and an index", lambda x: x[MASK, INDEX[:2]], ((3, 3),)),
    ("no index", lambda x: x[()], ((2,),)),
    ("take", lambda x: np.take(x, INDEX, axis=1), ((2, 3),)),
    ("take of all", lambda x: np.take(x, GRID), ((2, 3),)),
    ("take_along_axis", lambda x: np.take_along_axis(x, GRID[:, :2] % 2, axis=0), ((2, 2),)),
    ("where", lambda x, y: np.where(GRID > 1, x, y), ((2, 3), (3,))),
    ("where with a number", lambda x: np.where(x > 0, x, 2.0), ((2, 3),)),
    ("clip", lambda x: np.clip(x, -0.5, 0.7), ((2, 5),)),
    ("maximum", lambda x, y: np.maximum(x, y), ((2, 3), (3,))),
    ("astype", lambda x: x.astype("float64"), ((3,),)),
    ("matmul", lambda a, b: a @ b, ((2, 3), (3, 4))),
    ("matmul of vectors", lambda a, b: a @ b, ((3,), (3,))),
    ("matmul with a vector before", lambda a, b: np.matmul(a, b), ((3,), (3, 4))),
    ("matmul with a vector behind", lambda a, b: a @ b, ((2, 3), (3,))),
    ("matmul of batches", lambda a, b: a @ b, ((2, 2, 3), (2, 3, 2))),
    ("matmul with broadcast batches", lambda a, b: a @ b, ((3, 1, 2, 3), (2, 3, 1))),
    ("matmul of a batch with a vector", lambda a, b: a @ b, ((2, 2, 3), (3,))),
    ("matmul of a vector with a batch", lambda a, b: a @ b, ((3,), (2, 3, 2))),
    ("matmul of an array with itself", lambda a: a @ a.T, ((2, 3),)),
    ("dot", lambda a, b: np.dot(a, b), ((2, 3), (3, 2))),
    ("dot of more dimensions", lambda a, b: np.dot(a, b), ((2, 3), (2, 3, 2))),
    ("inner", lambda a, b: np.inner(a, b), ((2, 3), (2, 3))),
    ("outer", lambda a, b: np.outer(a, b), ((2,), (3,))),
    ("tensordot", lambda a, b: np.tensordot(a, b, ((0, 2), (1, 0))), ((2, 3, 4), (4, 2, 2))),
    ("tensordot by number", lambda a, b: np.tensordot(a, b, 1), ((2, 3), (3, 2, 2))),
    ("trace", lambda a: np.trace(a), ((3, 3),)),
    ("trace below", lambda a: np.trace(a, -1) * np.trace(a, offset=2), ((3, 4),)),
    ("diagonal above", lambda a: np.diagonal(a, 1, 2, 0), ((2, 3, 4),)),
    ("diagonal far above", lambda a: np.sum(np.diagonal(a, 3)) + np.sum(a), ((2, 3),)),
    ("methods", lambda a: a.diagonal(-1) * a.trace() + a.repeat(2, axis=1)[1:, :1], ((3, 3),)),
    ("diagonal", lambda a: np.diagonal(a, axis1=1, axis2=2), ((2, 3, 2),)),
    ("einsum of matrices", lambda a, b: np.einsum("ij,jk", a, b), ((2, 3), (3, 2))),
    ("einsum to a sum", lambda a, b: np.einsum("ij,ij->", a, b), ((2, 3), (2, 3))),
    ("einsum of a transpose", lambda a: np.einsum("ijk->kij", a), ((2, 3, 2),)),
    ("einsum of a trace", lambda a: np.einsum("ii", a), ((3, 3),)),
    ("einsum of a diagonal", lambda a: np.einsum("ii->i", a), ((3, 3),)),
    ("einsum with a name thrice", lambda a: np.einsum("iji,i->j", a, np.arange(2.0)), ((2, 3, 2),)),
    ("einsum with an axis alone", lambda a, b: np.einsum("ij,k->i", a, b), ((2, 3), (4,))),
    ("einsum with an ellipsis", lambda a, b: np.einsum("...ij,...jk->...ik", a, b), ((2, 2, 3), (3, 2))),
    ("einsum with an ellipsis that broadcasts", lambda a, b: np.einsum("...i,...i", a, b), ((2, 1, 3), (4, 3))),
    ("einsum with an axis that broadcasts", lambda a, b: np.einsum("ij,ij->ij", a, b), ((2, 1), (2, 3))),
    ("einsum with an axis that broadcasts and goes", lambda a, b: np.einsum("ij,kj->ik", a, b), ((2, 3), (2, 1))),
    ("einsum of three with one that broadcasts", lambda a, b, c: np.einsum("i,ij,j->", a, b, c), ((2,), (1, 3), (1,))),
    ("einsum of three", lambda a, b, c: np.einsum("i,ij,j->", a, b, c), ((2,), (2, 3), (3,))),
    ("einsum of an outer product", lambda a, b: np.einsum("i,j->ji", a, b), ((2,), (3,))),
    ("einsum of one twice", lambda a: np.einsum("ij,kj->ik", a, a), ((2, 3),)),
]

CASES = [Case(name, function, function, shapes) for name, function, shapes in SAME] + [
    Case("logsumexp", graph.logsumexp, logsumexp, ((2, 3),)),
    Case("logsumexp over an axis", lambda x: graph.logsumexp(x, axis=0, keepdims=True),
         lambda x: logsumexp(x, 0, True), ((3, 2),)),
    Case("softmax", graph.softmax, softmax, ((2, 3),)),
    Case("softmax over axes", lambda x: graph.softmax(x, axis=(0, 1)), lambda x: softmax(x, (0, 1)), ((2, 3, 2),)),
    Case("log_softmax", graph.log_softmax, lambda x: np.log(softmax(x)), ((2, 3),)),
    Case("split", lambda x: graph.split(x, 2)[0] * graph.split(x, 2)[1], lambda x: x[:2] * x[2:], ((4, 2),)),
    Case("unstack", lambda x: graph.unstack(x, axis=1)[2], lambda x: x[:, 2], ((2, 3),)),
    Case("scatter", lambda x: graph.scatter(x, GRID, (5, 2)), lambda x: _scattered(x), ((2, 3, 2),)),
    Case("vecdot", graph.vecdot, lambda a, b: (a * b).sum(-1), ((2, 3), (3,))),
    Case("matrix_transpose", lambda x: x.mT, lambda x: np.swapaxes(x, -1, -2), ((2, 3, 4),)),
    Case("broadcast_arrays", lambda x, y: graph.broadcast_arrays(x, y)[0], lambda x, y: x + 0 * y, ((3,), (2, 1))),
    Case("mean of the standard", lambda x: graph.mean(x, axis=-1), lambda x: np.mean(x, -1), ((2, 3),)),
    Case("var with a correction", lambda x: graph.var(x, axis=0, correction=2), lambda x: np.var(x, 0, ddof=2),
         ((4, 2),)),
]  # fmt: skip


def _scattered(x: Array) -> Array:
    made = np.zeros((5, 2))
    for place in np.ndindex(GRID.shape):
        made[GRID[place]] += x[place]
    return made


EACH = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@EACH
@TO_SECOND_ORDER
def test_operation(case: Case, check: Check) -> None:
    check(case)


@EACH
def test_float32_stays_float32(case: Case) -> None:
    if case.name == "astype" or "thrice" in case.name:
        pytest.skip("takes part in float64")
    check_float32(case)


@pytest.mark.parametrize(("function", "sign"), [(graph.max, 1.0), (graph.min, -1.0)])
def test_equal_extremes_share_the_cotangent(function: Any, sign: float) -> None:
    x = sign * np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])
    gradient = graph.grad(lambda v: graph.sum(function(v, axis=1) * np.array([1.0, 6.0])))(x)
    np.testing.assert_allclose(gradient, [[0.0, 0.5, 0.5], [2.0, 2.0, 2.0]], rtol=1e-15)


WEIGHTS_OF_9 = np.arange(1.0, 10.0)


@pytest.mark.parametrize(
    ("shift", "axis"), [((1, 0), (0, 1)), ([1, 2], [0, 1]), (1, (0, 1)), (np.array(2), None), (-1, 1)]
)
def test_roll_along_several_axes(shift, axis):
    x = np.arange(9.0).reshape(3, 3)
    np.testing.assert_array_equal(np.roll(graph.Variable(x), shift, axis).value, np.roll(x, shift, axis))
    slopes = graph.grad(lambda v: np.sum(np.roll(v, shift, axis).reshape(-1) * WEIGHTS_OF_9))(x)
    back = tuple(-np.asarray(shift)) if np.ndim(shift) else -np.asarray(shift)
    np.testing.assert_array_equal(slopes, np.roll(WEIGHTS_OF_9.reshape(3, 3), back, axis))


@pytest.mark.parametrize("repeats", [[2, 0, 1], np.array([1, 1, 3]), 2])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_repeat_by_a_number_for_each_element(repeats, axis):
    x = np.arange(9.0).reshape(3, 3)
    found = np.repeat(graph.Variable(x), repeats, axis)
    np.testing.assert_array_equal(found.value, np.repeat(x, repeats, axis))
    weights = np.arange(1.0, 1.0 + found.value.size).reshape(found.shape)
    slopes = graph.grad(lambda v: np.sum(np.repeat(v, repeats, axis) * weights))(x)
    places = np.repeat(np.arange(9).reshape(3, 3), repeats, axis)
    np.testing.assert_array_equal(slopes.ravel(), np.bincount(places.ravel(), weights.ravel(), 9))


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_indices_of_a_dtype_that_does_not_have_the_length(dtype):
    x, at = np.ones((300, 2)), np.array([3, 120, 3], dtype)
    for function in (lambda v: v[at], lambda v: np.take(v, at, axis=0), lambda v: v.T[:, at]):
        slopes = graph.grad(lambda v, function=function: np.sum(function(v) ** 2))(x)
        wanted = np.zeros((300, 2))
        np.add.at(wanted, at.astype(int), 2.0)
        np.testing.assert_array_equal(slopes, wanted)


def test_the_angle_of_real_numbers():
    x = np.array([1.0, -2.0])
    np.testing.assert_array_equal(np.angle(graph.Variable(x)).value, np.angle(x))
    np.testing.assert_array_equal(graph.grad(lambda v: np.sum(np.angle(v) * v))(x), np.angle(x))


@pytest.mark.parametrize("wrt", [(0, 0), (0, "a"), (1, -1)])
def test_an_argument_that_wrt_names_twice(wrt):
    with pytest.raises(ArgumentError, match="names an argument twice"):
        graph.grad(lambda a, b: a * b, wrt)(2.0, 3.0)
