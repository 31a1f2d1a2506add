"""float32 that is stored in 16 bits, as float16 or bfloat16: conversions of numbers and of vectors as LLVM IR."""

from __future__ import annotations

import llvmlite.binding as llvm
from llvmlite import ir

from dualbcast.codegen.values import Value, like


def converts_in_hardware() -> bool:
    """Whether the host converts between float16 and float32; LLVM would call functions it may not find."""
    return "aarch64" in llvm.get_process_triple() or bool(llvm.get_host_cpu_features().get("f16c"))


def from_float16(stored: Value) -> Value:
    if converts_in_hardware():
        builder, kind = stored.builder, stored.kind
        half = builder.bitcast(stored.value, like(kind, ir.HalfType()))
        return Value(builder, builder.fpext(half, like(kind, ir.FloatType())))
    bits = stored.zero_extended(32)
    sign = (bits & 0x8000) << 16
    # Exponent and fraction where float32 has them: a float32 too small by 2**112, the difference of the biases. The
    # multiplication is exact, and normalises what was subnormal.
    small = (bits & 0x7FFF) << 13
    scaled = small.as_float() * 2.0**112
    special = small | 0x7F800000
    is_special = small.unsigned(">=", 0x7C00 << 13)
    return (sign | is_special.choose(special, scaled.bits())).as_float()


def to_float16(x: Value) -> Value:
    if converts_in_hardware():
        builder, kind = x.builder, x.kind
        half = builder.fptrunc(x.value, like(kind, ir.HalfType()))
        return Value(builder, builder.bitcast(half, like(kind, ir.IntType(16))))
    bits = x.bits()
    sign = (bits >> 16) & 0x8000
    magnitude = bits & 0x7FFFFFFF
    normal = _round_to_even(magnitude, 13) - (112 << 10)
    # Below 2**-14 the last place is 2**-24, as it is for float32 between 1/2 and 1: the addition rounds.
    half = x.constant(0.5)
    shifted = magnitude.as_float() + half
    subnormal = shifted.bits() - half.bits()
    result = magnitude.unsigned("<", 113 << 23).choose(subnormal, normal)
    # Rounding up the largest float16 carries into infinity by itself; beyond 2**16 the exponent does not fit.
    result = magnitude.unsigned(">=", 143 << 23).choose(0x7C00, result)
    quiet = ((magnitude >> 13) & 0x3FF) | 0x7E00
    result = magnitude.unsigned(">", 0x7F800000).choose(quiet, result)
    return (sign | result).truncated(16)


def from_bfloat16(stored: Value) -> Value:
    return (stored.zero_extended(32) << 16).as_float()


def to_bfloat16(x: Value) -> Value:
    # By integers: the instructions for it (AVX512-BF16) flush subnormals to zero.
    bits = x.bits()
    rounded = _round_to_even(bits, 16)
    quiet = (bits >> 16) | 0x40
    return x.unordered("uno", x).choose(quiet, rounded).truncated(16)


def _round_to_even(bits: Value, places: int) -> Value:
    """Shift right by `places`, rounding: add just under half of the last place kept, and one more if that is odd."""
    odd = (bits >> places) & 1
    return bits + (odd + ((1 << (places - 1)) - 1)) >> places
