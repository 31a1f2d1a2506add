"""Values that are to merge or to be compared, as records of one class: captured dataclass objects, members of
enumerations, and numbers beside complex ones.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import math
from typing import cast

from dualbcast.frontend.environment import Environment
from dualbcast.frontend.values import (
    Record,
    Static,
    Value,
    complex_number,
    enumeration_of,
    is_complex,
    without_name,
)
from dualbcast.ir.nodes import ZERO, Atom, Const, Var
from dualbcast.ir.simplification import number, zero
from dualbcast.rules.guards import Capture


def is_captured_dataclass(value: Value) -> bool:
    """Whether a value is an object of a dataclass that exists when the kernel is compiled."""
    return isinstance(value, Static) and dataclasses.is_dataclass(value.object) and not isinstance(value.object, type)


def as_record(env: Environment, value: Value, node: ast.AST | None = None) -> Value:
    """A captured dataclass object as a record like those that a kernel makes; any other value as it is.

    All fields are read and guarded. Where a kernel cannot use one of them, the object stays what it is; with a node it
    is an error there. Attributes are read without this, so that a kernel does not depend on fields, and on arrays in
    them, that it never mentions.
    """
    if not isinstance(value, Static) or not is_captured_dataclass(value):
        return value
    owner = value.object
    path = next((guard.path for guard in env.guards if guard.value is owner), type(owner).__name__)
    names = tuple(field.name for field in dataclasses.fields(owner))
    try:
        places = [Capture(owner, name, getattr(owner, name), f"{path}.{name}", attribute=True) for name in names]
        items = [env.known(place) if node is None else env.captured(place, node) for place in places]
    except (AttributeError, OverflowError):
        return value
    usable = [item for item in items if item is not None]
    if len(usable) < len(items):
        return value
    if node is None:
        env.guards.extend(place for place in places if env.array_kind(place.value) is None)
    return Record(type(owner), usable, names)


def are_of_one_enumeration(values: list[Value]) -> bool:
    """Whether values are members of one enumeration."""
    kinds = {enumeration_of(value) for value in values}
    return len(kinds) == 1 and kinds != {None}


def as_member(value: Value) -> Record:
    """A member of an enumeration as a record, of what tells it from the others: its number, or its place."""
    if isinstance(value, Record):
        return value
    known = without_name(value)
    if isinstance(known, Static):
        members: type[enum.Enum] = type(known.object)
        known = number(list(members).index(known.object))
    return Record(type(cast(Static, value).object), (known,))


def as_comparable(left: Value, right: Value) -> tuple[Value, Value]:
    """Two values as what tells whether they are equal: a number for a member of an enumeration that is not known."""
    if not isinstance(left, Record) and not isinstance(right, Record):
        return left, right
    if are_of_one_enumeration([left, right]):
        return as_member(left)[0], as_member(right)[0]
    one, two = (without_name(side) if isinstance(side, Record) else side for side in (left, right))
    return one, two


def of_one_class(env: Environment, values: list[Value]) -> list[Value]:
    """Values that are to merge or to be compared, as records where that makes them alike.

    Captured dataclass objects and members of enumerations become records if all are of one class, and numbers become
    complex beside complex ones.
    """
    if are_of_one_enumeration(values):
        return [*map(as_member, values)]
    values = [*map(without_name, values)]
    if any(map(is_complex, values)) and all(isinstance(value, Atom) or is_complex(value) for value in values):
        return [as_complex(value) for value in values]
    kinds = {class_of(value) for value in values}
    return values if len(kinds) > 1 or kinds == {None} else [as_record(env, value) for value in values]


def as_complex(value: Value) -> Value:
    """A real number as a complex one; any other value as it is."""
    if not isinstance(value, Const | Var):
        return value
    real = Const(float(value.value), "float") if isinstance(value, Const) else value
    return complex_number((real, ZERO))


def blank_like(value: Value, *, raises: bool = False) -> Value:
    """A value of the same shape and kinds, for a path on which nothing reads it.

    On one that `raises` an error the floats in it are nan, for calls that leave out what speaks.
    """
    if isinstance(value, Record):
        return value.like(blank_like(item, raises=raises) for item in value)
    if isinstance(value, Atom):
        return Const(math.nan, "float") if raises and value.kind == "float" else zero(value.kind)
    return value


def part_of(name: str, whole: Record, position: int) -> str:
    """How messages name an item of a value."""
    if whole.fields:
        return f"{name}.{whole.fields[position]}"
    return f"{name}[{position}]" if " " not in name else f"item {position} of {name}"


def class_of(value: Value) -> type | None:
    """The class of a record, or of a captured dataclass object; None for anything else."""
    if isinstance(value, Static) and is_captured_dataclass(value):
        return type(value.object)
    return value.python_type if isinstance(value, Record) else None


def are_compared(record: Record) -> list[bool] | None:
    """Which items `==` compares; None for a dataclass whose objects equal nothing but themselves."""
    if not dataclasses.is_dataclass(record.python_type):
        return [True for _ in record]
    if record.python_type.__eq__ is object.__eq__:
        return None
    return [field.compare for field in dataclasses.fields(record.python_type)]
