"""The HM-LSTM cell update with a cotangent: the value and the cotangents of c, f, i, g, float32."""

from __future__ import annotations

from typing import Any

import pytest
import references
import systems
from bench_hmlstm import CONTROLS, OUTPUTS, SIZES, TOLERANCE


def run(benchmark: Any, n: int, control: str, system: str, case: str, label: str = "", turn: int = 0) -> None:
    """One row."""
    host = [*references.cell_arguments(n, control), references.cotangent(n)]
    check = systems.checker(references.cell_pullback_expected, host, TOLERANCE)
    group = f"HM-LSTM, value and pullback, control by {control}, n = {n}"
    systems.compare(benchmark, group, system, case, host, check, label, OUTPUTS, turn)


@systems.every_and_floor
@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize("n", SIZES)
def bench_pullback(benchmark: Any, n: int, control: str, turn: int, system: str) -> None:
    """As one would write it."""
    run(benchmark, n, control, system, "cell_pullback", turn=turn)


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize("n", SIZES)
def bench_kept(benchmark: Any, n: int, control: str) -> None:
    """Value and Jacobian in one kernel; another that contracts them."""
    run(benchmark, n, control, "dualbcast", "cell_pullback_kept", "dualbcast, Jacobian then contracted")
