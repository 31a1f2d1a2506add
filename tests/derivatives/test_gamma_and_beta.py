"""Incomplete gamma and beta functions over wide ranges of their parameters, against mpmath: values within the errors
that the docstrings state, and slopes in all arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
import pytest
import scipy.stats
from numpy.polynomial import Polynomial
from probability_oracles import lower_beta, lower_gamma, upper_gamma
from suites import sampled

from dualbcast import differentiable_broadcast, special
from dualbcast.special.probability import incomplete_beta, stirling

DTYPES = ("float32", "float64")
COUNT = 40


def gamma_points(dtype: str) -> tuple[np.ndarray, ...]:
    """Parameters of all sizes, near the middle of the distribution and away from it."""
    draw = np.random.default_rng(3)
    a = 10 ** draw.uniform(-2, 3, COUNT)
    middle = a + draw.normal(0, 2, COUNT) * np.sqrt(a)
    away = a * 10 ** draw.uniform(-1, 0.6, COUNT)
    x = np.where((draw.random(COUNT) < 0.6) & (middle > 0), middle, away)
    return a.astype(dtype), x.astype(dtype)


def beta_points(dtype: str) -> tuple[np.ndarray, ...]:
    draw = np.random.default_rng(4)
    a, b = 10 ** draw.uniform(-1.5, 2.3, (2, COUNT))
    middle = a / (a + b)
    x = middle + draw.normal(0, 1.5, COUNT) * np.sqrt(middle * (1 - middle) / (a + b + 1))
    return a.astype(dtype), b.astype(dtype), np.clip(x, 1e-3, 1 - 2**-10).astype(dtype)


def upper_beta(a: Any, b: Any, x: Any) -> Any:
    return lower_beta(b, a, 1 - x)


# The function, its complement, and points.
CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any], Callable[[str], Any]]] = {
    "gammainc": (special.gammainc, lower_gamma, upper_gamma, gamma_points),
    "gammaincc": (special.gammaincc, upper_gamma, lower_gamma, gamma_points),
    "betainc": (special.betainc, lower_beta, upper_beta, beta_points),
    "betaincc": (special.betaincc, upper_beta, lower_beta, beta_points),
}


def allowed(size: float, dtype: str) -> float:
    """Twenty units in the last place, and three times the logarithm of a result below 1 more."""
    info = np.finfo(dtype)
    return float((20 + 3 * abs(math.log(max(min(size, 1.0), 1e-300)))) * info.eps * size + info.tiny)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CASES)
def test_values_and_slopes_over_wide_ranges(name: str, dtype: str) -> None:
    function, of, complement, draw = CASES[name]
    arrays = draw(dtype)
    value, jacobian = differentiable_broadcast(function).value_and_jacobian(*arrays)
    eps = float(np.finfo(dtype).eps)
    for row, point in enumerate(zip(*arrays, strict=True)):
        with mp.workdps(60):
            at = tuple(mp.mpf(float(x)) for x in point)
            exact = of(*at)
            # betaincc is a difference from 1 below the mean, as its docstring says.
            lost = 8 * eps if name == "betaincc" and at[1] * at[2] <= at[0] * (1 - at[2]) else 0.0
            assert abs(float(value[row]) - exact) <= allowed(float(exact), dtype) + lost, (point, value[row])
            for position in range(len(at)):
                # The derivative of 1 less a tiny number would have no digits.
                smaller, sign = (of, 1) if exact < 0.5 else (complement, -1)
                orders = tuple(int(position == other) for other in range(len(at)))
                slope = sign * mp.diff(smaller, at, orders, h=mp.mpf(10) ** -15)
                got = float(jacobian[0, position][row])
                # Some slopes are differences of terms that are as large as the value, divided by the argument.
                terms = abs(slope) + min(exact, 1 - exact) / at[position]
                assert abs(got - slope) <= 8 * allowed(float(terms), dtype), (point, position, got, float(slope))


@pytest.mark.parametrize("dtype", sampled(DTYPES, 2))
def test_inverses_lead_back(dtype: str) -> None:
    draw = np.random.default_rng(5)
    a, b = (10 ** draw.uniform(-0.7, 2.5, (2, 400))).astype(dtype)
    p = np.concatenate([draw.random(300), 10 ** draw.uniform(-25, 0, 100)]).astype(dtype)
    eps = float(np.finfo(dtype).eps)
    for inverse, function, args in (
        (special.gammaincinv, special.gammainc, (a,)),
        (special.gammainccinv, special.gammaincc, (a,)),
        (special.betaincinv, special.betainc, (a, b)),
        (special.betainccinv, special.betaincc, (a, b)),
    ):
        x = differentiable_broadcast(inverse)(*args, p)
        value, jacobian = differentiable_broadcast(function).value_and_jacobian(*args, x)
        inside = (x > np.finfo(dtype).tiny) & (x < (1 - 8 * eps if len(args) == 2 else np.inf))
        with np.errstate(invalid="ignore"):
            condition = np.abs(x * jacobian[0, len(args)])
        condition = condition + np.minimum(np.abs(1 - p), p) * 8
        off = np.abs(value - p)[inside] / (eps * (8 * p + 4 * condition) + 8 * eps * p * np.abs(np.log(p)))[inside]
        assert inside.mean() > 0.8
        assert off.max() <= 8, inverse.__name__


def test_large_parameters_near_the_middle() -> None:
    """Where the sums would be long: half of the probability is near the median."""
    a = np.array([1e3, 1e5, 1e7, 1e9])
    median = a - 1 / 3 + 8 / 405 / a  # K. P. Choi, Proc. Amer. Math. Soc. 121 (1994) 245-251
    np.testing.assert_allclose(differentiable_broadcast(special.gammainc)(a, median), 0.5, rtol=1e-9)
    np.testing.assert_allclose(differentiable_broadcast(special.betainc)(a[:3], a[:3], 0.5), 0.5, rtol=1e-12)
    slope = differentiable_broadcast(special.betainc).jacobian(a[:3], a[:3], 0.5)
    np.testing.assert_allclose(slope[0, "a"], -slope[0, "b"], rtol=1e-9)


@pytest.mark.parametrize(("a", "b", "x"), [(0.4, 3.0, 0.3), (12.5, 3.0, 0.7), (40.0, 25.0, 0.55), (3.0, 60.0, 1e-3)])
def test_the_common_factor_of_the_beta_functions(a: float, b: float, x: float) -> None:
    with mp.workdps(40):
        at = (mp.mpf(a), mp.mpf(b), mp.mpf(x))
        of = lambda a, b, x: x**a * (1 - x) ** b / (a * mp.beta(a, b))  # noqa: E731
        exact, slopes = of(*at), [mp.diff(of, at, unit) for unit in ((1, 0, 0), (0, 1, 0), (0, 0, 1))]
    term = differentiable_broadcast(lambda a, b, x: incomplete_beta.beta_term(a, b, x, 1.0 - x), backend="python")
    value, jacobian = term.value_and_jacobian(np.array([a]), np.array([b]), np.array([x]))
    np.testing.assert_allclose(value, float(exact), rtol=2e-14)
    for name, slope in zip("abx", slopes, strict=True):
        np.testing.assert_allclose(jacobian[0, name], float(slope), rtol=2e-13)


def test_differences_of_digamma_keep_their_digits() -> None:
    for a, b in ((0.3, 1e-12), (5.0, 1e-10), (1e6, 1.0), (1e8, 0.5), (30.0, -29.5), (2.0, 40.0)):
        with mp.workdps(40):
            exact = mp.digamma(mp.mpf(a) + mp.mpf(b)) - mp.digamma(a)
        assert abs(stirling.digamma_gap(a, b) - exact) <= 1e-14 * abs(exact), (a, b)


def test_gammasgn_and_loggamma() -> None:
    import scipy.special

    for x in (2.5, -0.5, -1.5, -2.5, -2.0, 0.0, -0.0, math.inf, math.nan):
        np.testing.assert_equal(special.gammasgn(x), float(scipy.special.gammasgn(x)))
    np.testing.assert_equal(special.loggamma(-0.5), float(scipy.special.loggamma(-0.5)))
    assert special.loggamma(3.0) == math.lgamma(3.0)


@pytest.mark.parametrize("backend", sampled(["python", "cpu"], 2))
def test_densities_have_the_slope_to_the_inside_at_the_ends(backend: Any) -> None:
    """Where the density is 0 at an end its slope was 0, too, and where it is finite NaN."""
    gamma = differentiable_broadcast(lambda a, x: special.gammainc(a, x), backend=backend)
    a = np.array([0.5, 1.0, 1.5, 2.0, 3.0])
    np.testing.assert_array_equal(gamma.hessian(a, 0.0)["x", "x"], [-math.inf, -1.0, math.inf, 1.0, 0.0])
    beta = differentiable_broadcast(lambda a, b, x: special.betainc(a, b, x), backend=backend)
    # 1 / beta(a, b) is b for a = 1, and b (b + 1) for a = 2.
    for b in (0.5, 1.0, 2.0, 3.5):
        slopes = np.array([-math.inf, b * (1 - b), math.inf, b * (b + 1), 0.0])
        np.testing.assert_allclose(beta.hessian(a, b, 0.0)["x", "x"], slopes, rtol=1e-14)
        np.testing.assert_allclose(beta.hessian(b, a, 1.0)["x", "x"], -slopes, rtol=1e-14)
    assert np.isnan(gamma.hessian(-1.0, 0.0)["x", "x"])
    assert np.isnan(beta.hessian(-1.0, 1.0, 0.0)["x", "x"])


@pytest.mark.parametrize("backend", ["python", "cpu"])
def test_densities_have_the_second_derivatives_to_the_inside_at_the_ends(backend: Any) -> None:
    """They were 0: the slope there was a constant to the compiler."""
    gamma = differentiable_broadcast(lambda x, a: scipy.stats.gamma.pdf(x, a), backend=backend)
    found = gamma.hessian(0.0, np.array([1.0, 2.0, 3.0, 4.0, 2.5, 1.5]))
    np.testing.assert_allclose(found["x", "x"], [1.0, -2.0, 1.0, 0.0, math.inf, -math.inf], rtol=1e-15)
    np.testing.assert_array_equal(found["x", "a"], [math.inf, -math.inf, 0.0, 0.0, 0.0, -math.inf])
    beta = differentiable_broadcast(lambda x, a, b: scipy.stats.beta.pdf(x, a, b), backend=backend)
    for a, b in ((1, 1), (2, 2), (3, 2), (2, 3), (1, 3), (3, 4)):
        inside = Polynomial([0, 1]) ** (a - 1) * Polynomial([1, -1]) ** (b - 1) / mp.beta(a, b)
        found = beta.hessian(np.array([0.0, 1.0]), float(a), float(b))["x", "x"]
        np.testing.assert_allclose(found, inside.deriv(2)(np.array([0, 1])).astype(float), rtol=1e-14)


def f_density(x: Any, m: float, n: float) -> Any:
    a, b = mp.mpf(m) / 2, mp.mpf(n) / 2
    return (a / b) ** a * x ** (a - 1) * (1 + a / b * x) ** (-a - b) / mp.beta(a, b)


@pytest.mark.parametrize("backend", sampled(["python", "cpu"], 2))
def test_the_density_of_the_f_distribution_has_derivatives_at_0(backend: Any) -> None:
    """They were no numbers."""
    density = differentiable_broadcast(lambda x, m, n: scipy.stats.f.pdf(x, m, n), backend=backend)
    m, n = np.array([2.0, 4.0, 6.0, 8.0]), np.array([3.0, 2.0, 5.0, 7.0])
    value, jacobian, hessian = density.value_jacobian_and_hessian(0.0, m, n)
    for k in range(len(m)):
        with mp.workdps(60):
            steps = {"direction": 1, "h": mp.mpf(10) ** -15}
            series = [float(mp.diff(lambda x: f_density(x, m[k], n[k]), 0, order, **steps)) for order in range(3)]  # noqa: B023
        found = [value[k], jacobian["x"][k], hessian["x", "x"][k]]
        np.testing.assert_allclose(found, series, rtol=1e-12, atol=1e-12)
    assert np.isfinite([jacobian["m"][1:], jacobian["n"][1:]]).all()


@pytest.mark.parametrize("backend", ["python", "cpu"])
def test_second_derivatives_of_betaln_where_a_parameter_is_small(backend: Any) -> None:
    """That in both was a difference of numbers of the size of 1 / a, of which no digit was left."""
    points = [(1e-20, 3.0), (1e-14, 0.5), (1e-6, 2.0), (2.0, 1e-10), (1e-5, 1e-5), (3.0, 4.0), (1e8, 2.0), (30.0, 45.0)]
    a, b = np.array(points).T
    hessian = differentiable_broadcast(lambda a, b: special.betaln(a, b), backend=backend).hessian(a, b)
    with mp.workdps(60):
        for row, (x, y) in enumerate(points):
            both = -mp.psi(1, mp.mpf(x) + mp.mpf(y))
            assert abs(hessian["a", "b"][row] - both) <= 1e-14 * abs(both)
            for name, own in (("a", mp.psi(1, mp.mpf(x)) + both), ("b", mp.psi(1, mp.mpf(y)) + both)):
                assert abs(hessian[name, name][row] - own) <= 1e-14 * abs(own)
