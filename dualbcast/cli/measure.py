"""Timing on the host and on a CUDA device: repeated calls on arrays that no cache holds, and the bandwidth of a large
copy to compare them with.
"""

from __future__ import annotations

import importlib
import itertools
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualbcast.cli import machine
from dualbcast.errors import BackendError
from dualbcast.program.typed_product import Backend

_COPY_BYTES = 256 << 20  # of each side of the copy at least: far beyond the caches of most processors
_SHORTEST_SAMPLE = 100e-6  # seconds; shorter calls are timed several at a time
_CACHE_SIZES = 4  # all sets of arrays together have this many times the size of the cache
_MAX_SETS = 64
_MAX_LEADING_COPIES = 256  # copies that keep a GPU busy while the host queues the calls to be timed


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
        Whether a GPU may have waited for the host between kernels in some sample; the time then includes the wait.
    """

    median: float
    best: float
    lower: float
    upper: float
    samples: int
    calls: int
    waited: bool = False


class Rotation:
    """Makes calls in turn, each on arrays of its own, and stores the last result of each.

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

    def call_each(self) -> list[Any]:
        """Make each call once; the results, in order."""
        self._next = 0
        for _ in self._calls:
            self()
        return self.results


def copies(device: Device, arrays: Sequence[Any], written: int) -> list[list[Any]]:
    """The given set of arrays and copies of it: as many that calls in turn never find their set in the cache.

    Parameters
    ----------
    device : Device
    arrays : sequence of array
        On the device.
    written : int
        The bytes of the outputs that belong to each set.
    """
    size = sum(array.nbytes for array in arrays) + written
    count = min(_MAX_SETS, -(-_CACHE_SIZES * device.cache_bytes // max(1, size)))
    return [list(arrays), *([array.copy() for array in arrays] for _ in range(count - 1))]


def collect_samples(sample: Callable[[int], float], repeat: int, min_time: float, max_calls: int) -> Timing:
    """Call `sample(calls)`, which returns the seconds for that many calls, until there are enough samples.

    `min_time` is wall-clock time: on a GPU a sample of a short kernel takes much longer than the time it measures.
    """
    sample(1)  # caches, page faults, clocks, the thread pool
    once = max(sample(1), 1e-9)
    calls = min(max_calls, max(1, math.ceil(_SHORTEST_SAMPLE / once)))
    times: list[float] = []
    started = time.perf_counter()
    while len(times) < repeat or time.perf_counter() - started < min_time:
        times.append(sample(calls) / calls)
    lower, median, upper = np.quantile(times, (0.25, 0.5, 0.75)).tolist()
    return Timing(median, min(times), lower, upper, len(times), calls)


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
        # glibc keeps large blocks (up to 32 MiB) once one has been freed. Without this line the cost of NumPy's
        # temporaries would depend on the blocks that this process happened to free before.
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

        return collect_samples(sample, repeat, min_time, max_calls=1 << 20)

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
        """Device seconds per call; the host's time for a launch is not included as long as the host keeps ahead."""
        begin, end = self.xp.cuda.Event(), self.xp.cuda.Event()
        # Grows until the host has queued the calls before the device has done the copies, and stays for later samples.
        leading_copies, waited = 1, False

        def queue(calls: int) -> bool:
            """Whether the host was done before the device, so that the calls ran back to back."""
            for _ in range(leading_copies):
                self._copy()
            begin.record()
            for _ in range(calls):
                call()
            end.record()
            ready = not begin.done
            end.synchronize()
            return ready

        def sample(calls: int) -> float:
            nonlocal leading_copies, waited
            while not (ready := queue(calls)) and leading_copies < _MAX_LEADING_COPIES:
                leading_copies *= 2
            waited |= not ready
            return float(self.xp.cuda.get_elapsed_time(begin, end)) * 1e-3

        timing = collect_samples(sample, repeat, min_time, max_calls=8)
        return replace(timing, waited=waited)

    def copy_bandwidth(self, min_time: float) -> float:
        """Bytes per second of a device-to-device copy."""
        return 2 * int(self._source.nbytes) / self.time(self._copy, 10, min_time).best


Device = HostDevice | CudaDevice


def choose_device(backend: Backend) -> Device:
    """The device for a backend; `auto` is the GPU where there is one with CuPy to reach it, else the processor.

    Parameters
    ----------
    backend : {"auto", "cpu", "cuda", "python"}
        The backend that was asked for.

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
