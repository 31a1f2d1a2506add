"""`f.sum` and `f.normal_equations`, held against sums of terms that NumPy computes by formulas written by hand, added
up by `math.fsum`; their shapes, dtypes, bits and errors.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from corpus import CORPUS, Case
from oracles import numbers_of
from suites import sampled
from sums import fsum

from dualbcast import ArgumentError, DTypeError, ShapeError, differentiable_broadcast, graph, num_threads
from dualbcast.program.results import Hessian, Jacobian

BACKENDS = pytest.mark.parametrize("backend", ["cpu", "python"])
pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")


def log_density(x: float, mu: float, log_sigma: float) -> float:
    """The logarithm of a normal density."""
    z = (x - mu) * math.exp(-log_sigma)
    return -0.5 * z * z - log_sigma


def by_hand(x: Any, mu: Any, log_sigma: Any) -> dict[tuple[str, ...], Any]:
    """The terms of the value, the partials and the second partials, in more digits than float64."""
    x, mu, log_sigma = (np.asarray(each, np.longdouble) for each in (x, mu, log_sigma))
    s = np.exp(-log_sigma)
    z = (x - mu) * s
    return {
        (): -z * z / 2 - log_sigma,
        ("mu",): z * s,
        ("log_sigma",): z * z - 1,
        ("mu", "mu"): -s * s + 0 * z,
        ("mu", "log_sigma"): -2 * z * s,
        ("log_sigma", "log_sigma"): -2 * z * z,
    }


def check(results: Any, terms: dict[tuple[str, ...], Any], shape: tuple[int, ...], rtol: float) -> None:
    """All sums, of the absolute terms' size."""
    value, gradient, hessian = results
    for names, each in terms.items():
        found = (gradient[names] if len(names) == 1 else hessian[names]) if names else value
        each = np.asarray(each, np.float64)
        assert np.shape(found) == shape, names
        assert found.dtype == np.float64
        scale = 1.0 + fsum(abs(each), shape)  # the parts of a single term may cancel
        assert np.all(abs(found - fsum(each, shape)) <= rtol * scale), names


# --- values -----------------------------------------------------------------------------------------------------------


@BACKENDS
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 31, 1000, 1025, 5003])
def test_sum_gradient_and_hessian(count, dtype, backend):
    if backend == "python" and count > 1100:
        pytest.skip("takes long")
    function = differentiable_broadcast(backend=backend)(log_density)
    x = np.random.default_rng(count).normal(1, 2, count).astype(dtype)
    results = function.sum(x, 0.25, 0.5, order=2)
    assert [type(each) for each in results[1:]] == [Jacobian, Hessian]
    check(results, by_hand(x, 0.25, 0.5), (), 1e-15 if dtype == "float64" else 1e-6)
    # What is asked for does not change the bits of the rest.
    assert function.sum(x, 0.25, 0.5) == results.value
    assert list(function.sum(x, 0.25, 0.5, order=1).gradient.stacked()) == list(results.gradient.stacked())


@BACKENDS
@pytest.mark.parametrize(
    ("rows", "points"),
    [(1, 1), (1, 40), (5, 1), (5, 3), (9, 8), (9, 32), (40, 33), (3, 1500), (70, 20), (900, 5), (70, 64), (20, 2000)],
)
def test_one_sum_for_each_row(rows, points, backend):
    if backend == "python" and rows * points > 1400:
        pytest.skip("takes long")
    function = differentiable_broadcast(backend=backend)(log_density)
    rng = np.random.default_rng(rows)
    mu, log_sigma = rng.normal(size=(rows, 1)), rng.normal(size=(rows, 1))
    for x in (rng.normal(size=(rows, points)), rng.normal(size=points)):
        results = function.sum(x, mu, log_sigma, wrt=("mu", "log_sigma"), order=2)
        check(results, by_hand(*np.broadcast_arrays(x, mu, log_sigma)), (rows, 1), 2e-15)
        assert results.gradient.stacked().shape == (rows, 1, 2)
        assert np.asarray(results.hessian).shape == (rows, 1, 2, 2)


