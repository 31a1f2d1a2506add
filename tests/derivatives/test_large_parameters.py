"""Distributions of `scipy.stats` with large parameters: values and slopes against mpmath.

An error may be as large as those that the roundings of the arguments make.
"""

from __future__ import annotations

from typing import Any

import mpmath as mp
import numpy as np
import pytest
from distribution_oracles import COUNTS, DISTRIBUTIONS
from test_distributions import kernel

# At the mean and away from it, up to parameters that float32 has as well, and larger ones.
POINTS: dict[str, list[tuple[float, ...]]] = {
    "f": [
        (1.125, 1e6, 20.5),
        (0.96875, 2e4, 3e3),
        (1.25, 20.5, 1e6),
        (0.5, 1e3, 1.5),
        (1.0009765625, 1e6, 1e6),
        (0.998046875, 1e12, 66836.5),
        (1.0 + 2.0**-20, 1e12, 3e12),
    ],
    "t": [(1.5, 1e3), (-0.5, 1e6), (3.0, 1e5), (-0.875, 1e12)],
    "beta": [
        (0.5009765625, 1e6, 1e6),
        (0.25, 300.5, 1e3),
        (0.0625, 31.5, 500.0),
        (0.500000476837158203125, 1e12, 1e12),
    ],
    "gamma": [(1000448.0, 1e6), (1034.0, 1e3), (98.0, 120.0), (1e12 + 2e6, 1e12)],
    "chi2": [(2001920.0, 2e6), (1034.0, 1e3), (1e12 + 2e6, 1e12)],
    "poisson": [(1000448.0, 1e6), (1034.0, 1e3), (98.0, 120.0), (1e12 + 2e6, 1e12)],
    "binom": [
        (500256.0, 1e6, 0.5),
        (260.0, 1000.0, 0.25),
        (995.0, 1000.0, 0.994140625),
        (120.0, 1e6, 2.0**-13),
        (499999500000.0, 1e12, 0.5),
    ],
    "nbinom": [(1000448.0, 1e6, 0.5), (3080.0, 1000.0, 0.25), (40.0, 8e3, 0.994140625), (999999500000.0, 1e12, 0.5)],
}
FLOATS_ONLY = 1e7


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("family", POINTS)
def test_values_and_slopes(family: str, dtype: Any) -> None:
    """In float32 `f.pdf` was 0.607 instead of 0.569, and logarithms of densities of 1e12 had no digit right."""
    points = [point for point in POINTS[family] if dtype is np.float64 or max(point) < FLOATS_ONLY]
    arrays = [np.array(column, dtype) for column in np.transpose(points)]
    counts = family in COUNTS
    of = (COUNTS[family] if counts else DISTRIBUTIONS[family]).log_density
    varied = range(1 if counts else 0, len(arrays))
    names = [f"x{position}" for position in varied]
    eps = float(np.finfo(dtype).eps)
    for method in ("pmf", "logpmf") if counts else ("pdf", "logpdf"):
        value, jacobian = kernel(f"scipy.stats.{family}.{method}", len(arrays)).value_and_jacobian(*arrays, wrt=names)
        for row, point in enumerate(zip(*(array.tolist() for array in arrays), strict=True)):
            with mp.workdps(80):
                at = tuple(map(mp.mpf, point))
                logarithm = of(*at)

                def slope(i: int, of: Any = of, at: Any = at) -> Any:
                    """By a difference, and how much it changes where the arguments are rounded."""
                    h = at[i] * mp.mpf(10) ** -25

                    def difference(*place: Any) -> Any:
                        return (of(*place[:i], place[i] + h, *place[i + 1 :]) - of(*place)) / h

                    here = difference(*at)
                    moved = [difference(*at[:j], at[j] * (1 + eps), *at[j + 1 :]) - here for j in range(len(at))]
                    return here, sum(map(abs, moved))

                slopes = {i: slope(i) for i in varied}
                magnified = 1 + sum(abs(slopes[i][0] * at[i]) for i in varied)
                is_log = method.startswith("log")
                density = mp.exp(logarithm)
                exact, factor, scale = (logarithm, 1, 1 + abs(logarithm)) if is_log else (density, density, density)
                assert abs(float(value[row]) - exact) <= 64 * eps * scale * magnified, (method, point)
                for i, (exact, loose) in slopes.items():
                    allowed = 64 * loose + 64 * eps * abs(exact) * (1 if is_log else magnified)
                    assert abs(float(jacobian[f"x{i}"][row]) - exact * factor) <= factor * allowed, (method, point, i)
