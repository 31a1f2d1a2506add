"""Short rows, as of many points with three coordinates: joined, or several made one, with the results of any rows."""

from __future__ import annotations

import contextlib
import itertools
import math
import sys
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pages
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from suites import sampled

from dualbcast import differentiable_broadcast, num_threads
from dualbcast.runtime import iteration_space, launch_plan
from dualbcast.runtime.cpu import policy
from dualbcast.runtime.iteration_space import form_of, lay_out


def combined(x, y, z):
    if z > 0.5:
        return x * y + z
    return x - y * z


exact = differentiable_broadcast(combined)
interpreted = differentiable_broadcast(backend="python")(combined)


def forget() -> None:
    iteration_space.lay_out.cache_clear()
    launch_plan.find_fit.cache_clear()


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """However few elements there are."""
    monkeypatch.setattr(iteration_space, "_MANY_ELEMENTS", 1)
    forget()
    yield
    forget()


@st.composite
def calls(draw: st.DrawFn, most: int) -> tuple[tuple[int, ...], list[np.ndarray[Any, Any]]]:
    """A shape with short rows, and three arguments: full, broadcast along rows, along columns, with gaps, turned."""
    columns = draw(st.integers(2, 70))
    outer = draw(st.sampled_from([(1,), (3,), (5, 7), ()]))
    shape = (*outer, draw(st.integers(1, most // columns // math.prod(outer))), columns)
    dtype = draw(st.sampled_from(["float64", "float32"]))
    random = np.random.default_rng(draw(st.integers(0, 99)))
    arrays = []
    for _ in range(3):
        own = [1 if draw(st.integers(0, 2)) == 0 else length for length in shape]
        step = draw(st.sampled_from([1, 1, 1, 2, -1]))
        array = random.standard_normal([*own[:-1], own[-1] * abs(step)]).astype(dtype)[..., ::step]
        if draw(st.integers(0, 4)) == 0:
            array = np.ascontiguousarray(np.swapaxes(array, -1, -2)).swapaxes(-1, -2)
        arrays.append(array)
    return shape, arrays


@pytest.mark.usefixtures("always")
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls(20_000))
def test_any_short_rows_have_numpys_results(call: tuple[tuple[int, ...], list[np.ndarray[Any, Any]]]) -> None:
    _, (x, y, z) = call
    value, jacobian = exact.value_and_jacobian(x, y, z)
    above, below = z > 0.5, ~(z > 0.5)
    np.testing.assert_array_equal(value, np.where(above, x * y + z, x - y * z))
    every = np.broadcast_arrays(x, y, z)
    for name, wanted in (
        ("x", np.where(above, every[1], 1)),
        ("y", np.where(above, every[0], -every[2])),
        ("z", np.where(below, -every[1], 1)),
    ):
        np.testing.assert_array_equal(np.broadcast_to(jacobian[name], value.shape), wanted)


def added(terms: np.ndarray[Any, Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Exact sums over what an argument of this shape is broadcast along."""
    full = (1,) * (terms.ndim - len(shape)) + shape
    axes = tuple(axis for axis, (own, all_) in enumerate(zip(full, terms.shape, strict=True)) if own != all_)
    kept = [axis for axis in range(terms.ndim) if axis not in axes]
    rows = terms.transpose([*kept, *axes]).reshape(math.prod(full), -1)
    return np.array([math.fsum(row) for row in rows.tolist()]).reshape(shape)


@pytest.mark.usefixtures("always")
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls(20_000), st.booleans())
def test_any_short_rows_have_exact_sums(call: tuple[tuple[int, ...], list[np.ndarray[Any, Any]]], flat: bool) -> None:
    """The cotangents' terms are products of two inputs, exact in float64 if those are float32."""
    shape, arrays = call
    if flat:
        arrays = [np.ascontiguousarray(array) for array in arrays]
    x, y, _ = (array.astype(np.float32).astype(array.dtype) for array in arrays)
    f = differentiable_broadcast(lambda x, y: x * y)
    full = np.broadcast_shapes(x.shape, y.shape)
    bar = np.random.default_rng(0).standard_normal(full, dtype=np.float32).astype(x.dtype)
    for found, terms, own in zip(f.vjp(x, y)[1](bar), (bar * y, bar * x), (x, y), strict=True):
        wanted = added(terms.astype(np.float64), own.shape)
        size = added(abs(terms).astype(np.float64), own.shape)
        # Terms of one row of those made long are added in float64 without compensation.
        bound = np.spacing(abs(wanted).astype(own.dtype)) + 16 * np.spacing(size)
        assert found.shape == own.shape and (abs(found - wanted) <= bound).all()
    assert shape[-1] > 1


@pytest.mark.parametrize("shape", [(1400, 3), (700, 7), (1030, 4), (70, 20, 3), (85, 50)])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_python_backend_agrees(shape: tuple[int, ...], dtype: str) -> None:
    """It walks arrays as they lie, and has sums of its own."""
    random = np.random.default_rng(1)
    arrays = [
        random.standard_normal(shape).astype(dtype),
        random.standard_normal(shape[-1:]).astype(dtype),
        random.standard_normal((*shape[:-1], 1)).astype(dtype),
    ]
    bar = random.standard_normal(shape).astype(dtype)
    for wrt in (("x",), ("x", "z"), ("y",), ("x", "y", "z")):
        one, other = (f.value_and_vjp(tuple(arrays), bar, wrt=wrt) for f in (exact, interpreted))
        np.testing.assert_array_equal(one[0], other[0])
        for found, wanted in zip(one[1], other[1], strict=True):
            np.testing.assert_allclose(found, wanted, rtol=20 * np.finfo(dtype).eps, atol=200 * np.finfo(dtype).eps)


@pytest.mark.parametrize("full", [(7, 30, 8, 8), (40, 50, 2, 3), (3, 200, 5, 4), (4, 5, 41, 13), (2, 1500, 3)])
def test_planes_of_few_rows(full: tuple[int, ...]) -> None:
    """A panel has several of them, and pieces end within one; the python backend has none."""
    random = np.random.default_rng(6)
    seen = set()
    for mask in itertools.product((False, True), repeat=len(full)):
        own = tuple(n if spans else 1 for n, spans in zip(full, mask, strict=True))
        other = tuple(
            1 if spans and at < len(full) - 1 else n for at, (n, spans) in enumerate(zip(full, mask, strict=True))
        )
        x, y, z = (random.standard_normal(shape) for shape in (full, own, other))
        wanted = np.where(z > 0.5, x * y + z, x - y * z)
        for f in (exact, interpreted)[: 1 + (sum(mask) == 2)]:
            np.testing.assert_array_equal(f(x, y, z), wanted)
        found = lay_out(tuple(map(form_of, (x, y, z))), (None,), ("x", "y", "z")).packing
        seen.add(found is not None and found.plane > 0)
    assert (True in seen) == (full[-2] < 100)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "bool", "int64"])
def test_storage(dtype: str) -> None:
    """Elements of one, two and eight bytes are laid out; sums of half precision are of terms in full."""
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    random = np.random.default_rng(2)
    x = random.standard_normal((3000, 3)).astype(np.float32 if kind.kind in "iub" else kind)
    z = (random.standard_normal((3000, 1)) > 0).astype(kind)
    f = differentiable_broadcast(lambda x, z: x * 2 + z if z > 0 else -x)
    wanted = np.where(z.astype(bool), x * 2 + z, -x)
    np.testing.assert_array_equal(f(x, z).astype(np.float64), wanted.astype(np.float64))
    if kind.kind not in "iub":
        ones = np.ones(3, kind)
        _, (bar,) = differentiable_broadcast(lambda x, z: x * z).value_and_vjp((x, z), np.ones_like(x), wrt="z")
        exactly = added(x.astype(np.float64) * ones.astype(np.float64), (3000, 1))
        assert (abs(bar.astype(np.float64) - exactly) <= abs(exactly) * float(ml_dtypes.finfo(kind).eps)).all()


@pytest.mark.parametrize("shape", [(40_001, 3), (9000, 23), (5000, 64)])
def test_the_number_of_threads_does_not_change_a_bit(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int]) -> None:
    monkeypatch.setattr(policy, "THREAD_NS", 0)
    random = np.random.default_rng(3)
    x, y, z, bar = (random.standard_normal(own, dtype=np.float32) for own in (shape, shape[1:], (shape[0], 1), shape))
    f = differentiable_broadcast(lambda x, y, z: math.tanh(x * y) + math.exp(z))
    found = []
    for threads in (1, 2, 5):
        with num_threads(threads):
            found.append([f(x, y, z), *f.vjp(x, y, z)[1](bar), *f.value_and_vjp((x, y, z), bar, wrt=("x", "z"))[1]])
    for one, other in itertools.product(found[:1], found[1:]):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a.view(np.uint32), b.view(np.uint32))


