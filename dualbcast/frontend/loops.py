"""Loops: of the kernel, or over tuples and then written out; with `break`, `continue` and `return` in them.

A return inside a loop leaves the loop, and a test after it asks whether the function has returned.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import partial

from dualbcast.frontend.conditionals import condition
from dualbcast.frontend.dispatch import expression, lowers, statements
from dualbcast.frontend.environment import Environment, open_block
from dualbcast.frontend.expressions import sequence
from dualbcast.frontend.names import assign
from dualbcast.frontend.paths import (
    carry,
    close_branch,
    conform,
    copy_parallel,
    fill,
    lower_side,
    settle_return,
    take_up,
    unify,
    unless,
)
from dualbcast.frontend.source import assigned_names
from dualbcast.frontend.values import (
    PARTLY,
    RESULT,
    RETURNED,
    RETURNED_AT,
    SKIPPING,
    Bindings,
    Copies,
    KindRaised,
    Loop,
    Range,
    Unassigned,
    Unrolled,
    Value,
    end_of,
    zeros_like,
)
from dualbcast.ir.nodes import FALSE, TRUE, Atom, Break, Const, Continue, For, Kind, Stmt, Var, While

__all__: list[str] = []


@lowers(ast.While)
def _while(env: Environment, stmt: ast.While, _: list[ast.stmt]) -> bool | None:
    if any(isinstance(node, ast.NamedExpr) for node in ast.walk(stmt.test)):
        # The assignments of the test belong to the iteration.
        if any(isinstance(node, ast.Break | ast.Continue) for part in stmt.orelse for node in ast.walk(part)):
            message = "a jump in the `else` of a loop whose test assigns names cannot be compiled"
            env.fail(stmt.orelse[0], message, "the assignment in the loop")
        end = ast.copy_location(ast.Break(), stmt)
        iteration = ast.copy_location(ast.If(stmt.test, stmt.body, [*stmt.orelse, end]), stmt)
        always = ast.copy_location(ast.Constant(True), stmt.test)
        stmt = ast.copy_location(ast.While(always, [iteration], []), stmt)
    return None if _loop(env, stmt, partial(condition, env, stmt.test), None) else False


@lowers(ast.For)
def _for(env: Environment, stmt: ast.For, _: list[ast.stmt]) -> bool | None:
    iterable = expression(env, stmt.iter)
    if isinstance(iterable, Range) and (iterable.known() is None or not _indexes(stmt)):
        falls = _loop(env, stmt, lambda: TRUE, iterable)
    else:
        falls = _unroll(env, stmt, sequence(env, iterable, stmt.iter))
    return None if falls else False


def _indexes(loop: ast.For) -> bool:
    """Whether a loop's variable takes part in an index, so that its values must be known."""
    if not isinstance(loop.target, ast.Name):
        return False
    subscripts = (node for stmt in loop.body for node in ast.walk(stmt) if isinstance(node, ast.Subscript))
    return any(
        isinstance(node, ast.Name) and node.id == loop.target.id
        for subscript in subscripts
        for node in ast.walk(subscript.slice)
    )


# --- loops that are written out --------------------------------------------------------------------------------------


def _unroll(env: Environment, stmt: ast.For, items: tuple[Value, ...]) -> bool:
    """Write a loop over a tuple out; `break` and `continue` become flags that skip the statements after them."""
    frame = env.frame
    env.unrolled += 1  # a loop in the `else` of another is not inside it, but its flags are others
    flags = Unrolled(f"<broke {env.unrolled}>", f"<skip {env.unrolled}>")
    frame.flags += [flags.skip, flags.broke]
    frame.bindings.update({flags.skip: FALSE, flags.broke: FALSE})
    frame.loops.append(flags)

    def iterations(first: int) -> bool:
        for position in range(first, len(items)):
            assign(env, stmt.target, items[position])
            if not statements(env, stmt.body):
                return False
            take_up(env, flags, flags.skip)
            for flag in (flags.broke, RETURNED):
                state = frame.bindings.get(flag, FALSE)
                if state == TRUE:
                    return True
                if isinstance(state, Var):
                    return unless(env, flag, state, stmt, partial(iterations, position + 1))
        frame.loops.pop()  # a jump in the `else` is not this loop's
        falls = statements(env, stmt.orelse)
        frame.loops.append(flags)
        return falls

    falls = iterations(0)
    frame.loops.pop()
    del frame.flags[-2:]
    take_up(env, flags, flags.broke)
    for flag in (flags.skip, flags.broke):
        del frame.bindings[flag]
    return falls


# --- loops of the kernel ---------------------------------------------------------------------------------------------


def _loop(env: Environment, stmt: ast.For | ast.While, test: Callable[[], Atom], over: Range | None) -> bool:
    """Lower a loop; again from the start while an iteration widens the kind of a carried name."""
    raised: dict[str, Kind] = {}
    restore = env.snapshot()
    while True:
        try:
            return _loop_once(env, stmt, test, over, raised)
        except KindRaised as wider:
            restore()
            raised[wider.path] = wider.kind


