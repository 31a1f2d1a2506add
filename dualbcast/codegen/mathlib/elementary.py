"""Elementary functions as LLVM IR: error functions, circular functions, lengths, cube roots, quotients and remainders.

Beyond a limit the C library's functions take over, for each element alone, in a branch that is almost never taken.
"""

from __future__ import annotations

import math

from dualbcast.codegen.mathlib.exponentials import clamped, scaled_expm1, times_exp
from dualbcast.codegen.mathlib.formats import format_of
from dualbcast.codegen.mathlib.logarithms import halved
from dualbcast.codegen.mathlib.primitives import (
    Emit,
    absolute,
    apart,
    at_most,
    copysign,
    fma,
    library,
    or_rarely,
    polynomial,
    rounded,
    shared,
    sign_of,
)
from dualbcast.codegen.values import Value, any_of, intrinsic


def erf(x: Value) -> Value:
    """1 - exp(-x * (C + x * A / B)) for positive x, where C is the slope at 0, and the mirror image."""
    form = format_of(x)
    slope, lacking = form.erf_slope
    size = at_most(form.erf_end, absolute(x))
    below = fma(size, polynomial(form.erf_below, size), 1.0)
    more = size * polynomial(form.erf_above, size) / below + lacking
    return copysign(scaled_expm1(-fma(size, slope, size * more), 0), x)


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
    tail = times_exp(square, head, rest)
    return (argument < 0.0).choose(2.0 - tail, tail)


def sin(x: Value) -> Value:
    return _sine_ahead("sin", x, 0)


def cos(x: Value) -> Value:
    return _sine_ahead("cos", x, 1)


def tan(x: Value) -> Value:
    """The sine divided by the cosine; the C library's where x is large, but not infinite, which takes it long."""
    sine, cosine, quarters = _sine_and_cosine(x)
    is_odd = (quarters & 1) != 0
    ratio = is_odd.choose(cosine, sine) / is_odd.choose(-sine, cosine)
    result = (ratio.bits() ^ sign_of(x.bits())).as_float()
    size = absolute(x)
    is_far = (size > format_of(x).farthest) & (size < math.inf)
    return or_rarely(is_far, result, lambda: library("tan", is_far.choose(x, 0.0)))


def _sine_ahead(name: str, x: Value, quarters_ahead: int) -> Value:
    """The sine so many quarters of a period after x, 0 or 1 of them; what the C library has where x is large."""
    form = format_of(x)
    sine, cosine, quarters = _sine_and_cosine(x)
    if quarters_ahead:
        quarters = quarters + quarters_ahead
    # The sign turns over in every other half of a period; the sine's is also that of x, and the cosine has no other.
    turned = quarters << (form.width - 2)
    sign = sign_of(turned if quarters_ahead else turned ^ x.bits())
    result = (((quarters & 1) != 0).choose(cosine, sine).bits() ^ sign).as_float()
    return or_rarely(absolute(x) > form.farthest, result, lambda: library(name, x))


@shared
def _sine_and_cosine(x: Value) -> tuple[Value, Value, Value]:
    """The sine and the cosine of r, and n in the last bits, with abs(x) = n * pi / 2 + r (Cody and Waite)."""
    form, size = format_of(x), absolute(x)
    shifted = fma(size, 2 / math.pi, form.shifter)
    n, r = rounded(shifted), size
    # The first of these is exact.
    for part in form.half_pi:
        r = fma(n, -part, r)
    square = r * r
    sine = fma(r * square, polynomial(form.sine, square), r)
    high = fma(square, -0.5, 1.0)
    cosine = fma(square * square, polynomial(form.cosine, square), high)
    return sine, cosine, shifted.bits()


