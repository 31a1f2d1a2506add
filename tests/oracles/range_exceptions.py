"""Where results are off by more than their bounds, by how much, and why: docs/reference/accuracy.md has the table."""

from __future__ import annotations

import math

import numpy as np
import transcendental_exceptions
from exceptional import Exceptional, Found

__all__ = ["EXCEPTIONS", "Exceptional", "Found", "allowed"]


_QUOTIENTS = ("x / y", "xlogy", "atan2", "hypot", "pow", "x ** y")
_FIRST = ("x", "y")
_SECOND = ("xx", "xy", "yy")


def _has_subnormal(found: Found) -> np.ndarray:
    return np.logical_or.reduce([(x != 0) & (np.abs(x) < found.tiny) for x in found.arguments])


def _poles(found: Found) -> np.ndarray:
    """The size of what polygamma is a sum of between poles: the terms of the nearest ones."""
    (x,) = found.arguments
    n = int(found.form.removeprefix("polygamma ").replace("digamma", "0")) + ("value", "x", "xx").index(found.result)
    nearest = np.where(x < 0.5, np.abs(x - np.rint(x)), np.abs(x))
    return np.asarray(math.factorial(n) * nearest ** -(n + 1.0))


def _digamma_terms(found: Found) -> np.ndarray:
    """The size of what digamma is a sum of."""
    (x,) = found.arguments
    offset = x - np.floor(x + 0.5)
    reflected = np.where(x < 0, np.abs(np.pi / np.tan(np.pi * offset)), 1.0 / np.abs(x))
    return np.maximum(1.0, reflected) + np.log1p(np.abs(x))


def _multiple_of_subnormal(found: Found) -> np.ndarray:
    """Whether a result is off by no more than a subnormal number is off by that it is a multiple of."""
    smallest, near = float(np.finfo(found.dtype).smallest_subnormal), 64 * found.tiny
    value, x = found.exact["value"], found.arguments[0]
    if found.form.startswith("polygamma"):  # n! times a sum
        sizes = [np.abs(found.wanted) / 720]
    elif "pow" in found.form or "**" in found.form:
        sizes = [value, value / x, value / x**2]
    else:
        sizes = [value, found.exact["x"]]
    allows = np.zeros(found.error.shape, bool)
    for size in map(np.abs, sizes):
        factor = np.abs(found.wanted) / np.maximum(size, smallest)
        allows |= (size < near) & found.within(32, found.wanted, and_of_the_smallest=4 + 4 * factor)
    return allows


def _terms_of_mixed(found: Found) -> np.ndarray:
    x, p = found.arguments
    return np.asarray(found.exact["value"] / x * (1 + np.abs(p * np.log(np.abs(x)))))


