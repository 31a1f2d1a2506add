"""Derivatives of a Python function from the function itself: dual numbers by operator overloading, finite differences.

Nothing here comes from the package. The user's function is rebuilt with a `math`, a `np` and a `float` that accept
these numbers, and is then executed by Python, so its control flow is Python's own. Values are floats, or mpmath's.
A `Watch` tells where a result hangs on the last bits, which another right implementation may have otherwise.
"""

from __future__ import annotations

import builtins
import copy
import dataclasses
import functools
import itertools
import math
import random
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import mpmath as mp
import numpy as np

__all__ = [
    "Dual",
    "Result",
    "StandIn",
    "Tables",
    "Watch",
    "differentiate",
    "evaluate",
    "finite_differences",
    "independences",
    "is_smooth",
    "numbers_of",
    "rebuild",
    "second_derivatives",
    "second_differences",
]

Result = tuple[tuple[Any, ...], tuple[dict[int, float], ...]]


class Watch:
    """Looks on while dual numbers are computed with: counts decisions that are close, and can disturb the last bits.

    Attributes
    ----------
    single : bool
        The other implementation computes in float32: not only functions but also its arithmetic has other last bits.
    noise : float
        Disturb values and slopes that have a rounding error by so much, relatively; 0 leaves them alone.
    ties : int
        Comparisons and roundings so far that a small change of their operands would turn: kinks, and near misses.
    doubts : int
        Those of them whose operands have a rounding error, so that another implementation may decide otherwise.
    least, most : float
        The smallest and largest magnitude so far of what was computed, values and slopes, but for zeros.
    """

    def __init__(self, *, single: bool = False, noise: float = 0.0, seed: int = 0) -> None:
        self.single, self.noise, self.ties, self.doubts = single, noise, 0, 0
        self.least, self.most = math.inf, 0.0
        self.margin = 1e-4 if single else 1e-9
        generator = random.Random(seed)
        self._noise = itertools.cycle(
            [noise * generator.choice((-1, 1)) * generator.uniform(0.5, 1) for _ in range(97)]
        )

    def close(self, gap: Any, size: Any, rough: bool) -> None:
        """A decision whose operands, as large as `size`, are `gap` away from where it turns."""
        if not gap > self.margin * (1 + size):
            self.ties += 1
            self.doubts += rough

    def see(self, *numbers: Any) -> None:
        """Take note of how small and large numbers are."""
        for x in numbers:
            size = abs(x)
            if not size <= self.most:
                self.most = size if size == size else math.inf
            if 0 < size < self.least:
                self.least = size

    def disturb(self, x: Any, size: Any = 0) -> Any:
        """The number with other last bits; `size` is that of what it was computed from."""
        return x + (abs(x) + size) * next(self._noise) if self.noise else x


_watching: Watch | None = None


@contextmanager
def _watched(watch: Watch | None) -> Iterator[None]:
    global _watching
    _watching, before = watch, _watching
    try:
        yield
    finally:
        _watching = before


