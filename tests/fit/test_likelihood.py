"""`fit.maximum_likelihood`, held against closed forms and SciPy's `minimize`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import optimize, special

from dualbcast import ArgumentError, differentiable_broadcast, fit
from dualbcast.fit import Status

TIGHT = {"ftol": 0.0, "xtol": 0.0, "gtol": 1e-11}


@differentiable_broadcast
def normal(x: float, mu: float, log_sigma: float) -> float:
    z = (x - mu) * math.exp(-log_sigma)
    return -0.5 * z * z - log_sigma - 0.5 * math.log(2 * math.pi)


@differentiable_broadcast
def logistic(dose: float, died: bool, slope: float, offset: float) -> float:
    """The log-probability of one outcome, without overflow at either end."""
    margin = (slope * dose + offset) * (1 if died else -1)
    return -math.log1p(math.exp(-margin)) if margin > 0 else margin - math.log1p(math.exp(margin))


def test_normal_distributions_have_closed_forms() -> None:
    x = np.random.default_rng(0).normal(3, 2, (40, 25)) * np.linspace(0.1, 10, 40)[:, None]
    start = x.mean(1, keepdims=True) + 0.5, np.log(x.std(1, keepdims=True)) + 0.5
    found = fit.maximum_likelihood(normal, x, *start, wrt=("mu", "log_sigma"), **TIGHT)
    assert found.converged.all()
    np.testing.assert_allclose(found["mu"][:, 0], x.mean(1), rtol=1e-10)
    np.testing.assert_allclose(np.exp(found["log_sigma"][:, 0]), x.std(1), rtol=1e-10)
    variance = x.var(1)
    expected = -0.5 * 25 * (1 + np.log(2 * np.pi * variance))
    np.testing.assert_allclose(found.log_likelihood[:, 0], expected, rtol=1e-12)
    np.testing.assert_allclose(found.covariance[:, 0, 0, 0], variance / 25, rtol=1e-8)
    np.testing.assert_allclose(found.covariance[:, 0, 1, 1], 1 / 50, rtol=1e-8)
    np.testing.assert_allclose(found.standard_errors["mu"][:, 0], np.sqrt(variance / 25), rtol=1e-8)


def test_logistic_regression() -> None:
    random = np.random.default_rng(1)
    dose = random.uniform(0, 10, 400)
    died = random.uniform(size=400) < special.expit(0.8 * dose - 4)
    found = fit.maximum_likelihood(logistic, dose, died, 0.0, 0.0, wrt=("slope", "offset"), **TIGHT)

    def deficit(p: Any) -> Any:
        return -special.log_expit(np.where(died, 1, -1) * (p[0] * dose + p[1])).sum()

    def slope(p: Any) -> Any:
        surprise = special.expit(p[0] * dose + p[1]) - died
        return np.array([(surprise * dose).sum(), surprise.sum()])

    its = optimize.minimize(deficit, [0, 0], jac=slope, method="BFGS", options={"gtol": 1e-9})
    assert found.converged
    np.testing.assert_allclose(list(found.parameters.values()), its.x, rtol=1e-6)
    np.testing.assert_allclose(found.log_likelihood, -its.fun, rtol=1e-12)
    p = special.expit(its.x[0] * dose + its.x[1])
    design = np.stack([dose, np.ones_like(dose)], 1)
    information = design.T @ (design * (p * (1 - p))[:, None])
    np.testing.assert_allclose(found.covariance, np.linalg.inv(information), rtol=1e-6)


def test_counts() -> None:
    """A Poisson regression with one exponent in each row, of integer data."""
    random, x = np.random.default_rng(2), np.linspace(0, 1, 60)
    counts = random.poisson(np.exp(0.5 + np.array([[1.0], [2.0], [0.0]]) * x))

    @differentiable_broadcast
    def poisson(x: float, n: int, base: float, slope: float) -> float:
        rate = base + slope * x
        return n * rate - math.exp(rate)

    found = fit.maximum_likelihood(poisson, x, counts, 0.0, np.zeros((3, 1)), wrt=("base", "slope"), **TIGHT)
    for row in range(3):
        residual = counts[row] - np.exp(found["base"][row, 0] + found["slope"][row, 0] * x)
        assert abs(residual.sum()) < 1e-8  # the score equations
        assert abs((residual * x).sum()) < 1e-8


def cauchy(x: float, center: float, log_width: float) -> float:
    z = (x - center) * math.exp(-log_width)
    return -math.log1p(z * z) - log_width


def test_starts_where_the_likelihood_is_not_concave() -> None:
    x = np.random.default_rng(3).standard_cauchy(50) + 2
    start = np.array([[-30.0], [40.0], [2.0], [9.0]])
    found = fit.maximum_likelihood(cauchy, x, start, np.array([[0.0], [-3.0], [5.0], [0.0]]), wrt=(1, 2), **TIGHT)
    assert found.converged.all(), found.message

    def deficit(p: Any) -> Any:
        return (np.log1p(((x - p[0]) * np.exp(-p[1])) ** 2) + p[1]).sum()

    its = optimize.minimize(deficit, [2, 0], method="Nelder-Mead", options={"xatol": 1e-10, "fatol": 1e-13})
    np.testing.assert_allclose(found["center"], its.x[0], atol=1e-6)
    np.testing.assert_allclose(found["log_width"], its.x[1], atol=1e-6)


def test_a_minimum_or_saddle_is_no_maximum() -> None:
    """Between two observations that are far apart the Cauchy likelihood is stationary, and least."""
    x = np.array([-5.0, 5.0])
    found = fit.maximum_likelihood(lambda x, center: -math.log1p((x - center) ** 2), x, 0.0)
    assert not found.converged
    assert found["center"] == 0
    away = fit.maximum_likelihood(lambda x, center: -math.log1p((x - center) ** 2), x, 0.1, **TIGHT)
    np.testing.assert_allclose(away["center"], math.sqrt(24), rtol=1e-10)


def test_bounds() -> None:
    x = np.random.default_rng(4).normal(3, 2, 100)
    given = {"wrt": ("mu", "log_sigma"), **TIGHT}
    found = fit.maximum_likelihood(normal, x, 1.0, 0.0, bounds={"mu": (None, 2.0)}, **given)
    assert found["mu"] == 2
    assert found.at_bound == {"mu": 1, "log_sigma": 0}
    np.testing.assert_allclose(np.exp(2 * found["log_sigma"]), ((x - 2) ** 2).mean(), rtol=1e-10)
    np.testing.assert_allclose(found.covariance[1, 1], 1 / 200, rtol=1e-8)
    assert np.isnan(found.covariance[0]).all()


def test_each_fit_has_the_same_bits_alone() -> None:
    x = np.random.default_rng(5).normal(3, 2, (17, 30))
    x[4, 2] = np.nan
    start = np.linspace(-20, 20, 17)[:, None]
    found = fit.maximum_likelihood(normal, x, start, 1.0, wrt=("mu", "log_sigma"))
    assert len(np.unique(found.iterations)) > 2
    assert found.status[4, 0] == Status.NOT_FINITE
    assert np.isnan(found.log_likelihood[4, 0])
    for row in range(17):
        one = slice(row, row + 1)
        alone = fit.maximum_likelihood(normal, x[one], start[one], 1.0, wrt=("mu", "log_sigma"))
        assert all(np.array_equal(alone[name][0], found[name][row]) for name in ("mu", "log_sigma"))


def test_a_likelihood_without_a_maximum_does_not_converge_to_one() -> None:
    """The outcomes are separated by the dose, so the slope grows without end."""
    dose = np.linspace(-1, 1, 20)
    found = fit.maximum_likelihood(logistic, dose, dose > 0, 0.0, 0.0, wrt=("slope", "offset"))
    assert found["slope"] > 50
    assert found.log_likelihood > -1e-3


def test_errors() -> None:
    with pytest.raises(ArgumentError, match="must return one float"):
        fit.maximum_likelihood(lambda x, a: (x, a), np.ones(3), 1.0)
    with pytest.raises(ArgumentError, match="must return one float"):
        fit.maximum_likelihood(lambda x, a: x > a, np.ones(3), 1.0)
    with pytest.raises(ArgumentError, match="gtol"):
        fit.maximum_likelihood(normal, np.ones(3), 1.0, 1.0, gtol=-1.0)


def test_parameters_in_a_vector():
    @differentiable_broadcast(signature="(),(2)->()")
    def log_density(x, p):
        z = (x - p[0]) * math.exp(-p[1])
        return -0.5 * z * z - p[1]

    x = np.array([1.0, 2.0, 3.0, 6.0])
    best = fit.maximum_likelihood(log_density, x, np.zeros(2), wrt="p")
    np.testing.assert_allclose(best["p"], [3.0, 0.5 * math.log(3.5)], rtol=1e-7)
    np.testing.assert_allclose(best.covariance, np.diag([3.5 / 4, 1 / 8]), rtol=1e-6, atol=1e-7)
