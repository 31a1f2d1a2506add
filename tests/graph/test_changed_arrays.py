"""Arrays that are changed after use: what is recorded has the value it had, or the write is refused, at any size."""

from __future__ import annotations

import contextlib
import copy
import gc
import pickle
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dualbcast import ArgumentError, differentiable_broadcast, graph
from dualbcast.graph import frozen

SIZES = pytest.mark.parametrize("n", [3, 1000, 2000, 300_000])
READ_ONLY = "read-only"


@differentiable_broadcast
def product(w: Any, state: Any) -> Any:
    return w * state if state > 0 else 0.0


def captures(w: Any, state: Any) -> Any:
    @differentiable_broadcast
    def scaled(x: Any) -> Any:
        return x * state

    return scaled(w)


# Each is w times the state, with w a Variable, in another way.
WAYS: dict[str, Callable[[Any, Any], Any]] = {
    "operator": lambda w, state: w * state,
    "operator before": lambda w, state: state * w,
    "ufunc": lambda w, state: np.multiply(w, state),
    "ufunc before": lambda w, state: np.multiply(state, w),
    "BroadcastFunction": lambda w, state: product(w, state),
    "by name": lambda w, state: product(w=w, state=state),
    "captured": captures,
    "indexing": lambda w, state: np.concatenate([w[:1] * state[:1], w[1:] * state[1:]]),
    "where": lambda w, state: np.where(state > 0, w * state, 0.0),
    "reshape": lambda w, state: w * graph.reshape(state, (-1, 1)).reshape(-1),
    "einsum": lambda w, state: np.einsum("i,i->i", w, state),
    "matmul": lambda w, state: graph.reshape(w, (-1, 1, 1)) @ graph.reshape(state, (-1, 1, 1)),
    "concatenate": lambda w, state: np.concatenate([w, state])[: w.shape[0]] * state,
    "checkpoint": lambda w, state: graph.checkpoint(lambda v: v * state)(w),
    "checkpoint, as an argument": lambda w, state: graph.checkpoint(lambda v, s: v * s)(w, state),
}
EACH = pytest.mark.parametrize("way", WAYS)


def add_one(state: Any) -> None:
    state += 1.0


WRITES: dict[str, Callable[[Any], None]] = {
    "in place": add_one,
    "an element": lambda state: state.__setitem__(0, 7.0),
    "copyto": lambda state: np.copyto(state, 7.0),
    "fill": lambda state: state.fill(7.0),
    "a new view": lambda state: state[1:].__setitem__(0, 7.0),
    "out of a ufunc": lambda state: np.add(state, 1.0, out=state),
    "out of a kernel": lambda state: _into(state),
    "random numbers": lambda state: np.random.default_rng(0).random(out=state),
}


@differentiable_broadcast
def plus_one(x: Any) -> Any:
    return x + 1.0


def _into(state: Any) -> None:
    try:
        plus_one(np.ones(state.shape), out=state)
    except ArgumentError as error:
        raise ValueError(str(error)) from None


def is_refused(write: Callable[[Any], None], array: Any) -> bool:
    """Try to write to an array."""
    try:
        write(array)
    except (ValueError, TypeError) as error:
        if READ_ONLY not in str(error) and "writ" not in str(error):
            raise
        return True
    return False


def is_large(array: Any) -> bool:
    return bool(array.nbytes > 8192)


