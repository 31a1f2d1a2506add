"""Bad input to a call gives its one clear error before anything runs, and leaves the arrays of `out=` untouched."""

from __future__ import annotations

import copy
import math
import pickle
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dualbcast import differentiable_broadcast
from dualbcast.errors import (
    ArgumentError,
    BackendError,
    CompileError,
    DTypeError,
    DualbcastError,
    IterationError,
    Location,
    MissingDependencyError,
    ShapeError,
)
from dualbcast.runtime import interpreter
from dualbcast.runtime.cpu import kernel as cpu_kernel

A = np.linspace(1, 2, 12, dtype=np.float32).reshape(3, 4)
WEIGHTS = np.array(["a", "b", "c", "d"])


@differentiable_broadcast
def scaled(x, scale):
    return x * scale


@differentiable_broadcast
def polar(x, y):
    return math.hypot(x, y), math.atan2(y, x)


@differentiable_broadcast
def weighted(x):
    return x * WEIGHTS


@differentiable_broadcast
def divisor(x, y):
    return math.gcd(x, y)


@differentiable_broadcast
def difference(x):
    return x - x[1]


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """No kernel may be made or run."""
    for module, name in (
        (cpu_kernel, "compile_program"),
        (cpu_kernel, "launch"),
        (interpreter, "PythonKernel"),
    ):
        monkeypatch.setattr(module, name, lambda *_, name=name: pytest.fail(f"{name} was reached"))


class DeviceArray:
    """As much of a CuPy array as it takes to be recognised as one."""

    dtype, shape, strides, itemsize = np.dtype(np.float32), (3, 4), (16, 4), 4
    data = SimpleNamespace(ptr=0, device_id=0)


@pytest.fixture
def device_array(monkeypatch: pytest.MonkeyPatch) -> DeviceArray:
    module = ModuleType("cupy")
    module.ndarray = DeviceArray  # type: ignore[attr-defined]
    module.cuda = SimpleNamespace(runtime=SimpleNamespace(getDevice=lambda: 0))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupy", module)
    return DeviceArray()


def decorated(**options: Any) -> Any:
    return differentiable_broadcast(**options)(lambda x, scale: x * scale)


