"""Every class of syntax node that Python's parser makes: a program with it that is compiled, or its one error.

A program is the text of a function `f` of two numbers, or only the body of one. What is compiled gives what plain
Python gives; in what is not, « and » enclose the text that the error points at.
"""

from __future__ import annotations

import _ast
import ast
import sys
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
from cells import Cell, agree, check, program

from dualbcast.frontend.environment import LOWERINGS, REFUSED
from dualbcast.runtime import interpreter


class Pair(NamedTuple):
    """A named tuple for patterns and attributes."""

    first: float
    second: float


@dataclass
class Point:
    """A dataclass for patterns."""

    x: float
    y: float = 2.0
    items: list[float] = field(default_factory=list, compare=False)


CAPTURED = {"Pair": Pair, "Point": Point}


@dataclass(frozen=True)
class Is:
    """A program that is compiled."""

    text: str
    since: tuple[int, int] = (3, 11)


@dataclass(frozen=True)
class Not:
    """A program that is an error: its exact message, and what its hint says."""

    text: str
    message: str
    hint: str | None
    since: tuple[int, int] = (3, 11)


@dataclass(frozen=True)
class Nowhere:
    """A node that no text of a function has."""

    reason: str


NUMBERS = "real numbers"
WHOLE = (
    "a tuple: (a, b); for the whole array a parameter that the decorator names in whole=; a value computed from it "
    "must be another argument of the call"
)
SIDE = "another output: a kernel cannot change what is outside it"
BEFOREHAND = "a test of the values beforehand"
ASYNC = "async def g():\n    {}\n"
PLAIN = "a plain function"

