"""The cost of a call apart from its arithmetic: the HM-LSTM cell update on 4 by 4 arrays."""

from __future__ import annotations

from typing import Any

import pytest
import references
import systems
from bench_hmlstm import TOLERANCE

CASES = {
    "cell_value": ("value", references.cell_value_expected),
    "cell_jacobian": ("value and four partials", references.cell_expected),
    "cell_pullback": ("value and pullback", references.cell_pullback_expected),
}


def run(benchmark: Any, case: str, kind: str, system: str, label: str = "", turn: int = 0) -> None:
    """One row."""
    results, expected = CASES[kind]
    host = references.cell_arguments(4, "rows")
    if kind == "cell_pullback":
        host = [*host, references.cotangent(4)]
    check = systems.checker(expected, host, TOLERANCE)
    systems.compare(benchmark, f"4 by 4 arrays, {results}", system, case, host, check, label, turn=turn)


@systems.every
@pytest.mark.parametrize("case", CASES)
def bench_overhead(benchmark: Any, case: str, turn: int, system: str) -> None:
    """New arrays at each call."""
    # The form that is best for large arrays need not be the best here.
    systems.forget(system, case)
    run(benchmark, case, case, system, turn=turn)
    systems.forget(system, case)


def bench_reused(benchmark: Any) -> None:
    """`out=`: the same arrays again."""
    run(benchmark, "cell_jacobian_reused", "cell_jacobian", "dualbcast", "dualbcast, out= reused")
