"""Loops: one over a range, or with a test, is one of the kernel; one over a tuple is written out.

A return inside a loop leaves the loop, and a test after the loop asks whether the function has returned.
"""

from __future__ import annotations

import ast
from functools import partial

from dualbcast.errors import CompileError
from dualbcast.frontend import paths
from dualbcast.frontend.environment import KNOWN_INDEX, Environment, expression, lowers, open_block
from dualbcast.frontend.expressions import assign, sequence
from dualbcast.frontend.notes import note
from dualbcast.frontend.objects.comprehensions import Comprehension, is_long
from dualbcast.frontend.objects.iterated import places, read_in_iterations
from dualbcast.frontend.objects.outdated import (
    COPY,
    Read,
    changes_of,
    current,
    missed_change,
    renew,
    spread_changes,
)
from dualbcast.frontend.operators import condition
from dualbcast.frontend.records import blank_like
from dualbcast.frontend.source import assigned_names, changed_names
from dualbcast.frontend.values import (
    CLOCK,
    Bindings,
    Copies,
    Edge,
    Key,
    Loop,
    Raised,
    Range,
    Unassigned,
    Unrolled,
    Value,
)
from dualbcast.ir.nodes import FALSE, TRUE, Break, Const, Continue, For, Stmt, Var, While


@lowers(ast.While)
def _while(env: Environment, stmt: ast.While, _: list[ast.stmt]) -> bool | None:
    if any(isinstance(node, ast.NamedExpr) for node in ast.walk(stmt.test)):
        # The assignments of the test belong to each iteration, so the test moves into the body.
        if any(isinstance(node, ast.Break | ast.Continue) for part in stmt.orelse for node in ast.walk(part)):
            message = "a jump in the `else` of a loop whose test assigns names cannot be compiled"
            env.fail(stmt.orelse[0], message, "the assignment in the loop")
        end = ast.copy_location(ast.Break(), stmt)
        iteration = ast.copy_location(ast.If(stmt.test, stmt.body, [*stmt.orelse, end]), stmt)
        always = ast.copy_location(ast.Constant(True), stmt.test)
        stmt = ast.copy_location(ast.While(always, [iteration], []), stmt)
    return None if _loop(env, stmt, None) else False


@lowers(ast.For)
def _for(env: Environment, stmt: ast.For, _: list[ast.stmt]) -> bool | None:
    iterable = expression(env, stmt.iter)
    over = read_in_iterations(env, stmt, iterable)
    if isinstance(iterable, Range) and (iterable.known() is None or not _indexes(stmt) or is_long(iterable)):
        restore = env.snapshot()
        try:
            return None if _loop(env, stmt, iterable) else False
        except CompileError as error:
            tried = getattr(error, "tried", None)
            is_known_later = tried in (stmt, KNOWN_INDEX) or isinstance(tried, Comprehension | ast.For)
            if iterable.known() is None or not (_indexes(stmt) or is_known_later):
                raise
        restore()  # a list grows, so each iteration is of its own kind; or an index or a length depends on the loop
    return None if _unroll(env, stmt, sequence(env, iterable, stmt.iter), over) else False


def _indexes(loop: ast.For) -> bool:
    """Whether a loop's variable is part of an index, so its values must be known."""
    subscripts = (node for stmt in loop.body for node in ast.walk(stmt) if isinstance(node, ast.Subscript))
    parts = (node for subscript in subscripts for node in ast.walk(subscript.slice) if isinstance(node, ast.Name))
    return isinstance(loop.target, ast.Name) and loop.target.id in {part.id for part in parts}


# --- loops that are written out --------------------------------------------------------------------------------------