class Dual:
    """A number with its derivatives in the directions it depends on; a direction that is not there is an exact zero.

    It is `rough` where another right implementation may have other last bits.
    """

    __slots__ = ("d", "rough", "v")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, v: Any, d: dict[int, Any] | None = None, rough: bool = False) -> None:
        self.v, self.d, self.rough = v, d or {}, rough

    def chain(self, v: Any, slope: Any, rough: bool = True, sloped: bool = True) -> Dual:
        """A function of this number alone, by its value and its slope here; `rough` and `sloped`: they are inexact."""
        if _watching is not None:
            v, slope = _watching.disturb(v) if rough else v, _watching.disturb(slope, 1) if sloped else slope
        d = {at: slope * t for at, t in self.d.items()}
        if _watching is not None:
            _watching.see(v, slope, *d.values())
        return Dual(v, d, self.rough or rough)

    def decide(self, gap: Any, other: Any = 0) -> None:
        """Tell who watches how far a decision on this number and another is from turning."""
        if _watching is not None and other is not self:
            rough = self.rough or (other.rough if isinstance(other, Dual) else _watching.single and _rounded(other))
            _watching.close(abs(gap), abs(self.v) + abs(value(other)), rough)

    def whole(self, whole: Any, middle: Any = 0.0) -> int:
        """An integer made of this number; the rounding turns at whole numbers, or half between them."""
        self.decide(abs((self.v - middle) - round(float(self.v - middle))))
        return int(whole)

    def __repr__(self) -> str:
        return f"Dual({self.v!r}, {self.d!r})"

    # Losing a derivative on the way through C would be silent, so what would do so is not there.
    def __float__(self) -> float:
        raise TypeError("a dual number was about to lose its derivative")

    def __int__(self) -> int:
        return self.whole(self.v)

    def __bool__(self) -> bool:
        return self != 0

    def __floor__(self) -> int:
        return self.whole(mp.floor(self.v))

    def __ceil__(self) -> int:
        return self.whole(mp.ceil(self.v))

    def __trunc__(self) -> int:
        return self.whole(self.v)

    def __round__(self, digits: int | None = None) -> Any:
        if digits is None:
            return self.whole(mp.nint(self.v), 0.5)
        # A kernel rounds the scaled number, Python the decimal one: they differ where it is halfway.
        Dual(float(self.v) * 10.0**digits, None, True).whole(0, 0.5)
        return Dual(round(float(self.v), digits))

    def __lt__(self, other: Any) -> bool:
        self.decide(self.v - value(other), other)
        return bool(self.v < value(other))

    def __le__(self, other: Any) -> bool:
        self.decide(self.v - value(other), other)
        return bool(self.v <= value(other))

    def __gt__(self, other: Any) -> bool:
        self.decide(self.v - value(other), other)
        return bool(self.v > value(other))

    def __ge__(self, other: Any) -> bool:
        self.decide(self.v - value(other), other)
        return bool(self.v >= value(other))

    def __eq__(self, other: object) -> bool:
        self.decide(self.v - value(other), other)
        return bool(self.v == value(other))

    def __ne__(self, other: object) -> bool:
        self.decide(self.v - value(other), other)
        return bool(self.v != value(other))

    def __pos__(self) -> Dual:
        return self

    def __neg__(self) -> Dual:
        return self.chain(-self.v, -1, False, False)

    def __abs__(self) -> Dual:
        self.decide(self.v)
        return self.chain(abs(self.v), (self.v > 0) - (self.v < 0), False, False)

    def __add__(self, other: Any) -> Dual:
        return combine(self, other, self.v + value(other), 1, 1)

    def __sub__(self, other: Any) -> Dual:
        return combine(self, other, self.v - value(other), 1, -1)

    def __mul__(self, other: Any) -> Dual:
        product = combine(self, other, self.v * value(other), value(other), self.v)
        product.rough = product.rough and product.v != 0
        return product

    def __truediv__(self, other: Any) -> Dual:
        b = value(other)
        return combine(self, other, self.v / b, 1 / b, -(self.v / b) / b)

    def __floordiv__(self, other: Any) -> Dual:
        (self / other).whole(0)
        return Dual(quotient(self.v, value(other)), None, False)

    def __mod__(self, other: Any) -> Dual:
        b = value(other)
        (self / other).whole(0)
        return combine(self, other, self.v % b, 1, -quotient(self.v, b))

    def __divmod__(self, other: Any) -> tuple[Dual, Dual]:
        return self // other, self % other

    def __pow__(self, other: Any) -> Dual:
        a, p = self.v, value(other)
        slope = p * a ** (p - 1) if p != 0 else 0
        towards = a**p * log(a) if isinstance(other, Dual) and other.d and a != 0 else 0
        return combine(self, other, a**p, slope, towards, p not in (0, 1))

    def __radd__(self, other: Any) -> Dual:
        return Dual(other) + self

    def __rsub__(self, other: Any) -> Dual:
        return Dual(other) - self

    def __rmul__(self, other: Any) -> Dual:
        return Dual(other) * self

    def __rtruediv__(self, other: Any) -> Dual:
        return Dual(other) / self

    def __rfloordiv__(self, other: Any) -> Dual:
        return Dual(other) // self

    def __rmod__(self, other: Any) -> Dual:
        return Dual(other) % self

    def __rdivmod__(self, other: Any) -> tuple[Dual, Dual]:
        return divmod(Dual(other), self)

    def __rpow__(self, other: Any) -> Dual:
        return Dual(other) ** self


