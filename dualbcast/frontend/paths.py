"""Paths of control flow: they run through statements, branch, return, leave loops, and merge again.

If paths that merge bind a name to different numbers, the name becomes a variable, which each path assigns.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from functools import partial, reduce
from typing import cast

from dualbcast.errors import Location
from dualbcast.frontend.environment import Environment, lowering_of, open_block
from dualbcast.frontend.objects.outdated import add_base, current, merged_value, note_changes
from dualbcast.frontend.records import (
    are_of_one_enumeration,
    as_complex,
    as_member,
    as_record,
    blank_like,
    is_captured_dataclass,
    of_one_class,
    part_of,
)
from dualbcast.frontend.values import (
    RAISES,
    Bindings,
    Closure,
    Copies,
    Edge,
    Key,
    Loop,
    Raised,
    Record,
    Static,
    Unassigned,
    Unrolled,
    Value,
    are_alike,
    describe,
    is_complex,
    is_member,
    is_number,
    same,
    without_name,
)
from dualbcast.ir.nodes import FALSE, NOWHERE, TEMPORARY, TRUE, Assign, Atom, Const, If, Kind, Stmt, Var
from dualbcast.ir.simplification import convert, join
from dualbcast.ir.traversal import renamed, variables

# A lowered side of a branch: its block, its bindings, and whether its end is reached.
End = tuple[list[Stmt], Bindings, bool]


def statements(env: Environment, body: list[ast.stmt]) -> bool:
    """Lower a block; False if its end is never reached. Paths whose flag is set skip the remaining statements."""
    frame = env.frame
    for position, stmt in enumerate(body):
        if not leave_if_returned(env, stmt):
            return False
        pending = [flag for flag in frame.flags if frame.bindings.get(flag, FALSE) != FALSE]
        if pending:
            state = frame.bindings[pending[0]]
            if TRUE in (frame.bindings.get(Key.SKIPPING), *map(frame.bindings.get, pending)):
                return True  # no path reaches this statement, whichever flag each has set
            assert isinstance(state, Var), state
            return unless(env, pending[0], state, stmt, partial(statements, env, body[position:]))
        end: bool | None = lowering_of(env, stmt)(env, stmt, body[position + 1 :])
        if end is not None:
            return end
    return True


# --- branches --------------------------------------------------------------------------------------------------------


def lower_side(env: Environment, before: Bindings, side: Callable[[], bool]) -> End:
    """Lower one side of a branch into a block of its own."""
    frame = env.frame
    frame.bindings = dict(before)
    block: list[Stmt] = []
    with env.into(block):
        falls = side()
    return block, frame.bindings, falls


def branch(env: Environment, test: Atom, node: ast.AST, then: Callable[[], bool], orelse: Callable[[], bool]) -> bool:
    """Lower both sides of a branch and merge their bindings; False if neither reaches its end."""
    before = env.frame.bindings
    return close_branch(env, test, node, [lower_side(env, before, side) for side in (then, orelse)])


def close_branch(env: Environment, test: Atom, node: ast.AST, ends: list[End]) -> bool:
    """Append a branch whose sides are lowered, and merge their bindings; False if neither side reaches its end."""
    (then, then_bindings, then_falls), (orelse, else_bindings, else_falls) = ends
    if then_falls and else_falls:
        env.frame.bindings = _merge(env, [(then, then_bindings), (orelse, else_bindings)])
    else:
        env.frame.bindings = then_bindings if then_falls else else_bindings
    # The branch is needed even if both sides are empty: a jump may be added to one when its loop is closed.
    env.block.append(If(test, open_block(then), open_block(orelse), env.locate(node)))
    return then_falls or else_falls


def _merge(env: Environment, edges: list[tuple[list[Stmt], Bindings]]) -> Bindings:
    copies: list[Copies] = [[] for _ in edges]
    paths = [bindings for _, bindings in edges]
    partly = frozenset().union(*map(_partly_assigned, paths))
    merged: Bindings = {}
    note_changes(merged, paths)
    for name in dict.fromkeys(name for bindings in paths for name in bindings):
        if name == Key.SKIPPING:
            merged[name] = TRUE if all(bindings.get(Key.SKIPPING) == TRUE for bindings in paths) else FALSE
        elif name not in (Key.PARTLY, Key.CHANGED):
            missing = Unassigned(f"{name} is not assigned on every path that leads here")
            values, flags = fill(env, name, [current(bindings, name, missing) for bindings in paths], paths)
            partly |= {(flag, name) for flag in flags}
            merged[name] = unify(env, name, values, copies)
    if partly:
        merged[Key.PARTLY] = Static(partly)
    for (block, bindings), path_copies in zip(edges, copies, strict=True):
        copy_parallel(env, block, path_copies, end_of(bindings))
    return merged


# --- returns, and jumps out of loops ---------------------------------------------------------------------------------


def jump(env: Environment, edges: list[Edge], node: ast.AST) -> bool:
    """Leave an iteration of a loop of the kernel, on one of its edges; False, because the path ends there."""
    edges.append(Edge(env.block, dict(env.frame.bindings), env.locate(node)))
    return False


def leave_if_returned(env: Environment, node: ast.AST) -> bool:
    """Leave the loop of the kernel around this statement if a loop inside it has returned; False if the path ends."""
    loop, flag = innermost_loop(env), env.frame.bindings.get(Key.RETURNED, FALSE)
    if loop is None or flag == FALSE:
        return True
    if not isinstance(flag, Var):
        return jump(env, loop.breaks, node)

    def leave() -> bool:
        env.frame.bindings[Key.RETURNED] = TRUE
        return jump(env, loop.breaks, node)

    falls = branch(env, flag, node, leave, lambda: True)
    env.frame.bindings[Key.RETURNED] = env.frame.bindings[Key.SKIPPING] = FALSE
    return falls


def unless(env: Environment, flag: str, state: Var, node: ast.AST, follow: Callable[[], bool]) -> bool:
    """Lower the following statements on the path on which a flag is not set; `state` is its value."""

    def decide(value: Const, side: Callable[[], bool]) -> bool:
        _settle_partly(env, flag, is_set=value == TRUE)
        env.frame.bindings[flag] = env.frame.bindings[Key.SKIPPING] = value
        return side()

    return branch(env, state, node, partial(decide, TRUE, lambda: True), partial(decide, FALSE, follow))


def resume(env: Environment, loop: Unrolled, flag: str) -> None:
    """End the skipping of statements that a flag causes: its paths go on from here."""
    bindings = env.frame.bindings
    for name in sorted(loop.lacking.pop(flag, ())):
        bindings[name] = Unassigned(f"{name} is not assigned where this loop goes on after a `break` or `continue`")
    state = bindings.get(flag, FALSE)
    _settle_partly(env, flag, is_set=state == TRUE)
    bindings[flag] = FALSE
    if state != FALSE:
        bindings[Key.SKIPPING] = TRUE if any(bindings.get(other) == TRUE for other in env.frame.flags) else FALSE


def _settle_partly(env: Environment, flag: str, *, is_set: bool) -> None:
    """Note the value of a flag on this path: if it is not set, the names assigned only where it is are unassigned."""
    bindings = env.frame.bindings
    partly = _partly_assigned(bindings)
    for name in sorted({name for other, name in partly if other == flag and not is_set}):
        bindings[name] = Unassigned(f"{name} is not assigned on every path that leads here")
    bindings[Key.PARTLY] = Static(frozenset(entry for entry in partly if entry[0] != flag))


def _partly_assigned(bindings: Bindings) -> frozenset[tuple[str, str]]:
    """The flags and names of `Key.PARTLY` on a path."""
    partly = bindings.get(Key.PARTLY)
    return partly.object if isinstance(partly, Static) else frozenset()


def end_of(bindings: Bindings) -> Location:
    """The line of a path's return, to which the assignments at its end belong; `NOWHERE` if it has not returned."""
    at = bindings.get(Key.RETURNED_AT)
    return at.object if isinstance(at, Static) and bindings.get(Key.RETURNED) == TRUE else NOWHERE


