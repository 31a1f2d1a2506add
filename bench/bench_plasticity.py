"""J2 plasticity at small strains, a radial return with hardening, float64: six stresses and the 6 by 6 tangent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import references
import systems


@systems.every_and_floor
@pytest.mark.parametrize("n", [10**5, 10**6])
def bench_plasticity(benchmark: Any, n: int, turn: int, system: str) -> None:
    """All from one launch; where a system is faster with one array (n, 6, 6), it may return that."""
    host = references.strains(n)
    check_columns = systems.checker(references.strains_expected, host, 1e-12)

    def check(found: list[Any]) -> None:
        check_columns([column for a in found for column in (np.reshape(a, (n, -1)).T if a.ndim > 1 else [a])])

    group = f"J2 plasticity, stress and tangent, 10^{len(str(n)) - 1} points"
    systems.compare(benchmark, group, system, "plasticity", host, check, outputs=42, turn=turn)
