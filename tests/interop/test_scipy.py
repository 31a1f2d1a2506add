"""Solvers of SciPy's with values and derivatives of one scalar function, against the same solvers without derivatives.

Jacobians are compared with those of `scipy.differentiate`, Hessians with differences of gradients.
"""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dualbcast import differentiable_broadcast
from dualbcast.errors import ArgumentError, ShapeError
from dualbcast.interop.scipy import Curve, Objective, Residuals, RightHandSide

optimize = pytest.importorskip("scipy.optimize")
integrate = pytest.importorskip("scipy.integrate")
sparse = pytest.importorskip("scipy.sparse")
differentiate = pytest.importorskip("scipy.differentiate")

rng = np.random.default_rng(5)


@differentiable_broadcast
def misfit(t, y, amplitude, rate, offset):
    """A decay with a branch: after t = 2 the detector is saturated from below."""
    model = amplitude * math.exp(-rate * t) + offset
    if t > 2 and model < 0.6:
        model = 0.6 + (model - 0.6) / 10
    return model - y


@differentiable_broadcast
def decay(t, amplitude, rate, offset):
    return amplitude * math.exp(-rate * t) + offset


T = np.linspace(0, 3, 200)
Y = decay(T, 2.0, 1.3, 0.5) + 0.01 * rng.normal(size=200)
START = np.array([1.0, 0.5, 0.0])


class Counted:
    """A function with the number of its calls."""

    def __init__(self, function: Any) -> None:
        self.function, self.calls = function, 0

    def __call__(self, *args: Any) -> Any:
        self.calls += 1
        return self.function(*args)


def numerical(function: Any, x: np.ndarray) -> np.ndarray:
    """The Jacobian by SciPy's adaptive differences."""

    def columns(points: np.ndarray) -> np.ndarray:
        flat = points.reshape(len(points), -1)
        values = np.stack([function(column) for column in flat.T], axis=-1)
        return values.reshape(len(values), *points.shape[1:])

    return np.asarray(differentiate.jacobian(columns, x).df)


# --- least_squares ----------------------------------------------------------------------------------------------------


def test_the_jacobian_of_residuals_is_that_of_differences() -> None:
    residuals = Residuals(misfit, {"t": T, "y": Y})
    assert residuals.parameters == ("amplitude", "rate", "offset")
    np.testing.assert_array_equal(residuals.fun(START), misfit(T, Y, *START))
    found = residuals.jac(START)
    assert found.shape == (200, 3)
    np.testing.assert_allclose(found, numerical(residuals.fun, START), atol=1e-8)


@pytest.mark.parametrize("method", ["trf", "dogbox", "lm"])
@pytest.mark.parametrize("loss", ["linear", "soft_l1", "cauchy"])
def test_least_squares_finds_the_optimum_of_differences_with_fewer_calls(method: str, loss: str) -> None:
    if method == "lm" and loss != "linear":
        pytest.skip("SciPy has no other loss for lm")
    residuals = Residuals(misfit, {"t": T, "y": Y})
    exact, plain = Counted(residuals.fun), Counted(lambda x: misfit(T, Y, *x))
    options = {"method": method, "loss": loss, "xtol": 1e-12, "ftol": 1e-12, "gtol": 1e-12}
    found = optimize.least_squares(exact, START, jac=residuals.jac, **options)
    wanted = optimize.least_squares(plain, START, jac="3-point", **options)
    assert found.success
    np.testing.assert_allclose(found.x, wanted.x, rtol=1e-6)
    np.testing.assert_allclose(found.cost, wanted.cost, rtol=1e-10)
    assert exact.calls < plain.calls
    np.testing.assert_allclose(found.x, [2, 1.3, 0.5], atol=0.05)


def test_a_call_of_fun_and_one_of_jac_are_one_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    residuals, launches = Residuals(misfit, {"t": T, "y": Y}), []
    original = type(misfit).value_and_jacobian

    def counted(self: Any, *args: Any, **named: Any) -> Any:
        launches.append(args)
        return original(self, *args, **named)

    monkeypatch.setattr(type(misfit), "value_and_jacobian", counted)
    first, second = START, START + 1
    value, jacobian = residuals.fun(first), residuals.jac(first.copy())
    assert len(launches) == 1
    residuals.jac(second)
    assert len(launches) == 2
    # What was given away belongs to the solver, which may have changed it.
    value += 1
    jacobian *= 2
    np.testing.assert_allclose(residuals.fun(first), value - 1)
    np.testing.assert_allclose(residuals.jac(first), jacobian / 2)
    assert len(launches) == 3
    residuals.fun(first)
    np.testing.assert_allclose(residuals.jac(second), misfit.jacobian(T, Y, *second).stacked()[:, 2:])


