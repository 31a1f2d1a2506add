"""Steps of elementary functions as LLVM IR in one floating-point format, and what depends on the format.

All take numbers or vectors. Comparisons are false for NaN, and the bits of a NaN are shifted like others: a NaN stays
one through all of it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir

from dualbcast.codegen.values import Value, intrinsic, is_single, like, lone

# What writes an operation on some values, and gives its result.
Emit = Callable[..., Value]
_Any = TypeVar("_Any")


@functools.cache
def has_scaling() -> bool:
    """Whether the host multiplies vectors by powers of two in one instruction, and LLVM knows; it would call a slow
    function for each element else."""
    features = llvm.get_host_cpu_features()
    return llvm.llvm_version_info[0] >= 22 and bool(features.get("avx512f") and features.get("avx512vl"))


@dataclass(frozen=True)
class Format:
    """What depends on the floating-point format.

    P is in exp(r) = 1 + r + r**2 * P(r) for abs(r) <= log(2) / 2, from the constant on: it interpolates at Chebyshev's
    points, and leaves out less than a tenth of a unit in the last place of exp.
    """

    dtype: type[np.floating[Any]]
    fraction: int  # its bits
    bias: int  # of the exponent
    width: int  # all bits
    exponential: tuple[float, ...]  # P
    log2_low: float  # log(2) beyond its digits in this format
    # Where exp is infinite, where it is 0, where expm1 is -1, and where tanh is 1, with a little to spare.
    largest: float
    smallest: float
    minus_one: float
    saturated: float
    tiny: float  # below this expm1(x) is x

    @property
    def normal(self) -> float:
        """The smallest normal number."""
        return 2.0 ** (1 - self.bias)

    @property
    def shifter(self) -> float:
        """Added to a small number it rounds it to a whole one, which the last bits of the sum then hold."""
        return 1.5 * 2.0**self.fraction

    @property
    def log2(self) -> float:
        """log(2) in this format."""
        return float(self.dtype(math.log(2.0)))


_FLOAT32 = Format(
    dtype=np.float32,
    fraction=23,
    bias=127,
    width=32,
    exponential=(0.5, 0.16666576266288757, 0.041666556149721146, 0.008363178931176662, 0.0013926184037700295),
    log2_low=-1.9046542121259336e-09,
    largest=89.0,
    smallest=-104.0,
    minus_one=-18.0,
    saturated=10.0,
    tiny=2.0**-25,
)
_FLOAT64 = Format(
    dtype=np.float64,
    fraction=52,
    bias=1023,
    width=64,
    exponential=(
        *(0.5000000000000001, 0.16666666666666669, 0.04166666666662413, 0.008333333333330062, 0.0013888888917213717),
        *(0.00019841269863053618, 2.4801521295954376e-05, 2.7557268459997064e-06, 2.7620088445409746e-07),
        2.510038549551032e-08,
    ),
    log2_low=2.3190468138462996e-17,
    largest=710.0,
    smallest=-746.0,
    minus_one=-38.0,
    saturated=20.0,
    tiny=2.0**-54,
)


def for_format(x: Value, float32: _Any, float64: _Any) -> _Any:
    """One of two things, by the format of a number."""
    return float32 if is_single(x.kind) else float64


def format_of(x: Value) -> Format:
    """The format of a number."""
    return for_format(x, _FLOAT32, _FLOAT64)


def fma(a: Value, b: Any, c: Any) -> Value:
    """a * b + c, rounded once."""
    return intrinsic("fma", a, b, c)


def absolute(x: Value) -> Value:
    return intrinsic("fabs", x)


def copysign(x: Value, sign: Any) -> Value:
    return intrinsic("copysign", x, sign)


def at_most(limit: float, x: Value) -> Value:
    """The lesser of two numbers; NaN stays."""
    if limit >= 0 and is_never_positive(x.value):
        return x
    return (x > limit).choose(limit, x)


def at_least(limit: float, x: Value) -> Value:
    """The greater of two numbers; NaN stays."""
    return (x < limit).choose(limit, x)


def rounded(shifted: Value) -> Value:
    """The whole number in the last bits of a sum with `Format.shifter`."""
    return shifted - format_of(shifted).shifter


def halved(x: Value) -> tuple[Value, Value]:
    """2**fraction + bias + n and m, of a normal x = 2**n * m with m from sqrt(1/2) to sqrt(2)."""
    form = format_of(x)
    # Counted from sqrt(1/2) the exponent is n, and what is left is the distance from there. It goes to a float by way
    # of the last bits of one, since AVX2 cannot convert.
    root, one = x.constant(math.sqrt(0.5)).bits(), x.constant(1.0).bits()
    counted = x.bits() - root + one
    exponent = (counted >> form.fraction) | x.constant(2.0**form.fraction).bits()
    return exponent.as_float(), ((counted & ((1 << form.fraction) - 1)) + root).as_float()


def is_even(x: Value) -> Value:
    """Whether a number is whole and even."""
    half = x * 0.5
    return intrinsic("trunc", half) == half


def sign_of(bits: Value) -> Value:
    """The bit of the sign among zeros, of the bits of a float."""
    width: int = lone(bits.kind).width
    return bits & (1 << (width - 1))


def polynomial(coefficients: Sequence[float], x: Value) -> Value:
    """Short ones in the fewest steps (Horner), long ones by halves (Estrin): then few wait for the one before."""
    terms = [x.constant(coefficient) for coefficient in coefficients]
    if len(terms) < 8:
        total = terms[-1]
        for term in terms[-2::-1]:
            total = fma(total, x, term)
        return total
    while len(terms) > 1:
        pairs = [fma(high, x, low) for low, high in zip(terms[::2], terms[1::2], strict=False)]
        terms = pairs + terms[2 * len(pairs) :]
        if len(terms) > 1:
            x = x * x
    return terms[0]


def _power_of_two(n: Value, form: Format) -> Value:
    """2**n, which is normal; only the last bits of n count."""
    return (n + form.bias << form.fraction).as_float()


def twice_scaled(x: Value, n: Value) -> Value:
    """x * 2**n, though neither 2**n nor a subnormal result leaves room for one step.

    Without an instruction for it in two steps, of which the last rounds: the same bits.
    """
    form = format_of(x)
    if has_scaling():
        return _ldexp(x, n - x.constant(form.shifter).bits())
    # Shifted as if it had no sign, which takes AVX-512 else: the bits that it lets in are shifted out again.
    half = n >> 1
    return (x.bits() + (half << form.fraction)).as_float() * _power_of_two(n - half, form)


def _ldexp(x: Value, n: Value) -> Value:
    builder, int32 = x.builder, like(x.kind, ir.IntType(32))
    kinds = [x.kind, int32]
    declared = builder.module.declare_intrinsic("llvm.ldexp", kinds, ir.FunctionType(x.kind, kinds))
    return Value(builder, builder.call(declared, [x.value, n.to("int32").value]))


def reduced_expm1(x: Value) -> tuple[Value, Value]:
    """s and n, so that exp(x) = 2**n * (1 + s), where s is r + r**2 * P(r) (Cody and Waite).

    The integer n is in the last bits of what is returned, which has others above them.
    """
    form = format_of(x)
    shifted = fma(x, 1 / math.log(2.0), form.shifter)
    n = rounded(shifted)
    # The first of these is exact.
    r = fma(n, -form.log2_low, fma(n, -form.log2, x))
    return fma(r * r, polynomial(form.exponential, r), r), shifted.bits()


def clamped(x: Value) -> Value:
    """Beyond what is left, exp is infinite or 0."""
    form = format_of(x)
    return at_least(form.smallest, at_most(form.largest, x))


def exp(x: Value) -> Value:
    s, n = reduced_expm1(clamped(x))
    return twice_scaled(1.0 + s, n)


def half_expm1(x: Value) -> Value:
    """expm1(x) / 2: halved, it is finite wherever 2**(n - 1) is."""
    s, n = reduced_expm1(x)
    scale = _power_of_two(n - 1, format_of(x))
    return fma(scale, s, scale - 0.5)


def is_never_positive(x: ir.Value) -> bool:
    """Whether it is -abs(y), as in sigmoid and softplus: LLVM would compare that, too."""
    if not isinstance(x, ir.Instruction) or x.opname != "fneg":
        return False
    (inner,) = x.operands
    return isinstance(inner, ir.CallInstr) and inner.callee.name.startswith("llvm.fabs.")


def called(function: ir.Function, *arguments: Value) -> Value:
    """The result of a function of the module that is being written."""
    builder = arguments[0].builder
    return Value(builder, builder.call(function, [argument.value for argument in arguments]))
