"""Arguments that are whole arrays, and the places of elements: the values that a kernel gets for them come out.

For a whole array these are its first element, as an array without axes in whose memory the others follow, and the
length of each axis; for an axis of the result an array that counts along it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from dualbcast.adapters import adapter_for
from dualbcast.errors import ArgumentError, ShapeError
from dualbcast.foreign_objects import as_plain, called, instead, is_variable
from dualbcast.frontend.values import Axes
from dualbcast.program.outputs import library_of
from dualbcast.runtime.arguments import assign, is_aligned, is_array


def axes_of(value: Any, name: str) -> Axes:
    """The axes of a whole array; an ArgumentError for anything else."""
    value = as_plain(value, name)
    if not (is_variable(value) or is_array(value, "numpy") or is_array(value, "cupy")):
        hint = "Pass an array of numbers" if isinstance(value, int | float | complex) else instead(value, name)
        raise ArgumentError(f"{name} is whole, and {called(value)} is no array. {hint}")
    if not value.ndim:
        raise ArgumentError(f"{name} is whole, and an array without axes has nothing to index")
    if value.dtype.kind == "c":
        raise ArgumentError(f"{name} is whole and complex; give its parts as two whole arrays, {name}.real and .imag")
    return Axes(int(value.ndim), 0 in value.shape)


def without_block(name: str) -> ArgumentError:
    """The error for a derivative in a whole array that is no cotangent."""
    return ArgumentError(
        f"wrt: {name} is whole, so derivatives in it are cotangents; take them by vjp or value_and_vjp. For a "
        f"Jacobian in a few elements of it leave {name} out of whole=, and give signature= with its length"
    )


def spread(value: Any, name: str) -> tuple[Any, ...]:
    """The first element of an array, and its lengths. An array that is not contiguous in C order is copied.

    A Variable stays itself; the graph makes more of it.
    """
    array = as_plain(value, name)
    if is_variable(array):
        return array, *array.shape
    xp = library_of(array)
    if not (array.flags.c_contiguous and array.dtype.isnative and is_aligned(array)):
        copy = xp.empty(array.shape, array.dtype.newbyteorder("="))
        assign(copy, array)
        array = copy
    if not array.size:
        return xp.zeros((), array.dtype), *array.shape
    return array[(*(0,) * array.ndim, ...)], *array.shape


def flat(values: tuple[Any, ...], place: int, axes: int) -> Any:
    """All elements of the whole array at a place among the values that a kernel gets."""
    first = values[place]
    size = prod(values[place + 1 : place + 1 + axes])
    return library_of(first).lib.stride_tricks.as_strided(first, (size,), (first.dtype.itemsize,))


def apart(values: tuple[Any, ...], whole: Sequence[tuple[int, int]], out: Sequence[Any]) -> tuple[Any, ...]:
    """The values with copies of the whole arrays that arrays of `out=` overlap; `whole` has places and numbers of axes.

    Elements are read while others are written.
    """
    new = list(values)
    for place, axes in whole:
        array = flat(values, place, axes)
        xp = library_of(array)
        if any(y is not None and xp.may_share_memory(array, y) for y in out):
            new[place] = array.copy()[0, ...]
    return tuple(new)


def places_along(axes: Sequence[int], values: Sequence[Any]) -> tuple[Any, ...]:
    """For each axis of the shape that the values broadcast to, an array that counts along it and broadcasts."""
    if not axes:
        return ()
    adapter = next(filter(None, map(adapter_for, values)), None)
    forms = [getattr(value, "shape", ()) for value in values]
    shape = np.broadcast_shapes(*forms) if adapter is None else adapter.shape(tuple(values))
    cupy = sys.modules.get("cupy")
    device = None
    if cupy is not None and any(isinstance(value, cupy.ndarray) for value in values):
        device = cupy.cuda.runtime.getDevice()
    counted = []
    for axis in axes:
        if not -len(shape) <= axis < len(shape):
            raise ArgumentError(f"index({axis}) names no axis of the result, whose shape is {shape}")
        if not isinstance(shape[axis], int | np.integer):
            raise ShapeError(f"index({axis}) counts along an axis whose length is not known yet; compute it first")
        counted.append(_counted(shape[axis], len(shape) - axis % len(shape) - 1, device))
    return tuple(counted)


@lru_cache(maxsize=64)
def _counted(length: int, trailing: int, device: int | None) -> Any:
    """The numbers below a length, before so many axes; on a device of CuPy's if one is given."""
    xp = np if device is None else sys.modules["cupy"]
    array = xp.arange(length, dtype=np.int64)
    if xp is np:
        array.flags.writeable = False
    else:
        # Later calls may be on other streams, which do not wait for this one.
        xp.cuda.get_current_stream().synchronize()
    return array.reshape((length,) + (1,) * trailing)
