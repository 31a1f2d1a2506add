"""A fresh process up to its first result, with an empty cache and from the system's cache on disk, if it has one.

The time is that of the whole process; `extra_info` in the saved results has what it spent on imports and on the call.
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
compilers = pytest.mark.parametrize("system", [system for system in systems.SYSTEMS if system != "numpy"])
ROUNDS = {"torch": (1, 2)}  # with an empty cache and from disk; it takes its time


def run(system: str, case: str, cache: Path, *options: str) -> dict[str, float]:
    """Run the script in a process of its own, what it keeps on disk in `cache`, and return what it prints."""
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


def measure(benchmark: Any, system: str, case: str, caches: list[Path], start: str) -> None:
    """Time as many processes as there are cache folders."""
    found: list[dict[str, float]] = []
    turns = iter(caches)
    benchmark.group = f"first result of a fresh process, {WHAT[case]}, {start}"
    benchmark.pedantic(lambda: found.append(run(system, case, next(turns))), rounds=len(caches))
    for key in found[0]:
        benchmark.extra_info[key] = sorted(seconds[key] for seconds in found)[len(found) // 2]
    benchmark.extra_info.update(label=system, form="")


@compilers
@pytest.mark.parametrize("case", WHAT)
def bench_empty_cache(benchmark: Any, tmp_path: Path, case: str, system: str) -> None:
    """Everything is compiled."""
    systems.load(system)
    rounds, _ = ROUNDS.get(system, (3, 5))
    measure(benchmark, system, case, [tmp_path / str(k) for k in range(rounds)], "empty cache")


@compilers
@pytest.mark.parametrize("case", WHAT)
def bench_from_disk(benchmark: Any, tmp_path: Path, case: str, system: str) -> None:
    """A process before has left what it compiled."""
    systems.load(system)
    run(system, case, tmp_path, "check")
    _, rounds = ROUNDS.get(system, (3, 5))
    measure(benchmark, system, case, [tmp_path] * rounds, "from disk")


def bench_nothing(benchmark: Any, tmp_path: Path) -> None:
    """Python and NumPy's import: the floor."""
    measure(benchmark, "nothing", "cell", [tmp_path] * 5, "from disk")
    benchmark.extra_info["label"] = "numpy, imported alone"
