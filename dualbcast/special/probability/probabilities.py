"""The distribution functions of `scipy.special` and their inverses, in the language of scalar functions.

They are incomplete gamma and beta functions of other arguments. Those that count events round them down, as SciPy does.
"""

from __future__ import annotations

import math

import numpy as np

from dualbcast.special.normal import ndtri
from dualbcast.special.probability.ends import f_density_at_zero, score_at_zero, still
from dualbcast.special.probability.incomplete_beta import betainc, betainc_slopes, betaincc
from dualbcast.special.probability.incomplete_beta_inverses import betainccinv, betaincinv, first_logit, inverse_of_beta
from dualbcast.special.probability.incomplete_gamma import gammainc, gammaincc
from dualbcast.special.probability.incomplete_gamma_inverses import gammainccinv, gammaincinv
from dualbcast.special.probability.log_terms import t_log_density, t_score_in_df
from dualbcast.special.probability.quantile_ends import (
    f_far,
    f_far_in_dfd,
    f_far_in_dfn,
    f_start,
    f_start_in_dfd,
    f_start_in_dfn,
    t_far,
    t_far_in_df,
)

# SciPy has all of these, and all but factorial and multigammaln as ufuncs.
UNDER_SCIPYS_NAMES = [
    "bdtr",
    "bdtrc",
    "bdtri",
    "chdtr",
    "chdtrc",
    "chdtri",
    "factorial",
    "fdtr",
    "fdtrc",
    "fdtri",
    "gdtr",
    "gdtrc",
    "gdtrix",
    "multigammaln",
    "nbdtr",
    "nbdtrc",
    "nbdtri",
    "nrdtrimn",
    "nrdtrisd",
    "pdtr",
    "pdtrc",
    "pdtri",
    "stdtr",
    "stdtrit",
]


# --- gamma, chi-square and Poisson distributions -------------------------------------------------------------------


def gdtr(a: float, b: float, x: float) -> float:
    """The probability that a gamma-distributed number with rate a and shape b is at most x."""
    return gammainc(b, a * x)


def gdtrc(a: float, b: float, x: float) -> float:
    """The probability that a gamma-distributed number with rate a and shape b is greater than x."""
    return gammaincc(b, a * x)


def gdtrix(a: float, b: float, p: float) -> float:
    """The inverse of `gdtr` in x."""
    return gammaincinv(b, p) / a


def chdtr(v: float, x: float) -> float:
    """The probability that a chi-square number with v degrees of freedom is at most x."""
    return gammainc(0.5 * v, 0.5 * x)


def chdtrc(v: float, x: float) -> float:
    """The probability that a chi-square number with v degrees of freedom is greater than x."""
    return gammaincc(0.5 * v, 0.5 * x)


def chdtri(v: float, p: float) -> float:
    """The inverse of `chdtrc` in x."""
    return 2.0 * gammainccinv(0.5 * v, p)


def pdtr(k: float, m: float) -> float:
    """The probability of at most k events where their expectation is m."""
    return gammaincc(whole(k) + 1.0, m)


def pdtrc(k: float, m: float) -> float:
    """The probability of more than k events where their expectation is m."""
    return gammainc(whole(k) + 1.0, m)


def pdtri(k: float, y: float) -> float:
    """The inverse of `pdtr` in m."""
    return gammainccinv(whole(k) + 1.0, y)


def whole(k: float) -> float:
    """The number of events, which must not be negative."""
    return float(np.floor(k)) if k >= 0 else math.nan


# --- binomial distributions ----------------------------------------------------------------------------------------


def bdtr(k: float, n: float, p: float) -> float:
    """The probability of at most k successes in n trials of probability p."""
    k = whole(k)
    return betaincc(k + 1.0, n - k, p) if k != n else 1.0 if 0 <= p <= 1 else math.nan