@pytest.mark.parametrize("shape", [(), (1,), (4,), (3, 1), (1, 4), (3, 4), (2, 1, 1), (2, 3, 1), (2, 1, 4), (1, 1, 1)])
def test_sums_have_the_shape_of_wrt(shape):
    function, rng = differentiable_broadcast(log_density), np.random.default_rng(0)
    x, mu, log_sigma = rng.normal(size=(2, 3, 4)), rng.normal(size=shape), rng.normal(size=shape)
    results = function.sum(x, mu, log_sigma, wrt=("mu", "log_sigma"), order=2)
    check(results, by_hand(*np.broadcast_arrays(x, mu, log_sigma)), shape, 1e-15)
    assert np.array_equal(function.sum(x, mu, log_sigma, wrt="mu"), results.value)
    assert np.isclose(function.sum(x, mu, log_sigma), np.sum(results.value), rtol=1e-14)


@BACKENDS
@pytest.mark.parametrize("case", sampled(CORPUS, 6), ids=lambda case: case.name)
def test_the_corpus(case: Case, backend):
    """Sums over all language constructs, in the first float argument, are those of the blocks of the elements."""
    if not case.floats or case.kinks:
        pytest.skip("nothing to differentiate in")
    first = case.floats[0]
    columns = [np.array(column) for column in zip(*case.points, strict=True)]
    arguments: list[Any] = [column if at != first else float(column[0]) for at, column in enumerate(columns)]
    function = differentiable_broadcast(backend=backend)(case.function)
    wanted = function.value_jacobian_and_hessian(*arguments, wrt=first)
    found = function.sum(*arguments, wrt=first, order=2)
    pairs = [*zip(numbers_of(found[0]), numbers_of(wanted[0]), strict=True)]
    for output in range(wanted[1].outputs):
        pairs.append((found[1][output, 0], wanted[1][output, 0]))
        pairs.append((found[2][output, 0, 0], wanted[2][output, 0, 0]))
    for ours, terms in pairs:
        terms = np.asarray(terms, np.float64)
        if np.all(np.isfinite(terms)):
            expected, scale = math.fsum(terms.ravel().tolist()), math.fsum(abs(terms).ravel().tolist())
            assert abs(ours - expected) <= case.allowance * 1e-15 * (scale + 1)
        else:
            assert not np.isfinite(ours)


# --- accuracy and bits ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng, n: rng.random(n),
        lambda rng, n: rng.lognormal(0, 5, n),
        lambda rng, n: rng.normal(0.1, 1, n),
        lambda rng, n: np.where(np.arange(n) % 2, 1e8, -1e8) + rng.random(n),
    ],
    ids=["uniform", "lognormal", "normal", "alternating"],
)
def test_a_sum_of_ten_million_is_right_to_two_units(draw):
    x = draw(np.random.default_rng(3), 10**7)
    found, exact = differentiable_broadcast(lambda x: x).sum(x), math.fsum(x)
    # Where terms cancel, the result has fewer digits than they: a hundredth of what their roundings could take.
    assert abs(found - exact) <= 2 * np.spacing(abs(exact)) + 0.01 * np.finfo(float).eps * abs(x).sum()
    if (x > 0).all():
        assert abs(found - exact) <= 2 * np.spacing(exact)


def test_float32_is_added_in_float64():
    x = np.full(3 * 10**7, np.float32(0.1))
    assert differentiable_broadcast(lambda x: x).sum(x) == pytest.approx(3e7 * float(np.float32(0.1)), rel=1e-15)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_does_not_overflow(dtype):
    x = np.full(10**5, 3.0, dtype)
    value, gradient = differentiable_broadcast(lambda x, a: a * x).sum(x, 2.0, order=1)
    assert (value, gradient["a"]) == (6e5, 3e5)


