"""Batches: many launches on arrays that stay where they are, made by one call of machine code on this thread.

Comes in: fast paths of small calls, with their arrays. Goes out: the arrays of the results, which each run fills anew.
"""

from __future__ import annotations

import ctypes
import itertools
import math
from array import array
from collections.abc import Callable, Sequence
from functools import cache, partial
from operator import and_
from time import perf_counter_ns
from typing import Any

import numpy as np

from dualbcast.codegen.loops.calls import write_batch, write_finish
from dualbcast.runtime.arguments import Array, DType, host_addresses
from dualbcast.runtime.cpu import interrupt, thread_pool
from dualbcast.runtime.cpu.kernel import CpuFastPath, CpuKernel
from dualbcast.runtime.cpu.loader import compiled
from dualbcast.runtime.cpu.pieces import block_work
from dualbcast.runtime.cpu.policy import THREAD_NS
from dualbcast.runtime.cpu.thread_pool import Work, caller
from dualbcast.runtime.launch_plan import FastPath
from dualbcast.runtime.reduction_blocks import Sum, combine

# A launch that takes so many nanoseconds is worth no other threads; one of more elements is not timed.
_BRIEF_NS, _MOST_ELEMENTS = 2 * THREAD_NS, 1 << 15


class Batch:
    """Launches that are run one after the other; they are added before the first run."""

    def __init__(self) -> None:
        self._calls, self.count = array("q"), 0
        # What the calls point to.
        self._arrays: list[Any] = []

    def _call(self, function: int, numbers: Any) -> None:
        self._calls.extend((caller(len(numbers)), len(numbers), function, *numbers))
        self.count += 1

    def add(
        self, path: FastPath | None, values: tuple[Array, ...]
    ) -> tuple[tuple[Array, ...], list[Callable[[], None]]] | None:
        """Add a launch on arrays that stay where they are: the outputs of the kernel, and what is to be done after the
        batch has run to complete them. It is None, and nothing is added, where the launch may be worth other threads,
        or the arrays do not suit."""
        if not isinstance(path, CpuFastPath) or not path.is_for_batches:
            return None
        geometry, kernel, split = path.geometry, path.kernel, path.geometry.split
        values = path.as_arrays(values)
        outputs, targets = path.new_outputs()
        results = path.finished(outputs, targets)
        pointers = host_addresses((*values, *targets))
        is_unfit = split is None and not all(map(np.may_share_memory, results, outputs))
        if is_unfit or any(map(and_, pointers, path.masks)):
            return None
        address, numbers = kernel.address(geometry.total), (0, geometry.total, *geometry.ints, *pointers)
        work = Work(address, array("q", numbers), 1)
        if split is not None:
            work = block_work(address, kernel.itemsizes, split, pointers)
        if not _is_brief(kernel, geometry.total, work):
            return None
        self._arrays.extend((values, targets))
        length = len(work.arguments) // work.count
        for piece in range(work.count):
            self._call(work.address, [int(each) for each in work.arguments[piece * length : (piece + 1) * length]])
        if split is None:
            return results, []
        _clear([each for each, s in zip(outputs, split.sums, strict=True) if s is not None], targets[len(outputs) :])
        rests = iter(targets[len(outputs) :])
        pairs = zip(outputs, results, split.sums, path.dtypes, strict=True)
        finished: list[Array] = []
        after: list[Callable[[], None]] = []
        for accumulators, example, s, dtype in pairs:
            if s is None:
                finished.append(example)
                continue
            result, more = self._finish(s, accumulators, next(rests, None), dtype)
            finished.append(result)
            after += more
        return tuple(finished), after

    def _finish(self, s: Sum, sums: Array, rests: Array | None, dtype: DType) -> tuple[Array, list[Callable[[], None]]]:
        """The array of a sum's results, and what is to be done after the batch. The accumulators become zero again."""
        if s.copies * s.folds > 1 or dtype.name not in ("float32", "float64"):
            result = np.empty(s.shape, dtype)
            self._arrays.append(result)
            return result, [partial(_combine, s, sums, rests, result)]
        result = np.empty(s.size, dtype)
        lost = sums if rests is None else rests
        self._arrays.append(result)
        self._call(_finisher(dtype.name, rests is not None), (*host_addresses((sums, lost, result)), s.size))
        return result.reshape(s.lengths).transpose(s.axes).reshape(s.shape), []

    def runner(self) -> Callable[[], None]:
        """What runs the batch."""
        address, _ = self._calls.buffer_info()
        run, count = _run(), self.count
        keep = self._calls, self._arrays

        def launch(_keep: Any = keep) -> None:
            if interrupt.cancelled:
                interrupt.begin()
            if run(address, count):
                raise interrupt.raised()

        return launch


def _combine(s: Sum, sums: Array, rests: Array | None, result: Array) -> None:
    with np.errstate(all="ignore"):
        result[...] = combine(s, sums, rests, result.dtype)
    _clear([sums], [] if rests is None else [rests])


def _clear(*accumulators: Sequence[Array]) -> None:
    for each in itertools.chain(*accumulators):
        each.fill(0.0)


def _is_brief(kernel: CpuKernel, total: int, work: Work) -> bool:
    """Whether a launch takes less time than it would take to have other threads do some of it.

    A kernel that has been launched a few times may be taken for slower than it is: the code was not in the cache, or
    most of the time went to waking threads. It is timed here, and other launches will know, too.
    """
    if total > kernel.pace.short and total <= _MOST_ELEMENTS:
        took = math.inf
        for _ in range(3):
            began = perf_counter_ns()
            thread_pool.run(work, 1)
            took = min(took, perf_counter_ns() - began)
        kernel.pace.learn(min(kernel.pace.element, took / total))
        return took < _BRIEF_NS
    return total <= kernel.pace.short


@cache
def _run() -> Any:
    prototype = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64)
    return prototype(compiled("batch", write_batch))


@cache
def _finisher(dtype: str, is_compensated: bool) -> int:
    return compiled("finish", write_finish, dtype, is_compensated, optimise=True)
