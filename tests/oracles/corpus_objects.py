"""More of the corpus: lists, comprehensions, named tuples, dataclasses, patterns, loops' `else`, bound arguments."""

# Written as a compiler meets them, not as a linter would have them.
# ruff: noqa: B007, B023, B905, C416, FURB, PIE, PLR, RET504, RET505, RUF005
# ruff: noqa: SIM222, UP

from __future__ import annotations

import dataclasses
import functools
import math
from collections import namedtuple
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import ClassVar, NamedTuple

import numpy as np
from corpus import case

Pair = namedtuple("Pair", ["first", "second"], defaults=[0.5])


class Point(NamedTuple):
    x: float
    y: float
    z: float = 1.0

    def norm(self):
        return math.sqrt(self.x * self.x + self.y * self.y + self.z * self.z)

    @property
    def slope(self):
        return self.y / self.x

    @staticmethod
    def unit(angle):
        return Point(math.cos(angle), math.sin(angle), 0.0)


@dataclass(frozen=True)
class Complex:
    re: float
    im: float = 0.0

    def __add__(self, other):
        if isinstance(other, Complex):
            return Complex(self.re + other.re, self.im + other.im)
        return Complex(self.re + other, self.im)

    def __radd__(self, other):
        return self + other

    def __mul__(self, other):
        return Complex(self.re * other.re - self.im * other.im, self.re * other.im + self.im * other.re)

    def __neg__(self):
        return Complex(-self.re, -self.im)

    @property
    def size(self):
        return self.re * self.re + self.im * self.im


@dataclass(frozen=True)
class Plane:
    """A vector with the methods by which Python's operators and functions ask an object."""

    x: float
    y: float

    def __add__(self, other):
        return Plane(self.x + other.x, self.y + other.y) if isinstance(other, Plane) else NotImplemented

    def __radd__(self, other):
        return self if other == 0 else NotImplemented

    def __mul__(self, other):
        if isinstance(other, (int, float)):
            return Plane(self.x * other, self.y * other)
        return NotImplemented

    def __abs__(self):
        return math.hypot(self.x, self.y)

    def __lt__(self, other):
        return abs(self) < abs(other)

    def __getitem__(self, place):
        return (self.x, self.y)[place]

    def __iter__(self):
        return iter((self.x, self.y))

    def __len__(self):
        return 2

    def __contains__(self, number):
        return self.x == number or self.y == number

    def __round__(self):
        return Plane(round(self.x), round(self.y))

    def __call__(self, t, *, scale=1.0):
        return (self.x + self.y * t) * scale


class Turned(Plane):  # a class that only adds a method, and is no dataclass by a decorator of its own
    def __rmul__(self, other):
        return Plane(other.y * self.x, -other.x * self.y)


class Odd(NamedTuple):
    x: float
    y: float

    def __len__(self):
        return 7

    def __getitem__(self, place):
        return 3.0 if place == 0 else 4.0

    def __iter__(self):
        return iter((self.y,))


@dataclass
class Gas:
    """A class with constants of its own, a cached property and methods for `+=` and `!=`."""

    pressure: float
    heat: float
    parts: tuple = dataclasses.field(default_factory=lambda: (1.0, 2.0))
    POWERS: ClassVar[tuple] = (0.5, 0.25, 2.0)
    NAME: ClassVar[str] = "ideal"

    @functools.cached_property
    def density(self):
        return self.pressure / self.heat

    def capacity(self):
        return sum(c * self.heat**n for n, c in enumerate(self.POWERS)) + len(self.NAME)

    def __add__(self, other):
        return type(self)(self.pressure + other, self.heat)

    def __iadd__(self, other):
        return type(self)(self.pressure + 2 * other, self.heat) if isinstance(other, (int, float)) else NotImplemented

    def __isub__(self, other):
        return NotImplemented

    def __sub__(self, other):
        return type(self)(self.pressure - other, self.heat)

    def __ne__(self, other):
        return self.pressure > other.pressure


@functools.total_ordering
@dataclass(frozen=True, eq=False)
class Version:
    major: float
    minor: float

    def __eq__(self, other):
        return self.major == other.major and self.minor == other.minor

    def __lt__(self, other):
        return self.major < other.major or (self.major == other.major and self.minor < other.minor)


