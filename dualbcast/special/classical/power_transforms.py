"""Box and Cox's power transforms with their inverses, and related quotients and differences near 0, in the language of
scalar functions.
"""

from __future__ import annotations

import math

from dualbcast.arithmetic import isinf
from dualbcast.special.exponentials import exp_over


def exprel(x: float) -> float:
    """expm1(x) / x, 1 at 0.

    Examples
    --------
    >>> exprel(0.0), round(exprel(1.0), 12)
    (1.0, 1.718281828459)
    """
    if x == 0:
        return 1.0
    return exp_over(x) if x > 80 else math.expm1(x) / x


def boxcox(x: float, power: float) -> float:
    """(x**power - 1) / power, and log(x) for the power 0, without cancellation; for x >= 0.

    Examples
    --------
    >>> boxcox(3.0, 2.0), boxcox(1.0, 0.0)
    (4.0, 0.0)
    """
    if x <= 0 or x != x:
        return of_zero(x, power)
    log = math.log(x)
    exponent = power * log if power != 0 else 0.0
    return log * exprel(exponent) if abs(exponent) < 1 else (math.pow(x, power) - 1.0) / power


def boxcox1p(x: float, power: float) -> float:
    """((1 + x)**power - 1) / power, and log1p(x) for the power 0, without cancellation; for x >= -1.

    Returns
    -------
    float
        To a few units in the last place, and where abs(x) < 1 to power * log1p(x) more.

    Examples
    --------
    >>> boxcox1p(2.0, 2.0), boxcox1p(1e-300, 0.5)
    (4.0, 1e-300)
    """
    if x <= -1 or x != x:
        return of_zero(x + 1.0, power)
    log = math.log1p(x)
    exponent = power * log if power != 0 else 0.0
    if abs(exponent) < 1 or abs(x) < 1:
        return log * exprel(exponent)
    return (math.pow(1.0 + x, power) - 1.0) / power


def of_zero(x: float, power: float) -> float:
    """The transform of 0, and NaN for negative numbers."""
    if x < 0 or x != x or power != power:
        return math.nan
    return -1.0 / power if power > 0 else -math.inf


def inv_boxcox(y: float, power: float) -> float:
    """The x with boxcox(x, power) = y; NaN where there is none.

    Returns
    -------
    float
        To abs(log(x)) + 4 units in the last place, as the exponential of a rounded logarithm.

    Examples
    --------
    >>> round(inv_boxcox(4.0, 2.0), 12), inv_boxcox(0.0, 0.0)
    (3.0, 1.0)
    """
    return math.exp(inverse_exponent(y, power))


def inv_boxcox1p(y: float, power: float) -> float:
    """The x with boxcox1p(x, power) = y; NaN where there is none.

    Examples
    --------
    >>> round(inv_boxcox1p(4.0, 2.0), 12), inv_boxcox1p(1e-300, 0.5)
    (2.0, 1e-300)
    """
    return math.expm1(inverse_exponent(y, power))


def inverse_exponent(y: float, power: float) -> float:
    """log1p(power * y) / power, and y for the power 0."""
    product = power * y
    if power == 0 or abs(product) < 0.5:
        return y if power == 0 else y * log1prel(product)
    # A product that overflows has the sum of the logarithms.
    log = math.log(abs(power)) + math.log(abs(y)) if product == math.inf else math.log1p(product)
    return log / power


def log1prel(x: float) -> float:
    """log1p(x) / x, 1 at 0."""
    return 1.0 if x == 0 else math.log1p(x) / x


def powm1(x: float, y: float) -> float:
    """x**y - 1, without cancellation.

    Examples
    --------
    >>> powm1(3.0, 2.0), powm1(2.0, 0.0), powm1(-2.0, 3.0)
    (8.0, 0.0, -9.0)
    """
    if x > 0:
        log = y * math.log(x)
        if abs(log) < 0.5:
            return math.expm1(log)
    return math.pow(x, y) - 1.0


def exp_moment(k: int, x: float) -> float:
    """The integral of t**k * exp(x * t) from 0 to 1, the k-th derivative of `exprel`, for k from 1 to 4.

    Up to 2 a power series replaces the recurrence, which would cancel.
    """
    if abs(x) < 2:
        power, total = 1.0, 1.0 / (k + 1)
        for n in range(1, 24):
            power = power * x / n
            total = total + power / (n + k + 1)
        return total
    moment, last = exprel(x), exp_over(x)
    if isinf(last):
        return last
    for n in range(1, k + 1):
        moment = last - n / x * moment
    return moment


def log1prel_slope(x: float) -> float:
    """The derivative of `log1prel`."""
    s = x / (2.0 + x)
    if abs(s) > 0.25:
        return (x / (1.0 + x) - math.log1p(x)) / x / x
    return -0.5 * (1.0 - s) * (1.0 - s) * (1.0 / (1.0 + s) + s * atanh_series(s * s))


def atanh_series(square: float) -> float:
    """(atanh(s) - s) / s**3 as a function of s**2, up to 1 / 16: the sum of s**(2 * k) / (2 * k + 3)."""
    total = 0.0
    for k in range(15, -1, -1):
        total = total * square + 1.0 / (2 * k + 3)
    return total


def log1prel_curvature(x: float) -> float:
    """The second derivative of `log1prel`; a power series replaces a form that would cancel."""
    if abs(x) > 0.3:
        inverse = 1.0 / (1.0 + x)
        return -(inverse * inverse + 2.0 * log1prel_slope(x)) / x
    total = 0.0
    for n in range(36, 1, -1):
        total = n * (n - 1) / (n + 1) - x * total
    return total


def boxcox_slope(x: float, power: float) -> float:
    """The derivative of `boxcox` in the power."""
    return 1.0 / power / power if x == 0 else squared_moment(math.log(x), power)


def power_of_next(x: float, power: float) -> float:
    """(1 + x)**power, the slope of `boxcox1p` in x for the next power; its slope in the power is by log1p."""
    return math.pow(1.0 + x, power)


def boxcox1p_slope(x: float, power: float) -> float:
    """The derivative of `boxcox1p` in the power."""
    return 1.0 / power / power if x == -1 else squared_moment(math.log1p(x), power)


def squared_moment(log: float, power: float) -> float:
    """The derivative of (exp(power * log) - 1) / power in the power."""
    return log * log * exp_moment(1, power * log)


def cubed_moment(log: float, power: float) -> float:
    """The second derivative of (exp(power * log) - 1) / power in the power."""
    return log * log * log * exp_moment(2, power * log)