def test_the_same_bits_for_any_number_of_threads():
    function, rng = differentiable_broadcast(log_density), np.random.default_rng(1)
    row_sums = ((300, 1111), (300, 1)), ((20_000, 11), (20_000, 1)), ((9000, 32), (9000, 1)), ((7, 60_000), (7, 1))
    for shape, wrt in (((10**6,), ()), ((300, 1111), ()), *row_sums):
        arguments = rng.normal(size=shape), np.full(wrt, 0.25), np.full(wrt, 0.5)
        bits = set()
        for threads in (1, 2, 3, 8):
            with num_threads(threads):
                value, gradient, hessian = function.sum(*arguments, wrt=("mu", "log_sigma"), order=2)
                equations = function.normal_equations(*arguments, wrt=("mu", "log_sigma"))
            blocks = value, gradient.stacked(), hessian.stacked(), *map(np.asarray, equations)
            bits.add(b"".join(np.asarray(each).tobytes() for each in blocks))
        assert len(bits) == 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_same_bits_at_any_address(dtype):
    """Where vectors begin does not depend on the address, beside an output that is no sum either."""
    data = np.random.default_rng(2).normal(size=3011).astype(dtype)
    function = differentiable_broadcast(log_density)
    room = np.empty(len(data) + 16, dtype)
    bits, cotangents = set(), set()
    for offset in range(16):
        x = room[offset : offset + len(data)]
        x[:] = data
        value, gradient = function.sum(x, 0.25, 0.5, order=1)
        bits.add((value, *gradient.stacked()))
        cotangents.add(function.value_and_vjp((x, 0.25, 0.5), np.ones_like(x), wrt=("mu", "log_sigma"))[1])
    assert len(bits) == len(cotangents) == 1


# --- arguments --------------------------------------------------------------------------------------------------------


def test_strides_and_read_only_arrays():
    function, rng = differentiable_broadcast(log_density), np.random.default_rng(4)
    whole = rng.normal(size=(60, 70))
    whole.flags.writeable = False
    for x in (whole[::-1], whole.T, whole[::3, 1::2], whole[:, ::-5], np.broadcast_to(whole[0], (9, 70))):
        check(function.sum(x, 0.25, 0.5, order=2), by_hand(x, 0.25, 0.5), (), 1e-15)


@BACKENDS
def test_integers_and_bools(backend):
    """As arguments they are numbers, and as outputs they are counted."""

    @differentiable_broadcast(backend=backend)
    def scored(hits: int, wins: bool, rate: float) -> tuple[float, int, bool]:
        return (hits * rate if wins else rate * rate), 3 * hits, hits > 2

    hits, wins = np.arange(70, dtype=np.int16), np.arange(70) % 3 == 0
    value, gradient, hessian = scored.sum(hits, wins, 0.5, order=2)
    expected = np.where(wins, hits * 0.5, 0.25), 3 * hits.astype(np.int64), hits > 2
    assert [float(each) for each in value] == [float(each.sum()) for each in expected]
    assert [each.dtype for each in value] == [np.float64, np.int64, np.int64]
    assert gradient[0, "rate"] == np.where(wins, hits, 1.0).sum()
    assert hessian[0, "rate", "rate"] == 2 * np.count_nonzero(~wins)
    assert (gradient[1, "rate"], hessian[2, "rate", "rate"]) == (0, 0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("points", [3, 20, 40])
def test_many_rows_of_counts(points, dtype):
    counted = differentiable_broadcast(lambda x, limit: (x * limit, x > limit))
    x = np.random.default_rng(points).normal(size=(9000, points)).astype(dtype)
    for limits in (np.linspace(-1, 1, 9000, dtype=dtype)[:, None], np.linspace(-1, 1, points, dtype=dtype)):
        axis = 1 if limits.ndim == 2 else 0
        value = counted.sum(x, limits, wrt="limit", order=1).value
        np.testing.assert_array_equal(value[1], (x > limits).sum(axis, keepdims=axis == 1))
        assert counted.sum(x, limits)[1] == (x > limits).sum()


@pytest.mark.parametrize("points", [3, 5, 20, 24, 40])
def test_many_rows_of_float32(points):
    """Rows are joined, and their terms are of float64, as the sums are."""
    weighted = differentiable_broadcast(lambda x, rate: x * rate)
    x = np.random.default_rng(points).normal(size=(9000, points)).astype(np.float32)
    for rates in (np.linspace(0.5, 2, 9000, dtype=np.float32)[:, None], np.linspace(0.5, 2, points, dtype=np.float32)):
        value, gradient = weighted.sum(x, rates, wrt="rate", order=1)
        axis = 1 if rates.ndim == 2 else 0
        np.testing.assert_allclose(gradient["rate"], x.astype(float).sum(axis, keepdims=rates.ndim == 2), rtol=1e-9)
        terms = (x * rates).astype(float)
        np.testing.assert_allclose(value, terms.sum(axis, keepdims=rates.ndim == 2), rtol=1e-9)
    np.testing.assert_allclose(float(weighted.sum(x, rates)), terms.sum(), rtol=1e-9)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "bool", "uint64", "float16"])
