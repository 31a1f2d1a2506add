"""Cheaper arithmetic: multiply-adds, reciprocals and logarithms that are shared, and how many vectors go side by side.

The last bits of derivatives may depend on how they are computed; values keep all roundings of the source.

A division takes a CPU as long as thirty multiplications. The derivative of a quotient needs the reciprocal of the
divisor anyway, and the quotient can be computed from this reciprocal, exact to the last bit
(`codegen.mathlib.elementary`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import replace

from dualbcast.ir import nodes as ir
from dualbcast.ir.simplification import simplify
from dualbcast.ir.traversal import (
    all_expressions,
    assigned,
    free_names,
    iterations_of,
    map_exprs,
    map_function,
    most_carried,
    operations_of,
    statements,
)
from dualbcast.passes.cost_model import cost_of_element, cost_of_expression, cost_of_operation
from dualbcast.passes.vector_analysis import varies, varying_names
from dualbcast.rules.table import RULES


def fuse_multiply_adds(function: ir.Function) -> ir.Function:
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


def _fusible(function: ir.Function) -> frozenset[str]:
    """The names of derivatives, without those that are assigned in loops of nothing but sums and products.

    In such a loop each iteration waits for the one before, and a multiply-add has the longer latency
    (docs/decisions/023-multiply-adds-in-loops.md).
    """
    loops = [(stmt,) for stmt in statements(function.body) if isinstance(stmt, ir.For | ir.While)]
    plain = [loop for loop in loops if all(cost_of_operation(op.name) == 1 for op in operations_of(loop))]
    return frozenset(function.derived).difference(*map(assigned, plain))


# a / b, given a, b and 1 / b.
DIVIDED = "divided"


def share_reciprocals(function: ir.Function) -> ir.Function:
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

    def visit(block: ir.Block) -> ir.Block:
        return shared([map_exprs(stmt, _by_constant, visit) for stmt in block])

    def shared(block: Sequence[ir.Stmt]) -> ir.Block:
        """The statements with one reciprocal for each divisor that several divisions have."""
        # By divisor, the positions of the divisions by it.
        divisions: dict[str, list[tuple[int, ir.Assign, ir.Op]]] = {}
        for at, stmt in enumerate(block):
            match stmt:
                case ir.Assign(value=ir.Op(name="div", args=(dividend, ir.Var(name=divisor, kind="float"))) as value):
                    if dividend.kind == "float" and writes[divisor] <= 1:
                        divisions.setdefault(divisor, []).append((at, stmt, value))
        changed: dict[int, list[ir.Stmt]] = {}
        for several in [several for several in divisions.values() if len(several) > 1]:
            first, _, quotient = several[0]
            # One of the divisions, if its numerator is 1 and it can move before all others; or else a new one.
            own = (stmt for _, stmt, value in several if value.args[0] == ir.ONE and writes[stmt.target.name] == 1)
            reciprocal = next(own, None)
            if reciprocal is None:
                value = ir.Op("div", (ir.ONE, quotient.args[1]), "float", quotient.location)
                reciprocal = ir.Assign(ir.Var(names.fresh(ir.TEMPORARY), "float"), value, block[first].location)
            for at, stmt, value in several:
                by = ir.Op(DIVIDED, (*value.args, reciprocal.target), "float", value.location)
                changed[at] = [] if stmt is reciprocal else [replace(stmt, value=by)]
            changed[first].insert(0, reciprocal)
        return tuple([new for at, stmt in enumerate(block) for new in changed.get(at, [stmt])])

    body = visit(function.body)
    return function if body == function.body else replace(function, body=body)


def _by_constant(value: ir.Expr) -> ir.Expr:
    """The value without a division by a constant; LLVM itself multiplies by the reciprocal of a power of two."""
    match value:
        case ir.Op(name="div", kind="float", args=(ir.Var(kind="float") as a, ir.Const(value=float() as b))):
            if b and math.isfinite(b) and abs(math.frexp(b)[0]) != 0.5:
                return ir.Op(DIVIDED, (a, ir.Const(b, "float"), ir.Const(1.0 / b, "float")), "float", value.location)
    return value


# The logarithm of a number that also is the base of a power.
BASE_LOGARITHM = "base_logarithm"


def share_logarithms(function: ir.Function) -> ir.Function:
    """The function with the logarithms of powers' bases computed as powers compute them, which is done once.

    Before::

        function f(x: float, y: float)
            p: float = pow(x, y)
            l: float = log(x)
            q: float = mul(p, l)
            output out = q

    After::

        function f(x: float, y: float)
            p: float = pow(x, y)
            l: float = base_logarithm(x)
            q: float = mul(p, l)
            output out = q
    """
    bases = {op.args[0] for op in operations_of(function) if op.name == "pow"}

    def shared(value: ir.Expr) -> ir.Expr:
        match value:
            case ir.Op(name="log", args=(base,)) if base in bases:
                return replace(value, name=BASE_LOGARITHM)
        return value

    return map_function(function, shared) if bases else function


# Limits for processors with 32 vector registers (docs/decisions/021-interleaving.md): the wanted number of operations
# of which none waits for another; and for all vectors together, the cost of their operations (for the sake of compile
# time), the number of arrays and of loop-carried variables.
WANTED_PARALLELISM = 12.0
COST_LIMIT = 1000.0
ARRAY_LIMIT = 48
CARRIED_LIMIT = 32


def vectors_to_interleave(
    function: ir.Function, arrays: int, most: int, free: int = 1, uniform: Set[str] = frozenset()
) -> int:
    """How many vectors of elements to interleave in a function that fits vectors: `most` of them at most.

    It reads or writes so many arrays. Up to `free` vectors are allowed whatever the limits are. What is computed from
    the parameters in `uniform` alone is written once.
    """
    parallelism = cost_of_element(function) / max(1.0, _depth(function))
    varying = varying_names(function, uniform)
    written = sum(cost_of_expression(each) for each in all_expressions(function) if varies(each, varying))
    limits = (written, COST_LIMIT), (arrays, ARRAY_LIMIT), (most_carried(function), CARRIED_LIMIT)
    fits = [n for n in (2, 4) if n <= most and (n <= free or all(n * each <= limit for each, limit in limits))]
    return next((n for n in (1, *fits) if n * parallelism >= WANTED_PARALLELISM), max((1, *fits)))


def _depth(function: ir.Function) -> float:
    """The cost of the longest chain of operations that wait for one another."""
    done: dict[str, float] = {}
    # For each loop, the length that each iteration after the first one adds to the chains.
    longer: dict[int, dict[str, float]] = {}

    def of(expr: ir.Expr) -> float:
        if isinstance(expr, ir.Op):
            return cost_of_operation(expr.name) + max(map(of, expr.args), default=0.0)
        return done.get(expr.name, 0.0) if isinstance(expr, ir.Var) else 0.0

    def visit(block: ir.Block) -> None:
        for stmt in block:
            match stmt:
                case ir.Assign():
                    # If several branches assign a name, the longest chain counts.
                    done[stmt.target.name] = max(of(stmt.value), done.get(stmt.target.name, 0.0))
                case ir.If():
                    visit(stmt.then)
                    visit(stmt.orelse)
                case ir.For() | ir.While():
                    # Every later iteration lengthens a chain as the second one does.
                    visit(stmt.body)
                    if id(stmt) not in longer:
                        first = dict(done)
                        visit(stmt.body)
                        longer[id(stmt)] = {name: done[name] - length for name, length in first.items()}
                        done.update(first)
                    for name, length in longer[id(stmt)].items():
                        done[name] += length * (iterations_of(stmt) - 1)

    visit(function.body)
    return max([*done.values(), *[of(output.value) for output in function.outputs]], default=0.0)
