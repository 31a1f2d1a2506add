"""Objects that are known when a kernel is compiled: ranges, mappings, classes, records, and mistakes with them."""

from __future__ import annotations

import functools
import itertools
from collections import namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, IntEnum, IntFlag
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from cells import Cell, agree, program, rows, verify

Pair = namedtuple("Pair", ["first", "second"])


@dataclass(frozen=True)
class Disc:
    radius: float

    PI = 3.0
    sides = 7

    @staticmethod
    def unit() -> Disc:
        return Disc(1.0)

    @classmethod
    def twice(cls, radius: float) -> Disc:
        return cls(2 * radius)


class Shade(Enum):
    DARK = 0.25
    LIGHT = 0.75


class Metal(Enum):
    IRON = 7.9, 26
    TIN = 7.3, 50
    LEAD = 11.3, 82

    def __init__(self, density: float, number: int) -> None:
        self.density, self.number = density, number

    @property
    def heavy(self) -> bool:
        return self.density > 10

    def mass(self, volume: float) -> float:
        return self.density * volume


class Weight(float, Enum):
    LOW = 0.5
    HIGH = 2.0


class Stage(IntEnum):
    SOWN = 0
    GROWING = 1
    RIPE = 2


class Event(IntFlag):
    RAIN = 1
    FROST = 2


class Grid:
    def __init__(self) -> None:
        self.points, self.weights = (0.25, 0.5, 0.75), (1.0, 0.0, 2.0)

    def __iter__(self) -> Iterator[tuple[float, float]]:
        for point, weight in zip(self.points, self.weights, strict=True):
            if weight > 0:
                yield point, weight

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, at: int) -> float:
        return self.points[at]

    def __add__(self, other: float) -> float:
        return self.points[0] + other

    def __contains__(self, other: float) -> bool:
        return other in self.points


class Awkward:
    @property
    def broken(self) -> float:
        raise RuntimeError("out of order")

    def __bool__(self) -> bool:
        raise RuntimeError("neither")


CAPTURED = {
    "Pair": Pair,
    "Disc": Disc,
    "Shade": Shade,
    "Metal": Metal,
    "Weight": Weight,
    "Stage": Stage,
    "Event": Event,
    "turns": range(4, 0, -1),
    "long": np.longdouble("0.5"),
    "table": MappingProxyType({"slope": 2.0, 3: 0.5}),
    "shares": MappingProxyType({k: 0.5**k for k in range(150)}),
    "functools": functools,
    "awkward": Awkward(),
    "grid": Grid(),
    "itertools": itertools,
    "bag": frozenset({1, 2}),
    "text": "abc",
}