def test_rows_of_other_dtypes(dtype):
    """The last elements of a row are read with a mask, of any dtype and stride."""
    weighted = differentiable_broadcast(lambda x, rate: x * rate)
    rates = np.linspace(0.5, 2, 300)[:, None]
    for points in (3, 13, 45):
        data = np.random.default_rng(points).integers(0, 255, (300, 2 * points)).astype(dtype)
        for x in (data[:, :points].copy(), data[:, ::2], data[:, :points][:, ::-1]):
            value, gradient = weighted.sum(x, rates, wrt="rate", order=1)
            sums = x.astype(float).sum(1, keepdims=True)
            np.testing.assert_array_equal(gradient["rate"], sums)
            np.testing.assert_allclose(value, sums * rates, rtol=1e-12, atol=1e-10)


@BACKENDS
def test_nothing_is_zero(backend):
    function = differentiable_broadcast(backend=backend)(log_density)
    value, gradient, hessian = function.sum(np.empty(0), 0.25, 0.5, order=2)
    assert (value, *gradient.stacked(), *hessian.stacked().flat) == (0,) * 7
    rows = function.sum(np.empty((3, 0)), np.ones((3, 1)), np.ones((3, 1)), wrt=("mu", "log_sigma"), order=2)
    assert np.array_equal(rows.value, np.zeros((3, 1)))
    assert np.array_equal(np.asarray(rows.hessian), np.zeros((3, 1, 2, 2)))
    assert function.sum(np.empty((0, 4)), np.ones((0, 1)), 0.5, wrt="mu", order=1).gradient["mu"].shape == (0, 1)


@BACKENDS
def test_constant_partials_are_counted(backend):
    function = differentiable_broadcast(backend=backend)(lambda x, a, b: 3.0 * a - b + x)
    value, gradient, hessian = function.sum(np.zeros((4, 10)), 1.0, 2.0, order=2)
    assert (value, gradient["a"], gradient["b"]) == (40.0, 120.0, -40.0)
    assert not np.asarray(hessian).any()


def test_a_guarded_branch_has_no_nan():
    guarded = differentiable_broadcast(lambda x, a: math.sqrt(a * x) if x > 0 else a)
    x = np.array([-1.0, 0.0, 4.0, 9.0])
    value, gradient = guarded.sum(x, 1.0, order=1)
    assert (value, gradient["a"]) == (7.0, 4.5)
    bad = np.array([1.0, np.nan, 2.0])
    assert np.isnan(differentiable_broadcast(lambda x, a: a * x).sum(bad, 1.0, order=1).gradient["a"])


