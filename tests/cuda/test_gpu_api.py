"""The public interface on CuPy arrays, held against the CPU backend on the same numbers."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from corpus import CORPUS, Case
from models import cell_update
from oracles import numbers_of
from suites import sampled

from dualbcast import (
    ArgumentError,
    BackendError,
    FailedAssertion,
    IterationError,
    NonFiniteError,
    differentiable_broadcast,
)
from dualbcast.runtime.cuda import launch as cuda_launch

pytestmark = pytest.mark.gpu
RNG = np.random.default_rng(7)


@pytest.fixture
def xp() -> Any:
    return pytest.importorskip("cupy")


@differentiable_broadcast
def wavy(x: float, y: float, z: float) -> tuple[float, float]:
    """Two outputs, one that never depends on z."""
    if x > y:
        return math.sin(x) * y + z, x * y
    return math.exp(-x) * z, math.tanh(y) - x


def host(array: Any) -> np.ndarray[Any, Any]:
    return array.get() if hasattr(array, "get") else np.asarray(array)


def assert_same(xp: Any, function: Any, arrays: tuple[Any, ...], allowance: float = 64.0, **options: Any) -> None:
    """The value and every block of the Jacobian are those of the CPU backend, and are CuPy's."""
    expected, expected_jacobian = function.value_and_jacobian(*arrays, **options)
    device = tuple(xp.asarray(array) if isinstance(array, np.ndarray) else array for array in arrays)
    value, jacobian = function.value_and_jacobian(*device, **options)
    pairs = list(zip(numbers_of(value), numbers_of(expected), strict=True))
    pairs += [
        (jacobian[output, name], expected_jacobian[output, name])
        for output in range(jacobian.outputs)
        for name in jacobian.wrt
    ]
    for got, want in pairs:
        assert isinstance(got, xp.ndarray)
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        eps = float(np.finfo(want.dtype).eps) if want.dtype.kind == "f" else 0.0
        np.testing.assert_allclose(host(got), want, rtol=allowance * eps, atol=allowance * eps)


def picked(case: Case, dtype: Any) -> tuple[Any, ...]:
    """A thousand of the points of a case, an array for each argument."""
    kinds = {float: dtype, int: np.int16, bool: np.bool_}
    columns = [np.array(column, kinds[type(column[0])]) for column in zip(*case.points, strict=True)]
    picks = RNG.integers(0, len(case.points), 1000)
    return tuple([column[picks] for column in columns])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", CORPUS, ids=lambda case: case.name)
def test_the_corpus(xp: Any, case: Case, dtype: Any) -> None:
    arrays = picked(case, dtype)
    # Another last bit of a sine can take another branch only where a test is on the edge, which no point is.
    assert_same(xp, differentiable_broadcast(case.function), arrays, allowance=16 * case.allowance)


@pytest.mark.parametrize("case", sampled(CORPUS, 2), ids=lambda case: case.name)
def test_the_corpus_forward_and_back(xp: Any, case: Case) -> None:
    function, arrays = differentiable_broadcast(case.function), picked(case, np.float32)
    wrt = function.jacobian(*arrays).wrt
    if not wrt:
        pytest.skip("nothing to differentiate in")
    tangents = {name: RNG.standard_normal(1000).astype(np.float32) for name in wrt}
    cotangents = [RNG.standard_normal(1000).astype(array.dtype) for array in numbers_of(function(*arrays))]

    def products(xp: Any) -> Any:
        given = tuple(map(xp.asarray, arrays))
        bars = tuple(map(xp.asarray, cotangents))
        _, pushed = function.jvp(given, {name: xp.asarray(tangent) for name, tangent in tangents.items()})
        _, pulled = function.value_and_vjp(given, bars if len(bars) > 1 else bars[0], wrt=wrt)
        return [*numbers_of(pushed), *pulled]

    eps = float(np.finfo(np.float32).eps)
    for got, want in zip(products(xp), products(np), strict=True):
        scale = max(1.0, float(np.max(np.abs(want))))
        np.testing.assert_allclose(host(got), want, rtol=64 * eps, atol=64 * case.allowance * scale * eps)


