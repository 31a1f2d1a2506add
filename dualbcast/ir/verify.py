"""The invariants of a program, which tests verify after every pass."""

from __future__ import annotations

from dualbcast.ir.nodes import (
    ARITHMETIC,
    BITWISE,
    COMPARISONS,
    FUSED,
    LOGIC,
    TRUE,
    Assign,
    Block,
    Break,
    Continue,
    Expr,
    For,
    Function,
    If,
    Op,
    Var,
    While,
)
from dualbcast.ir.printer import format_expr
from dualbcast.ir.traversal import assigned, expressions

__all__ = ["verify"]


def verify(function: Function) -> Function:
    """Assert what every pass may rely on: kinds agree, names are assigned before they are read, jumps are in loops.

    Returns the function, so that a pass can end with it.
    """
    kinds = {param.name: param.kind for param in function.params}
    # For each open loop, the names known at its breaks.
    breaks: list[list[set[str]]] = []

    def expression(expr: Expr, known: set[str]) -> None:
        if isinstance(expr, Var):
            assert expr.name in known, f"{expr.name} is read before it is assigned"
            assert kinds[expr.name] == expr.kind, f"{expr.name} is {kinds[expr.name]}, read as {expr.kind}"
        elif isinstance(expr, Op):
            for arg in expr.args:
                expression(arg, known)
            inner = [arg.kind for arg in expr.args]
            if expr.name in COMPARISONS:
                assert expr.kind == "bool" and len(set(inner)) == 1, format_expr(expr)
            elif expr.name in LOGIC:
                assert expr.kind == "bool" and set(inner) == {"bool"}, format_expr(expr)
            elif expr.name in (*ARITHMETIC, *BITWISE, *FUSED):
                assert set(inner) == {expr.kind}, format_expr(expr)
            elif expr.name == "select":
                assert inner == ["bool", expr.kind, expr.kind], format_expr(expr)

    def target(var: Var) -> None:
        assert kinds.setdefault(var.name, var.kind) == var.kind, f"{var.name} changes its kind"

    def block(body: Block, known: set[str]) -> set[str] | None:
        """The names known after the block, or None where no path reaches its end."""
        for position, stmt in enumerate(body):
            if not isinstance(stmt, While):
                for expr in expressions(stmt):
                    expression(expr, known)
            after: set[str] | None = known
            match stmt:
                case Assign():
                    target(stmt.target)
                    assert stmt.value.kind == stmt.target.kind, f"{stmt.target.name} = {format_expr(stmt.value)}"
                    after = known | {stmt.target.name}
                case If():
                    assert stmt.test.kind == "bool"
                    sides = [block(stmt.then, known), block(stmt.orelse, known)]
                    ends = [side for side in sides if side is not None]
                    after = set.intersection(*ends) if ends else None
                case While():
                    assert stmt.test.kind == "bool"
                    breaks.append([])
                    inside = block(stmt.pre, known)
                    assert inside is not None
                    expression(stmt.test, inside)
                    block(stmt.body, inside)
                    ways_out = breaks.pop() + ([inside] if stmt.test != TRUE else [])
                    after = set.intersection(*ways_out) if ways_out else None
                case For():
                    target(stmt.target)
                    breaks.append([])
                    block(stmt.body, known | {stmt.target.name})
                    breaks.pop()
                    after = known | set(assigned((stmt,)))
                case Break() | Continue():
                    assert breaks, "a jump outside a loop"
                    if isinstance(stmt, Break):
                        breaks[-1].append(known)
                    after = None
            if after is None:
                assert position == len(body) - 1, "statements after a jump"
                return None
            known = after
        return known

    end = block(function.body, set(kinds))
    assert end is not None
    for output in function.outputs:
        expression(output.value, end)
    return function
