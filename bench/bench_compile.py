"""A fresh process up to its first result: with an empty cache, with the kernel on disk, JAX, and NumPy's import alone.

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

pytestmark = pytest.mark.benchmark(group="first result of a fresh process")
SCRIPT = Path(__file__).with_name("first_call.py")


def run(what: str, cache: Path) -> dict[str, float]:
    """Run the script in a process of its own and return what it prints."""
    environment = {**os.environ, "DUALBCAST_CACHE_DIR": str(cache)}
    command = [sys.executable, str(SCRIPT), what]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    seconds: dict[str, float] = json.loads(done.stdout)
    return seconds


def measure(benchmark: Any, what: str, caches: Any, rounds: int) -> None:
    """Time `rounds` processes, each with the next cache folder."""
    found: list[dict[str, float]] = []
    benchmark.pedantic(lambda: found.append(run(what, next(caches))), rounds=rounds)
    for key in found[0]:
        benchmark.extra_info[key] = sorted(seconds[key] for seconds in found)[len(found) // 2]


def bench_dualbcast_empty_cache(benchmark: Any, tmp_path: Path) -> None:
    """Numba is imported and compiles."""
    measure(benchmark, "dualbcast", (tmp_path / str(k) for k in range(3)), rounds=3)


def bench_dualbcast_from_disk(benchmark: Any, tmp_path: Path) -> None:
    """The machine code is loaded."""
    run("dualbcast", tmp_path)
    measure(benchmark, "dualbcast", iter([tmp_path] * 7), rounds=7)


@pytest.mark.usefixtures("jax")
def bench_jax(benchmark: Any, tmp_path: Path) -> None:
    """JAX traces and compiles."""
    measure(benchmark, "jax", iter([tmp_path] * 3), rounds=3)


def bench_numpy_import(benchmark: Any, tmp_path: Path) -> None:
    """Python and NumPy: the floor."""
    measure(benchmark, "numpy", iter([tmp_path] * 7), rounds=7)
