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

COPY = "a copy, made before the change"
# Stands for what a default has after other calls.
LASTING = Record(list, ())


class Change(NamedTuple):
    """A change in place: when it is, under which name, and in which line."""

    at: int
    name: str
    line: int

    def problem(self, shown: str) -> str:
        """What is wrong with reading something that shares elements with what has changed."""
        where = f"{self.name}, which line {self.line} changes in place: Python would change both"
        return f"{'this' if shown == self.name else shown} shares its elements with {where}"


# The last change of each record, by when it was made.
Changes = Mapping[int, Change]


class Read(NamedTuple):
    """A name that was read, with its value, the frame that has it, and whether another frame read it."""

    node: ast.Name
    value: Value
    owner: Frame
    is_outer: bool


def note_late(value: Value, over: Iterable[Value], reads: Iterable[Read]) -> Value:
    """Note what an iterator goes over, and the names that Python reads when it comes to an item."""
    if isinstance(value, Record) and value.is_iterator:
        value.late = (*over, *reads)
    return value


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


def missed_change(value: object, changes: Changes, before: float = float("inf")) -> Change | None:
    """The change of its elements before which a value, or what is in it, was made; and before a time, if one is given.

    A function has its defaults, and the arguments that it holds.
    """
    if not changes:
        return None
    if isinstance(value, Const | Var):
        return None
    if isinstance(value, Record):
        for root in roots(value):
            change = changes.get(root.made)
            if change is not None and value.made < min(change.at, before):
                return change
        if value.python_type is np.ndarray:
            return None  # its rows are views of it
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
            return None
    return next((found for part in parts if (found := missed_change(part, changes, before))), None)


def changes_of(bindings: Bindings) -> Changes:
    """What has changed on a path."""
    changed = bindings.get(Key.CHANGED)
    return changed.object if isinstance(changed, Static) else {}


def current(bindings: Bindings, name: str, missing: Value) -> Value:
    """The value of a name at the end of a path, unless a change in place has left it out of date there."""
    value = bindings.get(name, missing)
    change = missed_change(value, changes_of(bindings))
    return value if change is None else Unassigned(change.problem(name.strip("<>")), conflict=True)


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


def add_base(target: Record, value: Record) -> None:
    """Note that a name that a loop carries may stand for this value, too."""
    known = roots(target)
    if not all(any(root is other for other in known) for root in roots(value)):
        target.bases = (*target.bases, value)


def merged_value(value: Value, values: list[Value]) -> Value:
    """What several values are under one name; a change of it in place is one of any of them."""
    bases = tuple(each for each in values if isinstance(each, Record) and each.can_change)
    if isinstance(value, Record) and bases:
        value = value.like(value)
        value.bases = bases
    return value


def spread_changes(bindings: Bindings, carried: Iterable[Value], begun: int) -> None:
    """Note that a change in an iteration of a loop, begun at a time, is one of all that its name is in others."""
    groups = [group for value in carried for group in _groups(value) if len(group) > 1]
    changes, before = dict(changes_of(bindings)), None
    while groups and changes != before:
        before = dict(changes)
        for group in groups:
            found = [change for made in group if (change := changes.get(made)) and change.at > begun]
            if found:
                changes |= dict.fromkeys(group, max(found))
    if changes:
        bindings[Key.CHANGED] = Static(changes)


def _groups(value: Value) -> Iterable[list[int]]:
    """When all that a value may be was made, and likewise for the values in it."""
    if isinstance(value, Record):
        yield [root.made for root in roots(value)]
        for item in value:
            yield from _groups(item)


def note_change(bindings: Bindings, record: Record, name: str, node: ast.stmt) -> None:
    """Note that a list, a dictionary or an array changes now, under a name and in a statement."""
    change = Change(next(CLOCK), name, node.lineno)
    bindings[Key.CHANGED] = Static({**changes_of(bindings), **{root.made: change for root in roots(record)}})


def note_changes(bindings: Bindings, others: Iterable[Bindings]) -> None:
    """Note the changes of other paths."""
    merged = dict(changes_of(bindings))
    for other in others:
        for made, change in changes_of(other).items():
            merged[made] = max(change, merged.get(made, change))
    if merged:
        bindings[Key.CHANGED] = Static(merged)
