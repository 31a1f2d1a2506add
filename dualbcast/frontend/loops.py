"""Loops and comprehensions: a loop over a range, or with a test, is one of the kernel; one over a tuple is written out.

If the number of items depends on the data, a reduction of a generator becomes a loop of the kernel.
A return inside a loop leaves the loop, and a test after the loop asks whether the function has returned.
"""

from __future__ import annotations

import ast
import math
import types
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from dualbcast.errors import CompileError
from dualbcast.frontend import paths
from dualbcast.frontend.environment import KNOWN_INDEX, Environment, expression, lowers, open_block
from dualbcast.frontend.expressions import assign, sequence
from dualbcast.frontend.inlining import lower_body
from dualbcast.frontend.notes import note
from dualbcast.frontend.objects.outdated import current, note_changes, renew
from dualbcast.frontend.objects.sharing import places, read_in_iterations, refuse_shared_in_loop
from dualbcast.frontend.operators import condition, short_circuit
from dualbcast.frontend.records import blank_like
from dualbcast.frontend.source import assigned_names, changed_names, local_names, reducer_of
from dualbcast.frontend.values import (
    CLOCK,
    Bindings,
    Copies,
    Edge,
    Key,
    Loop,
    Raised,
    Range,
    Record,
    Unassigned,
    Unrolled,
    Value,
)
from dualbcast.ir.nodes import FALSE, TRUE, Break, Const, Continue, For, Stmt, Var, While

_Comprehension = ast.ListComp | ast.GeneratorExp | ast.DictComp

# The most iterations over ranges that are written out where a loop of the kernel is possible, too. With derivatives the
# sum of 1 / sqrt(a * (1 + k * h)**3 + 1 - a) compiles in 0.4 s with 64 items, 1.5 s with 200 and 19 s with 1,000.
_MOST_WRITTEN_OUT = 128


@lowers(ast.ListComp, ast.GeneratorExp)
def _comprehension(env: Environment, node: ast.ListComp | ast.GeneratorExp) -> Value:
    """A list, or the items of a generator."""
    items: list[Value] = []
    iterate(env, node, lambda: items.append(expression(env, node.elt)))
    return Record(list if isinstance(node, ast.ListComp) else types.GeneratorType, items)


def reduce_generator(
    env: Environment, function: Any, generator: ast.GeneratorExp, node: ast.Call, call: Callable[[], Value]
) -> Value:
    """`sum(… for …)` and its like; `call` lowers it as it lowers any call, with the items written out."""
    restore = env.snapshot()
    if _has_many_items(env, generator):
        restore()
        try:
            return _loop_of(env, function, generator, node, has_items=True)
        except CompileError:
            pass  # the items are of different kinds, or an index must be known: they are written out
    restore()
    try:
        if function in (any, all) and len(node.args) == 1:
            return _quantified(env, "or" if function is any else "and", generator)
        return call()
    except CompileError as error:
        if getattr(error, "tried", None) is not generator:
            raise
    restore()
    return _loop_of(env, function, generator, node)


class _ManyItems(Exception):
    """A generator of ranges has more items than are written out."""


def _has_many_items(env: Environment, generator: ast.GeneratorExp) -> bool:
    """Whether a generator of ranges that are known has more items than are written out."""
    count = 0

    def item() -> None:
        nonlocal count
        count += 1
        if count > _MOST_WRITTEN_OUT:
            raise _ManyItems

    def accepts(iterable: Value) -> bool:
        if isinstance(iterable, Range) and _is_long(iterable):
            raise _ManyItems
        return isinstance(iterable, Range) and iterable.known() is not None

    try:
        iterate(env, generator, item, accepts)
    except _ManyItems:
        return True
    except CompileError:
        pass
    return False


def _quantified(env: Environment, name: str, generator: ast.GeneratorExp) -> Value:
    """`any` and `all`, which evaluate no item after the one that decides."""
    results: list[Value] = [FALSE if name == "or" else TRUE]
    item = partial(condition, env, generator.elt)
    iterate(env, generator, lambda: results.append(short_circuit(env, name, results[-1], item, generator)))
    return results[-1]


def _has_known_length(iterable: Value) -> bool:
    """Whether a loop over a value can be written out."""
    return not isinstance(iterable, Range) or iterable.known() is not None


