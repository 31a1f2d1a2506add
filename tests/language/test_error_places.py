"""Where errors are: the caret, calls within calls, other files, functions without source; and that there is one."""

from __future__ import annotations

import functools
import math
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from cells import Cell, X, Y, check, check_traceback, program, rows, verify

from dualbcast import differentiable_broadcast
from dualbcast.errors import ArgumentError, CompileError

pytestmark = pytest.mark.usefixtures("no_kernel")

RECORD = "@dataclass\nclass R:\n    a: float\n"


# --- where things are -------------------------------------------------------------------------------------------------


def test_an_error_in_a_callee_is_chained_to_the_calls() -> None:
    cell = Cell(
        "def inner(a):\n    return a + «{a}»\n\n"
        "def outer(b):\n    c = inner(2 * b)\n    return c\n\n"
        "def f(x, y):\n    return outer(x) + y\n"
    )
    error = verify(cell, "a set", "a tuple")
    assert [(name, where.line, where.column) for name, where in error.calls] == [("outer", 9, 11), ("inner", 5, 8)]
    text = str(error)
    assert f"in inner(), called at {cell.filename}:5:9\n     5 |     c = inner(2 * b)\n" in text
    assert f"in outer(), called at {cell.filename}:9:12\n     9 |     return outer(x) + y\n" in text
    assert text.index("in inner()") < text.index("in outer()")


def test_a_callee_in_another_file_is_named_by_that_file() -> None:
    helper = Cell("def helper(a):\n    return «{a}»\n")
    caller = Cell("def f(x, y):\n    return helper(x)\n", {"helper": helper.names["helper"]})
    error = caller.error()
    check(helper, error, "a set", "a tuple")
    assert f"in helper(), called at {caller.filename}:2:12" in str(error)


CHAINS = {
    "lambda": ("g = lambda a: a + «{a}»\n", "g(x)", ["<lambda>"]),
    "lambda in a call": ("def g(h, a):\n    return h(a)\n", "g(lambda a: «{a}», x)", ["g", "<lambda>"]),
    "comprehension": ("def g(a):\n    return «{a}»\n", "sum([g(a) for a in (x, y)])", ["g"]),
    "generator": ("def g(a):\n    return «{a}»\n", "max(g(a) for a in (x, y))", ["g"]),
    "loop of the kernel": ("def g(a):\n    return «{a}»\n", "sum(g(x * i) for i in range(int(y)))", ["g"]),
    "map": ("def g(a):\n    return «{a}»\n", "sum(map(g, (x, y)))", ["g"]),
    "key": ("def g(a):\n    return «{a}»\n", "min(x, y, key=g)", ["g"]),
    "partial": ("def g(a, b):\n    return a * «{b}»\n\nh = functools.partial(g, 2.0)\n", "h(x)", ["g"]),
    "decorated": ("@functools.cache\ndef g(a):\n    return «{a}»\n", "g(x)", ["g"]),
    "broadcast function": ("@broadcast\ndef g(a):\n    return «{a}»\n", "g(x)", ["g"]),
    "method": ("class C:\n    def g(self, a):\n        return «{a}»\n\nc = C()\n", "c.g(x)", ["g"]),
    "static method": ("class C:\n    @staticmethod\n    def g(a):\n        return «{a}»\n", "C.g(x)", ["g"]),
    "callable object": (
        "class C:\n    def __call__(self, a):\n        return «{a}»\n\nc = C()\n",
        "c(x)",
        ["__call__"],
    ),
    "operator of a record": (
        RECORD + "    def __add__(self, other):\n        return «{self.a}»\n",
        "R(x) + 1",
        ["__add__"],
    ),
    "reflected operator": (RECORD + "    def __rsub__(self, other):\n        return «{1}»\n", "1 - R(x)", ["__rsub__"]),
    "sign of a record": (RECORD + "    def __neg__(self):\n        return «{1}»\n", "-R(x)", ["__neg__"]),
    "truth of a record": (RECORD + "    def __bool__(self):\n        return «{1}»\n", "x if R(x) else y", ["__bool__"]),
    "property of a record": (RECORD + "    @property\n    def p(self):\n        return «{1}»\n", "R(x).p", ["p"]),
    "method of a record": (RECORD + "    def m(self, b):\n        return b * «{1}»\n", "R(x).m(y)", ["m"]),
}


