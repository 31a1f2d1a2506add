"""Exponential, sine, cosine and Fresnel integrals and the dilogarithm, in the language of scalar functions.

The formulas are those of Abramowitz and Stegun, *Handbook of Mathematical Functions*, chapters 5, 7 and 27.7; the
coefficients those of docs/generate_special_coefficients.py. Values are off by up to 5 units in the last place, where
nothing else is said.
"""

from __future__ import annotations

import math

import numpy as np

from dualbcast.arithmetic import isinf
from dualbcast.special.classical import coefficients as table
from dualbcast.special.classical.power_transforms import log1prel, log1prel_slope
from dualbcast.special.exponentials import exp_over
from dualbcast.special.polynomials import polynomial, quotient
from dualbcast.special.trigonometric import sinc_slope

EULER = 0.57721566490153286061
HALF_PI = 0.5 * math.pi


def exp1(x: float) -> float:
    """The exponential integral E_1, the integral of exp(-t) / t from x to infinity.

    Parameters
    ----------
    x : float
        A positive number. At 0 the result is an infinity, and for negative numbers NaN.

    Examples
    --------
    >>> round(exp1(1.0), 12)
    0.219383934396
    """
    if x <= 0:
        return math.inf if x == 0 else math.nan
    if x <= 1:
        return polynomial(x, table.E1_NEAR) - math.log(x)
    return math.exp(-x) * quotient(1.0 / x, table.E1_FAR, table.E1_FAR_BELOW) / x


def expi(x: float) -> float:
    """The exponential integral Ei, the principal value of the integral of exp(t) / t from minus infinity to x.

    Returns
    -------
    float
        To a few units in the last place; around the zero at 0.3725 in units of the last place of 1 / 2.

    Examples
    --------
    >>> round(expi(1.0), 12), expi(-math.inf)
    (1.895117816356, -0.0)
    """
    if x <= 0:
        return -exp1(-x)
    if x <= 12:
        return (EULER + math.log(x)) + x * polynomial(x / 12.0, table.EI_NEAR)
    if x <= 30:
        return exp_over(x) * polynomial((12.0 / x - 0.7) / 0.3, table.EI_MIDDLE)
    return math.inf if isinf(x) else exp_over(x) * polynomial(30.0 / x, table.EI_FAR)


def expn(n: int, x: float) -> float:
    """The exponential integral E_n, the integral of exp(-x * t) / t**n from 1 to infinity.

    Parameters
    ----------
    n : int
        The order. (SciPy has no negative ones.)
    x : float
        Not negative, else the result is NaN.

    Examples
    --------
    >>> round(expn(2, 1.0), 12), expn(3, 0.0)
    (0.148495506776, 0.5)
    """
    if x < 0:
        return math.nan
    if x == 0:
        return 1.0 / (n - 1) if n > 1 else math.inf
    decay = math.exp(-x)
    if n <= 0:
        value = decay / x
        for k in range(1, 1 - n):
            value = (decay + k * value) / x
        return value
    if x <= 1:
        value = exp1(x)
        for k in range(1, n):
            value = (decay - x * value) / k
        return value
    # The continued fraction 5.1.22 in its even form, from a term that suffices for x = 1.
    rest = 0.0
    for k in range(14 + int(96.0 / x), 0, -1):
        rest = k * (n + k - 1) / (x + n + 2 * k - rest)
    return decay / (x + n - rest)


def spence(x: float) -> float:
    """The dilogarithm Li_2(1 - x), the integral of log(t) / (1 - t) from 1 to x, for x from 0 on.

    Examples
    --------
    >>> spence(1.0), round(spence(0.0) - math.pi**2 / 6, 12)
    (0.0, 0.0)
    """
    if x <= 0:
        return math.pi * math.pi / 6.0 if x == 0 else math.nan
    if isinf(x):
        return -math.inf
    if x < 0.5:
        return math.pi * math.pi / 6.0 - math.log(x) * math.log1p(-x) - dilogarithm(-math.log1p(-x))
    if x <= 2:
        return dilogarithm(0.0 - math.log(x))
    log = math.log(x)
    return dilogarithm(-math.log1p(-1.0 / x)) - math.pi * math.pi / 6.0 - log * (0.5 * log + math.log1p(-1.0 / x))