def iterate(
    env: Environment,
    node: _Comprehension,
    iteration: Callable[[], object],
    accepts: Callable[[Value], bool] = _has_known_length,
) -> None:
    """Run `iteration` with the targets of the loops assigned, in a scope of its own.

    A loop over what it does not accept is refused.
    """
    for part in ast.walk(node):
        if isinstance(part, ast.NamedExpr):
            env.fail(part, "the walrus operator inside a comprehension cannot be compiled", "a for loop")
    outer = env.frame
    inner = outer.scope(outer.node, assigned_names([generator.target for generator in node.generators]), {})

    def refuse(part: ast.expr) -> NoReturn:
        instead = "sum, prod, min, max, any or all of it, or a for loop"
        env.fail(part, "how many items this gives depends on the data", instead, tried=node)

    def passes(part: ast.expr) -> bool:
        test = condition(env, part)
        return bool(test.value) if isinstance(test, Const) else refuse(part)

    def loop(iterable: Value, generator: ast.comprehension, *later: ast.comprehension) -> None:
        if generator.is_async:
            env.fail(generator.iter, "async cannot be compiled", "a plain loop")
        if not accepts(iterable):
            refuse(generator.iter)
        for item in sequence(env, iterable, generator.iter):
            assign(env, generator.target, item)
            if all(map(passes, generator.ifs)):
                if later:
                    loop(expression(env, later[0].iter), *later)
                else:
                    iteration()

    first = expression(env, node.generators[0].iter)
    env.frame = inner
    note_changes(inner.bindings, [outer.bindings])
    try:
        loop(first, *node.generators)
    finally:
        env.frame = outer
        note_changes(outer.bindings, [inner.bindings])


# --- reductions as loops ---------------------------------------------------------------------------------------------


def _loop_of(
    env: Environment, function: Any, generator: ast.GeneratorExp, node: ast.Call, *, has_items: bool = False
) -> Value:
    """A reduction of a generator as a function with a loop; `has_items` says that there is an item at least."""
    name = function.__name__
    start = expression(env, node.args[1]) if len(node.args) > 1 else None
    for keyword in node.keywords:
        if keyword.arg not in ("start", "default") or (keyword.arg == "default") != (function in (min, max)):
            env.fail(node, f"{name}() of a generator takes no keyword {keyword.arg} in a kernel")
        start = expression(env, keyword.value)
    if start is None and function in (min, max) and not has_items:
        env.fail(node, f"{name}() of items of which there may be none", f"{name}(…, default=…)")
    if start is None:
        start = Const(1 if function is math.prod else 0, "int")
    reducer = reducer_of(function, generator)
    bindings: Bindings = {"%items": expression(env, generator.generators[0].iter), "%start": start}
    return lower_body(env, env.frame.scope(reducer, local_names(reducer), bindings))


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
    reads, iterable = len(env.reads), expression(env, stmt.iter)
    over = read_in_iterations(env, stmt, iterable, env.reads[reads:])
    if isinstance(iterable, Range) and (iterable.known() is None or not _indexes(stmt) or _is_long(iterable)):
        restore = env.snapshot()
        try:
            return None if _loop(env, stmt, iterable) else False
        except CompileError as error:
            tried = getattr(error, "tried", None)
            is_known_later = tried in (stmt, KNOWN_INDEX) or isinstance(tried, _Comprehension | ast.For)
            if iterable.known() is None or not (_indexes(stmt) or is_known_later):
                raise
        restore()  # a list grows, so each iteration is of its own kind; or an index or a length depends on the loop
    return None if _unroll(env, stmt, sequence(env, iterable, stmt.iter), over) else False


def _is_long(over: Range) -> bool:
    """Whether a range that is known has more items than are written out."""
    known = over.known()
    return known is not None and len(known) > _MOST_WRITTEN_OUT


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
    refuse_shared_in_loop(env, loop, stmt, begun, env.reads[reads:])
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


def _start(env: Environment, stmt: ast.For | ast.While, raised: dict[str, Raised]) -> Loop:
    """A loop with the bindings at the start of an iteration: the names that it assigns are variables."""
    before: Copies = []
    bindings, carried = env.frame.bindings, {}
    names = assigned_names([stmt]) | changed_names([stmt]) | ({Key.YIELDED} & bindings.keys())
    for name in sorted(names & bindings.keys()):
        value = bindings[name]
        if not isinstance(value, Unassigned):
            carried[name] = paths.unify(env, name, [value], [before], raised=raised)
    late = {
        name: Unassigned(f"{name} is assigned inside this loop only, and is read where that may not have happened")
        for name in sorted(names - carried.keys())
    }
    return Loop(before, {**bindings, **carried, **late}, carried)


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