TABLE: dict[str, list[Is | Not | Nowhere]] = {
    # --- modules: what a whole text is
    "Module": [Nowhere("the text around functions")],
    "Interactive": [Nowhere("a line of the REPL around functions")],
    "Expression": [Nowhere("the text of eval()")],
    "FunctionType": [Nowhere("the text of a type comment, which Python's own parser drops")],
    "TypeIgnore": [Nowhere("a comment, which Python's own parser drops")],
    # --- statements
    "FunctionDef": [
        Is("def g(a):\n    return a * y\nreturn g(x) + g(y)"),
        Not(
            "@«abs»\ndef g(a):\n    return a\nreturn g(x)",
            "decorators of an inner function cannot be compiled",
            "the decorated function outside this one",
        ),
    ],
    "AsyncFunctionDef": [
        Not("«async def g(): return 1»\nreturn x", "async cannot be compiled", PLAIN),
        Not("«a»sync def f(x, y): return x\n", "f is async, and a kernel cannot wait", PLAIN),
    ],
    "ClassDef": [
        Not(
            "«class A: pass»\nreturn x",
            "a class definition cannot be compiled",
            "the class outside the function: a named tuple or a dataclass",
        )
    ],
    "Return": [
        Is("if x > 1:\n    return x * y, 1\nreturn y, 2"),
        Not("if x > 0:\n    «return»\nreturn x", "a return without a value", "the value: `return x`"),
    ],
    "Delete": [Not("z = x\n«del z»\nreturn x", "del cannot be compiled", "nothing: variables cost nothing")],
    "Assign": [
        Is("z = w = x * y\nreturn z + w"),
        Not(
            "t = (x, y)\n«t[0]» = 1\nreturn x",
            "an element cannot be assigned: tuples do not change, and outputs are returned",
            "a new tuple, or another output",
        ),
    ],
    "TypeAlias": [
        Not(
            "«type Real = float»\nreturn x",
            "a type alias cannot be compiled",
            "the alias outside the function",
            since=(3, 12),
        )
    ],
    "AugAssign": [
        Is("z = x\nz *= y\nz -= 1\nreturn z"),
        Is("t = [x]\nt += [y]\nt[0] *= 2\nreturn t"),
        Not(
            "t = [x]\ns = t\nt += [y]\nreturn t, «s»",
            "s shares its elements with t, which line 4 changes in place: Python would change both",
            "a copy, made before the change",
        ),
    ],
    "AnnAssign": [Is("z: float = x * y\nw: int\nw = 2\nreturn z * w")],
    "For": [
        Is("for i in range(3):\n    y += x * i\nreturn y"),
        Is("for i, a in enumerate((x, y)):\n    if a > 1: break\nelse:\n    return y\nreturn x * i"),
        Not(
            "for i in «x»:\n    y += i\nreturn y",
            "a tuple is needed here, and this is a number: one element of an array, not the array",
            WHOLE,
        ),
    ],
    "AsyncFor": [
        Not("«async def g():»\n    async for a in x: pass\nreturn x", "async cannot be compiled", PLAIN),
        Not("«a»sync def f(x, y):\n    async for a in x: return a\n", "f is async, and a kernel cannot wait", PLAIN),
    ],
    "While": [Is("n = 0\nwhile x < 5:\n    x *= 3\n    n += 1\nreturn x * y + n")],
    "If": [Is("if x > 1:\n    z = x\nelif y > 2:\n    z = 1\nelse:\n    z = y * y\nreturn z")],
    "With": [Not("«with x:»\n    return x", "with cannot be compiled", "plain statements")],
    "AsyncWith": [
        Not("«async def g():»\n    async with x: pass\nreturn x", "async cannot be compiled", PLAIN),
    ],
    "Match": [Is("match x > 1:\n    case True: return x\n    case _: return y")],
    "Raise": [
        Is("if x < -9:\n    raise ValueError(f'{x} is small')\nreturn x"),
        Not("if x < 0:\n    «raise»\nreturn x", "only an exception can be raised", 'raise ValueError("…")'),
        Not("«raise ValueError('no')»", "this call raises ValueError: no", None),
        Is("if len((x, y)) == 3:\n    raise ValueError\nreturn x"),
    ],
    "Try": [Not("«try:»\n    return x\nexcept ValueError:\n    return y", "try cannot be compiled", BEFOREHAND)],
    "TryStar": [Not("«try:»\n    return x\nexcept* ValueError:\n    pass", "try cannot be compiled", BEFOREHAND)],
    "Assert": [
        Is("assert len((x, y)) == 2\nreturn x"),
        Is("assert x > -9, f'{x} is small'\nif x > 9:\n    assert False\nreturn x"),
        Not("«assert False, 'no'»\nreturn x", "this assertion fails: no", None),
    ],
    "Import": [
        Not(
            "«import os»\nreturn x",
            "import inside the function cannot be compiled",
            "the import at the top of the file",
        )
    ],
    "ImportFrom": [
        Not(
            "«from math import sin»\nreturn sin(x)",
            "import inside the function cannot be compiled",
            "the import at the top of the file",
        )
    ],
    "Global": [Not("«global total»\ntotal = x\nreturn x", "global cannot be compiled", SIDE)],
    "Nonlocal": [
        Not(
            "z = x\ndef g():\n    «nonlocal z»\n    z = y\n    return z\nreturn g()",
            "nonlocal cannot be compiled",
            "a returned value: a function cannot change what is outside it",
        )
    ],
    "Expr": [
        Is("'A docstring.'\nreturn x"),
        Not("«x + y»\nreturn x", "the value of this expression is not used", "an assignment or a return"),
        Is("print('x =', x)\nreturn x"),
    ],
    "Pass": [Is("if x > 1:\n    pass\nreturn x")],
    "Break": [Is("for i in range(9):\n    x += y * i\n    if x > 1: break\nreturn x")],
    "Continue": [Is("for a in (x, y, 1.0):\n    if a > 1: continue\n    y -= a\nreturn y")],
    # --- expressions
    "BoolOp": [Is("return (x and y) + (x > 1 or y > 1)")],
    "NamedExpr": [
        Is("if (z := x * y) > 0:\n    return z\nreturn -z"),
        Not(
            "return sum([«w := a» for a in (x, y)]) + w",
            "the walrus operator inside a comprehension cannot be compiled",
            "a for loop",
        ),
    ],
    "BinOp": [
        Is("return x * y - (x / y)"),
        Not("return «(x, y)» - x", "a number is needed here, and this is a tuple of 2", "one item of it"),
    ],
    "UnaryOp": [Is("return -x")],
    "Lambda": [Is("return (lambda a, b=2.0, *c: a * b + y)(x)")],
    "IfExp": [
        Is("return x if x > 1 else y * y"),
        Not(
            "return «x if x > 0 else (x, y)»",
            "the two sides of this expression are not of one kind: a number and a tuple of 2",
            "two numbers, or tuples of one length; for functions, a choice between their results",
        ),
    ],
    "Dict": [
        Is("d = {'a': x, **dict(b=y)}\nreturn d['a'] * d['b']"),
        Not("return {«1»: x}", "a key of a dictionary must be known text", "a tuple"),
    ],
    "Set": [Not("return x in «{1, 2}»", "a set cannot be compiled", "a tuple")],
    "ListComp": [
        Is("return sum([a * y for a in (x, 2.0) if True])"),
        Not(
            "return [a for a in (x, y) if «a > 0»]",
            "how many items this gives depends on the data",
            "sum, prod, min, max, any or all of it, or a for loop",
        ),
    ],
    "SetComp": [
        Not("return sum(«{a for a in (x, y)}»)", "a set comprehension cannot be compiled", "tuple(… for …)"),
    ],
    "DictComp": [
        Is("d = {name: a for name, a in (('a', x), ('b', y))}\nreturn d['a'] * d['b']"),
        Not("return {«1»: a for a in (x, y)}", "a key of a dictionary must be known text", "a tuple"),
    ],
    "GeneratorExp": [
        Is("return sum(a * y for a in (x, y) if a > 1)"),
        Not(
            "«g» = (a for a in (x, y))\nreturn sum(g)",
            "g is a generator, which can be used once only",
            "tuple(…) around it",
        ),
    ],
    "Await": [Not("«async def g():»\n    return await x\nreturn x", "async cannot be compiled", PLAIN)],
    "Yield": [
        Is("def g():\n    for k in range(3):\n        yield k * x\n    yield y\nreturn sum(g())"),
        Not(
            "def g():\n    «yield x»\n    if x > 0:\n        yield y\nreturn sum(g())",
            "how many items this generator gives depends on the data",
            "a function that returns a tuple, or a loop without it",
        ),
    ],
    "YieldFrom": [Is("def g():\n    yield from (x, y)\n    yield 2.0\nreturn tuple(g())")],
    "Compare": [Is("return 0 < x <= y")],
    "Call": [
        Is("return math.exp(x) * abs(y)"),
        Not("return «x»(y)", "a number cannot be called", None),
    ],
    "FormattedValue": [
        Is("return x if f'{1 + 1:>2}' == ' 2' else y"),
        Not(
            "return len(f'{«x»}')",
            "text is made when the kernel is compiled, and this is not known then",
            "a known value",
        ),
    ],
    "JoinedStr": [Is("return float(f'{2}.5') * x")],
    "Constant": [
        Is("return x + 1 + 2.5 + True"),
        Is("return abs(x * 1j)"),
        Not("return «...»", "a constant of type ellipsis cannot be compiled", NUMBERS),
        Not("return x + «None»", "a number is needed here, and this is None", "a number"),
    ],
    "Attribute": [
        Is("return Pair(x, y).second * math.pi"),
        Not(
            "return «x.T»",
            "a number has no T here: x is one element of its array",
            "the name alone; a value computed from the whole array must be another argument of the call",
        ),
    ],
    "Subscript": [
        Is("return (x, y)[1] * [y, x][-1]"),
        Not(
            "return «x[0]»",
            "x is one element of its array here, so it cannot be indexed",
            'whole="x" in the decorator, or signature="(n)->()" for vectors along its last axis',
        ),
    ],
    "Starred": [
        Is("a, *b = x, y, 1.0\nreturn math.atan2(*(x, y)) * b[0] + max(*b)"),
        Not(
            "return max(*«x»)",
            "a tuple is needed here, and this is a number: one element of an array, not the array",
            WHOLE,
        ),
    ],
    "Name": [
        Is("z = x\nreturn z"),
        Not("return x + «elephant»", "the name elephant is not defined", None),
    ],
    "List": [Is("return [x, y]"), Is("[a, b] = x, y\nreturn a * b")],
    "Tuple": [Is("return x, (y, x * y)")],
    "Slice": [
        Is("return sum((x, y, 3.0)[1:]) + (x, y, 1.0)[::2][0]"),
        Not("return (x, y)[«::0»]", "the step of a slice must not be zero", None),
    ],
    "Load": [Is("return x")],
    "Store": [Is("z = x\nreturn z")],
    "Del": [Not("«del x»\nreturn y", "del cannot be compiled", "nothing: variables cost nothing")],
    # --- operators
    "And": [Is("return x > 1 and y")],
    "Or": [Is("return x > 1 or y")],
    "Add": [Is("return x + y")],
    "Sub": [Is("return x - y")],
    "Mult": [Is("return x * y")],
    "MatMult": [Not("return «x @ y»", "@ multiplies matrices, and these are numbers", "*, or a sum of products")],
    "Div": [Is("return x / y")],
    "Mod": [Is("return x % y")],
    "Pow": [Is("return x ** y")],
    "LShift": [
        Is("return int(x) << 2"),
        Not("return «x << 2»", "a bit operation needs integers", "int(x) around the numbers"),
    ],
    "RShift": [Is("return int(x) >> 1")],
    "BitOr": [Is("return int(x) | 5")],
    "BitXor": [Is("return int(x) ^ 5")],
    "BitAnd": [Is("return int(x) & 3, (x > 1) & (y > 1)")],
    "FloorDiv": [Is("return x // y, 7 // int(x + 1)")],
    "Invert": [
        Is("return ~int(x)"),
        Not("return «~x»", "a bit operation needs integers", "int(x) around the number"),
    ],
    "Not": [Is("return not x > 1")],
    "UAdd": [Is("return +x, +True")],
    "USub": [Is("return -x")],
    "Eq": [Is("return x == 2.25, (x, 'a') == (2.25, 'a')")],
    "NotEq": [Is("return x != 2.25")],
    "Lt": [Is("return x < y")],
    "LtE": [Is("return x <= 2")],
    "Gt": [Is("return x > y")],
    "GtE": [Is("return x >= 2")],
    "Is": [
        Is("return x if x is None else y"),
        Not("return «x is y»", "numbers have no identity in a kernel", "== instead of `is`"),
    ],
    "IsNot": [Is("return x if math is not None else y")],
    "In": [
        Is("return x in (1, 2.0, y)"),
        Not(
            "return x in «y»",
            "a tuple is needed here, and this is a number: one element of an array, not the array",
            WHOLE,
        ),
    ],
    "NotIn": [Is("return x not in (1, 2.0)")],
    # --- parts of statements and expressions
    "comprehension": [Is("return sum(a * b for a in (x, y) for b in range(2) if a > b)")],
    "ExceptHandler": [Not("«try:»\n    return x\nexcept E as e:\n    return y", "try cannot be compiled", BEFOREHAND)],
    "arguments": [
        Is("def g(a, /, b, *c, d=2.0, **e):\n    return a * b + c[0] * d + e['k']\nreturn g(x, y, 3.0, k=x)"),
        Not("def g(a, b):\n    return a\nreturn «g(x)»", "g() lacks a value for b", "g(a, b)"),
    ],
    "arg": [Is("def g(a: float):\n    return a * x\nreturn g(y)")],
    "keyword": [
        Is("def g(a, b=1.0):\n    return a - b\nreturn g(b=x, a=y) + sum((x, y), start=1.0)"),
        Not("def g(a):\n    return a\nreturn «g(x, c=y)»", "g() has no parameter c", "g(a)"),
    ],
    "alias": [
        Not(
            "«import math as m»\nreturn x",
            "import inside the function cannot be compiled",
            "the import at the top of the file",
        )
    ],
    "withitem": [Not("«with x as z:»\n    return x", "with cannot be compiled", "plain statements")],
    # --- match
    "match_case": [Is("match x:\n    case a if a > 1: return a\n    case _: return y")],
    "MatchValue": [Is("match int(x):\n    case 0: return y\n    case 2: return x\nreturn 1.0")],
    "MatchSingleton": [Is("match x > 1:\n    case None: return 0.0\n    case True: return x\n    case _: return y")],
    "MatchSequence": [Is("match (x, (y, 1)):\n    case [a, (b, 1)]: return a * b\n    case _: return x")],
    "MatchMapping": [
        Not(
            "match x:\n    case «{'a': a}»: return a\nreturn x",
            "a mapping pattern cannot be compiled",
            "names or attributes",
        )
    ],
    "MatchClass": [
        Is("match Pair(x, y):\n    case Pair(a, second=b) if a > b: return a\n    case Point(): return 0.0\nreturn y"),
        Not(
            "match Pair(x, y):\n    case «Pair(a, b, c)»: return a\nreturn x",
            "Pair has 2 positional parts, not 3",
            None,
        ),
    ],
    "MatchStar": [Is("match (x, y, 1.0):\n    case [a, *b]: return a * b[0]")],
    "MatchAs": [Is("match x * y:\n    case float() as z: return z\n    case w: return w")],
    "MatchOr": [Is("match int(x):\n    case 0 | 1: return y\n    case _: return x")],
    # --- type parameters
    "TypeVar": [
        Is("def g[T](a: T) -> T:\n    return a * y\nreturn g(x)", since=(3, 12)),
        Is("def f[T: float](x: T, y: T) -> T:\n    return x * y\n", since=(3, 12)),
        Is("def g[T = float](a: T) -> T:\n    return a * y\nreturn g(x)", since=(3, 13)),
    ],
    "ParamSpec": [
        Is("def g[**P](a):\n    return a * y\nreturn g(x)", since=(3, 12)),
        Is("def g[**P = [int]](a):\n    return a * y\nreturn g(x)", since=(3, 13)),
    ],
    "TypeVarTuple": [
        Is("def g[*Ts](*a: *Ts):\n    return a[0] * a[1]\nreturn g(x, y)", since=(3, 12)),
        Is("def g[*Ts = *tuple[int]](*a: *Ts):\n    return a[0] * y\nreturn g(x)", since=(3, 13)),
    ],
}

