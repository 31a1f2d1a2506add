"""A quotient of which the divisor's reciprocal is known, as LLVM IR: the same bits as a division, and none of its time.

With r = 1 / b rounded and q = a * r, the remainder a - q * b is exact, or near enough, and what it adds to q gives the
quotient as it should be rounded (P. Markstein, 1990) where nothing overflows or is subnormal. For what may, there is a
division, in a branch that is next to never taken.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import llvmlite.binding as llvm
from llvmlite import ir

from dualbcast.codegen.mathlib.fallback import or_rarely, under_masks
from dualbcast.codegen.mathlib.primitives import Steps, attribute

__all__ = ["divided", "divided_by_constants", "divides_fast"]

# Processors that begin to divide eight float64 every four cycles, beside all else. Others take four times as long.
_FAST = frozenset({"znver5"})


@functools.cache
def divides_fast() -> bool:
    """Whether the host divides about as fast as it multiplies with reciprocals."""
    return llvm.get_host_cpu_name() in _FAST


def divided_by_constants(builder: ir.IRBuilder, arguments: Sequence[ir.Value]) -> ir.Value:
    """a / b, of a, b and 1 / b, for a host that divides fast: its divider is not to be the only thing at work."""
    a, b, _ = arguments
    return divided(builder, arguments) if isinstance(b, ir.Constant) else builder.fdiv(a, b)


def divided(builder: ir.IRBuilder, arguments: Sequence[ir.Value]) -> ir.Value:
    """a / b, of a, b and 1 / b."""
    a, b, reciprocal = arguments
    f = Steps(builder, a.type)
    q = builder.fmul(a, reciprocal)
    rest = f.fma(builder.fneg(b), q, a)
    result = f.bits(f.fma(rest, reciprocal, q))
    # A quotient that is zero has lost its sign.
    sign = builder.and_(f.bits(q), f.integer(1 << (f.width - 1)))
    result = builder.bitcast(builder.or_(result, sign), f.kind)
    # Zeros are common above, where a search has come to its end; everywhere else they are rare.
    some = builder.fcmp_unordered("!=", a, f.number(0))
    rare = builder.or_(_extraordinary(f, b), builder.and_(_extraordinary(f, q), some))
    if isinstance(f.kind, ir.VectorType):
        return or_rarely(builder, rare, result, lambda: builder.fdiv(a, b))
    return or_rarely(builder, rare, result, lambda: builder.call(_division(builder.module, f), [a, b]))


def _extraordinary(f: Steps, x: ir.Value) -> ir.Value:
    """Whether the exponent of x is not one of half of all, as those of zeros, infinities and NaN.

    Where it is one, for two numbers, the product of their last places is a number, so that the remainder is exact.
    """
    first = f.bias - (f.bias - f.fraction - 1) // 2
    # Counted from there exactly these have their highest bit set; the sign only turns over.
    highest = 1 << (f.width - 2)
    counted = f.builder.add(f.bits(x), f.integer(highest - (first << f.fraction)))
    return f.builder.icmp_unsigned("==", f.builder.and_(counted, f.integer(highest)), f.integer(0))


def _division(module: ir.Module, f: Steps) -> ir.Function:
    """A division that LLVM does not do before it is asked to."""
    symbol = f"dualbcast_division_{f.width}"
    function = module.globals.get(symbol)
    if function is None:
        function = ir.Function(module, ir.FunctionType(f.kind, [f.kind, f.kind]), symbol)
        function.linkage = "linkonce_odr"
        attribute(function, "noinline", "memory(none)", "nounwind", "willreturn", "cold")
        builder = ir.IRBuilder(function.append_basic_block())
        builder.ret(builder.fdiv(*function.args))
        under_masks(function, lambda _: lambda builder, arguments: builder.fdiv(*arguments))
    return function
