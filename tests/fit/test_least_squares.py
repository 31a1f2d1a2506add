"""`fit.least_squares`, held against SciPy's: one fit and many, shapes, weights, bounds, bad data and errors."""

from __future__ import annotations

import math
import pickle
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import curve_fit
from scipy.optimize import least_squares as scipy_least_squares

from dualbcast import ArgumentError, DTypeError, ShapeError, differentiable_broadcast, fit, num_threads, tables
from dualbcast.fit import Status, iteration

NAMES = ("height", "center", "width", "offset")
TIGHT = {"ftol": 1e-13, "xtol": 1e-11, "gtol": 1e-13}


@differentiable_broadcast
def peak(x: float, y: float, height: float, center: float, width: float, offset: float) -> float:
    """The residual of a Gaussian peak."""
    z = (x - center) / width
    return height * math.exp(-0.5 * z * z) + offset - y


def model(x: Any, height: Any, center: Any, width: Any, offset: Any) -> Any:
    return height * np.exp(-0.5 * ((x - center) / width) ** 2) + offset


X = np.linspace(0, 10, 40)


def peaks(rows: int, seed: int = 0) -> tuple[Any, tuple[Any, ...]]:
    """Noisy peaks, and start values of shape (rows, 1) that are more or less near."""
    random = np.random.default_rng(seed)
    ranges = ((2, 5), (4, 6), (0.7, 2), (-1, 1))
    true = [random.uniform(low, high, (rows, 1)) for low, high in ranges]
    data = model(X, *true) + random.normal(0, 0.1, (rows, X.size))
    return data, tuple([each + random.uniform(-0.3, 0.3, (rows, 1)) for each in true])


def by_scipy(data: Any, start: Any, weights: Any = 1.0, **options: Any) -> Any:
    """The same fit by SciPy, whose derivatives are differences."""
    root = np.sqrt(weights)
    tests = {"ftol": 1e-14, "xtol": 1e-14, "gtol": 1e-14, "jac": "3-point", "x_scale": "jac"}
    return scipy_least_squares(lambda p: root * (model(X, *p) - data), start, **{**tests, **options})


def stacked(found: Any) -> Any:
    return np.stack(list(found.parameters.values()), axis=-1)


@pytest.mark.parametrize("rows", [1, 100])
def test_fits_that_start_where_they_end(rows: int) -> None:
    """Of data without noise: the residuals are roundings, and the first step is lost in that of the parameters."""
    _, true = peaks(rows)
    found = fit.least_squares(peak, X, model(X, *true), *true, wrt=NAMES)
    assert np.all(found.converged)
    assert np.all(found.iterations <= 3)
    np.testing.assert_allclose(stacked(found), np.stack(true, axis=-1), rtol=1e-13)


# --- against SciPy ----------------------------------------------------------------------------------------------------


def test_many_fits() -> None:
    data, start = peaks(50)
    found = fit.least_squares(peak, X, data, *start, wrt=NAMES, **TIGHT)
    assert found.converged.all(), found.message
    for row in range(50):
        its = by_scipy(data[row], [each[row, 0] for each in start])
        np.testing.assert_allclose(stacked(found)[row, 0], its.x, rtol=1e-6)
        np.testing.assert_allclose(found.sum_of_squares[row, 0], 2 * its.cost, rtol=1e-10)
        covariance = np.linalg.inv(its.jac.T @ its.jac) * 2 * its.cost / (X.size - 4)
        np.testing.assert_allclose(found.covariance[row, 0], covariance, rtol=1e-4, atol=1e-9)
    assert (found.degrees_of_freedom == X.size - 4).all()


def test_the_default_tests_end_within_a_millionth_of_scipys_tightest() -> None:
    data, start = peaks(50)
    found = fit.least_squares(peak, X, data, *start, wrt=NAMES)
    best = [by_scipy(data[row], [each[row, 0] for each in start]) for row in range(50)]
    np.testing.assert_allclose(found.sum_of_squares[:, 0], [2 * each.cost for each in best], rtol=1e-8)
    np.testing.assert_allclose(stacked(found)[:, 0], [each.x for each in best], rtol=1e-6)


