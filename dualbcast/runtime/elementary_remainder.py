"""The remainder of a division as LLVM IR: exact, as C's fmod is.

With q = a / b rounded and then cut off, a - q * b is a number of the format, so that one fused step gives it; where
a / b was rounded up to a whole number it is one b too small. Of large quotients it is left to the C library.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from dualbcast.runtime.elementary_rare import for_each, or_rarely, under_masks
from dualbcast.runtime.elementary_steps import Emit, Steps, attribute
from dualbcast.runtime.wide import lone

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
    function = _library(builder.module, f)
    return or_rarely(builder, large, rest, lambda: builder.call(function, [a, b]))


FUNCTIONS = {"fmod": _fmod}


def _library(module: ir.Module, f: Steps) -> ir.Function:
    """The C library's, called under a condition: of a vector, for each element."""
    symbol, number = f"dualbcast_remainder_{f.width}", lone(f.kind)
    function = module.globals.get(symbol)
    if function is None:
        function = ir.Function(module, ir.FunctionType(number, [number, number]), symbol)
        function.linkage = "linkonce_odr"
        attribute(function, "noinline", "memory(none)", "nounwind", "willreturn", "cold")
        builder = ir.IRBuilder(function.append_basic_block())
        builder.ret(builder.frem(*function.args))
    if isinstance(f.kind, ir.VectorType):
        return for_each(function, f.kind.count)

    def each(lanes: int) -> Emit:
        return lambda builder, arguments: builder.call(for_each(function, lanes), arguments)

    under_masks(function, each)
    return function