@dataclass(frozen=True, order=True)
class Card:
    rank: float
    name: float = dataclasses.field(default=0.0, compare=False)
    suit: float = 1.0


@dataclass
class Model:
    slope: float
    shift: float = 0.25

    def __call__(self, x):
        return self.slope * x + self.shift

    def squared(self, x):
        return self(x) ** 2


class Mode(Enum):
    LINEAR = 1
    CUBIC = 3


class Level(IntEnum):
    LOW = 2
    HIGH = 5


model = Model(1.5)
MODE = Mode.CUBIC
ORIGIN = Point(0.5, -0.25)
COEFFICIENTS = (0.5, -1.0, 0.25, 2.0)


# --- walrus ----------------------------------------------------------------------------------------------------------


@case((1.5, 2.0), (-0.5, 3.0), (0.25, 0.5))
def walrus_in_expressions(x, y):
    total = (a := x * y) + (b := a + 1) * a
    if (c := math.sin(x)) > 0.2:
        total += c * b
    return total, a - b, c


@case((4.0, 0.5), (0.25, 2.0), (-1.0, 1.0), (4.0, 3.0))
def walrus_after_and(x, y):
    if x > 0 and (root := math.sqrt(x)) > y:
        return root * y
    if x > 0 and (root := x * x) > 0.1 and (other := root * x) < 9:
        return other - root * y
    return (z := x * y) + (z if x < -0.5 else 1.0)


@case((1.5, 2.0), (-0.5, 3.0), (0.25, -0.5), (5.0, 0.1))
def walrus_in_conditional_expressions(x, y):
    a = (u := x * 2) if x > 0 else (u := y * 3)
    b = u + v if x > 0 and (v := u * y) > 0.5 else u
    return a * b + u, (w := a) * w


@case((4.0, 0.5), (0.25, 2.0), (-1.0, 1.0), (9.0, 3.0))
def walrus_after_or(x, y):
    if x < 0 or (root := math.sqrt(x)) < 1 or (other := root * y) > 8:
        return x * y
    total = other
    for n in range(4):
        if n == 2 or (part := math.sin(n * x)) < 0:
            continue
        total += part
    return root * total + (x if x > 5 or (part := x * y) < 1.5 else part)


@case((3.0, 0.5), (0.2, 0.7), (10.0, -0.9))
def walrus_in_a_loop_test(x, y):
    steps = 0
    while (x := x * 0.5) > 0.3 and (gap := x - y) > 0:
        y = y + 0.01 * gap * gap
        steps += 1
    return x * y, steps


@case((3.0, 2), (0.2, 5), (1.0, 0))
def walrus_counts_down(x, n):
    total = 0.0
    while (n := n - 1) >= 0:
        if n == 3:
            continue
        total += x**n
    else:
        total += 100 * x
    return total, n


# --- for … else ------------------------------------------------------------------------------------------------------


@case((0.53, 1.07), (3.1, 2.3), (-4.2, 0.61), (0.1, 0.1))
def for_else_over_a_tuple(x, y):
    for c in (0.5, 1.5, 2.5):
        if x > c * y:
            found = c * x
            break
        x = x + 0.25
    else:
        found = -y
    return found + x


@case((0.5, 3), (3.0, 0), (-4.0, 5), (0.1, 9))
def for_else_over_a_range(x, n):
    for i in range(n):
        x = x * 1.25 + 0.1
        if x > 4:
            where = i * x
            break
    else:
        where = x * x
    return where + x


@case((0.5, 3.0), (3.0, -1.0), (0.1, 2.0), (7.0, 1.0))
def while_else(x, y):
    while x < 5:
        x = x + 1
        if x * y > 10:
            z = x
            break
        if y < 0:
            return y
    else:
        z = y * x
    return z * x


@case((0.53, 3.1), (3.1, -1.2), (0.13, 2.2), (7.1, 1.3), (1.1, 1.2), (0.9, 0.4), (0.6, 1.7))
def else_that_jumps(x, y):
    total = 0.0
    for a in (1.0, 2.0, 3.0):
        for i in range(3):
            if x * a < i:
                total += y
                break
            total += x * i
        else:
            if y > 2:
                continue
            if a > 2.5:
                break
        for b in (0.5, 1.5):
            if b * y > x:
                break
        else:
            total -= b * x
            continue
        total += a * b
    else:
        total *= y
    return total


