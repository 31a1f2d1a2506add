"""First derivatives of the table's functions that come with derivatives of their own.

The compiler would derive second derivatives from the text of the first ones. For these functions the result would
cancel, overflow or underflow on the way to an ordinary number. Each function here is inlined where the table calls it.
"""

# All partials have the same parameters; some need only a few of them.
# ruff: noqa: ARG001, ARG005

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

from dualbcast import special
from dualbcast.arithmetic import isinf, maximum, minimum
from dualbcast.rules.registration import customise
from dualbcast.special.normal import density, exact_square

LN2 = math.log(2.0)
Scalar = TypeVar("Scalar", bound=Callable[..., Any])


def partials(of: Callable[..., Any]) -> Callable[[Scalar], Scalar]:
    """Give a first derivative partials of its own."""

    def decorate(function: Scalar) -> Scalar:
        customise(function, of, None, "partials")
        return function

    return decorate


# --- operators -----------------------------------------------------------------------------------------------------


@partials(lambda y, b, slope: (1.0 / b, -(y * (1.0 / b) * (1.0 / b))))
def quotient_slope(y: float, b: float) -> float:
    """The slope of y = a / b in b without its sign, by the reciprocal of b, which is also the slope in a.

    The derivative of this text would contain the square of b, which overflows long before the curvature does.
    """
    return y * (1.0 / b)


# --- powers --------------------------------------------------------------------------------------------------------


@partials(lambda y, s: (-2.0 * (s / y),))
def cbrt_slope(y: float) -> float:
    """The slope of a cubic root y."""
    return 1.0 / y * (1.0 / y) / 3.0


def divided_power(x: float, p: float, y: float) -> float:
    """x**(p - 1), given y = x**p: the quotient, except where that or y is no number of all digits."""
    ratio = y / x
    if 1e-30 < abs(y) < 1e30 and 1e-30 < abs(ratio) < 1e30:
        return ratio
    # Where p - 1 is not exact, the power would magnify its rounding.
    if x == 0 or isinf(x) or (abs(p) >= 1 and p - (p - 1.0) == 1):
        return math.pow(x, p - 1.0)
    return ratio


def lower_power(x: float, p: float, y: float) -> float:
    """x**(p - 1), given y = x**p, with the derivatives of this power."""
    return divided_power(x, p, y)


def power_slope(x: float, p: float, y: float) -> float:
    """The slope in x of y = x**p. Where the exponent is 0 it is 0, not 0 * inf."""
    return 0.0 if p == 0 and x == 0 else p * lower_power(x, p, y)


def power_curvature(x: float, p: float, y: float, slope: float) -> float:
    """The second derivative in x of y = x**p; where p is small, x**(p - 2) may overflow before it does."""
    if p == 0 and x == 0:
        return 0.0
    return (p - 1.0) * slope / x if abs(p) < 1 else p * power_slope(x, p - 1.0, lower_power(x, p, y))


def slope_and_log(x: float, p: float, slope: float) -> float:
    """The slope times log(x), and 0 for 0 * inf. A slope that is 0 because the exponent is changes with that."""
    return slope * math.log(x) if slope != 0 or (p == 0 and 0 < x < math.inf) else 0.0


partials(lambda x, p, y, low: (power_slope(x, p - 1.0, low), 0.0 if low == 0 else low * math.log(x), 0))(lower_power)
partials(lambda x, p, y, s: (power_curvature(x, p, y, s), lower_power(x, p, y) + slope_and_log(x, p, s), 0))(
    power_slope
)


# --- inverse functions: where the slope tends to 0 or infinity, the curvature does as a power of it ----------------


@partials(lambda x, y: (x * y * y * y,))
def asin_slope(x: float) -> float:
    """The slope of asin."""
    return 1.0 / math.sqrt((1.0 - x) * (1.0 + x))


@partials(lambda x, y: (2.0 * x * y * y,))
def atanh_slope(x: float) -> float:
    """The slope of atanh."""
    return 1.0 / ((1.0 - x) * (1.0 + x))


@partials(lambda x, y: ((2.0 * x - 1.0) * y * y,))
def logit_slope(x: float) -> float:
    """The slope of logit."""
    return 1.0 / (x * (1.0 - x))


@partials(lambda x, y: (0.0 if y == 0 else -(x * y * y * y),))
def acosh_slope(x: float) -> float:
    """The slope of acosh. The product of two roots does not overflow, and is NaN below -1, as the function is."""
    return 1.0 / (math.sqrt(x - 1.0) * math.sqrt(x + 1.0))


@partials(lambda x, y: (0.0 if y == 0 else -(x * y * y * y),))
def asinh_slope(x: float) -> float:
    """The slope of asinh."""
    return 1.0 / math.hypot(x, 1.0)


@partials(lambda x, y: (0.0 if y == 0 else -(2.0 * (x * y) * y),))
def atan_slope(x: float) -> float:
    """The slope of atan, 1 / (1 + x * x); scaled by 2**-60, so that the square overflows only where the slope is 0."""
    scaled = 2.0**-30 * x
    return 2.0**-60 / (2.0**-60 + scaled * scaled)


# --- right-angled triangles ----------------------------------------------------------------------------------------


