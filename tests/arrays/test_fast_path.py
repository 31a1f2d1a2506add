"""Calls like earlier ones take the fast path (`runtime.cpu.kernel`): whatever the forms of the arguments do not say is
looked at again."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest

from dualbcast import differentiable_broadcast, graph
from dualbcast.errors import ArgumentError, DualbcastError
from dualbcast.runtime import launch_plan
from dualbcast.runtime.arguments import forms_of, host_addresses
from dualbcast.runtime.cpu import loader
from dualbcast.runtime.cpu.kernel import CpuFastPath

RNG = np.random.default_rng(7)
FACTOR = 3.0
WEIGHTS = np.array([1.0, 2.0, 3.0])


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each try of the short way, whether it was gone."""
    found: list[bool] = []
    run = CpuFastPath.run

    def noted(self: CpuFastPath, *arguments: Any) -> Any:
        outputs = run(self, *arguments)
        found.append(outputs is not None)
        return outputs

    monkeypatch.setattr(CpuFastPath, "run", noted)
    return found


def unaligned(array: np.ndarray[Any, Any], by: int = 1) -> np.ndarray[Any, Any]:
    """A copy whose address is `by` bytes past a multiple of 16."""
    memory = np.zeros(array.nbytes + 32, np.uint8)
    start = -memory.ctypes.data % 16 + by
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    assert copy.flags.aligned is (by % array.itemsize == 0)
    return copy


@pytest.mark.parametrize("size", [5, 100_000])
def test_values_and_addresses_are_those_of_the_call(short: list[bool], size: int) -> None:
    f = differentiable_broadcast(lambda x, y: x * x * y)
    for _ in range(3):
        x, y = RNG.standard_normal((2, size))
        value, jacobian = f.value_and_jacobian(x, y)
        np.testing.assert_array_equal(value, x * x * y)
        np.testing.assert_allclose(jacobian["x"], 2 * x * y, rtol=1e-15)
        np.testing.assert_array_equal(jacobian["y"], x * x)
        np.testing.assert_array_equal(f(x, y), x * x * y)
    assert short == [True] * 4


@pytest.mark.parametrize("size", [5, 100_000])
def test_misaligned_arrays_are_copied(short: list[bool], size: int) -> None:
    f = differentiable_broadcast(lambda x, n: x * n)
    x, n = RNG.standard_normal(size), np.arange(size, dtype=np.int16) % 100
    f(x, n)
    for first, second, direct in ((x, n, True), (unaligned(x), n, False), (x, unaligned(n), False)):
        np.testing.assert_array_equal(f(first, second), x * n)
        assert short.pop() is direct
    # What is aligned for one dtype need not be for the other.
    np.testing.assert_array_equal(f(x, unaligned(n, 2)), x * n)
    assert short.pop() is True


def form(value: Any) -> Any:
    """The form of an array or a number, as a tuple of its own."""
    return type(value), *[getattr(value, x, None) for x in ("dtype", "shape", "strides")]


def test_forms_are_equal_where_shapes_strides_dtypes_and_types_are(tmp_path: Any) -> None:
    whole = np.zeros((4, 6, 2), np.float32)
    groups: list[tuple[Any, ...]] = [
        (whole, whole.copy(), whole[::2], whole[::-1], whole.transpose(), whole[:, :0], whole[..., None], whole[0]),
        (whole[0, 0, 0], whole[:1, :1, :1], np.zeros(()), np.zeros((1,) * 32), np.zeros((1,) * 32)),
        (1.0, 2.5, 1, True, np.float64(1), np.float32(1), np.float32(2), np.bool_(True), np.int8(1), None, "x", 1j),
        tuple(np.zeros(3, kind) for kind in "?bhilqBHILQefdFM"),
        tuple(np.zeros(3, kind) for kind in (">f4", "<f4", ">i8", "f4,f4", "S3")),
        (np.memmap(tmp_path / "x", np.float32, "w+", shape=(4, 6, 2)), np.ma.masked_array(whole), whole.view(np.int32)),
    ]
    single = [value for group in groups for value in group]
    calls = [(value,) for value in single] + [(value, whole, 2.0) for value in single] + [(whole, x) for x in single]
    calls += [(), (whole,) * 80, (whole,) * 120, (whole,) * 120, (2.0,) * 700, tuple(single), tuple(single)]
    keys = [(forms_of(call), tuple(map(form, call))) for call in calls]
    for key, plain in keys:
        for other, others in keys:
            assert (key == other) is (plain == others)


def test_addresses_are_where_the_data_is(tmp_path: Any) -> None:
    file = np.memmap(tmp_path / "x", np.float64, "w+", shape=(5,))
    arrays = (*[np.empty(int(size)) for size in RNG.integers(0, 9, 600)], WEIGHTS[::-1], np.zeros(()), file)
    for chosen in (arrays, arrays[-20:], arrays[:1], ()):
        assert host_addresses(chosen) == tuple(array.ctypes.data for array in chosen)


def test_other_classes_do_not_go_the_way_of_arrays() -> None:
    f = differentiable_broadcast(lambda x: x * 2)
    x = np.arange(3.0)
    f(x), f(x)
    with pytest.raises(ArgumentError, match="whatever the subclass adds"):
        f(x.view(np.matrix))
    with pytest.raises(ArgumentError, match="not an array or a number"):
        f({1.0, 2.0, 3.0})
    assert f(np.ma.masked_array(x, [True, False, False])).mask.tolist() == [True, False, False]
    np.testing.assert_array_equal(f([3, 4]), [6, 8])
    np.testing.assert_array_equal(f(x), 2 * x)
    np.testing.assert_array_equal(f(x.astype(">f8")), 2 * x)


def test_numbers_keep_their_types(short: list[bool]) -> None:
    f = differentiable_broadcast(lambda x, y: x * y)
    x = np.array([1.0, 2.0], np.float32)
    for y, dtype in ((1.5, "f4"), (np.float64(1.5), "f8"), (np.float32(1.5), "f4"), (3, "f4"), (True, "f4")):
        for factor in (1, 1, 2):
            number = type(y)(y * factor)
            found = f(x, number)
            assert found.dtype == np.dtype(dtype)
            np.testing.assert_array_equal(found, x * number)
    assert short == [True] * 10
    assert np.signbit(f(x, -0.0)).all() and not np.signbit(f(x, 0.0)).any()
    with pytest.raises(ArgumentError, match="which int64 cannot hold"):
        f(x, 2**70)


def test_what_is_compiled_in_is_compared_at_every_call(monkeypatch: pytest.MonkeyPatch, short: list[bool]) -> None:
    def scaled(x: Any) -> Any:
        return x * FACTOR

    f, x = differentiable_broadcast(scaled), np.arange(4.0)
    for factor in (3.0, 5.0, 3.0):
        monkeypatch.setitem(globals(), "FACTOR", factor)
        for _ in range(2):
            np.testing.assert_array_equal(f(x), x * factor)
            np.testing.assert_array_equal(f.value_and_jacobian(x)[1]["x"], np.full(4, factor))
            _, pullback = f.vjp(x)
            np.testing.assert_array_equal(pullback(np.ones(4))[0], np.full(4, factor))
    assert all(short) and short
    monkeypatch.delitem(globals(), "FACTOR")
    with pytest.raises(Exception, match="FACTOR"):
        f(x)


def test_captured_arrays_are_read_at_every_call(monkeypatch: pytest.MonkeyPatch, short: list[bool]) -> None:
    def weighted(x: Any) -> Any:
        return x * WEIGHTS

    f, x = differentiable_broadcast(weighted), np.arange(3.0)
    others = (np.ones(3), np.full((2, 1), 4.0), np.arange(3), np.float32([1, 2, 3]), np.ones(3)[::-1], np.arange(3.0))
    for weights in others * 2:
        monkeypatch.setitem(globals(), "WEIGHTS", weights)
        for _ in range(2):
            np.testing.assert_array_equal(f(x), x * weights)
            weights = weights + 1
            monkeypatch.setitem(globals(), "WEIGHTS", weights)
    assert all(short) and len(short) > 12