def innermost_loop(env: Environment) -> Loop | None:
    """The loop of the kernel that the present statement is in."""
    return next((loop for loop in reversed(env.frame.loops) if isinstance(loop, Loop)), None)


# --- one value for several paths -------------------------------------------------------------------------------------


def fill(env: Environment, name: str, values: list[Value], paths: list[Bindings]) -> tuple[list[Value], set[str]]:
    """The values of a name on several paths; a path that skips the rest of a loop may lack one, and gets zeros.

    If only paths that skip assign the name, the second result has their flags.
    """
    skipping = [bindings.get(Key.SKIPPING) == TRUE for bindings in paths]
    live = [value for value, skips in zip(values, skipping, strict=True) if not skips]
    if name.startswith("<") or not any(skipping):
        return values, set()
    # The flags that make a path skip the rest of loops that are written out; none if it has returned.
    flags_of_loops = env.frame.flags[1:]
    flags = [
        {flag for flag in flags_of_loops if bindings.get(flag, FALSE) != FALSE}
        if skips and bindings.get(Key.RETURNED) != TRUE
        else set()
        for bindings, skips in zip(paths, skipping, strict=True)
    ]
    leaving = [value for value, own in zip(values, flags, strict=True) if own]
    filled = list(values)
    if live and not isinstance(live[0], Unassigned):
        for position, value in enumerate(values):
            if skipping[position] and not (same(value, live[0]) or _is_like(value, live[0])):
                filled[position] = blank_like(live[0])
                # The zeros must not be read where that path goes on.
                for loop in env.frame.loops:
                    if isinstance(loop, Unrolled):
                        for flag in flags[position] & {loop.skip, loop.broke}:
                            loop.lacking.setdefault(flag, set()).add(name)
        return filled, set()
    if not leaving or not all(same(value, leaving[0]) or _is_like(value, leaving[0]) for value in leaving):
        return values, set()
    for position, value in enumerate(values):
        if isinstance(value, Unassigned) and not value.conflict:
            filled[position] = blank_like(leaving[0])
    return filled, set().union(*flags) if live else set()


