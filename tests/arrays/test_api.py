"""The decorator and the object it makes, as users call them: arguments, dtypes, layouts, outputs, captures, threads."""

from __future__ import annotations

import ast
import inspect
import math
import re
import threading
from types import ModuleType, SimpleNamespace
from typing import Any

import ml_dtypes
import models
import numpy as np
import pytest

from dualbcast import BroadcastFunction, differentiable_broadcast
from dualbcast.errors import CompileError, MissingDependencyError
from dualbcast.program import products

BF16 = np.dtype(ml_dtypes.bfloat16)
BACKENDS = ["python", "cpu"]
rng = np.random.default_rng(20)


def wave(x, y):
    """A wave."""
    return x * math.tanh(y) + 0.1


def wave_by_hand(x: Any, y: Any) -> tuple[Any, Any, Any]:
    """Value and partials in float64."""
    x, y = np.broadcast_arrays(np.asarray(x, np.float64), np.asarray(y, np.float64))
    tanh = np.tanh(y)
    return x * tanh + 0.1, tanh, x * (1 - tanh * tanh)


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Any:
    return request.param


def tolerance(dtype: Any) -> float:
    """Four units in the last place, relative to values near 1."""
    return 4 * float(ml_dtypes.finfo(dtype).eps)


# --- the decorator ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "decorate", [differentiable_broadcast, differentiable_broadcast(), differentiable_broadcast(wrt="x")]
)
def test_the_decorator_keeps_what_describes_a_function(decorate: Any) -> None:
    f = decorate(wave)
    assert isinstance(f, BroadcastFunction)
    assert f.__wrapped__ is wave
    assert (f.__name__, f.__doc__, f.__module__, f.__qualname__) == ("wave", "A wave.", __name__, "wave")
    assert str(inspect.signature(f)) == "(x, y)"
    assert repr(f) == "<BroadcastFunction wave>"


def test_the_function_itself_stays_callable() -> None:
    f = differentiable_broadcast(wave)
    assert f.__wrapped__(2.0, 0.5) == wave(2.0, 0.5)
    assert f(2.0, 0.5) == pytest.approx(wave(2.0, 0.5), rel=1e-15)


def test_a_decorated_function_can_be_called_by_another(backend: Any) -> None:
    inner = differentiable_broadcast(lambda a: a * a)
    outer = differentiable_broadcast(backend=backend)(lambda x: inner(x) + inner(2 * x))
    value, jacobian = outer.value_and_jacobian(np.array([1.0, 3.0]))
    assert value.tolist() == [5.0, 45.0]
    assert jacobian["x"].tolist() == [10.0, 30.0]


# --- wrt --------------------------------------------------------------------------------------------------------------


@differentiable_broadcast(backend="python")
def spread(x, n, *rest):
    return x * n + sum(rest) * x


@differentiable_broadcast(backend="python", wrt=("rest", "x"))
def spread_by_default(x, n, *rest):
    return x * n + sum(rest) * x


WRT: list[tuple[Any, tuple[str, ...]]] = [
    (None, ("x", "rest_0", "rest_1")),
    ("x", ("x",)),
    (0, ("x",)),
    (-1, ("rest_1",)),
    (np.int64(2), ("rest_0",)),
    ("rest", ("rest_0", "rest_1")),
    ("rest_1", ("rest_1",)),
    (("rest", "x"), ("rest_0", "rest_1", "x")),
    ([3, "x"], ("rest_1", "x")),
    (("x", 0, "x"), ("x",)),
    ((), ()),
]


@pytest.mark.parametrize(("wrt", "names"), WRT, ids=str)
def test_what_to_differentiate_in(wrt: Any, names: tuple[str, ...]) -> None:
    x, n, a, b = np.array([2.0, 3.0]), np.array([4, 5]), np.array([0.5, 1.5]), 7.0
    wanted = {"x": n + a + b, "rest_0": x, "rest_1": x}
    for jacobian in (spread.jacobian(x, n, a, b, wrt=wrt), spread.value_and_jacobian(x, n, a, b, wrt=wrt)[1]):
        assert jacobian.wrt == names
        for name in names:
            assert jacobian[name].tolist() == wanted[name].tolist()


def test_the_decorators_wrt_is_the_default() -> None:
    arrays = (2.0, 4, 0.5, 7.0)
    assert spread_by_default.jacobian(*arrays).wrt == ("rest_0", "rest_1", "x")
    assert spread_by_default.jacobian(*arrays, wrt=0).wrt == ("x",)
    assert spread_by_default.jacobian(*arrays, wrt=()).wrt == ()


@pytest.mark.parametrize("arity", [1, 2, 3, 7])
def test_any_number_of_arguments(arity: int, backend: Any) -> None:
    f = differentiable_broadcast(backend=backend)(models.product_of_tanh)
    arrays = [rng.normal(size=(4, 1) if place % 2 else (5,)) for place in range(arity)]
    value, jacobian = f.value_and_jacobian(*arrays)
    wanted, partials = models.product_of_tanh_by_hand(*arrays)
    np.testing.assert_allclose(value, wanted, rtol=1e-13)
    assert jacobian.wrt == tuple(f"xs_{place}" for place in range(arity))
    for place, partial in enumerate(partials):
        np.testing.assert_allclose(jacobian[place], partial, rtol=1e-13, atol=1e-15)
    assert f() == 1.0


# --- dtypes -----------------------------------------------------------------------------------------------------------

DTYPES = [
    ("f2", "f2", "f2"),
    (BF16, BF16, BF16),
    ("f4", "f4", "f4"),
    ("f8", "f8", "f8"),
    ("f2", "f4", "f4"),
    (BF16, "f4", "f4"),
    ("f4", "f8", "f8"),
    ("f4", "i1", "f4"),
    ("f2", "?", "f2"),
    ("f4", "i4", "f8"),
    ("i8", "i4", "f8"),
    ("?", "u1", "f8"),
    ("u8", "f4", "f8"),
]


@pytest.mark.parametrize(("x_dtype", "y_dtype", "result"), DTYPES, ids=str)
def test_dtypes(x_dtype: Any, y_dtype: Any, result: Any, backend: Any) -> None:
    x, y = np.array([[0.0, 1.0, 2.0]]).astype(x_dtype), np.array([[0.0], [1.0], [3.0]]).astype(y_dtype)
    value, jacobian = differentiable_broadcast(backend=backend)(wave).value_and_jacobian(x, y)
    assert value.dtype == np.dtype(result)
    floats = tuple(
        name for name, array in (("x", x), ("y", y)) if array.dtype.kind not in "?bi" and array.dtype != "u1"
    )
    assert jacobian.wrt == floats
    wanted, in_x, in_y = wave_by_hand(x, y)
    for got, exact in ((value, wanted), *((jacobian[name], {"x": in_x, "y": in_y}[name]) for name in floats)):
        assert got.dtype == np.dtype(result)
        assert got.shape == (3, 3)
        np.testing.assert_allclose(got.astype(np.float64), exact, rtol=tolerance(result), atol=tolerance(result))


def test_half_precision_is_rounded_once(backend: Any) -> None:
    # Computed in float32 and stored in float16: sums that a float16 chain would lose.
    f = differentiable_broadcast(backend=backend)(lambda x, y: x + y - x)
    x, y = np.full(4, 2048, np.float16), np.arange(4).astype(np.float16) / 4
    assert f(x, y).tolist() == y.tolist()


def test_literals_and_python_numbers_are_weak(backend: Any) -> None:
    third = 1 / 3
    f = differentiable_broadcast(backend=backend)(lambda x, y: x * 0.1 + y * third)
    x = np.linspace(1, 2, 7, dtype=np.float32)
    for y, exact in (
        (0.3, np.float32(0.3)),
        (3, np.float32(3)),
        (True, np.float32(1)),
        (np.float32(0.3), np.float32(0.3)),
    ):
        value = f(x, y)
        assert value.dtype == np.float32
        np.testing.assert_array_equal(value, x * np.float32(0.1) + exact * np.float32(third))
    assert f(x, np.float64(0.3)).dtype == np.float64
    assert "float64" not in f.inspect_source("float32", "float32")


