"""Values at the edges of the format: floats that never raise, but give infinities and NaN as IEEE 754 and NumPy do.

The user's function is executed by Python with these numbers, and with a `math` and a `np` that take them. The last bits
of what a library computes can be disturbed, which shows what hangs on them.
"""

from __future__ import annotations

import builtins
import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from oracles import StandIn, Tables, numbers_of, rebuild

__all__ = ["Ieee", "NoInteger", "arithmetic", "rebuilt", "values"]

# What is made of a larger float may overflow in a kernel, and does not in Python.
LARGEST = 2.0**31


class NoInteger(ArithmeticError):
    """A float that is too large for an integer, or is not a number, was to become one: a kernel gives anything."""


_noise: Iterator[float] | None = None
_single = False
# Python finds a NaN in a tuple by what it is, and not by its value.
nans = 0


@contextmanager
def arithmetic(*, single: bool, noise: float = 0.0, seed: int = 0) -> Iterator[None]:
    """Compute in float32, or in float64, and change the last bits of what libraries compute by so much, relatively."""
    global _noise, _single
    generator = random.Random(seed)
    if noise:
        _noise = itertools.cycle([noise * generator.choice((-1, 1)) * generator.uniform(0.5, 1) for _ in range(97)])
    _single = single
    try:
        yield
    finally:
        _noise, _single = None, False


