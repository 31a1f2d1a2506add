"""Modified Bessel functions of real arguments and whole orders, in the language of scalar functions.

The first kind is a polynomial up to 8, and beyond exp(x) / sqrt(x) times one of 8 / x; the second kind is a polynomial
and a logarithm up to 1, and beyond exp(-x) / sqrt(x) times a quotient (Abramowitz and Stegun, *Handbook of Mathematical
Functions*, 9.6.10 to 9.7.2). The coefficients are those of docs/generate_special_coefficients.py. Values are off by up
to 5 units in the last place.
"""

from __future__ import annotations

import math

from dualbcast.arithmetic import isinf, minimum, sign
from dualbcast.special.classical import coefficients as table
from dualbcast.special.polynomials import polynomial, quotient, with_slope

# The functions of the first kind overflow before.
LARGEST = 1500.0
# The square of a number below this is nothing beside 1.
NEGLIGIBLE = 1e-9
# Where 1 / x**2 is as large, 1 / x is nothing beside it.
HUGE = 1e36


def i0(x: float) -> float:
    """The modified Bessel function of the first kind of order 0.

    Examples
    --------
    >>> i0(0.0), round(i0(1.0), 12)
    (1.0, 1.266065877752)
    """
    size = minimum(abs(x), LARGEST)
    if size <= 8:
        return polynomial(x * x / 64.0, table.I0_NEAR)
    half = math.exp(0.5 * size)
    return i0_far(size) * half * half


def i0e(x: float) -> float:
    """exp(-abs(x)) * i0(x), which does not overflow.

    Examples
    --------
    >>> i0e(0.0), round(i0e(1000.0), 12)
    (1.0, 0.012617240456)
    """
    size = abs(x)
    return math.exp(-size) * polynomial(x * x / 64.0, table.I0_NEAR) if size <= 8 else i0_far(size)


def i1(x: float) -> float:
    """The modified Bessel function of the first kind of order 1.

    Examples
    --------
    >>> round(i1(1.0), 12)
    0.565159103992
    """
    size = minimum(abs(x), LARGEST)
    if size <= 8:
        return x * polynomial(x * x / 64.0, table.I1_NEAR)
    half = math.exp(0.5 * size)
    return math.copysign(i1_far(size) * half * half, x)


def i1e(x: float) -> float:
    """exp(-abs(x)) * i1(x), which does not overflow.

    Examples
    --------
    >>> round(i1e(1000.0), 12)
    0.012610930257
    """
    size = abs(x)
    if size <= 8:
        return math.exp(-size) * (x * polynomial(x * x / 64.0, table.I1_NEAR))
    return math.copysign(i1_far(size), x)


def i0_far(x: float) -> float:
    """exp(-x) * I_0(x) from 8 on."""
    return polynomial(16.0 / x - 1.0, table.I0_FAR) / math.sqrt(x)


def i1_far(x: float) -> float:
    """exp(-x) * I_1(x) from 8 on."""
    return polynomial(16.0 / x - 1.0, table.I1_FAR) / math.sqrt(x)


def i_gap(x: float) -> float:
    """exp(-abs(x)) * (I_0(abs(x)) - I_1(abs(x))), without cancellation."""
    size = abs(x)
    if size <= 8:
        return quotient(size / 8.0, table.I_GAP_NEAR, table.I_GAP_NEAR_BELOW)
    return polynomial(16.0 / size - 1.0, table.I_GAP_FAR) / math.sqrt(size) / size


def i2_over(x: float) -> float:
    """I_2(x) / x, by a power series where the recurrence would cancel."""
    if abs(x) > 2:
        return (i0(x) - 2.0 / x * i1(x)) / x
    q = 0.25 * x * x
    term = 0.125 * x
    total = term
    for k in range(1, 11):
        term = term * q / (k * (k + 2))
        total = total + term
    return total


def i2e_over(x: float) -> float:
    """exp(-x) * I_2(x) / x for x >= 0."""
    return math.exp(-x) * i2_over(x) if x <= 2 else (i0e(x) - 2.0 / x * i1e(x)) / x


def k0(x: float) -> float:
    """The modified Bessel function of the second kind of order 0.

    Parameters
    ----------
    x : float
        A positive number. At 0 the result is an infinity, and for negative numbers NaN.

    Examples
    --------
    >>> k0(0.0), round(k0(1.0), 12)
    (inf, 0.421024438241)
    """
    if x <= 0:
        return math.inf if x == 0 else math.nan
    return k0_near(x) if x <= 1 else math.exp(-x) * k0_far(x)


