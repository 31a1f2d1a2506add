"""What is said of objects of other libraries: each kind with its article, and what to write instead, which works."""

from __future__ import annotations

import ast
import decimal
import fractions
import itertools
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dualbcast
from dualbcast import differentiable_broadcast, fit, graph
from dualbcast.errors import ArgumentError, DTypeError, DualbcastError, a_or_an
from dualbcast.foreign_objects import called, instead

X = np.array([1.0, 2.0])


@differentiable_broadcast(backend="python")
def square(x):
    return x * x


class OnlyDLPack:
    """What shares memory by DLPack and in no other way; on a GPU if `device` says so."""

    def __init__(self, array: Any, device: tuple[int, int] | None = None) -> None:
        self.array, self.device = array, device

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.device or self.array.__dlpack_device__()


class OnDevice:
    """An array such as Numba's on a GPU."""

    def __init__(self) -> None:
        self.__cuda_array_interface__: dict[str, Any] = {}


class Buffer:
    """An array by an old protocol."""

    def __init__(self) -> None:
        self.__array_interface__ = X.__array_interface__


def torch_tensor() -> Any:
    return pytest.importorskip("torch").tensor(X, requires_grad=True)


def sparse() -> Any:
    return pytest.importorskip("scipy.sparse").csr_array(np.diag(X))


# For each kind what makes one, and what to pass instead: an expression in x that works.
PASSED: dict[str, tuple[Callable[[], Any], str]] = {
    "torch": (torch_tensor, "x.detach().numpy()"),
    "subclass": (lambda: X.view(np.matrix), "np.asarray(x)"),
    "bytes": (lambda: bytearray([1, 2]), "np.asarray(x)"),
    "sparse": (sparse, "x.toarray()"),
    "stored": (sparse, "x.data"),
    "generator": (lambda: (x for x in X), "np.fromiter(x, float)"),
    "values": (lambda: {"a": 1.0}.values(), "np.fromiter(x, float)"),
    "fraction": (lambda: fractions.Fraction(1, 2), "float(x)"),
    "decimal": (lambda: decimal.Decimal("0.5"), "float(x)"),
    "mpmath": (lambda: pytest.importorskip("mpmath").mpf(2), "float(x)"),
}


@pytest.mark.parametrize("kind", [kind for kind in PASSED if kind != "torch"])  # a call takes a tensor
def test_what_is_said_to_pass_can_be_passed(kind: str) -> None:
    make, expression = PASSED[kind]
    with pytest.raises(ArgumentError, match=rf"x is an? .*, not an array or a number\. .*{re.escape(expression)}"):
        square(make())
    passed = eval(expression, {"np": np, "x": make()})
    np.testing.assert_array_equal(square(passed), np.square(passed))


def test_a_tensor_beside_arrays_is_told_how_to_become_one() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(ArgumentError, match=r"Pass it\.detach\(\)\.cpu\(\)\.numpy\(\)"):
        square.vjp(X)[1](torch.ones(2, device="meta"))


def test_a_variable_that_has_to_be_an_array_gives_its_value() -> None:
    with pytest.raises(ArgumentError, match=r"Pass start\.value, which has no derivative"):
        graph.grad(lambda start: fit.least_squares(lambda x, start: x - start, X, start, wrt="start")["start"])(1.0)


def test_what_stands_for_no_numbers_may_be_static() -> None:
    for value in (None, "text", {1.0}, {}, int, object(), math_module()):
        with pytest.raises(ArgumentError, match="decorate with static='x'"):
            square(value)
    with pytest.raises(ArgumentError) as caught:
        square.vjp(X)[1]("text")
    assert "static=" not in str(caught.value)


def math_module() -> Any:
    return sys.modules["math"]


@pytest.mark.parametrize("kind", ["torch", "generator", "sparse"])
def test_derivatives_say_the_same_of_tangents_and_cotangents(kind: str) -> None:
    make = PASSED[kind][0]
    words = rf"which is {re.escape(called(make()))}|is {re.escape(called(make()))}"
    for call in (lambda: square.vjp(X)[1](make()), lambda: square.jvp((X,), (make(),))):
        with pytest.raises(DualbcastError, match=words) as caught:
            call()
        assert "the cotangent." not in str(caught.value)