def test_numbers_and_captured_arrays_that_change_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that is found again by the forms of captured arrays must not have a number of before."""

    def weighted(x: Any) -> Any:
        return x * WEIGHTS + FACTOR

    f, x = differentiable_broadcast(weighted), np.arange(3.0)
    for factor in (3.0, 5.0, 3.0, 7.0):
        monkeypatch.setitem(globals(), "FACTOR", factor)
        for weights in (np.ones(3), np.full((2, 1), 4.0), np.ones(3), np.full((2, 1), 2.0)):
            monkeypatch.setitem(globals(), "WEIGHTS", weights)
            np.testing.assert_array_equal(f(x), x * weights + factor)
            np.testing.assert_array_equal(f.jacobian(x, wrt="WEIGHTS")["WEIGHTS"], x * np.ones_like(weights))
    functions = [differentiable_broadcast(lambda x: x * WEIGHTS + FACTOR) for _ in range(2)]
    v = graph.Variable(np.arange(3.0))
    for factor in (3.0, 5.0, 3.0):
        monkeypatch.setitem(globals(), "FACTOR", factor)
        for captured in (np.ones(3), v, np.ones(3)):
            monkeypatch.setitem(globals(), "WEIGHTS", captured)
            plain = captured.value if captured is v else captured
            for g in functions:
                found = g(x)
                assert isinstance(found, graph.Variable) is (captured is v)
                np.testing.assert_array_equal(getattr(found, "value", found), x * plain + factor)


def test_out_is_looked_at_again(short: list[bool]) -> None:
    f = differentiable_broadcast(lambda x, y: x - 2 * y)
    x, y, out = np.arange(6.0), RNG.standard_normal(6), np.empty(6)
    for _ in range(2):
        assert f(x, y, out=out) is out
        np.testing.assert_array_equal(out, x - 2 * y)
    assert short == [True]
    shifted = np.concatenate([x, [0.0]])
    expected = shifted[:-1] - 2 * y
    f(shifted[:-1], y, out=shifted[1:])  # of the same forms, and overlapping
    np.testing.assert_array_equal(shifted[1:], expected)
    np.testing.assert_array_equal(f(x, y, out=unaligned(out)), x - 2 * y)
    np.testing.assert_array_equal(f(unaligned(x), y, out=out), x - 2 * y)
    assert short == [True, False, False, False]
    out[...] = 7
    out.flags.writeable = False
    with pytest.raises(ArgumentError, match="read-only"):
        f(x, y, out=out)
    assert (out == 7).all()
    value, jacobian = f.value_and_jacobian(x, y)
    for factor in (1, 2, 3):
        again = f.value_and_jacobian(x * factor, y, out=(value, jacobian))
        assert again[0] is value
        np.testing.assert_array_equal(value, x * factor - 2 * y)


def test_out_between_the_elements_of_an_input_is_written_directly(short: list[bool]) -> None:
    f = differentiable_broadcast(lambda x: 2 * x)
    both = np.arange(12.0)
    for _ in range(3):
        f(both[::2], out=both[1::2])
        np.testing.assert_array_equal(both[1::2], 2 * both[::2])
    f(both[:6], out=both[6:])  # of other forms
    f(both[:6], out=both[5:11])  # of the same as before
    assert short == [True, True, False]


def test_results_that_are_numbers(short: list[bool]) -> None:
    f = differentiable_broadcast(lambda x: x * x)
    for x in (2.0, 3.0, 4.0):
        assert type(f(x)) is np.float64 and f(x) == x * x
        value, jacobian = f.value_and_jacobian(np.array(x))
        assert type(value) is np.float64 and value == x * x
        assert jacobian["x"].shape == () and jacobian["x"] == 2 * x
        assert f.hessian(x)["x", "x"] == 2
        assert f.vjp(x)[1](np.array(1.0)) == (2 * x,)
        assert f.jvp((x,), (1.0,)) == (x * x, 2 * x)
    assert all(short) and short


def test_sums_go_the_short_way(short: list[bool]) -> None:
    f = differentiable_broadcast(lambda x, b: x * b)
    for _ in range(3):
        x, b, bar = RNG.standard_normal((4, 5)), RNG.standard_normal(5), RNG.standard_normal((4, 5))
        dx, db = f.vjp(x, b)[1](bar)
        np.testing.assert_allclose(dx, bar * b)
        np.testing.assert_allclose(db, (bar * x).sum(0))
    assert short == [True] * 4


def test_cotangents_are_looked_at_after_right_ones_too(short: list[bool]) -> None:
    f = differentiable_broadcast(lambda x, y: (x * y, x - y))
    x, y = RNG.standard_normal((2, 3, 4))
    _, pullback = f.vjp(x, y)
    one, two = RNG.standard_normal((2, 3, 4))
    kinds = (one, two), (one.T.copy().T, two), (one[::-1], two), (np.ones((3, 4), int), np.float32(two)), (one, two)
    for _ in range(2):
        for bars in kinds:
            for found in (f.value_and_vjp((x, y), bars)[1], pullback(*bars), pullback(list(bars))):
                np.testing.assert_allclose(found[0], bars[0] * y + bars[1], rtol=1e-14)
                np.testing.assert_allclose(found[1], bars[0] * x - bars[1], rtol=1e-14)
        tried = len(short)
        for bars, message in (
            ((one[:2], two), "the cotangent of output 0 has shape"),
            ((one, two[0]), "the cotangent of output 1 has shape"),
            ((one, None), "the cotangent of output 1 is None"),
            ((one, 1j * two), "complex"),
            ((one,), "2 cotangents are needed|must be a tuple of 2"),
        ):
            with pytest.raises(DualbcastError, match=message):
                f.value_and_vjp((x, y), bars)
            with pytest.raises(DualbcastError, match=message):
                pullback(*bars)
        assert len(short) == tried
    assert short.count(True) > 20


def test_the_forms_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_plan, "_MOST_ENTRIES", 8)
    f = differentiable_broadcast(backend="python")(lambda x: x + 1)
    for size in range(1, 30):
        assert f(np.zeros(size)).sum() == size
    assert len(f._dispatch.specialisations) <= 8
    for size in range(1, 30):
        assert f(np.zeros(size)).sum() == size


def test_threads_share_what_is_remembered() -> None:
    f = differentiable_broadcast(lambda x, y: x * y)
    wrong: list[Any] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(300):
            x, y = rng.standard_normal(int(rng.integers(1, 4))), rng.standard_normal()
            if not np.array_equal(f(x, y), x * y):
                wrong.append((x, y))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_machine_code_lives_as_long_as_what_calls_it() -> None:
    functions = [differentiable_broadcast(lambda *xs: sum(xs)) for _ in range(4)]
    x = np.arange(3.0)
    for _ in range(3):
        for count, f in enumerate(functions, 1):
            np.testing.assert_array_equal(f(*[x] * count), count * x)
        loader._module.cache_clear()
        gc.collect()


def test_a_memmap_of_another_shape(tmp_path: Any) -> None:
    f = differentiable_broadcast(lambda x: x * x)
    for shape in ((2, 3), (6,), (3, 2)):
        x = np.memmap(tmp_path / "x", np.float64, "w+", shape=shape)
        x[...] = np.arange(6.0).reshape(shape)
        for _ in range(2):
            np.testing.assert_array_equal(f(x), np.arange(6.0).reshape(shape) ** 2)
            value, gradients = f.value_and_vjp((x,), np.ones(shape))
            np.testing.assert_array_equal(value, np.arange(6.0).reshape(shape) ** 2)
            np.testing.assert_array_equal(gradients[0], 2 * np.arange(6.0).reshape(shape))
