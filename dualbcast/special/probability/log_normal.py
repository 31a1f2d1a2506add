"""The logarithm of the normal distribution function in the language of scalar functions, with its derivatives and its
inverse.
"""

from __future__ import annotations

import math

from dualbcast.special.normal import SQRT2, SQRT_HALF, density, ndtr, quantile, quantile_of_tail
from dualbcast.special.probability.error import erfcx, erfcx_slope

SQRT_TWO_OVER_PI = math.sqrt(2.0 / math.pi)


def log_ndtr(x: float) -> float:
    """The logarithm of `ndtr`: `scipy.stats.norm.logcdf(x)`, also where the probability underflows.

    Parameters
    ----------
    x : float
        Any number.

    Returns
    -------
    float
        To a few units in the last place.

    Notes
    -----
    Below -1 it is -x * x / 2 + log(erfcx(-x / sqrt(2)) / 2), of two terms with the same sign.

    Examples
    --------
    >>> log_ndtr(0.0) == -math.log(2.0), log_ndtr(math.inf) == 0
    (True, True)
    >>> round(log_ndtr(-1e10) / 1e20, 12)
    -0.5
    """
    if x < -1:
        return math.log(0.5 * erfcx(-SQRT_HALF * x)) - 0.5 * x * x
    return math.log1p(-ndtr(-x))


def log_ndtr_slope(x: float) -> float:
    """The derivative of `log_ndtr`, the density divided by `ndtr`; it tends to -x on the left."""
    if x < 0:
        return SQRT_TWO_OVER_PI / erfcx(-SQRT_HALF * x)
    return density(x) / ndtr(x)


def log_ndtr_curvature(x: float, slope: float) -> float:
    """The second derivative of `log_ndtr`, -slope * (x + slope), whose sum would cancel on the left."""
    if x < -1e9:  # the factors below would underflow
        return -1.0
    if x < 0:
        t = -SQRT_HALF * x
        return slope * (erfcx_slope(t) / (SQRT2 * erfcx(t)))
    return 0.0 if slope == 0 else -(slope * (x + slope))


def ndtri_exp(y: float) -> float:
    """The inverse of `log_ndtr`.

    Parameters
    ----------
    y : float
        The logarithm of a probability; above 0 the result is NaN.

    Returns
    -------
    float
        x with log_ndtr(x) = y, to some ten units in the last place.

    Examples
    --------
    >>> ndtri_exp(-math.inf), ndtri_exp(0.0)
    (-inf, inf)
    >>> round(ndtri_exp(log_ndtr(-1e5)), 6)
    -100000.0
    """
    if y == -math.inf:
        return y
    if y > -2.6:
        # exp(y) - 1/2, with log(2) as a sum of numbers that are exact in float32.
        above_half = 0.5 * math.expm1(
            y + 0.693145751953125 + 1.428606765330187e-06 + 5.497923148104107e-14 + -1.2939573597471287e-21
        )
        return quantile(above_half, min(math.exp(y), -math.expm1(y)))
    if y > -600:
        return -quantile_of_tail(math.sqrt(-y))
    # Newton's method from the first terms of the asymptotic series of log_ndtr.
    x = -SQRT2 * math.sqrt(-y - 0.5 * (math.log(-y) + math.log(4.0 * math.pi)))
    for _ in range(2):
        x = x - (log_ndtr(x) - y) / log_ndtr_slope(x)
    return x
