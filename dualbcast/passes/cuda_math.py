"""Mathematics on a GPU: approximate divisions, a formula that keeps the digits of tanh's derivative, and selects in
place of products with a sign.

Recent versions of LLVM do this themselves; the one in CUDA compilers for devices before 10.0 does not.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from dualbcast.ir import nodes as ir
from dualbcast.ir.simplification import simplify
from dualbcast.ir.traversal import assigned, assignments, free_names, map_exprs, map_function

# A division by the hardware's reciprocal, which is 0 where the divisor is above 2**126.
QUOTIENT = "quotient"
_LARGEST_DIVISOR = 2.0**126

Interval = tuple[float, float]
_ANY: Interval = (-math.inf, math.inf)


def fast_math(function: ir.Function) -> ir.Function:
    """The function for approximate mathematics: simplified IR on atoms, or itself where nothing changes.

    Before::

        function f(x: float, y: float)
            size: float = fabs(x)
            twice: float = mul(-2.0, size)
            decay: float = exp(twice)
            above: float = add(1.0, decay)
            ratio: float = div(y, above)
            output out = ratio

    After::

        function f(x: float, y: float)
            size: float = fabs(x)
            twice: float = mul(-2.0, size)
            decay: float = exp(twice)
            above: float = add(1.0, decay)
            ratio: float = quotient(y, above)
            output out = ratio
    """
    return _with_quotients(_with_tanh_partials(function))


def _definitions(function: ir.Function) -> dict[str, ir.Expr]:
    """The values of the names that are assigned once."""
    writes = Counter(assigned(function.body))
    return {stmt.target.name: stmt.value for stmt in assignments(function.body) if writes[stmt.target.name] == 1}


# --- the derivative of tanh ------------------------------------------------------------------------------------------


def _with_tanh_partials(function: ir.Function) -> ir.Function:
    """1 - t * t, where t is the tanh of x, as 4 e / (1 + e)² with e = exp(-2 |x|).

    The hardware's tanh is off by up to 2**-11 of itself, which near saturation is more than the whole derivative.
    """
    values = _definitions(function)
    names = free_names(function)

    def saturating(value: ir.Expr) -> str | None:
        """The name of t where a value is 1 - t * t."""
        match value:
            case ir.Op(name="sub", args=(ir.Const() as one, ir.Var(name=square))) if one == ir.ONE:
                match values.get(square):
                    case ir.Op(name="mul", args=(ir.Var(name=t), ir.Var(name=other))) if t == other:
                        match values.get(t):
                            case ir.Op(name="tanh"):
                                return t
        return None

    wanted = {name for stmt in assignments(function.body) if (name := saturating(stmt.value))}
    # The value of x where t is computed: the variable may have changed where the derivative is computed.
    arguments = {name: ir.Var(names.fresh(f"{ir.TEMPORARY}{name.lstrip(ir.TEMPORARY)}_x"), "float") for name in wanted}

    def partial_at(x: ir.Var, stmt: ir.Assign) -> Iterator[ir.Stmt]:
        """The statements that assign the derivative of tanh at x, in place of `stmt`."""

        def step(name: str, *args: ir.Expr) -> ir.Assign:
            target = ir.Var(names.fresh(f"{ir.TEMPORARY}slope"), "float")
            return ir.Assign(target, ir.Op(name, args, "float", stmt.location), stmt.location)

        size = step("fabs", x)
        twice = step("mul", ir.Const(-2.0, "float"), size.target)
        decay = step("exp", twice.target)
        above = step("add", ir.ONE, decay.target)
        square = step("mul", above.target, above.target)
        ratio = step("div", decay.target, square.target)
        yield from (size, twice, decay, above, square, ratio)
        yield replace(stmt, value=ir.Op("mul", (ir.Const(4.0, "float"), ratio.target), "float", stmt.location))

    def visit(block: ir.Block) -> ir.Block:
        new: list[ir.Stmt] = []
        for stmt in block:
            match stmt:
                case ir.Assign(value=ir.Op(args=(x,))) if stmt.target.name in wanted:
                    new += [ir.Assign(arguments[stmt.target.name], x, stmt.location), stmt]
                case ir.Assign() if (t := saturating(stmt.value)) is not None:
                    new += partial_at(arguments[t], stmt)
                case _:
                    new.append(map_exprs(stmt, lambda expr: expr, visit))
        return tuple(new)

    return simplify(replace(function, body=visit(function.body))) if wanted else function


# --- divisions -------------------------------------------------------------------------------------------------------


def _with_quotients(function: ir.Function) -> ir.Function:
    """The function with approximate divisions by numbers that cannot be too large for the hardware's reciprocal."""
    values = _definitions(function)

    def change(expr: ir.Expr) -> ir.Expr:
        if isinstance(expr, ir.Op) and expr.name == "div":
            low, high = _range(expr.args[1], values)
            if max(-low, high) <= _LARGEST_DIVISOR:
                return replace(expr, name=QUOTIENT)
        return expr

    changed = map_function(function, change)
    return function if changed == function else changed


