"""Timing that only the experiments need: calls in turn whose results are kept, runtimes with streams of their own, and
the host's part of a call."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from dualbcast.cli.measure import Device, Timing, collect_samples

__all__ = ["Rotation", "host_seconds", "release_memory", "wall_clock"]


class Rotation:
    """Makes calls in turn, each on arrays of its own, and stores the last result of each."""

    def __init__(self, calls: Sequence[Callable[[], object]]) -> None:
        self._calls = tuple(calls)
        self.results: list[Any] = [None] * len(self._calls)
        self._next = 0

    def __call__(self) -> None:
        """Make the next call."""
        at = self._next
        self._next = (at + 1) % len(self._calls)
        self.results[at] = None  # its memory is free for the new one
        self.results[at] = self._calls[at]()

    def call_each(self) -> list[Any]:
        """Make each call once; the results, in order."""
        self._next = 0
        for _ in self._calls:
            self()
        return self.results


def wall_clock(call: Callable[[], object], wait: Callable[[], object], repeat: int, min_time: float) -> Timing:
    """Time calls that a runtime queues on streams of its own: several calls, and then one wait for all of them."""

    def sample(calls: int) -> float:
        start = time.perf_counter()
        for _ in range(calls):
            call()
        wait()
        return time.perf_counter() - start

    return collect_samples(sample, repeat, min_time, max_calls=32)


def host_seconds(device: Device, call: Callable[[], object]) -> float:
    """The seconds that the host spends on a call: the median of 50 samples of 100 calls that it only queues."""
    seconds = []
    for _ in range(50):
        _wait(device)
        start = time.perf_counter()
        for _ in range(100):
            call()
        seconds.append((time.perf_counter() - start) / 100)
    _wait(device)
    return statistics.median(seconds)


def _wait(device: Device) -> None:
    """Wait for all calls that were queued on a GPU."""
    if device.backend == "cuda":
        device.xp.cuda.get_current_stream().synchronize()


def release_memory(device: Device) -> None:
    """Give back the GPU memory that CuPy and PyTorch keep of freed arrays, for other runtimes to take."""
    if device.backend != "cuda":
        return
    device.xp.get_default_memory_pool().free_all_blocks()
    if torch := sys.modules.get("torch"):
        torch.cuda.empty_cache()
