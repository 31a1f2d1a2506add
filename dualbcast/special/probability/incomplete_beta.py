"""The regularised incomplete beta function, its complement, and its slopes, in the language of scalar functions.

The continued fraction is that of A. R. DiDonato and A. H. Morris, "Significant digit computation of the incomplete beta
function ratios", ACM Transactions on Mathematical Software 18 (1992) 360-373, section 3. It is taken on the side of the
mean on which it converges fast.
"""

from __future__ import annotations

import math

from dualbcast.special.polynomials import polynomial
from dualbcast.special.probability.ends import beta_density_at_zero, beta_slope_at_zero, score_at_zero, still
from dualbcast.special.probability.incomplete_gamma import LOG_GAMMA
from dualbcast.special.probability.log_terms import beta_log_term
from dualbcast.special.probability.quantile_ends import beta_start, beta_start_in_a, beta_start_in_b
from dualbcast.special.probability.stirling import (
    digamma_gap,
    digamma_rest,
    log_gamma_rise,
    powers,
    stirling_ratio,
    underflows,
)

# Enough for parameters of ten million near the mean; further away far fewer terms are needed.
MOST = 3000


def betainc(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function: the integral of t**(a - 1) * (1 - t)**(b - 1) / beta(a, b) from 0 to x.

    Parameters
    ----------
    a, b : float
        Positive, up to ten million; else the result is NaN.
    x : float
        In [0, 1]; else the result is NaN.

    Returns
    -------
    float
        In [0, 1]. The relative error is some 20 units in the last place, and in small tails three times the logarithm
        of the result more.

    Examples
    --------
    >>> betainc(2.0, 3.0, 0.0), betainc(2.0, 3.0, 1.0)
    (0.0, 1.0)
    >>> round(betainc(3.0, 1.0, 0.5), 12)
    0.125
    """
    if not is_inside(a, b, x):
        return end_value(a, b, x)
    return lower_part(a, b, x, 1.0 - x)


def betaincc(a: float, b: float, x: float) -> float:
    """The complement of the regularised incomplete beta function, 1 - betainc(a, b, x), also where it is tiny.

    Parameters
    ----------
    a, b : float
        Positive, up to ten million; else the result is NaN.
    x : float
        In [0, 1]; else the result is NaN.

    Returns
    -------
    float
        In [0, 1], with errors as those of `betainc`, but in large parts, below the mean a / (a + b), a few units of the
        last place of 1.

    Examples
    --------
    >>> betaincc(2.0, 3.0, 0.0), betaincc(2.0, 3.0, 1.0)
    (1.0, 0.0)
    >>> round(betaincc(1.0, 9.0, 0.9) * 1e9, 6)
    1.0
    """
    if not is_inside(a, b, x):
        return 1.0 - end_value(a, b, x)
    return lower_part(b, a, 1.0 - x, x)


def is_inside(a: float, b: float, x: float) -> bool:
    """Whether the value is neither that of an end of the domain nor NaN."""
    return 0 < a < math.inf and 0 < b < math.inf and 0 < x < 1


def end_value(a: float, b: float, x: float) -> float:
    """The value of `betainc` at the ends of the domain, and NaN outside of it."""
    if a > 0 and b > 0 and a < math.inf and b < math.inf:
        return x if x == 0 or x == 1 else math.nan
    return math.nan


def lower_part(a: float, b: float, x: float, y: float) -> float:
    """`betainc` inside of the domain, where y is 1 - x."""
    below, at_start, at_end = b * x <= a * y, is_at_power(a, b, x), is_at_power(b, a, y)
    if at_end or (at_start and not below):
        rest = small_upper(*((a, b, x) if at_start else (b, a, y)))
        return 1.0 - rest if at_start else rest
    p, q, u, v = (a, b, x, y) if below else (b, a, y, x)
    part = beta_term(a, b, x, y) * (1.0 if below else a / b) * fraction(p, q, u, v)
    return part if below else 1.0 - part


def is_at_power(a: float, b: float, x: float) -> bool:
    """Whether x is so small that `betainc` is x**a times a series of some five terms. Above the mean the fraction would
    need some 10 / sqrt(x)."""
    return a < 1 and x < 0.01 and b * x < 1


def small_upper(a: float, b: float, x: float) -> float:
    """`betaincc` there, without the cancellation of 1 - P where a is small."""
    log_power = a * (math.log(x) - polynomial(a - 0.5, LOG_GAMMA) + log_gamma_rise(b, a))
    return -math.exp(log_power) * (a * power_series(a, b, x)[0]) - math.expm1(log_power)


def power_series(a: float, b: float, x: float) -> tuple[float, float, float]:
    """The sum of (1 - b) … (n - b) / n! * x**n / (a + n) over n = 1, 2, …, and its slopes in a and in b."""
    term, term_b, total, by_a, by_b, n, count = 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0
    added = 1.0
    while added > 0 and count < MOST:
        n = n + 1.0
        ratio, inverse = x / n, 1.0 / (a + n)
        term_b = ratio * ((n - b) * term_b - term)
        term = ratio * (n - b) * term
        step, step_a, step_b = term * inverse, -(term * inverse) * inverse, term_b * inverse
        added = abs((total + step) - total) + abs((by_b + step_b) - by_b)
        total, by_a, by_b = total + step, by_a + step_a, by_b + step_b
        count = count + 1
    return total, by_a, by_b


def beta_term(a: float, b: float, x: float, y: float) -> float:
    """x**a * y**b / (a * beta(a, b)), where y is 1 - x."""
    n = a + b
    ratio = stirling_ratio(n) / (stirling_ratio(a) * stirling_ratio(b))
    return b / n * ratio * powers(a, b, x, y, b * x - a * y)


def fraction(a: float, b: float, x: float, y: float) -> float:
    """`betainc` divided by `beta_term`, as a continued fraction by J. Steed's way from the front."""
    short = 1.0 - (b * x - a * y)
    inverse = 1.0 / (a + 1.0)
    d = 1.0 / (short * inverse)
    step, total, n, count = d, d, 0.0, 0
    while abs((total + step) - total) > 0 and count < MOST:
        n = n + 1.0
        before, inverse = inverse, 1.0 / (a + 2.0 * n + 1.0)
        # The first numerator is without its factor a, by which the fraction is divided.
        scaled = x * before
        numerator = (1.0 if count == 0 else a + n - 1.0) * (a + b + n - 1.0) * n * (b - n) * scaled * scaled
        denominator = n + n * (b - n) * scaled + (a + n) * (short + n * (1.0 + y)) * inverse
        d = 1.0 / (denominator + numerator * d)
        step = (denominator * d - 1.0) * step
        total = total + step
        count = count + 1
    return total


def beta_density(a: float, b: float, x: float) -> float:
    """x**(a - 1) * (1 - x)**(b - 1) / beta(a, b), the slope of `betainc` in x."""
    if not (a > 0 and b > 0 and x >= 0 and x <= 1):
        return math.nan
    if x == 0:
        return beta_density_at_zero(a, b, x)
    if x == 1:
        return beta_density_at_zero(b, a, 1.0 - x)
    term = beta_term(a, b, x, 1.0 - x)
    return math.exp(beta_log_term(a, b, x)) if underflows(term) else term / (x * (1.0 - x)) * a


def beta_density_slopes(a: float, b: float, x: float, y: float) -> tuple[float, float, float]:
    """The slopes of the density y in all arguments; at the ends in x those to the inside."""
    if (x == 0 or x == 1) and y == y:
        in_x = beta_slope_at_zero(a, b, x, y) if x == 0 else -beta_slope_at_zero(b, a, 1.0 - x, y)
    else:
        in_x = 0.0 if y == 0 else inner_density_slope(a, b, x, y)
    in_a, in_b = density_scores(a, b, x)
    # At an end one score is infinite; the other one changes with a density that is 0 there.
    return 0.0 if x == 0 == y else y * in_a, 0.0 if 1.0 - x == 0 == y else y * in_b, in_x


def density_scores(a: float, b: float, x: float) -> tuple[float, float]:
    """The slopes of the logarithm of `beta_density` in the parameters."""
    return share_score(a, b, x, 1.0 - x) + 1.0 / a, share_score(b, a, 1.0 - x, x) + 1.0 / b


def inner_density_slope(a: float, b: float, x: float, y: float) -> float:
    """The slope in x of the density y, where neither is 0 and x is not 1."""
    return y * ((a - 1.0) / x - (b - 1.0) / (1.0 - x))


def inner_density_slopes(a: float, b: float, x: float, y: float, slope: float) -> tuple[float, float, float]:
    """The slopes of `inner_density_slope` in a, b and x.

    Near an end that in x is a sum of terms, since the square of the score would cancel there.
    """
    rest = 1.0 - x
    left, right, weight = (a - 1.0) / x, (b - 1.0) / rest, a + b - 2.0
    if 2.0 * x * weight < a - 1.0 or 2.0 * rest * weight < b - 1.0:
        low, high = y * left, y * right
        in_x = low * ((a - 2.0) / x) - 2.0 * low * right + high * ((b - 2.0) / rest)
    else:
        score = left - right
        in_x = y * (score * score - left / x - right / rest)
    in_a, in_b = density_scores(a, b, x)
    return slope * in_a + y / x, slope * in_b - y / rest, in_x


def share_score(a: float, b: float, x: float, y: float) -> float:
    """log(x) + digamma(a + b) - digamma(a + 1), the slope of the logarithm of `beta_term` in a; y is 1 - x."""
    n = a + b
    m = (b * x - a * y) / a
    # log(x * n / a), and how digamma differs from the logarithm, which is little for large parameters.
    logarithm = math.log1p(m) if abs(m) < 0.5 else math.log(x * n / a)
    return logarithm + (digamma_rest(n) - 1.0 / n - digamma_rest(a))


def beta_term_slopes(a: float, b: float, x: float, y: float, term: float) -> tuple[float, float, float, float]:
    """The slopes of `beta_term`, which has the value `term`, in all arguments."""
    if term == 0:
        return 0.0, 0.0, 0.0, 0.0
    in_a, in_b = share_score(a, b, x, y), share_score(b, a, y, x) + 1.0 / b
    return term * in_a, term * in_b, term * (a / x), term * (b / y)


def betainc_slopes(a: float, b: float, x: float) -> tuple[float, float, float]:
    """The slopes of `betainc` in all arguments.

    Those in the parameters are the derivatives of `beta_term`, and of the fraction, which are carried along with it.
    """
    density = beta_density(a, b, x)
    if not is_inside(a, b, x):
        if density != density:
            return density, density, density
        # As `beta_density_at_zero` changes with the parameters.
        score, along = score_at_zero(density), density / (b if x == 0 else a)
        return still(x, score if x == 0 else along), still(x, along if x == 0 else score), density
    y = 1.0 - x
    term = density * (x * y)
    at_start, at_end = is_at_power(a, b, x), is_at_power(b, a, y)
    if at_start or at_end:
        p, q, u, v = (a, b, x, y) if at_start else (b, a, y, x)
        # The part at this end is power * (1 + p * total).
        power, (total, by_p, by_q) = term / p * math.exp(-q * math.log1p(-u)), power_series(p, q, u)
        in_p = power * ((1.0 + p * total) * share_score(p, q, u, v) + total + p * by_p)
        in_q = power * ((1.0 + p * total) * digamma_gap(q, p) + p * by_q)
        return (in_p, in_q, density) if at_start else (-in_q, -in_p, density)
    below = b * x <= a * y
    score_a, score_b = share_score(a, b, x, y), share_score(b, a, y, x)
    p, q, u, v, score_p, score_q = (a, b, x, y, score_a, score_b) if below else (b, a, y, x, score_b, score_a)
    total, by_p, by_q = fraction_with_slopes(p, q, u, v)
    in_p = term / p * (total * score_p + by_p) if term > 0 else 0.0
    in_q = term / p * (total * (score_q + 1.0 / q) + by_q) if term > 0 else 0.0
    return in_p if below else -in_q, in_q if below else -in_p, density


def fraction_with_slopes(a: float, b: float, x: float, y: float) -> tuple[float, float, float]:
    """`fraction` and its slopes in a and in b."""
    short = 1.0 - (b * x - a * y)
    inverse = 1.0 / (a + 1.0)
    d = 1.0 / (short * inverse)
    d_a, d_b = d * d * inverse * (short * inverse - y), d * d * inverse * x
    step, step_a, step_b, total, by_a, by_b = d, d_a, d_b, d, d_a, d_b
    n, count, added = 0.0, 0, 1.0
    while added > 0 and count < MOST:
        n = n + 1.0
        before, inverse = inverse, 1.0 / (a + 2.0 * n + 1.0)
        scaled = x * before
        first, first_a = (1.0, 0.0) if count == 0 else (a + n - 1.0, 1.0)
        second, third = a + b + n - 1.0, b - n
        weight = n * scaled * scaled
        numerator = weight * first * second * third
        numerator_a = weight * (first_a * second + first) * third - 2.0 * numerator * before
        numerator_b = weight * first * (third + second)
        grown = short + n * (1.0 + y)
        last = (a + n) * grown * inverse
        slope_b = n * scaled
        denominator = n + slope_b * third + last
        denominator_a = inverse * (grown + (a + n) * y - last) - slope_b * third * before
        denominator_b = slope_b - inverse * (a + n) * x
        d_a = denominator_a + numerator_a * d + numerator * d_a
        d_b = denominator_b + numerator_b * d + numerator * d_b
        d = 1.0 / (denominator + numerator * d)
        d_a, d_b = -(d * d * d_a), -(d * d * d_b)
        factor = denominator * d - 1.0
        step_a = factor * step_a + (denominator_a * d + denominator * d_a) * step
        step_b = factor * step_b + (denominator_b * d + denominator * d_b) * step
        step = factor * step
        added = abs((total + step) - total) + abs((by_a + step_a) - by_a) + abs((by_b + step_b) - by_b)
        total, by_a, by_b = total + step, by_a + step_a, by_b + step_b
        count = count + 1
    return total, by_a, by_b


def betaincc_slopes(a: float, b: float, x: float) -> tuple[float, float, float]:
    """The slopes of `betaincc` in all arguments."""
    in_a, in_b, density = betainc_slopes(a, b, x)
    return -in_a, -in_b, -density


def betaincinv_slopes(a: float, b: float, p: float, y: float) -> tuple[float, float, float]:
    """The slopes of `betaincinv`, which has the value y, in all arguments."""
    if y == 0:
        return beta_start_in_a(a, b, p), beta_start_in_b(a, b, p), beta_start(a, b, p)
    if y == 1:
        q = 1.0 - p
        return 0.0 - beta_start_in_b(b, a, q), 0.0 - beta_start_in_a(b, a, q), beta_start(b, a, q)
    in_a, in_b, density = betainc_slopes(a, b, y)
    return -in_a / density, -in_b / density, 1.0 / density


def betainccinv_slopes(a: float, b: float, q: float, y: float) -> tuple[float, float, float]:
    """The slopes of `betainccinv`, which has the value y, in all arguments."""
    in_a, in_b, in_p = betaincinv_slopes(a, b, 1.0 - q, y)
    return in_a, in_b, -in_p
