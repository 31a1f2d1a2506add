"""Parameters that are whole arrays: values and derivatives against plain Python, on each backend; and their errors."""

from __future__ import annotations

import inspect
import pickle
from typing import Any

import numpy as np
import pytest
from corpus_whole import WHOLE, WholeCase
from oracles import numbers_of
from scipy import interpolate

import dualbcast
from dualbcast import ArgumentError, BoundsError, CompileError, IterationError, differentiable_broadcast, graph, tables
from dualbcast.tables import index

EVERY = pytest.mark.parametrize("case", WHOLE, ids=lambda case: case.name)
COUNT = 200


def compiled(case: WholeCase, **options: Any) -> Any:
    return differentiable_broadcast(whole=case.whole, **options)(case.function)


def plain(case: WholeCase, numbers: list[Any], arrays: dict[str, Any]) -> list[Any]:
    """The outputs, element by element, by Python in double precision."""
    rows = [numbers_of(case.function(*[x.item() for x in row], **arrays)) for row in zip(*numbers, strict=True)]
    return [np.array(column, float) for column in zip(*rows, strict=True)]


def partials(case: WholeCase, numbers: list[Any], at: int) -> list[Any]:
    """The partials in one argument by central differences, and whether a step is near a kink."""
    step, shifted = 1e-6, []
    for sign in (1, -1, 0.5, -0.5):
        moved = [x + sign * step if place == at else x for place, x in enumerate(numbers)]
        shifted.append(plain(case, moved, case.tables()))
    one = [(a - b) / (2 * step) for a, b in zip(*shifted[:2], strict=True)]
    half = [(a - b) / step for a, b in zip(*shifted[2:], strict=True)]
    return [np.where(np.abs(a - b) < 1e-5 * (1 + np.abs(a)), a, np.nan) for a, b in zip(one, half, strict=True)]