@case((0.5, 3), (3.0, 0), (1.1, 5))
def else_in_loops_of_the_kernel(x, n):
    total = 0.0
    for i in range(n):
        for j in range(i):
            if j * x > 2.5:
                total += x
                break
        else:
            if total > 6:
                break
            total += i * x * x
            continue
        total += 0.5
    else:
        total = total * x
    return total


@case((0.4, 0.7), (0.3, -0.2), (1.5, 0.1), (0.8, 0.9), (-1.5, -1.0), (0.2, 1.5))
def loops_in_an_else(x, y):
    total = 0.0
    for a in (x, y):
        if a > 1:
            break
        total += a
    else:
        for b in (x, y, 2.0):
            if b > 0.75:
                continue
            total += b * x
            if total > 0.9:
                break
        else:
            total += 10 * y
    return total


@case((0.4, 0.7), (2.3, 0.2), (1.5, 6.0), (2.8, 0.9))
def functions_through_jumps(x, y):
    grow = lambda v: v + x  # noqa: E731
    for a in (x, y, 1.0):
        if x > 2:
            if a > 5:
                continue
            return a * y
        x = grow(a)
    return grow(x)


@case((0.5, 3.0), (3.5, -1.0), (0.1, -2.0), (1.2, 0.3))
def returns_from_loops_of_known_length(x, y):
    for i in range(0, 5, 2):
        if x + i > 3:
            break
        j = 0
        while j < 3:
            j += 1
            for a, b in zip((x, y), (0.5, 1.5), strict=True):
                if a * b < y:
                    return a + b * x
            x = x + 0.25
    return x * y


@case((0.5, 3.0), (3.0, -1.0))
def else_without_break(x, y):
    for i in range(3):
        x = x * y
    else:
        x = x + i
    while y < 0:
        y = y + 0.75
    else:
        y = y * x
    for a in ():
        x = a
    else:
        z = x * y
    return z, y


# --- comprehensions --------------------------------------------------------------------------------------------------


@case((0.53, 1.07), (3.1, 2.3), (-4.2, 0.61))
def reductions_of_generators(x, y):
    terms = tuple(c * x**i for i, c in enumerate(COEFFICIENTS))
    total = sum(a * b for a, b in zip(terms, (y, x, 1.0, y)))
    product = math.prod(x + k for k in range(1, 4))
    low = min(t * y for t in terms)
    high = max((abs(t) for t in terms), default=0.0)
    return total, product, low, high, sum(1 for t in terms), len([t for t in terms])


@case((0.53, 1.07), (3.1, 2.3), (-4.2, 0.61), (0.11, -0.13))
def filters_that_depend_on_data(x, y):
    points = (x, y, x * y, 0.75, x - y)
    above = sum(p * p for p in points if p > 0.6)
    product = math.prod((1 + p for p in points if p < y), start=2.0)
    low = min((p * x for p in points if p > 0.2), default=y)
    high = max((p for p in points if p * y > 0 if p < 2), default=-x)
    return above, product, low, high


@case((0.5, 3), (1.25, 0), (-0.75, 6))
def generators_over_ranges_of_the_kernel(x, n):
    series = sum(x**k / (k + 1) for k in range(n))
    product = math.prod(1 + x / (k + 1) for k in range(n) if k != 2)
    peak = max((math.sin(k * x) for k in range(n)), default=x)
    pairs = sum(x * i + j for i in range(n) for j in range(i))
    some = any(k * x > 2 for k in range(n))
    every = all(k * x < 2 for k in range(1, n))
    return series, product, peak, pairs, some, every


@case((0.5, 1.0), (3.0, 2.0), (-4.0, 0.5), (0.1, -0.1))
def quantifiers(x, y):
    a = any(x > c for c in COEFFICIENTS)
    b = all(x < c and y > 0 for c in (1.0, 2.0, x + 1))
    c = any(math.sqrt(p) > 1.2 for p in (x, y) if p > 0)
    d = all(math.log(p) < 1 for p in (x, y) if p > 0)
    return (x if a else y) * (2 if b else 3) + (x * y if c else 0) - (y if d else x)


