"""Values of a kernel's text in LLVM IR, each with the type that the text gives it: their arithmetic, comparisons and
conversions. Where one operand is a vector, the other becomes one.
"""

from __future__ import annotations

import ast
from typing import NamedTuple

import numpy as np
from llvmlite import ir

from dualbcast.codegen.values import FLOATS, TYPES, Lanes, like, splat


class Typed(NamedTuple):
    """A value and its type in the text: "float32", "int64", "bool", …, or "*float32" for a pointer to such numbers."""

    value: ir.Value
    dtype: str

    @property
    def lanes(self) -> int:
        """The length of a vector; 0 for a number."""
        kind = self.value.type
        return kind.count if isinstance(kind, ir.VectorType) else 0

    @property
    def number(self) -> ir.Type:
        """LLVM's type of the numbers that a pointer points to."""
        return TYPES[self.dtype[1:]]

    @property
    def itemsize(self) -> int:
        """The bytes of such a number."""
        return int(np.dtype(self.dtype[1:]).itemsize)


def llvm_type(dtype: str, lanes: int = 0) -> ir.Type:
    """LLVM's type of values with a type of the text, or of vectors of them."""
    if dtype[0] == "*":
        return TYPES[dtype[1:]].as_pointer()
    return Lanes(TYPES[dtype], lanes) if lanes else TYPES[dtype]


