"""Indexing and slicing, and their pullback, which adds up the cotangents of elements from the same place.

Comes in: a Variable or array with a key, as NumPy's brackets take it. Goes out: a Variable of its elements there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dualbcast.errors import ArgumentError
from dualbcast.graph.arrays import namespace
from dualbcast.graph.batched import level_of
from dualbcast.graph.primitives import constant, run
from dualbcast.graph.recording import fresh_constant, performed, read_by_python
from dualbcast.graph.shapes import axis_of, reshape
from dualbcast.graph.tape import STATE, Primitive, observe, unary
from dualbcast.graph.variable import OPERATIONS, Variable, method, registered
from dualbcast.program.scatter import add_rows


@registered
def getitem(x: Any, key: Any) -> Variable:
    """`x[key]` for all keys of NumPy: integers, slices, `None`, `...`, arrays of integers or bools, and mixtures.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> graph.grad(lambda v: np.sum(v[[0, 2, 0]]))(np.array([1.0, 2.0, 3.0]))
    array([2., 0., 1.])
    """
    x = constant(x)
    if STATE.batches and level_of(key if isinstance(key, tuple) else (key,)):
        return OPERATIONS["getitem_batched"](x, key)
    return run(GETITEM, (x,), key=_plain(key, x.namespace))


@method
def take(x: Any, indices: Any, axis: int | None = None) -> Variable:
    """The elements at these indices along an axis; without one, of the flattened array: `numpy.take`."""
    x = constant(x)
    if axis is None:
        x, axis = reshape(x, (-1,)), 0
    taken = np.asarray(indices) if isinstance(indices, bool | Sequence) else indices
    if getattr(taken, "dtype", None) == np.bool_:
        indices = taken.astype(np.intp)  # they are numbers here, and no mask
    return getitem(x, (*(slice(None),) * axis_of(axis, x.ndim, "take"), indices))


def take_along_axis(x: Any, indices: Any, axis: int | None = -1) -> Variable:
    """The elements along an axis at indices that may differ along the other axes: `numpy.take_along_axis`. Without an
    axis they are those of the flattened array."""
    x, indices = constant(x), constant(indices)
    if axis is None:
        x, axis = reshape(x, (-1,)), 0
    position = axis_of(axis, x.ndim, "take_along_axis")
    if indices.ndim != x.ndim:
        raise ArgumentError(f"take_along_axis: the indices have shape {indices.shape}, and the array {x.shape}")
    if STATE.batches and level_of((x, indices)):
        return OPERATIONS["take_along_axis_batched"](x, indices, position)
    whole = np.ogrid[tuple(map(slice, x.shape))]
    return getitem(x, (*whole[:position], indices.array, *whole[position + 1 :]))


def scatter(values: Any, key: Any, shape: tuple[int, ...]) -> Variable:
    """Zeros of a shape, with `values` added at `key`: the pullback of `x[key]`.

    Values for the same place are added up, in the same order on every run.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> graph.scatter(np.array([1.0, 2.0, 4.0]), [0, 2, 0], (3,))
    Variable([5., 0., 2.])
    """
    values = constant(values)
    return scatter_parts([values], [_plain(key, values.namespace)], tuple(shape))


def scatter_parts(parts: Sequence[Variable], keys: Sequence[Any], shape: tuple[int, ...]) -> Variable:
    """Zeros of a shape with each part added at its key. If there are many, no key may name an element twice."""
    return run(_SCATTER, tuple(parts), keys=keys, shape=shape)


def is_injective(key: Any) -> bool:
    """Whether a key can name no element twice: it has no arrays, or only one mask."""
    arrays = [part for part in (key if isinstance(key, tuple) else (key,)) if hasattr(part, "dtype")]
    return not arrays or (len(arrays) == 1 and arrays[0].dtype.kind == "b")


def _scatter(*values: Any, keys: Sequence[Any], shape: tuple[int, ...]) -> Any:
    dtype = values[0].dtype
    if not is_injective(keys[0]):
        return _scatter_repeated(values[0], keys[0], shape)
    # A sum of half precision is rounded once, as by a kernel, which does not warn of infinities either.
    wide = np.float32 if dtype.itemsize == 2 and len(keys) > 1 else dtype
    scattered = namespace(*values).zeros(shape, dtype=wide)
    scattered[keys[0]] = values[0]
    with np.errstate(over="ignore", invalid="ignore"):
        for value, key in zip(values[1:], keys[1:], strict=True):
            scattered[key] += value
        return scattered.astype(dtype, copy=False)


def _scatter_repeated(values: Any, key: Any, shape: tuple[int, ...]) -> Any:
    *before, last = key if isinstance(key, tuple) else (key,)
    if hasattr(last, "dtype") and all(isinstance(part, slice) and part == slice(None) for part in before):
        return _scatter_along(values, last, shape, len(before))
    # For any other key: the positions of its elements in the flattened array.
    size = math.prod(shape)
    places = namespace(values).arange(size).reshape(shape)[key]
    return add_rows(values.reshape(-1, 1), places.reshape(-1), size).reshape(shape)


def _scatter_along(values: Any, index: Any, shape: tuple[int, ...], axis: int) -> Any:
    """For `x[:, ..., index]`, which takes whole slices along an axis."""
    xp, length = namespace(values), shape[axis]
    after = axis + index.ndim
    places = index.reshape(-1).astype(np.intp, copy=False)  # a small dtype may not have the length
    places = xp.where(places < 0, places + length, places)
    order = (*range(axis, after), *range(axis), *range(after, values.ndim))
    rest = (*shape[:axis], *shape[axis + 1 :])
    rows = add_rows(values.transpose(order).reshape(places.size, math.prod(rest)), places, length)
    return xp.moveaxis(rows.reshape((length, *rest)), 0, axis)


GETITEM = unary(
    "indexing",
    lambda array, key: array[key],
    lambda node, cotangent: scatter_parts([cotangent], [node.static["key"]], node.inputs[0].shape),
    is_linear=True,
)
_SCATTER = Primitive(
    "scatter",
    _scatter,
    lambda node, cotangents, _wanted: [run(GETITEM, tuple(cotangents), key=key) for key in node.static["keys"]],
    linear_in="all",
)


def _plain(key: Any, xp: Any) -> Any:
    """A key of numbers, slices, and arrays of the library `xp`, which stay as they are now."""
    return tuple([_plain_part(part, xp) for part in key]) if isinstance(key, tuple) else _plain_part(key, xp)


def _plain_part(part: Any, xp: Any) -> Any:
    if isinstance(part, slice):
        # An array of no dimensions may change later; a Variable is read here.
        ends = part.start, part.stop, part.step
        return slice(*[end.item() if getattr(end, "ndim", None) == 0 else end for end in ends])
    if isinstance(part, Variable):
        if part.dtype.kind == "f":
            raise ArgumentError(f"an index is of integers or bools, not of {part.dtype}; write v.astype(int)")
        part = part.array
    if isinstance(part, Sequence):  # within a tuple NumPy takes a tuple for an array, too
        return xp.asarray(np.asarray(part, dtype=None if len(part) else np.intp))
    if isinstance(part, np.generic) or not hasattr(part, "ndim"):
        return part
    # The derivative needs a user's array later, so it is copied. A checkpoint will index with the array itself.
    if STATE.observer is not None:
        observe((constant(part),))
    if STATE.recorder is not None and STATE.recorder.slot_of(part) is not None and part.dtype.kind == "b":
        read_by_python("a mask as an index")
    return xp.asarray(performed(np.copy, fresh_constant(part))) if isinstance(part, np.ndarray) else part.copy()
