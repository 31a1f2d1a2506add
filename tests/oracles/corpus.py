"""Scalar functions over the whole language, each with points that together reach every part of it.

What they compute mostly means nothing; each is a shape of control flow or data flow that a compiler can get wrong.
"""

# Written as a compiler meets them, not as a linter would have them.
# ruff: noqa: B020, RUF005, RUF007
# ruff: noqa: B007, PLR, RET505, RET507, RUF005, SIM102, SIM103, SIM108, SIM114, SIM210, SIM211
# ruff: noqa: B905, F841

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numpy as np

from dualbcast import random

__all__ = ["CORPUS", "Case"]

Point = tuple[Any, ...]


@dataclass(frozen=True)
class Case:
    """A function and where to evaluate it.

    Attributes
    ----------
    function : function
    points : tuple of tuple
        Arguments; an argument is a float, an int or a bool at all points alike. All floats are differentiated in.
    allowance : float
        How many roundings, relative to one more than the result's size, are allowed.
    kinks : tuple of int
        The points at which there is no derivative, so finite differences mean nothing.
    """

    function: FunctionType
    points: tuple[Point, ...]
    allowance: float = 16.0
    kinks: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def floats(self) -> tuple[int, ...]:
        """The positions of the float arguments."""
        return tuple(at for at, arg in enumerate(self.points[0]) if isinstance(arg, float))


CORPUS: list[Case] = []


def case(*points: Point, **options: Any) -> Callable[[Any], Any]:
    """Put a function into the corpus."""

    def add(function: Any) -> Any:
        CORPUS.append(Case(function, points, **options))
        return function

    return add


# --- arithmetic ------------------------------------------------------------------------------------------------------


@case((1.5, -2.5), (-0.75, 3.0))
def arithmetic(x, y):
    return (x + y) * (x - y) / (1 + x * x) - -y + +x


@case((7.5, 2.25), (-7.5, 2.25), (7.5, -2.25), (-7.5, -2.25), (0.25, 3.0), (7.5, 2.0), kinks=(5,))
def floor_and_mod(x, y):
    return x // y, x % y, (x % y) * x, 10.0 // y, 10.0 % y, divmod(x, y)[1] + divmod(x, y)[0]


@case((2.0, 3.0), (0.5, -1.5), (1.25, 0.0))
def float_powers(x, p):
    return x**p, x**2, x**-2, x**0.5, x**0, 2.0**p, x**3.0, pow(x, 5), math.pow(x, p + 1)


@case((-1.5, 3), (-2.0, 2), (0.5, 0))
def negative_base(x, n):
    return x**3, x**2 * n, (-x) ** 2, -(x**2), x**9, x**-3


@case((7, 2), (-7, 2), (7, -2), (-7, -2), (0, 3))
def integer_division(n, m):
    return n // m, n % m, -n // m, n % -m, (n // m) * m + n % m == n, n / m, *divmod(n, m)


@case((13, 3), (-13, 2), (0, 1))
def bits(n, m):
    return n & m, n | m, n ^ m, ~n, n << m, n >> m, -n >> 1, (n > 3) & (m > 2), (n > 3) | (m > 2), (n > 3) ^ (m > 2)


@case((2.5, 5), (1.5, 6), (-2.0, 0))
def bits_choose(x, n):
    if n & 1:
        return x * (n >> 1)
    if n & ~1 == 6 and n ^ 4:
        return x / (n | 8)
    return x * x


@case((2.0,), (-3.0,))
def many_uses(x):
    return x * x * x + x / x - (x - x) + max(x, x) + np.hypot(x, x)


def _product(a, b):
    return a * b + a


@case((1.5, 2.0), (-0.5, 4.0))
def same_argument(x, y):
    return _product(x, x) + _product(y, x) * _product(_product(x, y), x)


@case((1.5, 3, True), (-2.5, -2, False))
def mixed_kinds(x, n, flag):
    return x * n, x * flag, n + flag, flag + flag, n / 2, -flag, flag * 1.5, abs(n), x + (n > 0) + (x > 0)


