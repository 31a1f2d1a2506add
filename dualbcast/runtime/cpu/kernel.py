"""Kernels for the CPU: machine code from LLVM or from the cache, run in pieces over threads."""

from __future__ import annotations

import ctypes
import functools
import math
import os
import threading
from array import array
from collections.abc import Callable, Collection, Sequence
from operator import mul
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dualbcast import disk_cache
from dualbcast.codegen.llvm.abi import KERNEL, POLL, STOPPED
from dualbcast.codegen.llvm.target import environment
from dualbcast.codegen.loops.scratch import PARAMETERS
from dualbcast.codegen.mathlib import libm
from dualbcast.kernel_spec import KernelSource, packed, unpacked
from dualbcast.runtime.arguments import Array
from dualbcast.runtime.buffer_pool import POOL
from dualbcast.runtime.call_key import host_addresses
from dualbcast.runtime.cpu import interrupt, nontemporal_policy, thread_pool
from dualbcast.runtime.cpu.entry import Entry
from dualbcast.runtime.cpu.loader import load
from dualbcast.runtime.cpu.loops import Loop, copying, gathering, joining
from dualbcast.runtime.cpu.scratch import give_back, lend
from dualbcast.runtime.cpu.thread_pool import Work
from dualbcast.runtime.cpu.threads import get_num_threads
from dualbcast.runtime.cpu.tile_packing import Copied, Packing

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dualbcast.codegen.llvm.build import Built
    from dualbcast.runtime.reduction_blocks import Block

__all__ = ["CpuKernel", "compile_kernel", "compile_program", "enter", "is_little", "launch", "note"]

# Elements times pointers that are run first where it is not known yet how long a kernel takes: what an element costs
# varies a thousandfold. These take some microseconds at least.
_PROBE = 1 << 16
# Nanoseconds of work from which on a thread that watches is worth having: it comes in two microseconds. To wake one
# that sleeps takes the caller 12, and it comes in 10 to 100: for that, so many times the work.
WORTH_A_THREAD = 12_000
_WORTH_WAKING = 8
# Nanoseconds that a piece should take at least, if there are two.
_WORTH_A_RANGE = 10_000
# Ranges begin at a multiple of this many elements of a row: more than a vectorised loop advances in one step, so that
# which elements go through vector code, and with it every bit of the result, does not depend on the number of threads.
_ALIGNMENT = 256
# For how many ways in which arrays lie a kernel remembers its blocks or panels.
_KNOWN = 8
# So many arguments a function has at most that ctypes calls.
_MOST = 1024
# More ranges than threads, since a branch can make some elements cost more than others.
_RANGES_PER_THREAD = 4


# Machine code, and the arguments of its calls, a row for each.
_Rows: TypeAlias = "tuple[Loop, NDArray[np.int64]]"


class _Refused(Exception):
    """An entry has found an input misaligned."""


