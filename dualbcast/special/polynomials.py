"""Polynomials and quotients of polynomials with constant coefficients, in the language of scalar functions."""

from __future__ import annotations


def polynomial(t: float, coefficients: tuple[float, ...]) -> float:
    """A polynomial by Horner's rule; the coefficient of the highest power comes first."""
    total = 0.0
    for coefficient in coefficients:
        total = total * t + coefficient
    return total


def with_slope(t: float, coefficients: tuple[float, ...]) -> tuple[float, float]:
    """A polynomial and its derivative in t."""
    total, slope = 0.0, 0.0
    for coefficient in coefficients:
        total, slope = total * t + coefficient, slope * t + total
    return total, slope


def quotient(t: float, above: tuple[float, ...], below: tuple[float, ...]) -> float:
    """A quotient of two polynomials."""
    return polynomial(t, above) / polynomial(t, below)
