"""Branches: `and`, `or`, conditional expressions, `if` and `match`."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from dualbcast.frontend.arithmetic import chain, equal, logical, truth, unary
from dualbcast.frontend.dispatch import expression, lowers, statements
from dualbcast.frontend.environment import Environment
from dualbcast.frontend.expressions import fit_items
from dualbcast.frontend.paths import branch, close_branch, lower_side
from dualbcast.frontend.values import (
    CHOICE,
    SKIPPING,
    Bindings,
    Record,
    Static,
    Unassigned,
    Value,
    describe,
    is_instance,
    is_sequence,
    same,
)
from dualbcast.ir.nodes import ARITHMETIC, COMPARISONS, FALSE, FUSED, LOGIC, TRUE, Assign, Atom, Const, Op, Stmt

# Operations so cheap and total that running them early costs less than a branch.
_CHEAP = COMPARISONS | LOGIC | (ARITHMETIC - {"floordiv", "mod"}) | {"to_float", "select", *FUSED}
# Classes whose pattern takes the object itself: `case float(x)`.
_ITSELF = (bool, int, float, str, bytes, tuple, list, frozenset)

Sides = tuple[Callable[[], bool], Callable[[], bool]]
_If = TypeVar("_If", ast.If, ast.IfExp)

# --- `and` and `or` --------------------------------------------------------------------------------------------------


def condition(env: Environment, node: ast.expr) -> Atom:
    """The truth of an expression."""
    if isinstance(node, ast.BoolOp):
        # Only the truth of each part counts here; as a value, `a and b` would be a or b itself.
        return truth(env, _boolean(env, node, node.values, condition), node)
    return truth(env, expression(env, node), node)


@lowers(ast.BoolOp)
def _and_or(env: Environment, node: ast.BoolOp) -> Value:
    return _boolean(env, node, node.values, expression)


def _boolean(
    env: Environment, node: ast.BoolOp, values: list[ast.expr], part: Callable[[Environment, ast.expr], Value]
) -> Value:
    """`a and b and …` or `a or b or …`, of which `part` lowers each."""
    first = part(env, values[0])
    if len(values) == 1:
        return first
    name = "and" if isinstance(node.op, ast.And) else "or"
    return short_circuit(env, name, first, lambda: _boolean(env, node, values[1:], part), node)


def short_circuit(env: Environment, name: str, first: Value, rest: Callable[[], Value], node: ast.AST) -> Value:
    """`first and rest` or `first or rest`: one of the two, and the rest is evaluated only if it decides."""
    test = truth(env, first, node)
    if isinstance(test, Const):
        return rest() if bool(test.value) == (name == "and") else first
    frame, before = env.frame, env.frame.bindings
    frame.bindings = dict(before)
    block: list[Stmt] = []
    with env.into(block):
        other = rest()
    after = frame.bindings
    both_tests = isinstance(other, Atom) and other.kind == "bool" and test == first
    if both_tests and all(map(_is_cheap, block)) and not _assigns(before, after):
        assert isinstance(other, Atom)
        env.block.extend(block)
        return logical(env, name, test, other, node=node)
    ends = [(block, {**after, CHOICE: other}, True), ([], {**before, CHOICE: first}, True)]
    close_branch(env, test, node, ends if name == "and" else ends[::-1])
    return _chosen(env, node)


def _assigns(before: Bindings, after: Bindings) -> bool:
    return any(name not in before or not same(before[name], value) for name, value in after.items())


def _is_cheap(stmt: Stmt) -> bool:
    return isinstance(stmt, Assign) and isinstance(stmt.value, Op) and stmt.value.name in _CHEAP


# --- conditional expressions -----------------------------------------------------------------------------------------


@lowers(ast.IfExp)
def _conditional(env: Environment, node: ast.IfExp) -> Value:
    node = _in_order(node)
    test = condition(env, node.test)
    if isinstance(test, Const):
        return expression(env, node.body if test.value else node.orelse)
    return choose(env, test, partial(expression, env, node.body), partial(expression, env, node.orelse), node)


def choose(
    env: Environment, test: Atom, then: Callable[[], Value], orelse: Callable[[], Value], node: ast.AST
) -> Value:
    """One of two values; only the chosen one is evaluated."""

    def side(value: Callable[[], Value]) -> bool:
        env.frame.bindings[CHOICE] = value()
        return True

    branch(env, test, node, partial(side, then), partial(side, orelse))
    return _chosen(env, node)


def _chosen(env: Environment, node: ast.AST) -> Value:
    value = env.frame.bindings.pop(CHOICE)
    if isinstance(value, Unassigned):
        instead = "two numbers, or tuples of one length; of functions, a choice of their results"
        env.fail(node, value.reason, instead)
    return value


def _in_order(node: _If) -> _If:
    """The branch as two, one inside the other, if its test is an `and` of which a later part assigns names.

    Those names are assigned wherever all of the test is true.
    """
    test = node.test
    if not isinstance(test, ast.BoolOp) or not isinstance(test.op, ast.And):
        return node
    first, *rest = test.values
    if not any(isinstance(part, ast.NamedExpr) for value in rest for part in ast.walk(value)):
        return node
    later = rest[0] if len(rest) == 1 else ast.copy_location(ast.BoolOp(test.op, rest), test)
    inner = ast.copy_location(type(node)(later, node.body, node.orelse), node)
    body = [inner] if isinstance(node, ast.If) else inner
    return ast.copy_location(type(node)(first, body, node.orelse), node)  # type: ignore[arg-type]


# --- `if` ------------------------------------------------------------------------------------------------------------


@lowers(ast.If)
def _if(env: Environment, stmt: ast.If, rest: list[ast.stmt]) -> bool | None:
    stmt = _in_order(stmt)
    test = condition(env, stmt.test)
    if isinstance(test, Const):
        return None if statements(env, stmt.body if test.value else stmt.orelse) else False
    return _split(env, test, (partial(statements, env, stmt.body), partial(statements, env, stmt.orelse)), rest, stmt)


def _split(env: Environment, test: Atom, sides: Sides, rest: list[ast.stmt], node: ast.AST) -> bool | None:
    """Lower both sides of a branch, and `rest` inside the side that reaches it, if only one does.

    The other side then need not have assigned the names that `rest` reads. The result is that of a statement.
    """
    before = env.frame.bindings
    # Not a comprehension: before Python 3.12 that is one more frame for each `elif` of a chain.
    then, orelse = sides
    ends = [lower_side(env, before, then), lower_side(env, before, orelse)]
    alive = [falls and bindings.get(SKIPPING) != TRUE for _, bindings, falls in ends]
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
def _match(env: Environment, stmt: ast.Match, rest: list[ast.stmt]) -> bool | None:
    subject = expression(env, stmt.subject)
    env.refuse_iterator(subject, stmt.subject, "the subject of match")
    return _cases(env, subject, stmt.cases, rest)


def _cases(
    env: Environment,
    subject: Value,
    cases: list[ast.match_case],
    rest: list[ast.stmt],
    ruled_out: tuple[bool, ...] = (),
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
    has_bound = False
    if case.guard is not None and test != FALSE:
        guard, has_bound = case.guard, test == TRUE
        if not has_bound:
            _refuse_rebinding(env, guard, bound)

        def guarded() -> Value:
            env.frame.bindings.update(bound)
            return condition(env, guard)

        decided = guarded() if test == TRUE else short_circuit(env, "and", test, guarded, guard)
        test = truth(env, decided, guard)

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
                return value if pattern.value else unary(env, ast.Not(), value, pattern)
            return TRUE if pattern.value is None and value == Static(None) else FALSE
        case ast.MatchStar():
            if pattern.name is not None:
                bound[pattern.name] = value
            return TRUE
        case ast.MatchAs():
            test = TRUE if pattern.pattern is None else _matches(env, pattern.pattern, value, bound)
            if pattern.name is not None:
                bound[pattern.name] = value
            return test
        case ast.MatchOr():
            return _alternatives(env, pattern, value, bound)
        case ast.MatchSequence():
            return _items(env, pattern, tuple(value), bound) if is_sequence(value) else FALSE
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


def _items(env: Environment, pattern: ast.MatchSequence, items: tuple[Value, ...], bound: Bindings) -> Atom:
    parts = pattern.patterns
    fitted = fit_items(items, [isinstance(part, ast.MatchStar) for part in parts])
    if fitted is None:
        return FALSE
    tests = [_matches(env, part, item, bound) for part, item in zip(parts, fitted, strict=True)]
    return chain(env, "and", tests, pattern)


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
    named = [
        *zip(names, pattern.patterns, strict=False),
        *zip(pattern.kwd_attrs, pattern.kwd_patterns, strict=True),
    ]
    tests: list[Atom] = []
    for name, part in named:
        if not isinstance(value, Record) or name not in value.fields:
            env.fail(part, f"{describe(value)} has no field {name}")
        tests.append(_matches(env, part, value[value.fields.index(name)], bound))
    return chain(env, "and", tests, pattern)
