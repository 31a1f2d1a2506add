"""Distributions of `scipy.stats`, as in `distributions`: those in closed form."""

from __future__ import annotations

import math

from dualbcast.special.exponentials import log_sigmoid, logit, xlogy
from dualbcast.special.polynomials import polynomial
from dualbcast.special.probability.distributions import outside, positive, probability
from dualbcast.special.probability.ends import weibull_density_at_zero
from dualbcast.special.probability.error import LN2
from dualbcast.special.trigonometric import cospi, sinpi

# The coefficients of tanh(z / 2) / z in powers of z**2, from the highest power down.
_HALF_TANH = (31 / 725760, -17 / 40320, 1 / 240, -1 / 24, 1 / 2)
# The exponential of less than minus this is 0, and so are its slopes, though a factor of theirs may be infinite.
_END = 800.0


def weibull_min_pdf(z: float, c: float) -> float:
    """The density of the Weibull distribution."""
    if not z >= 0:
        return outside(z, c, 0.0)
    power = math.pow(z, positive(c))
    if z == 0:
        return weibull_density_at_zero(positive(c), z)
    return 0.0 if power > _END else c * math.pow(z, c - 1.0) * math.exp(-power)


def weibull_min_logpdf(z: float, c: float) -> float:
    """The logarithm of the density of the Weibull distribution."""
    if not z >= 0:
        return outside(z, c, -math.inf)
    # At infinity the power is more than the logarithm, whose difference would be NaN.
    return math.log(positive(c)) + xlogy(c - 1.0, z if z < math.inf else 1.0) - math.pow(z, c)


def weibull_min_cdf(z: float, c: float) -> float:
    """The probability that a number with the Weibull distribution is at most x."""
    if not z >= 0:
        return outside(z, c, 0.0)
    power = math.pow(z, positive(c))
    return 1.0 if power > _END else -math.expm1(-power)


def weibull_min_sf(z: float, c: float) -> float:
    """The probability that a number with the Weibull distribution is greater than x."""
    if not z >= 0:
        return outside(z, c, 1.0)
    power = math.pow(z, positive(c))
    return 0.0 if power > _END else math.exp(-power)


def weibull_min_logsf(z: float, c: float) -> float:
    """The logarithm of the probability that a number with the Weibull distribution is greater than x."""
    return -math.pow(z, positive(c)) if z >= 0 else outside(z, c, 0.0)


def weibull_min_ppf(q: float, c: float) -> float:
    """The number that one with the Weibull distribution is at most with probability q."""
    return math.pow(-math.log1p(-probability(q)), 1.0 / positive(c))


def weibull_min_isf(q: float, c: float) -> float:
    """The number that one with the Weibull distribution exceeds with probability q."""
    return math.pow(-math.log(probability(q)), 1.0 / positive(c))


def pareto_pdf(z: float, b: float) -> float:
    """The density of the Pareto distribution."""
    return b * math.pow(z, -b - 1.0) if z >= 1 and b > 0 else outside(z, b, 0.0)


def pareto_logpdf(z: float, b: float) -> float:
    """The logarithm of the density of the Pareto distribution."""
    return math.log(b) - (b + 1.0) * math.log(z) if z >= 1 and b > 0 else outside(z, b, -math.inf)


def pareto_cdf(z: float, b: float) -> float:
    """The probability that a number with the Pareto distribution is at most x."""
    return -math.expm1(-b * math.log(z)) if z >= 1 and b > 0 else outside(z, b, 0.0)


def pareto_sf(z: float, b: float) -> float:
    """The probability that a number with the Pareto distribution is greater than x."""
    return math.pow(z, -b) if z >= 1 and b > 0 else outside(z, b, 1.0)


def pareto_ppf(q: float, b: float) -> float:
    """The number that one with the Pareto distribution is at most with probability q."""
    return math.exp(-math.log1p(-probability(q)) / positive(b))


def rayleigh_pdf(z: float) -> float:
    """The density of the Rayleigh distribution."""
    z = min(z, 1e4)
    return z * math.exp(-0.5 * z * z) if z >= 0 else outside(z, 1.0, 0.0)