@case((2.0, 1.0), (3.0, -4.0))
def outputs_of_all_kinds(x, unused):
    return x, x, 1, 2.5, True, x > 2, int(x), unused


@case((0.5,), (2.5,))
def constants_folded(x):
    k = 3 * 4 - 2**3
    return x * k / math.sqrt(16.0) + math.log(1.0) * x + (x if 2 > 1 else x / 0) * min(1, 2, 3)  # never: x / 0


@case((2.5,), (-2.5,), (3.5,), (0.25,), (-0.75,), kinks=(0, 1, 2))
def conversions(x):
    n = int(x)
    return n * x, float(n) * x, bool(n) * x, round(x) + x, float(x) * x, int(-x) % 3, bool(x)


@case((2.6875,), (-2.6875,), (0.25,), kinks=(2,))
def roundings(x):
    return math.floor(x) * x, math.ceil(x) * x, math.trunc(x) + x, np.floor(x) * x, np.ceil(x), round(x, 1), abs(x) * x


@case((-2.0,), (3.0,), (0.0,), kinks=(2,))
def absolute_value(x):
    return abs(x), abs(-x) * 2, math.fabs(x) + 1


@case((1.0, 2.0, 3.0), (2.0, 3.0, 1.0), (3.0, 1.0, 2.0), (2.0, 2.0, 0.0), kinks=(3,))
def extrema(a, b, c):
    return min(a, b, c), max(a, b, c), min(a, 2.5) * b, max(a * b, 0), min((a, c)), max(b, b)


# --- tests and choices -----------------------------------------------------------------------------------------------


@case((1.0, 2.0, 3.0), (3.0, 2.0, 1.0), (1.0, 3.0, 2.0), (1.0, 3.0, 3.0), kinks=(3,))
def chained_comparisons(x, y, z):
    return x < y < z, x < y <= z != x, (x < y) + (y < z), 1 if x < y < z else x * y, x < y == z


@case((4.0, 2.0), (0.0, 2.0), (-1.0, 1.0), (4.0, 0.5), (1.0, 3.0), kinks=(1,))
def lazy_links(x, y):
    if 0 < x < y / x < 10:
        return x * y
    if x > 0 and math.log(x) < y and y != 1:
        return math.log(x) * y
    if x == 0 or 1 / x < -0.5:
        return y * y
    return x - y


@case((2.0, 3.0), (-2.0, 3.0), (2.0, 0.0), (0.0, -1.0), kinks=(2, 3))
def operands_of_and_or(x, y):
    return (x and y) * 2, (x or y) + 1, x > 0 and y, x > 0 or y, (x > 0 and y) or -y, (x and y and 2.0) or x + y


@case((2, 0, 1.5), (0, 3, 2.5), (4, -1, 0.5))
def integer_operands(n, m, x):
    return n and m, n or m, (n and x) * 2, x if n and m else -x, not n, x * (not m)


@case((4.0, 2.0), (-4.0, 2.0), (4.0, 0.0), (0.25, 2.0), (0.0, 1.0), kinks=(2, 4))
def guarded(x, y):
    return 0.0 if x <= 0 else (math.sqrt(x) if x < 1 else (math.log(x) / y if y != 0 else x))


@case((2.0, 0.5), (-2.0, 0.5), (2.0, -0.5), (-2.0, -0.5))
def nested_choices(x, y):
    a = (x if y > 0 else -x) if x > 0 else (y if y > 0 else -y)
    t = (x, y) if x > y else (y * x, 1)
    return a * (2 if x > 0 else y), t[0] - t[1]


@case((3.0, True, False), (3.0, False, True), (-3.0, True, True), (3.0, False, False), (0.5, False, False))
def boolean_flags(x, p, q):
    done = p and not q
    if done:
        x = x * 2
    elif q or (x < 0):
        done = x > 0 or not p
        x = x - 1 if done else x + 1
    else:
        done = bool(x > 1)
    return x * x if done else x, done, done != p


