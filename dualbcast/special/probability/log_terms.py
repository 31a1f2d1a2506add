"""Logarithms of densities in the language of scalar functions, of terms that do not cancel for large parameters, and
their slopes.

The terms are logarithms of Stirling's ratios and of numbers that are 1 at the mean. The slopes are differences that are
taken before anything is rounded, since near the mean they are small beside their parts.
"""

from __future__ import annotations

import math

from dualbcast.special.exponentials import xlogy
from dualbcast.special.gamma import digamma
from dualbcast.special.probability.stirling import (
    deviance,
    deviance_ratio,
    digamma_gap_rest,
    log_stirling_ratio,
    stirling_error,
    trigamma_gap,
)

HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
# From this parameter on the terms of the logarithm of the gamma function would lose more than two digits.
LARGE = 100.0
# For shares of this and more, derivatives lose less than eight bits if they are those of a logarithm's exponential.
NEAR = 2.0**-7


def log_ratios(a: float, b: float) -> float:
    """The logarithm of gamma(n + 1) * a**a * b**b / (gamma(a + 1) * gamma(b + 1) * n**n), where n is a + b."""
    return log_stirling_ratio(a + b) - log_stirling_ratio(a) - log_stirling_ratio(b)


def log_of_next(u: float, v: float) -> float:
    """log(v), where v is 1 + u, and the one with more digits is u near 0."""
    return math.log1p(u) if abs(u) < 0.5 else math.log(v)


def log_rest(u: float, logarithm: float) -> float:
    """The logarithm of 1 + u, less u."""
    return -u * u * deviance_ratio(u) if abs(u) <= 0.5 else logarithm - u


# --- the gamma, Poisson and binomial distributions --------------------------------------------------------------------


def log_poisson_term(a: float, x: float) -> float:
    """The logarithm of `poisson_term` for finite a and x."""
    if a >= LARGE:
        return -deviance(a, x, x - a) - stirling_error(a) - 0.5 * math.log(2.0 * math.pi * a)
    return xlogy(a, x) - x - math.lgamma(a + 1.0)


def log_poisson_slope(a: float, x: float) -> float:
    """The slope of `log_poisson_term` in x."""
    return -1.0 if a == 0 else (a - x) * (1.0 / x)


def gamma_log_term(a: float, x: float) -> float:
    """The logarithm of the density of the gamma distribution for finite a and x."""
    if a >= LARGE:
        k = a - 1.0
        return -deviance(k, x, x - k) - stirling_error(k) - 0.5 * math.log(2.0 * math.pi * k)
    return xlogy(a - 1.0, x) - x - math.lgamma(a)


def gamma_log_slope(a: float, x: float) -> float:
    """The slope of `gamma_log_term` in x."""
    return -1.0 if a == 1 else (a - 1.0 - x) / x


def gamma_log_slope_in_a(a: float, x: float) -> float:
    """The slope of `gamma_log_term` in a."""
    return math.log(x) - digamma(a)


def log_powers(a: float, b: float, x: float) -> tuple[float, float]:
    """The logarithms of (n * x / a)**a and (n * (1 - x) / b)**b for n = a + b."""
    n, y = a + b, 1.0 - x
    surplus = b * x - a * y
    of_a = 0.0 if a == 0 else a * log_of_next(surplus / a, n * x / a)
    return of_a, 0.0 if b == 0 else b * log_of_next(-surplus / b, n * y / b)


def log_binomial_term(a: float, b: float, x: float) -> float:
    """The logarithm of x**a * (1 - x)**b * gamma(a + b + 1) / (gamma(a + 1) * gamma(b + 1))."""
    of_a, of_b = log_powers(a, b, x)
    return log_ratios(a, b) + of_a + of_b


def log_without_power(a: float, b: float, x: float) -> float:
    """The logarithm of (1 - x)**b * gamma(a + b + 1) / (gamma(a + 1) * gamma(b + 1))."""
    power = 0.0 if a == 0 else a * math.log((a + b) / a)
    return log_ratios(a, b) + power + log_powers(a, b, x)[1]


def slope_of_power(a: float, x: float) -> float:
    """The slope in x of a * log(x), and 0 where a is."""
    return 0.0 if a == 0 else a / x