def value(x: Any) -> Any:
    """The number without its derivatives."""
    return x.v if isinstance(x, Dual) else x


def combine(a: Any, b: Any, v: Any, slope_a: Any, slope_b: Any, rough: bool = False) -> Dual:
    """A function of two numbers by its value and its slopes; a slope is used only where there is a derivative."""
    d: dict[int, Any] = {}
    watch = _watching
    rough = rough or (watch is not None and watch.single and _rounded(v))
    if watch is not None and rough:
        v = watch.disturb(v)
    for x, slope in ((a, slope_a), (b, slope_b)):
        if isinstance(x, Dual) and x.d:
            if watch is not None:
                slope = watch.disturb(slope)
            for at, t in x.d.items():
                d[at] = d[at] + slope * t if at in d else slope * t
            if watch is not None:
                watch.see(slope, *d.values())
    if watch is not None:
        watch.see(v)
    return Dual(v, d, rough or (isinstance(a, Dual) and a.rough) or (isinstance(b, Dual) and b.rough))


def _rounded(x: Any) -> bool:
    """Whether float32 cannot hold a number."""
    return x != x or struct.unpack("f", struct.pack("f", x))[0] != x


def quotient(a: Any, b: Any) -> Any:
    return mp.floor(a / b) if isinstance(a, mp.mpf) or isinstance(b, mp.mpf) else a // b


def log(x: Any) -> Any:
    return mp.log(x) if isinstance(x, mp.mpf) else math.log(x)


# --- what stands for math and numpy ----------------------------------------------------------------------------------

# The name in `math`, the value in mpmath, and the slope for `m`, which is math or mpmath.
_UNARY: dict[str, tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]] = {
    "sqrt": (mp.sqrt, lambda m, x: 1 / (2 * m.sqrt(x))),
    "cbrt": (lambda x: mp.sign(x) * mp.cbrt(abs(x)), lambda m, x: 1 / (3 * m.cbrt(abs(x)) ** 2)),
    "exp": (mp.exp, lambda m, x: m.exp(x)),
    "exp2": (lambda x: mp.mpf(2) ** x, lambda m, x: 2**x * m.log(2)),
    "expm1": (mp.expm1, lambda m, x: m.exp(x)),
    "log": (mp.log, lambda _, x: 1 / x),
    "log2": (lambda x: mp.log(x, 2), lambda m, x: 1 / (x * m.log(2))),
    "log10": (mp.log10, lambda m, x: 1 / (x * m.log(10))),
    "log1p": (mp.log1p, lambda _, x: 1 / (1 + x)),
    "sin": (mp.sin, lambda m, x: m.cos(x)),
    "cos": (mp.cos, lambda m, x: -m.sin(x)),
    "tan": (mp.tan, lambda m, x: 1 / m.cos(x) ** 2),
    "asin": (mp.asin, lambda m, x: 1 / m.sqrt((1 - x) * (1 + x))),
    "acos": (mp.acos, lambda m, x: -1 / m.sqrt((1 - x) * (1 + x))),
    "atan": (mp.atan, lambda _, x: 1 / (1 + x * x)),
    "sinh": (mp.sinh, lambda m, x: m.cosh(x)),
    "cosh": (mp.cosh, lambda m, x: m.sinh(x)),
    "tanh": (mp.tanh, lambda m, x: 1 / m.cosh(x) ** 2 if abs(x) < 300 else 0),
    "asinh": (mp.asinh, lambda m, x: 1 / m.sqrt(x * x + 1)),
    "acosh": (mp.acosh, lambda m, x: 1 / m.sqrt((x - 1) * (x + 1))),
    "atanh": (mp.atanh, lambda _, x: 1 / ((1 - x) * (1 + x))),
    "erf": (mp.erf, lambda m, x: 2 / m.sqrt(m.pi) * m.exp(-x * x)),
    "erfc": (mp.erfc, lambda m, x: -2 / m.sqrt(m.pi) * m.exp(-x * x)),
    "lgamma": (mp.loggamma, lambda m, x: mp.digamma(x) if m is mp else float(mp.digamma(x))),
}
_RENAMED = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh"}
_RENAMED["atanh"] = "arctanh"