def cosine(a: float, b: float) -> float:
    """a / hypot(a, b), from the ratio of the shorter side to the longer: the hypotenuse itself may overflow."""
    ratio = ratio_of_sides(a, b)
    size = 1.0 / math.sqrt(1.0 + ratio * ratio)
    return math.copysign(size if abs(a) > abs(b) else ratio * size, a)


def sine(a: float, b: float) -> float:
    """b / hypot(a, b)."""
    ratio = ratio_of_sides(a, b)
    size = 1.0 / math.sqrt(1.0 + ratio * ratio)
    return math.copysign(ratio * size if abs(a) >= abs(b) else size, b)


def over_length(t: float, a: float, b: float) -> float:
    """t / hypot(a, b)."""
    ratio = ratio_of_sides(a, b)
    size = 1.0 / math.sqrt(1.0 + ratio * ratio)
    return t * size / maximum(abs(a), abs(b))


def ratio_of_sides(a: float, b: float) -> float:
    """The shorter side divided by the longer one; 0 where both are 0."""
    longer = maximum(abs(a), abs(b))
    return 0.0 if longer == 0 else minimum(abs(a), abs(b)) / longer


@partials(
    lambda a, b, y: (
        -2.0 * over_length(cosine(a, b) * y, a, b),
        over_length(over_length(difference_of_squares(a, b), a, b), a, b),
    )
)
def atan2_slope(a: float, b: float) -> float:
    """The slope of atan2(a, b) in a: b divided by the square of the hypotenuse; NaN at the origin."""
    return over_length(sine(a, b), a, b)


@partials(
    lambda a, b, y: (
        over_length(over_length(difference_of_squares(b, a), a, b), a, b),
        -2.0 * over_length(sine(a, b) * y, a, b),
    )
)
def atan2_descent(a: float, b: float) -> float:
    """The slope of atan2(a, b) in b without its sign, which shares the hypotenuse with `atan2_slope`."""
    return over_length(cosine(a, b), a, b)


def difference_of_squares(a: float, b: float) -> float:
    """cosine(a, b)**2 - sine(a, b)**2, without cancellation; any number where a side is infinite."""
    if isinf(a) or isinf(b):
        return 0.0
    return over_length(abs(a) - abs(b), a, b) * (abs(cosine(a, b)) + abs(sine(a, b)))


# --- exponentials --------------------------------------------------------------------------------------------------


@partials(lambda x, y: (-(y * math.tanh(0.5 * x)),))
def logistic_density(x: float) -> float:
    """The slope of the logistic function, to all digits."""
    decay = math.exp(-abs(x))
    inverse = 1.0 / (1.0 + decay)
    return decay * inverse * inverse


@partials(lambda x, y, s: (-(logistic_density(x) * math.tanh(0.5 * x)), 0))
def sigmoid_slope(x: float, y: float) -> float:
    """The slope of y = sigmoid(x). It loses digits where y is almost 1, but needs no further exponential."""
    return y * (1.0 - y)


@partials(lambda x, y: (logistic_density(x),))
def logistic(x: float) -> float:
    """The logistic function as a first derivative: its own derivative has all digits."""
    return special.sigmoid(x)


def share_of_two(g: float) -> float:
    """1 / (1 + 2**-g)."""
    decay = math.exp2(-abs(g))
    return (decay if g < 0 else 1.0) / (1.0 + decay)


@partials(lambda g, y: (-(LN2 * y * math.tanh(0.5 * LN2 * g)),))
def density_of_two(g: float) -> float:
    """The slope of `share_of_two`, divided by log(2)."""
    decay = math.exp2(-abs(g))
    inverse = 1.0 / (1.0 + decay)
    return decay * inverse * inverse


partials(lambda g, y: (LN2 * density_of_two(g),))(share_of_two)


@partials(lambda x, y: (-(2.0 * y * math.tanh(x)),))
def squared_secant(x: float) -> float:
    """1 / cosh(x)**2, the slope of tanh, to all digits."""
    decay = math.exp(-2.0 * abs(x))
    inverse = 1.0 / (1.0 + decay)
    return 4.0 * (decay * inverse * inverse)


@partials(lambda x, y, s: (-(2.0 * y * squared_secant(x)), 0))
def tanh_slope(x: float, y: float) -> float:
    """The slope of y = tanh(x). It loses digits where y is almost 1, but needs no further exponential."""
    return 1.0 - y * y


@partials(lambda x, y: (0.0 if y == 0 else -(2.0 * x * y),))
def bell(x: float) -> float:
    """exp(-x * x), to within a few units in the last place; the rounding of x * x alone would cost hundreds."""
    square, lost = exact_square(min(abs(x), 32.0))
    return math.exp(-square) * (1.0 - lost)


partials(lambda x, y: (0.0 if y == 0 else -(x * y),))(density)


# --- the gamma function --------------------------------------------------------------------------------------------


@partials(lambda x, y, s: (y * (special.digamma(x) * special.digamma(x) + special.polygamma(1, x)), 0))
def tgamma_slope(x: float, y: float) -> float:
    """The slope of y = tgamma(x)."""
    return y * special.digamma(x)
