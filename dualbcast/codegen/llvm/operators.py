"""The operations of the IR on values: where one operand is a vector, the others become vectors."""

from __future__ import annotations

import operator
from collections.abc import Callable

from llvmlite import ir

from dualbcast.codegen.values import Value


def spread(*operands: Value) -> tuple[Value, ...]:
    """Operands as vectors if one of them is a vector."""
    lanes = [each.lanes for each in operands]
    most = max(lanes)
    return operands if min(lanes) == most else tuple([each.spread(most) for each in operands])


def select(test: Value, then: Value, orelse: Value) -> Value:
    """One of two values, both of which are computed."""
    if test.is_vector:
        test, then, orelse = spread(test, then, orelse)
    else:
        then, orelse = spread(then, orelse)
    return test.choose(then, orelse)


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


# What the operations of the IR compute of values of one length. `select` may have one test for all lanes.
OPERATIONS: dict[str, Callable[..., Value]] = {
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "neg": operator.neg,
    "floordiv": lambda a, b: _divided(a, b)[0],
    "mod": lambda a, b: _divided(a, b)[1],
    # Both operands are computed already.
    "and": operator.and_,
    "or": operator.or_,
    "not": operator.invert,
    "bitand": operator.and_,
    "bitor": operator.or_,
    "bitxor": operator.xor,
    "invert": operator.invert,
    "shl": _shifted_left,
    "shr": _shifted_right,
    "to_int": lambda a: a.to("int64"),
}
