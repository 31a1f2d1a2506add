"""The arrays that kernels of a function with core dimensions write to, a part of them for each element of a core.

A product comes in, with values of the forms that it is for. Out go new arrays with core dimensions, or those of `out=`,
which a kernel has filled.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dualbcast.api.cores.memory_layout import CoreMemory
from dualbcast.api.specialisation import Specialisation
from dualbcast.errors import ArgumentError
from dualbcast.frontend.arrays.signatures import CoreOutput
from dualbcast.program.core_results import CoreHessian, CoreJacobian, CoreLayout, joined, parts_of
from dualbcast.program.element import Ran
from dualbcast.program.outputs import Results, Shape, another_wrt
from dualbcast.program.products import Which
from dualbcast.program.results import Hessian, Jacobian
from dualbcast.runtime.arguments import DType, beside, forms_of

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
        halves = [own for own in layout.numbers if len(own) > 1 and specialisation.dtypes[own[0].first].itemsize < 4]
        if halves and self._has_values:
            return  # of complex numbers, whose parts are longer
        self._results = call.results
        self._memory = CoreMemory(call.plan, specialisation.element.names, values)

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
        memory, results, dtypes = self._memory, self._results, self._specialisation.dtypes
        assert results is not None
        numbers = self._layout.numbers if self._has_values else []
        columns, count, dtype = len(results.positions), results.structure.count, results.signature.result_dtype
        return (
            [memory.array(each[0].shape, _dtype_of(each, dtypes[each[0].first])) for each in numbers],
            [memory.blocks((*[columns] * order, count), dtype) for order in self._orders],
        )

    def parts(self, arrays: Sequence[Any], blocks: Sequence[Any]) -> tuple[Any, ...]:
        """The parts of them that the kernel writes, in its order."""
        assert self._results is not None
        parts: list[Any] = []
        for array, own in zip(arrays, self._layout.numbers if arrays else (), strict=True):
            for each, output in zip((array.real, array.imag) if len(own) > 1 else (array,), own, strict=True):
                parts += parts_of(each, output.shape, "the value")
        for order, whole in zip(self._orders, blocks, strict=True):
            parts += [whole[place] for place in self._results.places(order)[0]]
        return tuple(parts)

    def packed(self, arrays: list[Any], blocks: Sequence[Any], results: Results | None = None) -> Found:
        """The results of a call whose kernel has filled them."""
        value = None
        if self._has_values:
            value = self._layout.whole.pack(as_scalars(arrays, self._memory.shape))
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
        sizes = [sum(each.size for each in own) for own in self._layout.numbers] if self._has_values else []
        sizes += [len(self._results.places(order)[0]) for order in self._orders]
        return [at for at, size in enumerate(sizes) for _ in range(size)]

    def _into(self, values: tuple[Any, ...], out: Any) -> Found:
        """Write to the arrays of `out=`."""
        given, jacobian = out, None
        if self._orders:
            if not (isinstance(out, tuple) and len(out) == 2 and isinstance(out[1], CoreJacobian)):
                raise ArgumentError(_PAIR)
            given, jacobian = out
            if jacobian._layout.wrt != self._layout.wrt:
                raise another_wrt(jacobian._layout.wrt, self._layout.wrt)
        parts = self._layout.split(given, "out=")
        stored = () if jacobian is None else jacobian.stored
        which = self._which if jacobian is None or jacobian.parts is None else self.which
        results, outputs = self._specialisation.run(which, values, (*parts, *stored))
        if jacobian is not None:
            jacobian = CoreJacobian(results, self._layout, Jacobian._of(results, outputs), jacobian.parts)
        return given, jacobian, None


def derived(
    specialisation: Specialisation,
    layout: CoreLayout,
    key: Any,
    cores: Sequence[Shape],
    values: tuple[Any, ...],
    run: Callable[[tuple[Any, ...]], Ran],
) -> list[Any]:
    """The results of a derived function, an array for each of `cores`.

    `run` makes the call with the arrays to write to, or with none. The `key` tells the function, and the forms of
    tangents or cotangents.
    """
    kept = layout.derived.get(key)
    if kept:
        with beside(values):
            memory = _memory(specialisation, layout, values)
            arrays = [memory.array(core, dtype) for core, dtype in kept]
        run(tuple([part for array, core in zip(arrays, cores, strict=True) for part in parts_of(array, core, "")]))
        return arrays
    results, outputs = run(())
    parts = results.parts(outputs)
    if kept is None:
        # The kernel may write to the arrays where it stores all parts, and sums none.
        is_plain = _is_plain(specialisation, results) and results.stores_parts
        is_plain = is_plain and all(part.shape == results.shape for part in parts)
        begins = itertools.accumulate(map(math.prod, cores[:-1]), initial=0)
        known = [(core, parts[at].dtype) for core, at in zip(cores, begins, strict=True)]
        layout.derived.keep(key, known if is_plain else [])
    return joined(parts, cores, specialisation.stack)


def tangent_blocks(
    specialisation: Specialisation, layout: CoreLayout, values: tuple[Any, ...], tangents: list[Any]
) -> CoreJacobian:
    """The change of the Jacobian along tangents of the elements; from the second call on, its blocks are views."""
    key = "tangent", forms_of(tuple(tangents))
    kept: Results | None = layout.derived.get(key)
    if kept:
        with beside(values):
            sizes = len(kept.positions), kept.structure.count
            whole = _memory(specialisation, layout, values).blocks(sizes, kept.signature.result_dtype)
        new = tuple([whole[place] for place in kept.places(1)[0]])
        specialisation.forward("tangent", values, tangents, new)
        return CoreJacobian(kept, layout, parts=whole)
    results, outputs = specialisation.forward("tangent", values, tangents)
    if kept is None:
        is_plain = _is_plain(specialisation, results) and bool(outputs)
        is_plain = is_plain and all(output.shape == results.shape for output in outputs)
        layout.derived.keep(key, results if is_plain else False)
    return CoreJacobian(results, layout, Jacobian._of(results, outputs))


def _is_plain(specialisation: Specialisation, results: Results) -> bool:
    """Whether a kernel may write the results of such calls to arrays with cores."""
    return specialisation.recorder is None and results.checks is None and bool(results.shape)


def _memory(specialisation: Specialisation, layout: CoreLayout, values: tuple[Any, ...]) -> CoreMemory:
    if layout.memory is None:
        plan = specialisation.prepare("value", values).plan
        layout.memory = CoreMemory(plan, specialisation.element.names, values)
    memory: CoreMemory = layout.memory
    return memory


def _dtype_of(own: Sequence[CoreOutput], dtype: DType) -> DType:
    """The dtype of an array for an output, or for a complex one that has two of this dtype as its parts."""
    return dtype if len(own) == 1 else np.result_type(dtype, np.complex64)


def as_scalars(arrays: list[Any], shape: Shape) -> list[Any]:
    """Results of shape () as NumPy's own functions give them."""
    if shape or not isinstance(arrays[0], np.ndarray):
        return arrays
    return [array if array.shape else array[()] for array in arrays]
