"""Figures of the hardware's counters, achieved occupancy and utilisation, by Nsight Compute where it is installed.

The command runs this module as a program of its own under `ncu`; it launches each kernel twice, and the second counts.
"""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["METRICS", "parse", "profile"]

METRICS = {
    "sm__warps_active.avg.pct_of_peak_sustained_active": "achieved_occupancy",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "compute_share",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "dram_share",
}
_SECONDS = 45
_TOOLKIT = Path("/usr/local/cuda/bin/ncu")


def profile(arities: Sequence[int], n: int) -> tuple[list[dict[str, float]], str]:
    """The metrics of the product's kernel for each arity, as shares; or none and the reason.

    Parameters
    ----------
    arities : sequence of int
    n : int
        The arrays are n by n.

    Returns
    -------
    list of dict
        One for each arity, in order; empty where there are none.
    str
        The reason where there are none.
    """
    tool = shutil.which("ncu") or (str(_TOOLKIT) if _TOOLKIT.exists() else None)
    if tool is None:
        return [], "Achieved occupancy and utilisation need Nsight Compute: ncu is not on the path."
    arguments = [",".join(map(str, arities)), str(n)]
    command = [tool, "--csv", "--metrics", ",".join(METRICS), "--kernel-name", "regex:^product"]
    command += [sys.executable, "-m", "bench.paper.profiling", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        return [], f"Nsight Compute was not done in {_SECONDS} seconds."
    metrics = parse(done.stdout)[1::2]
    if done.returncode or len(metrics) != len(arities):
        said = [line for line in (done.stdout + done.stderr).splitlines() if "==ERROR==" in line] or [
            "it gave no figures"
        ]
        return [], f"Nsight Compute failed: {said[0].removeprefix('==ERROR== ')}"
    return metrics, ""


def parse(text: str) -> list[dict[str, float]]:
    """The metrics of each launch, as shares of 1, from the output of `ncu --csv`, which has other messages too."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    launches: dict[str, dict[str, float]] = {}
    for row in csv.DictReader(io.StringIO("\n".join(lines))):
        name = METRICS.get(row["Metric Name"])
        if name is not None:
            launches.setdefault(row["ID"], {})[name] = float(row["Metric Value"].replace(",", "")) / 100
    return [launches[number] for number in sorted(launches, key=int)]


def _launch(arities: Sequence[int], n: int) -> None:
    """Launch the kernel of each arity twice."""
    import cupy

    from dualbcast.api.function import differentiable_broadcast
    from dualbcast.cli.checking import product

    function = differentiable_broadcast(product)
    xs = [cupy.linspace(-2, 2, n * n, dtype="float32").reshape(n, n) for _ in range(max(arities))]
    for arity in arities:
        for _ in range(2):
            function.value_and_jacobian(*xs[:arity], wrt=range(arity))
    cupy.cuda.get_current_stream().synchronize()


if __name__ == "__main__":
    _launch([int(part) for part in sys.argv[1].split(",")], int(sys.argv[2]))
