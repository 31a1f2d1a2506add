"""Functions of NumPy's that are compositions: as for all operations, and against JAX; ties, NaN, empty arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from operation_cases import Case, Check, check_against_jax, check_float32, to_second_order
from suites import sampled

from dualbcast import ArgumentError, ShapeError, graph

GRID = np.array([[0.0, 3.0, 1.0], [1.0, 1.0, 2.0]])
ENDS = np.array([-1.0, 1.0])
KNOTS = np.array([-1.5, -0.4, 0.1, 0.9, 1.6])
QUERIES = np.array([-2.0, -1.0, 0.05, 0.3, 1.2, 1.55, 2.0])
WITH_NAN = np.array([[1.0, np.nan, 2.0], [0.5, 1.5, np.nan]])

SAME: list[tuple[str, Callable[..., Any], tuple[Any, ...]]] = [
    ("pad", lambda x: np.pad(x, 2), ((2, 3),)),
    ("pad with values", lambda x: np.pad(x, ((1, 0), (2, 3)), constant_values=((1, 2), (3, 4))), ((2, 3),)),
    ("pad with edges", lambda x: np.pad(x, (1, 2), mode="edge"), ((2, 3),)),
    ("pad by reflection", lambda x: np.pad(x, ((0, 4), (5, 1)), mode="reflect"), ((2, 3),)),
    ("pad symmetrically", lambda x: np.pad(x, 3, mode="symmetric"), ((2, 3),)),
    ("pad by wrapping", lambda x: np.pad(x, ((3, 1), (0, 0)), mode="wrap"), ((2, 3),)),
    ("tril", lambda x: np.tril(x), ((2, 3, 3),)),
    ("tril above", lambda x: np.tril(x, 1), ((3, 4),)),
    ("triu", lambda x: np.triu(x, k=-1), ((4, 3),)),
    ("diag of a vector", lambda x: np.diag(x, 1) @ np.diag(x * x, k=-1), ((3,),)),
    ("diag that is the main one", lambda x: np.diag(x) * x, ((3,),)),
    ("diag of a matrix", lambda x: np.diag(x) * np.diag(x, k=-1)[0] + np.diag(x[0])[1], ((3, 3),)),
    ("column_stack", lambda x, y: np.column_stack([x, y, x * x]), ((3,), (3, 2))),
    ("ptp", lambda x: np.ptp(x) * np.ptp(x, axis=0, keepdims=True), ((3, 4),)),
    ("block", lambda x, y: np.block([[x, y], [y.mT, x]]), ((2, 2), (2, 2))),
    ("block of other dimensions", lambda x, y: np.block([[x, y], [y, x]]), ((3,), (2,))),
    ("select", lambda x: np.select([x > 0.5, x > 0], [x * x, -x], 2.0), ((3, 4),)),
    ("cross", lambda a, b: np.cross(a, b), ((2, 3), (2, 3))),
    ("cross along other axes", lambda a, b: np.cross(a, b, axisa=0, axisb=1, axisc=0), ((3, 2), (2, 3))),
    ("cross with one axis", lambda a, b: np.cross(a, b, axis=0), ((3, 2), (3, 1))),
    ("kron", lambda a, b: np.kron(a, b), ((2, 3), (3, 2))),
    ("kron of other dimensions", lambda a, b: np.kron(a, b), ((2,), (2, 1, 3))),
    ("average", lambda x: np.average(x), ((2, 3),)),
    ("weighted average", lambda x, w: np.average(x, weights=w * w + 1), ((2, 3), (2, 3))),
    ("weights along an axis", lambda x, w: np.average(x, axis=1, weights=w * w + 1), ((2, 3, 2), (3,))),
    ("sum of weights", lambda x, w: np.average(x, 0, w * w + 1, returned=True)[1] * x[0], ((3, 2), (3,))),
    ("nansum", lambda x: np.nansum(x + WITH_NAN, axis=0), ((2, 3),)),
    ("nanmean", lambda x: np.nanmean(x + WITH_NAN, axis=1, keepdims=True), ((2, 3),)),
    ("nanmean of all", lambda x: np.nanmean(x + WITH_NAN), ((2, 3),)),
    ("sort", lambda x: np.sort(x), ((3, 4),)),
    ("sort along the first axis", lambda x: np.sort(x, axis=0), ((4, 2, 2),)),
    ("sort of all", lambda x: np.sort(x, axis=None), ((2, 3),)),
    ("median", lambda x: np.median(x), ((5,),)),
    ("median of an even number", lambda x: np.median(x, axis=1), ((2, 4, 2),)),
    ("median over axes", lambda x: np.median(x, axis=(0, 2), keepdims=True), ((2, 3, 2),)),
    ("quantile", lambda x: np.quantile(x, 0.3), ((7,),)),
    ("quantiles", lambda x: np.quantile(x, np.float32([0.0, 0.25, 0.625, 1.0]), axis=1), ((2, 5, 2),)),
    ("quantile with keepdims", lambda x: np.quantile(x, 0.7, axis=0, keepdims=True), ((3, 2),)),
    ("quantiles with keepdims", lambda x: np.quantile(x, np.float32([0.25, 0.75]), axis=0, keepdims=True), ((3, 2),)),
    ("lower quantile", lambda x: np.quantile(x, 0.3, method="lower"), ((6,),)),
    ("percentile", lambda x: np.percentile(x, np.float32([12.5, 87.5])), ((2, 4),)),
    ("diff", lambda x: np.diff(x), ((2, 4),)),
    ("second differences", lambda x: np.diff(x, n=2, axis=0), ((5, 2),)),
    ("diff with ends", lambda x, y: np.diff(x, prepend=0.5, append=y), ((2, 3), (2, 2))),
    ("gradient", lambda x: np.gradient(x), ((5,),)),
    ("gradients", lambda x: np.gradient(x, 0.5, 2.0)[0] * np.gradient(x, 0.5, 2.0)[1], ((3, 4),)),
    ("cumprod", lambda x: np.cumprod(x, axis=1), ((2, 7),)),
    ("cumprod of all", lambda x: np.cumprod(x), ((2, 3),)),
    ("cumprod with zeros", lambda x: np.cumprod(x), ([2.0, 0.0, 3.0, 0.0, -1.0],)),
    ("trapezoid", lambda y: np.trapezoid(y), ((2, 5),)),
    ("trapezoid with steps", lambda y: np.trapezoid(y, dx=0.3, axis=0), ((4, 2),)),
    ("trapezoid between points", lambda y, x: np.trapezoid(y, x), ((2, 4), (4,))),
    ("trapezoid between rows", lambda y, x: np.trapezoid(y, x, axis=0), ((4, 2), (4, 2))),
    ("trapezoid with steps of each row", lambda y, d: np.trapezoid(y, dx=d, axis=0), ((3, 2), (2, 2))),
    ("trapezoid between points along an axis", lambda y, x: np.trapezoid(y, x, axis=-2), ((2, 4, 3), (4,))),
    ("convolve", lambda a, v: np.convolve(a, v), ((5,), (3,))),
    ("convolve, the same length", lambda a, v: np.convolve(a, v, mode="same"), ((4,), (7,))),
    ("convolve where all overlap", lambda a, v: np.convolve(a, v, "valid"), ((3,), (6,))),
    ("correlate", lambda a, v: np.correlate(a, v), ((6,), (3,))),
    ("correlate in full", lambda a, v: np.correlate(a, v, "full"), ((2,), (5,))),
    ("correlate, the same length", lambda a, v: np.correlate(a, v, mode="same"), ((7,), (4,))),
    ("interp", lambda x, fp: np.interp(x, KNOTS, fp), (list(QUERIES), (5,))),
    ("interp in all", lambda x, d, fp: np.interp(x, np.cumsum(d * d + 0.5) - 2, fp), ((2, 4), (4,), (4,))),
    ("interp with ends", lambda x: np.interp(x, KNOTS, KNOTS**2, left=-1.0, right=7.0), ((9,),)),
    ("interp with a period", lambda x, fp: np.interp(x * 5, KNOTS, fp, period=4.0), ((9,), (5,))),
    ("interp between two points", lambda x, fp: np.interp(x, ENDS, fp), ((5,), (2,))),
    ("polyval", lambda p, x: np.polyval(p, x), ((4,), (2, 3))),
    ("sinc", lambda x: np.sinc(x), ((2, 3),)),
]  # fmt: skip
# JAX gives them by another definition, or not.
NOT_IN_JAX = [
    ("gradient along an axis", lambda x: np.gradient(x, 0.3, axis=0, edge_order=2), ((4, 2),)),
    ("gradient between places", lambda x, d: np.gradient(x, np.cumsum(d * d + 0.5), axis=1), ((2, 5), (5,))),
    (
        "gradient between places with ends of second order",
        lambda x, d: np.gradient(x, np.cumsum(d * d + 0.5), edge_order=2),
        ((4,), (4,)),
    ),
    ("a matrix of quantiles", lambda x: np.quantile(x, np.float32([[0.0, 0.25], [0.625, 1.0]]), axis=1), ((2, 5, 2),)),
    ("polyval of a list", lambda x: np.polyval([1.0, -2.0, 0.5], x), ((3,),)),
    ("pad by axis", lambda x: np.pad(x, {-1: (1, 2)}), ((2, 3),)),
    (
        "weights along axes",
        lambda x, w: np.average(x, axis=(2, 0), weights=w * w + 1, keepdims=True),
        ((2, 3, 4), (4, 2)),
    ),
    ("median of a Weibull", lambda x: np.quantile(x, 0.3, method="weibull"), ((6,),)),
    ("averaged quantile", lambda x: np.quantile(x, 0.5, method="averaged_inverted_cdf", axis=1), ((2, 6),)),
    ("nearest quantile", lambda x: np.quantile(x, 0.3, method="nearest"), ((6,),)),
    ("midpoint", lambda x: np.quantile(x, 0.3, method="midpoint"), ((6,),)),
    ("correlate with a longer sequence", lambda a, v: np.correlate(a, v, mode="same"), ((4,), (7,))),
    ("correlate with a longer sequence of odd length", lambda a, v: np.correlate(a, v, mode="same"), ((3,), (8,))),
    ("correlate a shorter one where all overlap", lambda a, v: np.correlate(a, v, mode="valid"), ((3,), (8,))),
    ("reshape by columns", lambda x: np.reshape(x, (2, -1), order="F"), ((4, 3),)),
    ("reshape by columns as a method", lambda x: x.reshape(3, 4, order="F"), ((2, 3, 2),)),
    ("ravel by columns", lambda x: x.ravel("F") * np.ravel(x, order="F"), ((2, 3),)),
    ("flatten by columns", lambda x: x.flatten("F"), ((2, 3),)),
    ("multiply.accumulate", lambda x: np.multiply.accumulate(x, axis=1), ((2, 3),)),
]
CASES = [Case(name, function, function, shapes) for name, function, shapes in SAME]
ALL = CASES + [Case(name, function, function, shapes) for name, function, shapes in NOT_IN_JAX]
EACH = pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)


@to_second_order(ALL, 3)
def test_operation(case: Case, check: Check) -> None:
    check(case)


@pytest.mark.parametrize("case", sampled(ALL, 2), ids=lambda case: case.name)
def test_float32_stays_float32(case: Case) -> None:
    others = "polyval of a list", "interp between two points", "diff with ends"
    if {"WITH_NAN", "KNOTS"} & {*case.function.__code__.co_names} or case.name in others:
        pytest.skip("takes part in float64")
    check_float32(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_all_is_that_of_jax(case: Case) -> None:
    pytest.importorskip("jax")
    # JAX computes with fractions in float32 in that precision.
    is_single = case.name in ("quantiles", "quantiles with keepdims", "percentile", "a matrix of quantiles")
    check_against_jax(case, 1e-6 if is_single else 1e-9)


def test_equal_elements_are_sorted_in_their_order() -> None:
    weights = np.array([1.0, 2.0, 4.0, 8.0])
    x = np.array([1.0, 0.0, 1.0, 1.0])
    np.testing.assert_array_equal(graph.grad(lambda x: np.sum(np.sort(x) * weights))(x), [2.0, 1.0, 4.0, 8.0])


def test_nan_and_infinity_in_order_statistics() -> None:
    x = np.array([[1.0, np.nan, 0.0], [np.inf, 2.0, np.inf], [3.0, -np.inf, np.inf]])
    for function in (np.sort, lambda x: np.median(x, axis=1), lambda x: np.quantile(x[:1], [0.0, 0.5, 1.0], axis=1)):
        np.testing.assert_array_equal(function(graph.Variable(x)).value, function(x))
    ends = np.quantile(graph.Variable(x), [0.0, 0.5, 1.0], axis=1).value  # NumPy's own are NaN beside infinities
    np.testing.assert_array_equal(ends.T, [[np.nan] * 3, [2.0, np.inf, np.inf], [-np.inf, 3.0, np.inf]])
    np.testing.assert_array_equal(graph.grad(lambda x: np.sum(np.median(x, axis=1)[1:]))(x)[1:].sum(1), [1.0, 1.0])


def test_elements_that_are_not_numbers_have_no_part() -> None:
    found = graph.grad(lambda x: np.nansum(x) + np.nanmean(x, axis=1)[0])(WITH_NAN)
    np.testing.assert_array_equal(found, [[1.5, 0.0, 1.5], [1.0, 1.0, 0.0]])


def test_triangles_of_infinite_elements_have_zeros() -> None:
    x = np.full((2, 2), np.inf)
    np.testing.assert_array_equal(np.tril(graph.Variable(x)).value, np.tril(x))
    np.testing.assert_array_equal(graph.grad(lambda x: np.sum(np.triu(x)))(x), [[1.0, 1.0], [0.0, 1.0]])


def test_interp_at_its_points_and_jumps() -> None:
    xp, fp = np.array([0.0, 1.0, 1.0, 2.0, 2.0]), np.array([0.0, 1.0, 5.0, 6.0, 9.0])
    x = np.array([-1.0, 0.0, 1.0, 1.5, 2.0, 3.0])
    np.testing.assert_array_equal(np.interp(graph.Variable(x), xp, fp).value, np.interp(x, xp, fp))
    slope = graph.grad(lambda x: np.sum(np.interp(x, xp[:4], fp[:4])))(x[:4])
    np.testing.assert_array_equal(slope, [0.0, 1.0, 1.0, 1.0])
    np.testing.assert_array_equal(np.interp(graph.Variable(x), [1.0], [7.0], 6.0, 8.0).value, [6, 6, 7, 8, 8, 8])


EMPTY = [
    (lambda x: np.sort(x), (0,)),
    (lambda x: np.sort(x, axis=0), (3, 0)),
    (lambda x: np.median(x, axis=1), (0, 3)),
    (lambda x: np.diff(x), (0, 3)),
    (lambda x: np.diff(x), (2, 1)),
    (lambda x: np.cumprod(x), (0,)),
    (lambda x: np.trapezoid(x), (2, 1)),
    (lambda x: np.pad(x, 1), (0,)),
    (lambda x: np.tril(x), (0, 3)),
    (lambda x: np.kron(x, np.ones((2, 2))), (0, 3)),
    (lambda x: np.cross(x, np.ones(3)), (0, 3)),
    (lambda x: np.interp(x, KNOTS, KNOTS), (0,)),
    (lambda x: np.polyval(np.ones(3), x), (0,)),
    (lambda x: np.sinc(x), (0,)),
    (lambda x: np.nansum(x, axis=1), (2, 0)),
]


@pytest.mark.parametrize(("function", "shape"), EMPTY)
def test_empty_arrays(function: Callable[..., Any], shape: tuple[int, ...]) -> None:
    x = np.zeros(shape)
    expected = function(x)
    found = function(graph.Variable(x))
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_array_equal(found.value, expected)
    assert graph.grad(lambda x: np.sum(function(x)))(x).shape == shape


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda x: np.pad(x, 1, mode="linear_ramp"), ArgumentError, "modes constant, edge"),
        (lambda x: np.pad(x, 1, mode="reflect", reflect_type="odd"), ArgumentError, "reflect_type"),
        (lambda x: np.quantile(x, 1.5), ArgumentError, "range"),
        (lambda x: np.quantile(x, 0.5, method="best"), ArgumentError, "best"),
        (lambda x: np.quantile(x, graph.Variable(0.5)), ArgumentError, "lose its derivative"),
        (lambda x: np.quantile(x[:0], 0.5), ShapeError, "no elements"),
        (lambda x: np.median(x + 1j), ArgumentError, "sort of complex Variables"),
        (lambda x: np.quantile(x, 0.5, weights=x), ArgumentError, "weights"),
        (lambda x: np.average(x, weights=x[0]), ShapeError, "weights of shape"),
        (lambda x: np.cross(x[:, :2], x), ShapeError, "three components"),
        (lambda x: np.convolve(x, x), ShapeError, "sequences"),
        (lambda x: np.convolve(x[0], x[0, :0]), ShapeError, "not empty"),
        (lambda x: np.convolve(x[0], x[0], "most"), ArgumentError, "modes full, same, valid"),
        (lambda x: np.interp(x, KNOTS, KNOTS[1:]), ShapeError, "one length"),
        (lambda x: np.diff(x, -1), ArgumentError, "negative"),
        (lambda x: np.gradient(x, 1.0, 2.0, 3.0), ArgumentError, "3 distances for 2 axes"),
        (lambda x: np.gradient(x[:1]), ShapeError, "length 1"),
        (lambda x: np.gradient(x, KNOTS, axis=1), ShapeError, "places"),
        (lambda x: np.tril(x[0]), ShapeError, "of matrices"),
        (lambda x: np.select([x > 0], []), ArgumentError, "1 conditions and 0 choices"),
    ],
)
def test_errors(call: Callable[..., Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        call(graph.Variable(GRID))


def test_integers_are_as_by_numpy() -> None:
    whole = np.array([[3, 1, 2], [0, 4, 4]])
    for function in (np.sort, np.median, np.diff, np.cumprod, np.average, np.sinc, np.trapezoid, np.tril, np.nanmean):
        expected, found = function(whole), function(graph.Variable(whole))
        assert found.dtype == expected.dtype, function
        np.testing.assert_allclose(found.value, expected, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize(
    ("function", "dtype"),
    [
        (lambda x: np.polyval([100, 2, 3], x), "int8"),  # which is not enough for the values
        (lambda x: np.polyval([100, 2, 3], x), "float32"),
        (lambda x: np.nanmean(x, axis=0), "float32"),
        (lambda x: np.nanmean(x), "float16"),
        (lambda x: np.diff(x, n=2), "bool"),
        (lambda x: np.percentile(x, 30), "float32"),
        (lambda x: np.percentile(x, [30, 50]), "float16"),
        (lambda x: np.quantile(x, np.float32(0.3)), "float16"),
        (lambda x: np.quantile(x, 0.3, method="lower"), "int64"),
        (lambda x: np.linalg.lstsq(x.T, x[0])[0], "int64"),
        (lambda x: np.fft.ifftshift(np.fft.fftshift(x, axes=1)), "int64"),
    ],
)
def test_dtypes_are_those_of_numpy(function: Callable[..., Any], dtype: str) -> None:
    x = np.array([[3, 1, 2], [0, 4, 4]]).astype(dtype)
    found, expected = function(graph.Variable(x)), function(x)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(found.value, expected, rtol=2e-3 if dtype == "float16" else 1e-6, atol=1e-12)


def test_elements_of_the_flattened_array() -> None:
    places = np.array([5, 0, 5])
    found = graph.grad(lambda x: np.sum(np.take_along_axis(x, places, axis=None)))(np.ones((2, 3)))
    np.testing.assert_array_equal(found, [[1, 0, 0], [0, 0, 2]])
    rows = graph.vmap(lambda x: np.take_along_axis(x, places, axis=None))(np.arange(12.0).reshape(2, 2, 3))
    np.testing.assert_array_equal(rows, [[5, 0, 5], [11, 6, 11]])


def test_compiled_functions_are_replayed() -> None:
    def loss(x: Any, fp: Any) -> Any:
        y = np.interp(x, KNOTS, fp)
        z = np.pad(np.sort(y), 2, mode="reflect")
        return (
            np.median(x)
            + np.sum(np.cumprod(z))
            + np.trapezoid(np.convolve(z, fp))
            + np.nanmean(np.diff(z) ** 2)
            + np.average(x, weights=y * y)
            + np.sum(np.select([x > 0.2], [x * x], -x))
        )

    plain = graph.value_and_grad(loss, (0, 1))
    compiled = graph.compile(plain)
    random = np.random.default_rng(3)
    for _ in range(5):
        args = random.normal(size=6), random.normal(size=5)
        for one, other in zip(compiled(*args)[1], plain(*args)[1], strict=True):
            np.testing.assert_array_equal(one, other)
    assert "replayed, 3 times" in compiled.explain()
