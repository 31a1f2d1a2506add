"""Polynomials in the language of scalar functions."""

from __future__ import annotations

from collections.abc import Iterable


def horner(x: float, coefficients: Iterable[float]) -> float:
    """The polynomial with these coefficients, that of the highest power first, by Horner's rule.

    Examples
    --------
    >>> horner(2.0, (1.0, 0.0, 3.0))
    7.0
    """
    total = 0.0
    for coefficient in coefficients:
        total = total * x + coefficient
    return total
