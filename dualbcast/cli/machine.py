"""The machine that a figure was measured on: CPU, caches, CUDA devices as the driver reports them, and versions."""

from __future__ import annotations

import ctypes
import platform
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

_PACKAGES = (
    "dualbcast",
    "numpy",
    "ml_dtypes",
    "llvmlite",
    "numba",
    "numba-cuda",
    "cuda-core",
    "cupy-cuda12x",
    "cupy-cuda13x",
    "cupy",
    "matplotlib",
)

# CUdevice_attribute, from the CUDA driver API's reference.
_MULTIPROCESSORS, _L2_BYTES, _MAJOR, _MINOR = 16, 38, 75, 76


@dataclass(frozen=True, slots=True)
class Gpu:
    """A CUDA device.

    Attributes
    ----------
    name : str
        The driver's name for it.
    cc : str
        Compute capability, such as "9.0".
    multiprocessors, memory, l2 : int
        Streaming multiprocessors; bytes of device memory and of L2 cache.
    """

    name: str
    cc: str
    multiprocessors: int
    memory: int
    l2: int


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


def threads() -> int:
    """How many threads the cpu backend uses."""
    from dualbcast.runtime.cpu.threads import get_num_threads

    return get_num_threads()


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
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions
