"""Distributions of `scipy.stats` in the language of scalar functions, with location 0 and scale 1.

Comes in: a number, and the shape parameters. Goes out: a density, a probability or a quantile; NaN where a parameter is
not in its range. Each function is named after the distribution and its method. `located_distributions` gives them the
location and the scale.
"""

from __future__ import annotations

import math

from dualbcast.special.normal import DENSITY_AT_ZERO, SQRT2, SQRT_HALF, density, erfinv, ndtr, ndtri
from dualbcast.special.probability.error import LN2
from dualbcast.special.probability.incomplete_gamma import gammainc, gammaincc
from dualbcast.special.probability.incomplete_gamma_inverses import gammainccinv, gammaincinv
from dualbcast.special.probability.incomplete_gamma_slopes import gamma_density
from dualbcast.special.probability.log_normal import log_ndtr
from dualbcast.special.probability.log_terms import HALF_LOG_2PI, gamma_log_term

# --- ranges --------------------------------------------------------------------------------------------------------


def positive(parameter: float) -> float:
    """The parameter, and NaN where it is not positive."""
    return parameter if parameter > 0 else math.nan


def probability(q: float) -> float:
    """The probability, and NaN where it is none."""
    return q if 0 <= q <= 1 else math.nan


def outside(z: float, parameter: float, value: float) -> float:
    """The value where z is outside of the support; NaN if z is no number or the parameter is not positive."""
    return value if z == z and parameter > 0 else math.nan


# --- the normal and lognormal distributions ------------------------------------------------------------------------


def norm_pdf(z: float) -> float:
    """The density of the normal distribution."""
    return density(z)


def norm_logpdf(z: float) -> float:
    """The logarithm of the density of the normal distribution."""
    return -0.5 * z * z - HALF_LOG_2PI


def norm_cdf(z: float) -> float:
    """The probability that a normal number is at most x."""
    return ndtr(z)


def norm_sf(z: float) -> float:
    """The probability that a normal number is greater than x."""
    return ndtr(-z)


def norm_logcdf(z: float) -> float:
    """The logarithm of the probability that a normal number is at most x."""
    return log_ndtr(z)


def norm_logsf(z: float) -> float:
    """The logarithm of the probability that a normal number is greater than x."""
    return log_ndtr(-z)


def norm_ppf(q: float) -> float:
    """The number that a normal number is at most with probability q."""
    return ndtri(q)


def norm_isf(q: float) -> float:
    """The number that a normal number exceeds with probability q."""
    return -ndtri(q)


def normal_number(z: float, s: float) -> float:
    """The normal number of a lognormal one. Where its density is 0 it does not change: its slope may be infinite."""
    return max(math.log(z) / s, -40.0)


def lognorm_pdf(z: float, s: float) -> float:
    """The density of a number whose logarithm is normal with standard deviation s."""
    return lognormal_density(z, positive(s)) if z > 0 else outside(z, s, 0.0)


def lognormal_density(z: float, s: float) -> float:
    """The density of a lognormal number for z > 0."""
    return density(normal_number(z, s)) / (s * z)


def lognormal_slopes(z: float, s: float, y: float) -> tuple[float, float]:
    """The slopes of the density y."""
    u = normal_number(z, s)
    return (0.0, 0.0) if y == 0 else (-y * ((1.0 + u / s) / z), y * ((u - 1.0) * (u + 1.0) / s))


def lognormal_quantile_slopes(z: float, end: float, s: float, y: float) -> tuple[float, float]:
    """The slopes of y = exp(s * z) in the probability below the normal number z, and in s; y is 0 where `end` is."""
    return (1.0 / end / s, 0.0) if end == 0 else (s * y * (math.exp(0.5 * z * z) / DENSITY_AT_ZERO), z * y)


def lognorm_logpdf(z: float, s: float) -> float:
    """The logarithm of the density of a number whose logarithm is normal with standard deviation s."""
    if not z > 0:
        return outside(z, s, -math.inf)
    logarithm = math.log(z)
    return -0.5 * (logarithm / s) * (logarithm / s) - logarithm - math.log(positive(s)) - HALF_LOG_2PI


def lognorm_cdf(z: float, s: float) -> float:
    """The probability that a lognormal number is at most x."""
    return ndtr(normal_number(z, positive(s))) if z > 0 else outside(z, s, 0.0)


def lognorm_sf(z: float, s: float) -> float:
    """The probability that a lognormal number is greater than x."""
    return ndtr(-normal_number(z, positive(s))) if z > 0 else outside(z, s, 1.0)


def lognorm_logcdf(z: float, s: float) -> float:
    """The logarithm of the probability that a lognormal number is at most x."""
    return log_ndtr(math.log(z) / positive(s)) if z > 0 else outside(z, s, -math.inf)