def test_a_changed_point_is_another_point() -> None:
    residuals, x = Residuals(misfit, {"t": T, "y": Y}), START.copy()
    residuals.fun(x)
    x += 0.5
    np.testing.assert_allclose(residuals.jac(x), misfit.jacobian(T, Y, *x).stacked()[:, 2:])


def test_the_data_are_those_of_the_construction() -> None:
    t = T.copy()
    residuals = Residuals(misfit, {"t": t, "y": Y})
    before = residuals.fun(START).copy()
    t[:] = 0
    np.testing.assert_array_equal(residuals.fun(START), before)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_parameters_may_be_arrays(is_sparse: bool) -> None:
    """Four curves with a rate in common, and an amplitude and an offset for each."""
    amplitudes, offsets = np.array([[1.0], [2.0], [3.0], [4.0]]), np.array([[0.1], [0.2], [0.3], [0.4]])
    y = decay(T, amplitudes, 1.3, offsets)
    shapes = {"amplitude": (4, 1), "offset": (4, 1)}
    residuals = Residuals(misfit, {"t": np.where(T > 2, 2, T), "y": y}, shapes=shapes, sparse=is_sparse)
    x = np.concatenate([np.ones(4), [1.0], np.zeros(4)])
    assert residuals.fun(x).shape == (800,)
    found = residuals.jac(x)
    assert sparse.issparse(found) == is_sparse
    dense = found.toarray() if is_sparse else found
    assert dense.shape == (800, 9)
    np.testing.assert_allclose(dense, numerical(residuals.fun, x), atol=1e-8)
    if is_sparse:
        assert found.nnz == 800 * 3
    y = decay(np.where(T > 2, 2, T), amplitudes, 1.3, offsets)
    residuals = Residuals(misfit, {"t": np.where(T > 2, 2, T), "y": y}, shapes=shapes, sparse=is_sparse)
    solution = optimize.least_squares(residuals.fun, x, jac=residuals.jac, xtol=1e-12, ftol=1e-12, gtol=1e-12)
    np.testing.assert_allclose(solution.x, [1, 2, 3, 4, 1.3, 0.1, 0.2, 0.3, 0.4], atol=1e-6)


def test_float32_data_are_fitted_in_float64() -> None:
    residuals = Residuals(misfit, {"t": T.astype(np.float32), "y": Y.astype(np.float32)})
    assert residuals.fun(START).dtype == residuals.jac(START).dtype == np.float64


def test_parameters_can_be_chosen_and_ordered() -> None:
    data = {"t": T, "y": Y, "offset": 0.5}
    residuals = Residuals(misfit, data, parameters=("rate", "amplitude"))
    np.testing.assert_array_equal(residuals.fun([1.3, 2.0]), misfit(T, Y, 2.0, 1.3, 0.5))
    np.testing.assert_allclose(residuals.jac([1.3, 2.0]), numerical(residuals.fun, np.array([1.3, 2.0])), atol=1e-8)


@differentiable_broadcast(static="kind")
def signed(t, /, y, rate, *, kind="plain", scale):
    return (math.exp(-rate * t) * scale - y) * (-1 if kind == "negative" else 1)


def test_arguments_may_be_static_or_by_position_or_by_name_alone() -> None:
    residuals = Residuals(signed, {"t": T, "y": Y, "kind": "negative"})
    assert residuals.parameters == ("rate", "scale")
    x = np.array([1.3, 2.0])
    np.testing.assert_array_equal(residuals.fun(x), signed(T, Y, 1.3, kind="negative", scale=2.0))
    np.testing.assert_allclose(residuals.jac(x), numerical(residuals.fun, x), atol=1e-8)
    objective = Objective(signed, {"t": T, "y": Y})
    np.testing.assert_allclose(objective.jac(x), numerical(residuals.fun, x).sum(axis=0) * -1, atol=1e-5)
    np.testing.assert_allclose(objective.hessp(x, [1.0, 2.0]), objective.hess(x) @ [1.0, 2.0])
    curve = Curve(lambda t, *, amplitude, rate: amplitude * math.exp(-rate * t))
    np.testing.assert_allclose(curve.jac(T, 2.0, 1.3)[:, 0], np.exp(-1.3 * T))


