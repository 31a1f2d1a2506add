"""Branch fusion: from the statements of both sides of a branch to one line for all elements, in which a costly
operation that both sides have runs once, on operands that selects choose.

As in B. Coutinho, D. Sampaio, F. M. Q. Pereira and W. Meira Jr., *Divergence Analysis and Optimizations*, PACT 2011.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from dualbcast.ir import nodes as ir
from dualbcast.ir.simplification import fold
from dualbcast.ir.traversal import assignments, hold, renamed
from dualbcast.passes.cost_model import cost_of_line, cost_of_operation, value_key, value_keys

# The least cost of an operation that is worth a select for each of its operands: that of a division.
_LEAST_COST = 5.0
# The most statements of both sides, and pairs of costly operations: the time to compile grows with them.
_MOST_STATEMENTS, _MOST_PAIRS = 200, 2_500


class Fused(NamedTuple):
    """The line; for each side, the variables of the line that stand for its own; the operations that run once; and what
    that saves, in additions."""

    line: list[ir.Stmt]
    by: tuple[dict[str, ir.Atom], dict[str, ir.Atom]]
    operations: tuple[str, ...]
    saved: float

    def after(self, at: int, value: ir.Atom) -> ir.Atom:
        """What a value of a side is in the line."""
        return self.by[at].get(value.name, value) if isinstance(value, ir.Var) else value


def fuse(test: ir.Atom, lines: Sequence[Sequence[ir.Stmt]], names: ir.Names) -> Fused:
    """The line of two sides, the first of which is taken where `test` is true.

    The sides are lines of assignments to different names, and may run on any numbers. Both keep their order, so that
    operands come before their operations. An operand that is chosen stands for those of both sides from there on: what
    is computed from it is then the same, too.
    """
    few = sum(map(len, lines)) <= _MOST_STATEMENTS
    sides = [assignments(tuple(line)) if few else [] for line in lines]
    pairs = _pairs(*sides)
    if not pairs:
        return Fused([*lines[0], *lines[1]], ({}, {}), (), 0.0)
    fused = Fused([], ({}, {}), (), 0.0)
    line = fused.line

    def append(at: int, start: int, stop: int) -> None:
        for stmt in sides[at][start:stop]:
            line.append(ir.Assign(stmt.target, renamed(stmt.value, fused.by[at]), stmt.location))

    own = [{stmt.target.name for stmt in side} for side in sides]
    starts = [0, 0]
    for places in pairs:
        for at in (0, 1):
            append(at, starts[at], places[at])
            starts[at] = places[at] + 1
        stmts = [side[place] for side, place in zip(sides, places, strict=True)]
        target, op, where = stmts[0].target, stmts[0].value, stmts[0].location
        assert isinstance(op, ir.Op) and isinstance(stmts[1].value, ir.Op)
        args: list[ir.Expr] = []
        for operands in zip(op.args, stmts[1].value.args, strict=True):
            both = tuple(renamed(operand, by) for operand, by in zip(operands, fused.by, strict=True))
            choice = fold(ir.Op("select", (test, *both), both[0].kind, where))
            chosen = hold(choice, names, line, where)
            args.append(chosen)
            for operand, by, those in zip(operands, fused.by, own, strict=True):
                if isinstance(operand, ir.Var) and operand.name in those:
                    by[operand.name] = chosen
        line.append(ir.Assign(target, replace(op, args=tuple(args)), where))
        fused.by[1][stmts[1].target.name] = target
        fused = fused._replace(operations=(*fused.operations, op.name.partition("#")[0]))
    for at in (0, 1):
        append(at, starts[at], len(sides[at]))
    return fused._replace(saved=cost_of_line((*sides[0], *sides[1])) - cost_of_line(assignments(tuple(line))))


def _pairs(then: Sequence[ir.Assign], orelse: Sequence[ir.Assign]) -> list[tuple[int, int]]:
    """The places of operations that run once, in the order of both sides; of all such choices one that saves most."""
    costly = [[at for at, stmt in enumerate(side) if _is_costly(stmt.value)] for side in (then, orelse)]
    if not all(costly):
        return []
    keys = value_keys((*then, *orelse))
    # What both sides have as it is runs once anyway.
    shared = {keys[stmt.target.name] for stmt in then} & {keys[stmt.target.name] for stmt in orelse}
    for places, side in zip(costly, (then, orelse), strict=True):
        places[:] = [at for at in places if keys[side[at].target.name] not in shared]
    counts = [len(places) for places in costly]
    if not 0 < counts[0] * counts[1] <= _MOST_PAIRS:
        return []
    savings = [[_saving(then[i].value, orelse[j].value, keys) for j in costly[1]] for i in costly[0]]
    # What can be saved from each place on, as in the longest common subsequence.
    most = [[0.0] * (counts[1] + 1) for _ in range(counts[0] + 1)]
    for i in reversed(range(counts[0])):
        for j in reversed(range(counts[1])):
            here = savings[i][j] + most[i + 1][j + 1] if savings[i][j] > 0 else 0.0
            most[i][j] = max(most[i + 1][j], most[i][j + 1], here)
    pairs: list[tuple[int, int]] = []
    i = j = 0
    while most[i][j] > 0:
        if most[i][j] == most[i + 1][j]:
            i += 1
        elif most[i][j] == most[i][j + 1]:
            j += 1
        else:
            pairs.append((costly[0][i], costly[1][j]))
            i, j = i + 1, j + 1
    return pairs


def _is_costly(value: ir.Expr) -> bool:
    return isinstance(value, ir.Op) and cost_of_operation(value.name) >= _LEAST_COST


def _saving(one: ir.Expr, other: ir.Expr, keys: Mapping[str, object]) -> float:
    """What is saved, in additions, if two operations run as one; 0 if they cannot."""
    assert isinstance(one, ir.Op) and isinstance(other, ir.Op)
    if (one.name, one.kind, len(one.args)) != (other.name, other.kind, len(other.args)):
        return 0.0
    selects = 0
    for place, pair in enumerate(zip(one.args, other.args, strict=True)):
        if value_key(pair[0], keys) == value_key(pair[1], keys):
            continue
        # A function of a known number, or a quotient by one, has a form of its own, which may differ in the last digit.
        is_known = any(isinstance(arg, ir.Const) for arg in pair) and (one.name, place) != ("div", 0)
        if is_known or pair[0].kind != pair[1].kind:
            return 0.0
        selects += 1
    return cost_of_operation(one.name) - selects