def lognorm_logsf(z: float, s: float) -> float:
    """The logarithm of the probability that a lognormal number is greater than x."""
    return log_ndtr(-math.log(z) / positive(s)) if z > 0 else outside(z, s, 0.0)


def lognorm_ppf(q: float, s: float) -> float:
    """The number that a lognormal number is at most with probability q."""
    return math.exp(positive(s) * ndtri(q))


def lognorm_isf(q: float, s: float) -> float:
    """The number that a lognormal number exceeds with probability q."""
    return math.exp(-positive(s) * ndtri(q))


def halfnorm_pdf(z: float) -> float:
    """The density of the size of a normal number."""
    return 2.0 * density(z) if z >= 0 else outside(z, 1.0, 0.0)


def halfnorm_logpdf(z: float) -> float:
    """The logarithm of the density of the size of a normal number."""
    return LN2 - HALF_LOG_2PI - 0.5 * z * z if z >= 0 else outside(z, 1.0, -math.inf)


def halfnorm_cdf(z: float) -> float:
    """The probability that the size of a normal number is at most x."""
    return math.erf(SQRT_HALF * z) if z >= 0 else outside(z, 1.0, 0.0)


def halfnorm_sf(z: float) -> float:
    """The probability that the size of a normal number is greater than x."""
    return 2.0 * ndtr(-z) if z >= 0 else outside(z, 1.0, 1.0)


def halfnorm_ppf(q: float) -> float:
    """The number that the size of a normal number is at most with probability q."""
    return SQRT2 * erfinv(probability(q))


# --- exponential, gamma and Weibull distributions ------------------------------------------------------------------


def expon_pdf(z: float) -> float:
    """The density of the exponential distribution."""
    return math.exp(-z) if z >= 0 else outside(z, 1.0, 0.0)


def expon_logpdf(z: float) -> float:
    """The logarithm of the density of the exponential distribution."""
    return -z if z >= 0 else outside(z, 1.0, -math.inf)


def expon_cdf(z: float) -> float:
    """The probability that an exponential number is at most x."""
    return -math.expm1(-z) if z >= 0 else outside(z, 1.0, 0.0)


def expon_sf(z: float) -> float:
    """The probability that an exponential number is greater than x."""
    return math.exp(-z) if z >= 0 else outside(z, 1.0, 1.0)


def expon_logsf(z: float) -> float:
    """The logarithm of the probability that an exponential number is greater than x."""
    return -z if z >= 0 else outside(z, 1.0, 0.0)


def expon_ppf(q: float) -> float:
    """The number that an exponential number is at most with probability q."""
    return -math.log1p(-probability(q))


def expon_isf(q: float) -> float:
    """The number that an exponential number exceeds with probability q."""
    return -math.log(probability(q))


def gamma_pdf(z: float, a: float) -> float:
    """The density of the gamma distribution of shape a."""
    return gamma_density(positive(a), z) if z >= 0 else outside(z, a, 0.0)


def gamma_logpdf(z: float, a: float) -> float:
    """The logarithm of the density of the gamma distribution of shape a."""
    # At infinity the slope is -1.
    return gamma_log_term(positive(a), z) if 0 <= z < math.inf else outside(z, a, -z if z > 0 else -math.inf)


def gamma_cdf(z: float, a: float) -> float:
    """The probability that a gamma-distributed number is at most x."""
    return gammainc(positive(a), z) if z >= 0 else outside(z, a, 0.0)


def gamma_sf(z: float, a: float) -> float:
    """The probability that a gamma-distributed number is greater than x."""
    return gammaincc(positive(a), z) if z >= 0 else outside(z, a, 1.0)


def gamma_ppf(q: float, a: float) -> float:
    """The number that a gamma-distributed number is at most with probability q."""
    return gammaincinv(a, q)


def gamma_isf(q: float, a: float) -> float:
    """The number that a gamma-distributed number exceeds with probability q."""
    return gammainccinv(a, q)


def chi2_pdf(z: float, df: float) -> float:
    """The density of the chi-square distribution."""
    return 0.5 * gamma_pdf(0.5 * z, 0.5 * df)


def chi2_logpdf(z: float, df: float) -> float:
    """The logarithm of the density of the chi-square distribution."""
    return gamma_logpdf(0.5 * z, 0.5 * df) - LN2


def chi2_cdf(z: float, df: float) -> float:
    """The probability that a chi-square number is at most x."""
    return gamma_cdf(0.5 * z, 0.5 * df)


def chi2_sf(z: float, df: float) -> float:
    """The probability that a chi-square number is greater than x."""
    return gamma_sf(0.5 * z, 0.5 * df)


def chi2_ppf(q: float, df: float) -> float:
    """The number that a chi-square number is at most with probability q."""
    return 2.0 * gammaincinv(0.5 * df, q)


def chi2_isf(q: float, df: float) -> float:
    """The number that a chi-square number exceeds with probability q."""
    return 2.0 * gammainccinv(0.5 * df, q)