@pytest.mark.parametrize(
    "shapes",
    [
        ((), (), ()),
        ((7,), (1,), ()),
        ((5, 7), (7,), (5, 1)),
        ((3, 1, 7), (4, 1), (1, 1, 7)),
        ((2, 3, 4, 5), (4, 1), (3, 1, 5)),
        ((0, 3), (3,), ()),
        ((70000, 2), (70000, 1), (2,)),
    ],
)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_broadcasting(xp: Any, shapes: tuple[tuple[int, ...], ...], dtype: Any) -> None:
    arrays = tuple(RNG.standard_normal(shape).astype(dtype) if shape else np.asarray(0.5, dtype) for shape in shapes)
    if not any(shapes):
        device = tuple(xp.asarray(array) for array in arrays)
        values = wavy(*device)
        assert all(isinstance(value, xp.ndarray) and value.shape == () for value in values)
        np.testing.assert_allclose([float(value) for value in values], [float(v) for v in wavy(*arrays)], rtol=1e-2)
        return
    assert_same(xp, wavy, arrays)


def test_strides(xp: Any) -> None:
    base = RNG.standard_normal((3, 40, 60)).astype(np.float32)
    views = (lambda a: a[0].T, lambda a: a[1, ::-1, ::-1].T, lambda a: a[2, ::2].repeat(2, 0).T)
    expected = wavy(*(view(base) for view in views))
    got = wavy(*(view(xp.asarray(base)) for view in views))
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(host(one), other, rtol=1e-5, atol=1e-6)


def test_integers_bools_and_weak_scalars(xp: Any) -> None:
    def mixed(x: float, n: int, flag: bool, scale: float) -> tuple[float, int, bool]:
        return (x * scale if flag else x / (1 + n * n)), n // 3 - n % 4, flag and n > 2

    function = differentiable_broadcast(mixed)
    n = RNG.integers(-9, 9, 100).astype(np.int8)
    assert_same(xp, function, (RNG.standard_normal(100).astype(np.float32), n, n % 2 == 0, 1.5))


def test_the_cell_update_with_control_by_rows(xp: Any) -> None:
    c, f, i, g = RNG.standard_normal((4, 64, 96)).astype(np.float32)
    z, zb = RNG.integers(0, 2, (2, 64, 1)).astype(np.float32)
    assert_same(xp, differentiable_broadcast(cell_update), (c, f, i, g, z, zb), wrt=("c", "f", "i", "g"))