def test_the_last_step_stays_between_bounds() -> None:
    data, (*start, offset) = peaks(50)
    upper = fit.least_squares(peak, X, data, *start, offset, wrt=NAMES)["offset"] - 1e-9
    begin = np.minimum(offset, upper - 0.1)
    found = fit.least_squares(peak, X, data, *start, begin, wrt=NAMES, bounds={"offset": (None, upper)})
    assert (found["offset"] <= upper).all()


def test_one_fit_of_numbers() -> None:
    data, start = peaks(1)
    found = fit.least_squares(peak, X, data[0], *[float(each[0, 0]) for each in start], **TIGHT)
    its = by_scipy(data[0], [each[0, 0] for each in start])
    assert isinstance(found["height"], float)
    assert isinstance(found.standard_errors["height"], float)
    assert isinstance(found.status, Status)
    assert found.converged
    assert found.covariance.shape == (4, 4)
    np.testing.assert_allclose(stacked(found), its.x, rtol=1e-6)
    variances, covariance = curve_fit(model, X, data[0], its.x)
    np.testing.assert_allclose(stacked(found), variances, rtol=1e-5)
    np.testing.assert_allclose(found.covariance, covariance, rtol=1e-3, atol=1e-8)
    np.testing.assert_allclose(list(found.standard_errors.values()), np.sqrt(np.diag(covariance)), rtol=1e-3)


def test_weights() -> None:
    data, start = peaks(8)
    weights = np.random.default_rng(1).uniform(0.5, 4, data.shape)
    weights[:, 5:9] = 0
    weights[3] = 1
    data = np.where(weights == 0, 1e3, data)
    found = fit.least_squares(peak, X, data, *start, wrt=NAMES, weights=weights, **TIGHT)
    for row in range(8):
        its = by_scipy(data[row], [each[row, 0] for each in start], weights[row])
        np.testing.assert_allclose(stacked(found)[row, 0], its.x, rtol=1e-6)
    assert found.degrees_of_freedom[:, 0].tolist() == [32, 32, 32, 36, 32, 32, 32, 32]
    shared = fit.least_squares(peak, X, data, *start, wrt=NAMES, weights=weights[0])
    assert (shared.degrees_of_freedom == 32).all()
    single = fit.least_squares(peak, X, data[0], *[float(each[0, 0]) for each in start], weights=weights[0], **TIGHT)
    np.testing.assert_allclose(stacked(single), stacked(found)[0, 0], rtol=1e-8)
    assert single.degrees_of_freedom == 32


@pytest.mark.parametrize("weight", [2.0**-900, 2.0**900])
def test_weights_of_any_size_give_the_same_fit(weight: float) -> None:
    """Where products of sums left the range of float64, a fit had converged at its start values."""
    data, start = peaks(3)
    found = fit.least_squares(peak, X, data, *start, wrt=NAMES, weights=weight)
    usual = fit.least_squares(peak, X, data, *start, wrt=NAMES, weights=1.0)
    np.testing.assert_array_equal(stacked(found), stacked(usual))
    np.testing.assert_array_equal(found.status, usual.status)


def test_several_residuals() -> None:
    @differentiable_broadcast
    def orbit(t: float, x: float, y: float, radius: float, speed: float) -> tuple[float, float]:
        return radius * math.cos(speed * t) - x, radius * math.sin(speed * t) - y

    random, t = np.random.default_rng(2), np.linspace(0, 3, 30)
    radius, speed = np.array([[1.0], [2.0], [3.0]]), np.array([[0.9], [1.0], [1.2]])
    x = radius * np.cos(speed * t) + random.normal(0, 0.1, (3, 30))
    y = radius * np.sin(speed * t) + random.normal(0, 0.1, (3, 30))
    given = {"wrt": ("radius", "speed"), **TIGHT}
    found = fit.least_squares(orbit, t, x, y, 1.5, np.ones((3, 1)), weights=(1.0, np.full(30, 4.0)), **given)
    assert (found.degrees_of_freedom == 58).all()
    for row in range(3):

        def residuals(p: Any, row: int = row) -> Any:
            return np.concatenate([p[0] * np.cos(p[1] * t) - x[row], 2 * (p[0] * np.sin(p[1] * t) - y[row])])

        its = scipy_least_squares(residuals, [1.5, 1], xtol=1e-14, ftol=1e-14, gtol=1e-14, jac="3-point")
        np.testing.assert_allclose(stacked(found)[row, 0], its.x, rtol=1e-6)
    same = fit.least_squares(orbit, t, x, y, 1.5, np.ones((3, 1)), **given)
    twice = fit.least_squares(orbit, t, x, y, 1.5, np.ones((3, 1)), weights=np.full(30, 1.0), **given)
    assert np.array_equal(stacked(same), stacked(twice))
    assert np.array_equal(same.degrees_of_freedom, twice.degrees_of_freedom)


