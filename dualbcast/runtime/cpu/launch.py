"""Launches of CPU kernels, in pieces over the threads of a pool where that pays; and the fast path from arrays of known
forms.

The result does not depend on the number of threads, to the last bit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from operator import and_
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import empty

from dualbcast.codegen.llvm.target import STOPPED
from dualbcast.runtime.arguments import Array, Token, is_writeable, on_host
from dualbcast.runtime.call_key import are_plain, host_addresses
from dualbcast.runtime.cpu import interrupt
from dualbcast.runtime.cpu import policy as paces
from dualbcast.runtime.cpu.kernel import ArrayCall, CpuKernel, Misaligned
from dualbcast.runtime.cpu.pieces import Copied, Packing, contiguous_copies, give_back_scratch, part_work
from dualbcast.runtime.cpu.policy import is_always_short
from dualbcast.runtime.cpu.thread_pool import Work
from dualbcast.runtime.cpu.threads import get_num_threads
from dualbcast.runtime.launch_plan import Plan, aside_of, fresh, summed

if TYPE_CHECKING:
    from dualbcast.runtime.reduction_blocks import Block

# More ranges than threads, since a branch can make some elements cost more than others.
_RANGES_PER_THREAD = 4


def launch(
    kernel: CpuKernel,
    total: int,
    ints: Sequence[int],
    pointers: Sequence[int],
    threads: int | None = None,
    blocks: Sequence[Block] | Copied | Packing | None = None,
) -> None:
    """Run all elements, and return when they are done.

    Parameters
    ----------
    kernel : CpuKernel
    total : int
        Size of the iteration space.
    ints, pointers : sequence of int
        As for `CpuKernel.__call__`.
    threads : int, optional
        At most so many threads, this one among them; `get_num_threads()` if not given.
    blocks : sequence of Block, Copied or Packing, optional
        The parts that are run instead of ranges of elements where the kernel sums, or has packed inputs.
    """
    if total <= 0:
        return
    if interrupt.cancelled:
        interrupt.begin()
    pace, began = kernel.pace, perf_counter_ns()
    if blocks is None and total <= pace.short:
        kernel(0, total, ints, pointers)
        # The first time code and outputs are not in the cache, nor, perhaps, in memory.
        if pace.is_warm and perf_counter_ns() - began >= paces.THREAD_NS:
            pace.note(began, 1.0, total)
        pace.is_warm = True
        return
    limit = threads or get_num_threads()
    if isinstance(blocks, Copied):
        pointers, _copies = contiguous_copies(kernel, blocks.inputs, pointers, limit)
        blocks = blocks.blocks
        began = perf_counter_ns()
    if blocks is not None:
        work = part_work(kernel, blocks, ints, pointers, total, limit)
        faster = _run_parts(kernel, work, total, limit)
        give_back_scratch(work)
    else:
        streamed = kernel.goes_past_the_cache(total)
        faster = _run_ranges(kernel, total, ints, lambda bounds: kernel.ranges(bounds, ints, pointers, streamed), limit)
    pace.note(began, faster, total)


def launch_array_call(
    kernel: CpuKernel,
    call: ArrayCall,
    total: int,
    ints: Sequence[int],
    inputs: tuple[Array, ...],
    outputs: tuple[Array, ...],
) -> bool:
    """Run all elements on arrays; False where an input is misaligned, and nothing has run."""
    pace, began = kernel.pace, perf_counter_ns()
    if total <= pace.short:
        is_aligned = call.run(inputs, outputs)
        if is_aligned and perf_counter_ns() - began >= paces.THREAD_NS:
            pace.note(began, 1.0, total)
        return is_aligned
    try:
        faster = _run_ranges(
            kernel, total, ints, lambda bounds: call.ranges(bounds, inputs, outputs), get_num_threads()
        )
    except Misaligned:
        return False
    pace.note(began, faster, total)
    return True


def _run_ranges(
    kernel: CpuKernel, total: int, ints: Sequence[int], ranges: Callable[[tuple[int, ...]], Work], limit: int
) -> float:
    """Run ranges of elements, a few first where the pace is not known; how much faster than one thread alone."""
    if limit <= 1:
        return kernel.run(ranges((0, total)))
    row = ints[kernel.source.layout.rank - 1]
    first, element = 0, kernel.pace.element
    if element is None:
        first = _aligned(kernel.pace.probe, row)
        began = perf_counter_ns()
        kernel.run(ranges((0, first)))
        element = (perf_counter_ns() - began) / first
    rest = element * (total - first)
    if not paces.is_worth_threads(rest):
        return kernel.run(ranges((first, total)))
    count = int(min(limit * _RANGES_PER_THREAD, max(2, rest // paces.RANGE_NS)))
    if count > limit:
        # As many for each thread: of three for two, one would have twice the work.
        count -= count % limit
    return kernel.run(ranges(_bounds(first, total, row, count)), limit)


@functools.lru_cache(maxsize=256)
def _bounds(first: int, total: int, row: int, count: int) -> tuple[int, ...]:
    """Where ranges begin, at most so many, and the end of the last."""
    starts = {max(first, _aligned(first + (total - first) * part // count, row)) for part in range(count)}
    return *sorted(starts), total


def _aligned(index: int, row: int) -> int:
    """The last place at or before `index` where a range may begin: in its row, a multiple of `ALIGNMENT`."""
    return index - index % row % paces.ALIGNMENT


def _run_parts(kernel: CpuKernel, work: Work, total: int, limit: int) -> float:
    """Run pieces that do not depend on the number of threads; how much faster than one thread alone."""
    first, element = 0, kernel.pace.element
    if element is None:
        began = perf_counter_ns()
        kernel.run(work, stop=1)
        first, element = 1, (perf_counter_ns() - began) * work.count / total
    if first == work.count:
        return 1
    if limit > 1 and not paces.is_worth_threads(element * total):
        limit = 1
    return kernel.run(work, limit, first)


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
