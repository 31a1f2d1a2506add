"""Errors of names, loops, calls and returns: one each, before anything is compiled, at the user's line.

Each row of the tables is a program in which « and » enclose the text that the error must point at.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cells import Cell, check_traceback, program, rows, verify

from dualbcast import differentiable_broadcast
from dualbcast.errors import CompileError

pytestmark = pytest.mark.usefixtures("no_kernel")

FLOW = {
    "read before assigned": ("a = «b»\nb = x\nreturn a", "b is read before it is assigned", ...),
    "local hides a module": ("z = «math»\nmath = x\nreturn z", "math is read before it is assigned", ...),
    "annotation only": ("z: float\nreturn «z»", "z is read before it is assigned", ...),
    "augmented before assigned": ("«z» += 1\nreturn z", "z is read before it is assigned", ...),
    "assigned on one side": (
        "if x > 0:\n    z = x\nreturn «z»",
        "z is not assigned on every path",
        "every path passes",
    ),
    "assigned in elif": (
        "if x > 0:\n    z = x\nelif y > 0:\n    z = y\nreturn «z»",
        "z is not assigned on every path",
        "every path passes",
    ),
    "assigned in a for": (
        "for i in range(int(x)):\n    z = x\nreturn «z»",
        "z is assigned inside this loop only",
        "every path passes",
    ),
    "assigned in a while": (
        "while x > 0:\n    z = x\n    x -= 1\nreturn «z»",
        "z is assigned inside this loop only",
        "every path passes",
    ),
    "assigned in an earlier turn": (
        "for i in range(3):\n    if x > i:\n        w = x\n    y += «w»\nreturn y",
        "w is assigned inside this loop only",
        "every path passes",
    ),
    "loop variable afterwards": (
        "for i in range(int(x)):\n    y += i\nreturn «i»",
        "i is assigned inside this loop only",
        "every path passes",
    ),
    "tuple or number": (
        "if x > 0:\n    z = x\nelse:\n    z = (x, y)\nreturn «z»",
        "z is a number and a tuple of 2, depending on the path",
        "one kind of thing on every path",
    ),
    "part of a tuple": (
        "t = (x, None)\nif x > 0:\n    t = (x, y)\nreturn «t[1]» is None",
        "t[1] is a number and None, depending on the path",
        "one kind of thing on every path",
    ),
    "part that is matched": (
        "t = (x, None)\nif x > 0:\n    t = (x, y)\nmatch t:\n    case (a, «float()»): return a\nreturn y",
        "t[1] is a number and None, depending on the path",
        "one kind of thing on every path",
    ),
    "part of a choice": (
        "t = (x, 'a') if x > 0 else (y, 'b')\nreturn «t[1]»",
        "item 1 of this choice is text, depending on the data",
        "one kind of thing on every path",
    ),
    "part changes in a loop": (
        "t = (x, None)\n«for i in range(int(x)):»\n    t = (x, y)\nreturn y",
        "t[1] is None before this loop and a number after an iteration of it",
        "two names",
    ),
    # loops
    "for over a number": (
        "for i in «x»:\n    y += i\nreturn y",
        "this is a number: one element of an array",
        "a tuple",
    ),
    "range of a float": ("for i in «range(x)»:\n    y += i\nreturn y", "range() needs integers", "int(x)"),
    "zero step": ("for i in «range(0, 3, 0)»:\n    y += i\nreturn y", "must not be zero", ...),
    "step from data": ("for i in «range(0, 3, int(x))»:\n    y += i\nreturn y", "the step of range()", "a while loop"),
    "tuple becomes number": (
        "t = (x,)\n«for i in range(int(x)):»\n    t = x\nreturn y",
        "t is a tuple of 1 before this loop and a number after an iteration of it",
        "two names",
    ),
    "tuple grows": (
        "t = ()\n«for i in range(int(x)):»\n    t = t + (x,)\nreturn y",
        "t is a tuple of 0 before this loop and a tuple of 1 after",
        "two names",
    ),
    "function changes": (
        "g = math.sin\n«for i in range(int(x)):»\n    y = g(y)\n    g = math.cos\nreturn y",
        "g is the function sin before this loop and the function cos after",
        "two names",
    ),
    "index changes in a while": (
        "t, i = (x, y), 0\nwhile i < 2:\n    y += t[«i»]\n    i += 1\nreturn y",
        "known when the kernel is compiled",
        "a for loop",
    ),
    "unrolled past the end": (
        "t = (x, y)\nfor i in range(3):\n    y += «t[i]»\nreturn y",
        "index 2 is outside this tuple of 2",
        ...,
    ),
    "unrolled too often": (
        "for a in «(x,) * 5000»:\n    y += a\nreturn y",
        "written out 5,000 times",
        "a loop over range",
    ),
    # unpacking
    "too few": ("«a, b, c» = (x, y)\nreturn a", "2 values cannot be unpacked into 3 names", ...),
    "too many": ("«a,» = (x, y)\nreturn a", "2 values cannot be unpacked into 1 name", ...),
    "unpacked number": ("«a, b» = x\nreturn a", "a tuple is needed here, and this is a number", ...),
    "too few for the star": ("«a, *b, c» = (x,)\nreturn a", "1 value", ...),
    "unpacked in a loop": ("for «a, b, c» in zip((x, y), (y, x)):\n    y += a\nreturn y", "2 values cannot be", ...),
    # calls of inner functions
    "too many arguments": ("def g(a):\n    return a\nreturn «g(x, y)»", "g() takes 1 positional argument", ...),
    "missing argument": ("def g(a, b):\n    return a\nreturn «g(x)»", "g() lacks a value for b", ...),
    "unknown keyword": ("def g(a):\n    return a\nreturn «g(x, c=y)»", "g() has no parameter c", ...),
    "keyword given twice": ("def g(a, b):\n    return a\nreturn «g(x, a=y)»", "g() gets two values for a", ...),
    "positional only": ("def g(a, /):\n    return a\nreturn «g(a=x)»", "g() has no parameter a", ...),
    "double star argument": ("def g(a):\n    return a\nreturn g(**«x»)", "`**` spreads", "written out"),
    "called before its def": ("z = «g»(x)\ndef g(a):\n    return a\nreturn z", "g is read before it is assigned", ...),
    "bad default": ("def g(a, b=«{1}»):\n    return a\nreturn g(x)", "a set", "a tuple"),
    # returns
    "bare return": ("«return»", "a return without a value", "return x"),
    "return of None": ("if x > 0:\n    «return None»\nreturn x", "a return without a value", "return x"),
}

# Errors about a function as a whole point at its first line.
WHOLE = {
    "path without return": (
        "if x > 0:\n    return x",
        "can end without `return`",
        "a return with a value on every path",
    ),
    "while without return": ("while x > 0:\n    return x", "can end without `return`", "a return with a value"),
    "for without return": (
        "for i in range(3):\n    if x > i:\n        return x",
        "can end without `return`",
        "a return",
    ),
    "returns nothing": ("z = x", "returns nothing", "a return with a value on every path"),
    "no way out of a loop": ("while True:\n    x += 1", "never returns", "a break or a return"),
    "only pass": ("pass", "returns nothing", "a return with a value on every path"),
}

# (body, message, hint): what is returned is wrong, so that the error points at a return, or at the function.
RETURNED = {
    "two counts": ("if x > 0:\n    return x, y\nreturn x, y, x", "a tuple of 2 and a tuple of 3", "the same number"),
    "number or tuple": ("if x > 0:\n    return x\nreturn x, y", "a number and a tuple of 2", "the same number"),
    "function or number": (
        "if x > 0:\n    return math.sin\nreturn x",
        "the function sin and a number",
        "the same number",
    ),
    "in a loop": ("for i in range(3):\n    if x > i:\n        return x\nreturn x, y", "a number and a tuple of 2", ...),
    # A conflict that has been found is not forgotten where its path meets another one.
    "after a conflict, loop": (
        "if x > 1:\n    for i in range(3):\n        if y > i:\n            return x, y\nelse:\n    return y\nreturn y",
        "a tuple of 2 and a number",
        ...,
    ),
    "after a conflict, while": (
        "if x > 1:\n    c = 3\n    while c > 0:\n        c -= 1\n        return x, y\n    return 1\nreturn y",
        "a tuple of 2 and a number",
        ...,
    ),
    "function": ("return math.tanh", "the function tanh", "a return of numbers"),
    "lambda": ("return lambda a: a", "the function <lambda>", "a return of numbers"),
    "module": ("return math", "the module math", "a return of numbers"),
    "text": ("return 'a'", "", "a return of numbers"),
    "range": ("return range(3)", "a range", "a return of numbers"),
    "text in a nested tuple": ("return x, (x, 'y')", "text", "a return of numbers"),
    "nested on one path": ("if x > 0:\n    return x, y\nreturn x, (y, x)", "a number and a tuple of 2", ...),
    "empty tuple": ("return ()", "an empty tuple", "at least one number"),
}


@pytest.mark.parametrize(("body", "message", "hint"), rows(FLOW))
def test_names_loops_calls_and_returns(body: str, message: str, hint: str) -> None:
    verify(Cell(program(body)), message, hint)


@pytest.mark.parametrize(("body", "message", "hint"), rows(WHOLE))
def test_a_path_without_a_value(body: str, message: str, hint: str) -> None:
    verify(Cell("«def f(x, y):»\n" + textwrap.indent(body, "    ") + "\n"), message, hint)


@pytest.mark.parametrize(("body", "message", "hint"), rows(RETURNED))
def test_what_is_returned(body: str, message: str, hint: Any) -> None:
    cell = Cell(program(body))
    error = cell.error()
    assert message in error.message
    assert error.filename == cell.filename
    line = cell.text.splitlines()[error.lineno - 1]
    assert line.lstrip().startswith(("return", "def f"))
    assert error.hint
    assert hint is ... or hint in error.hint
    check_traceback(error)


@pytest.mark.parametrize("body", [body for body, _, _ in RETURNED.values()], ids=list(RETURNED))
def test_what_a_callee_returns_is_one_error_too(body: str) -> None:
    # At the callee's end, or where the caller adds to what is no number.
    cell = Cell(f"def g(x, y):\n{textwrap.indent(body, '    ')}\n\ndef f(x, y):\n    return g(x, y) + 1\n")
    error = cell.error()
    assert error.filename == cell.filename
    assert error.calls or error.lineno == len(cell.text.splitlines())
    check_traceback(error)


# --- what has no end ---


@pytest.mark.parametrize(
    "body",
    [
        "return sum(range(10**9)) + x",
        "for i in reversed(range(10**9)):\n    y += i\nreturn y",
        "t = (x,)\nfor i in range(10**9):\n    y += t[i]\nreturn y",
        "t = (x,) * 10**9\nreturn t[0]",
        "return sum((x,) * 10**4)",
        "return len(tuple(range(10**9))) + x",
    ],
)
def test_what_would_be_written_out_without_end(body: str) -> None:
    error = Cell(program(body)).error()
    assert "written out" in error.message
    assert error.hint
    check_traceback(error)


BRANCHING = """\
def g(a, n):
    return g(a - 1, n - 1) + g(a - 2, n - 1) if n > 0 else a