def test_out_is_written_where_it_lies() -> None:
    """Joined where it follows on, row by row where it has gaps; where it overlaps, the input is read before."""
    x, z = np.arange(9000.0).reshape(3000, 3), np.arange(3000.0).reshape(3000, 1)
    f = differentiable_broadcast(lambda x, z: x + z)
    wide = np.full((3000, 4), -1.0)
    for out in (np.empty((3000, 3)), wide[:, :3], np.empty((3, 3000)).T):
        assert f(x, z, out=out) is out
        np.testing.assert_array_equal(out, x + z)
    assert (wide[:, 3] == -1).all()
    wanted = x + z
    np.testing.assert_array_equal(f(x, z, out=x), wanted)


@pytest.mark.skipif(sys.platform != "linux", reason="as mprotect has it there")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("columns", [2, 3, 7, 8, 9, 13, 23])
def test_nothing_is_read_outside_an_input(columns: int, dtype: str) -> None:
    """Of inputs that end, or begin, where memory does."""
    f = differentiable_broadcast(lambda x, w, s: x * w + s)
    count = 9000 // columns
    bar = np.ones((count, columns), dtype)
    with contextlib.ExitStack() as stack:
        memories = [stack.enter_context(pages.alone(40)).view(dtype) for _ in range(3)]
        for part in (slice(None), slice(None, None, -1)):  # from the first byte on, or up to the last
            x, w, s = (
                (memory[part][: math.prod(shape)][part].reshape(shape))
                for memory, shape in zip(memories, ((count, columns + 1), (columns,), (count, 1)), strict=True)
            )
            for array in (x, w, s):
                array[...] = np.arange(array.size).reshape(array.shape) % 7
            for view in (x[:, 1:], x[:, :-1], x[::-1, :-1], x[:, :0:-1]):
                value, (x_bar, w_bar, s_bar) = f.value_and_vjp((view, w, s), bar)
                np.testing.assert_array_equal(value, view * w + s)
                np.testing.assert_array_equal(x_bar, np.broadcast_to(w, bar.shape))
                np.testing.assert_array_equal(w_bar, view.sum(0))
                np.testing.assert_array_equal(s_bar, np.full((count, 1), columns))


