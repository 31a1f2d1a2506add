"""The machine that figures are measured on, as the system and the CUDA driver describe it, and timing on it.

Calls are timed on arrays that no cache holds, and compared with the bandwidth of a large copy.
"""

from __future__ import annotations

import ctypes
import importlib
import math
import platform
import re
import subprocess
import sys
import time
import timeit
from abc import ABC, abstractmethod
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
from dualbcast.runtime.cpu.policy import get_num_threads, last_level_cache
from dualbcast.runtime.cuda import launch as cuda_launch

_PACKAGES = "dualbcast numpy ml_dtypes llvmlite numba numba-cuda cuda-core cupy-cuda12x cupy-cuda13x cupy matplotlib"

# The number of multiprocessors, the bytes of the L2 cache and the compute capability: CUdevice_attribute of the CUDA
# driver API's reference.
_ATTRIBUTES = (16, 38, 75, 76)


@dataclass(frozen=True, slots=True)
class Gpu:
    """A CUDA device."""

    name: str
    cc: str  # compute capability, such as "9.0"
    multiprocessors: int
    memory: int  # bytes
    l2: int  # bytes


def _read(path: str, pattern: str) -> str:
    """What the group of a pattern matches in a file of the system; empty where there is no such file or match."""
    try:
        found = re.search(pattern, Path(path).read_text(), re.MULTILINE)
    except OSError:
        return ""
    return found[1] if found else ""


def cpu_model() -> str:
    """The processor's name, as the system gives it."""
    name = _read("/proc/cpuinfo", r"^model name\s*: *(.*)")
    if sys.platform == "darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        name = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return name or platform.processor() or platform.machine() or "unknown"


@cache
def _driver() -> ctypes.CDLL | None:
    """The CUDA driver, initialised; None where there is none or it has no device."""
    library = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        driver = ctypes.CDLL(library)
    except OSError:
        return None
    return driver if driver.cuInit(0) == 0 else None


def _from_driver(function: str, *arguments: int) -> int:
    """The number that a function of the driver writes to its first argument; 0 without a driver."""
    driver, number = _driver(), ctypes.c_size_t()
    if driver is None or getattr(driver, function)(ctypes.byref(number), *arguments) != 0:
        return 0
    return number.value


def driver_version() -> str:
    """The newest CUDA version that the driver supports, such as "13.0"; empty without a driver."""
    version = _from_driver("cuDriverGetVersion")
    return f"{version // 1000}.{version % 1000 // 10}" if version else ""


def driver_release() -> str:
    """The release of the NVIDIA kernel driver, such as "580.82.07"; empty without one, or where it cannot be read."""
    return _read("/proc/driver/nvidia/version", r"\b(\d+\.\d+(?:\.\d+)?)\b")


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
    return tuple(_gpu(ordinal) for ordinal in range(_from_driver("cuDeviceGetCount")))


def _gpu(ordinal: int) -> Gpu:
    device, name = _from_driver("cuDeviceGet", ordinal), ctypes.create_string_buffer(256)
    driver = _driver()
    assert driver is not None
    driver.cuDeviceGetName(name, len(name), device)
    multiprocessors, l2, major, minor = (_from_driver("cuDeviceGetAttribute", which, device) for which in _ATTRIBUTES)
    memory = _from_driver("cuDeviceTotalMem_v2", device)
    return Gpu(name.value.decode(), f"{major}.{minor}", multiprocessors, memory, l2)


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
    """Seconds per call over many samples, each of several calls; a row of figures has them under the same names."""

    seconds: float  # the median
    seconds_best: float
    seconds_lower_quartile: float
    seconds_upper_quartile: float
    samples: int
    # Whether a GPU may have waited for the host between kernels in some sample; the time then includes the wait.
    waited: bool = False


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
    return Timing(median, min(times), lower, upper, len(times))


