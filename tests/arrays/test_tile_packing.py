"""Inputs that are transposed or have gaps: packed tile by tile, with the results of contiguous ones."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import pages
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dualbcast import differentiable_broadcast
from dualbcast.runtime import iteration_space, launch_plan
from dualbcast.runtime.cpu import pieces, policy
from dualbcast.runtime.cpu.pieces import Packing


def combined(x, y, z):
    return x * y + z


exact = differentiable_broadcast(combined)
interpreted = differentiable_broadcast(backend="python")(combined)


@differentiable_broadcast
def curved(x, y):
    return math.tanh(x) * y


def forget() -> None:
    iteration_space.lay_out.cache_clear()
    launch_plan.find_fit.cache_clear()


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever can be packed is, in small tiles, so that all their borders are met."""
    monkeypatch.setattr(pieces, "_SMALLEST_PANEL", 1)
    monkeypatch.setattr(pieces, "_SMALLEST_SPACE", 1)
    monkeypatch.setattr(pieces, "_LARGEST_TILE", (16, 32))
    monkeypatch.setattr(pieces, "_LARGEST_ROW", (1, 64))
    monkeypatch.setattr(pieces, "_LARGEST_PANEL", 1 << 10)
    forget()
    yield
    forget()


@st.composite
def views(draw: st.DrawFn, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """An array of a shape: axes in any order in memory, gaps, reversed, broadcast along some."""
    rank = len(shape)
    order = draw(st.permutations(range(rank)))
    steps = [draw(st.sampled_from([1, 1, 1, 2, -1, -2, 3, 4])) for _ in range(rank)]
    ones = [draw(st.integers(0, 5)) == 0 for _ in range(rank)]
    own = [1 if one else length for one, length in zip(ones, shape, strict=True)]
    memory = [own[axis] * abs(steps[axis]) + draw(st.integers(0, 2)) for axis in order]
    values = np.random.default_rng(draw(st.integers(0, 99))).integers(-99, 99, memory).astype(dtype)
    inverse = sorted(range(rank), key=order.__getitem__)
    array = values.transpose(inverse)
    array = array[tuple(slice(None, None, step) for step in steps)]
    return array[tuple(slice(length) for length in own)]


SHAPES = st.one_of(
    st.tuples(st.integers(1, 3000)),
    st.tuples(st.integers(1, 70), st.integers(1, 90)),
    st.tuples(st.integers(1, 9), st.integers(1, 40), st.integers(1, 40)),
    st.tuples(*[st.integers(1, 9)] * 4),
)
DTYPES = ["float64", "float32", "float16", "int8", "int32"]


@pytest.mark.usefixtures("always")
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_views_give_numpys_results(data: st.DataObject) -> None:
    check_views(data)


@pytest.mark.slow
@pytest.mark.usefixtures("always")
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_more_views_give_numpys_results(data: st.DataObject) -> None:
    check_views(data)


def check_views(data: st.DataObject) -> None:
    shape = data.draw(SHAPES)
    dtype = data.draw(st.sampled_from(DTYPES))
    arrays = [data.draw(views(shape, kind)) for kind in (dtype, "float64", dtype)]
    x, y, z = arrays
    expected = x.astype(np.float64) * y + z.astype(np.float64)
    np.testing.assert_array_equal(exact(*arrays), expected)
    value, jacobian = exact.value_and_jacobian(*arrays, wrt="y")
    np.testing.assert_array_equal(value, expected)
    np.testing.assert_array_equal(jacobian["y"], np.broadcast_to(x, expected.shape))
    if expected.size < 500:
        np.testing.assert_array_equal(interpreted(*arrays), expected)


@pytest.mark.slow
@pytest.mark.usefixtures("always")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_sums_of_any_views_are_numpys(data: st.DataObject) -> None:
    """A kernel that sums is run on copies. Whole numbers, so that no sum is rounded."""
    shape = data.draw(SHAPES)
    x = data.draw(views(shape, data.draw(st.sampled_from(["float64", "float32"]))))
    given = [x, *[data.draw(views(own, "float64")) for own in (shape[-1:], (*shape[:-1], 1))]]
    shape = np.broadcast_shapes(*[x.shape for x in given])
    cotangent = np.broadcast_to(data.draw(views(shape, "float64")), shape)
    x, y, z = given
    slopes = cotangent * y, cotangent * x, cotangent
    for function in (exact, interpreted) if cotangent.size < 500 else (exact,):
        value, pulled = function.value_and_vjp((x, y, z), cotangent)
        np.testing.assert_array_equal(value, x * y + z)
        for found, slope, argument in zip(pulled, slopes, given, strict=True):
            own = (1,) * (len(shape) - argument.ndim) + argument.shape
            axes = tuple(axis for axis, length in enumerate(own) if length == 1)
            expected = slope.sum(axes, keepdims=True).reshape(argument.shape)
            np.testing.assert_array_equal(found, expected.astype(argument.dtype))


@pytest.mark.parametrize("backend", ["cpu", "python"])
def test_sums_have_the_bits_of_contiguous_inputs(backend: str) -> None:
    function = differentiable_broadcast(backend=backend)(lambda x, w: math.tanh(x * w))
    rows, columns = (300, 200) if backend == "cpu" else (70, 60)
    random = np.random.default_rng(0)
    for dtype in (np.float32, np.float64):
        x, cotangent = random.standard_normal((2, rows, columns)).astype(dtype)
        w = random.standard_normal(columns).astype(dtype)
        gaps = np.repeat(x, 2, axis=1)[:, ::2]
        wanted = function.value_and_vjp((x, w), cotangent)
        for view in (np.asfortranarray(x), np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1], gaps):
            found = function.value_and_vjp((view, w), cotangent)
            np.testing.assert_array_equal(found[0], wanted[0])
            for one, other in zip(found[1], wanted[1], strict=True):
                np.testing.assert_array_equal(one, other)


