"""Logarithms as LLVM IR: log, log1p, log2, log10 and inverse hyperbolic functions, and the first steps, which powers
share.

A number is a power of 2 times one near 1, whose logarithm is a polynomial. Where numbers are looked up in tables, it is
times one of 16 more numbers, whose logarithms are known, and the polynomial is half as long.
"""

from __future__ import annotations

import math

from dualbcast.codegen.mathlib import tables
from dualbcast.codegen.mathlib.formats import format_of
from dualbcast.codegen.mathlib.primitives import absolute, copysign, fma, polynomial, shared
from dualbcast.codegen.values import Value, intrinsic

# P in log(1 + z) = z - z**2 / 2 + z**3 * P(z) for the z that `cell` gives; `docs/generate_coefficients.py` finds it.
_SHORT = (
    *(0.3333333333333251, -0.24999999999999284, 0.2000000000745581, -0.16666666673315025, 0.1428569318521091),
    *(-0.12499980930865053, 0.11134696651287318, -0.10021495376353044),
)


def halved(x: Value, start: float = math.sqrt(0.5)) -> tuple[Value, Value, Value]:
    """2**fraction + bias + n and m, of a normal x = 2**n * m with m from `start` to twice that, below 1; and a number
    whose last four bits say in which of 16 parts of that interval m is."""
    form = format_of(x)
    # Counted from the start the exponent is n, and what is left is the distance from there. It goes to a float by way
    # of the last bits of one, since AVX2 cannot convert.
    first, one = x.constant(start).bits(), x.constant(1.0).bits()
    counted = x.bits() - first + one
    exponent = (counted >> form.fraction) | x.constant(2.0**form.fraction).bits()
    m = ((counted & ((1 << form.fraction) - 1)) + first).as_float()
    return exponent.as_float(), m, counted >> (form.fraction - 4)


def area_argument(m: Value) -> tuple[Value, Value]:
    """s = (m - 1) / (m + 1) of an m from 1/2 to 2, and what s lacks: log(m) is 2 * atanh(s)."""
    above, below = m - 1.0, m + 1.0
    reciprocal = 1.0 / below
    s = above * reciprocal
    # m - (below - 1) is what the sum has lost.
    rest = fma(-s, m - (below - 1.0), fma(-s, below, above))
    return s, rest * reciprocal


def log(x: Value) -> Value:
    return _with_pole(x, 0.0, _natural(*_reduced(x)))


def log1p(x: Value) -> Value:
    """log(1 + x), where m has what 1 + x loses when it is rounded."""
    form = format_of(x)
    total = x + 1.0
    lost = x - (total - 1.0)
    exponent, m, place = halved(total, _start(x))
    n = exponent - (2.0**form.fraction + form.bias)
    # The bits of 2**(1 - n), where n may be the bias and 1.
    scale = total.constant(2.0).bits() - (total.bits() - m.bits())
    result = _with_pole(x, -1.0, _natural(n, m, place, lost * 0.5 * scale.as_float()))
    # Where it is x, the sign of a zero would be lost.
    return (absolute(x) < form.tiny).choose(x, result)


def log2(x: Value) -> Value:
    return _to_base(x, 2)


def log10(x: Value) -> Value:
    return _to_base(x, 10)


def asinh(x: Value) -> Value:
    """log(a + sqrt(a * a + 1)) of a = abs(x), as log1p of what is more than 1."""
    size = absolute(x)
    root = intrinsic("sqrt", fma(size, size, 1.0))
    return copysign(_log1p_or_twice(size, fma(size, size / (1.0 + root), size)), x)


def acosh(x: Value) -> Value:
    """log(x + sqrt(x * x - 1)), as log1p of what is more than 1."""
    t = x - 1.0
    result = _log1p_or_twice(x, t + intrinsic("sqrt", fma(t, t, t + t)))
    return (x >= 1.0).choose(result, math.nan)


def atanh(x: Value) -> Value:
    """log((1 + a) / (1 - a)) / 2 of a = abs(x)."""
    size = absolute(x)
    return copysign(log1p((size + size) / (1.0 - size)) * 0.5, x)


def _log1p_or_twice(x: Value, sum_less_1: Value) -> Value:
    """log1p of the second; or log(2 * x) where x is so large that its square might leave the format."""
    is_large = x > 2.0 ** (format_of(x).fraction // 2 + 2)
    return log1p(is_large.choose(x - 1.0, sum_less_1)) + is_large.choose(x.constant(math.log(2.0)), 0.0)


def _natural(n: Value, m: Value, place: Value, lost: Value | None = None) -> Value:
    """log(2**n * (m + lost))."""
    form = format_of(m)
    if tables.serve(m):
        reciprocal, logarithm, lacking = cell(place, 1)
        step, step_low = tables.short_step(1)
        z = fma(m, reciprocal, -1.0)
        if lost is not None:
            z = fma(lost, reciprocal, z)
        # The first sum is exact.
        return fma(n, step, logarithm) + (z + _tail(z, fma(n, step_low, lacking)))
    f = m - 1.0 if lost is None else m - 1.0 + lost
    return fma(n, form.log2, f + _tail(f, n * form.log2_low))


def _to_base(x: Value, base: int) -> Value:
    """n * a + log(1 + f) * b, the products as sums of two numbers, so that the logarithms of powers are whole."""
    a, a_low, b, b_low = format_of(x).bases[base]
    n, m, place = _reduced(x)
    if tables.serve(x):
        reciprocal, logarithm, lacking = cell(place, base)
        step, step_low = tables.short_step(base)
        f = fma(m, reciprocal, -1.0)
        multiple, rest = fma(n, step, logarithm), fma(n, step_low, lacking)
    else:
        f = m - 1.0
        multiple, rest = n * a, n * a_low
    product = f * b
    low = fma(f, b, -product) + fma(_tail(f, f.constant(0.0)), b, fma(f, b_low, rest))
    total = multiple + product
    return _with_pole(x, 0.0, total + (multiple - total + product + low))


def cell(place: Value, base: int) -> tuple[Value, Value, Value]:
    """Of the part of an interval in which m is: a number r so that m * r is near 1, and -log(r) to a base, or the
    natural one where that is 1, in so few digits that sums with whole multiples of the step are exact, and what it
    lacks."""
    reciprocal, logarithm, lacking = (tables.entry(table, place) for table in tables.cells(base))
    return reciprocal, logarithm, lacking


@shared
def _reduced(x: Value) -> tuple[Value, Value, Value]:
    """n, m and the place of a positive x = 2**n * m."""
    form = format_of(x)
    lift, whole = 2 * form.fraction, 2.0**form.fraction
    is_subnormal = x < form.normal
    exponent, m, place = halved(is_subnormal.choose(x * 2.0**lift, x), _start(x))
    bias = is_subnormal.choose(x.constant(whole + form.bias + lift), whole + form.bias)
    return exponent - bias, m, place


def _start(x: Value) -> float:
    return tables.START if tables.serve(x) else math.sqrt(0.5)


def _tail(f: Value, addend: Value) -> Value:
    """log(1 + f) - f, and something else."""
    coefficients = _SHORT if tables.serve(f) else format_of(f).logarithm
    return fma(f * f, fma(f, polynomial(coefficients, f), -0.5), addend)


def _with_pole(x: Value, pole: float, result: Value) -> Value:
    """The result, or infinity for itself, -inf at the pole, and no number below."""
    result = (x < math.inf).choose(result, x)
    nothing = (x == pole).choose(x.constant(-math.inf), math.nan)
    return x.unordered(">", pole).choose(result, nothing)