def bdtrc(k: float, n: float, p: float) -> float:
    """The probability of more than k successes in n trials of probability p."""
    k = whole(k)
    return betainc(k + 1.0, n - k, p) if k != n else 0.0 if 0 <= p <= 1 else math.nan


def bdtri(k: float, n: float, y: float) -> float:
    """The inverse of `bdtr` in p."""
    k = whole(k)
    return betainccinv(k + 1.0, n - k, y)


def nbdtr(k: float, n: float, p: float) -> float:
    """The probability of at most k failures before the n-th success, which has the probability p."""
    return betainc(n, whole(k) + 1.0, p)


def nbdtrc(k: float, n: float, p: float) -> float:
    """The probability of more than k failures before the n-th success, which has the probability p."""
    return betaincc(n, whole(k) + 1.0, p)


def nbdtri(k: float, n: float, y: float) -> float:
    """The inverse of `nbdtr` in p."""
    return betaincinv(n, whole(k) + 1.0, y)


# --- F and Student's distributions, and the normal one -------------------------------------------------------------


def fdtr(dfn: float, dfd: float, x: float) -> float:
    """The probability that a number with the F distribution is at most x."""
    return share_below(0.5 * dfn, 0.5 * dfd, dfn * x, dfd) if x >= 0 else math.nan


def fdtrc(dfn: float, dfd: float, x: float) -> float:
    """The probability that a number with the F distribution is greater than x."""
    return share_below(0.5 * dfd, 0.5 * dfn, dfd, dfn * x) if x >= 0 else math.nan


def share_below(a: float, b: float, part: float, rest: float) -> float:
    """betainc(a, b, part / (part + rest)), also where the share is close to 1."""
    return betainc(a, b, part / (part + rest)) if part <= rest else betaincc(b, a, rest / (part + rest))


def f_slopes(dfn: float, dfd: float, z: float) -> tuple[float, float, float]:
    """The slopes of `fdtr` in all arguments."""
    if not 0 < z < math.inf:
        density = f_density_at_zero(dfn, dfd, z) if z == 0 else 0.0
        return still(z, score_at_zero(density)), still(z, 0.0 if dfn >= 2 else density), density
    part, a, b = dfn * z, 0.5 * dfn, 0.5 * dfd
    rest = dfd / (part + dfd)
    lower = part <= dfd
    # The share that is not close to 1.
    first, second, along = betainc_slopes(*((a, b, part / (part + dfd)) if lower else (b, a, rest)))
    in_a, in_b = (first, second) if lower else (-second, -first)
    density = along * rest * (dfn / dfd * rest)
    moved = z * density
    return 0.5 * in_a + moved / dfn, 0.5 * in_b - moved / dfd, density


def fdtri_slopes(dfn: float, dfd: float, p: float, z: float) -> tuple[float, float, float]:
    """The slopes of `fdtri`, which has the value z, in all arguments."""
    if z == 0:
        return f_start_in_dfn(dfn, dfd, p), f_start_in_dfd(dfn, dfd, p), f_start(dfn, dfd, p)
    if z == math.inf:
        return f_far_in_dfn(dfn, dfd, p), f_far_in_dfd(dfn, dfd, p), f_far(dfn, dfd, p)
    in_dfn, in_dfd, density = f_slopes(dfn, dfd, z)
    return -in_dfn / density, -in_dfd / density, 1.0 / density


def fdtri(dfn: float, dfd: float, p: float) -> float:
    """The inverse of `fdtr` in x."""
    a, b = 0.5 * dfn, 0.5 * dfd
    # The share is probably more than 1/2, and what it lacks has more digits; so has 1 - p.
    is_upper = p >= 0.5 and first_logit(a, b, p) > 0
    low, high, goal = (b, a, 1.0 - p) if is_upper else (a, b, p)
    share = betaincinv(low, high, goal)
    return dfd * (1.0 - share) / (dfn * share) if is_upper else dfd * share / (dfn * (1.0 - share))