EXCEPTIONS: tuple[Exceptional, ...] = (
    *transcendental_exceptions.EXCEPTIONS,
    Exceptional(
        ("tanh", "sigmoid"),
        ("x",),
        "where the value is almost 1",
        "4 units of 1",
        "`1 - y * y` and `y * (1 - y)` save operations in every recurrent cell; curvatures do not go this way",
        lambda found: found.within(4, 1.0),
    ),
    Exceptional(
        ("exp2", "2 ** x", "pow", "x ** y"),
        ("x", "y", "xx", "xy", "yy"),
        "the value overflows",
        "an infinity",
        "the slope is computed as a fraction of the value, and overflows with it",
        lambda found: np.abs(found.exact["value"]) > found.largest * (1 - 1e-3),
    ),
    Exceptional(
        (
            "erf",
            "erfc",
            "tgamma",
            "polygamma 3",
            "pow",
            "x ** y",
            "x ** 12.25",
            "x ** 9",
            "x ** -9",
            "exp10",
            "0.3125 ** x",
        ),
        ("value", "x", "y", "xx", "xy", "yy"),
        "the result is a multiple of a subnormal factor",
        "4 units, and 4 for each unit of the factor",
        "a subnormal number has fewer digits",
        _multiple_of_subnormal,
    ),
    Exceptional(
        _QUOTIENTS,
        (*_FIRST, *_SECOND),
        "an argument is subnormal",
        "any number",
        "the reciprocal of a subnormal number overflows, or a quotient on the way to the result is subnormal",
        _has_subnormal,
    ),
    Exceptional(
        ("logit",),
        ("value",),
        "near 1/2",
        "2 units of 1",
        "`x / (1 - x)` is rounded before its logarithm, which is near 0 there",
        lambda found: found.within(2, 1.0),
    ),
    Exceptional(
        ("erfinv", "erfcinv", "ndtri", "ndtri_exp", "erfi", "dawsn"),
        ("value",),
        "everywhere",
        "8 units",
        "quotients of polynomials, and in the tails the root of a logarithm",
        lambda found: found.within(8, found.wanted),
    ),
    Exceptional(
        ("erfinv", "erfcinv", "ndtri", "ndtri_exp"),
        ("x", "xx"),
        "near the ends of the domain",
        "16 (1 + y²) units",
        "the slope grows as exp(y²) or exp(y² / 2), which magnifies the error of y",
        lambda found: found.within(16 * (1 + found.exact["value"] ** 2), found.wanted),
    ),
    Exceptional(
        ("dawsn",),
        ("x", "xx"),
        "below 6",
        "8 units of 1, and 16 (1 + abs(x)) for the curvature",
        "`1 - 2 * x * y` cancels",
        lambda found: (
            found.within(8 if found.result == "x" else 16 * (1 + np.abs(found.arguments[0])), 1.0)
            & (np.abs(found.arguments[0]) < 6.01)
        ),
    ),
    Exceptional(
        ("logaddexp", "logaddexp2"),
        ("value",),
        "near its zeros",
        "4 units of the larger argument",
        "the sum of an argument and a logarithm cancels",
        lambda found: found.within(4, np.maximum(*map(np.abs, found.arguments))),
    ),
    Exceptional(
        ("logaddexp", "logaddexp2"),
        (*_FIRST, *_SECOND),
        "the arguments differ by much",
        "8 units, and 2 more for each unit of the difference",
        "the difference is rounded before its exponential is taken",
        lambda found: found.within(8 + 2 * np.abs(np.subtract(*found.arguments)), found.wanted),
    ),
    Exceptional(
        ("pow", "x ** y"),
        ("xy",),
        "y log x is near -1",
        "16 + 4 abs(log x) units of the larger term",
        "the sum of the two terms cancels",
        lambda found: found.within(
            16 + 4 * np.abs(found.exact["y"]) / np.maximum(np.abs(found.exact["value"]), found.tiny),
            _terms_of_mixed(found),
        ),
    ),
    Exceptional(
        tuple(f"x ** -{n}" for n in range(2, 9)),
        ("value", "x", "xx"),
        "the positive power overflows",
        "0 for a subnormal number",
        "the power is the reciprocal of a product",
        lambda found: np.abs(found.exact["value"]) < 1.001 / found.largest,
    ),
    Exceptional(
        tuple(f"x ** -{n}" for n in range(5, 9)),
        ("value",),
        "everywhere",
        "8 units",
        "the product is rounded up to four times, and a square doubles its error",
        lambda found: found.within(8, found.wanted),
    ),
    Exceptional(
        ("sinc",),
        ("x", "xx"),
        "near the zeros of the slope and of the curvature",
        "16 units of the function's swing there",
        "the closed form cancels",
        lambda found: found.within(
            16 if found.result == "x" else 40, np.minimum(1.0, 1 / np.maximum(np.abs(found.arguments[0]), 1e-30))
        ),
    ),
    Exceptional(
        ("lgamma", "tgamma"),
        ("x",),
        "near the zeros of digamma",
        "16 units of digamma's terms, times the value for tgamma",
        "a sum of up to ten quotients and a logarithm cancels",
        lambda found: found.within(
            16, _digamma_terms(found) * (found.exact["value"] if found.form == "tgamma" else 1.0)
        ),
    ),
    Exceptional(
        ("digamma", "polygamma 0"),
        ("value",),
        "near its zeros",
        "16 units of its terms",
        "a sum of up to ten quotients and a logarithm cancels",
        lambda found: found.within(16, _digamma_terms(found)),
    ),
    Exceptional(
        ("polygamma 1", "polygamma 2", "polygamma 3"),
        ("value",),
        "everywhere",
        "10 units",
        "the sum has up to 10 + 2n terms, of n + 1 factors each",
        lambda found: found.within(10, found.wanted),
    ),
    Exceptional(
        ("digamma", "polygamma 0", "polygamma 1", "polygamma 2", "polygamma 3"),
        ("value", "x", "xx"),
        "between the poles at negative whole numbers",
        "64 units of the terms of the nearest pole",
        "the sums from either side cancel",
        lambda found: found.within(64, _poles(found)),
    ),
)


def allowed(found: Found) -> list[tuple[Exceptional, np.ndarray]]:
    """For every row that speaks of a result of a form, where it allows what has been found."""
    with np.errstate(all="ignore"):
        return [
            (row, np.asarray(row.allows(found), bool))
            for row in EXCEPTIONS
            if found.form in row.forms and found.result in row.results
        ]
