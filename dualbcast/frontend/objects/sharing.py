"""Names that stand for one list or array, so that a change in place under one is one of all."""

from __future__ import annotations

import ast
from functools import lru_cache

from dualbcast.frontend.environment import Environment
from dualbcast.frontend.source import FunctionNode
from dualbcast.frontend.values import Frame, Loop, Record, Value

# Stands for what a default has after other calls.
LASTING = Record(list, ())


def roots(record: Record) -> list[Record]:
    """The records whose elements an array or a list may have: its own, or those of its bases, without end."""
    found: list[Record] = []
    seen: list[Record] = []
    pending = [record]
    while pending:
        each = pending.pop()
        if any(each is other for other in seen):
            continue
        seen.append(each)
        pending += each.bases
        if not each.bases:
            found.append(each)
    return found or [record]


def shares(value: Value, changed: Record) -> bool:
    """Whether a change of an array or a list in place is one of this value, or of something in it."""
    if not isinstance(value, Record):
        return False
    mine, others = roots(value), roots(changed)
    if any(one is other for one in mine for other in others):
        return True
    return any(shares(item, changed) for one in mine for item in one)


def add_base(target: Record, value: Record) -> None:
    """Note that a name that a loop carries may stand for this value, too."""
    known = roots(target)
    if not all(any(root is other for other in known) for root in roots(value)):
        target.bases = (*(target.bases or ()), value)


def merged_value(value: Value, values: list[Value]) -> Value:
    """What several values are under one name; a change of it in place is one of any of them."""
    bases = tuple(each for each in values if isinstance(each, Record) and each.can_change)
    if isinstance(value, Record) and bases:
        value = value.like(value)
        value.bases = bases
    return value


def refuse_shared(env: Environment, stmt: ast.stmt, name: str, changed: Record, instead: str) -> None:
    """Refuse a change in place of what is read under another name, too: Python would change that as well."""
    for loop in env.frame.loops:
        if isinstance(loop, Loop):
            loop.changed.append((stmt, name, changed, instead))
    if any(root is LASTING for root in roots(changed)):
        env.fail(stmt, f"{name} is a default, which Python would change for later calls, too", "None as the default")
    _refuse_iterated(env, stmt, name)
    own = env.frame
    place: tuple[Frame, ast.AST] | None = (own, stmt)
    while place is not None:
        frame, at = place
        for other in sorted(_read_after(frame.node, at) - ({name} if frame is own else set())):
            if shares(frame.bindings.get(other), changed):  # type: ignore[arg-type] # None shares nothing
                where = "" if frame is own else " outside of this function"
                problem = f"{other}{where} and {name} share their elements"
                env.fail(stmt, f"{problem}, which {_library(changed)} would change in both", instead)
        place = frame.caller


def _refuse_iterated(env: Environment, stmt: ast.stmt, name: str) -> None:
    """Refuse a change of what a loop goes over, but that of the item whose place the loop has."""
    target = stmt.targets[0] if isinstance(stmt, ast.Assign) else getattr(stmt, "target", None)
    place = target.slice.id if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Name) else None
    for loop in _loops_around(env.frame.node, stmt):
        over = loop.iter.args if isinstance(loop.iter, ast.Call) else [loop.iter]
        own = {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
        if any(isinstance(node, ast.Name) and node.id == name for node in over) and place not in own:
            env.fail(stmt, f"{name} changes while a loop goes over it", f"a loop over a copy: tuple({name})")


@lru_cache(maxsize=1024)
def _loops_around(function: FunctionNode, stmt: ast.stmt) -> tuple[ast.For, ...]:
    return tuple([loop for loop in ast.walk(function) if isinstance(loop, ast.For) and stmt in ast.walk(loop)])


def refuse_shared_in_loop(env: Environment, loop: Loop) -> None:
    """Refuse the changes of a loop that an earlier iteration makes shared."""
    for stmt, name, changed, instead in loop.changed:
        for other in sorted(_read_after(env.frame.node, stmt) - {name}):
            if shares(loop.start.get(other), changed):  # type: ignore[arg-type]
                problem = f"{other} and {name} share their elements after an iteration"
                env.fail(stmt, f"{problem}, and {_library(changed)} would change both", instead)


def _library(changed: Record) -> str:
    return "Python" if changed.python_type in (list, dict) else "NumPy"


@lru_cache(maxsize=1024)
def _read_after(function: FunctionNode, at: ast.AST) -> frozenset[str]:
    """The names that a function may read after a statement or a call in it, or in the same line."""
    nodes, inside = [*ast.walk(function)], {*ast.walk(at)}
    loops = [node for node in nodes if isinstance(node, ast.For | ast.While) and at in ast.walk(node)]
    start = min(node.lineno for node in (*loops, at) if isinstance(node, ast.stmt | ast.expr))
    after = [node for node in nodes if isinstance(node, ast.Name) and node.lineno >= start and node not in inside]
    return frozenset(node.id for node in after)