# The classes of 3.12 that other versions' parsers do not make.
LATER = {"TypeAlias", "TypeVar", "ParamSpec", "TypeVarTuple"} if sys.version_info < (3, 12) else set()


def current() -> set[str]:
    """The node classes that the parser makes, without the abstract ones.

    They are those of the C module `_ast`. The deprecated ones (`ast.Num`, `ast.Index`, `ast.Param` and the like) are
    Python classes of the module `ast` that no parser makes.
    """
    classes = {kind for kind in vars(_ast).values() if isinstance(kind, type) and issubclass(kind, ast.AST)}
    return {kind.__name__ for kind in classes - {ast.AST} if not set(kind.__subclasses__()) & classes}


def cases(kind: type) -> list[Any]:
    return [
        pytest.param(node, row, id=f"{node}-{position}")
        for node, entries in TABLE.items()
        for position, row in enumerate(entries)
        if isinstance(row, kind) and sys.version_info >= row.since
    ]


def cell_of(node: str, text: str) -> Cell:
    """The program, which has the node in a function."""
    whole = text if text.lstrip("«@").startswith(("def f", "async def f", "a»sync def f")) else program(text)
    cell = Cell(whole, CAPTURED)
    kind = getattr(ast, node)
    functions = ast.parse(cell.text).body
    assert any(isinstance(part, kind) for function in functions for part in ast.walk(function)), "lacks its own node"
    return cell


