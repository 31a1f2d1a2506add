"""Indexing, shapes and extreme values: properties for random arguments, and cases by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_np

from dualbcast import graph
from dualbcast.graph import indexing, shapes
from dualbcast.program.scatter import row_sums

SHAPES = st_np.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=4)
FEW = settings(max_examples=150, deadline=None, derandomize=True)


def numbers(shape: tuple[int, ...]) -> Any:
    return np.arange(1.0, 1.0 + np.prod(shape, dtype=int)).reshape(shape)


@FEW
@given(st.data())
def test_scatter_is_the_transpose_of_indexing(data: st.DataObject) -> None:
    """Element by element, for every kind of key: np.add.at is the reference."""
    shape = data.draw(SHAPES)
    kind = data.draw(st.sampled_from(["basic", "advanced", "mask", "mixed"]))
    if kind == "basic":
        key = data.draw(st_np.basic_indices(shape, allow_newaxis=True, allow_ellipsis=True))
    elif kind == "advanced":
        key = data.draw(st_np.integer_array_indices(shape, result_shape=st_np.array_shapes(max_dims=3, max_side=5)))
    elif kind == "mask":
        key = data.draw(st_np.arrays(bool, shape))
    else:
        at = data.draw(st.integers(0, len(shape) - 1))
        index = data.draw(st_np.arrays(np.int64, st_np.array_shapes(max_dims=2, max_side=5),
                                       elements=st.integers(-shape[at], shape[at] - 1)))  # fmt: skip
        rest = data.draw(st.sampled_from([(), (Ellipsis,), (slice(None),) * (len(shape) - at - 1)]))
        key = (*(slice(None),) * at, index, *rest)
    x = numbers(shape)
    expected = x[key]
    variable = graph.Variable(x)
    found = variable[key]
    np.testing.assert_array_equal(found.value, expected)
    values = np.random.default_rng(0).integers(1, 9, np.shape(expected)).astype(float)
    (slope,) = graph.vjp(lambda v: v[key], x)[1](values)
    sums = np.zeros(shape)
    np.add.at(sums, key, values)
    np.testing.assert_array_equal(slope, sums)
    # And back again: the derivative of the scatter is the gather.
    (back,) = graph.vjp(lambda c: graph.scatter(c, key, shape), values)[1](x)
    np.testing.assert_array_equal(back, expected)


@FEW
@given(st.data())
def test_shapes_are_those_of_numpy(data: st.DataObject) -> None:
    x = numbers(data.draw(SHAPES))
    ndim = x.ndim
    axis = st.integers(-ndim, ndim - 1)
    source, target = data.draw(axis), data.draw(axis)
    order = data.draw(st.permutations(range(ndim)))
    operations = [
        lambda v: np.moveaxis(v, source, target),
        lambda v: np.swapaxes(v, source, target),
        lambda v: np.transpose(v, order),
        lambda v: np.expand_dims(v, source),
        lambda v: np.squeeze(v),
        lambda v: np.flip(v, source),
        lambda v: np.roll(v, target, axis=source),
        lambda v: np.repeat(v, 2, axis=source),
        lambda v: np.tile(v, (2,) * (abs(target) + 1)),
        lambda v: np.stack([v, v], axis=source),
        lambda v: np.concatenate([v, v], axis=source),
        lambda v: np.cumsum(v, axis=source),
        lambda v: np.sum(v, axis=source, keepdims=bool(target % 2)),
        lambda v: np.max(v, axis=tuple({source % ndim, target % ndim})),
        lambda v: np.split(v, [1, 2], axis=source)[1],
    ]
    operation = data.draw(st.sampled_from(operations))
    expected = operation(x)
    found, pullback = graph.vjp(operation, x)
    np.testing.assert_array_equal(found, expected)
    # All of these are linear where x does not change order: <c, A x> = <A' c, x>.
    cotangent = np.random.default_rng(1).integers(1, 9, np.shape(expected)).astype(float)
    (back,) = pullback(cotangent)
    assert back.shape == x.shape
    assert np.vdot(cotangent, expected) == np.vdot(back, x)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("columns", [(), (1,), (3,), (2, 2)])
def test_gradient_of_an_embedding(columns: tuple[int, ...], dtype: Any) -> None:
    random = np.random.default_rng(2)
    index = random.integers(-50, 50, (40, 30))
    index[0] = 7  # and many times the same
    values = random.integers(-3, 4, (*index.shape, *columns)).astype(dtype)
    expected = np.zeros((50, *columns), dtype)
    np.add.at(expected, index, values)
    for _ in range(2):
        found = graph.scatter(values, index, (50, *columns)).value
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, expected)


def test_sums_of_the_scatter_are_always_the_same() -> None:
    random = np.random.default_rng(3)
    index, values = random.integers(0, 20, 5000), random.uniform(-1, 1, (5000, 3)).astype(np.float32)
    first = graph.scatter(values, index, (20, 3)).value
    assert all((graph.scatter(values, index, (20, 3)).value == first).all() for _ in range(3))
    exact = np.zeros((20, 3))
    np.add.at(exact, index, values.astype(float))
    np.testing.assert_allclose(first, exact, atol=5e-6)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("columns", [0, 1, 3, 8, 21])
def test_rows_added_at_places(columns: int, dtype: str) -> None:
    random = np.random.default_rng(2)
    places = random.integers(0, 40, 3000)
    rows = random.standard_normal((3000, 2 * columns)).astype(dtype)[:, ::2]
    wanted = np.zeros((50, columns))
    np.add.at(wanted, places, rows.astype(float))
    np.testing.assert_allclose(row_sums(rows, places, 50), wanted, atol=1e-13, rtol=0)
    np.testing.assert_array_equal(row_sums(rows[::-1], places[::-1].astype(np.int32), 50)[40:], 0)
    np.testing.assert_array_equal(row_sums(rows[:0], places[:0], 3), np.zeros((3, columns)))


def test_sums_of_many_rows_in_float64_are_exact() -> None:
    """As those of kernels: rounded once. Infinite ones stay so, and NaN too."""
    random = np.random.default_rng(8)
    rows = random.standard_normal((9000, 2)) * 10.0 ** random.integers(-12, 12, (9000, 1))
    places = random.integers(0, 3, 9000)
    rows[places == 2, 0], rows[8000, 1], places[8000] = 1e308, np.nan, 2
    found = row_sums(rows, places, 4)
    for at in (0, 1):
        wanted = [math.fsum(column) for column in rows[places == at].T]
        np.testing.assert_array_max_ulp(found[at], np.array(wanted), 1)
    np.testing.assert_array_equal(found[2:], [[np.inf, np.nan], [0, 0]])
    big_endian = graph.scatter(rows.astype(">f8"), places, (4, 2))
    assert big_endian.dtype == ">f8"
    np.testing.assert_array_equal(big_endian.value, found)


@pytest.mark.parametrize("place", [-1, 3, 2**40])
def test_no_row_is_added_outside(place: int) -> None:
    with pytest.raises(IndexError, match="out of bounds for an axis with size 3"):
        row_sums(np.ones((2, 4)), np.array([0, place]), 3)
    with pytest.raises(IndexError, match="out of bounds"):
        graph.scatter(np.ones((2, 4)), [0, 3 if place > 0 else -4], (3, 4))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_gradients_of_many_parts_of_one_array(dtype: str) -> None:
    """In any order, with parts that overlap, and beside uses of the whole; by hand, in whole numbers."""
    x = (numbers((40, 50)) % 7).astype(dtype)
    mask = x > 3
    keys = [
        np.s_[1:, :-1],
        np.s_[:-1, 1:],
        np.s_[::-2, 3],
        np.s_[5],
        np.s_[5, 7],
        mask,
        np.s_[:, None, ::3],
        np.s_[...],
    ]
    index = np.array([3, 3, 5])

    def f(v: Any) -> Any:
        parts = sum(at * np.sum(v[key]) for at, key in enumerate(keys, 1))
        return parts + np.sum(v[index]) + np.sum(v * 2) + np.sum(v[0])

    wanted = np.full(x.shape, 2.0)
    for at, key in enumerate(keys, 1):
        wanted[key] += at
    wanted[3] += 2
    wanted[5] += 1
    wanted[0] += 1
    np.testing.assert_array_equal(graph.grad(f)(x), wanted)
    y = graph.Variable(x)
    inner = y * 2
    both = graph.grad(f(inner), [y, inner])
    np.testing.assert_array_equal(both[0], 2 * wanted)
    np.testing.assert_array_equal(both[1], wanted)
    if dtype == "float64":
        second = graph.jvp(graph.grad(lambda v: f(v * v)), (x,), (np.ones_like(x),))[1]
        np.testing.assert_array_equal(second, 2 * wanted)


@pytest.mark.filterwarnings("error")
def test_infinite_cotangents_of_parts_are_added_in_silence() -> None:
    bars = np.full(2999, np.inf), np.full(2999, -np.inf)
    (found,) = graph.vjp(lambda v: (v[1:], v[:-1]), np.ones(3000))[1](bars)
    np.testing.assert_array_equal(found, [-np.inf, *[np.nan] * 2998, np.inf])


def test_a_loop_over_layers_adds_to_one_array(monkeypatch: pytest.MonkeyPatch) -> None:
    layers, x = np.random.default_rng(6).uniform(-0.5, 0.5, (30, 8, 8)), np.linspace(0, 1, 8)
    made = []
    scatter = indexing._SCATTER.forward
    monkeypatch.setattr(indexing._SCATTER, "forward", lambda *args, **named: made.append(0) or scatter(*args, **named))

    def f(weights: Any) -> Any:
        state = x
        for layer in range(30):
            state = np.tanh(weights[layer] @ state)
        return np.sum(state)

    found = graph.grad(f)(layers)
    assert len(made) == 1
    states = [x]
    for weights in layers:
        states.append(np.tanh(weights @ states[-1]))
    bar = np.ones(8)
    for layer in reversed(range(30)):
        bar = bar * (1 - states[layer + 1] ** 2)
        np.testing.assert_allclose(found[layer], np.outer(bar, states[layer]), rtol=1e-10, atol=1e-300)
        bar = layers[layer].T @ bar


@pytest.mark.parametrize(
    "key", [((0, 0, 2),), ((0, 0), (1, 1)), (slice(None), (1, 1)), ([0, 0], (1, 1)), range(2), ((),)]
)
def test_a_sequence_within_a_key_is_an_array(key: Any) -> None:
    x = np.arange(12.0).reshape(3, 4)
    wanted = np.zeros((3, 4))
    np.add.at(wanted, key, 1.0)
    np.testing.assert_array_equal(graph.grad(lambda v: np.sum(v[key]))(x), wanted)


def test_the_key_is_as_it_was() -> None:
    index = np.array([0, 1])
    x = graph.Variable([1.0, 2.0, 3.0])
    loss = np.sum(x[index] * x[index])
    index[:] = 2
    np.testing.assert_array_equal(graph.grad(loss, x), [2.0, 4.0, 0.0])


def test_iteration_over_rows_goes_back_in_one_step() -> None:
    x = graph.Variable(numbers((4, 3)))
    rows = list(x)
    assert len({id(row.node.inputs[0].node) for row in rows if row.node}) == 1
    np.testing.assert_array_equal(graph.grad(np.sum(rows[1] * rows[3]), x)[[1, 3]], x.value[[3, 1]])


# --- extreme values ---------------------------------------------------------------------------------------------------


def test_logsumexp_of_extreme_values() -> None:
    x = np.array([[-np.inf, -np.inf], [1e4, 1e4 + 1], [-1e4, -np.inf], [np.inf, 0.0]])
    with np.errstate(all="ignore"):
        value, pullback = graph.vjp(lambda v: graph.logsumexp(v, axis=1), x)
        (slope,) = pullback(np.ones(4))
        second = graph.jvp(graph.grad(lambda v: np.sum(graph.logsumexp(v, axis=1))), (x[:3],), (np.ones((3, 2)),))[1]
    share = 1 / (1 + np.e)
    np.testing.assert_allclose(value, [-np.inf, 1e4 + np.log1p(np.e), -1e4, np.inf], rtol=1e-15)
    np.testing.assert_allclose(slope[:3], [[0, 0], [share, 1 - share], [1, 0]], rtol=1e-12)
    np.testing.assert_allclose(second, np.zeros((3, 2)), atol=1e-12)


def test_softmax_of_extreme_values() -> None:
    x = np.array([1e4, 1e4, -np.inf, -1e4])
    np.testing.assert_array_equal(graph.softmax(x).value, [0.5, 0.5, 0, 0])
    slope = graph.grad(lambda v: graph.softmax(v)[0])(x)
    np.testing.assert_array_equal(slope, [0.25, -0.25, 0, 0])
    np.testing.assert_allclose(graph.log_softmax(x[[0, 1, 3]]).value, -np.log(2) - np.array([0, 0, 2e4]), rtol=1e-12)


def test_max_shares_evenly_among_equal_elements() -> None:
    x = np.array([[2.0, 2.0, 1.0], [0.0, 0.0, 0.0]])
    np.testing.assert_allclose(
        graph.grad(lambda v: np.sum(np.max(v, axis=1)))(x), [[0.5, 0.5, 0], [1 / 3, 1 / 3, 1 / 3]]
    )
    np.testing.assert_allclose(graph.grad(np.max)(np.array([1.0, np.nan])), [0, 1])


def test_more_equal_elements_than_half_precision_counts_to() -> None:
    found = graph.grad(np.max)(np.zeros(70000, np.float16))
    np.testing.assert_array_equal(found, np.full(70000, 1 / 70000, np.float16))


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("name", ["max", "min"])
def test_extremes_of_large_arrays(name: str, keepdims: bool) -> None:
    """With equal elements, infinities and NaN; and the cotangents' own derivatives."""
    x = np.random.default_rng(3).integers(0, 12, (300, 40)).astype(float)
    x[0, 3], x[1, 5:8], x[2, [4, 6]], x[3] = np.nan, np.inf, -np.inf, np.nan
    w = np.linspace(0.5, 2.0, 300).reshape((300, 1) if keepdims else 300)
    y = getattr(x, name)(axis=1, keepdims=True)
    is_extreme = (x == y) | (np.isnan(x) & np.isnan(y))
    shares = is_extreme / is_extreme.sum(axis=1, keepdims=True)

    def f(v: Any) -> Any:
        return getattr(v, name)(axis=1, keepdims=keepdims)

    value, pullback = graph.vjp(f, x)
    np.testing.assert_array_equal(value, getattr(x, name)(axis=1, keepdims=keepdims))
    np.testing.assert_allclose(pullback(w)[0], w.reshape(300, 1) * shares, rtol=1e-15)
    finite = np.where(np.isfinite(x), x, 0.5)
    y = getattr(finite, name)(axis=1, keepdims=True)
    shares = (finite == y) / (finite == y).sum(axis=1, keepdims=True)
    second = graph.jvp(graph.grad(lambda v: np.sum(f(v) ** 3)), (finite,), (np.ones_like(x),))[1]
    np.testing.assert_allclose(second, 6 * y * shares, rtol=1e-12)


