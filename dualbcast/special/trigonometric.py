"""Circular functions of multiples of pi, in the language of scalar functions."""

from __future__ import annotations

import math

import numpy as np


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
    return math.sin(math.pi * (0.5 - abs(x - 2.0 * float(np.rint(0.5 * x)))))
