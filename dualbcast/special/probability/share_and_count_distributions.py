"""Distributions of `scipy.stats`, as in `distributions`: of shares, of ratios, and of counts."""

from __future__ import annotations

import math

import numpy as np

from dualbcast.special.exponentials import xlog1py, xlogy
from dualbcast.special.probability.distributions import outside, positive
from dualbcast.special.probability.ends import f_density_at_zero
from dualbcast.special.probability.incomplete_beta import beta_density, betainc, betaincc
from dualbcast.special.probability.incomplete_beta_inverses import betainccinv, betaincinv
from dualbcast.special.probability.log_terms import (
    beta_log_term,
    binomial_probability,
    f_density,
    f_log_term,
    log_binomial_term,
    log_poisson_term,
    t_log_density,
)
from dualbcast.special.probability.probabilities import (
    bdtr,
    bdtrc,
    fdtr,
    fdtrc,
    fdtri,
    pdtr,
    pdtrc,
    stdtr,
    stdtrit,
)
from dualbcast.special.probability.stirling import poisson_term

# --- shares, Student's and the F distribution ----------------------------------------------------------------------


def beta_pdf(z: float, a: float, b: float) -> float:
    """The density of the beta distribution."""
    return beta_density(a, b, z) if 0 <= z <= 1 else outside(z, min(a, b), 0.0)


def beta_logpdf(z: float, a: float, b: float) -> float:
    """The logarithm of the density of the beta distribution."""
    if not 0 <= z <= 1:
        return outside(z, min(a, b), -math.inf)
    return beta_log_term(positive(a), positive(b), z)


def beta_cdf(z: float, a: float, b: float) -> float:
    """The probability that a beta-distributed number is at most x."""
    return betainc(a, b, min(max(z, 0.0), 1.0))


def beta_sf(z: float, a: float, b: float) -> float:
    """The probability that a beta-distributed number is greater than x."""
    return betaincc(a, b, min(max(z, 0.0), 1.0))


def beta_ppf(q: float, a: float, b: float) -> float:
    """The number that a beta-distributed number is at most with probability q."""
    return betaincinv(a, b, q)


def beta_isf(q: float, a: float, b: float) -> float:
    """The number that a beta-distributed number exceeds with probability q."""
    return betainccinv(a, b, q)


def t_pdf(z: float, df: float) -> float:
    """The density of Student's t distribution."""
    return math.exp(t_log_density(df, z))


def t_logpdf(z: float, df: float) -> float:
    """The logarithm of the density of Student's t distribution."""
    return t_log_density(df, z)


def t_cdf(z: float, df: float) -> float:
    """The probability that a number with Student's t distribution is at most x."""
    return stdtr(df, z)


def t_sf(z: float, df: float) -> float:
    """The probability that a number with Student's t distribution is greater than x."""
    return stdtr(df, -z)


def t_ppf(q: float, df: float) -> float:
    """The number that one with Student's t distribution is at most with probability q."""
    return stdtrit(df, q)


def t_isf(q: float, df: float) -> float:
    """The number that one with Student's t distribution exceeds with probability q."""
    return -stdtrit(df, q)


def f_pdf(z: float, dfn: float, dfd: float) -> float:
    """The density of the F distribution."""
    if not 0 <= z < math.inf:
        return outside(z, min(dfn, dfd), 0.0)
    if z == 0:
        return f_density_at_zero(positive(dfn), positive(dfd), z)
    return f_density(positive(dfn), positive(dfd), z)


def f_logpdf(z: float, dfn: float, dfd: float) -> float:
    """The logarithm of the density of the F distribution."""
    if not 0 <= z < math.inf:
        return outside(z, min(dfn, dfd), -math.inf)
    if z == 0:
        # The slopes of this are the limits.
        return xlogy(0.5 * positive(dfn) - 1.0, z) - (1.0 + dfn / positive(dfd)) * z
    return f_log_term(positive(dfn), positive(dfd), z)


def f_cdf(z: float, dfn: float, dfd: float) -> float:
    """The probability that a number with the F distribution is at most x."""
    return fdtr(dfn, dfd, z) if z >= 0 else outside(z, min(dfn, dfd), 0.0)


def f_sf(z: float, dfn: float, dfd: float) -> float:
    """The probability that a number with the F distribution is greater than x."""
    return fdtrc(dfn, dfd, z) if z >= 0 else outside(z, min(dfn, dfd), 1.0)


