"""What cannot be compiled is one error at the user's file, line and text, with what to write instead.

Each row of the tables is a program in which « and » enclose the text that the error must point at.
"""

from __future__ import annotations

import functools
import itertools
import linecache
import math
import random
import textwrap
import traceback
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dualbcast
from dualbcast import differentiable_broadcast
from dualbcast.errors import ArgumentError, CompileError
from dualbcast.runtime import cpu

COMPILER = str(Path(dualbcast.__file__).parent / "compiler")
X, Y = np.array([0.5, 2.0]), np.array([1.5, -0.5])

cells = itertools.count(1)


@pytest.fixture(autouse=True)
def no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing in this file may get as far as Numba."""

    def reached(*_: Any) -> None:
        pytest.fail("an erroneous function reached the backend")

    monkeypatch.setattr(cpu, "compile_kernel", reached)


@dataclass
class Cell:
    """A program run as a notebook runs a cell: its text is in `linecache` only."""

    marked: str
    captured: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.text = self.marked.replace("«", "").replace("»", "")
        self.filename = f"<ipython-input-{next(cells)}>"
        lines = self.text.replace("\r\n", "\n").splitlines(keepends=True)  # as `linecache` reads files
        linecache.cache[self.filename] = (len(self.text), None, lines, self.filename)
        self.names: dict[str, Any] = {"math": math, "np": np, **self.captured}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # `(x, y)[1.5]` is wrong on purpose
            exec(compile(self.text, self.filename, "exec", dont_inherit=True), self.names)

    def place(self) -> tuple[int, int, str]:
        """Line, column (both from 1, in characters) and text on that line of what the marks enclose."""
        before, rest = self.marked.split("«")
        inside = rest.split("»")[0]
        return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1, inside.split("\n")[0]

    def error(self, *arrays: Any) -> CompileError:
        """The error of a call of the program's `f`, as a user gets it."""
        with pytest.raises(CompileError) as caught:
            differentiable_broadcast(self.names["f"])(*(arrays or (X, Y)))
        return caught.value


def check(cell: Cell, error: CompileError, message: str, hint: str | None) -> None:
    line, column, text = cell.place()
    assert message in error.message
    assert (error.filename, error.lineno) == (cell.filename, line)
    source = cell.text.split("\n")[line - 1].rstrip("\r")
    first, shown, carets = str(error).split("\n")[:3]
    assert first.endswith(error.message)
    assert first.startswith(f"{cell.filename}:{line}:{column}: ")
    assert error.offset == column
    assert shown == f"{line:>6} | {source}"
    start = len(shown) - len(source) + column - 1
    padding = "".join("\t" if character == "\t" else " " for character in source[: column - 1])
    assert carets == f"{'|':>8} {padding}{'^' * len(text)}", f"{shown}\n{carets}"
    assert shown[start:].startswith(text)
    if hint is None:
        assert not error.hint
    else:
        assert hint
        assert hint in error.hint
        assert f"Write instead: {error.hint}" in str(error)
    check_traceback(error)


def check_traceback(error: BaseException) -> None:
    """No frame of the compiler shows, and no second error is printed before or after this one."""
    frames = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    assert not [name for name in frames if name.startswith(COMPILER)]
    assert error.__cause__ is None
    assert error.__context__ is None or error.__suppress_context__
    assert "".join(traceback.format_exception(error)).count("Traceback") == 1


def program(body: str) -> str:
    return "def f(x, y):\n" + textwrap.indent(body, "    ") + "\n"


# --- statements -------------------------------------------------------------------------------------------------------

