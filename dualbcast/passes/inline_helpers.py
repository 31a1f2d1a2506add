"""What helpers with loops compute, such as that of digamma, in place of their calls: then vectors may go through it."""

from __future__ import annotations

from dataclasses import replace

from dualbcast.frontend.rule_bodies import helper_of
from dualbcast.ir.compose import Copy
from dualbcast.ir.nodes import Assign, Block, For, Function, Names, Op, Stmt, While
from dualbcast.ir.value_numbering import simplify
from dualbcast.ir.walk import assigned, map_exprs, statements
from dualbcast.rules.table import RULES

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
            match stmt:
                case Assign(value=Op() as call) if helper := _with_loops(call):
                    actual = dict(zip((param.name for param in helper.params), call.args, strict=True))
                    copy = Copy(names, actual, stmt.location)
                    found += copy.block(helper.body)
                    found.append(replace(stmt, value=copy.expr(helper.outputs[0].value)))
                case _:
                    found.append(map_exprs(stmt, lambda expr: expr, walk))
        return tuple(found)

    body = walk(function.body)
    if body == function.body:
        return None
    found = simplify(replace(function, body=body))
    return opened(found) or found  # a helper may call another


def _with_loops(call: Op) -> Function | None:
    """The helper that is called, if it has loops."""
    row = RULES.get(call.name)
    if row is None or row.function is None:
        return None
    helper = helper_of(row)
    return helper if any(isinstance(stmt, For | While) for stmt in statements(helper.body)) else None
