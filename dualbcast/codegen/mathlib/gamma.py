"""The gamma function as LLVM IR, for all numbers.

With t = x - rint(x) one over gamma is a polynomial near 2, from where products of x - 1, x - 2, … lead to other small
numbers. Large ones go through Stirling's series, whose logarithm has half as many digits again, since what it loses is
multiplied by x. Negative numbers are reflected: -1 / gamma(-x) is x * sin(pi * x) / pi * gamma(x).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from llvmlite import ir

from dualbcast.codegen.mathlib.primitives import Steps
from dualbcast.codegen.mathlib.vector_types import is_single

__all__ = ["FUNCTIONS"]


class _Constants(NamedTuple):
    """What depends on the format; `docs/generate_coefficients.py` finds the polynomials.

    Attributes
    ----------
    steps : int
        Up to this and a half are the small numbers.
    largest : float
        From here on gamma is infinite, and 0 at what is as negative.
    high, low : float
        log(2): the first with so few digits that products with small whole numbers are exact.
    around : tuple of float
        R in 1 / gamma(2 + t) = 1 + t * R(t) for abs(t) <= 1/2.
    far : tuple of float
        W in log(gamma(x)) = (x - 1/2) * log(x) - x + log(2 * pi) / 2 + W(1 / x**2) / x.
    log : tuple of float
        L in log((1 + s) / (1 - s)) = 2 * s + s**3 * L(s**2) from sqrt(1/2) to sqrt(2).
    sine : tuple of float
        S in sin(pi * r) / pi = r + r**3 * S(r**2) for abs(r) <= 1/2.
    """

    steps: int
    largest: float
    high: float
    low: float
    around: tuple[float, ...]
    far: tuple[float, ...]
    log: tuple[float, ...]
    sine: tuple[float, ...]


_FLOAT32 = _Constants(
    steps=3,
    largest=60.0,
    high=0.693145751953125,
    low=1.4286068203094173e-06,
    around=(
        *(-0.42278429865837097, -0.23309482634067535, 0.19109083712100983, -0.024526413530111313),
        *(-0.01764996349811554, 0.007846015505492687, -0.0007468350813724101),
    ),
    far=(0.08333330601453781, -0.0027748667635023594, 0.0007191302138380706),
    log=(0.6666682362556458, 0.39973241090774536, 0.2996908128261566),
    sine=(-1.6449333429336548, 0.8117160201072693, -0.1904449760913849, 0.024720415472984314),
)
_FLOAT64 = _Constants(
    steps=5,
    largest=200.0,
    high=0.6931471805598903,
    low=5.497923018708371e-14,
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
)
# log(2 * pi) / 2, and what a float64 of it lacks.
_ROOT = 0.9189385332046728, -3.8782941580672414e-17


def _tgamma(builder: ir.IRBuilder, arguments: Sequence[ir.Value]) -> ir.Value:
    (x,) = arguments
    f = Steps(builder, x.type)
    constants, one = _FLOAT32 if is_single(f.kind) else _FLOAT64, f.number(1)
    is_reflected = builder.fcmp_ordered("<", x, f.number(-0.5))
    size = f.absolute(x)
    whole = f.call("rint", size)
    rest = builder.fsub(size, whole)
    m = f.at_most(constants.largest, builder.select(is_reflected, size, x))
    t = builder.select(builder.fcmp_ordered("<=", size, f.number(0.5)), x, rest)
    # Where gamma(m + 1) / m is to be reflected, which multiplies by m, neither is done.
    is_last = builder.fcmp_ordered("<", whole, f.number(2))
    top, lost, bottom = _small(f, constants, m, whole, t, builder.select(is_reflected, one, m))
    power, n = _large(f, constants, m)
    is_large = builder.fcmp_ordered(">=", m, f.number(constants.steps + 0.5))
    top, bottom = builder.select(is_large, power, top), builder.select(is_large, one, bottom)
    lost = builder.select(is_large, f.number(0), lost)
    none = f.bits(f.number(f.shifter))
    n = builder.select(is_large, n, none)

    square = builder.fmul(rest, rest)
    sine = f.fma(builder.fmul(rest, square), f.polynomial(constants.sine, square), rest)
    half = builder.fmul(whole, f.number(0.5))
    is_even = builder.fcmp_ordered("==", f.call("trunc", half), half)
    sine = builder.select(is_even, builder.fneg(sine), sine)
    # A product of many numbers, whose errors would add up: what the first steps lose comes in at the last.
    scale = builder.select(is_last, one, m)
    first = builder.fmul(scale, sine)
    losses = f.fma(f.fma(scale, sine, builder.fneg(first)), top, builder.fmul(first, lost))
    reflected = f.fma(first, top, losses)
    quotient = builder.fdiv(builder.select(is_reflected, bottom, top), builder.select(is_reflected, reflected, bottom))
    n = builder.select(is_reflected, builder.sub(builder.add(none, none), n), n)
    result = f.twice_scaled(quotient, n)
    # There is none at whole negative numbers, and at what has no distance from one: -inf.
    is_pole = builder.and_(is_reflected, builder.fcmp_unordered("==", rest, f.number(0)))
    result = builder.select(is_pole, f.number(math.nan), result)
    return builder.select(builder.fcmp_unordered("uno", x, x), x, result)


FUNCTIONS = {"tgamma": _tgamma}


def _small(
    f: Steps, constants: _Constants, m: ir.Value, whole: ir.Value, t: ir.Value, divisor: ir.Value
) -> tuple[ir.Value, ...]:
    """Two numbers whose quotient is gamma(m), for m = whole + t from -1/2 on; between them what the first lacks.

    `divisor` is m, or what to divide by instead where m is less than 3 / 2.
    """
    builder, one = f.builder, f.number(1)
    bottom = f.fma(t, f.polynomial(constants.around, t), one)
    # gamma(m) is (m - 1) * gamma(m - 1), down to an argument near 2; near 1 and 0 it is gamma(m + 1) / m.
    top, lost = one, f.number(0)
    for step in range(1, constants.steps - 1):
        is_above, factor = builder.fcmp_ordered(">", whole, f.number(step + 1)), builder.fsub(m, f.number(step))
        product = builder.fmul(top, factor)
        if step > 1:  # The first product is a factor.
            lacking = f.fma(lost, factor, f.fma(top, factor, builder.fneg(product)))
            lost = builder.select(is_above, lacking, lost)
        top = builder.select(is_above, product, top)
    once = builder.fmul(bottom, divisor)
    twice = f.call("copysign", f.fma(once, m, once), m)  # which would make 0.0 of -0.0
    bottom = builder.select(builder.fcmp_ordered("<", whole, f.number(2)), once, bottom)
    return top, lost, builder.select(builder.fcmp_ordered("<", whole, one), twice, bottom)


def _large(f: Steps, constants: _Constants, m: ir.Value) -> tuple[ir.Value, ir.Value]:
    """A number near 1 and a whole one in the last bits, n, so that gamma(m) is the first times 2**n."""
    builder = f.builder
    high, low = _logarithm(f, constants, m)
    # (m - 1/2) * log(m) - m, and what it lost when it was rounded.
    factor = builder.fsub(m, f.number(0.5))
    product = builder.fmul(factor, high)
    rest = f.fma(factor, low, f.fma(factor, high, builder.fneg(product)))
    exponent = builder.fsub(product, m)
    rest = builder.fadd(rest, builder.fsub(builder.fsub(product, exponent), m))
    inverse = builder.fdiv(f.number(1), m)
    series = f.polynomial(constants.far, builder.fmul(inverse, inverse))
    rest = builder.fadd(f.fma(series, inverse, rest), f.number(_lost(f)))
    # exp, where the constant and the rest come in after the multiples of log(2) are taken out.
    halvings = f.fma(exponent, f.number(1 / math.log(2.0)), f.number(_ROOT[0] / math.log(2.0)))
    shifted = builder.fadd(halvings, f.number(f.shifter))
    n = builder.fsub(shifted, f.number(f.shifter))
    r = builder.fadd(f.fma(n, f.number(-constants.high), exponent), f.number(_ROOT[0]))
    r = builder.fadd(r, f.fma(n, f.number(-constants.low), rest))
    small = f.fma(builder.fmul(r, r), f.polynomial(f.format.exponential, r), r)
    return builder.fadd(f.number(1), small), f.bits(shifted)


def _lost(f: Steps) -> float:
    """What log(2 * pi) / 2 loses in the format."""
    return _ROOT[1] if f.width == 64 else _ROOT[0] - float(f.format.dtype(_ROOT[0]))


def _logarithm(f: Steps, constants: _Constants, m: ir.Value) -> tuple[ir.Value, ir.Value]:
    """log(m) as the sum of two numbers, for m that are above 2, with half as many digits again as one has."""
    builder, one = f.builder, f.number(1)
    # m = 2**k * (1 + d), where d is counted from sqrt(1/2).
    root, unit, whole = f.bits(f.number(math.sqrt(0.5))), f.bits(one), 2.0**f.fraction
    counted = builder.add(builder.sub(f.bits(m), root), unit)
    exponent = builder.or_(builder.lshr(counted, f.integer(f.fraction)), f.bits(f.number(whole)))
    k = builder.fsub(builder.bitcast(exponent, f.kind), f.number(whole + f.bias))
    left = builder.add(builder.and_(counted, f.integer((1 << f.fraction) - 1)), root)
    left = builder.bitcast(left, f.kind)
    # s = d / (2 + d), and what of the divisor and of the quotient is rounded off.
    d, divisor = builder.fsub(left, one), builder.fadd(left, one)
    lacking = builder.fsub(left, builder.fsub(divisor, one))
    reciprocal = builder.fdiv(one, divisor)
    s = builder.fmul(d, reciprocal)
    off = f.fma(builder.fneg(s), divisor, d)
    off = builder.fmul(f.fma(builder.fneg(s), lacking, off), reciprocal)
    # What s lacks counts in all of the series, whose slope in s is 2 / (1 - s**2).
    square, off = builder.fmul(s, s), builder.fadd(off, off)
    tail = f.fma(builder.fmul(s, square), f.polynomial(constants.log, square), f.fma(off, square, off))
    steps, double = builder.fmul(k, f.number(constants.high)), builder.fadd(s, s)
    high = builder.fadd(steps, double)
    low = builder.fadd(f.fma(k, f.number(constants.low), tail), builder.fsub(double, builder.fsub(high, steps)))
    # The second is then as small as can be, and what it loses next to nothing.
    total = builder.fadd(high, low)
    return total, builder.fadd(builder.fsub(high, total), low)
