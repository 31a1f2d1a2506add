"""What helpers with loops compute, such as that of digamma, in place of their calls: then vectors may go through it."""

from __future__ import annotations

from collections.abc import Iterator

from dualbcast.compiler.ir import (
    Assign,
    Block,
    Expr,
    For,
    Function,
    Names,
    Op,
    Stmt,
    Var,
    While,
    assigned,
    map_expr,
    map_exprs,
    statements,
)
from dualbcast.compiler.rules import RULES
from dualbcast.compiler.simplify import simplify
from dualbcast.compiler.templates import helper_of
from dualbcast.record import replace

__all__ = ["opened"]


def opened(function: Function) -> Function | None:
    """The function without calls of helpers that have loops; None if it has no such calls.

    Parameters
    ----------
    function : Function
        Simplified, operations on atoms; and so is the result.
    """
    names = Names([*RULES, *(param.name for param in function.params), *assigned(function.body)])

    def walk(block: Block) -> Block:
        found: list[Stmt] = []
        for stmt in block:
            helper = _with_loops(stmt.value) if isinstance(stmt, Assign) else None
            if helper is None:
                found.append(map_exprs(stmt, lambda expr: expr, walk))
            else:
                assert isinstance(stmt, Assign)
                found += _in_place(stmt, helper, names)
        return tuple(found)

    body = walk(function.body)
    if body == function.body:
        return None
    found = simplify(replace(function, body=body))
    return opened(found) or found  # a helper may call another


def _with_loops(value: Expr) -> Function | None:
    row = RULES.get(value.name) if isinstance(value, Op) else None
    if row is None or row.function is None:
        return None
    helper = helper_of(row)
    return helper if any(isinstance(stmt, For | While) for stmt in statements(helper.body)) else None


def _in_place(stmt: Assign, helper: Function, names: Names) -> Iterator[Stmt]:
    """The statements of a helper with the arguments of a call, and what its result is assigned to."""
    assert isinstance(stmt.value, Op)
    actual: dict[str, Expr] = dict(zip((param.name for param in helper.params), stmt.value.args, strict=True))
    for part in statements(helper.body):
        if isinstance(part, Assign | For) and part.target.name not in actual:
            actual[part.target.name] = Var(names.fresh(helper.name), part.target.kind)

    def renamed(expr: Expr) -> Expr:
        return map_expr(expr, lambda leaf: actual.get(leaf.name, leaf) if isinstance(leaf, Var) else leaf)

    def copied(block: Block) -> Block:
        found: list[Stmt] = []
        for each in block:
            made = map_exprs(each, renamed, copied)
            if isinstance(made, Assign | For):
                target = actual[made.target.name]
                assert isinstance(target, Var)
                made = replace(made, target=target)
            found.append(replace(made, location=stmt.location))
        return tuple(found)

    yield from copied(helper.body)
    yield replace(stmt, value=renamed(helper.outputs[0].value))
