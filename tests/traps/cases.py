"""All traps, in the order of the page: functions and points, with what is right there worked out by hand."""

from __future__ import annotations

import trap_derivatives  # noqa: F401 (each adds its rows to the table)
import trap_programs  # noqa: F401
from trap_table import TRAPS, Found, Trap, ours

__all__ = ["TRAPS", "Found", "Trap", "ours"]
