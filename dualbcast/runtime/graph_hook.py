"""Variables of a graph where arrays are expected: how they are known without importing the graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dualbcast.errors import ArgumentError

__all__ = ["is_variable", "recorder_of", "variable_refused"]


def is_variable(value: object) -> bool:
    """Whether `value` is a Variable of a graph: it has a dtype and stands where an array can, but is none."""
    return hasattr(type(value), "__broadcast_function__")


def recorder_of(values: Iterable[object]) -> Callable[..., Any] | None:
    """How the graph makes a call with these arguments; None where no Variable is among them."""
    for value in values:
        recorder: Callable[..., Any] | None = getattr(type(value), "__broadcast_function__", None)
        if recorder is not None:
            return recorder
    return None


def variable_refused(name: str) -> ArgumentError:
    """The error where an argument, or a captured array, of what works on arrays is a Variable."""
    return ArgumentError(
        f"{name} is a Variable. Calls of a BroadcastFunction take it, and derivatives then come from "
        f"dualbcast.graph: grad, vjp or jvp of a function that makes the call. For this, pass {name}.value"
    )