def unify(
    env: Environment,
    name: str,
    values: list[Value],
    copies: list[Copies],
    shown: str = "",
    raised: Mapping[str, Raised] | None = None,
) -> Value:
    """One value for several paths: it is `values[i]` after path i has done `copies[i]`, to which assignments are added.

    Messages call it `shown`. With `raised` it is what a loop carries: every number in it becomes a variable, of the
    kind there if it is wider, and a captured dataclass object becomes a record, or a number complex, if it says so.
    """
    first = values[0]
    if raised is None and all(map(partial(same, first), values)):
        return first if all(value is first for value in values) else merged_value(first, values)
    wanted = raised.get(name) if raised is not None else "record"
    if wanted == "record":
        values = of_one_class(env, values)
    elif wanted is not None:
        values = [without_name(value) if wanted != "complex" else as_complex(without_name(value)) for value in values]
    first = values[0]
    unassigned = [value for value in values if isinstance(value, Unassigned)]
    conflict = next((value for value in unassigned if value.conflict), None)
    if conflict is None and unassigned and name == Key.RESULT:
        # The result is read only on paths that have returned; on others any number will do.
        model = next((value for value in values if not isinstance(value, Unassigned)), None)
        if model is None:
            return RAISES if RAISES in unassigned else unassigned[0]
        stand_ins = {id(value): blank_like(model, raises=value == RAISES) for value in unassigned}
        return unify(env, name, [stand_ins.get(id(value), value) for value in values], copies)
    if unassigned:
        return conflict or unassigned[0]
    numbers = [value for value in values if isinstance(value, Atom)]
    if len(numbers) == len(values):
        kinds = [value.kind for value in numbers]
        wider = raised.get(name) if raised else None
        kind = reduce(join, kinds if wider is None or wider in ("complex", "record") else [*kinds, cast(Kind, wider)])
        target = Var(env.names.fresh(_base(name)), kind)
        for path_copies, number in zip(copies, numbers, strict=True):
            path_copies.append((target, convert(number, kind)))
        return target
    columns = [value for value in values if isinstance(value, Record)]
    if len(columns) == len(values) and are_alike(columns):
        own = shown or {Key.RESULT: "the returned value", Key.CHOICE: "this choice"}.get(name, name)
        merged = [
            unify(env, f"{_base(name)}_{position}", list(items), copies, part_of(own, columns[0], position), raised)
            for position, items in enumerate(zip(*columns, strict=True))
        ]
        return merged_value(columns[0].like(merged), values)
    if raised is not None:
        return first
    return _conflict(name, values, shown or ("the returned value" if name == Key.RESULT else name))


