"""Slopes of quantiles at the probabilities 0 and 1, in the language of scalar functions.

A quantile is there a power of the probability times a series, or a logarithm of it. So its slopes are known by the
parameters, and so are the slopes of these, which `rules/probability.py` gives: limits, which may be infinite. They do
not come from the quantile, whose changes would make them 0 * inf. Each function takes the probability to have a slope
in it.
"""

from __future__ import annotations

import math

from dualbcast.special.probability.beta_functions import beta
from dualbcast.special.probability.stirling import digamma_gap, trigamma_gap

# A function has slopes in arguments that its value does not need.
# ruff: noqa: ARG001


def first(a: float, one: float) -> float:
    """The slope in p of a quantile that begins as p**(1 / a) times a number, where p is 0: that number where a is 1."""
    return 0.0 if a < 1 else one if a == 1 else math.inf


def second(a: float, half: float, one: float) -> float:
    """Its second derivative, which is `half` and `one` for these parameters."""
    if a <= 0.5:
        return half if a == 0.5 else 0.0
    return math.inf if a < 1 else one if a == 1 else -math.inf


def rising(a: float) -> float:
    """The mixed derivative in p and a, by the logarithm of p."""
    return 0.0 if a < 1 else math.inf


# --- gamma distributions ---------------------------------------------------------------------------------------------


def gamma_start(a: float, p: float) -> float:
    """The slope of `gammaincinv` in p where p is 0."""
    return first(a, 1.0)


def gamma_start_in_a(a: float, p: float) -> float:
    """The slope of `gammaincinv` in a where p is 0."""
    return 0.0


def gamma_far(a: float, p: float) -> float:
    """The slope of `gammaincinv` in p where p is 1: the quantile is almost -log(1 - p) there."""
    return math.inf


def gamma_far_in_a(a: float, p: float) -> float:
    """The slope of `gammaincinv` in a where p is 1, which is almost log(x) - digamma(a)."""
    return math.inf


# --- Weibull's distributions -----------------------------------------------------------------------------------------


def weibull_start(c: float, p: float) -> float:
    """The slope of `weibull_min_ppf` in p where p is 0."""
    return first(c, 1.0)


def weibull_start_in_c(c: float, p: float) -> float:
    """The slope of `weibull_min_ppf` in c where p is 0."""
    return 0.0


def weibull_far(c: float, p: float) -> float:
    """The slope of `weibull_min_ppf` in p where p is 1: the quantile is a power of -log(1 - p) there."""
    return math.inf


def weibull_far_in_c(c: float, p: float) -> float:
    """The slope of `weibull_min_ppf` in c where p is 1."""
    return -math.inf


# --- beta distributions; those where p is 1 are these of the other side -----------------------------------------------


def beta_start(a: float, b: float, p: float) -> float:
    """The slope of `betaincinv` in p where p is 0."""
    return first(a, 1.0 / b)


def beta_start_in_a(a: float, b: float, p: float) -> float:
    """The slope of `betaincinv` in a where p is 0."""
    return 0.0


def beta_start_in_b(a: float, b: float, p: float) -> float:
    """The slope of `betaincinv` in b where p is 0."""
    return 0.0


def beta_start_bend(a: float, b: float) -> float:
    """The second derivative of `betaincinv` in p where p is 0."""
    whole = beta(0.5, b)
    return second(a, 0.5 * whole * whole, (b - 1.0) / (b * b))


def beta_start_mixed(a: float, b: float) -> float:
    """The second derivative of `betaincinv` in p and b where p is 0."""
    return 0.0 if a < 1 else -1.0 / (b * b) if a == 1 else -math.inf


# --- F distributions -------------------------------------------------------------------------------------------------


def f_start(dfn: float, dfd: float, p: float) -> float:
    """The slope of `fdtri` in p where p is 0."""
    return first(0.5 * dfn, 1.0)


def f_start_in_dfn(dfn: float, dfd: float, p: float) -> float:
    """The slope of `fdtri` in dfn where p is 0."""
    return 0.0


def f_start_in_dfd(dfn: float, dfd: float, p: float) -> float:
    """The slope of `fdtri` in dfd where p is 0."""
    return 0.0


def f_start_bend(dfn: float, dfd: float) -> float:
    """The second derivative of `fdtri` in p where p is 0."""
    whole = beta(0.5, 0.5 * dfd)
    return second(0.5 * dfn, 0.5 * dfd * whole * whole, 1.0 + 2.0 / dfd)


def f_far(dfn: float, dfd: float, p: float) -> float:
    """The slope of `fdtri` in p where p is 1.

    The quantile is almost a power of 1 - p there, with the exponent -2 / dfd; for dfd = 2 it is almost
    1 / (1 - p) - 1 / 2 - 1 / dfn.
    """
    return math.inf


def f_far_in_dfn(dfn: float, dfd: float, p: float) -> float:
    """The slope of `fdtri` in dfn where p is 1."""
    return 1.0 / (dfn * dfn) if dfd == 2 else math.copysign(math.inf, 2.0 - dfd)


def f_far_in_dfd(dfn: float, dfd: float, p: float) -> float:
    """The slope of `fdtri` in dfd where p is 1."""
    return -math.inf


def f_far_bend_in_dfn(dfn: float, dfd: float) -> float:
    """The second derivative of `fdtri` in dfn where p is 1: infinite with the sign of that of the power's factor."""
    if dfd == 2:
        return -2.0 / (dfn * dfn * dfn)
    a, b = 0.5 * dfn, 0.5 * dfd
    score = digamma_gap(a, b) / b - 1.0 / a
    return math.copysign(math.inf, score * score + trigamma_gap(a, b) / b + 1.0 / (a * a))


def f_far_mixed(dfn: float, dfd: float) -> float:
    """The second derivative of `fdtri` in p and dfn where p is 1."""
    return 2.0 / (3.0 * dfn * dfn * dfn) if dfd == 2 else math.copysign(math.inf, 2.0 - dfd)


# --- Student's distributions -----------------------------------------------------------------------------------------


def t_far(df: float, p: float, side: float) -> float:
    """The slope of `stdtrit` in p at the end where the quantile is `side` * inf."""
    return math.inf


def t_far_in_df(df: float, p: float, side: float) -> float:
    """The slope of `stdtrit` in df where the quantile is `side` * inf."""
    return -side * math.inf
