"""Values and slopes of distributions that were 0, or NaN, where they are ordinary, against mpmath and limits."""

from __future__ import annotations

import math
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from distribution_oracles import DISTRIBUTIONS
from test_distribution_limits import exact, logistic
from test_distributions import kernel

DTYPES = pytest.mark.parametrize("dtype", [np.float64, np.float32])


def of(family: str, *shapes: float) -> Any:
    """A density in mpmath."""
    return lambda z: mp.exp(DISTRIBUTIONS[family].log_density(z, *map(mp.mpf, shapes)))


def student_below(t: Any, df: Any) -> Any:
    return mp.exp(DISTRIBUTIONS["t"].log_density(t, df)) * -t / df  # the rest is t**-2 times as much


# Calls, what they are, where, and where in float64 only.
PLACES: dict[str, tuple[Any, list[float], list[float]]] = {
    "chi2.pdf(x, 3.0)": (of("chi2", 3.0), [1e-30, 1e-20], [1e-300]),
    "gamma.pdf(x, 1.5)": (of("gamma", 1.5), [1e-30, 1e-10, 9e-5, 1.1e-4], [1e-300, 1e-250]),
    "gamma.pdf(x, 4.5)": (of("gamma", 4.5), [1e-10, 9e-5, 1.1e-4], [1e-75]),
    "beta.pdf(x, 1.5, 2.5)": (of("beta", 1.5, 2.5), [1e-30, 1e-10], [1e-300]),
    "beta.pdf(x, 1.25, 2.5)": (of("beta", 1.25, 2.5), [1e-20], [1e-300]),
    "lognorm.pdf(x, 10.0)": (of("lognorm", 10.0), [1e-15, 1e-5, 1e20], [1e-30]),
    "logistic.pdf(x)": (lambda z: logistic(z) * logistic(-z), [1e-30, -1e-20, 1e-3, 0.06, -0.07], [1e-300]),
    "logistic.logpdf(x)": (lambda z: mp.log(logistic(z) * logistic(-z)), [1e-30, -1e-20, 1e-3, 0.06], [1e-300]),
    "gumbel_r.pdf(x)": (lambda z: mp.exp(-z - mp.exp(-z)), [1e-30, -1e-20, 1e-3, 0.0075], [1e-300]),
    "gumbel_r.logpdf(x)": (lambda z: -z - mp.exp(-z), [1e-30, -1e-20, 1e-3, 0.0075], [1e-300]),
    "t.cdf(x, 0.5)": (lambda t: student_below(t, mp.mpf(0.5)), [-1e12, -1e19], [-1e150, -1e160, -1e200]),
}


@DTYPES
@pytest.mark.parametrize("call", PLACES)
def test_values_and_slopes(call: str, dtype: Any) -> None:
    """`chi2.pdf(1e-30, 3)` was 0 in float32 instead of 4e-16, and the slope of `logistic.pdf` at 1e-17 was."""
    function, places, farther = PLACES[call]
    x = np.array([*places, *(farther if dtype is np.float64 else [])], dtype)
    value, jacobian = kernel(f"(lambda x: scipy.stats.{call})", 1).value_and_jacobian(x)
    info = np.finfo(dtype)
    for row, at in enumerate(map(float, x)):
        for order, got in enumerate([value[row], jacobian["x0"][row]]):
            wanted = exact(function, (at,), (order,))
            # The rounding of a logarithm is magnified by its exponential.
            grown = max(1.0, abs(float(mp.log(abs(wanted))))) if "logpdf" not in call else 1.0
            if abs(wanted) > info.max:
                assert math.isinf(got), (call, at, order)
            else:
                allowed = (64 + 4 * grown) * info.eps * abs(wanted) + 4 * info.tiny
                assert abs(float(got) - wanted) <= allowed, (call, at, order, got)


@DTYPES
def test_students_probability_in_its_degrees_of_freedom_far_out(dtype: Any) -> None:
    """It was 0 where the square overflows."""
    t, df = np.array([[-1e19, 0.5], [1e19, 0.75], [-1e15, 1.5]], dtype).T
    if dtype is np.float64:
        t = t**8
    slope = kernel("scipy.stats.t.cdf", 2).jacobian(t, df, wrt="x1")["x1"]
    for row, at in enumerate(zip(map(float, t), map(float, df), strict=True)):
        wanted = exact(lambda t, df: student_below(-abs(t), df) * (-1 if t > 0 else 1), at, (0, 1))
        assert abs(float(slope[row]) - wanted) <= 2000 * np.finfo(dtype).eps * abs(wanted), at


# Values and slopes at infinity.
AT_INFINITY = {
    "gamma.logpdf(x, 2.5)": (math.inf, -math.inf, -1.0),
    "gamma.logpdf(x, 250.0)": (math.inf, -math.inf, -1.0),
    "rayleigh.pdf(x)": (math.inf, 0.0, 0.0),
    "rayleigh.logpdf(x)": (math.inf, -math.inf, -math.inf),
    "gumbel_r.logpdf(x)": (-math.inf, -math.inf, math.inf),
}


@DTYPES
@pytest.mark.parametrize("call", AT_INFINITY)
def test_at_infinity(call: str, dtype: Any) -> None:
    """They were NaN."""
    place, *wanted = AT_INFINITY[call]
    value, jacobian = kernel(f"(lambda x: scipy.stats.{call})", 1).value_and_jacobian(np.array([place], dtype))
    assert [float(value[0]), float(jacobian["x0"][0])] == wanted


def test_the_curvature_of_a_density_that_is_infinite() -> None:
    """It was NaN."""
    hessian = kernel("(lambda x: scipy.stats.gamma.pdf(x, 0.5))", 1).hessian(np.array([0.0]))
    assert hessian["x0", "x0"][0] == math.inf
