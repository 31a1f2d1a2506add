"""Kepler's equation for a million orbits by Newton's method, float64: the anomaly and both its derivatives."""

from __future__ import annotations

from typing import Any

import references
import systems

N = 10**6
GROUP = "Kepler by Newton, value and two partials"


def run(benchmark: Any, system: str, case: str, label: str = "", turn: int = 0) -> None:
    """One row."""
    host = references.orbits(N)
    check = systems.checker(references.orbits_expected, host, 1e-11)
    systems.compare(benchmark, GROUP, system, case, host, check, label, turn=turn)


@systems.every
def bench_kepler(benchmark: Any, turn: int, system: str) -> None:
    """Through the loop or by the implicit function theorem, whichever is faster there; ours goes through the loop."""
    run(benchmark, system, "kepler", turn=turn)


def bench_implicit(benchmark: Any) -> None:
    """The derivatives at the root given by hand."""
    run(benchmark, "dualbcast", "kepler_implicit", "dualbcast, custom_partials")
