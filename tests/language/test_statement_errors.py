"""What cannot be compiled is one error at the user's file, line and text, with what to write instead: statements,
expressions, captures and calls.

Each row of the tables is a program in which « and » enclose the text that the error must point at.
"""

from __future__ import annotations

import itertools
import logging
import operator
import random
import statistics
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np
import pytest
import scipy.special
import scipy.stats
from cells import Cell, program, rows, verify

pytestmark = pytest.mark.usefixtures("no_kernel")


class Pair(NamedTuple):
    first: float
    second: float


@dataclass
class Circle:
    radius: float

    def __mul__(self, factor: float) -> Circle:
        return Circle(self.radius * factor.real)


@dataclass
class Checked:
    value: float

    def __post_init__(self) -> None:
        self.value = max(self.value, 0.0)


class Degrees(float):
    def __mul__(self, other: float) -> float:
        return float(self) / 57.29577951308232 * other


@dataclass
class Kelvin:
    value: float

    def __init__(self, celsius: float) -> None:
        self.value = celsius + 273.15


@dataclass
class Counted:
    value: float

    def __new__(cls, value: float) -> Counted:  # noqa: ARG004
        return super().__new__(cls)


STATEMENTS = {
    "try": ("«try:»\n    return x\nexcept ValueError:\n    return y", "try", "a test of the values"),
    "try star": ("«try:»\n    return x\nexcept* ValueError:\n    pass", "try", "a test of the values"),
    "with": ("«with x:»\n    return x", "with", "plain statements"),
    "raise of no exception": ("if x < 0:\n    «raise x»\nreturn x", "only an exception", "raise ValueError"),
    "import": ("«import os»\nreturn x", "import", "top of the file"),
    "from import": ("«from math import sin»\nreturn sin(x)", "import", "top of the file"),
    "global": ("«global total»\ntotal = x\nreturn x", "global", "another output"),
    "del": ("z = x\n«del z»\nreturn x", "del", "nothing"),
    "class": ("«class A: pass»\nreturn x", "a class definition", "outside the function"),
    "async def": ("«async def g(): return 1»\nreturn x", "async", "a plain function"),
    "unused value": ("«x + y»\nreturn x", "not used", "an assignment or a return"),
    "unused number": ("«3»\nreturn x", "not used", "an assignment or a return"),
    "print as a value": ("y = «print(x)»\nreturn x", "print() is a side effect", "a statement of its own"),
    "open": ("«open('a')»\nreturn x", "open() is a side effect", "another output"),
    "print to a file": ("print(x, «file=math»)\nreturn x", "takes sep=, end= and flush= only", "without it"),
    "print of data between": ("print(x, sep=«x»)\nreturn x", "sep= of print must be known text", None),
    "print of a number between": ("print(x, end=«3»)\nreturn x", "end= of print must be known text", None),
    "format of a wrong kind": ("print(f'{«x»:d}')\nreturn x", "this raises ValueError: Unknown format code 'd'", None),
    "assign element of a tuple": ("t = (x, y)\n«t[0]» = 1\nreturn x", "an element cannot be assigned", "a new tuple"),
    "assign element of a parameter": ("«x[0]» = 1\nreturn x", "an element cannot be assigned", "another output"),
    "augmented element": ("«x[0]» += 1\nreturn x", "an element cannot be assigned", "another output"),
    "assign attribute": ("«x.a» = 1\nreturn x", "an attribute cannot be assigned", "a local variable"),
    "annotated attribute": ("«x.a»: float = 1\nreturn x", "an attribute cannot be assigned", "a local variable"),
    "augmented attribute": ("«x.a» += 1\nreturn x", "an attribute cannot be assigned", "a local variable"),
    "loop into an element": ("for «x[0]» in range(int(y)):\n    pass\nreturn x", "an element cannot be", "a new tuple"),
    "decorated inner function": (
        "@«abs»\ndef g(a):\n    return a\nreturn g(x)",
        "decorators of an inner",
        "outside this one",
    ),
}

