"""Powers as LLVM IR, and what they share: the logarithm of the base, and the power with an exponent that is less by 1.

A power is 2**(y * log2(x)). Its logarithm is the sum of two numbers, so that the product with y, which may be as large
as the exponents of the format, still has all digits behind the point. The code of the logarithm depends on the base
alone, and LLVM keeps one copy of it for all powers of one base.
"""

from __future__ import annotations

import math

from dualbcast.codegen.mathlib.elementary import log
from dualbcast.codegen.mathlib.primitives import (
    Emit,
    absolute,
    apart,
    area_argument,
    at_least,
    at_most,
    fma,
    format_of,
    halved,
    is_even,
    or_rarely,
    polynomial,
    rounded,
    sign_of,
    twice_scaled,
)
from dualbcast.codegen.values import Value, intrinsic


def pow(x: Value, y: Value) -> Value:
    """x to the power y, for all numbers."""
    is_rare = ~_is_normal(x) | absolute(y).unordered(">=", math.inf)
    return _or_apart(is_rare, _power(_logarithm(x), y), "pow", _of_any, x, y)


def base_logarithm(x: Value) -> Value:
    """log(x), by the code that powers of x have."""
    form = format_of(x)
    high, low = _logarithm(x)
    result = fma(high, form.log2, fma(high, form.log2_low, low * form.log2))
    return _or_apart(~_is_normal(x), result, "log", log, x)


def divided_power(x: Value, p: Value, y: Value) -> Value:
    """x to the power p - 1, given the power y to p: y / x, unless one of these has lost digits or is no number."""
    ratio = y / x
    is_rare = ~(_is_normal(absolute(y)) & _is_normal(absolute(ratio)))
    return _or_apart(is_rare, ratio, "divided_power", _divided_of_any, x, p, y)


def _or_apart(is_rare: Value, result: Value, name: str, write: Emit, *arguments: Value) -> Value:
    """`result`, or where `is_rare` is true what `write` writes of the arguments, in a function that stands apart."""
    first = arguments[0]
    symbol = f"dualbcast_{name}_of_any_{first.lanes}_{format_of(first).width}"
    return or_rarely(is_rare, result, lambda: apart(symbol, write, *arguments, cold=True))


def _is_normal(x: Value) -> Value:
    """Whether a number is positive, finite and normal."""
    smallest = x.constant(format_of(x).normal).bits()
    span = x.constant(math.inf).bits() - smallest
    return (x.bits() - smallest).unsigned("<", span)


def _logarithm(x: Value, lift: Value | float = 0.0) -> tuple[Value, Value]:
    """log2(x) - lift of a normal positive x, as the sum of two numbers of which the second is small.

    With x = 2**n * m and s = (m - 1) / (m + 1) it is n + s * (C + D * s**2 + s**4 * P(s**2)). The terms with C and D
    are sums of two numbers, too. What is lost is less than 2**-64 of the logarithm in float64, and 2**-35 in float32.
    """
    form = format_of(x)
    exponent, m = halved(x)
    n = exponent - (2.0**form.fraction + form.bias) - lift
    s, s_low = area_argument(m)
    square = s * s
    square_low = fma(s + s, s_low, fma(s, s, -square))
    (first, first_low), (second, second_low) = form.log2_head
    term = square * second
    term_low = fma(square, second, -term) + fma(square_low, second, square * second_low)
    tail = fma(square * square, polynomial(form.log2_tail, square), term_low + first_low)
    factor = term + first
    factor_low = (first - factor + term) + tail
    product = s * factor
    product_low = fma(s, factor, -product) + fma(s, factor_low, s_low * factor)
    high = n + product
    low = (n - high + product) + product_low
    # The second is then as small as can be.
    total = high + low
    return total, high - total + low


def _power(logarithm: tuple[Value, Value], y: Value) -> Value:
    """2**(y * logarithm), where the product is not NaN."""
    high, low = logarithm
    form = format_of(y)
    # Beyond these it is infinite or 0.
    product = at_least(-form.bias - form.fraction - 8.0, at_most(form.bias + 8.0, y * high))
    is_inside = (product > -form.bias - form.fraction - 8.0) & (product < form.bias + 8.0)
    product_low = is_inside.choose(fma(y, low, fma(y, high, -product)), 0.0)
    shifted = product + form.shifter
    rest = product - rounded(shifted)
    r = rest + product_low
    r_low = rest - r + product_low
    # exp's polynomial, of log(2) * r.
    scaled = [c * math.log(2.0) ** (k + 2) for k, c in enumerate(form.exponential)]
    # What 1 + log(2) * r loses comes in with the terms that are smaller, so that only the last sum rounds.
    first = r * form.log2
    total = first + 1.0
    first_low = fma(r, form.log2, -first) + fma(r, form.log2_low, r_low * form.log2)
    small = fma(r * r, polynomial(scaled, r), first_low)
    return twice_scaled(total + ((1.0 - total + first) + small), shifted.bits())


def _of_any(x: Value, y: Value) -> Value:
    """The powers of vectors in which some number is not ordinary."""
    form, one = format_of(x), x.constant(1.0)
    base, lift = absolute(x), 2 * form.fraction
    is_subnormal = base < form.normal
    is_finite = (base > 0.0) & (base < math.inf)
    normal = is_finite.choose(is_subnormal.choose(base * 2.0**lift, base), one)
    high, low = _logarithm(normal, is_subnormal.choose(x.constant(lift), 0.0))
    high = is_finite.choose(high, (base == 0.0).choose(x.constant(-math.inf), base))
    power = _power((high, low), y)
    # 1 to an infinite power is 1, that of -1 too.
    power = (base == 1.0).choose(one, power)
    # Of a negative base the power has its sign where the exponent is odd, and is none where that is not whole.
    is_whole, even = intrinsic("trunc", y) == y, is_even(y)
    power = (power.bits() | (is_whole & ~even).choose(sign_of(x.bits()), 0)).as_float()
    power = ((x < 0.0) & (x > -math.inf) & ~is_whole).choose(math.nan, power)
    power = (x.unordered("uno", y)).choose(x + y, power)
    return ((y == 0.0) | (x == 1.0)).choose(one, power)


def _divided_of_any(x: Value, p: Value, y: Value) -> Value:
    """As the rule's function in the scalar language: where p - 1 is not exact, the power would magnify its rounding."""
    lower = p - 1.0
    is_exact = (absolute(p) >= 1.0) & (p - lower == 1.0)
    is_power = is_exact | (x == 0.0) | (absolute(x) == math.inf)
    return is_power.choose(pow(x, lower), y / x)
