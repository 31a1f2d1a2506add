"""Which Python callables mean something in kernels beyond what their source says, and guards for that.

What a callable means is a row of the rule table, a custom derivative, or another function to inline.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary

from dualbcast.rules.guards import Capture

__all__ = ["BY_SPELLING", "by_spelling", "lookup", "mean", "meant", "resolve", "watch"]

BY_SPELLING: dict[str, Any] = {}

# For each callable a dictionary of its own, which kernels guard as they guard captured names. Python functions are not
# kept alive for it; other callables, which may be neither hashable nor weakly referable, have one only if they mean
# something.
_FUNCTIONS: WeakKeyDictionary[FunctionType, dict[str, Any]] = WeakKeyDictionary()
_OBJECTS: dict[int, tuple[Any, dict[str, Any]]] = {}


def lookup(function: Any) -> Any:
    """What a Python callable means.

    That is its row, its custom derivative, the scalar function to inline for it, or None where it has no meaning but
    what its source says.
    """
    return _place(function)["meaning"]


def watch(function: Any) -> Capture:
    """What a callable means, as a guard: it holds until that changes."""
    place = _place(function)
    return Capture(place, "meaning", place["meaning"], "")


def by_spelling(spelling: str) -> Any:
    """The meaning of a dotted name; raises `KeyError` where the table has none."""
    return BY_SPELLING[spelling]


def mean(function: Any, meaning: Any) -> None:
    """Make a callable mean something, or with None nothing; kernels that have used it see that from their guards."""
    place = _kept(function)
    if place is None:
        _keep(function, meaning)
    else:
        place["meaning"] = meaning


def meant() -> list[tuple[Any, Any]]:
    """Every callable that has been looked up, with what it means."""
    return [(each, place["meaning"]) for each, place in [*_FUNCTIONS.items(), *_OBJECTS.values()]]


def resolve(spelling: str) -> Any:
    """What a dotted name stands for; None where that cannot be told, or not without importing its module."""
    module, _, name = spelling.rpartition(".")
    # SciPy's spellings count where SciPy is imported already; it is not imported to find out.
    if module not in sys.modules and not module.startswith(("math", "numpy", "builtins", "dualbcast")):
        return None
    return getattr(sys.modules.get(module) or import_module(module), name, None)


def _place(function: Any) -> dict[str, Any]:
    """The dictionary that has what a callable means, under "meaning"."""
    place = _kept(function)
    if place is None:
        found = (meaning for spelling, meaning in BY_SPELLING.items() if resolve(spelling) is function)
        place = _keep(function, next(found, None))
    return place


def _kept(function: Any) -> dict[str, Any] | None:
    if isinstance(function, FunctionType):
        return _FUNCTIONS.get(function)
    entry = _OBJECTS.get(id(function))
    return entry[1] if entry is not None and entry[0] is function else None


def _keep(function: Any, meaning: Any) -> dict[str, Any]:
    place = {"meaning": meaning}
    if isinstance(function, FunctionType):
        _FUNCTIONS[function] = place
    elif meaning is not None:
        _OBJECTS[id(function)] = function, place
    return place