@pytest.mark.parametrize(("text", "call", "names"), rows(CHAINS))
def test_an_error_in_whatever_is_called_is_chained(text: str, call: str, names: list[str]) -> None:
    made = {"functools": functools, "dataclass": dataclass, "broadcast": differentiable_broadcast}
    marked = f"{text}\ndef f(x, y):\n    return {call}\n"
    cell = Cell(marked, made)
    error = verify(cell, "a set", "a tuple")
    assert [name for name, _ in error.calls] == names
    first = error.calls[0][1]
    assert first.filename == cell.filename
    assert cell.text.split("\n")[first.line - 1].startswith("    return ")
    for name in names:
        assert f"in {name}(), called at {cell.filename}:" in str(error)


def test_several_files_are_each_named() -> None:
    inner = Cell("def inner(a):\n    return «{a}»\n")
    middle = Cell("def middle(a):\n    return inner(a)\n", {"inner": inner.names["inner"]})
    outer = Cell("def f(x, y):\n    return middle(x)\n", {"middle": middle.names["middle"]})
    error = outer.error()
    check(inner, error, "a set", "a tuple")
    assert [(name, where.filename) for name, where in error.calls] == [
        ("middle", outer.filename),
        ("inner", middle.filename),
    ]


def test_the_repl_of_earlier_pythons_keeps_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, Any] = {}
    exec(compile("def f(x): return x", "<stdin>", "exec"), names)
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    with pytest.raises(CompileError, match=r"the prompt keeps no text before Python 3\.13") as caught:
        differentiable_broadcast(names["f"])(X)
    assert "IPython, or at the prompt of Python 3.13; or differentiable_broadcast.from_source" in caught.value.hint
    check_traceback(caught.value)


def test_a_callee_without_source_is_an_error_at_the_call() -> None:
    names: dict[str, Any] = {}
    exec("def hidden(a): return a", names)
    cell = Cell("def f(x, y):\n    return «hidden(x)»\n", {"hidden": names["hidden"]})
    verify(cell, "the source of hidden is not available", "a file or a notebook cell")


def test_a_default_of_a_callee_that_is_no_number() -> None:
    cell = Cell("def g(a, b=[]):\n    return a\n\ndef f(x, y):\n    return «g(x)»\n")
    verify(cell, "a default of g() is of type list", ...)


@pytest.mark.parametrize(
    "body", ["return g(a - 1) if a > 0 else a", "return g(a - 1)", "return g(a - 1) + g(a - 2) if a > 0 else a"]
)
def test_recursion_that_does_not_end(body: str) -> None:
    cell = Cell(f"def g(a):\n    {body}\n\ndef f(x, y):\n    return g(x)\n")
    error = cell.error()
    assert "recursion must end when the kernel is compiled" in error.message
    assert (error.filename, error.lineno) == (cell.filename, 2)
    assert "g(a" in cell.text.splitlines()[1][error.offset - 1 :]
    assert "a while loop" in error.hint
    check_traceback(error)


def test_a_deep_recursion_is_not_printed_in_full() -> None:
    error = Cell("def g(a):\n    return g(a - 1)\n\ndef f(x, y):\n    return g(x)\n").error()
    assert len(str(error).splitlines()) < 20


LIBRARY = {"sort": "np.sort(x)", "norm": "np.linalg.norm(x)", "round": "np.round(x, 2)", "sum": "np.sum(x)"}


@pytest.mark.parametrize(("name", "call"), LIBRARY.items())
def test_a_python_function_of_numpy_is_not_looked_into(name: str, call: str) -> None:
    error = verify(Cell(program(f"return «{call}»")), "there is no derivative rule for", ...)
    assert f"{name}: it works on arrays" in error.message
    assert not error.calls