STATEMENTS = {
    "try": ("«try:»\n    return x\nexcept ValueError:\n    return y", "try", "a test of the values"),
    "try star": ("«try:»\n    return x\nexcept* ValueError:\n    pass", "try", "a test of the values"),
    "with": ("«with x:»\n    return x", "with", "plain statements"),
    "raise": ("if x < 0:\n    «raise ValueError»\nreturn x", "raise", "nan"),
    "assert": ("«assert x > 0»\nreturn x", "assert", "nan"),
    "import": ("«import os»\nreturn x", "import", "top of the file"),
    "from import": ("«from math import sin»\nreturn sin(x)", "import", "top of the file"),
    "global": ("«global total»\ntotal = x\nreturn x", "global", "another output"),
    "del": ("z = x\n«del z»\nreturn x", "del", "nothing"),
    "class": ("«class A: pass»\nreturn x", "a class definition", "functions and tuples"),
    "async def": ("«async def g(): return 1»\nreturn x", "async", "a plain function"),
    "match": ("«match x:»\n    case 1: return x\nreturn y", "match", "if/elif/else"),
    "while else": ("while x > 0:\n    x -= 1\nelse:\n    «x = 2»\nreturn x", "`else` after a loop", "a flag"),
    "for else": ("for i in range(3):\n    x -= i\nelse:\n    «x = 2»\nreturn x", "`else` after a loop", "a flag"),
    "unused value": ("«x + y»\nreturn x", "not used", "an assignment or a return"),
    "unused number": ("«3»\nreturn x", "not used", "an assignment or a return"),
    "print": ("«print(x)»\nreturn x", "print() is a side effect", "another output"),
    "assign element of a tuple": ("t = (x, y)\n«t[0]» = 1\nreturn x", "an element cannot be assigned", "a new tuple"),
    "assign element of a parameter": ("«x[0]» = 1\nreturn x", "an element cannot be assigned", "another output"),
    "augmented element": ("«x[0]» += 1\nreturn x", "an element cannot be assigned", "another output"),
    "assign attribute": ("«x.a» = 1\nreturn x", "an attribute cannot be assigned", "a local variable"),
    "annotated attribute": ("«x.a»: float = 1\nreturn x", "an attribute cannot be assigned", "a local variable"),
    "augmented attribute": ("«x.a» += 1\nreturn x", "an attribute cannot be assigned", "a local variable"),
    "loop into an element": ("for «x[0]» in range(int(y)):\n    pass\nreturn x", "an element cannot be", "a new tuple"),
    "decorated inner function": ("@«abs»\ndef g(a):\n    return a\nreturn g(x)", "decorators of an inner", ...),
}

# --- expressions ------------------------------------------------------------------------------------------------------

