"""The HM-LSTM cell update, value and ∂/∂(c, f, i, g), float32, control by rows or per element; and a copy."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import references
import systems
from constants import THREADS

SIZES = (512, 1024, 2048, 4096)
CONTROLS = ("rows", "elements")
TOLERANCE = 16 * 2**-23
OUTPUTS = 5


def run(benchmark: Any, n: int, control: str, system: str, case: str, label: str = "", turn: int = 0) -> None:
    """One row."""
    host = references.cell_arguments(n, control)
    check = systems.checker(references.cell_expected, host, TOLERANCE)
    group = f"HM-LSTM, value and Jacobian, control by {control}, n = {n}"
    systems.compare(benchmark, group, system, case, host, check, label, OUTPUTS, turn)


@systems.every_and_floor
@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize("n", SIZES)
def bench_jacobian(benchmark: Any, n: int, control: str, turn: int, system: str) -> None:
    """New arrays at each call."""
    run(benchmark, n, control, system, "cell_jacobian", turn=turn)


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize("n", SIZES)
def bench_jacobian_reused(benchmark: Any, n: int, control: str) -> None:
    """`out=`: the same arrays again."""
    run(benchmark, n, control, "dualbcast", "cell_jacobian_reused", "dualbcast, out= reused")


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize("n", SIZES)
def bench_jacobian_transposed(benchmark: Any, n: int, control: str) -> None:
    """`c` lies column by column in memory."""
    run(benchmark, n, control, "dualbcast", "cell_jacobian_transposed", "dualbcast, c transposed")


def bench_copy(benchmark: Any) -> None:
    """`numpy.copyto`, a contiguous part on each thread, 256 MiB a side."""
    size = 256 << 20
    source, target = np.ones(size, np.uint8), np.zeros(size, np.uint8)
    bounds = np.linspace(0, size, THREADS + 1).astype(np.int64).tolist()
    parts = [slice(start, stop) for start, stop in itertools.pairwise(bounds)]
    benchmark.group = "copy of 256 MiB on two threads"
    benchmark.extra_info.update(label="numpy.copyto", moved=2 * size)
    with ThreadPoolExecutor(THREADS) as pool:
        benchmark(lambda: list(pool.map(lambda part: np.copyto(target[part], source[part]), parts)))
