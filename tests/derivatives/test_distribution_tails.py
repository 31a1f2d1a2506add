"""Distributions of `scipy.stats` with large parameters and far out in their tails, where factors of a result leave the
range of its format though the result does not.
"""

from __future__ import annotations

from typing import Any

import mpmath as mp
import numpy as np
import pytest
from distribution_oracles import COUNTS, DISTRIBUTIONS
from test_distributions import kernel, unit

DTYPES = pytest.mark.parametrize("dtype", [np.float64, np.float32])

# A small share to a large power, which by itself would be 0, times a number that would be infinite.
LARGE = {
    "binom": [(200.0, 1e5, 2e-3), (1000.0, 1e6, 1e-3), (20.0, 3000.0, 0.006), (9990.0, 1e4, 0.998), (3.0, 3e6, 1e-6)],
    "nbinom": [(1e6, 1000.0, 1e-3), (1e4, 50.0, 0.005), (50.0, 1e4, 0.995), (9e5, 1.5, 1e-6)],
    "f": [(0.9, 1000.0, 1e6), (1.0, 50.0, 1e4), (0.7, 700.0, 2e5)],
}


@DTYPES
@pytest.mark.parametrize("family", LARGE)
def test_densities_with_large_parameters(family: str, dtype: Any) -> None:
    """They were 0 in float64 and NaN in float32."""
    arrays = [np.array(column, dtype) for column in np.transpose(LARGE[family])]
    of = (COUNTS.get(family) or DISTRIBUTIONS[family]).log_density
    call = kernel(f"scipy.stats.{family}.{'pmf' if family in COUNTS else 'pdf'}", len(arrays))
    varied = range(1 if family in COUNTS else 0, len(arrays))
    names = [f"x{position}" for position in varied]
    value, jacobian, hessian = call.value_jacobian_and_hessian(*arrays, wrt=names)
    eps = float(np.finfo(dtype).eps)
    for row, point in enumerate(zip(*arrays, strict=True)):
        with mp.workdps(60):
            at = tuple(mp.mpf(float(x)) for x in point)
            density = mp.exp(of(*at))
            # The terms of the logarithm lose digits where they cancel.
            allowed = 64 * eps * sum(abs(x) for x in at if x > 1)
            assert abs(float(value[row]) - density) <= allowed * density, point
            for i in varied:
                slope = mp.diff(lambda *args: mp.exp(of(*args)), at, unit(i, len(at)))
                scale = density * (1 / at[i] + abs(mp.diff(of, at, unit(i, len(at)))))
                assert abs(float(jacobian[f"x{i}"][row]) - slope) <= allowed * scale, (point, i)
        assert all(np.isfinite(hessian[one, two][row]) for one in names for two in names), point


# Calls, the numbers x at which they are in a tail, and the value there.
TAILS = {
    "gumbel_r.pdf(x)": ((-80.0, -90.0, -800.0, -1e30), 0.0),
    "gumbel_r.cdf(x)": ((-80.0, -90.0, -800.0, -1e30), 0.0),
    "gumbel_r.sf(x)": ((-80.0, -90.0, -800.0, -1e30), 1.0),
    "weibull_min.pdf(x, 12.5)": ((3.0, 5e3, 1e25, 1e30), 0.0),
    "weibull_min.cdf(x, 12.5)": ((3.0, 5e3, 1e25, 1e30), 1.0),
    "weibull_min.sf(x, 12.5)": ((3.0, 5e3, 1e25, 1e30), 0.0),
    "weibull_min.pdf(3.0, x)": ((12.5, 90.0, 800.0, 1e30), 0.0),
    "weibull_min.sf(3.0, x)": ((12.5, 90.0, 800.0, 1e30), 0.0),
}


@DTYPES
@pytest.mark.parametrize("call", TAILS)
def test_derivatives_are_0_in_a_tail_that_is_0(call: str, dtype: Any) -> None:
    """They were products of 0 and infinity, and so was the Weibull density itself."""
    places, expected = TAILS[call]
    value, jacobian, hessian = kernel(f"(lambda x: scipy.stats.{call})", 1).value_jacobian_and_hessian(
        np.array(places, dtype)
    )
    np.testing.assert_array_equal(value, expected)
    np.testing.assert_array_equal(jacobian["x0"], 0.0)
    np.testing.assert_array_equal(hessian["x0", "x0"], 0.0)
    assert np.isnan(kernel(f"(lambda x: scipy.stats.{call})", 1)(np.array([np.nan], dtype)))
