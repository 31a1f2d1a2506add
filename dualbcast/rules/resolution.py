"""The meanings of Python callables in kernels, and guards for them.

The meaning of a callable is a row of the rule table, a custom derivative, or another function to inline.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary

from dualbcast.rules.guards import Capture

__all__ = ["BY_SPELLING", "by_spelling", "lookup", "meanings", "resolve", "set_meaning", "watch"]

BY_SPELLING: dict[str, Any] = {}

# Each callable has a dictionary for its meaning, which kernels guard as they guard captured names. A Python function is
# not kept alive by it. Another callable may be neither hashable nor weakly referable; it has a dictionary only if it
# has a meaning.
_FUNCTIONS: WeakKeyDictionary[FunctionType, dict[str, Any]] = WeakKeyDictionary()
_OBJECTS: dict[int, tuple[Any, dict[str, Any]]] = {}


def lookup(function: Any) -> Any:
    """The meaning of a Python callable: its row, its custom derivative, or the scalar function to inline for it.

    None where it has no meaning but its source.
    """
    return _place(function)["meaning"]


def watch(function: Any) -> Capture:
    """The meaning of a callable as a guard, which holds until the meaning changes."""
    place = _place(function)
    return Capture(place, "meaning", place["meaning"], "")


def by_spelling(spelling: str) -> Any:
    """The meaning of a dotted name; raises `KeyError` where the table has none."""
    return BY_SPELLING[spelling]


def set_meaning(function: Any, meaning: Any) -> None:
    """Give a callable a meaning, or with None take it away; the guards of kernels that have used it then fail."""
    place = _stored(function)
    if place is None:
        _store(function, meaning)
    else:
        place["meaning"] = meaning


def meanings() -> list[tuple[Any, Any]]:
    """Every callable that has been looked up, with its meaning."""
    return [(each, place["meaning"]) for each, place in [*_FUNCTIONS.items(), *_OBJECTS.values()]]


def resolve(spelling: str) -> Any:
    """The object of a dotted name; None where there is none, or its module would have to be imported."""
    module, _, name = spelling.rpartition(".")
    # SciPy is not imported to look its functions up: a program that has not imported it does not call them.
    if module not in sys.modules and not module.startswith(("math", "numpy", "builtins", "dualbcast")):
        return None
    return getattr(sys.modules.get(module) or import_module(module), name, None)


def _place(function: Any) -> dict[str, Any]:
    """The dictionary that has the meaning of a callable, under "meaning"."""
    place = _stored(function)
    if place is None:
        by_name = (meaning for spelling, meaning in BY_SPELLING.items() if resolve(spelling) is function)
        place = _store(function, next(by_name, None))
    return place


def _stored(function: Any) -> dict[str, Any] | None:
    if isinstance(function, FunctionType):
        return _FUNCTIONS.get(function)
    entry = _OBJECTS.get(id(function))
    return entry[1] if entry is not None and entry[0] is function else None


def _store(function: Any, meaning: Any) -> dict[str, Any]:
    place = {"meaning": meaning}
    if isinstance(function, FunctionType):
        _FUNCTIONS[function] = place
    elif meaning is not None:
        _OBJECTS[id(function)] = function, place
    return place
