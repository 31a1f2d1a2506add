"""The machine that figures are measured on, as the system and the CUDA driver describe it, and timing on it.

Calls are timed on arrays that no cache holds, and compared with the bandwidth of a large copy.
"""

from __future__ import annotations

import ctypes
import importlib
import itertools
import math
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualbcast.errors import BackendError
from dualbcast.program.products import Backend
from dualbcast.runtime.cpu.policy import get_num_threads
from dualbcast.runtime.cuda import launch as cuda_launch

_PACKAGES = "dualbcast numpy ml_dtypes llvmlite numba numba-cuda cuda-core cupy-cuda12x cupy-cuda13x cupy matplotlib"

# CUdevice_attribute, from the CUDA driver API's reference.
_MULTIPROCESSORS, _L2_BYTES, _MAJOR, _MINOR = 16, 38, 75, 76


@dataclass(frozen=True, slots=True)
class Gpu:
    """A CUDA device."""

    name: str
    cc: str  # compute capability, such as "9.0"
    multiprocessors: int
    memory: int  # bytes
    l2: int  # bytes


def cpu_model() -> str:
    """The processor's name, as the system gives it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    if sys.platform == "darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or "unknown"
    return platform.processor() or platform.machine() or "unknown"


def cache_bytes() -> int:
    """The size in bytes of the first core's largest cache; 0 where the system does not say (only Linux does)."""
    largest = 0
    for size in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = size.read_text().strip()
        unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 0)
        largest = max(largest, int(text[:-1]) * unit if unit else int(text))
    return largest


@cache
def _driver() -> ctypes.CDLL | None:
    """The CUDA driver, initialised; None where there is none or it has no device."""
    library = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        driver = ctypes.CDLL(library)
    except OSError:
        return None
    return driver if driver.cuInit(0) == 0 else None


def driver_version() -> str:
    """The newest CUDA version that the driver supports, such as "13.0"; empty without a driver."""
    driver, version = _driver(), ctypes.c_int()
    if driver is None or driver.cuDriverGetVersion(ctypes.byref(version)) != 0:
        return ""
    return f"{version.value // 1000}.{version.value % 1000 // 10}"


def driver_release() -> str:
    """The release of the NVIDIA kernel driver, such as "580.82.07"; empty without one, or where it cannot be read."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return ""
    release = re.search(r"\b\d+\.\d+(\.\d+)?\b", text)
    return release[0] if release else ""


def commit() -> str:
    """The commit that the package is run from, with "+" if files of the package differ; empty outside a repository."""
    package = Path(__file__).parents[1]
    command = ["git", "-C", str(package)]
    try:
        head = subprocess.run([*command, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        # A package that is installed somewhere below another repository is not a part of it.
        subprocess.run([*command, "ls-files", "--error-unmatch", "__init__.py"], capture_output=True, check=True)
        changed = subprocess.run([*command, "status", "--porcelain", "."], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return head.stdout.strip() + ("+" if changed.stdout.strip() else "")


@cache
def gpus() -> tuple[Gpu, ...]:
    """The CUDA devices of this machine, asked of the driver itself, so that no CUDA package is needed."""
    driver, count = _driver(), ctypes.c_int()
    if driver is None or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return ()
    return tuple(_gpu(driver, ordinal) for ordinal in range(count.value))


def _gpu(driver: ctypes.CDLL, ordinal: int) -> Gpu:
    device, name, memory = ctypes.c_int(), ctypes.create_string_buffer(256), ctypes.c_size_t()
    driver.cuDeviceGet(ctypes.byref(device), ordinal)
    driver.cuDeviceGetName(name, len(name), device)
    driver.cuDeviceTotalMem_v2(ctypes.byref(memory), device)

    def attribute(which: int) -> int:
        value = ctypes.c_int()
        driver.cuDeviceGetAttribute(ctypes.byref(value), which, device)
        return value.value

    cc = f"{attribute(_MAJOR)}.{attribute(_MINOR)}"
    return Gpu(name.value.decode(), cc, attribute(_MULTIPROCESSORS), memory.value, attribute(_L2_BYTES))


def versions() -> dict[str, str]:
    """Python's version and those of the packages that matter here; a package that is not installed is left out."""
    versions = {"python": platform.python_version()}
    for name in _PACKAGES.split():
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


_COPY_BYTES = 256 << 20  # of each side of the copy at least: far beyond the caches of most processors
_SHORTEST_SAMPLE = 100e-6  # seconds; shorter calls are timed several at a time
_CACHE_SIZES = 4  # all sets of arrays together have this many times the size of the cache
_MAX_SETS = 64
_MAX_LEADING_COPIES = 256  # copies that keep a GPU busy while the host queues the calls to be timed


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds per call over many samples, each of several calls."""

    median: float
    best: float
    lower: float  # the first quartile
    upper: float  # the third one
    samples: int
    calls: int  # in each sample
    # Whether a GPU may have waited for the host between kernels in some sample; the time then includes the wait.
    waited: bool = False


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


def copies(device: Device, arrays: Sequence[Any], written: int) -> list[list[Any]]:
    """The given set of arrays and copies of it: as many that calls in turn never find their set in the cache.

    `written` is the size in bytes of the outputs that belong to each set.
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
    """The processor: NumPy arrays, wall-clock time. The `python` backend uses one thread."""

    def __init__(self, backend: Backend = "cpu") -> None:
        self.backend: Backend = backend
        self.name = cpu_model()
        self.threads = get_num_threads() if backend == "cpu" else 1
        self.xp: Any = np
        self.cache_bytes = cache_bytes()
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
        if reason := cuda_launch.why_not():
            raise BackendError(f"The cuda backend cannot run here. {reason}")
        self.xp: Any = importlib.import_module("cupy")
        current = gpus()[self.xp.cuda.Device().id]
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

    Raises BackendError if `cuda` is asked for and there is no GPU, or no CuPy to reach it.
    """
    if backend == "cuda" or (backend == "auto" and cuda_launch.available()):
        return CudaDevice()
    return HostDevice("cpu" if backend == "auto" else backend)
