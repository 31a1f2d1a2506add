"""Outputs that go past the cache: the same bits as without, whatever the shape, dtype, range and place in memory."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from cpu_kernels import CELL, DOUBLE, cell_arguments, compiled
from hypothesis import given, settings
from hypothesis import strategies as st

from dualbcast import differentiable_broadcast, special
from dualbcast.codegen.llvm.rows import EDGE, WHOLE
from dualbcast.codegen.loops.builder import text_of
from dualbcast.codegen.loops.calls import write_call
from dualbcast.codegen.loops.packing import write_gather
from dualbcast.kernel_spec import Layout
from dualbcast.runtime.cpu import kernel as cpu_kernel
from dualbcast.runtime.cpu import policy, thread_pool
from dualbcast.runtime.cpu.kernel import ArrayCall
from dualbcast.runtime.cpu.policy import goes_past_the_cache
from dualbcast.runtime.cpu.thread_pool import Work

pytestmark = pytest.mark.skipif(
    not goes_past_the_cache(Layout(1, ("1",), (0, 0)), 1 << 40, (8, 8), 1), reason="only with AVX-512"
)


@differentiable_broadcast
def cell(c, f, i, z):
    if z > 0:
        return special.sigmoid(f) * c + math.tanh(i)
    return c * c


@pytest.fixture
def streamed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Every launch of CPU kernels is streamed that can be; a list of the ranges."""
    found: list[Any] = []
    ranges, past, called = cpu_kernel.CpuKernel.ranges, cpu_kernel.CpuKernel._past_the_cache, ArrayCall.ranges
    streaming: set[int] = set()

    def record(self: Any, address: int, bounds: Any, ints: Any, pointers: Any) -> Work:
        if address in streaming:
            found.extend(itertools.pairwise(bounds))
        return ranges(self, address, bounds, ints, pointers)

    def record_address(self: Any, *terms: Any) -> int:
        address = past(self, *terms)
        streaming.add(address)
        return address

    def record_call(self: Any, bounds: Any, inputs: Any, outputs: Any) -> Work:
        if self._numbers[0] in streaming:
            found.extend(itertools.pairwise(bounds))
        return called(self, bounds, inputs, outputs)

    monkeypatch.setattr(cpu_kernel.CpuKernel, "ranges", record)
    monkeypatch.setattr(cpu_kernel.CpuKernel, "_past_the_cache", record_address)
    monkeypatch.setattr(ArrayCall, "ranges", record_call)
    monkeypatch.setattr(policy, "room", lambda: -1)
    monkeypatch.setattr(policy, "FEW", 1)
    # However fast the machine is, no launch of two ranges is one of few elements, which are never streamed.
    monkeypatch.setattr(policy, "THREAD_NS", 0)
    cpu_kernel.CpuKernel.address.cache_clear()
    yield found
    cpu_kernel.CpuKernel.address.cache_clear()


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
    kernel = compiled(CELL)
    arguments = cell_arguments(rows, columns)
    offsets = [4 * data.draw(st.integers(0, 16)) for _ in range(5)]
    found = []
    for is_streamed in (False, True):
        buffers = [guarded(total, offset) for offset in offsets]
        firsts = [-buffer.ctypes.data % 64 + 64 + offset for buffer, offset in zip(buffers, offsets, strict=True)]
        places = [buffer.ctypes.data + first for buffer, first in zip(buffers, firsts, strict=True)]
        pointers = [*(array.ctypes.data for array in arguments), *places]
        address = kernel._past_the_cache() if is_streamed else kernel._address
        thread_pool.run(kernel.ranges(address, (start, stop), (rows, columns, columns, 2), pointers))
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
        patch.setattr(policy, "room", lambda: 1 << 60)
        cpu_kernel.CpuKernel.address.cache_clear()
        expected, partials = cell.value_and_jacobian(*arrays, z, wrt=("c", "f", "i"))
    assert streamed == []
    for a, b in zip([value, *(jacobian[k] for k in "cfi")], [expected, *(partials[k] for k in "cfi")], strict=True):
        np.testing.assert_array_equal(np.ascontiguousarray(a).view(np.uint8), np.ascontiguousarray(b).view(np.uint8))