EXPRESSIONS = {
    "list": ("«[x, y]»", "a list", "a tuple"),
    "dict": ("«{1: x}»", "a dictionary", "separate variables"),
    "set": ("«{x, y}»", "a set", "a tuple"),
    "list comprehension": ("sum(«[a for a in (x, y)]»)", "a list comprehension", "a for loop"),
    "set comprehension": ("sum(«{a for a in (x, y)}»)", "a set comprehension", "a for loop"),
    "dict comprehension": ("«{1: a for a in (x, y)}»", "a dictionary comprehension", "a for loop"),
    "generator": ("sum«(a for a in (x, y))»", "a generator expression", "a for loop"),
    "f-string": ("len(«f'{x}'»)", "an f-string", "numbers only"),
    "walrus": ("(«z := x») + 1", "the walrus operator", "an assignment on a line of its own"),
    "in": ("«x in (1, 2)»", "`in`", "comparisons joined by `or`"),
    "not in": ("«x not in (1, 2)»", "`in`", "comparisons joined by `or`"),
    "is": ("«x is y»", "no identity", "=="),
    "is not": ("«x is not y»", "no identity", "=="),
    "complex": ("x * «1j»", "type complex", "real numbers"),
    "bytes": ("«b'a'»", "type bytes", "real numbers"),
    "ellipsis": ("«...»", "type ellipsis", "real numbers"),
    "matrix product": ("«x @ y»", "MatMult", "arithmetic on numbers"),
    "bits of a float": ("«x & y»", "integers", "int(x)"),
    "inverted float": ("«~x»", "integers", "int(x)"),
    "shifted float": ("«x << 2»", "integers", "int(x)"),
    "text plus number": ("x + «'a'»", "a number is needed here", ...),
    "None plus number": ("x + «None»", "a number is needed here", ...),
    "tuple plus number": ("«(x, y)» + x", "a tuple of 2", ...),
    "tuple times number": ("«(x, y)» * x", "a tuple of 2", ...),
    "function plus number": ("«math.sin» + x", "the function sin", ...),
    "negated tuple": ("«-(x, y)»", "a tuple of 2", ...),
    "text as a condition": ("x if «'a'» else y", "a number is needed here", ...),
    "two kinds": ("«x if x > 0 else (x, y)»", "not of one kind", "tuples of one length"),
    "a number or None": ("«x or None»", "not of one kind", "two numbers"),
    "function chosen by data": ("(«math.sin if x > 0 else math.cos»)(x)", "not of one kind", ...),
    # indices
    "indexed parameter": ("«x[0]»", "one element of its array", "another argument"),
    "sliced parameter": ("«x[1:]»", "one element of its array", "another argument"),
    "indexed in two": ("«x[0, 1]»", "one element of its array", "another argument"),
    "index from data": ("(x, y)[«int(x)»]", "known when the kernel is compiled", "a for loop"),
    "slice from data": ("(x, y)[«int(x)»:]", "known when the kernel is compiled", "a for loop"),
    "float index": ("(x, y)[«1.5»]", "known when the kernel is compiled", "a for loop"),
    "zero slice step": ("(x, y)[«::0»]", "must not be zero", ...),
    "index too large": ("«(x, y)[2]»", "index 2 is outside this tuple of 2", ...),
    "index too small": ("«(x, y)[-3]»", "index -3 is outside this tuple of 2", ...),
    "indexed function": ("«math.sin»[0]", "the function sin", ...),
    # names and attributes
    "unknown name": ("x + «elephant»", "the name elephant is not defined", ...),
    "attribute of a number": ("«x.T»", "a number has no T here: a parameter is one element", "the name alone"),
    "method of a number": ("«x.sum»()", "a number has no sum here: a parameter is one element", "the name alone"),
    "missing in a module": ("«math.nothing»(x)", "the module math has no nothing", ...),
    "method of a ufunc": ("«np.add.reduce»((x, y))", "attributes of the function add", ...),
    # captures
    "captured array of a subclass": (
        "«array» * x",
        "array is captured from outside the function and is of type MaskedArray",
        "a parameter",
    ),
    "captured list": (
        "«items»[0] * x",
        "items is captured from outside the function and is of type list",
        "a parameter",
    ),
    "captured dict": (
        "«table»[1] * x",
        "table is captured from outside the function and is of type dict",
        "a parameter",
    ),
    "captured set": ("x in «bag»", "bag is captured from outside the function and is of type set", "a parameter"),
    "captured complex": ("x * «imaginary»", "is of type complex", "a parameter"),
    "captured mixed tuple": (
        "x * «mixed»[0]",
        "mixed is captured from outside the function and is of type",
        "a parameter",
    ),
    "captured text": ("x + «text»", "a number is needed here", ...),
    # calls
    "no rule in math": ("«math.gcd(x, y)»", "there is no derivative rule for math.gcd", "math or numpy"),
    "no rule, known arguments": ("«math.factorial(3)» * x", "no derivative rule for math.factorial", "math or numpy"),
    "no rule in numpy": ("«np.array((x, y))»", "no derivative rule for numpy.array", "math or numpy"),
    "random": ("«random.random()»", "no derivative rule for", "math or numpy"),
    "builtin without a rule": ("«isinstance(x, float)»", "no derivative rule for builtins.isinstance", ...),
    "builtin map": ("tuple(«map(abs, (x, y))»)", "no derivative rule for builtins.map", ...),
    "list()": ("«list((x, y))»", "no derivative rule for builtins.list", ...),
    "called object": ("«callable_object(x)»", "there is no derivative rule for", ...),
    "partial": ("«partial(x)»", "there is no derivative rule for functools.partial", ...),
    "called number": ("«x»(y)", "a number cannot be called", ...),
    "called tuple": ("«(x, y)»(1)", "a tuple of 2 cannot be called", ...),
    "called module": ("«math»(x)", "the module math cannot be called", ...),
    "two arguments to tanh": ("«math.tanh(x, y)»", "tanh() takes 1 positional argument", ...),
    "no argument to tanh": ("«math.tanh()»", "tanh() takes 1 positional argument", ...),
    "keyword to tanh": ("«math.tanh(x=x)»", "tanh() takes 1 positional argument", ...),
    "out= of a ufunc": ("«np.sin(x, out=y)»", "sin() takes 1 positional argument", ...),
    "double star": ("math.tanh(**«{'x': x}»)", "`**` arguments", "written out"),
    "starred number": ("math.atan2(*«x»)", "a tuple is needed here", ...),
    "two to abs": ("«abs(x, y)»", "abs() does not take 2 arguments", ...),
    "key of min": ("«min(x, y, key=abs)»", "min() takes no keyword arguments", ...),
    "min of nothing": ("«min(())»", "of nothing", ...),
    "min of a number": ("«min(x)»", "a tuple is needed here", ...),
    "sum of a number": ("«sum(x)»", "a tuple is needed here", ...),
    "len of a number": ("«len(x)»", "a tuple is needed here", ...),
    "digits from data": ("«round(x, y)»", "the number of digits must be known", ...),
    "float of text": ("«float('abc')»", "'abc' is not a number", ...),
    "three to pow": ("«pow(x, y, 2)»", "pow() does not take 3 arguments", ...),
    "ldexp by a float": ("«math.ldexp(x, y)»", "argument 2 of ldexp() must be an integer", "int(x)"),
    "range of floats": ("sum(«range(x)»)", "range() needs integers", "int(x)"),
    "range without bounds": ("sum(«range()»)", "range() takes 1 to 3 arguments, not 0", ...),
    "length from data": ("«len(range(int(x)))»", "the length of this range is not known", "a for loop over it"),
    "shift out of range": ("«int(x) << 64»", "outside the 64 bits", ...),
    "integer out of range": ("«2**62 * 4» + int(x)", "does not fit 64 bits", "a float"),
    # lambdas
    "lambda with too many": ("«(lambda a: a)(x, y)»", "<lambda>() takes 1 positional argument", ...),
    "lambda lacking one": ("«(lambda a, b: a)(x)»", "<lambda>() lacks a value for b", ...),
    "lambda lacking a keyword": ("«(lambda a, *, b: a)(x)»", "<lambda>() lacks a value for b", ...),
    "lambda with double star": ("«(lambda **k: 1)(a=x)»", "`**k`", "named parameters"),
    "default of a lambda": ("(lambda a, b=«[]»: a)(x)", "a list", "a tuple"),
}