@EVERY
@pytest.mark.parametrize("backend", ["python", "cpu"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_values(case: WholeCase, backend: str, dtype: str) -> None:
    numbers, arrays = case.numbers(COUNT, dtype), case.tables(dtype)
    value = numbers_of(compiled(case, backend=backend)(*numbers, **arrays))
    wide = {name: x.astype(float) if x.dtype.kind == "f" else x for name, x in arrays.items()}
    expected = plain(case, [x.astype(float) if x.dtype.kind == "f" else x for x in numbers], wide)
    for got, wanted in zip(value, expected, strict=True):
        assert got.dtype == dtype
        np.testing.assert_allclose(got, wanted, rtol=64 * np.finfo(dtype).eps, atol=64 * np.finfo(dtype).eps)


@EVERY
@pytest.mark.parametrize("backend", ["python", "cpu"])
def test_partials_in_numbers(case: WholeCase, backend: str) -> None:
    numbers = case.numbers(COUNT)
    floats = [at for at in range(len(numbers)) if at not in case.integers]
    if not floats:
        return
    names = case.function.__code__.co_varnames
    value, jacobian = compiled(case, backend=backend).value_and_jacobian(*numbers, **case.tables())
    for at in floats:
        for output, expected in enumerate(partials(case, numbers, at)):
            smooth = np.isfinite(expected)
            assert smooth.sum() > COUNT // 2
            got = jacobian[output, names[at]]
            np.testing.assert_allclose(got[smooth], expected[smooth], rtol=1e-6, atol=1e-7)
    for got, wanted in zip(numbers_of(value), plain(case, numbers, case.tables()), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-13, atol=1e-13)


def cotangents(case: WholeCase, name: str, given: list[Any]) -> Any:
    """The cotangent of an array by central differences, element by element."""
    array, step = case.arrays[name], 1e-6
    result = np.zeros(array.shape)
    for place in np.ndindex(array.shape):
        sides = []
        for sign in (1, -1):
            moved = array.copy()
            moved[place] += sign * step
            outputs = plain(case, case.numbers(COUNT), {**case.tables(), name: moved})
            sides.append(sum(np.sum(c * y) for c, y in zip(given, outputs, strict=True)))
        result[place] = (sides[0] - sides[1]) / (2 * step)
    return result


TRACKED = [(case, name) for case in WHOLE for name in case.tracked]
SOME_TRACKED = [pytest.param(*row, marks=[pytest.mark.slow] * (at % 3 != 0)) for at, row in enumerate(TRACKED)]


@pytest.mark.parametrize(("case", "name"), SOME_TRACKED, ids=[f"{case.name}-{name}" for case, name in TRACKED])
def test_cotangents_of_arrays(case: WholeCase, name: str) -> None:
    function, numbers, arrays = compiled(case), case.numbers(COUNT), case.tables()
    random = np.random.default_rng(3)
    count = len(numbers_of(function(*numbers, **arrays)))
    given = [random.uniform(-1, 1, COUNT) for _ in range(count)]
    first = case.function.__code__.co_varnames[0]
    wrt = (name,) if 0 in case.integers else (name, first)
    value, pullback = function.vjp(*numbers, **arrays, wrt=wrt)
    got = pullback(*given)
    assert got[0].shape == arrays[name].shape
    expected = cotangents(case, name, given)
    np.testing.assert_allclose(got[0], expected, rtol=1e-6, atol=1e-7 * np.abs(expected).max())
    both, again = function.value_and_vjp(
        (*numbers, *arrays.values()), tuple(given) if count > 1 else given[0], wrt=name
    )
    np.testing.assert_array_equal(again[0], got[0])
    for a, b in zip(numbers_of(both), numbers_of(value), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("case", "name"), SOME_TRACKED, ids=[f"{case.name}-{name}" for case, name in TRACKED])
def test_gradients_in_the_graph(case: WholeCase, name: str) -> None:
    function, numbers, arrays = compiled(case), case.numbers(COUNT), case.tables()

    def loss(array: Any) -> Any:
        outputs = function(*numbers, **{**arrays, name: array})
        return sum(np.sum(y * y) for y in numbers_of(outputs))

    if case.name in ("polynomial", "walk_until_small"):
        with pytest.raises(ArgumentError, match="in a loop"):
            graph.grad(loss)(arrays[name])
        return
    outputs = plain(case, numbers, arrays)
    expected = cotangents(case, name, [2 * y for y in outputs])
    np.testing.assert_allclose(graph.grad(loss)(arrays[name]), expected, rtol=1e-6, atol=3e-6 * np.abs(expected).max())


def test_second_derivatives_in_the_graph() -> None:
    jax = pytest.importorskip("jax")
    jnp, numpy = jax.numpy, np
    xp, fp = np.array([0.0, 1.0, 2.5, 3.0]), np.array([1.0, 3.0, 2.0, 5.0])
    x = np.array([0.3, 1.7, 2.9, 0.6, 2.6])
    function = differentiable_broadcast(whole=("xp", "fp"))(lambda x, xp, fp: np.interp(x, xp, fp) ** 2)
    with jax.enable_x64(True):
        mine = graph.hessian(lambda x, fp: numpy.sum(function(numpy.sin(x) + x, xp, fp) * x), wrt=(0, 1))(x, fp)
        other = jax.hessian(lambda x, fp: jnp.sum(jnp.interp(jnp.sin(x) + x, xp, fp) ** 2 * x), (0, 1))(x, fp)
        for row, wanted in zip(mine, other, strict=True):
            for block, want in zip(row, wanted, strict=True):
                np.testing.assert_allclose(block, want, rtol=1e-10, atol=1e-10)


# --- the bits do not depend on how a call is made ---------------------------------------------------------------------


def test_threads_change_no_bit() -> None:
    random = np.random.default_rng(0)
    x, table, bar = random.uniform(0, 98, 200_000), random.random(100), random.standard_normal(200_000)
    function = compiled(next(case for case in WHOLE if case.name == "linear_by_hand"))
    results = []
    for threads in (1, 2, 5):
        with dualbcast.num_threads(threads):
            results.append(function.value_and_vjp((x, table), bar, wrt=("x", "table")))
    for value, (dx, dtable) in results[1:]:
        np.testing.assert_array_equal(value, results[0][0])
        np.testing.assert_array_equal(dx, results[0][1][0])
        np.testing.assert_array_equal(dtable, results[0][1][1])


@pytest.mark.parametrize(
    "make", [np.asfortranarray, lambda a: a[::-1, ::-1], lambda a: a.astype(">f8"), lambda a: a.tolist()]
)
def test_any_memory_layout(make: Any) -> None:
    function = differentiable_broadcast(whole="grid")(lambda i, j, grid: grid[i, j])
    array = make(np.arange(12.0).reshape(3, 4))
    i, j = np.arange(3)[:, None], np.arange(4)
    np.testing.assert_array_equal(function(i, j, array), np.asarray(array)[i, j])
    np.testing.assert_array_equal(function(i[:, ::-1], j[::-1], array), np.asarray(array)[i, j[::-1]])


def test_the_same_kernel_takes_tables_of_any_length() -> None:
    function = differentiable_broadcast(whole="t")(lambda i, t: t[i] + len(t))
    for length in (1, 2, 50, 3):
        t = np.arange(float(length))
        np.testing.assert_array_equal(function(np.arange(length), t), t + length)
    assert len(function._dispatch.programs) == 1


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8", "uint8", "bool", "int64"])
def test_dtypes(dtype: str) -> None:
    function = differentiable_broadcast(whole="t")(lambda i, x, t: t[i] * x)
    t, i = np.array([0, 1, 2, 3, 100, 1]).astype(dtype), np.arange(6, dtype=np.int8)
    x = np.full(6, 0.5, np.float32)
    found = function(i, x, t)
    np.testing.assert_allclose(found, t[i] * x, rtol=1e-6)
    assert found.dtype == np.result_type(t, x)


def test_out_may_be_the_array() -> None:
    shift = differentiable_broadcast(whole="u")(lambda u0, u: u[(index(0) + 1) % len(u)] + 0.0 * u0)
    u = np.arange(3000.0)
    expected = np.roll(u, -1)
    shift(u, u, out=u)
    np.testing.assert_array_equal(u, expected)


def test_a_default_and_a_pickle() -> None:
    function = differentiable_broadcast(whole="t")(second_item)
    assert function(2.0) == 8.0
    assert function(2.0, t=[5.0, 6.0]) == 12.0
    assert pickle.loads(pickle.dumps(function))(2.0) == 8.0
    assert function.partial("x")(2.0) == 4.0
    np.testing.assert_array_equal(function.hessian(np.array([1.0]))["x", "x"], [0.0])


ITEMS = np.array([3.0, 4.0])


def second_item(x: float, t: Any = ITEMS) -> float:
    return x * t[1]


# --- places of elements -----------------------------------------------------------------------------------------------


@differentiable_broadcast(whole="field")
def laplacian(u: float, field: Any, h: float) -> float:
    i, j = index(0), index(-1)
    if i == 0 or j == 0 or i == field.shape[0] - 1 or j == field.shape[1] - 1:
        return 0.0
    return (field[i - 1, j] + field[i + 1, j] + field[i, j - 1] + field[i, j + 1] - 4.0 * u) / h**2


@pytest.mark.parametrize("shape", [(3, 3), (40, 50), (1, 5), (500, 300)])
def test_stencil(shape: tuple[int, int]) -> None:
    u = np.random.default_rng(0).random(shape)
    expected = np.zeros(shape)
    inner = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1]
    expected[1:-1, 1:-1] = inner / 0.01
    np.testing.assert_allclose(laplacian(u, u, 0.1), expected, rtol=1e-12, atol=1e-11)
    bar = np.random.default_rng(1).random(shape)
    _, (du, dfield) = laplacian.value_and_vjp((u, u, 0.1), bar, wrt=("u", "field"))
    other = np.random.default_rng(2).random(shape)
    # The stencil is linear: its pullback is the transpose.
    np.testing.assert_allclose(np.sum(bar * laplacian(other, other, 0.1)), np.sum((du + dfield) * other), rtol=1e-9)


def test_index_counts_along_the_axes_of_the_result() -> None:
    function = differentiable_broadcast(lambda x, y: (index(0), index(1), index(-1), x + y))
    x, y = np.zeros((3, 1)), np.zeros(4)
    first, second, last, _ = function(x, y)
    np.testing.assert_array_equal(first, np.indices((3, 4))[0])
    np.testing.assert_array_equal(second, np.indices((3, 4))[1])
    np.testing.assert_array_equal(last, second)
    np.testing.assert_array_equal(function(np.zeros((2, 3, 4)), y)[0], np.indices((2, 3, 4))[0])
    with pytest.raises(ArgumentError, match=r"index\(1\) names no axis of the result, whose shape is \(4,\)"):
        function(y, y)
    with pytest.raises(ValueError, match="only a kernel knows"):
        index(0)
    with pytest.raises(CompileError, match="must be an integer known"):
        differentiable_broadcast(lambda x, n: index(n) * x)(y, np.arange(4))


def test_index_in_the_graph_and_with_captured_arrays() -> None:
    scale = np.arange(6.0)
    function = differentiable_broadcast(lambda x: x * x * index(0) * scale)
    x = np.linspace(1, 2, 6)
    np.testing.assert_allclose(graph.grad(lambda v: np.sum(function(v)))(x), 2 * x * np.arange(6) * scale)


# --- tables -----------------------------------------------------------------------------------------------------------

RANDOM = np.random.default_rng(5)


@pytest.mark.parametrize("length", [1, 2, 3, 7, 8, 9, 100])
def test_search_and_interpolation_are_numpys(length: int) -> None:
    xp = np.sort(RANDOM.integers(0, 60, length)).astype(float)
    x = np.concatenate([RANDOM.integers(-2, 63, 500).astype(float), RANDOM.uniform(-2, 63, 500), [np.inf, -np.inf]])
    search = differentiable_broadcast(whole="a")(
        lambda v, a: (np.searchsorted(a, v), tables.searchsorted(a, v, "right"))
    )
    left, right = search(x, xp)
    np.testing.assert_array_equal(left, np.searchsorted(xp, x))
    np.testing.assert_array_equal(right, np.searchsorted(xp, x, "right"))
    xp = np.unique(xp) + np.arange(len(np.unique(xp)))
    fp = RANDOM.random(len(xp))
    interp = differentiable_broadcast(whole=("xp", "fp"))(lambda x, xp, fp: np.interp(x, xp, fp))
    np.testing.assert_array_equal(interp(x, xp, fp), np.interp(x, xp, fp))
    ends = differentiable_broadcast(whole=("xp", "fp"))(lambda x, xp, fp: tables.interp(x, xp, fp, -3.0, 4.0))
    np.testing.assert_array_equal(ends(x, xp, fp), np.interp(x, xp, fp, -3.0, 4.0))
    assert search(np.nan, xp) == (np.searchsorted(xp, np.nan), len(xp))
    assert np.isnan(interp(np.nan, xp, fp))  # NumPy's gives the value where there is a single point


def test_interpolation_of_points_that_do_not_fit_is_nan() -> None:
    interp = differentiable_broadcast(whole=("xp", "fp"))(lambda x, xp, fp: np.interp(x, xp, fp))
    assert np.isnan(interp(0.5, np.arange(3.0), np.arange(4.0)))


def test_interpolation_beside_infinite_places_and_values_is_numpys() -> None:
    """It was NaN after a first place of minus infinity, since 0 times infinity is."""
    xp, fp = np.array([-np.inf, -1.0, 0.5, 2.0, np.inf]), np.array([3.0, 1.0, 4.0, 1.0, 5.0])
    x = np.array([-1e300, -7.0, -1.0, 0.0, 1.9, 3.0, 1e300])
    interp = differentiable_broadcast(whole=("xp", "fp"))(lambda x, xp, fp: np.interp(x, xp, fp))
    value, jacobian = interp.value_and_jacobian(x, xp, fp)
    np.testing.assert_array_equal(value, np.interp(x, xp, fp))
    np.testing.assert_array_equal(jacobian["x"], [0.0, 0.0, 2.0, 2.0, -2.0, 0.0, 0.0])
    _, pullback = interp.vjp(x, xp, fp, wrt="fp")
    shares = np.array([2 + 1 + 1 / 3, 2 / 3 + 0.1 / 1.5, 1.4 / 1.5 + 2])
    np.testing.assert_allclose(pullback(np.ones(7))[0], [0.0, *shares, 0.0], rtol=1e-13)
    fp[2] = np.inf
    np.testing.assert_array_equal(interp(x, xp, fp)[[0, 1, 3, 4, 5, 6]], np.interp(x, xp, fp)[[0, 1, 3, 4, 5, 6]])


@pytest.mark.parametrize("compile", [False, True])
def test_tables_that_do_not_fit_together_give_nan(compile: bool) -> None:
    """Beyond its end the last element of an array stood for all others."""
    three, four, plane, cube = np.arange(3.0), np.arange(4.0), np.ones((3, 4)), np.ones((3, 4, 2))
    calls = [
        (tables.cubic_hermite, (1.5,), (four, three, four), (four, four, four)),
        (tables.cubic_hermite, (1.5,), (four, four, three), (four, four, four)),
        (tables.cubic_spline, (1.5,), (four, three, four), (four, four, four)),
        (tables.cubic_spline, (1.5,), (four, four, three), (four, four, four)),
        (tables.bilinear, (1.5, 0.5), (four, three, plane), (three, four, plane)),
        (tables.trilinear, (1.5, 0.5, 0.5), (three, four, three, cube), (three, four, np.arange(2.0), cube)),
    ]
    for function, x, misfits, fits in calls:
        names = inspect.signature(function).parameters
        run: Any = differentiable_broadcast(whole=list(names)[len(x) :])(function) if compile else function
        assert np.isnan(run(*x, *misfits))
        assert np.isfinite(run(*x, *fits))


def test_a_natural_spline_of_points_that_do_not_fit_is_refused() -> None:
    """Two values stood for the slopes between four places."""
    for fp in (np.ones(2), np.ones((4, 2)), np.ones(5)):
        with pytest.raises(ArgumentError, match="in arrays of one length; these have shapes"):
            tables.natural_spline(np.arange(4.0), fp)
    with pytest.raises(ArgumentError, match="two points or more"):
        tables.natural_spline(np.ones(1), np.ones(1))
    for xp in ([0.0, 2.0, 1.0], [0.0, 1.0, 1.0], [0.0, 1.0, np.nan]):
        with pytest.raises(ArgumentError, match="sort xp and fp by xp"):
            tables.natural_spline(xp, np.ones(3))
    for fp in (np.arange(3) * 1j, [1, 2j, 3], list("abc")):  # of arrays the imaginary parts were dropped
        with pytest.raises(ArgumentError, match="takes real numbers"):
            tables.natural_spline(np.arange(3.0), fp)


def test_splines_are_scipys() -> None:
    xp, fp = np.sort(RANDOM.random(20)) * 10, RANDOM.random(20)
    second, x = tables.natural_spline(xp, fp), np.linspace(-1, 11, 300)
    spline = differentiable_broadcast(whole=("xp", "fp", "second"))(tables.cubic_spline)
    wanted = interpolate.CubicSpline(xp, fp, bc_type="natural")
    value, jacobian = spline.value_and_jacobian(x, xp, fp, second)
    np.testing.assert_allclose(value, wanted(x), rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(jacobian["x"], wanted(x, 1), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(second, wanted(xp, 2), rtol=1e-10, atol=1e-10)
    hermite = differentiable_broadcast(whole=("xp", "fp", "slopes"))(tables.cubic_hermite)
    wanted = interpolate.CubicHermiteSpline(xp, fp, second)
    value, jacobian = hermite.value_and_jacobian(x, xp, fp, second)
    np.testing.assert_allclose(value, wanted(x), rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(jacobian["x"], wanted(x, 1), rtol=1e-10, atol=1e-10)


def test_grids_are_scipys() -> None:
    xp, yp, zp = np.sort(RANDOM.random(6)), np.sort(RANDOM.random(9)), np.arange(5.0)
    points = [RANDOM.uniform(p[0], p[-1], 300) for p in (xp, yp, zp)]
    plane, cube = RANDOM.random((6, 9)), RANDOM.random((6, 9, 5))
    flat = differentiable_broadcast(whole=("xp", "yp", "fp"))(tables.bilinear)
    wanted = interpolate.RegularGridInterpolator((xp, yp), plane)(np.stack(points[:2], -1))
    np.testing.assert_allclose(flat(*points[:2], xp, yp, plane), wanted, rtol=1e-12)
    solid = differentiable_broadcast(whole=("xp", "yp", "zp", "fp"))(tables.trilinear)
    wanted = interpolate.RegularGridInterpolator((xp, yp, zp), cube)(np.stack(points, -1))
    np.testing.assert_allclose(solid(*points, xp, yp, zp, cube), wanted, rtol=1e-12)


# --- errors -----------------------------------------------------------------------------------------------------------


def look(x, table):
    i = int(x)
    if x < 0:
        i = 3 * i
    return table[i] + x


@pytest.mark.parametrize("backend", ["cpu", "python"])
def test_the_first_element_out_of_range_is_named(backend: str) -> None:
    function = differentiable_broadcast(whole="table", backend=backend)(look)
    x = np.zeros((3, 40))
    x[1, 7], x[2, 3], x[2, 9] = 5.0, -2.0, 99.0
    for call in (function, function.value_and_jacobian, function.vjp):
        with pytest.raises(
            BoundsError, match=r"this index is out of range for the element at index \(1, 7\)"
        ) as caught:
            call(x, np.ones(5))
        assert caught.value.index == (1, 7)
        assert caught.value.count == 3
        assert caught.value.location.line == look.__code__.co_firstlineno + 4
        assert isinstance(caught.value, IndexError)
    x[1, 7], x[2, 3], x[2, 9] = 4.0, -1.0, -0.9
    np.testing.assert_array_equal(function(x, np.ones(5)), 1 + x)
    assert function(-1.0, np.ones(5)) == 0.0
    with pytest.raises(BoundsError, match="out of range for these numbers"):
        function(7.0, np.ones(5))


def test_an_index_in_a_branch_that_is_not_taken_is_no_error() -> None:
    function = differentiable_broadcast(whole="t")(lambda x, t: t[int(x)] if 0 <= x < len(t) else -1.0)
    x = np.linspace(-50, 50, 1000)
    t = np.arange(10.0)
    np.testing.assert_array_equal(function(x, t), np.where((x >= 0) & (x < 10), np.floor(np.clip(x, 0, 9.99)), -1.0))
    np.testing.assert_array_equal(function(x, np.zeros(0)), -1.0)


@pytest.mark.parametrize("backend", ["cpu", "python"])
@pytest.mark.parametrize("mode", ["raise", "clip", "wrap"])
@pytest.mark.parametrize(
    ("shape", "dtype"), [((0,), "float64"), ((0,), "int32"), ((0, 3), "float32"), ((3, 0), "bool")]
)
def test_an_empty_array_has_no_element_to_read(shape: tuple[int, ...], dtype: str, mode: Any, backend: str) -> None:
    """As NumPy has it: "cannot do a non-empty take from an empty axes"."""

    def first(x, t):
        if x < 0:
            return 7.0
        row = np.take(t, int(x), axis=0, mode=mode)
        return np.take(row, 1, mode=mode) + x if t.ndim == 2 else row + x

    function = differentiable_broadcast(whole="t", backend=backend)(first)
    function(np.ones(2), np.ones((2, 2) if len(shape) == 2 else 2, dtype))
    with pytest.raises(BoundsError, match=r"index \(1,\)"):
        function(np.array([-1.0, 0.0]), np.ones(shape, dtype))
    np.testing.assert_array_equal(function(np.array([-1.0, -2.0]), np.ones(shape, dtype)), 7.0)
    assert function(np.ones(0), np.ones(shape, dtype)).shape == (0,)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, t: dualbcast.tables.interp(x, t, t),
        lambda x, t: dualbcast.tables.cubic_spline(x, t, t, t),
        lambda x, t: dualbcast.tables.cubic_hermite(x, t, t, t),
    ],
)
def test_nothing_is_interpolated_in_an_empty_table(function: Any) -> None:
    with pytest.raises(BoundsError):
        differentiable_broadcast(whole="t")(function)(1.0, np.ones(0))


def test_the_pullback_of_many_reads_is_derived_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from dualbcast.program import derived_functions

    derived = []
    pullback_of = derived_functions.pullback_of

    def counted(*args: Any, **options: Any) -> Any:
        derived.append(args)
        return pullback_of(*args, **options)

    monkeypatch.setattr(derived_functions, "pullback_of", counted)

    @differentiable_broadcast(whole="t")
    def weighted(x, t):
        total = 0.0
        for k in range(50):  # more reads than one launch takes
            total += x**k * t[k]
        return total

    x, t = np.array([0.5, -0.25]), np.arange(60.0)
    _, (cotangent,) = weighted.value_and_vjp((x, t), np.ones(2), wrt="t")
    np.testing.assert_allclose(cotangent, [*np.sum(x ** np.arange(50)[:, None], axis=1), *np.zeros(10)], rtol=1e-14)
    assert len(derived) == 1


def test_the_graph_says_how_a_short_loop_is_written_out() -> None:
    @differentiable_broadcast(whole="t")
    def named(i, t):
        total = 0.0
        for k in range(3):
            place = i + k
            total += t[place]
        return total

    @differentiable_broadcast(whole="t")
    def in_the_index(i, t):
        total = 0.0
        for k in range(3):
            total += t[i + k]
        return total

    i, t = np.arange(2), np.arange(5.0)
    with pytest.raises(
        ArgumentError, match=r"write its variable in the index, such as for k in range\(3\) and t\[i \+ k\]"
    ):
        graph.grad(lambda t: np.sum(named(i, t) ** 2))(t)
    np.testing.assert_array_equal(
        graph.grad(lambda t: np.sum(in_the_index(i, t) ** 2))(t), [6.0, 18.0, 18.0, 12.0, 0.0]
    )


def test_in_a_loop_and_with_a_limit_of_iterations() -> None:
    def climb(x, t):
        i, total = 0, 0.0
        while total < x:
            total += t[i]
            i += 1
        return total

    t = np.ones(10)
    function = differentiable_broadcast(whole="t", max_iterations=5)(climb)
    np.testing.assert_array_equal(function(np.array([0.5, 3.5]), t), [1.0, 4.0])
    with pytest.raises(IterationError):
        function(np.array([0.5, 7.5]), t)
    with pytest.raises(BoundsError, match=r"index \(1,\)"):
        function(np.array([0.5, 3.5]), t[:2])
    with pytest.raises(BoundsError):
        differentiable_broadcast(whole="t")(climb)(np.array([0.5, 99.0]), t)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x, t: t[0.5] * x, "an index must be an integer"),
        (lambda x, t: t[1:2] * x, "indexed by integers only"),
        (lambda x, t: t[0, 1, 2] * x, "3 indices for a whole array of 1 axis"),
        (lambda x, t: t + x, "a number is needed here, and this is a whole array"),
        (lambda x, t: t + x, "an element of it, with an index for each axis"),
        (lambda x, t: sum(t) * x, "the length of a whole array is not known"),
        (lambda x, t: t.T * x, "a whole array has no T"),
        (lambda x, t: np.take(t, 0, mode="bounce") * x, "the mode of np.take"),
        (lambda x, t: np.take(t, 0, axis=1) * x, "along the first axis"),
    ],
)
def test_compile_errors(function: Any, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        differentiable_broadcast(whole="t")(function)(1.0, np.ones(3))


def test_arguments_that_are_refused() -> None:
    function = differentiable_broadcast(whole="t")(lambda x, t: t[0] * x)
    with pytest.raises(ArgumentError, match="t is whole, and a float is no array"):
        function(1.0, 2.0)
    with pytest.raises(ArgumentError, match="t is whole and complex; give its parts as two whole arrays"):
        function(1.0, np.ones(3, complex))
    with pytest.raises(ArgumentError, match="without axes"):
        function(1.0, np.array(2.0))
    with pytest.raises(ArgumentError, match="whole='q' names no parameter"):
        differentiable_broadcast(whole="q")(lambda x: x)
    with pytest.raises(ArgumentError, match="static= and in whole="):
        differentiable_broadcast(whole="t", static="t")(lambda x, t: x * t)
    for call in (function.jacobian, function.hessian, function.sum):
        with pytest.raises(ArgumentError, match="take them by vjp"):
            call(np.ones(2), np.ones(3), wrt="t", **({"order": 1} if call == function.sum else {}))
    with pytest.raises(ArgumentError, match="take them by vjp"):
        function.jvp((np.ones(2), np.ones(3)), (None, np.ones(3)))
    with pytest.raises(CompileError, match='whole="t" in the decorator'):
        differentiable_broadcast(lambda x, t: t[0] * x)(1.0, np.ones(3))


def test_a_partial_in_a_whole_array_is_refused() -> None:
    """It was 0 for every element."""
    slope = differentiable_broadcast(whole="table")(lambda x, table: x * table[0]).partial("table")
    for call in (slope, slope.jacobian):
        with pytest.raises(ArgumentError, match="table is whole, so derivatives in it are cotangents"):
            call(1.0, np.ones(3))


def test_a_gradient_along_tangents_in_a_whole_array_is_refused() -> None:
    """`hvp` gave a block of zeros for the array, beside the right one of an argument that broadcasts."""
    function = differentiable_broadcast(whole="table")(lambda x, table: x * x * table[0])
    for wrt in ("table", ("x", "table")):
        with pytest.raises(ArgumentError, match="table is whole, so derivatives in it are cotangents"):
            function.hvp((np.ones(2), np.ones(3)), (1.0, None), wrt=wrt)
    vectors = differentiable_broadcast(whole="table", signature="(2)->()")(lambda v, table: v[0] * v[1] * table[0])
    with pytest.raises(ArgumentError, match="table is whole, so derivatives in it are cotangents"):
        vectors.hvp((np.ones(2), np.ones(3)), (np.ones(2), None), wrt=("v", "table"))


def test_the_graph_takes_an_empty_array_that_is_not_read() -> None:
    """The place of a read that no element makes is 0, which an empty array does not have."""
    function = differentiable_broadcast(whole="t")(lambda x, t: t[0] * x if len(t) > 0 else x * x)
    x = np.array([1.0, 2.0, 3.0])
    for empty in (np.zeros(0), np.zeros((0, 2)).T[0]):
        dx, dt = graph.grad(lambda x, t: np.sum(function(x, t)), wrt=(0, 1))(x, empty)
        np.testing.assert_array_equal(dx, 2 * x)
        assert dt.shape == (0,)


def test_the_graph_takes_a_whole_array_beside_vectors() -> None:
    """The shape of the array was taken for one that broadcasts, as that of no NumPy array is."""
    function = differentiable_broadcast(whole="table", signature="(2)->(2)")(lambda v, table: v * table[int(v[0])])
    v, table = np.array([[1.0, 2.0], [3.0, 4.0]]), np.arange(5.0)
    dv, dtable = graph.grad(lambda v, table: np.sum(function(v, table) ** 2), wrt=(0, 1))(v, table)
    np.testing.assert_array_equal(dv, [[2.0, 4.0], [54.0, 72.0]])  # 2 v t²
    np.testing.assert_array_equal(dtable, [0.0, 10.0, 0.0, 150.0, 0.0])  # 2 |v|² t


def test_integers_have_no_cotangents_in_an_array() -> None:
    """An IndexError came out, since there was no cotangent of an output."""
    function = differentiable_broadcast(whole="t")(lambda x, t: (int(t[0] * x), t[1] > x))
    x, t = np.array([1.0, 3.0]), np.array([1.5, 2.0, 7.0])
    value, gradients = function.value_and_vjp((x, t), (None, None), wrt=("t", "x"))
    np.testing.assert_array_equal(value, ([1, 4], [True, False]))
    for given in (gradients, function.vjp(x, t, wrt=("t", "x"))[1](None, None)):
        np.testing.assert_array_equal(given[0], np.zeros(3))
        np.testing.assert_array_equal(given[1], np.zeros(2))


@pytest.mark.parametrize(
    ("function", "shown"),
    [
        (lambda x: np.interp(x, (0.0, 1.0), (2.0, 3.0)), r"interp\(\) reads its xp .* this is a tuple of 2"),
        (lambda x: tables.interp(x, NODES, NODES), r"interp\(\) reads its xp .* this is one element of an array"),
        (lambda x: np.searchsorted((0.0, 1.0), x), r"searchsorted\(\) reads its a .* this is a tuple of 2"),
    ],
)
def test_a_table_that_is_no_whole_array_is_an_error_that_says_what_to_write(function: Any, shown: str) -> None:
    with pytest.raises(CompileError, match=shown + r"[\s\S]*Write instead: a parameter for the table.* whole="):
        differentiable_broadcast(function)(0.5)


NODES = np.array([0.0, 1.0])