class Pair(NamedTuple):
    plus: float
    times: float


def test_structures_and_captured_arrays():
    weights = np.array([1.0, 2.0, 3.0])

    @differentiable_broadcast(wrt="a")
    def pair(x: float, a: float) -> Pair:
        return Pair(a + x, weights * a * a * x)

    x = np.array([1.0, 1.0, 2.0])
    value, gradient, hessian = pair.sum(x, 3.0, order=2)
    assert value == Pair(13.0, 81.0)
    assert gradient["a"] == Pair(3.0, 54.0)
    assert gradient["times", "a"] == 54.0
    assert hessian["times", "a", "a"] == 18.0
    assert np.asarray(gradient).tolist() == [[3.0], [54.0]]
    assert repr(gradient) == "<Jacobian of 2 outputs in (a), shape ()>"


def test_results_are_jacobians_and_hessians():
    """What these classes offer means the sum as a function of the arguments in `wrt`."""
    function, rng = differentiable_broadcast(log_density), np.random.default_rng(5)
    x, mu, log_sigma = rng.normal(size=(4, 9)), rng.normal(size=(4, 1)), rng.normal(size=(4, 1))
    gradient = function.sum(x, mu, log_sigma, wrt=("mu", "log_sigma"), order=1).gradient
    ones = np.ones((4, 1))
    assert np.array_equal(gradient.pushforward(ones, 2 * ones), gradient["mu"] + 2 * gradient["log_sigma"])
    assert np.array_equal(gradient.pullback(ones)[1], gradient["log_sigma"])
    assert np.array_equal(gradient.matrix(), gradient.stacked()[:, 0])
    assert gradient.dense(0, "mu").shape == (4, 4)


def test_explain_shows_the_kernel():
    explanation = differentiable_broadcast(log_density).explain(
        np.ones(5000), 0.25, 0.5, product="sum_gradient_and_hessian"
    )
    # ∂²/∂mu∂mu is the same in all elements, but not a number that is known.
    assert len(explanation.outputs) == 6
    assert explanation.bytes_read == 8 * 5002
    for product in ("sum", "sum_and_gradient", "normal_equations"):
        assert differentiable_broadcast(log_density).explain(np.ones(5), 0.25, 0.5, product=product).operations


def test_a_warm_call_takes_the_fast_path():
    function, x = differentiable_broadcast(log_density), np.linspace(0, 1, 100)
    first = function.sum(x, 0.25, 0.5, order=2)
    specialisation, _ = function._dispatch.find((x, 0.25, 0.5), {}, ("mu", "log_sigma"))
    assert ("value_jacobian_and_hessian", ()) in specialisation._paths
    again = function.sum(x + 1, 1.25, 0.5, order=2)
    assert np.allclose(again.gradient, first.gradient, rtol=1e-13)
    assert np.allclose(again.hessian, first.hessian, rtol=1e-13)


# --- normal equations -------------------------------------------------------------------------------------------------


def decay(t: float, y: float, height: float, rate: float, base: float) -> float:
    """The residual of an exponential decay."""
    return height * math.exp(-rate * t) + base - y


PARAMETERS = ("height", "rate", "base")


def columns(t: Any, y: Any, height: Any, rate: Any, base: Any) -> tuple[Any, Any]:
    """The residual and the Jacobian, by hand."""
    given = np.broadcast_arrays(*[np.asarray(each, np.longdouble) for each in (t, y, height, rate, base)])
    t, y, height, rate, base = given
    e = np.exp(-rate * t)
    return height * e + base - y, np.stack([e, -height * t * e, np.ones_like(e)], axis=-1)


