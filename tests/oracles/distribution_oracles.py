"""Densities and distribution functions in mpmath, by the names of `scipy.stats`, written from their definitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import mpmath as mp
from probability_oracles import lower_beta, lower_gamma

__all__ = ["COUNTS", "DISTRIBUTIONS", "Distribution"]


class Distribution(NamedTuple):
    """The logarithm of a density, and a distribution function, of a number and shapes; and where these are tested."""

    log_density: Callable[..., Any]
    below: Callable[..., Any]
    support: tuple[float, float]
    shapes: tuple[tuple[float, float], ...] = ()


def _normal(z: Any) -> Any:
    return -z * z / 2 - mp.log(2 * mp.pi) / 2


def _student(z: Any, df: Any) -> Any:
    return -mp.log(mp.beta(df / 2, 0.5)) - mp.log(df) / 2 - (df + 1) / 2 * mp.log1p(z * z / df)


def _student_below(z: Any, df: Any) -> Any:
    share = lower_beta(mp.mpf(1) / 2, df / 2, z * z / (df + z * z)) / 2
    return mp.mpf(1) / 2 + (share if z > 0 else -share)


def _f(z: Any, m: Any, n: Any) -> Any:
    return (
        m / 2 * mp.log(m / n)
        + (m / 2 - 1) * mp.log(z)
        - (m + n) / 2 * mp.log1p(m * z / n)
        - mp.log(mp.beta(m / 2, n / 2))
    )


def _gamma(z: Any, a: Any) -> Any:
    return (a - 1) * mp.log(z) - z - mp.loggamma(a)


def _beta(z: Any, a: Any, b: Any) -> Any:
    return (a - 1) * mp.log(z) + (b - 1) * mp.log1p(-z) - mp.log(mp.beta(a, b))


SHAPE = (0.6, 9.0)
DISTRIBUTIONS: dict[str, Distribution] = {
    "norm": Distribution(_normal, mp.ncdf, (-3.0, 3.0)),
    "lognorm": Distribution(
        lambda z, s: _normal(mp.log(z) / s) - mp.log(s * z),
        lambda z, s: mp.ncdf(mp.log(z) / s),
        (0.3, 4.0),
        ((0.4, 2.0),),
    ),
    "halfnorm": Distribution(lambda z: mp.log(2) + _normal(z), lambda z: mp.erf(z / mp.sqrt(2)), (0.1, 3.0)),
    "expon": Distribution(lambda z: -z, lambda z: -mp.expm1(-z), (0.1, 4.0)),
    "gamma": Distribution(_gamma, lambda z, a: lower_gamma(a, z), (0.2, 12.0), (SHAPE,)),
    "chi2": Distribution(
        lambda z, df: _gamma(z / 2, df / 2) - mp.log(2), lambda z, df: lower_gamma(df / 2, z / 2), (0.2, 12.0), (SHAPE,)
    ),
    "weibull_min": Distribution(
        lambda z, c: mp.log(c) + (c - 1) * mp.log(z) - z**c, lambda z, c: -mp.expm1(-(z**c)), (0.1, 2.0), ((0.5, 3.0),)
    ),
    "pareto": Distribution(
        lambda z, b: mp.log(b) - (b + 1) * mp.log(z), lambda z, b: 1 - z**-b, (1.1, 5.0), ((0.5, 4.0),)
    ),
    "rayleigh": Distribution(lambda z: mp.log(z) - z * z / 2, lambda z: -mp.expm1(-z * z / 2), (0.2, 3.0)),
    "uniform": Distribution(lambda z: 0 * z, lambda z: z, (0.1, 0.9)),
    "cauchy": Distribution(lambda z: -mp.log(mp.pi) - mp.log1p(z * z), lambda z: 0.5 + mp.atan(z) / mp.pi, (-5.0, 5.0)),
    "laplace": Distribution(
        lambda z: -abs(z) - mp.log(2), lambda z: 1 - mp.exp(-z) / 2 if z > 0 else mp.exp(z) / 2, (-3.0, 3.0)
    ),
    "logistic": Distribution(lambda z: -z - 2 * mp.log1p(mp.exp(-z)), lambda z: 1 / (1 + mp.exp(-z)), (-4.0, 4.0)),
    "gumbel_r": Distribution(lambda z: -z - mp.exp(-z), lambda z: mp.exp(-mp.exp(-z)), (-1.5, 4.0)),
    "beta": Distribution(_beta, lambda z, a, b: lower_beta(a, b, z), (0.05, 0.95), (SHAPE, SHAPE)),
    "t": Distribution(_student, _student_below, (-4.0, 4.0), (SHAPE,)),
    "f": Distribution(_f, lambda z, m, n: lower_beta(m / 2, n / 2, m * z / (n + m * z)), (0.2, 4.0), (SHAPE, SHAPE)),
}
# Of whole numbers, without a scale.
COUNTS: dict[str, Distribution] = {
    "poisson": Distribution(
        lambda k, mu: k * mp.log(mu) - mp.loggamma(k + 1) - mu,
        lambda k, mu: 1 - lower_gamma(k + 1, mu),
        (0.0, 12.0),
        ((0.5, 9.0),),
    ),
    "binom": Distribution(
        lambda k, n, p: mp.log(mp.binomial(n, k)) + k * mp.log(p) + (n - k) * mp.log1p(-p),
        lambda k, n, p: lower_beta(n - k, k + 1, 1 - p),
        (0.0, 9.0),
        ((10.0, 30.0), (0.1, 0.9)),
    ),
    "nbinom": Distribution(
        lambda k, n, p: mp.loggamma(n + k) - mp.loggamma(k + 1) - mp.loggamma(n) + n * mp.log(p) + k * mp.log1p(-p),
        lambda k, n, p: lower_beta(n, k + 1, p),
        (0.0, 12.0),
        ((0.5, 9.0), (0.1, 0.9)),
    ),
    "geom": Distribution(
        lambda k, p: (k - 1) * mp.log1p(-p) + mp.log(p), lambda k, p: 1 - (1 - p) ** k, (1.0, 9.0), ((0.1, 0.9),)
    ),
}