@pytest.mark.parametrize("order", ["points last", "points first", "a grid of fits"])
def test_shapes(order: str) -> None:
    data, start = peaks(12)
    expected = stacked(fit.least_squares(peak, X, data, *start, wrt=NAMES, **TIGHT))[:, 0]
    if order == "points last":
        given, shape = (X, data.tolist(), *start), (12, 1)
    elif order == "points first":
        given, shape = (X[:, None], data.T, *[each.T for each in start]), (1, 12)
    else:
        given = (X[:, None], data.reshape(3, 4, -1).transpose(0, 2, 1), *[each.reshape(3, 1, 4) for each in start])
        shape = (3, 1, 4)
    found = fit.least_squares(peak, *given, wrt=NAMES, **TIGHT)
    assert found["width"].shape == found.status.shape == found.sum_of_squares.shape == shape
    assert found.covariance.shape == (*shape, 4, 4)
    assert found.at_bound["width"].shape == shape
    np.testing.assert_allclose(stacked(found).reshape(12, 4), expected, rtol=1e-9)


def test_data_of_float32_and_data_that_fits_share() -> None:
    data, start = peaks(6)
    exact = fit.least_squares(peak, X, data.astype(np.float32).astype(float), *start, wrt=NAMES, **TIGHT)
    few = [each.astype(np.float32) for each in start]
    found = fit.least_squares(peak, X, data.astype(np.float32), *few, wrt=NAMES, **TIGHT)
    assert found["width"].dtype == np.float64
    np.testing.assert_allclose(stacked(found), stacked(exact), rtol=1e-8)
    shared = fit.least_squares(peak, X, data[0], *start, wrt=NAMES, **TIGHT)  # six starts, one curve
    np.testing.assert_allclose(stacked(shared), stacked(exact)[:1].repeat(6, 0), rtol=1e-5)


def test_parameters_by_position_and_by_default() -> None:
    @differentiable_broadcast
    def line(x: float, y: float, slope: float = 1.0, offset: float = 0.0, *, power: float = 1.0) -> float:
        return slope * x**power + offset - y

    y = 3 * X + 2
    for wrt in (("slope", "offset"), (2, "offset"), (-3, -2)):
        found = fit.least_squares(line, X, y, wrt=wrt)
        np.testing.assert_allclose(stacked(found), [3, 2], rtol=1e-9)
    found = fit.least_squares(line, y=y, x=X, slope=0.5)
    assert list(found.parameters) == ["slope"]
    plain = fit.least_squares(lambda x, slope: slope * x - 6, 2.0, np.ones(3), wrt="slope")
    np.testing.assert_allclose(plain["slope"], [3, 3, 3], rtol=1e-12)


