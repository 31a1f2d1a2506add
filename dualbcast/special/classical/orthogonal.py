"""Orthogonal polynomials of whole degrees by their recurrences, in the language of scalar functions.

The recurrences are 22.7 of Abramowitz and Stegun, *Handbook of Mathematical Functions*. They have no rules: derivatives
are those of the loops, also in parameters that are floats. Where no identity has a negative degree, it gives NaN.
The error grows with the degree: by a unit or two for each, in units of the largest value in the interval.
"""

from __future__ import annotations

import math


def eval_legendre(n: int, x: float) -> float:
    """Legendre's polynomial P_n(x); that of -n - 1 is the same.

    Examples
    --------
    >>> eval_legendre(2, 2.0)
    5.5
    """
    before, value = 0.0, 1.0
    for k in range(n if n >= 0 else -n - 1):
        before, value = value, ((2 * k + 1) * x * value - k * before) / (k + 1)
    return value


def eval_chebyt(n: int, x: float) -> float:
    """Chebyshev's polynomial of the first kind, T_n(x); that of -n is the same.

    Examples
    --------
    >>> eval_chebyt(3, 0.5)
    -1.0
    """
    before, value = x, 1.0
    for _ in range(abs(n)):
        before, value = value, 2.0 * x * value - before
    return value


def eval_chebyu(n: int, x: float) -> float:
    """Chebyshev's polynomial of the second kind, U_n(x); that of -n - 2 is minus the same.

    Examples
    --------
    >>> eval_chebyu(3, 0.5)
    -1.0
    """
    before, value = 0.0, 1.0 if n >= 0 else -1.0
    for _ in range(n if n >= 0 else -n - 2):
        before, value = value, 2.0 * x * value - before
    return 0.0 if n == -1 else value


def eval_chebyc(n: int, x: float) -> float:
    """Chebyshev's polynomial C_n(x) = 2 * T_n(x / 2).

    Examples
    --------
    >>> eval_chebyc(2, 3.0)
    7.0
    """
    return 2.0 * eval_chebyt(n, 0.5 * x)


def eval_chebys(n: int, x: float) -> float:
    """Chebyshev's polynomial S_n(x) = U_n(x / 2).

    Examples
    --------
    >>> eval_chebys(2, 3.0)
    8.0
    """
    return eval_chebyu(n, 0.5 * x)


def eval_hermite(n: int, x: float) -> float:
    """Hermite's polynomial H_n(x) of the weight exp(-x**2).

    Examples
    --------
    >>> eval_hermite(3, 1.0)
    -4.0
    """
    before, value = 0.0, 1.0 if n >= 0 else math.nan
    for k in range(n):
        before, value = value, 2.0 * (x * value - k * before)
    return value


def eval_hermitenorm(n: int, x: float) -> float:
    """Hermite's polynomial He_n(x) of the weight exp(-x**2 / 2).

    Examples
    --------
    >>> eval_hermitenorm(3, 1.0)
    -2.0
    """
    before, value = 0.0, 1.0 if n >= 0 else math.nan
    for k in range(n):
        before, value = value, x * value - k * before
    return value


def eval_laguerre(n: int, x: float) -> float:
    """Laguerre's polynomial L_n(x).

    Examples
    --------
    >>> eval_laguerre(2, 2.0)
    -1.0
    """
    return eval_genlaguerre(n, 0.0, x)


def eval_genlaguerre(n: int, alpha: float, x: float) -> float:
    """The generalised Laguerre polynomial L_n^(alpha)(x).

    Examples
    --------
    >>> eval_genlaguerre(1, 0.5, 2.0)
    -0.5
    """
    before, value = 0.0, 1.0 if n >= 0 else math.nan
    for k in range(n):
        before, value = value, ((2 * k + 1 + alpha - x) * value - (k + alpha) * before) / (k + 1)
    return value


def eval_gegenbauer(n: int, alpha: float, x: float) -> float:
    """Gegenbauer's polynomial C_n^(alpha)(x).

    Examples
    --------
    >>> eval_gegenbauer(2, 1.0, 0.5)
    0.0
    """
    before, value = 0.0, 1.0 if n >= 0 else math.nan
    for k in range(n):
        before, value = value, (2.0 * (k + alpha) * x * value - (k - 1 + 2.0 * alpha) * before) / (k + 1)
    return value


def eval_jacobi(n: int, alpha: float, beta: float, x: float) -> float:
    """Jacobi's polynomial P_n^(alpha, beta)(x), by the recurrence of its differences in n, which does not divide by 0.

    Examples
    --------
    >>> eval_jacobi(2, 0.0, 0.0, 2.0)
    5.5
    """
    if n <= 0:
        return 1.0 if n == 0 else math.nan
    before, value = 1.0, 0.5 * (alpha - beta + (alpha + beta + 2.0) * x)
    for k in range(2, n + 1):
        both = alpha + beta
        double = 2 * k + both
        middle = (double - 1.0) * (double * (double - 2.0) * x + (alpha - beta) * both)
        last = 2.0 * (k + alpha - 1.0) * (k + beta - 1.0) * double
        before, value = value, (middle * value - last * before) / (2.0 * k * (k + both) * (double - 2.0))
    return value


def eval_sh_legendre(n: int, x: float) -> float:
    """Legendre's polynomial shifted to [0, 1], P_n(2 * x - 1).

    Examples
    --------
    >>> eval_sh_legendre(2, 1.5)
    5.5
    """
    return eval_legendre(n, 2.0 * x - 1.0)


def eval_sh_chebyt(n: int, x: float) -> float:
    """Chebyshev's polynomial of the first kind shifted to [0, 1], T_n(2 * x - 1).

    Examples
    --------
    >>> eval_sh_chebyt(3, 0.75)
    -1.0
    """
    return eval_chebyt(n, 2.0 * x - 1.0)


def eval_sh_chebyu(n: int, x: float) -> float:
    """Chebyshev's polynomial of the second kind shifted to [0, 1], U_n(2 * x - 1).

    Examples
    --------
    >>> eval_sh_chebyu(3, 0.75)
    -1.0
    """
    return eval_chebyu(n, 2.0 * x - 1.0)