class Ieee(float):
    """A float whose arithmetic is IEEE's, with Python's remainder and comparisons."""

    __slots__ = ()
    __hash__ = float.__hash__

    def __new__(cls, x: Any = 0.0) -> Ieee:
        global nans
        made = super().__new__(cls, _stored(x))
        nans += made != made
        return made

    def __add__(self, other: Any) -> Any:
        return Ieee(float(self) + _stored(other))

    def __sub__(self, other: Any) -> Any:
        return Ieee(float(self) - _stored(other))

    def __rsub__(self, other: Any) -> Any:
        return Ieee(_stored(other) - float(self))

    def __mul__(self, other: Any) -> Any:
        return Ieee(float(self) * _stored(other))

    def __truediv__(self, other: Any) -> Any:
        return _exact(np.divide, self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _exact(np.divide, other, self)

    def __floordiv__(self, other: Any) -> Any:
        return _exact(_quotient, self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return _exact(_quotient, other, self)

    def __mod__(self, other: Any) -> Any:
        return _exact(_remainder, self, other)

    def __rmod__(self, other: Any) -> Any:
        return _exact(_remainder, other, self)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return Ieee(other) // self, Ieee(other) % self

    def __pow__(self, other: Any, _: Any = None) -> Any:
        return _power(self, other)

    def __rpow__(self, other: Any, _: Any = None) -> Any:
        return _power(other, self)

    def __neg__(self) -> Any:
        return Ieee(-float(self))

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return Ieee(abs(float(self)))

    def _whole(self, whole: Callable[[float], int]) -> int:
        if not abs(self) < LARGEST:
            raise NoInteger
        return whole(float(self))

    def __int__(self) -> int:
        return self._whole(int)

    def __trunc__(self) -> int:
        return self._whole(math.trunc)

    def __floor__(self) -> int:
        return self._whole(math.floor)

    def __ceil__(self) -> int:
        return self._whole(math.ceil)

    def __round__(self, digits: int | None = None) -> Any:  # type: ignore[override]
        if digits is None:
            return self._whole(round)
        # The scaled number is rounded, as kernels and NumPy do it.
        return _exact(np.rint, self * 10.0**digits) / 10.0**digits

    __radd__, __rmul__ = __add__, __mul__

    def __bool__(self) -> bool:
        return float(self) != 0


def _stored(x: Any) -> float:
    """A number as kernels hold it. (What is computed of float32 in float64, and then rounded, is as in float32.)"""
    if not _single:
        return float(x)
    with np.errstate(all="ignore"):
        return float(np.float32(x))


def _exact(function: Callable[..., Any], *args: Any) -> Ieee:
    with np.errstate(all="ignore"):
        return Ieee(function(*[np.float64(_stored(arg)) for arg in args]))


def _rough(result: Any) -> Ieee:
    """What a library has computed: others may have other last bits of it, but not of a whole number."""
    result = float(result)
    if _noise is None or result in (0.0, 1.0, -1.0):
        return Ieee(result)
    return Ieee(result * (1 + next(_noise)))


def _power(a: Any, b: Any) -> Ieee:
    with np.errstate(all="ignore"):
        return _rough(np.power(np.float64(_stored(a)), np.float64(_stored(b))))


def _remainder(a: Any, b: Any) -> Any:
    """Python's, with NaN where it raises."""
    return math.nan if b == 0 or math.isinf(a) or a != a or b != b else float(a) % float(b)


def _quotient(a: Any, b: Any) -> Any:
    if b == 0:
        return np.divide(a, b)
    return math.nan if math.isinf(a) or a != a or b != b else float(a) // float(b)


# --- what stands for math and numpy ----------------------------------------------------------------------------------

_RENAMED = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh"}
_RENAMED["atanh"] = "arctanh"
_SHARED = (
    *("sqrt", "cbrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p"),
    *("sin", "cos", "tan", "sinh", "cosh", "tanh"),
    *_RENAMED,
)


def _numpys(name: str) -> Callable[..., Any]:
    function = getattr(np, name)

    def compute(*args: Any) -> Any:
        with np.errstate(all="ignore"):
            return _rough(function(*[np.float64(_stored(arg)) for arg in args]))

    return compute


def _pythons(name: str) -> Callable[..., Any]:
    function = getattr(math, name)

    def compute(x: Any) -> Any:
        try:
            return _rough(function(_stored(x)))
        except (OverflowError, ValueError):  # lgamma at its poles, and beyond the format
            return Ieee(math.inf)

    return compute


def _exactly(name: str) -> Callable[..., Any]:
    function = getattr(np, name)
    return lambda *args: _exact(function, *args)


def _copysign(a: Any, b: Any) -> Any:
    # IEEE leaves the sign of a computed NaN open.
    return _exact(np.copysign, a, -math.copysign(1.0, b) if math.isnan(b) and _noise is not None else b)


def _fmod(a: Any, b: Any) -> Any:
    return _exact(np.fmod, a, b)


def _frexp(x: Any) -> Any:
    part, exponent = math.frexp(float(x))
    return Ieee(part), exponent


def _modf(x: Any) -> Any:
    part, whole = math.modf(float(x))
    return Ieee(part), Ieee(whole)


def _ldexp(x: Any, n: int) -> Any:
    try:
        return Ieee(math.ldexp(float(x), n))
    except OverflowError:
        return Ieee(math.copysign(math.inf, x))


def _hypot(*sides: Any) -> Any:
    with np.errstate(all="ignore"):
        return _rough(math.hypot(*map(_stored, sides)))


_FUNCTIONS_OF_BOTH = {name: _numpys(_RENAMED.get(name, name)) for name in _SHARED}
_MATH: dict[str, Callable[..., Any]] = {
    **_FUNCTIONS_OF_BOTH,
    **{name: _pythons(name) for name in ("erf", "erfc", "lgamma")},
    "atan2": _numpys("arctan2"),
    "hypot": _hypot,
    "dist": lambda p, q: _hypot(*(Ieee(a) - b for a, b in zip(p, q, strict=True))),
    "pow": _power,
    "log": lambda x, base=None: (
        _FUNCTIONS_OF_BOTH["log"](x) / (1.0 if base is None else _FUNCTIONS_OF_BOTH["log"](base))
    ),
    "fabs": _exactly("fabs"),
    "copysign": _copysign,
    "fmod": _fmod,
    "frexp": _frexp,
    "modf": _modf,
    "ldexp": _ldexp,
    "isnan": lambda x: math.isnan(x),
    **{name: getattr(math, name) for name in ("floor", "ceil", "trunc", "prod")},
}
_NUMPY: dict[str, Callable[..., Any]] = {
    **{_RENAMED.get(name, name): function for name, function in _FUNCTIONS_OF_BOTH.items()},
    **{name: _exactly(name) for name in ("maximum", "minimum", "sign", "floor", "ceil", "abs", "negative")},
    "arctan2": _numpys("arctan2"),
    "clip": lambda x, low, high: _exact(np.clip, x, low, high),
    "where": lambda test, a, b: a if test else b,
    "square": lambda x: x * x,
    "float64": Ieee,
    "float32": lambda x: _exact(np.float32, x),
}
_TABLES = Tables(
    {math: StandIn(math, _MATH), np: StandIn(np, _NUMPY)},
    {getattr(math, name): function for name, function in _MATH.items()},
    {**vars(builtins), "float": Ieee},
)


def rebuilt(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function for these numbers."""
    return rebuild(function, None, _TABLES)


def values(function: Callable[..., Any], point: Sequence[Any]) -> tuple[Any, ...]:
    """The outputs of a rebuilt function at a point."""
    return numbers_of(function(*[Ieee(arg) if isinstance(arg, float) else arg for arg in point]))