def test_every_class_of_node_is_in_the_table() -> None:
    assert {name for name in TABLE if name not in LATER} == current()


def test_deprecated_classes_are_none_that_a_parser_makes() -> None:
    others = {name for name, kind in vars(ast).items() if isinstance(kind, type) and issubclass(kind, ast.AST)}
    assert {"Index", "Param", "Suite"} <= others - current()


@pytest.mark.parametrize(("node", "row"), cases(Is))
def test_a_node_that_is_compiled(node: str, row: Is) -> None:
    agree(cell_of(node, row.text))


@pytest.mark.usefixtures("no_kernel")
@pytest.mark.parametrize(("node", "row"), cases(Not))
def test_a_node_that_is_an_error(node: str, row: Not, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "PythonKernel", lambda *_: pytest.fail("an erroneous function was compiled"))
    cell = cell_of(node, row.text)
    error = cell.error()
    assert error.message == row.message
    assert not error.message.startswith(("this expression", "this statement")), "not classified"
    check(cell, error, row.message, row.hint)


# Parts of other expressions, which their lowerings take.
PARTS = {"FormattedValue", "Slice", "Starred"}


def test_every_expression_and_statement_has_one_lowering() -> None:
    """One that the table lacks would be refused without advice."""
    nodes = {name for name in current() - PARTS if issubclass(getattr(ast, name), ast.expr | ast.stmt)}
    lowered = {kind.__name__ for kind in LOWERINGS} | {name for name in REFUSED if hasattr(ast, name)}
    assert nodes - lowered <= {"TemplateStr", "Interpolation"}  # since Python 3.14
    assert lowered <= nodes
