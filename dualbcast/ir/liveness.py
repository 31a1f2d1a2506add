"""Liveness: the variables that a block reads before it assigns them, and those that a loop carries."""

from __future__ import annotations

from collections.abc import Iterable

from dualbcast.ir.nodes import Assign, Block, For, Function, If, Stmt, Var, While
from dualbcast.ir.traversal import assignments, expressions, variables

__all__ = ["most_carried", "reads_and_writes"]


def reads_and_writes(block: Iterable[Stmt]) -> tuple[dict[str, Var], set[str]]:
    """The variables that a block reads before it assigns them, and the names that it assigns on all paths."""
    reads: dict[str, Var] = {}
    writes: set[str] = set()
    for stmt in block:
        read = {leaf.name: leaf for expr in expressions(stmt) for leaf in variables(expr)}
        always: set[str] = set()
        match stmt:
            case Assign():
                always = {stmt.target.name}
            case If():
                (then, on_then), (orelse, on_else) = reads_and_writes(stmt.then), reads_and_writes(stmt.orelse)
                read, always = read | then | orelse, on_then & on_else
            case For():
                read |= _without(reads_and_writes(stmt.body)[0], {stmt.target.name})
            case While():
                # The test reads what `pre` assigns.
                before, always = reads_and_writes(stmt.pre)
                read = before | _without(read | reads_and_writes(stmt.body)[0], always)
        reads |= _without(read, writes)
        writes |= always
    return reads, writes


def most_carried(function: Function) -> int:
    """The largest number of loop-carried variables: of one loop and of those around it. Loops must have no jumps."""
    most = 0

    def visit(block: Block, after: set[str], around: set[str]) -> None:
        """`after` is alive after the block; `around` is assigned by the loops that the block is in."""
        nonlocal most
        for stmt in reversed(block):
            reads, writes = reads_and_writes((stmt,))
            match stmt:
                case If():
                    visit(stmt.then, after, around)
                    visit(stmt.orelse, after, around)
                case For() | While():
                    floats = {part.target.name for part in assignments(stmt.body) if part.target.kind == "float"}
                    names = around | floats
                    alive = reads.keys() | (after - reads_and_writes(stmt.body)[1])
                    most = max(most, len(alive & names))
                    visit(stmt.body, alive, names)
            after = reads.keys() | (after - writes)

    results = {leaf.name for output in function.outputs for leaf in variables(output.value)}
    visit(function.body, results, set())
    return most


def _without(read: dict[str, Var], names: set[str]) -> dict[str, Var]:
    return {name: var for name, var in read.items() if name not in names}
