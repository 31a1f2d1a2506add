"""Tables of 16 float64 in two vector registers of AVX-512, from which one instruction takes what each element needs."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from contextlib import AbstractContextManager
from decimal import Context, Decimal, localcontext

from llvmlite import ir

from dualbcast.codegen.llvm import target
from dualbcast.codegen.mathlib.formats import format_of
from dualbcast.codegen.mathlib.primitives import in_halves
from dualbcast.codegen.values import INDEX, TYPES, Lanes, Value, declared

SIZE = 16
_LANES = 8
_VECTOR, _PLACES = Lanes(TYPES["float64"], _LANES), Lanes(INDEX, _LANES)


def available() -> bool:
    """Whether the host has the instruction, so that functions look up numbers where they compute in float64."""
    return "avx512f" in target.features()


def serve(x: Value) -> bool:
    """Whether functions of this number look up tables."""
    return format_of(x).width == 64 and available()


def entry(table: Sequence[float], place: Value) -> Value:
    """The numbers of a table at places, of which only the last four bits count."""
    lanes = place.lanes
    if lanes > _LANES:
        return in_halves(functools.partial(entry, table), place)
    if not lanes:
        return entry(table, place.splat(_LANES)).lane(0)
    if lanes < _LANES:
        longer = place.shuffle(place, [k % lanes for k in range(_LANES)])
        found = entry(table, longer)
        return found.shuffle(found, range(lanes))
    kinds = _VECTOR, _PLACES, _VECTOR
    permute = declared(place.builder.module, "llvm.x86.avx512.vpermi2var.pd.512", _VECTOR, kinds)
    numbers = [ir.Constant(TYPES["float64"], number) for number in table]
    low, high = ir.Constant(_VECTOR, numbers[:_LANES]), ir.Constant(_VECTOR, numbers[_LANES:])
    return Value(place.builder, place.builder.call(permute, [low, place.value, high]))


def precisely() -> AbstractContextManager[Context]:
    """Within it decimal numbers have 60 digits, whatever the program around has set."""
    return localcontext(Context(prec=60))


@functools.cache
def roots_of_two() -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The powers of 2**(1/16), and what each lacks."""
    with precisely():
        exact = [Decimal(2) ** (Decimal(k) / SIZE) for k in range(SIZE)]
        roots = tuple(map(float, exact))
        return roots, tuple(float(e - Decimal(root)) for e, root in zip(exact, roots, strict=True))


# The intervals of `cells` begin here: 1 is in the tenth, as far from its ends on both sides.
START = 67 / 96
_CENTRE = 9


@functools.cache
def cells(base: int) -> tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]:
    """For 16 intervals from `START` to twice that: a number that is about the reciprocal of what is in its middle, the
    negative logarithm of that to a base, in few digits, and what that lacks. The base 1 stands for e."""
    ends = [START + k / 32 if k <= _CENTRE else 2 * START - (SIZE - k) / 16 for k in range(SIZE + 1)]
    # Beside the centre the logarithm is small, and a number times one of 6 bits is exact when 1 is subtracted.
    scales = [1 if k == _CENTRE else 64 if abs(k - _CENTRE) == 1 else 256 for k in range(SIZE)]
    reciprocals = [
        round(2 * scale / (low + high)) / scale
        for scale, (low, high) in zip(scales, itertools.pairwise(ends), strict=True)
    ]
    with precisely():
        unit = Decimal(base).ln() if base > 1 else Decimal(1)
        pairs = [_in_few_digits(-Decimal(r).ln() / unit) for r in reciprocals]
    return tuple(reciprocals), tuple(high for high, _ in pairs), tuple(low for _, low in pairs)


@functools.cache
def short_step(base: int) -> tuple[float, float]:
    """log(2) to a base, in few digits, and what that lacks. The base 1 stands for e."""
    with precisely():
        return _in_few_digits(Decimal(2).ln() / (Decimal(base).ln() if base > 1 else Decimal(1)))


def _in_few_digits(number: Decimal) -> tuple[float, float]:
    """The nearest multiple of 2**-42, and what that lacks."""
    high = float(round(number * 2**42)) / 2**42
    return high, float(number - Decimal(high))
