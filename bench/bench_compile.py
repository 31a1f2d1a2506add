"""A fresh process up to its first result, with an empty cache and from the system's cache on disk, if it has one.

The time is that of the whole process; `extra_info` in the saved results has the times of the imports and of the call.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import systems

SCRIPT = Path(__file__).with_name("first_call.py")
WHAT = {"cell": "HM-LSTM cell", "product32": "product of 32 tanh"}
compilers = systems.turns([system for system in systems.SYSTEMS if system != "numpy"])


def run(system: str, case: str, cache: Path, *options: str) -> dict[str, float]:
    """Run the script in a process of its own with its disk caches in `cache`; return the figures that it prints."""
    environment = {
        **os.environ,
        "DUALBCAST_CACHE_DIR": str(cache),
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "TORCHINDUCTOR_CACHE_DIR": str(cache),
        "WARP_CACHE_PATH": str(cache),
    }
    if system == "drjit":
        environment["HOME"] = str(cache)  # its cache is in ~/.drjit
    command = [sys.executable, str(SCRIPT), system, case, *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    seconds: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return seconds


def measure(benchmark: Any, system: str, case: str, turn: int, cache: Path, rounds: int) -> None:
    """Time some processes, one after the other."""
    found: list[dict[str, float]] = []
    benchmark.pedantic(lambda: found.append(run(system, case, cache)), rounds=rounds)
    for key in found[0]:
        benchmark.extra_info[key] = sorted(seconds[key] for seconds in found)[len(found) // 2]
    benchmark.extra_info.update(label=system, form="")
    systems.end(benchmark, system, turn)


def group(case: str, start: str) -> str:
    """The name of the comparison."""
    return f"first result of a fresh process, {WHAT[case]}, {start}"


@compilers
@pytest.mark.parametrize("case", WHAT)
def bench_empty_cache(benchmark: Any, tmp_path: Path, case: str, turn: int, system: str) -> None:
    """Everything is compiled."""
    systems.begin(benchmark, group(case, "empty cache"), system, turn)
    systems.load(system)
    measure(benchmark, system, case, turn, tmp_path, 1)


@compilers
@pytest.mark.parametrize("case", WHAT)
def bench_from_disk(benchmark: Any, tmp_path: Path, case: str, turn: int, system: str) -> None:
    """An earlier process has left its compiled kernels."""
    systems.begin(benchmark, group(case, "from disk"), system, turn)
    systems.load(system)
    run(system, case, tmp_path, "check")
    measure(benchmark, system, case, turn, tmp_path, 3)


def bench_nothing(benchmark: Any, tmp_path: Path) -> None:
    """Python and NumPy's import: the floor."""
    systems.begin(benchmark, group("cell", "from disk"), "nothing", 0)
    measure(benchmark, "nothing", "cell", 0, tmp_path, 5)
    benchmark.extra_info["label"] = "numpy, imported alone"