@case((-1.0,), (0.25,), (0.75,), (1.5,), (0.0,), (1.0,))
def smoothstep(x):
    if x <= 0:
        return 0.0
    if x >= 1:
        return 1.0
    return x * x * (3 - 2 * x)


@case((0.25, 1.0), (2.5, 1.0), (-3.0, 0.5))
def huber(r, delta):
    a = abs(r)
    return 0.5 * a * a if a <= delta else delta * (a - 0.5 * delta)


# --- branches --------------------------------------------------------------------------------------------------------


@case((2.0, 3.0, 0), (2.0, 3.0, 1), (2.0, 3.0, 2), (2.0, 3.0, 3))
def active_in_one_branch(x, y, n):
    if n == 0:
        s = 1
    elif n == 1:
        s = x * y
    elif n == 2:
        s = y
    else:
        s = 2.5
    return s * s, s + x


@case((1.5, 2.0, 1), (1.5, 2.0, -1))
def overwritten_by_constant(x, y, n):
    s = x * y
    t = s
    if n > 0:
        s = 0.0
    u = s + t
    s = s * 2 + u
    t = 3.0
    return s, t, u * t


@case((2.0, 1), (2.0, 0), (3.0, -1))
def unused_in_some_branch(x, n):
    if n > 0:
        y = x * x
    elif n < 0:
        z = y = 3 * x
        x = z
    else:
        x = x + 1
    a = b = x * 2
    a += 1
    return a * b


@case((5.0,), (3.0,), (1.5,), (0.5,), (-1.0,), (-5.0,))
def early_returns(x):
    if x > 1:
        if x > 2:
            if x > 4:
                return x * x
            x = x - 1
        else:
            return 2 * x
    elif x < 0:
        y = -x
        if y < 2:
            return y**3
    else:
        return math.exp(x)
    return x * 0.5


@case((1.0, 2.0), (2.0, 1.0))
def swap(x, y):
    if x > y:
        x, y = y, x
    a, (b, c) = x, (y, x * y)
    a, b, c = b, c, a
    return a * 2 + b * 3 + c, y - x


@case((2.0, 0.5), (-2.0, 0.5), (0.0, 1.0), (750.0, -1.0), (-750.0, -1.0), (-0.0, 3.0), kinks=(2, 5))
def functions_on_both_sides(z, y):
    if z >= 0:
        s = 1 / (1 + math.exp(-z))
        return s, y * z + math.log1p(math.exp(-z)), y**2 / (1 + s) ** 0.5
    e = math.exp(z)
    return e / (1 + e), y * z - z + math.log1p(e), y**2 - (2 + e) ** 0.5 / (1 + y * y)


@case((0.75, 0.5), (-0.25, 0.5), (-0.75, 1.5), (2.5, 0.125), (1.0, 1.0))
def functions_in_another_order(z, y):
    a, b = z + y, z - y
    if z > 0:
        return y * math.erfc(-a) - math.exp(-y) * math.erfc(-b), math.hypot(a, y) - math.sqrt(1 + b * b)
    r = math.sqrt(1 + a * a)
    return math.exp(-y) * math.erfc(b) - y * math.erfc(a), r * math.hypot(y, b)


@case((-2.0, 0.5), (-0.5, 0.5), (0.5, 0.5), (3.0, 0.5), (0.5, -1.5), (3.0, -1.5))
def functions_in_a_chain(z, y):
    if z < -1:
        s = math.exp(z) * y
    elif z < 0:
        s = 2 * math.exp(2 * z) - y / (1 + z * z)
    elif z < 1:
        t = math.tanh(y) if y > 0 else math.tanh(z - y) * 2
        s = t - math.exp(-z * y)
    else:
        s = math.exp(-z) / (3 + y)
    return s, s * y


# --- loops -----------------------------------------------------------------------------------------------------------