EXPRESSIONS = {
    "key of a dict": ("{«1»: x}", "a key of a dictionary must be known text", "a tuple"),
    "no such key": ("«{'a': x}['b']»", "this raises KeyError: 'b'", "one of 'a'"),
    "key by data": ("{'a': x}[«y»]", "a dictionary can only be indexed by a known value", "if/elif"),
    "method of a dict": ("«{'a': x}.pop»('a')", "a dictionary has no pop in a kernel", "get, items, keys, values"),
    "set": ("«{x, y}»", "a set", "a tuple"),
    "set comprehension": ("sum(«{a for a in (x, y)}»)", "a set comprehension", "tuple("),
    "key of a dict comprehension": ("{«a»: a for a in (x, y)}", "a key of a dictionary must be known text", "a tuple"),
    "f-string": ("len(f'{«x»}')", "this is not known then", "a known value"),
    "is": ("«x is y»", "no identity", "=="),
    "is not": ("«x is not y»", "no identity", "=="),
    "complex": ("math.exp(«x * 1j»)", "this is a complex number", "abs(z)"),
    "ellipsis": ("«...»", "type ellipsis", "real numbers"),
    "matrix product": ("«x @ y»", "@ multiplies matrices", "a sum of products"),
    "bits of a float": ("«x & y»", "integers", "int(x)"),
    "inverted float": ("«~x»", "integers", "int(x)"),
    "shifted float": ("«x << 2»", "integers", "int(x)"),
    "text plus number": ("x + «'a'»", "a number is needed here", ...),
    "None plus number": ("x + «None»", "a number is needed here", ...),
    "tuple plus number": ("«(x, y)» + x", "a tuple of 2", ...),
    "tuple times number": ("«(x, y)» * x", "a tuple of 2", ...),
    "function plus number": ("«math.sin» + x", "the function sin", ...),
    "negated tuple": ("«-(x, y)»", "a tuple of 2", ...),
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
    "indexed function": ("«math.sin[0]»", "the function sin cannot be indexed", None),
    # names and attributes
    "unknown name": ("x + «elephant»", "the name elephant is not defined", ...),
    "attribute of a number": ("«x.T»", "a number has no T here: x is one element", "the name alone"),
    "method of a number": ("«x.sum»()", "a number has no sum here: x is one element", "the name alone"),
    "missing in a module": ("«math.nothing»(x)", "the module math has no nothing", ...),
    "method of a ufunc": ("«np.add.reduce((x, y))»", "no derivative rule for np.add.reduce", "math or numpy"),
    "attribute of a tuple": ("«(x, y).size»", "a tuple of 2 has no size in a kernel", "by index"),
    "method of a list": ("«[x].append»(y)", "a list of 1 has no append in a kernel", "[*items, item]"),
    "misspelt field": ("«Pair(x, y).frist»", "a Pair has no frist in a kernel", "first"),
    "item of a dataclass": ("«Circle(x)[0]»", "a Circle cannot be indexed", "fields by name"),
    # text
    "text from data": ("f'{«x»}' == 'a'", "this is not known then", "a known value"),
    "format that does not fit": ("len(f'{«1.5»:d}')", "this raises ValueError", None),
    "method of text": ("«'a'.join((x, y))»", "join() needs arguments that are known when the kernel is compiled", ...),
    # places of operands
    "in a number": ("x in «y»", "this is a number: one element of an array", "a tuple"),
    "compared tuple": ("1 < x < «(x, y)»", "a number is needed here, and this is a tuple of 2", "one item of it"),
    "compared text": ("«'a'» < x", "a number is needed here, and this is text", "a number"),
    "function not called": ("x + «math.sqrt»", "the function sqrt", "a call of it"),
    # comprehensions
    "filtered by data": ("[a for a in (x, y) if «a > 0»]", "how many items this gives depends on the data", "sum,"),
    "range by data": ("tuple(i for i in «range(int(x))»)", "how many items this gives depends on the data", "sum,"),
    "walrus in a comprehension": ("[«z := a» for a in (x, y)][0]", "the walrus operator inside", "a for loop"),
    "min of what may be nothing": (
        "«min(a for a in (x, y) if a > 0)»",
        "min() of items of which there may be none",
        "default=",
    ),
    "iterator in a tuple": ("«(zip((x,), (y,)), 1)»[1]", "an item here is a zip(), which can be used once", "tuple("),
    # records
    "field missing": ("«Pair(x)»[0]", "Pair() lacks a value for second", ...),
    "field that is none": ("«Pair(x, y, third=1)»[0]", "Pair has no field third", "first, second"),
    "dataclass with its own __init__": ("«Kelvin(x)».value", "making a Kelvin runs code of its own", "that makes it"),
    "dataclass with its own __new__": ("«Counted(x)».value", "making a Counted runs code of its own", "that makes it"),
    "class that checks": ("«Checked(x)».value", "making a Checked runs code of its own", "a function that makes it"),
    "operator a class lacks": ("«Circle(x)» + 1", "a number is needed here, and this is a Circle", "one item of it"),
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
    "item of a captured dict": ("«table[2]» * x", "this raises KeyError: 2", "one of 1"),
    "captured number with operators": (
        "«degrees» * x",
        "degrees is captured from outside the function and is of type Degrees",
        "a parameter",
    ),
    "captured set": ("x in «bag»", "bag is captured from outside the function and is of type set", "a parameter"),
    "captured mixed tuple": (
        "x * «mixed»[0]",
        "mixed is captured from outside the function and is of type",
        "a parameter",
    ),
    "captured text": ("x + «text»", "a number is needed here", ...),
    # calls
    "no rule in math": ("«math.gcd(x, y)»", "there is no derivative rule for math.gcd", "math or numpy"),
    "no rule in numpy": ("«np.array(x)»", "no derivative rule for numpy.array", "a list or a tuple"),
    "sum of numpy": ("«np.sum(x)»", "no derivative rule for numpy.sum", "sum([a, b])"),
    "no rule in scipy": ("«bei(x)»", "no derivative rule for scipy.special.bei", "dualbcast.rule"),
    "distribution": (
        "«stats.norm.entropy(x, 1.0)»",
        "no derivative rule for scipy.stats.norm.entropy",
        "a Python function that computes it",
    ),
    "item of a captured array": ("numbers[«int(x)»] * x", "can only be indexed by integers that are known", "whole="),
    "append": ("«[x].append»(y)", "a list of 1 has no append", "[*items, item]"),
    "random": ("«random.random()»", "no derivative rule for random.random", "random numbers as another argument"),
    "random method": ("«random.uniform(x, y)»", "no derivative rule for random.uniform", "an array of random numbers"),
    "function of arrays": ("«np.sort(x)»", "no derivative rule for numpy.sort: it works on arrays", "math or numpy"),
    "logging": ("«logging.info('a')»", "info() is a side effect", "another output"),
    "class of NumPy": ("«np.vectorize(abs)»(x)", "no derivative rule for numpy.vectorize: it works on arrays", ...),
    "default of two numbers": ("«min(x, y, default=1)»", "default= is for one tuple", "the numbers alone"),
    "sum of a generator from outside": ("«sum(generator)»", "this is an object of type generator", "a tuple"),
    "standard library": ("«statistics.mean((x, y))»", "in mean(): ", "a function of your own"),
    "alias of this package": ("«np.maximum(x, (y,))»", "in maximum(): a number is needed here", "one item of it"),
    "too few to an alias": ("«np.clip(x)»", "clip() lacks a value for", "clip(x, low, high)"),
    "no class": ("«isinstance(x, 3)»", "isinstance() needs a class", ...),
    "type()": ("«type(x)»(y)", "type objects cannot be made in a kernel", "isinstance"),
    "unknown keyword of sorted": (
        "«sorted((x, y), cmp=abs)»[0]",
        "sorted() takes only the keyword key, reverse in a kernel",
        ...,
    ),
    "index of a tuple": ("«(x, y).index»(y)", "a tuple of 2 has no index", "enumerate(items)"),
    "count of a list": ("«[x, y].count»(y)", "a list of 2 has no count", "sum(item == x for item in items)"),
    "item getter": ("«operator.itemgetter(0)»((x, y))", "itemgetter objects cannot be made in a kernel", "a lambda"),
    "order of tuple and number": ("x if «(x, y)» < y else y", "a number is needed here, and this is a tuple", ...),
    "key that is no function": ("«max»((x, y), key=3)", "a number cannot be called", ...),
    "start of enumerate": ("«enumerate((x, y), 1.5)»", "the start of enumerate() must be an integer", ...),
    "digits without end": ("«round(x, 500)»", "has no 500 digits", "fewer"),
    "too large a factorial": ("«math.factorial(-1)»", "this raises ValueError", ...),
    "zip of two lengths": ("«zip((x, y), (x,), strict=True)»", "zip() of 2 and 1 items", ...),
    "called number": ("«x»(y)", "a number cannot be called", ...),
    "called tuple": ("«(x, y)»(1)", "a tuple of 2 cannot be called", ...),
    "called module": ("«math»(x)", "the module math cannot be called", ...),
    "two arguments to tanh": ("«math.tanh(x, y)»", "tanh() takes 1 positional argument", ...),
    "no argument to tanh": ("«math.tanh()»", "tanh() takes 1 positional argument", ...),
    "keyword to tanh": ("«math.tanh(x=x)»", "tanh() takes 1 positional argument", ...),
    "out= of a ufunc": ("«np.sin(x, out=y)»", "sin() takes 1 positional argument", ...),
    "double star": ("math.tanh(**«x»)", "`**` spreads", "written out"),
    "starred number": ("math.atan2(*«x»)", "a tuple is needed here", ...),
    "two to abs": ("«abs(x, y)»", "abs() does not take 2 arguments", ...),
    "min of nothing": ("«min(())»", "min() of an empty tuple", ...),
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
    "shift by a negative number": ("«int(x) << -1»", "outside the 64 bits", ...),
    "integer beyond floats": ("x * «math.factorial(200)»", "an integer beyond the range of floats", "smaller numbers"),
    "integer out of range": ("«2**62 * 4» + int(x)", "does not fit 64 bits", "a float"),
    # lambdas
    "lambda with too many": ("«(lambda a: a)(x, y)»", "<lambda>() takes 1 positional argument", ...),
    "lambda lacking one": ("«(lambda a, b: a)(x)»", "<lambda>() lacks a value for b", ...),
    "lambda lacking a keyword": ("«(lambda a, *, b: a)(x)»", "<lambda>() lacks a value for b", ...),
}

