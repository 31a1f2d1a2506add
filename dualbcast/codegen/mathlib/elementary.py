"""Elementary functions as LLVM IR without a table: log, erfc, sin, cos, expm1, tanh, quotients and remainders.

Beyond a limit the C library's functions take over, for each element alone, in a branch that is almost never taken.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from llvmlite import ir

from dualbcast.codegen.mathlib.library_calls import apart, library, or_rarely
from dualbcast.codegen.mathlib.primitives import (
    absolute,
    at_least,
    at_most,
    clamped,
    copysign,
    fma,
    for_format,
    format_of,
    half_expm1,
    halved,
    polynomial,
    reduced_expm1,
    rounded,
    sign_of,
    twice_scaled,
)
from dualbcast.codegen.values import Value, any_of, intrinsic

# P in log(1 + f) = f - f**2 / 2 + f**3 * P(f) from sqrt(1/2) to sqrt(2); by docs/generate_coefficients.py.
_LOG32 = (
    *(0.3333335518836975, -0.2500085234642029, 0.19999825954437256, -0.16621370613574982, 0.14227114617824554),
    *(-0.13202103972434998, 0.1262032687664032, -0.07362867891788483),
)
_LOG64 = (
    *(0.3333333333333286, -0.24999999999988237, 0.2000000000015019, -0.1666666666979154, 0.14285714271206917),
    *(-0.12499999689720186, 0.11111111620272714, -0.10000015584842055, 0.09090909746386354, -0.08332893867515177),
    *(0.07691778451952211, -0.0714992981357431, 0.06682130776502695, -0.06190163458644951, 0.05679883651136751),
    *(-0.057222804813101484, 0.06498536047744115, -0.058586638532475796, 0.025120062610375953),
)


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
    tail = fma(f, polynomial(for_format(x, _LOG32, _LOG64), f), -0.5)
    low = fma(square, tail, n * form.log2_low)
    result = fma(n, form.log2, f + low)

    result = (x < math.inf).choose(result, x)
    nothing = (x == 0.0).choose(x.constant(-math.inf), math.nan)
    return x.unordered(">", 0.0).choose(result, nothing)


class _Tail(NamedTuple):
    """What depends on the format; the coefficients are by docs/generate_coefficients.py.

    A and B are in erfc(x) = exp(-x**2) * (1 + x * A(x) / (1 + x * B(x))) / (1 + 2 * x) for 0 <= x <= largest. All are
    positive, so nothing cancels; and the quotient is at most 0.29, so its errors count little.
    """

    largest: float  # from here on erfc is 0, and the square is not yet clamped for exp
    above: tuple[float, ...]  # A
    below: tuple[float, ...]  # B


_ERFC32 = _Tail(
    largest=10.19,
    above=(0.8716210722923279, 0.8367740511894226, 0.39160871505737305, 0.09431421756744385, 0.008563670329749584),
    below=(2.4018921852111816, 2.480891227722168, 1.3997302055358887, 0.44168105721473694, 0.06670189648866653),
)
_ERFC64 = _Tail(
    largest=27.3,
    above=(
        *(0.8716208329044876, 1.7831245672575717, 1.8270761585231294, 1.2076444055999798, 0.5637479853017717),
        *(0.19293373621770568, 0.048843481062885906, 0.009015964116475955, 0.0011605482301868609),
        *(9.399803182262009e-05, 3.617385932762937e-06),
    ),
    below=(
        *(3.487620748254554, 5.6933303922036895, 5.754361406117451, 4.010904579673181, 2.0302507090841213),
        *(0.7642040747099568, 0.21482770146779076, 0.044441784690802726, 0.006490271328915694, 0.0006083592915899163),
        2.817735941585227e-05,
    ),
)


def erfc(argument: Value) -> Value:
    """exp(-x * x) * (1 + S) / (1 + 2 * x) for positive x, with S = x * A(x) / (1 + x * B(x)); and the mirror image."""
    constants = for_format(argument, _ERFC32, _ERFC64)
    # As the rules in the table write it, so that LLVM sees that it is the same.
    square = clamped(-argument * argument)
    x = at_most(constants.largest, absolute(argument))
    above = x * polynomial(constants.above, x)
    below = fma(x, polynomial(constants.below, x), 1.0)
    head = (above + below) / fma(x + x, below, below)
    # What the square lost when it was rounded, which exp would magnify.
    rest = fma(x, x, square) * -head
    # exp without its 1: all of it is added to what is there in one step, so that only this rounds.
    small, n = reduced_expm1(square)
    tail = twice_scaled(head + fma(small, head + rest, rest), n)
    return (argument < 0.0).choose(2.0 - tail, tail)


class _Trigonometry(NamedTuple):
    """What depends on the format.

    S and C are in sin(r) = r + r**3 * S(r**2) and cos(r) = 1 - r**2 / 2 + r**4 * C(r**2) for abs(r) <= pi / 4; they
    interpolate at Chebyshev's points.
    """

    half_pi: tuple[float, float, float]  # three numbers whose sum is pi / 2, each rounded
    limit: float  # up to here a multiple of them leaves the right remainder
    sine: tuple[float, ...]  # S
    cosine: tuple[float, ...]  # C


_TRIG32 = _Trigonometry(
    half_pi=(1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
    limit=2.0**17,
    sine=(-0.1666666716337204, 0.008333331905305386, -0.00019840085587929934, 2.7249864160694415e-06),
    cosine=(0.0416666641831398, -0.001388830249197781, 2.454789137118496e-05),
)
_TRIG64 = _Trigonometry(
    half_pi=(1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
    limit=2.0**40,
    sine=(
        *(-0.16666666666666666, 0.008333333333333331, -0.0001984126984126506, 2.7557319219335453e-06),
        *(-2.5052106231157904e-08, 1.605853141458901e-10, -7.586685070091267e-13),
    ),
    cosine=(
        *(0.041666666666666664, -0.0013888888888887395, 2.4801587298763433e-05, -2.7557317270560326e-07),
        *(2.0876146024689747e-09, -1.1382614868556325e-11),
    ),
)


def sin(x: Value) -> Value:
    sine, cosine, quarters = _reduced(x)
    is_odd = (quarters & 1) != 0
    # The sign is that of x, and the opposite in every other half of a period.
    turned = quarters << (format_of(x).width - 2)
    sign = sign_of(turned ^ x.bits())
    return _or_library("sin", x, is_odd.choose(cosine, sine), sign)


def cos(x: Value) -> Value:
    sine, cosine, quarters = _reduced(x)
    is_odd = (quarters & 1) != 0
    sign = sign_of(quarters + 1 << (format_of(x).width - 2))
    return _or_library("cos", x, is_odd.choose(sine, cosine), sign)


def _reduced(argument: Value) -> tuple[Value, Value, Value]:
    """sin(r), cos(r) and the whole number n with abs(x) = n * pi / 2 + r (Cody and Waite), in its last bits."""
    constants = for_format(argument, _TRIG32, _TRIG64)
    x = absolute(argument)
    shifted = fma(x, 1 / _TRIG64.half_pi[0], format_of(x).shifter)
    n, r = rounded(shifted), x
    # The first of these is exact.
    for part in constants.half_pi:
        r = fma(n, -part, r)
    square = r * r
    sine = fma(r * square, polynomial(constants.sine, square), r)
    high = fma(square, -0.5, 1.0)
    cosine = fma(square * square, polynomial(constants.cosine, square), high)
    return sine, cosine, shifted.bits()


def _or_library(name: str, x: Value, size: Value, sign: Value) -> Value:
    """A number with its sign turned over or not, or where x is large what the C library has."""
    result = (size.bits() ^ sign).as_float()
    is_large = absolute(x) > for_format(x, _TRIG32, _TRIG64).limit
    return or_rarely(is_large, result, lambda: library(name, x))


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


def divided_by_constants(a: Value, b: Value, reciprocal: Value) -> Value:
    """a / b, for a host that divides fast: its divider is not to be the only thing at work."""
    return divided(a, b, reciprocal) if isinstance(b.value, ir.Constant) else a / b


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
    # Where there is a remainder; and where a is it.
    is_number = (left < math.inf) & (divisor > 0.0)
    is_small = left < divisor
    runs = is_number & ~is_small
    left, divisor = runs.choose(left, 0.0), runs.choose(divisor, 1.0)
    # The divisor as a normal number, and by how many powers of two that is more.
    lift = form.fraction + 2
    is_subnormal = divisor < form.normal
    normal = is_subnormal.choose(divisor * 2.0**lift, divisor)
    bits = normal.bits()
    lifted = is_subnormal.choose(bits.constant(lift), 0)
    exponent = (bits >> form.fraction) - lifted
    start, again, end = builder.block, builder.append_basic_block(), builder.append_basic_block()
    builder.branch(again)
    builder.position_at_end(again)
    now = Value(builder, builder.phi(a.kind))
    now.value.add_incoming(left.value, start)
    own = now.bits() >> form.fraction
    # A quotient is then below 2**(digits - 1).
    ahead = own - exponent - (form.fraction - 2)
    # Two subnormal numbers have no larger quotient, whatever their exponents are.
    is_far = (ahead > 0) & (own > 0)
    ahead = is_far.choose(ahead, 0)
    multiple = twice_scaled(normal, ahead - lifted + a.constant(form.shifter).bits())
    less = _remainder(now, multiple, now / multiple, multiple)
    now.value.add_incoming(less.value, again)
    builder.cbranch(any_of(builder, is_far.value), again, end)
    builder.position_at_end(end)
    result = is_small.choose(a, copysign(less, a))
    return is_number.choose(result, math.nan)