def test_integers_alone(backend: Any) -> None:
    f = differentiable_broadcast(backend=backend)(lambda a, b: (a * b + 1, a / b, a // b, a % b, a > b, -a))
    a, b = np.array([7, -7, 0], np.int16), np.array([2, 3, -5], np.int8)
    results = f(a, b)
    assert [result.dtype.name for result in results] == ["int64", "float64", "int64", "int64", "bool", "int64"]
    wide = a.astype(np.int64)
    for result, wanted in zip(results, (wide * b + 1, wide / b, wide // b, wide % b, a > b, -wide), strict=True):
        assert result.tolist() == wanted.tolist()


def test_numbers_alone_give_numbers(backend: Any) -> None:
    f = differentiable_broadcast(backend=backend)(wave)
    value, jacobian = f.value_and_jacobian(2.0, 0.5)
    assert isinstance(value, np.float64)
    assert value == pytest.approx(wave(2.0, 0.5), rel=1e-15)
    assert jacobian["x"] == pytest.approx(math.tanh(0.5), rel=1e-15)
    assert isinstance(f(np.float32(2), 0.5), np.float32)


# --- layouts ----------------------------------------------------------------------------------------------------------

M = rng.normal(size=(6, 8))
LAYOUTS: dict[str, tuple[Any, Any]] = {
    "contiguous": (M, M + 1),
    "0-d": (np.array(2.0), np.array(0.5)),
    "0-d beside 2-d": (np.array(2.0), M),
    "scalar beside 2-d": (M, 0.5),
    "row": (M, M[0]),
    "column": (M, M[:, :1]),
    "outer": (M[:, :1], M[:1]),
    "missing dimensions": (np.stack([M, 2 * M]), M[0]),
    "in the middle": (np.stack([M, 2 * M]), M[:, None][:2, :, :1]),
    "F-order": (np.asfortranarray(M), np.asfortranarray(M + 1)),
    "transposed": (M.T, np.ascontiguousarray(M.T)),
    "negative strides": (M[::-1, ::-1], M[:, ::-1]),
    "every second": (M[::2, ::3], M[1::2, 1::3]),
    "window": (M[1:5, 2:7], M[:4, :5]),
    "read-only": (np.broadcast_to(1.5, (6, 8)), M),
    "empty": (np.empty((0, 8)), M[:1]),
    "one element": (np.ones((1, 1, 1)), np.ones(1)),
    "five dimensions": (rng.normal(size=(2, 1, 3, 1, 2)), rng.normal(size=(4, 1, 5, 1))),
    "unaligned": (np.frombuffer(b"\0" + M.tobytes(), np.uint8)[1:].view(np.float64).reshape(M.shape), M),
    "byte-swapped": (M.astype(">f8"), M),
}


@pytest.mark.parametrize(("x", "y"), LAYOUTS.values(), ids=LAYOUTS)
def test_layouts(x: Any, y: Any, backend: Any) -> None:
    before = np.array(x), np.array(y)
    value, jacobian = differentiable_broadcast(backend=backend)(wave).value_and_jacobian(x, y)
    wanted, in_x, in_y = wave_by_hand(x, y)
    for got, exact in ((value, wanted), (jacobian["x"], in_x), (jacobian["y"], in_y)):
        assert np.shape(got) == exact.shape
        np.testing.assert_allclose(got, exact, rtol=1e-14, atol=1e-15)
    for array, kept in zip((x, y), before, strict=True):
        np.testing.assert_array_equal(array, kept)


def test_what_is_not_finite_comes_through(backend: Any) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-310])
    f = differentiable_broadcast(backend=backend)(lambda x: (1 / x, math.sqrt(x), math.log(x)))
    with np.errstate(all="ignore"):
        for got, wanted in zip(f(x), (1 / x, np.sqrt(x), np.log(x)), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-15)


# --- out= -------------------------------------------------------------------------------------------------------------


def strided(shape: tuple[int, ...]) -> np.ndarray:
    return np.zeros(tuple(2 * length for length in shape))[tuple(slice(None, None, -2) for _ in shape)]


@pytest.mark.parametrize(
    "make", [np.zeros, strided, lambda shape: np.zeros(shape[::-1]).T], ids=["plain", "strided", "F"]
)
def test_out_is_filled_and_returned(make: Any, backend: Any) -> None:
    out = make((6, 8))
    assert differentiable_broadcast(backend=backend)(wave)(M, M[0], out=out) is out
    np.testing.assert_allclose(out, wave_by_hand(M, M[0])[0], rtol=1e-14)


@pytest.mark.parametrize("view", [slice(0, 8), slice(1, 9), slice(8, 0, -1)], ids=str)
def test_out_may_overlap_an_argument(view: slice, backend: Any) -> None:
    memory = rng.normal(size=10)
    x, y = memory[:8], rng.normal(size=8)
    wanted = wave_by_hand(x.copy(), y)[0]
    out = memory[view]
    assert differentiable_broadcast(backend=backend)(wave)(x, y, out=out) is out
    np.testing.assert_allclose(out, wanted, rtol=1e-14, atol=1e-15)


def test_out_of_several_outputs(backend: Any) -> None:
    f = differentiable_broadcast(backend=backend)(lambda x, n: (x * n, n + 1, x > n))
    x, n = np.array([[1.5], [2.5]]), np.array([1, 2, 3])
    outs = np.zeros((2, 3)), np.zeros((2, 3), np.int64), np.zeros((2, 3), bool)
    results = f(x, n, out=outs)
    assert all(result is out for result, out in zip(results, outs, strict=True))
    for result, wanted in zip(f(x, n, out=(None, outs[1], None)), (x * n, n + 1 + 0 * x, x > n), strict=True):
        np.testing.assert_array_equal(result, wanted)


def test_value_and_jacobian_reuse_what_an_earlier_call_returned(backend: Any) -> None:
    f = differentiable_broadcast(backend=backend)(lambda x, y: (wave(x, y), x * y, 3 * x))
    earlier = f.value_and_jacobian(M, M[0])
    arrays = [*earlier[0], *(earlier[1][i, name] for i, name in ((0, "x"), (0, "y"), (1, "x"), (1, "y")))]
    value, jacobian = f.value_and_jacobian(M + 1, M[1], out=earlier)
    again = [*value, *(jacobian[i, name] for i, name in ((0, "x"), (0, "y"), (1, "x"), (1, "y")))]
    assert all(now is before for now, before in zip(again, arrays, strict=True))
    wanted = wave_by_hand(M + 1, M[1])
    np.testing.assert_allclose(value[0], wanted[0], rtol=1e-14)
    np.testing.assert_allclose(jacobian[0, "y"], wanted[2], rtol=1e-14)
    np.testing.assert_allclose(jacobian[1, "x"], np.broadcast_to(M[1], M.shape))
    assert (jacobian[2, "x"] == 3).all()


# --- the blocks of a Jacobian -----------------------------------------------------------------------------------------


def test_constant_and_zero_blocks_take_no_memory(backend: Any) -> None:
    f = differentiable_broadcast(backend=backend)(lambda x, y: (3 * x, math.exp(y), int(x), x - y, x > y))
    for dtype in (np.float32, np.float64, np.float16):
        x, y = M.astype(dtype), M[0].astype(dtype)
        value, jacobian = f.value_and_jacobian(x, y)
        assert [array.dtype for array in value] == [dtype, dtype, np.int64, dtype, np.bool_]
        numbers = {
            (0, "x"): 3,
            (0, "y"): 0,
            (1, "x"): 0,
            (2, "x"): 0,
            (2, "y"): 0,
            (3, "x"): 1,
            (3, "y"): -1,
            (4, "x"): 0,
        }
        for place, number in numbers.items():
            block = jacobian[place]
            assert block.shape == (6, 8)
            assert block.dtype == dtype
            assert block.strides == (0, 0)
            assert not block.flags.writeable
            assert (block == number).all()
        assert jacobian[1, "y"].strides != (0, 0)


def test_a_jacobian_of_constants_alone_runs_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dualbcast.program.element.cpu_kernel.launch", lambda *_: pytest.fail("launched"))
    jacobian = differentiable_broadcast(lambda x, y: 2 * x - y).jacobian(M, M[0])
    assert (jacobian["x"] == 2).all()
    assert (jacobian["y"] == -1).all()


def test_outputs_that_are_the_same_or_constant_or_an_input(backend: Any) -> None:
    f = differentiable_broadcast(backend=backend)(lambda x, y: (x * y, x * y, x, 2.5, 7, True))
    (a, b, c, d, e, g), jacobian = f.value_and_jacobian(M, M[0])
    assert a is not b
    a[0, 0] = 99
    assert b[0, 0] == M[0, 0] ** 2
    np.testing.assert_array_equal(c, M)
    assert not np.shares_memory(c, M)
    assert (d.dtype, e.dtype, g.dtype) == (np.float64, np.int64, np.bool_)
    assert (d == 2.5).all()
    assert (e == 7).all()
    assert g.all()
    np.testing.assert_array_equal(jacobian[0, "x"], jacobian[1, "x"])
    assert (jacobian[2, "x"] == 1).all()
    assert (jacobian[3, "x"] == 0).all()


# --- captures ---------------------------------------------------------------------------------------------------------

RATE: Any = 2.0
SETTINGS = ModuleType("settings")


def transform(x):
    return x * x


def helper(x):
    return RATE * transform(x)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, nothing_kept: None) -> list[str]:  # noqa: ARG001
    """What has been compiled, in order."""
    found: list[str] = []
    make = products.make_product

    def counted(function: Any, which: Any, *rest: Any) -> Any:
        found.append(which)
        return make(function, which, *rest)

    monkeypatch.setattr(products, "make_product", counted)
    return found


def test_a_rebound_global_compiles_anew(compiled: list[str], monkeypatch: pytest.MonkeyPatch, backend: Any) -> None:
    f = differentiable_broadcast(backend=backend)(lambda x: helper(x) + RATE)
    x = np.array([1.0, 3.0])
    assert f(x).tolist() == [4.0, 20.0]
    assert f(x + 0).tolist() == [4.0, 20.0]
    assert compiled == ["value"]
    monkeypatch.setitem(globals(), "RATE", 10)
    assert f(x).tolist() == [20.0, 100.0]
    assert f.jacobian(x)["x"].tolist() == [20.0, 60.0]
    monkeypatch.setitem(globals(), "transform", lambda x: x)
    assert f(x).tolist() == [20.0, 40.0]
    assert compiled == ["value", "value", "jacobian", "value"]
    monkeypatch.setitem(globals(), "RATE", [1.0])
    with pytest.raises(CompileError, match="RATE is captured"):
        f(x)
    monkeypatch.delitem(globals(), "RATE")
    with pytest.raises(CompileError, match="the name RATE is not defined"):
        f(x)


def test_a_rebound_closure_cell_compiles_anew(compiled: list[str], backend: Any) -> None:
    factor, shape = 2.0, math.sin

    @differentiable_broadcast(backend=backend)
    def f(x):
        return factor * shape(x)

    x = np.array([0.5])
    assert f(x) == pytest.approx(2 * np.sin(x))
    factor = 3.0
    assert f(x) == pytest.approx(3 * np.sin(x))
    shape = math.cos
    value, jacobian = f.value_and_jacobian(x)
    assert value == pytest.approx(3 * np.cos(x))
    assert jacobian["x"] == pytest.approx(-3 * np.sin(x))
    f(x)
    assert compiled == ["value", "value", "value_and_jacobian", "value"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (1, 1.0),
        (1, True),
        ((1, 2), (1.0, 2)),
        ((1, 0.0), (1, -0.0)),
        (0.0, -0.0),
        ((True,), (1,)),
        (2.0, np.float64(2.5)),
    ],
    ids=str,
)
def test_equal_numbers_of_another_kind_compile_anew(before: Any, after: Any, compiled: list[str]) -> None:
    captured = before

    @differentiable_broadcast(backend="python")
    def f(x):
        return x * captured[-1] if scalar is None else x * captured

    scalar = None if isinstance(before, tuple) else 1
    f(np.ones(1))
    captured = after
    f(np.ones(1))
    assert compiled == ["value", "value"]