# LLVM's instructions of operators.
_FLOAT_OPERATORS = {ast.Add: "fadd", ast.Sub: "fsub", ast.Mult: "fmul", ast.Div: "fdiv"}
_BIT_OPERATORS = {ast.BitAnd: "and_", ast.BitOr: "or_", ast.BitXor: "xor"}
_OPERATORS: dict[str, dict[type[ast.operator], str]] = {
    "float32": _FLOAT_OPERATORS,
    "float64": _FLOAT_OPERATORS,
    "int64": {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", **_BIT_OPERATORS},
    "bool": _BIT_OPERATORS,
}


def unary(builder: ir.IRBuilder, op: ast.unaryop, operand: Typed) -> Typed:
    value, dtype = operand
    match op:
        case ast.Not() if dtype == "bool":
            return Typed(builder.not_(value), dtype)
        case ast.Invert() if dtype == "int64":
            return Typed(builder.not_(value), dtype)
        case ast.USub() if dtype in FLOATS:
            return Typed(builder.fneg(value), dtype)
        case ast.USub() if dtype == "int64":
            return Typed(builder.neg(value), dtype)
    raise TypeError(f"no {type(op).__name__} of type {dtype}")


def binary(builder: ir.IRBuilder, op: ast.operator, left: Typed, right: Typed) -> Typed:
    divisor = right.value.constant if isinstance(right.value, ir.Constant) else 0
    left, right = _promoted(builder, left, right)
    dtype, kind = left.dtype, type(op)
    numbers = left.value, right.value
    if kind in _OPERATORS.get(dtype, ()):
        return Typed(getattr(builder, _OPERATORS[dtype][kind])(*numbers), dtype)
    if dtype == "int64" and kind in (ast.FloorDiv, ast.Mod):
        size = abs(divisor) if isinstance(divisor, int) else 0
        is_power_of_2 = size > 1 and not size & (size - 1)
        pair = _divided_by_power(builder, left.value, divisor) if is_power_of_2 else _divided(builder, *numbers)
        return Typed(pair[kind is ast.Mod], dtype)
    if dtype == "int64" and kind in (ast.LShift, ast.RShift):
        return Typed(_shifted(builder, *numbers, left=kind is ast.LShift), dtype)
    raise TypeError(f"no {kind.__name__} of type {dtype}")


def compare(builder: ir.IRBuilder, sign: str, left: Typed, right: Typed) -> Typed:
    left, right = _promoted(builder, left, right)
    if left.dtype in FLOATS:
        comparison = builder.fcmp_unordered if sign == "!=" else builder.fcmp_ordered
    else:
        comparison = builder.icmp_signed if left.dtype[0] == "i" else builder.icmp_unsigned
    return Typed(comparison(sign, left.value, right.value), "bool")


def select(builder: ir.IRBuilder, test: ir.Value, then: Typed, orelse: Typed) -> Typed:
    then, orelse = _promoted(builder, then, orelse)
    if isinstance(test.type, ir.VectorType):
        then, orelse = (spread(builder, each, test.type.count) for each in (then, orelse))
    return Typed(builder.select(test, then.value, orelse.value), then.dtype)


def spread(builder: ir.IRBuilder, value: Typed, lanes: int) -> Typed:
    """A value as a vector of this length, unless that is 0."""
    return value if value.lanes == lanes else Typed(splat(builder, value.value, lanes), value.dtype)


def cast(builder: ir.IRBuilder, value: Typed, dtype: str) -> Typed:
    """A number in another type."""
    given, source = value
    if source == dtype:
        return value
    number = TYPES[dtype]
    kind = like(given.type, number)
    signed = source[0] == "i"
    if source[0] == "*":
        raise TypeError(f"a pointer is no {dtype}")
    if dtype == "bool":
        return compare(builder, "!=", value, Typed(ir.Constant(given.type, 0), source))
    if source in FLOATS:
        if dtype in FLOATS:
            converted = builder.fpext(given, kind) if dtype == "float64" else builder.fptrunc(given, kind)
        else:
            converted = (builder.fptosi if dtype[0] == "i" else builder.fptoui)(given, kind)
    elif dtype in FLOATS:
        converted = builder.sitofp(given, kind) if signed else builder.uitofp(given, kind)
    elif number.width <= TYPES[source].width:
        converted = builder.trunc(given, kind) if number.width < TYPES[source].width else given
    else:
        converted = builder.sext(given, kind) if signed else builder.zext(given, kind)
    return Typed(converted, dtype)


def _promoted(builder: ir.IRBuilder, left: Typed, right: Typed) -> tuple[Typed, Typed]:
    """Two operands in the type that both go into, as vectors if one of them is a vector."""
    if left.dtype == right.dtype:
        wider = left.dtype
    elif left.dtype in FLOATS and right.dtype in FLOATS:
        wider = "float64"
    elif not {left.dtype, right.dtype} & set(FLOATS) and "*" not in left.dtype + right.dtype:
        wider = "int64"
    else:
        raise TypeError(f"one operand is of type {left.dtype}, the other of type {right.dtype}")
    lanes = left.lanes or right.lanes
    left = spread(builder, cast(builder, left, wider), lanes)
    return left, spread(builder, cast(builder, right, wider), lanes)


def _divided(builder: ir.IRBuilder, a: ir.Value, b: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The quotient of integers, rounded down, and the remainder; both are 0 where b is 0, as in NumPy."""
    zero, one = ir.Constant(a.type, 0), ir.Constant(a.type, 1)
    # The processor traps at 0, and at the lowest number by -1.
    by_nothing, negates = (builder.icmp_signed("==", b, ir.Constant(a.type, value)) for value in (0, -1))
    divisor = builder.select(builder.or_(by_nothing, negates), one, b)
    quotient, rest = builder.sdiv(a, divisor), builder.srem(a, divisor)
    down = builder.icmp_signed("<", builder.xor(rest, divisor), zero)
    down = builder.and_(down, builder.icmp_signed("!=", rest, zero))
    quotient = builder.select(down, builder.sub(quotient, one), quotient)
    rest = builder.select(down, builder.add(rest, divisor), rest)
    quotient = builder.select(negates, builder.neg(a), quotient)
    return builder.select(by_nothing, zero, quotient), rest


def _divided_by_power(builder: ir.IRBuilder, a: ir.Value, divisor: int) -> tuple[ir.Value, ir.Value]:
    """The same by a power of 2, or by its negative, with shifts.

    LLVM 22 makes wrong machine code for AVX-512 where vectors of 64 bits that were numbers of 8 bits are divided by -2:
    the quotient is the dividend.
    """
    size = abs(divisor)
    quotient = builder.ashr(a, ir.Constant(a.type, size.bit_length() - 1))
    rest = builder.and_(a, ir.Constant(a.type, size - 1))
    if divisor > 0:
        return quotient, rest
    # The remainder has the divisor's sign, and where it is not 0 the quotient is one less.
    some = builder.icmp_signed("!=", rest, ir.Constant(a.type, 0))
    rest = builder.select(some, builder.sub(rest, ir.Constant(a.type, size)), rest)
    return builder.sub(builder.select(some, ir.Constant(a.type, -1), ir.Constant(a.type, 0)), quotient), rest


def _shifted(builder: ir.IRBuilder, a: ir.Value, places: ir.Value, left: bool) -> ir.Value:
    """The bits of `a` moved. A shift by 64 places and more is as many single ones; LLVM leaves it undefined."""
    most = ir.Constant(a.type, 63)
    within = builder.icmp_unsigned("<=", places, most)
    if left:
        return builder.select(within, builder.shl(a, places), ir.Constant(a.type, 0))
    return builder.ashr(a, builder.select(within, places, most))