# --- a batch and its parts --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("elements", [1, 100, 1 << 19])
def test_each_fit_has_the_same_bits_alone(elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the size of batches, and whichever fits leave them first."""
    data, start = peaks(23, seed=3)
    data[7, 3] = np.nan
    together = fit.least_squares(peak, X, data, *start, wrt=NAMES)
    assert len(np.unique(together.iterations)) > 3
    monkeypatch.setattr(iteration, "_ELEMENTS", elements)
    with num_threads(1):
        again = fit.least_squares(peak, X, data, *start, wrt=NAMES, weights=np.ones(1))
    for row in range(23):
        one = slice(row, row + 1)
        alone = fit.least_squares(peak, X, data[one], *[each[one] for each in start], wrt=NAMES)
        assert np.array_equal(stacked(alone)[0], stacked(together)[row])
        assert np.array_equal(alone.covariance[0], together.covariance[row], equal_nan=True)
        assert np.array_equal(alone.iterations[0], together.iterations[row])
        assert np.array_equal(alone.status[0], together.status[row])
    assert np.allclose(stacked(again), stacked(together), rtol=1e-12)


def test_layout_does_not_change_bits() -> None:
    data, start = peaks(9)
    found = fit.least_squares(peak, X, data, *start, wrt=NAMES)
    strided = np.repeat(data, 2, axis=0)[::2]
    other = fit.least_squares(peak, X[::-1].copy()[::-1], np.asfortranarray(strided), *start, wrt=NAMES)
    assert np.array_equal(stacked(found), stacked(other))


def test_arguments_are_not_changed() -> None:
    data, start = peaks(5)
    copies = [data.copy(), *[each.copy() for each in start]]
    fit.least_squares(peak, X, data, *start, wrt=NAMES)
    for given, copy in zip((data, *start), copies, strict=True):
        assert np.array_equal(given, copy)


def test_no_fits() -> None:
    data, start = peaks(3)
    found = fit.least_squares(peak, X, data[:0], *[each[:0] for each in start], wrt=NAMES)
    assert found["width"].shape == (0, 1)
    assert found.covariance.shape == (0, 1, 4, 4)
    assert found.message == "no fits"


def test_progress(capsys: pytest.CaptureFixture[str]) -> None:
    data, start = peaks(5)
    shown = fit.least_squares(peak, X, data, *start, wrt=NAMES, progress=True)
    assert np.array_equal(stacked(shown), stacked(fit.least_squares(peak, X, data, *start, wrt=NAMES)))
    assert capsys.readouterr().out == ""


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_bounds() -> None:
    data, start = peaks(30)
    lower = {"height": 2.5, "width": 1.0, "offset": 0.0}
    upper = {"height": 4.0, "width": 1.6, "offset": np.inf}
    start = tuple([np.clip(each, lower.get(name), upper.get(name)) for name, each in zip(NAMES, start, strict=True)])
    bounds = {"height": (2.5, 4.0), "width": (1.0, np.full((30, 1), 1.6)), "offset": (0, None)}
    found = fit.least_squares(peak, X, data, *start, wrt=NAMES, bounds=bounds, **TIGHT)
    assert found.converged.all()
    held = np.stack(list(found.at_bound.values()), -1)
    assert {-1, 0, 1} <= set(held.ravel().tolist())
    low, high = ([side.get(name, sign * np.inf) for name in NAMES] for side, sign in ((lower, -1), (upper, 1)))
    for row in range(30):
        inside = np.clip([each[row, 0] for each in start], np.add(low, 1e-6), np.subtract(high, 1e-6))
        its = by_scipy(data[row], inside, bounds=(low, high))
        assert found.sum_of_squares[row, 0] <= 2 * its.cost * (1 + 1e-9)
        np.testing.assert_allclose(stacked(found)[row, 0], its.x, rtol=1e-4, atol=1e-4)
        free = held[row, 0] == 0
        values = stacked(found)[row, 0]
        assert np.array_equal(~free, (values == low) | (values == high))
        # Those that are not at a bound are where a fit of them alone puts them, and so is their covariance.
        rest = dict(zip(np.array(NAMES)[free], values[free] * 1.01, strict=True))
        known = dict(zip(np.array(NAMES)[~free], values[~free], strict=True))
        alone = fit.least_squares(peak, X, data[row], wrt=tuple(rest), **rest, **known, **TIGHT)
        np.testing.assert_allclose(stacked(alone), values[free], rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(found.covariance[row, 0][np.ix_(free, free)], alone.covariance, rtol=1e-5, atol=1e-9)
        assert np.isnan(found.covariance[row, 0][~free]).all()
        assert found.degrees_of_freedom[row, 0] == alone.degrees_of_freedom


def test_all_parameters_at_bounds() -> None:
    found = fit.least_squares(lambda x, a, b: a + b * x - 10 * x - 10, X, 1.0, 1.0, bounds={"a": (0, 1), "b": (0, 1)})
    assert (found["a"], found["b"], found.status, found.iterations) == (1, 1, Status.GTOL, 0)
    assert found.degrees_of_freedom == X.size
    assert np.isnan(found.covariance).all()


def test_a_parameter_between_equal_bounds_is_known() -> None:
    """It was at no bound, so that it had a covariance and took a degree of freedom."""
    y = 2 * np.exp(-X) + np.sin(9 * X) / 50
    fixed = fit.least_squares(lambda x, y, a, b: a * math.exp(-b * x) - y, X, y, 1.9, 1.0, bounds={"a": (1.9, 1.9)})
    known = fit.least_squares(lambda x, y, a, b: a * math.exp(-b * x) - y, X, y, 1.9, 1.0, wrt="b")
    assert (fixed.at_bound["a"], fixed.at_bound["b"]) == (-1, 0)
    assert fixed.degrees_of_freedom == known.degrees_of_freedom
    np.testing.assert_allclose(fixed.standard_errors["b"], known.standard_errors["b"], rtol=1e-6)
    assert np.isnan(fixed.standard_errors["a"])


def test_bounds_of_any_numbers() -> None:
    for bounds in ((-(10**30), 10**30), (False, True), np.array([0, 1], "f4").tolist()):
        found = fit.least_squares(lambda x, a: a - x, X, 0.5, bounds={"a": bounds})
        assert found["a"] == pytest.approx(np.clip(X.mean(), *map(float, bounds)))


def test_an_infinite_start_value_is_at_no_bound() -> None:
    found = fit.least_squares(lambda x, a: a - x, X, math.inf)
    assert (found.status, found.at_bound["a"]) == (Status.NOT_FINITE, 0)


# --- fits that fail ---------------------------------------------------------------------------------------------------


def test_data_that_are_not_finite_concern_their_fit_only() -> None:
    data, start = peaks(5)
    good = fit.least_squares(peak, X, data, *start, wrt=NAMES)
    data[1, 3], data[3, 0] = np.nan, np.inf
    found = fit.least_squares(peak, X, data, *start, wrt=NAMES)
    assert found.status[:, 0].tolist()[1::2] == [Status.NOT_FINITE] * 2
    assert np.isnan(found.sum_of_squares[[1, 3]]).all()
    assert not np.isfinite(found.covariance[[1, 3]]).any()
    assert np.array_equal(stacked(found)[[1, 3], 0], np.stack(start, -1)[[1, 3], 0])
    assert np.array_equal(stacked(found)[::2], stacked(good)[::2])
    assert found.message.endswith("2 could not begin: the function is not finite at the start values")


def test_a_step_out_of_the_domain_is_taken_back() -> None:
    """The first step of Gauss and Newton leads to the logarithm of a negative number."""
    x = np.linspace(0.1, 2, 20)
    found = fit.least_squares(lambda x, y, a: math.log(a) * x - y, x, x * math.log(0.05), np.array([[3.0]]), wrt="a")
    np.testing.assert_allclose(found["a"], 0.05, rtol=1e-8)


def test_a_fit_that_cannot_move_has_not_converged() -> None:
    found = fit.least_squares(lambda x, a: (a - 5) * x if a == 1 else math.nan, X, np.array([[1.0]]), wrt="a")
    assert found["a"] == 1
    assert found.status == Status.MAX_ITERATIONS


def test_bad_start_values() -> None:
    data, start = peaks(20)
    far = [start[0] * 30, start[1] + 2, start[2] * 4, start[3] - 50]
    found = fit.least_squares(peak, X, data, *far, wrt=NAMES, **TIGHT)
    near = fit.least_squares(peak, X, data, *start, wrt=NAMES, **TIGHT)
    same = np.isclose(found.sum_of_squares, near.sum_of_squares, rtol=1e-9)[:, 0]
    assert same.mean() > 0.8
    np.testing.assert_allclose(stacked(found)[same], stacked(near)[same], rtol=1e-6)


def test_more_iterations_than_int64_holds() -> None:
    found = fit.least_squares(lambda x, a: a - x, X, 0.0, max_iterations=10**30)
    assert found.converged


def test_too_few_iterations() -> None:
    data, start = peaks(4)
    found = fit.least_squares(peak, X, data, *start, wrt=NAMES, max_iterations=1)
    assert (found.status == Status.MAX_ITERATIONS).all()
    assert (found.iterations == 1).all()
    residuals = model(X, *start) - data
    assert (found.sum_of_squares[:, 0] < (residuals**2).sum(1)).all()
    assert "4 took max_iterations" in repr(found)
    none = fit.least_squares(peak, X, data, *start, wrt=NAMES, max_iterations=0)
    np.testing.assert_allclose(none.sum_of_squares[:, 0], (residuals**2).sum(1), rtol=1e-12)
    assert np.array_equal(stacked(none), np.stack(start, -1))


def test_parameters_that_the_data_do_not_determine() -> None:
    found = fit.least_squares(lambda x, y, a, b, c: (a + b) * x - y + 0 * c, X, 3 * X, 1.0, 1.0, 7.0)
    assert found.converged
    np.testing.assert_allclose(found["a"] + found["b"], 3, rtol=1e-9)
    assert found["c"] == 7
    assert np.isinf(found.covariance).all()
    exact = fit.least_squares(lambda x, y, a: a * x - y, np.ones(1), np.ones(1), 0.5)
    assert exact.degrees_of_freedom == 0
    assert np.isinf(exact.residual_variance)


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"wrt": "depth"}, ArgumentError, "'depth' is no argument of peak"),
        ({"wrt": 9}, ArgumentError, "wrt=9"),
        ({"wrt": ("height", None)}, ArgumentError, "wrt=None is no argument of peak"),
        ({"wrt": ("height", 3.0)}, ArgumentError, "wrt=3.0 is no argument of peak"),
        ({"wrt": ()}, ArgumentError, "name the parameters"),
        ({"wrt": None}, ArgumentError, "name the parameters"),
        ({"offset": None}, ArgumentError, "offset is None"),
        ({"offset": np.array(["a"])}, ArgumentError, "start value of offset"),
        ({"offset": np.array([1j])}, ArgumentError, "start value of offset is complex"),
        ({"offset": np.zeros((5, 1))}, ShapeError, "do not broadcast"),
        ({"x": np.zeros(7)}, ShapeError, "do not broadcast"),
        ({"x": np.ma.masked_array(X)}, ArgumentError, "np.asarray"),
        ({"height": np.ma.masked_array(np.ones((3, 1)))}, ArgumentError, "np.asarray"),
        ({"depth": 1.0}, ArgumentError, "depth"),
        ({"bounds": {"depth": (0, 1)}}, ArgumentError, "bounds= has 'depth'"),
        ({"bounds": {"width": 1}}, ArgumentError, "pair"),
        ({"bounds": {"width": (3, 1)}}, ArgumentError, "above the upper"),
        ({"bounds": {"width": (math.nan, 1)}}, ArgumentError, "NaN"),
        ({"bounds": {"width": (50, 60)}}, ArgumentError, "outside its bounds"),
        ({"bounds": {"width": (np.zeros(40), 60)}}, ShapeError, "bound of width"),
        ({"bounds": {"width": ("a", 60)}}, ArgumentError, "bounds of width are .*real numbers"),
        ({"bounds": {"width": (1j, 60)}}, ArgumentError, "bounds of width are .*real numbers"),
        ({"bounds": (0, 60)}, ArgumentError, "mapping"),
        ({"bounds": [(0, 60)]}, ArgumentError, "mapping"),
        ({"weights": -np.ones(40)}, ArgumentError, "negative"),
        ({"weights": np.ones(7)}, ShapeError, "weights have shape"),
        ({"ftol": -1.0}, ArgumentError, "ftol"),
        ({"xtol": math.nan}, ArgumentError, "xtol"),
        ({"max_iterations": 1.5}, ArgumentError, "max_iterations"),
        ({"max_iterations": math.inf}, ArgumentError, "max_iterations=inf is not a whole number"),
        ({"gtol": "1"}, ArgumentError, "gtol"),
    ],
)
def test_errors(change: dict[str, Any], error: type[Exception], words: str) -> None:
    data, start = peaks(3)
    given = {"x": X, "y": data, **dict(zip(NAMES, start, strict=True)), "wrt": NAMES, **change}
    with pytest.raises(error, match=words):
        fit.least_squares(peak, **given)


def test_arrays_of_a_gpu_are_to_be_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    class OfGpu:
        def __array__(self) -> Any:
            raise TypeError

    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(ndarray=OfGpu))
    data, (*start, _) = peaks(3)
    with pytest.raises(ArgumentError, match=r"Pass cupy\.asnumpy\(offset\)\."):
        fit.least_squares(peak, X, data, *start, OfGpu(), wrt=NAMES)


def test_functions_that_cannot_be_fitted() -> None:
    with pytest.raises(ArgumentError, match="integer or a bool"):
        fit.least_squares(lambda x, a: x > a, X, 1.0)
    with pytest.raises(ArgumentError, match="takes \\*rest"):
        fit.least_squares(lambda a, *rest: a + rest[0], 1.0, X)
    with pytest.raises(ArgumentError, match="y"):
        fit.least_squares(peak, X)
    with pytest.raises(ArgumentError, match="was not fitted"):
        fit.least_squares(lambda x, a: a - x, X, 1.0)["b"]
    with pytest.raises((ArgumentError, DTypeError)):
        fit.least_squares(peak, X, np.array(["a"] * 40), 1.0, 1.0, 1.0, 1.0)


def test_captured_arrays() -> None:
    x = np.linspace(0, 1, 5)

    @differentiable_broadcast
    def line(y: float, slope: float) -> float:
        return slope * x - y

    slopes = np.arange(1.0, 6.0)[:, None]
    found = fit.least_squares(line, slopes * x, np.ones((5, 1)), wrt="slope")
    np.testing.assert_allclose(found["slope"], slopes, rtol=1e-9)
    with pytest.raises(ArgumentError, match="captures the array x"):
        fit.least_squares(line, (slopes * x).T[:, :, None], np.ones((1, 5, 1)), wrt="slope")
    with pytest.raises(ArgumentError, match="captures the array x"):
        fit.least_squares(line, np.ones(5), np.ones(5), wrt="slope")


# --- whole arrays and complex numbers among the data ------------------------------------------------------------------


@differentiable_broadcast(whole=("xp", "fp"))
def off_table(x, y, scale, shift, xp, fp):
    return scale * tables.interp(x + shift, xp, fp) - y


@pytest.mark.parametrize("fits", [1, 7])
def test_fits_with_a_table(fits: int) -> None:
    random = np.random.default_rng(0)
    xp = np.linspace(0, 10, 60)
    fp = np.sin(xp) + 0.1 * xp
    scales, shifts = random.uniform(1, 3, (fits, 1)), random.uniform(-0.5, 0.5, (fits, 1))
    x = np.sort(random.uniform(1, 9, (fits, 80)))
    y = scales * np.interp(x + shifts, xp, fp)
    start = (1.5, 0.1) if fits == 1 else (np.full((fits, 1), 1.5), np.full((fits, 1), 0.1))
    given = (x[0], y[0]) if fits == 1 else (x, y)
    found = fit.least_squares(off_table, *given, *start, xp, fp, wrt=("scale", "shift"))
    np.testing.assert_allclose(np.ravel(found["scale"]), np.ravel(scales), rtol=1e-6)
    np.testing.assert_allclose(np.ravel(found["shift"]), np.ravel(shifts), atol=1e-6)


@pytest.mark.parametrize("fits", [1, 5])
def test_fits_of_complex_data(fits: int) -> None:
    random = np.random.default_rng(1)
    omega = np.linspace(0.1, 5.0, 60)
    resistance, inductance = random.uniform(1, 2, (fits, 1)), random.uniform(0.5, 1.5, (fits, 1))
    measured = 1 / (resistance + 1j * omega * inductance)

    @differentiable_broadcast
    def residual(omega, measured, resistance, inductance):
        return 1 / (resistance + 1j * omega * inductance) - measured

    start = (1.5, 1.0) if fits == 1 else (np.full((fits, 1), 1.5), np.full((fits, 1), 1.0))
    given = measured[0] if fits == 1 else measured
    found = fit.least_squares(residual, omega, given, *start, wrt=("resistance", "inductance"))
    np.testing.assert_allclose(np.ravel(found["resistance"]), np.ravel(resistance), rtol=1e-8)
    np.testing.assert_allclose(np.ravel(found["inductance"]), np.ravel(inductance), rtol=1e-8)


@differentiable_broadcast(signature="(),(k),()->()")
def decays(t, p, y):
    return p[0] * math.exp(-p[1] * t) + p[2] - y


@differentiable_broadcast
def decay_of_numbers(t, a, b, c, y):
    return a * math.exp(-b * t) + c - y


@pytest.mark.parametrize("fits", [(), (7, 1)])
def test_parameters_in_a_vector(fits: tuple[int, ...]):
    rng = np.random.default_rng(8)
    t = np.linspace(0, 4, 50)
    y = 2 * np.exp(-1.3 * t) + 0.5 + 0.01 * rng.normal(size=(*fits[:1], 50))
    first = np.broadcast_to([1.0, 1.0, 0.0], (*fits, 3))
    bounds = {"p": (None, np.array([9.0, 1.2, np.inf]))}
    found = fit.least_squares(decays, t, first, y, wrt="p", bounds=bounds)
    wanted = fit.least_squares(
        decay_of_numbers,
        *(t, np.ones(fits), 1.0, 0.0, y),
        wrt=("a", "b", "c"),
        bounds={"a": (None, 9.0), "b": (None, 1.2)},
    )
    assert np.all(found.converged)
    assert list(found.parameters) == ["p"]
    for at, name in enumerate("abc"):
        np.testing.assert_array_equal(found["p"][..., at], wanted[name])
        np.testing.assert_array_equal(found.at_bound["p"][..., at], wanted.at_bound[name])
        np.testing.assert_array_equal(found.standard_errors["p"][..., at], wanted.standard_errors[name])
    np.testing.assert_array_equal(found.covariance, wanted.covariance)
    np.testing.assert_array_equal(found.sum_of_squares, wanted.sum_of_squares)
    assert found.covariance.shape == (*fits, 3, 3)
    assert np.all(found.at_bound["p"][..., 1] == 1)
    assert "data" not in repr(pickle.loads(pickle.dumps(found)))


def test_vectors_beside_numbers_with_weights_and_data_of_vectors():
    rng = np.random.default_rng(9)

    @differentiable_broadcast(signature="(2),(),(2)->(2)")
    def two(p, s, x):
        return np.array([p[0] * x[0] - s * x[1] - 1, p[1] * x[1] - s * s])

    @differentiable_broadcast
    def of_numbers(a, b, s, u, v):
        return a * u - s * v - 1, b * v - s * s

    x, weights = 1 + rng.random((6, 30, 2)), rng.random((30, 2))
    found = fit.least_squares(two, np.ones((6, 1, 2)), np.ones((6, 1)), x, wrt=("s", "p"), weights=weights)
    wanted = fit.least_squares(
        of_numbers,
        *(np.ones((6, 1)), 1.0, 1.0, x[..., 0], x[..., 1]),
        wrt=("s", "a", "b"),
        weights=(weights[:, 0], weights[:, 1]),
    )
    np.testing.assert_allclose(found["s"], wanted["s"], rtol=1e-12)
    np.testing.assert_allclose(found["p"], np.stack([wanted["a"], wanted["b"]], axis=-1), rtol=1e-12)
    np.testing.assert_allclose(found.covariance, wanted.covariance, rtol=1e-10)
    assert found.covariance.shape == (6, 1, 3, 3)


def test_errors_of_vectors():
    t, start = np.linspace(0, 4, 50), np.array([1.0, 1.0, 0.0])
    with pytest.raises(ShapeError, match=r"bounds of p have the shapes \(2,\) and \(\), whose last axes .* \(3,\)"):
        fit.least_squares(decays, t, start, t, wrt="p", bounds={"p": ([0, 0], 1)})
    with pytest.raises(ArgumentError, match=r"start value of p\[0\] is outside its bounds; pass np.clip\(p, lower"):
        fit.least_squares(decays, t, start, t, wrt="p", bounds={"p": (None, 0.5)})
    with pytest.raises(ArgumentError, match=r"bounds= has 'p\[0\]'; the parameters are p"):
        fit.least_squares(decays, t, start, t, wrt="p", bounds={"p[0]": (None, 0.5)})
    table = differentiable_broadcast(whole="p")(lambda t, p, y: p[0] * t + p[1] - y)
    with pytest.raises(ArgumentError, match="p is whole, so derivatives in it are cotangents"):
        fit.least_squares(table, t, start, t, wrt="p")
