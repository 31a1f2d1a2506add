"""A kernel that its compiler refuses is a fault of this package's, and says so. A user's mistake is found before."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cells import Cell, program, rows, verify

from dualbcast import differentiable_broadcast, disk_cache
from dualbcast.codegen.cuda import build as cuda_build
from dualbcast.codegen.llvm import build as llvm_build
from dualbcast.errors import BackendError, kernel_fault
from dualbcast.runtime import interpreter
from dualbcast.runtime.cpu import kernel as cpu_kernel

X = np.array([0.5, 2.0])

# Mistakes of kind, which a compiler of kernels would find too, or would not: (body, message).
KINDS = {
    # a bool where a number is needed
    "bool as an index": ("return (x, y)[«x > 1»]", "an integer known when the kernel is compiled"),
    "bool that is called": ("return («x > 1»)(y)", "a number cannot be called"),
    "bool that is looked over": ("return «sum(x > 1)»", "a tuple is needed here"),
    "bool beside a float in a bit operation": ("return «(x > 1) & y»", "a bit operation needs integers"),
    "bool as an exponent of two": ("return «math.ldexp(x, y)»", "argument 2 of ldexp() must be an integer"),
    # a variable that may be unassigned
    "one side of an if": ("if x > 1:\n    z = x\nreturn «z»", "z is not assigned on every path that leads here"),
    "a case of a match": (
        "match int(x):\n    case 0: z = x\n    case 1: z = y\nreturn «z»",
        "z is not assigned on every path that leads here",
    ),
    "a loop that may have no turn": (
        "while x > 1:\n    z = x\n    x -= 1\nreturn «z»",
        "z is assigned inside this loop",
    ),
    "after a break": (
        "for i in range(int(y)):\n    if x > i: break\n    z = x\nelse:\n    z = y\nreturn «z»",
        "z is assigned inside this loop only",
    ),
    "skipped by `and`": ("if x > 1 and (z := y) > 0:\n    x = z\nreturn «z»", "z is not assigned on every path"),
    "skipped by a choice": ("w = (z := y) if x > 1 else x\nreturn w + «z»", "z is not assigned on every path"),
    "deleted by name": ("z = x\n«del z»\nreturn z", "del cannot be compiled"),
    # another number of outputs on another return
    "one or two outputs": ("if x > 1:\n    return x\n«return x, y»", "a number and a tuple of 2"),
    "two or three outputs": ("if x > 1:\n    return x, y\n«return x, y, x»", "a tuple of 2 and a tuple of 3"),
    "a tuple or a list": ("if x > 1:\n    return x, y\n«return [x, y]»", "a tuple of 2 and a list of 2"),
    "a return in a loop": (
        "for i in range(int(y)):\n    if x > i:\n        return x, y\n«return x»",
        "a tuple of 2 and a number",
    ),
    # a loop that changes the kind of a variable
    "number becomes tuple": (
        "z = x\n«for i in range(int(y)):»\n    z = (z, x)\nreturn x",
        "z is a number before this loop",
    ),
    "tuple grows": (
        "z = ()\n«while x > 0:»\n    z = (*z, x)\n    x -= 1\nreturn x",
        "z is a tuple of 0 before this loop",
    ),
    "list grows": (
        "z = []\n«while x > 0:»\n    z = [*z, x]\n    x -= 1\nreturn x",
        "z is a list of 0 before this loop",
    ),
    "None becomes number": ("z = None\n«while x > 0:»\n    z = x\n    x -= 1\nreturn x", "z is None before this loop"),
    "text changes": ("z = 'a'\n«while x > 0:»\n    z = 'b'\n    x -= 1\nreturn x", "z is text before this loop"),
}


@pytest.mark.usefixtures("no_kernel")
@pytest.mark.parametrize(("body", "message"), rows(KINDS))
def test_a_mistake_of_kind_is_found_before_there_is_a_kernel(body: str, message: str) -> None:
    verify(Cell(program(body)), message, ...)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("n = 0\nfor i in range(3):\n    n = n + x\nreturn n", id="int becomes float"),
        pytest.param("b = False\nfor i in range(3):\n    b = b + i\nreturn b * x", id="bool becomes int"),
        pytest.param("b = x > 1\nwhile x < 3:\n    x += 1\n    b = x * y\nreturn b", id="bool becomes float"),
        pytest.param("t = (0, True)\nfor i in range(2):\n    t = (t[1], x)\nreturn t", id="kinds move through a tuple"),
        pytest.param("return x + (x > 1), (x > 1) * y, -(x > 1), abs(x > 1)", id="bool as a number"),
        pytest.param("if x > 1:\n    return 1\nreturn x * y", id="int or float"),
    ],
)
def test_numbers_of_any_kind_go_together_in_a_kernel(body: str) -> None:
    f = Cell(program(body)).names["f"]
    found = differentiable_broadcast(backend="cpu")(f)(X, X + 1)
    wanted = [f(x, x + 1) for x in X.tolist()]
    np.testing.assert_array_equal(np.array(found, float), np.array(wanted, float).T)


# --- faults ----------------------------------------------------------------------------------------------------------

INTERNAL = [
    TypeError("no Div of type bool"),
    SyntaxError("a kernel has no such statement"),
    AssertionError("unreachable"),
    KeyError("$12"),
    RuntimeError("LLVM IR parsing error"),
    NotImplementedError("op"),
    RecursionError("deep"),
]
try:
    from numba.core.errors import NumbaAssertionError, TypingError
except ImportError:
    NUMBAS: list[Exception] = []
else:
    NUMBAS = [TypingError("no such thing"), NumbaAssertionError("assert")]


def raising(error: Exception) -> Any:
    def refuse(*_: Any, **__: Any) -> Any:
        raise error

    return refuse


def check_fault(error: BaseException, compiler: str, cause: Exception) -> None:
    text = str(error)
    assert type(error) is BackendError
    assert text.startswith(f"{compiler} cannot compile the kernel of cube(). This is a fault of dualbcast's")
    assert f"{type(cause).__name__}: {cause}" in text
    path = Path(text.split("The kernel's text is in ")[1].splitlines()[0])
    assert "x" in path.read_text()
    assert "".join(traceback.format_exception(error)).count("Traceback") == 1


def cube() -> Any:
    # A function of its own, so that no kernel of it is there already.
    cell = Cell("def cube(x):\n    return x * x * x\n")
    return cell.names["cube"]


@pytest.fixture
def no_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DUALBCAST_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(cpu_kernel, "_kernels", {}, raising=False)


@pytest.mark.usefixtures("no_cache")
@pytest.mark.parametrize("cause", INTERNAL, ids=lambda cause: type(cause).__name__)
def test_what_llvm_refuses_is_our_fault(cause: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llvm_build, "write_entry", raising(cause))
    f = differentiable_broadcast(backend="cpu")(cube())
    for ask in (lambda: f(X), lambda: f.value_and_jacobian(X), lambda: f.inspect_asm(X)):
        with pytest.raises(BackendError) as caught:
            ask()
        check_fault(caught.value, "LLVM", cause)
    monkeypatch.undo()
    np.testing.assert_array_equal(f(X), X**3)  # nothing is left behind


@pytest.mark.usefixtures("no_cache")
@pytest.mark.parametrize("cause", INTERNAL + NUMBAS, ids=lambda cause: type(cause).__name__)
def test_what_numba_cuda_refuses_is_our_fault(cause: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_build, "_compile_element", raising(cause))
    monkeypatch.setattr(cuda_build, "_compiler", lambda _: type("Module", (), {"ENABLE_CUDASIM": False}))
    monkeypatch.setattr(cuda_build, "_architecture", lambda _: "sm_90")
    monkeypatch.setattr(cuda_build, "toolchain", lambda: "none")
    with pytest.raises(BackendError) as caught:
        differentiable_broadcast(cube()).inspect_ptx(X, cc=(9, 0))
    check_fault(caught.value, "Numba-CUDA", cause)


@pytest.mark.usefixtures("no_cache")
def test_what_python_refuses_is_our_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "namespace", lambda _: {})
    monkeypatch.setattr(interpreter, "compile", raising(cause := SyntaxError("too many parentheses")), raising=False)
    with pytest.raises(BackendError) as caught:
        differentiable_broadcast(backend="python")(cube())(X)
    check_fault(caught.value, "Python", cause)


def test_where_there_is_no_file_the_fault_says_how_to_see_the_text() -> None:
    text = str(kernel_fault("f", "LLVM", "/nowhere/f.py", KeyError("a")))
    assert "the result of f.inspect_source(…)" in text
    assert "/nowhere" not in text


def test_an_interrupt_of_a_compilation_is_none_of_its_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llvm_build, "write_entry", raising(KeyboardInterrupt()))  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        differentiable_broadcast(backend="cpu")(Cell("def f(x):\n    return x * 12345.5\n").names["f"])(X)


def test_the_cache_of_these_tests_is_not_the_users() -> None:
    assert disk_cache.directory()