def k0e(x: float) -> float:
    """exp(x) * k0(x), which does not underflow.

    Examples
    --------
    >>> round(k0e(1000.0), 12)
    0.039628321601
    """
    if x <= 0:
        return math.inf if x == 0 else math.nan
    return math.exp(x) * k0_near(x) if x <= 1 else k0_far(x)


def k1(x: float) -> float:
    """The modified Bessel function of the second kind of order 1; see `k0`.

    Examples
    --------
    >>> round(k1(1.0), 12)
    0.601907230197
    """
    if x <= 0:
        return math.inf if x == 0 else math.nan
    return k1_near(x) if x <= 1 else math.exp(-x) * k1_far(x)


def k1e(x: float) -> float:
    """exp(x) * k1(x), which does not underflow.

    Examples
    --------
    >>> round(k1e(1000.0), 12)
    0.039648130813
    """
    if x <= 0:
        return math.inf if x == 0 else math.nan
    return math.exp(x) * k1_near(x) if x <= 1 else k1_far(x)


def k0_near(x: float) -> float:
    """K_0 from 0 to 1."""
    q = x * x
    return polynomial(q, table.K0_NEAR) - math.log(x) * polynomial(q / 64.0, table.I0_NEAR)


def k1_near(x: float) -> float:
    """K_1 from 0 to 1."""
    q = x * x
    return 1.0 / x + x * (polynomial(q, table.K1_NEAR) + math.log(x) * polynomial(q / 64.0, table.I1_NEAR))


def k0_far(x: float) -> float:
    """exp(x) * K_0(x) from 1 on."""
    return quotient(1.0 / x, table.K0_FAR, table.K0_FAR_BELOW) / math.sqrt(x)


def k1_far(x: float) -> float:
    """exp(x) * K_1(x) from 1 on."""
    return quotient(1.0 / x, table.K1_FAR, table.K1_FAR_BELOW) / math.sqrt(x)


def k_gap(x: float) -> float:
    """exp(x) * (K_1(x) - K_0(x)), without cancellation."""
    if x <= 0:
        return math.inf if x == 0 else math.nan
    if x <= 1:
        return math.exp(x) * (k1_near(x) - k0_near(x))
    return quotient(1.0 / x, table.K_GAP_FAR, table.K_GAP_FAR_BELOW) / math.sqrt(x) / x


# --- first derivatives, and those of these -------------------------------------------------------------------------


def i1_slope(x: float, value: float) -> float:
    """The derivative of `i1` at x, where it has this value."""
    if abs(x) < NEGLIGIBLE:
        return 0.5
    return abs(value) if isinf(value) else i0(x) - value / x


def i1_curvature(x: float, value: float) -> float:
    """The second derivative of `i1`."""
    return value if isinf(value) else value - i2_over(x)


def i1e_slope(x: float, value: float) -> float:
    """The derivative of `i1e` at x, where it has this value."""
    return 0.5 - abs(x) if abs(x) < NEGLIGIBLE else i_gap(x) - value / x


def i1e_curvature(x: float, value: float, slope: float) -> float:
    """The second derivative of `i1e`, where it has this value and slope."""
    size = abs(x)
    if size > 8:
        return i_gap_slope(x) + (value / x - slope) / x
    ratio = 0.5 if size < 1e-30 else abs(value) / size
    return sign(x) * (2.0 * ratio - 2.0 * i_gap(size) - i2e_over(size))


def i_gap_slope(x: float) -> float:
    """The derivative of `i_gap`."""
    size = abs(x)
    if size > 8:
        value, slope = with_slope(16.0 / size - 1.0, table.I_GAP_FAR)
        return -sign(x) * (1.5 * value + 16.0 / size * slope) / math.sqrt(size) / size / size
    return -sign(x) * (i_gap(x) + i1e_slope(x, i1e(x)))


def k_gap_slope(x: float, value: float) -> float:
    """The derivative of `k_gap` at x, where it has this value."""
    if x <= 1:
        ratio = k1e(x) / x
        return -ratio if ratio > HUGE else 2.0 * value - ratio
    above, slope_above = with_slope(1.0 / x, table.K_GAP_FAR)
    below, slope_below = with_slope(1.0 / x, table.K_GAP_FAR_BELOW)
    ratio = above / below
    slope = (slope_above - ratio * slope_below) / below
    return -(1.5 * ratio + slope / x) / math.sqrt(x) / x / x


def k1e_slope(x: float, value: float) -> float:
    """The derivative of `k1e` at x, where it has this value."""
    return -math.inf if isinf(value) else k_gap(x) - value / x


