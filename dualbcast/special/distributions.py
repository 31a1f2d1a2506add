"""Densities, distribution functions and quantiles as `scipy.stats` has them, in the language of scalar functions.

Comes in: a number, the shape parameters, a location and a scale. Goes out: a number, or NaN where a parameter is not in
its range. Each is named after the distribution and its method.
"""

from __future__ import annotations

import math

from dualbcast.special.log_normal import log_ndtr
from dualbcast.special.normal import density, ndtr, ndtri

__all__ = [
    "norm_cdf",
    "norm_isf",
    "norm_logcdf",
    "norm_logpdf",
    "norm_logsf",
    "norm_pdf",
    "norm_ppf",
    "norm_sf",
]

HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


def standard(x: float, loc: float, scale: float) -> float:
    """The number that `x` is in units of the scale from the location on."""
    return (x - loc) / scale if scale > 0 else math.nan


def placed(z: float, loc: float, scale: float) -> float:
    """The inverse of `standard`."""
    return loc + scale * z if scale > 0 else math.nan


# --- the normal distribution ---------------------------------------------------------------------------------------


def norm_pdf(x: float, loc: float = 0.0, scale: float = 1.0) -> float:
    """The density of the normal distribution."""
    return density(standard(x, loc, scale)) / scale


def norm_logpdf(x: float, loc: float = 0.0, scale: float = 1.0) -> float:
    """The logarithm of the density of the normal distribution."""
    z = standard(x, loc, scale)
    return -0.5 * z * z - HALF_LOG_2PI - math.log(scale)


def norm_cdf(x: float, loc: float = 0.0, scale: float = 1.0) -> float:
    """The probability that a normal number is at most x."""
    return ndtr(standard(x, loc, scale))


def norm_sf(x: float, loc: float = 0.0, scale: float = 1.0) -> float:
    """The probability that a normal number is greater than x."""
    return ndtr(-standard(x, loc, scale))


def norm_logcdf(x: float, loc: float = 0.0, scale: float = 1.0) -> float:
    """The logarithm of the probability that a normal number is at most x."""
    return log_ndtr(standard(x, loc, scale))


def norm_logsf(x: float, loc: float = 0.0, scale: float = 1.0) -> float:
    """The logarithm of the probability that a normal number is greater than x."""
    return log_ndtr(-standard(x, loc, scale))


def norm_ppf(q: float, loc: float = 0.0, scale: float = 1.0) -> float:
    """The number that a normal number is at most with probability q."""
    return placed(ndtri(q), loc, scale)


def norm_isf(q: float, loc: float = 0.0, scale: float = 1.0) -> float:
    """The number that a normal number exceeds with probability q."""
    return placed(-ndtri(q), loc, scale)
