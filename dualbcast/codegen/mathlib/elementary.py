"""Elementary functions as LLVM IR without a table: log, erfc, sin, cos, expm1, tanh, quotients and remainders.

Beyond a limit the C library's functions take over, for each element alone, in a branch that is almost never taken.
"""

from __future__ import annotations

import math

from dualbcast.codegen.mathlib.primitives import (
    absolute,
    apart,
    at_least,
    at_most,
    clamped,
    copysign,
    fma,
    format_of,
    half_expm1,
    halved,
    library,
    or_rarely,
    polynomial,
    reduced_expm1,
    rounded,
    sign_of,
    twice_scaled,
)
from dualbcast.codegen.values import Value, any_of, intrinsic


def log(x: Value) -> Value:
    """With x = 2**n * (1 + f)."""
    form = format_of(x)
    lift, whole = 2 * form.fraction, 2.0**form.fraction
    is_subnormal = x < form.normal
    normal = is_subnormal.choose(x * 2.0**lift, x)
    exponent, mantissa = halved(normal)
    bias = is_subnormal.choose(x.constant(whole + form.bias + lift), whole + form.bias)
    n = exponent - bias
    f = mantissa - 1.0

    square = f * f
    tail = fma(f, polynomial(form.logarithm, f), -0.5)
    low = fma(square, tail, n * form.log2_low)
    result = fma(n, form.log2, f + low)

    result = (x < math.inf).choose(result, x)
    nothing = (x == 0.0).choose(x.constant(-math.inf), math.nan)
    return x.unordered(">", 0.0).choose(result, nothing)


def erfc(argument: Value) -> Value:
    """exp(-x * x) * (1 + S) / (1 + 2 * x) for positive x, with S = x * A(x) / (1 + x * B(x)); and the mirror image."""
    form = format_of(argument)
    # As the rules in the table write it, so that LLVM sees that it is the same.
    square = clamped(-argument * argument)
    x = at_most(form.erfc_end, absolute(argument))
    above = x * polynomial(form.erfc_above, x)
    below = fma(x, polynomial(form.erfc_below, x), 1.0)
    head = (above + below) / fma(x + x, below, below)
    # What the square lost when it was rounded, which exp would magnify.
    rest = fma(x, x, square) * -head
    # exp without its 1: all of it is added to what is there in one step, so that only this rounds.
    small, n = reduced_expm1(square)
    tail = twice_scaled(head + fma(small, head + rest, rest), n)
    return (argument < 0.0).choose(2.0 - tail, tail)


def sin(x: Value) -> Value:
    return _sine_ahead("sin", x, 0)


def cos(x: Value) -> Value:
    return _sine_ahead("cos", x, 1)


def _sine_ahead(name: str, x: Value, quarters_ahead: int) -> Value:
    """The sine so many quarters of a period after x, 0 or 1 of them; what the C library has where x is large."""
    form, size = format_of(x), absolute(x)
    # abs(x) is n * pi / 2 + r with a whole n, in the last bits of this (Cody and Waite).
    shifted = fma(size, 2 / math.pi, form.shifter)
    n, r = rounded(shifted), size
    # The first of these is exact.
    for part in form.half_pi:
        r = fma(n, -part, r)
    square = r * r
    sine = fma(r * square, polynomial(form.sine, square), r)
    high = fma(square, -0.5, 1.0)
    cosine = fma(square * square, polynomial(form.cosine, square), high)
    quarters = shifted.bits()
    if quarters_ahead:
        quarters = quarters + quarters_ahead
    # The sign turns over in every other half of a period; the sine's is also that of x, and the cosine has no other.
    turned = quarters << (form.width - 2)
    sign = sign_of(turned if quarters_ahead else turned ^ x.bits())
    result = (((quarters & 1) != 0).choose(cosine, sine).bits() ^ sign).as_float()
    return or_rarely(size > form.farthest, result, lambda: library(name, x))


def expm1(x: Value) -> Value:
    form = format_of(x)
    half = half_expm1(at_least(form.minus_one, at_most(form.largest, x)))
    result = half + half
    # Where it is x its last bits, or the sign of a zero, would be lost in halves.
    return (absolute(x) < form.tiny).choose(x, result)


def tanh(x: Value) -> Value:
    """With h = expm1(2 * abs(x)) / 2, h / (1 + h): for small h as h - h * h / (1 + h), whose last term is small."""
    size = at_most(format_of(x).saturated, absolute(x))
    h = half_expm1(size + size)
    ratio = h / (1.0 + h)
    small = fma(-h, ratio, h)
    return copysign((h < 0.45).choose(small, ratio), x)