def test_several_residuals_of_an_element_stand_one_after_the_other() -> None:
    def circle(px, py, x, y, radius):
        distance = math.hypot(px - x, py - y)
        return distance - radius, (distance - radius) / (1 + distance)

    angle = np.linspace(0, 5, 40)
    points = {"px": 1 + 3 * np.cos(angle), "py": 2 + 3 * np.sin(angle)}
    residuals = Residuals(circle, points)
    x = np.array([0.5, 1.0, 2.0])
    both = differentiable_broadcast(circle)(*points.values(), *x)
    np.testing.assert_array_equal(residuals.fun(x), np.ravel(both))
    np.testing.assert_allclose(residuals.jac(x), numerical(residuals.fun, x), atol=1e-8)
    found = optimize.least_squares(residuals.fun, x, jac=residuals.jac)
    np.testing.assert_allclose(found.x, [1, 2, 3], atol=1e-7)


# --- root -------------------------------------------------------------------------------------------------------------


def powell(x, y):
    return 1e4 * x * y - 1, math.exp(-x) + math.exp(-y) - 1.0001


@pytest.mark.parametrize("method", ["hybr", "lm"])
def test_root_finds_that_of_differences_with_fewer_calls(method: str) -> None:
    system = Residuals(powell)
    exact, plain = Counted(system.fun), Counted(lambda x: np.array(differentiable_broadcast(powell)(*x)))
    found = optimize.root(exact, [0.0, 1.0], jac=system.jac, method=method, tol=1e-12)
    wanted = optimize.root(plain, [0.0, 1.0], method=method, tol=1e-12)
    assert found.success
    np.testing.assert_allclose(found.x, wanted.x, rtol=1e-5)
    np.testing.assert_allclose(system.fun(found.x), 0, atol=1e-9)
    assert exact.calls < plain.calls
    np.testing.assert_allclose(system.jac(found.x), numerical(system.fun, found.x), rtol=1e-6)


def test_an_equation_of_one_unknown() -> None:
    system = Residuals(lambda x: x**3 - 2)
    assert system.fun([1.0]).shape == (1,)
    assert system.jac([1.0]).tolist() == [[3.0]]
    np.testing.assert_allclose(optimize.root(system.fun, [1.0], jac=system.jac).x, 2 ** (1 / 3))


# --- curve_fit --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["lm", "trf", "dogbox"])
@pytest.mark.parametrize("sigma", [None, "errors", "covariance"])
def test_curve_fit_finds_the_optimum_of_differences_with_fewer_calls(method: str, sigma: str | None) -> None:
    curve = Curve(decay)
    exact, plain = Counted(curve.f), Counted(decay)
    errors = {None: None, "errors": 0.01 + 0.01 * T, "covariance": np.diag(0.01 + 0.01 * T) ** 2 + 1e-6}[sigma]
    found, covariance = optimize.curve_fit(exact, T, Y, p0=START, sigma=errors, jac=curve.jac, method=method)
    wanted, expected = optimize.curve_fit(plain, T, Y, p0=START, sigma=errors, method=method)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    np.testing.assert_allclose(covariance, expected, rtol=1e-3)
    assert exact.calls < plain.calls


def test_curve_fit_sees_the_number_of_parameters() -> None:
    curve = Curve(decay)
    found, _ = optimize.curve_fit(curve.f, T, Y, jac=curve.jac)
    np.testing.assert_allclose(found, [2, 1.3, 0.5], atol=0.02)


def test_the_derivatives_of_a_curve_belong_to_its_xdata() -> None:
    curve, other = Curve(decay), T[:7] + 1
    curve.f(other, *START)
    found = curve.jac(T, *START)
    np.testing.assert_allclose(found, numerical(lambda p: decay(T, *p), START), atol=1e-8)


