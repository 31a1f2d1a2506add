"""Circular functions of multiples of pi and of degrees, in the language of scalar functions."""

from __future__ import annotations

import math

import numpy as np

RADIAN = math.pi / 180.0


def sinc(x: float) -> float:
    """The normalised cardinal sine sin(pi * x) / (pi * x), 1 at 0: `numpy.sinc`."""
    return 1.0 if x == 0 else sinpi(x) / (math.pi * x)


def sinc_slope(x: float, value: float) -> float:
    """The derivative of `sinc` at x, where `sinc` has this value. A power series replaces a form that would cancel."""
    if abs(x) > 0.3125:
        return (cospi(x) - value) / x
    # The derivative of sin(t) / t is the sum of (-1)**k * 2k / (2k + 1)! * t**(2k - 1) over k = 1, 2, …
    t = math.pi * x
    term = -t / 3.0
    total = term
    for k in range(1, 9):
        term = -term * t * t / (2 * k * (2 * k + 3))
        total = total + term
    return math.pi * total


def sinpi(x: float) -> float:
    """sin(pi * x), accurate also near its zeros, since whole numbers are subtracted before the product is rounded."""
    rest = x - 2.0 * float(np.rint(0.5 * x))
    if abs(rest) > 0.5:
        rest = math.copysign(1.0, rest) - rest
    return math.sin(math.pi * rest)


def cospi(x: float) -> float:
    """cos(pi * x), computed in the same way."""
    rest = x - 2.0 * float(np.rint(0.5 * x))
    # An absolute value would have no slope at 0, and so the curvature there would be lost.
    return math.sin(math.pi * (0.5 - (rest if rest > 0 else -rest)))


# --- degrees -------------------------------------------------------------------------------------------------------


def sindg(x: float) -> float:
    """The sine of x degrees, exact at multiples of 30.

    Examples
    --------
    >>> sindg(180.0), sindg(30.0), sindg(-90.0)
    (0.0, 0.5, -1.0)
    """
    rest = math.fmod(x, 360.0)
    if abs(rest) > 180:
        rest = rest - math.copysign(360.0, rest)
    if abs(rest) > 90:
        rest = math.copysign(180.0, rest) - rest
    return math.copysign(0.5, rest) if abs(rest) == 30 else math.sin(rest * RADIAN)


def cosdg(x: float) -> float:
    """The cosine of x degrees, exact at multiples of 30.

    Examples
    --------
    >>> cosdg(90.0), cosdg(60.0), cosdg(180.0)
    (0.0, 0.5, -1.0)
    """
    rest = abs(math.fmod(x, 360.0))
    return sindg(90.0 - rest if rest < 180 else rest - 270.0)


def tandg(x: float) -> float:
    """The tangent of x degrees, infinite at odd multiples of 90.

    Examples
    --------
    >>> tandg(180.0), tandg(45.0), tandg(90.0)
    (0.0, 1.0, inf)
    """
    rest = math.fmod(x, 180.0)
    if abs(rest) > 90:
        rest = rest - math.copysign(180.0, rest)
    if abs(rest) == 90:
        return math.inf
    return tangent(rest) if abs(rest) <= 45 else 1.0 / tangent(math.copysign(90.0, rest) - rest)


def cotdg(x: float) -> float:
    """The cotangent of x degrees, infinite at multiples of 180.

    Examples
    --------
    >>> cotdg(90.0), cotdg(45.0), cotdg(0.0)
    (0.0, 1.0, inf)
    """
    rest = math.fmod(x, 180.0)
    if abs(rest) > 90:
        rest = rest - math.copysign(180.0, rest)
    if rest == 0:
        return math.inf
    return 1.0 / tangent(rest) if abs(rest) <= 45 else tangent(math.copysign(90.0, rest) - rest)


def tangent(x: float) -> float:
    """The tangent of up to 45 degrees."""
    return math.copysign(1.0, x) if abs(x) == 45 else math.tan(x * RADIAN)


def radian(degrees: float, minutes: float, seconds: float) -> float:
    """The angle of degrees, minutes and seconds in radians.

    Examples
    --------
    >>> radian(180.0, 0.0, 0.0) == math.pi
    True
    """
    return (degrees + (minutes + seconds / 60.0) / 60.0) * RADIAN


def cosm1(x: float) -> float:
    """cos(x) - 1, without cancellation at 0.

    Examples
    --------
    >>> round(cosm1(1e-100) * 1e200, 12), cosm1(math.pi)
    (-0.5, -2.0)
    """
    half = math.sin(0.5 * x)
    return -2.0 * half * half