def _unroll(env: Environment, stmt: ast.For, items: tuple[Value, ...], over: tuple[Value, ...]) -> bool:
    """Write out a loop over a tuple; `break` and `continue` set flags that skip the statements after them."""
    frame = env.frame
    env.unrolled += 1  # the flags of each loop have their own names
    flags = Unrolled(f"<broke {env.unrolled}>", f"<skip {env.unrolled}>", over=over, places=places(stmt))
    frame.bindings.update({flags.skip: FALSE, flags.broke: FALSE})
    frame.loops.append(flags)

    def iterations(first: int) -> bool:
        for position in range(first, len(items)):
            assign(env, stmt.target, items[position])
            if not paths.statements(env, stmt.body):
                return False
            paths.resume(env, flags, flags.skip)
            for flag in (flags.broke, Key.RETURNED):
                state = frame.bindings.get(flag, FALSE)
                if state == TRUE:
                    return True
                if isinstance(state, Var):
                    return paths.unless(env, flag, state, stmt, partial(iterations, position + 1))
        frame.loops.pop()  # a jump in the `else` is not this loop's
        falls = paths.statements(env, stmt.orelse)
        frame.loops.append(flags)
        return falls

    falls = iterations(0)
    frame.loops.pop()
    paths.resume(env, flags, flags.broke)
    del frame.bindings[flags.skip], frame.bindings[flags.broke]
    return falls


# --- loops of the kernel ---------------------------------------------------------------------------------------------


def _loop(env: Environment, stmt: ast.For | ast.While, over: Range | None) -> bool:
    """Lower a loop, and again from the start whenever an iteration widens the kind of a carried name."""
    raised: dict[str, Raised] = {}
    restore = env.snapshot()
    while True:
        try:
            return _loop_once(env, stmt, over, raised)
        except paths.KindRaised as wider:
            restore()
            raised[wider.path] = wider.kind


def _loop_once(env: Environment, stmt: ast.For | ast.While, over: Range | None, raised: dict[str, Raised]) -> bool:
    frame, outer, where, initial = env.frame, env.block, env.locate(stmt), env.frame.bindings
    begun, reads = next(CLOCK), len(env.reads)
    loop = _start(env, stmt, raised)
    pre: list[Stmt] = []
    frame.bindings = dict(loop.start)
    with env.into(pre):
        goes_on = condition(env, stmt.test) if isinstance(stmt, ast.While) else TRUE
        if isinstance(stmt, ast.While):
            note(env, "test", "while", goes_on, stmt.test)
    if goes_on == FALSE:
        frame.bindings = initial
        return paths.statements(env, stmt.orelse)
    body, target = _iteration(env, stmt, over, loop)

    is_endless, runs = goes_on == TRUE and over is None, over is not None and bool(over.known())
    edges = loop.breaks + loop.continues
    for edge in edges:
        if edge.bindings.get(Key.RETURNED) != TRUE:  # nothing reads the carried names after a return
            for name, carried in loop.carried.items():
                paths.conform(env, name, carried, edge.bindings[name], edge.copies, stmt)
    for edge in edges:
        spread_changes(edge.bindings, loop.carried.values(), begun)
    _refuse_outdated(env, loop, stmt, begun, env.reads[reads:])
    broke: Var | None = None
    after_breaks: Bindings = {}
    if stmt.orelse and loop.breaks and not is_endless:
        # Two ends: after the breaks, and after the last iteration, where `else` follows.
        broke = Var(env.names.fresh("broke"), "bool")
        after_breaks = _after(env, loop, loop.breaks, missing=False)
        after = _after(env, loop, loop.continues if runs else [], missing=not runs)
        loop.before.append((broke, FALSE))
        for edge in loop.breaks:
            edge.copies.append((broke, TRUE))
    else:
        leaving = edges if runs else loop.breaks
        after = _after(env, loop, leaving, missing=not is_endless and not runs)

    paths.copy_parallel(env, outer, loop.before)
    _close(env, loop, body)
    if target is not None and over is not None:
        outer.append(For(target, over.start, over.stop, over.step, open_block(body), where))
    else:
        outer.append(While(tuple(pre), goes_on, open_block(body), where))
    frame.bindings = after
    if broke is not None:
        otherwise = paths.lower_side(env, after, partial(paths.statements, env, stmt.orelse))
        return paths.close_branch(env, broke, stmt, [([], after_breaks, True), otherwise])
    return bool(loop.breaks) if is_endless else paths.statements(env, stmt.orelse)


