"""How new arrays with core dimensions lie in memory: as the arguments of a call do.

Comes in: the arguments of a call, one for each element of a core. Go out: uninitialised arrays, whose parts kernels
write to.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from dualbcast.program.outputs import Shape
from dualbcast.runtime.arguments import DType
from dualbcast.runtime.buffer_pool import POOL
from dualbcast.runtime.launch_plan import Plan

# Columns of so many bytes and more begin at cache lines, and two are apart by five lines more than a multiple of eight:
# see docs/decisions/129-elements-of-cores.md.
_PADDED_BYTES, _LINE, _ODD_LINES = 1 << 11, 64, 5


class CoreMemory:
    """New arrays for calls like that which is `planned` for the elements `values`, whose names are `names`.

    All have the result's `shape` before the core.
    """

    def __init__(self, planned: Plan, names: Sequence[str], values: Sequence[Any]) -> None:
        self.shape: Shape = planned.geometry.shape
        self._lengths, axes = planned.geometry.memory
        self._axes = tuple(range(len(self._lengths))) if axes is None else tuple(axes)
        self._is_interleaved = _is_interleaved(names, values)
        self._empty: Any = POOL.empty if planned.operands.module == "numpy" else sys.modules["cupy"].empty

    def array(self, core: Shape, dtype: DType) -> Any:
        """An array with core dimensions, in the order of the arguments as with NumPy's order "K"."""
        size, last = math.prod(core), len(self._lengths)
        if self._is_interleaved:
            whole = self._empty((*self._lengths, size), dtype).transpose((*self._axes, last))
        else:
            whole = self._columns(size, dtype).transpose((*[axis + 1 for axis in self._axes], 0))
        return whole.reshape((*self.shape, *core))

    def blocks(self, axes: Shape, dtype: DType) -> Any:
        """An array with some axes before those of the result, of which each part is contiguous."""
        parts = self._columns(math.prod(axes), dtype).transpose((0, *[axis + 1 for axis in self._axes]))
        return parts.reshape((*axes, *self.shape))

    def _columns(self, count: int, dtype: DType) -> Any:
        """So many arrays along the first axis of one, each of them contiguous and in the order of the arguments."""
        length = math.prod(self._lengths)
        if count == 1 or length * dtype.itemsize < _PADDED_BYTES:
            return self._empty((count, *self._lengths), dtype)
        lines = -(-length * dtype.itemsize // _LINE)
        lines += (_ODD_LINES - lines) % 8
        memory = self._empty((count, lines * _LINE // dtype.itemsize), dtype)
        return memory[:, :length].reshape((count, *self._lengths))


def _is_interleaved(names: Sequence[str], values: Sequence[Any]) -> bool:
    """Whether the elements of a core lie side by side in some argument, as in an array of structures."""
    for name, value in zip(names, values, strict=True):
        steps = [
            abs(step)
            for step, length in zip(getattr(value, "strides", ()), np.shape(value), strict=False)
            if length > 1
        ]
        if "[" in name and steps and min(steps) > value.dtype.itemsize:
            return True
    return False
