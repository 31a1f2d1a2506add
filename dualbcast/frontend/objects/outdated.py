"""What a change in place leaves out of date: in Python, all that shares elements with what changes is changed, too.

The bindings of a path have when each list, dictionary or array on it has changed. What was made before, and has its
elements, is out of date.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from dualbcast.frontend.values import (
    CLOCK,
    Bindings,
    Closure,
    Derived,
    Frame,
    Key,
    Partial,
    Record,
    Static,
    Unassigned,
    Value,
)
from dualbcast.ir.nodes import Const, Var

# When each record has changed, by when it was made.
Changes = Mapping[int, int]

OUTDATED = "this shares its elements with what has changed in place since, which Python would change in both"
COPY = "a copy, made before the change"


class Read(NamedTuple):
    """A name that was read, with its value, the frame that has it, and whether another frame read it."""

    node: ast.Name
    value: Value
    owner: Frame
    is_outer: bool


def roots(record: Record) -> list[Record]:
    """The records whose elements an array or a list may have: its own, or those of its bases, without end."""
    if not record.bases:
        return [record]
    found: list[Record] = []
    seen: set[int] = set()
    pending = [record]
    while pending:
        each = pending.pop()
        if each.made in seen:
            continue
        seen.add(each.made)
        pending += each.bases
        if not each.bases:
            found.append(each)
    return found or [record]


def is_outdated(value: object, changes: Changes, before: float = float("inf")) -> bool:
    """Whether a value, or what is in it, was made before a change of its elements; and before a time, if one is given.

    A function has its defaults, and the arguments that it holds.
    """
    if isinstance(value, Const | Var):
        return False
    if isinstance(value, Record):
        if value.made < before and any(changes.get(root.made, 0) > value.made for root in roots(value)):
            return True
        if value.python_type is np.ndarray:
            return False  # its rows are views of it
    parts: Iterable[object]
    match value:
        case tuple():
            parts = [part for part in value if not isinstance(part, Const | Var)]
        case dict():
            parts = value.values()
        case Partial():
            parts = (value.function, value.arguments)
        case Derived():
            parts = (value.function, value.calls)
        case Closure():
            parts = value.defaults.values()
        case _:
            return False
    return any(is_outdated(part, changes, before) for part in parts)


def changes_of(bindings: Bindings) -> Changes:
    """What has changed on a path."""
    changed = bindings.get(Key.CHANGED)
    return changed.object if isinstance(changed, Static) else {}


def current(bindings: Bindings, name: str, missing: Value) -> Value:
    """The value of a name at the end of a path, unless a change in place has left it out of date there."""
    value, changes = bindings.get(name, missing), changes_of(bindings)
    return Unassigned(OUTDATED, conflict=True) if changes and is_outdated(value, changes) else value


def renew(after: Bindings, ends: Iterable[Bindings], carried: Bindings) -> None:
    """Note the changes of a loop, after which the names that it has carried have what they have now."""
    note_changes(after, ends)
    if Key.CHANGED in after:
        after.update({name: renewed(value) for name, value in carried.items()})


def renewed(value: Value) -> Value:
    """A value that a loop has carried, as one that is made now."""
    if not isinstance(value, Record):
        return value
    new = value.like(map(renewed, value))
    new.bases = (value,) if value.can_change else ()
    return new


def note_change(bindings: Bindings, record: Record) -> None:
    """Note that a list, a dictionary or an array changes now."""
    now = next(CLOCK)
    bindings[Key.CHANGED] = Static({**changes_of(bindings), **{root.made: now for root in roots(record)}})


def note_changes(bindings: Bindings, others: Iterable[Bindings]) -> None:
    """Note the changes of other paths."""
    merged = dict(changes_of(bindings))
    for other in others:
        for made, at in changes_of(other).items():
            merged[made] = max(at, merged.get(made, 0))
    if merged:
        bindings[Key.CHANGED] = Static(merged)
