"""Elementary functions as LLVM IR, for processors with fused multiply-add: they vectorise without a library.

No vector register survives a call, so a kernel stores and reloads all of them around a call of a library. And an
inlined function has the same bits in a vector as alone: no result depends on the place of its element in a row.
"""

from __future__ import annotations

import functools

import llvmlite.binding as llvm

from dualbcast.codegen.mathlib.division import fmod
from dualbcast.codegen.mathlib.elementary import cos, erfc, log, sin
from dualbcast.codegen.mathlib.gamma import lgamma, tgamma
from dualbcast.codegen.mathlib.primitives import (
    Emit,
    absolute,
    at_least,
    at_most,
    copysign,
    exp,
    fma,
    format_of,
    half_expm1,
)
from dualbcast.codegen.values import Value


@functools.cache
def has_fma() -> bool:
    """Whether the host has fused multiply-adds; LLVM would call a slow function for each else."""
    return is_arm() or bool(llvm.get_host_cpu_features().get("fma"))


def is_arm() -> bool:
    """Whether the host is a 64-bit ARM."""
    return bool(llvm.get_process_triple().startswith(("aarch64", "arm64")))


def _expm1(x: Value) -> Value:
    form = format_of(x)
    half = half_expm1(at_least(form.minus_one, at_most(form.largest, x)))
    result = half + half
    # Where it is x its last bits, or the sign of a zero, would be lost in halves.
    return (absolute(x) < form.tiny).choose(x, result)


def _tanh(x: Value) -> Value:
    """With h = expm1(2 * abs(x)) / 2, h / (1 + h): for small h as h - h * h / (1 + h), whose last term is small."""
    size = at_most(format_of(x).saturated, absolute(x))
    h = half_expm1(size + size)
    ratio = h / (1.0 + h)
    small = fma(-h, ratio, h)
    return copysign((h < 0.45).choose(small, ratio), x)


FUNCTIONS: dict[str, Emit] = {
    "exp": exp,
    "expm1": _expm1,
    "tanh": _tanh,
    "log": log,
    "sin": sin,
    "cos": cos,
    "erfc": erfc,
    "lgamma": lgamma,
    "tgamma": tgamma,
    "fmod": fmod,
}
