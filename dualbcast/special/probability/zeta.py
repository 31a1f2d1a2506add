"""Riemann's and Hurwitz' zeta functions of real numbers, in the language of scalar functions.

Euler-Maclaurin summation, DLMF 25.11.5 and 25.2.9, of ten terms and a series; for negative arguments the reflection
formula DLMF 25.4.1. The derivatives in both arguments are those of the same sums.
"""

from __future__ import annotations

import math

from dualbcast.special.trigonometric import sinpi

# As many terms are summed before the series begins, which then leaves out less than a rounding.
TERMS = 10
# B_2j / (2j)! for j = 1, 2, …
_SERIES = (
    1 / 12,
    -1 / 720,
    1 / 30240,
    -1 / 1209600,
    1 / 47900160,
    -691 / 1307674368000,
    1 / 74724249600,
    -3617 / 10670622842880000,
    43867 / 5109094217170944000,
    -174611 / 802857662698291200000,
)


def zeta(x: float, q: float | None = None) -> float:
    """The zeta function: the sum of (k + q)**-x over k = 0, 1, …

    Parameters
    ----------
    x : float
        With `q` a number above 1; at 1 the result is inf, and below NaN. Without it any number: Riemann's function.
    q : float, optional
        Positive; else the result is NaN.

    Returns
    -------
    float
        To some ten units in the last place; for negative x of the factors of the reflection formula.

    Examples
    --------
    >>> round(zeta(2.0) - math.pi**2 / 6, 12), zeta(0.0)
    (0.0, -0.5)
    >>> round(zeta(2.0, 1.5) - (math.pi**2 / 2 - 4), 12)
    0.0
    """
    return riemann_zeta(x) if q is None else shifted_zeta(x, q)


def riemann_zeta(x: float) -> float:
    """The zeta function of one number."""
    if x == 1:
        return math.inf
    if x < 0:
        return mirror(x) * summed(1.0 - x, 1.0)
    return 1.0 if x > 100 else summed(x, 1.0)


def mirror(x: float) -> float:
    """zeta(x) / zeta(1 - x)."""
    # The gamma function overflows where the result does.
    return 2.0 * math.pow(2.0 * math.pi, x - 1.0) * (sinpi(0.5 * x) * math.gamma(1.0 - x))


def shifted_zeta(x: float, q: float) -> float:
    """Hurwitz' zeta function for x > 1 and q > 0."""
    if not (x > 1 and q > 0):
        return math.inf if x == 1 else math.nan
    return summed(x, q)


def zetac(x: float) -> float:
    """The zeta function less 1, also where it is close to 1.

    Examples
    --------
    >>> round(zetac(60.0) * 2**60, 8)
    1.0
    """
    return summed(x, 2.0) if x > 1 else riemann_zeta(x) - 1.0


def summed(x: float, q: float) -> float:
    """The sum of (k + q)**-x over k = 0, 1, …, or what it is continued to for 0 <= x < 1; x is not 1."""
    total = 0.0
    for k in range(TERMS):
        total = total + math.pow(q + k, -x)
    start = q + TERMS
    head = math.pow(start, -x)
    # Not head * start, whose slope in q would cancel where x is close to 1.
    total = total + math.pow(start, 1.0 - x) / (x - 1.0) + 0.5 * head
    term = head * x / start
    for j, factor in enumerate(_SERIES):
        total = total + factor * term
        term = term * (x + (2 * j + 1)) / start * ((x + (2 * j + 2)) / start)
    return total
