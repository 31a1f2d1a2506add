"""Special functions, written in the language of scalar functions.

They take and return single numbers. In plain Python they work on floats, and raise exceptions where `math` does. In a
kernel they compute in the compute dtype and follow IEEE 754: they give infinities and NaNs, and raise no exceptions.
"""

from __future__ import annotations

import math

import numpy as np

from dualbcast.arithmetic import isinf, isnan, maximum
from dualbcast.normal import SQRT2, ndtr, ndtri, quantile

__all__ = [
    "digamma",
    "erfinv",
    "exp10",
    "log_sigmoid",
    "logaddexp",
    "logaddexp2",
    "logit",
    "ndtr",
    "ndtri",
    "polygamma",
    "sigmoid",
    "sinc",
    "softplus",
    "xlog1py",
    "xlogy",
]


def __dir__() -> list[str]:
    """The public names, for completion at the prompt."""
    return __all__


LN2 = math.log(2.0)


# --- exponentials --------------------------------------------------------------------------------------------------


def sigmoid(x: float) -> float:
    """The logistic function 1 / (1 + exp(-x)), in a form that never overflows.

    Examples
    --------
    >>> sigmoid(0.0), sigmoid(-1000.0), sigmoid(1000.0)
    (0.5, 0.0, 1.0)
    """
    decay = math.exp(-abs(x))
    return (decay if x < 0 else 1.0) / (1.0 + decay)


def softplus(x: float) -> float:
    """log(1 + exp(x)), the integral of `sigmoid`; as max(x, 0) + log1p(exp(-abs(x))), which cancels nowhere.

    Examples
    --------
    >>> softplus(-1000.0), softplus(1000.0)
    (0.0, 1000.0)
    """
    return (0.0 if x < 0 else x) + math.log1p(math.exp(-abs(x)))


def log_sigmoid(x: float) -> float:
    """log(sigmoid(x)) = -softplus(-x).

    Examples
    --------
    >>> log_sigmoid(-1000.0)
    -1000.0
    """
    return (0.0 if x > 0 else x) - math.log1p(math.exp(-abs(x)))


def logit(x: float) -> float:
    """log(x / (1 - x)) for x in [0, 1], the inverse of `sigmoid`.

    Examples
    --------
    >>> logit(0.5)
    0.0
    """
    return math.log(x / (1.0 - x))


def logaddexp(x: float, y: float) -> float:
    """log(exp(x) + exp(y)), with the larger exponential factored out.

    Examples
    --------
    >>> logaddexp(1000.0, -math.inf)
    1000.0
    """
    return maximum(x, y) + math.log1p(math.exp(-abs(gap(x, y))))


def logaddexp2(x: float, y: float) -> float:
    """log2(2**x + 2**y), with the larger power factored out."""
    return maximum(x, y) + math.log1p(math.exp2(-abs(gap(x, y)))) / LN2


def gap(x: float, y: float) -> float:
    """x - y, but 0 for equal infinities, such as the logarithms of two masked terms."""
    return 0.0 if x == y and isinf(x) else x - y


def exp10(x: float) -> float:
    """10**x."""
    return math.pow(10.0, x)


def xlogy(x: float, y: float) -> float:
    """x * log(y), and 0 where x is 0 (unless y is NaN).

    Examples
    --------
    >>> xlogy(0.0, 0.0), xlogy(2.0, 1.0)
    (0.0, 0.0)
    """
    return 0.0 if x == 0 and not isnan(y) else x * math.log(y)


def xlog1py(x: float, y: float) -> float:
    """x * log1p(y), and 0 where x is 0 (unless y is NaN)."""
    return 0.0 if x == 0 and not isnan(y) else x * math.log1p(y)


# --- the gamma and error functions ---------------------------------------------------------------------------------


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


def erfinv(x: float) -> float:
    """The inverse of the error function.

    Parameters
    ----------
    x : float
        In [-1, 1]; the ends give infinities, and other numbers outside give NaN.

    Returns
    -------
    float
        y with erf(y) = x, to a few units in the last place.

    Notes
    -----
    The normal quantile at (1 + x) / 2, divided by the square root of 2; see `ndtri`.

    Examples
    --------
    >>> erfinv(0.0), erfinv(1.0)
    (0.0, inf)
    >>> round(math.erf(erfinv(0.3)), 15)
    0.3
    """
    q = 0.5 * x
    return quantile(q, 0.5 - abs(q)) / SQRT2


# --- the cardinal sine ---------------------------------------------------------------------------------------------


def sinc(x: float) -> float:
    """The normalised cardinal sine sin(pi * x) / (pi * x), 1 at 0: `numpy.sinc`."""
    return 1.0 if x == 0 else sinpi(x) / (math.pi * x)


def sinc_slope(x: float, value: float) -> float:
    """The derivative of `sinc` at x, where `sinc` has this value. A power series replaces a form that would cancel."""
    if abs(x) > 0.3125:
        return (cospi(x) - value) / x
    # The derivative of sin(t) / t is the sum of (-1)**k * 2k / (2k + 1)! * t**(2k - 1) over k = 1, 2, …
    t = math.pi * x
    term = -t / 3.0
    total = term
    for k in range(1, 9):
        term = -term * t * t / (2 * k * (2 * k + 3))
        total = total + term
    return math.pi * total


def sinpi(x: float) -> float:
    """sin(pi * x), accurate also near its zeros, since whole numbers are subtracted before the product is rounded."""
    rest = x - 2.0 * float(np.rint(0.5 * x))
    if abs(rest) > 0.5:
        rest = math.copysign(1.0, rest) - rest
    return math.sin(math.pi * rest)


def cospi(x: float) -> float:
    """cos(pi * x), computed in the same way."""
    return math.sin(math.pi * (0.5 - abs(x - 2.0 * float(np.rint(0.5 * x)))))
