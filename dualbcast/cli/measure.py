"""Timing on the host and on a CUDA device: repeated calls on arrays that no cache holds, and the bandwidth of a large
copy to hold them against.
"""

from __future__ import annotations

import importlib
import itertools
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dualbcast.cli import machine
from dualbcast.errors import BackendError
from dualbcast.program.typed_product import Backend

__all__ = [
    "CudaDevice",
    "Device",
    "HostDevice",
    "Rotation",
    "Timing",
    "choose_device",
    "copies",
    "host_cost",
    "wall_clock",
]

_COPY_BYTES = 256 << 20  # the least each side of the copy holds: far beyond the caches of most processors
_SHORTEST_SAMPLE = 100e-6  # seconds; shorter calls are timed several at a time
_CACHES = 4  # how many times the size of the cache what is walked in turn has
_MOST_SETS = 64
_MOST_AHEAD = 256  # copies that a GPU is given to do while the host queues what is timed


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds per call over many samples.

    Attributes
    ----------
    median, best, lower, upper : float
        The median, the least, and the first and third quartile, in seconds.
    samples, calls : int
        How many samples were taken, and how many calls each one timed.
    waited : bool
        Whether a GPU may have waited for the host between kernels in some sample, which is then in the time.
    """

    median: float
    best: float
    lower: float
    upper: float
    samples: int
    calls: int
    waited: bool = False


class Rotation:
    """Calls that are made in turn, each on arrays of its own; the results of a turn are kept, each in its own memory.

    Parameters
    ----------
    calls : sequence of callable
    """

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

    def turn(self) -> list[Any]:
        """Make each call once; the results, in order."""
        self._next = 0
        for _ in self._calls:
            self()
        return self.results


def copies(device: Device, arrays: Sequence[Any], written: int) -> list[list[Any]]:
    """The arrays, and as many copies of them all as it takes that one set after another is never found in the cache.

    Parameters
    ----------
    device : Device
    arrays : sequence of array
        On the device.
    written : int
        The bytes that are written with each set, if each has outputs of its own.
    """
    size = sum(array.nbytes for array in arrays) + written
    count = min(_MOST_SETS, -(-_CACHES * device.cache_bytes // max(1, size)))
    return [list(arrays), *([array.copy() for array in arrays] for _ in range(count - 1))]


class Device(Protocol):
    """Where arrays live and calls are timed."""

    backend: Backend
    name: str
    threads: int
    xp: Any
    cache_bytes: int

    def array(self, host: NDArray[Any]) -> Any:
        """A copy of `host` on the device."""
        ...

    def host(self, array: Any) -> NDArray[Any]:
        """`array` as a NumPy array."""
        ...

    def time(self, call: Callable[[], object], repeat: int, min_time: float) -> Timing:
        """Time `call`: at least `repeat` samples, and for at least `min_time` seconds."""
        ...

    def copy_bandwidth(self, min_time: float) -> float:
        """Bytes read plus bytes written per second by a large copy: the best of many, as STREAM counts."""
        ...

    def wait(self) -> None:
        """Wait for all that was queued."""
        ...

    def release(self) -> None:
        """Give back the memory that is kept of arrays that are gone, for others to take."""
        ...


def _collect(sample: Callable[[int], float], repeat: int, min_time: float, most_calls: int) -> Timing:
    """Call `sample(calls)`, which gives the seconds that many calls take, until there are enough samples.

    `min_time` is by the clock: of a short kernel a sample on a GPU takes much longer than what is timed in it.
    """
    sample(1)  # caches, page faults, clocks, the thread pool
    once = max(sample(1), 1e-9)
    calls = min(most_calls, max(1, math.ceil(_SHORTEST_SAMPLE / once)))
    times: list[float] = []
    started = time.perf_counter()
    while len(times) < repeat or time.perf_counter() - started < min_time:
        times.append(sample(calls) / calls)
    lower, median, upper = np.quantile(times, (0.25, 0.5, 0.75)).tolist()
    return Timing(median, min(times), lower, upper, len(times), calls)


def wall_clock(call: Callable[[], object], wait: Callable[[], object], repeat: int, min_time: float) -> Timing:
    """Time calls that a runtime queues on streams of its own: several, and then the wait for all of them."""

    def sample(calls: int) -> float:
        start = time.perf_counter()
        for _ in range(calls):
            call()
        wait()
        return time.perf_counter() - start

    return _collect(sample, repeat, min_time, most_calls=32)


def host_cost(device: Device, call: Callable[[], object]) -> float:
    """The seconds that the host spends on a call, without what the device does with it: the median of many."""
    found = []
    for _ in range(50):
        device.wait()
        start = time.perf_counter()
        for _ in range(100):
            call()
        found.append((time.perf_counter() - start) / 100)
    device.wait()
    return statistics.median(found)


class HostDevice:
    """The processor: NumPy arrays, wall-clock time.

    Parameters
    ----------
    backend : {"cpu", "python"}
        Which backend runs the kernels; `python` uses one thread.
    """

    def __init__(self, backend: Backend = "cpu") -> None:
        self.backend: Backend = backend
        self.name = machine.cpu_model()
        self.threads = machine.threads() if backend == "cpu" else 1
        self.xp: Any = np
        self.cache_bytes = machine.cache_bytes()
        # glibc learns from the freeing of a large block (up to 32 MiB) to keep such blocks. Without it, what NumPy's
        # temporaries cost depends on what this process happened to free before; this is NumPy at its best.
        np.empty(31 << 20, np.uint8)

    def array(self, host: NDArray[Any]) -> NDArray[Any]:
        """A C-contiguous copy of `host`."""
        return np.array(host, order="C")

    def host(self, array: Any) -> NDArray[Any]:
        """The array itself."""
        return np.asarray(array)

    def time(self, call: Callable[[], object], repeat: int, min_time: float) -> Timing:
        """Wall-clock seconds per call."""

        def sample(calls: int) -> float:
            start = time.perf_counter()
            for _ in range(calls):
                call()
            return time.perf_counter() - start

        return _collect(sample, repeat, min_time, most_calls=1 << 20)

    def copy_bandwidth(self, min_time: float) -> float:
        """Bytes per second of `numpy.copyto`, the array cut into one contiguous part a thread."""
        size = max(_COPY_BYTES, 4 * self.cache_bytes)
        source, target = np.ones(size, np.uint8), np.zeros(size, np.uint8)
        bounds = np.linspace(0, size, self.threads + 1).astype(np.int64).tolist()
        parts = [slice(start, stop) for start, stop in itertools.pairwise(bounds)]
        with ThreadPoolExecutor(self.threads) as pool:

            def copy() -> None:
                list(pool.map(lambda part: np.copyto(target[part], source[part]), parts))

            return 2 * size / self.time(copy, 10, min_time).best

    def wait(self) -> None:
        """Nothing is queued."""

    def release(self) -> None:
        """The processor's memory is enough for all."""