def check_equations(found: Any, r: Any, jacobian: Any, weights: Any, axes: tuple[int, ...]) -> None:
    w = np.broadcast_to(np.asarray(weights, np.longdouble), r.shape)
    shape = tuple(1 if axis in axes else length for axis, length in enumerate(r.shape)) if len(axes) < r.ndim else ()

    def total(terms: Any) -> Any:
        return terms.sum(axis=axes).reshape(shape + terms.shape[r.ndim :])

    j, k = jacobian[..., :, None], jacobian[..., None, :]
    wanted = w * r * r, w[..., None] * r[..., None] * jacobian, w[..., None, None] * j * k
    for ours, terms in zip(found, wanted, strict=True):
        assert np.asarray(ours).shape == shape + terms.shape[r.ndim :]
        assert np.all(abs(np.asarray(ours) - total(terms)) <= 2e-15 * total(abs(terms)))


@BACKENDS
@pytest.mark.parametrize("points", [1, 3, 50, 1200])
def test_normal_equations(points, backend):
    function, rng = differentiable_broadcast(backend=backend)(decay), np.random.default_rng(points)
    t, y, weights = rng.random(points), rng.normal(size=points), rng.random(points)
    r, jacobian = columns(t, y, 2.0, 0.5, 0.25)
    for w in (None, weights, 3.0, np.float64(0.5)):
        found = function.normal_equations(t, y, 2.0, 0.5, 0.25, weights=w)
        check_equations(found, r, jacobian, 1.0 if w is None else w, (0,))
        assert found.matrix["rate", "base"] == found.matrix["base", "rate"]
        assert found.gradient["height"] == found.gradient.stacked()[0]


@BACKENDS
@pytest.mark.parametrize(("rows", "points"), [(1, 1), (1, 20), (6, 1), (6, 3), (30, 33), (3, 1500)])
def test_a_system_for_each_row(rows, points, backend):
    if backend == "python" and rows * points > 1000:
        pytest.skip("takes long")
    function, rng = differentiable_broadcast(backend=backend)(decay), np.random.default_rng(7)
    parameters = [rng.random((rows, 1)) for _ in PARAMETERS]
    y, weights = rng.normal(size=(rows, points)), rng.random((rows, points))
    for t in (rng.random(points), rng.random((rows, points))):
        r, jacobian = columns(t, y, *parameters)
        for w in (None, weights, weights[0], weights[:, :1]):
            found = function.normal_equations(t, y, *parameters, wrt=PARAMETERS, weights=w)
            check_equations(found, r, jacobian, 1.0 if w is None else w, (1,))


@pytest.mark.parametrize("wrt", ["r", ("height", "r"), ("r", "base")])
def test_a_parameter_called_r(wrt):
    """That is what residuals are called, too."""

    def renamed(t: float, y: float, height: float, r: float, base: float) -> float:
        return height * math.exp(-r * t) + base - y

    t, y = np.linspace(0.0, 2.0, 7), np.linspace(1.5, 0.0, 7)
    r, jacobian = columns(t, y, 2.0, 0.5, 0.25)
    at = [("height", "r", "base").index(name) for name in ((wrt,) if isinstance(wrt, str) else wrt)]
    for weights in (1.0, t):
        found = differentiable_broadcast(renamed).normal_equations(t, y, 2.0, 0.5, 0.25, wrt=wrt, weights=weights)
        check_equations(found, r, jacobian[:, at], weights, (0,))


def test_several_residuals_are_summed_over():
    def both(t: float, a: float, b: float) -> tuple[float, Pair]:
        return a * t - 1.0, Pair(b * t + a, 2.0 * a)

    function, t = differentiable_broadcast(both), np.array([0.5, 1.0, 2.0])
    a, b = 1.5, -0.5
    r = np.stack([a * t - 1, b * t + a, np.full(3, 2 * a)], axis=-1)
    jacobian = np.zeros((3, 3, 2))
    jacobian[:, 0, 0], jacobian[:, 1, 1], jacobian[:, 1, 0], jacobian[:, 2, 0] = t, t, 1, 2
    weights = np.array([[1.0, 2.0, 3.0], [0.5, 0.0, 1.0], [1.0, 1.0, 4.0]])
    single = weights[:, 0]
    for given, w in (
        (None, np.ones((3, 3))),
        (single, np.stack([single] * 3, axis=-1)),
        ((weights[:, 0], (weights[:, 1], weights[:, 2])), weights),
    ):
        found = function.normal_equations(t, a, b, weights=given)
        check_equations(found, r, jacobian, w, (0, 1))