def test_a_row_with_gaps_is_not_copied_to_all_rows() -> None:
    arrays = np.ones((200, 300)), np.ones((300, 200)).T, np.ones((300, 2))[:, 0]
    forms = tuple(map(iteration_space.form_of, arrays))
    found = iteration_space.lay_out(forms, (None, None), ("x", "y", "w"), (None, (300,)))
    assert found.split is not None and found.split.blocks
    assert found.packing is not None and found.packing.inputs == (1,)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_panels_cover_the_space_once(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 4))
    sizes = tuple(data.draw(st.integers(2, 40)) for _ in range(rank))
    steps = tuple(math.prod(sizes[at + 1 :]) for at in range(rank))
    order = data.draw(st.permutations(range(rank)))
    strides = [0] * rank
    step = 1
    for axis in order:
        strides[axis] = step
        step *= sizes[axis]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "_SMALLEST_PANEL", 1)
        patch.setattr(pieces, "_SMALLEST_SPACE", 1)
        patch.setattr(pieces, "_LARGEST_TILE", (8, 16))
        patch.setattr(pieces, "_LARGEST_ROW", (1, 32))
        patch.setattr(pieces, "_LARGEST_PANEL", 256)
        panels = Packing.of((0,), sizes, steps, (tuple(strides),), (8,))
    assert panels is not None
    # What lies where, by the linear index.
    source = sum(index * stride for index, stride in zip(np.indices(sizes), strides, strict=True)).reshape(-1)
    seen = np.zeros(step, int)
    (row,) = panels.strides
    for start, down, rows, columns, offset in panels.table().tolist():
        assert rows * columns > 0
        for i, j in itertools.product(range(rows), range(columns)):
            linear = start + i * down + j
            seen[linear] += 1
            assert source[linear] == offset + i * row[panels.down] + j * row[-1]
    assert (seen == 1).all()