def test_curves_of_several_variables() -> None:
    surface = Curve(lambda u, v, a, b: a * math.sin(u) * math.exp(b * v), variables=2)
    u, v = rng.uniform(0, 2, (2, 50))
    found, _ = optimize.curve_fit(surface.f, (u, v), 3 * np.sin(u) * np.exp(-0.5 * v), jac=surface.jac)
    np.testing.assert_allclose(found, [3, -0.5], atol=1e-8)
    with pytest.raises(ShapeError, match="xdata has 3 rows; it must have one for each of 2 variables"):
        surface.f(np.ones((3, 5)), 1.0, 2.0)


# --- minimize ---------------------------------------------------------------------------------------------------------


def rosenbrock(x, y):
    return (1 - x) ** 2 + 100 * (y - x * x) ** 2


@differentiable_broadcast
def logistic_loss(u, v, label, slope, tilt, offset):
    """The negative log-likelihood of a label, by a branch that does not overflow."""
    margin = (slope * u + tilt * v + offset) * (1 if label else -1)
    if margin > 0:
        return math.log1p(math.exp(-margin))
    return math.log1p(math.exp(margin)) - margin


U, V = rng.normal(size=(2, 300))
LABEL = U - 2 * V + rng.normal(size=300) > 0.3
OBJECTIVES = {
    "two numbers": (lambda: Objective(rosenbrock), np.array([-1.2, 1.0])),
    "data": (lambda: Objective(logistic_loss, {"u": U, "v": V, "label": LABEL}), np.array([0.1, 0.2, 0.3])),
    "arrays": (
        lambda: Objective(
            lambda y, level, trend, t: (level + trend * t - y) ** 2 + 0.1 * math.cosh(level),
            {"y": rng.normal(size=(3, 40)), "t": T[:40]},
            shapes={"level": (3, 1)},
        ),
        np.array([0.3, -0.2, 0.5, 0.1]),
    ),
}


@pytest.mark.parametrize("case", OBJECTIVES)
def test_gradient_and_hessian_are_those_of_differences(case: str) -> None:
    make, x = OBJECTIVES[case]
    objective = make()
    gradient = numerical(lambda p: np.array([objective.fun(p)]), x)[0]
    np.testing.assert_allclose(objective.jac(x), gradient, rtol=1e-7, atol=1e-7)
    value, again = objective.fun_and_jac(x)
    assert value == objective.fun(x)
    np.testing.assert_array_equal(again, objective.jac(x))
    hessian = numerical(objective.jac, x)
    np.testing.assert_allclose(objective.hess(x), hessian, rtol=1e-7, atol=1e-6)
    vector = rng.normal(size=len(x))
    np.testing.assert_allclose(objective.hessp(x, vector), hessian @ vector, rtol=1e-7, atol=1e-6)


@pytest.mark.parametrize("case", OBJECTIVES)
@pytest.mark.parametrize("method", ["BFGS", "L-BFGS-B", "CG"])
def test_minimize_finds_the_optimum_of_differences_with_fewer_calls(case: str, method: str) -> None:
    make, start = OBJECTIVES[case]
    objective = make()
    exact, plain = Counted(objective.fun), Counted(objective.fun)
    found = optimize.minimize(exact, start, jac=objective.jac, method=method, tol=1e-8)
    wanted = optimize.minimize(plain, start, method=method, jac="3-point", tol=1e-8)
    np.testing.assert_allclose(found.x, wanted.x, rtol=1e-3, atol=1e-4)
    assert found.fun <= wanted.fun + 1e-8
    assert exact.calls < plain.calls
    both = optimize.minimize(objective.fun_and_jac, start, jac=True, method=method, tol=1e-8)
    np.testing.assert_array_equal(both.x, found.x)


@pytest.mark.parametrize("case", OBJECTIVES)
@pytest.mark.parametrize("product", ["hess", "hessp"])
def test_methods_with_second_derivatives_find_it(case: str, product: str) -> None:
    make, start = OBJECTIVES[case]
    objective = make()
    wanted = optimize.minimize(objective.fun, start, method="BFGS", jac=objective.jac, tol=1e-9)
    for method in ("Newton-CG", "trust-ncg", "trust-constr"):
        found = optimize.minimize(
            objective.fun, start, method=method, jac=objective.jac, tol=1e-9, **{product: getattr(objective, product)}
        )
        np.testing.assert_allclose(found.x, wanted.x, atol=1e-5)