def test_a_nan_that_is_captured_compiles_once(compiled: list[str]) -> None:
    nothing = math.nan
    f = differentiable_broadcast(backend="python")(lambda x: nothing if x > 0 else x)
    for _ in range(3):
        assert np.isnan(f(np.ones(2))).all()
    assert compiled == ["value"]


def test_a_number_of_a_module_is_guarded(monkeypatch: pytest.MonkeyPatch, backend: Any) -> None:
    SETTINGS.rate = 2.0  # type: ignore[attr-defined]
    f = differentiable_broadcast(backend=backend)(lambda x: x * SETTINGS.rate)  # type: ignore[attr-defined]
    assert f(np.ones(1)) == 2.0
    monkeypatch.setattr(SETTINGS, "rate", 5.0)
    assert f(np.ones(1)) == 5.0


# --- backends agree ---------------------------------------------------------------------------------------------------

n = rng.normal(size=(5, 7))
MODELS: dict[str, tuple[Any, Any, tuple[Any, ...], Any]] = {
    "cell_update": (
        models.cell_update,
        models.cell_update_by_hand,
        (n, n + 1, n - 1, 2 * n, np.arange(5.0)[:, None] % 2, np.arange(7.0) % 3 % 2),
        tuple("cfig"),
    ),
    "eccentric_anomaly": (
        models.eccentric_anomaly,
        models.eccentric_anomaly_by_hand,
        (np.linspace(-3, 3, 9)[:, None], np.array([0.0, 0.3, 0.7])),
        None,
    ),
    "smooth_step": (
        models.smooth_step,
        models.smooth_step_by_hand,
        (np.linspace(-0.5, 1.5, 11), np.array([[0.7], [1.1]])),
        None,
    ),
}


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(("function", "by_hand", "arrays", "wrt"), MODELS.values(), ids=MODELS)
def test_backends_agree_with_each_other_and_by_hand(
    function: Any, by_hand: Any, arrays: Any, wrt: Any, dtype: str
) -> None:
    arrays = [array.astype(dtype) for array in arrays]
    wanted, partials = by_hand(*arrays)
    results = [
        differentiable_broadcast(backend=backend)(function).value_and_jacobian(*arrays, wrt=wrt) for backend in BACKENDS
    ]
    bound = 64 * np.finfo(dtype).eps
    for value, jacobian in results:
        np.testing.assert_allclose(value, wanted, rtol=bound, atol=bound)
        assert jacobian.wrt == tuple(partials)
        for name, partial in partials.items():
            np.testing.assert_allclose(jacobian[name], partial, rtol=bound, atol=4 * bound)
    (value, jacobian), (other, other_jacobian) = results
    np.testing.assert_allclose(value, other, rtol=8 * np.finfo(dtype).eps)
    for name in partials:
        np.testing.assert_allclose(jacobian[name], other_jacobian[name], rtol=bound, atol=bound)


