"""Steps of elementary functions as LLVM IR in one floating-point format, and what depends on the format."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir

from dualbcast.codegen.mathlib.vector_types import is_single, like

__all__ = ["Emit", "Steps", "attribute", "has_scaling", "is_never_positive", "keep"]

# What writes an operation on these values, and gives its result.
Emit = Callable[[ir.IRBuilder, Sequence[ir.Value]], ir.Value]


@functools.cache
def has_scaling() -> bool:
    """Whether the host multiplies vectors by powers of two in one instruction, and LLVM knows; it would call a slow
    function for each element else."""
    features = llvm.get_host_cpu_features()
    return llvm.llvm_version_info[0] >= 22 and bool(features.get("avx512f") and features.get("avx512vl"))


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
    """

    dtype: type[np.floating[Any]]
    exponential: tuple[float, ...]
    log2_low: float
    largest: float
    smallest: float
    minus_one: float
    saturated: float
    tiny: float


_FLOAT32 = _Format(
    dtype=np.float32,
    exponential=(0.5, 0.16666576266288757, 0.041666556149721146, 0.008363178931176662, 0.0013926184037700295),
    log2_low=-1.9046542121259336e-09,
    largest=89.0,
    smallest=-104.0,
    minus_one=-18.0,
    saturated=10.0,
    tiny=2.0**-25,
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
)


class Steps:
    """Steps of a computation in one format, of numbers or of vectors.

    Comparisons are false for NaN, and the bits of a NaN are shifted like others: a NaN stays one through all of it.
    """

    def __init__(self, builder: ir.IRBuilder, kind: ir.Type) -> None:
        self.builder, self.kind = builder, kind
        self.format = _FLOAT32 if is_single(kind) else _FLOAT64
        info = np.finfo(self.format.dtype)
        self.info = info
        self.fraction, self.bias = int(info.nmant), int(info.maxexp) - 1
        self.width = int(info.bits)
        self.word = like(kind, ir.IntType(self.width))
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
        if limit >= 0 and is_never_positive(x):
            return x
        return self.builder.select(self.builder.fcmp_ordered(">", x, self.number(limit)), self.number(limit), x)

    def at_least(self, limit: float, x: ir.Value) -> ir.Value:
        return self.builder.select(self.builder.fcmp_ordered("<", x, self.number(limit)), self.number(limit), x)

    def bits(self, x: ir.Value) -> ir.Value:
        return self.builder.bitcast(x, self.word)

    def polynomial(self, coefficients: Sequence[float], x: ir.Value) -> ir.Value:
        """Short ones in the fewest steps (Horner), long ones by halves (Estrin): then few wait for the one before."""
        if len(coefficients) < 8:
            total: ir.Value = self.number(coefficients[-1])
            for coefficient in coefficients[-2::-1]:
                total = self.fma(total, x, self.number(coefficient))
            return total
        terms: list[ir.Value] = [self.number(coefficient) for coefficient in coefficients]
        while len(terms) > 1:
            pairs = [self.fma(high, x, low) for low, high in zip(terms[::2], terms[1::2], strict=False)]
            terms = pairs + terms[2 * len(pairs) :]
            if len(terms) > 1:
                x = self.builder.fmul(x, x)
        return terms[0]

    def power_of_two(self, n: ir.Value) -> ir.Value:
        """2**n, which is normal; only the last bits of n count."""
        biased = self.builder.add(n, self.integer(self.bias))
        return self.builder.bitcast(self.builder.shl(biased, self.integer(self.fraction)), self.kind)

    def scaled(self, x: ir.Value, n: ir.Value) -> ir.Value:
        """x * 2**n, where both are normal."""
        return self.builder.bitcast(
            self.builder.add(self.bits(x), self.builder.shl(n, self.integer(self.fraction))), self.kind
        )

    def reduced_expm1(self, x: ir.Value) -> tuple[ir.Value, ir.Value]:
        """s and n, so that exp(x) = 2**n * (1 + s), where s is r + r**2 * P(r) (Cody and Waite).

        The integer n is in the last bits of what is returned, which has others above them.
        """
        shifted = self.fma(x, self.number(1 / math.log(2.0)), self.number(self.shifter))
        n = self.builder.fsub(shifted, self.number(self.shifter))
        # The first of these is exact.
        r = self.fma(n, self.number(-float(self.format.dtype(math.log(2.0)))), x)
        r = self.fma(n, self.number(-self.format.log2_low), r)
        s = self.fma(self.builder.fmul(r, r), self.polynomial(self.format.exponential, r), r)
        return s, self.bits(shifted)

    def clamped(self, x: ir.Value) -> ir.Value:
        """Beyond what is left, exp is infinite or 0."""
        return self.at_least(self.format.smallest, self.at_most(self.format.largest, x))

    def exp(self, x: ir.Value) -> ir.Value:
        s, n = self.reduced_expm1(self.clamped(x))
        return self.twice_scaled(self.builder.fadd(self.number(1), s), n)

    def twice_scaled(self, x: ir.Value, n: ir.Value) -> ir.Value:
        """x * 2**n, though neither 2**n nor a subnormal result leaves room for one step.

        Without an instruction for it in two steps, of which the last rounds: the same bits.
        """
        builder = self.builder
        if has_scaling():
            return self._ldexp(x, builder.sub(n, builder.bitcast(self.number(self.shifter), self.word)))
        # Shifted as if it had no sign, which takes AVX-512 else: the bits that it lets in are shifted out again.
        half = builder.lshr(n, self.integer(1))
        return builder.fmul(self.scaled(x, half), self.power_of_two(builder.sub(n, half)))

    def _ldexp(self, x: ir.Value, n: ir.Value) -> ir.Value:
        int32 = like(self.kind, ir.IntType(32))
        kinds = [self.kind, int32]
        declared = self.builder.module.declare_intrinsic("llvm.ldexp", kinds, ir.FunctionType(self.kind, kinds))
        return self.builder.call(declared, [x, n if n.type == int32 else self.builder.trunc(n, int32)])

    def half_expm1(self, x: ir.Value) -> ir.Value:
        """expm1(x) / 2: halved, it is finite wherever 2**(n - 1) is."""
        s, n = self.reduced_expm1(x)
        scale = self.power_of_two(self.builder.sub(n, self.integer(1)))
        return self.fma(scale, s, self.builder.fsub(scale, self.number(0.5)))