class CpuKernel:
    """A compiled kernel: a machine-code function of a range, sizes, strides and pointers.

    Calling it runs the linear indices from `start` to `stop` on the calling thread, without the GIL. Nothing is
    checked: the pointers must be valid for the sizes and strides, and no output may overlap another argument.

    Attributes
    ----------
    pace : float or None
        Nanoseconds that an element took a thread lately; None if that is not known.
    short : int
        Up to so many elements are no work for several threads, by the pace.
    is_warm : bool
        Whether it has run on few elements.
    polls : bool
        Whether it can be stopped; see `interrupt`.
    """

    def __init__(self, source: KernelSource, fastmath: bool, code: bytes) -> None:
        self.source, self.fastmath = source, fastmath
        self.polls = POLL.encode() in code
        self._address = self._load(code)
        self._streaming: dict[tuple[int, ...], int] = {}
        self._itemsizes = tuple(
            2 if dtype == "bfloat16" else np.dtype(dtype).itemsize for dtype in source.inputs + source.outputs
        )
        self._known: dict[tuple[int, int], tuple[tuple[Any, Any], _Rows]] = {}
        self.pace: float | None = None
        self.short, self.is_warm = 2 * _first(len(self._itemsizes)), False

    def __call__(self, start: int, stop: int, ints: Sequence[int], pointers: Sequence[int]) -> None:
        """Run the elements from `start` to `stop`; `ints` are the sizes and then the strides, in elements."""
        numbers = start, stop, *ints, *pointers
        if len(numbers) > _MOST:
            self.run(self.ranges((start, stop), ints, pointers))
            return
        # Slower than by a caller of `pool`, but that would be compiled, and a first call takes this way.
        if ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_int64] * len(numbers))(self._address)(*numbers):
            raise interrupt.raised()

    def _load(self, code: bytes) -> int:
        return load(code, dict(interrupt.symbols()) if self.polls else {})(KERNEL)

    def learn(self, pace: float) -> None:
        """Set the pace, in nanoseconds for an element."""
        self.pace, self.short = pace, max(2 * _ALIGNMENT - 1, int(WORTH_A_THREAD / max(pace, 1e-3)))

    def run(self, work: Work, threads: int = 1, first: int = 0, stop: int | None = None) -> float:
        """Run pieces of work, from `first` on and before `stop`, on so many threads; how much faster than alone.

        That is by what the calling thread ran of them. Another one may have come late, or not at all.
        """
        count = (work.count if stop is None else stop) - first
        length = len(work.arguments) // work.count
        own = thread_pool.share(work.address, work.arguments, length, first, count, threads)
        if own == -STOPPED:
            raise interrupt.raised()
        if own < 0:
            raise _Refused
        return count / max(1, own)

    def ranges(
        self, bounds: Sequence[int], ints: Sequence[int], pointers: Sequence[int], streamed: bool = False
    ) -> Work:
        """The work from each of `bounds` to the next; `streamed` with outputs stored past the cache.

        Both give the same bits.
        """
        address = self._past_the_cache() if streamed else self._address
        count = len(bounds) - 1
        arguments = array("q", (0, 0, *ints, *pointers))
        length = len(arguments)
        arguments *= count
        arguments[::length], arguments[1::length] = array("q", bounds[:-1]), array("q", bounds[1:])
        return Work(address, arguments, count)

    def parts(
        self,
        parts: Sequence[Block] | Packing,
        ints: Sequence[int],
        pointers: Sequence[int],
        total: int,
        threads: int,
    ) -> Work:
        """The work of blocks, of a kernel that sums, or of panels; `pointers` are those of the whole space."""
        loop, numbers = self._remembered(
            (parts, ints),
            lambda: self._panels(parts, ints, total) if isinstance(parts, Packing) else self._blocks(parts, total),
        )
        # What rounding takes from sums is for panels that add up terms of float64, and for kernels that add up.
        kept = sum(self._itemsizes[at] == 8 for at, _ in parts.sums) if isinstance(parts, Packing) else 0
        return _work(loop, numbers, pointers[: len(self._itemsizes) + kept], threads)

    def copies(self, packing: Packing, pointers: Sequence[int], threads: int) -> tuple[list[int], tuple[Array, ...]]:
        """The pointers with those of contiguous copies for some inputs, and the copies, which must live until then."""
        sizes = tuple([self._itemsizes[at] for at in packing.inputs])
        total = math.prod(packing.sizes)
        arrays = tuple([POOL.empty((total * size,), np.dtype(np.uint8)) for size in sizes])
        places = host_addresses(arrays)
        loop, numbers = self._remembered(
            (packing, None), lambda: _gathered(packing, copying(sizes), sizes, range(len(sizes)), (), 2 * len(sizes))
        )
        work = _work(loop, numbers, [*[pointers[at] for at in packing.inputs], *places], threads)
        self.run(work, threads)
        _end(work)
        replaced = dict(zip(packing.inputs, places, strict=True))
        return [replaced.get(at, pointer) for at, pointer in enumerate(pointers)], arrays

    def _remembered(self, given: tuple[Any, Any], make: Callable[[], _Rows]) -> _Rows:
        """What was made for two objects, if that is not long ago. Arrays that lie in a few ways, by turns, are no
        reason to make it anew."""
        key = id(given[0]), id(given[1])
        known = self._known.get(key)
        if known is None:
            # With the objects, so that a key is of one thing only.
            known = given, make()
            self._known = {**dict([*self._known.items()][1 - _KNOWN :]), key: known}
        return known[1]

    def _blocks(self, blocks: Sequence[Block], total: int) -> _Rows:
        """The arguments of each block, without the pointers that its offsets are from."""
        rows = [(*block.ints, *map(mul, block.offsets, self._itemsizes)) for block in blocks]
        return Loop(self._for(total), 0), np.array(rows, np.int64)

    def _panels(self, packing: Packing, ints: Sequence[int], total: int) -> _Rows:
        kernel = self._for(total, tuple([at for at, _ in packing.sums]))
        sizes = tuple([self._itemsizes[at] for at in packing.inputs])
        terms = tuple([(at, over, self._itemsizes[at]) for at, over in packing.sums])
        return _gathered(packing, kernel, sizes, packing.inputs, ints, len(self._itemsizes), terms)

    def goes_past_the_cache(self, total: int) -> bool:
        """Whether a launch is one for streamed ranges."""
        # Only vectors are stored past the cache.
        return self.source.vectors > 0 and nontemporal_policy.goes_past_the_cache(
            self.source.layout, total, self._itemsizes, len(self.source.inputs)
        )

    def _for(self, total: int, terms: tuple[int, ...] = ()) -> int:
        """The address of the kernel for so many elements, where some pointers are of terms that are read at once."""
        return self._past_the_cache(terms) if self.goes_past_the_cache(total) else self._address

    def _past_the_cache(self, terms: tuple[int, ...] = ()) -> int:
        """The address of the kernel that stores past the cache, made for the first launch that wants it."""
        found = self._streaming.get(terms)
        if found is None:
            with _compile_lock:
                found = self._streaming.get(terms)
                if found is None:
                    key = disk_cache.key("past the cache", repr(terms), _key(self.source, self.fastmath))
                    first = len(self.source.inputs)
                    outputs = range(first, len(self.source.layout.which))
                    stored = {at for at in outputs if at - first not in self.source.summed} - {*terms}
                    code = disk_cache.fetch(
                        key, lambda: _build(self.source, self.fastmath, streamed=stored).object_file()
                    )
                    found = self._streaming[terms] = self._load(code)
        return found

    def entry(self, total: int, ints: Sequence[int], masks: tuple[int, ...]) -> Entry:
        """The short way to run so many elements of NumPy arrays; see `Entry`."""
        return Entry(self._for(total), total, ints, masks, len(self.source.outputs))

    def llvm(self) -> str:
        """The optimised LLVM IR (compiled anew)."""
        return _build(self.source, self.fastmath).llvm

    def asm(self) -> str:
        """The assembly of the host (compiled anew)."""
        return _build(self.source, self.fastmath).asm


