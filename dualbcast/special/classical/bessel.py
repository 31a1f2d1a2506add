"""Bessel functions of the first and second kind, of real arguments and whole orders, in the language of scalar
functions.

Up to 5 they are polynomials, with the logarithm for the second kind; beyond, Hankel's expansion with fitted quotients
(Abramowitz and Stegun, *Handbook of Mathematical Functions*, 9.1.12, 9.1.13 and 9.2.5 to 9.2.10). The coefficients are
those of docs/generate_special_coefficients.py.
"""

from __future__ import annotations

import math

import numpy as np

from dualbcast.arithmetic import isinf
from dualbcast.special.classical import coefficients as table
from dualbcast.special.polynomials import polynomial, quotient

# Zeros, in two parts of which the first has 24 bits, and the squares of the next ones.
J0_ZERO, J0_ZERO_REST, J0_SECOND = 2.404825448989868, 1.0870590460455913e-07, 30.471262343662087
J1_ZERO, J1_ZERO_REST, J1_SECOND = 3.8317060470581055, -7.685059315313556e-08, 49.2184563216946
TWO_OVER_PI = 2.0 / math.pi
# The square of a number below this is nothing beside 1.
NEGLIGIBLE = 1e-9


def j0(x: float) -> float:
    """The Bessel function of the first kind of order 0.

    Parameters
    ----------
    x : float
        Any number.

    Returns
    -------
    float
        J_0(x), to a few units in the last place up to 5, and beyond to a few units of the amplitude sqrt(2 / (pi * x)).

    Examples
    --------
    >>> round(j0(1.0), 12), abs(j0(2.404825557695773)) < 1e-15
    (0.765197686558, True)
    """
    size = abs(x)
    if isinf(size):
        return 0.0
    if size <= 5:
        return j0_near(size)
    p, q, total, difference = hankel(size, 0)
    return p * total - q * difference


def j1(x: float) -> float:
    """The Bessel function of the first kind of order 1; see `j0` for its errors.

    Examples
    --------
    >>> round(j1(1.0), 12)
    0.440050585745
    """
    size = abs(x)
    if isinf(size):
        return math.copysign(0.0, x)
    if size <= 5:
        return j1_near(x)
    p, q, total, difference = hankel(size, 1)
    return math.copysign(1.0, x) * (p * difference + q * total)


def y0(x: float) -> float:
    """The Bessel function of the second kind of order 0.

    Parameters
    ----------
    x : float
        A positive number. At 0 the result is an infinity, and for negative numbers NaN.

    Returns
    -------
    float
        Y_0(x), to a few units in the last place of max(abs(Y_0(x)), 1 / 2) up to 5, and beyond to a few units of the
        amplitude sqrt(2 / (pi * x)).

    Examples
    --------
    >>> round(y0(1.0), 12)
    0.088256964216
    """
    if x <= 0:
        return -math.inf if x == 0 else math.nan
    if isinf(x):
        return 0.0
    if x <= 5:
        return TWO_OVER_PI * math.log(x) * j0_near(x) + polynomial(x * x / 12.5 - 1.0, table.Y0_NEAR)
    p, q, total, difference = hankel(x, 0)
    return p * difference + q * total


def y1(x: float) -> float:
    """The Bessel function of the second kind of order 1; see `y0`.

    Examples
    --------
    >>> round(y1(1.0), 12)
    -0.7812128213
    """
    if x <= 0:
        return -math.inf if x == 0 else math.nan
    if isinf(x):
        return 0.0
    if x <= 5:
        rest = x * polynomial(x * x / 12.5 - 1.0, table.Y1_NEAR)
        return TWO_OVER_PI * math.log(x) * j1_near(x) - TWO_OVER_PI / x + rest
    p, q, total, difference = hankel(x, 1)
    return q * difference - p * total


def j0_near(x: float) -> float:
    """J_0 from 0 to 5, with its two first zeros as factors."""
    q = x * x
    factor = ((x - J0_ZERO) - J0_ZERO_REST) * (x + (J0_ZERO + J0_ZERO_REST)) * (q - J0_SECOND)
    return factor * polynomial(q / 12.5 - 1.0, table.J0_NEAR)


def j1_near(x: float) -> float:
    """J_1 from -5 to 5."""
    q = x * x
    size = abs(x)
    factor = ((size - J1_ZERO) - J1_ZERO_REST) * (size + (J1_ZERO + J1_ZERO_REST)) * (q - J1_SECOND)
    return x * (factor * polynomial(q / 12.5 - 1.0, table.J1_NEAR))