def test_fastmath_keeps_nan_and_infinity() -> None:
    f = differentiable_broadcast(fastmath=True)(lambda x, y: x / y if x == x else -1.0)
    got = f(np.array([1.0, np.nan, np.inf, 0.0]), np.array([0.0, 1.0, 2.0, 0.0]))
    np.testing.assert_array_equal(got, [np.inf, -1.0, np.inf, np.nan])


@pytest.mark.parametrize("round_", range(3))
def test_threads_may_call_first_at_once(round_: int) -> None:
    offset = float(round_)
    f = differentiable_broadcast(lambda x, y: x * math.tanh(y) + offset)
    gate, results, failures = threading.Barrier(8), {}, []

    def call(number: int) -> None:
        x = np.full((9, 9), float(number))
        gate.wait()
        try:
            results[number] = f.value_and_jacobian(x, M[0, 0]) if number % 2 else (f(x, M[0, 0]), None)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    for number, (value, jacobian) in results.items():
        np.testing.assert_allclose(value, number * np.tanh(M[0, 0]) + offset, rtol=1e-14)
        if jacobian is not None:
            np.testing.assert_allclose(jacobian["x"], np.tanh(M[0, 0]), rtol=1e-14)


# --- more than 2**31 elements -----------------------------------------------------------------------------------------


