"""Where Bessel functions, elliptic and other integrals and their kin are off by more than their bounds."""

from __future__ import annotations

import numpy as np
from exceptional import Exceptional, Found

__all__ = ["EXCEPTIONS"]


def _amplitude(found: Found) -> np.ndarray:
    """The size of a function's oscillations, and 1 before they begin."""
    (x,) = found.arguments
    return np.asarray(1 / np.sqrt(np.maximum(np.abs(x), 1.0)))


EXCEPTIONS: tuple[Exceptional, ...] = (
    Exceptional(
        ("j0", "j1", "jn 2", "y0", "y1", "yn 2"),
        ("value", "x", "xx"),
        "near zeros, except near the first one of `j0` and of `j1`",
        "16 units of 1 up to 1, and of 1 / sqrt(x) beyond",
        "the products with sine and cosine cancel, or a polynomial and a logarithm",
        lambda found: found.within(16, _amplitude(found)),
    ),
    Exceptional(
        ("i0e", "i1e", "ive 2"),
        ("x", "xx"),
        "up to 32",
        "16 units of the value",
        "the terms of the slope and of the curvature, which are larger, cancel",
        lambda found: found.within(16, found.exact["value"]),
    ),
    Exceptional(
        ("k0", "k1", "k0e", "k1e", "iv 2", "ive 2", "kv 2", "kve 2", "exp1", "expn 2", "expi", "shi", "chi"),
        ("value",),
        "everywhere",
        "8 units",
        "an exponential, a root and a quotient, or a recurrence",
        lambda found: found.within(8, found.wanted),
    ),
    Exceptional(
        ("kve 2",),
        ("x", "xx"),
        "above 1",
        "64 units",
        "the recurrence for the slope cancels",
        lambda found: found.within(64, found.wanted),
    ),
    Exceptional(
        ("expi", "ci", "chi"),
        ("value",),
        "near zeros",
        "4 units of 1 up to 4, and of 4 / x beyond",
        "a polynomial and a logarithm cancel, or the products with sine and cosine",
        lambda found: found.within(4, 4 / np.maximum(np.abs(found.arguments[0]), 4.0)),
    ),
    Exceptional(
        ("si", "ci", "chi"),
        ("xx",),
        "near zeros",
        "16 units of 1 / x",
        "the terms with the cosine and with the sine cancel",
        lambda found: found.within(16, 1 / np.maximum(np.abs(found.arguments[0]), 1e-30)),
    ),
    Exceptional(
        ("fresnel_s", "fresnel_c"),
        ("x", "xx"),
        "near zeros",
        "8 units of 1 for the slope, and of pi x for the curvature",
        "the angle is rounded to a unit of 2",
        lambda found: found.within(
            8, 1.0 if found.result == "x" else np.pi * np.maximum(np.abs(found.arguments[0]), 1.0)
        ),
    ),
    Exceptional(
        ("w_zero", "w_minus_one"),
        ("x", "xx"),
        "between -0.33 and -0.2",
        "16 units, and for the curvature 64 of the square of the slope",
        "1 + w and 2 + w cancel",
        lambda found: found.within(*((16, found.wanted) if found.result == "x" else (64, found.exact["x"] ** 2))),
    ),
    Exceptional(
        ("iv 2", "kv 2", "yn 2", "shi", "chi"),
        ("value", "x", "xx"),
        "above a quarter of the largest number",
        "infinite",
        "a sum, or a number twice as large, overflows before it is halved",
        lambda found: np.abs(found.wanted) > found.largest / 4,
    ),
    Exceptional(
        ("entr",),
        ("x",),
        "near 1 / e",
        "4 units of 1",
        "-1 - log(x) cancels",
        lambda found: found.within(4, 1.0),
    ),
)
