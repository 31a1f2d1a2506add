"""The remainder of a division as LLVM IR: exact, as C's fmod is.

With q = a / b rounded and then cut off, a - q * b is a number of the format, so that one fused step gives it; where
a / b was rounded up to a whole number it is one b too small. Large quotients take several such steps, by b times powers
of two; glibc's function, which takes one for each bit, is left to single numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from llvmlite import ir

from dualbcast.codegen.mathlib.fallback import library, or_rarely
from dualbcast.codegen.mathlib.primitives import Steps, attribute
from dualbcast.codegen.mathlib.vector_types import any_of

__all__ = ["FUNCTIONS"]


def _fmod(builder: ir.IRBuilder, arguments: Sequence[ir.Value]) -> ir.Value:
    a, b = arguments
    f = Steps(builder, a.type)
    quotient = builder.fdiv(a, b)
    size = f.absolute(quotient)
    signed = f.call("copysign", f.absolute(b), a)
    rest = f.call("copysign", _less(f, a, b, quotient, signed), a)
    # An infinite b among others, whose product with 0 is no number.
    rest = builder.select(builder.fcmp_ordered("<", size, f.number(1)), a, rest)
    large = builder.fcmp_ordered(">=", size, f.number(2.0 ** (f.fraction - 1)))
    if isinstance(f.kind, ir.VectorType):
        return or_rarely(builder, large, rest, lambda: builder.call(_in_steps(builder.module, f), [a, b]))
    return or_rarely(builder, large, rest, lambda: library(f, "fmod", [a, b]))


FUNCTIONS = {"fmod": _fmod}


def _less(f: Steps, a: ir.Value, b: ir.Value, quotient: ir.Value, signed: ir.Value) -> ir.Value:
    """a less a multiple of b, of their quotient, which is below 2**(digits - 1); `signed` is b with the sign of a."""
    builder = f.builder
    rest = f.fma(builder.fneg(f.call("trunc", quotient)), b, a)
    beyond = builder.xor(f.bits(rest), builder.and_(f.bits(a), f.integer(1 << (f.width - 1))))
    is_beyond = builder.fcmp_ordered("<", builder.bitcast(beyond, f.kind), f.number(0))
    return builder.select(is_beyond, builder.fadd(rest, signed), rest)


def _in_steps(module: ir.Module, f: Steps) -> ir.Function:
    """The function for vectors with large quotients."""
    symbol = f"dualbcast_fmod_{f.kind.count}_{f.width}"
    function = module.globals.get(symbol)
    if function is None:
        function = ir.Function(module, ir.FunctionType(f.kind, [f.kind, f.kind]), symbol)
        function.linkage = "linkonce_odr"
        attribute(function, "noinline", "memory(none)", "nounwind", "willreturn", "cold")
        builder = ir.IRBuilder(function.append_basic_block())
        builder.ret(_reduced(Steps(builder, f.kind), *function.args))
    return function


def _reduced(f: Steps, a: ir.Value, b: ir.Value) -> ir.Value:
    builder, fraction = f.builder, f.fraction
    left, divisor = f.absolute(a), f.absolute(b)
    zero, infinity = f.number(0), f.number(math.inf)
    # Where there is a remainder; and where a is it.
    is_number = builder.and_(builder.fcmp_ordered("<", left, infinity), builder.fcmp_ordered(">", divisor, zero))
    is_small = builder.fcmp_ordered("<", left, divisor)
    runs = builder.and_(is_number, builder.not_(is_small))
    left, divisor = builder.select(runs, left, zero), builder.select(runs, divisor, f.number(1))
    # The divisor as a normal number, and by how many powers of two that is more.
    lift = fraction + 2
    is_subnormal = builder.fcmp_ordered("<", divisor, f.number(float(f.info.tiny)))
    normal = builder.select(is_subnormal, builder.fmul(divisor, f.number(2.0**lift)), divisor)
    lifted = builder.select(is_subnormal, f.integer(lift), f.integer(0))
    exponent = builder.sub(builder.lshr(f.bits(normal), f.integer(fraction)), lifted)
    # A quotient is then below 2**(digits - 1).
    reach = f.integer(fraction - 2)
    start, again, end = builder.block, builder.append_basic_block(), builder.append_basic_block()
    builder.branch(again)
    builder.position_at_end(again)
    now = builder.phi(f.kind)
    now.add_incoming(left, start)
    own = builder.lshr(f.bits(now), f.integer(fraction))
    ahead = builder.sub(builder.sub(own, exponent), reach)
    # Two subnormal numbers have no larger quotient, whatever their exponents are.
    is_far = builder.and_(builder.icmp_signed(">", ahead, f.integer(0)), builder.icmp_signed(">", own, f.integer(0)))
    ahead = builder.select(is_far, ahead, f.integer(0))
    power = builder.add(builder.sub(ahead, lifted), f.bits(f.number(f.shifter)))
    multiple = f.twice_scaled(normal, power)
    less = _less(f, now, multiple, builder.fdiv(now, multiple), multiple)
    now.add_incoming(less, again)
    builder.cbranch(any_of(builder, is_far), again, end)
    builder.position_at_end(end)
    result = builder.select(is_small, a, f.call("copysign", less, a))
    return builder.select(is_number, result, f.number(math.nan))