@pytest.mark.parametrize("shape", [(50_001,), (7, 9001), (3, 5, 4097), (20_000, 33)])
def test_the_number_of_threads_does_not_change_a_bit(
    monkeypatch: pytest.MonkeyPatch, streamed: list[Any], shape: tuple[int, ...]
) -> None:
    monkeypatch.setattr(policy, "RANGE_NS", 1)
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
    """Outputs that vectors are stored to, in launches that move more than the cache has room for."""
    many = policy.room() // 16
    flat = Layout(1, ("1",), (0, 0))
    assert goes_past_the_cache(flat, many + 1, (8, 8), 1)
    assert not goes_past_the_cache(flat, many, (8, 8), 1)
    # Half of the room is enough for many outputs.
    one, thirty = (Layout(1, ("1",), (0,) * count) for count in (2, 31))
    for layout, sizes, expected in ((one, (8, 120), False), (thirty, (8, *[4] * 30), True)):
        assert goes_past_the_cache(layout, policy.room() // 200, sizes, 1) is expected
    # Broadcast inputs do not count; elements that are apart are not stored as vectors.
    assert not goes_past_the_cache(Layout(1, ("0", "1"), (0, 1)), many + 1, (8, 8), 1)
    assert goes_past_the_cache(Layout(2, ("s1", "s1"), (0, 1)), many + 1, (8, 8), 1)
    assert not goes_past_the_cache(Layout(1, ("1", "s"), (0, 1)), 1 << 40, (8, 8), 1)


def test_explain_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.ones((30, 1000))
    assert not cell.explain(x, x, x, 1.0).streamed
    monkeypatch.setattr(policy, "room", lambda: -1)
    found = cell.explain(x, x, x, 1.0)
    assert found.streamed
    assert "stores      streamed past the cache" in str(found)


@differentiable_broadcast
def layer(x, w, b):
    return math.tanh(x * w + b)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(7, 40), (31, 1000), (3, 2049)])
def test_kernels_that_sum_stream_what_they_do_not_sum(monkeypatch: pytest.MonkeyPatch, dtype: str, shape: Any) -> None:
    random = np.random.default_rng(2)
    x, bar = random.standard_normal((2, *shape)).astype(dtype)
    w, b = random.standard_normal(shape[1]).astype(dtype), random.standard_normal((shape[0], 1)).astype(dtype)
    kernels: list[Any] = []
    past = cpu_kernel.CpuKernel._past_the_cache
    monkeypatch.setattr(
        cpu_kernel.CpuKernel, "_past_the_cache", lambda self, *terms: (kernels.append(self), past(self, *terms))[1]
    )
    found = []
    for room in (1 << 60, -1):
        monkeypatch.setattr(policy, "room", lambda room=room: room)
        # What a kernel remembers of blocks is as it was.
        cpu_kernel._kernels.clear()
        function = differentiable_broadcast(layer.__wrapped__)
        value, cotangents = function.value_and_vjp((x, w, b), bar)
        found.append([value, *cotangents])
        assert (kernels != []) == (room < 0)
        assert function.explain(x, w, b, product="vjp").streamed == (room < 0)
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
    spec = kernels[0].spec
    first = len(spec.inputs)
    own = {first + at for at in range(len(spec.outputs))} - {first + at for at in spec.summed}
    text = kernels[0]._build({at for at in own if at < len(spec.layout.which)}).llvm
    stores = re.findall(r"  store <.*>.*, ptr (%\S+), align 64, !nontemporal", text)
    assert len(stores) >= 2
    made_of = dict(re.findall(r"(%\S+) = getelementptr [^%]*ptr (%[^\s,]+),", text))
    assert {re.sub(r"\W", "", made_of.get(name, name)) for name in stores} == {"out", "x_bar"}


def test_nothing_is_streamed_by_kernels_that_sum_all() -> None:
    assert not goes_past_the_cache(Layout(1, ("1", "0"), (0, 1)), 1 << 40, (8, 8), 1)