# Beyond this, a function of a float in radians and the like is a question of its last bits.
HUGE = 1e8


def _unary(name: str) -> Callable[[Any], Any]:
    plain, (exact, slope) = getattr(math, name), _UNARY[name]

    def function(x: Any) -> Any:
        if not isinstance(x, Dual):
            return plain(x) if _watching is None else Dual(plain(x), None, True)
        if isinstance(x.v, mp.mpf):
            return x.chain(exact(x.v), slope(mp, x.v) if x.d else 0)
        if _watching is not None:
            _watching.doubts += abs(x.v) > HUGE
        v = plain(x.v)
        # At 0 and the like, where the result is a whole number, every implementation finds it; but not the slope: that
        # of a tanh near 1 is made of this value, and is right to a rounding of 1.
        return x.chain(v, slope(math, x.v) if x.d else 0, x.rough or v not in (0, 1, -1))

    return function


def _atan2(a: Any, b: Any) -> Any:
    x, y = value(a), value(b)
    exact = mp.atan2 if isinstance(x, mp.mpf) or isinstance(y, mp.mpf) else math.atan2
    return combine(a, b, exact(x, y), y / (x * x + y * y), -x / (x * x + y * y), True)


def _hypot(*sides: Any) -> Any:
    if len(sides) != 2:
        return functools.reduce(_hypot, sides) if len(sides) > 2 else abs(sides[0])
    a, b = sides
    x, y = value(a), value(b)
    r = mp.hypot(x, y) if isinstance(x, mp.mpf) or isinstance(y, mp.mpf) else math.hypot(x, y)
    return combine(a, b, r, x / r, y / r, True)


def _fmod(a: Any, b: Any) -> Any:
    a, b = (x if isinstance(x, Dual) else Dual(x) for x in (a, b))
    times = (a / b).__trunc__()
    return combine(a, b, a.v - times * b.v if isinstance(a.v, mp.mpf) else math.fmod(a.v, b.v), 1, -times)


def _frexp(x: Any) -> Any:
    part, exponent = math.frexp(float(value(x)))
    if isinstance(x, Dual):  # the exponent turns at powers of 2, and at 0
        Dual(part, None, x.rough).decide(min(abs(part) - 0.5, 1 - abs(part)) if part else 0.0)
    return x * 0.5**exponent, exponent


def _float32(x: Any) -> Any:
    if not isinstance(x, Dual):
        return float(np.float32(x))
    if isinstance(x.v, mp.mpf):  # differences would see the steps and not the slope
        return x
    if _watching is not None:
        _watching.ties += 1  # a step everywhere
        if _watching.single:
            return x
    return Dual(float(np.float32(float(x.v))), x.d, x.rough)


def _modf(x: Any) -> Any:
    x = x if isinstance(x, Dual) else Dual(x)
    whole = x.__trunc__()
    rest = x - whole
    if rest.v == 0:  # the fraction of -1.0 is -0.0
        rest = Dual(_signed(0, x.v), rest.d, rest.rough)
    return rest, Dual(_signed(whole, x.v))


def _isclose(a: Any, b: Any, *, rel_tol: float = 1e-9, abs_tol: float = 0.0) -> bool:
    # Close to where it turns is not told apart from close.
    if _watching is not None:
        _watching.doubts += 1
    return math.isclose(value(a), value(b), rel_tol=rel_tol, abs_tol=abs_tol)


def _copysign(a: Any, b: Any) -> Any:
    positive = b > 0 or (b == 0 and math.copysign(1.0, value(b)) > 0)
    return abs(a) if positive else -abs(a)