def test_a_huge_broadcast_is_planned_without_memory() -> None:
    size = 2**31 + 1
    huge = np.broadcast_to(np.int8(1), (size,))
    explanation = differentiable_broadcast(lambda a, b: a > b).explain(huge, 0, product="value")
    assert explanation.shape == (size,)
    assert explanation.bytes_written == size


@pytest.mark.slow
@pytest.mark.parametrize("shapes", [((2**31 + 16,), ()), ((2**20 + 1, 1), (2**11,))], ids=["one", "two"])
def test_more_than_2_31_elements(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    with open("/proc/meminfo") as file:
        free = next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable"))
    if free < 6 * 2**30:
        pytest.skip("needs 6 GiB of memory")
    a, b = np.zeros(shapes[0], np.int8), np.zeros(shapes[1], np.int8)
    a[-3:] = 1
    if b.ndim:
        b[5] = 2
    result = differentiable_broadcast(lambda a, b: a > b)(a, b)
    assert result.shape == np.broadcast_shapes(*shapes)
    wanted = 3 * (b.size - (1 if b.ndim else 0))
    assert np.count_nonzero(result) == wanted
    assert np.count_nonzero(result[-3:]) == wanted


# --- explain and inspect ----------------------------------------------------------------------------------------------


def test_explain_counts_operations_and_bytes() -> None:
    f = differentiable_broadcast(lambda x, y, _unused: x * math.tanh(y))
    x, y = np.ones((6, 8), np.float32), np.ones((6, 1), np.float32)
    found = f.explain(x, y, np.ones((6, 8)).astype("f4"), product="value")
    assert (found.dtype, found.shape, found.outputs) == ("float32", (6, 8), ("out",))
    assert found.operations == {"mul": 1, "tanh": 1}
    assert found.bytes_read == 4 * (48 + 6)
    assert found.bytes_written == 4 * 48
    assert found.bytes == found.bytes_read + found.bytes_written
    assert found.cuda is None
    both = f.explain(x, y, x)
    assert both.outputs == ("out", "out_dx", "out_dy")
    assert both.bytes_written == 4 * 48 * 3
    assert both.operations["tanh"] == 1
    assert f.explain(x, y, x, wrt="x").outputs == ("out", "out_dx")
    text = str(both)
    for part in ("6, 8", "float32", "tanh", f"{both.bytes_read:,} bytes read", f"{both.bytes_written:,} written"):
        assert part in text


def test_dtypes_stand_for_contiguous_arrays() -> None:
    f = differentiable_broadcast(wave)
    wanted = f.inspect_source(np.ones(5, "f4"), np.ones(5, "f8"))
    for pair in (("float32", "float64"), (np.float32, np.float64), (np.dtype("f4"), "f8")):
        assert f.inspect_source(*pair) == wanted
    assert "bfloat16" in f.inspect_source("bfloat16", "bfloat16")


def test_inspect_ir_and_source() -> None:
    f = differentiable_broadcast(models.cell_update)
    ir = f.inspect_ir(*["float32"] * 6, wrt="c")
    for part in ("function cell_update(c: float, f: float", "tanh(g)", "output out", "output out_dc"):
        assert part in ir
    assert "out_dc" not in f.inspect_ir(*["float32"] * 6, product="value")
    text = f.inspect_source(*["float32"] * 6, wrt="c")
    names = {node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)}
    assert "cell_update" in names
    lines = inspect.getsource(models).splitlines()
    quoted = re.findall(r"# models\.py:(\d+)   (.*)$", text, re.MULTILINE)
    assert len(quoted) >= 4
    for number, quote in quoted:
        assert lines[int(number) - 1].strip().startswith(quote.rstrip("… "))
    assert any("math.tanh(g)" in quote for _, quote in quoted)


