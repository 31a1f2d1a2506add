"""`print`, `assert` and `raise` in a scalar function: a call does what Python does for one element after another."""

from __future__ import annotations

import math
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from speaking_functions import FUNCTIONS, one_print

from dualbcast import differentiable_broadcast, from_source, graph, rule
from dualbcast.errors import ArgumentError, CompileError, FailedAssertion, RaisedError

BACKENDS = ("python", "cpu")


X, N = np.array([0.5, 1.25, 3.75, 2.0]), np.array([[0], [1], [2], [3], [4]])


class Outcome(NamedTuple):
    text: str
    values: list[float]
    # The index, the line and the message of an assertion that does not hold.
    failed: tuple[tuple[int, ...], int, str] | None


def by_python(function: Callable[..., float], x: Any, n: Any, capsys: Any) -> Outcome:
    """The outcome of plain Python, element by element."""
    values, failed = [], None
    shape = np.broadcast_shapes(np.shape(x), np.shape(n))
    for index in np.ndindex(shape):
        try:
            arguments = np.broadcast_to(x, shape)[index].item(), np.broadcast_to(n, shape)[index].item()
            values.append(function(*arguments))
        except AssertionError as error:
            trace = error.__traceback__
            while trace.tb_next is not None:
                trace = trace.tb_next
            message = error.args[0] if error.args else ""
            failed = index, trace.tb_lineno, str(message)
            if isinstance(error, FailedAssertion):  # from a derivative, which is a call itself
                failed = index, error.lineno, error.message
            break
    return Outcome(capsys.readouterr().out, values, failed)


def by_call(function: Any, x: Any, n: Any, capsys: Any) -> Outcome:
    values, failed = [], None
    try:
        values = np.ravel(function(x, n)).tolist()
    except FailedAssertion as error:
        failed = error.index, error.lineno, error.message
    return Outcome(capsys.readouterr().out, values, failed)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_a_call_does_what_python_does(function: Callable[..., float], backend: str, capsys: Any) -> None:
    compiled = differentiable_broadcast(function, backend=backend)
    for n in (N[2:3], N):
        wanted = by_python(function, X, n, capsys)
        for _ in range(2):  # a first call, and a warm one
            found = by_call(compiled, X, n, capsys)
            assert found.text == wanted.text
            assert found.failed == wanted.failed
            if wanted.failed is None:
                np.testing.assert_allclose(found.values, wanted.values, rtol=1e-15)


def test_float32_shows_its_own_digits(capsys: Any) -> None:
    differentiable_broadcast(one_print)(np.float32(0.1), 3)
    assert capsys.readouterr().out == "x is 0.1 and n 3\n"


# --- products --------------------------------------------------------------------------------------------------------


@differentiable_broadcast
def root(x: float, y: float) -> float:
    assert x >= 0.0, f"no root of {x}"
    if x > 3.0:
        print("large", x)
    return math.sqrt(x) * y