def dilogarithm(u: float) -> float:
    """Li_2(1 - exp(-u)) for abs(u) up to log(2), by the series with Bernoulli's numbers."""
    q = u * u
    series = -174611.0 / 330 / 51090942171709440000.0
    series = series * q + 43867.0 / 798 / 121645100408832000.0
    series = series * q - 3617.0 / 510 / 355687428096000.0
    series = series * q + 7.0 / 6 / 1307674368000.0
    series = series * q - 691.0 / 2730 / 6227020800.0
    series = series * q + 5.0 / 66 / 39916800.0
    series = series * q - 1.0 / 30 / 362880.0
    series = series * q + 1.0 / 42 / 5040.0
    series = series * q - 1.0 / 30 / 120.0
    series = series * q + 1.0 / 6 / 6.0
    return u - 0.25 * q + u * q * series


# --- sine and cosine integrals -------------------------------------------------------------------------------------


def si(x: float) -> float:
    """The sine integral, of sin(t) / t from 0 to x.

    Examples
    --------
    >>> round(si(1.0), 12), si(math.inf) == math.pi / 2
    (0.946083070367, True)
    """
    size = abs(x)
    if isinf(x):
        return math.copysign(HALF_PI, x)
    if size <= 4:
        return x * polynomial(x * x / 8.0 - 1.0, table.SI_NEAR)
    f, g = auxiliary(size)
    return math.copysign(HALF_PI - f * math.cos(size) - g * math.sin(size), x)


def ci(x: float) -> float:
    """The cosine integral, of cos(t) / t from infinity to x, for positive x.

    Returns
    -------
    float
        To a few units in the last place of 1 up to 4, and of 1 / x beyond. At 0 minus infinity, and below NaN.

    Examples
    --------
    >>> round(ci(1.0), 12)
    0.337403922901
    """
    if x <= 0:
        return -math.inf if x == 0 else math.nan
    if isinf(x):
        return 0.0
    if x <= 4:
        return (EULER + math.log(x)) + x * x * polynomial(x * x / 8.0 - 1.0, table.CI_NEAR)
    f, g = auxiliary(x)
    return f * math.sin(x) - g * math.cos(x)


def auxiliary(x: float) -> tuple[float, float]:
    """The functions f and g of 5.2.6 and 5.2.7, from 4 on."""
    v = 4.0 / x
    w = v * v
    f = quotient(w, table.F_FAR, table.F_FAR_BELOW) / x
    return f, quotient(w, table.G_FAR, table.G_FAR_BELOW) / x / x


def sici(x: float) -> tuple[float, float]:
    """The sine and the cosine integral, `si` and `ci`.

    Examples
    --------
    >>> [round(part, 12) for part in sici(1.0)]
    [0.946083070367, 0.337403922901]
    """
    return si(x), ci(x)


def shi(x: float) -> float:
    """The hyperbolic sine integral, of sinh(t) / t from 0 to x.

    Examples
    --------
    >>> round(shi(1.0), 12)
    1.057250875376
    """
    size = abs(x)
    if size <= 6:
        return x * polynomial(x * x / 36.0, table.SHI_NEAR)
    return math.copysign(0.5 * expi(size) + 0.5 * exp1(size), x)


def chi(x: float) -> float:
    """The hyperbolic cosine integral, Euler's constant + log(x) + the integral of (cosh(t) - 1) / t from 0 to x > 0.

    Returns
    -------
    float
        To a few units in the last place, around the zero at 0.5238 of 1 / 2. At 0 minus infinity, and below NaN.

    Examples
    --------
    >>> round(chi(1.0), 12)
    0.83786694098
    """
    if x <= 0:
        return -math.inf if x == 0 else math.nan
    if x <= 6:
        return (EULER + math.log(x)) + x * x * polynomial(x * x / 36.0, table.CHI_NEAR)
    return 0.5 * expi(x) - 0.5 * exp1(x)


def shichi(x: float) -> tuple[float, float]:
    """The hyperbolic sine and cosine integrals, `shi` and `chi`.

    Examples
    --------
    >>> [round(part, 12) for part in shichi(1.0)]
    [1.057250875376, 0.83786694098]
    """
    return shi(x), chi(x)


# --- Fresnel's integrals -------------------------------------------------------------------------------------------


def fresnel(x: float) -> tuple[float, float]:
    """Fresnel's integrals of sin(pi * t**2 / 2) and of cos(pi * t**2 / 2) from 0 to x.

    Examples
    --------
    >>> [round(part, 12) for part in fresnel(1.0)]
    [0.43825914739, 0.779893400377]
    """
    return fresnel_s(x), fresnel_c(x)