@case((1.5, 4), (1.5, 1), (1.5, 0), (0.5, -3))
def power_by_loop(x, n):
    p = 1
    for _ in range(n):
        p = p * x
    return p


@case((1.5, 2, 7), (0.5, 3, 3), (2.0, 5, 1))
def runtime_bounds(x, a, b):
    s = x
    for i in range(a, b):
        s += x * i
    for i in range(b, a, -2):
        s -= x / i
    for i in range(a, b, 2):
        s *= 1.25
    return s


@case((2.0, 3), (2.0, 0), (2.0, 1))
def variable_after_loop(x, n):
    i = 7
    for i in range(n):
        x += i
    for j in range(3):
        pass
    for k in range(4):
        last = x * k
    return x * i, j * x, last * k


@case((1.0, 2.0, 3.0, 4), (1.0, 2.0, 3.0, 0), (1.0, 2.0, 3.0, 2))
def rotation(a, b, c, n):
    for _ in range(n):
        a, b, c = b, c, a * 0.5
    i, j = 0, 1
    while i < n:
        a, b = b, a
        i, j = j, i + j
    return a, b - c, i


@case((1.5, 9), (0.25, 9), (-3.0, 9), (0.5, 3))
def break_and_continue(x, n):
    s, hits = 0.0, 0
    for i in range(n):
        if i % 3 == 1:
            continue
        if s > 20:
            s = s - x
            break
        s += x * i
        if s < -4:
            hits += 10
            break
        hits += 1
    return s, hits


@case((1.5,), (3.0,), (0.5,), (20.0,))
def while_true(x):
    k = 0
    while True:
        k += 1
        if x > 10:
            break
        if k == 2:
            x = x + 1
            continue
        if k > 5:
            return -x, k
        x = x * 1.5
    return x, k


@case((5.0, 3), (0.5, 3), (-1.0, 0), (2.5, 1), (2.875, 3))
def while_with_lazy_test(x, n):
    i = 0
    while i < n and 4 / (n - i) < x:
        x = x - 0.25
        i += 1
    while x > 3 or (n > 2 and x > 2 and i < 8):
        x = x * 0.5
        i += 1
    return x, i


@case((1.25, 4), (0.1875, 4), (3.0, 4), (0.25, 0), (-5.0, 3))
def return_in_loops(x, n):
    for i in range(n):
        j = 0
        while j < n:
            if x * j > i + 2:
                return x * i + j
            j += 1
            if j == 3:
                continue
            if x < -2:
                return -x
        x = x * 1.125
    return x * x


@case((2.0, 5), (2.0, 0), (-1.0, 3))
def certain_inner_return(x, n):
    k = 0
    while k < n:  # never: the test at the end of a turn
        k += 1
        if x < 0:
            x = -x
            continue
        for j in range(2):
            return x * k
    return x - 1


@case((1.5, 5), (0.5, 2), (-1.0, 6))
def int_becomes_float(x, n):
    s, c = 0, 1
    for i in range(n):
        if i > 1:
            s = s + x * c
        c *= 2
        if s > 9:
            c = x
    return s, c * x


@case((1.5, 6), (0.25, 6), (-2.0, 2))
def carried_flag(x, n):
    found, k = False, 0
    for i in range(n):
        if found:
            x = x * 2.0
        if x * i > 2:
            found = True
            continue
        k += 1
    return x, k, found


@case((1.5, 2.0, 5), (0.5, -1.0, 1), (0.5, 2.0, 0))
def delayed_activity(x, y, n):
    a, b, c = 1.0, 2.0, 3.0
    for i in range(n):
        c = b
        b = a + c
        a = x if i == 1 else a * 1.5
    d = y
    for i in range(n):
        if i == 2:
            d = 2.0
        elif i == 3:
            d = d + c * y
    return a, b, c, d


