"""Exponentials as LLVM IR: exp, expm1, exp2, powers of a known base, and the hyperbolic functions.

A number is a multiple of log(2) and a small rest, whose exponential is a polynomial. Where numbers are looked up in
tables, it is a multiple of log(2) / 16, and the polynomial is half as long.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from dualbcast.codegen.mathlib import tables
from dualbcast.codegen.mathlib.formats import Format, format_of
from dualbcast.codegen.mathlib.primitives import (
    absolute,
    at_most,
    copysign,
    fma,
    polynomial,
    power_of_two,
    rounded,
    scaled_unless,
    shared,
)
from dualbcast.codegen.values import Value

# P in exp(r) = 1 + r + r**2 * P(r) for abs(r) <= log(2) / 32; `docs/generate_coefficients.py` finds it.
_SHORT = (
    *(0.5000000000000003, 0.1666666666666667, 0.04166666666188925, 0.008333333332650846, 0.001388909253278702),
    0.0001984151920093618,
)


@functools.cache
def _binary(coefficients: tuple[float, ...]) -> tuple[float, ...]:
    """P in 2**r = 1 + log(2) * r + r**2 * P(r), of the one in exp(r) = 1 + r + r**2 * P(r)."""
    return tuple(c * math.log(2.0) ** (k + 2) for k, c in enumerate(coefficients))


def binary_exponential(form: Format) -> tuple[float, ...]:
    """P in 2**r = 1 + log(2) * r + r**2 * P(r) for abs(r) <= 1/2."""
    return _binary(form.exponential)


def parts_of(x: Value) -> tuple[Value, Value, Value]:
    """r, and the bits of two numbers which have k and n in their last ones: x is k / 16 + r with abs(r) <= 1/32 if
    there are tables, else k + r with abs(r) <= 1/2; and n is k / 16, rounded down, or k."""
    shifter = format_of(x).shifter
    if not tables.serve(x):
        shifted = x + shifter
        return x - rounded(shifted), shifted.bits(), shifted.bits()
    shifted = fma(x, float(tables.SIZE), shifter)
    return fma(rounded(shifted), -1.0 / tables.SIZE, x), shifted.bits(), shifted.bits() >> 4


def binary_root(r: Value, place: Value) -> Value:
    """2**(k / 16 + r) for abs(r) <= 1/32, where k is in the last four bits of `place`."""
    head, tail = _of_entry(fma(r * r, polynomial(_binary(_SHORT), r), r * math.log(2.0)), place)
    return head + tail


def _of_entry(small: Value, place: Value) -> tuple[Value, Value]:
    """2**(k / 16) * (1 + small) as a sum, where k is in the last four bits of `place`."""
    roots, lacking = tables.roots_of_two()
    head = tables.entry(roots, place)
    return head, fma(head, small, tables.entry(lacking, place))


@shared
def _reduced(x: Value) -> tuple[Value, Value, Value]:
    """A number from 1 to 2 or near 1, a small one, and n, so that exp(x) is 2**n times their sum (Cody and Waite).

    The integer n is in the last bits of what is returned, which has others above them.
    """
    form = format_of(x)
    parts = tables.SIZE if tables.serve(x) else 1
    shifted = fma(x, parts / math.log(2.0), form.shifter)
    n = rounded(shifted)
    # The first of these is exact.
    r = fma(n, -form.log2_low / parts, fma(n, -form.log2 / parts, x))
    if parts == 1:
        return x.constant(1.0), fma(r * r, polynomial(form.exponential, r), r), shifted.bits()
    head, tail = _of_entry(fma(r * r, polynomial(_SHORT, r), r), shifted.bits())
    return head, tail, shifted.bits() >> 4


@shared
def clamped(x: Value) -> Value:
    """Above what is left, exp is infinite."""
    return at_most(format_of(x).largest, x)


def exp(x: Value) -> Value:
    head, tail, n = _reduced(clamped(x))
    return scaled_unless(x < format_of(x).smallest, head + tail, n)


def times_exp(x: Value, factor: Value, rest: Value) -> Value:
    """exp(x) * (factor + rest), where rest is small, for an x that is `clamped`."""
    head, tail, n = _reduced(x)
    # All of it is added to the largest product in one step, so that only this rounds.
    product = fma(head, factor, fma(tail, factor + rest, head * rest))
    return scaled_unless(x < format_of(x).smallest, product, n)


def expm1(x: Value) -> Value:
    form = format_of(x)
    # As exp has it, which shares it.
    half = _half_expm1(clamped(x))
    # Beyond, half of 2**n is no normal number.
    result = (x < form.minus_one).choose(x.constant(-1.0), half + half)
    # Where it is x its last bits, or the sign of a zero, would be lost in halves.
    return (absolute(x) < form.tiny).choose(x, result)


def _half_expm1(x: Value) -> Value:
    """expm1(x) / 2: halved, it is finite wherever 2**(n - 1) is."""
    return scaled_expm1(x, -1)


def scaled_expm1(x: Value, power: int) -> Value:
    """expm1(x) * 2**power."""
    head, tail, n = _reduced(x)
    scale = power_of_two(n + power, format_of(x))
    return fma(scale, tail, fma(scale, head, -(2.0**power)))


def tanh(x: Value) -> Value:
    """With h = expm1(2 * abs(x)) / 2, h / (1 + h): for small h as h - h * h / (1 + h), whose last term is small."""
    size = at_most(format_of(x).saturated, absolute(x))
    h = _half_expm1(size + size)
    ratio = h / (1.0 + h)
    small = fma(-h, ratio, h)
    return copysign((h < 0.45).choose(small, ratio), x)


def sinh(x: Value) -> Value:
    """With k = expm1(abs(x)) / 4, 2 * k + (k / (k + 1 / 4)) / 2."""
    form = format_of(x)
    k, reciprocal = _quarter_expm1(x)
    result = copysign(fma(k, reciprocal * 0.5, k + k), x)
    return (absolute(x) < form.tiny).choose(x, result)


def cosh(x: Value) -> Value:
    k, reciprocal = _quarter_expm1(x)
    return fma(reciprocal, 0.125, k + 0.5 + k)


@shared
def _quarter_expm1(x: Value) -> tuple[Value, Value]:
    """k = expm1(abs(x)) / 4, which is finite a little further than cosh, and the reciprocal of k + 1 / 4."""
    k = scaled_expm1(at_most(format_of(x).largest + 0.75, absolute(x)), -2)
    return k, 1.0 / (k + 0.25)


def exp2(x: Value) -> Value:
    form = format_of(x)
    limited = at_most(form.bias + 8.0, x)
    r, place, n = parts_of(limited)
    if tables.serve(x):
        power = binary_root(r, place)
    else:
        power = 1.0 + fma(r * r, polynomial(binary_exponential(form), r), fma(r, form.log2, r * form.log2_low))
    return scaled_unless(x < -form.bias - form.fraction - 1.0, power, n)


def power_of(base: float, y: Value) -> Value:
    """A positive number other than 1 to the power y: 2**n * base**r, with abs(r) at most half of log(2) / log(base)."""
    form = format_of(y)
    parts = tables.SIZE if tables.serve(y) else 1
    known = _steps(form, base)
    y = at_most((form.bias + 8.0) * known.step, -y if known.is_below_1 else y)
    is_zero = y < -(form.bias + form.fraction + 1.0) * known.step
    shifted = fma(y, parts / known.step, form.shifter)
    n = rounded(shifted)
    # Exact, since both numbers are multiples of the last place of the step's part, or of half of it.
    r = fma(n, -known.step / parts, y)
    first = fma(n, known.lacking / parts, r * known.log)
    if parts > 1:
        head, tail = _of_entry(fma(first * first, polynomial(_SHORT, first), first), shifted.bits())
        return scaled_unless(is_zero, head + tail, shifted.bits() >> 4)
    # What the sum with 1 loses, and the product before, comes in with the smaller terms, so that only the last sum
    # rounds: whole powers of whole numbers are exact.
    total = first + 1.0
    low = fma(n, known.lacking, fma(r, known.log_low, fma(r, known.log, -first)))
    small = fma(first * first, polynomial(form.exponential, first), low)
    return scaled_unless(is_zero, total + ((1.0 - total + first) + small), shifted.bits())


@dataclass(frozen=True)
class _Steps:
    """Of a base; of its reciprocal, whose powers to -y are the same, where the base is below 1."""

    is_below_1: bool
    step: float  # log(2) / log(base), rounded to the format
    log: float  # of the base, rounded too
    log_low: float  # what that lacks
    lacking: float  # what the step has too much, times the logarithm


@functools.cache
def _steps(form: Format, base: float) -> _Steps:
    def nearest(number: Decimal) -> Decimal:
        return Decimal(float(np.float32(number) if form.width == 32 else float(number)))

    with tables.precisely():
        logarithm = Decimal(base).ln()
        size = abs(logarithm)
        step, log = Decimal(2).ln() / size, nearest(size)
        return _Steps(
            is_below_1=logarithm < 0,
            step=float(nearest(step)),
            log=float(log),
            log_low=float(size - log),
            lacking=float((nearest(step) - step) * size),
        )
