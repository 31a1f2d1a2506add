"""Names that stand for one list or array, so that a change in place under one is one of all."""

from __future__ import annotations

import ast
from functools import lru_cache

import numpy as np

from dualbcast.frontend.environment import Environment
from dualbcast.frontend.objects.outdated import COPY, Read, changes_of, is_outdated, roots
from dualbcast.frontend.source import FunctionNode, assigned_names
from dualbcast.frontend.values import Frame, Key, Loop, Record, Unrolled, Value
from dualbcast.ir.nodes import TRUE

# Stands for what a default has after other calls.
LASTING = Record(list, ())


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
    own = env.frame
    place: tuple[Frame, ast.AST] | None = (own, stmt)
    while place is not None:
        frame, at = place
        for other in sorted(_read_after(frame.node, at) - ({name} if frame is own else set())):
            if shares(frame.bindings.get(other), changed):  # type: ignore[arg-type] # None shares nothing
                where = "" if frame is own else " outside of this function"
                problem = f"{other}{where} and {name} share their elements"
                env.fail(stmt, f"{problem}, which {_library(changed)} would change in both", instead)
        _refuse_iterated(env, frame, stmt, name, changed, instead)
        place = frame.caller


def refuse_shared_in_loop(env: Environment, loop: Loop, node: ast.stmt, begun: int, reads: list[Read]) -> None:
    """Refuse the changes of a loop that an earlier iteration makes shared, or that a later one would have to see.

    The loop has begun at a time; the names that were read are those of an iteration.
    """
    for stmt, name, changed, instead in loop.changed:
        for other in sorted(_read_after(env.frame.node, stmt) - {name}):
            if shares(loop.start.get(other), changed):  # type: ignore[arg-type]
                problem = f"{other} and {name} share their elements after an iteration"
                env.fail(stmt, f"{problem}, and {_library(changed)} would change both", instead)
    for edge in loop.breaks + loop.continues:
        changes = changes_of(edge.bindings)
        if changes and edge.bindings.get(Key.RETURNED) != TRUE:
            for name in loop.carried:
                if is_outdated(edge.bindings[name], changes):
                    env.fail(node, f"{name} shares its elements with what this loop changes in place", COPY)
    for edge in loop.continues:
        changes = changes_of(edge.bindings)
        for read in reads if changes else ():
            if is_outdated(read.value, changes, begun):
                at = node if read.is_outer or read.owner is not env.frame else read.node
                problem = f"{read.node.id} shares its elements with what an earlier iteration changes in place"
                env.fail(at, problem, COPY)


def _library(changed: Record) -> str:
    return "Python" if changed.python_type in (list, dict) else "NumPy"


@lru_cache(maxsize=1024)
def _read_after(function: FunctionNode, at: ast.AST) -> frozenset[str]:
    """The names that a function may read after a statement or a call in it, or in the same statement.

    Those that the result of a call is assigned to have other values after it.
    """
    nodes, inside = [*ast.walk(function)], {*ast.walk(at)}
    around = [node for node in nodes if isinstance(node, ast.stmt) and node is not function and at in ast.walk(node)]
    loops = [node for node in around if isinstance(node, ast.For | ast.While)]
    start = min(node.lineno for node in (loops or around[-1:] or [at]) if isinstance(node, ast.stmt | ast.expr))
    changed = {node.target for node in nodes if isinstance(node, ast.AugAssign)}
    names = [node for node in nodes if isinstance(node, ast.Name) and node.lineno >= start and node not in inside]
    read = {node.id for node in names if isinstance(node.ctx, ast.Load) or node in changed}
    last = around[-1] if around else None
    if isinstance(last, ast.Assign) and last.value is at:
        read -= {target.id for target in last.targets if isinstance(target, ast.Name)}
    return frozenset(read)


# --- what loops that are written out go over -------------------------------------------------------------------------


def read_in_iterations(env: Environment, stmt: ast.For, over: Value, reads: list[Read]) -> tuple[Value, ...]:
    """What a loop reads when it comes to each item: what it goes over, or what the items of an iterator are made of.

    Refused where that is a name that the loop assigns: here all items are made before the first iteration.
    """
    if not isinstance(over, Record) or not over.is_iterator:
        return (over,)
    assigned = assigned_names([stmt])
    for read in reads:
        if read.is_outer and read.owner is env.frame and read.node.id in assigned:
            problem = f"{read.node.id} changes while a loop goes over items that are made of it"
            env.fail(stmt.iter, problem, f"the items as they are before the loop: tuple({ast.unparse(stmt.iter)})")
    copied = {part for node in ast.walk(stmt.iter) if _is_copy(node) for part in ast.walk(node)}
    return tuple(read.value for read in reads if read.is_outer or read.node not in copied)


def _is_copy(node: ast.AST) -> bool:
    """Whether an expression makes something new of all items at once."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _AT_ONCE


_AT_ONCE = ("tuple", "list", "sorted", "sum", "min", "max", "len", "range")


def places(stmt: ast.For) -> frozenset[str]:
    """What a loop over `enumerate(t)` or `t.items()` may change of t: `t[i]`, whose place it has reached."""
    target = stmt.target.elts[0] if isinstance(stmt.target, ast.Tuple) else None
    if not isinstance(target, ast.Name):
        return frozenset()
    index, given = target.id, list[ast.expr]()
    match stmt.iter:
        case ast.Call(ast.Name("enumerate"), [ast.Call(ast.Name("zip"), [*given], [])], []):
            pass
        case ast.Call(ast.Name("enumerate"), [over], []) | ast.Call(ast.Attribute(over, "items"), [], []):
            given = [over]
    stores = [node for node in ast.walk(stmt) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    is_kept = [node.id for node in stores].count(index) == 1
    return frozenset(f"{each.id}[{index}]" for each in given if isinstance(each, ast.Name) and is_kept)


def _refuse_iterated(env: Environment, frame: Frame, stmt: ast.stmt, name: str, changed: Record, instead: str) -> None:
    """Refuse a change of what a loop goes over, but that of the item whose place the loop has."""
    target = stmt.targets[0] if isinstance(stmt, ast.Assign) else getattr(stmt, "target", None)
    place = ast.unparse(target) if isinstance(target, ast.Subscript) and frame is env.frame else ""
    mine = {root.made for root in roots(changed)}
    for loop in frame.loops:
        if isinstance(loop, Unrolled) and place not in loop.places:
            for value in loop.over:
                if isinstance(value, Record) and any(root.made in mine for root in roots(value)):
                    if changed.python_type is np.ndarray and changed.bases:  # a row of it, or another view
                        env.fail(stmt, f"{name} shares its elements with what the loop goes over", instead)
                    env.fail(stmt, f"{name} changes while a loop goes over it", f"a loop over a copy: tuple({name})")