@pytest.mark.parametrize("axis", [0, 1, None])
def test_exponentials_of_large_arrays(axis: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "KERNEL_ELEMENTS", 1024)
    x = 30 * np.random.default_rng(4).standard_normal((60, 50))
    powers = np.exp(x - x.max(axis=axis, keepdims=True))
    shares = powers / powers.sum(axis=axis, keepdims=True)
    value, slope = graph.value_and_grad(lambda v: np.sum(graph.logsumexp(v, axis=axis)))(x)
    np.testing.assert_allclose(value, np.sum(np.log(np.exp(x).sum(axis=axis))), rtol=1e-14)
    np.testing.assert_allclose(slope, shares, rtol=1e-12, atol=1e-300)
    if axis is not None:
        np.testing.assert_allclose(graph.softmax(x, axis=axis).value, shares, rtol=1e-13, atol=1e-300)


@pytest.mark.parametrize(("size", "dtype", "kernels"), [(1 << 17, "f4", 1), (1 << 16, "f4", 0), (1 << 14, "f2", 1)])
def test_kernels_are_for_large_arrays(size: int, dtype: str, kernels: int) -> None:
    x = np.arange(size).reshape(-1, 256).astype(dtype) % 8
    for f, few in ((lambda v: graph.sum(v, axis=1), 1), (graph.logsumexp, 1), (graph.softmax, 2)):
        with graph.launches() as launched:
            assert f(x).value.dtype == dtype
        assert len(launched) == kernels * few


