"""The rule table's rows of error, gamma and beta functions and of distributions, with the partials of their slopes.

As in `library`, partials are functions of the arguments and then of the result `y`, in the scalar language.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from dualbcast import special
from dualbcast.rules.curvatures import logistic_density, partials, power_slope
from dualbcast.rules.registration import alias, rule
from dualbcast.special.probability import (
    closed_form_distributions,
    dawson,
    distributions,
    error,
    incomplete_beta,
    incomplete_gamma_slopes,
    located_distributions,
    log_normal,
    log_terms,
    probabilities,
    quantile_ends,
    stirling,
)
from dualbcast.special.probability.beta_functions import (
    beta_curvature,
    beta_mixed_slope,
    beta_score,
    beta_slope,
    rgamma_slope,
)
from dualbcast.special.probability.distributions import probability
from dualbcast.special.probability.ends import (
    beta_density_at_zero,
    beta_slope_at_zero,
    f_density_at_zero,
    f_slope_at_zero,
    gamma_density_at_zero,
    gamma_slope_at_zero,
    odds_at_zero,
    odds_density_at_zero,
    odds_slope_at_zero,
    score_at_zero,
    still,
    weibull_density_at_zero,
    weibull_slope_at_zero,
)
from dualbcast.special.probability.incomplete_beta import (
    beta_density,
    beta_density_slopes,
    beta_term,
    beta_term_slopes,
    betainc_slopes,
    betaincc_slopes,
    betainccinv_slopes,
    betaincinv_slopes,
)
from dualbcast.special.probability.incomplete_gamma_slopes import (
    gamma_density,
    gamma_density_slope,
    gamma_score,
    gammainc_slope_in_a,
    gammainccinv_slopes,
    gammaincinv_slopes,
    poisson_score,
    poisson_slope,
)

# All partials have the same parameters; some need only a few of them.
# ruff: noqa: ARG005

NEAR = (-4.0, 4.0)


def _rule(function: Callable[..., Any], of: Callable[..., Any], **parts: Any) -> None:
    """Add the row of a function that SciPy has under the same name."""
    rule(function.__name__, of, f"scipy.special.{function.__name__}", function=function, **parts)


# --- the error function and the normal distribution ----------------------------------------------------------------

_rule(special.erfcx, lambda x, y: (error.erfcx_slope(x),), domain=(NEAR,))
_rule(special.erfcinv, lambda x, y: (-error.erfinv_slope(y),), domain=((1e-2, 1.99),))
_rule(special.log_ndtr, lambda x, y: (log_normal.log_ndtr_slope(x),))
_rule(special.ndtri_exp, lambda p, y: (1.0 / log_normal.log_ndtr_slope(y),), domain=((-50.0, -1e-3),))

_rule(special.dawsn, lambda x, y: (dawson.dawsn_slope(x, y),), domain=(NEAR,))
_rule(special.erfi, lambda x, y: (error.TWO_OVER_SQRT_PI * error.scaled_exponential(x),), domain=(NEAR,))

partials(lambda x, y: (2.0 * x * y,))(error.scaled_exponential)
partials(lambda x, y: (error.erfcx_curvature(x),))(error.erfcx_slope)
partials(lambda x, y: (log_normal.log_ndtr_curvature(x, y),))(log_normal.log_ndtr_slope)

# --- the incomplete gamma functions -------------------------------------------------------------------------------

SHAPE, SMALL = (0.3, 40.0), (0.3, 9.5)
INSIDE = (0.01, 0.99)
SHARE, MIDDLE = (0.8, 20.0), (0.05, 0.95)

_rule(special.gammainc, lambda a, x, y: (gammainc_slope_in_a(a, x), gamma_density(a, x)), domain=(SHAPE, SHAPE))
_rule(special.gammaincc, lambda a, x, y: (-gammainc_slope_in_a(a, x), -gamma_density(a, x)), domain=(SHAPE, SHAPE))
_rule(
    special.gammaincinv,
    lambda a, p, y: gammaincinv_slopes(a, p, y),
    domain=(SHAPE, INSIDE),
)
_rule(
    special.gammainccinv,
    lambda a, q, y: gammainccinv_slopes(a, q, y),
    domain=(SHAPE, INSIDE),
)

# Factors of the functions below, which kernels compute once.
rule("stirling_ratio", lambda a, y: (y * stirling.digamma_rest(a),), function=stirling.stirling_ratio, domain=(SHAPE,))
rule(
    "log_stirling_ratio",
    lambda a, y: (stirling.digamma_rest(a),),
    function=stirling.log_stirling_ratio,
    domain=(SHAPE,),
)
rule("digamma_rest", lambda a, y: (stirling.digamma_rest_slope(a),), function=stirling.digamma_rest, domain=(SHAPE,))
rule(
    "poisson_term",
    lambda a, x, y: (poisson_score(a, x, y), poisson_slope(a, x, y)),
    function=stirling.poisson_term,
    domain=(SHAPE, SHAPE),
)
rule(
    "beta_term",
    lambda a, b, x, y, t: beta_term_slopes(a, b, x, y, t),
    function=beta_term,
    domain=(SMALL, SMALL, INSIDE, INSIDE),
)

# --- quotients of gamma functions, and the incomplete beta functions -----------------------------------------------

_rule(special.rgamma, lambda x, y: (rgamma_slope(x, y),), domain=((0.1, 15.0),))
_rule(special.beta, lambda a, b, y: (beta_slope(a, b, y), beta_slope(b, a, y)), domain=(SHAPE, SHAPE))
_rule(special.betaln, lambda a, b, y: (beta_score(a, b), beta_score(b, a)), domain=(SHAPE, SHAPE))
_rule(
    special.poch,
    lambda z, m, y: (-y * beta_score(z, m), y * special.digamma(z + m)),
    domain=(SHAPE, (0.1, 10.0)),
)
_rule(
    special.binom,
    lambda n, k, y: (-y * beta_score(n - k + 1.0, k), -y * beta_score(k + 1.0, n - 2.0 * k)),
    domain=((10.0, 30.0), (0.5, 9.5)),
)
_rule(special.betainc, lambda a, b, x, y: betainc_slopes(a, b, x), domain=(SHARE, SHARE, MIDDLE))
_rule(special.betaincc, lambda a, b, x, y: betaincc_slopes(a, b, x), domain=(SHARE, SHARE, MIDDLE))
_rule(special.betaincinv, lambda a, b, p, y: betaincinv_slopes(a, b, p, y), domain=(SHARE, SHARE, MIDDLE))
_rule(special.betainccinv, lambda a, b, q, y: betainccinv_slopes(a, b, q, y), domain=(SHARE, SHARE, MIDDLE))
for _function in (special.gammasgn, special.loggamma, special.zeta, special.zetac):
    alias(_function, f"scipy.special.{_function.__name__}")

partials(
    lambda a, b, y, slope: (
        beta_curvature(a, b, y, slope),
        beta_mixed_slope(a, b, y),
        0,
    )
)(beta_slope)
# The text of the slope in b would cancel where a is small.
partials(lambda a, b, y: (stirling.trigamma_gap(a, b), special.polygamma(1, a + b)))(stirling.digamma_gap)
partials(
    lambda a, b, y: (
        stirling.trigamma_gap(a, b) + b / a / (a + b),
        special.polygamma(1, a + b) - 1.0 / (a + b),
    )
)(stirling.digamma_gap_rest)
# Logarithms of densities, whose texts have longer slopes, and ones that cancel.
partials(lambda u, logarithm, y: (-u / (1.0 + u), 0))(log_terms.log_rest)
partials(lambda a, x, y: (log_terms.gamma_log_slope_in_a(a, x), log_terms.gamma_log_slope(a, x)))(
    log_terms.gamma_log_term
)
partials(lambda a, x, y: (1.0 / x, (1.0 - a) * (1.0 / x) * (1.0 / x)))(log_terms.gamma_log_slope)
partials(lambda a, x, y: (math.log(x) - special.digamma(a + 1.0), log_terms.log_poisson_slope(a, x)))(
    log_terms.log_poisson_term
)
partials(lambda a, x, y: (1.0 / x, 0.0 if a == 0 else -a * (1.0 / x) * (1.0 / x)))(log_terms.log_poisson_slope)
partials(
    lambda a, b, x, y: (
        math.log(x) + stirling.digamma_gap(a + 1.0, b),
        math.log1p(-x) + stirling.digamma_gap(b + 1.0, a),
        log_terms.slope_of_power(a, x) - log_terms.slope_of_power(b, 1.0 - x),
    )
)(log_terms.log_binomial_term)
partials(
    lambda a, b, x, y: (
        stirling.digamma_gap(a + 1.0, b),
        math.log1p(-x) + stirling.digamma_gap(b + 1.0, a),
        -log_terms.slope_of_power(b, 1.0 - x),
    )
)(log_terms.log_without_power)
partials(
    lambda a, b, x, y: (
        log_terms.beta_logarithms(a, b, x)[0] + stirling.digamma_gap_rest(a, b),
        log_terms.beta_logarithms(a, b, x)[1] + stirling.digamma_gap_rest(b, a),
        log_terms.beta_log_slope(a, b, x),
    )
)(log_terms.beta_log_term)
partials(
    lambda m, n, z, y: (
        log_terms.f_score_in_dfn(m, n, z),
        log_terms.f_score_in_dfd(m, n, z),
        log_terms.f_score(m, n, z),
    )
)(log_terms.f_log_term)
partials(lambda df, t, y: (log_terms.t_score_in_df(df, t), log_terms.t_score(df, t)))(log_terms.t_log_density)
partials(lambda df, t, y: log_terms.t_score_slopes(df, t))(log_terms.t_score)
partials(lambda df, t, y: (log_terms.t_curvature_in_df(df, t), log_terms.t_score_slopes(df, t)[0]))(
    log_terms.t_score_in_df
)
partials(lambda m, n, z, y: log_terms.f_score_slopes(m, n, z, y))(log_terms.f_score)
partials(
    lambda m, n, z, y: (
        y * log_terms.f_score_in_dfn(m, n, z),
        y * log_terms.f_score_in_dfd(m, n, z),
        log_terms.f_density_slope(m, n, z, y),
    )
)(log_terms.f_density)
partials(lambda m, n, z, y, slope: (*log_terms.f_density_curvatures(m, n, z, y, slope), 0))(log_terms.f_density_slope)
# In these the density y is given, and their slopes are those of changes that it takes part in.
partials(
    lambda a, x, y, slope: (
        incomplete_gamma_slopes.inner_term_slope_in_a(a, x, y, slope),
        incomplete_gamma_slopes.inner_term_curvature(a, x, y),
        0,
    )
)(incomplete_gamma_slopes.inner_term_slope)
partials(lambda a, b, x, y, slope: (*incomplete_beta.inner_density_slopes(a, b, x, y, slope), 0))(
    incomplete_beta.inner_density_slope
)
partials(lambda a, b, x, y: beta_density_slopes(a, b, x, y))(beta_density)
partials(lambda a, x, y: (gamma_score(a, x, y), gamma_density_slope(a, x, y)))(gamma_density)
partials(lambda a, x, y: (score_at_zero(y), gamma_slope_at_zero(a, x, y)))(gamma_density_at_zero)
partials(lambda a, b, x, y: (score_at_zero(y), y / b, beta_slope_at_zero(a, b, x, y)))(beta_density_at_zero)
partials(lambda c, z, y: (score_at_zero(y), weibull_slope_at_zero(c, z)))(weibull_density_at_zero)
partials(lambda x, rate, y: (rate, 0))(still)
partials(lambda ratio, z, y: (0, ratio))(odds_at_zero)
partials(
    lambda a, p, y: (quantile_ends.rising(a), quantile_ends.second(a, 0.5 * math.pi, 1.0)),
)(quantile_ends.gamma_start)
partials(lambda a, p, y: (0.0, quantile_ends.rising(a)))(quantile_ends.gamma_start_in_a)
partials(lambda a, p, y: (math.inf, math.inf))(quantile_ends.gamma_far)
partials(lambda c, p, y: (quantile_ends.rising(c), quantile_ends.second(c, 2.0, 1.0)))(quantile_ends.weibull_start)
partials(lambda c, p, y: (0.0, quantile_ends.rising(c)))(quantile_ends.weibull_start_in_c)
partials(lambda c, p, y: (-math.inf, math.inf))(quantile_ends.weibull_far)
partials(lambda c, p, y: (math.inf, -math.inf))(quantile_ends.weibull_far_in_c)
partials(lambda a, p, y: (-special.polygamma(1, a), math.inf))(quantile_ends.gamma_far_in_a)
partials(
    lambda a, b, p, y: (
        quantile_ends.rising(a),
        quantile_ends.beta_start_mixed(a, b),
        quantile_ends.beta_start_bend(a, b),
    )
)(quantile_ends.beta_start)
partials(lambda a, b, p, y: (0.0, 0.0, quantile_ends.rising(a)))(quantile_ends.beta_start_in_a)
partials(lambda a, b, p, y: (0.0, 0.0, quantile_ends.beta_start_mixed(a, b)))(quantile_ends.beta_start_in_b)
partials(
    lambda m, n, p, y: (
        quantile_ends.rising(0.5 * m),
        math.inf if m > 2 else 0.0,
        quantile_ends.f_start_bend(m, n),
    )
)(quantile_ends.f_start)
partials(lambda m, n, p, y: (0.0, 0.0, quantile_ends.rising(0.5 * m)))(quantile_ends.f_start_in_dfn)
partials(lambda m, n, p, y: (0.0, 0.0, math.inf if m > 2 else 0.0))(quantile_ends.f_start_in_dfd)
partials(lambda m, n, p, y: (quantile_ends.f_far_mixed(m, n), -math.inf, math.inf))(quantile_ends.f_far)
partials(
    lambda m, n, p, y: (
        quantile_ends.f_far_bend_in_dfn(m, n),
        -math.inf if n == 2 else math.copysign(math.inf, n - 2.0),
        quantile_ends.f_far_mixed(m, n),
    )
)(quantile_ends.f_far_in_dfn)
partials(
    lambda m, n, p, y: (
        -math.inf if n == 2 else math.copysign(math.inf, n - 2.0),
        math.inf,
        -math.inf,
    )
)(quantile_ends.f_far_in_dfd)
partials(lambda df, p, side, y: (-math.inf, side * math.inf, 0))(quantile_ends.t_far)
partials(lambda df, p, side, y: (side * math.inf, -math.inf, 0))(quantile_ends.t_far_in_df)
partials(lambda a, b, odds, y: (score_at_zero(y), y / b, odds_slope_at_zero(a, b, odds, y)))(odds_density_at_zero)
partials(lambda m, n, z, y: (score_at_zero(y), 0.0 if m >= 2 else y, f_slope_at_zero(m, n, z, y)))(f_density_at_zero)

# --- distributions -------------------------------------------------------------------------------------------------

partials(
    lambda df, t, y: (probabilities.stdtr_slope_in_df(df, t), probabilities.t_density(df, t)),
)(probabilities.stdtr)
partials(lambda df, p, y: probabilities.stdtrit_slopes(df, p, y))(probabilities.stdtrit)


def weibull_quantile_slopes(size: float, rest: float, p: float, c: float, y: float) -> tuple[float, float]:
    """The slopes of y = size**(1 / c) in the probability p = 1 - exp(-size) and in c; `rest` is 1 - p."""
    if p == 0:
        return quantile_ends.weibull_start(c, p), quantile_ends.weibull_start_in_c(c, p)
    if rest == 0:
        return quantile_ends.weibull_far(c, p), quantile_ends.weibull_far_in_c(c, p)
    return power_slope(size, 1.0 / c, y) / rest, 0.0 if y == 0 else -(y * math.log(size)) / (c * c)


# Their texts would overflow or cancel in the tails, or be 0 * inf at an end.
partials(lambda z, y: (0.0 if y == 0 else -2.0 * math.pi * (z * y) * y,))(closed_form_distributions.cauchy_pdf)
partials(lambda z, y: (closed_form_distributions.cauchy_score(z),))(closed_form_distributions.cauchy_logpdf)
partials(lambda z, y: (closed_form_distributions.cauchy_log_curvature(z),))(closed_form_distributions.cauchy_score)
partials(lambda q, y: (math.pi + math.pi * y * y,))(closed_form_distributions.cauchy_ppf)
partials(lambda q, y: (-math.pi - math.pi * y * y,))(closed_form_distributions.cauchy_isf)
partials(lambda z, y: (-y * closed_form_distributions.logistic_bend(z),))(closed_form_distributions.logistic_pdf)
partials(lambda z, y: (-closed_form_distributions.logistic_bend(z),))(closed_form_distributions.logistic_logpdf)
partials(lambda z, y: (2.0 * logistic_density(z),))(closed_form_distributions.logistic_bend)
partials(lambda z, y: (closed_form_distributions.gumbel_bend(z),))(closed_form_distributions.gumbel_r_logpdf)
partials(lambda z, y: (y * closed_form_distributions.gumbel_bend(z),))(closed_form_distributions.gumbel_density)
partials(lambda z, y: (-math.exp(-z),))(closed_form_distributions.gumbel_bend)
partials(lambda z, s, y: distributions.lognormal_slopes(z, s, y))(distributions.lognormal_density)
partials(lambda q, y: (closed_form_distributions.gumbel_quantile_slope(q),))(closed_form_distributions.gumbel_r_ppf)
partials(lambda q, y: (y * y * (1.0 + math.log(q)),))(closed_form_distributions.gumbel_quantile_slope)
partials(lambda q, y: (closed_form_distributions.rayleigh_quantile_slope(q, y),))(
    closed_form_distributions.rayleigh_ppf
)
# The given quantile changes with q.
partials(lambda q, x, y: (y / (1.0 - q) * (1.0 - 1.0 / (x * x)), 0))(closed_form_distributions.rayleigh_quantile_slope)
partials(lambda q, c, y: weibull_quantile_slopes(-math.log1p(-probability(q)), 1.0 - q, q, c, y))(
    closed_form_distributions.weibull_min_ppf
)
partials(
    lambda q, c, y: (
        -weibull_quantile_slopes(-math.log(probability(q)), q, 1.0 - q, c, y)[0],
        weibull_quantile_slopes(-math.log(probability(q)), q, 1.0 - q, c, y)[1],
    )
)(closed_form_distributions.weibull_min_isf)
partials(lambda q, s, y: distributions.lognormal_quantile_slopes(special.ndtri(q), q, s, y))(distributions.lognorm_ppf)
partials(
    lambda q, s, y: (
        -distributions.lognormal_quantile_slopes(-special.ndtri(q), 1.0 - q, s, y)[0],
        distributions.lognormal_quantile_slopes(-special.ndtri(q), 1.0 - q, s, y)[1],
    )
)(distributions.lognorm_isf)
partials(lambda z, y: (logistic_density(z),))(closed_form_distributions.logistic_cdf)
partials(lambda m, n, z, y: probabilities.f_slopes(m, n, z))(probabilities.fdtr)
partials(
    lambda m, n, z, y: (
        -probabilities.f_slopes(m, n, z)[0],
        -probabilities.f_slopes(m, n, z)[1],
        -probabilities.f_slopes(m, n, z)[2],
    )
)(probabilities.fdtrc)
partials(lambda m, n, p, y: probabilities.fdtri_slopes(m, n, p, y))(probabilities.fdtri)
for _name in probabilities.UNDER_SCIPYS_NAMES:
    alias(getattr(probabilities, _name), f"scipy.special.{_name}")
for _spelling, _method in located_distributions.METHODS.items():
    alias(_method, _spelling)
