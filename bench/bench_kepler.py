"""Kepler's equation for a million orbits by Newton's method, float64: the anomaly and both its derivatives."""

from __future__ import annotations

from typing import Any

import references
import systems

N = 10**6
LOOP = "Kepler by Newton, value and two partials"
ROOT = "Kepler by Newton, derivatives at the root by hand"


def run(benchmark: Any, group: str, system: str, case: str, turn: int) -> None:
    """One row."""
    host = references.orbits(N)
    check = systems.checker(references.orbits_expected, host, 1e-11)
    systems.compare(benchmark, group, system, case, host, check, outputs=3, turn=turn)


@systems.every_and_floor
def bench_kepler(benchmark: Any, turn: int, system: str) -> None:
    """Through the loop or by the implicit function theorem, whichever is faster there; ours goes through the loop."""
    run(benchmark, LOOP, system, "kepler", turn)


@systems.every_and_floor
def bench_implicit(benchmark: Any, turn: int, system: str) -> None:
    """The same work in all: ours, too, has the derivatives at the root given."""
    run(benchmark, ROOT, system, "kepler_implicit" if system == "dualbcast" else "kepler", turn)