def k1e_curvature(x: float, value: float, slope: float) -> float:
    """The second derivative of `k1e`, where it has this value and slope."""
    ratio = value / x
    return 2.0 * ratio / x if ratio > HUGE else k_gap_slope(x, k_gap(x)) + (ratio - slope) / x


def ive_slope(n: int, x: float, value: float) -> float:
    """The derivative of `ive` at x, where it has this value."""
    order, size = abs(n), abs(x)
    if size > 30.0 + 0.5 * order * order:  # the neighbours' mean would be almost the value
        return (-1.0 if x < 0 and order % 2 == 0 else 1.0) * asymptotic(order, size)[1]
    return 0.5 * (ive(n - 1, x) + ive(n + 1, x)) - sign(x) * value


def kve_slope(n: int, x: float, value: float) -> float:
    """The derivative of `kve` at x, where it has this value."""
    order = abs(n)
    steepness = order / x * value
    if order == 0:
        return -k_gap(x)
    if isinf(steepness):
        return -steepness
    # The gap between the value and that of the order below, by the recurrence of the function.
    before, last, gap = k0e(x), k1e(x), k_gap(x)
    for k in range(1, order):
        before, last, gap = last, before + last * ((2 * k) / x), last * ((2 * k) / x) - gap
    return gap - steepness


# --- whole orders --------------------------------------------------------------------------------------------------


def iv(n: int, x: float) -> float:
    """The modified Bessel function of the first kind of a whole order.

    Parameters
    ----------
    n : int
        The order; that of -n is the same function.
    x : float
        Any number.

    Returns
    -------
    float
        I_n(x), to about abs(n) + 8 units in the last place, and abs(x) / 2 more where the exponential is rounded.

    Examples
    --------
    >>> round(iv(2, 1.0), 12), iv(3, 0.0)
    (0.135747669767, 0.0)
    """
    half = math.exp(0.5 * minimum(abs(x), LARGEST))
    return ive(n, x) * half * half


def ive(n: int, x: float) -> float:
    """exp(-abs(x)) * iv(n, x).

    Notes
    -----
    The asymptotic series 9.7.1 from 30 + n**2 / 2 on. Below, the recurrence 9.6.26 downwards for the ratios of
    neighbours.

    Examples
    --------
    >>> round(ive(2, 1000.0), 12)
    0.012592018595
    """
    order, size = abs(n), abs(x)
    sign = -1.0 if x < 0 and order % 2 == 1 else 1.0
    if size > 30.0 + 0.5 * order * order:
        return sign * asymptotic(order, size)[0]
    ratio, product = 0.0, 1.0
    # Far beyond sqrt(80 * size) the ratio no longer depends on where it begins.
    beyond = order + 16 + int(math.sqrt(80.0 * size))
    for k in range(beyond, order, -1):
        ratio = size / (2 * k + size * ratio)
    for k in range(order, 0, -1):
        ratio = size / (2 * k + size * ratio)
        product = product * ratio
    return sign * product * i0e(size)


def asymptotic(order: int, x: float) -> tuple[float, float]:
    """exp(-x) * I_n(x) and its derivative by the asymptotic series, for x > 30 + n**2 / 2."""
    term, total, slope, k = 1.0, 1.0, 0.5, 1
    while abs(term) > 1e-17 and k < 40:
        term = -term * ((2 * order - 2 * k + 1) * (2 * order + 2 * k - 1)) / (8 * k * x)
        total = total + term
        slope = slope + (k + 0.5) * term
        k = k + 1
    root = math.sqrt(2.0 * math.pi) * math.sqrt(x)
    return total / root, -slope / root / x


def kv(n: int, x: float) -> float:
    """The modified Bessel function of the second kind of a whole order: `scipy.special.kn` and `scipy.special.kv`.

    Parameters
    ----------
    n : int
        The order; that of -n is the same function.
    x : float
        A positive number. At 0 the result is an infinity, and for negative numbers NaN.

    Returns
    -------
    float
        K_n(x), by the recurrence 9.6.26 upwards.

    Examples
    --------
    >>> round(kv(2, 1.0), 12)
    1.624838898635
    """
    return upwards(abs(n), x, k0(x), k1(x))


def kve(n: int, x: float) -> float:
    """exp(x) * kv(n, x).

    Examples
    --------
    >>> round(kve(2, 1000.0), 12)
    0.039707617862
    """
    return upwards(abs(n), x, k0e(x), k1e(x))


def upwards(order: int, x: float, zeroth: float, first: float) -> float:
    """The function of the second kind of an order, from those of orders 0 and 1."""
    if order == 0:
        return zeroth
    for k in range(1, order):
        zeroth, first = first, zeroth + first * ((2 * k) / x)
    return first
