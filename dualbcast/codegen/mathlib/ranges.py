"""A library's functions of vectors, and what they are beyond their ranges, as LLVM IR.

glibc's libmvec hands what is outside a function's domain, or infinite, or has an infinite value, to the function for
single numbers, which takes up to six times as long; and a branch of which both sides are computed takes such numbers
where it does not want the value. So the library is given a harmless number instead, and the value is selected after it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from llvmlite import ir

from dualbcast.codegen.mathlib.fallback import instead
from dualbcast.codegen.mathlib.power import of_any_base
from dualbcast.codegen.mathlib.primitives import Emit, Steps
from dualbcast.codegen.mathlib.vector_types import is_single

__all__ = ["AROUND"]

# Of a number: whether it is in the range; and what writes the value if it is not.
_Known = Callable[[Steps, ir.Value], tuple[ir.Value, Callable[[], ir.Value]]]


def _within(known: _Known, harmless: float) -> Callable[[Emit], Emit]:
    def around(library: Emit) -> Emit:
        def emit(builder: ir.IRBuilder, arguments: Sequence[ir.Value]) -> ir.Value:
            (x,) = arguments
            if not isinstance(x.type, ir.VectorType):
                return library(builder, arguments)
            f = Steps(builder, x.type)
            is_inside, beyond = known(f, x)

            def some() -> ir.Value:
                value = library(builder, [builder.select(is_inside, x, f.number(harmless))])
                return builder.select(is_inside, value, beyond())

            return instead(builder, builder.not_(is_inside), lambda: library(builder, arguments), some)

        return emit

    return around


def _logarithm(pole: float) -> _Known:
    """Of more than a pole, where it is -inf. (Infinity takes twice as long, and a second test would cost all.)"""

    def known(f: Steps, x: ir.Value) -> tuple[ir.Value, Callable[[], ir.Value]]:
        builder, end = f.builder, f.number(pole)
        at_pole = builder.fcmp_ordered("==", x, end)
        is_above = builder.fcmp_ordered(">", x, end)
        return is_above, lambda: builder.select(at_pole, f.number(-math.inf), f.number(math.nan))

    return known


def _up_to_one(f: Steps, x: ir.Value) -> tuple[ir.Value, Callable[[], ir.Value]]:
    return f.builder.fcmp_ordered("<=", f.absolute(x), f.number(1)), lambda: f.number(math.nan)


def _below_one(f: Steps, x: ir.Value) -> tuple[ir.Value, Callable[[], ir.Value]]:
    builder, size, one = f.builder, f.absolute(x), f.number(1)

    def beyond() -> ir.Value:
        infinite = f.call("copysign", f.number(math.inf), x)
        return builder.select(builder.fcmp_ordered("==", size, one), infinite, f.number(math.nan))

    return builder.fcmp_ordered("<", size, one), beyond


def _up_to(single: float, double: float, is_even: bool = False) -> _Known:
    """Of what is less than so much in absolute value, from where on the value is infinite, with the number's sign."""

    def known(f: Steps, x: ir.Value) -> tuple[ir.Value, Callable[[], ir.Value]]:
        size, limit = f.absolute(x), f.number(single if is_single(f.kind) else double)
        is_inside = f.builder.fcmp_ordered("<", size, limit)
        return is_inside, lambda: f.builder.fmul(size if is_even else x, f.number(math.inf))

    return known


def _exp2(f: Steps, x: ir.Value) -> tuple[ir.Value, Callable[[], ir.Value]]:
    builder, info = f.builder, f.info

    def beyond() -> ir.Value:
        is_below = builder.fcmp_ordered("<", x, f.number(0))
        return builder.select(is_below, f.number(0), builder.fmul(x, f.number(math.inf)))

    above = builder.fcmp_ordered(">", x, f.number(info.minexp - info.nmant - 2))
    return builder.and_(above, builder.fcmp_ordered("<", x, f.number(info.maxexp))), beyond


def _acosh(f: Steps, x: ir.Value) -> tuple[ir.Value, Callable[[], ir.Value]]:
    from_one = f.builder.fcmp_ordered(">=", x, f.number(1))
    return from_one, lambda: f.number(math.nan)


def _tan(f: Steps, x: ir.Value) -> tuple[ir.Value, Callable[[], ir.Value]]:
    return f.builder.fcmp_ordered("<", f.absolute(x), f.number(math.inf)), lambda: f.number(math.nan)


# What goes around the library's function of vectors.
AROUND: dict[str, Callable[[Emit], Emit]] = {
    "pow": of_any_base,
    "exp2": _within(_exp2, 0.0),
    "log2": _within(_logarithm(0.0), 1.0),
    "log10": _within(_logarithm(0.0), 1.0),
    "log1p": _within(_logarithm(-1.0), 0.0),
    "asin": _within(_up_to_one, 0.0),
    "acos": _within(_up_to_one, 0.0),
    "atanh": _within(_below_one, 0.0),
    "acosh": _within(_acosh, 2.0),
    "sinh": _within(_up_to(90.0, 711.0), 0.0),
    "cosh": _within(_up_to(90.0, 711.0, is_even=True), 0.0),
    "tan": _within(_tan, 0.0),
}