def test_out_with_strides_is_written_as_usual(streamed: list[Any]) -> None:
    x = np.random.default_rng(0).standard_normal((64, 1024))
    out = np.empty((64, 2048))[:, ::2]
    assert cell(x, x, x, 1.0, out=out) is out
    assert streamed == []
    np.testing.assert_allclose(out, cell(x, x, x, 1.0), rtol=1e-14)
    assert streamed != []


def test_rows_with_gaps_are_streamed(streamed: list[Any]) -> None:
    x = np.random.default_rng(0).standard_normal((64, 1024))
    for skipped in (8, 3):
        whole = np.zeros((64, 1024 + skipped))
        out = whole[:, :1024]
        assert cell(x, x, x, 1.0, out=out) is out
        assert streamed != []
        np.testing.assert_array_equal(out, cell(x, x, x, 1.0))
        assert not whole[:, 1024:].any()


def test_all_vectors_of_outputs_are_streamed_and_nothing_else() -> None:
    """The function of whole vectors streams each of its stores, where it is aligned; no store to the stack is streamed,
    nor is a store of the function that is called with addresses of the stack."""
    spec = CELL.program.spec
    first = len(spec.inputs)
    text = cpu_kernel._build(CELL.program, False, range(first, first + len(spec.outputs))).llvm
    bodies = dict(re.findall(r"^define [^\n]*@(\w+)\((.*?)^}", text, re.MULTILINE | re.DOTALL))
    stores = {name: re.findall(r"  store <32 x float> (.*)", body) for name, body in bodies.items()}
    streamed = [store for store in stores[WHOLE] if "!nontemporal" in store]
    assert len(streamed) >= 5 * 3  # five outputs on three paths
    assert all(", align 64, !nontemporal" in store for store in streamed)
    assert sorted(store.split(", align")[0] for store in streamed) == sorted(
        store.split(", align")[0] for store in stores[WHOLE] if "!nontemporal" not in store
    )
    assert len(stores[f"{WHOLE}_plain"]) == len(streamed)
    assert f"@{WHOLE}_plain(" in bodies[EDGE]
    assert not any("!nontemporal" in bodies[name] for name in (f"{WHOLE}_plain", EDGE))
    assert "@llvm.mem" not in text
    assert "fence" not in text


def test_what_was_streamed_is_seen_by_who_waits_for_it() -> None:
    """Who calls kernels for a launch waits for their stores, once for each piece and not for each row of a tile."""
    text = text_of(write_call, 3)
    called, fence, returned = [text.index(what) for what in ("call i32", "fence seq_cst", "ret i32")]
    assert called < fence < returned
    assert "fence" not in text_of(write_gather, 3, 2, (0,), (8,), (64, 512))


def test_all_vectors_that_are_loaded_are_prefetched() -> None:
    text = cpu_kernel._build(CELL.program, False).llvm
    (body,) = re.findall(rf"^define [^\n]*@{WHOLE}\(.*?^}}", text, re.MULTILINE | re.DOTALL)
    loads = re.findall(r"= load <32 x float>, ptr", body)
    assert len(loads) >= 1 + 2 + 4  # on three paths
    assert body.count("call void @llvm.prefetch") == 2 * len(loads)  # of two lines each


def test_what_is_not_aligned_is_not_streamed() -> None:
    """Vectors that begin anywhere are stored as they are: a streaming store of such a one would end the process."""
    kernel = compiled(DOUBLE)
    x = np.linspace(-4, 4, 5000)
    for offset in range(0, 64, 8):
        buffer = np.zeros(5000 * 8 + 128, np.uint8)
        first = -buffer.ctypes.data % 64 + offset
        y = buffer[first : first + 40000].view(np.float64)
        thread_pool.run(kernel.ranges(kernel._past_the_cache(), (0, 5000), (5000,), (x.ctypes.data, y.ctypes.data)))
        np.testing.assert_allclose(y, x + np.tanh(x), rtol=1e-15)