def binomial_probability(a: float, b: float, x: float, logarithm: float) -> float:
    """exp(log_binomial_term(a, b, x) + logarithm).

    Near 0 and 1 the smaller number's power is one, whose derivatives have all digits; those of the exponential of the
    logarithm would cancel, and at the ends be infinite.
    """
    probability = math.exp(log_binomial_term(a, b, x) + logarithm)
    if x < NEAR and a < LARGE:
        probability = power_and_rest(x, a, log_without_power(a, b, x) + logarithm)
    if x > 1.0 - NEAR and b < LARGE:
        probability = power_and_rest(1.0 - x, b, log_without_power(b, a, 1.0 - x) + logarithm)
    return probability


def power_and_rest(base: float, exponent: float, rest: float) -> float:
    """base**exponent * exp(rest), at most some power of 1 / base."""
    if rest > 20 and exponent >= 1:
        # Apart, the power might be less than any number, and the exponential more than any.
        return math.pow(base * math.exp(rest / exponent), exponent)
    return math.pow(base, exponent) * math.exp(rest)


def beta_log_term(a: float, b: float, x: float) -> float:
    """The logarithm of the density of the beta distribution for 0 <= x <= 1."""
    left, right = beta_logarithms(a, b, x)
    powers = (0.0 if a == 1 else (a - 1.0) * left) + (0.0 if b == 1 else (b - 1.0) * right)
    return log_ratios(a, b) + math.log(a + b) + powers


def beta_logarithms(a: float, b: float, x: float) -> tuple[float, float]:
    """The logarithms of n * x / a and n * (1 - x) / b for n = a + b."""
    n, y = a + b, 1.0 - x
    surplus = b * x - a * y
    return log_of_next(surplus / a, n * x / a), log_of_next(-surplus / b, n * y / b)


def beta_log_slope(a: float, b: float, x: float) -> float:
    """The slope of `beta_log_term` in x."""
    return (0.0 if a == 1 else (a - 1.0) / x) - (0.0 if b == 1 else (b - 1.0) / (1.0 - x))


# --- the F distribution ---------------------------------------------------------------------------------------------


def f_moves(m: float, n: float, z: float) -> tuple[float, float, float, float]:
    """What the numbers ((1 + r) * z / (1 + r * z)) and ((1 + r) / (1 + r * z)) with r = m / n are more than 1, and they
    themselves.
    """
    ratio = m / n
    odds = ratio * z
    y = 1.0 / (1.0 + odds)
    share = 1.0 - y if odds > 1 else odds * y
    return (z - 1.0) * y, ratio * ((1.0 - z) * y), (1.0 + n / m) * share, (1.0 + ratio) * y


def f_log_term(m: float, n: float, z: float) -> float:
    """The logarithm of the density of the F distribution for 0 < z < inf."""
    a, b = 0.5 * m, 0.5 * n
    u, v, first, second = f_moves(m, n, z)
    powers = (a - 1.0) * log_of_next(u, first) + (b + 1.0) * log_of_next(v, second)
    return log_ratios(a, b) + math.log(b * (a / (a + b))) + powers


def f_score(m: float, n: float, z: float) -> float:
    """The slope of `f_log_term` in z."""
    ratio = m / n
    return (0.5 * m * (1.0 - z) - 1.0 - ratio * z) * (1.0 / (1.0 + ratio * z)) / z


def f_score_slopes(m: float, n: float, z: float, score: float) -> tuple[float, float, float]:
    """The slopes of the score in all arguments."""
    a, odds = 0.5 * m, m / n * z
    y = 1.0 / (1.0 + odds)
    root = y / z
    in_m = 0.5 * (1.0 - z) * root - y / n * (1.0 + z * score)
    in_z = -(((a - 1.0) * (1.0 + 2.0 * odds) - odds * (a * z + odds)) * root) * root
    return in_m, m / n * (y / n) * (1.0 + z * score), in_z


def f_score_in_dfn(m: float, n: float, z: float) -> float:
    """The slope of `f_log_term` in m."""
    u, _, first, _ = f_moves(m, n, z)
    return 0.5 * (log_rest(u, log_of_next(u, first)) + digamma_gap_rest(0.5 * m, 0.5 * n))