def is_never_positive(x: ir.Value) -> bool:
    """Whether it is -abs(y), as in sigmoid and softplus: LLVM would compare that, too."""
    if not isinstance(x, ir.Instruction) or x.opname != "fneg":
        return False
    (inner,) = x.operands
    return isinstance(inner, ir.CallInstr) and inner.callee.name.startswith("llvm.fabs.")


def attribute(function: ir.Function, *attributes: str) -> None:
    """Add attributes to a function."""
    for each in attributes:
        # llvmlite checks attributes against a list that is older than these.
        set.add(function.attributes, each)


def keep(module: ir.Module, functions: list[ir.Function]) -> None:
    """Keep declarations that nothing refers to yet: LLVM drops them unless `llvm.compiler.used` lists them."""
    pointer = ir.IntType(8).as_pointer()
    kept = module.globals.get("llvm.compiler.used")
    entries = [function.bitcast(pointer) for function in functions]
    if kept is not None:  # A module has one such array: make it longer.
        entries = [*kept.initializer.constant, *entries]
    array = ir.ArrayType(pointer, len(entries))
    if kept is None:
        kept = ir.GlobalVariable(module, array, "llvm.compiler.used")
        kept.linkage, kept.section = "appending", "llvm.metadata"
    kept.value_type, kept.type = array, array.as_pointer()
    kept.initializer = ir.Constant(array, entries)
