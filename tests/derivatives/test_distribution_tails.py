"""Distributions of `scipy.stats` with large parameters and far out in their tails, where factors of a result leave the
range of its format though the result does not.
"""

from __future__ import annotations

from typing import Any

import mpmath as mp
import numpy as np
import pytest
import scipy.special
from distribution_oracles import COUNTS, DISTRIBUTIONS
from test_distributions import kernel, points, unit

from dualbcast.special.probability.located_distributions import METHODS

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


def student_below(t: Any, df: Any) -> Any:
    tail = mp.betainc(df / 2, mp.mpf(0.5), 0, df / (df + t * t), regularized=True) / 2
    return 1 - tail if t > 0 else tail


def f_above(x: Any, m: Any, n: Any) -> Any:
    return mp.betainc(n / 2, m / 2, 0, n / (n + m * x), regularized=True)


def test_tails_of_students_distribution_within_the_root_of_its_degrees_of_freedom() -> None:
    """They were differences of halves: t.cdf(-10, 1000) was 0."""
    t = np.array([-8.0, -10.0, -30.0, -5.0, -3.0, -1e-5, 2.0, -6.0])
    df = np.array([100.0, 1000.0, 1000.0, 1e7, 10.0, 5.0, 3.0, 2.5])
    below, above = kernel("scipy.stats.t.cdf", 2)(t, df), kernel("scipy.stats.t.sf", 2)(-t, df)
    np.testing.assert_array_equal(below, above)
    with mp.workdps(60):
        exact = [float(student_below(*map(mp.mpf, point))) for point in zip(t, df, strict=True)]
    np.testing.assert_allclose(below, exact, rtol=1e-13)


def test_tails_of_the_f_distribution_on_the_other_side_of_a_half() -> None:
    """They were differences from 1: f.sf(10, 10, 1000) had no digit right."""
    x, m, n = np.array([[10.0, 10.0, 1000.0], [30.0, 20.0, 5000.0], [6.0, 5.0, 500.0], [1.0, 3.0, 4.0]]).T
    above, below = kernel("scipy.stats.f.sf", 3)(x, m, n), kernel("scipy.stats.f.cdf", 3)(1 / x, n, m)
    with mp.workdps(60):
        exact = [float(f_above(*map(mp.mpf, point))) for point in zip(x, m, n, strict=True)]
    np.testing.assert_allclose(above, exact, rtol=1e-12)
    np.testing.assert_allclose(below, exact, rtol=1e-12)


def test_quantiles_of_students_and_of_the_f_distribution_have_all_digits() -> None:
    """They were quotients with a difference of shares: f.ppf(1 - 1e-6, 1, 1) was off by 2e-5."""
    q, df = np.array([[0.975, 1e6], [0.2, 1e12], [0.3, 0.1], [1e-10, 1000.0], [1e-10, 2.0], [0.9, 1.0], [0.5, 3.0]]).T
    found = kernel("scipy.stats.t.ppf", 2)(q, df)
    p, m, n = np.array(
        [[1 - 1e-6, 1.0, 1.0], [0.999, 3.0, 0.5], [1 - 1e-12, 2.0, 3.0], [0.9, 1000.0, 1.0], [1e-9, 3.0, 4.0]]
    ).T
    ratios, slopes = kernel("scipy.stats.f.ppf", 3).value_and_jacobian(p, m, n, wrt="x0")
    with mp.workdps(60):
        for t, *at in zip(found, q, df, strict=True):
            t, goal, degrees = map(mp.mpf, (float(t), *at))
            density = mp.diff(student_below, (t, degrees), (1, 0))
            assert abs(student_below(t, degrees) - goal) <= 1e-14 * abs(t) * density, at
        for x, slope, *at in zip(ratios, slopes["x0"], p, m, n, strict=True):
            x, goal, *shapes = map(mp.mpf, (float(x), *at))
            density = -mp.diff(f_above, (x, *shapes), (1, 0, 0))
            assert abs(1 - f_above(x, *shapes) - goal) <= 1e-14 * x * density, at
            assert abs(slope * density - 1) <= 1e-12, at
    # One of 1000 trials succeeds with probability 1e-12.
    rare = kernel("scipy.special.bdtri", 3)(0.0, 1000.0, 1 - 1e-12)
    np.testing.assert_allclose(rare, scipy.special.bdtri(0, 1000, 1 - 1e-12), rtol=1e-13)


@pytest.mark.parametrize("name", [spelling.removeprefix("scipy.stats.") for spelling in METHODS])
def test_no_number_has_no_probability(name: str) -> None:
    """Student's distribution function was 0 there."""
    arrays = [array[:1] for array in points(name)]
    call = kernel(f"scipy.stats.{name}", len(arrays), backend="python")
    for position in range(len(arrays)):
        given = [np.array([np.nan]) if position == other else array for other, array in enumerate(arrays)]
        assert np.isnan(call(*given)).all(), position