def test_the_bits_are_those_of_contiguous_inputs() -> None:
    """Rows are multiples of what a vectorised loop advances, so that the same elements go through vector code."""
    random = np.random.default_rng(0)
    for dtype in (np.float32, np.float64):
        x, y = random.standard_normal((2, 512, 512)).astype(dtype)
        gaps = np.repeat(x, 2, axis=1)
        for view in (x.T, x[:, ::-1], x[::-1, ::-1], gaps[:, ::2], x.T[::-1]):
            assert "x packed, y 1" in curved.explain(view, y).layout
            np.testing.assert_array_equal(curved(view, y), curved(view.copy(), y))


@pytest.mark.parametrize("fields", [2, 3, 9])
def test_the_fields_of_structures_are_read_where_they_lie(fields: int) -> None:
    """Their cache lines are used whole, unlike those of one field alone."""

    @differentiable_broadcast
    def product(x, y):
        return x * np.exp(y)

    structures = np.random.default_rng(0).standard_normal((200_000, fields))
    x, y = structures[:, 0], structures[:, fields - 1]
    contiguous = np.ascontiguousarray(y)
    assert ("packed" in product.explain(x, y).layout) == (fields > 2)
    assert "x packed" in product.explain(x, contiguous).layout
    for pair in ((x, y), (x, contiguous)):
        value, jacobian = product.value_and_jacobian(*pair)
        np.testing.assert_allclose(value, x * np.exp(y), rtol=1e-14)
        np.testing.assert_allclose(jacobian["x"], np.exp(y), rtol=1e-14)
        np.testing.assert_allclose(product.sum(*pair), np.sum(x * np.exp(y)), rtol=1e-11)
    vectors = differentiable_broadcast(signature=f"({fields})->()")(lambda v: np.sum(v))
    assert "packed" not in vectors.explain(structures).layout
    np.testing.assert_allclose(vectors(structures), structures.sum(axis=1), rtol=1e-13, atol=1e-14)


def test_some_ways_in_which_arrays_lie_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """By turns they have the arguments of their own panels, and more of them than are remembered, too."""
    rows = lru_cache(maxsize=8)(pieces._panel_rows.__wrapped__)
    monkeypatch.setattr(pieces, "_panel_rows", rows)

    @differentiable_broadcast
    def mixed(x, y):
        return x * y - y

    random = np.random.default_rng(0)
    x = random.standard_normal((200, 200))
    views = [random.standard_normal((200, 200 + extra)).T[:200] for extra in range(16)]
    for count in (2, len(views)):
        for view in views[:count] * 3:
            np.testing.assert_array_equal(mixed(x, view), x * view - view)
        assert rows.cache_info()[1:] == (count if count == 2 else 2 + 3 * len(views) - 2, 8, min(count, 8))


def test_the_number_of_threads_does_not_change_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "THREAD_NS", 0)
    random = np.random.default_rng(0)
    x, y = random.standard_normal((1003, 777)), random.standard_normal((777, 1003))
    found = []
    for threads in ("1", "2", "5"):
        monkeypatch.setenv("DUALBCAST_NUM_THREADS", threads)
        found.append(curved.value_and_jacobian(x.T, y))
    np.testing.assert_allclose(found[0][0], np.tanh(x.T) * y, rtol=1e-13)
    for value, jacobian in found[1:]:
        np.testing.assert_array_equal(found[0][0], value)
        np.testing.assert_array_equal(found[0][1]["x"], jacobian["x"])


@pytest.mark.usefixtures("always")
def test_outputs_may_overlap_packed_inputs() -> None:
    x = np.random.default_rng(0).standard_normal((150, 150))
    before = x.copy()
    assert exact(x.T, x, x, out=x) is x
    np.testing.assert_array_equal(x, before.T * before + before)


