"""Van der Pol's oscillator through equal steps, float64: where it is then, and how that depends on the beginning."""

from __future__ import annotations

from typing import Any

import references
import systems

N = 10**5
GROUP = "oscillator, 50 steps, value and three partials"


@systems.every_and_floor
def bench_oscillator(benchmark: Any, turn: int, system: str) -> None:
    """Derivatives through a loop that all elements go through as often."""
    host = references.oscillators(N)
    check = systems.checker(references.oscillators_expected, host, 1e-11)
    systems.compare(benchmark, GROUP, system, "oscillator", host, check, outputs=4, turn=turn)