@case((1.5, 3), (2.0, 1), (-0.5, 2))
def nested_loops(x, n):
    s = 0.0
    for i in range(n):
        t = x
        for j in range(i + 1):
            if j > 1:
                break
            t = t * x + j
            for k in range(j):
                s += t / (k + 2)
        s = s + t
    return s


@case((1.5, 3), (-0.5, 2), (0.5, 0))
def both_sides_continue(x, n):
    i, y = 0, 0.5
    while i < n:
        i += 1
        y += x
        if x > 0:
            pass
        else:
            continue
        y = y * x
    return x, y


@case((0.25, 1.5), (1.0, 0.5), (6.0, 3.0))
def shadowed_bounds(x, y):
    n = 3
    for i in range(n):
        n = i + 1
        x = x * y + n
    for n in range(n):
        y += n * x
    return x, y, n


@case((2.0,), (3.25,), (-1.5,))
def whole_part_of_an_earlier_turn(x):
    for i in range(3):
        k = (int(x), 1)
        x = x * 1.5
    while True:
        j = (int(x), k)
        x = x * 1.25
        if abs(x) > 9:
            break
    return k[0] * 1.0 + x, x * j[0], float(k[1]) * x


# --- tuples and unrolled loops ---------------------------------------------------------------------------------------


@case((2.0, 3.0, 4.0, 0.5), (1.0, -3.0, 2.0, -0.5))
def stars(*xs):
    a, *b, c = xs
    d, (e, f) = a, (b[0], c)
    *g, h = b
    t = (*xs, 1.0)[1:-1] + (a * c,)
    return a * c + e - f, d * h, sum(g), len(t), t[-1] + t[::2][1], xs[-1], xs[::-1][0]


@case((2.0, 3.0, 4.0), (1.0, 0.0, -2.0))
def reductions(*xs):
    s = 0.0
    for i, v in enumerate(reversed(xs)):
        s = s + i * v
    for p, q in zip(xs, xs[1:]):
        s = s + p * q
    for i, v in enumerate(xs, 2):
        s -= v / i
    either = any((xs[0] > 1.5, xs[1] > 0))
    return s, sum(xs), sum(xs, 1.5), min(xs), max(xs), math.prod(xs), all(xs), any(xs), len(xs), either


@case((2.0, 1.0, 0.5, -1.0), (-1.5, 3.0, 0.0, 2.0))
def horner(x, *coefficients):
    total = 0
    for i in range(len(coefficients)):
        total = total * x + coefficients[i]
    return total


@case((2.0, 1.5, 0.5, 3.0), (0.5, 2.0, 4.0, 0.25))
def continued_fraction(x, *terms):
    value = x
    for term in reversed(terms):
        value = term + x / value
    return value


@case((1.0, 2.0, 3.0), (-1.0, 2.0, 3.0), (1.0, 6.0, 3.0), (1.25, 2.5, -3.0), (2.0, 0.5, 9.0))
def jumps_in_unrolled(*xs):
    s, n = 1.0, 0
    for i, v in enumerate(xs):
        if v < 0:
            if i:
                break
            continue
        s = s * v
        if s > 5:
            return s - v, i
        for w in (v, 2.0):
            if w == 2.0:
                continue
            if w < 1:
                break
            n += 1
        n += 2
    return s * n, n


@case((0.25, 0.5, 0.0), (0.25, -0.5, 0.5), (0.25, 2.5, 3.0), (-0.25, -2.5, 3.0), (3.0, -1.5, -0.5))
def continue_under_nested_ifs(x, y, z):
    n = 0
    for v in (z, 2.0, z, x):
        if y > 0:
            pass
        elif v > 1:
            continue
        elif v > x:
            if n > 1:
                break
            n += 1
        y = y * v - 1.0
        n += 2
    return y, n