def _conflict(name: str, values: list[Value], shown: str) -> Unassigned:
    """The value of a name whose values cannot merge; to read it is an error."""
    kinds = " and ".join(dict.fromkeys(describe(value) for value in values))
    if name == Key.CHOICE:
        return Unassigned(f"the two sides of this expression are not of one kind: {kinds}", True)
    if all(isinstance(value, Static | Closure) for value in values):
        return Unassigned(f"{shown} is {kinds}, depending on the data, as only numbers may", True)
    return Unassigned(f"{shown} is {kinds}, depending on the path that leads here", True)


def _is_like(value: Value, model: Value) -> bool:
    """Whether two values can merge."""
    if isinstance(value, Record) and isinstance(model, Record):
        return are_alike((value, model)) and all(map(_is_like, value, model))
    pair = [value, model]
    return are_of_one_enumeration(pair) or all(isinstance(without_name(each), Atom) for each in pair)


# --- values that a loop carries --------------------------------------------------------------------------------------


class KindRaised(Exception):
    """A loop-carried name must hold a wider kind, a complex number or a record, so the loop is lowered again."""

    def __init__(self, path: str, kind: Raised) -> None:
        self.path, self.kind = path, kind


def _conformed_member(path: str, target: Value, value: Value) -> Value:
    """A value in the form that a carried target has: a member of an enumeration as such or as its number."""
    if not are_of_one_enumeration([target, value]):
        value = without_name(value)
        if is_member(target) and is_number(value):
            raise KindRaised(path, value.kind if isinstance(value, Atom) else "complex")
        return value
    if isinstance(target, Static):
        raise KindRaised(path, "record")
    return as_member(value)


def conform(
    env: Environment, path: str, target: Value, value: Value, copies: Copies, node: ast.AST, shown: str = ""
) -> None:
    """Assign `value` to the loop-carried `target` in `copies`; raises `KindRaised` if the kind of that is too narrow.

    Messages call it `shown`.
    """
    if isinstance(target, Record) and isinstance(value, Record) and value.can_change:
        add_base(target, value)
    if same(target, value):
        return
    value = _conformed_member(path, target, value)
    if isinstance(target, Var) and isinstance(value, Const | Var):
        kind = join(target.kind, value.kind)
        if kind != target.kind:
            raise KindRaised(path, kind)
        copies.append((target, convert(value, kind)))
    elif isinstance(target, Record) and is_captured_dataclass(value) and isinstance(as_record(env, value), Record):
        conform(env, path, target, as_record(env, value), copies, node, shown)
    elif is_captured_dataclass(target) and isinstance(as_record(env, target), Record):
        raise KindRaised(path, "record")
    elif isinstance(target, Var) and is_complex(value):
        raise KindRaised(path, "complex")
    elif is_complex(target) and isinstance(value, Atom):
        conform(env, path, target, as_complex(value), copies, node, shown)
    elif isinstance(target, Record) and isinstance(value, Record) and are_alike((target, value)):
        for position, (inner, item) in enumerate(zip(target, value, strict=True)):
            own = part_of(shown or path, target, position)
            conform(env, f"{path}_{position}", inner, item, copies, node, own)
    elif isinstance(value, Unassigned):
        env.fail(node, f"{value.reason}, and the next iteration of the loop needs it")
    else:
        env.fail(
            node,
            f"{shown or path.strip('<>')} is {describe(target)} before this loop and {describe(value)} after an "
            "iteration of it",
            "one kind of thing under one name, or two names",
            tried=node,
        )


def copy_parallel(env: Environment, block: list[Stmt], copies: Copies, location: Location = NOWHERE) -> None:
    """Append assignments in an order in which each reads the values from before all of them."""
    pending = [(target, value) for target, value in copies if target != value]
    while pending:
        for position, (target, value) in enumerate(pending):
            others = pending[:position] + pending[position + 1 :]
            if not any(target in variables(other) for _, other in others):
                block.append(Assign(target, value, location))
                pending = others
                break
        else:  # a cycle, such as a swap: one value is saved first
            target, _ = pending[0]
            saved = Var(env.names.fresh(TEMPORARY), target.kind)
            block.append(Assign(saved, target, location))
            pending = [(to, renamed(value, {target.name: saved})) for to, value in pending]


def _base(name: str) -> str:
    """The base of the name of a variable that merges the values of a name."""
    return TEMPORARY if name in (Key.RESULT, Key.CHOICE) else "done" if name.startswith("<") else name
