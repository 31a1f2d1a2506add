"""A quotient by a divisor whose reciprocal is known, as LLVM IR: the bits of a division in the time of multiplications.

With r = 1 / b rounded and q = a * r, the remainder a - q * b is exact, or near enough, and what it adds to q gives the
correctly rounded quotient (P. Markstein, 1990) where nothing overflows or is subnormal. Elsewhere there is a division,
in a branch that is almost never taken.
"""

from __future__ import annotations

import functools

import llvmlite.binding as llvm
from llvmlite import ir

from dualbcast.codegen.mathlib.fallback import or_rarely
from dualbcast.codegen.mathlib.primitives import fma, format_of, sign_of
from dualbcast.codegen.values import Value

__all__ = ["divided", "divided_by_constants", "divides_fast"]

# Processors that begin to divide eight float64 every four cycles, beside all else. Others take four times as long.
_FAST = frozenset({"znver5"})


@functools.cache
def divides_fast() -> bool:
    """Whether the host divides about as fast as it multiplies with reciprocals."""
    return llvm.get_host_cpu_name() in _FAST


def divided_by_constants(a: Value, b: Value, reciprocal: Value) -> Value:
    """a / b, for a host that divides fast: its divider is not to be the only thing at work."""
    return divided(a, b, reciprocal) if isinstance(b.value, ir.Constant) else a / b


def divided(a: Value, b: Value, reciprocal: Value) -> Value:
    """a / b, given 1 / b."""
    q = a * reciprocal
    rest = fma(-b, q, a)
    result = fma(rest, reciprocal, q).bits()
    # A quotient that is zero has lost its sign.
    result = (result | sign_of(q.bits())).as_float()
    # Zeros are common above, where a search has come to its end; everywhere else they are rare.
    is_something = a.unordered("!=", 0.0)
    is_rare = _is_extraordinary(b) | (_is_extraordinary(q) & is_something)
    return or_rarely(is_rare, result, lambda: a / b)


def _is_extraordinary(x: Value) -> Value:
    """Whether the exponent of x is not one of half of all, as those of zeros, infinities and NaN.

    Where it is one, for two numbers, the product of their last places is a number, so that the remainder is exact.
    """
    form = format_of(x)
    first = form.bias - (form.bias - form.fraction - 1) // 2
    # Counted from there exactly these have their highest bit set; the sign only turns over.
    highest = 1 << (form.width - 2)
    counted = x.bits() + (highest - (first << form.fraction))
    return counted & highest == 0