def hankel(x: float, n: int) -> tuple[float, float, float, float]:
    """P and Q of Hankel's expansion times sqrt(1 / (pi * x)), and the sum and the difference of sine and cosine."""
    v = 5.0 / x
    w = v * v
    if n == 0:
        p, q = quotient(w, table.P0_FAR, table.P0_FAR_BELOW), quotient(w, table.Q0_FAR, table.Q0_FAR_BELOW)
    else:
        p, q = quotient(w, table.P1_FAR, table.P1_FAR_BELOW), quotient(w, table.Q1_FAR, table.Q1_FAR_BELOW)
    scale = math.sqrt(1.0 / math.pi / x)
    sine, cosine = math.sin(x), math.cos(x)
    return scale * p, scale * (q / x), sine + cosine, sine - cosine


def jn(n: int, x: float) -> float:
    """The Bessel function of the first kind of a whole order: `scipy.special.jv`.

    Parameters
    ----------
    n : int
        The order, which may be negative.
    x : float
        Any number.

    Returns
    -------
    float
        J_n(x), for abs(x) <= abs(n) to about abs(n) + 8 units in the last place, and else of the amplitude
        sqrt(2 / (pi * x)).

    Notes
    -----
    The recurrence 9.1.27 upwards where abs(x) > abs(n), and else downwards for the ratios of neighbours, of which the
    order to begin with depends on n only.

    Examples
    --------
    >>> round(jn(2, 1.0), 12), jn(3, 0.0)
    (0.114903484932, 0.0)
    """
    order, size = abs(n), abs(x)
    odd = order % 2 == 1
    sign = -1.0 if odd and (n < 0) != (x < 0) else 1.0
    zeroth, first = j0(size), j1(size)
    if order == 0:
        return zeroth
    if order == 1:
        return sign * first
    if isinf(size):
        return 0.0
    if size > order:
        for k in range(1, order):
            zeroth, first = first, (2 * k) / size * first - zeroth
        return sign * first
    # The ratios of neighbours beyond the order decay at least as fast as at size = order.
    beyond = order + 12 + int(8.0 * np.cbrt(float(order)))
    ratio = 0.0
    for k in range(beyond, order, -1):
        ratio = size / (2 * k - size * ratio)
    product = 1.0
    for k in range(order, 1, -1):
        ratio = size / (2 * k - size * ratio)
        product = product * ratio
    lowest = size / (2 - size * ratio) * zeroth if abs(zeroth) > abs(first) else first
    return sign * product * lowest


def yn(n: int, x: float) -> float:
    """The Bessel function of the second kind of a whole order: `scipy.special.yn` and `scipy.special.yv`.

    Parameters
    ----------
    n : int
        The order, which may be negative.
    x : float
        A positive number. At 0 the result is an infinity, and for negative numbers NaN.

    Returns
    -------
    float
        Y_n(x), by the recurrence 9.1.27 upwards.

    Examples
    --------
    >>> round(yn(2, 1.0), 12)
    -1.650682606816
    """
    order = abs(n)
    sign = -1.0 if n < 0 and order % 2 == 1 else 1.0
    zeroth, first = y0(x), y1(x)
    if order == 0:
        return zeroth
    for k in range(1, order):
        zeroth, first = first, first if isinf(first) else (2 * k) / x * first - zeroth
    return sign * first


def j1_slope(x: float, value: float) -> float:
    """The derivative of `j1` at x, where `j1` has this value."""
    return 0.5 if abs(x) < NEGLIGIBLE else j0(x) - value / x


def y1_slope(x: float, value: float) -> float:
    """The derivative of `y1` at x, where `y1` has this value."""
    return math.inf if isinf(value) else y0(x) - value / x


def y1_curvature(x: float, value: float) -> float:
    """The second derivative of `y1`."""
    return (2.0 / x * value - y0(x)) / x - (0.0 if x < NEGLIGIBLE else value)


def yn_slope(n: int, x: float, value: float) -> float:
    """The derivative of `yn` at x, where `yn` has this value."""
    return -(abs(n) / x * value) if isinf(value) else 0.5 * (yn(n - 1, x) - yn(n + 1, x))


def j2_over(x: float) -> float:
    """J_2(x) / x, by a power series where the recurrence would cancel."""
    if abs(x) > 2:
        return 0.0 if isinf(x) else (2.0 / x * j1(x) - j0(x)) / x
    q = 0.25 * x * x
    term = 0.125 * x
    total = term
    for k in range(1, 11):
        term = -term * q / (k * (k + 2))
        total = total + term
    return total
