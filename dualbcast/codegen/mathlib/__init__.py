"""Elementary functions as LLVM code that vectorises, and 16-bit storage.

Comes in: the functions that a kernel calls, by name. Goes out: LLVM code for `exp`, `log`, `pow` and the rest.

Where the processor has fused multiply-add, elementary functions need no library. No vector register survives a call, so
a kernel stores and reloads all of them around a call of a library. And an inlined function has the same bits in a
vector as alone: no result depends on the place of its element in a row. On other processors the C library computes the
elements of a vector one after the other.
"""

from __future__ import annotations

from functools import cache, partial

import llvmlite.binding as llvm
from llvmlite import ir

from dualbcast.codegen.llvm import target
from dualbcast.codegen.mathlib import arcs, elementary, exponentials, logarithms, powers
from dualbcast.codegen.mathlib.primitives import (
    Emit,
    library,
    sign_of,
)
from dualbcast.codegen.values import Value, intrinsic, like

# --- what the host has ------------------------------------------------------------------------------------------------


def is_arm() -> bool:
    """Whether the host is a 64-bit ARM."""
    return bool(llvm.get_process_triple().startswith(("aarch64", "arm64")))


def has_fma() -> bool:
    """Whether the host has fused multiply-adds; LLVM would call a slow function for each else."""
    return is_arm() or "fma" in target.features()


def divides_fast() -> bool:
    """Whether the host divides about as fast as it multiplies with reciprocals: Zen 5 begins to divide eight float64
    every four cycles, beside all else. Others take four times as long."""
    return bool(llvm.get_host_cpu_name() == "znver5")


def converts_in_hardware() -> bool:
    """Whether the host converts between float16 and float32; LLVM would call functions it may not find."""
    return is_arm() or "f16c" in target.features()


# --- functions --------------------------------------------------------------------------------------------------------


def _of_gamma(name: str, x: Value) -> Value:
    """A function of the module of the gamma function, which few kernels need."""
    from dualbcast.codegen.mathlib import gamma

    return {"lgamma": gamma.lgamma, "tgamma": gamma.tgamma}[name](x)


# By name; they are inlined.
FUNCTIONS: dict[str, Emit] = {
    "exp": exponentials.exp,
    "expm1": exponentials.expm1,
    "tanh": exponentials.tanh,
    "exp2": exponentials.exp2,
    "sinh": exponentials.sinh,
    "cosh": exponentials.cosh,
    "log": logarithms.log,
    "log1p": logarithms.log1p,
    "log2": logarithms.log2,
    "log10": logarithms.log10,
    "sin": elementary.sin,
    "cos": elementary.cos,
    "tan": elementary.tan,
    "asin": arcs.asin,
    "acos": arcs.acos,
    "atan": arcs.atan,
    "atan2": arcs.atan2,
    "asinh": logarithms.asinh,
    "acosh": logarithms.acosh,
    "atanh": logarithms.atanh,
    "erf": elementary.erf,
    "erfc": elementary.erfc,
    "cbrt": elementary.cbrt,
    "hypot": elementary.hypot,
    "pow": powers.pow,
    **{name: partial(_of_gamma, name) for name in ("lgamma", "tgamma")},
    "fmod": elementary.fmod,
}
# What computes with parts of other functions; they are inlined, too.
SHARING: dict[str, Emit] = {
    "base_logarithm": powers.base_logarithm,
    "divided_power": powers.divided_power,
    "cosine": elementary.cosine,
    "sine": elementary.sine,
    "over_length": elementary.over_length,
}
# What takes longer if a single element of a vector has a rare argument. One that does not take a branch often has such,
# since the branch guards it.
WITH_RARE_BRANCHES = {"pow", "sin", "cos", "tan", "atan2", "hypot", "fmod", "lgamma", "tgamma", *SHARING}
# What LLVM has an operation for, and so has the host.
_LLVM = ("sqrt", "fabs", "floor", "ceil", "trunc", "rint", "copysign")


@cache
def names() -> dict[str, Emit]:
    """What a kernel calls; its arguments and result are floats of one type, or vectors of them."""
    functions: dict[str, Emit] = {name: partial(intrinsic, name) for name in _LLVM}
    functions |= {name: partial(library, name) for name in target.FUNCTIONS}
    functions["base_logarithm"] = functions["log"]
    if has_fma():
        functions |= FUNCTIONS | SHARING
    return functions | {
        "divided": divided,
        # A product and a sum, rounded once where the processor does that.
        "muladd": partial(intrinsic, "fmuladd"),
        "mulsub": lambda a, b, c: intrinsic("fmuladd", a, b, -c),
        "submul": lambda a, b, c: intrinsic("fmuladd", -a, b, c),
        "nextafter": _nextafter,
    }


def divided(a: Value, b: Value, reciprocal: Value) -> Value:
    """a / b, given 1 / b. On a host that divides fast the divider is at work for all but constants, beside all else."""
    divides = not has_fma() or (divides_fast() and not isinstance(b.value, ir.Constant))
    return a / b if divides else elementary.divided(a, b, reciprocal)


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


# The conversions of numbers in these types from and to float32.
STORAGE: dict[str, tuple[Emit, Emit]] = {
    "float16": (from_float16, to_float16),
    "bfloat16": (from_bfloat16, to_bfloat16),
}