CAPTURED = {
    "array": np.ma.masked_array(np.ones(2)),
    "items": [1.0],
    "table": {1: 2.0},
    "bag": {1, 2},
    "imaginary": 1j,
    "record": SimpleNamespace(field=1.0),
    "mixed": (1.0, [2.0]),
    "text": "text",
    "random": random,
    "partial": functools.partial(math.pow, 2.0),
    "callable_object": type("Doubler", (), {"__call__": lambda _, x: 2 * x})(),
}

# --- names, loops, calls, returns -------------------------------------------------------------------------------------

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
        "every path passes",
    ),
    # loops
    "for over a number": ("for i in «x»:\n    y += i\nreturn y", "a tuple is needed here, and this is a number", ...),
    "range of a float": ("for i in «range(x)»:\n    y += i\nreturn y", "range() needs integers", "int(x)"),
    "zero step": ("for i in «range(0, 3, 0)»:\n    y += i\nreturn y", "must not be zero", ...),
    "step from data": ("for i in «range(0, 3, int(x))»:\n    y += i\nreturn y", "the step of range()", "a while loop"),
    "tuple becomes number": (
        "t = (x,)\n«for i in range(int(x)):»\n    t = x\nreturn y",
        "t is a tuple of 1 before this loop and a number after a turn of it",
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
    "double star argument": ("def g(a):\n    return a\nreturn g(**«x»)", "`**` arguments", "written out"),
    "double star parameter": ("def g(**a):\n    return 1\nreturn «g(a=x)»", "`**a`", "named parameters"),
    "called before its def": ("z = «g»(x)\ndef g(a):\n    return a\nreturn z", "g is read before it is assigned", ...),
    "bad default": ("def g(a, b=«{}»):\n    return a\nreturn g(x)", "a dictionary", "separate variables"),
    # returns
    "bare return": ("«return»", "a return without a value", "return x"),
    "return of None": ("if x > 0:\n    «return None»\nreturn x", "a return without a value", "return x"),
    "yield": ("«yield x»", "yield", "return"),
    "yield from": ("«yield from x»", "yield from", "return"),
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


def rows(table: dict[str, tuple[Any, ...]]) -> list[Any]:
    return [pytest.param(*row, id=name) for name, row in table.items()]


def verify(cell: Cell, message: str, hint: Any, *arrays: Any) -> CompileError:
    error = cell.error(*arrays)
    check(cell, error, message, error.hint or None if hint is ... else hint)
    return error


@pytest.mark.parametrize(("body", "message", "hint"), rows(STATEMENTS))
def test_a_statement_that_cannot_be_compiled(body: str, message: str, hint: str) -> None:
    verify(Cell(program(body)), message, hint)


@pytest.mark.parametrize(("expression", "message", "hint"), rows(EXPRESSIONS))
def test_an_expression_that_cannot_be_compiled(expression: str, message: str, hint: str) -> None:
    verify(Cell(program(f"return {expression}"), CAPTURED), message, hint)


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


# --- where things are -------------------------------------------------------------------------------------------------


def test_an_error_in_a_callee_is_chained_to_the_calls() -> None:
    cell = Cell(
        "def inner(a):\n    return a + «[a]»\n\n"
        "def outer(b):\n    c = inner(2 * b)\n    return c\n\n"
        "def f(x, y):\n    return outer(x) + y\n"
    )
    error = verify(cell, "a list", "a tuple")
    assert [(name, where.line, where.column) for name, where in error.calls] == [("outer", 9, 11), ("inner", 5, 8)]
    text = str(error)
    assert f"in inner(), called at {cell.filename}:5:9\n     5 |     c = inner(2 * b)\n" in text
    assert f"in outer(), called at {cell.filename}:9:12\n     9 |     return outer(x) + y\n" in text
    assert text.index("in inner()") < text.index("in outer()")


def test_a_callee_in_another_file_is_named_by_that_file() -> None:
    helper = Cell("def helper(a):\n    return «[a]»\n")
    caller = Cell("def f(x, y):\n    return helper(x)\n", {"helper": helper.names["helper"]})
    error = caller.error()
    check(helper, error, "a list", "a tuple")
    assert f"in helper(), called at {caller.filename}:2:12" in str(error)


def test_a_callee_without_source_is_an_error_at_the_call() -> None:
    names: dict[str, Any] = {}
    exec("def hidden(a): return a", names)
    cell = Cell("def f(x, y):\n    return «hidden(x)»\n", {"hidden": names["hidden"]})
    verify(cell, "the source of hidden cannot be had", "a file, a notebook cell")


def test_a_default_of_a_callee_that_is_no_number() -> None:
    cell = Cell("def g(a, b={}):\n    return a\n\ndef f(x, y):\n    return «g(x)»\n")
    verify(cell, "a default of g() is of type dict", ...)


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


LIBRARY = {"sort": "np.sort(x)", "norm": "np.linalg.norm(x)", "round": "np.round(x, 2)", "sum": "np.sum((x, y))"}


@pytest.mark.parametrize(("name", "call"), LIBRARY.items())
def test_a_python_function_of_numpy_is_not_looked_into(name: str, call: str) -> None:
    error = verify(Cell(program(f"return «{call}»")), "there is no derivative rule for", "math or numpy")
    assert error.message.endswith(name)
    assert not error.calls


MULTILINE = {
    "continued": "def f(x, y):\n    return (x +\n        y * «[»\n   1])\n",
    "compared": "def f(x, y):\n    return x + (\n        «x»\n        in y)\n",
    "backslash": "def f(x, y):\n    return x + \\\n      «[1]»\n",
    "semicolons": "def f(x, y): z = x; return z + «[1]»\n",
    "line of a lambda": "f = lambda x, y: x + «[y]»\n",
    "lambdas on one line": "fs = (lambda x, y: x, lambda x, y: «[x]», lambda x, y: y)\nf = fs[1]\n",
    "lambda over lines": "f = (\n    lambda x, y:\n        x + «[y]»\n)\n",
    "lambda in a call": "def g(a):\n    return a\n\nf = g(lambda x, y: x +\n  «[y]»)\n",
    "tabs": "def f(x, y):\n\tz = x\n\treturn z +\t«[y]»\n",
    "carriage returns": "def f(x, y):\r\n    z = x\r\n    return z + «[y]»\r\n",
    "after comments": "# one\n\n# two\n\n\ndef f(x, y):\n    # three\n\n    return «[y]»\n",
    "docstring above": 'def f(x, y):\n    """Lines\n    of text."""\n    return «[y]»\n',
    "nested": "def make():\n    def f(x, y):\n        return «[y]»\n    return f\n\nf = make()\n",
    "method": "class A:\n    def f(x, y):\n        return «[y]»\n\nf = A.f\n",
    "annotated": "def f(x: float, y: 'real') -> float:\n    z: float = «[y]»\n    return z\n",
}


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in MULTILINE.items()])
def test_the_caret_finds_its_text(text: str) -> None:
    cell = Cell(text)
    message = "`in`" if "in y" in text else "a list"
    verify(cell, message, ...)


