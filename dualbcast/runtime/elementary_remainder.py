"""The remainder of a division as LLVM IR: exact, as C's fmod is.

With q = a / b rounded and then cut off, a - q * b is a number of the format, so that one fused step gives it; where
a / b was rounded up to a whole number it is one b too small. Of large quotients it is left to the C library.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from dualbcast.runtime.elementary_rare import library, or_rarely
from dualbcast.runtime.elementary_steps import Steps

__all__ = ["FUNCTIONS"]


def _fmod(builder: ir.IRBuilder, arguments: Sequence[ir.Value]) -> ir.Value:
    a, b = arguments
    f = Steps(builder, a.type)
    quotient = builder.fdiv(a, b)
    size, sign = f.absolute(quotient), f.integer(1 << (f.width - 1))
    rest = f.fma(builder.fneg(f.call("trunc", quotient)), b, a)
    signed = f.call("copysign", f.absolute(b), a)
    beyond = builder.xor(f.bits(rest), builder.and_(f.bits(a), sign))
    is_beyond = builder.fcmp_ordered("<", builder.bitcast(beyond, f.kind), f.number(0))
    rest = f.call("copysign", builder.select(is_beyond, builder.fadd(rest, signed), rest), a)
    # An infinite b among others, whose product with 0 is no number.
    rest = builder.select(builder.fcmp_ordered("<", size, f.number(1)), a, rest)
    large = builder.fcmp_ordered(">=", size, f.number(2.0 ** (f.fraction - 1)))
    return or_rarely(builder, large, rest, lambda: library(f, "fmod", [a, b]))


FUNCTIONS = {"fmod": _fmod}
