"""Legendre's elliptic integrals and Jacobi's elliptic functions, in the language of scalar functions.

The complete integrals are sums of B and D (T. Fukushima, "Fast computation of complete elliptic integrals and Jacobian
elliptic functions", *Celestial Mechanics* 105 (2009) 305-328), with the coefficients of
docs/generate_special_coefficients.py; the incomplete ones are Carlson's, by 19.25 of the Digital Library of
Mathematical Functions, and Jacobi's functions descend by 22.20 there.
"""

from __future__ import annotations

import math

import numpy as np

from dualbcast.arithmetic import isinf
from dualbcast.special.classical import coefficients as table
from dualbcast.special.classical.carlson import elliprd, elliprf
from dualbcast.special.polynomials import polynomial

# --- complete integrals --------------------------------------------------------------------------------------------


def ellipk(m: float) -> float:
    """The complete elliptic integral of the first kind.

    Parameters
    ----------
    m : float
        The parameter, the square of the modulus, at most 1. Where it is near 1, use `ellipkm1`.

    Returns
    -------
    float
        K(m), to a few units in the last place; infinite at 1, and NaN beyond.

    Examples
    --------
    >>> ellipk(0.0) == math.pi / 2, ellipk(1.0)
    (True, inf)
    """
    return ellipkm1(1.0 - m)


def ellipkm1(p: float) -> float:
    """The complete elliptic integral of the first kind at 1 - p, which keeps all digits where p is small.

    Examples
    --------
    >>> round(ellipkm1(1e-100), 10)
    116.5155490108
    """
    return 0.0 if p == math.inf else legendre_b(p) + legendre_d(p)


def ellipe(m: float) -> float:
    """The complete elliptic integral of the second kind, for a parameter of at most 1.

    Examples
    --------
    >>> ellipe(0.0) == math.pi / 2, ellipe(1.0)
    (True, 1.0)
    """
    n = 1.0 - m
    if n == 0 or n == math.inf:
        return 1.0 if n == 0 else n
    return legendre_b(n) + n * legendre_d(n)


def legendre_b(n: float) -> float:
    """The integral of cos(t)**2 / sqrt(1 - m * sin(t)**2) from 0 to pi / 2, for n = 1 - m."""
    if n == math.inf:
        return 0.0
    return d_to_one(1.0 / n) / math.sqrt(n) if n > 1 else b_to_one(n)


def legendre_d(n: float) -> float:
    """The integral of sin(t)**2 / sqrt(1 - m * sin(t)**2) from 0 to pi / 2, for n = 1 - m."""
    return b_to_one(1.0 / n) / math.sqrt(n) if n > 1 else d_to_one(n)


def b_to_one(n: float) -> float:
    """`legendre_b` for n from 0 to 1."""
    if n <= 0:
        return 1.0 if n == 0 else math.nan
    return polynomial(n, table.LEGENDRE_B) - n * math.log(n) * polynomial(n, table.LEGENDRE_B_LOG)


def d_to_one(n: float) -> float:
    """`legendre_d` for n from 0 to 1."""
    if n <= 0:
        return math.inf if n == 0 else math.nan
    return polynomial(n, table.LEGENDRE_D) - math.log(n) * polynomial(n, table.LEGENDRE_D_LOG)


def b_slope(n: float) -> float:
    """The derivative of `legendre_b` in n; a power series replaces a form that would cancel."""
    m = 1.0 - n
    if abs(m) > 0.3:
        return (legendre_b(n) - legendre_d(n)) / (2.0 * m)
    return -0.125 * gauss(1.5, 1.5, m)


def d_slope(n: float) -> float:
    """The derivative of `legendre_d` in n."""
    if n == 0:
        return -math.inf
    m = 1.0 - n
    if abs(m) > 0.3:
        return (legendre_d(n) - legendre_b(n) / n) / (2.0 * m)
    return -0.375 * gauss(1.5, 2.5, m)


def gauss(a: float, b: float, m: float) -> float:
    """pi / 4 times the hypergeometric series of a, b and 3 at m, up to the power that suffices for 0.3."""
    term = 0.25 * math.pi
    total = term
    for k in range(40):
        term = term * ((a + k) * (b + k) / ((3.0 + k) * (1.0 + k)) * m)
        total = total + term
    return total


# --- incomplete integrals ------------------------------------------------------------------------------------------


def ellipkinc(phi: float, m: float) -> float:
    """The incomplete elliptic integral of the first kind.

    Parameters
    ----------
    phi : float
        The amplitude.
    m : float
        The parameter, at most 1.

    Returns
    -------
    float
        F(phi, m), to some 8 units in the last place.

    Examples
    --------
    >>> round(ellipkinc(math.pi / 2, 0.5) - ellipk(0.5), 12), ellipkinc(1.0, 0.0)
    (0.0, 1.0)
    """
    half_turns, sine, square, delta = turned(phi, m)
    part = sine * elliprf(square, delta, 1.0)
    return part if half_turns == 0 else part + 2.0 * half_turns * ellipk(m)