def stdtr(df: float, t: float) -> float:
    """The probability that a number with Student's t distribution is at most t.

    Its derivative in the degrees of freedom is that of the incomplete beta function.
    """
    square = t * t
    if df == math.inf:
        return 0.5 * math.erfc(-t * math.sqrt(0.5))
    if square < df:
        tail = 0.5 * betaincc(0.5, 0.5 * df, square / (df + square))
    else:
        tail = 0.5 * betainc(0.5 * df, 0.5, 0.0 if square == math.inf else df / (df + square))
    if square * 2.0**53 == math.inf:
        # By the first term of its series.
        tail = far_tail(df, t)
    return 1.0 - tail if t > 0 else tail


def far_tail(df: float, t: float) -> float:
    """The probability beyond t, where the square of t may overflow."""
    return math.exp(t_log_density(df, t) + math.log(abs(t)) - math.log(df)) if abs(t) < math.inf else 0.0


def stdtr_slope_in_df(df: float, t: float) -> float:
    """The slope of `stdtr` in the degrees of freedom."""
    if df == math.inf:
        return 0.0
    square = t * t
    if square * 2.0**53 == math.inf:
        far = far_tail(df, t)
        return 0.0 if far == 0 else math.copysign(far, -t) * (t_score_in_df(df, t) - 1.0 / df)
    middle = square < df
    a, b, part = (0.5, 0.5 * df, square) if middle else (0.5 * df, 0.5, df)
    in_a, in_b, _ = betainc_slopes(a, b, 0.0 if square == math.inf else part / (df + square))
    along = 0.25 * (in_b if middle else -in_a)
    moved = 0.0 if square == math.inf else 0.5 * t_density(df, t) * (t / df)
    return math.copysign(along, t * along) - moved


def t_density(df: float, t: float) -> float:
    """The density of Student's t distribution, the slope of `stdtr` in t."""
    return math.exp(t_log_density(df, t))


def stdtrit(df: float, p: float) -> float:
    """The inverse of `stdtr` in t."""
    centred = 2.0 * p - 1.0
    within, beyond = abs(centred), 2.0 * min(p, 1.0 - p)
    # Roughly whether t * t is more than df: the smaller one's share of their sum has the digits.
    is_far = beyond < math.pow(2.0, -0.5 * df)
    a, b, below, above = (0.5 * df, 0.5, beyond, within) if is_far else (0.5, 0.5 * df, within, beyond)
    share = inverse_of_beta(a, b, below, above)
    ratio = (1.0 - share) / share if is_far else share / (1.0 - share)
    return math.copysign(math.sqrt(df * ratio), centred)


def stdtrit_slopes(df: float, p: float, t: float) -> tuple[float, float]:
    """The slopes of `stdtrit`, which has the value t, in all arguments; where it is infinite they are as well."""
    if abs(t) == math.inf:
        side = math.copysign(1.0, t)
        return t_far_in_df(df, p, side), t_far(df, p, side)
    density = t_density(df, t)
    return -stdtr_slope_in_df(df, t) / density, 1.0 / density


def nrdtrimn(p: float, std: float, x: float) -> float:
    """The mean for which a normal number of this standard deviation is at most x with probability p."""
    return x - std * ndtri(p)


def nrdtrisd(mn: float, p: float, x: float) -> float:
    """The standard deviation for which a normal number of this mean is at most x with probability p."""
    return (x - mn) / ndtri(p)


# --- products of gamma functions -----------------------------------------------------------------------------------


def factorial(n: float) -> float:
    """The gamma function of n + 1, and 0 for negative n."""
    return 0.0 if n < 0 else math.gamma(n + 1.0)


def multigammaln(a: float, d: int) -> float:
    """The logarithm of the gamma function of d dimensions, a sum of that of a - j / 2 over j = 0 … d - 1."""
    total = 0.25 * d * (d - 1) * math.log(math.pi)
    for j in range(d):
        total = total + math.lgamma(a - 0.5 * j)
    return total