@case((2.0, 3, 1.0, -1.0, 3.0), (0.5, 3, 1.0, 2.0, 3.0), (0.25, 0, 1.0, 1.0, 1.0), (0.5, 2, 1.0, 1.0, -2.0))
def unrolled_in_loop(x, n, *ts):
    s = 0.0
    for i in range(n):
        for t in ts:
            s = s + t * x
            if s > 3:
                return s * x
            if t < 0:
                break
            if i:
                continue
            s += 0.5
        s = s - x
    return -s


@case((1.5, 7, 3), (-0.5, -1, 2), (0.25, 2**14 + 5, 0))
def random_walk(x, key, n):
    for step in range(n):
        if random.bernoulli(0.75, key, step):
            x = x * random.uniform(key, step, 1) + random.normal(key, step, 2)
        else:
            x = x - random.exponential(key, -step)
    return x


@case((1.0, 1.5, 0.5, 3), (1.0, 2.5, 0.5, 1), (2.0, 0.0, 100.0, 0), (2.0, 0.5, 3.0, 3), (1.5, 5.0, 1.0, 3))
def break_or_return(x, p, q, n):
    total = 0.0
    k = 0
    while k < 2:
        k += 1
        for y in (x, 2 * x):
            if n > 1:
                if p > k:
                    break
            else:
                for j in range(n + 2):
                    if j * x > q:
                        return total + 100 * j * x
            total += y
        total += 0.5
    return total


@case((1.125, 2.0, 4), (3.0, 0.5, 4), (0.5, 0.25, 0), (6.0, 1.0, 2), (9.0, 1.0, 2))
def loop_in_unrolled(x, y, n):
    s = x
    for t in (1.0, y, 3):
        for i in range(n):
            s = s + t * 0.5
            if s > 9:
                return s * t
            if i == 2:
                break
        if s < t:
            continue
        s = s * y
        if s > 5:
            break
    return s


@case((1.5, 2.5, 3), (2.0, 0.5, 0))
def carried_tuples(x, y, n):
    t, t_0 = (1, x), 2
    u = ((x, y), 0)
    for i in range(n):
        t = (t[0] * x, t[1] + t[0])
        u = ((u[0][1], u[0][0] * x), u[1] + 1)
        t_0 = t_0 + i
    (a, b), c = u
    return t[0], t[1], a - b, c * x, t_0 * y


@case((1.0, 2.0, 3.0), (4.0, 0.5, -1.0))
def dot_by_index(x, y, z):
    a, b = (x, y, z), (z, x, y)
    s = 0
    for i in range(3):
        for j in range(i, 3):
            s += a[i] * b[j] * (i + 1)
    k = 0
    while k < 2:
        s = s * a[1]
        k += 1
    return s


# --- functions -------------------------------------------------------------------------------------------------------

SLOPE = 0.25
WEIGHTS = (0.5, 1.5, -2.0)


@case((2.0,), (-2.0,))
def captured(x):
    s = x if x > 0 else SLOPE * x
    for w in WEIGHTS:
        s = s * w + WEIGHTS[0]
    return s * _twice(x), math.tau * x


def _twice(v):
    w = v
    return w + v


def _pair(v, k=2.0, *, shift=0.0):
    return v * k + shift, v


@case((1.5, 2.5), (-1.0, 0.5))
def keywords_and_defaults(x, y):
    a, b = _pair(x * y)
    c, d = _pair(x, shift=y, k=3)
    e, f = _pair(k=y, v=x + y)
    return a - b * x, c * d, e + f


def _branchy(v, k):
    if v > k:
        if v > 2 * k:
            return v * v
        v = v - k
    elif v < 0:
        return -v
    for t in (1.0, 2.0, 3.0):
        if v < t:
            return v * t
        v = v - 0.5
    while v > 1:
        v = v * 0.5
        if v < k / 8:
            return v * k
    return v


@case((1.25, 2.0), (9.0, 2.0), (-1.0, 2.0), (3.0, 4.0), (5.25, 4.0), (7.0, 4.0), (4.5, 16.0), (4.75, 5.0))
def returns_in_callee(x, y):
    s = _branchy(x, y)
    i = 0
    while i < 4:
        s = s + _branchy(x * i, y)
        if s > 40:
            break
        i += 1
    return s, _branchy(x, y) * y if _branchy(x, y) > 3 else i