@pytest.mark.parametrize(
    ("shapes", "classes"),
    [
        (((3000, 3), (3000, 1)), ("1",)),  # joined
        (((50, 100, 3), (50, 1, 3)), ("1",)),
        (((16, 50, 5, 4), (16, 50, 1, 4), (16, 1, 5, 4)), ("1",)),
        (((3000, 3), (3,), ()), ("1", "0")),
        (((3000, 16), (3000, 1)), ("s1", "s0")),  # whole vectors
        (((3000, 25), (3000, 1)), ("s1", "s0")),  # not short
        (((1000, 3), (1000, 1)), ("s1", "s0")),  # not many
    ],
)
def test_what_is_joined(shapes: tuple[tuple[int, ...], ...], classes: tuple[str, ...]) -> None:
    inputs = tuple(form_of(np.empty(shape)) for shape in shapes)
    found = lay_out(inputs, (None,), tuple("xyz"[: len(shapes)]))
    assert found.layout.classes == classes
    assert (found.packing is not None) == (len(classes[0]) == 1)


@pytest.mark.parametrize(
    "s", [2, 2.5, True, np.int64(2), np.int32(3), np.float64(2), np.array(2), np.array([[2, 3, 4]])]
)
def test_sums_beside_numbers_of_other_kinds(s: Any) -> None:
    """Some make the kernel compute in float64, while terms stay float32."""
    f = differentiable_broadcast(lambda x, w, s: x * w + s)
    random = np.random.default_rng(5)
    x, bar = random.standard_normal((2, 3000, 3), dtype=np.float32)
    for w in (random.standard_normal(3, dtype=np.float32), random.standard_normal((3000, 1), dtype=np.float32)):
        value, (x_bar, w_bar) = f.value_and_vjp((x, w, s), bar, wrt=("x", "w"))
        terms = x.astype(np.float64) * bar
        np.testing.assert_allclose(value, x * w + s, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(x_bar, bar * w, rtol=1e-6)
        wanted, size = (added(each, w.shape) for each in (terms, abs(terms)))
        assert (abs(w_bar - wanted) <= 2 * np.finfo(np.float32).eps * size).all()


@pytest.mark.parametrize(
    ("dtypes", "joined"),
    [
        (("float32", "float32"), True),
        (("float32", "bool"), True),
        (("float32", "int64 alone"), True),
        (("float32", "int64"), False),
        (("float32", "float64"), False),
        (("float16", "float16"), False),
    ],
)
def test_sums_are_joined_where_terms_have_the_dtype_that_is_computed_in(dtypes: tuple[str, str], joined: bool) -> None:
    own = [() if dtype.endswith("alone") else (3,) for dtype in dtypes]
    arrays = [np.empty(shape, dtype.split()[0]) for shape, dtype in zip(own, dtypes, strict=True)]
    full = np.empty((3000, 3), dtypes[0])
    found = lay_out((form_of(full), *map(form_of, arrays)), (None, None), ("x", "y", "z"), ((3,), (3000, 3)))
    assert (found.packing is not None and found.packing.joined) == joined


@pytest.mark.parametrize(
    "full", sampled([(4, 6, 50, 3), (30, 300, 3), (7, 64, 5), (20, 97, 2), (5, 1000, 4), (3, 500, 32)], 3)
)
@pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.slow)])
def test_pairs_of_points(full: tuple[int, ...], dtype: str) -> None:
    """Of three arguments, each broadcast along some axes, all the sums: rows are made long ones where they can be."""
    f = differentiable_broadcast(lambda x, y, s: (x - y) * (x - y) * s)
    shapes = [
        tuple(n if spans else 1 for n, spans in zip(full, mask, strict=True))
        for mask in itertools.product((False, True), repeat=len(full))
    ]
    random = np.random.default_rng(4)
    every = list(itertools.product(shapes, shapes, (full[-1:], (), full, (*full[:-1], 1))))
    for number in random.permutation(len(every))[:40]:
        own = every[number]
        x, y, s = (random.standard_normal(shape).astype(dtype) for shape in own)
        bar = random.standard_normal(np.broadcast_shapes(*own)).astype(dtype)
        value, bars = f.value_and_vjp((x, y, s), bar)
        a, b, c, d = (array.astype(np.float64) for array in (x, y, s, bar))
        for found, wanted, shape in zip(
            (value, *bars),
            ((a - b) ** 2 * c, 2 * (a - b) * c * d, -2 * (a - b) * c * d, (a - b) ** 2 * d),
            (bar.shape, *own),
            strict=True,
        ):
            terms = np.broadcast_to(wanted, bar.shape)
            lost = (1,) * (bar.ndim - len(shape)) + shape
            axes = tuple(axis for axis, n in enumerate(lost) if n != bar.shape[axis])
            wanted, size = (each.sum(axes).reshape(shape) for each in (terms, abs(terms)))
            assert np.shape(found) == shape
            # (x - y) rounds, and its square, and so on, relative to each term.
            assert (abs(found - wanted) <= 8 * np.finfo(dtype).eps * size + 1e-30).all(), own
