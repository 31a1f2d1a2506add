"""pow of vectors as LLVM IR, around a library's: what the library computes one after the other is answered here.

glibc's libmvec hands zero, negative, subnormal and infinite bases, and powers beyond the format, to the function for
single numbers, which takes ten times as long. So if there are any in a vector it computes the powers of the absolute
values, and of 1 where IEEE 754 says what the power is. The powers of all other numbers keep their bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from llvmlite import ir

from dualbcast.codegen.mathlib.fallback import instead
from dualbcast.codegen.mathlib.primitives import Emit, Steps, attribute
from dualbcast.codegen.mathlib.vector_types import is_single

__all__ = ["of_any_base"]

# log2(1 + f) is more than f by at most this much, of which the last digits are for what is cut off.
_BEND = 0.0861


def of_any_base(library: Emit) -> Emit:
    """pow, by one that takes long for some bases and powers in a vector."""

    def emit(builder: ir.IRBuilder, arguments: Sequence[ir.Value]) -> ir.Value:
        x, y = arguments
        if not isinstance(x.type, ir.VectorType):
            return library(builder, arguments)
        f = Steps(builder, x.type)
        smallest = f.bits(f.number(float(f.info.tiny)))
        span = builder.sub(f.bits(f.number(math.inf)), smallest)
        is_normal = builder.icmp_unsigned("<", builder.sub(f.bits(x), smallest), span)
        size = f.absolute(builder.fmul(y, _logarithm(f, x)))
        is_ordinary = builder.and_(is_normal, builder.fcmp_ordered("<", size, f.number(f.info.maxexp - 4)))
        rare = builder.not_(is_ordinary)
        return instead(
            builder,
            rare,
            lambda: library(builder, arguments),
            lambda: builder.call(_others(builder.module, f, library), arguments),
        )

    return emit


def _logarithm(f: Steps, x: ir.Value) -> ir.Value:
    """k + f of a positive x = 2**k * (1 + f): less than log2(x) by at most `_BEND`; of a subnormal x it is more."""
    builder, fraction = f.builder, f.fraction
    if is_single(f.kind):
        # Of numbers that have a sign, too: nobody uses it.
        whole = builder.sitofp(f.bits(x), f.kind)
        return builder.fsub(builder.fmul(whole, f.number(2.0**-fraction)), f.number(f.bias))
    # AVX2 cannot convert, so it goes to a float by way of the last bits of one.
    high = builder.or_(builder.lshr(f.bits(x), f.integer(32)), f.bits(f.number(2.0**fraction)))
    whole = builder.fsub(builder.bitcast(high, f.kind), f.number(2.0**fraction))
    return builder.fsub(builder.fmul(whole, f.number(2.0 ** (32 - fraction))), f.number(f.bias))


def _others(module: ir.Module, f: Steps, library: Emit) -> ir.Function:
    """The function for vectors of which some number is not ordinary."""
    symbol = f"dualbcast_pow_of_any_{f.kind.count}_{f.width}"
    function = module.globals.get(symbol)
    if function is None:
        function = ir.Function(module, ir.FunctionType(f.kind, [f.kind, f.kind]), symbol)
        function.linkage = "linkonce_odr"
        attribute(function, "noinline", "memory(none)", "nounwind", "willreturn", "cold")
        builder = ir.IRBuilder(function.append_basic_block())
        builder.ret(_of_all(Steps(builder, f.kind), library, *function.args))
    return function


def _of_all(f: Steps, library: Emit, x: ir.Value, y: ir.Value) -> ir.Value:
    builder, zero, one, infinity = f.builder, f.number(0), f.number(1), f.number(math.inf)

    def equal(a: ir.Value, b: ir.Value) -> ir.Value:
        return builder.fcmp_ordered("==", a, b)

    base, size = f.absolute(x), f.absolute(y)
    # Where the power is surely infinite or 0, in absolute value.
    low = _logarithm(f, base)
    high = builder.fadd(low, f.number(_BEND))
    is_down = builder.fcmp_ordered("<", y, zero)
    most, least = (builder.fmul(y, builder.select(is_down, *ways)) for ways in ((low, high), (high, low)))
    beyond = builder.fcmp_ordered(">", least, f.number(f.info.maxexp + 1))
    below = builder.fcmp_ordered("<", most, f.number(f.info.minexp - f.fraction - 2))
    ends = builder.or_(builder.or_(equal(base, zero), equal(base, infinity)), equal(size, infinity))
    ends = builder.or_(ends, builder.or_(beyond, below))
    is_nan = builder.fcmp_unordered("uno", x, y)
    known = builder.or_(ends, is_nan)
    power = library(builder, [builder.select(known, one, value) for value in (base, y)])
    grows = builder.xor(builder.fcmp_ordered(">", base, one), is_down)
    end = builder.select(grows, infinity, zero)
    # 1 to an infinite power is 1, that of -1 too.
    end = builder.select(equal(base, one), one, end)
    power = builder.select(ends, end, power)
    # Of a negative base the power has its sign where the exponent is odd, and is none where that is not whole.
    half = builder.fmul(y, f.number(0.5))
    is_whole, is_even = equal(f.call("trunc", y), y), equal(f.call("trunc", half), half)
    sign = builder.and_(f.bits(x), f.integer(1 << (f.width - 1)))
    is_odd = builder.and_(is_whole, builder.not_(is_even))
    signed = builder.or_(f.bits(power), builder.select(is_odd, sign, f.integer(0)))
    power = builder.bitcast(signed, f.kind)
    is_finite = builder.and_(builder.fcmp_ordered("<", x, zero), builder.fcmp_ordered(">", x, f.number(-math.inf)))
    power = builder.select(builder.and_(is_finite, builder.not_(is_whole)), f.number(math.nan), power)
    power = builder.select(is_nan, builder.fadd(x, y), power)
    return builder.select(builder.or_(equal(y, zero), equal(x, one)), one, power)
