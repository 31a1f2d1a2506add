"""Densities and slopes of probabilities at the ends of their intervals, in the language of scalar functions.

Parameters come in and a number that is 0; out goes the density there, whose slopes are densities of other parameters.
They take no function of the library's, so that kernels of densities do not become slower by them.
"""

from __future__ import annotations

import math

# A function has a slope in an argument that its value does not need.
# ruff: noqa: ARG001


def gamma_density_at_zero(a: float, x: float) -> float:
    """x**(a - 1) * exp(-x) / gamma(a) where x is 0."""
    return 0.0 if a > 1 or a == 0 else 1.0 if a == 1 else math.inf


def beta_density_at_zero(a: float, b: float, x: float) -> float:
    """x**(a - 1) * (1 - x)**(b - 1) / beta(a, b) where x is 0."""
    return 0.0 if a > 1 or a == 0 else b if a == 1 else math.inf


def gamma_slope_at_zero(a: float, x: float, y: float) -> float:
    """The slope in x of the density y."""
    if a >= 1:
        return gamma_density_at_zero(a - 1.0, x) - y
    return 0.0 if y == 0 else y * ((a - 1.0) / x - 1.0)


def beta_slope_at_zero(a: float, b: float, x: float, y: float) -> float:
    """The slope in x of the density y."""
    of_rest = (b - 1.0) / (1.0 - x)
    if a >= 1:
        return (a + b - 1.0) * beta_density_at_zero(a - 1.0, b, x) - y * of_rest
    return 0.0 if y == 0 else y * ((a - 1.0) / x - of_rest)


def score_at_zero(y: float) -> float:
    """The slope in `a` of a density y: by the logarithm of 0 where the density is not 0."""
    return 0.0 if y == 0 else -math.inf * y


def still(x: float, rate: float) -> float:
    """A slope that is 0 at the end x of an interval, and changes with x at this rate."""
    return 0.0


def odds_at_zero(ratio: float, z: float) -> float:
    """ratio * z where z is 0: the ratio moves it nowhere, not even where its slopes are infinite."""
    return ratio * z


def odds_density_at_zero(a: float, b: float, odds: float) -> float:
    """odds**(a - 1) / (1 + odds)**(a + b) / beta(a, b) where the odds are 0."""
    return 0.0 if a > 1 or a == 0 else b if a == 1 else math.inf


def odds_slope_at_zero(a: float, b: float, odds: float, y: float) -> float:
    """The slope in the odds of the density y."""
    if a >= 1:
        return b * (odds_density_at_zero(a - 1.0, b + 1.0, odds) - odds_density_at_zero(a, b + 1.0, odds))
    return 0.0 if y == 0 else y * ((a - 1.0) / odds)


def f_density_at_zero(dfn: float, dfd: float, z: float) -> float:
    """The density of the F distribution where z is 0."""
    if not (dfn > 0 and dfd > 0):
        return math.nan
    return 0.0 if dfn > 2 else 1.0 if dfn == 2 else math.inf


def f_slope_at_zero(dfn: float, dfd: float, z: float, y: float) -> float:
    """The slope in z of the density y."""
    ratio = dfn / dfd
    return ratio * ratio * odds_slope_at_zero(0.5 * dfn, 0.5 * dfd, odds_at_zero(ratio, z), y)


def weibull_density_at_zero(c: float, z: float) -> float:
    """The density of the Weibull distribution where z is 0."""
    if not c > 0:
        return math.nan
    return 0.0 if c > 1 else 1.0 if c == 1 else math.inf


def weibull_slope_at_zero(c: float, z: float) -> float:
    """The slope in z of that density. Its own slope is right as well: infinite, or that of the polynomial."""
    if c > 2:
        return 0.0 if c > 3 else 6.0 * z if c == 3 else math.sqrt(z)
    return 2.0 if c == 2 else 1.0 / z if c > 1 else z - 1.0 if c == 1 else -1.0 / z
