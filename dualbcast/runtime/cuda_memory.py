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
from dualbcast.runtime.operands import Array, DType

__all__ = ["allocate", "are_on_device", "beside"]

# What CuPy's pool rounds to, and more than any access needs.
_ALIGNMENT = 512


def allocate(shape: Sequence[int], dtypes: Sequence[DType]) -> tuple[Array, ...]:
    """Uninitialised contiguous CuPy arrays of one shape, in one block of CuPy's current pool.

    One of them that is kept keeps the block.

    Raises
    ------
    MemoryError
        CuPy's, which says how much is taken; a note says what the call needs and what may help.
    """
    if not dtypes:
        return ()
    cupy = sys.modules["cupy"]
    offsets, size = _offsets(math.prod(shape), tuple(dtypes))
    try:
        memory = cupy.cuda.alloc(size)
    except MemoryError as error:
        error.add_note(
            f"The outputs of the call take {size:,} bytes on the GPU. What CuPy keeps of arrays that are gone is given "
            "back by cupy.get_default_memory_pool().free_all_blocks(); wrt= asks for fewer partial derivatives."
        )
        raise
    return tuple([cupy.ndarray(shape, dtype, memory + at) for dtype, at in zip(dtypes, offsets, strict=True)])


@lru_cache
def _offsets(count: int, dtypes: tuple[DType, ...]) -> tuple[list[int], int]:
    """Where each array begins in the block, and the block's size."""
    sizes = [-(-count * dtype.itemsize // _ALIGNMENT) * _ALIGNMENT for dtype in dtypes]
    return [0, *itertools.accumulate(sizes[:-1])], sum(sizes)


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