class Device(ABC):
    """What calls are timed on: its arrays, its clock, and the bandwidth of a large copy."""

    def __init__(self, backend: Backend, name: str, threads: int, xp: Any, cache_bytes: int) -> None:
        self.backend, self.name, self.threads, self.xp, self.cache_bytes = backend, name, threads, xp, cache_bytes
        self._copied_bytes = max(_COPY_BYTES, 4 * cache_bytes)

    def array(self, host: NDArray[Any]) -> Any:
        """A C-contiguous copy of `host` on the device."""
        return self.xp.array(host, order="C")

    def host(self, array: Any) -> NDArray[Any]:
        """A NumPy array of `array`: itself, or a copy."""
        return np.asarray(array.get() if hasattr(array, "get") else array)

    @abstractmethod
    def time(self, call: Callable[[], object], repeat: int, min_time: float) -> Timing:
        """Seconds per call."""

    @abstractmethod
    def copy_bandwidth(self, min_time: float) -> float:
        """Bytes per second of a large copy."""


class HostDevice(Device):
    """The processor: NumPy arrays, wall-clock time. The `python` backend uses one thread."""

    def __init__(self, backend: Backend = "cpu") -> None:
        threads = get_num_threads() if backend == "cpu" else 1
        super().__init__(backend, cpu_model(), threads, np, last_level_cache())
        # glibc keeps large blocks (up to 32 MiB) once one has been freed. Without this line the cost of NumPy's
        # temporaries would depend on the blocks that this process happened to free before.
        np.empty(31 << 20, np.uint8)

    def time(self, call: Callable[[], object], repeat: int, min_time: float) -> Timing:
        return collect_samples(lambda calls: timeit.timeit(call, number=calls), repeat, min_time, max_calls=1 << 20)

    def copy_bandwidth(self, min_time: float) -> float:
        """Bytes per second of `numpy.copyto`, the array cut into one contiguous part a thread."""
        source, target = (np.full(self._copied_bytes, number, np.uint8) for number in (1, 0))
        parts = list(zip(*(np.array_split(array, self.threads) for array in (target, source)), strict=True))
        with ThreadPoolExecutor(self.threads) as pool:
            copied = self.time(lambda: list(pool.map(lambda part: np.copyto(*part), parts)), 10, min_time)
        return 2 * self._copied_bytes / copied.seconds_best


class CudaDevice(Device):
    """The current CUDA device: CuPy arrays, time between two events on the current stream."""

    def __init__(self) -> None:
        if reason := cuda_launch.why_not():
            raise BackendError(f"The cuda backend cannot run here. {reason}")
        cupy = importlib.import_module("cupy")
        current = gpus()[cupy.cuda.Device().id]
        super().__init__("cuda", current.name, 0, cupy, current.l2)
        self._source = cupy.ones(self._copied_bytes, np.uint8)
        self._target = cupy.zeros(self._copied_bytes, np.uint8)

    def _copy(self) -> None:
        self._target.data.copy_from_device_async(self._source.data, self._copied_bytes)

    def time(self, call: Callable[[], object], repeat: int, min_time: float) -> Timing:
        """Device seconds per call; the host's time for a launch is not included as long as the host keeps ahead."""
        begin, end = self.xp.cuda.Event(), self.xp.cuda.Event()
        # Grows until the host has queued the calls before the device has done the copies, and stays for later samples.
        leading_copies, waited = 1, False

        def sample(calls: int) -> float:
            nonlocal leading_copies, waited
            while True:
                for _ in range(leading_copies):
                    self._copy()
                begin.record()
                for _ in range(calls):
                    call()
                end.record()
                late = begin.done  # the device has waited for the host between the calls
                end.synchronize()
                if not late or leading_copies >= _MAX_LEADING_COPIES:
                    break
                leading_copies *= 2
            waited |= late
            return float(self.xp.cuda.get_elapsed_time(begin, end)) * 1e-3

        timing = collect_samples(sample, repeat, min_time, max_calls=8)
        return replace(timing, waited=waited)

    def copy_bandwidth(self, min_time: float) -> float:
        """Bytes per second of a device-to-device copy."""
        return 2 * self._copied_bytes / self.time(self._copy, 10, min_time).seconds_best


def choose_device(backend: Backend) -> Device:
    """The device for a backend; `auto` is the GPU where there is one with CuPy to reach it, else the processor.

    Raises BackendError if `cuda` is asked for and there is no GPU, or no CuPy to reach it.
    """
    if backend == "cuda" or (backend == "auto" and cuda_launch.available()):
        return CudaDevice()
    return HostDevice("cpu" if backend == "auto" else backend)
