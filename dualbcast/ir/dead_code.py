"""Removal of dead code: statements that no output needs. Every loop is assumed to end."""

from __future__ import annotations

from dataclasses import replace

from dualbcast.ir.nodes import Assign, Block, Break, Continue, For, Function, If, Stmt, While
from dualbcast.ir.traversal import assigned, blocks, falls_through, map_exprs, names_read, variables

__all__ = ["remove_dead"]


def remove_dead(function: Function) -> Function:
    """The function without the statements that no output needs; every loop is assumed to end."""
    live = {leaf.name for output in function.outputs for leaf in variables(output.value)}
    size = -1
    while size != len(live):
        size = len(live)
        _mark(function.body, live, in_live_loop=False)
    return replace(function, body=_sweep(function.body, live))


def _needed(stmt: Stmt, live: set[str], in_live_loop: bool) -> bool:
    match stmt:
        case Assign():
            return stmt.target.name in live
        case Break() | Continue():
            return in_live_loop
        case If():
            return any(_needed(part, live, in_live_loop) for part in (*stmt.then, *stmt.orelse))
        case _:
            return not live.isdisjoint(assigned((stmt,)))


def _mark(block: Block, live: set[str], in_live_loop: bool) -> None:
    for stmt in reversed(block):
        if not _needed(stmt, live, in_live_loop):
            continue
        live.update(names_read(stmt))
        for inner in reversed(blocks(stmt)):
            _mark(inner, live, in_live_loop or isinstance(stmt, While | For))


def _sweep(block: Block, live: set[str], in_live_loop: bool = False) -> Block:
    new: list[Stmt] = []
    for stmt in block:
        if not _needed(stmt, live, in_live_loop):
            continue
        if isinstance(stmt, Assign):
            if stmt.value != stmt.target:
                new.append(stmt)
            continue
        inside = in_live_loop or isinstance(stmt, While | For)
        stmt = map_exprs(stmt, lambda expr: expr, lambda inner, inside=inside: _sweep(inner, live, inside))  # type: ignore[misc]
        new.append(stmt)
        if isinstance(stmt, If) and stmt.orelse and not falls_through(stmt.then):
            new[-1] = replace(stmt, orelse=())
            new.extend(stmt.orelse)
    return tuple(new)
