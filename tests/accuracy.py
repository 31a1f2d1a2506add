"""How wrong the CPU backend's functions are: where to look, the exact value, and the largest error found.

The unit is that of the last place of the exact value (its subnormal spacing below the smallest normal number); a result
that is rounded correctly is at most half of one off.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

inf = float("inf")
Reference = Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class Case:
    """A function of one number: its value in mpmath, in NumPy, and the interval on which it has one."""

    exact: Reference
    wide: Reference | None
    low: float = -inf
    high: float = inf
    # Beyond these the value overflows, underflows or is a constant to float64; outside of them mpmath is not asked.
    tame: tuple[float, float] = (-inf, inf)
    limit: float = 4.0