CAPTURED = {
    "array": np.ma.masked_array(np.ones(2)),
    "numbers": np.ones(2),
    "bei": scipy.special.bei,
    "stats": scipy.stats,
    "degrees": Degrees(90.0),
    "items": [1.0],
    "table": {1: 2.0},
    "bag": {1, 2},
    "mixed": (1.0, [2.0]),
    "text": "text",
    "random": random,
    "generator": (number for number in (1, 2)),
    "itertools": itertools,
    "logging": logging,
    "operator": operator,
    "Mode": Enum("Mode", ["FIRST", "SECOND"]),
    "statistics": statistics,
    "Pair": Pair,
    "Circle": Circle,
    "Checked": Checked,
    "Counted": Counted,
    "Kelvin": Kelvin,
}

SIGNATURES = {
    "double star": ("def f(x, y, **«options»): return x", "`**options`", "named parameters"),
    "default": ("def f(x, y, «z»=[1.0]): return x", "z is of type list", ...),
}


@pytest.mark.parametrize(("body", "message", "hint"), rows(STATEMENTS))
def test_a_statement_that_cannot_be_compiled(body: str, message: str, hint: str) -> None:
    verify(Cell(program(body)), message, hint)


@pytest.mark.parametrize(("expression", "message", "hint"), rows(EXPRESSIONS))
def test_an_expression_that_cannot_be_compiled(expression: str, message: str, hint: str) -> None:
    verify(Cell(program(f"return {expression}"), CAPTURED), message, hint)


@pytest.mark.parametrize(("text", "message", "hint"), rows(SIGNATURES))
def test_the_signature_of_a_broadcast_function(text: str, message: str, hint: str) -> None:
    verify(Cell(text + "\n"), message, hint)