def test_inspect_llvm_and_asm() -> None:
    f = differentiable_broadcast(wave)
    assert "define" in f.inspect_llvm("float32", "float32")
    assert re.search(r"^\s+ret", f.inspect_asm("float32", "float32"), re.MULTILINE)


FLOAT64 = re.compile(r"\bdouble\b")


def test_a_float32_kernel_of_the_cpu_has_no_float64_arithmetic() -> None:
    f = differentiable_broadcast(models.cell_update)
    assert not FLOAT64.search(f.inspect_llvm(*["float32"] * 6))
    assert FLOAT64.search(f.inspect_llvm(*["float64"] * 6))
    g = differentiable_broadcast(models.product_of_tanh)
    assert not FLOAT64.search(g.inspect_llvm(*["float32"] * 4))


# --- what only the branch that is taken reads -------------------------------------------------------------------------


def arrays_read(nodes: list[ast.stmt]) -> set[str]:
    """The names that statements index and do not store to, those of the tests of inner branches included."""
    found = [node for stmt in nodes for node in ast.walk(stmt) if isinstance(node, ast.Subscript)]
    return {node.value.id for node in found if isinstance(node.ctx, ast.Load) and isinstance(node.value, ast.Name)}


def test_copy_reads_only_c_in_the_text() -> None:
    f = differentiable_broadcast(wrt=tuple("cfig"))(models.cell_update)
    full, row = np.ones((4, 6), "f4"), np.ones((4, 1), "f4")  # branches on the CPU
    tree = ast.parse(f.inspect_source(full, full, full, full, row, row))
    element = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "cell_update")
    position = next(place for place, stmt in enumerate(element.body) if isinstance(stmt, ast.If))
    flush = element.body[position]
    assert isinstance(flush, ast.If)
    assert arrays_read(element.body[:position]) | arrays_read([ast.Expr(flush.test)]) == {"z"}
    assert arrays_read(flush.body) == {"i", "g"}
    copy = flush.orelse[-1]
    assert isinstance(copy, ast.If)
    assert arrays_read(flush.orelse[:-1]) | arrays_read([ast.Expr(copy.test)]) == {"zb"}
    assert arrays_read(copy.body) == {"c"}
    assert arrays_read(copy.orelse) == {"c", "f", "i", "g"}
    assert not arrays_read(element.body[position + 1 :])


