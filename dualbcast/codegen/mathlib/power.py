"""pow of vectors as LLVM IR, around a library's: what the library computes one after the other is answered here.

glibc's libmvec hands zero, negative, subnormal and infinite bases, and powers beyond the format, to the function for
single numbers, which takes ten times as long. So if there are any in a vector it computes the powers of the absolute
values, and of 1 where IEEE 754 says what the power is. The powers of all other numbers keep their bits.
"""

from __future__ import annotations

import math

from dualbcast.codegen.mathlib.fallback import apart, instead
from dualbcast.codegen.mathlib.primitives import Emit, absolute, called, format_of, is_even, sign_of
from dualbcast.codegen.values import Value, intrinsic
from dualbcast.codegen.vector_types import is_single

__all__ = ["of_any_base"]

# log2(1 + f) is more than f by at most this much, of which the last digits are for what is cut off.
_BEND = 0.0861


def of_any_base(library: Emit) -> Emit:
    """pow, by one that takes long for some bases and powers in a vector."""

    def emit(x: Value, y: Value) -> Value:
        if not x.is_vector:
            return library(x, y)
        form = format_of(x)
        smallest = x.constant(form.normal).bits()
        span = x.constant(math.inf).bits() - smallest
        is_normal = (x.bits() - smallest).unsigned("<", span)
        size = absolute(y * _logarithm(x))
        is_ordinary = is_normal & (size < form.bias - 3)
        symbol = f"dualbcast_pow_of_any_{x.kind.count}_{form.width}"

        def of_all(x: Value, y: Value) -> Value:
            return _of_all(library, x, y)

        return instead(~is_ordinary, lambda: library(x, y), lambda: called(apart(symbol, x, of_all), x, y))

    return emit


def _logarithm(x: Value) -> Value:
    """k + f of a positive x = 2**k * (1 + f): less than log2(x) by at most `_BEND`; of a subnormal x it is more."""
    form = format_of(x)
    if is_single(x.kind):
        # Of numbers that have a sign, too: nobody uses it.
        whole = Value(x.builder, x.builder.sitofp(x.bits().value, x.kind))
        return whole * 2.0**-form.fraction - form.bias
    # AVX2 cannot convert, so it goes to a float by way of the last bits of one.
    high = (x.bits() >> 32) | x.constant(2.0**form.fraction).bits()
    whole = high.as_float() - 2.0**form.fraction
    return whole * 2.0 ** (32 - form.fraction) - form.bias


def _of_all(library: Emit, x: Value, y: Value) -> Value:
    """The powers of vectors in which some number is not ordinary."""
    form, one = format_of(x), x.constant(1.0)
    base, size = absolute(x), absolute(y)
    # Where the power is surely infinite or 0, in absolute value.
    low = _logarithm(base)
    high = low + _BEND
    is_down = y < 0.0
    most, least = (y * is_down.choose(*ways) for ways in ((low, high), (high, low)))
    is_beyond = least > form.bias + 2
    is_below = most < -form.bias - form.fraction - 1
    is_end = (base == 0.0) | (base == math.inf) | (size == math.inf) | (is_beyond | is_below)
    is_nan = x.unordered("uno", y)
    is_known = is_end | is_nan
    power = library(*(is_known.choose(one, value) for value in (base, y)))
    grows = (base > 1.0) ^ is_down
    end = grows.choose(x.constant(math.inf), 0.0)
    # 1 to an infinite power is 1, that of -1 too.
    end = (base == 1.0).choose(one, end)
    power = is_end.choose(end, power)
    # Of a negative base the power has its sign where the exponent is odd, and is none where that is not whole.
    is_whole, even = intrinsic("trunc", y) == y, is_even(y)
    sign = sign_of(x.bits())
    signed = power.bits() | (is_whole & ~even).choose(sign, 0)
    power = signed.as_float()
    is_finite = (x < 0.0) & (x > -math.inf)
    power = (is_finite & ~is_whole).choose(math.nan, power)
    power = is_nan.choose(x + y, power)
    return ((y == 0.0) | (x == 1.0)).choose(one, power)
