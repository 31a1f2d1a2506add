"""The fast path on the CPU: from arrays of known forms straight to the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from operator import and_
from typing import Any

import numpy as np
from numpy import empty

from dualbcast.codegen.llvm.abi import STOPPED
from dualbcast.runtime.arguments import Array, Token, is_writeable, on_host
from dualbcast.runtime.call_key import are_plain, host_addresses
from dualbcast.runtime.cpu import interrupt
from dualbcast.runtime.cpu.array_call import ArrayCall
from dualbcast.runtime.cpu.kernel import CpuKernel
from dualbcast.runtime.cpu.launch import launch, launch_array_call
from dualbcast.runtime.cpu.pace import is_always_short
from dualbcast.runtime.launch_plan import Plan, aside_of, fresh, summed

__all__ = ["CpuFastPath"]


class CpuFastPath:
    """The fast path of calls whose arguments have the same forms (`forms_of`) as those of one that was made.

    Attributes
    ----------
    results
        The caller's own object.
    """

    __slots__ = (
        "_call",
        "_converted",
        "_dtypes",
        "_fit",
        "_geometry",
        "_is_always_short",
        "_kernel",
        "_masks",
        "_memory",
        "_names",
        "_shapes",
        "_signature",
        "results",
    )

    def __init__(self, planned: Plan, kernel: CpuKernel, converted: Sequence[tuple[int, Token]], results: Any) -> None:
        operands, geometry = planned.operands, planned.geometry
        self._kernel, self._geometry, self._dtypes, self.results = kernel, geometry, planned.dtypes, results
        self._converted, self._names, self._signature = tuple(converted), operands.names, operands.signature
        self._fit, self._shapes = planned.fit_of_outputs(), planned.shapes_to_finish()
        # The bits that the address of each input must not have.
        self._masks = tuple([array.itemsize - 1 for array in operands.arrays])
        self._is_always_short = geometry.blocks is None and is_always_short(geometry.total)
        self._call: ArrayCall | None = None
        # The shape in memory of new outputs that are no sums and not large, and the axes to transpose them by.
        is_special = geometry.split is not None or geometry.is_large(len(planned.dtypes))
        self._memory = None if is_special else geometry.memory

    @staticmethod
    def of(planned: Plan, values: Sequence[Any], kernel: CpuKernel, results: Any) -> CpuFastPath | None:
        """The fast path of a call that has run; None where the plan is not repeatable, or where the forms of `values`
        do not say it all."""
        operands = planned.operands
        if operands.module != "numpy" or not are_plain(values) or not planned.is_repeatable():
            return None
        pairs = zip(values, operands.arrays, operands.signature.tokens, strict=True)
        converted = [(at, token) for at, (x, array, token) in enumerate(pairs) if x is not array]
        if any(type(values[at]) is np.ndarray for at, _ in converted):  # misaligned, or in the other byte order
            return None
        return CpuFastPath(planned, kernel, converted, results)

    def run(self, values: tuple[Array, ...], out: tuple[Array, ...] = ()) -> tuple[Array, ...] | None:
        """Run the kernel on arguments of these forms, and on arrays to write to where the first call had such.

        Returns
        -------
        tuple of array or None
            Its outputs; None where it cannot read or write the arrays in place, and nothing has run.
        """
        if self._converted:
            values = self._as_arrays(values)
        dtypes = self._dtypes
        if self._fit is not None:
            if not all(map(is_writeable, out)) or aside_of(self._fit, host_addresses((*values, *out))):
                return None
            outputs = targets = out
        elif self._memory is None:
            outputs, targets = fresh(self._geometry, dtypes, self._signature.compute, np)
        else:
            lengths, axes = self._memory
            arrays = [empty(lengths, dtype) for dtype in dtypes]
            outputs = targets = tuple(arrays if axes is None else [y.transpose(axes) for y in arrays])
        if interrupt.cancelled:
            interrupt.begin()
        # The strides are whole numbers of elements, as they were at the first call; the addresses are looked at.
        if self._is_always_short:
            call = self._call or self._make_call()
            status = call.run_all(call.head, id(values), id(targets))
            if status == STOPPED:
                raise interrupt.raised()
            is_aligned = not status
        else:
            is_aligned = self._launch(values, targets)
        if not is_aligned:
            return None
        return outputs if self._shapes is None else summed(self._geometry, self._shapes, dtypes, outputs, targets)

    def _as_arrays(self, values: tuple[Any, ...]) -> tuple[Array, ...]:
        """The values with arrays for numbers."""
        arrays = list(values)
        for at, token in self._converted:
            arrays[at] = on_host(arrays[at], token, self._signature, self._names[at])
        return tuple(arrays)

    def _make_call(self) -> ArrayCall:
        """The kernel to be called with arrays, made for the second call: the first one may be the last."""
        geometry, kernel = self._geometry, self._kernel
        call = self._call = ArrayCall(
            kernel.address(geometry.total), geometry.total, geometry.ints, self._masks, len(kernel.source.outputs)
        )
        return call

    def _launch(self, values: tuple[Array, ...], targets: tuple[Array, ...]) -> bool:
        """Run any number of elements; False where an input is misaligned, and nothing has run."""
        geometry, kernel = self._geometry, self._kernel
        if geometry.blocks is None:
            call = self._call or self._make_call()
            return launch_array_call(kernel, call, geometry.total, geometry.ints, values, targets)
        pointers = host_addresses((*values, *targets))
        if any(map(and_, pointers, self._masks)):
            return False
        launch(kernel, geometry.total, geometry.ints, pointers, blocks=geometry.blocks)
        return True
