"""Kernels for the CPU: machine code from Numba or from the cache, loaded with llvmlite, run in ranges over threads."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from operator import add, mul
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dualbcast.abi import KernelSource
from dualbcast.errors import BackendError
from dualbcast.runtime import cache, libm

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    from dualbcast.runtime.cpu_numba import Built
    from dualbcast.runtime.reduction import Block

__all__ = ["CpuKernel", "compile_kernel", "default_threads", "launch"]

# Elements times pointers below which other threads are not thought of, and how many are run first to see how long the
# rest will take: what an element costs varies a thousandfold. These take some microseconds at least.
_PROBE = 1 << 16
# Nanoseconds of remaining work below which another thread is not woken (waking one takes 10 to 100 microseconds), and
# that a range should take at least.
_WORTH_A_THREAD = 150_000
_WORTH_A_RANGE = 25_000
# Ranges begin at a multiple of this many elements of a row: more than a vectorised loop advances in one step, so that
# which elements go through vector code, and with it every bit of the result, does not depend on the number of threads.
_ALIGNMENT = 256
# More ranges than threads, since a branch can make some elements cost more than others.
_RANGES_PER_THREAD = 4
# What a Numba function returns when it has raised nothing: RETCODE_OK.
_SUCCESS = 0


class CpuKernel:
    """A compiled kernel: a machine-code function of a range, sizes, strides and pointers.

    Calling it runs the linear indices from `start` to `stop` on the calling thread, without the GIL. Nothing is
    checked: the pointers must be valid for the sizes and strides, and no output may overlap another argument.
    """

    def __init__(self, source: KernelSource, fastmath: bool, symbol: str, code: bytes) -> None:
        self.source, self.fastmath = source, fastmath
        self._engine, address = _load(symbol, code)
        integers = (0 if source.summed else 2) + source.layout.rank + source.layout.stride_count
        pointers = len(source.inputs) + len(source.outputs)
        prototype = ctypes.CFUNCTYPE(
            ctypes.c_int32, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * integers, *[ctypes.c_void_p] * pointers
        )
        self._function: Callable[..., int] = prototype(address)
        self._itemsizes = tuple(
            2 if dtype == "bfloat16" else np.dtype(dtype).itemsize for dtype in source.inputs + source.outputs
        )
        # Numba's convention: where the result and the exception go. Threads may share them, a kernel returns nothing.
        self._result, self._exception = ctypes.c_void_p(), ctypes.c_void_p()
        self._head = ctypes.addressof(self._result), ctypes.addressof(self._exception)

    def __call__(self, start: int, stop: int, ints: Sequence[int], pointers: Sequence[int]) -> None:
        """Run the elements from `start` to `stop`; `ints` are the sizes and then the strides, in elements."""
        status = self._function(*self._head, start, stop, *ints, *pointers)
        if status != _SUCCESS:
            raise self._fault(status)

    def run_block(self, block: Block, pointers: Sequence[int]) -> None:
        """Run a block of a kernel that sums, on the calling thread; `pointers` are those of the whole space."""
        offsets = map(mul, block.offsets, self._itemsizes)
        status = self._function(*self._head, *block.ints, *map(add, pointers, offsets))
        if status != _SUCCESS:
            raise self._fault(status)

    def _fault(self, status: int) -> BackendError:
        return BackendError(f"the CPU kernel {self.source.element} stopped with an error (status {status})")

    def llvm(self) -> str:
        """The optimised LLVM IR (compiled anew)."""
        return _build(self.source, self.fastmath).llvm

    def asm(self) -> str:
        """The assembly of the host (compiled anew)."""
        return _build(self.source, self.fastmath).asm


def compile_kernel(source: KernelSource, fastmath: bool) -> CpuKernel:
    """The kernel of `source`: from this process, else from the cache on disk, else compiled by Numba.

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
                payload = cache.fetch(_key(source, fastmath), lambda: _build(source, fastmath).payload())
                symbol, _, code = payload.partition(b"\0")
                kernel = _kernels[wanted] = CpuKernel(source, fastmath, symbol.decode(), code)
    return kernel


