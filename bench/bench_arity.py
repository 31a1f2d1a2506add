"""∏ tanh(g(x)), g(x) = x above one half and -x elsewhere, and all its partials by the number of arguments, float32."""

from __future__ import annotations

from typing import Any

import pytest
import references
import systems

ARITIES = (1, 2, 4, 8, 16)
N = 1024


@systems.every_and_floor
@pytest.mark.parametrize("arity", ARITIES)
def bench_product(benchmark: Any, arity: int, turn: int, system: str) -> None:
    """Arrays of 1024 by 1024."""
    host = references.product_arguments(arity, N)
    check = systems.checker(references.product_expected, host, 5 * (arity + 1) * 2**-23)
    group = f"product of {arity} tanh, value and Jacobian"
    systems.compare(benchmark, group, system, "product", host, check, outputs=arity + 1, turn=turn)
