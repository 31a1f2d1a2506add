"""Memory of CUDA devices: the outputs of a call in one allocation, and calls on the device that has the arrays."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any

from dualbcast.errors import ArgumentError
from dualbcast.record import NamedTuple
from dualbcast.runtime.operands import Array, DType

__all__ = ["Together", "allocate", "are_on_device", "beside", "together"]

# What CuPy's pool rounds to, and more than any access needs.
_ALIGNMENT = 512


class Together(NamedTuple):
    """Arrays of one shape in one block of memory, whose size this is: for each its type and where it begins."""

    shape: tuple[int, ...]
    size: int
    places: tuple[tuple[type, int], ...]


@lru_cache
def together(shape: tuple[int, ...], dtypes: tuple[DType, ...]) -> Together:
    """How arrays of a shape share a block."""
    sizes = [-(-math.prod(shape) * dtype.itemsize // _ALIGNMENT) * _ALIGNMENT for dtype in dtypes]
    # CuPy makes an array of a type in less time than of a dtype.
    kinds = [dtype.type for dtype in dtypes]
    return Together(shape, sum(sizes), tuple(zip(kinds, itertools.accumulate([0, *sizes]), strict=False)))


def allocate(wanted: Together) -> tuple[Array, ...]:
    """Uninitialised contiguous CuPy arrays, in one block of CuPy's current pool.

    One of them that is kept keeps the block.

    Raises
    ------
    MemoryError
        CuPy's, which says how much is taken; a note says what the call needs and what may help.
    """
    if not wanted.places:
        return ()
    cupy = sys.modules["cupy"]
    try:
        memory = cupy.cuda.alloc(wanted.size)
    except MemoryError as error:
        error.add_note(
            f"The outputs of the call take {wanted.size:,} bytes on the GPU. What CuPy keeps of arrays that are gone "
            "is given back by cupy.get_default_memory_pool().free_all_blocks(); wrt= asks for fewer partial "
            "derivatives."
        )
        raise
    make, shape = cupy.ndarray, wanted.shape
    return tuple([make(shape, kind, memory + at if at else memory) for kind, at in wanted.places])


def are_on_device(values: Sequence[object]) -> bool:
    """Whether all are CuPy's arrays."""
    cupy = sys.modules.get("cupy")
    return cupy is not None and all(isinstance(value, cupy.ndarray) for value in values)


def beside(values: Sequence[object]) -> AbstractContextManager[Any]:
    """A context in which the current device is the one that has the arrays among `values`; none needed for NumPy's.

    Raises
    ------
    ArgumentError
        If two devices have arrays of the call.
    """
    cupy = sys.modules.get("cupy")
    if cupy is None:
        return nullcontext()
    devices = {value.data.device_id for value in values if isinstance(value, cupy.ndarray)}
    if len(devices) > 1:
        listed = " and ".join(map(str, sorted(devices)))
        raise ArgumentError(f"The arrays of one call are on GPUs {listed}; copy them to one of these.")
    if not devices or devices == {cupy.cuda.runtime.getDevice()}:
        return nullcontext()
    context: AbstractContextManager[Any] = cupy.cuda.Device(*devices)
    return context
