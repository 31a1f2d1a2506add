"""Many short rows, as of points with three coordinates: the HM-LSTM cell update, and a pullback with sums. float32."""

from __future__ import annotations

from typing import Any

import pytest
import references
import systems

SHAPES = ((100_000, 3), (20_000, 13))


@systems.every_and_floor
@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def bench_cell(benchmark: Any, rows: int, columns: int, turn: int, system: str) -> None:
    """Value and ∂/∂(c, f, i, g), control by rows."""
    host = references.cell_arguments(rows, "rows", columns)
    check = systems.checker(references.cell_expected, host, 16 * 2**-23)
    group = f"rows of {columns}: HM-LSTM, value and Jacobian, control by rows, {rows:,} rows"
    systems.compare(benchmark, group, system, "cell_jacobian", host, check, outputs=5, turn=turn)


@systems.every_and_floor
@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def bench_layer(benchmark: Any, rows: int, columns: int, turn: int, system: str) -> None:
    """The value of tanh(x·w + b) and its pullback: a sum for each column, and one for each row."""
    host = references.layer_arguments(rows, columns)
    check = systems.checker(references.layer_expected, host, 1e-5, sums=True)
    group = f"rows of {columns}: tanh(x·w + b), value and pullback, {rows:,} rows"
    systems.compare(benchmark, group, system, "layer", host, check, outputs=2, turn=turn)