def divided(a: Value, b: Value, reciprocal: Value) -> Value:
    """a / b, given 1 / b.

    With r = 1 / b rounded and q = a * r, the remainder a - q * b is exact, or near enough, and what it adds to q gives
    the correctly rounded quotient (P. Markstein, 1990) where nothing overflows or is subnormal. Elsewhere there is a
    division, in a branch that is almost never taken.
    """
    q = a * reciprocal
    rest = fma(-b, q, a)
    result = fma(rest, reciprocal, q).bits()
    # A quotient that is zero has lost its sign.
    result = (result | sign_of(q.bits())).as_float()
    # Zeros are common above, where a search has come to its end; everywhere else they are rare.
    is_something = a.unordered("!=", 0.0)
    is_rare = _is_extraordinary(b) | (_is_extraordinary(q) & is_something)
    return or_rarely(is_rare, result, lambda: a / b)


def _is_extraordinary(x: Value) -> Value:
    """Whether the exponent of x is not one of half of all, as those of zeros, infinities and NaN.

    Where it is one, for two numbers, the product of their last places is a number, so that the remainder is exact.
    """
    form = format_of(x)
    first = form.bias - (form.bias - form.fraction - 1) // 2
    # Counted from there exactly these have their highest bit set; the sign only turns over.
    highest = 1 << (form.width - 2)
    counted = x.bits() + (highest - (first << form.fraction))
    return counted & highest == 0


def fmod(a: Value, b: Value) -> Value:
    """With q = a / b rounded and then cut off, a - q * b is a number of the format, so that one fused step gives it;
    where a / b was rounded up to a whole number it is one b too small. Large quotients take several such steps, by b
    times powers of two; glibc's function, which takes one for each bit, is left to single numbers.
    """
    quotient = a / b
    size, signed = absolute(quotient), copysign(absolute(b), a)
    rest = copysign(_remainder(a, b, quotient, signed), a)
    # An infinite b among others, whose product with 0 is no number.
    rest = (size < 1.0).choose(a, rest)
    is_large = size >= 2.0 ** (format_of(a).fraction - 1)
    if not a.is_vector:
        return or_rarely(is_large, rest, lambda: library("fmod", a, b))
    symbol = f"dualbcast_fmod_{a.kind.count}_{format_of(a).width}"
    return or_rarely(is_large, rest, lambda: apart(symbol, _in_steps, a, b, cold=True))


def _remainder(a: Value, b: Value, quotient: Value, signed: Value) -> Value:
    """a less a multiple of b, of their quotient, which is below 2**(digits - 1); `signed` is b with the sign of a."""
    rest = fma(-intrinsic("trunc", quotient), b, a)
    beyond = rest.bits() ^ sign_of(a.bits())
    return (beyond.as_float() < 0.0).choose(rest + signed, rest)


def _in_steps(a: Value, b: Value) -> Value:
    """The remainders of vectors with large quotients."""
    builder, form = a.builder, format_of(a)
    left, divisor = absolute(a), absolute(b)
    # Not for other quotients than large ones, which have their remainders elsewhere.
    is_number = (left < math.inf) & (divisor > 0.0) & (divisor < math.inf)
    left, divisor = is_number.choose(left, 0.0), is_number.choose(divisor, 1.0)
    # A normal number that is a multiple of the divisor: what is left of it is less than 2**fraction divisors.
    normal = (divisor < form.normal).choose(divisor * 2.0**form.fraction, divisor)
    start, again, end = builder.block, builder.append_basic_block(), builder.append_basic_block()
    builder.branch(again)
    builder.position_at_end(again)
    now = Value(builder, builder.phi(a.kind))
    now.value.add_incoming(left.value, start)
    # If the quotient is too large, that number times a power of two, whose exponent is so far below that of `now`.
    below = now.bits() - (form.fraction - 1 << form.fraction)
    is_far = below >= normal.bits()
    digits = (1 << form.fraction) - 1
    raised = (below & ~digits) | (normal.bits() & digits)
    multiple = is_far.choose(raised.as_float(), normal)
    less = _remainder(now, multiple, now / multiple, multiple)
    now.value.add_incoming(less.value, again)
    builder.cbranch(any_of(builder, is_far.value), again, end)
    builder.position_at_end(end)
    result = _remainder(less, divisor, less / divisor, divisor)
    return is_number.choose(copysign(result, a), math.nan)
