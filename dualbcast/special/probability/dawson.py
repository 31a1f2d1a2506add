"""Dawson's integral and the imaginary error function in the language of scalar functions."""

from __future__ import annotations

import math

import numpy as np

from dualbcast.special.polynomials import polynomial
from dualbcast.special.probability.error import TWO_OVER_SQRT_PI

# Dawson's integral is x * P(x * x) / Q(x * x) up to x = 6; beyond it is (1 + w * R(w)) / (2 * x) with w = 1 / x**2.
# docs/generate_coefficients.py finds P, Q and R.
# fmt: off
_ABOVE = (
    -1.0456510677216874e-24, 1.439365053659523e-18, 1.1569819861325855e-16, 6.31772360749686e-15,
    2.5586381327623844e-13, 8.644253670740901e-12, 2.2495620743364988e-10, 5.762014741520182e-09,
    9.119864178091405e-08, 2.1470791927494264e-06, 1.4550300821568032e-05, 0.0004484345059488287,
    0.000174428281887737, 0.04263943621546495, -0.06344137050701681, 1.0,
)
_BELOW = (
    2.8776979650271193e-18, 2.301982468024628e-16, 1.248296965852645e-14, 5.089284869117493e-13,
    1.6746964238110598e-11, 4.5749770448458033e-10, 1.0522410096720555e-08, 2.0472584902549406e-07,
    3.363035532863359e-06, 4.627420717445318e-05, 0.0005255826960658811, 0.004813429045991507, 0.034253470155500954,
    0.17812296698856478, 0.6032252961596498, 1.0,
)
_TAIL = (
    393987296958308.56, -53521359508566.58, 3278560385002.909, -110445878741.72179, 2284582264.8901534,
    -14061520.534054141, 535967.5099677467, 73340.68603839488, 7829.037392236836, 1056.4868789838163,
    162.4180037960793, 29.531262418722935, 6.562499976866522, 1.8750000000219946, 0.7499999999999919, 0.5,
)
# fmt: on


def dawsn(x: float) -> float:
    """Dawson's integral, exp(-x * x) times the integral of exp(t * t) from 0 to x.

    Parameters
    ----------
    x : float
        Any number.

    Returns
    -------
    float
        To a few units in the last place; the derivative 1 - 2 * x * dawsn(x) to a few units of 1.

    Examples
    --------
    >>> dawsn(0.0)
    0.0
    >>> round(dawsn(1e10) * 2e10, 12)
    1.0
    """
    if abs(x) < 6:
        z = x * x
        return x * (polynomial(z, _ABOVE) / polynomial(z, _BELOW))
    w = 1.0 / x * (1.0 / x)
    return 0.5 / x * (1.0 + w * polynomial(w, _TAIL))


def dawsn_slope(x: float, y: float) -> float:
    """The slope 1 - 2 * x * y of y = dawsn(x); for large x without the cancellation."""
    if abs(x) < 6:
        return 1.0 - 2.0 * x * y
    w = 1.0 / x * (1.0 / x)
    return -(w * polynomial(w, _TAIL))


def erfi(x: float) -> float:
    """The imaginary error function: the integral of 2 / sqrt(pi) * exp(t * t) from 0 to x.

    Parameters
    ----------
    x : float
        Any number. Beyond 26.6 (in float32 9.4) the result overflows to an infinity.

    Returns
    -------
    float
        To a few units in the last place.

    Examples
    --------
    >>> erfi(0.0)
    0.0
    >>> round(erfi(1.0), 12)
    1.650425758798
    """
    size = min(abs(x), 32.0)
    if size == 32:
        return math.copysign(math.inf, x)
    # exp(x * x) from two squares, of which the first is exact; the exponential may overflow before the result does.
    head = float(np.rint(16.0 * size)) / 16.0
    half = math.exp(0.5 * (head * head))
    return half * (TWO_OVER_SQRT_PI * dawsn(x) * math.exp((size - head) * (size + head))) * half
