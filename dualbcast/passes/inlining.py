"""After all differentiation, custom derivatives are dropped, and calls of helpers with loops become their bodies; for
another process, those of all rules of a user's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dualbcast.frontend.lower import helper_of
from dualbcast.ir import nodes as ir
from dualbcast.ir.compose import copy
from dualbcast.ir.simplification import simplify
from dualbcast.ir.traversal import free_names, has_loops, map_blocks, map_function, operations_of, renamed
from dualbcast.rules.table import CUSTOMS, RULES


def drop_custom_derivatives(function: ir.Function) -> ir.Function:
    """The function with the value of each custom derivative in its place, simplified; itself where it has none.

    Before::

        function f(y: float, b: float)
            q: float = div(y, b)
            s: float = neg(q)
            t: float = quotient_slope(s, y, b)
            output out = t

    After::

        function f(y: float, b: float)
            q: float = div(y, b)
            s: float = neg(q)
            output out = s
    """
    if not any(op.name in CUSTOMS for op in operations_of(function)):
        return function

    def value_of(expr: ir.Expr) -> ir.Expr:
        while isinstance(expr, ir.Op) and expr.name in CUSTOMS:
            expr = expr.args[0]
        return expr

    return simplify(map_function(function, value_of))


def inline_helpers(function: ir.Function) -> ir.Function:
    """The function without calls of helpers that have loops; itself where it has none. Operations are on atoms.

    Before::

        function f(x: float)
            a: float = halved(x)
            output out = a

    After::

        function f(x: float)
            x_1: float = x
            for _ in range(0, 3, 1):
                x_2: float = mul(0.5, x_1)
                x_1: float = x_2
            output out = x_1
    """
    return _inlined(function, _helper_with_loops)


def inline_user_rules(function: ir.Function) -> ir.Function:
    """The function with the functions of a user's rules in place of their calls, so that it means the same in a process
    without these rules; itself where it has none. Operations are on atoms.

    Before::

        function f(x: float)
            a: float = squared#1(x)
            output out = a

    After::

        function f(x: float)
            %squared: float = mul(x, x)
            output out = %squared
    """
    return _inlined(function, _helper_of_user)


def _inlined(function: ir.Function, helper_for: Callable[[ir.Op], ir.Function | None]) -> ir.Function:
    """The function without the calls for which there is a helper; itself where there are none."""
    if not any(map(helper_for, operations_of(function.body))):
        return function
    names = free_names(function, RULES)

    def visit(block: ir.Block) -> ir.Block:
        inlined: list[ir.Stmt] = []
        for stmt in block:
            match stmt:
                case ir.Assign(value=ir.Op() as call) if helper := helper_for(call):
                    helper = drop_custom_derivatives(helper)
                    body, by = copy(helper, call.args, names, where=stmt.location)
                    inlined += body
                    inlined.append(replace(stmt, value=renamed(helper.outputs[0].value, by)))
                case _:
                    inlined.append(map_blocks(stmt, visit))
        return tuple(inlined)

    # A helper may call another one.
    return _inlined(simplify(replace(function, body=visit(function.body))), helper_for)


def _helper_with_loops(call: ir.Op) -> ir.Function | None:
    row = RULES.get(call.name)
    if row is None or row.function is None:
        return None
    helper = helper_of(row)
    return helper if has_loops(helper.body) else None


def _helper_of_user(call: ir.Op) -> ir.Function | None:
    row = RULES.get(call.name)
    return helper_of(row) if row is not None and row.by_user else None
