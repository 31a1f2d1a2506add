"""Slopes of complex functions on and beside their branch cuts and singular points, against mpmath: on a cut the limit
from the side that the sign of a zero tells."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
import pytest

from dualbcast import from_source

EXPONENT = mp.mpc(0.3, 0.7)
# Products of principal roots, which are those of the functions in the whole plane.
SLOPES: dict[str, Callable[[Any], Any]] = {
    "sqrt": lambda z: 1 / (2 * mp.sqrt(z)),
    "log": lambda z: 1 / z,
    "log10": lambda z: 1 / (z * mp.log(10)),
    "asin": lambda z: 1 / (mp.sqrt(1 - z) * mp.sqrt(1 + z)),
    "acos": lambda z: -1 / (mp.sqrt(1 - z) * mp.sqrt(1 + z)),
    "atan": lambda z: 1 / ((1 + mp.j * z) * (1 - mp.j * z)),
    "asinh": lambda z: 1 / (mp.sqrt(1 + mp.j * z) * mp.sqrt(1 - mp.j * z)),
    "acosh": lambda z: 1 / (mp.sqrt(z - 1) * mp.sqrt(z + 1)),
    "atanh": lambda z: 1 / ((1 - z) * (1 + z)),
    "complex power": lambda z: EXPONENT * mp.exp((EXPONENT - 1) * mp.log(z)),
    "real power": lambda z: mp.mpf(0.3) * mp.exp((mp.mpf(0.3) - 1) * mp.log(z)),
}
# Where each part has all of its digits, not only those that the other part leaves.
BY_PARTS = ("asin", "acos", "atan", "asinh", "acosh", "atanh")
BESIDE = (0.0, -0.0, 1e-310, -1e-310, 1e-200, -1e-200, 1e-100, -1e-30, 1e-17, -1e-17, 1e-9, 1e-3)
SIZES = (1e-150, 0.5, 1 - 2.0**-53, 1.0, 1 + 2.0**-52, 1.5, 2.0, 50.0, 1e100)
ALONG = (*SIZES, *[-size for size in SIZES])
POINTS = [(a, b) for a in ALONG for b in BESIDE] + [(b, a) for a in ALONG for b in BESIDE]


def exactly(part: float) -> Any:
    return mp.mpf(part) if part else mp.mpf(10) ** -1000 * int(math.copysign(1, part))


@pytest.mark.parametrize("name", SLOPES)
def test_slopes_beside_cuts(name: str) -> None:
    """A part of the slope of atanh was NaN at 1 + 1e-200i."""
    expressions = {"complex power": "complex(x, y) ** (0.3 + 0.7j)", "real power": "complex(x, y) ** 0.3"}
    expression = expressions.get(name, f"cmath.{name}(complex(x, y))")
    function = from_source(f"import cmath\ndef f(x, y):\n    z = {expression}\n    return z.real, z.imag\n")
    jacobian = function.jacobian(*np.array(POINTS).T)
    for at, (x, y) in enumerate(POINTS):
        with mp.workdps(700):  # of 1 - 1e-300
            slope = SLOPES[name](mp.mpc(exactly(x), exactly(y)))
        if abs(slope) > 1e300:  # at a singular point itself
            continue
        exact = {(0, "x"): slope.real, (0, "y"): -slope.imag, (1, "x"): slope.imag, (1, "y"): slope.real}
        for place, wanted in exact.items():
            size = abs(wanted) if name in BY_PARTS else abs(slope)
            got = float(jacobian[place][at])
            assert abs(got - wanted) <= 1e-13 * size + 1e-300, (x, y, place, got, float(wanted))


def test_atanh_beside_its_poles() -> None:
    """It was infinite there, where its square is beyond the smallest numbers."""
    function = from_source(
        "import cmath\ndef f(x, y):\n    z = cmath.atanh(complex(x, y))\n    return z.real, z.imag\n"
    )
    for x in (1.0, -1.0):
        for y in (1e-300, -1e-200, 1e-160, 1e-101, -1e-99, 1e-20):
            assert np.allclose(complex(*function(x, y)), cmath.atanh(complex(x, y)), rtol=1e-15, atol=0), (x, y)
    assert float(function(1.0, 0.0)[0]) == math.inf