def _gathered(
    packing: Packing,
    kernel: int,
    sizes: tuple[int, ...],
    packed: Sequence[int],
    ints: Sequence[int],
    count: int,
    sums: tuple[tuple[int, str, int], ...] = (),
) -> _Rows:
    """A loop that gathers, and its arguments for each panel: `kernel` takes `ints` and `count` pointers, of which those
    in `packed` are of the packed inputs, of elements of `sizes`; for pointers there are the offsets from them. Those in
    `sums` are of sums, over what, of terms of so many bytes; see `joining`."""
    down = packing.down
    ways = [(down - 1, down, -1) if packing.plane else (down, down, -1)] if packing.joined else [(down, -1)]
    steps = [row[at] * size for row, size in zip(packing.strides, sizes, strict=True) for way in ways for at in way]
    panels = packing.table()
    kept = [at for at, (_, _, size) in enumerate(sums) if size == 8]
    first = 5 + len(steps) + len(ints)
    rows = np.zeros((len(panels), first + count + len(kept) + len(PARAMETERS)), np.int64)
    rows[:, 0], rows[:, 1:5] = kernel, panels[:, :4]
    rows[:, 5:first] = [*steps, *ints]
    offsets = rows[:, first:]
    offsets[:, list(packed)] = panels[:, 4:] * sizes
    if not packing.joined:
        return gathering(len(ints), count, tuple(packed), sizes, (packing.most, packing.columns)), rows
    rows[:, 2] = packing.plane or panels[:, 2]
    numbers = np.arange(len(panels))
    places = {"rows": numbers * packing.columns, "columns": panels[:, 0] // packing.columns, "all": numbers}
    for at, over, _ in sums:
        offsets[:, at] = 8 * places[over]  # of float64
    for place, at in enumerate(kept, count):
        offsets[:, place] = offsets[:, sums[at][0]]
    return joining(len(ints), count, tuple(packed), sizes, sums), rows


def _work(loop: Loop, rows: NDArray[np.int64], pointers: Sequence[int], threads: int) -> Work:
    """The work of rows of arguments that end with offsets from these pointers, and from what the loop works in."""
    scratch, ends = None, [*pointers]
    if loop.room:
        scratch, places = lend(loop.room, min(threads, len(rows)))
        ends += [scratch.address, places]
    arguments = rows + np.array([*[0] * (rows.shape[1] - len(ends)), *ends])
    return Work(loop.address, arguments.reshape(-1), len(rows), scratch)


def _end(work: Work) -> None:
    """What becomes of what work had, which is done to the end."""
    if work.scratch is not None:
        give_back(work.scratch)


def compile_kernel(source: KernelSource, fastmath: bool) -> CpuKernel:
    """The kernel of `source`: from this process, else from the cache on disk, else compiled by LLVM.

    Parameters
    ----------
    source : KernelSource
        Text and signature.
    fastmath : bool
        Allow fused multiply-adds, reciprocals and approximations, and ignore the sign of zero; NaN and infinities keep
        their meaning. Without it arithmetic is IEEE's, operation by operation.
    """
    wanted = source, fastmath
    kernel = _kernels.get(wanted)
    if kernel is None:
        with _compile_lock:
            kernel = _kernels.get(wanted)
            if kernel is None:
                code = disk_cache.fetch(_key(source, fastmath), lambda: _build(source, fastmath).object_file())
                kernel = _kernels[wanted] = CpuKernel(source, fastmath, code)
    return kernel


def compile_program(key: str, write: Callable[[], KernelSource], fastmath: bool) -> CpuKernel:
    """The kernel of a program: from the cache on disk, else compiled from the text that `write` gives.

    Parameters
    ----------
    key : str
        What stands for the program and its layout; if empty, the text does.
    write : callable
    fastmath : bool
        As for `compile_kernel`.
    """
    if not key:
        return compile_kernel(write(), fastmath)

    def make() -> bytes:
        source = write()
        return packed(source, _build(source, fastmath).object_file())

    with _compile_lock:
        source, code = unpacked(disk_cache.fetch(disk_cache.key("cpu", key, repr(fastmath), _environment()), make))
        kernel = _kernels.get((source, fastmath))
        if kernel is None:
            kernel = _kernels[source, fastmath] = CpuKernel(source, fastmath, code)
    return kernel


def launch(
    kernel: CpuKernel,
    total: int,
    ints: Sequence[int],
    pointers: Sequence[int],
    threads: int | None = None,
    blocks: Sequence[Block] | Copied | Packing | None = None,
) -> None:
    """Run all `total` elements, over the threads of one lasting pool where that pays; return when all are done.

    The result does not depend on the number of threads, to the last bit.

    Parameters
    ----------
    kernel : CpuKernel
        What to run.
    total : int
        Size of the iteration space.
    ints, pointers : sequence of int
        As for `CpuKernel.__call__`.
    threads : int, optional
        At most so many threads, this one among them; `get_num_threads()` if not given.
    blocks : sequence of Block, Copied or Packing, optional
        What is run instead of ranges of elements where the kernel sums, or has packed inputs.
    """
    if total <= 0:
        return
    if interrupt.cancelled:
        interrupt.begin()
    began = perf_counter_ns()
    if blocks is None and total <= kernel.short:
        kernel(0, total, ints, pointers)
        # The first time code and outputs are not in the cache, nor, perhaps, in memory.
        if kernel.is_warm and perf_counter_ns() - began >= WORTH_A_THREAD:
            note(kernel, began, 1.0, total)
        kernel.is_warm = True
        return
    limit = threads or get_num_threads()
    if isinstance(blocks, Copied):
        pointers, _kept = kernel.copies(blocks.inputs, pointers, limit)
        blocks = blocks.blocks
        began = perf_counter_ns()
    if blocks is not None:
        work = kernel.parts(blocks, ints, pointers, total, limit)
        faster = _run_parts(kernel, work, total, limit)
        _end(work)
    else:
        streamed = kernel.goes_past_the_cache(total)
        row = ints[kernel.source.layout.rank - 1]

        def ranges(bounds: tuple[int, ...]) -> Work:
            return kernel.ranges(bounds, ints, pointers, streamed)

        faster = _run_ranges(kernel, total, row, _first(len(pointers)), ranges, limit)
    note(kernel, began, faster, total)


def enter(
    kernel: CpuKernel,
    entry: Entry,
    total: int,
    ints: Sequence[int],
    inputs: tuple[Array, ...],
    outputs: tuple[Array, ...],
) -> bool:
    """The same by an entry, where there are no blocks, and elements are not few; False where it refuses."""

    def ranges(bounds: tuple[int, ...]) -> Work:
        return entry.ranges(bounds, inputs, outputs)

    row, began = ints[kernel.source.layout.rank - 1], perf_counter_ns()
    try:
        faster = _run_ranges(kernel, total, row, _first(len(inputs) + len(outputs)), ranges, get_num_threads())
    except _Refused:
        return False
    note(kernel, began, faster, total)
    return True


def is_little(total: int) -> bool:
    """Whether so many elements are never work for several threads, whatever one takes: there would be one range."""
    return total < 2 * _ALIGNMENT


def _first(pointers: int) -> int:
    return max(_ALIGNMENT, _PROBE // pointers)


def _is_worth_threads(work: float) -> bool:
    """Whether so many nanoseconds of work are worth other threads: one that watches, or else to wake one.

    If launches take as long as what is between them, the next ones will find it awake.
    """
    if work < WORTH_A_THREAD:
        return False
    return thread_pool.is_watched() or work >= min(_WORTH_WAKING * WORTH_A_THREAD, perf_counter_ns() - _ended)


def note(kernel: CpuKernel, began: int, faster: float, total: int) -> None:
    """What a launch has shown of so many elements, which was so many times as fast as by one thread alone."""
    global _ended
    _ended = perf_counter_ns()
    took, known = _ended - began, kernel.pace
    pace = took * faster / total
    # Of a short one most is the launch itself: an element takes no longer than that.
    kernel.learn(pace if known is None or took >= WORTH_A_THREAD else min(pace, known))


def _run_ranges(
    kernel: CpuKernel, total: int, row: int, few: int, ranges: Callable[[tuple[int, ...]], Work], limit: int
) -> float:
    """Run ranges of elements, `few` first where their pace is not known; how much faster than one thread alone."""
    if limit <= 1:
        return kernel.run(ranges((0, total)))
    first, pace = 0, kernel.pace
    if pace is None:
        first = _aligned(few, row)
        began = perf_counter_ns()
        kernel.run(ranges((0, first)))
        pace = (perf_counter_ns() - began) / first
    rest = pace * (total - first)
    if not _is_worth_threads(rest):
        return kernel.run(ranges((first, total)))
    count = int(min(limit * _RANGES_PER_THREAD, max(2, rest // _WORTH_A_RANGE)))
    if count > limit:
        # As many for each thread: of three for two, one would have twice the work.
        count -= count % limit
    return kernel.run(ranges(_bounds(first, total, row, count)), limit)


@functools.lru_cache(maxsize=256)
def _bounds(first: int, total: int, row: int, count: int) -> tuple[int, ...]:
    """Where ranges begin, at most so many, and the end of the last."""
    starts = {max(first, _aligned(first + (total - first) * part // count, row)) for part in range(count)}
    return *sorted(starts), total


def _run_parts(kernel: CpuKernel, work: Work, total: int, limit: int) -> float:
    """The same of work whose pieces do not depend on the number of threads, nor does what becomes of them."""
    first, pace = 0, kernel.pace
    if pace is None:
        began = perf_counter_ns()
        kernel.run(work, stop=1)
        first, pace = 1, (perf_counter_ns() - began) * work.count / total
    if first == work.count:
        return 1
    if limit > 1 and not _is_worth_threads(pace * total):
        limit = 1
    return kernel.run(work, limit, first)


def _aligned(index: int, row: int) -> int:
    """The last place at or before `index` where a range may begin: in its row, a multiple of `_ALIGNMENT`."""
    return index - index % row % _ALIGNMENT


def _build(source: KernelSource, fastmath: bool, streamed: Collection[int] = ()) -> Built:
    from dualbcast.codegen.llvm import build as llvm_build

    path = disk_cache.write_text(f"{source.element}_{disk_cache.key(source.text)[:16]}.py", source.text)
    return llvm_build.build(source, fastmath, path, libm.has_libmvec(), streamed)


def _key(source: KernelSource, fastmath: bool) -> str:
    return disk_cache.key("cpu", source.identity, repr(fastmath), _environment())


@functools.cache
def _environment() -> str:
    """Everything beside the source that the machine code depends on."""
    return repr([np.__version__, libm.has_libmvec(), environment()])


def _renew_after_fork() -> None:
    # A lock may have been held by a thread that is not there any more.
    global _compile_lock
    _compile_lock = threading.RLock()


# When the last launch ended.
_ended = 0
_kernels: dict[tuple[KernelSource, bool], CpuKernel] = {}
_compile_lock = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_after_fork)
