"""Methods of distributions where a text of theirs would overflow, cancel, or be a product of 0 and infinity: far out,
and at the ends of intervals. Exact values are mpmath's, or limits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from suites import sampled
from test_distributions import kernel

DTYPES = pytest.mark.parametrize("dtype", [np.float64, np.float32])
inf = math.inf


def logistic(z: Any) -> Any:
    return 1 / (1 + mp.exp(-z))


def cauchy(z: Any) -> Any:
    return -mp.log(mp.pi) - mp.log1p(z * z)


def student(z: Any, df: Any) -> Any:
    return -mp.log(mp.beta(df / 2, mp.mpf(1) / 2)) - mp.log(df) / 2 - (df + 1) / 2 * mp.log1p(z * z / df)


def lognormal(z: Any, s: Any) -> Any:
    return mp.npdf(mp.log(z) / s) / (s * z)


def exact(of: Callable[..., Any], at: tuple[Any, ...], orders: tuple[int, ...]) -> Any:
    """A derivative in mpmath, with a step in each argument that is small beside it."""
    with mp.workdps(900):
        at = tuple(map(mp.mpf, at))
        steps = [abs(x) * mp.mpf(10) ** -40 for x in at]

        def along(position: int, *point: Any) -> Any:
            if position == len(at):
                return of(*point)
            x, h, order = point[position], steps[position], orders[position]
            values = [
                along(position + 1, *point[:position], x + k * h, *point[position + 1 :])
                for k in range(-order, order + 1)
            ]
            if order == 1:
                return (values[2] - values[0]) / (2 * h)
            return (values[1] - 2 * values[2] + values[3]) / (h * h) if order == 2 else values[0]

        return along(0, *at)


FAR = [*(sign * 10.0**k for k in (2, 5, 9, 10, 12, 15, 18, 20, 30, 37) for sign in (1, -1))]
FARTHER = [1e60, -1e100, 1e154, -1e160, 1e200, -1e300]
# Calls, their exact values, where they are taken, and where in float64 only.
TAILS: dict[str, tuple[Any, list[float], list[float]]] = {
    "logistic.cdf(x)": (logistic, [3.0, 20.0, 30.0, 37.0, 40.0, 80.0, -80.0], [700.0, -700.0]),
    "logistic.sf(x)": (lambda z: logistic(-z), [-3.0, -20.0, -30.0, -37.0, -40.0, -80.0, 80.0], [700.0, -700.0]),
    "logistic.pdf(x)": (lambda z: logistic(z) * logistic(-z), [3.0, 20.0, 40.0, 80.0, -40.0], [700.0, -700.0]),
    "cauchy.logpdf(x)": (cauchy, FAR, FARTHER),
    "cauchy.pdf(x)": (lambda z: mp.exp(cauchy(z)), FAR, FARTHER),
    **{
        f"t.logpdf(x, {df})": (lambda z, df=df: student(z, mp.mpf(df)), FAR, FARTHER)
        for df in (0.0625, 0.5, 1.0, 3.5, 150.0)
    },
    "t.pdf(x, 0.5)": (lambda z: mp.exp(student(z, mp.mpf(0.5))), FAR[:-4], FARTHER[:-2]),
    "lognorm.pdf(x, 0.25)": (lambda z: lognormal(z, mp.mpf(0.25)), [0.125, 0.5], [1e-160, 1e-300]),
    "cauchy.ppf(x)": (lambda q: mp.tan(mp.pi * (q - 0.5)), [1e-12, 1e-3, 0.3, 0.75], [1e-100]),
    "cauchy.isf(x)": (lambda q: -mp.tan(mp.pi * (q - 0.5)), [1e-12, 1e-3, 0.3, 0.75], [1e-100]),
    "gumbel_r.ppf(x)": (lambda q: -mp.log(-mp.log(q)), [1e-12, 1e-3, 0.3, 0.75], [1e-100]),
}


@DTYPES
@pytest.mark.parametrize("call", TAILS)
def test_derivatives_in_tails(call: str, dtype: Any) -> None:
    """The slope of `logistic.cdf` was 0 from 38 on, and `cauchy.logpdf` -inf from 1e155 on, or from 1e20 in float32."""
    of, places, farther = TAILS[call]
    x = np.array([*places, *(farther if dtype is np.float64 else [])], dtype)
    value, jacobian, hessian = kernel(f"(lambda x: scipy.stats.{call})", 1).value_jacobian_and_hessian(x)
    info = np.finfo(dtype)
    for row, at in enumerate(map(float, x)):
        for order, got in enumerate([value[row], jacobian["x0"][row], hessian["x0", "x0"][row]]):
            wanted = exact(of, (at,), (order,))
            # The rounding of a logarithm is magnified by its exponential.
            grown = max(1.0, abs(float(mp.log(abs(wanted))))) if "pdf(x" in call else 1.0
            if abs(wanted) > info.max:
                assert not np.isfinite(got), (call, at, order)
            else:
                assert abs(float(got) - wanted) <= 32 * grown * info.eps * abs(wanted) + 4 * info.tiny, (
                    call,
                    at,
                    order,
                    got,
                )


@DTYPES
def test_slopes_of_students_density_in_its_degrees_of_freedom_far_out(dtype: Any) -> None:
    """They were NaN."""
    x = np.array([*FAR, *(FARTHER if dtype is np.float64 else [])], dtype)
    df = np.resize(np.array([0.5, 1.5, 3.0], dtype), x.size)
    slope = kernel("scipy.stats.t.logpdf", 2).jacobian(x, df, wrt="x1")["x1"]
    for row, at in enumerate(zip(map(float, x), map(float, df), strict=True)):
        wanted = exact(student, at, (0, 1))
        assert abs(float(slope[row]) - wanted) <= 64 * np.finfo(dtype).eps * abs(wanted), at


# Quantiles: the slopes at the probabilities 0 and 1 in all arguments, which are limits.
QUANTILES: dict[str, tuple[list[float], list[float]]] = {
    "norm.ppf(q)": ([inf], [inf]),
    "cauchy.ppf(q)": ([inf], [inf]),
    "cauchy.isf(q)": ([-inf], [-inf]),
    "logistic.ppf(q)": ([inf], [inf]),
    "gumbel_r.ppf(q)": ([inf], [inf]),
    "rayleigh.ppf(q)": ([inf], [inf]),
    "lognorm.ppf(q, s=0.5)": ([inf, 0.0], [inf, inf]),
    "lognorm.isf(q, s=0.5)": ([-inf, inf], [-inf, 0.0]),
    "weibull_min.ppf(q, c=0.5)": ([0.0, 0.0], [inf, -inf]),
    "weibull_min.ppf(q, c=1.0)": ([1.0, 0.0], [inf, -inf]),
    "weibull_min.ppf(q, c=2.5)": ([inf, 0.0], [inf, -inf]),
    "weibull_min.isf(q, c=2.5)": ([-inf, -inf], [-inf, 0.0]),
    "gamma.ppf(q, a=0.5)": ([0.0, 0.0], [inf, inf]),
    "gamma.ppf(q, a=1.0)": ([1.0, 0.0], [inf, inf]),
    "gamma.ppf(q, a=2.5)": ([inf, 0.0], [inf, inf]),
    "gamma.isf(q, a=2.5)": ([-inf, inf], [-inf, 0.0]),
    "chi2.ppf(q, df=2.0)": ([2.0, 0.0], [inf, inf]),
    "beta.ppf(q, a=0.5, b=3.0)": ([0.0, 0.0, 0.0], [inf, 0.0, 0.0]),
    "beta.ppf(q, a=1.0, b=2.0)": ([0.5, 0.0, 0.0], [inf, 0.0, 0.0]),
    "beta.isf(q, a=2.0, b=1.0)": ([-0.5, 0.0, 0.0], [-inf, 0.0, 0.0]),
    "f.ppf(q, dfn=1.0, dfd=1.0)": ([0.0, 0.0, 0.0], [inf, inf, -inf]),
    "f.ppf(q, dfn=2.0, dfd=5.0)": ([1.0, 0.0, 0.0], [inf, -inf, -inf]),
    "f.ppf(q, dfn=5.0, dfd=2.0)": ([inf, 0.0, 0.0], [inf, 0.04, -inf]),
    "t.ppf(q, df=3.5)": ([inf, inf], [inf, -inf]),
    "t.isf(q, df=3.5)": ([-inf, -inf], [-inf, inf]),
}


@pytest.mark.parametrize("call", sampled(QUANTILES, 3))
def test_slopes_of_quantiles_at_both_ends(call: str) -> None:
    """Most were NaN."""
    dtype = np.float64
    name, *shapes = call.removesuffix(")").replace("(q", "").split(", ")
    given = [float(shape.partition("=")[2]) for shape in shapes]
    arrays = [np.array([0.0, 1.0], dtype), *(np.array([shape, shape], dtype) for shape in given)]
    jacobian = kernel(f"scipy.stats.{name}", len(arrays)).jacobian(*arrays)
    for row, wanted in enumerate(QUANTILES[call]):
        found = [float(np.broadcast_to(jacobian[f"x{position}"], (2,))[row]) for position in range(len(arrays))]
        np.testing.assert_allclose(found, wanted, rtol=8 * np.finfo(dtype).eps, err_msg=f"{call} at {row}")


# At x = 0: the value, the slopes, and (by its position) a curvature or none.
ZERO: dict[str, tuple[float, list[float], dict[tuple[int, int], float]]] = {
    "f.cdf(0, dfn=1, dfd=1)": (0.0, [inf, 0.0, 0.0], {(0, 0): -inf, (1, 1): 0.0, (1, 2): 0.0, (2, 2): 0.0}),
    "f.cdf(0, dfn=2, dfd=5)": (0.0, [1.0, 0.0, 0.0], {(0, 0): -1.4, (0, 1): -inf, (0, 2): 0.0, (1, 1): 0.0}),
    "f.sf(0, dfn=2, dfd=5)": (1.0, [-1.0, 0.0, 0.0], {(0, 0): 1.4, (0, 1): inf, (0, 2): 0.0, (1, 1): 0.0}),
    "f.cdf(0, dfn=3, dfd=2)": (0.0, [0.0, 0.0, 0.0], {(0, 0): inf, (1, 1): 0.0, (1, 2): 0.0, (2, 2): 0.0}),
    "f.pdf(0, dfn=1, dfd=1)": (inf, [-inf, -inf, inf], {(0, 0): inf}),
    "f.pdf(0, dfn=2, dfd=5)": (1.0, [-1.4, -inf, 0.0], {(0, 0): 2.52, (2, 2): 0.0}),
    "f.pdf(0, dfn=3, dfd=2)": (0.0, [inf, 0.0, 0.0], {(0, 0): -inf, (1, 1): 0.0, (2, 2): 0.0}),
    "f.pdf(0, dfn=4, dfd=6)": (0.0, [16 / 3, 0.0, 0.0], {(0, 0): -320 / 9, (0, 1): -inf, (1, 1): 0.0}),
    "f.pdf(0, dfn=6, dfd=5)": (0.0, [0.0, 0.0, 0.0], {(0, 0): 68.04, (1, 1): 0.0}),
    "weibull_min.pdf(0, c=0.5)": (inf, [-inf, -inf], {(0, 0): inf}),
    "weibull_min.pdf(0, c=1)": (1.0, [-1.0, -inf], {(0, 0): 1.0}),
    "weibull_min.pdf(0, c=1.5)": (0.0, [inf, 0.0], {(0, 0): -inf, (1, 1): 0.0}),
    "weibull_min.pdf(0, c=2)": (0.0, [2.0, 0.0], {(0, 0): 0.0, (1, 1): 0.0}),
    "weibull_min.pdf(0, c=3)": (0.0, [0.0, 0.0], {(0, 0): 6.0, (1, 1): 0.0}),
    "beta.cdf(0, a=1, b=3)": (0.0, [3.0, 0.0, 0.0], {(0, 0): -6.0, (0, 1): -inf, (0, 2): 1.0, (2, 2): 0.0}),
    "beta.sf(0, a=1, b=3)": (1.0, [-3.0, 0.0, 0.0], {(0, 0): 6.0, (0, 1): inf, (0, 2): -1.0, (2, 2): 0.0}),
    "beta.cdf(1, a=3, b=1)": (1.0, [3.0, 0.0, 0.0], {(0, 0): 6.0, (0, 1): 1.0, (0, 2): -inf, (1, 1): 0.0}),
    "gamma.cdf(0, a=1)": (0.0, [1.0, 0.0], {(0, 0): -1.0, (0, 1): -inf, (1, 1): 0.0}),
}


@pytest.mark.parametrize("call", sampled(ZERO, 3))
def test_at_an_end_of_the_interval(call: str) -> None:
    """The slopes in the parameters were NaN where the density is not finite, and mixed curvatures were 0 or NaN."""
    dtype = np.float64
    name, rest = call.removesuffix(")").split("(")
    given = [float(part.partition("=")[2] or part) for part in rest.split(", ")]
    arrays = [np.array([number], dtype) for number in given]
    value, jacobian, hessian = kernel(f"scipy.stats.{name}", len(arrays)).value_jacobian_and_hessian(*arrays)
    wanted, slopes, curvatures = ZERO[call]
    close = {"rtol": 32 * np.finfo(dtype).eps, "atol": 16 * np.finfo(dtype).eps, "err_msg": call}
    np.testing.assert_allclose(value, wanted, **close)
    np.testing.assert_allclose([jacobian[f"x{i}"][0] for i in range(len(arrays))], slopes, **close)
    for (i, j), curvature in curvatures.items():
        np.testing.assert_allclose(hessian[f"x{i}", f"x{j}"], curvature, **close)
        np.testing.assert_allclose(hessian[f"x{j}", f"x{i}"], curvature, **close)


def test_the_mixed_curvature_of_beta_without_its_poles() -> None:
    """It was a difference of numbers like 1 / a**3: at 1e-8 it was -2e8 instead of 2.4."""
    small = [1e-8, 1e-5, 1e-3, 0.1, 2.5, 60.0]
    a, b = (np.array(column) for column in zip(*((x, y) for x in small for y in small), strict=True))
    hessian = kernel("scipy.special.beta", 2).hessian(a, b)
    for row, point in enumerate(zip(a, b, strict=True)):
        wanted = exact(mp.beta, point, (1, 1))
        assert abs(hessian["x0", "x1"][row] - wanted) <= 1e-15 * (64 + 1 / min(point)) * abs(wanted), point
        for orders, names in (((2, 0), ("x0", "x0")), ((0, 2), ("x1", "x1"))):
            wanted = exact(mp.beta, point, orders)
            assert abs(hessian[names][row] - wanted) <= 1e-13 * abs(wanted), (point, names)