def f(x, y):
    return g(x, {depth})
"""


@pytest.mark.parametrize("text", [BRANCHING.format(depth=40), BRANCHING.format(depth=20)], ids=["deep", "wide"])
def test_calls_that_multiply_come_to_an_end(text: str) -> None:
    error = Cell(text).error()
    assert error.lineno == 2
    assert error.hint
    assert len(str(error).splitlines()) < 80
    check_traceback(error)


@pytest.mark.parametrize(
    "expression", ["x" + " + x" * 2000, "-" * 90 + "x if x > 0 else " * 90 + "x"], ids=["sum", "choices"]
)
def test_deep_nesting_compiles_or_says_so(expression: str) -> None:
    f = differentiable_broadcast(Cell(program(f"return {expression}")).names["f"])
    caught: list[CompileError] = []
    try:
        assert "output out" in f.inspect_ir("float64", "float64")
    except CompileError as error:
        caught.append(error)
    for error in caught:
        assert "nested too deeply" in error.message
        check_traceback(error)


def chained(count: int, factor: float = 1.001) -> Callable[[float], float]:
    """So many different functions, each of which calls the one before it; all of one text."""

    def longer(inner: Callable[[float], float]) -> Callable[[float], float]:
        return lambda x: inner(x) * factor

    def found(x: float) -> float:
        return x

    for _ in range(count):
        found = longer(found)
    return found


@pytest.mark.parametrize("depth", [200, 999])
@pytest.mark.parametrize("kind", ["one text", "lambdas", "functions", "inside"])
def test_a_deep_chain_of_calls_is_no_recursion(kind: str, depth: int):
    if kind == "one text":
        f = chained(depth)
    else:
        lines = {
            "lambdas": ["g0 = lambda x: x", *(f"g{at + 1} = lambda x: g{at}(x) * 1.001" for at in range(depth))],
            "functions": ["def g0(x): return x"]
            + [f"def g{at + 1}(x):\n    y = g{at}(x)\n    return y * 1.001" for at in range(depth)],
            "inside": ["def f(x):", "    g0 = lambda x: x"]
            + [f"    g{at + 1} = lambda x: g{at}(x) * 1.001" for at in range(depth)]
            + [f"    return g{depth}(x)"],
        }[kind]
        f = Cell("\n".join(lines)).names["f" if kind == "inside" else f"g{depth}"]
    before = sys.getrecursionlimit()
    value, jacobian = differentiable_broadcast(backend="python")(f).value_and_jacobian(np.array([1.0, -2.0]))
    np.testing.assert_allclose(value, [1.001**depth, -2 * 1.001**depth], rtol=4e-16 * depth)
    np.testing.assert_allclose(jacobian[0], [1.001**depth] * 2, rtol=4e-16 * depth)
    assert sys.getrecursionlimit() == before


def test_recursion_that_ends_may_be_deep():
    def power(x, n):
        return 1.0 if n == 0 else x * power(x, n - 1)

    f = differentiable_broadcast(backend="python")(lambda x: power(x, 300))
    np.testing.assert_allclose(f(np.array([1.01])), [1.01**300], rtol=1e-13)


def test_a_chain_that_is_too_deep_says_how_deep_it_may_be():
    with pytest.raises(CompileError) as caught:
        differentiable_broadcast(chained(1100)).inspect_ir("float64")
    assert "more than 1,000 deep" in caught.value.message
    assert "within itself" not in str(caught.value)
    check_traceback(caught.value)
    lines = ["g0 = lambda x: x", *(f"g{at + 1} = lambda x: g{at}(x) * 1.001" for at in range(1100))]
    with pytest.raises(CompileError) as caught:
        differentiable_broadcast(Cell("\n".join(lines)).names["g1100"]).inspect_ir("float64")
    assert "more than 1,000 deep" in caught.value.message
    shown = str(caught.value).splitlines()
    assert len(shown) < 50
    assert "… and 988 calls more" in shown
    assert "g1100 = lambda" in shown[-2]


@pytest.mark.parametrize("body", ["return loop(x)", "return other(x) + loop(x - 1)"])
def test_recursion_that_does_not_end_is_refused(body: str):
    cell = Cell(f"def other(x):\n    return loop(x)\n\n\ndef loop(x):\n    {body}")
    with pytest.raises(CompileError, match=r"within itself too deep; .* at most 1,000 calls deep") as caught:
        differentiable_broadcast(cell.names["loop"]).inspect_ir("float64")
    assert caught.value.hint == "a while loop"
    assert len(str(caught.value).splitlines()) < 50


def test_an_interrupt_of_what_is_deep_arrives():
    class Interrupting:
        def __bool__(self) -> bool:
            raise KeyboardInterrupt

    interrupting = Interrupting()

    def inner(x):
        return x if interrupting else -x

    f: Callable[[float], float] = inner
    for _ in range(40):
        f = (lambda g: lambda x: g(x))(f)
    with pytest.raises(KeyboardInterrupt):
        differentiable_broadcast(f).inspect_ir("float64")


def test_a_guard_may_rebind_what_its_pattern_binds():
    def f(x):
        match x:
            case d if (d := d + 1) > 2:
                return d
            case e if (e := 3 * e) < 100:
                return e
        return x

    found = differentiable_broadcast(backend="python")(f)
    value, jacobian = found.value_and_jacobian(np.array([1.5, 0.5, -1.0]))
    assert value.tolist() == [2.5, 1.5, -3.0]
    assert jacobian["x"].tolist() == [1.0, 3.0, 3.0]


def test_a_guard_that_rebinds_what_depends_on_the_pattern_is_an_error():
    def f(x, y):
        match x, y:
            case (1.0, d) if (d := d + 1) > 2:
                return d
        return x

    with pytest.raises(CompileError, match="this guard assigns d, which its pattern binds"):
        differentiable_broadcast(backend="python")(f)(1.0, 3.0)
