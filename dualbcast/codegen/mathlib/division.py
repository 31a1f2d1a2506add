"""Division as LLVM IR: a quotient by a divisor whose reciprocal is known, and the exact remainder.

With r = 1 / b rounded and q = a * r, the remainder a - q * b is exact, or near enough, and what it adds to q gives the
correctly rounded quotient (P. Markstein, 1990) where nothing overflows or is subnormal. Elsewhere there is a division,
in a branch that is almost never taken.

With q = a / b rounded and then cut off, a - q * b is a number of the format, so that one fused step gives it; where
a / b was rounded up to a whole number it is one b too small. Large quotients take several such steps, by b times powers
of two; glibc's function, which takes one for each bit, is left to single numbers.
"""

from __future__ import annotations

import functools
import math

import llvmlite.binding as llvm
from llvmlite import ir

from dualbcast.codegen.mathlib.library_calls import apart, library, or_rarely
from dualbcast.codegen.mathlib.primitives import absolute, called, copysign, fma, format_of, sign_of, twice_scaled
from dualbcast.codegen.values import Value, any_of, intrinsic

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


def fmod(a: Value, b: Value) -> Value:
    quotient = a / b
    size = absolute(quotient)
    signed = copysign(absolute(b), a)
    rest = copysign(_reduced(a, b, quotient, signed), a)
    # An infinite b among others, whose product with 0 is no number.
    rest = (size < 1.0).choose(a, rest)
    is_large = size >= 2.0 ** (format_of(a).fraction - 1)
    if not a.is_vector:
        return or_rarely(is_large, rest, lambda: library("fmod", a, b))
    symbol = f"dualbcast_fmod_{a.kind.count}_{format_of(a).width}"
    return or_rarely(is_large, rest, lambda: called(apart(symbol, a, _in_steps), a, b))


def _reduced(a: Value, b: Value, quotient: Value, signed: Value) -> Value:
    """a less a multiple of b, of their quotient, which is below 2**(digits - 1); `signed` is b with the sign of a."""
    rest = fma(-intrinsic("trunc", quotient), b, a)
    beyond = rest.bits() ^ sign_of(a.bits())
    return (beyond.as_float() < 0.0).choose(rest + signed, rest)


def _in_steps(a: Value, b: Value) -> Value:
    """The remainders of vectors with large quotients."""
    builder, form = a.builder, format_of(a)
    left, divisor = absolute(a), absolute(b)
    # Where there is a remainder; and where a is it.
    is_number = (left < math.inf) & (divisor > 0.0)
    is_small = left < divisor
    runs = is_number & ~is_small
    left, divisor = runs.choose(left, 0.0), runs.choose(divisor, 1.0)
    # The divisor as a normal number, and by how many powers of two that is more.
    lift = form.fraction + 2
    is_subnormal = divisor < form.normal
    normal = is_subnormal.choose(divisor * 2.0**lift, divisor)
    bits = normal.bits()
    lifted = is_subnormal.choose(bits.constant(lift), 0)
    exponent = (bits >> form.fraction) - lifted
    start, again, end = builder.block, builder.append_basic_block(), builder.append_basic_block()
    builder.branch(again)
    builder.position_at_end(again)
    now = Value(builder, builder.phi(a.kind))
    now.value.add_incoming(left.value, start)
    own = now.bits() >> form.fraction
    # A quotient is then below 2**(digits - 1).
    ahead = own - exponent - (form.fraction - 2)
    # Two subnormal numbers have no larger quotient, whatever their exponents are.
    is_far = (ahead > 0) & (own > 0)
    ahead = is_far.choose(ahead, 0)
    multiple = twice_scaled(normal, ahead - lifted + a.constant(form.shifter).bits())
    less = _reduced(now, multiple, now / multiple, multiple)
    now.value.add_incoming(less.value, again)
    builder.cbranch(any_of(builder, is_far.value), again, end)
    builder.position_at_end(end)
    result = is_small.choose(a, copysign(less, a))
    return is_number.choose(result, math.nan)
