"""Names and numbers that a kernel's machine code and its callers agree on."""

from __future__ import annotations

__all__ = ["KERNEL", "PERIOD", "POLL", "STOPPED", "STOPPING", "WORK_LEFT"]

# The symbol of a kernel's entry.
KERNEL = "dualbcast_kernel"
# The symbols of the function that a loop calls to ask whether it may go on, and of the number of units of work that
# are left until the next such call. A unit is a statement for one vector.
POLL, WORK_LEFT = "dualbcast_poll", "dualbcast_work_left"
# The units between two calls: some 50 microseconds to a few milliseconds.
PERIOD = 1 << 16
# With fewer units than that a loop ends; and the status that a kernel then returns.
STOPPING, STOPPED = -(1 << 62), 2
