"""The fast path on the CPU: from arrays of known forms straight to the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from operator import and_
from time import perf_counter_ns
from typing import Any

import numpy as np
from numpy import empty

from dualbcast.codegen.llvm.abi import STOPPED
from dualbcast.runtime.arguments import Array, Token, is_writeable, on_host
from dualbcast.runtime.call_key import are_plain, host_addresses
from dualbcast.runtime.cpu import interrupt
from dualbcast.runtime.cpu import kernel as cpu_kernel
from dualbcast.runtime.cpu.entry import Entry
from dualbcast.runtime.iteration_space import form_of
from dualbcast.runtime.launch_plan import Fit, Plan, aside_of, find_fit, fresh, summed

__all__ = ["CpuFastPath"]


class CpuFastPath:
    """The fast path of calls whose arguments have the same forms (`forms_of`) as those of one that was made.

    Attributes
    ----------
    results
        Whatever belongs to those calls, too.
    """

    __slots__ = (
        "_converted",
        "_dtypes",
        "_entry",
        "_fit",
        "_geometry",
        "_is_little",
        "_kernel",
        "_masks",
        "_memory",
        "_names",
        "_shapes",
        "_signature",
        "results",
    )

    def __init__(
        self, planned: Plan, kernel: cpu_kernel.CpuKernel, converted: Sequence[tuple[int, Token]], results: Any
    ) -> None:
        operands, geometry = planned.operands, planned.geometry
        self._kernel, self._geometry, self._dtypes, self.results = kernel, geometry, planned.dtypes, results
        self._converted, self._names, self._signature = tuple(converted), operands.names, operands.signature
        trivial = geometry.split is None and {None, geometry.shape}.issuperset(planned.shapes or ())
        self._shapes = None if trivial else planned.shapes
        # What the address of each input must have no bit of.
        self._masks = tuple([array.itemsize - 1 for array in operands.arrays])
        self._is_little = geometry.blocks is None and cpu_kernel.is_little(geometry.total)
        self._entry: Entry | None = None
        # The shape in memory of new outputs that are no sums and not large, and the axes to transpose them by.
        is_special = geometry.split is not None or geometry.is_large(len(planned.dtypes))
        self._memory = None if is_special else geometry.memory
        # For calls with out=.
        self._fit: Fit | None = None
        if all(planned.given):
            inputs, outs = tuple(map(form_of, operands.arrays)), tuple(map(form_of, planned.outputs))
            self._fit = find_fit(inputs, outs, planned.dtypes, operands.names, None, False)

    @staticmethod
    def of(planned: Plan, values: Sequence[Any], kernel: cpu_kernel.CpuKernel, results: Any) -> CpuFastPath | None:
        """The fast path of a call that has written to its outputs directly, which were either all or none given by the
        caller; None where it was otherwise, or where the forms of `values` do not say it all."""
        operands = planned.operands
        if operands.module != "numpy" or not are_plain(values) or len({*planned.given}) > 1:
            return None
        if any(planned.given) and planned.targets is not planned.outputs:
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
            every = list(values)
            for at, token in self._converted:
                every[at] = on_host(every[at], token, self._signature, self._names[at])
            values = tuple(every)
        geometry, dtypes = self._geometry, self._dtypes
        if self._fit is None:
            if self._memory is None:
                outputs, targets = fresh(geometry, dtypes, self._signature.compute, np)
            else:
                lengths, axes = self._memory
                arrays = [empty(lengths, dtype) for dtype in dtypes]
                outputs = targets = tuple(arrays if axes is None else [y.transpose(axes) for y in arrays])
        else:
            if not all(map(is_writeable, out)) or aside_of(self._fit, host_addresses((*values, *out))):
                return None
            outputs = targets = out
        if interrupt.cancelled:
            interrupt.begin()
        # The strides are whole numbers of elements, as they were at the first call; the addresses are looked at.
        if self._is_little:
            entry = self._entry or self._enter()
            if status := entry.run_all(entry.head, id(values), id(targets)):
                _refuse(status)
                return None
        elif geometry.blocks is None:
            entry, total = self._entry or self._enter(), geometry.total
            if total > self._kernel.short:
                if not cpu_kernel.enter(self._kernel, entry, total, geometry.ints, values, targets):
                    return None
            else:
                began = perf_counter_ns()
                if status := entry.run_all(entry.head, id(values), id(targets)):
                    _refuse(status)
                    return None
                if perf_counter_ns() - began >= cpu_kernel.WORTH_A_THREAD:
                    cpu_kernel.note(self._kernel, began, 1.0, total)
        else:
            pointers = host_addresses((*values, *targets))
            if any(map(and_, pointers, self._masks)):
                return None
            cpu_kernel.launch(self._kernel, geometry.total, geometry.ints, pointers, blocks=geometry.blocks)
        return outputs if self._shapes is None else summed(geometry, self._shapes, dtypes, outputs, targets)

    def _enter(self) -> Entry:
        """The entry, made for the second call: the first one may be the last."""
        geometry = self._geometry
        entry = self._entry = self._kernel.entry(geometry.total, geometry.ints, self._masks)
        return entry


def _refuse(status: int) -> None:
    """Raise what has stopped a kernel, if it has not just refused."""
    if status == STOPPED:
        raise interrupt.raised()
