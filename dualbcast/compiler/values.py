"""What a name or an expression of the user's stands for while a function is lowered: numbers, tuples, functions.

An environment maps names to values on one path; a frame is one activation of a function that is being inlined.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

from dualbcast.compiler.fold import FALSE, TRUE
from dualbcast.compiler.ir import NOWHERE, Atom, Const, Expr, Kind, Stmt, Var
from dualbcast.compiler.source import FunctionNode, Source
from dualbcast.errors import Location

__all__ = [
    "CHOICE",
    "RESULT",
    "RETURNED",
    "RETURNED_AT",
    "SKIPPING",
    "Closure",
    "Copies",
    "Env",
    "Frame",
    "KindRaised",
    "Loop",
    "Range",
    "Static",
    "Unassigned",
    "Unrolled",
    "Value",
    "describe",
    "end_of",
    "is_like",
    "same",
    "zeros_like",
]

# Entries of an environment that are no user's names.
RETURNED, RESULT, RETURNED_AT, CHOICE = "<returned>", "<result>", "<returned at>", "<choice>"
SKIPPING = "<skipping>"


@dataclass(frozen=True, slots=True)
class Static:
    """A Python object that exists at compile time only: a function, a module, a string."""

    object: Any


@dataclass(frozen=True, slots=True, eq=False)
class Closure:
    """A function defined inside the one being compiled; it sees its frame's names as they are when it is called."""

    node: FunctionNode
    frame: Frame
    defaults: tuple[Value, ...] = ()
    keyword_defaults: tuple[Value | None, ...] = ()

    @property
    def name(self) -> str:
        return getattr(self.node, "name", "<lambda>")


@dataclass(frozen=True, slots=True)
class Range:
    """`range(start, stop, step)`."""

    start: Atom
    stop: Atom
    step: Atom

    def known(self) -> range | None:
        """The range itself where its bounds are numbers."""
        if isinstance(self.start, Const) and isinstance(self.stop, Const) and isinstance(self.step, Const):
            return range(int(self.start.value), int(self.stop.value), int(self.step.value))
        return None


@dataclass(frozen=True, slots=True)
class Unassigned:
    """Stands for a name that some path has not assigned, or (`conflict`) that paths assigned to what cannot merge."""

    reason: str
    conflict: bool = False


Value = Const | Var | Static | Closure | Range | Unassigned | tuple["Value", ...]
Env = dict[str, Value]
Copies = list[tuple[Var, Expr]]


@dataclass(eq=False, slots=True)
class Loop:
    """A loop of the kernel, with the paths that leave it and that start its next turn."""

    breaks: list[tuple[list[Stmt], Env, Location]] = field(default_factory=list)
    continues: list[tuple[list[Stmt], Env, Location]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Unrolled:
    """A loop that is written out; the names of the flags that say whether the rest of it is skipped.

    `lacking` has the names, by flag, that were not assigned where the flag was set.
    """

    broke: str
    skip: str
    lacking: dict[str, set[str]] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class Frame:
    """One activation of a function that is being inlined."""

    source: Source
    local: frozenset[str]
    env: Env
    parent: Frame | None = None
    calls: tuple[tuple[str, Location], ...] = ()
    loops: list[Loop | Unrolled] = field(default_factory=list)
    flags: list[str] = field(default_factory=lambda: [RETURNED])
    returned_at: ast.AST | None = None


class KindRaised(Exception):
    """A loop-carried name must hold a wider kind: the loop is lowered again with it."""

    def __init__(self, path: str, kind: Kind) -> None:
        self.path, self.kind = path, kind


def describe(value: Value) -> str:
    """What a value is, in an error's words."""
    match value:
        case Const() | Var():
            return "a number"
        case tuple():
            return f"a tuple of {len(value)}"
        case Closure():
            return f"the function {value.name}"
        case Static():
            if value.object is None or isinstance(value.object, str):
                return "None" if value.object is None else "text"
            name = getattr(value.object, "__name__", None)
            if isinstance(name, str):
                return f"{'the function ' if callable(value.object) else 'the module '}{name}"
            return f"an object of type {type(value.object).__name__}"
        case Range():
            return "a range"
        case _:
            return "unassigned"


def end_of(env: Env) -> Location:
    """Where a path returned; what its end assigns belongs to that line."""
    at = env.get(RETURNED_AT)
    return at.object if isinstance(at, Static) and env.get(RETURNED) == TRUE else NOWHERE


def is_like(value: Value, model: Value) -> bool:
    """Whether two values can merge."""
    if isinstance(value, tuple) and isinstance(model, tuple):
        return len(value) == len(model) and all(map(is_like, value, model))
    return isinstance(value, Const | Var) and isinstance(model, Const | Var)


def same(a: Value, b: Value) -> bool:
    """Whether two values are one, so that nothing needs to merge."""
    if isinstance(a, Static) and isinstance(b, Static):
        return a.object is b.object
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, Closure) and isinstance(b, Closure):
        same_place = a.node is b.node and a.frame is b.frame
        return same_place and same(a.defaults, b.defaults) and a.keyword_defaults == b.keyword_defaults
    return a == b


def zeros_like(value: Value) -> Value:
    """A value of the same shape and kinds, for a path on which nothing reads it."""
    if isinstance(value, tuple):
        return tuple(map(zeros_like, value))
    if isinstance(value, Const | Var):
        return {"bool": FALSE, "int": Const(0, "int"), "float": Const(0.0, "float")}[value.kind]
    return value