def f_ppf(q: float, dfn: float, dfd: float) -> float:
    """The number that one with the F distribution is at most with probability q."""
    return fdtri(dfn, dfd, q)


# --- counts --------------------------------------------------------------------------------------------------------


def poisson_pmf(k: float, mu: float) -> float:
    """The probability of k events where their expectation is mu."""
    return poisson_term(k, mu) if is_count(k) and mu >= 0 else not_counted(k, mu, 0.0)


def poisson_logpmf(k: float, mu: float) -> float:
    """The logarithm of the probability of k events where their expectation is mu."""
    return log_poisson_term(k, mu) if is_count(k) and 0 <= mu < math.inf else not_counted(k, mu, -math.inf)


def poisson_cdf(k: float, mu: float) -> float:
    """The probability of at most k events where their expectation is mu."""
    return pdtr(k, mu) if k >= 0 else not_counted(k, mu, 0.0)


def poisson_sf(k: float, mu: float) -> float:
    """The probability of more than k events where their expectation is mu."""
    return pdtrc(k, mu) if k >= 0 else not_counted(k, mu, 1.0)


def binom_pmf(k: float, n: float, p: float) -> float:
    """The probability of k successes in n trials of probability p."""
    if not (is_count(k) and k <= n and 0 <= p <= 1):
        return not_counted(k, p if p <= 1 and n >= 0 else math.nan, 0.0)
    return binomial_probability(k, n - k, p, 0.0)


def binom_logpmf(k: float, n: float, p: float) -> float:
    """The logarithm of the probability of k successes in n trials of probability p."""
    if not (is_count(k) and k <= n and 0 <= p <= 1):
        return not_counted(k, p if p <= 1 and n >= 0 else math.nan, -math.inf)
    return log_binomial_term(k, n - k, p)


def binom_cdf(k: float, n: float, p: float) -> float:
    """The probability of at most k successes in n trials of probability p."""
    return bdtr(min(k, n), n, p) if k >= 0 else not_counted(k, p if p <= 1 and n >= 0 else math.nan, 0.0)


def binom_sf(k: float, n: float, p: float) -> float:
    """The probability of more than k successes in n trials of probability p."""
    return bdtrc(min(k, n), n, p) if k >= 0 else not_counted(k, p if p <= 1 and n >= 0 else math.nan, 1.0)


def nbinom_pmf(k: float, n: float, p: float) -> float:
    """The probability of k failures before the n-th success, which has the probability p."""
    if not (is_count(k) and n > 0 and 0 <= p <= 1):
        return not_counted(k, p if p <= 1 and n > 0 else math.nan, 0.0)
    return binomial_probability(n, k, p, math.log(n / (n + k)))


def nbinom_logpmf(k: float, n: float, p: float) -> float:
    """The logarithm of the probability of k failures before the n-th success, which has the probability p."""
    if not (is_count(k) and n > 0 and 0 <= p <= 1):
        return not_counted(k, p if p <= 1 and n > 0 else math.nan, -math.inf)
    return log_binomial_term(n, k, p) + math.log(n / (n + k))


def geom_pmf(k: float, p: float) -> float:
    """The probability that the first success, which has the probability p, is at the k-th trial."""
    if not (is_count(k) and k >= 1 and 0 < p <= 1):
        return not_counted(k, p if 0 < p <= 1 else math.nan, 0.0)
    # 1 - p is exact from 1/2 on; below, its power would magnify what it is rounded by.
    return p * (math.exp(xlog1py(k - 1.0, -p)) if p < 0.5 else math.pow(1.0 - p, k - 1.0))


def geom_logpmf(k: float, p: float) -> float:
    """The logarithm of the probability that the first success, which has the probability p, is at the k-th trial."""
    if not (is_count(k) and k >= 1 and 0 < p <= 1):
        return not_counted(k, p if 0 < p <= 1 else math.nan, -math.inf)
    return xlog1py(k - 1.0, -p) + math.log(p)


def is_count(k: float) -> bool:
    """Whether k is a whole number that is neither negative nor infinite."""
    return 0 <= k < math.inf and k == float(np.floor(k))


def not_counted(k: float, parameter: float, value: float) -> float:
    """The value where k is not among the counts; NaN if it, or the parameter, is no number or negative."""
    return value if k == k and parameter >= 0 else math.nan