VALUES = {
    "range": "for i in turns:\n    y += i * x\nreturn y, 3 in turns",
    "long double": "return long * x",
    "mapping": "return table['slope'] * x + table[3] * y, 'slope' in table",
    "class attribute of a record": "return Disc(x).sides * y + Disc(x).PI",
    "static method of a record": "return Disc(x).unit().radius * y",
    "class method of a record": "return Disc(x).twice(y).radius",
    "member by name": "return Shade['DARK'].value * x",
    "member on each side": "s = Stage.SOWN\nif x > 1:\n    s = Stage.RIPE\nreturn s * y, s == Stage.RIPE",
    "member in each return": "if x > 1:\n    return Stage.RIPE, y\nreturn Stage.SOWN, x",
    "choice of members": "w = Weight.LOW if x > 1 else Weight.HIGH\nreturn w * y, w in (Weight.LOW, 3)",
    "member or number": "s = Stage.RIPE if x > 1 else 0.5\nreturn s * y",
    "flags that are set": "e = Event.RAIN\nif x > 1:\n    e |= Event.FROST\nreturn e, y * (e & Event.FROST)",
    "member in a tuple": "t = (Stage.SOWN, x)\nif x > 1:\n    t = (Stage.RIPE, y)\nreturn t",
    "member as an index": "return (x, y, x * y)[Stage.RIPE]",
    "identity of members": "s = Stage.SOWN if x > 1 else Stage.RIPE\nreturn x if s is Stage.SOWN else y * s.value",
    "members without a number": (
        "s = Shade.DARK\nif x > 1:\n    s = Shade.LIGHT\n"
        "return x if s is Shade.DARK else y, s == Shade.LIGHT, s in (Shade.DARK, x), s.value * y, not s"
    ),
    "attributes of members": (
        "m = Metal.IRON if x > 1 else Metal.LEAD\nreturn m.density * x, m.value[1] * y, m.mass(y), m.heavy"
    ),
    "members by cases": (
        "m = Metal.IRON\nif x > 1:\n    m = Metal.LEAD\nmatch m:\n    case Metal.IRON:\n        return x\n"
        "    case _:\n        return y"
    ),
    "members that a loop carries": (
        "m, steps = Metal.IRON, 0\nwhile m is not Metal.LEAD and steps < 9:\n    x += y\n    steps += 1\n"
        "    m = Metal.LEAD if x > 3 else Metal.TIN\nreturn x, steps, m.density"
    ),
    "members of a call": (
        "def kind(x):\n    if x > 1:\n        return Shade.DARK\n    return Shade.LIGHT\n"
        "return (kind(x) is kind(y)) * x + Shade(0.25).value + Stage(1)"
    ),
    "generators": (
        "def terms(n):\n    t = 1.0\n    for k in range(n):\n        if k == 4:\n            return\n        yield t\n"
        "        t *= x / (k + 1)\ndef more():\n    yield from (x, y)\n    yield 3.0\n"
        "return sum(terms(9)), max(more()), sum(a * b for a, b in zip(terms(3), more()))"
    ),
    "objects with methods": (
        "t = 0.0\nfor point, weight in grid:\n    t += weight * (x - point) ** 2\n"
        "return t, len(grid), grid[1] * y, grid + x, 0.5 in grid"
    ),
    "itertools": (
        "t = sum(a * b for a, b in itertools.product((1, 2), (x, y))) + sum(itertools.chain((x,), (y, 3.0)))\n"
        "t += sum(a * b for a, b in itertools.combinations((x, y, 2.0), 2)) + sum(itertools.islice((x, y), 1, None))\n"
        "t += sum(a - b for a, b in itertools.pairwise((x, y, 2.0))) + sum(itertools.accumulate((x, y, 2.0), max))\n"
        "t += sum(p[0] * p[1] ** 2 for p in itertools.permutations((x, y, 2.0))) + sum(itertools.repeat(x, 3))\n"
        "t += sum(a * b for a, b in itertools.zip_longest((x, 1.0), (2.0,), fillvalue=y))\n"
        "return t + sum(itertools.starmap(pow, ((x, 2), (y, 3)))) + sum(filter(lambda k: k % 2, range(6)))"
    ),
    "sorted text": "return x if sorted({'b': x, 'a': y})[0] == 'a' and ', '.join(['u', 'v']) == 'u, ' + 'v' else y",
    "attribute by name": "return getattr(Pair(x, y), 'second') * getattr(functools, 'reduce')(max, (x, y))",
    "states of a loop": (
        "s, heat = Stage.SOWN, 0.0\nfor _ in range(4):\n    heat += x\n    match s:\n"
        "        case Stage.SOWN if heat > 1.2:\n            s = Stage.GROWING\n"
        "        case Stage.GROWING:\n            heat *= y\n            s = Stage.RIPE\n"
        "        case Stage.RIPE:\n            break\nreturn s, heat"
    ),
    "states of a loop that is written out": (
        "s = Stage.SOWN\nfor step in (x, y, x):\n    if step > 1:\n        s = Stage.RIPE\n        continue\n"
        "    s = Stage.GROWING\nreturn s * x"
    ),
    "member and a complex number": (
        "z = Stage.GROWING\nfor _ in range(2):\n    z = z * complex(x, y)\nreturn z.real, z.imag"
    ),
    "mapping in a long loop": "for k in range(150):\n    y += shares[k] * x\nreturn y",
    "characters": "return sum(x if c == 'b' else y for c in text)",
    "set": "return x if 2 in bag else y",
    "isinstance of objects": (
        "g = lambda: x\nkinds = (isinstance(text, str), isinstance(turns, range), isinstance(g, float),"
        " isinstance(Pair(x, y), Pair), isinstance(x, int), isinstance((x,), tuple))\nreturn x, sum(kinds)"
    ),
    "partials on both sides": "g = functools.partial(max, x)\nif x > 1:\n    h = g\nelse:\n    h = g\nreturn h(y)",
    "keywords on both sides": (
        "def g(**options):\n    if x > 1:\n        y = 1.0\n    else:\n        y = 2.0\n    return y * options['a']\n"
        "return g(a=x)"
    ),
    "records on both sides": "p = Pair(x, y) if x > 1 else Pair(y, x)\nreturn p.first - 2 * p.second",
    "alternatives that are known": "match (1, x):\n    case (1, a) | (2, a):\n        return a\nreturn y",
    "any alternative": "match x:\n    case float() | int():\n        return 2 * x\nreturn y",
    "filter that is known": "return sum(k * x for k in (1, 2, 3, 4) if k % 2), [k for k in (1, 2, 3) if k < 2][0] * y",
    "sum of a truth": "return sum((x > 1,)) + y",
    "overflow while folding": "return x + 10.0 ** 400 * 0.0 if y > 99 else x",
}