@pytest.mark.parametrize("text", ["größe + «[y]»", "π * größe * π + «[y]»", "größe + len('日本') + «[y]»"])
def test_columns_count_characters(text: str) -> None:
    if "len" in text:
        text = text.replace("len('日本')", "float('日本' == '日本')")
    verify(Cell(f"π = 3.0\n\ndef f(größe, y):\n    return {text}\n"), "a list", "a tuple")


SIGNATURES = {
    "double star": ("def f(x, y, **«options»): return x", "`**options`", "named parameters"),
    "default": ("def f(x, y, «z»=[1.0]): return x", "z is of type list", ...),
}


@pytest.mark.parametrize(("text", "message", "hint"), rows(SIGNATURES))
def test_the_signature_of_a_broadcast_function(text: str, message: str, hint: str) -> None:
    verify(Cell(text + "\n"), message, hint)


# --- functions without source -----------------------------------------------------------------------------------------


def test_text_that_was_executed_without_a_file() -> None:
    names: dict[str, Any] = {}
    exec("def f(x): return x", names)
    with pytest.raises(CompileError, match="the source of f cannot be had") as caught:
        differentiable_broadcast(names["f"])(X)
    assert "linecache" in caught.value.hint


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
    cell = Cell(program("z = x\nreturn z + «[y]»"))
    f = differentiable_broadcast(backend=backend)(cell.names["f"])
    with pytest.raises(CompileError) as caught:
        getattr(f, method)(X, Y)
    check(cell, caught.value, "a list", "a tuple")