@pytest.mark.usefixtures("always")
def test_outputs_with_strides() -> None:
    x, y, z = np.random.default_rng(0).standard_normal((3, 150, 130))
    wide = np.full((150, 260), 7.0)
    exact(np.asfortranarray(x), y[::-1], z, out=wide[:, ::2])
    np.testing.assert_array_equal(wide[:, ::2], x * y[::-1] + z)
    assert (wide[:, 1::2] == 7.0).all()


@pytest.mark.usefixtures("always")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mprotect")
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int8])
def test_nothing_is_read_outside_an_input(dtype: type) -> None:
    """Inputs that fill a page, with none to be read before and after it."""
    with pages.alone(1) as memory:
        full = memory.view(dtype)
        full[:] = np.arange(full.size) % 50
        for width in (1, 7, 8, 9, 15, 16, 17, 31, 64, 65):
            rows = full.size // width
            for part in (full[: rows * width], full[full.size - rows * width :]):
                x = part.reshape(rows, width)
                for view in (x.T, x[:, ::-1], x[:, ::2], x[:, 1::2], x[::-1].T, x[:, ::-2]):
                    other = np.ones(view.shape, np.float64)
                    np.testing.assert_array_equal(exact(view, other, other), view.astype(np.float64) + 1)
        for view in (full[::2], full[1::2], full[::-1], full[::-2], full[::3], full[::4]):
            other = np.ones(view.shape, np.float64)
            np.testing.assert_array_equal(exact(view, other, other), view.astype(np.float64) + 1)


@pytest.mark.parametrize(
    ("itemsizes", "tile"),
    [
        # Columns of 512 bytes, tiles of 256 KiB together: first narrower, then lower.
        ((4,), (128, 512)),
        ((8,), (64, 512)),
        ((2,), (128, 512)),
        ((4, 4), (128, 256)),
        ((8, 8), (64, 256)),
        ((8, 4), (64, 256)),
        ((4,) * 4, (64, 256)),
        ((8,) * 16, (8, 256)),
        ((8,) * 40, (8, 64)),
    ],
)
def test_tiles_are_high_enough_for_memory_and_fit_the_cache(itemsizes: tuple[int, ...], tile: tuple[int, int]) -> None:
    count = len(itemsizes)
    found = Packing.of(tuple(range(count)), (3000, 4000), (4000, 1), ((1, 3000),) * count, itemsizes)
    assert found is not None
    assert (found.most, found.columns) == tile


@pytest.mark.parametrize(
    ("columns", "itemsizes", "tile"),
    [
        (512, (4,), (128, 512)),
        (512, (8,), (64, 512)),
        (512, (4, 4), (64, 512)),
        (513, (4,), (64, 1024)),
        (1024, (4,), (64, 1024)),
        (1024, (8,), (32, 1024)),
        (1024, (4, 4), (32, 1024)),
        (1024, (8,) * 16, (8, 256)),
        (1025, (4,), (128, 512)),
    ],
)
def test_tiles_have_whole_rows_where_these_are_not_long(
    columns: int, itemsizes: tuple[int, ...], tile: tuple[int, int]
) -> None:
    count = len(itemsizes)
    found = Packing.of(tuple(range(count)), (8000, columns), (columns, 1), ((1, 8000),) * count, itemsizes)
    assert found is not None
    assert (found.most, found.columns) == tile


def test_small_spaces_have_several_panels_or_none() -> None:
    """What several threads could share is not one tile, and what is in the cache is read as it lies."""
    x = np.random.default_rng(0).standard_normal((512, 512)).astype(np.float32)
    found = iteration_space.lay_out(
        (iteration_space.form_of(x.T), iteration_space.form_of(x)), (None,), ("x", "y")
    ).packing
    assert found is not None
    assert len(found.table()) == 8
    small = x[:100, :100].copy()
    assert (
        iteration_space.lay_out(
            (iteration_space.form_of(small.T), iteration_space.form_of(small)), (None,), ("x", "y")
        ).packing
        is None
    )
    np.testing.assert_array_equal(exact(small.T, small, small), small.T * small + small)
