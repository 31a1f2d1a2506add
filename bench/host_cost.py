"""The host's time for a call on CuPy arrays: microseconds until it returns, for 4 by 4 arrays, with loaded kernels.

python bench/host_cost.py             on a GPU
python bench/host_cost.py --emulated  without one: CuPy on tests/oracles/emulated_gpu.c, which starts nothing
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "tests" / "oracles"))

ROUNDS, CALLS = 15, 2000


def microseconds(call: Callable[[], Any], wait: Callable[[], Any]) -> float:
    """The median of rounds of calls; the device is waited for between rounds, so that its queue does not fill."""
    found = []
    for _ in range(ROUNDS):
        wait()
        started = time.perf_counter()
        for _ in range(CALLS):
            call()
        found.append((time.perf_counter() - started) / CALLS * 1e6)
    return statistics.median(found)


def main() -> None:
    """Print a line for each call."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--emulated", action="store_true", help="needs gcc, and no GPU")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        idle = None
        if given.emulated:
            import emulated_gpu

            if reason := emulated_gpu.why_not():
                parser.error(reason)
            idle = ctypes.c_int.in_dll(emulated_gpu.install(Path(folder)), "emulated_idle")
        import cupy
        import models

        from dualbcast import differentiable_broadcast

        cell = differentiable_broadcast(models.cell_update)
        product = differentiable_broadcast(models.product_of_tanh)
        gates, wrt = [cupy.ones((4, 4), np.float32) for _ in range(10)], tuple("cfig")
        arrays = (*gates[:4], *[cupy.ones((4, 1), np.float32)] * 2)
        out = cupy.empty((4, 4), np.float32)
        calls: dict[str, Callable[[], Any]] = {
            "HM-LSTM cell, value: 7 arrays": lambda: cell(*arrays),
            "HM-LSTM cell, value with out=: 7 arrays": lambda: cell(*arrays, out=out),
            "HM-LSTM cell, value and four partials: 11 arrays": lambda: cell.value_and_jacobian(*arrays, wrt=wrt),
            "HM-LSTM cell, value and pullback: 12 arrays": lambda: cell.value_and_vjp(arrays, out, wrt=wrt),
            "product of 10, value: 11 arrays": lambda: product(*gates),
            "product of 10, value and all partials: 21 arrays": lambda: product.value_and_jacobian(*gates),
            "CuPy's own x + y: 3 arrays": lambda: gates[0] + gates[1],
        }
        for call in calls.values():
            call(), call()
        if idle is not None:
            idle.value = 1
        for name, call in calls.items():
            print(f"{name:<50} {microseconds(call, cupy.cuda.Device().synchronize):6.1f} µs")


if __name__ == "__main__":
    main()