def _loop_once(
    env: Environment,
    stmt: ast.For | ast.While,
    test: Callable[[], Atom],
    over: Range | None,
    raised: dict[str, Kind],
) -> bool:
    frame, outer, where, initial = env.frame, env.block, env.locate(stmt), env.frame.bindings
    loop = _start(env, stmt, raised)
    pre: list[Stmt] = []
    frame.bindings = dict(loop.start)
    with env.into(pre):
        go_on = test()
    if go_on == FALSE:
        frame.bindings = initial
        return statements(env, stmt.orelse)
    body, target = _iteration(env, stmt, over, loop)

    is_endless = go_on == TRUE and over is None
    runs = over is not None and bool(over.known())
    loop.copies = [[] for _ in loop.edges]
    for copies, (_, bindings, _) in zip(loop.copies, loop.edges, strict=True):
        if bindings.get(RETURNED) == TRUE:
            continue  # nothing reads them any more
        for name, carried in loop.carried.items():
            conform(env, name, carried, bindings[name], copies, stmt)
    breaks, every = range(len(loop.breaks)), range(len(loop.edges))
    broke: Var | None = None
    after_breaks: Bindings = {}
    if stmt.orelse and loop.breaks and not is_endless:
        # Two ends: after the breaks, and after the last iteration, where `else` follows.
        broke = Var(env.names.fresh("broke"), "bool")
        after_breaks = _after(env, loop, breaks, missing=False)
        after = _after(env, loop, every[len(breaks) :] if runs else (), missing=not runs)
        loop.before.append((broke, FALSE))
        for position in breaks:
            loop.copies[position].append((broke, TRUE))
    else:
        leaving = every if runs and not is_endless else breaks
        after = _after(env, loop, leaving, missing=not is_endless and not runs)

    _close(env, loop, outer, body)
    if target is not None and over is not None:
        outer.append(For(target, over.start, over.stop, over.step, open_block(body), where))
    else:
        outer.append(While(tuple(pre), go_on, open_block(body), where))
    frame.bindings = after
    if broke is not None:
        otherwise = lower_side(env, after, partial(statements, env, stmt.orelse))
        return close_branch(env, broke, stmt, [([], after_breaks, True), otherwise])
    if is_endless:
        return bool(loop.breaks)
    return statements(env, stmt.orelse)


def _start(env: Environment, stmt: ast.For | ast.While, raised: dict[str, Kind]) -> Loop:
    """The names at the start of an iteration: those that the loop assigns are variables."""
    before: Copies = []
    bindings, names, carried = env.frame.bindings, assigned_names([stmt]), {}
    for name in sorted(names & bindings.keys()):
        value = bindings[name]
        if not isinstance(value, Unassigned):
            carried[name] = carry(env, name, value, raised, before)
    late = {
        name: Unassigned(f"{name} is assigned inside this loop only, and is read where that may not have happened")
        for name in sorted(names - carried.keys())
    }
    return Loop(before, {**bindings, **carried, **late}, carried)


def _iteration(
    env: Environment, stmt: ast.For | ast.While, over: Range | None, loop: Loop
) -> tuple[list[Stmt], Var | None]:
    """Lower the body of a loop: its block, and the variable that counts in a `for`."""
    frame = env.frame
    body: list[Stmt] = []
    target: Var | None = None
    frame.loops.append(loop)
    with env.into(body):
        if over is not None and isinstance(stmt, ast.For):
            base = stmt.target.id if isinstance(stmt.target, ast.Name) else "_"
            target = Var(env.names.fresh(base), "int")
            assign(env, stmt.target, target)
        if statements(env, stmt.body) and settle_return(env, stmt):
            loop.continues.append((body, frame.bindings, env.locate(stmt)))
    frame.loops.pop()
    return body, target


def _close(env: Environment, loop: Loop, outer: list[Stmt], body: list[Stmt]) -> None:
    """Append the assignments and the jumps at the ends of a loop's paths."""
    copy_parallel(env, outer, loop.before)
    for (block, bindings, _), copies in zip(loop.edges, loop.copies, strict=True):
        copy_parallel(env, block, copies, end_of(bindings))
    for block, _, where in loop.breaks:
        block.append(Break(where))
    for block, _, where in loop.continues:
        if block is not body:
            block.append(Continue(where))


def _after(env: Environment, loop: Loop, leaving: Sequence[int], *, missing: bool) -> Bindings:
    """The bindings after the loop where it was left by the edges at `leaving`.

    `missing` says that it may also be left without any of them.
    """
    start, edges = loop.start, loop.edges
    after = dict(start)
    fresh = {name for position in leaving for name in edges[position][1]} - loop.carried.keys() - {PARTLY}
    for name in sorted(fresh):
        if (
            start.get(name) is not None
            and not isinstance(start[name], Unassigned)
            and name not in (RESULT, RETURNED, RETURNED_AT)
        ):
            continue  # the loop does not assign it
        lack = start.get(name, Unassigned(f"{name} is assigned inside this loop only, which may have no turn"))
        paths = [edges[position][1] for position in leaving]
        values, _ = fill(env, name, [bindings.get(name, lack) for bindings in paths], paths)
        targets = [loop.copies[position] for position in leaving]
        if missing:
            values.append(lack)
            targets.append(loop.before)
        else:
            # On other paths nothing reads it, but Numba does not see that, and wants it to have a value.
            model = next((value for value in values if not isinstance(value, Unassigned)), values[0])
            if not (isinstance(model, Const) and all(value == model for value in values)):
                values.append(zeros_like(model))
                targets.append(loop.before)
        after[name] = unify(env, name, values, targets)
    if leaving and not missing and all(edges[at][1].get(SKIPPING) == TRUE for at in leaving):
        after[SKIPPING] = TRUE
    return after