def test_an_objective_is_one_number() -> None:
    with pytest.raises(ArgumentError, match=r"powell\(\) must return one number"):
        Objective(powell).fun([1.0, 2.0])


# --- solve_ivp --------------------------------------------------------------------------------------------------------


def robertson(_t, a, b, c, slow, fast):
    """A stiff chemical reaction."""
    flow, back = slow * a, 1e4 * b * c
    return back - flow, flow - back - fast * b * b, fast * b * b


@pytest.mark.parametrize("method", ["BDF", "Radau", "LSODA"])
def test_a_stiff_system_is_solved_as_with_differences_and_with_fewer_calls(method: str) -> None:
    system = RightHandSide(robertson, {"slow": 0.04, "fast": 3e7})
    assert system.states == ("a", "b", "c")
    exact, plain, start = Counted(system.fun), Counted(system.fun), [1.0, 0.0, 0.0]
    options = {"method": method, "rtol": 1e-8, "atol": 1e-10}
    found = integrate.solve_ivp(exact, (0, 100), start, jac=system.jac, **options)
    wanted = integrate.solve_ivp(plain, (0, 100), start, **options)
    np.testing.assert_allclose(found.y[:, -1], wanted.y[:, -1], rtol=1e-5)
    np.testing.assert_allclose(found.y[:, -1].sum(), 1, rtol=1e-6)
    assert exact.calls < plain.calls


