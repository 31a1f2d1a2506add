"""Elementary functions as LLVM IR, for processors with fused multiply-add: they vectorise without a library.

No vector register survives a call, so around a call of a library a kernel stores and reloads all that it holds. And
what is inlined gives the same bits in a vector as alone: no result depends on where in a row its element lies.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import llvmlite.binding as llvm
from llvmlite import ir

from dualbcast.codegen.mathlib import erfc as erfc_code
from dualbcast.codegen.mathlib import fmod as fmod_code
from dualbcast.codegen.mathlib import gamma as gamma_code
from dualbcast.codegen.mathlib import lgamma as lgamma_code
from dualbcast.codegen.mathlib import log as log_code
from dualbcast.codegen.mathlib import trig as trig_code
from dualbcast.codegen.mathlib.primitives import Steps

__all__ = ["FUNCTIONS", "has_fma", "is_arm"]


@functools.cache
def has_fma() -> bool:
    """Whether the host has fused multiply-adds; LLVM would call a slow function for each else."""
    return is_arm() or bool(llvm.get_host_cpu_features().get("fma"))


def is_arm() -> bool:
    """Whether the host is a 64-bit ARM."""
    return bool(llvm.get_process_triple().startswith(("aarch64", "arm64")))


def _exp(builder: ir.IRBuilder, arguments: Sequence[ir.Value]) -> ir.Value:
    return Steps(builder, arguments[0].type).exp(arguments[0])


def _expm1(builder: ir.IRBuilder, arguments: Sequence[ir.Value]) -> ir.Value:
    (argument,) = arguments
    f = Steps(builder, argument.type)
    x = f.at_least(f.format.minus_one, f.at_most(f.format.largest, argument))
    half = f.half_expm1(x)
    result = builder.fadd(half, half)
    # Where it is x its last bits, or the sign of a zero, would be lost in halves.
    return builder.select(builder.fcmp_ordered("<", f.absolute(argument), f.number(f.format.tiny)), argument, result)


def _tanh(builder: ir.IRBuilder, arguments: Sequence[ir.Value]) -> ir.Value:
    """With h = expm1(2 * abs(x)) / 2, h / (1 + h): for small h as h - h * h / (1 + h), whose last term is small."""
    f = Steps(builder, arguments[0].type)
    x = f.at_most(f.format.saturated, f.absolute(arguments[0]))
    h = f.half_expm1(builder.fadd(x, x))
    ratio = builder.fdiv(h, builder.fadd(f.number(1), h))
    small = f.fma(builder.fneg(h), ratio, h)
    result = builder.select(builder.fcmp_ordered("<", h, f.number(0.45)), small, ratio)
    return f.call("copysign", result, arguments[0])


FUNCTIONS = {
    "exp": _exp,
    "expm1": _expm1,
    "tanh": _tanh,
    **log_code.FUNCTIONS,
    **trig_code.FUNCTIONS,
    **erfc_code.FUNCTIONS,
    **lgamma_code.FUNCTIONS,
    **gamma_code.FUNCTIONS,
    **fmod_code.FUNCTIONS,
}
