"""A library's functions of vectors as LLVM IR, and their values outside of their ranges.

Where an argument is outside a function's domain or infinite, or the value is infinite, glibc's libmvec calls the
function for single numbers, which takes up to six times as long. A branch of which both sides are computed has such
arguments where it does not need the value. So the library gets a harmless number, and the value is selected afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from dualbcast.codegen.mathlib.fallback import instead
from dualbcast.codegen.mathlib.power import of_any_base
from dualbcast.codegen.mathlib.primitives import Emit, absolute, copysign, for_format, format_of
from dualbcast.codegen.values import Value

__all__ = ["AROUND"]

# Of a number: whether it is in the range; and a function that writes the value if it is not.
_Known = Callable[[Value], tuple[Value, Callable[[], Value]]]


def _within(known: _Known, harmless: float) -> Callable[[Emit], Emit]:
    def around(library: Emit) -> Emit:
        def emit(x: Value) -> Value:
            if not x.is_vector:
                return library(x)
            is_inside, beyond = known(x)

            def some() -> Value:
                return is_inside.choose(library(is_inside.choose(x, harmless)), beyond())

            return instead(~is_inside, lambda: library(x), some)

        return emit

    return around


def _logarithm(pole: float) -> _Known:
    """Of more than a pole, where it is -inf. (Infinity takes twice as long, and a second test would cost all.)"""

    def known(x: Value) -> tuple[Value, Callable[[], Value]]:
        is_pole = x == pole
        return x > pole, lambda: is_pole.choose(x.constant(-math.inf), math.nan)

    return known


def _otherwise_nan(is_inside: Callable[[Value], Value]) -> _Known:
    return lambda x: (is_inside(x), lambda: x.constant(math.nan))


def _below_one(x: Value) -> tuple[Value, Callable[[], Value]]:
    size = absolute(x)

    def beyond() -> Value:
        infinite = copysign(x.constant(math.inf), x)
        return (size == 1.0).choose(infinite, math.nan)

    return size < 1.0, beyond


def _up_to(float32: float, float64: float, even: bool = False) -> _Known:
    """Of what is less than so much in absolute value, from where on the value is infinite, with the number's sign."""

    def known(x: Value) -> tuple[Value, Callable[[], Value]]:
        size = absolute(x)
        is_inside = size < for_format(x, float32, float64)
        return is_inside, lambda: (size if even else x) * math.inf

    return known


def _exp2(x: Value) -> tuple[Value, Callable[[], Value]]:
    form = format_of(x)
    is_above = x > -form.bias - form.fraction - 1
    return is_above & (x < form.bias + 1), lambda: (x < 0.0).choose(0.0, x * math.inf)


# The code around the library's function of vectors.
AROUND: dict[str, Callable[[Emit], Emit]] = {
    "pow": of_any_base,
    "exp2": _within(_exp2, 0.0),
    "log2": _within(_logarithm(0.0), 1.0),
    "log10": _within(_logarithm(0.0), 1.0),
    "log1p": _within(_logarithm(-1.0), 0.0),
    "asin": _within(_otherwise_nan(lambda x: absolute(x) <= 1.0), 0.0),
    "acos": _within(_otherwise_nan(lambda x: absolute(x) <= 1.0), 0.0),
    "atanh": _within(_below_one, 0.0),
    "acosh": _within(_otherwise_nan(lambda x: x >= 1.0), 2.0),
    "sinh": _within(_up_to(90.0, 711.0), 0.0),
    "cosh": _within(_up_to(90.0, 711.0, even=True), 0.0),
    "tan": _within(_otherwise_nan(lambda x: absolute(x) < math.inf), 0.0),
}
