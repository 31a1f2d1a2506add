"""The slopes of the lower incomplete gamma function in both arguments, in the language of scalar functions.

The slope in a is the derivative of the same sums and fractions, which is carried along with them. Neither side of its
last sum cancels: below a both terms are negative, above both are positive.
"""

from __future__ import annotations

import math

from dualbcast.special.gamma import digamma
from dualbcast.special.probability.ends import gamma_density_at_zero, gamma_slope_at_zero, score_at_zero, still
from dualbcast.special.probability.incomplete_gamma import MOST, UNIFORM, is_near
from dualbcast.special.probability.quantile_ends import gamma_far, gamma_far_in_a, gamma_start, gamma_start_in_a
from dualbcast.special.probability.stirling import deviance_ratio, poisson_term


def gamma_density(a: float, x: float) -> float:
    """x**(a - 1) * exp(-x) / gamma(a), the slope of `gammainc` in x."""
    if not (a >= 0 and x >= 0):
        return math.nan
    if x == math.inf or a == 0 or a == math.inf:
        return 0.0
    if x == 0:
        return gamma_density_at_zero(a, x)
    # Where the term would underflow, that of one event less.
    return poisson_term(a - 1.0, x) if x < 1e-4 and a > 1 else poisson_term(a, x) / x * a


def poisson_score(a: float, x: float, y: float) -> float:
    """The slope in a of `poisson_term`, which has the value y."""
    return 0.0 if y == 0 else y * (math.log(x) - digamma(a + 1.0))


def poisson_slope(a: float, x: float, y: float) -> float:
    """The slope in x of `poisson_term`, which has the value y; at 0 that to the right."""
    if x == 0 and a >= 0:
        return gamma_density(a, x) - y
    return 0.0 if y == 0 else inner_term_slope(a, x, y)


def inner_term_slope(a: float, x: float, y: float) -> float:
    """`poisson_slope` where neither x nor y is 0."""
    return y * ((a - x) / x)


def inner_term_curvature(a: float, x: float, y: float) -> float:
    """The slope of `inner_term_slope` in x: near 0 a sum of terms, as the square of the score would cancel there."""
    if 2.0 * x < a:
        lower = y * (a / x)
        return lower * ((a - 1.0) / x) - 2.0 * lower + y
    score = (a - x) / x
    return y * (score * score - a / x / x)


def inner_term_slope_in_a(a: float, x: float, y: float, slope: float) -> float:
    """The slope of `inner_term_slope` in a."""
    return slope * (math.log(x) - digamma(a + 1.0)) + y / x


def gamma_density_slope(a: float, x: float, y: float) -> float:
    """The slope in x of the density y; at 0 that to the right."""
    if x == 0 and a > 0:
        return gamma_slope_at_zero(a, x, y)
    return 0.0 if y == 0 else inner_term_slope(a - 1.0, x, y)


def gamma_score(a: float, x: float, y: float) -> float:
    """The slope in a of the density y."""
    return 0.0 if y == 0 else y * (math.log(x) - digamma(a))


def gammainc_slope_in_a(a: float, x: float) -> float:
    """The slope of `gammainc` in a."""
    if not (a >= 0 and x >= 0):
        return math.nan
    if x == 0 or x == math.inf or a == math.inf:
        return still(x, score_at_zero(gamma_density_at_zero(a, x))) if x == 0 else 0.0
    if is_near(a, x):
        return uniform_slope(a, x)
    scale = poisson_term(a, x)
    score = math.log(x) - digamma(a + 1.0)
    if scale == 0:
        return 0.0
    if x < a or x < 1.1:
        total, slope = power_series_with_slope(a, x)
        return scale * (total * score + slope)
    total, slope = fraction_with_slope(a, x)
    return -(scale * (a * (total * score + slope) + total))


def gammaincinv_slopes(a: float, p: float, x: float) -> tuple[float, float]:
    """The slopes of `gammaincinv`, which has the value x."""
    if x == 0:
        return gamma_start_in_a(a, p), gamma_start(a, p)
    if x == math.inf:
        return gamma_far_in_a(a, p), gamma_far(a, p)
    density = gamma_density(a, x)
    return -gammainc_slope_in_a(a, x) / density, 1.0 / density


def gammainccinv_slopes(a: float, q: float, x: float) -> tuple[float, float]:
    """The slopes of `gammainccinv`, which has the value x."""
    in_a, in_p = gammaincinv_slopes(a, 1.0 - q, x)
    return in_a, -in_p


def power_series_with_slope(a: float, x: float) -> tuple[float, float]:
    """`power_series` and its slope in a."""
    term, total, divisor, count = 1.0, 1.0, a, 0
    term_slope, slope = 0.0, 0.0
    added = 1.0
    while added > 0 and count < MOST:
        divisor = divisor + 1.0
        inverse = 1.0 / divisor
        term = term * x * inverse
        term_slope = (term_slope * x - term) * inverse
        added = abs((slope + term_slope) - slope)
        total = total + term
        slope = slope + term_slope
        count = count + 1
    return total, slope


def fraction_with_slope(a: float, x: float) -> tuple[float, float]:
    """`fraction` and its slope in a."""
    b = x + 1.0 - a
    d = 1.0 / b
    d_slope = d * d
    step, total, n, count = d, d, 0.0, 0
    step_slope, slope = d_slope, d_slope
    while abs((total + step) - total) + abs((slope + step_slope) - slope) > 0 and count < MOST:
        n = n + 1.0
        b = b + 2.0
        factor = n * (a - n)
        d_slope = n * d + factor * d_slope - 1.0
        d = 1.0 / (b + factor * d)
        d_slope = -(d * d * d_slope)
        grown = b * d - 1.0
        step_slope = grown * step_slope + (b * d_slope - d) * step
        step = grown * step
        total = total + step
        slope = slope + step_slope
        count = count + 1
    return total, slope


def uniform_slope(a: float, x: float) -> float:
    """The slope in a by the uniform expansion.

    With s = eta / m, where m = x / a - 1, the slope of eta in a is -1 / (s * a), and that of the exponent is
    log1p(m).
    """
    m = (x - a) / a
    ratio = deviance_ratio(m)
    s = math.sqrt(2.0 * ratio)
    eta, inverse = m * s, 1.0 / a
    total, by_eta, by_inverse = 0.0, 0.0, 0.0
    for row in UNIFORM:
        value, slope = 0.0, 0.0
        for coefficient in row:
            slope = slope * eta + value
            value = value * eta + coefficient
        by_inverse = by_inverse * inverse + total
        by_eta = by_eta * inverse + slope
        total = total * inverse + value
    change = total * (math.log1p(m) - 0.5 * inverse) - inverse * (by_eta / s + inverse * by_inverse)
    scale = math.exp(-a * m * m * ratio) / math.sqrt(2.0 * math.pi * a)
    return -(scale * (1.0 / s - 0.5 * eta + change))