PRODUCTS: dict[str, Callable[..., Any]] = {
    "value": root,
    "value_and_jacobian": root.value_and_jacobian,
    "jacobian": root.jacobian,
    "hessian": root.hessian,
    "jvp": lambda x, y: root.jvp((x, y), (1.0, 1.0)),
    "vjp": lambda x, y: root.vjp(x, y)[1](np.ones(np.shape(x))),
    "value_and_vjp": lambda x, y: root.value_and_vjp((x, y), np.ones(np.shape(x))),
    "hvp": lambda x, y: root.hvp((x, y), (1.0, None)),
    "sum": lambda x, y: root.sum(x, y, wrt="y"),
    "partial": root.partial("x"),
    "graph": lambda x, y: graph.grad(lambda v: np.sum(root(v, y) * 2.0))(x),
    "out": lambda x, y: root(x, y, out=np.empty(np.shape(x))),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_every_product_runs_them_once(name: str, capsys: Any) -> None:
    for _ in range(2):
        PRODUCTS[name](np.array([1.0, 4.0, 9.0]), 2.0)
        assert capsys.readouterr().out == "large 4.0\nlarge 9.0\n"
    with pytest.raises(FailedAssertion, match=r"for the element at index \(1,\): no root of -1.0\n") as caught:
        PRODUCTS[name](np.array([4.0, -1.0, -9.0, 9.0]), 2.0)
    assert capsys.readouterr().out == "large 4.0\n"
    assert isinstance(caught.value, AssertionError)
    assert (caught.value.index, caught.value.inputs) == ((1,), {"x": -1.0, "y": 2.0})


def test_nothing_has_run_where_an_assertion_fails() -> None:
    out = np.full(2, 7.0)
    with pytest.raises(FailedAssertion):
        root(np.array([1.0, -1.0]), 2.0, out=out)
    assert out.tolist() == [7.0, 7.0]


def test_numbers_and_empty_arrays() -> None:
    with pytest.raises(FailedAssertion, match=r"this assertion fails for these numbers: no root of -1.0\n"):
        root(-1.0, 2.0)
    assert root(np.zeros((0, 3)), 2.0).shape == (0, 3)


def test_a_compiled_function_of_a_graph_is_not_replayed(capsys: Any) -> None:
    step = graph.compile(lambda v: np.sum(root(v, 2.0)))
    for x in (4.0, 9.0, 16.0):
        step(np.array([x]))
    assert capsys.readouterr().out == "large 4.0\nlarge 9.0\nlarge 16.0\n"
    with pytest.raises(FailedAssertion):
        step(np.array([-1.0]))


# --- kernels and options ---------------------------------------------------------------------------------------------


def test_kernels_have_none_of_it() -> None:
    plain = from_source("import math\ndef root(x, y):\n    return math.sqrt(x) * y\n")
    shown = [each.inspect_llvm("float64", "float64", product="value_and_jacobian") for each in (root, plain)]
    lines = [[line.partition("!")[0] for line in text.splitlines() if " = " in line] for text in shown]
    assert len(lines[0]) == len(lines[1])
    assert root.explain("float64", "float64").operations == plain.explain("float64", "float64").operations


def test_debug_says_whether_they_run(capsys: Any) -> None:
    silent = differentiable_broadcast(root, debug=False)
    assert np.isnan(silent(np.array([-1.0, 9.0]), 2.0)).tolist() == [True, False]
    assert capsys.readouterr().out == ""
    with pytest.raises(FailedAssertion):
        silent(np.array([-1.0, 9.0]), 2.0, debug=True)
    assert np.isnan(root(np.array([-1.0, 9.0]), 2.0, debug=False)).tolist() == [True, False]
    assert silent.partial("x")(9.0, 6.0) == 1.0
    with pytest.raises(ArgumentError, match="debug=1 is neither True nor False"):
        root(1.0, 2.0, debug=1)
    with pytest.raises(ArgumentError, match="debug='yes' is neither"):
        differentiable_broadcast(root, debug="yes")


def test_a_parameter_of_that_name_is_the_functions() -> None:
    scaled = differentiable_broadcast(lambda x, debug, check=1.0: x * debug * check)
    assert scaled(2.0, debug=3.0, check=4.0) == 24.0


def test_a_capture_that_changes_changes_the_text(capsys: Any) -> None:
    names: dict[str, Any] = {}
    function = from_source("LABEL = 'a'\ndef f(x):\n    print(LABEL, x)\n    return x\n", namespace=names)
    function(1.0)
    function.__wrapped__.__globals__["LABEL"] = "b"
    function(1.0)
    assert capsys.readouterr().out == "a 1.0\nb 1.0\n"


def test_arrays_that_only_a_text_reads(capsys: Any) -> None:
    names = {"WEIGHTS": np.array([10.0, 20.0])}
    function = from_source("def f(x):\n    print(x * WEIGHTS)\n    return x\n", namespace=names)
    assert function(2.0).tolist() == [2.0, 2.0]
    assert capsys.readouterr().out == "20.0\n40.0\n"


def test_whole_arrays(capsys: Any) -> None:
    text = "def f(x, table):\n    i = int(x)\n    print(i, table[i])\n    assert table[i] > 0, i\n    return x\n"
    function = from_source(text, whole="table")
    function(np.array([0.5, 2.5]), np.array([1.0, 2.0, 3.0]))
    assert capsys.readouterr().out == "0 1.0\n2 3.0\n"
    with pytest.raises(FailedAssertion, match=r"at index \(1,\): 2\n"):
        function(np.array([0.5, 2.5]), np.array([1.0, 2.0, -3.0]))


def test_complex_numbers(capsys: Any) -> None:
    text = "def f(z):\n    print(z, (z, 1), f'{z:.2f} {z}')\n    assert abs(z) < 9, z\n    return z\n"
    function, z = from_source(text), np.array([1 + 2j, -0.5j, 3.0])
    function(z)
    plain = capsys.readouterr().out
    for each in z.tolist():
        function.__wrapped__(each)
    assert capsys.readouterr().out == plain
    function(np.complex64(0.1 + 0.2j))
    assert capsys.readouterr().out == "(0.1+0.2j) ((0.1+0.2j), 1) 0.10+0.20j (0.1+0.2j)\n"
    with pytest.raises(FailedAssertion, match=r"for these numbers: 9j\n"):
        function(9j)


# --- raise -----------------------------------------------------------------------------------------------------------


class TooLarge(Exception):
    """An error of a user's."""


def no_convergence(x: float) -> int:
    count = 0
    while x > 1.0:
        x = x / 2
        count += 1
        if count > 5:
            raise RuntimeError("no convergence")
    return count


def one_of_two(x: float) -> tuple[float, int]:
    if x < 0.0:
        raise ValueError(f"{x} is negative")
    if x > 10.0:
        raise TooLarge(x, "is large")
    y = 2.0 * x
    return math.sqrt(y), int(x)


def in_a_loop_that_is_written_out(x: float) -> float:
    total = 0.0
    for pole in (1.0, 2.0):
        if x == pole:
            raise KeyError
        total += 1.0 / (x - pole)
    return total


def in_an_inner_call(x: float) -> float:
    return in_a_loop_that_is_written_out(x) ** 2


def by_a_case(x: float) -> float:
    match int(x):
        case 0 | -1:
            return x
        case 1:
            return 2.0 * x
        case _:
            raise ZeroDivisionError("never " + "more")


def below(x: float, limit: float = 1.0) -> bool:
    if x > 3.0:
        raise ValueError(f"{x} is large")
    return x < limit


def any_of_a_map(x: float) -> int:
    return 1 if any(map(below, (2.5 - x, x, 2.0 * x, x * x))) else 2


def one_more(y: float) -> float:
    return y + 1.0 if below(y, 9.0) else y


def all_of_a_map_of_maps(x: float) -> int:
    return int(all(map(below, map(one_more, (x, 2.0 * x)), (3.0, 2.5, 2.0))))


def any_of_a_filter(x: float) -> float:
    return x if any(filter(below, map(one_more, (x - 2.0, x, 2.0 * x, x * x)))) else -x


def all_of_a_filter(x: float) -> float:
    return x if all(filter(lambda y: below(y, 2.0), (x, x - 1.0, 0.0 * x, x * 4.0))) else -x


def truths_of_filters(x: float) -> int:
    values = (x - 1.0, x)
    return (
        any(filter(None, values)) + 2 * all(filter(None, values)) + 4 * any(filter(bool, ())) + 8 * all(map(bool, ()))
    )


LATE = [any_of_a_map, all_of_a_map_of_maps, any_of_a_filter, all_of_a_filter, truths_of_filters]
RAISING = [no_convergence, one_of_two, in_a_loop_that_is_written_out, in_an_inner_call, by_a_case, *LATE]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function", RAISING, ids=lambda function: function.__name__)
def test_a_raise_ends_the_call_at_the_first_element_that_comes_to_it(function: Any, backend: str) -> None:
    compiled = differentiable_broadcast(function, backend=backend)
    wide = np.array([0.5, 1.25, 1.5, 70.0, 2.0, -1.0, 1.0])
    for x in (np.array([0.25, 1.75, 0.75]), wide, wide[::-1]):
        wanted, failed = [], None
        for at, each in enumerate(x.tolist()):
            try:
                wanted.append(function(each))
            except Exception as error:
                failed = at, error
                break
        if failed is None:
            found = compiled(x)
            np.testing.assert_allclose(np.transpose(found), wanted, rtol=1e-14)
            continue
        at, error = failed
        with pytest.raises(type(error)) as caught:
            compiled.value_and_jacobian(x)
        assert isinstance(caught.value, RaisedError)
        assert (caught.value.index, caught.value.inputs) == ((at,), {"x": x[at]})
        assert caught.value.message == ", ".join(map(str, error.args))
        same = pickle.loads(pickle.dumps(caught.value))
        assert (type(same).__name__, str(same), same.index) == (type(error).__name__, str(caught.value), (at,))


def test_without_the_statements_an_element_that_raises_is_nan() -> None:
    function = differentiable_broadcast(one_of_two, debug=False)
    roots, wholes = function(np.array([2.0, -1.0, 50.0]))
    np.testing.assert_equal((roots, wholes), ([2.0, np.nan, np.nan], [2, 0, 0]))


def test_an_error_with_attributes_of_its_own_is_a_raised_error() -> None:
    function = from_source("def f(x):\n    if x < 0:\n        raise OSError(x)\n    return x\n")
    with pytest.raises(RaisedError, match=r"for the element at index \(1,\): -2.0\n"):
        function(np.array([1.0, -2.0]))


def test_what_every_call_raises_is_of_the_class_that_is_named() -> None:
    function = differentiable_broadcast(
        from_source(
            "def f(x, mode):\n    if mode == 'up':\n        return x\n    raise KeyError(f'no {mode}')\n"
        ).__wrapped__,
        static="mode",
    )
    assert function(1.0, mode="up") == 1.0
    for _ in range(2):
        with pytest.raises(KeyError, match="this call raises KeyError: no down") as caught:
            function(1.0, mode="down")
        assert isinstance(caught.value, CompileError)
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_every_path_may_not_raise() -> None:
    function = from_source("def f(x):\n    if x < 0:\n        raise OSError\n    else:\n        raise KeyError\n")
    with pytest.raises(CompileError, match="every path through this function raises an error"):
        function(1.0)


def test_the_option_o_of_python_takes_assertions_away() -> None:
    text = """
from dualbcast import from_source
f = from_source("def f(x):\\n    assert x > 0\\n    print('x', x)\\n    return x\\n")
f(-1.0)
"""
    for options, status in (([], 1), (["-O"], 0)):
        ran = subprocess.run([sys.executable, *options, "-c", text], capture_output=True, text=True, env=os.environ)
        assert ran.returncode == status
        assert ("FailedAssertion" in ran.stderr) == (status == 1)
        assert ran.stdout == ("x -1.0\n" if status == 0 else "")


def test_a_dictionary_is_shown_as_python_shows_it(capsys: Any) -> None:
    function = from_source("def f(x):\n    d = {'a': x, 'b': {'c': 2}}\n    print(d, f'{x:.1f}')\n    return d['a']\n")
    function(1.5)
    function.__wrapped__(1.5)
    first, second = capsys.readouterr().out.splitlines()
    assert first == second == "{'a': 1.5, 'b': {'c': 2}} 1.5"


def test_rules_have_neither() -> None:
    def odd(x: float) -> float:
        assert x > 0.0
        return x

    with pytest.raises(CompileError, match="assert cannot be compiled in the function or the partials of a rule"):
        rule("odd_root", lambda x, y: (1.0,), function=odd)  # noqa: ARG005


def test_a_trace_shows_them(capsys: Any) -> None:
    rows = root.trace(-4.0, 2.0).rows
    assert [(row.what, row.name, row.value) for row in rows if row.what in ("print", "assert")] == [
        ("assert", "assert: no root of -4.0", False)
    ]
    (row,) = [row for row in differentiable_broadcast(one_of_two).trace(-1.0).rows if row.what == "raise"]
    assert (row.name, row.value) == ("raise ValueError", "-1.0 is negative")
    rows = root.trace(4.0, 2.0).rows
    assert [(row.what, row.name, row.value) for row in rows if row.what in ("print", "assert")] == [
        ("assert", "assert", True),
        ("print", "print", "large 4.0"),
    ]
    assert capsys.readouterr().out == ""