@case((0.53, 1.07), (3.1, 2.3), (-4.2, 0.61))
def lists_and_scopes(x, y):
    i = x
    grid = [i * j + y for i in (1.0, x) for j in (y, 2.0) if i != j or True]
    rows = [[a * b for a in (x, y)] for b in (1, 2)]
    first, *rest = grid
    both = [*rest, first] + [y] * 2
    head = both[0] + both[-1] + sum(both[1:3])
    return head * i, rows[1][0] * rows[0][1], sum(sum(r) for r in rows), max(rest)


@case((0.5, 1.0), (3.0, 2.0))
def closures_in_comprehensions(x, y):
    late = [lambda a: a * k for k in (1.0, 2.0, 3.0)]
    early = [lambda a, k=k: a * k for k in (1.0, 2.0, 3.0)]
    return sum(f(x) for f in late), sum(f(y) for f in early)


# --- named tuples and dataclasses ------------------------------------------------------------------------------------


@case((0.5, 1.0), (3.0, 2.0), (-4.0, 0.5))
def named_tuples(x, y):
    p = Point(x, y=y)
    q = p._replace(z=x * y)
    if x > 1:
        p = Point(y, x, z=p.z * 2)
    a, b, c = p
    pair = Pair(a)
    return p.norm() * q.slope + q[2], a * b - c + pair.second * pair.first, Point.unit(x).norm(), ORIGIN.x * p.y


@case((0.5, 1.0), (3.0, 2.0), (-4.0, 0.5))
def dataclasses_with_operators(x, y):
    z = Complex(x, y)
    steps = 0
    while z.size < 4 and steps < 5:
        z = z * z + Complex(0.25, 0.5)
        z = 0.125 + z
        steps += 1
    w = dataclasses.replace(-z, im=x)
    return z.re, w.im * w.re, steps


@case((0.5, 1.0), (3.0, 2.0), (-4.0, 0.5))
def records_come_back(x, y):
    return Point(x, y) if x < y else Point(y, x, z=2.0)


@case((0.5, 1.0), (3.0, 2.0), (-4.0, 0.5))
def nested_outputs(x, y):
    if x > 0:
        return Pair(x * y, (x, [y, Complex(x + y)]))
    return Pair(x, (y * x, [x, Complex(1.0, y)]))


# --- patterns --------------------------------------------------------------------------------------------------------


@case((0.5, 1), (3.0, 2), (-4.0, 7), (1.0, 0), (2.0, 3), (2.5, -1))
def match_numbers(x, n):
    match n:
        case 0:
            y = x
        case 1 | 2:
            y = x * x
        case 3 if x > 1:
            return -x
        case -1:
            y = 3 * x
        case other:
            y = x * other
    match x * 2:
        case 1.0:
            y += 1
        case v if v > 4:
            y += v * x
        case v if v < -3:
            return v * y
    return y


@case((0.5, True), (3.0, False), (-4.0, True))
def match_truth(x, flag):
    match x > 1:
        case True:
            y = x * x
        case False:
            y = -x
    match flag:
        case False if x > 5:
            return x
        case True:
            return y * 2
        case False:
            return y * 3


@case((0.53, 1.07), (3.1, 2.3), (0.0, 2.0), (3.1, 0.0), (-1.0, -1.0), kinks=(2, 3, 4))
def match_structures(x, y):
    match (x, y):
        case (0.0, b):
            r = b * 2
        case (a, 0.0):
            r = a * 3
        case (a, b) if a == b:
            r = a
        case (a, *rest):
            r = a * rest[0]
    match Point(r, x):
        case Point(x=0.0):
            s = y
        case Point(a, b, z=c) if a > 0:
            s = a + b * c
        case Point() as p:
            s = p.norm()
    match MODE:
        case Mode.LINEAR:
            t = s
        case Mode.CUBIC:
            t = s**3
    match (True, None, "text", [x]):
        case (False, *_) | (True, 1, *_):
            u = 0.0
        case (True, None, "other", _):
            u = 1.0
        case (True, None, "text", [float(w)]):
            u = t * w
    return u, t


