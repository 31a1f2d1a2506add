"""Outputs that go past the cache: the same bits as without, whatever the shape, dtype, range and place in memory."""

from __future__ import annotations

import ctypes
import itertools
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from cpu_kernels import CELL, DOUBLE, cell_arguments
from hypothesis import given, settings
from hypothesis import strategies as st

from dualbcast import differentiable_broadcast, special
from dualbcast.abi import Layout
from dualbcast.errors import BackendError
from dualbcast.runtime import cpu, streams
from dualbcast.runtime.streams import goes_past_the_cache

pytestmark = pytest.mark.skipif(
    not goes_past_the_cache(Layout(1, ("1",), (0, 0)), (1 << 40,), 1 << 40, (8, 8), 1), reason="only on x86-64"
)


@differentiable_broadcast
def cell(c, f, i, z):
    if z > 0:
        return special.sigmoid(f) * c + math.tanh(i)
    return c * c


@pytest.fixture
def streamed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every launch of CPU kernels is streamed that can be; a list of the ranges."""
    ranges: list[Any] = []
    inner = cpu.CpuKernel.ranges

    def record(self: Any, bounds: Any, ints: Any, pointers: Any, streamed: bool = False) -> cpu.Work:
        if streamed:
            ranges.extend(itertools.pairwise(bounds))
        return inner(self, bounds, ints, pointers, streamed)

    monkeypatch.setattr(cpu.CpuKernel, "ranges", record)
    monkeypatch.setattr(streams, "BEYOND", -1)
    monkeypatch.setattr(cpu, "_PROBE", 1)
    return ranges


GUARD = 0xA5


def guarded(size: int, offset: int) -> np.ndarray:
    """A buffer for float32s that begin at most two lines of the cache after it, and end before it does."""
    return np.full(size * 4 + 128 + offset + 64, GUARD, np.uint8)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_range_writes_the_bits_that_it_writes_unstreamed_and_no_others(data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 5))
    columns = data.draw(st.sampled_from([1, 7, 15, 16, 17, 100, 255, 256, 257, 511, 700, 1000]))
    total = rows * columns
    start = data.draw(st.integers(0, total - 1))
    start -= start % columns % 256
    stop = data.draw(st.integers(start + 1, total))
    kernel = cpu.compile_kernel(CELL, False)
    arguments = cell_arguments(rows, columns)
    offsets = [4 * data.draw(st.integers(0, 16)) for _ in range(5)]
    found = []
    for is_streamed in (False, True):
        buffers = [guarded(total, offset) for offset in offsets]
        firsts = [-buffer.ctypes.data % 64 + 64 + offset for buffer, offset in zip(buffers, offsets, strict=True)]
        places = [buffer.ctypes.data + first for buffer, first in zip(buffers, firsts, strict=True)]
        pointers = [*(array.ctypes.data for array in arguments), *places]
        kernel.run(kernel.ranges((start, stop), (rows, columns, 2), pointers, is_streamed))
        for buffer, first in zip(buffers, firsts, strict=True):
            assert (buffer[: first + 4 * start] == GUARD).all()
            assert (buffer[first + 4 * stop :] == GUARD).all()
        parts = [buffer[first + 4 * start : first + 4 * stop] for buffer, first in zip(buffers, firsts, strict=True)]
        found.append(np.array(parts))
    np.testing.assert_array_equal(found[0], found[1])
    assert not (found[0] == GUARD).all()


@pytest.mark.parametrize("size", [1, 15, 16, 255, 256, 257, 1000, 4097])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_storage(streamed: list[Any], size: int, dtype: str) -> None:
    kind = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
    random = np.random.default_rng(size)
    arrays = [random.standard_normal((3, size)).astype(kind) for _ in range(3)]
    z = np.array([[1.0], [-1.0], [0.5]]).astype(kind)
    value, jacobian = cell.value_and_jacobian(*arrays, z, wrt=("c", "f", "i"))
    assert (streamed != []) == (3 * size > 2 * 256)
    streamed.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "BEYOND", 1 << 40)
        expected, partials = cell.value_and_jacobian(*arrays, z, wrt=("c", "f", "i"))
    assert streamed == []
    for a, b in zip([value, *(jacobian[k] for k in "cfi")], [expected, *(partials[k] for k in "cfi")], strict=True):
        np.testing.assert_array_equal(np.ascontiguousarray(a).view(np.uint8), np.ascontiguousarray(b).view(np.uint8))


@pytest.mark.parametrize("shape", [(50_001,), (7, 9001), (3, 5, 4097), (20_000, 3)])
def test_the_number_of_threads_does_not_change_a_bit(
    monkeypatch: pytest.MonkeyPatch, streamed: list[Any], shape: tuple[int, ...]
) -> None:
    monkeypatch.setattr(cpu, "_WORTH_A_THREAD", 0)
    monkeypatch.setattr(cpu, "_WORTH_A_RANGE", 1)
    random = np.random.default_rng(1)
    arrays = [random.standard_normal(shape, dtype=np.float32) for _ in range(3)]
    z = random.standard_normal((*shape[:-1], 1), dtype=np.float32)
    found = []
    for threads in ("1", "2", "5"):
        monkeypatch.setenv("DUALBCAST_NUM_THREADS", threads)
        found.append(cell(*arrays, z))
    assert len(streamed) > 3
    for other in found[1:]:
        np.testing.assert_array_equal(found[0].view(np.uint32), other.view(np.uint32))


def test_what_is_streamed() -> None:
    """Outputs that are contiguous, in launches that move far more than the cache holds."""
    many = int(streams.BEYOND * streams.last_level_cache() / 16)
    flat = Layout(1, ("1",), (0, 0))
    assert goes_past_the_cache(flat, (many + 1,), many + 1, (8, 8), 1)
    assert not goes_past_the_cache(flat, (many,), many, (8, 8), 1)
    # Broadcast inputs do not count; outputs with strides cannot be.
    assert not goes_past_the_cache(Layout(1, ("0", "1"), (0, 1)), (many + 1,), many + 1, (8, 8), 1)
    square = Layout(2, ("s1", "s1"), (0, 1))
    assert goes_past_the_cache(square, (many, 1000, 1, 1000), many * 1000, (8, 8), 1)
    assert not goes_past_the_cache(square, (many, 1000, 1000, 1001), many * 1000, (8, 8), 1)
    assert not goes_past_the_cache(Layout(1, ("1", "s"), (0, 1)), (1 << 40, 2), 1 << 40, (8, 8), 1)
    cube = Layout(3, ("ss1", "0s1"), (0, 1, 0))
    assert goes_past_the_cache(cube, (many, 5, 1000, 5000, 1000, 1000), many * 5000, (8, 8, 8), 2)
    assert not goes_past_the_cache(cube, (many, 5, 1000, 6000, 1000, 1000), many * 5000, (8, 8, 8), 2)


def test_explain_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.ones((300, 1000))
    assert not cell.explain(x, x, x, 1.0).streamed
    monkeypatch.setattr(streams, "BEYOND", -1)
    found = cell.explain(x, x, x, 1.0)
    assert found.streamed
    assert "stores      streamed past the cache" in str(found)


def test_out_with_strides_is_written_as_usual(streamed: list[Any]) -> None:
    x = np.random.default_rng(0).standard_normal((64, 1024))
    out = np.empty((64, 2048))[:, ::2]
    assert cell(x, x, x, 1.0, out=out) is out
    assert streamed == []
    np.testing.assert_allclose(out, cell(x, x, x, 1.0), rtol=1e-14)
    assert streamed != []


# The parameters of kernels with one size, one input and one output.
CALLS: list[list[tuple[int, int]]] = []
KIND = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 3, *[ctypes.c_void_p] * 2)


def ranges_of(row: int, stop: int, fails_at: int = 1 << 40) -> list[tuple[int, int]]:
    """The ranges that a streamed kernel is called with, which fails from an element on."""
    kernel = cpu.compile_kernel(DOUBLE, False)
    x, out = np.ones(stop), np.zeros(stop)
    calls: list[tuple[int, int]] = []
    CALLS[:] = [calls]

    def noting(_result: Any, _error: Any, first: int, last: int, *_: Any) -> int:
        calls.append((first, last))
        return int(first >= fails_at)

    function = KIND(noting)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "_address", ctypes.cast(function, ctypes.c_void_p).value)
        kernel.run(kernel.ranges((0, stop), (row,), (x.ctypes.data, out.ctypes.data), streamed=True))
    return calls


def test_an_error_of_the_kernel_ends_it() -> None:
    with pytest.raises(BackendError, match=r"stopped with an error \(status 1\)"):
        ranges_of(1000, 1000, fails_at=512)
    assert CALLS[0] == [(0, 256), (256, 512), (512, 768)]


@pytest.mark.parametrize("row", [1, 3, 255, 256, 257, 700, 5000])
@pytest.mark.parametrize("stop", [1, 4999, 5000])
def test_tiles_begin_where_ranges_may(row: int, stop: int) -> None:
    """At multiples of 256 in their row, so that the same elements go through vector code."""
    calls = ranges_of(row, stop)
    assert [a for a, _ in calls] == [0, *(b for _, b in calls[:-1])]
    assert calls[-1][1] == stop
    assert all(a < b <= a + 256 for a, b in calls)
    assert all(a % row % 256 == 0 for a, _ in calls)
