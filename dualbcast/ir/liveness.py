"""Liveness at the head of a loop: a variable is alive if it is read before it is assigned again."""

from __future__ import annotations

from collections.abc import Iterable

from dualbcast.ir.nodes import Assign, Block, Expr, For, Function, If, Stmt, While
from dualbcast.ir.traversal import expressions, statements, variables

__all__ = ["most_carried"]


def most_carried(function: Function) -> int:
    """The largest number of loop-carried variables: of one loop and of those around it. Loops must have no jumps."""
    most = 0

    def visit(block: Block, after: set[str], around: set[str]) -> None:
        """`after` is alive after the block; `around` is assigned by the loops that the block is in."""
        nonlocal most
        for stmt in reversed(block):
            match stmt:
                case If():
                    visit(stmt.then, after, around)
                    visit(stmt.orelse, after, around)
                case For() | While():
                    names = around | _floats(stmt.body)
                    reads, writes = _flow((stmt,))[0], _flow(stmt.body)[1]
                    alive = reads | (after - writes)
                    most = max(most, len(alive & names))
                    visit(stmt.body, alive, names)
            reads, writes = _flow((stmt,))
            after = reads | (after - writes)

    visit(function.body, _names(output.value for output in function.outputs), set())
    return most


def _flow(block: Iterable[Stmt]) -> tuple[set[str], set[str]]:
    """The names that a block reads before it assigns them, and those that it assigns on all paths."""
    reads, writes = set[str](), set[str]()
    for stmt in block:
        reads |= _names(expressions(stmt)) - writes
        match stmt:
            case Assign():
                writes.add(stmt.target.name)
            case If():
                (first, then), (second, orelse) = _flow(stmt.then), _flow(stmt.orelse)
                reads |= (first | second) - writes
                writes |= then & orelse
            case For():
                reads |= _flow(stmt.body)[0] - {stmt.target.name} - writes
            case While():
                first, always = _flow(stmt.pre)
                reads |= (first | (_flow(stmt.body)[0] - always)) - writes
                writes |= always
    return reads, writes


def _names(exprs: Iterable[Expr]) -> set[str]:
    return {leaf.name for expr in exprs for leaf in variables(expr)}


def _floats(block: Block) -> set[str]:
    parts = [stmt for stmt in statements(block) if isinstance(stmt, Assign)]
    return {stmt.target.name for stmt in parts if stmt.target.kind == "float"}