def hypot(x: Value, y: Value) -> Value:
    """The root of the sum of squares, which is scaled where it might leave the format."""

    def scaled() -> Value:
        is_large = square > 1.0
        down = 2.0 ** -(form.bias // 2 + form.fraction)
        scale, back = is_large.choose(x.constant(down), 1 / down), is_large.choose(x.constant(1 / down), down)
        a, b = x * scale, y * scale
        result = intrinsic("sqrt", fma(a, a, b * b)) * back
        is_infinite = (absolute(x) == math.inf) | (absolute(y) == math.inf)
        return is_infinite.choose(x.constant(math.inf), result)

    form = format_of(x)
    square, root = _length(x, y)
    is_rare = _is_extraordinary(square) & ((x.unordered("!=", 0.0)) | (y.unordered("!=", 0.0)))
    return or_rarely(is_rare, root, scaled)


@shared
def _length(x: Value, y: Value) -> tuple[Value, Value]:
    """The sum of squares, and its root."""
    square = fma(x, x, y * y)
    return square, intrinsic("sqrt", square)


@shared
def _over_root(x: Value, y: Value) -> tuple[Value, Value]:
    """The reciprocal of the root of the sum of squares, and whether that might leave the format."""
    square, root = _length(x, y)
    return 1.0 / root, _is_extraordinary(square)


def _over_length(t: Value, x: Value, y: Value, otherwise: Emit) -> Value:
    reciprocal, is_rare = _over_root(x, y)
    return or_rarely(is_rare, t * reciprocal, lambda: otherwise(*_by_sides(x, y)))


@shared
def _by_sides(x: Value, y: Value) -> tuple[Value, Value, Value]:
    """The longer side, the shorter one over it, which is 0 where both are 0, and the longer one over the hypotenuse."""
    a, b = absolute(x), absolute(y)
    is_first = a >= b
    longer = is_first.choose(a, b)
    # Of 0 and NaN the one chosen as the longer may be 0, while their sum is NaN.
    ratio = (a + b == 0.0).choose(x.constant(0.0), is_first.choose(b, a) / longer)
    return longer, ratio, 1.0 / intrinsic("sqrt", fma(ratio, ratio, 1.0))


def cosine(x: Value, y: Value) -> Value:
    """x / hypot(x, y)."""

    def by_sides(_: Value, ratio: Value, size: Value) -> Value:
        return copysign((absolute(x) > absolute(y)).choose(size, ratio * size), x)

    return _over_length(x, x, y, by_sides)


def sine(x: Value, y: Value) -> Value:
    """y / hypot(x, y)."""

    def by_sides(_: Value, ratio: Value, size: Value) -> Value:
        return copysign((absolute(x) >= absolute(y)).choose(ratio * size, size), y)

    return _over_length(y, x, y, by_sides)


def over_length(t: Value, x: Value, y: Value) -> Value:
    """t / hypot(x, y)."""
    return _over_length(t, x, y, lambda longer, _, size: t * size / longer)


def cbrt(x: Value) -> Value:
    form = format_of(x)
    size = absolute(x)
    is_subnormal = size < form.normal
    lift = form.fraction // 3 * 3 + 3
    root, _, _, shifted = cube_root(is_subnormal.choose(size * 2.0**lift, size))
    result = (root.bits() + (shifted << form.fraction)).as_float()
    result = is_subnormal.choose(result * 2.0 ** (-lift // 3), result)
    is_ordinary = (size > 0.0) & (size < math.inf)
    return is_ordinary.choose(copysign(result, x), x)


@shared
def cube_root(x: Value) -> tuple[Value, Value, Value, Value]:
    """Of a normal positive x the cube root divided by 2**q, what that lacks, log2(x) within one half, and bits of which
    the last are the integer q: by a polynomial and a step of Halley's."""
    form = format_of(x)
    exponent, m, _ = halved(x)
    n = exponent - (2.0**form.fraction + form.bias)
    shifted = fma(n, 1.0 / 3.0, form.shifter)
    left = fma(rounded(shifted), -3.0, n)
    is_more, is_less = left > 0.0, left < 0.0
    cube = is_more.choose(m + m, is_less.choose(m * 0.5, m))
    factor = is_more.choose(m.constant(2 ** (1 / 3)), is_less.choose(m.constant(0.5 ** (1 / 3)), 1.0))
    first = polynomial(form.cube_root, m) * factor
    square = first * first
    step = first * fma(-square, first, cube) / fma(square + square, first, cube)
    root = first + step
    return root, first - root + step, n, shifted.bits()


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


@shared
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
