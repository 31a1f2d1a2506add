"""Custom derivatives are dropped after all differentiation; the values that they belong to remain."""

from __future__ import annotations

from dualbcast.ir.nodes import Expr, Function, Op
from dualbcast.ir.traversal import map_function, operations_of
from dualbcast.ir.value_numbering import simplify
from dualbcast.rules.table import CUSTOMS

__all__ = ["drop_custom_derivatives"]


def drop_custom_derivatives(function: Function) -> Function:
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

    def value_of(expr: Expr) -> Expr:
        while isinstance(expr, Op) and expr.name in CUSTOMS:
            expr = expr.args[0]
        return expr

    return simplify(map_function(function, value_of))