def rayleigh_logpdf(z: float) -> float:
    """The logarithm of the density of the Rayleigh distribution."""
    # At infinity the square prevails.
    return math.log(min(z, 1e30)) - 0.5 * z * z if z >= 0 else outside(z, 1.0, -math.inf)


def rayleigh_cdf(z: float) -> float:
    """The probability that a number with the Rayleigh distribution is at most x."""
    return -math.expm1(-0.5 * z * z) if z >= 0 else outside(z, 1.0, 0.0)


def rayleigh_sf(z: float) -> float:
    """The probability that a number with the Rayleigh distribution is greater than x."""
    return math.exp(-0.5 * z * z) if z >= 0 else outside(z, 1.0, 1.0)


def rayleigh_ppf(q: float) -> float:
    """The number that one with the Rayleigh distribution is at most with probability q."""
    return math.sqrt(-2.0 * math.log1p(-probability(q)))


def rayleigh_quantile_slope(q: float, x: float) -> float:
    """The slope of this quantile x in q."""
    return 1.0 / (1.0 - q) / (1.0 if q == 1 else x)


def uniform_pdf(z: float) -> float:
    """The density of the uniform distribution from `loc` to `loc + scale`."""
    return 1.0 if 0 <= z <= 1 else outside(z, 1.0, 0.0)


def uniform_logpdf(z: float) -> float:
    """The logarithm of the density of the uniform distribution from `loc` to `loc + scale`."""
    return 0.0 if 0 <= z <= 1 else outside(z, 1.0, -math.inf)


def uniform_cdf(z: float) -> float:
    """The probability that a number from the uniform distribution is at most x."""
    return min(max(z, 0.0), 1.0)


def uniform_sf(z: float) -> float:
    """The probability that a number from the uniform distribution is greater than x."""
    return 1.0 - uniform_cdf(z)


def uniform_ppf(q: float) -> float:
    """The number that one from the uniform distribution is at most with probability q."""
    return probability(q)


def cauchy_pdf(z: float) -> float:
    """The density of the Cauchy distribution; scaled, so that the square overflows only where it is 0."""
    scaled = 2.0**-30 * z
    return 2.0**-60 / math.pi / (2.0**-60 + scaled * scaled)


def is_far(z: float) -> bool:
    """Whether 1 + z * z is z * z, which may overflow."""
    return abs(z) > 2.0**30


def cauchy_score(z: float) -> float:
    """The slope of the logarithm of the density."""
    return -2.0 * ((1.0 if is_far(z) else z) * (1.0 / (z if is_far(z) else 1.0 + z * z)))


def cauchy_log_curvature(z: float) -> float:
    """The second derivative of the logarithm of the density."""
    unit, root = (0.0, 1.0) if is_far(z) else (1.0, z)
    inverse = 1.0 / (z if is_far(z) else 1.0 + z * z)
    return -2.0 * ((unit - root) * inverse) * ((unit + root) * inverse)


def cauchy_logpdf(z: float) -> float:
    """The logarithm of the density of the Cauchy distribution."""
    far = is_far(z)
    return -math.log(math.pi) - (2.0 if far else 1.0) * math.log(abs(z if far else 1.0 + z * z))


def cauchy_cdf(z: float) -> float:
    """The probability that a number with the Cauchy distribution is at most x."""
    return math.atan2(1.0, -z) / math.pi


def cauchy_sf(z: float) -> float:
    """The probability that a number with the Cauchy distribution is greater than x."""
    return math.atan2(1.0, z) / math.pi


def cauchy_ppf(q: float) -> float:
    """The number that one with the Cauchy distribution is at most with probability q."""
    return -cospi(probability(q)) / sinpi(q)


def cauchy_isf(q: float) -> float:
    """The number that one with the Cauchy distribution exceeds with probability q."""
    return cospi(probability(q)) / sinpi(q)


def laplace_pdf(z: float) -> float:
    """The density of the Laplace distribution."""
    return 0.5 * math.exp(-abs(z))


def laplace_logpdf(z: float) -> float:
    """The logarithm of the density of the Laplace distribution."""
    return -abs(z) - LN2


