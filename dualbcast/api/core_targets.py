"""The arrays that kernels of a function with core dimensions write to, a part of them for each element of a core.

A product comes in, with values of the forms that it is for. Out go new arrays with core dimensions, or those of `out=`,
which a kernel has filled.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from dualbcast.api.specialisation import Specialisation
from dualbcast.errors import ArgumentError
from dualbcast.frontend.arrays.signatures import CoreOutput
from dualbcast.program.core_results import CoreHessian, CoreJacobian, CoreLayout, parts_of
from dualbcast.program.outputs import Results, Shape
from dualbcast.program.products import Which
from dualbcast.program.results import Hessian, Jacobian
from dualbcast.runtime.arguments import DType, beside
from dualbcast.runtime.buffer_pool import POOL

# The products of which the blocks of cores are stored whole.
_WHOLE: dict[Which, Which] = {
    "value": "value",
    "jacobian": "jacobian_blocks",
    "value_and_jacobian": "value_and_jacobian_blocks",
    "hessian": "hessian_blocks",
    "value_jacobian_and_hessian": "value_jacobian_and_hessian_blocks",
}
# The value, the Jacobian and the Hessian, or None where a product lacks it.
Found = tuple[Any, CoreJacobian | None, CoreHessian | None]
# Columns of so many bytes and more begin at cache lines, and two are apart by five lines more than a multiple of eight:
# see docs/decisions/129-elements-of-cores.md.
_PADDED_BYTES, _LINE, _ODD_LINES = 1 << 11, 64, 5
_PAIR = "out= must be the pair (value, Jacobian) that an earlier call returned"


class CoreTargets:
    """How a product of one specialisation is run; made at the first call."""

    def __init__(
        self, specialisation: Specialisation, layout: CoreLayout, which: Which, values: tuple[Any, ...]
    ) -> None:
        self._specialisation, self._layout, self._which = specialisation, layout, which
        # The product whose kernel writes to the arrays of `new`.
        self.which = _WHOLE[which]
        self._has_values = which.startswith("value")
        self._orders = [order for order, name in ((1, "jacobian"), (2, "hessian")) if name in which]
        self._results: Results | None = None
        if specialisation.recorder is not None:
            return
        with beside(values):
            call = specialisation.prepare(self.which, values)
        if call.spec.checks is not None:
            return  # whose output is always new, and no call has both new and given arrays
        self._results = call.results
        self._shape: Shape = call.plan.geometry.shape
        self._lengths, self._axes = call.plan.geometry.memory
        self._is_interleaved = _is_interleaved(specialisation.element.names, values)

    def run(self, values: tuple[Any, ...], out: Any = None) -> Found:
        """The results of the product; `out` is the value to write to, or that and the Jacobian."""
        layout, specialisation = self._layout, self._specialisation
        if self._results is None:
            if out is not None:
                raise ArgumentError(
                    "out= goes with arrays of NumPy's and CuPy's, in functions that nothing is checked of"
                )
            results, outputs = specialisation.run(self._which, values)
            value = layout.pack(results.value(outputs), results.stack) if self._has_values else None
            first = CoreJacobian(results, layout, Jacobian._of(results, outputs)) if 1 in self._orders else None
            second = CoreHessian(results, layout, Hessian._of(results, outputs)) if 2 in self._orders else None
            return value, first, second
        if out is not None:
            return self._into(values, out)
        with beside(values):
            arrays, blocks = self.new()
        results, _ = specialisation.run(self.which, values, self.parts(arrays, blocks), forms="core")
        return self.packed(arrays, blocks, results)

    def new(self) -> tuple[list[Any], list[Any]]:
        """New arrays for the value, and one each for the Jacobian and the Hessian, as `CoreBlocks` has them."""
        arrays = [self._new_value(each) for each in self._layout.outputs] if self._has_values else []
        return arrays, [self._new_blocks(order) for order in self._orders]

    def parts(self, arrays: Sequence[Any], blocks: Sequence[Any]) -> tuple[Any, ...]:
        """The parts of them that the kernel writes, in its order."""
        assert self._results is not None
        pairs = zip(arrays, self._layout.outputs if arrays else (), strict=True)
        parts = [part for array, each in pairs for part in parts_of(array, each.shape, "the value")]
        for order, whole in zip(self._orders, blocks, strict=True):
            parts += [whole[place] for place in self._results.places(order)[0]]
        return tuple(parts)

    def packed(self, arrays: list[Any], blocks: Sequence[Any], results: Results | None = None) -> Found:
        """The results of a call whose kernel has filled them."""
        value = None
        if self._has_values:
            if not self._shape and isinstance(arrays[0], np.ndarray):
                arrays = [array if array.shape else array[()] for array in arrays]
            value = self._layout.structure.pack(arrays)
        results = results or self._results
        assert results is not None
        first = CoreJacobian(results, self._layout, parts=blocks[0]) if 1 in self._orders else None
        second = CoreHessian(results, self._layout, parts=blocks[-1]) if 2 in self._orders else None
        return value, first, second

    @property
    def writes_new(self) -> bool:
        """Whether the kernel writes to the arrays of `new`."""
        return self._results is not None

    def owners(self) -> list[int]:
        """For each part that the kernel writes the position of its array among the new ones."""
        assert self._results is not None
        sizes = [each.size for each in self._layout.outputs] if self._has_values else []
        sizes += [len(self._results.places(order)[0]) for order in self._orders]
        return [at for at, size in enumerate(sizes) for _ in range(size)]

    def _new_value(self, output: CoreOutput) -> Any:
        dtype, last = self._specialisation.dtypes[output.first], len(self._lengths)
        order = range(last) if self._axes is None else self._axes
        if self._is_interleaved:
            whole = self._empty((*self._lengths, output.size), dtype).transpose((*order, last))
        else:
            whole = self._columns(output.size, dtype).transpose((*[axis + 1 for axis in order], 0))
        return whole.reshape((*self._shape, *output.shape))

    def _new_blocks(self, order: int) -> Any:
        assert self._results is not None
        axes = (*[len(self._results.positions)] * order, self._results.structure.count)
        parts = self._columns(math.prod(axes), self._results.signature.result_dtype)
        if self._axes is not None:
            parts = parts.transpose((0, *[axis + 1 for axis in self._axes]))
        return parts.reshape((*axes, *self._shape))

    def _columns(self, count: int, dtype: DType) -> Any:
        """So many arrays along the first axis of one, each of them contiguous and in the order of the arguments."""
        length = math.prod(self._lengths)
        if count == 1 or length * dtype.itemsize < _PADDED_BYTES:
            return self._empty((count, *self._lengths), dtype)
        lines = -(-length * dtype.itemsize // _LINE)
        lines += (_ODD_LINES - lines) % 8
        memory = self._empty((count, lines * _LINE // dtype.itemsize), dtype)
        return memory[:, :length].reshape((count, *self._lengths))

    def _empty(self, shape: Shape, dtype: DType) -> Any:
        assert self._results is not None
        return POOL.empty(shape, dtype) if self._results.module == "numpy" else sys.modules["cupy"].empty(shape, dtype)

    def _into(self, values: tuple[Any, ...], out: Any) -> Found:
        """Write to the arrays of `out=`."""
        given, jacobian = out, None
        if self._orders:
            if not (isinstance(out, tuple) and len(out) == 2 and isinstance(out[1], CoreJacobian)):
                raise ArgumentError(_PAIR)
            given, jacobian = out
        parts = self._layout.split(given, "out=")
        stored = () if jacobian is None else jacobian.stored
        which = self._which if jacobian is None or jacobian.parts is None else self.which
        results, outputs = self._specialisation.run(which, values, (*parts, *stored))
        if jacobian is not None:
            jacobian = CoreJacobian(results, self._layout, Jacobian._of(results, outputs), jacobian.parts)
        return given, jacobian, None


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