def test_gauss_and_newton_find_the_decay():
    function, rng = differentiable_broadcast(decay), np.random.default_rng(8)
    t, truth = np.linspace(0, 4, 200), np.array([2.0, 0.7, 0.3])
    data = truth[0] * np.exp(-truth[1] * t) + truth[2]
    found = np.array([1.5, 1.0, 0.0])
    for _ in range(20):
        equations = function.normal_equations(t, data, *found)
        found = found - np.linalg.solve(equations.matrix, equations.gradient)
    np.testing.assert_allclose(found, truth, rtol=1e-12)
    noisy = data + rng.normal(scale=0.1, size=t.size)
    scipy = pytest.importorskip("scipy.optimize")
    for _ in range(20):
        equations = function.normal_equations(t, noisy, *found)
        found = found - np.linalg.solve(equations.matrix, equations.gradient)
    expected = scipy.curve_fit(lambda t, a, k, c: a * np.exp(-k * t) + c, t, noisy, truth, xtol=1e-14)[0]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_float32_equations_are_added_in_float64():
    function, n = differentiable_broadcast(lambda x, a: a * x), 10**6
    x = np.full(n, np.float32(0.1))
    equations = function.normal_equations(x, 1.0, weights=np.full(n, 2.0))
    square = float(np.float32(0.1) * np.float32(0.1))
    assert equations.matrix["a", "a"] == pytest.approx(2 * n * square, rel=1e-7)
    assert equations.sum_of_squares.dtype == np.float64


# --- errors -----------------------------------------------------------------------------------------------------------


def test_errors_say_what_to_write():
    function, x, rows = differentiable_broadcast(log_density), np.ones((3, 5)), np.ones((3, 1))
    with pytest.raises(ShapeError, match=r"log_sigma has shape \(\), and mu \(3, 1\)\. Pass np\.broadcast_to\("):
        function.sum(x, rows, 0.5, wrt=("mu", "log_sigma"), order=1)
    with pytest.raises(ArgumentError, match="Name those to differentiate in"):
        function.sum(x, rows, rows, order=1)
    with pytest.raises(ArgumentError, match="order=3 is none of 0, 1 and 2"):
        function.sum(x, 0.5, 0.5, order=3)
    for order in (True, np.True_, np.array(1), [1]):
        with pytest.raises(ArgumentError, match="is none of 0, 1 and 2"):
            function.sum(x, 0.5, 0.5, order=order)
    for products in (lambda n: function.sum(n, 1, 2, order=1), lambda n: function.normal_equations(n, 1, 2)):
        with pytest.raises(ArgumentError, match="no argument is of a float dtype"):
            products(np.arange(3))
    with pytest.raises(ShapeError, match=r"weights have shape \(4,\), which does not broadcast"):
        function.normal_equations(x, 0.5, 0.5, weights=np.ones(4))
    with pytest.raises(ArgumentError, match="residuals are floats"):
        differentiable_broadcast(lambda x, a: (a * x, x > 0)).normal_equations(x, 1.0)
    with pytest.raises(ArgumentError, match="no argument of this call"):
        function.sum(x, 0.5, 0.5, wrt="nu")
    with pytest.raises(ArgumentError, match="carries no derivative"):
        function.sum(x, 1, 0.5, wrt="mu", order=1)
    with pytest.raises(DTypeError):
        function.sum(x.astype(str), 0.5, 0.5)
    with pytest.raises(ArgumentError, match="Variable"):
        function.sum(graph.Variable(x), 0.5, 0.5)