# Kind: (error, words that its message must hold, calls that must give it). `out` has the shape and dtype of a result.
Calls = list[Callable[[np.ndarray], Any]]
KINDS: dict[str, tuple[type[DualbcastError], tuple[str, ...], Calls]] = {
    "mismatched shapes": (
        ShapeError,
        ("x (3, 4)", "scale (3,)", "lengths 3 and 4"),
        [lambda out: scaled(A, np.ones(3, "f"), out=out), lambda _: scaled.jacobian(A, np.ones(3, "f"))],
    ),
    "unsupported dtype": (
        DTypeError,
        ("scale has dtype", "not supported", "Pass scale."),
        [lambda out, dtype=dtype: scaled(A, A.astype(dtype), out=out) for dtype in ("V8", "O", "U3")],
    ),
    "wrong argument count": (
        ArgumentError,
        ("(x, scale) takes 2 arguments, and 3 are given",),
        [lambda out: scaled(A, A, A, out=out), lambda out: decorated()(A, A, A, out=out)],
    ),
    "missing argument": (
        ArgumentError,
        ("scaled(x, scale) lacks a value for", "scale"),
        [lambda out: scaled(A, out=out), lambda out: scaled(out=out), lambda out: scaled(x=A, out=out)],
    ),
    "wrong name of an argument": (
        ArgumentError,
        ("scaled(x, scale)", "scale"),
        [lambda out: scaled(A, factor=A, out=out), lambda out: scaled(A, A, scale=A, out=out)],
    ),
    "not an array": (
        ArgumentError,
        ("scale is", "not an array or a number", "Pass"),
        [
            lambda out, thing=thing: scaled(A, thing, out=out)
            for thing in ("1", None, {1.0, 2.0}, {1: 2}, object(), (x for x in (1.0,)))
        ],
    ),
    "read-only out": (
        ArgumentError,
        ("out", "read-only"),
        [lambda out: scaled(A, A, out=frozen(out)), lambda out: polar(A, A, out=(out, frozen(out.copy())))],
    ),
    "wrong shape of out": (
        ShapeError,
        ("out", "has shape", "(3, 4)"),
        [
            lambda out: scaled(A, A, out=out[:2]),
            lambda out: scaled(A, A, out=out.T),
            lambda out: scaled(A, A, out=out[None]),
            lambda out: polar(A, A, out=(out, out[0].copy())),
        ],
    ),
    "wrong dtype of out": (
        DTypeError,
        ("out", "has dtype float64", "float32"),
        [lambda out: scaled(A, A, out=out.astype("d")), lambda out: polar(A, A, out=(out, out.astype("d")))],
    ),
    "wrong count of out": (
        ArgumentError,
        ("out", "outputs"),
        [
            lambda out: scaled(A, A, out=(out, out.copy())),
            lambda out: polar(A, A, out=out),
            lambda out: polar(A, A, out=(out,)),
            lambda _: polar(A, A, out=()),
        ],
    ),
    "out of another kind": (
        ArgumentError,
        ("out is", "NumPy array"),
        [lambda _: scaled(A, A, out="out"), lambda _: scaled(A, A, out=1.0)],
    ),
    "unknown wrt": (
        ArgumentError,
        ("wrt=", "argument"),
        [
            lambda _, wrt=wrt: scaled.value_and_jacobian(A, A, wrt=wrt)
            for wrt in ("y", 2, -3, ("x", "y"), True, (None,), 1.0, (["x"],), {"x": 1}.items())
        ],
    ),
    "wrt of an integer": (
        ArgumentError,
        ("scale is ", "int", "no derivative"),
        [
            lambda _: scaled.jacobian(A, np.arange(4), wrt="scale"),
            lambda _: scaled.jacobian(A, 3, wrt=("x", "scale")),
            lambda _: decorated(wrt="scale").jacobian(A, np.arange(4)),
        ],
    ),
    "unknown backend": (
        BackendError,
        ("there is no backend", "auto, python, cpu or cuda"),
        [
            lambda _: decorated(backend="gpu"),
            lambda _: decorated(backend=None),
            lambda _: decorated(backend=["cpu"]),
        ],
    ),
    "backend for other arrays": (
        BackendError,
        ("cuda backend cannot use NumPy arrays",),
        [lambda out: decorated(backend="cuda")(A, A, out=out), lambda _: decorated(backend="cuda").jacobian(A, A)],
    ),
    "captured array": (
        DTypeError,
        ("WEIGHTS has dtype <U1", "not supported", "Pass WEIGHTS.astype('float64')"),
        [lambda out: weighted(A, out=out), lambda _: weighted.value_and_jacobian(A), lambda _: weighted.explain(A)],
    ),
    "function without a rule": (
        CompileError,
        ("no derivative rule for math.gcd", "test_argument_errors.py:", "return math.gcd(x, y)"),
        [lambda out: divisor(A, A, out=out), lambda _: divisor.jacobian(A, A), lambda _: divisor.inspect_ir(A, A)],
    ),
    "indexed parameter": (
        CompileError,
        ("one element of its array", "return x - x[1]", "^^^^"),
        [lambda out: difference(A, out=out), lambda _: difference.jacobian(A)],
    ),
    "integer too large": (
        ArgumentError,
        ("scale is", "int64", "Pass float(scale)"),
        [lambda out: scaled(A, 2**64, out=out)],
    ),
    "dtype that does not exist": (
        DTypeError,
        ("floaty", "no dtype"),
        [lambda _: scaled.inspect_source("float32", "floaty"), lambda _: scaled.explain("float32", "floaty")],
    ),
    "pair of out": (
        ArgumentError,
        ("out= must be the pair (value, Jacobian)",),
        [
            lambda out: scaled.value_and_jacobian(A, A, out=out),
            lambda out: scaled.value_and_jacobian(A, A, out=(out, [out])),
            lambda out: scaled.value_and_jacobian(A, A, out=(out,)),
        ],
    ),
}


