"""What a machine does in a second, as far as the policy needs it: measured once, and kept with the compiled kernels."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache as once
from functools import partial
from typing import Any

import numpy as np

from dualbcast import disk_cache
from dualbcast.runtime.buffer_pool import POOL
from dualbcast.runtime.cpu.threads import get_num_threads

__all__ = ["Machine", "machine_of"]

# Of one array: more than caches hold.
_BYTES = 24 << 20
_IN_CACHE = 1 << 13
# NumPy's exponential in the units of `cost`.
_PARTS_OF_EXP = 9


@dataclass(frozen=True, slots=True)
class Machine:
    """The speeds of a device.

    Attributes
    ----------
    copy : float
        Bytes a second, read and written, between arrays that have been in use.
    fresh : float
        Bytes a second written to an array that is new, whose pages the system first has to supply.
    rate4, rate8 : float
        Vectorised additions a second, in float32 and float64.
    library : str
        "numpy" or "cupy".
    """

    copy: float
    fresh: float
    rate4: float
    rate8: float
    library: str = "numpy"

    def seconds(self, read: int, written: int, operations: float, itemsize: int) -> float:
        """What a kernel is expected to take: moving the bytes, or computing, whichever is longer."""
        # Outputs have the memory of earlier ones, where they go into the pool.
        moving = read / self.copy + written / (self.copy if written <= POOL.limit else self.fresh)
        return max(moving, operations / (self.rate8 if itemsize == 8 else self.rate4))

    def free(self) -> int:
        """Bytes of memory that are free now."""
        if self.library == "cupy":
            return int(sys.modules["cupy"].cuda.Device().mem_info[0])
        if not hasattr(os, "sysconf") or "SC_AVPHYS_PAGES" not in os.sysconf_names:
            return 1 << 62
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") + POOL.kept


@once
def machine_of(library: str) -> Machine:
    """The machine that arrays of "numpy" or "cupy" are computed on."""
    if library == "cupy":
        device = sys.modules["cupy"].cuda.runtime.getDeviceProperties(sys.modules["cupy"].cuda.Device().id)
        name, measure = device["name"].decode(), _measure_device
    else:
        name, measure = f"{platform.processor()} {platform.machine()} {get_num_threads()}", _measure_host
    key = disk_cache.key("machine", library, name, platform.node(), "4")
    return Machine(**json.loads(disk_cache.fetch(key, lambda: json.dumps(asdict(measure())).encode())))


def _best(run: Callable[[], Any], count: int = 5) -> float:
    """Seconds of the fastest of some runs."""
    found = []
    for _ in range(count):
        started = time.perf_counter()
        run()
        found.append(time.perf_counter() - started)
    return min(found)


def _measure_host() -> Machine:
    threads = get_num_threads()
    sources = [np.ones(_BYTES, np.uint8) for _ in range(threads)]
    targets = [np.ones_like(source) for source in sources]
    rates = []
    with ThreadPoolExecutor(threads) as pool:
        copying = _best(lambda: list(pool.map(np.copyto, targets, sources)), 3)
        filling = _best(lambda: list(pool.map(lambda source: np.empty_like(source).fill(1), sources)), 2)
        for dtype in (np.float32, np.float64):
            x = np.linspace(-1, 1, _IN_CACHE, dtype=dtype)
            y = np.empty_like(x)
            np.exp(x, out=y)
            rates.append(threads * _PARTS_OF_EXP * _IN_CACHE / _best(partial(np.exp, x, out=y), 20))
    return Machine(2 * threads * _BYTES / copying, threads * _BYTES / filling, rates[0], rates[1])


def _measure_device() -> Machine:
    cupy = sys.modules["cupy"]
    source = cupy.ones(1 << 27, cupy.uint8)
    target = cupy.empty_like(source)
    rates = []

    def timed(run: Callable[[], Any]) -> float:
        run()
        cupy.cuda.Device().synchronize()

        def synchronised() -> None:
            run()
            cupy.cuda.Device().synchronize()

        return _best(synchronised)

    copying = timed(lambda: cupy.copyto(target, source))
    for dtype in (cupy.float32, cupy.float64):
        x = cupy.linspace(-1, 1, 1 << 22, dtype=dtype)
        # A polynomial of 256 steps, in one kernel.
        body = "y = x;" + "y = y * x + x;" * 256
        kernel = cupy.ElementwiseKernel("T x", "T y", body, "dualbcast_rate")
        y = cupy.empty_like(x)
        rates.append(2 * 256 * x.size / timed(partial(kernel, x, y)))
    bandwidth = 2 * source.nbytes / copying
    return Machine(bandwidth, bandwidth, rates[0], rates[1], "cupy")
