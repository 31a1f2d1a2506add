"""Statements other than loops: assignments, branches, returns and jumps, inner functions, and `raise`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from dualbcast.errors import CompileError, also_of
from dualbcast.frontend.arithmetic import chain, equal, logical, truth, unary
from dualbcast.frontend.arrays.vectors import is_array
from dualbcast.frontend.environment import Environment, expression, lowers
from dualbcast.frontend.expressions import assign, fit_items, sequence
from dualbcast.frontend.inlining import make_closure
from dualbcast.frontend.messages import append_raise, parts_of_raise, raised, words
from dualbcast.frontend.notes import note
from dualbcast.frontend.objects.changes import change, change_item, with_items
from dualbcast.frontend.operators import condition, condition_of_branch, in_place, short_circuit
from dualbcast.frontend.paths import close_branch, innermost_loop, jump, lower_side, statements
from dualbcast.frontend.records import as_record
from dualbcast.frontend.values import (
    RAISES,
    Bindings,
    Key,
    Record,
    Static,
    Unrolled,
    Value,
    describe,
    is_instance,
)
from dualbcast.ir.nodes import FALSE, TRUE, Atom, Const

# Classes whose pattern takes the object itself: `case float(x)`.
_ITSELF = (bool, int, float, str, bytes, tuple, list, frozenset)

Rest = list[ast.stmt]
Sides = tuple[Callable[[], bool], Callable[[], bool]]


@lowers(ast.Assign)
def _assign(env: Environment, stmt: ast.Assign, _: Rest) -> None:
    value = expression(env, stmt.value)
    for target in stmt.targets:
        assign(env, target, value, partial(change_item, env, stmt))


@lowers(ast.AnnAssign)
def _annotated(env: Environment, stmt: ast.AnnAssign, _: Rest) -> None:
    if stmt.value is not None:
        assign(env, stmt.target, expression(env, stmt.value))


@lowers(ast.AugAssign)
def _augmented(env: Environment, stmt: ast.AugAssign, _: Rest) -> None:
    if isinstance(stmt.target, ast.Subscript) and isinstance(stmt.target.value, ast.Name):
        item = ast.copy_location(ast.Subscript(stmt.target.value, stmt.target.slice, ast.Load()), stmt.target)
        owner = env.frame.bindings.get(stmt.target.value.id)
        if isinstance(owner, Record) and owner.can_change:
            before = expression(env, item)
            if isinstance(before, Record) and before.can_change and not is_array(owner):
                env.fail(
                    stmt, f"an item that is {describe(before)} cannot change in place", "a new item: a[0] = a[0] + b"
                )
            value = expression(env, ast.copy_location(ast.BinOp(item, stmt.op, stmt.value), stmt))
            if change_item(env, stmt, stmt.target, value):
                return
    if not isinstance(stmt.target, ast.Name):
        assign(env, stmt.target, FALSE)
        return
    read = ast.copy_location(ast.Name(stmt.target.id, ast.Load()), stmt.target)
    before = expression(env, read)
    both = ast.copy_location(ast.BinOp(read, stmt.op, stmt.value), stmt)
    if isinstance(before, Record) and before.can_change:
        if before.python_type is list and isinstance(stmt.op, ast.Add):
            after: Value = before.like([*before, *sequence(env, expression(env, stmt.value), stmt.value)])
        else:
            after = expression(env, both)
        if is_array(before):
            after = with_items(env, stmt, before, ..., after)
        made = "array" if is_array(before) else "list"
        change(env, stmt, stmt.target.id, before, f"a new {made}: {stmt.target.id} = {ast.unparse(both)}")
        after = after.like(after) if isinstance(after, Record) else after  # made after the change
    else:
        changed = in_place(env, stmt, before)
        after = expression(env, both) if changed is None else changed
    assign(env, stmt.target, after)


@lowers(ast.FunctionDef)
def _define(env: Environment, stmt: ast.FunctionDef, _: Rest) -> None:
    if stmt.decorator_list:
        problem = "decorators of an inner function cannot be compiled"
        env.fail(stmt.decorator_list[0], problem, "the decorated function outside this one")
    env.frame.bindings[stmt.name] = make_closure(env, stmt)


@lowers(ast.Return)
def _return(env: Environment, stmt: ast.Return, _: Rest) -> bool | None:
    if stmt.value is None or (isinstance(stmt.value, ast.Constant) and stmt.value.value is None):
        if Key.YIELDED in env.frame.bindings:
            return _leave(env, Static(None), stmt)
        env.fail(stmt, "a return without a value", "the value: `return x`")
    frame = env.frame
    value = expression(env, stmt.value)
    if env.finish is not None and frame is env.outermost:
        value = env.finish(value, stmt)
    note(env, "return", "return", value, stmt)
    return _leave(env, value, stmt)


def _leave(env: Environment, value: Value, stmt: ast.Return | ast.Raise) -> bool | None:
    """Leave the function with a result."""
    frame = env.frame
    frame.bindings[Key.RESULT] = value
    frame.returned_at = stmt
    frame.bindings[Key.RETURNED_AT] = Static(env.locate(stmt))
    frame.bindings[Key.RETURNED] = frame.bindings[Key.SKIPPING] = TRUE
    loop = innermost_loop(env)
    return None if loop is None else jump(env, loop.breaks, stmt)


@lowers(ast.Break, ast.Continue)
def _jump(env: Environment, stmt: ast.Break | ast.Continue, _: Rest) -> bool | None:
    frame = env.frame
    loop = frame.loops[-1]  # Python's own parser refuses jumps outside loops
    if isinstance(loop, Unrolled):
        frame.bindings[loop.broke if isinstance(stmt, ast.Break) else loop.skip] = TRUE
        frame.bindings[Key.SKIPPING] = TRUE
        return None
    return jump(env, loop.breaks if isinstance(stmt, ast.Break) else loop.continues, stmt)


# --- statements without a value --------------------------------------------------------------------------------------


@lowers(ast.Raise)
def _raise(env: Environment, stmt: ast.Raise, _: Rest) -> bool | None:
    """An error of the elements that come here; one of the call where all of them do."""
    if env.block is not env.root:
        append_raise(env, stmt)
        return _leave(env, RAISES, stmt)
    called, args = parts_of_raise(stmt)
    name = ast.unparse(called) if called is not None else "an exception"
    kind = raised(env, called)
    own = also_of(CompileError, kind) if isinstance(kind, type) and issubclass(kind, Exception) else CompileError
    raise own(f"this call raises {name}{words(env, args)}", env.locate(stmt), "", env.frame.calls)


@lowers(ast.Pass)
def _pass(*_: object) -> None:
    pass


@lowers(ast.If)
def _if(env: Environment, stmt: ast.If, rest: Rest) -> bool | None:
    test, *assigned = condition_of_branch(env, stmt.test)
    note(env, "test", "if", test, stmt.test)
    if isinstance(test, Const):
        env.frame.bindings.update(assigned[not test.value])
        return None if statements(env, stmt.body if test.value else stmt.orelse) else False
    sides = partial(statements, env, stmt.body), partial(statements, env, stmt.orelse)
    return _split(env, test, sides, rest, stmt, assigned)


def _split(
    env: Environment, test: Atom, sides: Sides, rest: Rest, node: ast.AST, assigned: Sequence[Bindings] = ({}, {})
) -> bool | None:
    """Lower both sides of a branch, and `rest` inside the side that reaches it, if only one does; `assigned` has names
    that each side may read.

    The other side then need not have assigned the names that `rest` reads. The result is that of a statement.
    """
    before = env.frame.bindings
    # Not a comprehension: before Python 3.12 that is one more frame for each `elif` of a chain.
    then, orelse = sides
    ends = [
        lower_side(env, {**before, **assigned[0]}, then),
        lower_side(env, {**before, **assigned[1]}, orelse),
    ]
    alive = [falls and bindings.get(Key.SKIPPING) != TRUE for _, bindings, falls in ends]
    is_consumed = bool(rest) and alive[0] != alive[1]
    if is_consumed:
        at = alive.index(True)
        block, env.frame.bindings, _ = ends[at]
        with env.into(block):
            falls = statements(env, rest)
        ends[at] = (block, env.frame.bindings, falls)
    falls = close_branch(env, test, node, ends)
    return falls if is_consumed or not falls else None


# --- `match` ---------------------------------------------------------------------------------------------------------


@lowers(ast.Match)
def _match(env: Environment, stmt: ast.Match, rest: Rest) -> bool | None:
    subject = expression(env, stmt.subject)
    env.refuse_iterator(subject, stmt.subject, "the subject of match")
    return _cases(env, subject, stmt.cases, rest)


def _cases(
    env: Environment, subject: Value, cases: list[ast.match_case], rest: Rest, ruled_out: tuple[bool, ...] = ()
) -> bool | None:
    """Lower the remaining cases; `ruled_out` has the truth values that earlier cases have matched."""
    if not cases:
        return None
    case, later = cases[0], cases[1:]
    bound: Bindings = {}
    test = _matches(env, case.pattern, subject, bound)
    if isinstance(case.pattern, ast.MatchSingleton) and isinstance(case.pattern.value, bool):
        if (not case.pattern.value) in ruled_out and not isinstance(test, Const):
            test = TRUE
        if case.guard is None:
            ruled_out = (*ruled_out, case.pattern.value)
    has_bound = case.guard is not None and test == TRUE
    if case.guard is not None and test != FALSE:
        if not has_bound:
            _refuse_rebinding(env, case.guard, bound)
        guard = case.guard

        def holds() -> Atom:
            env.frame.bindings.update(bound)
            return condition(env, guard)

        test = truth(env, guard, short_circuit(env, "and", test, holds, guard))

    note(env, "test", "case", test, case.pattern)

    def body() -> bool:
        if not has_bound:  # otherwise the guard may have given the names other values since
            env.frame.bindings.update(bound)
        return statements(env, case.body)

    if isinstance(test, Const):
        if not test.value:
            return _cases(env, subject, later, rest, ruled_out)
        return None if body() else False
    others = partial(_cases, env, subject, later, [], ruled_out)
    return _split(env, test, (body, lambda: others() is not False), rest, case.pattern)


def _refuse_rebinding(env: Environment, guard: ast.expr, bound: Bindings) -> None:
    """Refuse a guard that assigns a name of its pattern: the name is bound only where the pattern matches."""
    for node in ast.walk(guard):
        if isinstance(node, ast.NamedExpr) and node.target.id in bound:
            env.fail(node, f"this guard assigns {node.target.id}, which its pattern binds", "another name")


def _matches(env: Environment, pattern: ast.pattern, value: Value, bound: Bindings) -> Atom:
    """Whether a pattern matches; the names it binds go into `bound`."""
    if not isinstance(pattern, ast.MatchAs):
        env.merged(value, pattern)
    match pattern:
        case ast.MatchValue():
            return equal(env, value, expression(env, pattern.value), pattern)
        case ast.MatchSingleton():
            if isinstance(pattern.value, bool) and isinstance(value, Atom) and value.kind == "bool":
                return value if pattern.value else unary("not", env, pattern, value)
            return TRUE if pattern.value is None and value == Static(None) else FALSE
        case ast.MatchStar() | ast.MatchAs():
            inner = pattern.pattern if isinstance(pattern, ast.MatchAs) else None
            test = TRUE if inner is None else _matches(env, inner, value, bound)
            if pattern.name is not None:
                bound[pattern.name] = value
            return test
        case ast.MatchOr():
            return _alternatives(env, pattern, value, bound)
        case ast.MatchSequence(parts):
            starred = [isinstance(part, ast.MatchStar) for part in parts]
            fitted = fit_items(tuple(value), starred) if isinstance(value, Record) and value.is_sequence else None
            return FALSE if fitted is None else _all_match(env, pattern, zip(parts, fitted, strict=True), bound)
        case ast.MatchClass():
            return _of_class(env, pattern, value, bound)
    env.fail(pattern, "a mapping pattern cannot be compiled", "names or attributes")


def _alternatives(env: Environment, pattern: ast.MatchOr, value: Value, bound: Bindings) -> Atom:
    result: Atom = FALSE
    for alternative in pattern.patterns:
        names: Bindings = {}
        test = _matches(env, alternative, value, names)
        if test == FALSE:
            continue
        if names and not (test == TRUE and result == FALSE):
            env.fail(alternative, "alternatives that bind names depend on the data here", "a case for each")
        bound.update(names)
        result = logical(env, "or", result, test, node=pattern)
        if result == TRUE:
            break
    return result


def _of_class(env: Environment, pattern: ast.MatchClass, value: Value, bound: Bindings) -> Atom:
    kind = expression(env, pattern.cls)
    if not isinstance(kind, Static) or not isinstance(kind.object, type):
        env.fail(pattern.cls, f"{describe(kind)} is no class")
    if not is_instance(value, kind.object):
        return FALSE
    if kind.object in _ITSELF:
        return _matches(env, pattern.patterns[0], value, bound) if pattern.patterns else TRUE
    names = getattr(kind.object, "__match_args__", ())
    if len(pattern.patterns) > len(names):
        env.fail(pattern, f"{kind.object.__name__} has {len(names)} positional parts, not {len(pattern.patterns)}")
    named = [*zip(names, pattern.patterns, strict=False), *zip(pattern.kwd_attrs, pattern.kwd_patterns, strict=True)]
    items: list[tuple[ast.pattern, Value]] = []
    value = as_record(env, value, pattern)
    for name, part in named:
        if not isinstance(value, Record) or name not in value.fields:
            env.fail(part, f"{describe(value)} has no field {name}")
        items.append((part, value[value.fields.index(name)]))
    return _all_match(env, pattern, items, bound)


def _all_match(
    env: Environment, pattern: ast.pattern, items: Iterable[tuple[ast.pattern, Value]], bound: Bindings
) -> Atom:
    return chain(env, "and", [_matches(env, part, item, bound) for part, item in items], pattern)
