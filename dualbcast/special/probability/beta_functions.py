"""The beta function, binomial coefficients and other quotients of gamma functions, in the language of scalar
functions.
"""

from __future__ import annotations

import math

import numpy as np

from dualbcast.special.gamma import digamma, polygamma
from dualbcast.special.probability.stirling import (
    digamma_gap,
    log_power,
    log_stirling_ratio,
    stirling_ratio,
    trigamma_gap,
)
from dualbcast.special.trigonometric import cospi, sinpi


def beta(a: float, b: float) -> float:
    """The beta function gamma(a) * gamma(b) / gamma(a + b).

    Parameters
    ----------
    a, b : float
        Positive numbers. With others the result is the quotient of gamma functions as they are, which may overflow.

    Returns
    -------
    float
        To some ten units in the last place; where it is tiny its logarithm times as many.

    Examples
    --------
    >>> round(1 / beta(2.0, 3.0), 12)
    12.0
    >>> round(beta(1e6, 1.0) * 1e6, 12)
    1.0
    """
    if not (a > 0 and b > 0):
        return math.gamma(a) * math.gamma(b) * rgamma(a + b)
    n = a + b
    ratio = stirling_ratio(a) * stirling_ratio(b) / stirling_ratio(n)
    return (1.0 / a + 1.0 / b) * ratio * (share_power(a, n, b) * share_power(b, n, a))


def share_power(a: float, n: float, b: float) -> float:
    """(a / n)**a, where n = a + b."""
    return math.pow(a / n, a) if a < 10 else math.exp(-log_power(a, n, b))


def betaln(a: float, b: float) -> float:
    """The logarithm of the absolute value of the beta function.

    Parameters
    ----------
    a, b : float
        Positive numbers. With others the result is a sum of `math.lgamma` of them.

    Returns
    -------
    float
        To some units in the last place of its terms.

    Examples
    --------
    >>> round(math.exp(betaln(2.0, 3.0)) * 12, 12)
    1.0
    >>> round(betaln(1e6, 1e6) / 1e6, 4)
    -1.3863
    """
    if not (a > 0 and b > 0):
        return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    n = a + b
    ratio = log_stirling_ratio(a) + log_stirling_ratio(b) - log_stirling_ratio(n)
    return ratio + math.log(1.0 / a + 1.0 / b) - log_power(a, n, b) - log_power(b, n, a)


def beta_score(a: float, b: float) -> float:
    """digamma(a) - digamma(a + b), the slope of `betaln` in a."""
    return -digamma_gap(a, b) if a > 0 and a + b > 0 else digamma(a) - digamma(a + b)


def beta_slope(a: float, b: float, y: float) -> float:
    """The slope in a of y = beta(a, b)."""
    return y * beta_score(a, b)


def beta_curvature(a: float, b: float, y: float, slope: float) -> float:
    """The second derivative in a of y = beta(a, b), of which this is the slope."""
    trigammas = -trigamma_gap(a, b) if a > 0 and a + b > 0 else polygamma(1, a) - polygamma(1, a + b)
    return slope * beta_score(a, b) + y * trigammas


def beta_mixed_slope(a: float, b: float, y: float) -> float:
    """The mixed second derivative of y = beta(a, b). Its poles at 0, which cancel, are left out."""
    n = a + b
    if not (a > 0 and b > 0):
        return y * (beta_score(a, b) * beta_score(b, a) - polygamma(1, n))
    left, right, end = digamma_gap(1.0 + a, b) / b, digamma_gap(1.0 + b, a) / a, polygamma(1, 1.0 + n)
    return y * (a * left * (b * right) + (b / n * (right - end) + a / n * (left - end)))


def rgamma(x: float) -> float:
    """The reciprocal of the gamma function, which is 0 at its poles.

    Parameters
    ----------
    x : float
        Any number.

    Returns
    -------
    float
        To a few units in the last place.

    Examples
    --------
    >>> rgamma(3.0), rgamma(-2.0)
    (0.5, 0.0)
    """
    return 0.0 if is_pole(x) or x > 180 else 1.0 / math.gamma(x)


def rgamma_slope(x: float, y: float) -> float:
    """The slope of y = rgamma(x); by the reflection formula it is also a number at the poles of gamma."""
    if x < 0.5:
        mirrored = math.gamma(1.0 - x)
        return mirrored * (cospi(x) - sinpi(x) * digamma(1.0 - x) / math.pi)
    return 0.0 if y == 0 else -(y * digamma(x))


def is_pole(x: float) -> bool:
    """Whether the gamma function has a pole at x."""
    return x <= 0 and x == float(np.rint(x))


def gammasgn(x: float) -> float:
    """The sign of the gamma function; NaN at negative whole numbers, where it leaps, and that of a zero at it.

    Examples
    --------
    >>> gammasgn(2.5), gammasgn(-0.5)
    (1.0, -1.0)
    """
    if x == 0:
        return math.copysign(1.0, x)
    if x > 0:
        return 1.0
    if is_pole(x) or not x > -math.inf:
        return math.nan
    return -1.0 if x - 2.0 * float(np.floor(0.5 * x)) >= 1 else 1.0


def loggamma(x: float) -> float:
    """The logarithm of the gamma function for x >= 0; NaN below, where it is complex.

    Examples
    --------
    >>> loggamma(1.0)
    0.0
    """
    return math.nan if x < 0 else math.lgamma(x)


def poch(z: float, m: float) -> float:
    """Pochhammer's symbol gamma(z + m) / gamma(z).

    Parameters
    ----------
    z, m : float
        Numbers with z and z + m positive. With others the result is the quotient of gamma functions as they are, which
        may overflow.

    Returns
    -------
    float
        To some ten units in the last place; where it is large its logarithm times as many.

    Examples
    --------
    >>> round(poch(3.0, 2.0), 12)
    12.0
    """
    n = z + m
    if not (z > 0 and n > 0):
        return math.gamma(n) * rgamma(z)
    if z < 25 and n < 25:
        # The digits that the sum has lost would count, as gamma(n) grows by the factor exp(digamma(n)).
        lost = (z - (n - (n - z))) + (m - (n - z))
        return math.gamma(n) / math.gamma(z) * (1.0 + lost * (math.log(n) if n > 1 else 0.0))
    exponent = log_power(z, n, m) + m * math.log(n) - m
    return z / n * stirling_ratio(n) / stirling_ratio(z) * math.exp(exponent)


def binom(n: float, k: float) -> float:
    """The binomial coefficient gamma(n + 1) / (gamma(k + 1) * gamma(n - k + 1)).

    Parameters
    ----------
    n, k : float
        Numbers with 0 <= k <= n. With others the result is the quotient of gamma functions as they are, which may
        overflow.

    Returns
    -------
    float
        To some ten units in the last place; where it is large its logarithm times as many.

    Examples
    --------
    >>> round(binom(5.0, 2.0), 12), binom(5.0, 7.0)
    (10.0, 0.0)
    """
    rest = n - k
    if not (k >= 0 and rest >= 0):
        return math.gamma(n + 1.0) * rgamma(k + 1.0) * rgamma(rest + 1.0)
    ratio = stirling_ratio(n) / (stirling_ratio(k) * stirling_ratio(rest))
    return ratio / (share_power(k, n, rest) * share_power(rest, n, k)) if n > 0 else 1.0
