"""Cheaper arithmetic: multiply-adds in place of sums and products of derivatives, and one reciprocal for the divisions
by a number.

The last bits of derivatives may depend on how they are computed; values keep all roundings of the source.

The derivative of a quotient needs the reciprocal of the divisor, and the quotient follows from that to the last bit
(`codegen.mathlib.elementary`). A division takes a CPU as long as thirty multiplications.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from dualbcast.autodiff.operation_cost import cost_of_operation
from dualbcast.ir.nodes import ONE, TEMPORARY, Assign, Block, Const, Expr, For, Function, Names, Op, Stmt, Var, While
from dualbcast.ir.traversal import assigned, free_names, map_exprs, operations_of, statements
from dualbcast.ir.value_numbering import simplify
from dualbcast.rules.table import RULES


def fuse_multiply_adds(function: Function) -> Function:
    """The function, simplified, with multiply-adds in place of sums of products.

    Before (derived=("p", "s"))::

        function f(x: float, y: float)
            p: float = mul(x, y)
            s: float = add(x, p)
            output out_dx = s

    After::

        function f(x: float, y: float)
            s: float = muladd(x, y, x)
            output out_dx = s
    """
    return simplify(function, _fusible(function))


def _fusible(function: Function) -> frozenset[str]:
    """The names of derivatives, without those that are assigned in loops of nothing but sums and products.

    In such a loop each iteration waits for the one before, and a multiply-add has the longer latency
    (docs/decisions/023-multiply-adds-in-loops.md).
    """
    loops = [(stmt,) for stmt in statements(function.body) if isinstance(stmt, For | While)]
    plain = [loop for loop in loops if all(cost_of_operation(op.name) == 1 for op in operations_of(loop))]
    return frozenset(function.derived).difference(*map(assigned, plain))


# a / b, given a, b and 1 / b.
DIVIDED = "divided"


def share_reciprocals(function: Function) -> Function:
    """The function with one division for each divisor in a block; itself if no divisor has several divisions.

    Before::

        function f(x: float, y: float, b: float)
            s: float = div(x, b)
            t: float = div(y, b)
            u: float = add(s, t)
            output out = u

    After::

        function f(x: float, y: float, b: float)
            %: float = div(1.0, b)
            s: float = divided(x, b, %)
            t: float = divided(y, b, %)
            u: float = add(s, t)
            output out = u

    Parameters
    ----------
    function : Function
        Simplified, operations on atoms.
    """
    writes = Counter(assigned(function.body))
    names = free_names(function, RULES)

    def visit(block: Block) -> Block:
        inner = tuple(map_exprs(stmt, _by_constant, visit) for stmt in block)
        return _share_in(inner, writes, names)

    body = visit(function.body)
    return function if body == function.body else replace(function, body=body)


def _share_in(block: Block, writes: Counter[str], names: Names) -> Block:
    divisions: dict[str, list[Assign]] = {}
    for stmt in block:
        if isinstance(stmt, Assign) and (divisor := _divisor(stmt.value)) and writes[divisor] <= 1:
            divisions.setdefault(divisor, []).append(stmt)
    # The reciprocal of each divisor that several divisions have.
    reciprocals = {
        divisor: _reciprocal(several, writes, names) for divisor, several in divisions.items() if len(several) > 1
    }
    if not reciprocals:
        return block
    new: list[Stmt] = []
    defined: set[str] = set()
    for stmt in block:
        divisor = _divisor(stmt.value) if isinstance(stmt, Assign) else None
        if not isinstance(stmt, Assign) or divisor is None or divisor not in reciprocals:
            new.append(stmt)
            continue
        reciprocal = reciprocals[divisor]
        if divisor not in defined:
            defined.add(divisor)
            new.append(reciprocal)
        if stmt.target != reciprocal.target:
            assert isinstance(stmt.value, Op)
            value = Op(DIVIDED, (*stmt.value.args, reciprocal.target), "float", stmt.value.location)
            new.append(replace(stmt, value=value))
    return tuple(new)


def _by_constant(value: Expr) -> Expr:
    """The value without a division by a constant; LLVM itself multiplies by the reciprocal of a power of two."""
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
    """One of the divisions, if its numerator is 1 and it can move before all others; or else a new one."""
    for stmt in divisions:
        assert isinstance(stmt.value, Op)
        if stmt.value.args[0] == ONE and writes[stmt.target.name] == 1:
            return stmt
    first = divisions[0].value
    assert isinstance(first, Op)
    value = Op("div", (ONE, first.args[1]), "float", first.location)
    return Assign(Var(names.fresh(TEMPORARY), "float"), value, divisions[0].location)
