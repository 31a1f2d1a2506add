"""The gamma function and its logarithm as LLVM IR, for all numbers.

The reciprocal of gamma near 2 is computed as a polynomial in t = x - rint(x), and products of x - 1, x - 2, … lead
from there to other small numbers. Large numbers go through Stirling's series. The logarithm in it has half as many
digits again as the format, since its error is multiplied by x. For negative numbers gamma is reflected:
-1 / gamma(-x) is x * sin(pi * x) / pi * gamma(x).

The logarithm of gamma is computed as a quotient of polynomials near its zeros, at 1 and 2, and by Stirling's series
beyond some limit. An argument between the two is made smaller step by step, and the logarithm of the product is added.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from dualbcast.codegen.mathlib.formats import format_of
from dualbcast.codegen.mathlib.logarithms import area_argument, halved, log
from dualbcast.codegen.mathlib.primitives import (
    absolute,
    at_most,
    copysign,
    fma,
    is_even,
    library,
    or_rarely,
    polynomial,
    rounded,
    twice_scaled,
)
from dualbcast.codegen.values import Value, intrinsic


class _Constants(NamedTuple):
    """What depends on the format; `docs/generate_coefficients.py` finds the polynomials."""

    steps: int  # up to this and a half are the small numbers
    largest: float  # from here on gamma is infinite, and 0 at what is as negative
    # log(2): the first with so few digits that products with small whole numbers are exact.
    high: float
    low: float
    root_low: float  # what log(2 * pi) / 2 loses in the format
    # R in 1 / gamma(2 + t) = 1 + t * R(t) for abs(t) <= 1/2.
    around: tuple[float, ...]
    # W in log(gamma(x)) = (x - 1/2) * log(x) - x + log(2 * pi) / 2 + W(1 / x**2) / x.
    far: tuple[float, ...]
    # L in log((1 + s) / (1 - s)) = 2 * s + s**3 * L(s**2) from sqrt(1/2) to sqrt(2).
    log: tuple[float, ...]
    # S in sin(pi * r) / pi = r + r**3 * S(r**2) for abs(r) <= 1/2.
    sine: tuple[float, ...]
    # From 3 and this on lgamma is W's; below, an argument is brought between 2 and 3 in so many steps.
    log_steps: int
    # A and B in lgamma(1 + d) = d * (d - 1) * (1/2 + A(d) / B(d)) for 0 <= d <= 2.
    above: tuple[float, ...]
    below: tuple[float, ...]


_GAMMA32 = _Constants(
    steps=3,
    # Beyond it `twice_scaled` would leave the exponents; gamma is infinite from 36 on, and zero below -43.
    largest=56.0,
    high=0.693145751953125,
    low=1.4286068203094173e-06,
    root_low=1.563417717509452e-08,
    around=(
        *(-0.42278429865837097, -0.23309482634067535, 0.19109083712100983, -0.024526413530111313),
        *(-0.01764996349811554, 0.007846015505492687, -0.0007468350813724101),
    ),
    far=(0.08333330601453781, -0.0027748667635023594, 0.0007191302138380706),
    log=(0.6666682362556458, 0.39973241090774536, 0.2996908128261566),
    sine=(-1.6449333429336548, 0.8117160201072693, -0.1904449760913849, 0.024720415472984314),
    log_steps=2,
    above=(
        *(0.07721566408872604, -0.12334825843572617, -0.17724812030792236, -0.03649625927209854),
        -0.00011480622197268531,
    ),
    below=(1.0, 1.5787334442138672, 0.7059047222137451, 0.08244781196117401),
)
_GAMMA64 = _Constants(
    steps=5,
    largest=200.0,
    high=0.6931471805598903,
    low=5.497923018708371e-14,
    root_low=-3.8782941580672414e-17,
    around=(
        *(-0.4227843350984668, -0.23309373642178635, 0.1910911013876377, -0.02455249000542424),
        *(-0.01764524454782943, 0.008023273022698058, -0.0008043298195584595, -0.00036083781800734044),
        *(0.00014559657064206936, -1.7545882401330565e-05, -2.5912317629760167e-06),
        *(1.3387633442657526e-06, -1.9953485239573714e-07, -1.1368045890367434e-09),
    ),
    far=(
        *(0.08333333333333273, -0.00277777777709745, 0.0007936505673813745, -0.00059520466149712),
        *(0.0008391803361083547, -0.0018087394693973994, 0.003899694503254277),
    ),
    log=(
        *(0.6666666666666665, 0.400000000000117, 0.28571428567729334, 0.22222222814220097),
        *(0.18181764299773728, 0.15387522871517242, 0.1324148918808801, 0.13321812291099136),
    ),
    sine=(
        *(-1.6449340668482264, 0.8117424252833398, -0.19075182412149266, 0.026147847805338208),
        *(-0.00234608089281165, 0.0001484278262022936, -6.972057469521819e-06, 2.4498369382503367e-07),
    ),
    log_steps=5,
    above=(
        *(0.07721566490153287, 0.01440452663600505, -0.3238868264240903, -0.4580914358107913, -0.2523427607661919),
        *(-0.06286509581832742, -0.006592823866126638, -0.00021315214411439707, -4.96008946595292e-08),
    ),
    below=(
        *(1.0, 3.3627359874412033, 4.473114504064916, 2.9969069258876435, 1.0664404591324066),
        *(0.19510630707305127, 0.016221571501007465, 0.0004401892324153569),
    ),
)
_CONSTANTS = {32: _GAMMA32, 64: _GAMMA64}
# log(2 * pi) / 2, and what a float64 of it lacks.
_ROOT = 0.9189385332046728, -3.8782941580672414e-17


def tgamma(x: Value) -> Value:
    constants, one = _CONSTANTS[format_of(x).width], x.constant(1.0)
    is_reflected = x < -0.5
    size = absolute(x)
    whole = intrinsic("rint", size)
    rest = size - whole
    m = at_most(constants.largest, is_reflected.choose(size, x))
    t = (size <= 0.5).choose(x, rest)
    # Where gamma(m + 1) / m is to be reflected, which multiplies by m, neither is done.
    is_last = whole < 2.0
    top, lost, bottom = _small(constants, m, whole, t, is_reflected.choose(one, m))
    power, n = _large(constants, m)
    is_large = m >= constants.steps + 0.5
    top, bottom = is_large.choose(power, top), is_large.choose(one, bottom)
    lost = is_large.choose(0.0, lost)
    none = x.constant(format_of(x).shifter).bits()
    n = is_large.choose(n, none)

    square = rest * rest
    sine = fma(rest * square, polynomial(constants.sine, square), rest)
    sine = is_even(whole).choose(-sine, sine)
    # A product of many numbers, whose errors would add up: what the first steps lose comes in at the last.
    scale = is_last.choose(one, m)
    first = scale * sine
    losses = fma(fma(scale, sine, -first), top, first * lost)
    reflected = fma(first, top, losses)
    quotient = is_reflected.choose(bottom, top) / is_reflected.choose(reflected, bottom)
    n = is_reflected.choose(none + none - n, n)
    result = twice_scaled(quotient, n)
    # There is none at whole negative numbers, and at what has no distance from one: -inf.
    is_pole = is_reflected & rest.unordered("==", 0.0)
    result = is_pole.choose(math.nan, result)
    return x.unordered("uno", x).choose(x, result)


def _small(constants: _Constants, m: Value, whole: Value, t: Value, divisor: Value) -> tuple[Value, Value, Value]:
    """Two numbers whose quotient is gamma(m), for m = whole + t from -1/2 on; between them what the first lacks.

    `divisor` is m, or what to divide by instead where m is less than 3 / 2.
    """
    bottom = fma(t, polynomial(constants.around, t), 1.0)
    # gamma(m) is (m - 1) * gamma(m - 1), down to an argument near 2; near 1 and 0 it is gamma(m + 1) / m.
    top, lost = m.constant(1.0), m.constant(0.0)
    for step in range(1, constants.steps - 1):
        is_above, factor = whole > step + 1, m - step
        product = top * factor
        if step > 1:  # The first product is a factor.
            lacking = fma(lost, factor, fma(top, factor, -product))
            lost = is_above.choose(lacking, lost)
        top = is_above.choose(product, top)
    once = bottom * divisor
    twice = copysign(fma(once, m, once), m)  # which would make 0.0 of -0.0
    bottom = (whole < 2.0).choose(once, bottom)
    return top, lost, (whole < 1.0).choose(twice, bottom)


def _large(constants: _Constants, m: Value) -> tuple[Value, Value]:
    """A number near 1 and a whole one in the last bits, n, so that gamma(m) is the first times 2**n."""
    form = format_of(m)
    high, low = _logarithm(constants, m)
    # (m - 1/2) * log(m) - m, and what it lost when it was rounded.
    factor = m - 0.5
    product = factor * high
    rest = fma(factor, low, fma(factor, high, -product))
    exponent = product - m
    rest = rest + (product - exponent - m)
    inverse = 1.0 / m
    series = polynomial(constants.far, inverse * inverse)
    rest = fma(series, inverse, rest) + constants.root_low
    # exp, where the constant and the rest come in after the multiples of log(2) are taken out.
    halvings = fma(exponent, 1 / math.log(2.0), _ROOT[0] / math.log(2.0))
    shifted = halvings + form.shifter
    n = rounded(shifted)
    r = fma(n, -constants.high, exponent) + _ROOT[0]
    r = r + fma(n, -constants.low, rest)
    small = fma(r * r, polynomial(form.exponential, r), r)
    return 1.0 + small, shifted.bits()


def _logarithm(constants: _Constants, m: Value) -> tuple[Value, Value]:
    """log(m) as the sum of two numbers, for m that are above 2, with half as many digits again as one has."""
    form = format_of(m)
    exponent, left, _ = halved(m)
    k = exponent - (2.0**form.fraction + form.bias)
    s, off = area_argument(left)
    # What s lacks counts in all of the series, whose slope in s is 2 / (1 - s**2).
    square, off = s * s, off + off
    tail = fma(s * square, polynomial(constants.log, square), fma(off, square, off))
    steps, double = k * constants.high, s + s
    high = steps + double
    low = fma(k, constants.low, tail) + (double - (high - steps))
    # The second is then as small as can be, and what it loses next to nothing.
    total = high + low
    return total, high - total + low


def lgamma(x: Value) -> Value:
    constants, one = _CONSTANTS[format_of(x).width], x.constant(1.0)
    is_small = x < 1.0
    is_large = x >= 3 + constants.log_steps
    # gamma(x) is (x - 1) * gamma(x - 1), down to an argument below 3; below 1 it is gamma(1 + x) / x.
    d, product = x - 1.0, one
    for step in range(constants.log_steps):
        # Each is exact: of a number below 8 one that is at least 1.
        next_d = x - (2 + step)
        is_left = d >= 2.0
        product = is_left.choose(product * d, product)
        d = is_left.choose(next_d, d)
    d = is_small.choose(x, d)
    logarithm = log((is_small | is_large).choose(x, product))
    above = is_large.choose(one, polynomial(constants.above, d))
    below = is_large.choose(x, polynomial(constants.below, d))
    quotient = above / below
    # The zeros at 1 and 2 are taken out, and one half of what is left, so that the quotient's errors count little.
    zeros = d * (d - 1.0)
    near = fma(zeros, quotient, zeros * 0.5) + is_small.choose(-logarithm, logarithm)
    series = fma(polynomial(constants.far, quotient * quotient), quotient, _ROOT[0] - 0.5 + _ROOT[1])
    far = fma(x - 0.5, logarithm - 1.0, series)
    is_negative = x < 0.0
    return or_rarely(is_negative, is_large.choose(far, near), lambda: library("lgamma", x))
