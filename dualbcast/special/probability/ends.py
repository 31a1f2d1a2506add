"""Densities at the ends of their intervals, in the language of scalar functions.

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
    return 0.0 if y == 0 else y * ((a - 1.0 - x) / x)


def beta_slope_at_zero(a: float, b: float, x: float, y: float) -> float:
    """The slope in x of the density y."""
    of_rest = (b - 1.0) / (1.0 - x)
    if a >= 1:
        return (a + b - 1.0) * beta_density_at_zero(a - 1.0, b, x) - y * of_rest
    return 0.0 if y == 0 else y * ((a - 1.0) / x - of_rest)


def score_at_zero(y: float) -> float:
    """The slope in `a` of a density y: by the logarithm of 0 where the density is not 0."""
    return 0.0 if y == 0 else -math.inf * y