MULTILINE = {
    "continued": "def f(x, y):\n    return (x +\n        y * «{»\n   1})\n",
    "compared": "def f(x, y):\n    return x + (\n        x\n        in «y»)\n",
    "backslash": "def f(x, y):\n    return x + \\\n      «{1}»\n",
    "semicolons": "def f(x, y): z = x; return z + «{1}»\n",
    "line of a lambda": "f = lambda x, y: x + «{y}»\n",
    "lambdas on one line": "fs = (lambda x, y: x, lambda x, y: «{x}», lambda x, y: y)\nf = fs[1]\n",
    "lambda over lines": "f = (\n    lambda x, y:\n        x + «{y}»\n)\n",
    "lambda in a call": "def g(a):\n    return a\n\nf = g(lambda x, y: x +\n  «{y}»)\n",
    "tabs": "def f(x, y):\n\tz = x\n\treturn z +\t«{y}»\n",
    "carriage returns": "def f(x, y):\r\n    z = x\r\n    return z + «{y}»\r\n",
    "after comments": "# one\n\n# two\n\n\ndef f(x, y):\n    # three\n\n    return «{y}»\n",
    "docstring above": 'def f(x, y):\n    """Lines\n    of text."""\n    return «{y}»\n',
    "nested": "def make():\n    def f(x, y):\n        return «{y}»\n    return f\n\nf = make()\n",
    "method": "class A:\n    def f(x, y):\n        return «{y}»\n\nf = A.f\n",
    "annotated": "def f(x: float, y: 'real') -> float:\n    z: float = «{y}»\n    return z\n",
}


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in MULTILINE.items()])
def test_the_caret_finds_its_text(text: str) -> None:
    cell = Cell(text)
    message = "a tuple is needed here" if "in «y»" in text else "a set"
    verify(cell, message, ...)


@pytest.mark.parametrize("text", ["größe + «{y}»", "π * größe * π + «{y}»", "größe + len('日本') + «{y}»"])
def test_columns_count_characters(text: str) -> None:
    if "len" in text:
        text = text.replace("len('日本')", "float('日本' == '日本')")
    verify(Cell(f"π = 3.0\n\ndef f(größe, y):\n    return {text}\n"), "a set", "a tuple")


# --- functions without source -----------------------------------------------------------------------------------------


def test_text_that_was_executed_without_a_file() -> None:
    names: dict[str, Any] = {}
    exec("def f(x): return x", names)
    with pytest.raises(CompileError, match="the source of f is not available") as caught:
        differentiable_broadcast(names["f"])(X)
    assert "from_source" in caught.value.hint


@pytest.mark.parametrize("thing", [math.sin, np.sin, int, "".join])
def test_what_is_no_python_function(thing: Any) -> None:
    with pytest.raises(CompileError, match="not a Python function") as caught:
        differentiable_broadcast(thing)(X)
    assert "def" in caught.value.hint


def test_decorating_what_has_no_source_shows_no_compiler_frame() -> None:
    with pytest.raises(CompileError) as caught:
        differentiable_broadcast(math.sin)
    check_traceback(caught.value)


def test_what_is_not_callable() -> None:
    with pytest.raises(ArgumentError, match="decorates a function"):
        differentiable_broadcast(3)  # type: ignore[call-overload]


# --- exactly one error, whatever is asked -----------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["python", "cpu"])
@pytest.mark.parametrize(
    "method", ["__call__", "value_and_jacobian", "jacobian", "inspect_ir", "explain", "inspect_ptx"]
)
def test_every_entry_gives_the_same_error(backend: Any, method: str) -> None:
    cell = Cell(program("z = x\nreturn z + «{y}»"))
    f = differentiable_broadcast(backend=backend)(cell.names["f"])
    with pytest.raises(CompileError) as caught:
        getattr(f, method)(X, Y)
    check(cell, caught.value, "a set", "a tuple")


def test_the_first_of_several_errors_is_the_one() -> None:
    cell = Cell(program("z = «{x}»\nw = {y}\nreturn undefined"))
    verify(cell, "a set", "a tuple")


def test_an_edited_cell_gives_the_new_error_and_then_none() -> None:
    error = Cell(program("return «{x}»")).error()
    assert "a set" in error.message
    better = Cell(program("return x * y"))
    assert differentiable_broadcast(backend="python")(better.names["f"])(X, Y).tolist() == (X * Y).tolist()


def test_python_is_not_made_to_warn_again(recwarn: pytest.WarningsRecorder) -> None:
    cell = Cell(program("return (x, y)[«1.5»]"))
    verify(cell, "known when the kernel is compiled", ...)
    assert not recwarn.list