def _range(expr: ir.Expr, values: Mapping[str, ir.Expr], depth: int = 16) -> Interval:
    """Bounds of a float that is not NaN; infinite ones for unknown operations."""
    if isinstance(expr, ir.Const):
        return float(expr.value), float(expr.value)
    if isinstance(expr, ir.Var) and depth and expr.name in values:
        return _range(values[expr.name], values, depth - 1)
    if not isinstance(expr, ir.Op) or not depth or expr.kind != "float":
        return _ANY
    parts = [_range(arg, values, depth - 1) for arg in expr.args]
    match expr.name, parts:
        case "neg", [(low, high)]:
            return -high, -low
        case "fabs", [(low, high)]:
            return max(0.0, low, -high), max(-low, high)
        case "exp", [(_, high)]:
            return 0.0, 1.0 if high <= 0 else math.inf
        case (("tanh" | "sin" | "cos" | "erf"), _):
            return -1.0, 1.0
        case "add", [(a, b), (c, d)]:
            return a + c, b + d
        case "sub", [(a, b), (c, d)]:
            return a - d, b - c
        case "mul", [(a, b), (c, d)] if math.inf not in {-a, b, -c, d}:
            products = (a * c, a * d, b * c, b * d)
            return min(products), max(products)
        case "mul", [(a, b), (c, d)]:
            # The signs alone, which are enough for -2 |x|.
            same = (a >= 0 and c >= 0) or (b <= 0 and d <= 0)
            opposite = (a >= 0 and d <= 0) or (b <= 0 and c >= 0)
            return (0.0, math.inf) if same else (-math.inf, 0.0) if opposite else _ANY
    return _ANY


def select_signs(function: ir.Function) -> ir.Function:
    """The function with selects in place of products with 1 or -1: simplified, or itself where there is none.

    Before::

        function f(x: float)
            a: bool = lt(x, 0.0)
            if a:
                sign: float = -1.0
                y: float = neg(x)
            else:
                sign: float = 1.0
                y: float = x
            slope: float = mul(y, sign)
            output out = slope

    After::

        function f(x: float)
            a: bool = lt(x, 0.0)
            if a:
                y: float = neg(x)
            else:
                y: float = x
            %negative: float = neg(y)
            slope: float = select(a, %negative, y)
            output out = slope
    """
    writes = Counter(assigned(function.body))
    names = free_names(function)

    def visit(block: ir.Block, outer: Mapping[str, tuple[ir.Expr, bool]]) -> ir.Block:
        # The variables that are 1 on one side of a branch and -1 on the other: its test, and whether 1 comes first.
        signs = dict(outer)
        new: list[ir.Stmt] = []
        for stmt in block:
            match stmt:
                case ir.Assign(value=ir.Op(name="mul", args=(first, second))):
                    for value, sign in ((first, second), (second, first)):
                        if isinstance(sign, ir.Var) and sign.name in signs:
                            test, positive = signs[sign.name]
                            negative = ir.Var(names.fresh(f"{ir.TEMPORARY}negative"), stmt.target.kind)
                            sides = (value, negative) if positive else (negative, value)
                            new.append(ir.Assign(negative, ir.Op("neg", (value,), "float"), stmt.location))
                            stmt = replace(stmt, value=ir.Op("select", (test, *sides), "float"))
                            break
                    new.append(stmt)
                case _:
                    new.append(map_exprs(stmt, lambda expr: expr, lambda inner: visit(inner, signs)))
            # The test must have the same value wherever it can be read.
            if isinstance(stmt, ir.If) and isinstance(stmt.test, ir.Var) and writes[stmt.test.name] <= 1:
                then, orelse = _constants(stmt.then), _constants(stmt.orelse)
                for name in then.keys() & orelse.keys():
                    if writes[name] == 2 and {then[name], orelse[name]} == {1.0, -1.0}:
                        signs[name] = stmt.test, then[name] > 0
        return tuple(new)

    body = visit(function.body, {})
    return function if body == function.body else simplify(replace(function, body=body))


def _constants(block: ir.Block) -> dict[str, float]:
    """The floats that a block assigns, by the names of their variables."""
    return {
        stmt.target.name: float(stmt.value.value)
        for stmt in block
        if isinstance(stmt, ir.Assign) and isinstance(stmt.value, ir.Const) and stmt.target.kind == "float"
    }