@pytest.fixture
def never_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small arrays are like large ones."""
    monkeypatch.setattr(frozen, "COPIED_BYTES", -1)


NEVER_COPIED = pytest.mark.usefixtures("never_copied")


@SIZES
@EACH
def test_a_sum_over_a_state_that_moves_on(n: int, way: str) -> None:
    """A small state was copied. Of a large one the write is refused; `state = state + 1.0` is right for any."""
    w = graph.Variable(np.full(n, 2.0))
    state, total = np.ones(n), graph.Variable(np.zeros(n))
    for _ in range(3):
        total = total + WAYS[way](w, state).reshape(-1)
        # What a checkpoint captures is read again, and parts of an array that has a name are copied.
        refused = is_refused(add_one, state)
        assert refused == (way == "checkpoint" or (is_large(state) and way != "indexing"))
        if refused:
            state = state + 1.0
    np.testing.assert_array_equal(total.value, np.full(n, 12.0))
    np.testing.assert_array_equal(graph.grad(np.sum(total), w), np.full(n, 6.0))
    del total
    state += 1.0
    assert state[0] == 5.0


@SIZES
@pytest.mark.parametrize("write", WRITES)
def test_every_way_to_write(n: int, write: str) -> None:
    state, v = np.ones(n), graph.Variable(np.full(n, 2.0))
    y = v * state
    assert is_refused(WRITES[write], state) == is_large(state)
    np.testing.assert_array_equal(y.value, np.full(n, 2.0))
    np.testing.assert_array_equal(graph.grad(np.sum(y), v), np.ones(n))
    del y
    WRITES[write](state)
    assert state[0 if write != "a new view" else 1] != 1.0


@SIZES
def test_a_batch_buffer_that_is_filled_again(n: int) -> None:
    data = np.arange(3.0 * n).reshape(3, n)
    buffer, w = np.empty(n), np.full(n, 0.5)

    def loss(w: Any) -> Any:
        total = 0.0
        for batch in data:
            buffer[...] = batch
            total = total + np.sum(w * buffer)
        return total

    if is_large(buffer):
        with pytest.raises(ValueError, match=READ_ONLY):
            graph.grad(loss)(w)
    else:
        np.testing.assert_array_equal(graph.grad(loss)(w), data.sum(axis=0))
    # One buffer for each step is no trouble, since a step ends before the next begins.
    for batch in data:
        buffer[...] = batch
        np.testing.assert_array_equal(graph.grad(lambda w: np.sum(w * buffer))(w), batch)


@SIZES
def test_the_array_that_a_variable_was_made_of(n: int) -> None:
    x = np.ones(n)
    v = graph.Variable(x)
    y = v * v
    assert is_refused(lambda x: x.__setitem__(0, 99.0), x) == is_large(x)
    with pytest.raises(ValueError, match=READ_ONLY):
        v.value[0] = 99.0
    assert v.value[0] == 1.0
    np.testing.assert_array_equal(graph.grad(np.sum(y), v), np.full(n, 2.0))
    del v, y
    x[0] = 99.0

    def squares(v: Any) -> Any:
        y = v * v
        assert is_refused(lambda x: x.__setitem__(0, 3.0), x) == is_large(x)
        return np.sum(y)

    assert graph.grad(squares)(x)[0] == 198.0


@SIZES
def test_values_are_handed_out_read_only(n: int) -> None:
    x = graph.Variable(np.ones(n))
    for y in (x * 2.0, np.exp(x), graph.softmax(x), x[1:], x.reshape(1, -1), np.sum(x, axis=0, keepdims=True)):
        with pytest.raises(ValueError, match=READ_ONLY):
            y.value[...] = 99.0
        if isinstance(y.value.base, np.ndarray):
            with pytest.raises(ValueError, match=READ_ONLY):
                y.value.base[...] = 99.0
    with pytest.raises(ValueError, match=READ_ONLY):
        np.asarray(graph.stop_gradient(x * 2.0))[0] = 99.0


@SIZES
def test_no_result_is_an_argument_or_part_of_the_graph(n: int) -> None:
    x = np.ones(n)
    for function in (lambda z: z, lambda z: z[:2], lambda z: z.reshape(1, -1), lambda z: np.positive(z)):
        value, _ = graph.vjp(function, x)
        assert not np.shares_memory(value, x)
        value, tangent = graph.jvp(function, (x,), (x,))
        assert not np.shares_memory(value, x)
        assert not np.shares_memory(tangent, x)
        assert tangent.flags.writeable
    _, aux = graph.value_and_grad(lambda z: (np.sum(z), z), has_aux=True)(x)[0]
    assert not np.shares_memory(aux, x)
    # The pullback needs the value.
    value, pullback = graph.vjp(np.exp, x)
    with pytest.raises(ValueError, match=READ_ONLY):
        value -= 1.0
    cotangent = np.ones(n)
    (slope,) = pullback(cotangent)
    slope[...] = 0.0  # a derivative is whoever's it was made for
    np.testing.assert_allclose(pullback(cotangent)[0], np.exp(1.0), rtol=1e-15)
    (same,) = graph.vjp(lambda z: z, x)[1](cotangent)
    assert not np.shares_memory(same, cotangent)
    same += 1.0
    cotangent += 1.0


def test_an_index_array_may_change() -> None:
    for n in (3, 5000):
        index = np.zeros(n, dtype=np.intp)
        v = graph.Variable(np.array([3.0, 5.0]))
        y = np.sum(v[index] * 1.0)
        index += 1
        np.testing.assert_array_equal(graph.grad(y, v), [n, 0.0])
    x = np.array([3.0, 5.0])
    for take, before, after, expected in (
        (lambda v, index: v[index], 0, 1, [6.0, 0.0]),
        (lambda v, index: v[index:], 1, 0, [0.0, 10.0]),
        (lambda v, index: v[index], True, False, [6.0, 10.0]),
    ):
        at = np.array(before)

        def f(v: Any, take: Any = take, at: Any = at, after: Any = after) -> Any:
            y = take(v, at)
            at[...] = after
            return np.sum(y**2)

        np.testing.assert_array_equal(graph.grad(f)(x), expected)


# --- whose memory it is -----------------------------------------------------------------------------------------------


def test_a_view_whose_memory_others_see_is_copied() -> None:
    for n in (30, 5000):
        data = np.ones((4, n))
        row, other = data[1], data[1:2]
        weights = np.arange(float(n))
        v = graph.Variable(weights)
        whole = np.lib.stride_tricks.sliding_window_view(data, 8, axis=1)[..., ::-1]
        parts = [v * row, v * data[1], v[1:] * row[1:], (v * np.broadcast_to(row, (50, n)))[0]]
        parts.append(np.sum(v[7:, None] * whole[1], axis=1))
        assert data.flags.writeable
        row += 1.0
        other *= 5.0
        data[:] = 7.0
        for part, first in zip(parts, (0, 0, 1, 0, 7), strict=True):
            expected = np.zeros(n)
            expected[first:] = 8.0 if first == 7 else 1.0
            np.testing.assert_array_equal(part.value, (weights * expected)[first:])
            np.testing.assert_array_equal(graph.grad(np.sum(part), v), expected)


@NEVER_COPIED
def test_a_view_of_memory_that_nobody_else_sees() -> None:
    state = np.ones(10_000).reshape(2, -1)
    assert state.base is not None
    y = graph.Variable(np.ones(state.shape)) * state
    for array in (state, state[0], state.base):
        with pytest.raises(ValueError, match=READ_ONLY):
            array[...] = 7.0
    # A name for it, or a view, that comes later makes no difference.
    name = state.base
    z = graph.Variable(np.ones(state.shape)) * state
    np.testing.assert_array_equal(z.value, 1.0)
    del y, z
    state[...] = name[0] = 7.0


def test_memory_that_is_no_arrays_is_copied() -> None:
    for n in (3, 5000):
        memory = bytearray(np.ones(n).tobytes())
        state = np.frombuffer(memory)
        v = graph.Variable(np.full(n, 2.0))
        y = v * state
        memory[:8] = np.float64(7.0).tobytes()
        state[1] = 7.0
        np.testing.assert_array_equal(y.value, np.full(n, 2.0))
        np.testing.assert_array_equal(graph.grad(np.sum(y), v), np.ones(n))


def test_foreign_memory_that_would_be_read_again() -> None:
    for n in (3, 5000):
        state = np.frombuffer(bytearray(np.ones(n).tobytes()))
        with pytest.raises(ArgumentError, match="Pass it as an argument"):
            graph.grad(graph.checkpoint(lambda v, c=[state]: np.sum(v * c[0])))(np.ones(n))

        def writes(v: Any, s: Any = state) -> Any:
            y = graph.checkpoint(lambda v, s: v * s)(v, s)
            s[:] = 7.0
            return np.sum(y)

        np.testing.assert_array_equal(graph.grad(writes)(np.ones(n)), np.ones(n))


@NEVER_COPIED
def test_results_with_memory_of_the_pool() -> None:
    state = plus_one(np.zeros(300_000))
    assert state.base is not None
    y = graph.Variable(np.ones(300_000)) * state
    with pytest.raises(ValueError, match=READ_ONLY):
        state += 1.0
    del y
    state += 1.0


@NEVER_COPIED
def test_what_was_read_only_stays_so() -> None:
    x = np.ones(3)
    x.setflags(write=False)
    v = graph.Variable(x)
    del v
    assert not x.flags.writeable
    # And a view that may be written to, of an array that may not be.
    data = np.ones(3)
    view = data[:]
    data.setflags(write=False)
    y = graph.Variable(np.ones(3)) * view
    view[0] = 7.0
    np.testing.assert_array_equal(y.value, np.ones(3))
    assert view.flags.writeable
    assert not data.flags.writeable


@NEVER_COPIED
def test_a_memmap(tmp_path: Any) -> None:
    stored = np.memmap(tmp_path / "x", dtype=np.float64, shape=(8,), mode="w+")
    y = graph.Variable(np.ones(8)) * stored
    with pytest.raises(ValueError, match=READ_ONLY):
        stored[0] = 1.0
    del y
    stored[0] = 1.0


# --- for how long -----------------------------------------------------------------------------------------------------


@NEVER_COPIED
def test_an_array_is_needed_by_many() -> None:
    x = np.ones(3)
    needs = [graph.Variable(x) for _ in range(3)]
    needs.append(needs[0] * x)
    needs.append(graph.reshape(x, (1, 3)))
    while needs:
        assert not x.flags.writeable
        needs.pop()
    assert x.flags.writeable


@NEVER_COPIED
def test_what_is_not_recorded_needs_nothing_once_it_is_computed() -> None:
    for n in (3, 5000):
        x, v = np.ones(n), graph.Variable(np.ones(n))
        with graph.no_grad():
            y = v * x
            assert y.value[0] == 1.0
        x += 1.0
        assert y.value[0] == 1.0


TRANSFORMED: list[Callable[[Any, Any], Any]] = [
    lambda x, c: graph.grad(lambda z: np.sum(z * c))(x),
    lambda x, c: graph.value_and_grad(lambda z: (np.sum(z * c), z * c), has_aux=True)(x),
    lambda x, c: graph.jvp(lambda z: z * c, (x,), (x,)),
    lambda x, c: graph.vjp(lambda z: z * c, x)[1](np.ones(c.shape)),
    lambda x, c: graph.grad(lambda z: np.sum(graph.grad(lambda u: np.sum(u * u * c[0]))(z) * c))(x),
    lambda x, c: graph.grad(graph.checkpoint(lambda z: np.sum(z * c)))(x),
]


@NEVER_COPIED
@pytest.mark.parametrize("at", range(len(TRANSFORMED)))
def test_a_transformation_gives_its_arrays_back(at: int) -> None:
    for n in (3, 5000):
        x, c = np.ones(n), np.ones((2, n))
        TRANSFORMED[at](x, c)
        x += 1.0
        c += 1.0


@NEVER_COPIED
@pytest.mark.parametrize(
    "call",
    [
        lambda f, x: graph.grad(f)(x),
        lambda f, x: graph.vjp(f, x),
        lambda f, x: graph.jvp(f, (x,), (x,)),
        lambda f, x: graph.grad(lambda z: np.sum(graph.grad(f)(z)))(x),
    ],
)
def test_a_call_that_fails_gives_its_arrays_back(call: Callable[..., Any]) -> None:
    """Although the traceback, which an interactive session keeps, has all its Variables."""
    x, c = np.ones(3), np.ones(3)
    left: list[Any] = []

    def fails(z: Any) -> Any:
        left.append(z * c)
        raise KeyError("the user's")

    with pytest.raises(KeyError, match="the user's") as kept:
        call(fails, x)
    assert kept.value.__traceback__ is not None
    x += 1.0
    c += 1.0
    # What it has left behind may be wrong now.
    with pytest.raises(ArgumentError, match="ended in an exception"):
        graph.grad(np.sum(left[0]), left[0].node.inputs[0])
    assert traceback.format_exception(kept.value)


@NEVER_COPIED
def test_a_call_that_fails_inside_another_does_not() -> None:
    x, c = np.ones(3), np.ones(3)

    def recovers(z: Any) -> Any:
        y = z * c
        with contextlib.suppress(ZeroDivisionError):
            graph.grad(lambda u: np.sum(u * c) * (1 / 0))(z.value)
        with pytest.raises(ValueError, match=READ_ONLY):
            c[0] = 7.0
        return np.sum(y * y)

    np.testing.assert_array_equal(graph.grad(recovers)(x), np.full(3, 2.0))
    c[0] = x[0] = 7.0


@NEVER_COPIED
def test_variables_of_the_user_outlast_a_call_that_fails() -> None:
    x, v = np.ones(3), graph.Variable(np.ones(3))
    mine = v * x
    with pytest.raises(ZeroDivisionError):
        graph.grad(lambda z: np.sum(z * x) * (1 / 0))(x)
    with pytest.raises(ValueError, match=READ_ONLY):
        x[0] = 7.0
    np.testing.assert_array_equal(mine.value, np.ones(3))


@NEVER_COPIED
def test_copies_and_pickles_are_free() -> None:
    x = np.ones(3)
    v = graph.Variable(x)
    for other in (x.copy(), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        other[0] = 7.0
    for other in (copy.deepcopy(v), pickle.loads(pickle.dumps(v))):
        assert other.value is not x
        assert other.value.tolist() == [1.0, 1.0, 1.0]
    del v
    x[0] = 7.0


@NEVER_COPIED
def test_threads_need_the_same_array() -> None:
    x = np.ones(3)
    start = threading.Barrier(8)
    wrong: list[str] = []

    def work() -> None:
        start.wait()
        for _ in range(300):
            v = graph.Variable(x)
            if x.flags.writeable:
                wrong.append("written to")
            del v

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not wrong
    assert x.flags.writeable


@NEVER_COPIED
def test_nothing_is_kept_of_arrays_that_are_not_needed() -> None:
    gc.collect()
    before = len(frozen._MEMORIES)
    for n in (3, 5000):
        graph.grad(lambda z: np.sum(z * np.ones(z.shape)))(np.ones(n))
    assert len(frozen._MEMORIES) == before
    # What the collector finds, too, while the lock is held or not.
    cycle: list[Any] = [graph.Variable(np.ones(3))]
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert len(frozen._MEMORIES) == before


# --- on a device ------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@SIZES
@pytest.mark.parametrize("way", [way for way in WAYS if way != "checkpoint"])  # see `graph.checkpoint`
def test_cupy_has_copies(n: int, way: str) -> None:
    cupy = pytest.importorskip("cupy")
    w = graph.Variable(cupy.full(n, 2.0))
    state = cupy.ones(n)
    y = WAYS[way](w, state).reshape(-1)
    state += 1.0
    np.testing.assert_array_equal(y.value.get(), np.full(n, 2.0))
    np.testing.assert_array_equal(graph.grad(np.sum(y), w).get(), np.ones(n))


@pytest.mark.gpu
def test_cupy_hands_out_copies() -> None:
    cupy = pytest.importorskip("cupy")
    x = cupy.ones(3)
    v = graph.Variable(x)
    x += 1.0
    y = v * v
    y.value[0] = v.value[0] = 99.0
    assert y.value.get().tolist() == [1.0, 1.0, 1.0]
    assert graph.grad(np.sum(y), v).get().tolist() == [2.0, 2.0, 2.0]
    value, pullback = graph.vjp(lambda z: z, x)
    value += 1.0
    assert x.get().tolist() == [2.0, 2.0, 2.0]
    assert pullback(x)[0] is not x