def test_the_first_of_several_errors_is_the_one() -> None:
    cell = Cell(program("z = «[x]»\nw = {y}\nreturn undefined"))
    verify(cell, "a list", "a tuple")


def test_an_edited_cell_gives_the_new_error_and_then_none() -> None:
    error = Cell(program("return «[x]»")).error()
    assert "a list" in error.message
    better = Cell(program("return x * y"))
    assert differentiable_broadcast(backend="python")(better.names["f"])(X, Y).tolist() == (X * Y).tolist()


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("return math.atan2(*(x, y))", id="starred"),
        pytest.param("for i in range(3):\n    y += i\nreturn y + i", id="loop variable"),
        pytest.param("t = (x, y)\nt += (x,)\nreturn t", id="growing tuple"),
        pytest.param("[a, b] = x, y\nreturn a * b", id="list as a target"),
        pytest.param("for *a, b in ((x, y),):\n    y += b\nreturn y", id="starred target"),
        pytest.param("return x if None else y", id="None is false"),
        pytest.param("z = x\n'text'\nreturn z", id="text between"),
        pytest.param("if False:\n    return [x]\nreturn x", id="never compiled"),
        pytest.param("return x\nreturn [x]", id="never reached"),
        pytest.param("float32, exp, out, k, start = x, y, x, y, x\nreturn float32 * exp * out * k * start", id="names"),
        pytest.param("def g(a):\n    y = a\n    return y\nreturn g(x) + y", id="inner locals"),
        pytest.param("g = lambda: z\nz = x\nreturn g()", id="late binding"),
        pytest.param("r = range(3)\nfor i in r:\n    y += i\nreturn y", id="named range"),
        pytest.param("while ():\n    x += 1\nreturn x", id="empty tuple is false"),
        pytest.param("return sum(zip()) + x", id="zip of nothing"),
        pytest.param("return *(x, y), x", id="starred return"),
    ],
)
def test_what_looks_odd_and_is_no_error(body: str) -> None:
    f = Cell(program(body)).names["f"]
    result = differentiable_broadcast(backend="python")(f)(X, Y)
    wanted = [f(x, y) for x, y in zip(X.tolist(), Y.tolist(), strict=True)]
    np.testing.assert_allclose(np.array(result), np.array(wanted).T)


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


def test_python_is_not_made_to_warn_again(recwarn: pytest.WarningsRecorder) -> None:
    cell = Cell(program("return (x, y)[«1.5»]"))
    verify(cell, "known when the kernel is compiled", ...)
    assert not recwarn.list
