"""Look-up in tables: a million numbers interpolated with the derivative, cotangents of the table, and a stencil."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dualbcast import differentiable_broadcast, index, tables

COUNT, LENGTH, SIDE = 2**20, 1000, 1024


@differentiable_broadcast(whole=("xp", "fp"))
def interpolated(x: float, xp: Any, fp: Any) -> float:
    return tables.interp(x, xp, fp)


@differentiable_broadcast(whole="table")
def looked_up(x: float, table: Any) -> float:
    """Without a search: the places are those of the integers."""
    i = int(x)
    return table[i] + (table[i + 1] - table[i]) * (x - i)


@differentiable_broadcast(whole="field")
def smoothed(u: float, field: Any) -> float:
    """A five-point stencil on a periodic field."""
    i, j = index(0), index(1)
    row = field[i]
    sides = np.take(row, j - 1, mode="wrap") + np.take(row, j + 1, mode="clip")
    ends = np.take(field, i - 1, axis=0, mode="clip")[j] + np.take(field, i + 1, axis=0, mode="clip")[j]
    return 0.5 * u + 0.125 * (sides + ends)


def ways() -> dict[str, dict[str, Callable[[], Any]]]:
    """By case and way, calls that give new arrays each."""
    random = np.random.default_rng(0)
    xp, fp = np.sort(random.random(LENGTH)), random.random(LENGTH)
    x, bar, places = random.random(COUNT), random.random(COUNT), random.uniform(0, LENGTH - 1, COUNT)
    field = random.random((SIDE, SIDE))
    return {
        f"interpolation in {LENGTH:,} points": {
            "dualbcast": lambda: interpolated(x, xp, fp),
            "dualbcast, with the derivative": lambda: interpolated.value_and_jacobian(x, xp, fp),
            "dualbcast, cotangent of the table": lambda: interpolated.value_and_vjp((x, xp, fp), bar, wrt="fp"),
            "numpy": lambda: np.interp(x, xp, fp),
        },
        f"look-up in {LENGTH:,} values": {
            "dualbcast": lambda: looked_up(places, fp),
            "dualbcast, with the derivative": lambda: looked_up.value_and_jacobian(places, fp),
        },
        f"stencil on {SIDE} x {SIDE}": {"dualbcast": lambda: smoothed(field, field)},
    }


CASES = [(case, way) for case, calls in ways().items() for way in calls]


@pytest.mark.parametrize(("case", "way"), CASES, ids=[f"{case}-{way}" for case, way in CASES])
def bench_tables(benchmark: Any, case: str, way: str) -> None:
    """NumPy has one thread."""
    call = ways()[case][way]
    benchmark.group = f"{case}, {COUNT:,} numbers"
    call()
    benchmark(call)
