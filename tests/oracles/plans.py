"""The results of a plan whose kernel has run, as a caller gets them."""

from __future__ import annotations

from typing import Any

from dualbcast.runtime.launch_plan import Plan, scalars


def finished(planned: Plan) -> tuple[Any, ...]:
    """The outputs; a fresh NumPy output of shape () has become a NumPy scalar, as NumPy's own functions do."""
    outputs = planned.written()
    return scalars(outputs, planned.given) if planned.operands.module == "numpy" else outputs
