"""Several divisions by one number: one of them, for the reciprocal, and multiplications for the others.

A derivative of a quotient takes the reciprocal of the divisor, which the value can then be made of, to the last bit
(`runtime/elementary_quotient`). For processors only: a division takes theirs as long as thirty multiplications.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from dualbcast.ir.nodes import TEMPORARY, Assign, Block, Const, Expr, Function, Names, Op, Stmt, Var
from dualbcast.ir.walk import assigned, map_exprs
from dualbcast.rules.table import RULES

__all__ = ["DIVIDED", "by_reciprocals"]

# a / b, of a, b and 1 / b.
DIVIDED = "divided"


def by_reciprocals(function: Function) -> Function:
    """The function with one division for each divisor in a block.

    Parameters
    ----------
    function : Function
        Simplified, operations on atoms.
    """
    writes = Counter(assigned(function.body))
    names = Names([*RULES, *(param.name for param in function.params), *writes])

    def walk(block: Block) -> Block:
        inner = tuple(map_exprs(stmt, _by_constant, walk) for stmt in block)
        return _shared(inner, writes, names)

    body = walk(function.body)
    return function if body == function.body else replace(function, body=body)


def _shared(block: Block, writes: Counter[str], names: Names) -> Block:
    divisions: dict[str, list[Assign]] = {}
    for stmt in block:
        if isinstance(stmt, Assign) and (divisor := _divisor(stmt.value)) and writes[divisor] <= 1:
            divisions.setdefault(divisor, []).append(stmt)
    # A reciprocal of each divisor that has several, by the first of its divisions.
    reciprocals = {divisor: _reciprocal(found, writes, names) for divisor, found in divisions.items() if len(found) > 1}
    if not reciprocals:
        return block
    found: list[Stmt] = []
    made: set[str] = set()
    for stmt in block:
        divisor = _divisor(stmt.value) if isinstance(stmt, Assign) else None
        if not isinstance(stmt, Assign) or divisor is None or divisor not in reciprocals:
            found.append(stmt)
            continue
        reciprocal = reciprocals[divisor]
        if divisor not in made:
            made.add(divisor)
            found.append(reciprocal)
        if stmt.target != reciprocal.target:
            assert isinstance(stmt.value, Op)
            value = Op(DIVIDED, (*stmt.value.args, reciprocal.target), "float", stmt.value.location)
            found.append(replace(stmt, value=value))
    return tuple(found)


def _by_constant(value: Expr) -> Expr:
    """Without a division where the divisor is a constant; of powers of two LLVM knows that."""
    match value:
        case Op(name="div", kind="float", args=(Var(kind="float") as a, Const(value=float() as b))):
            if b and math.isfinite(b) and abs(math.frexp(b)[0]) != 0.5:
                return Op(DIVIDED, (a, Const(b, "float"), Const(1.0 / b, "float")), "float", value.location)
    return value


def _divisor(value: Expr) -> str | None:
    match value:
        case Op(name="div", args=(numerator, Var(name=name, kind="float"))) if numerator.kind == "float":
            return name
    return None


def _reciprocal(divisions: Sequence[Assign], writes: Counter[str], names: Names) -> Assign:
    """One of the divisions if it has 1 above and may come before all the others, or else one more."""
    for stmt in divisions:
        assert isinstance(stmt.value, Op)
        if stmt.value.args[0] == Const(1.0, "float") and writes[stmt.target.name] == 1:
            return stmt
    first = divisions[0].value
    assert isinstance(first, Op)
    value = Op("div", (Const(1.0, "float"), first.args[1]), "float", first.location)
    return Assign(Var(names.fresh(TEMPORARY), "float"), value, divisions[0].location)