def test_value_and_jacobian_are_one_launch(xp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    launches: list[Any] = []
    launch = cuda_launch.launch
    monkeypatch.setattr(cuda_launch, "launch", lambda *a, **k: launches.append(a) or launch(*a, **k))
    wavy.value_and_jacobian(xp.ones(5), xp.ones(5), 2.0)
    assert len(launches) == 1


def test_out_may_be_strided_or_an_argument(xp: Any) -> None:
    x = RNG.standard_normal((30, 20)).astype(np.float32)
    double = differentiable_broadcast(lambda a: 2 * a)
    whole = xp.zeros((30, 40), np.float32)
    result = double(xp.asarray(x), out=whole[:, ::2])
    np.testing.assert_array_equal(host(result), 2 * x)
    np.testing.assert_array_equal(host(whole[:, 1::2]), 0)
    square = xp.asarray(x[:20])
    double(square.T, out=square)
    np.testing.assert_array_equal(host(square), 2 * x[:20].T)


def test_misaligned_arrays_are_copied(xp: Any) -> None:
    """As NumPy's are: here fields of records that begin with a byte, and an array that begins behind one."""
    records = np.zeros((6, 4), [("tag", "u1"), ("field", "f4")])
    records["field"] = RNG.standard_normal((6, 4))
    memory = xp.asarray(records.view(np.uint8))
    fields = xp.ndarray((4, 6), np.float32, memory.data + 1, strides=(5, 20))
    double = differentiable_broadcast(lambda a: 2 * a)
    row = differentiable_broadcast(lambda i, table: table[1, i], whole="table")
    expected = records["field"].T.copy()
    np.testing.assert_array_equal(host(double(fields)), 2 * expected)
    np.testing.assert_array_equal(host(row(xp.arange(6), fields)), expected[1])
    assert double(xp.asarray(expected), out=fields) is fields
    records["field"] *= 2
    np.testing.assert_array_equal(host(memory), records.view(np.uint8))
    together = xp.ndarray((2, 3), np.float32, memory.data + 1)
    double(xp.arange(6, dtype=np.float32).reshape(2, 3), out=together)
    np.testing.assert_array_equal(host(row(xp.arange(3), together)), [6.0, 8.0, 10.0])


def test_copies_of_derivatives_have_arrays_of_their_own(xp: Any) -> None:
    x = xp.asarray(RNG.standard_normal(50))
    for _ in range(2):  # a warm call makes its arrays when they are asked for
        for copied in (copy.deepcopy, lambda jacobian: pickle.loads(pickle.dumps(jacobian))):
            jacobian = wavy.jacobian(x, 2.0, 1.0)
            theirs, ours = copied(jacobian)[0, "x"], jacobian[0, "x"]
            assert isinstance(theirs, xp.ndarray) and theirs.data.ptr != ours.data.ptr
            np.testing.assert_array_equal(host(theirs), host(ours))


def test_pullback_and_pushforward(xp: Any) -> None:
    x, y = RNG.standard_normal((4, 5)), RNG.standard_normal((4, 1))
    _, expected = wavy.value_and_jacobian(x, y, 1.0, wrt=("x", "y"))
    _, got = wavy.value_and_jacobian(xp.asarray(x), xp.asarray(y), 1.0, wrt=("x", "y"))
    ones = np.ones((4, 5))
    for one, other in zip(got.pullback(xp.asarray(ones), xp.asarray(x)), expected.pullback(ones, x), strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(host(one), other, rtol=1e-12)


def test_a_pullback_of_nothing(xp: Any) -> None:
    function = differentiable_broadcast(lambda x, y, s: x * y * s)
    arguments = xp.ones((2, 0, 3)), xp.ones(3), xp.asarray(0.5)
    _, found = function.value_and_vjp(arguments, xp.ones((2, 0, 3)))
    assert [each.shape for each in found] == [(2, 0, 3), (3,), ()]
    assert float(found[2]) == 0.0


def test_launches_are_on_the_current_stream(xp: Any) -> None:
    x = xp.arange(1_000_000, dtype=np.float32)
    double = differentiable_broadcast(lambda a: 2 * a)
    with xp.cuda.Stream(non_blocking=True) as stream:
        y = x
        for _ in range(20):
            y = double(y) / 2
        stream.synchronize()
    np.testing.assert_array_equal(host(y), host(x))


def test_kinds_of_arrays_do_not_mix(xp: Any) -> None:
    with pytest.raises(ArgumentError, match="CuPy"):
        wavy(xp.ones(3), np.ones(3), 1.0)
    with pytest.raises(BackendError, match="CuPy"):
        differentiable_broadcast(backend="cpu")(wavy.__wrapped__)(xp.ones(3), 1.0, 1.0)
    with pytest.raises(BackendError, match="NumPy"):
        differentiable_broadcast(backend="cuda")(wavy.__wrapped__)(np.ones(3), 1.0, 1.0)


def test_an_error_names_the_array_of_another_library(xp: Any) -> None:
    ours, theirs = xp.ones(3), np.ones(3)
    product = differentiable_broadcast(lambda x, y: x * y)
    jacobian = product.jacobian(ours, 2.0)
    for call, message in (
        (lambda: product.vjp(ours, 2.0)[1](theirs), "a cotangent is a NumPy array and x is a CuPy array"),
        (lambda: product.value_and_vjp((theirs, 2.0), ours), "x is a NumPy array and a cotangent is a CuPy array"),
        (lambda: product.jvp((ours, 2.0), (theirs, 1.0)), "a tangent is a NumPy array and x is a CuPy array"),
        (lambda: product.normal_equations(ours, 2.0, weights=theirs), "the weight is a NumPy array"),
        (lambda: jacobian.pullback(theirs), "a cotangent is a numpy.ndarray, and the blocks are CuPy"),
        (lambda: jacobian.pushforward(theirs, 1.0), "the tangent of x is a numpy.ndarray, and the blocks are CuPy"),
    ):
        with pytest.raises(ArgumentError, match=message):
            call()


@pytest.mark.filterwarnings("error")
def test_a_constant_beyond_float32_is_infinite_without_a_warning(xp: Any) -> None:
    huge = differentiable_broadcast(lambda x: x * 1e300)
    np.testing.assert_array_equal(host(huge(xp.ones(3, np.float32))), np.inf)


def test_a_captured_array_is_an_argument(xp: Any) -> None:
    weights = xp.asarray(RNG.standard_normal((3, 1)).astype(np.float32))
    x = xp.asarray(RNG.standard_normal((3, 50)).astype(np.float32))
    captured = differentiable_broadcast(lambda x: math.tanh(weights * x))
    passed = differentiable_broadcast(lambda x, weights: math.tanh(weights * x))
    value, jacobian = captured.value_and_jacobian(x, wrt=("x", "weights"))
    wanted, other = passed.value_and_jacobian(x, weights)
    for got, want in ((value, wanted), (jacobian["x"], other["x"]), (jacobian["weights"], other["weights"])):
        np.testing.assert_array_equal(host(got), host(want))


def test_a_captured_numpy_array_beside_cupy_arrays(xp: Any) -> None:
    weights = np.ones(3)
    with pytest.raises(ArgumentError, match="weights is a NumPy array"):
        differentiable_broadcast(lambda x: weights * x)(xp.ones(3))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_numbers_beside_arrays(xp: Any, dtype: Any) -> None:
    function = differentiable_broadcast(lambda x, scale, n, flag: x * scale + n if flag else x)
    x = RNG.integers(-8, 8, 1001).astype(dtype)
    try:
        device = xp.asarray(x)
    except (TypeError, ValueError) as error:
        pytest.skip(f"this CuPy has no {np.dtype(dtype)}: {error}")
    for scale, n, flag in ((0.5, 3, True), (dtype(2), 4, True), (1.0, np.int8(-5), False)):
        for size in (1, 1000, 1001):
            found = function(device[:size], scale, n, flag)
            np.testing.assert_array_equal(found.get().astype(np.float64), function(x[:size], scale, n, flag))


def test_a_warm_call_with_out(xp: Any) -> None:
    double = differentiable_broadcast(lambda a, scale: a * scale)
    x, y = xp.arange(64.0), xp.zeros(64)
    for scale in (2.0, 3.0):
        assert double(x, scale, out=y) is y
        np.testing.assert_array_equal(y.get(), scale * np.arange(64.0))
    double(x, 2.0, out=x)
    double(x[:32], 2.0, out=x[16:48])
    expected = 2 * np.arange(64.0)
    expected[16:48] = 2 * expected[:32].copy()
    np.testing.assert_array_equal(x.get(), expected)


def test_a_pullback_with_nothing_but_sums(xp: Any) -> None:
    function = differentiable_broadcast(lambda x, w: x * w)
    x, w = RNG.integers(-8, 8, (70, 33)).astype(np.float32), np.ones(33, np.float32)
    (found,) = function.vjp(xp.asarray(x), xp.asarray(w), wrt="w")[1](xp.ones((70, 33), np.float32))
    np.testing.assert_array_equal(found.get(), x.sum(0))


def test_calls_in_a_graph_of_launches(xp: Any) -> None:
    """As docs/guides/memory.md has it: with a pullback, whose partial sums are gone after the call, and a number."""
    function = differentiable_broadcast(lambda x, w, scale: math.tanh(x * w) * scale)
    x, w = xp.ones((300, 64), np.float32), xp.full((300, 1), 0.5, np.float32)
    bar = xp.ones((300, 64), np.float32)
    stream, pool = xp.cuda.Stream(non_blocking=True), xp.cuda.MemoryPool()
    xp.cuda.Device().synchronize()

    def step() -> Any:
        value, jacobian = function.value_and_jacobian(x, w, 2.0)
        return value, jacobian["x"], jacobian["w"], *function.value_and_vjp((x, w, 2.0), bar, wrt=("x", "w"))[1]

    with stream, xp.cuda.using_allocator(pool.malloc):
        step()
        stream.begin_capture()
        results = step()
        launches = stream.end_capture()
    for number in (0.25, -1.5):
        x.fill(number)
        xp.cuda.Device().synchronize()
        launches.launch(stream)
        stream.synchronize()
        found = [array.get() for array in results]
        for one, other in zip(found, step(), strict=True):
            np.testing.assert_array_equal(one, other.get())
        np.testing.assert_allclose(found[0], 2 * np.tanh(0.5 * number), rtol=1e-6)


def test_several_devices_take_turns(xp: Any) -> None:
    count = xp.cuda.runtime.getDeviceCount()
    if count < 2:
        pytest.skip("needs two GPUs")
    function = differentiable_broadcast(lambda x, y: x * y * y)
    for turn in range(3):
        for device in range(count):
            with xp.cuda.Device(device):
                x = xp.full(100, 1.0 + turn)
            value, jacobian = function.value_and_jacobian(x, x)
            found = [value, jacobian["x"], jacobian["y"], *jacobian.pullback(value), *function.vjp(x, x)[1](value)]
            assert {array.device.id for array in found} == {device}
            with xp.cuda.Device(device):
                np.testing.assert_array_equal(value.get(), (1.0 + turn) ** 3)
    assert xp.cuda.runtime.getDevice() == 0


@differentiable_broadcast
def checked_root(x: float, scale: float) -> float:
    assert x >= 0.0, f"no root of {x}"
    if x > 8.0:
        print("large", x)
    return math.sqrt(x) * scale


def test_a_check_names_the_first_element(xp: Any) -> None:
    x = xp.asarray(np.array([[1.0, 4.0, 0.0], [0.0, 9.0, 1.0]], np.float32))
    for _ in range(2):
        assert host(checked_root(x, 2.0, check="finite")).tolist() == [[2.0, 4.0, 0.0], [0.0, 6.0, 2.0]]
        for product in (checked_root.jacobian, checked_root.value_and_jacobian, checked_root.hessian):
            with pytest.raises(NonFiniteError, match=r"/ 0\.0 = inf here") as caught:
                product(x, np.float32(2.0), check="finite")
            assert caught.value.index == (0, 2)
            assert caught.value.inputs == {"x": 0.0, "scale": 2.0}
            assert caught.value.lineno == checked_root.__wrapped__.__code__.co_firstlineno + 5
    value, pullback = checked_root.vjp(x, 2.0, check="finite")
    with pytest.raises(NonFiniteError) as caught:
        pullback(xp.ones((2, 3)).astype(value.dtype))
    assert caught.value.index == (0, 2)


def test_debug_statements_run_if_asked(xp: Any, capsys: Any) -> None:
    x = xp.asarray([4.0, 9.0, 16.0])
    assert host(checked_root(x, 1.0)).tolist() == [2.0, 3.0, 4.0]
    assert capsys.readouterr().out == ""
    assert host(checked_root(x, 1.0, debug=True)).tolist() == [2.0, 3.0, 4.0]
    assert capsys.readouterr().out == "large 9.0\nlarge 16.0\n"
    assert np.isnan(host(checked_root(-x, 1.0))).all()
    with pytest.raises(FailedAssertion, match=r"for the element at index \(0,\): no root of -4\.0"):
        checked_root(-x, 1.0, debug=True)


def test_the_trace_of_an_element(xp: Any) -> None:
    trace = checked_root.trace(xp.asarray([4.0, 9.0]), 3.0, index=1)
    assert trace.arguments == {"x": 9.0, "scale": 3.0}
    assert trace.value == 9.0
    assert trace.rows[-1].partials == {"x": 0.5, "scale": 3.0}


def test_max_iterations_names_the_first_element(xp: Any) -> None:
    @differentiable_broadcast(max_iterations=40)
    def root(a: float) -> float:
        u = a
        while True:
            step = (u * u - a) / (2 * u)
            u = u - step
            if abs(step) < 1e-13 * abs(u):
                break
        return u

    good = xp.asarray(np.linspace(1.0, 9.0, 3000).reshape(3, 1000))
    bad = good.copy()
    bad[1, 7] = bad[2, 3] = -1.0
    for _ in range(3):
        value, jacobian = root.value_and_jacobian(good)
        np.testing.assert_allclose(host(value), np.sqrt(host(good)), rtol=1e-14)
        np.testing.assert_allclose(host(jacobian["a"]), 0.5 / np.sqrt(host(good)), rtol=1e-12)
        with pytest.raises(IterationError) as found:
            root.value_and_jacobian(bad)
        assert found.value.index == (1, 7)
        assert found.value.count == 2
