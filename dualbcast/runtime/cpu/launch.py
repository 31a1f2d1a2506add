"""Launches of CPU kernels: elements are run in pieces, over the threads of a pool where that pays.

The result does not depend on the number of threads, to the last bit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING

from dualbcast.runtime.arguments import Array
from dualbcast.runtime.cpu import interrupt
from dualbcast.runtime.cpu import pace as paces
from dualbcast.runtime.cpu.array_call import ArrayCall
from dualbcast.runtime.cpu.kernel import CpuKernel, Misaligned
from dualbcast.runtime.cpu.pieces import contiguous_copies, give_back_scratch, part_work
from dualbcast.runtime.cpu.thread_pool import Work
from dualbcast.runtime.cpu.threads import get_num_threads
from dualbcast.runtime.cpu.tile_packing import Copied, Packing

if TYPE_CHECKING:
    from dualbcast.runtime.reduction_blocks import Block

__all__ = ["launch", "launch_array_call"]

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