# --- the graph --------------------------------------------------------------------------------------------------------


def total(x: Any) -> Any:
    return np.sum(x * x)


TRANSFORMED: dict[str, Callable[[Any], Any]] = {
    "grad": lambda x: graph.grad(total)(x),
    "value_and_grad": lambda x: graph.value_and_grad(total)(x),
    "vjp": lambda x: graph.vjp(total, x),
    "jvp": lambda x: graph.jvp(total, (x,), (X,)),
    "in a container": lambda x: graph.grad(lambda parameters: total(parameters["w"]))({"w": x}),
}


@pytest.mark.parametrize("call", TRANSFORMED)
def test_a_tensor_has_no_derivative_in_the_graph(call: str) -> None:
    with pytest.raises(DTypeError, match=r"argument 0.*, which is a torch.Tensor. Pass it\.detach\(\)\.numpy\(\)"):
        TRANSFORMED[call](torch_tensor())


@pytest.mark.parametrize("make", [sparse, lambda: OnlyDLPack(X), OnDevice, lambda: object()])
@pytest.mark.parametrize("call", TRANSFORMED)
def test_what_is_no_array_has_no_derivative_in_the_graph(call: str, make: Callable[[], Any]) -> None:
    value = make()
    with pytest.raises((ArgumentError, DTypeError), match=re.escape(called(value))) as caught:
        TRANSFORMED[call](value)
    assert instead(value, "it") in str(caught.value)


def test_an_array_of_a_variable_shows_our_error() -> None:
    v = graph.Variable(X)
    puts: list[Callable[[], Any]] = [
        lambda: np.zeros(2).__setitem__(0, v[0]),
        lambda: np.zeros((2, 2), np.float32).__setitem__((0, 1), v[0]),
        lambda: np.zeros(2).fill(v[0]),
        lambda: np.fromiter(iter(v), float),
    ]
    for put in puts:
        # NumPy puts an error of its own around the one that a conversion to a number raises.
        with pytest.raises(ValueError, match="sequence") as caught:
            put()
        ours = caught.value.__cause__
        assert isinstance(ours, ArgumentError)
        assert re.search(r"array\[0\] = v.*np\.stack\(\[…\]\)", str(ours))
        assert str(ours) in "".join(traceback.format_exception(caught.value))
    with pytest.raises(ArgumentError, match="would lose its derivative"):
        np.zeros(2)[:] = v
    constant = graph.stop_gradient(v)
    array = np.zeros(2)
    array[0] = constant[1]
    assert array.tolist() == [2.0, 0.0]


# --- articles ---------------------------------------------------------------------------------------------------------

AN = "array ArrayImpl int Index object OrderedDict enumerate ellipsis ndarray xarray.DataArray mpf mpz _Own Unpickler"
A = "list str bool NoneType DataFrame ufunc uint8 UUID UserDict Unit union type Series torch.Tensor module builtin HTTP"


def test_articles_are_those_that_are_spoken() -> None:
    assert [a_or_an(noun) for noun in AN.split()] == [f"an {noun}" for noun in AN.split()]
    assert [a_or_an(noun) for noun in A.split()] == [f"a {noun}" for noun in A.split()]


def interpolated_after_an_article(text: str) -> list[str]:
    """The f-strings of a module that have a value straight after "a" or "an"."""
    found = []
    for node in ast.walk(ast.parse(text)):
        parts = node.values if isinstance(node, ast.JoinedStr) else []
        for before, value in itertools.pairwise(parts):
            plain = before.value if isinstance(before, ast.Constant) else ""
            if re.search(r"\b[Aa]n? $", str(plain)) and isinstance(value, ast.FormattedValue):
                found.append(ast.unparse(value.value))
    return found


def test_no_message_has_an_article_before_a_name_that_it_does_not_know() -> None:
    found = {
        (path.name, value)
        for path in Path(dualbcast.__file__).parent.rglob("*.py")
        for value in interpolated_after_an_article(path.read_text(encoding="utf-8"))
    }
    # A tangent or a cotangent, and an array of NumPy or CuPy.
    assert found == {("gradients.py", "kind"), ("launch_plan.py", "library")}
    assert interpolated_after_an_article('f"{x} is a {kind}, not an {other!r}"') == ["kind", "other"]