def test_the_jacobian_of_a_right_hand_side_is_that_of_differences() -> None:
    system, y = RightHandSide(robertson, {"slow": 0.04, "fast": 3e7}), np.array([0.9, 1e-5, 0.1])
    np.testing.assert_allclose(system.jac(0.0, y), numerical(lambda p: system.fun(0.0, p), y), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("method", ["BDF", "Radau"])
def test_many_systems_side_by_side_have_a_sparse_jacobian(method: str) -> None:
    slow = np.linspace(0.02, 0.06, 20)
    system = RightHandSide(robertson, {"slow": slow, "fast": 3e7}, shape=20)
    start = np.concatenate([np.ones(20), np.zeros(40)])
    jacobian = system.jac(0.0, start + 1e-3)
    assert sparse.issparse(jacobian)
    assert jacobian.shape == (60, 60)
    assert jacobian.nnz == 20 * 7  # c does not depend on a, nor on itself
    np.testing.assert_allclose(
        jacobian.toarray(), numerical(lambda p: system.fun(0.0, p), start + 1e-3), rtol=1e-6, atol=1e-4
    )
    exact, plain = Counted(system.fun), Counted(system.fun)
    options = {"method": method, "rtol": 1e-7, "atol": 1e-9}
    found = integrate.solve_ivp(exact, (0, 10), start, jac=system.jac, **options).y[:, -1].reshape(3, 20)
    integrate.solve_ivp(plain, (0, 10), start, **options)
    assert exact.calls < plain.calls
    for k in (0, 7, 19):
        one = RightHandSide(robertson, {"slow": slow[k], "fast": 3e7})
        alone = integrate.solve_ivp(one.fun, (0, 10), [1.0, 0, 0], jac=one.jac, **options).y[:, -1]
        np.testing.assert_allclose(found[:, k], alone, rtol=1e-4)


def test_one_state_variable_and_time() -> None:
    system = RightHandSide(lambda t, y: -50 * (y - math.cos(t)))
    assert system.fun(0.0, [2.0]).tolist() == [-50.0]
    assert np.asarray(system.jac(0.0, [2.0])).tolist() == [[-50.0]]
    found = integrate.solve_ivp(system.fun, (0, 1), [0.0], method="Radau", jac=system.jac, rtol=1e-8, atol=1e-10)
    exact = (2500 * math.cos(1) + 50 * math.sin(1)) / 2501 - 2500 / 2501 * math.exp(-50)
    np.testing.assert_allclose(found.y[0, -1], exact, rtol=1e-7)


def test_a_shape_may_be_a_length() -> None:
    data = {"t": T[:, None], "y": np.ones((T.size, 3))}
    one, other = (Residuals(misfit, data, shapes={"rate": shape}) for shape in (3, (3,)))
    np.testing.assert_array_equal(one.jac(np.arange(5.0)), other.jac(np.arange(5.0)))


# --- errors -----------------------------------------------------------------------------------------------------------

BAD: dict[str, tuple[Any, type[Exception], str]] = {
    "a point of another size": (lambda: Residuals(misfit, {"t": T, "y": Y}).fun([1.0]), ShapeError, r"must be \(3,\)"),
    "unknown data": (lambda: Residuals(misfit, {"q": T}), ArgumentError, "has no argument q; it has t, y"),
    "unknown parameter": (lambda: Residuals(misfit, {}, parameters=["q"]), ArgumentError, "has no argument q"),
    "data missing": (
        lambda: Residuals(misfit, {"t": T}, parameters=["rate"]),
        ArgumentError,
        "needs y, amplitude, offset; give it in data=",
    ),
    "both": (lambda: Residuals(misfit, {"t": T, "y": Y}, parameters=["t"]), ArgumentError, "t cannot be both"),
    "a shape of no parameter": (
        lambda: Residuals(misfit, {"t": T}, shapes={"t": (2,)}),
        ArgumentError,
        "shapes= has t",
    ),
    "spread": (lambda: Residuals(lambda *x: sum(x)), ArgumentError, r"takes \*x; give a function whose arguments"),
    "no parameters": (lambda: Curve(lambda t: t), ArgumentError, "has no parameters beside 1 variables"),
    "too few derivatives": (
        lambda: RightHandSide(robertson, {"slow": 1.0}).fun(0.0, np.ones(4)),
        ArgumentError,
        r"returns 3 of the derivatives of 4 state variables \(a, b, c, fast\)",
    ),
    "another shape": (
        lambda: RightHandSide(robertson, {"slow": np.ones(5), "fast": 1.0}).fun(0.0, np.ones(3)),
        ShapeError,
        r"give shape=\(5,\)",
    ),
    "complex steps": (
        lambda: optimize.least_squares(Residuals(misfit, {"t": T, "y": Y}).fun, [1.0, 1.0, 0.0], jac="cs"),
        ArgumentError,
        "imaginary parts would be lost",
    ),
    "complex states": (
        lambda: integrate.solve_ivp(RightHandSide(lambda t, a: a * t).fun, (0, 1), [1j]),
        ArgumentError,
        "y has complex numbers",
    ),
    "complex variables": (lambda: Curve(lambda t, a: a * t).f(T + 1j, 1.0), ArgumentError, "xdata has complex"),
    "text": (lambda: Curve(lambda t, a: a * t).f(["a"], 1.0), ArgumentError, "xdata has text"),
    "too few parameters": (lambda: Curve(lambda t, a, b: a * t + b).f(T, 1.0), ArgumentError, r"has \(a, b\)"),
    "data without names": (lambda: Residuals(misfit, [T, Y]), ArgumentError, "data= is a mapping"),
    "several states": (
        lambda: RightHandSide(lambda t, a: a * t).fun(0.0, np.ones((1, 3))),
        ShapeError,
        "leave vectorized=True out",
    ),
    "time as data": (lambda: RightHandSide(lambda t, y: t * y, {"t": 1.0}), ArgumentError, "must be the time"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_mistake_is_one_error(case: str) -> None:
    call, error, words = BAD[case]
    with pytest.raises(error, match=words):
        call()


WITHOUT_SCIPY = """
import sys
sys.modules["scipy"] = None
import numpy as np
from dualbcast import differentiable_broadcast, errors
from dualbcast.interop.scipy import Residuals

residuals = Residuals(lambda t, a: a * t, {"t": np.ones(2)})
print(residuals.fun([2.0]).tolist(), residuals.jac([2.0]).tolist())
try:
    differentiable_broadcast(lambda x: x).jacobian(1.0).sparse()
except errors.MissingDependencyError as error:
    print(error)
"""


def test_the_module_needs_no_scipy_until_it_is_used(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(WITHOUT_SCIPY, encoding="utf-8")
    command = [sys.executable, str(tmp_path / "program.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "[2.0, 2.0] [[1.0], [1.0]]",
        "J.sparse() needs SciPy, which is not installed.",
        "Install it with: pip install scipy",
    ]
