"""The operators of a kernel's text on values: operands of two types go into the type that holds both, and where one of
them is a vector, the other becomes one.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable

from llvmlite import ir

from dualbcast.codegen.values import FLOATS, Value


def apply(op: ast.operator | ast.unaryop | ast.cmpop, *operands: Value) -> Value:
    """What an operator computes of one value or two."""
    operands = promoted(*operands)
    dtype, kind = operands[0].dtype, type(op)
    operation = _COMPARISONS.get(kind) or _OPERATORS.get(dtype, {}).get(kind)
    if operation is None:
        raise TypeError(f"no {kind.__name__} of type {dtype}")
    return operation(*operands)


def promoted(*operands: Value) -> tuple[Value, ...]:
    """Operands in the type that all go into, as vectors if one of them is a vector."""
    dtypes, lanes = [each.dtype for each in operands], [each.lanes for each in operands]
    if len({*dtypes}) == len({*lanes}) == 1:
        return operands
    wider = dtypes[0]
    if len({*dtypes}) > 1:
        is_float = [dtype in FLOATS for dtype in dtypes]
        if any(is_float) != all(is_float) or "*" in "".join(dtypes):
            raise TypeError(f"one operand is of type {dtypes[0]}, the other of type {dtypes[1]}")
        wider = "float64" if all(is_float) else "int64"
    return tuple([each.to(wider).spread(max(lanes)) for each in operands])


def select(test: Value, then: Value, orelse: Value) -> Value:
    """One of two values, both of which are computed."""
    then, orelse = promoted(then, orelse)
    if test.is_vector:
        then, orelse = then.spread(test.lanes), orelse.spread(test.lanes)
    return Value(test.builder, test.choose(then, orelse).value, then.dtype)


def _smaller(one: Value, other: Value) -> Value:
    one, other = promoted(one, other)
    return select(one < other, one, other)


def iterations(start: Value, stop: Value, step: int) -> Value:
    """The number of numbers in a range."""
    low, high = (start, stop) if step > 0 else (stop, start)
    return (low < high).choose((high - low - 1) // abs(step) + 1, 0)


def _divided(a: Value, b: Value) -> tuple[Value, Value]:
    """The quotient of integers, rounded down, and the remainder; both are 0 where b is 0, as in NumPy."""
    divisor = b.value.constant if isinstance(b.value, ir.Constant) else 0
    if isinstance(divisor, list | tuple):  # of a vector
        divisor = divisor[0].constant
    if abs(divisor) > 1 and not abs(divisor) & (abs(divisor) - 1):
        return _divided_by_power(a, divisor)
    # The processor traps at 0, and at the lowest number by -1.
    by_nothing, negates = b == 0, b == -1
    b = (by_nothing | negates).choose(1, b)
    quotient, rest = (Value(a.builder, each(a.value, b.value)) for each in (a.builder.sdiv, a.builder.srem))
    down = ((rest ^ b) < 0) & (rest != 0)
    quotient, rest = down.choose(quotient - 1, quotient), down.choose(rest + b, rest)
    return by_nothing.choose(0, negates.choose(-a, quotient)), rest


def _divided_by_power(a: Value, divisor: int) -> tuple[Value, Value]:
    """The same by a power of 2, or by its negative, with shifts.

    LLVM 22 makes wrong machine code for AVX-512 where vectors of 64 bits that were numbers of 8 bits are divided by -2:
    the quotient is the dividend.
    """
    size = abs(divisor)
    quotient, rest = _right(a, a.constant(size.bit_length() - 1)), a & (size - 1)
    if divisor > 0:
        return quotient, rest
    # The remainder has the divisor's sign, and where it is not 0 the quotient is one less.
    some = rest != 0
    return some.choose(a.constant(-1), 0) - quotient, some.choose(rest - size, rest)


def _right(a: Value, places: Value) -> Value:
    return Value(a.builder, a.builder.ashr(a.value, places.value))


def _shifted_left(a: Value, places: Value) -> Value:
    """A shift by 64 places and more is as many single ones; LLVM leaves it undefined."""
    return places.unsigned("<=", 63).choose(a << places, 0)


def _shifted_right(a: Value, places: Value) -> Value:
    return _right(a, places.unsigned("<=", 63).choose(places, 63))


FUNCTIONS: dict[str, Callable[..., Value]] = {"select": select, "min": _smaller}
_Operators = dict[type[ast.AST], Callable[..., Value]]
_COMPARISONS: _Operators = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_ARITHMETIC: _Operators = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.USub: operator.neg}
_BITWISE: _Operators = {ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor}
_OF_FLOATS = _ARITHMETIC | {ast.Div: operator.truediv}
_OF_INTEGERS: _Operators = {
    **_ARITHMETIC,
    **_BITWISE,
    ast.Invert: operator.invert,
    ast.FloorDiv: lambda a, b: _divided(a, b)[0],
    ast.Mod: lambda a, b: _divided(a, b)[1],
    ast.LShift: _shifted_left,
    ast.RShift: _shifted_right,
}
_OPERATORS: dict[str, _Operators] = {
    **dict.fromkeys(FLOATS, _OF_FLOATS),
    "int64": _OF_INTEGERS,
    "bool": _BITWISE | {ast.Not: operator.invert},
}
