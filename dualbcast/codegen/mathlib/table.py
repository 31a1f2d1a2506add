"""The free names of a kernel's text as LLVM IR that vectorises: mathematics, and 16-bit storage.

Where the processor has fused multiply-add, elementary functions need no library. No vector register survives a call, so
a kernel stores and reloads all of them around a call of a library. And an inlined function has the same bits in a
vector as alone: no result depends on the place of its element in a row.
"""

from __future__ import annotations

import functools
from collections.abc import Set

import llvmlite.binding as llvm
from llvmlite import ir

from dualbcast.codegen.llvm import target
from dualbcast.codegen.mathlib import elementary
from dualbcast.codegen.mathlib.gamma import lgamma, tgamma
from dualbcast.codegen.mathlib.library_calls import AROUND, library, vector_library
from dualbcast.codegen.mathlib.primitives import Emit, exp, sign_of
from dualbcast.codegen.values import Value, intrinsic, like

# --- what the host has ------------------------------------------------------------------------------------------------


@functools.cache
def has_fma() -> bool:
    """Whether the host has fused multiply-adds; LLVM would call a slow function for each else."""
    return is_arm() or bool(llvm.get_host_cpu_features().get("fma"))


def is_arm() -> bool:
    """Whether the host is a 64-bit ARM."""
    return bool(llvm.get_process_triple().startswith(("aarch64", "arm64")))


# Processors that begin to divide eight float64 every four cycles, beside all else. Others take four times as long.
_FAST = frozenset({"znver5"})


@functools.cache
def divides_fast() -> bool:
    """Whether the host divides about as fast as it multiplies with reciprocals."""
    return llvm.get_host_cpu_name() in _FAST


def converts_in_hardware() -> bool:
    """Whether the host converts between float16 and float32; LLVM would call functions it may not find."""
    return "aarch64" in llvm.get_process_triple() or bool(llvm.get_host_cpu_features().get("f16c"))


# --- functions --------------------------------------------------------------------------------------------------------

# By name; they are inlined.
FUNCTIONS: dict[str, Emit] = {
    "exp": exp,
    "expm1": elementary.expm1,
    "tanh": elementary.tanh,
    "log": elementary.log,
    "sin": elementary.sin,
    "cos": elementary.cos,
    "erfc": elementary.erfc,
    "lgamma": lgamma,
    "tgamma": tgamma,
    "fmod": elementary.fmod,
}
# What LLVM has an operation for, and so has the host.
_LLVM = ("sqrt", "fabs", "floor", "ceil", "trunc", "rint", "copysign")


@functools.cache
def names(vector: bool) -> dict[str, Emit]:
    """What a kernel's text calls; its arguments and result are floats of one type, or vectors of them.

    With `vector` calls may become calls of libmvec, which must then be loaded in the process that runs the kernel.
    """
    functions: dict[str, Emit] = {name: functools.partial(intrinsic, name) for name in _LLVM}
    for name in target.FUNCTIONS:
        in_vectors = vector and name in target.VECTORISED
        call = functools.partial(vector_library if in_vectors else library, name)
        functions[name] = AROUND[name](call) if vector and name in AROUND else call
    functions |= {name: FUNCTIONS[name] for name in inlined()}
    return functions | {
        "divided": _quotient(),
        # A product and a sum, rounded once where the processor does that.
        "muladd": functools.partial(intrinsic, "fmuladd"),
        "mulsub": lambda a, b, c: intrinsic("fmuladd", a, b, -c),
        "submul": lambda a, b, c: intrinsic("fmuladd", -a, b, c),
        "nextafter": _nextafter,
    }


def inlined() -> Set[str]:
    """The functions that are not calls of the C library."""
    return FUNCTIONS.keys() if has_fma() else frozenset()


def divide(a: Value, b: Value, _: Value) -> Value:
    """a / b, given 1 / b."""
    return a / b


def _quotient() -> Emit:
    if not has_fma():
        return divide
    return elementary.divided_by_constants if divides_fast() else elementary.divided


def _nextafter(x: Value, y: Value) -> Value:
    """The neighbour of x towards y: one more or one less in the bits, which order floats of one sign."""
    bits = x.bits()
    goes_away = (x < y) == (x > 0.0)
    stepped = goes_away.choose(bits + 1, bits - 1)
    smallest = sign_of(y.bits()) | 1
    moved = (x == 0.0).choose(smallest, stepped)
    result = (x == y).choose(y, moved.as_float())
    return x.unordered("uno", y).choose(x + y, result)


# --- float32 that is stored in 16 bits --------------------------------------------------------------------------------


def from_float16(stored: Value) -> Value:
    if converts_in_hardware():
        builder, kind = stored.builder, stored.kind
        half = builder.bitcast(stored.value, like(kind, ir.HalfType()))
        return Value(builder, builder.fpext(half, like(kind, ir.FloatType())))
    bits = stored.to("int32")
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
    return (sign | result).to("int16")


def from_bfloat16(stored: Value) -> Value:
    return (stored.to("int32") << 16).as_float()


def to_bfloat16(x: Value) -> Value:
    # By integers: the instructions for it (AVX512-BF16) flush subnormals to zero.
    bits = x.bits()
    rounded = _round_to_even(bits, 16)
    quiet = (bits >> 16) | 0x40
    return x.unordered("uno", x).choose(quiet, rounded).to("int16")


def _round_to_even(bits: Value, places: int) -> Value:
    """Shift right by `places`, rounding: add just under half of the last place kept, and one more if that is odd."""
    odd = (bits >> places) & 1
    return bits + (odd + ((1 << (places - 1)) - 1)) >> places


# Conversions of the numbers that these functions of the text load and store.
STORAGE: dict[str, Emit] = {
    "load_float16": from_float16,
    "store_float16": to_float16,
    "load_bfloat16": from_bfloat16,
    "store_bfloat16": to_bfloat16,
}