def paths_of_loads(ptx: str, names: dict[str, str]) -> set[frozenset[str]]:
    """For each path through a PTX kernel without loops, the parameters that its global loads go back to."""
    lines = [line.strip() for line in ptx.split("{", 1)[1].splitlines()]
    code = [line for line in lines if re.match(r"(\$L|@|[a-z])", line)]
    labels = {line.rstrip(":"): place for place, line in enumerate(code) if line.endswith(":")}
    origin: dict[str, set[str]] = {}
    for line in code:
        if match := re.match(r"(?:@!?%\w+ )?[\w.]+\s+(%\w+), (.*);", line):
            registers = set().union(*(origin.get(name, set()) for name in re.findall(r"%\w+", match[2])))
            parameters = {names[name] for name in re.findall(r"\w+_param_\d+", match[2]) if name in names}
            origin[match[1]] = origin.get(match[1], set()) | registers | parameters
    found: set[frozenset[str]] = set()

    def walk(place: int, seen: frozenset[str]) -> None:
        for line in code[place:]:
            place += 1
            if match := re.match(r"(@!?%\w+ )?ld\.global[\w.]*\s+\S+ \[(%\w+)", line):
                seen |= origin[match[2]]
            elif match := re.match(r"(@!?%\w+ )?bra(?:\.uni)?\s+(\S+);", line):
                walk(labels[match[2]], seen)
                if not match[1]:
                    return
            elif line.startswith("ret"):
                break
        found.add(seen)

    walk(0, frozenset())
    return found


@pytest.mark.cuda_compilers
def test_copy_reads_only_c_in_ptx() -> None:
    f = differentiable_broadcast(wrt=tuple("cfig"))(models.cell_update)
    ptx = f.inspect_ptx(*["float32"] * 6, cc=(9, 0))
    pointers = re.findall(r"\.param \.u64\s+(?:\.ptr[^,)]*?\s)?(\w+_param_\d+)", ptx)
    assert len(pointers) == 11
    paths = paths_of_loads(ptx, dict(zip(pointers, ("c", "f", "i", "g", "z", "zb"), strict=False)))
    wanted = ("", ("z", "i", "g"), ("z", "zb", "c"), ("z", "zb", "c", "f", "i", "g"))
    assert paths == set(map(frozenset, wanted))  # the first is that of threads past the end


@pytest.mark.cuda_compilers
def test_inspect_ptx_and_sass() -> None:
    f = differentiable_broadcast(wave)
    assert ".entry" in f.inspect_ptx("float32", "float32", cc=(9, 0))
    try:
        sass = f.inspect_sass("float32", "float32", cc=(9, 0))
    except MissingDependencyError as error:
        pytest.skip(str(error))
    assert "EXIT" in sass


@pytest.mark.cuda_compilers
def test_explain_for_a_device() -> None:
    text = str(differentiable_broadcast(wave).explain("float32", "float32", cc=(9, 0)))
    assert re.search(r"sm_90\s+\d+ registers, 0 bytes spilled, occupancy \d+%", text)


@pytest.mark.cuda_compilers
@pytest.mark.parametrize(
    "arity",
    [pytest.param(n, marks=[] if n in (1, 2, 5, 8, 16) else pytest.mark.slow) for n in range(1, 17)],
)
def test_the_arity_experiment_stays_in_registers(arity: int) -> None:
    kernel = differentiable_broadcast(models.product_of_tanh).explain(*["float32"] * arity, cc=(9, 0)).cuda
    assert kernel.registers <= 48
    assert (kernel.spill_stores, kernel.spill_loads, kernel.stack) == (0, 0, 0)
    if arity in (1, 5, 16):
        assert ".f64" not in kernel.ptx()


def test_an_attribute_of_an_object_is_guarded(backend: Any) -> None:
    place = SimpleNamespace(rate=2.0)
    f = differentiable_broadcast(backend=backend)(lambda x: x * place.rate)
    assert f(np.ones(1)) == 2.0
    place.rate = 5.0
    assert f(np.ones(1)) == 5.0
    place = SimpleNamespace(rate=7.0)
    assert f(np.ones(1)) == 7.0
