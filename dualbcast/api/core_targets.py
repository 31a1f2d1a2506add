"""The arrays that kernels of a function with core dimensions write to, a part of them for each element of a core.

A product comes in, with values of the forms that it is for. Out go new arrays with core dimensions, or those of `out=`,
which a kernel has filled.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from dualbcast.api.specialisation import Specialisation
from dualbcast.errors import ArgumentError
from dualbcast.program.core_results import CoreJacobian, CoreLayout
from dualbcast.program.outputs import Results, Shape
from dualbcast.program.products import Which
from dualbcast.program.results import Jacobian
from dualbcast.runtime.arguments import beside
from dualbcast.runtime.buffer_pool import POOL

_PAIR = "out= must be the pair (value, Jacobian) that an earlier call returned"


class CoreTargets:
    """How a product of one specialisation is run; made at the first call."""

    def __init__(
        self, specialisation: Specialisation, layout: CoreLayout, which: Which, values: tuple[Any, ...]
    ) -> None:
        self._specialisation, self._layout, self._which = specialisation, layout, which
        self._has_values, self._has_blocks = which.startswith("value"), which != "value"
        self._results: Results | None = None
        if specialisation.recorder is not None:
            return
        with beside(values):
            call = specialisation.prepare(which, values)
        if call.spec.checks is not None:
            return  # whose output is always new, and no call has both new and given arrays
        self._results = call.results
        self._shape: Shape = call.plan.geometry.shape
        self._lengths, self._axes = call.plan.geometry.memory
        self._is_interleaved = _is_interleaved(specialisation.element.names, values)

    def run(self, values: tuple[Any, ...], out: Any = None) -> tuple[Any, Any]:
        """The value and the Jacobian, or None where the product lacks it."""
        layout, specialisation, which = self._layout, self._specialisation, self._which
        if self._results is None:
            if out is not None:
                raise ArgumentError(
                    "out= goes with arrays of NumPy's and CuPy's, in functions that nothing is checked of"
                )
            results, outputs = specialisation.run(which, values)
            value = layout.pack(results.value(outputs), results.stack) if self._has_values else None
            return value, CoreJacobian(Jacobian._of(results, outputs), layout) if self._has_blocks else None
        if out is not None:
            return self._into(values, out)
        with beside(values):
            arrays, parts = self._new_values() if self._has_values else ([], [])
            blocks, stored = self._new_blocks() if self._has_blocks else (None, [])
        results, outputs = specialisation.run(which, values, (*parts, *stored), forms="core")
        value = self._packed(arrays) if self._has_values else None
        if blocks is None:
            return value, None
        return value, CoreJacobian(Jacobian._of(results, outputs), layout, blocks)

    def _packed(self, arrays: list[Any]) -> Any:
        if not self._shape and isinstance(arrays[0], np.ndarray):
            arrays = [array if array.shape else array[()] for array in arrays]
        return self._layout.structure.pack(arrays)

    def _new_values(self) -> tuple[list[Any], list[Any]]:
        """New arrays for the value, and their parts."""
        arrays, parts = [], []
        for each in self._layout.outputs:
            dtype, last = self._specialisation.dtypes[each.first], len(self._lengths)
            order = range(last) if self._axes is None else self._axes
            if self._is_interleaved:
                memory = self._empty((*self._lengths, each.size), dtype)
                whole = memory.transpose((*order, last))
            else:
                memory = self._empty((each.size, *self._lengths), dtype)
                whole = memory.transpose((*[axis + 1 for axis in order], 0))
            axes = len(self._lengths)
            columns = whole.transpose((axes, *range(axes)))
            parts += [*columns] if axes else [columns[at, ...] for at in range(each.size)]
            arrays.append(whole.reshape((*self._shape, *each.shape)))
        return arrays, parts

    def _new_blocks(self) -> tuple[Any, list[Any]]:
        """A new array for the Jacobian, as `CoreBlocks` has it, and the parts of it that the kernel writes."""
        assert self._results is not None
        columns, rows = len(self._results.positions), self._results.structure.count
        parts = self._empty((columns * rows, *self._lengths), self._results.signature.result_dtype)
        if self._axes is not None:
            parts = parts.transpose((0, *[axis + 1 for axis in self._axes]))
        every = [*parts] if self._shape else [parts[at, ...] for at in range(columns * rows)]
        stored, _ = self._results.matrix_places
        return parts.reshape((columns, rows, *self._shape)), [every[column * rows + row] for column, row, _ in stored]

    def _empty(self, shape: Shape, dtype: Any) -> Any:
        assert self._results is not None
        return POOL.empty(shape, dtype) if self._results.module == "numpy" else sys.modules["cupy"].empty(shape, dtype)

    def _into(self, values: tuple[Any, ...], out: Any) -> tuple[Any, Any]:
        """Write to the arrays of `out=`."""
        given, jacobian = out, None
        if self._has_blocks:
            if not (isinstance(out, tuple) and len(out) == 2 and isinstance(out[1], CoreJacobian)):
                raise ArgumentError(_PAIR)
            given, jacobian = out
        parts = self._layout.split(given, "out=")
        stored = () if jacobian is None else jacobian.stored
        results, outputs = self._specialisation.run(self._which, values, (*parts, *stored))
        if jacobian is not None:
            jacobian = CoreJacobian(Jacobian._of(results, outputs), self._layout, jacobian.parts)
        return given, jacobian


def _is_interleaved(names: Sequence[str], values: Sequence[Any]) -> bool:
    """Whether the elements of a core lie side by side in some argument, as in an array of structures.

    New arrays follow the arguments' order in memory, as with NumPy's order "K", and so they do in this.
    """
    for name, value in zip(names, values, strict=True):
        steps = [
            abs(step)
            for step, length in zip(getattr(value, "strides", ()), np.shape(value), strict=False)
            if length > 1
        ]
        if "[" in name and steps and min(steps) > value.dtype.itemsize:
            return True
    return False
