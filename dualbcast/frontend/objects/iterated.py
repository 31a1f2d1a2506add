"""What a loop that is written out goes over, which must not change before the loop has come to it.

Comes in: a loop with its iterable, or a change in place. Goes out: what the loop reads on its way, or an error.
"""

from __future__ import annotations

import ast

import numpy as np

from dualbcast.frontend.environment import Environment
from dualbcast.frontend.objects.outdated import Read, roots
from dualbcast.frontend.source import assigned_names
from dualbcast.frontend.values import Frame, Record, Unrolled, Value


def read_in_iterations(env: Environment, stmt: ast.For, over: Value) -> tuple[Value, ...]:
    """What a loop reads when it comes to each item: what it goes over, or what the items of an iterator are made of.

    Refused where that is a name that the loop assigns: here all items are made before the first iteration.
    """
    if not isinstance(over, Record) or not over.is_iterator:
        return (over,)
    values: list[Value] = []
    for each in over.late:
        if not isinstance(each, Read):
            values += read_in_iterations(env, stmt, each)
            continue
        if each.owner is env.frame and each.node.id in assigned_names([stmt]):
            problem = f"{each.node.id} changes while a loop goes over items that are made of it"
            env.fail(stmt.iter, problem, f"the items as they are before the loop: tuple({ast.unparse(stmt.iter)})")
        values.append(each.value)
    return tuple(values)


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


def refuse_iterated(env: Environment, stmt: ast.stmt, name: str, changed: Record, instead: str) -> None:
    """Refuse a change of what a loop goes over, in this function or one that calls it.

    A loop may change the item whose place it has reached.
    """
    target = stmt.targets[0] if isinstance(stmt, ast.Assign) else getattr(stmt, "target", None)
    mine = {root.made for root in roots(changed)}
    frame: Frame | None = env.frame
    place = ast.unparse(target) if isinstance(target, ast.Subscript) else ""
    while frame is not None:
        loops = [loop for loop in frame.loops if isinstance(loop, Unrolled) and place not in loop.places]
        over = [value for loop in loops for value in loop.over if isinstance(value, Record)]
        if any(root.made in mine for value in over for root in roots(value)):
            if changed.python_type is np.ndarray and changed.bases:  # a row of it, or another view
                env.fail(stmt, f"{name} shares its elements with what the loop goes over", instead)
            env.fail(stmt, f"{name} changes while a loop goes over it", f"a loop over a copy: tuple({name})")
        frame, place = frame.caller, ""
