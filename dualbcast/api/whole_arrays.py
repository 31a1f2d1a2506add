"""Arguments that are whole arrays: the values that a kernel gets in the place of one come out.

These are its first element, as an array without axes in whose memory the others follow, and the length of each axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from dualbcast.errors import ArgumentError
from dualbcast.foreign_objects import as_plain, called, instead, is_variable
from dualbcast.program.outputs import library_of
from dualbcast.runtime.arguments import is_array


def axes_of(value: Any, name: str) -> int:
    """How many axes a whole array has; an ArgumentError for anything else."""
    value = as_plain(value, name)
    if not (is_array(value, "numpy") or is_array(value, "cupy")):
        if is_variable(value):
            raise ArgumentError(f"{name} is whole, and a Variable cannot be: pass {name}.value, as a constant")
        raise ArgumentError(f"{name} is whole, and {called(value)} is no array. {instead(value, name)}")
    if not value.ndim:
        raise ArgumentError(f"{name} is whole, and an array without axes has nothing to index")
    return int(value.ndim)


def spread(value: Any, name: str) -> tuple[Any, ...]:
    """The first element of an array, and its lengths. An array that is not contiguous in C order is copied."""
    array = as_plain(value, name)
    xp = library_of(array)
    if not (array.flags.c_contiguous and array.dtype.isnative and (xp is not np or array.flags.aligned)):
        array = xp.ascontiguousarray(array, array.dtype.newbyteorder("="))
    if not array.size:
        return xp.zeros((), array.dtype), *array.shape
    return array[(*(0,) * array.ndim, ...)], *array.shape


def apart(values: tuple[Any, ...], whole: Sequence[tuple[int, int]], out: Sequence[Any]) -> tuple[Any, ...]:
    """The values with copies of the whole arrays that arrays of `out=` overlap; `whole` has places and numbers of axes.

    Elements are read while others are written.
    """
    new = list(values)
    for place, axes in whole:
        first = values[place]
        xp, size = library_of(first), prod(values[place + 1 : place + 1 + axes])
        array = xp.lib.stride_tricks.as_strided(first, (size,), (first.dtype.itemsize,))
        if any(y is not None and xp.may_share_memory(array, y) for y in out):
            new[place] = array.copy()[0, ...]
    return tuple(new)
