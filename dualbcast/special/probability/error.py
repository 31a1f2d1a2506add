"""The scaled error function and the inverse of the complementary one, in the language of scalar functions."""

from __future__ import annotations

import math

import numpy as np

from dualbcast.special.normal import SQRT2, quantile
from dualbcast.special.polynomials import polynomial

LN2 = math.log(2.0)
TWO_OVER_SQRT_PI = 2.0 / math.sqrt(math.pi)

# Polynomials P(q) for the derivatives of erfcx of order n = 0, 1 and 2 at x >= 0, which are (-1)**n * P(q) / (1 + 2 *
# x)**(n + 1) with q = (x - 4) / (x + 4), but for n = 0 with 1 + x / (x + 4) * P(q) in place of P(q). They are found by
# docs/generate_coefficients.py. The change of variables is that of M. M. Shepherd and J. G. Laframboise, "Chebyshev
# approximation of (1 + 2x) exp(x**2) erfc x in 0 <= x < infinity", Mathematics of Computation 36 (1981) 249-253.
# fmt: off
_VALUE = (
    3.341442230902861e-11, -3.2113447054369384e-10, -4.2797921251353e-10, 4.088578509626702e-09,
    2.8750298904029042e-09, -3.251395030708327e-08, -9.652593142169434e-09, 2.3019705058298374e-07,
    -7.412880666425946e-08, -1.576066835221573e-06, 2.159191398552795e-06, 9.2594627579328e-06,
    -3.170162572650908e-05, -1.709637483460447e-05, 0.00031833921423494814, -0.0007168527312588879,
    -0.0007986937592608633, 0.010862633737624063, -0.04325810186196178, 0.11759313293469209, -0.25025386455865134,
    0.43771953455546686, -0.6397976666280868, 0.7759917751374695, -0.74523247093223, 0.465990237251105,
)
_SLOPE = (
    5.45567418831948e-10, 1.2055213938871694e-09, -6.768415530506939e-09, -1.528297554938899e-08,
    4.942299864117395e-08, 1.0910063534404479e-07, -3.1426508320145813e-07, -5.948637791194289e-07,
    2.0599347887423727e-06, 2.4859167272342393e-06, -1.4142296308656374e-05, -2.685966602555115e-06,
    9.24747751845579e-05, -0.00010986045935993676, -0.0004356034484194333, 0.0016301554336536047,
    -0.0008079028001333616, -0.009610372853169704, 0.0386825862766091, -0.0834733172944335, 0.1119114002883258,
    -0.06307663065608773, -0.1147693120736634, 0.39872495184634005, -0.6516096275563936, 0.6688570875434475,
    -0.313546905088526, -0.3487517301221607, 2.623063993696738,
)
_CURVATURE = (
    -5.788055340995747e-09, 1.2174453430811e-08, 8.025099775964857e-08, -1.4985717485286888e-07,
    -6.049508623538338e-07, 1.0530436184928332e-06, 3.4647960190249925e-06, -6.271909039442209e-06,
    -1.7222888684457825e-05, 3.826576512153175e-05, 7.43941851535872e-05, -0.00024728892059216535,
    -0.00021362999811455141, 0.001558840281139726, -0.0006505848065287525, -0.007852094729919106,
    0.017129827183557246, 0.01019639828530784, -0.12199616608844194, 0.28450930166982363, -0.2869872015557217,
    -0.17350752677713308, 1.1302913768805216, -1.972432117246587, 1.6099189143175188, 0.5873651572427978,
    -3.7451261371152866, 5.5606074059302335, -3.9735115072144045, -0.7767143165699996, 10.884601671174382,
)
# fmt: on


def erfcx(x: float) -> float:
    """The scaled complementary error function, exp(x * x) * erfc(x).

    Parameters
    ----------
    x : float
        Any number. Below -26.6 (in float32 below -9.3) the result overflows to inf.

    Returns
    -------
    float
        To a few units in the last place.

    Examples
    --------
    >>> erfcx(0.0), erfcx(math.inf)
    (1.0, 0.0)
    >>> round(erfcx(1e8) * 1e8 * math.sqrt(math.pi), 12)
    1.0
    """
    size = abs(x)
    inverse = 1.0 / (size + 4.0)
    # (1 + 2 * x) * erfcx(x) is 1 at 0, and this form keeps the digits there.
    share = size * inverse if size < 1 else 1.0 - 4.0 * inverse
    product = 1.0 + share * polynomial(1.0 - 8.0 * inverse, _VALUE)
    tail = product * half_scale(size)
    return 2.0 * scaled_exponential(x) - tail if x < 0 else tail


def erfcx_slope(x: float) -> float:
    """The derivative 2 * x * erfcx(x) - 2 / sqrt(pi) without the cancellation for large x."""
    if x < 0.5:
        return 2.0 * x * erfcx(x) - TWO_OVER_SQRT_PI
    scale = half_scale(x)
    return -(polynomial(1.0 - 8.0 / (x + 4.0), _SLOPE) * scale * scale)


def erfcx_curvature(x: float) -> float:
    """The second derivative of erfcx, to all digits."""
    if x < 0.5:
        return 2.0 * erfcx(x) + 2.0 * x * erfcx_slope(x)
    scale = half_scale(x)
    return polynomial(1.0 - 8.0 / (x + 4.0), _CURVATURE) * scale * scale * scale


def half_scale(x: float) -> float:
    """1 / (1 + 2 * x) for x >= 0, also where 2 * x overflows."""
    return 0.5 / (0.5 + x)


def scaled_exponential(x: float) -> float:
    """exp(x * x) to a few units; the rounding of x * x alone would cost hundreds."""
    size = min(abs(x), 32.0)
    # The square of a multiple of 1/16 is exact.
    head = float(np.rint(16.0 * size)) / 16.0
    return math.exp(head * head) * math.exp((size - head) * (size + head))


def erfinv_slope(x: float) -> float:
    """The slope of the inverse error function where it has the value x."""
    return math.exp(x * x) / TWO_OVER_SQRT_PI


def erfcinv(y: float) -> float:
    """The inverse of the complementary error function.

    Parameters
    ----------
    y : float
        In [0, 2]; the ends give infinities, and other numbers NaN.

    Returns
    -------
    float
        x with erfc(x) = y, to a few units in the last place.

    Notes
    -----
    The normal quantile at y / 2, divided by the square root of 2, with the other sign; see `ndtri`.

    Examples
    --------
    >>> erfcinv(1.0), erfcinv(0.0)
    (0.0, inf)
    >>> round(math.erfc(erfcinv(1e-30)) * 1e30, 12)
    1.0
    """
    return quantile(0.5 - 0.5 * y, min(y, 2.0 - y), LN2) / SQRT2