@case((2.0, 3.0), (-1.5, 0.5))
def closures(x, y):
    k = 2.0

    def scaled(v, w=x * y):
        return v * k + w

    k = y
    f, g = (lambda v: v * k), (lambda v, a=k: v / a)
    k = k * 2
    total = 0.0
    fs = ()
    for c in (1.0, 2.0, 3.0):
        fs = fs + (lambda v, c=c: v * c + k,)
    for h in fs:
        total += h(x)
    return scaled(x), f(x) + g(x), total


def _compose(f, g):
    return lambda v: f(g(v))


def _apply(f, *args):
    return f(*args)


@case((0.5, 1.5), (-0.25, 2.0))
def functions_as_values(x, y):
    def power(n):
        def inner(v):
            return v**n * y

        return inner

    h = _compose(math.sin, power(2))
    return h(x), _apply(power(3), x), _apply(math.atan2, x, y), (lambda *v: v[0] * v[-1])(x, 1.0, y)


def _power(x, n):
    if n == 0:
        return 1.0
    if n % 2:
        return x * _power(x, n - 1)
    h = _power(x, n // 2)
    return h * h


@case((1.5, 2.0), (-0.5, 1.25))
def recursion(x, y):
    def odd(n):
        return 0 if n == 0 else y + even(n - 1)

    def even(n):
        return 1 if n == 0 else x * odd(n - 1)

    return _power(x, 5) + _power(y, 4), even(4) - odd(2)


@case((1.0, 2.0), (3.0, -1.0))
def aliased_values(x, y):
    v = x * y
    w = u = v
    a, b = _pair(v * 2)
    w += a
    return u * w, v - b, _twice(v)


@case((2.0, 3.0, 4.0, 5.0), (0.5, -1.0, 2.0, 1.0))
def hygiene(k, out, t, f64_2):
    start = k * 3.0 + 2.0 * f64_2
    f32_1 = f64_1 = start * t
    k_1, out_dk, x_k, kernel, row, n0, j = k, out * 2.0, t, start, 1.0, f32_1, f64_1
    for i in range(2):
        k_1 = k_1 * out_dk - x_k
    return kernel + row * n0, j * out, k_1


# --- as people write them --------------------------------------------------------------------------------------------


@case((0.5, 0.25), (2.0, 0.75), (-1.5, 0.5), (3.0, 0.0), allowance=64.0)
def kepler(mean, eccentricity):
    e = mean
    for _ in range(20):
        step = (e - eccentricity * math.sin(e) - mean) / (1 - eccentricity * math.cos(e))
        e = e - step
        if abs(step) < 1e-5:
            break
    step = (e - eccentricity * math.sin(e) - mean) / (1 - eccentricity * math.cos(e))
    return e - step


@case((1.0, 0.0, 0.5, 0.25, -0.5, 0.75), (0.0, 0.0, 0.5, 0.25, -0.5, 0.75), (0.0, 1.0, 0.5, 0.25, -0.5, 0.75))
def hm_lstm(z, zb, c, f, i, g):
    if z == 1:
        return _sigmoid(i) * math.tanh(g)
    if zb == 0:
        return c
    return _sigmoid(f) * c + _sigmoid(i) * math.tanh(g)


def _sigmoid(x):
    return 1 / (1 + math.exp(-x))


def _normal(x):
    return 0.5 * (1 + math.erf(x / math.sqrt(2)))


@case((100.0, 95.0, 0.5, 0.03125, 0.25, True), (100.0, 105.0, 1.0, 0.0625, 0.5, False), allowance=64.0)
def black_scholes(s, k, t, r, sigma, call):
    d1 = (math.log(s / k) + (r + 0.5 * sigma**2) * t) / (sigma * math.sqrt(t))
    d2 = d1 - sigma * math.sqrt(t)
    discounted = k * math.exp(-r * t)
    price = s * _normal(d1) - discounted * _normal(d2)
    return price if call else price - s + discounted


@case((0.25, 0.125, 1.0, 0.5), (2.0, 0.125, 1.0, 0.5), (-2.0, 0.25, 1.0, 0.25), (0.5, 0.25, 0.0, 0.25))
def return_mapping(strain, plastic, modulus, hardening):
    trial = modulus * (strain - plastic)
    yield_stress = 0.5 + hardening * abs(plastic)
    excess = abs(trial) - yield_stress
    if excess <= 0:
        return trial, plastic, False
    step = excess / (modulus + hardening)
    sign = 1.0 if trial > 0 else -1.0
    return trial - modulus * step * sign, plastic + step * sign, True


@case((0.125, 0.25), (0.5, 0.5), (1.0, 1.0), (-0.75, 0.125), allowance=2000.0)
def mandelbrot(a, b):
    x, y, n = 0.0, 0.0, 0
    while x * x + y * y < 4 and n < 12:
        x, y = x * x - y * y + a, 2 * x * y + b
        n += 1
    return x * x + y * y, n


@case((2.0,), (9.5,), (0.25,), allowance=32.0)
def newton_root(x):
    y = x if x > 1 else 1.0
    while abs(y * y - x) > 1e-4 * x:
        y = 0.5 * (y + x / y)
    return 0.5 * (y + x / y)


@case((0.5, 1.5, 2.5), (3.5, 1.5, 2.5), (2.0, 1.5, 2.5))
def numpy_spellings(x, low, high):
    c = np.clip(x, low, high)
    w = np.where(x > low, x * c, high - x)
    m = np.maximum(x, low) - np.minimum(x, high) + np.sign(x - low)
    return c, w, m, np.arctan2(np.exp(-x), np.tanh(high)), np.logical_and(x > 0, low > 2), np.square(x)


@case((0.5, 0.75), (-0.5, 0.25))
def elementary(x, y):
    s = math.sin(x) * math.cos(y) + math.tan(x * y) + math.asin(x) - math.acos(y) + math.atan(x)
    h = math.sinh(x) - math.cosh(y) * math.tanh(x) + math.exp(x) * math.expm1(y) + math.log1p(x)
    r = math.sqrt(y) + math.log(y) + math.log2(y) * math.log10(y) + math.cbrt(y) + math.log(y, 3) + math.exp2(x)
    return s, h, r, math.erf(x), math.hypot(x, y) + math.atan2(y, x) + math.copysign(y, x), x


@case((1.5, 3), (0.25, 0), (-2.0, 5))
def collatz_and_bits(x, n):
    steps = 0
    while n > 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
        x = x * 0.75 if n & 1 else x + 0.5
    return x, steps, x * steps


@case((1.0, 2.0, 3.0), (1.0, -2.0, 3.0), (0.0, 2.0, 0.25), (1.0, -3.0, 0.5), (1.0, 3.0, 0.5), kinks=(2,))
def quadratic_roots(a, b, c):
    if a == 0:
        return -c / b, -c / b, 1
    disc = b * b - 4 * a * c
    if disc < 0:
        return -b / (2 * a), 0.0, 0
    q = -0.5 * (b + (math.sqrt(disc) if b > 0 else -math.sqrt(disc)))
    return q / a, c / q, 2


@case((0.5, 1.0), (3.0, 2.0), (-4.0, 0.5))
def state_machine(x, y):
    state = 0
    for i in range(7):
        if state == 0:
            x = x + y
            state = 1 if x > 2 else 2
        elif state == 1:
            x = x * 0.5
            state = 0 if i < 4 else 3
        elif state == 2:
            if x < -1:
                return -x, state
            x, y = y, x
            state = 0
        else:
            break
    return x * y, state


# The rest of the corpus, which registers itself.
import corpus_objects  # noqa: E402, F401