def fresnel_s(x: float) -> float:
    """Fresnel's integral of sin(pi * t**2 / 2) from 0 to x."""
    size = abs(x)
    if isinf(x):
        return math.copysign(0.5, x)
    q = x * x
    if size <= 1.6:
        return x * q * polynomial(q * q / 3.2768 - 1.0, table.FRESNEL_S)
    f, g = fresnel_auxiliary(size)
    return math.copysign(0.5 - f * cosine_of_square(size) - g * sine_of_square(size), x)


def fresnel_c(x: float) -> float:
    """Fresnel's integral of cos(pi * t**2 / 2) from 0 to x."""
    size = abs(x)
    if isinf(x):
        return math.copysign(0.5, x)
    q = x * x
    if size <= 1.6:
        return x * polynomial(q * q / 3.2768 - 1.0, table.FRESNEL_C)
    f, g = fresnel_auxiliary(size)
    return math.copysign(0.5 + f * sine_of_square(size) - g * cosine_of_square(size), x)


def fresnel_auxiliary(x: float) -> tuple[float, float]:
    """The functions f and g of 7.3.5 and 7.3.6, from 1.6 on."""
    v = 1.6 / x
    w = v * v * (v * v)
    f = quotient(w, table.FRESNEL_F, table.FRESNEL_F_BELOW) / x
    return f, quotient(w, table.FRESNEL_G, table.FRESNEL_G_BELOW) / x / x / x


def sine_of_square(x: float) -> float:
    """sin(pi * x**2 / 2), for which whole periods are subtracted before anything is rounded."""
    return math.sin(HALF_PI * rest_of_square(x))


def cosine_of_square(x: float) -> float:
    """cos(pi * x**2 / 2), in the same way."""
    return math.cos(HALF_PI * rest_of_square(x))


def rest_of_square(x: float) -> float:
    """x**2 less a multiple of 4, of absolute value at most 3 or so."""
    # With x = 2 * whole + part the square is 4 * whole * (whole + part) + part**2. The product with a multiple of 1/16
    # is exact for whole numbers up to 2**19 in float32, and the rest of it is small.
    whole = float(np.rint(0.5 * x))
    part = x - 2.0 * whole
    head = float(np.rint(16.0 * part)) / 16.0
    product = whole * head
    turns = (product - float(np.rint(product))) + whole * (part - head)
    return 4.0 * (turns - float(np.rint(turns))) + part * part


# --- first derivatives ---------------------------------------------------------------------------------------------


def spence_slope(x: float) -> float:
    """The derivative of `spence`, log(x) / (1 - x)."""
    if isinf(x):
        return 0.0
    return math.log(x) / (1.0 - x) if x < 0.5 else -log1prel(x - 1.0)


def spence_curvature(x: float) -> float:
    """The second derivative of `spence`."""
    return (1.0 / x + spence_slope(x)) / (1.0 - x) if x < 0.5 else -log1prel_slope(x - 1.0)


def sine_over(x: float) -> float:
    """sin(x) / x, 1 at 0."""
    return 1.0 if x == 0 else 0.0 if isinf(x) else math.sin(x) / x


def sine_over_slope(x: float, value: float) -> float:
    """The derivative of `sine_over` at x, where it has this value."""
    return (math.cos(x) - value) / x if abs(x) > 0.9 else sinc_slope(x / math.pi, value) / math.pi


def sinh_over(x: float) -> float:
    """sinh(x) / x, 1 at 0; it overflows only where it is too large itself."""
    return 0.5 * exp_over(abs(x)) if abs(x) > 20 else small_sinh_over(x)


def small_sinh_over(x: float) -> float:
    """`sinh_over` of moderate numbers."""
    return 1.0 if x == 0 else math.sinh(x) / x


def sinh_over_slope(x: float, value: float) -> float:
    """The derivative of `small_sinh_over` at x, where it has this value."""
    if abs(x) > 1:
        return (math.cosh(x) - value) / x
    term = x / 3.0
    total = term
    for k in range(1, 9):
        term = term * x * x / (2 * k * (2 * k + 3))
        total = total + term
    return total


def cosh_over(x: float) -> float:
    """cosh(x) / x."""
    if x < 1e-9:
        return 1.0 / x
    return 0.5 * exp_over(x) if x > 20 else math.cosh(x) / x
