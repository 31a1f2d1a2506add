"""Notes in the IR of what each step of the user's function does, for a lowering that is asked for them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from dualbcast.frontend.environment import Environment
from dualbcast.frontend.values import Record, Value, enumeration_of
from dualbcast.ir.nodes import FALSE, TRUE, Atom, Expr, If, Note, Stmt, Var


def note(env: Environment, what: Any, name: str, value: Value, node: ast.AST) -> None:
    """Append a note with the numbers in a value under this name, if there are any and notes are wanted."""
    if not env.notes:
        return
    frame = env.frame
    # A comprehension, or the loop that stands for one, has no statements of the user's.
    is_comprehension = frame.parent is not None and frame.parent.node is frame.node
    numbers = dict(_numbers_in(value, name))
    if numbers and not is_comprehension and "%items" not in frame.bindings:
        append_note(env, what, tuple(numbers), tuple(numbers.values()), node)


def append_note(
    env: Environment,
    what: Any,
    labels: tuple[str, ...],
    values: tuple[Expr, ...],
    node: ast.AST,
    kind: type[Exception] | None = None,
) -> None:
    """Append a note, if notes are wanted; `kind` is the class of the error that a `raise` names."""
    if not env.notes:
        return
    frame, where = env.frame, env.locate(node)
    stmt: Stmt = Note(what, labels, values, frame.name, len(frame.calls), where, kind)
    for state in [frame.bindings.get(flag, FALSE) for flag in frame.flags]:
        if state == TRUE:  # no path comes here
            return
        stmt = If(state, (), (stmt,), where) if isinstance(state, Var) else stmt
    env.block.append(stmt)


def _numbers_in(value: Value, name: str) -> Iterator[tuple[str, Atom]]:
    """The numbers in a value, each with how the user would write it: `p.x`, `t[0]`."""
    if isinstance(value, Atom):
        yield name, value
    elif enumeration_of(value) is not None and isinstance(value, Record):
        yield name, value[0]
    elif isinstance(value, Record):
        for at, item in enumerate(value):
            yield from _numbers_in(item, f"{name}.{value.fields[at]}" if value.fields else f"{name}[{at}]")
