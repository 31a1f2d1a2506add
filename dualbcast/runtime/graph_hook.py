"""Variables of a graph where arrays are expected: how they are known without importing the graph."""

from __future__ import annotations

from typing import Any

from dualbcast.errors import ArgumentError

__all__ = ["VariableGiven", "is_variable"]


def is_variable(value: object) -> bool:
    """Whether `value` is a Variable of a graph: it has a dtype and stands where an array can, but is none."""
    return hasattr(type(value), "__broadcast_function__")


class VariableGiven(ArgumentError):
    """A Variable of a graph is among the arguments, or the captured arrays, of what works on arrays.

    Attributes
    ----------
    variable : Variable
    """

    def __init__(self, variable: Any, name: str) -> None:
        self.variable = variable
        super().__init__(
            f"{name} is a Variable. Calls of a BroadcastFunction take it, and derivatives then come from "
            f"dualbcast.graph: grad, vjp or jvp of a function that makes the call. For this, pass {name}.value"
        )
