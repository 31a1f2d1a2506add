"""Launches of CPU kernels, in pieces over the threads of a pool where that pays; and the fast path from arrays of known
forms.

The result does not depend on the number of threads, to the last bit.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from operator import and_
from time import perf_counter_ns
from typing import Any

import numpy as np
from numpy import empty

from dualbcast.codegen.llvm.target import STOPPED
from dualbcast.runtime.arguments import Array, host_addresses, is_writeable, on_host
from dualbcast.runtime.cpu import interrupt, thread_pool
from dualbcast.runtime.cpu import policy as paces
from dualbcast.runtime.cpu.kernel import ArrayCall, CpuKernel
from dualbcast.runtime.cpu.pieces import Packing, block_work, contiguous_copies, panel_work
from dualbcast.runtime.cpu.policy import get_num_threads
from dualbcast.runtime.launch_plan import FastPath, Plan, aside_of, fresh, is_pooled
from dualbcast.runtime.reduction_blocks import Split

# More ranges than threads, since a branch can make some elements cost more than others.
_RANGES_PER_THREAD = 4


def launch(
    kernel: CpuKernel,
    total: int,
    ints: Sequence[int],
    pointers: Sequence[int],
    threads: int | None = None,
    packing: Packing | None = None,
    split: Split | None = None,
) -> None:
    """Run all of `total` elements, and return when they are done.

    `ints` and `pointers` are as for `CpuKernel.__call__`. At most so many `threads` run them, this one among them; by
    default `get_num_threads()`. A kernel that sums is run on the blocks of `split`, if it has some, with contiguous
    copies of the inputs of `packing`. Else a kernel with packed inputs is run on panels, and any other on ranges.
    """
    if total <= 0:
        return
    if interrupt.cancelled:
        interrupt.begin()
    pace, began = kernel.pace, perf_counter_ns()
    blocks = split.blocks if split is not None else ()
    if not blocks and packing is None and total <= pace.short:
        kernel(0, total, ints, pointers)
        # The first time code and outputs are not in the cache, nor, perhaps, in memory.
        if pace.is_warm and perf_counter_ns() - began >= paces.THREAD_NS:
            pace.note(began, 1.0, total)
        pace.is_warm = True
        return
    threads = _threads_for(kernel, total, threads)
    if split is not None and blocks:
        if packing is not None:
            pointers, _copies = contiguous_copies(kernel, packing, pointers, threads)
            began = perf_counter_ns()
        work = block_work(kernel, split, pointers, total)
    elif packing is not None:
        work = panel_work(kernel, packing, tuple(ints), pointers, total, threads)
    else:
        streamed = kernel.goes_past_the_cache(total)
        work = kernel.ranges(_bounds_for(kernel, total, ints, threads), ints, pointers, streamed)
    pace.note(began, thread_pool.run(work, threads), total)


def _threads_for(kernel: CpuKernel, total: int, most: int | None = None) -> int:
    """How many threads a launch is worth, at most so many; by default `get_num_threads()`."""
    most = most or get_num_threads()
    return most if most > 1 and paces.is_worth_threads(kernel.pace.element * total) else 1


def _bounds_for(kernel: CpuKernel, total: int, ints: Sequence[int], threads: int) -> tuple[int, ...]:
    """Where the ranges of a launch begin, and the end of the last."""
    if threads == 1:
        return 0, total
    count = int(min(threads * _RANGES_PER_THREAD, max(2, kernel.pace.element * total / paces.RANGE_NS)))
    if count > threads:
        # As many for each thread: of three for two, one would have twice the work.
        count -= count % threads
    return _bounds(total, ints[kernel.source.layout.rank - 1], count)


@functools.lru_cache(maxsize=256)
def _bounds(total: int, row: int, count: int) -> tuple[int, ...]:
    """Where ranges begin, at most so many, and the end of the last.

    A range begins at a multiple of `ALIGNMENT` in its row.
    """
    indices = [total * part // count for part in range(count)]
    return *sorted({index - index % row % paces.ALIGNMENT for index in indices}), total


class CpuFastPath(FastPath):
    """The fast path of calls on NumPy's arrays and numbers."""

    def __init__(self, planned: Plan, kernel: CpuKernel, results: Any, earlier: FastPath | None) -> None:
        super().__init__(planned, kernel, results, earlier)
        operands, geometry = planned.operands, planned.geometry
        self._names, self._signature = operands.names, operands.signature
        self._numbers = tuple([(at, operands.signature.tokens[at]) for at in operands.numbers])
        # The bits that the address of each input must not have.
        self._masks = tuple([array.itemsize - 1 for array in operands.arrays])
        self._is_in_parts = geometry.split is not None or geometry.packing is not None
        # So few elements are one range at any pace, and no clock is read for them.
        self._is_one_range = not self._is_in_parts and geometry.total < 2 * paces.ALIGNMENT
        self._total = geometry.total
        self._call: ArrayCall | None = None
        # The shape in memory of new outputs that are no sums and not large, and the axes to transpose them by.
        is_special = geometry.split is not None or is_pooled(geometry, len(planned.dtypes))
        self._memory = None if is_special else geometry.memory

    def run(self, values: tuple[Array, ...], out: tuple[Array, ...] = ()) -> tuple[Array, ...] | None:
        if self._numbers:
            arrays = list(values)
            for at, token in self._numbers:
                arrays[at] = on_host(arrays[at], token, self._signature, self._names[at])
            values = tuple(arrays)
        dtypes = self._dtypes
        if self._fit is not None:
            if not all(map(is_writeable, out)) or aside_of(self._fit, host_addresses((*values, *out))):
                return None
            outputs = targets = out
        elif self._memory is None:
            outputs, targets = fresh(self._geometry, dtypes, self._compute, np)
        else:
            lengths, axes = self._memory
            arrays = [empty(lengths, dtype) for dtype in dtypes]
            outputs = targets = tuple(arrays if axes is None else [y.transpose(axes) for y in arrays])
        if interrupt.cancelled:
            interrupt.begin()
        run = self._run_range if self._is_one_range else self._launch
        if not run(values, targets):
            return None
        return outputs if self._shapes is None else self._summed(outputs, targets)

    def _launch(self, values: tuple[Array, ...], targets: tuple[Array, ...]) -> bool:
        """Run the elements; False where an input is misaligned, and nothing has run.

        The strides are whole numbers of elements, as they were at the first call; the addresses are looked at.
        """
        geometry, kernel = self._geometry, self._kernel
        total, pace = geometry.total, kernel.pace
        if self._is_in_parts:
            pointers = host_addresses((*values, *targets))
            if any(map(and_, pointers, self._masks)):
                return False
            launch(kernel, total, geometry.ints, pointers, None, geometry.packing, geometry.split)
            return True
        began = perf_counter_ns()
        if total <= pace.short:
            is_aligned = self._run_range(values, targets)
            if perf_counter_ns() - began >= paces.THREAD_NS:
                pace.note(began, 1.0, total)
            return is_aligned
        call = self._call or self._make_call()
        threads = _threads_for(kernel, total)
        bounds = _bounds_for(kernel, total, geometry.ints, threads)
        faster = thread_pool.run(call.ranges(bounds, values, targets), threads)
        if faster:
            pace.note(began, faster, total)
        return faster > 0

    def _run_range(self, values: tuple[Array, ...], targets: tuple[Array, ...]) -> bool:
        """Run the elements on this thread; False where an input is misaligned, and nothing has run."""
        call = self._call or self._make_call()
        status = call.run(call.head, id(values), id(targets), 0, self._total)
        if status == STOPPED:
            raise interrupt.raised()
        return not status

    def _make_call(self) -> ArrayCall:
        """The kernel to be called with arrays, made for the second call: the first one may be the last."""
        geometry, kernel = self._geometry, self._kernel
        address, outputs = kernel.address(geometry.total), len(kernel.source.outputs)
        call = self._call = ArrayCall(address, geometry.ints, self._masks, outputs)
        return call