def _refuse_outdated(env: Environment, loop: Loop, node: ast.stmt, begun: int, reads: list[Read]) -> None:
    """Refuse a loop where what an iteration leaves out of date is carried on, or read by the next one.

    The loop has begun at a time; the names that were read are those of an iteration.
    """
    for edge in loop.breaks + loop.continues:
        if (changes := changes_of(edge.bindings)) and edge.bindings.get(Key.RETURNED) != TRUE:
            for name in loop.carried:
                if missed_change(edge.bindings[name], changes):
                    env.fail(node, f"{name} shares its elements with what this loop changes in place", COPY)
    for edge in loop.continues:
        for read in reads if (changes := changes_of(edge.bindings)) else ():
            if missed_change(read.value, changes, begun):
                at = node if read.is_outer or read.owner is not env.frame else read.node
                problem = f"{read.node.id} shares its elements with what an earlier iteration changes in place"
                env.fail(at, problem, COPY)


def _start(env: Environment, stmt: ast.For | ast.While, raised: dict[str, Raised]) -> Loop:
    """A loop with the bindings at the start of an iteration: the names that it assigns are variables."""
    before: Copies = []
    bindings, carried = env.frame.bindings, {}
    names = assigned_names([stmt]) | changed_names([stmt]) | ({Key.YIELDED} & bindings.keys())
    start = dict(bindings)
    for name in sorted(names):
        late = Unassigned(f"{name} is assigned inside this loop only, and is read where that may not have happened")
        value = current(bindings, name, late)
        if not isinstance(value, Unassigned):
            start[name] = carried[name] = paths.unify(env, name, [value], [before], raised=raised)
        else:
            start[name] = value if value.conflict else late
    return Loop(before, start, carried)


def _iteration(
    env: Environment, stmt: ast.For | ast.While, over: Range | None, loop: Loop
) -> tuple[list[Stmt], Var | None]:
    """Lower the body of a loop; the result is its block, and the variable of a `for` over a range."""
    frame = env.frame
    body: list[Stmt] = []
    target: Var | None = None
    frame.loops.append(loop)
    with env.into(body):
        if over is not None and isinstance(stmt, ast.For):
            base = stmt.target.id if isinstance(stmt.target, ast.Name) else "_"
            target = Var(env.names.fresh(base), "int")
            assign(env, stmt.target, target)
        if paths.statements(env, stmt.body) and paths.leave_if_returned(env, stmt):
            paths.jump(env, loop.continues, stmt)
    frame.loops.pop()
    return body, target


def _close(env: Environment, loop: Loop, body: list[Stmt]) -> None:
    """Append the assignments and the jumps at the ends of a loop's paths."""
    for edge in loop.breaks + loop.continues:
        paths.copy_parallel(env, edge.block, edge.copies, paths.end_of(edge.bindings))
    for edge in loop.breaks:
        edge.block.append(Break(edge.location))
    for edge in loop.continues:
        if edge.block is not body:
            edge.block.append(Continue(edge.location))


def _after(env: Environment, loop: Loop, leaving: list[Edge], *, missing: bool) -> Bindings:
    """The bindings after the loop if the edges in `leaving` lead there; with `missing` also the way past the loop."""
    start, ends = loop.start, [edge.bindings for edge in leaving]
    after = dict(start)
    renew(after, [edge.bindings for edge in loop.breaks + loop.continues], loop.carried)
    fresh = {name for bindings in ends for name in bindings} - loop.carried.keys() - {Key.PARTLY, Key.CHANGED}
    for name in sorted(fresh):
        lack = start.get(name, Unassigned(f"{name} is assigned inside this loop only, which may have no iteration"))
        if not isinstance(lack, Unassigned) and name not in (Key.RESULT, Key.RETURNED, Key.RETURNED_AT):
            continue  # the loop does not assign it
        values, _ = paths.fill(env, name, [current(bindings, name, lack) for bindings in ends], ends)
        copies = [edge.copies for edge in leaving]
        model = next((value for value in values if not isinstance(value, Unassigned)), values[0])
        if missing or not (isinstance(model, Const) and all(value == model for value in values)):
            # Without `missing` no other path reads it, but Numba does not see that and needs a value.
            values.append(lack if missing else blank_like(model))
            copies.append(loop.before)
        after[name] = paths.unify(env, name, values, copies)
    if leaving and not missing and all(bindings.get(Key.SKIPPING) == TRUE for bindings in ends):
        after[Key.SKIPPING] = TRUE
    return after