class CudaDevice:
    """The current CUDA device: CuPy arrays, time between two events on the current stream."""

    def __init__(self) -> None:
        from dualbcast.runtime.cuda import launch as cuda_launch

        if reason := cuda_launch.why_not():
            raise BackendError(f"The cuda backend cannot run here. {reason}")
        self.xp: Any = importlib.import_module("cupy")
        current = machine.gpus()[self.xp.cuda.Device().id]
        self.backend: Backend = "cuda"
        self.name = current.name
        self.threads = 0
        self.cache_bytes = current.l2
        size = max(_COPY_BYTES, 4 * self.cache_bytes)
        self._source = self.xp.ones(size, self.xp.uint8)
        self._target = self.xp.zeros(size, self.xp.uint8)

    def array(self, host: NDArray[Any]) -> Any:
        """A copy of `host` in device memory."""
        return self.xp.array(host, order="C")

    def host(self, array: Any) -> NDArray[Any]:
        """A copy of `array` in host memory."""
        return np.asarray(self.xp.asnumpy(array))

    def _copy(self) -> None:
        self._target.data.copy_from_device_async(self._source.data, self._source.nbytes)

    def time(self, call: Callable[[], object], repeat: int, min_time: float) -> Timing:
        """Device seconds per call: what the host spends on launching is not in it, as long as it keeps ahead."""
        begin, end = self.xp.cuda.Event(), self.xp.cuda.Event()
        # So many copies as it takes for these calls: a sample that waited for more would be of less.
        ahead, waited = 1, False

        def queue(calls: int) -> bool:
            """Whether the host was ready before the device was: the calls then run back to back."""
            for _ in range(ahead):
                self._copy()
            begin.record()
            for _ in range(calls):
                call()
            end.record()
            ready = not begin.done
            end.synchronize()
            return ready

        def sample(calls: int) -> float:
            nonlocal ahead, waited
            while not (ready := queue(calls)) and ahead < _MOST_AHEAD:
                ahead *= 2
            waited |= not ready
            return float(self.xp.cuda.get_elapsed_time(begin, end)) * 1e-3

        timing = _collect(sample, repeat, min_time, most_calls=8)
        return replace(timing, waited=waited)

    def copy_bandwidth(self, min_time: float) -> float:
        """Bytes per second of a device-to-device copy."""
        return 2 * int(self._source.nbytes) / self.time(self._copy, 10, min_time).best

    def wait(self) -> None:
        """Wait for the current stream."""
        self.xp.cuda.get_current_stream().synchronize()

    def release(self) -> None:
        """What CuPy keeps, and PyTorch where it is in use."""
        self.xp.get_default_memory_pool().free_all_blocks()
        torch = sys.modules.get("torch")
        if torch is not None:
            torch.cuda.empty_cache()


def choose_device(backend: Backend) -> Device:
    """The device for a backend; `auto` is the GPU where there is one with CuPy to reach it, else the processor.

    Parameters
    ----------
    backend : {"auto", "cpu", "cuda", "python"}
        What was asked for.

    Raises
    ------
    BackendError
        If `cuda` is asked for and there is no GPU, or no CuPy to reach it.
    """
    if backend == "cuda":
        return CudaDevice()
    if backend == "auto":
        from dualbcast.runtime.cuda import launch as cuda_launch

        if cuda_launch.available():
            return CudaDevice()
    return HostDevice("cpu" if backend == "auto" else backend)
