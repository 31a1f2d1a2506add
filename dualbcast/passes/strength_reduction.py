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
from dualbcast.ir.nodes import ONE, TEMPORARY, Assign, Block, Const, Expr, For, Function, Op, Stmt, Var, While
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
    """The function with one division for each divisor in a block; itself if none has several. Operations are on atoms.

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
    """
    writes = Counter(assigned(function.body))
    names = free_names(function, RULES)

    def visit(block: Block) -> Block:
        return shared([map_exprs(stmt, _by_constant, visit) for stmt in block])

    def shared(block: Sequence[Stmt]) -> Block:
        """The statements with one reciprocal for each divisor that several divisions have."""
        # By divisor, the positions of the divisions by it.
        divisions: dict[str, list[tuple[int, Assign, Op]]] = {}
        for at, stmt in enumerate(block):
            match stmt:
                case Assign(value=Op(name="div", args=(dividend, Var(name=divisor, kind="float"))) as value):
                    if dividend.kind == "float" and writes[divisor] <= 1:
                        divisions.setdefault(divisor, []).append((at, stmt, value))
        changed: dict[int, list[Stmt]] = {}
        for several in [several for several in divisions.values() if len(several) > 1]:
            first, _, quotient = several[0]
            # One of the divisions, if its numerator is 1 and it can move before all others; or else a new one.
            own = (stmt for _, stmt, value in several if value.args[0] == ONE and writes[stmt.target.name] == 1)
            reciprocal = next(own, None)
            if reciprocal is None:
                value = Op("div", (ONE, quotient.args[1]), "float", quotient.location)
                reciprocal = Assign(Var(names.fresh(TEMPORARY), "float"), value, block[first].location)
            for at, stmt, value in several:
                by = Op(DIVIDED, (*value.args, reciprocal.target), "float", value.location)
                changed[at] = [] if stmt is reciprocal else [replace(stmt, value=by)]
            changed[first].insert(0, reciprocal)
        return tuple([new for at, stmt in enumerate(block) for new in changed.get(at, [stmt])])

    body = visit(function.body)
    return function if body == function.body else replace(function, body=body)


def _by_constant(value: Expr) -> Expr:
    """The value without a division by a constant; LLVM itself multiplies by the reciprocal of a power of two."""
    match value:
        case Op(name="div", kind="float", args=(Var(kind="float") as a, Const(value=float() as b))):
            if b and math.isfinite(b) and abs(math.frexp(b)[0]) != 0.5:
                return Op(DIVIDED, (a, Const(b, "float"), Const(1.0 / b, "float")), "float", value.location)
    return value