def _ends(rounded: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: Dual(_signed(rounded(x), x.v)) if isinstance(x, Dual) else float(rounded(x))


def _signed(whole: int, x: Any) -> Any:
    """A whole number made of x as a number like x: rounded up, -0.5 is -0.0."""
    return math.copysign(whole, x) if whole == 0 and isinstance(x, float) else whole + 0 * x


_BOTH: dict[str, Callable[..., Any]] = {
    **{name: _unary(name) for name in _UNARY},
    "hypot": _hypot,
    "fmod": _fmod,
    "copysign": _copysign,
    "isnan": lambda x: bool(value(x) != value(x)),
}
_MATH: dict[str, Callable[..., Any]] = {
    **_BOTH,
    "atan2": _atan2,
    "frexp": _frexp,
    "modf": _modf,
    "ldexp": lambda x, n: x * 2.0**n,
    "dist": lambda p, q: _hypot(*(a - b for a, b in zip(p, q, strict=True))),
    "isclose": _isclose,
    "fabs": lambda x: abs(x) * 1.0,
    "pow": lambda x, p: (x * 1.0) ** p,
    "log": lambda x, base=None: _BOTH["log"](x) if base is None else _BOTH["log"](x) / _BOTH["log"](base),
    # Python's own, which go through the methods above.
    **{name: getattr(math, name) for name in ("floor", "ceil", "trunc", "prod")},
}
_NUMPY: dict[str, Callable[..., Any]] = {
    **{_RENAMED.get(name, name): function for name, function in _BOTH.items()},
    "arctan2": _atan2,
    "abs": abs,
    "absolute": abs,
    "power": lambda x, p: x**p,
    # NaN if one is NaN.
    "maximum": lambda a, b: a if a >= b or value(a) != value(a) else b,
    "minimum": lambda a, b: a if a <= b or value(a) != value(a) else b,
    "clip": lambda x, low, high: low if x < low else high if x > high else x,
    "where": lambda test, a, b: a if test else b,
    "sign": lambda x: Dual(float((x > 0) - (x < 0))),
    "floor": _ends(math.floor),
    "ceil": _ends(math.ceil),
    "square": lambda x: x * x,
    "divmod": divmod,
    "negative": lambda x: -x,
    "logical_and": lambda a, b: bool(a) and bool(b),
    "logical_not": lambda a: not a,
    "float32": _float32,
    "float64": lambda x: x if isinstance(x, Dual) else float(x),
    **{name: getattr(np, name) for name in ("bool_", "int8", "int16", "int32", "int64", "uint8")},
}


class StandIn:
    """Stands for a module: its functions from a table, its numbers from the module itself, an error for the rest."""

    def __init__(self, module: ModuleType, functions: dict[str, Callable[..., Any]]) -> None:
        self._module, self._functions = module, functions

    def __getattr__(self, name: str) -> Any:
        if name in self._functions:
            return self._functions[name]
        found = getattr(self._module, name)
        if isinstance(found, float | int):
            return found
        raise NotImplementedError(f"the oracle has no {self._module.__name__}.{name}")


_MODULES: dict[Any, Any] = {math: StandIn(math, _MATH), np: StandIn(np, _NUMPY)}
_FUNCTIONS = {getattr(math, name): function for name, function in _MATH.items()}


class _RealType(type):
    """What stands for `float`: it leaves a dual number alone, and a dual number is one of it."""

    def __call__(cls, x: Any = 0.0) -> Any:
        return x if isinstance(x, Dual) else float(x)

    def __instancecheck__(cls, found: object) -> bool:
        return isinstance(found, float | Dual)


class _Real(float, metaclass=_RealType):
    """As a subclass of float it takes the whole number in a pattern, as float does."""


_BUILTINS = {**vars(builtins), "float": _Real}


class Tables(NamedTuple):
    """What takes the place of modules, of functions of theirs, and of builtins, for another kind of numbers."""

    modules: dict[Any, Any]
    functions: dict[Any, Any]
    builtins: dict[str, Any]


_DUALS = Tables(_MODULES, _FUNCTIONS, _BUILTINS)


def rebuild(
    function: Callable[..., Any], memo: dict[int, Any] | None = None, tables: Tables = _DUALS
) -> Callable[..., Any]:
    """The function with all that it can reach outside itself rebuilt for `Dual` numbers, or for others."""
    memo = {} if memo is None else memo

    def change(found: Any) -> Any:
        if isinstance(found, FunctionType):
            return rebuild(found, memo, tables)
        if isinstance(found, functools.partial):
            keywords = {key: change(item) for key, item in found.keywords.items()}
            return functools.partial(change(found.func), *map(change, found.args), **keywords)
        if isinstance(found, MethodType):
            return MethodType(change(found.__func__), change(found.__self__))
        if isinstance(found, type):
            return own_class(found) if found.__module__ == home and not issubclass(found, Enum) else found
        if type(found) is not tuple and type(found).__module__ == home and not isinstance(found, Enum):
            moved = copy.copy(found)
            if isinstance(found, tuple):
                return own_class(type(found))(*found)
            moved.__class__ = own_class(type(found))
            return moved
        if isinstance(found, tuple):
            return tuple(map(change, found))
        try:
            return tables.modules.get(found) or tables.functions.get(found, found)
        except TypeError:  # not hashable, so neither a module nor a function
            return found

    def own_class(kind: type) -> Any:
        """A subclass whose methods are rebuilt."""
        if id(kind) in memo:
            return memo[id(kind)]
        made = memo[id(kind)] = type(kind.__name__, (kind,), {})
        memo[id(made)] = made
        for name, member in vars(kind).items():
            wrapper = staticmethod if isinstance(member, staticmethod) else property
            inner = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            if isinstance(inner, FunctionType) and inner.__code__.co_filename == function.__code__.co_filename:
                again = rebuild(inner, memo, tables)
                setattr(made, name, again if member is inner else wrapper(again))
        return made

    if not isinstance(function, FunctionType):
        return function
    home = function.__module__
    if id(function) in memo:
        return memo[id(function)]  # type: ignore[no-any-return]
    scope: dict[str, Any] = {"__builtins__": tables.builtins}
    cells = tuple(CellType() for _ in function.__closure__ or ())
    made = FunctionType(function.__code__, scope, function.__name__, None, cells)
    memo[id(function)] = made
    for cell, original in zip(cells, function.__closure__ or (), strict=True):
        cell.cell_contents = change(original.cell_contents)
    made.__defaults__ = change(function.__defaults__)
    made.__kwdefaults__ = {key: change(item) for key, item in (function.__kwdefaults__ or {}).items()} or None
    for name in _global_names(function.__code__):
        if name in function.__globals__:
            scope[name] = change(function.__globals__[name])
    return made


def _global_names(code: Any) -> set[str]:
    nested = (item for item in code.co_consts if hasattr(item, "co_names"))
    return set(code.co_names).union(*map(_global_names, nested))


def differentiate(function: Callable[..., Any], args: Sequence[Any], wrt: Sequence[int]) -> Result:
    """The outputs at `args` in double precision, and for each its derivatives by the position of the argument."""
    return evaluate(rebuild(function), args, wrt)


def evaluate(
    rebuilt: Callable[..., Any], args: Sequence[Any], wrt: Sequence[int], watch: Watch | None = None
) -> Result:
    """What `differentiate` gives, for a function that is rebuilt already."""
    results = _results(rebuilt, args, wrt, watch)
    slopes = tuple({at: result.d.get(at, 0.0) if isinstance(result, Dual) else 0.0 for at in wrt} for result in results)
    return tuple(map(value, results)), slopes


def independences(
    rebuilt: Callable[..., Any], args: Sequence[Any], wrt: Sequence[int], watch: Watch | None = None
) -> tuple[frozenset[int], ...]:
    """For each output, the arguments that it does not depend on along the path that is taken, by their positions."""
    results = _results(rebuilt, args, wrt, watch)
    return tuple(frozenset(wrt).difference(result.d if isinstance(result, Dual) else ()) for result in results)


def _results(
    rebuilt: Callable[..., Any], args: Sequence[Any], wrt: Sequence[int], watch: Watch | None
) -> tuple[Any, ...]:
    seeded = [
        Dual(float(arg), {at: 1.0} if at in wrt else None) if at in wrt or isinstance(arg, float) else arg
        for at, arg in enumerate(args)
    ]
    with _watched(watch):
        return tuple(numbers_of(rebuilt(*seeded)))


def finite_differences(
    function: Callable[..., Any], args: Sequence[Any], wrt: Sequence[int], digits: int = 40
) -> tuple[dict[int, float], ...]:
    """The derivatives by central differences, to about half of `digits`; meaningless where there is a kink."""
    rebuilt = rebuild(function)
    with mp.workdps(digits):
        step = mp.mpf(10) ** (-digits // 3)

        def at(moved: int, by: Any) -> tuple[Any, ...]:
            exact = [
                Dual(mp.mpf(arg) + (by if position == moved else 0)) if isinstance(arg, float) else arg
                for position, arg in enumerate(args)
            ]
            return tuple(map(value, numbers_of(rebuilt(*exact))))

        columns = {
            seed: [_slope(b, a, step) for b, a in zip(at(seed, step), at(seed, -step), strict=True)] for seed in wrt
        }
        outputs = len(at(-1, 0))
    return tuple({seed: columns[seed][output] for seed in wrt} for output in range(outputs))


def second_derivatives(
    function: Callable[..., Any], args: Sequence[Any], wrt: Sequence[int], digits: int = 60
) -> tuple[dict[tuple[int, int], float], ...]:
    """For each output its second derivatives by the positions of two arguments: differences of the slopes of duals."""
    rebuilt = rebuild(function)
    with mp.workdps(digits):
        step = mp.mpf(10) ** (-digits // 3)

        def slopes(moved: int, by: Any) -> list[dict[int, Any]]:
            exact = [
                Dual(mp.mpf(arg) + (by if at == moved else 0), {at: mp.mpf(1)}) if isinstance(arg, float) else arg
                for at, arg in enumerate(args)
            ]
            return [result.d if isinstance(result, Dual) else {} for result in numbers_of(rebuilt(*exact))]

        found: list[dict[tuple[int, int], float]] = []
        for moved in wrt:
            pairs = zip(slopes(moved, step), slopes(moved, -step), strict=True)
            for output, (after, before) in enumerate(pairs):
                found += [{}] * (output == len(found))
                column = {(seed, moved): float((after.get(seed, 0) - before.get(seed, 0)) / (2 * step)) for seed in wrt}
                found[output] = {**found[output], **column}
    return tuple(found)


def _slope(after: Any, before: Any, step: Any) -> float:
    return float((after - before) / (2 * step)) if isinstance(after, mp.mpf | float) else 0.0


def numbers_of(results: Any) -> tuple[Any, ...]:
    """The numbers of a result, from the inside of tuples, lists and dataclasses."""
    if isinstance(results, tuple | list):
        return tuple(number for part in results for number in numbers_of(part))
    if dataclasses.is_dataclass(results):
        return tuple(n for field in dataclasses.fields(results) for n in numbers_of(getattr(results, field.name)))
    return (results,)


def second_differences(
    function: Callable[..., Any], args: Sequence[Any], wrt: Sequence[int], digits: int = 60
) -> tuple[dict[tuple[int, int], float], ...]:
    """The second derivatives by central differences of the values, to about a third of `digits`."""
    rebuilt = rebuild(function)
    with mp.workdps(digits):
        step = mp.mpf(10) ** (-digits // 4)

        def at(*moves: tuple[int, int]) -> tuple[Any, ...]:
            exact = [
                Dual(mp.mpf(arg) + step * sum(by for moved, by in moves if moved == position))
                if isinstance(arg, float)
                else arg
                for position, arg in enumerate(args)
            ]
            return tuple(map(value, numbers_of(rebuilt(*exact))))

        found: list[dict[tuple[int, int], float]] = [{} for _ in at()]
        for place, p in enumerate(wrt):
            for q in wrt[place:]:
                corners = [at((p, a), (q, b)) for a, b in ((1, 1), (1, -1), (-1, 1), (-1, -1))]
                for output, (pp, pm, mp_, mm) in enumerate(zip(*corners, strict=True)):
                    smooth = isinstance(pp, mp.mpf | float)
                    found[output][p, q] = float((pp - pm - mp_ + mm) / (4 * step * step)) if smooth else 0.0
    return tuple(found)


def is_smooth(function: Callable[..., Any], args: Sequence[Any], wrt: Sequence[int]) -> bool:
    """Whether no decision or rounding of the function is about to turn at a point."""
    watch = Watch()
    evaluate(rebuild(function), args, wrt, watch)
    return watch.ties == 0