@pytest.mark.parametrize("dtype", [np.longdouble, ">f8"])
def test_large_arrays_that_kernels_do_not_read(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "KERNEL_ELEMENTS", 1024)
    x = np.linspace(0, 3, 2000).reshape(40, 50).astype(dtype)
    powers = np.exp(x)
    for found, wanted in (
        (graph.sum(x, axis=1), x.sum(axis=1)),
        (graph.max(x, axis=1), x.max(axis=1)),
        (graph.logsumexp(x, axis=1), np.log(powers.sum(axis=1))),
        (graph.softmax(x, axis=1), powers / powers.sum(axis=1, keepdims=True)),
    ):
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found.value, wanted, rtol=1e-14)
    slope = graph.grad(lambda v: graph.sum(graph.sum(v, axis=1)))(x)
    np.testing.assert_array_equal(slope, np.ones_like(x))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("axis", [0, 1, (0, 1), None])
def test_sums_of_large_arrays(axis: Any, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are computed in float64, turned or not; the gradient is the cotangent along the axes."""
    monkeypatch.setattr(shapes, "KERNEL_ELEMENTS", 1024)
    x = np.random.default_rng(5).standard_normal((70, 50)).astype(dtype)
    for array in (x, x.T, x[:, ::-1]):
        for keepdims in (False, True):
            found = graph.sum(array, axis=axis, keepdims=keepdims).value
            wanted = array.astype(float).sum(axis=axis, keepdims=keepdims)
            size = abs(array.astype(float)).sum(axis=axis, keepdims=keepdims)
            assert found.shape == wanted.shape and found.dtype == dtype
            assert (abs(found - wanted) <= np.finfo(dtype).eps * abs(wanted) + 1e-15 * size).all()
    weights = np.linspace(1, 2, np.sum(x, axis=axis).size).reshape(np.sum(x, axis=axis).shape).astype(dtype)
    slope = graph.grad(lambda v: np.sum(np.sum(v, axis=axis) * weights))(x)
    kept = np.expand_dims(weights, (0, 1) if axis is None else axis)
    np.testing.assert_array_equal(slope, np.broadcast_to(kept, x.shape))


def test_var_without_degrees_of_freedom() -> None:
    """As in NumPy, 0 / 0."""
    assert np.isnan(graph.var(np.array([1.0]), correction=1).item())


def test_half_precision_is_summed_in_more() -> None:
    x = np.full(70_000, 1.5, np.float16)
    assert graph.mean(x).item() == np.mean(x) == 1.5
    assert graph.var(x).item() == 0
    assert graph.std(x).dtype == graph.mean(x).dtype == np.float16
    assert graph.grad(graph.mean)(x[:4]).tolist() == [0.25] * 4


def test_empty_arrays() -> None:
    empty = np.zeros((0, 3))
    assert graph.sum(empty).item() == 0
    assert graph.prod(empty).item() == 1
    np.testing.assert_array_equal(graph.prod(empty, axis=0).value, [1, 1, 1])
    assert graph.grad(lambda v: np.sum(np.sin(v) * 2))(empty).shape == (0, 3)
    assert graph.grad(lambda v: np.sum(v @ np.ones((3, 2))))(empty).shape == (0, 3)
    assert graph.grad(lambda v: np.sum(v[:0]))(np.ones(2)).tolist() == [0, 0]
