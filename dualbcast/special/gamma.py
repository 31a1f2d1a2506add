"""The derivatives of the logarithm of the gamma function, in the language of scalar functions."""

from __future__ import annotations

import math

import numpy as np

from dualbcast.arithmetic import isinf, isnan


def digamma(x: float) -> float:
    """The logarithmic derivative of the gamma function.

    Parameters
    ----------
    x : float
        Any number. At 0.0 and -0.0 the result is an infinity of the other sign; at negative integers and -inf, NaN.

    Returns
    -------
    float
        psi(x), to a few units in the last place of max(abs(psi(x)), 1).

    Notes
    -----
    Abramowitz and Stegun, *Handbook of Mathematical Functions*: the asymptotic series 6.3.18 from 10 on, reached by
    the recurrence 6.3.5; the reflection formula 6.3.7 for negative x.

    Examples
    --------
    >>> round(digamma(1.0), 12)  # minus Euler's constant
    -0.577215664902
    """
    if x == 0:
        return math.copysign(math.inf, -x)
    total = 0.0
    if x < 0:
        if isinf(x):
            return math.nan
        offset = x - float(np.rint(x))
        if offset == 0:
            return math.nan
        total = -math.pi / math.tan(math.pi * offset)
        x = 1.0 - x
    while x < 10:
        total = total - 1.0 / x
        x = x + 1.0
    u = 1.0 / x
    w = u * u
    series = 1 / 12 - w * (1 / 120 - w * (1 / 252 - w * (1 / 240 - w * (1 / 132 - w * (691 / 32760 - w / 12)))))
    return total + (math.log(x) - 0.5 * u - w * series)


def polygamma(n: int, x: float) -> float:
    """The n-th derivative of `digamma`.

    Parameters
    ----------
    n : int
        The order, not negative. Orders up to about 20 fit into float32.
    x : float
        Any number. At 0 and the negative integers the result for n > 0 is an infinity.

    Returns
    -------
    float
        (-1)**(n + 1) * n! * zeta(n + 1, x) with Hurwitz' zeta function (Abramowitz and Stegun 6.4.10).

    Examples
    --------
    >>> round(polygamma(1, 1.0) - math.pi**2 / 6, 12)
    0.0
    """
    if n == 0:
        return digamma(x)
    factor = -1.0 if n % 2 == 0 else 1.0
    for k in range(2, n + 1):
        factor = factor * k
    return factor * hurwitz_zeta(n + 1, x)


def hurwitz_zeta(s: int, x: float) -> float:
    """The sum of (x + k)**-s over k = 0, 1, …, for whole numbers s > 1 and any x."""
    if x > 0 or isnan(x):
        return zeta_of_positive(s, x)
    if isinf(x):
        return math.nan
    offset = x - float(np.rint(x))
    if offset == 0:
        return math.inf
    # The sum over all integers k depends on x only through `offset`, its distance from the nearest integer. That
    # takes two sums of positive terms; what it has too much are the terms of k < 0, a third such sum from 1 - x on.
    total = inverse_power(offset, s)
    parity = 1.0 if s % 2 == 0 else -1.0
    for turn in range(3):
        start, weight = 1.0 + offset, 1.0
        if turn == 1:
            start, weight = 1.0 - offset, parity
        elif turn == 2:
            start, weight = 1.0 - x, -parity
        total = total + weight * zeta_of_positive(s, start)
    return total


def zeta_of_positive(s: int, x: float) -> float:
    """`hurwitz_zeta` for x > 0 by Euler-Maclaurin summation (Abramowitz and Stegun 23.1.30)."""
    if x == math.inf:
        return 0.0
    total = 0.0
    # From 10 + 2 s on eight terms give 1e-16: the j-th is about 2 (s)_(2j-1) / (2 pi)**(2j) / x**(2j-1) of the first.
    while x < 10 + 2 * s:
        total = total + inverse_power(x, s)
        x = x + 1.0
    head = inverse_power(x, s - 1)  # x**-s underflows long before the sum does
    u = 1.0 / x
    total = total + head * (1.0 / (s - 1) + 0.5 * u)
    # The terms B_2j / (2j)! * s * (s + 1) … (s + 2j - 2) * x**(1 - s - 2j).
    w = u * u
    term = head * w * s
    total = total + term / 12
    term = term * w * ((s + 1) * (s + 2))
    total = total - term / 720
    term = term * w * ((s + 3) * (s + 4))
    total = total + term / 30240
    term = term * w * ((s + 5) * (s + 6))
    total = total - term / 1209600
    term = term * w * ((s + 7) * (s + 8))
    total = total + term / 47900160
    term = term * w * ((s + 9) * (s + 10))
    total = total - term * (691 / 1307674368000)
    term = term * w * ((s + 11) * (s + 12))
    total = total + term / 74724249600
    term = term * w * ((s + 13) * (s + 14))
    return total - term * (3617 / 10670622842880000)


def inverse_power(x: float, s: int) -> float:
    """x**-s for s >= 1 by multiplication: faster than `pow` for the few s that occur, and it overflows to inf."""
    inverse = 1.0 / x
    power = inverse
    for _ in range(s - 1):
        power = power * inverse
    return power