def f_score_in_dfd(m: float, n: float, z: float) -> float:
    """The slope of `f_log_term` in n."""
    _, v, _, second = f_moves(m, n, z)
    return 0.5 * (log_rest(v, log_of_next(v, second)) + digamma_gap_rest(0.5 * n, 0.5 * m))


def f_density(m: float, n: float, z: float) -> float:
    """The density of the F distribution for 0 < z < inf."""
    return math.exp(f_log_term(m, n, z))


def f_density_slope(m: float, n: float, z: float, y: float) -> float:
    """The slope in z of the density y."""
    return y * f_score(m, n, z)


def f_density_curvatures(m: float, n: float, z: float, y: float, slope: float) -> tuple[float, float, float]:
    """The slopes of `f_density_slope` in m, n and z; near 0 the one in z is a sum of terms, as it would cancel."""
    a, ratio, total = 0.5 * m, m / n, 0.5 * (m + n)
    fall = ratio / (1.0 + ratio * z)
    score = f_score(m, n, z)
    in_m, in_n, in_z = f_score_slopes(m, n, z, score)
    curvature = slope * score + y * in_z
    if 2.0 * total * (fall * z) < a - 1.0:
        low = y * ((a - 1.0) / z)
        curvature = low * ((a - 2.0) / z) - 2.0 * low * (total * fall) + y * (total * fall) * ((total + 1.0) * fall)
    of_m, of_n = f_score_in_dfn(m, n, z), f_score_in_dfd(m, n, z)
    return slope * of_m + y * in_m, slope * of_n + y * in_n, curvature


# --- Student's distribution -----------------------------------------------------------------------------------------


def is_far(df: float, t: float) -> bool:
    """Whether 1 + t * t / df is t * t / df, which may overflow."""
    return abs(t) > 2.0**30 + 2.0**23 * df


def log_of_odds(df: float, t: float) -> float:
    """log(1 + t * t / df)."""
    far = is_far(df, t)
    logarithm = math.log1p(abs(t) - 1.0 if far else t * (t / df))
    return 2.0 * logarithm - math.log(df) if far else logarithm


def t_log_density(df: float, t: float) -> float:
    """The logarithm of the density of Student's t distribution."""
    if not df > 0:
        return math.nan
    if df == math.inf:
        return -0.5 * t * t - HALF_LOG_2PI
    a = 0.5 * df
    scale = log_stirling_ratio(a + 0.5) - log_stirling_ratio(a) + (a - 0.5) * math.log1p(1.0 / df)
    return scale - (0.5 + HALF_LOG_2PI) - 0.5 * (df + 1.0) * log_of_odds(df, t)


def t_score(df: float, t: float) -> float:
    """The slope of `t_log_density` in t."""
    return -(df + 1.0) / t if is_far(df, t) else -(1.0 + 1.0 / df) * (t / (1.0 + t * (t / df)))


def t_score_slopes(df: float, t: float) -> tuple[float, float]:
    """The slopes of `t_score`."""
    if is_far(df, t):
        return -1.0 / t, (df + 1.0) / t / t
    odds = t * (t / df)
    y = 1.0 / (1.0 + odds)
    return t * (y / df) * ((1.0 - t) * (1.0 + t) * (y / df)), -(1.0 + 1.0 / df) * ((1.0 - odds) * y * y)


def t_move(df: float, t: float) -> float:
    """What (1 + df) / (t * t + df) is more than 1."""
    odds = t * (t / df)
    y = 1.0 / (1.0 + odds)
    return (1.0 - t) * (1.0 + t) * (y / df) if abs(t) < 2 else y / df - (1.0 - y if odds > 1 else odds * y)


def t_score_in_df(df: float, t: float) -> float:
    """The slope of `t_log_density` in the degrees of freedom."""
    logarithm = math.log1p(1.0 / df) - log_of_odds(df, t)
    return 0.5 * (log_rest(t_move(df, t), logarithm) + digamma_gap_rest(0.5 * df, 0.5))


def t_curvature_in_df(df: float, t: float) -> float:
    """The slope of `t_score_in_df` in the degrees of freedom."""
    v, a = t_move(df, t), 0.5 * df
    return 0.5 * (v * (v / (1.0 + df)) + 0.5 * (trigamma_gap(a, 0.5) + 0.5 / a / (a + 0.5)))
