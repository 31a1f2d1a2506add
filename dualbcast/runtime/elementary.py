"""exp, expm1, tanh and log as LLVM IR for processors with fused multiply-add: inlined, they vectorise without calls.

No vector register survives a call, so around a call of a library a kernel stores and reloads all that it holds. And
what is inlined gives the same bits in a vector as alone: no result depends on where in a row its element lies.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir

from dualbcast.runtime.cpu_context import context

__all__ = ["FUNCTIONS", "has_fma"]


@dataclass(frozen=True)
class _Format:
    """What depends on the floating-point format.

    Attributes
    ----------
    dtype : type
        The format.
    exponential : tuple of float
        P in exp(r) = 1 + r + r**2 * P(r) for abs(r) <= log(2) / 2, from the constant on: it interpolates at
        Chebyshev's points, and leaves out less than a tenth of a unit in the last place of exp.
    log2_low : float
        log(2) beyond its digits in this format.
    largest, smallest, minus_one, saturated : float
        Where exp is infinite, where it is 0, where expm1 is -1, and where tanh is 1, with a little to spare.
    tiny : float
        Below this expm1(x) is x.
    logarithm : tuple of float
        Q in log((1 + s) / (1 - s)) = 2 * s + s**3 * Q(s**2) where that is between sqrt(1/2) and sqrt(2), found alike.
    """

    dtype: type[np.floating[Any]]
    exponential: tuple[float, ...]
    log2_low: float
    largest: float
    smallest: float
    minus_one: float
    saturated: float
    tiny: float
    logarithm: tuple[float, ...]


_FLOAT32 = _Format(
    dtype=np.float32,
    exponential=(0.5, 0.16666576266288757, 0.041666556149721146, 0.008363178931176662, 0.0013926184037700295),
    log2_low=-1.9046542121259336e-09,
    largest=89.0,
    smallest=-104.0,
    minus_one=-18.0,
    saturated=10.0,
    tiny=2.0**-25,
    logarithm=(0.6666668653488159, 0.3998878002166748, 0.29579949378967285),
)
_FLOAT64 = _Format(
    dtype=np.float64,
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
    logarithm=(
        *(0.666666666666667, 0.39999999999899505, 0.28571428625975487, 0.2222221113479508, 0.18182889125261723),
        *(0.15331721600556042, 0.14616449685043406),
    ),
)


@functools.cache
def has_fma() -> bool:
    """Whether the code that Numba makes may use fused multiply-adds; LLVM would call a slow function for each else."""
    triple, _, features = context().codegen().magic_tuple()
    return triple.startswith(("aarch64", "arm64")) or "+fma" in features.split(",")


def _exp(builder: ir.IRBuilder, arguments: Sequence[ir.Value]) -> ir.Value:
    f = _Steps(builder, arguments[0].type)
    x = f.at_least(f.format.smallest, f.at_most(f.format.largest, arguments[0]))
    r, square_p, n = f.reduced(x)
    # In two steps, because neither 2**n nor a subnormal result leaves room for one; the last multiplication rounds.
    # (Shifted as if it had no sign, which takes AVX-512 else: the bits that it lets in are shifted out again.)
    half = builder.lshr(n, f.integer(1))
    scaled = builder.fmul(builder.fadd(f.number(1), builder.fadd(r, square_p)), f.power_of_two(half))
    return builder.fmul(scaled, f.power_of_two(builder.sub(n, half)))


def _expm1(builder: ir.IRBuilder, arguments: Sequence[ir.Value]) -> ir.Value:
    (argument,) = arguments
    f = _Steps(builder, argument.type)
    x = f.at_least(f.format.minus_one, f.at_most(f.format.largest, argument))
    _, result = f.half_expm1(x)
    result = builder.fadd(result, result)
    # Where it is x its last bits, or the sign of a zero, would be lost in halves.
    return builder.select(builder.fcmp_ordered("<", f.absolute(argument), f.number(f.format.tiny)), argument, result)


def _tanh(builder: ir.IRBuilder, arguments: Sequence[ir.Value]) -> ir.Value:
    """With h = expm1(2 * abs(x)) / 2, h / (1 + h): for small h as h - h * h / (1 + h), whose last term is small."""
    f = _Steps(builder, arguments[0].type)
    x = f.at_most(f.format.saturated, f.absolute(arguments[0]))
    (head, scale, square_p), h = f.half_expm1(builder.fadd(x, x))
    ratio = builder.fdiv(h, builder.fadd(f.number(1), h))
    # What h lost when it was rounded.
    rest = f.fma(scale, square_p, builder.fsub(head, h))
    small = builder.fadd(h, f.fma(builder.fneg(h), ratio, rest))
    result = builder.select(builder.fcmp_ordered("<", h, f.number(0.45)), small, ratio)
    return f.call("copysign", result, arguments[0])


def _log(builder: ir.IRBuilder, arguments: Sequence[ir.Value]) -> ir.Value:
    """n * log(2) + log(1 + f), with x = 2**n * (1 + f)."""
    (x,) = arguments
    f = _Steps(builder, x.type)
    subnormal = builder.fcmp_ordered("<", x, f.number(float(np.finfo(f.format.dtype).tiny)))
    raised = builder.fmul(x, f.number(2.0 ** (f.fraction + 1)))
    part, n = f.split(builder.select(subnormal, raised, x))
    n = builder.select(subnormal, builder.fsub(n, f.number(f.fraction + 1)), n)
    result = f.log_of_parts(part, n)
    invalid = builder.select(builder.fcmp_ordered("==", x, f.number(0)), f.number(-math.inf), f.number(math.nan))
    result = builder.select(builder.fcmp_ordered("<", x, f.number(math.inf)), result, x)
    return builder.select(builder.fcmp_unordered(">", x, f.number(0)), result, invalid)


FUNCTIONS = {"exp": _exp, "expm1": _expm1, "tanh": _tanh, "log": _log}


class _Steps:
    """Steps of a computation in one format.

    Comparisons are false for NaN, and the bits of a NaN are shifted like others: a NaN stays one through all of it.
    """

    def __init__(self, builder: ir.IRBuilder, kind: ir.Type) -> None:
        self.builder, self.kind = builder, kind
        self.format = _FLOAT32 if isinstance(kind, ir.FloatType) else _FLOAT64
        info = np.finfo(self.format.dtype)
        self.fraction, self.bias = int(info.nmant), int(info.maxexp) - 1
        self.word = ir.IntType(int(info.bits))
        # Added to a small number it rounds it to a whole one, which the last bits of the sum then hold.
        self.shifter = 1.5 * 2.0**self.fraction

    def number(self, value: float) -> ir.Constant:
        return ir.Constant(self.kind, float(value))

    def integer(self, value: int) -> ir.Constant:
        return ir.Constant(self.word, value)

    def call(self, name: str, *arguments: ir.Value) -> ir.Value:
        function_type = ir.FunctionType(self.kind, [self.kind] * len(arguments))
        declared = self.builder.module.declare_intrinsic(f"llvm.{name}", [self.kind], function_type)
        return self.builder.call(declared, arguments)

    def fma(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        return self.call("fma", a, b, c)

    def absolute(self, x: ir.Value) -> ir.Value:
        return self.call("fabs", x)

    def at_most(self, limit: float, x: ir.Value) -> ir.Value:
        return self.builder.select(self.builder.fcmp_ordered(">", x, self.number(limit)), self.number(limit), x)

    def at_least(self, limit: float, x: ir.Value) -> ir.Value:
        return self.builder.select(self.builder.fcmp_ordered("<", x, self.number(limit)), self.number(limit), x)

    def bits(self, x: ir.Value) -> ir.Value:
        return self.builder.bitcast(x, self.word)

    def polynomial(self, coefficients: Sequence[float], x: ir.Value) -> ir.Value:
        total: ir.Value = self.number(coefficients[-1])
        for coefficient in coefficients[-2::-1]:
            total = self.fma(total, x, self.number(coefficient))
        return total

    def power_of_two(self, n: ir.Value) -> ir.Value:
        """2**n for a whole number whose power is normal."""
        biased = self.builder.add(n, self.integer(self.bias))
        return self.builder.bitcast(self.builder.shl(biased, self.integer(self.fraction)), self.kind)

    def reduced(self, x: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
        """r, r**2 * P(r) and the integer n, so that exp(x) = 2**n * (1 + r + r**2 * P(r)) (Cody and Waite)."""
        shifted = self.fma(x, self.number(1 / math.log(2.0)), self.number(self.shifter))
        n = self.builder.fsub(shifted, self.number(self.shifter))
        # The first of these is exact.
        r = self.fma(n, self.number(-float(self.format.dtype(math.log(2.0)))), x)
        r = self.fma(n, self.number(-self.format.log2_low), r)
        count = self.builder.sub(self.bits(shifted), self.bits(self.number(self.shifter)))
        return r, self.builder.fmul(self.builder.fmul(r, r), self.polynomial(self.format.exponential, r)), count

    def half_expm1(self, x: ir.Value) -> tuple[tuple[ir.Value, ir.Value, ir.Value], ir.Value]:
        """expm1(x) / 2, and the a, b, c that it is a + b * c of; halved, it is finite wherever 2**(n - 1) is."""
        r, square_p, n = self.reduced(x)
        scale = self.power_of_two(self.builder.sub(n, self.integer(1)))
        head = self.fma(scale, r, self.builder.fsub(scale, self.number(0.5)))
        return (head, scale, square_p), self.fma(scale, square_p, head)

    def split(self, x: ir.Value) -> tuple[ir.Value, ir.Value]:
        """f and n so that x = 2**n * (1 + f), which is between sqrt(1/2) and sqrt(2) times 2**n, for normal x > 0."""
        builder, least = self.builder, self.bits(self.number(math.sqrt(0.5)))
        # The exponent is one more from sqrt(2) on, and stays positive: so a shift will do that is none of AVX-512 only.
        moved = builder.add(self.bits(x), builder.sub(self.bits(self.number(1)), least))
        part = builder.and_(moved, self.integer((1 << self.fraction) - 1))
        f = builder.fsub(builder.bitcast(builder.add(part, least), self.kind), self.number(1))
        # As the last bits of a large number, which is made a small one: vectors of 64-bit integers convert slowly.
        large = 2.0**self.fraction
        count = builder.or_(builder.lshr(moved, self.integer(self.fraction)), self.bits(self.number(large)))
        return f, builder.fsub(builder.bitcast(count, self.kind), self.number(large + self.bias))

    def log_of_parts(self, f: ir.Value, n: ir.Value) -> ir.Value:
        """n * log(2) + log(1 + f); with s = f / (2 + f) the latter is f - f**2 / 2 + s * (f**2 / 2 + s**2 * Q)."""
        builder = self.builder
        s = builder.fdiv(f, builder.fadd(f, self.number(2)))
        square = builder.fmul(s, s)
        half = builder.fmul(f, self.number(0.5))
        rest = self.fma(square, self.polynomial(self.format.logarithm, square), builder.fmul(half, f))
        rest = self.fma(s, rest, builder.fmul(n, self.number(self.format.log2_low)))
        rest = builder.fadd(f, self.fma(builder.fneg(half), f, rest))
        return self.fma(n, self.number(float(self.format.dtype(math.log(2.0)))), rest)