@pytest.mark.parametrize("body", VALUES.values(), ids=VALUES)
def test_known_objects_have_pythons_values(body: str) -> None:
    agree(Cell(program(body), CAPTURED))


ERRORS = {
    "too many fields": ("return «Pair(x, y, x)».first", "Pair() takes 2 positional arguments, and 3 are given", ...),
    "field twice": ("return «Pair(x, first=y)».first", "Pair() gets two values for first", ...),
    "replaced field": ("return «Pair(x, y)._replace(third=x)».first", "Pair has no field third", "first, second"),
    "no such item": ("return «table['width']» * x", "this raises KeyError: 'width'", ...),
    "key by data": ("return table[«int(x)»]", "can only be indexed by a known value", ...),
    "property that raises": ("return x * «awkward.broken»", "reading broken of", ...),
    "truth that raises": ("return x if «awkward» else y", "this raises RuntimeError: neither", ...),
    "no class": ("match x:\n    case «text»():\n        return x\nreturn y", "is no class", ...),
    "no such field in a pattern": (
        "match Pair(x, y):\n    case Pair(third=«1»):\n        return x\nreturn y",
        "has no field third",
        ...,
    ),
    "alternatives by data that bind": (
        "match (x, y):\n    case «(0.5, a)» | (a, 1.5):\n        return a\nreturn y",
        "alternatives that bind names depend on the data",
        "a case for each",
    ),
    "distance of unlike points": ("return «math.dist((x,), (x, y))»", "a point of 1 numbers and one of 2", ...),
    "sorted by data": ("return «sorted((x, y), reverse=x > 0)»[0]", "must be known when the kernel is compiled", ...),
    "zip that is strict": ("return sum(a * b for a, b in «zip((x, y), (x,), strict=True)»)", "zip() of 2 and 1", ...),
    "reduce of nothing": ("return «functools.reduce(max, ())»", "reduce() of an empty tuple", "a start value"),
    "identity of a member": (
        "s = Stage.SOWN if x > 1 else 2\nreturn x if «s is Stage.SOWN» else y",
        "numbers have no identity",
        "== instead of `is`",
    ),
    "name of a member by data": (
        "s = Stage.SOWN if x > 1 else Stage.RIPE\nreturn x if «s.name» == 'SOWN' else y",
        "which member this is depends on the data, and its name is text, as only numbers may",
        "a comparison of the member: s == Stage.SOWN",
    ),
    "member as a result": (
        "s = Shade.DARK if x > 1 else Shade.LIGHT\n«return s»",
        "an output is a Shade",
        "a return of numbers, or of tuples of numbers",
    ),
    "members of two classes": (
        "s = Shade.DARK\nif x > 1:\n    s = Metal.IRON\nreturn x if «s» is Shade.DARK else y",
        "s is an object of type Metal and an object of type Shade, depending on the data, as only numbers may",
        "one kind of thing on every path",
    ),
    "member by data": (
        "return «Stage(int(x))» * y",
        "Stage() needs arguments that are known when the kernel is compiled",
        ...,
    ),
    "filter by data": (
        "return sum(«filter(lambda a: a > 1, (x, y))»)",
        "how many items this gives depends on",
        "a sum with",
    ),
    "repeat without end": ("return sum(«itertools.repeat(x)»)", "repeat() without a number of times has no end", ...),
    "generator of a loop by data": (
        "def g():\n    k = 0\n    «while k < x:»\n        yield k\n        k += 1\nreturn sum(g())",
        "what this generator gives is a list of 0 before this loop and a list of 1 after an iteration of it",
        ...,
    ),
    "division by zero": ("return «int(x) // 0»", "an integer division by zero", None),
}


@pytest.mark.parametrize(("body", "message", "hint"), rows(ERRORS))
def test_mistakes_with_known_objects(body: str, message: str, hint: Any) -> None:
    verify(Cell(program(body), CAPTURED), message, hint)
