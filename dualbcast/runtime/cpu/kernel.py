"""Kernels for the CPU: machine code from LLVM or from the cache on disk, loaded into the process; their launches, in
pieces over the threads of a pool where that pays; and the fast path from arrays of known forms.

The result does not depend on the number of threads, to the last bit.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
from array import array
from collections.abc import Callable, Collection, Sequence
from operator import and_
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import empty

from dualbcast import disk_cache
from dualbcast.codegen.llvm.target import KERNEL, LOCK, POLL, STOPPED, environment
from dualbcast.codegen.loops.calls import write_array_call, write_conflict
from dualbcast.kernel_spec import KernelSpec, packed, unpacked
from dualbcast.runtime.arguments import HEADER, Array, host_addresses, is_writeable, on_host
from dualbcast.runtime.cpu import interrupt, policy, thread_pool
from dualbcast.runtime.cpu.loader import compiled, load
from dualbcast.runtime.cpu.pieces import Packing, block_work, contiguous_copies, panel_work
from dualbcast.runtime.cpu.policy import Pace
from dualbcast.runtime.cpu.thread_pool import Work
from dualbcast.runtime.launch_plan import FastPath, Plan, aside_of, fresh, is_pooled
from dualbcast.runtime.reduction_blocks import Split

if TYPE_CHECKING:
    from dualbcast.codegen.llvm.build import Built
    from dualbcast.codegen.program import KernelProgram

    _Make = Callable[[], KernelProgram]

# The most arguments of a function that ctypes calls.
_CTYPES_ARGUMENTS = 1024
# More ranges than threads, since a branch can make some elements cost more than others.
_RANGES_PER_THREAD = 4
# Where the items of a tuple begin, in bytes.
_ITEMS = tuple.__basicsize__
_PROTOTYPE = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 3, *[ctypes.c_int64] * 2)


class ArrayCall:
    """A kernel with all its arguments but the arrays and the range.

    `run` takes `head`, the `id` of two tuples of NumPy arrays, inputs and outputs, and a range. The tuples must live
    until it is done. It runs the kernel without the GIL, and returns its status, 0 after a success, or `MISALIGNED`
    where an input's address has one of the bits of its mask, and the kernel has not run.

    To hand twenty numbers over by way of ctypes takes 2.5 microseconds, longer than a kernel takes on small arrays. For
    two tuples, which machine code reads the addresses from, it is 0.5.
    """

    __slots__ = ("_address", "_numbers", "head", "run")

    def __init__(self, kernel: int, ints: Sequence[int], masks: tuple[int, ...], outputs: int) -> None:
        head = kernel, *ints
        self._numbers = (ctypes.c_int64 * len(head))(*head)
        self.head = ctypes.addressof(self._numbers)
        self._address = compiled("array_call", write_array_call, len(ints), masks, outputs, _ITEMS, HEADER)
        self.run: Callable[..., int] = _PROTOTYPE(self._address)

    def ranges(self, bounds: tuple[int, ...], inputs: tuple[Array, ...], outputs: tuple[Array, ...]) -> Work:
        """The work from each of `bounds` to the next; the tuples must live until it is done."""
        given = self.head, id(inputs), id(outputs)
        numbers = [number for start, stop in itertools.pairwise(bounds) for number in (*given, start, stop)]
        return Work(self._address, array("q", numbers), len(bounds) - 1)


class CpuKernel:
    """A compiled kernel: a machine-code function of a range, sizes, strides and pointers.

    Calling it runs the linear indices from `start` to `stop` on the calling thread, without the GIL. Nothing is
    checked: the pointers must be valid for the sizes and strides, and no output may overlap another argument.
    `itemsizes` are the bytes of an element of each pointer argument; `polls` says whether `interrupt` can stop it. It
    cannot where the kernel is to be `detached` from the interpreter, whose lock it then never takes.
    """

    def __init__(
        self, key: str, spec: KernelSpec, fastmath: bool, code: bytes, make: _Make, detached: bool = False
    ) -> None:
        self.key, self.spec, self.fastmath, self._make = key, spec, fastmath, make
        self._has_polls, self._is_detached = POLL.encode() in code, detached
        self.polls = self._has_polls and not detached
        self._address = self._load(code)
        self.itemsizes = tuple(
            2 if dtype == "bfloat16" else np.dtype(dtype).itemsize for dtype in spec.inputs + spec.outputs
        )
        self.pace = Pace(max(2 * policy.ALIGNMENT, policy.FEW // len(self.itemsizes)))

    def __call__(self, start: int, stop: int, ints: Sequence[int], pointers: Sequence[int]) -> None:
        """Run the elements from `start` to `stop`; `ints` are the sizes and then the strides, in elements."""
        numbers = start, stop, *ints, *pointers
        if len(numbers) > _CTYPES_ARGUMENTS:
            thread_pool.run(self.ranges(self._address, (start, stop), ints, pointers))
        # Slower than by a caller of `thread_pool`, but that would be compiled, and a first call takes this way.
        elif ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_int64] * len(numbers))(self._address)(*numbers):
            raise interrupt.raised()

    def _load(self, code: bytes) -> int:
        spec, symbols = self.spec, dict[str, int]()
        if self._has_polls:
            symbols = dict(interrupt.no_symbols() if self._is_detached else interrupt.symbols())
        label = f"dualbcast:{spec.element}:{len(spec.inputs)}_to_{len(spec.outputs)}:{spec.dtype}"
        return load(code, symbols, label)(KERNEL)

    def ranges(self, address: int, bounds: Sequence[int], ints: Sequence[int], pointers: Sequence[int]) -> Work:
        """The work from each of `bounds` to the next, by the machine code at an `address`."""
        count = len(bounds) - 1
        arguments = array("q", (0, 0, *ints, *pointers))
        length = len(arguments)
        arguments *= count
        arguments[::length], arguments[1::length] = array("q", bounds[:-1]), array("q", bounds[1:])
        return Work(address, arguments, count)

    def goes_past_the_cache(self, total: int) -> bool:
        """Whether a launch of so many elements stores its outputs past the cache."""
        # Only vectors are stored past the cache.
        return self.spec.vectors > 0 and policy.goes_past_the_cache(
            self.spec.layout, total, self.itemsizes, len(self.spec.inputs)
        )

    @functools.lru_cache(maxsize=1024)  # noqa: B019 (a kernel lives as long as the process)
    def address(self, total: int, terms: tuple[int, ...] = ()) -> int:
        """The address of the machine code for so many elements; some pointers are of terms that are read at once."""
        return self._past_the_cache(terms) if self.goes_past_the_cache(total) else self._address

    @functools.cache  # noqa: B019
    def _past_the_cache(self, terms: tuple[int, ...] = ()) -> int:
        """The address of the code that stores past the cache, made for the first launch that wants it."""
        spec, first = self.spec, len(self.spec.inputs)
        outputs = range(first, len(spec.layout.which))
        stored = {at for at in outputs if at - first not in spec.summed} - {*terms}
        with LOCK:
            key = disk_cache.key("past the cache", repr(terms), self.key)
            return self._load(disk_cache.fetch(key, lambda: self._build(stored).object_file()))

    def _build(self, streamed: Collection[int] = ()) -> Built:
        return _build(self._make(), self.fastmath, streamed)

    def llvm(self) -> str:
        """The optimised LLVM IR (compiled anew)."""
        return self._build().llvm

    def asm(self) -> str:
        """The assembly of the host (compiled anew)."""
        return self._build().asm


def compile_kernel(program: KernelProgram, fastmath: bool) -> CpuKernel:
    """The kernel of a program; see `compile_program`."""
    return compile_program("", lambda: program, fastmath)


def compile_program(key: str, make: _Make, fastmath: bool, detached: bool = False) -> CpuKernel:
    """The kernel of a program: from this process, else from the cache on disk, else compiled by LLVM.

    `key` stands for the program and its layout; if it is empty, the program that `make` gives does. `fastmath` allows
    fused multiply-adds, reciprocals and approximations, and ignores the sign of zero; NaN and infinities keep their
    meaning. Without it arithmetic is IEEE's, operation by operation. For `detached` see `CpuKernel`.
    """
    if key:
        make = functools.cache(make)
    else:
        program = make()
        key, make = program.identity, lambda: program

    def entry() -> bytes:
        program = make()
        return packed(program.spec, _build(program, fastmath).object_file())

    key = _key(key, fastmath)
    kernels = _detached if detached else _kernels
    with LOCK:
        kernel = kernels.get(key)
        if kernel is None:
            spec, code = unpacked(KernelSpec, disk_cache.fetch(key, entry))
            kernel = kernels[key] = CpuKernel(key, spec, fastmath, code, make, detached)
    return kernel


def _build(program: KernelProgram, fastmath: bool, streamed: Collection[int] = ()) -> Built:
    from dualbcast.codegen.llvm import build as llvm_build

    return llvm_build.build(program, fastmath, streamed)


def _key(program: str, fastmath: bool) -> str:
    """The key of a kernel, in the process and on disk."""
    return disk_cache.key("cpu", program, repr(fastmath), _environment())


@functools.cache
def _environment() -> str:
    """Everything beside the program that the machine code depends on."""
    return repr([np.__version__, environment()])


# Code is never unloaded: equal programs share it.
_kernels: dict[str, CpuKernel] = {}
_detached: dict[str, CpuKernel] = {}


# ---- launches --------------------------------------------------------------------------------------------------------


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
        if pace.is_warm and perf_counter_ns() - began >= policy.THREAD_NS:
            pace.note(began, 1.0, total)
        pace.is_warm = True
        return
    threads = policy.threads_for(pace, total, threads)
    if split is not None and blocks:
        if packing is not None:
            pointers, _copies = contiguous_copies(kernel.itemsizes, packing, pointers, threads)
            began = perf_counter_ns()
        work = block_work(kernel.address(total), kernel.itemsizes, split, pointers)
    elif packing is not None:
        address = kernel.address(total, tuple([at for at, _ in packing.sums]))
        work = panel_work(address, kernel.itemsizes, packing, tuple(ints), pointers, threads)
    else:
        run_ranges(kernel, total, ints, pointers, threads)
        return
    pace.note(began, thread_pool.run(work, threads), total)


def run_ranges(kernel: CpuKernel, total: int, ints: Sequence[int], pointers: Sequence[int], threads: int) -> None:
    """The same on so many threads, for a kernel that neither sums nor has packed inputs."""
    work = kernel.ranges(kernel.address(total), _bounds_for(kernel, total, ints, threads), ints, pointers)
    began = perf_counter_ns()
    kernel.pace.note(began, thread_pool.run(work, threads), total)


def _bounds_for(kernel: CpuKernel, total: int, ints: Sequence[int], threads: int) -> tuple[int, ...]:
    """Where the ranges of a launch begin, and the end of the last."""
    if threads == 1:
        return 0, total
    count = int(min(threads * _RANGES_PER_THREAD, max(2, kernel.pace.element * total / policy.RANGE_NS)))
    if count > threads:
        # As many for each thread: of three for two, one would have twice the work.
        count -= count % threads
    return aligned_bounds(total, ints[kernel.spec.layout.rank - 1], count)


@functools.lru_cache(maxsize=256)
def aligned_bounds(total: int, row: int, count: int) -> tuple[int, ...]:
    """Where ranges begin, at most so many, and the end of the last.

    A range begins at a multiple of `ALIGNMENT` in its row.
    """
    indices = [total * part // count for part in range(count)]
    return *sorted({index - index % row % policy.ALIGNMENT for index in indices}), total


@functools.cache
def _conflict() -> Any:
    """Whether a kernel may be unable to write to the arrays of `out=`; see `write_conflict`."""
    return _PROTOTYPE(compiled("conflict", write_conflict, _ITEMS, HEADER))


class CpuFastPath(FastPath):
    """The fast path of calls on NumPy's arrays and numbers."""

    def __init__(self, planned: Plan, kernel: CpuKernel, results: Any, earlier: FastPath | None) -> None:
        super().__init__(planned, kernel, results, earlier)
        operands, geometry = planned.operands, planned.geometry
        self._names, self._signature = operands.names, operands.signature
        self._numbers = tuple([(at, operands.signature.tokens[at]) for at in operands.numbers])
        # The bits that the address of each input must not have.
        self.masks = tuple([array.itemsize - 1 for array in operands.arrays])
        self._is_in_parts = geometry.split is not None or geometry.packing is not None
        # So few elements are one range at any pace, and no clock is read for them.
        self._is_one_range = not self._is_in_parts and geometry.total < 2 * policy.ALIGNMENT
        self._total = geometry.total
        self._call: ArrayCall | None = None
        if self._fit is not None:
            pairs = zip(self._fit.extents, self._fit.forms, strict=True)
            spans = [(*extent, dtype.itemsize - 1) for extent, (_, _, dtype) in pairs]
            self._spans = (ctypes.c_int64 * (3 * len(spans)))(*itertools.chain.from_iterable(spans))
        # The shape in memory of new outputs that are no sums and not large, and the axes to transpose them by.
        is_special = geometry.split is not None or is_pooled(geometry, len(planned.dtypes))
        self._memory = None if is_special else geometry.memory

    def run(self, values: tuple[Array, ...], out: tuple[Array, ...] = ()) -> tuple[Array, ...] | None:
        if self._numbers:
            values = self.as_arrays(values)
        dtypes = self.dtypes
        if self._fit is not None:
            # Machine code compares what arrays span. Where that meets, they may still lie between each other.
            if (
                not self.writes_new
                and _conflict()(self._spans, id(values), id(out), len(values), len(out))
                and (not all(map(is_writeable, out)) or aside_of(self._fit, host_addresses((*values, *out))))
            ):
                return None
            outputs = targets = out
        elif self._memory is None:
            outputs, targets = self.new_outputs()
        else:
            lengths, axes = self._memory
            arrays = [empty(lengths, dtype) for dtype in dtypes]
            outputs = targets = tuple(arrays if axes is None else [y.transpose(axes) for y in arrays])
        if interrupt.cancelled:
            interrupt.begin()
        run = self._run_range if self._is_one_range else self._launch
        if not run(values, targets):
            return None
        return outputs if self._shapes is None else self.finished(outputs, targets)

    def as_arrays(self, values: tuple[Any, ...]) -> tuple[Array, ...]:
        """The values with arrays in the place of numbers."""
        arrays = list(values)
        for at, token in self._numbers:
            arrays[at] = on_host(arrays[at], token, self._signature, self._names[at])
        return tuple(arrays)

    @property
    def is_for_batches(self) -> bool:
        """Whether `Batch` can run such calls."""
        return self._fit is None and self.geometry.packing is None

    def new_outputs(self) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """New outputs, and all that the kernel writes; see `fresh`."""
        return fresh(self.geometry, self.dtypes, self._compute, np)

    def _launch(self, values: tuple[Array, ...], targets: tuple[Array, ...]) -> bool:
        """Run the elements; False where an input is misaligned, and nothing has run.

        The strides are whole numbers of elements, as they were at the first call; the addresses are looked at.
        """
        geometry, kernel = self.geometry, self.kernel
        total, pace = geometry.total, kernel.pace
        if self._is_in_parts:
            pointers = host_addresses((*values, *targets))
            if any(map(and_, pointers, self.masks)):
                return False
            launch(kernel, total, geometry.ints, pointers, None, geometry.packing, geometry.split)
            return True
        began = perf_counter_ns()
        threads = policy.threads_for(pace, total)
        if threads == 1:
            is_aligned = self._run_range(values, targets)
            if perf_counter_ns() - began >= policy.THREAD_NS:
                pace.note(began, 1.0, total)
            return is_aligned
        call = self._call or self._make_call()
        bounds = _bounds_for(kernel, total, geometry.ints, threads)
        work = call.ranges(bounds, values, targets)
        began = perf_counter_ns()
        faster = thread_pool.run(work, threads)
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
        geometry, kernel = self.geometry, self.kernel
        address, outputs = kernel.address(geometry.total), len(kernel.spec.outputs)
        call = self._call = ArrayCall(address, geometry.ints, self.masks, outputs)
        return call