def ellipeinc(phi: float, m: float) -> float:
    """The incomplete elliptic integral of the second kind; see `ellipkinc`.

    Examples
    --------
    >>> round(ellipeinc(math.pi / 2, 0.5) - ellipe(0.5), 12), round(ellipeinc(1.0, 0.0), 12)
    (0.0, 1.0)
    """
    half_turns, sine, square, delta = turned(phi, m)
    cube = m / 3.0 * (sine * sine * sine)
    part = sine * elliprf(square, delta, 1.0)
    if m < 0:
        part = part - cube * elliprd(square, delta, 1.0)
    else:  # all terms are positive
        rest = (1.0 - m) * (part + cube * elliprd(square, 1.0, delta))
        part = rest + m * sine * math.sqrt(square) / math.sqrt(delta)
    return part if half_turns == 0 else part + 2.0 * half_turns * ellipe(m)


def turned(phi: float, m: float) -> tuple[float, float, float, float]:
    """The number of half turns in the amplitude, and of the rest the sine, the square of the cosine, and the square of
    `delta_amplitude`.
    """
    half_turns = float(np.rint(phi / math.pi))
    sine, cosine = math.sin(phi), math.cos(phi)
    sine = -sine if half_turns - 2.0 * float(np.rint(0.5 * half_turns)) != 0 else sine
    return half_turns, sine, cosine * cosine, cosine * cosine + (1.0 - m) * (sine * sine)


def delta_amplitude(phi: float, m: float) -> float:
    """sqrt(1 - m * sin(phi)**2), without cancellation."""
    sine, cosine = math.sin(phi), math.cos(phi)
    return math.sqrt(cosine * cosine + (1.0 - m) * (sine * sine))


def ellipkinc_slope(phi: float, m: float) -> float:
    """The derivative of `ellipkinc` in m."""
    half_turns, sine, square, delta = turned(phi, m)
    part = sine * sine * sine / 6.0 * elliprd(square, 1.0, delta)
    return part if half_turns == 0 else part + half_turns * (legendre_b(1.0 - m) / (1.0 - m))


def ellipeinc_slope(phi: float, m: float) -> float:
    """The derivative of `ellipeinc` in m."""
    half_turns, sine, square, delta = turned(phi, m)
    part = -(sine * sine * sine) / 6.0 * elliprd(square, delta, 1.0)
    return part if half_turns == 0 else part - half_turns * legendre_d(1.0 - m)


# --- Jacobi's functions --------------------------------------------------------------------------------------------


def amplitude(u: float, m: float) -> float:
    """Jacobi's amplitude, the inverse of `ellipkinc` in its first argument.

    Parameters
    ----------
    u : float
        Any number.
    m : float
        The parameter, in [0, 1]; else the result is NaN.

    Returns
    -------
    float
        am(u, m), to some 8 units in the last place of max(abs(u), abs(am(u, m))).

    Examples
    --------
    >>> round(amplitude(ellipk(0.5), 0.5) - math.pi / 2, 12), amplitude(1.0, 0.0)
    (0.0, 1.0)
    """
    if not 0 <= m < 1:
        return 2.0 * math.atan(math.tanh(0.5 * u)) if m == 1 else math.nan
    # Nine means of 1 and sqrt(1 - m) are equal for every m below 1.
    mean, other, ratios = 1.0, math.sqrt(1.0 - m), [0.0]
    for _ in range(8):
        half_gap = 0.5 * (mean - other)
        other, mean = math.sqrt(mean * other), 0.5 * (mean + other)
        ratios = [*ratios, half_gap / mean]
    phi = 256.0 * mean * u
    for ratio in reversed(ratios[1:]):
        phi = 0.5 * (phi + math.asin(ratio * math.sin(phi)))
    return phi


def ellipj(u: float, m: float) -> tuple[float, float, float, float]:
    """Jacobi's elliptic functions sn, cn and dn and the amplitude, for a parameter m in [0, 1].

    Examples
    --------
    >>> [round(part, 12) for part in ellipj(1.0, 0.5)]
    [0.803001824896, 0.595976567672, 0.823161001632, 0.932315079884]
    """
    phi = amplitude(u, m)
    return math.sin(phi), math.cos(phi), delta_amplitude(phi, m), phi


def agm(a: float, b: float) -> float:
    """The arithmetic-geometric mean of two numbers of one sign, by the elliptic integral; else NaN, and 0 if one is 0.

    Examples
    --------
    >>> round(agm(1.0, 2.0), 12), agm(0.0, 3.0)
    (1.456791031047, 0.0)
    """
    if a == 0 or b == 0:
        return a * b
    total = a + b
    if isinf(total) and (a > 0) == (b > 0):
        return total
    return 0.25 * math.pi * total / ellipkm1(4.0 * (a / total) * (b / total))
