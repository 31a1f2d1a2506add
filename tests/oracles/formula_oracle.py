"""A plain Python function with mpmath's functions in the place of `math`'s: its value, and partials by differences."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import FunctionType, SimpleNamespace
from typing import Any

import mpmath
import numpy as np

DIGITS = 50
# Of a central difference, relative: its error is some 1e-36, and that of rounding some 1e-32.
STEP = mpmath.mpf(10) ** -18

_SAME = "exp expm1 log log10 log1p sqrt cbrt hypot sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh"
_MATH = {
    **{name: getattr(mpmath, name) for name in (*_SAME.split(), "erf", "erfc", "gamma", "degrees", "radians")},
    "lgamma": mpmath.loggamma,
    "pow": mpmath.power,
    "fabs": abs,
    "log2": lambda x: mpmath.log(x, 2),
    "exp2": lambda x: mpmath.power(2, x),
    "copysign": lambda x, y: abs(x) if y >= 0 else -abs(x),
    "floor": lambda x: int(mpmath.floor(x)),
    "ceil": lambda x: int(mpmath.ceil(x)),
    "trunc": int,
    "fmod": lambda x, y: x - y * int(x / y),
    "isfinite": mpmath.isfinite,
    **{name: getattr(math, name) for name in ("pi", "e", "tau", "inf", "nan")},
}


def exact(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, and all functions of its module that it calls, on mpmath's numbers."""
    assert isinstance(function, FunctionType)
    names = dict(function.__globals__)
    for name, value in function.__globals__.items():
        if value is math:
            names[name] = SimpleNamespace(**_MATH)
        elif getattr(math, name, None) is value and name in _MATH:
            names[name] = _MATH[name]
        elif isinstance(value, FunctionType) and value.__module__ == function.__module__:
            names[name] = FunctionType(value.__code__, names, name, value.__defaults__, value.__closure__)
    return FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)


def leaves(value: Any) -> list[Any]:
    """The numbers in a result."""
    if isinstance(value, tuple):
        return [leaf for part in value for leaf in leaves(part)]
    return [value]


def value_and_partials(
    function: Callable[..., Any], arguments: list[Any], wrt: list[int]
) -> tuple[list[Any], list[list[Any]]]:
    """The outputs at a point, and for each output its partials in the arguments at positions `wrt`."""
    with mpmath.workdps(DIGITS):
        called = exact(function)
        point = [a if isinstance(a, (int, np.integer)) else mpmath.mpf(float(a)) for a in arguments]
        point = [int(a) if isinstance(a, np.integer) else a for a in point]
        values = leaves(called(*point))
        columns = []
        for at in wrt:
            width = STEP * (abs(point[at]) or 1)
            above, below = (
                leaves(called(*(x + sign * width if k == at else x for k, x in enumerate(point)))) for sign in (1, -1)
            )
            columns.append([(a - b) / (2 * width) for a, b in zip(above, below, strict=True)])
        return values, [[column[i] for column in columns] for i in range(len(values))]