def frozen(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def cases() -> list[Any]:
    return [
        pytest.param(error, words, call, id=f"{kind}-{position}")
        for kind, (error, words, calls) in KINDS.items()
        for position, call in enumerate(calls)
    ]


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize(("error", "words", "call"), cases())
def test_bad_input_gives_its_one_error(error: type[DualbcastError], words: tuple[str, ...], call: Any) -> None:
    out = np.full((3, 4), 7, np.float32)
    with pytest.raises(DualbcastError) as caught:
        call(out)
    assert type(caught.value) is error
    for word in words:
        assert word in str(caught.value)
    assert (out == 7).all()
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    assert "".join(traceback.format_exception(caught.value)).count("Traceback") == 1


def test_twelve_kinds_are_listed() -> None:
    assert len(KINDS) >= 12


@pytest.mark.usefixtures("silent")
def test_numpy_and_cupy_arrays_do_not_mix(device_array: DeviceArray) -> None:
    first, second = "x is a NumPy array and scale is a CuPy array", "scale is a NumPy array and x is a CuPy array"
    for arrays, words in (((A, device_array), first), ((device_array, A), second)):
        with pytest.raises(ArgumentError, match=words):
            scaled(*arrays)
        with pytest.raises(ArgumentError, match=words):
            scaled.value_and_jacobian(*arrays)


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("backend", ["cpu", "python"])
def test_a_host_backend_refuses_device_arrays(device_array: DeviceArray, backend: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(
        "dualbcast.program.element.plan",
        lambda operands, *_: SimpleNamespace(geometry=SimpleNamespace(total=12), targets=(1,), operands=operands),
    )
    with pytest.raises(BackendError, match=f"the {backend} backend cannot use CuPy arrays"):
        decorated(backend=backend)(device_array, device_array)


def test_the_errors_can_be_caught_as_pythons_own() -> None:
    assert issubclass(ArgumentError, TypeError)
    assert issubclass(ShapeError, ValueError)
    assert issubclass(DTypeError, TypeError)
    assert issubclass(BackendError, RuntimeError)
    assert issubclass(MissingDependencyError, ImportError)
    for error in (ArgumentError, ShapeError, DTypeError, BackendError, MissingDependencyError, CompileError):
        assert issubclass(error, DualbcastError)


def test_a_function_is_usable_after_an_error() -> None:
    with pytest.raises(ShapeError):
        scaled(A, np.ones(3, "f"))
    with pytest.raises(ArgumentError):
        scaled.jacobian(A, A, wrt="y")
    np.testing.assert_array_equal(scaled(A, np.float32(2)), 2 * A)


def test_errors_arrive_from_other_processes_as_they_were(tmp_path: Path) -> None:
    """With their text, although the file that they show may not be there."""
    path = tmp_path / "program.py"
    path.write_text("def f(x):\n    while x < 1:\n        x = x / 2\n    return x[0]\n")
    place = Location(str(path), 4, 11, 4, 15)
    errors = [
        CompileError("wrong", place, "right", (("f", place),)),
        IterationError("f", 10, (2, 3), 4, place),
        MissingDependencyError("cupy", "a GPU", "cupy-cuda13x"),
        ShapeError("the shapes differ"),
    ]
    path.unlink()
    for error in errors:
        error.add_note("a note")
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            again = pickle.loads(pickle.dumps(error, protocol))
            assert type(again) is type(error)
            assert str(again) == str(error)
            assert vars(again) == vars(error)
        assert str(copy.deepcopy(error)) == str(error)
    assert "     4 |     return x[0]\n       |            ^^^^" in str(errors[0])


def test_an_error_without_text_has_no_excerpt() -> None:
    error = CompileError("wrong", Location("nowhere.py", 3, 4, 3, 5), "right")
    assert str(error) == "nowhere.py:3:5: wrong\nWrite instead: right"
    assert (error.filename, error.lineno, error.offset) == ("nowhere.py", 3, 5)
