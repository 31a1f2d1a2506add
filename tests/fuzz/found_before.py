"""Programs that campaigns have found to fail, each as small as it could be made, by what was wrong."""

from __future__ import annotations

from typing import Any

from program import Program

__all__ = ["CASES"]


def _case(text: str, names: str, kinds: str = "", **how: Any) -> Program:
    letters = {"f": "float", "i": "int", "b": "bool"}
    given = tuple(letters[kind] for kind in kinds or "f" * len(names))
    wrt = tuple(at for at, kind in enumerate(given) if kind == "float")
    settings: dict[str, Any] = {"scalar": None, "salt": 0, "single": False, "shape": (24,)} | how
    return Program(text.lstrip("\n"), tuple(names), given, wrt, **settings)


CASES = {
    "LLVM took the quotient by -2 of a product of numbers of 8 bits for the dividend": _case(
        """
def f(x, n):
    return ((n + n) + n) % -2, n * 3 // -2, x
""",
        "xn",
        "fi",
        dtypes=("float64", "int8"),
    ),
    "a name that the default of a lambda assigns was not one that the loop assigns": _case(
        """
import math


def f(x):
    u = 0.0
    for i in range(2):
        u += math.cos((lambda v=(x := math.sin(x)): v)())
    return x, u
""",
        "x",
    ),
    "nor one that the default of a function inside assigns": _case(
        """
import math


def f(x):
    u = 0.0
    for i in range(2):
        def inner(a, *, v=(x := math.sin(x))):
            return a * v
        u += inner(x)
    return x, u
""",
        "x",
    ),
    "what no path reaches was lowered where some paths had returned and others went on to the next turn": _case(
        """
def f(x, n):
    for i, x in enumerate((0.5, -1.25, 2.0)):
        if n == 3:
            if x > n:
                return x
            continue
        elif 1 < x > x:
            v = x
        else:
            if x > 1:
                break
            continue
        for j in range(1, 4):
            v = v % 2.5
    return x
""",
        "xn",
        "fi",
        dtypes=("float64", "int64"),
    ),
    "a sum of zeros with a sign had the sign": _case(
        """
import math


def f(x):
    return math.copysign(x, sum((x * 0.0, -0.0))), math.copysign(1.0, sum(-0.0 for i in range(3)))
""",
        "x",
    ),
    "an integer of no sign became a zero of one": _case(
        """
import math


def f(x, y):
    b = float(int(math.sin(x ** 2 + x) * 3.0))
    return math.copysign(abs(math.sin(y)) + 0.5, b), math.atan2(round(x) * 1.0, -1.5)
""",
        "xy",
    ),
    "an assertion in LLVM's newgvn: a value taken up too often": _case(
        """
import math
import numpy as np

RATE = 0.75


def f(x, y, z, n):
    if (RATE > (math.sin(RATE + 1.0) + 1.5) ** x) != (y < 0):
        i = 0
        while i < 3:
            i += 1
            x, y, z = y, z, x
        s = ((np.where(n < 1, RATE, RATE) - x) // 0.75, y)
    elif ((y < 0) and all((a > 2) for a in reversed((math.sin(x / (2.5 + math.sin(y))), math.pi, x,)))):
        pass
    return z + y + x + ((((z * x) * RATE) + x) * y), n - (((n and n) * n % 7) % -3)
""",
        "xyzn",
        "fffi",
        single=True,
        dtypes=("float32", "float32", "float32", "int8"),
    ),
    "an assertion in LLVM's newgvn: a value numbered anew at the end": _case(
        """
import math

WEIGHTS = (0.5, -1.25, 2.0)


def f(x, y, n):
    i = 0
    while i < 2 and ((y < 2) and (((len(WEIGHTS) / 2) > y) | (y < 1.0))):
        i += 1
        if all((not (bool(WEIGHTS[-3]) and (x < 1.0)), y > 2)):
            pair = ((x + min((e for e in WEIGHTS), default=-1.0)) if x < 0 else x), y
            return 2, math.prod(WEIGHTS[-3] for d in pair)
        x -= math.sin(+(math.asinh(x) if 3.0 > x else y))
        if not (3 in (0, 1, 3)):
            return 2, divmod((n // 3) or x, 1.5)[1]
    g, *s = WEIGHTS
    last = min((h for h in (math.prod((0.0, tuple(x for u in WEIGHTS)[-1], x)), 0.1, x,)), default=-1.0)
    return i + i, g + y + x + last
""",
        "xyn",
        "ffi",
    ),
    "a loop in a side of a varying branch, which is written once for each side of a uniform one": _case(
        """
import math


def f(x, y, n, b):
    if n in (1, 2):
        x = x
    else:
        y = sum(x for i in range(3) if b)
    return (math.sqrt(x) if x > 0 else y) + x
""",
        "xynb",
        "ffib",
        scalar=0,
    ),
    "a return for sure in a loop after a loop that may return": _case(
        """
def f(x, y, n):
    if n > 0:
        for i in range(0, 5, 2):
            for j in range(3):
                if n < i:
                    break
                if not bool(i):
                    return x
            if any((-1 not in (1, 2), x > 1.0)):
                return y
        x = 0.5
    return x + y
""",
        "xyn",
        "ffi",
    ),
    "the bound of a loop in a loop of a varying branch was a vector, and its counter was none": _case(
        """
def f(x, n):
    b = 1.0
    if b < x:
        for i in range(3):
            for j in range(n):
                b = 0.0
    return b
""",
        "xn",
        "fi",
        scalar=1,
    ),
}