def launch(
    kernel: CpuKernel,
    total: int,
    ints: Sequence[int],
    pointers: Sequence[int],
    threads: int | None = None,
    blocks: Sequence[Block] | None = None,
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
        At most so many threads, this one among them; `default_threads()` if not given.
    blocks : sequence of Block, optional
        What is run instead of ranges of elements where the kernel sums.
    """
    if total <= 0:
        return
    first = max(_ALIGNMENT, _PROBE // len(pointers))
    if total <= 2 * first and blocks is None:
        kernel(0, total, ints, pointers)
        return
    limit = default_threads() if threads is None else threads
    if blocks is not None:
        _launch_blocks(kernel, pointers, blocks, limit)
        return
    if limit <= 1:
        kernel(0, total, ints, pointers)
        return
    row = ints[kernel.source.layout.rank - 1]
    first = _aligned(first, row)
    started = time.perf_counter_ns()
    kernel(0, first, ints, pointers)
    rest = (time.perf_counter_ns() - started) * (total - first) // first
    if rest < _WORTH_A_THREAD:
        kernel(first, total, ints, pointers)
        return
    count = min(limit * _RANGES_PER_THREAD, rest // _WORTH_A_RANGE)
    bounds = sorted({max(first, _aligned(first + (total - first) * part // count, row)) for part in range(count)})
    bounds.append(total)
    _share(lambda piece: kernel(piece[0], piece[1], ints, pointers), list(itertools.pairwise(bounds)), limit)


def _launch_blocks(kernel: CpuKernel, pointers: Sequence[int], blocks: Sequence[Block], limit: int) -> None:
    """Run all blocks. They do not depend on the number of threads, nor does what becomes of them."""
    started = time.perf_counter_ns()
    kernel.run_block(blocks[0], pointers)
    rest = (time.perf_counter_ns() - started) * (len(blocks) - 1)
    if limit > 1 and rest >= _WORTH_A_THREAD:
        _share(lambda block: kernel.run_block(block, pointers), blocks[1:], limit)
        return
    for block in blocks[1:]:
        kernel.run_block(block, pointers)


def _share(run: Callable[[Any], None], pieces: Sequence[Any], limit: int) -> None:
    """Run pieces of work over the threads of the pool."""
    # Threads draw the next piece from one iterator. The caller draws too, so the call ends even if the pool is busy.
    remaining = iter(pieces)
    drawing = threading.Lock()

    def work() -> None:
        while True:
            with drawing:
                piece = next(remaining, None)
            if piece is None:
                return
            run(piece)

    helpers = _submit(work, min(limit, len(pieces)) - 1)
    try:
        work()
    finally:
        errors = _settle(helpers)
    if errors:
        raise errors[0]


def default_threads() -> int:
    """How many threads a launch may use: `DUALBCAST_NUM_THREADS`, or the CPUs this process may run on."""
    chosen = os.environ.get("DUALBCAST_NUM_THREADS")
    return _allowed_cpus() if chosen is None else _parse_threads(chosen)


@functools.cache
def _parse_threads(text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise BackendError(f"DUALBCAST_NUM_THREADS must be a positive integer, not {text!r}")
    return int(text)


@functools.cache
def _allowed_cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _aligned(index: int, row: int) -> int:
    """The last place at or before `index` where a range may begin: in its row, a multiple of `_ALIGNMENT`."""
    return index - index % row % _ALIGNMENT


def _submit(work: Callable[[], None], count: int) -> list[Future[None]]:
    from concurrent.futures import ThreadPoolExecutor

    global _pool
    helpers: list[Future[None]] = []
    with _pool_lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="dualbcast")
        # RuntimeError: the interpreter is shutting down, and the caller does it all.
        with contextlib.suppress(RuntimeError):
            for _ in range(count):
                helpers.append(_pool.submit(work))
    return helpers


def _settle(helpers: list[Future[None]]) -> list[BaseException]:
    """End what `_submit` began; its errors. An interrupt must wait too: the arrays have to outlive the threads."""
    from concurrent.futures import wait

    running = [helper for helper in helpers if not helper.cancel()]
    interrupt: BaseException | None = None
    while any(not helper.done() for helper in running):
        try:
            wait(running)
        except BaseException as caught:
            interrupt = caught
    if interrupt is not None:
        raise interrupt
    return [error for helper in running if (error := helper.exception()) is not None]


def _build(source: KernelSource, fastmath: bool) -> Built:
    try:
        from dualbcast.runtime import cpu_numba
    except ImportError as error:  # of releases that do not go together
        raise BackendError(
            f"Numba, which compiles CPU kernels, cannot be imported: {error}\n"
            "Install what goes together with: pip install --upgrade numba numpy"
        ) from None

    libm.register()
    path = cache.write_text(f"{source.element}_{cache.key(source.text)[:16]}.py", source.text)
    return cpu_numba.build(source, fastmath, str(path), libm.has_libmvec())


def _key(source: KernelSource, fastmath: bool) -> str:
    return cache.key("cpu", source.identity, repr(fastmath), _environment())


@functools.cache
def _environment() -> str:
    """Everything beside the source that the machine code depends on."""
    import importlib.metadata
    import platform

    import llvmlite.binding as llvm

    folder = Path(__file__).parent
    own = [
        (folder / name).read_text()
        for name in (
            "cpu_numba.py",
            "cpu_lowering.py",
            "cpu_context.py",
            "cpu_math.py",
            "elementary.py",
            "libm.py",
        )
    ]
    versions = [importlib.metadata.version(name) for name in ("numba", "llvmlite", "numpy")]
    features = llvm.get_host_cpu_features().flatten()
    settings = sorted(item for item in os.environ.items() if item[0].startswith("NUMBA_"))
    libraries = [libm.has_libmvec(), platform.libc_ver()]
    return repr(
        [own, versions, sys.version, llvm.get_process_triple(), llvm.get_host_cpu_name(), features, settings, libraries]
    )


def _load(symbol: str, code: bytes) -> tuple[Any, int]:
    """Link an object file into the process: the engine that owns the code, and the address of `symbol`."""
    import llvmlite.binding as llvm

    _start_llvm()
    machine = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine, engine.get_function_address(symbol)


@functools.cache
def _start_llvm() -> None:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    libm.register()


def _renew_after_fork() -> None:
    # Threads do not survive a fork, and a lock may have been held by one of them.
    global _pool, _pool_lock, _compile_lock
    _pool, _pool_lock, _compile_lock = None, threading.Lock(), threading.RLock()


_kernels: dict[tuple[KernelSource, bool], CpuKernel] = {}
_compile_lock = threading.RLock()
_pool: ThreadPoolExecutor | None = None
_pool_lock = threading.Lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_after_fork)
