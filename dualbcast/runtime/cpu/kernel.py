"""Kernels for the CPU: machine code from LLVM or from the cache on disk, loaded into the process."""

from __future__ import annotations

import ctypes
import functools
from array import array
from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from dualbcast import disk_cache
from dualbcast.codegen.llvm import target
from dualbcast.codegen.llvm.target import KERNEL, LOCK, POLL, environment
from dualbcast.codegen.loops.calls import write_array_call
from dualbcast.kernel_spec import KernelSource, packed, unpacked
from dualbcast.runtime.arguments import HEADER, Array
from dualbcast.runtime.cpu import interrupt, policy, thread_pool
from dualbcast.runtime.cpu.loader import compiled, load
from dualbcast.runtime.cpu.policy import Pace
from dualbcast.runtime.cpu.thread_pool import Work

if TYPE_CHECKING:
    from dualbcast.codegen.llvm.build import Built

# The most arguments of a function that ctypes calls.
_CTYPES_ARGUMENTS = 1024
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
        numbers = [number for start, stop in pairwise(bounds) for number in (*given, start, stop)]
        return Work(self._address, array("q", numbers), len(bounds) - 1)


class CpuKernel:
    """A compiled kernel: a machine-code function of a range, sizes, strides and pointers.

    Calling it runs the linear indices from `start` to `stop` on the calling thread, without the GIL. Nothing is
    checked: the pointers must be valid for the sizes and strides, and no output may overlap another argument.
    `itemsizes` are the bytes of an element of each pointer argument; `polls` says whether `interrupt` can stop it.
    """

    def __init__(self, source: KernelSource, fastmath: bool, code: bytes) -> None:
        self.source, self.fastmath = source, fastmath
        self.polls = POLL.encode() in code
        self._address = self._load(code)
        self._streaming: dict[tuple[int, ...], int] = {}
        self.itemsizes = tuple(
            2 if dtype == "bfloat16" else np.dtype(dtype).itemsize for dtype in source.inputs + source.outputs
        )
        self.pace = Pace(max(2 * policy.ALIGNMENT, policy.FEW // len(self.itemsizes)))

    def __call__(self, start: int, stop: int, ints: Sequence[int], pointers: Sequence[int]) -> None:
        """Run the elements from `start` to `stop`; `ints` are the sizes and then the strides, in elements."""
        numbers = start, stop, *ints, *pointers
        if len(numbers) > _CTYPES_ARGUMENTS:
            thread_pool.run(self.ranges((start, stop), ints, pointers))
        # Slower than by a caller of `thread_pool`, but that would be compiled, and a first call takes this way.
        elif ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_int64] * len(numbers))(self._address)(*numbers):
            raise interrupt.raised()

    def _load(self, code: bytes) -> int:
        return load(code, dict(interrupt.symbols()) if self.polls else {})(KERNEL)

    def ranges(
        self, bounds: Sequence[int], ints: Sequence[int], pointers: Sequence[int], streamed: bool = False
    ) -> Work:
        """The work from each of `bounds` to the next; `streamed` with outputs stored past the cache: the same bits."""
        address = self._past_the_cache() if streamed else self._address
        count = len(bounds) - 1
        arguments = array("q", (0, 0, *ints, *pointers))
        length = len(arguments)
        arguments *= count
        arguments[::length], arguments[1::length] = array("q", bounds[:-1]), array("q", bounds[1:])
        return Work(address, arguments, count)

    def goes_past_the_cache(self, total: int) -> bool:
        """Whether a launch of so many elements stores its outputs past the cache."""
        # Only vectors are stored past the cache.
        return self.source.vectors > 0 and policy.goes_past_the_cache(
            self.source.layout, total, self.itemsizes, len(self.source.inputs)
        )

    def address(self, total: int, terms: tuple[int, ...] = ()) -> int:
        """The address of the machine code for so many elements; some pointers are of terms that are read at once."""
        return self._past_the_cache(terms) if self.goes_past_the_cache(total) else self._address

    def _past_the_cache(self, terms: tuple[int, ...] = ()) -> int:
        """The address of the code that stores past the cache, made for the first launch that wants it."""
        if terms not in self._streaming:
            source, fastmath, first = self.source, self.fastmath, len(self.source.inputs)
            key = disk_cache.key("past the cache", repr(terms), _key(source.identity, fastmath))
            outputs = range(first, len(source.layout.which))
            stored = {at for at in outputs if at - first not in source.summed} - {*terms}
            with LOCK:
                code = disk_cache.fetch(key, lambda: _build(source, fastmath, streamed=stored).object_file())
                self._streaming[terms] = self._load(code)
        return self._streaming[terms]

    def llvm(self) -> str:
        """The optimised LLVM IR (compiled anew)."""
        return _build(self.source, self.fastmath).llvm

    def asm(self) -> str:
        """The assembly of the host (compiled anew)."""
        return _build(self.source, self.fastmath).asm


def compile_kernel(source: KernelSource, fastmath: bool) -> CpuKernel:
    """The kernel of a text; see `compile_program`."""
    return compile_program("", lambda: source, fastmath)


def compile_program(key: str, write: Callable[[], KernelSource], fastmath: bool) -> CpuKernel:
    """The kernel of a program: from this process, else from the cache on disk, else compiled by LLVM.

    `key` stands for the program and its layout; if it is empty, the text does, which `write` gives. `fastmath` allows
    fused multiply-adds, reciprocals and approximations, and ignores the sign of zero; NaN and infinities keep their
    meaning. Without it arithmetic is IEEE's, operation by operation.
    """
    if not key:
        text = write()
        key, write = text.identity, lambda: text

    def make() -> bytes:
        source = write()
        return packed(source, _build(source, fastmath).object_file())

    entry = _key(key, fastmath)
    with LOCK:
        kernel = _kernels.get(entry)
        if kernel is None:
            source, code = unpacked(disk_cache.fetch(entry, make))
            kernel = _kernels[entry] = CpuKernel(source, fastmath, code)
    return kernel


def _build(source: KernelSource, fastmath: bool, streamed: Collection[int] = ()) -> Built:
    from dualbcast.codegen.llvm import build as llvm_build

    path = disk_cache.write_text(f"{source.element}_{disk_cache.key(source.text)[:16]}.py", source.text)
    return llvm_build.build(source, fastmath, path, target.has_libmvec(), streamed)


def _key(program: str, fastmath: bool) -> str:
    """The key of a kernel, in the process and on disk."""
    return disk_cache.key("cpu", program, repr(fastmath), _environment())


@functools.cache
def _environment() -> str:
    """Everything beside the program that the machine code depends on."""
    return repr([np.__version__, target.has_libmvec(), environment()])


# Code is never unloaded: equal programs share it.
_kernels: dict[str, CpuKernel] = {}
