"""Batches: many launches on arrays that stay where they are, made by one call of machine code on this thread.

Comes in: fast paths of small calls, with their arrays. Goes out: the arrays of the results, which each run fills anew.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable
from functools import cache, partial
from operator import and_
from typing import Any

import numpy as np

from dualbcast.codegen.loops.calls import write_batch, write_finish
from dualbcast.runtime.arguments import Array, DType, host_addresses
from dualbcast.runtime.cpu import interrupt
from dualbcast.runtime.cpu.kernel import CpuFastPath
from dualbcast.runtime.cpu.loader import compiled
from dualbcast.runtime.cpu.pieces import block_work
from dualbcast.runtime.cpu.thread_pool import caller
from dualbcast.runtime.launch_plan import FastPath
from dualbcast.runtime.reduction_blocks import Sum, combine


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
        geometry, kernel = path.geometry, path.kernel
        values = path.as_arrays(values)
        outputs, targets = path.new_outputs()
        pointers = host_addresses((*values, *targets))
        if any(map(and_, pointers, path.masks)):
            return None
        address, split = kernel.address(geometry.total), geometry.split
        self._arrays.extend((values, targets))
        if split is None:
            results = path.finished(outputs, targets)
            if not all(map(np.may_share_memory, results, outputs)):
                return None
            self._call(address, (0, geometry.total, *geometry.ints, *pointers))
            return results, []
        work = block_work(address, kernel.itemsizes, split, pointers)
        length = len(work.arguments) // work.count
        for piece in range(work.count):
            self._call(work.address, [int(each) for each in work.arguments[piece * length : (piece + 1) * length]])
        rests = iter(targets[len(outputs) :])
        pairs = zip(outputs, path.finished(outputs, targets), split.sums, path.dtypes, strict=True)
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
    sums.fill(0.0)
    if rests is not None:
        rests.fill(0.0)


@cache
def _run() -> Any:
    prototype = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64)
    return prototype(compiled("batch", write_batch))


@cache
def _finisher(dtype: str, is_compensated: bool) -> int:
    return compiled("finish", write_finish, dtype, is_compensated, optimise=True)
