"""Captured arrays: each is one more broadcast argument, found anew at every call."""

from __future__ import annotations

import gc
import math
import sys
import threading
import time
import weakref
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cells import Cell
from corpus import CORPUS, Case
from oracles import numbers_of

from dualbcast import ArgumentError, CompileError, DTypeError, ShapeError, differentiable_broadcast

BACKENDS = ["python", "cpu"]
X = np.linspace(0.5, 2.0, 4)
A: Any = np.array([1.0, 2.0, 3.0, 4.0])
B: Any = np.array([[10.0], [20.0]])
SETTINGS = ModuleType("settings")
MATERIAL: Any = None


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def bind(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Rebinds a global of this module."""
    return lambda name, value: monkeypatch.setitem(globals(), name, value)


def times_a(x):
    return x * A


def combined(x):
    return times_a(x) + math.tanh(B * x) * A


def combined_with(x, a, b):
    """The same of arguments."""
    return x * a + math.tanh(b * x) * a


def test_it_is_the_same_as_an_argument(backend: Any) -> None:
    f = differentiable_broadcast(backend=backend)(combined)
    g = differentiable_broadcast(backend=backend)(combined_with)
    value, jacobian = f.value_and_jacobian(X, wrt=("x", "A", "B"))
    wanted, other = g.value_and_jacobian(X, A, B)
    assert value.shape == (2, 4)
    np.testing.assert_array_equal(value, wanted)
    np.testing.assert_allclose(value, X * A + np.tanh(B * X) * A, rtol=1e-14)
    assert jacobian.wrt == ("x", "A", "B")
    slope = 1 - np.tanh(B * X) ** 2
    by_hand = (A + slope * B * A, X + np.tanh(B * X), slope * X * A)
    for name, exact in zip(jacobian.wrt, by_hand, strict=True):
        np.testing.assert_array_equal(jacobian[name], other[{"x": "x", "A": "a", "B": "b"}[name]])
        np.testing.assert_allclose(jacobian[name], exact, rtol=1e-12, atol=1e-15)
    pulled = jacobian.pullback(np.ones((2, 4)))
    assert [cotangent.shape for cotangent in pulled] == [(4,), (4,), (2, 1)]
    assert f.jacobian(X).wrt == ("x",)
    assert f.jacobian(X, wrt="B").wrt == ("B",)
    assert f.jacobian(X, wrt=0).wrt == ("x",)
    with pytest.raises(ArgumentError, match="wrt=1 is no argument of this call; they are x, A, B"):
        f.jacobian(X, wrt=1)


@pytest.mark.parametrize("case", CORPUS, ids=lambda case: case.name)
def test_the_corpus_with_its_last_argument_captured(case: Case) -> None:
    function, kinds = case.function, {float: np.float64, int: np.int16, bool: np.bool_}
    *columns, last = (np.array(column, kinds[type(column[0])]) for column in zip(*case.points, strict=True))
    with np.errstate(all="ignore"):
        wanted = differentiable_broadcast(backend="python")(function).value_and_jacobian(*columns, last)
        f = differentiable_broadcast(backend="python")(lambda *rest: function(*rest, last))
        floats = [f"rest_{place}" for place, column in enumerate(columns) if column.dtype.kind == "f"]
        got = f.value_and_jacobian(*columns, wrt=(*floats, *(("last",) if last.dtype.kind == "f" else ())))
    np.testing.assert_equal(numbers_of(got[0]), numbers_of(wanted[0]))
    assert len(got[1].wrt) == len(wanted[1].wrt)
    for place in range(len(got[1])):
        np.testing.assert_equal(numbers_of(got[1][place]), numbers_of(wanted[1][place]))


def test_the_decorator_can_name_it(backend: Any) -> None:
    f = differentiable_broadcast(backend=backend, wrt=("A",))(times_a)
    jacobian = f.jacobian(X)
    assert jacobian.wrt == ("A",)
    assert jacobian["A"].tolist() == X.tolist()


def test_changes_are_seen(backend: Any, bind: Any) -> None:
    f = differentiable_broadcast(backend=backend)(times_a)
    changing = np.ones(4)
    bind("A", changing)
    assert f(X).tolist() == X.tolist()
    changing[:] = 3.0
    assert f(X).tolist() == (3 * X).tolist()
    for array in (
        np.arange(4.0)[::-1],
        np.ones((3, 1)),
        np.arange(4),
        np.array([True, False, True, True]),
        np.array(2.5),
        np.arange(4, dtype=np.uint8),
        np.zeros((0, 4)),
        np.frombuffer(b"\0" + np.arange(4.0).tobytes(), np.uint8)[1:].view(np.float64),
        np.arange(4.0).astype(">f8"),
    ):
        bind("A", array)
        for _ in range(2):
            value, jacobian = f.value_and_jacobian(X)
            assert value.tolist() == (X * array).tolist()
            assert jacobian["x"].tolist() == np.broadcast_to(array, value.shape).astype(float).tolist()


def test_an_array_may_become_a_number_and_back(backend: Any, bind: Any) -> None:
    f = differentiable_broadcast(backend=backend)(times_a)
    for thing in (np.arange(4.0), 2.0, np.ones(4), 3, np.float64(7.0), np.arange(4)):
        bind("A", thing)
        assert f(X).tolist() == (X * thing).tolist()
        if not isinstance(thing, np.ndarray):
            with pytest.raises(ArgumentError, match="wrt='A' is no argument"):
                f.jacobian(X, wrt="A")
    bind("A", [1.0])
    with pytest.raises(CompileError, match=r"A is captured.*of type list"):
        f(X)
    globals().pop("A")
    with pytest.raises(CompileError, match="the name A is not defined"):
        f(X)
    bind("A", np.ones(4))
    assert f(X).tolist() == X.tolist()


@pytest.mark.parametrize(
    ("x_dtype", "a_dtype", "result"),
    [
        ("f4", "f4", "f4"),
        ("f4", "f8", "f8"),
        ("f2", "f4", "f4"),
        ("f4", "i1", "f4"),
        ("f4", "i8", "f8"),
        ("i4", "?", "i8"),
    ],
)
def test_its_dtype_takes_part(x_dtype: str, a_dtype: str, result: str, backend: Any, bind: Any) -> None:
    bind("A", np.array([0, 1, 1, 0]).astype(a_dtype))
    f = differentiable_broadcast(backend=backend)(times_a)
    x = np.array([1, 2, 3, 4]).astype(x_dtype)
    for value in (f(x), differentiable_broadcast(backend=backend)(lambda x, a: x * a)(x, A)):
        assert value.dtype == np.dtype(result)
        assert value.tolist() == [0, 2, 3, 0]


def test_numbers_beside_it_are_weak(backend: Any, bind: Any) -> None:
    bind("A", np.ones(4, np.float32))
    assert differentiable_broadcast(backend=backend)(times_a)(2.5).dtype == np.float32


def test_arrays_that_are_captured_alone(backend: Any) -> None:
    def f():
        return A * B

    g = differentiable_broadcast(backend=backend)(f)
    value, jacobian = g.value_and_jacobian(wrt=("A", "B"))
    assert value.tolist() == (A * B).tolist() == g().tolist()
    assert jacobian["A"].tolist() == np.broadcast_to(B, (2, 4)).tolist()
    assert jacobian["B"].tolist() == np.broadcast_to(A, (2, 4)).tolist()
    assert g.jacobian().wrt == ()
    out = np.zeros((2, 4))
    assert g(out=out) is out
    assert out.tolist() == (A * B).tolist()
    value, jacobian = differentiable_broadcast(backend=backend)(times_a).value_and_jacobian(2.0)
    assert value.tolist() == (2 * A).tolist()
    assert jacobian["x"].tolist() == A.tolist()
    assert jacobian.pullback(np.ones(4))[0] == A.sum()


def test_no_arguments_and_no_arrays(backend: Any) -> None:
    value = differentiable_broadcast(backend=backend)(lambda: 2.5)()
    assert value == 2.5
    assert isinstance(value, np.float64)


def test_every_place_that_an_array_can_be_in(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = np.arange(4.0)
    pair = (np.ones(4), (2.0, 3 * np.ones(4)))
    record = SimpleNamespace(weights=np.full(4, 5.0), inner=SimpleNamespace(bias=np.full(4, 7.0)))
    SETTINGS.scale = np.full(4, 11.0)  # type: ignore[attr-defined]

    def f(x):
        return x * cell + pair[0] + pair[1][0] * pair[1][1] + record.weights + record.inner.bias + SETTINGS.scale

    g = differentiable_broadcast(backend=backend)(f)
    names = ("cell", "pair[0]", "pair[1][1]", "record.weights", "record.inner.bias", "SETTINGS.scale")
    value, jacobian = g.value_and_jacobian(X, wrt=names)
    assert value.tolist() == f(X).tolist()
    assert jacobian.wrt == names
    assert jacobian["cell"].tolist() == X.tolist()
    assert jacobian["pair[1][1]"].tolist() == [2.0] * 4
    cell = np.ones(4)
    pair = (np.zeros(4), (3.0, np.ones(4)))
    record.inner.bias = np.zeros(4)
    assert g(X).tolist() == f(X).tolist()
    record = SimpleNamespace(weights=np.full(4, 50.0), inner=record.inner)
    monkeypatch.setattr(SETTINGS, "scale", np.zeros(4))
    assert g(X).tolist() == f(X).tolist()


def test_a_property_makes_a_new_array_at_every_look(backend: Any) -> None:
    class Rates:
        looks = 0

        @property
        def now(self) -> Any:
            self.looks += 1
            return np.full(4, float(self.looks > 2))

    rates = Rates()
    f = differentiable_broadcast(backend=backend)(lambda x: x * rates.now)
    f(X)
    rates.looks = 10
    assert f(X).tolist() == X.tolist()


def test_a_property_that_raises(backend: Any) -> None:
    class Rates:
        broken = False

        @property
        def now(self) -> Any:
            return 1 / 0 if self.broken else A

    rates = Rates()
    f = differentiable_broadcast(backend=backend)(lambda x: x * rates.now)
    assert f(X).tolist() == (X * A).tolist()
    rates.broken = True
    with pytest.raises(CompileError, match="raises ZeroDivisionError"):
        f(X)
    rates.broken = False
    assert f(X).tolist() == (X * A).tolist()


def test_names_that_meet(backend: Any) -> None:
    """An argument, and arrays captured under its name by two functions."""
    first, second = np.full(4, 10.0), np.full(4, 100.0)

    def make(w):
        def g(x):
            return x * w

        return g

    one, two = make(first), make(second)
    f = differentiable_broadcast(backend=backend)(lambda x, w: w * x + one(x) + two(x))
    value = f(X, 1.0)
    assert value.tolist() == (X + 10 * X + 100 * X).tolist()
    with pytest.raises(ArgumentError) as caught:
        f.jacobian(X, 1.0, wrt="?")
    names = str(caught.value).partition("they are ")[2].split(", ")
    assert len(names) == len(set(names)) == 4
    jacobian = f.jacobian(X, 1.0, wrt=tuple(names))
    for name in names[1:]:
        assert jacobian[name].tolist() == X.tolist()
    assert jacobian["x"].tolist() == [111.0] * 4


def test_an_array_that_is_captured_twice_is_one_argument(backend: Any) -> None:
    f = differentiable_broadcast(backend=backend)(lambda x: times_a(x) + A * A)
    jacobian = f.jacobian(X, wrt="A")
    np.testing.assert_allclose(jacobian["A"], X + 2 * A)


def test_a_static_argument_chooses_the_array(backend: Any) -> None:
    f = differentiable_broadcast(static="which", backend=backend)(
        lambda x, which: x * A if which == "a" else x * B if which == "b" else x
    )
    for _ in range(2):
        assert f(X, "a").tolist() == (X * A).tolist()
        assert f(X, "b").tolist() == (X * B).tolist()
        assert f(X, "c").tolist() == X.tolist()


def test_out_may_overlap_a_captured_array(backend: Any, bind: Any) -> None:
    memory = np.arange(1.0, 9.0)
    bind("A", memory[::-1][:4])
    wanted = X * A
    out = memory[2:6]
    assert differentiable_broadcast(backend=backend)(times_a)(X, out=out) is out
    assert out.tolist() == wanted.tolist()


def test_errors_name_it(backend: Any, bind: Any) -> None:
    f = differentiable_broadcast(backend=backend)(times_a)
    bind("A", np.ones(3))
    with pytest.raises(ShapeError, match=r"x \(4,\), A \(3,\)"):
        f(X)
    bind("A", np.ones(4, np.longdouble))
    with pytest.raises(DTypeError, match="A has dtype"):
        f(X)
    bind("A", np.arange(4))
    with pytest.raises(ArgumentError, match="A is of dtype int64, which carries no derivative"):
        f.jacobian(X, wrt="A")
    bind("A", np.ma.masked_array(np.ones(4)))
    with pytest.raises(CompileError, match=r"A is captured.*MaskedArray"):
        f(X)


def test_numpy_and_cupy_do_not_mix(monkeypatch: pytest.MonkeyPatch, bind: Any) -> None:
    class DeviceArray:
        dtype, shape, strides, itemsize = np.dtype(np.float64), (4,), (8,), 8
        data = SimpleNamespace(ptr=0, device_id=0)

    module = ModuleType("cupy")
    module.ndarray = DeviceArray  # type: ignore[attr-defined]
    module.cuda = SimpleNamespace(runtime=SimpleNamespace(getDevice=lambda: 0))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupy", module)
    bind("A", DeviceArray())
    with pytest.raises(ArgumentError, match="x is a NumPy array and A is a CuPy array"):
        differentiable_broadcast(times_a)(X)
    bind("A", np.ones(4))
    with pytest.raises(ArgumentError, match="A is a NumPy array and x is a CuPy array"):
        differentiable_broadcast(times_a)(DeviceArray())


def test_looking_inside() -> None:
    f = differentiable_broadcast(combined)
    found = f.explain(X, product="value")
    assert found.shape == (2, 4)
    assert found.bytes_read == X.nbytes + A.nbytes + B.nbytes
    assert f.explain(X, wrt=("x", "A")).outputs == ("out", "out_dx", "out_dA")
    assert "A[" in f.inspect_source("float64")
    assert "A: float" in f.inspect_ir("float64")
    assert "define" in f.inspect_llvm(X)
    # Dtypes stand for arrays of the shape of those that are captured.
    assert f.explain("float32", product="value").shape == (2, 4)
    assert f.explain("bfloat16", product="value").bytes_read == 2 * 8 + A.nbytes + B.nbytes
    assert f.inspect_source("float64", product="value") == f.inspect_source(np.empty((2, 4)), product="value")


def test_a_captured_array_is_not_kept_alive(backend: Any) -> None:
    class Holder:
        weights: Any = np.ones(4)

    holder = Holder()
    f = differentiable_broadcast(backend=backend)(lambda x: x * holder.weights)
    first = holder.weights = np.full(4, 2.0)
    assert f(X).tolist() == (2 * X).tolist()
    gone = weakref.ref(first)
    del first
    holder.weights = np.full(4, 3.0)
    assert f(X).tolist() == (3 * X).tolist()
    gc.collect()
    assert gone() is None


@pytest.mark.slow
def test_a_name_may_be_rebound_while_others_call() -> None:
    rate: Any = 2.0
    f = differentiable_broadcast(backend="python")(lambda x: x * rate)
    things = [np.full(4, 2.0), np.full(4, 3), np.full((2, 4), 5.0, np.float32), 7.0, 11, np.array(13.0)]
    results, failures, done = [], [], threading.Event()

    def call() -> None:
        while not done.is_set():
            try:
                value, jacobian = f.value_and_jacobian(np.ones(4))
                results.append({*value.ravel().tolist(), *jacobian["x"].ravel().tolist()})
            except BaseException as error:
                failures.append(error)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for place in range(300):
        rate = things[place % len(things)]
        time.sleep(0.001)
    done.set()
    for thread in threads:
        thread.join()
    assert not failures
    assert results
    assert all(len(result) == 1 and result < {2.0, 3.0, 5.0, 7.0, 11.0, 13.0} for result in results)


@pytest.mark.parametrize("_round", range(3))
def test_threads_may_call_first_at_once(_round: int) -> None:
    weights = np.arange(9.0)
    f = differentiable_broadcast(lambda x: x * weights)
    gate, results, failures = threading.Barrier(8), {}, []

    def call(number: int) -> None:
        x = np.full((4, 9), float(number), "f4" if number % 3 else "f8")
        gate.wait()
        try:
            results[number] = f.value_and_jacobian(x, wrt="weights") if number % 2 else (f(x), None)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    for number, (value, jacobian) in results.items():
        np.testing.assert_array_equal(value, np.tile(number * weights, (4, 1)))
        if jacobian is not None:
            assert (jacobian["weights"] == number).all()


def scaled(x):
    return MATERIAL.stiffness * x + MATERIAL.offsets


def test_another_module_under_the_name_is_seen(backend: Any, bind: Any) -> None:
    f = differentiable_broadcast(backend=backend)(scaled)
    for stiffness, offset, kind in (
        (200.0, 1.0, ModuleType),
        (0.5, 7.0, ModuleType),
        (3.0, 2.0, lambda _: SimpleNamespace()),
    ):
        module = kind("material")
        module.stiffness, module.offsets = stiffness, np.full(4, offset)
        bind("MATERIAL", module)
        value, jacobian = f.value_and_jacobian(X)
        np.testing.assert_allclose(value, stiffness * X + offset, rtol=1e-15)
        np.testing.assert_array_equal(jacobian["x"], np.full(4, stiffness))


def test_another_module_under_an_attribute_or_in_a_closure_is_seen(backend: Any) -> None:
    first, second = ModuleType("first"), ModuleType("second")
    first.power, second.power = 2, 3
    holder = SimpleNamespace(module=first)
    inner = first

    @differentiable_broadcast(backend=backend)
    def through_an_attribute(x):
        return x**holder.module.power

    @differentiable_broadcast(backend=backend)
    def in_a_closure(x):
        return x**inner.power

    for module in (first, second, first):
        inner = holder.module = module
        for f in (through_an_attribute, in_a_closure):
            value, jacobian = f.value_and_jacobian(X)
            np.testing.assert_allclose(value, X**module.power, rtol=1e-15)
            np.testing.assert_allclose(jacobian["x"], module.power * X ** (module.power - 1), rtol=1e-15)


def test_a_name_that_hides_a_builtin_one_is_seen(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    f = differentiable_broadcast(backend=backend)(lambda x: abs(x))
    np.testing.assert_array_equal(f(-X), X)
    with monkeypatch.context() as patch:
        patch.setitem(globals(), "abs", lambda x: 3 * x)
        value, jacobian = f.value_and_jacobian(-X)
        np.testing.assert_array_equal(value, -3 * X)
        np.testing.assert_array_equal(jacobian["x"], np.full(4, 3.0))
    np.testing.assert_array_equal(f(-X), X)


def test_a_name_in_an_assertion_is_seen(backend: Any) -> None:
    cell = Cell("limit = 3\n\n\ndef f(x):\n    assert limit > 2\n    return x")
    f = differentiable_broadcast(backend=backend)(cell.names["f"])
    np.testing.assert_array_equal(f(X), X)
    cell.names["limit"] = 1
    with pytest.raises(CompileError, match="this assertion fails"):
        f(X)


def test_code_that_is_replaced_is_seen(backend: Any) -> None:
    """As IPython's autoreload does to functions whose file has changed."""

    def helper(x):
        return 2 * x

    def edited(x):
        return x * x * x

    def main(x):
        return helper(x) + 1

    def main_edited(x):
        return helper(x) + 100

    f = differentiable_broadcast(backend=backend)(main)
    np.testing.assert_array_equal(f.jacobian(X)["x"], np.full(4, 2.0))
    helper.__code__ = edited.__code__
    value, jacobian = f.value_and_jacobian(X)
    np.testing.assert_allclose(value, X**3 + 1, rtol=1e-15)
    np.testing.assert_allclose(jacobian["x"], 3 * X**2, rtol=1e-15)
    main.__code__ = main_edited.__code__
    np.testing.assert_allclose(f(X), X**3 + 100, rtol=1e-15)


def test_another_way_to_call_an_object_is_seen(backend: Any) -> None:
    class Doubles:
        def __call__(self, x):
            return 2 * x

    class Triples:
        def __call__(self, x):
            return 3 * x

    scale: Any = Doubles()
    f = differentiable_broadcast(backend=backend)(lambda x: scale(x))
    np.testing.assert_array_equal(f.jacobian(X)["x"], np.full(4, 2.0))
    scale.__class__ = Triples
    np.testing.assert_array_equal(f.jacobian(X)["x"], np.full(4, 3.0))

    def by_factor(self, x):
        return self.factor * x

    scale.factor = 5.0
    Triples.__call__ = by_factor
    np.testing.assert_array_equal(f.jacobian(X)["x"], np.full(4, 5.0))


def test_what_a_module_has_is_seen(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python functions and arrays, also those of a module that makes them only when they are asked for."""
    module = ModuleType("parameters")
    f = differentiable_broadcast(backend=backend)(lambda x: module.scale(x) * module.rest)
    monkeypatch.setattr(module, "rest", np.full(4, 3.0), raising=False)
    made = {"scale": lambda x: 2 * x}
    monkeypatch.setattr(module, "__getattr__", lambda name: made[name], raising=False)
    np.testing.assert_array_equal(f.jacobian(X)["x"], np.full(4, 6.0))
    made["scale"] = lambda x: 5 * x
    np.testing.assert_array_equal(f.jacobian(X)["x"], np.full(4, 15.0))
    monkeypatch.setattr(module, "scale", lambda x: 7 * x, raising=False)
    monkeypatch.setattr(module, "rest", np.full(4, 2.0))
    np.testing.assert_array_equal(f.jacobian(X)["x"], np.full(4, 14.0))
    monkeypatch.setattr(module, "scale", lambda x: 9 * x)
    np.testing.assert_array_equal(f.jacobian(X)["x"], np.full(4, 18.0))


def test_a_captured_zero_of_the_other_sign_is_seen(backend: Any, bind: Any) -> None:
    bind("A", 0.0)
    f = differentiable_broadcast(backend=backend)(lambda x: math.copysign(x, A))
    np.testing.assert_array_equal(f(X), X)
    bind("A", -0.0)
    np.testing.assert_array_equal(f(X), -X)


def test_integers_beyond_floats_are_refused_at_the_line() -> None:
    """An OverflowError of the package came out."""
    large = 10**400
    pair = (1, large)
    for function in (lambda x: x * large, lambda x: x * pair[1], lambda x, k=10**400: x * k):
        with pytest.raises(CompileError, match="an integer beyond the range of floats"):
            differentiable_broadcast(function)(np.ones(2))