def laplace_cdf(z: float) -> float:
    """The probability that a number with the Laplace distribution is at most x."""
    tail = 0.5 * math.exp(-z if z > 0 else z)  # an absolute value would have no slope at 0
    return 1.0 - tail if z > 0 else tail


def laplace_sf(z: float) -> float:
    """The probability that a number with the Laplace distribution is greater than x."""
    return laplace_cdf(-z)


def laplace_ppf(q: float) -> float:
    """The number that one with the Laplace distribution is at most with probability q."""
    return -math.log(2.0 * (1.0 - q)) if q > 0.5 else math.log(2.0 * q)


def laplace_isf(q: float) -> float:
    """The number that one with the Laplace distribution exceeds with probability q."""
    return -laplace_ppf(q)


def logistic_pdf(z: float) -> float:
    """The density of the logistic distribution."""
    decay = math.exp(-abs(z))
    inverse = 1.0 / (1.0 + decay)
    return decay * inverse * inverse


def logistic_bend(z: float) -> float:
    """tanh(z / 2), of the exponential that the logistic density has; the difference near 0 is its series."""
    decay = math.exp(-abs(z))
    far = math.copysign((1.0 - decay) * (1.0 / (1.0 + decay)), z)
    return z * polynomial(z * z, _HALF_TANH) if abs(z) < 2.0**-4 else far


def logistic_logpdf(z: float) -> float:
    """The logarithm of the density of the logistic distribution."""
    return log_sigmoid(z) + log_sigmoid(-z)


def logistic_cdf(z: float) -> float:
    """The probability that a number with the logistic distribution is at most x."""
    decay = math.exp(-abs(z))  # which the slope has as well
    return (decay if z < 0 else 1.0) * (1.0 / (1.0 + decay))


def logistic_sf(z: float) -> float:
    """The probability that a number with the logistic distribution is greater than x."""
    return logistic_cdf(-z)


def logistic_logcdf(z: float) -> float:
    """The logarithm of the probability that a number with the logistic distribution is at most x."""
    return log_sigmoid(z)


def logistic_logsf(z: float) -> float:
    """The logarithm of the probability that a number with the logistic distribution is greater than x."""
    return log_sigmoid(-z)


def logistic_ppf(q: float) -> float:
    """The number that one with the logistic distribution is at most with probability q."""
    return logit(q)


def logistic_isf(q: float) -> float:
    """The number that one with the logistic distribution exceeds with probability q."""
    return -logit(q)


# Below, the exponential of -exp(-z) is 0, and so are its slopes, though factors of theirs may be infinite.
_GUMBEL_START = -7.0


def gumbel_r_pdf(z: float) -> float:
    """The density of the Gumbel distribution of maxima."""
    return gumbel_density(max(z, _GUMBEL_START))


def gumbel_density(z: float) -> float:
    """The density where it is not 0."""
    return math.exp(-z - math.exp(-z))


def gumbel_r_logpdf(z: float) -> float:
    """The logarithm of the density of the Gumbel distribution of maxima."""
    # At -inf the exponential prevails.
    return -max(z, -1e4) - math.exp(-z)


def gumbel_bend(z: float) -> float:
    """The slope of the logarithm of the density."""
    # A difference from the exponential that the density has, with a series near 0, takes longer.
    return math.expm1(-z)


def gumbel_r_cdf(z: float) -> float:
    """The probability that a number with the Gumbel distribution is at most x."""
    return math.exp(-math.exp(-max(z, _GUMBEL_START)))


def gumbel_r_sf(z: float) -> float:
    """The probability that a number with the Gumbel distribution is greater than x."""
    return -math.expm1(-math.exp(-max(z, _GUMBEL_START)))


def gumbel_r_logcdf(z: float) -> float:
    """The logarithm of the probability that a number with the Gumbel distribution is at most x."""
    return -math.exp(-z)


def gumbel_r_ppf(q: float) -> float:
    """The number that one with the Gumbel distribution is at most with probability q."""
    return -math.log(-math.log(q))


def gumbel_quantile_slope(q: float) -> float:
    """The slope of the quantile, which is infinite at both ends."""
    return 1.0 / abs(xlogy(q, q))