# --- bound arguments, methods, objects -------------------------------------------------------------------------------


def scaled(x, scale, *, shift=0.0, power=1):
    return (scale * x + shift) ** power


double = functools.partial(scaled, scale=2.0)
third = functools.partial(double, power=3)


def passes_on(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return 2 * function(*args, **kwargs) + 1

    return wrapper


@passes_on
def wrapped(x, y=0.5, *, z=1.0):
    return x * y + z


@case((0.5, 1.0), (3.0, 2.0), (-4.0, 0.5))
def partials_methods_and_wrappers(x, y):
    inner = functools.partial(scaled, x, shift=y)
    bound = model.squared
    return double(x) + third(y, shift=x), inner(2.0) * model(x) + bound(y), wrapped(x, z=y) - wrapped(y, x)


@case((0.5, 1), (3.0, 2), (-4.0, 4))
def known_objects(x, n):
    total = x if MODE is Mode.CUBIC and MODE in (Mode.LINEAR, Mode.CUBIC) else 0.0
    for mode in Mode:
        total = total * x + mode.value
    name = f"{MODE.name.lower()}-{3:02d}"
    assert name == "cubic-03"
    if name.startswith("lin"):
        raise ValueError(name)
    total += Level.HIGH * x + (1.0 if n == Level.LOW else 0.0)
    return total, n in (1, 4, 9), n not in range(3, 5), x in (0.5, x + 1)


@case((0.53, 1.07), (3.1, 2.3), (-4.2, 0.61), (0.7, 0.7), kinks=(3,))
def equality_of_tuples(x, y):
    a, b = (x, (y, 1)), (x * 1.0, (y, 1.0))
    same = a == b
    less = (x, y) != (y, x)
    return (x if same else y) + (2 * x if less else 3 * y), Point(x, y) == (x, y, 1.0), [x] == (x,)


def power(x, n):
    return 1.0 if n == 0 else x * power(x, n - 1)


def polynomial(x, *coefficients):
    match coefficients:
        case (c,):
            return c
        case (c, *rest):
            return c + x * polynomial(x, *rest)


@case((0.5, 1.0), (1.5, 2.0), (-0.75, 0.5))
def recursion_that_ends(x, y):
    return power(x, 25) + polynomial(x, y, 2.0, x, y * y)


@case((0.53, 1.07, -0.2), (3.1, 2.3, 2.6), (-4.2, 0.61, -5.0), (1.0, 3.0, 2.0))
def sorted_numbers(x, y, z):
    low, middle, high = sorted((x, y, z))
    falling = sorted([x, 2, y * z, 0.5], reverse=True)
    return low - middle * high, sum((k + 1) * v for k, v in enumerate(falling))


@case((0.53, 1.07), (3.1, 2.3), (-4.2, 0.61))
def builtins_of_tuples(x, y):
    items = (x, y, x * y)
    product = functools.reduce(lambda a, b: a * b + 1, items, 0.5)
    best = max(items, key=lambda t: abs(t - 1))
    word = min([Pair(x, y), Pair(y, x)], key=lambda p: p.first)
    total = sum(map(lambda a, b: a * b, items, reversed(items)), start=x)
    kinds = (1 if isinstance(x, float) else 2) + (4 if isinstance(items, (list, tuple)) else 8)
    return best * product, word.second, total, kinds + len(list(zip(items, (1, 2), strict=False)))


@case((0.5, 1.0), (3.0, 2.0), (-4.0, 0.5), kinks=())
def lengths_of_many_sides(x, y):
    return math.hypot(x, y, x - y), math.hypot(x) + math.dist((x, y), (y, 1.0)), math.dist([x], [0.25])


@case((0.6, 1), (6.1, -2), (-4.75, 5), (1.0, 0), (0.1, 3), kinks=(3,))
def parts_of_numbers(x, n):
    m, e = math.frexp(x)
    rest, whole = math.modf(x)
    q, r = np.divmod(x, 0.75)
    return m * n, e, rest * x, whole, q, r, math.ldexp(m, n), math.trunc(x)


@case((0.5, 1), (3.0, 2), (-4.0, 100))
def casts(x, n):
    wide = np.float64(x) * float(n) + np.bool_(n > 2)
    small = np.int8(n) + np.uint8(n) + np.int16(n * 300)
    return wide, small, np.int32(n) * x, np.int64(x * 2), math.isclose(x, 0.5, rel_tol=0.1)


@case((0.5, 1.0), (3.0, 2.0))
def keywords_pass_through(x, y):
    def outer(*args, **options):
        return inner(*args, **options) + len(options) * x

    def inner(a, b=2.0, *, c, d=1.0):
        return a * b + c * d

    return outer(x, c=y), outer(x, y, d=x, c=1.0), outer(b=x, a=y, c=0.0)


# --- what classes of the user define ---------------------------------------------------------------------------------


@case((0.5, 1.5), (2.0, -0.25))
def functions_that_ask_an_object(x, y):
    v = Plane(x, y)
    first, *others = v
    known = 2.0 * (1.5 in v) + (x not in v)
    return abs(v) * len(v), v[1] * first, sum(others), known, round(v * 3.3).x + v(x, scale=y)


@case((0.5, 1.5), (2.0, -0.25))
def sums_of_objects(x, y):
    several = (Plane(x, y), Plane(y, 1.0), Plane(x * y, x))
    whole = sum(several)
    halves = sum([v * 0.5 for v in several], Plane(0.0, y))
    turned = Plane(x, y) * Turned(y, 2.0)
    return whole.x * whole.y, halves.y, turned.x * turned.y, sum([(x, y), (y,)], ())[2]


@case((0.5, 1.5), (2.0, -0.25))
def objects_in_order(x, y):
    several = (Plane(x, y), Plane(y, 1.0), Plane(x * y, 3 * x))
    small, middle, large = sorted(several)
    least = min(several)
    signs = (several[0] < several[1]) + 2 * (several[0] > several[1])
    return small.x * middle.y, large.y, least.y * max(several, key=abs).x, signs


@case((0.5, 1.5), (2.0, -0.25), (1.5, 1.5), kinks=(2,))
def tuples_in_order(x, y):
    tests = (
        (x, y) < (y, x),
        (x, 1) <= (x, 2),
        (1, x) > (1, y),
        [x, y] >= [x],
        (2, x) < (1, y),
        (x, (y, 1)) < (x, (y, x)),
    )
    best = (10.0, 0.0)
    for n in range(3):
        best = min(best, ((n * x - y) ** 2, n * x))
    cards = [Card(x, y, 2.0), Card(y, x), Card(1.5, x * y, 0.5)]
    low = min(cards)
    return sum(n * test for n, test in enumerate(tests)), best[1], low.name, cards[0] <= cards[2]


@case((0.5, 1.5), (2.0, -0.25), (1.0, 1.0), kinks=(2,))
def sorted_by_a_key(x, y):
    rows = sorted([(x, 1), (y, 2), (1.0, 3), (x * y, 4)], key=lambda row: row[0])
    down = sorted([(x, 1), (y, 2), (1.0, 3), (x * y, 4)], key=lambda row: row[0], reverse=True)
    sizes = sorted((x, y, -0.75), key=abs)
    places = [place for _, place in rows] + [place for _, place in down]
    return *places, rows[0][0] * down[1][0], sizes[0] * sizes[2] ** 2


@case((0.5, 1.5), (2.0, -0.25))
def own_items_of_a_named_tuple(x, y):
    odd = Odd(x, y)
    return odd[0] * x, len(odd) * y, sum(odd), odd.x


@case((0.5, 1.5), (2.0, -0.25))
def constants_and_properties_of_a_class(x, y):
    gas = Gas(x, y)
    gas += y
    gas -= x
    return gas.pressure, gas.capacity() * gas.density, gas.parts[1] * x, (gas != Gas(y, x)) + 2 * (Gas(x, x) != gas)


@case((0.5, 1.5), (2.0, -0.25))
def total_ordering_of_a_class(x, y):
    one, two = Version(x, y), Version(y, x)
    return (one >= two) + 2 * (one <= two) + 4 * (one > two) + 8 * (one <= Version(x, y)), max(one, two).minor * x
