"""Mathematics on a GPU: powers of constants as exponentials, approximate divisions, a formula that keeps the digits of
tanh's derivative, and selects in place of products with a sign.

Recent versions of LLVM find such selects themselves; the one in CUDA compilers for devices before 10.0 does not.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from decimal import Context, Decimal, localcontext

import numpy as np

from dualbcast.ir.nodes import ONE, TEMPORARY, Assign, Block, Const, Expr, Function, If, Kind, Op, Stmt, Var
from dualbcast.ir.simplification import simplify
from dualbcast.ir.traversal import assigned, assignments, free_names, hold, map_blocks, map_function

# A division by the hardware's reciprocal, which is 0 where the divisor is above 2**126.
QUOTIENT = "quotient"
_LARGEST_DIVISOR = 2.0**126
_LN2 = Const(math.log(2.0), "float")
_OF_FLOATS = ("mul", "neg", "fma", "exp2")

Interval = tuple[float, float]
_ANY: Interval = (-math.inf, math.inf)


def fast_math(function: Function) -> Function:
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


def _definitions(function: Function) -> dict[str, Expr]:
    """The values of the names that are assigned once."""
    writes = Counter(assigned(function.body))
    return {stmt.target.name: stmt.value for stmt in assignments(function.body) if writes[stmt.target.name] == 1}


# --- the derivative of tanh ------------------------------------------------------------------------------------------


def _with_tanh_partials(function: Function) -> Function:
    """1 - t * t, where t is the tanh of x, as 4 e / (1 + e)² with e = exp(-2 |x|).

    The hardware's tanh is off by up to 2**-11 of itself, which near saturation is more than the whole derivative.
    """
    values = _definitions(function)
    names = free_names(function)

    tanhs = {name for name, value in values.items() if isinstance(value, Op) and value.name == "tanh"}

    def saturating(value: Expr) -> str | None:
        """The name of t where a value is 1 - t * t."""
        match value:
            case Op(name="sub", args=(Const() as one, Var(name=square))) if one == ONE:
                match values.get(square):
                    case Op(name="mul", args=(Var(name=t), Var(name=other))) if t == other and t in tanhs:
                        return t
        return None

    wanted = {name for stmt in assignments(function.body) if (name := saturating(stmt.value))}
    # The value of x where t is computed: the variable may have changed where the derivative is computed.
    arguments = {name: Var(names.fresh(f"{TEMPORARY}{name.lstrip(TEMPORARY)}_x"), "float") for name in wanted}

    def partial_at(x: Var, stmt: Assign, block: list[Stmt]) -> None:
        """Append the statements that assign the derivative of tanh at x, in place of `stmt`."""

        def step(name: str, *args: Expr) -> Expr:
            return hold(Op(name, args, "float", stmt.location), names, block, stmt.location, f"{TEMPORARY}slope")

        decay = step("exp", step("mul", Const(-2.0, "float"), step("fabs", x)))
        above = step("add", ONE, decay)
        ratio = step("div", decay, step("mul", above, above))
        block.append(replace(stmt, value=Op("mul", (Const(4.0, "float"), ratio), "float", stmt.location)))

    def visit(block: Block) -> Block:
        new: list[Stmt] = []
        for stmt in block:
            match stmt:
                case Assign(value=Op(args=(x,))) if stmt.target.name in wanted:
                    new += [Assign(arguments[stmt.target.name], x, stmt.location), stmt]
                case Assign() if (t := saturating(stmt.value)) is not None:
                    partial_at(arguments[t], stmt, new)
                case _:
                    new.append(map_blocks(stmt, visit))
        return tuple(new)

    return simplify(replace(function, body=visit(function.body))) if wanted else function


# --- powers of constants ---------------------------------------------------------------------------------------------


def exponentials_of_powers(function: Function, dtype: str) -> Function:
    """The function with powers of constants as exponentials in float32, in a third of the instructions.

    A product with log2(b) has lost some digits when it is rounded; they are multiplied in afterwards. The last few
    powers before the largest number may be infinite. In float64 3.0**1.0 would not be exact, as it is by pow.

    Before (dtype="float32")::

        function f(x: float)
            p: float = pow(10.0, x)
            output out = p

    After::

        function f(x: float)
            %steps: float = mul(x, 3.321928024291992)
            %minus: float = neg(%steps)
            %lost: float = fma(x, 3.321928024291992, %minus)
            %lost#1: float = fma(x, 7.059537016037032e-08, %lost)
            %power: float = exp2(%steps)
            %part: float = mul(%power, %lost#1)
            %corrected: float = fma(%part, 0.6931471805599453, %power)
            %positive: bool = gt(%power, 0.0)
            %finite: bool = le(%power, 3.4028234663852886e+38)
            %ordinary: bool = and(%positive, %finite)
            p: float = select(%ordinary, %corrected, %power)
            output out = p
    """
    if dtype != "float32":
        return function
    names = free_names(function)
    largest = Const(float(np.finfo(np.float32).max), "float")

    def visit(block: Block) -> Block:
        new: list[Stmt] = []

        def step(result: str, name: str, *args: Expr) -> Expr:
            kind: Kind = "float" if name in _OF_FLOATS else "bool"
            return hold(Op(name, args, kind, stmt.location), names, new, stmt.location, f"{TEMPORARY}{result}")

        for stmt in block:
            match stmt:
                case Assign(value=Op(name="pow", args=(Const(value=b), y))) if parts := _binary_logarithm(b):
                    factor, rest = parts
                    steps = step("steps", "mul", y, factor)
                    lost = step("lost", "fma", y, rest, step("lost", "fma", y, factor, step("minus", "neg", steps)))
                    power = step("power", "exp2", steps)
                    corrected = step("corrected", "fma", step("part", "mul", power, lost), _LN2, power)
                    positive = step("positive", "gt", power, Const(0.0, "float"))
                    finite = step("finite", "le", power, largest)
                    ordinary = step("ordinary", "and", positive, finite)
                    new.append(replace(stmt, value=Op("select", (ordinary, corrected, power), "float", stmt.location)))
                case _:
                    new.append(map_blocks(stmt, visit))
        return tuple(new)

    body = visit(function.body)
    return function if body == function.body else replace(function, body=body)


def _binary_logarithm(base: float) -> tuple[Const, Const] | None:
    """The binary logarithm of a constant, rounded to float32, and what that lacks; None for 1, and for constants that
    have no finite one."""
    with np.errstate(over="ignore"):
        number = float(np.float32(base))
    if not 0 < number < math.inf or number == 1:
        return None
    with localcontext(Context(prec=60)):
        exact = Decimal(number).ln() / Decimal(2).ln()
        high = float(np.float32(float(exact)))
        return Const(high, "float"), Const(float(exact - Decimal(high)), "float")


# --- divisions -------------------------------------------------------------------------------------------------------


def _with_quotients(function: Function) -> Function:
    """The function with approximate divisions by numbers that cannot be too large for the hardware's reciprocal."""
    values = _definitions(function)

    def change(expr: Expr) -> Expr:
        if isinstance(expr, Op) and expr.name == "div":
            low, high = _range(expr.args[1], values)
            if max(-low, high) <= _LARGEST_DIVISOR:
                return replace(expr, name=QUOTIENT)
        return expr

    changed = map_function(function, change)
    return function if changed == function else changed


def _range(expr: Expr, values: Mapping[str, Expr], depth: int = 16) -> Interval:
    """Bounds of a float that is not NaN; infinite ones for unknown operations."""
    if isinstance(expr, Const):
        return float(expr.value), float(expr.value)
    if isinstance(expr, Var) and depth and expr.name in values:
        return _range(values[expr.name], values, depth - 1)
    if not isinstance(expr, Op) or not depth or expr.kind != "float":
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
        case "mul", [(a, b), (c, d)]:
            # An infinite bound is not reached, so that zero times it is zero.
            products = [left * right if left and right else 0.0 for left in (a, b) for right in (c, d)]
            return min(products), max(products)
    return _ANY


def select_signs(function: Function) -> Function:
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

    def visit(block: Block, outer: Mapping[str, tuple[Expr, bool]]) -> Block:
        # The variables that are 1 on one side of a branch and -1 on the other: its test, and whether 1 comes first.
        signs = dict(outer)
        new: list[Stmt] = []
        for stmt in block:
            match stmt:
                case Assign(value=Op(name="mul", args=(first, second))):
                    for value, sign in ((first, second), (second, first)):
                        if isinstance(sign, Var) and sign.name in signs:
                            test, positive = signs[sign.name]
                            negative = Var(names.fresh(f"{TEMPORARY}negative"), stmt.target.kind)
                            sides = (value, negative) if positive else (negative, value)
                            new.append(Assign(negative, Op("neg", (value,), "float"), stmt.location))
                            stmt = replace(stmt, value=Op("select", (test, *sides), "float"))
                            break
                    new.append(stmt)
                case _:
                    new.append(map_blocks(stmt, lambda inner: visit(inner, signs)))
            # The test must have the same value wherever it can be read.
            if isinstance(stmt, If) and isinstance(stmt.test, Var) and writes[stmt.test.name] <= 1:
                then, orelse = _constants(stmt.then), _constants(stmt.orelse)
                for name in then.keys() & orelse.keys():
                    if writes[name] == 2 and {then[name], orelse[name]} == {1.0, -1.0}:
                        signs[name] = stmt.test, then[name] > 0
        return tuple(new)

    body = visit(function.body, {})
    return function if body == function.body else simplify(replace(function, body=body))


def _constants(block: Block) -> dict[str, float]:
    """The floats that a block assigns, by the names of their variables."""
    return {
        stmt.target.name: float(stmt.value.value)
        for stmt in block
        if isinstance(stmt, Assign) and isinstance(stmt.value, Const) and stmt.target.kind == "float"
    }
