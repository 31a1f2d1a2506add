"""What a call on a GPU leaves behind for the next one like it: from CuPy arrays of known forms to the launch."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from dualbcast.runtime.broadcast import Plan, fresh, summed
from dualbcast.runtime.cuda import CudaKernel
from dualbcast.runtime.cuda_device import WIDEST_ACCESS, prepared
from dualbcast.runtime.operands import Array

__all__ = ["CudaRoute"]


class CudaRoute:
    """The way of the calls whose arguments have the same forms (`forms.forms_of`) as those of one that was made.

    Attributes
    ----------
    results
        Whatever belongs to those calls, too.
    """

    __slots__ = ("_device", "_geometry", "_launch", "_mask", "_planned", "_shapes", "results")

    def __init__(self, planned: Plan, kernel: CudaKernel, results: Any) -> None:
        operands, geometry = planned.operands, planned.geometry
        self._planned = planned.dtypes, operands.compute
        self._geometry, self.results = geometry, results
        trivial = geometry.split is None and {None, geometry.shape}.issuperset(planned.shapes or ())
        self._shapes = None if trivial else planned.shapes
        self._device = operands.arrays[0].data.device_id
        self._launch = kernel.functions[self._device], *prepared(kernel, geometry.sizes, geometry.strides)
        lanes = kernel.source.layout.lanes
        self._mask = (WIDEST_ACCESS if lanes > 1 else max([array.itemsize for array in operands.arrays])) - 1

    @staticmethod
    def of(planned: Plan, values: Sequence[Any], kernel: CudaKernel, results: Any) -> CudaRoute | None:
        """The route of a call that has run and allocated its outputs; None where an argument had to be converted."""
        arrays = planned.operands.arrays
        if not arrays or any(x is not array for x, array in zip(values, arrays, strict=True)):
            return None
        return CudaRoute(planned, kernel, results)

    def run(self, values: tuple[Array, ...], out: tuple[Array, ...] = ()) -> tuple[Array, ...] | None:
        """Start the kernel on arguments of these forms; its outputs, or None where it cannot read them in place."""
        if out:
            return None
        cupy = sys.modules["cupy"]
        device, bits = self._device, 0
        if cupy.cuda.runtime.getDevice() != device:
            return None
        for x in values:
            memory = x.data
            if memory.device_id != device:
                return None
            bits |= memory.ptr
        if bits & self._mask:
            return None
        geometry, (dtypes, compute) = self._geometry, self._planned
        outputs, targets = fresh(geometry, dtypes, compute, cupy)
        function, grid, block, numbers = self._launch
        # CuPy takes an array for the address of its first element, faster than a number.
        function(grid, block, (*numbers, *values, *targets))
        return outputs if self._shapes is None else summed(geometry, self._shapes, dtypes, outputs, targets)
