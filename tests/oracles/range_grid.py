"""Holds functions against exact results over the whole range of a format: where to look, and how far off is too far.

The unit is that of the last place of the exact result, and below the smallest normal number that of all of them. What
is beyond the format counts as the power of two beyond, so a result may only overflow where the exact one nearly does.
`python tests/oracles/range_grid.py` runs all of it.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from typing import Any

import mpmath as mp
import numpy as np
from range_ends import exact
from range_exceptions import Exceptional, Found, allowed
from range_oracles import ANY, FORMS, PRECISION, Form

from dualbcast import differentiable_broadcast

__all__ = ["BOUNDS", "DTYPES", "RESULTS", "Exact", "Grid", "Wrong", "all_forms", "compare", "points", "units_off"]

DTYPES = ("float32", "float64", "float16")
RESULTS = {1: ("value", "x", "xx"), 2: ("value", "x", "y", "xx", "xy", "yy")}
# Units in the last place, of the value, the slopes and the curvatures. float16 is computed in float32 and rounded once.
BOUNDS = {"float32": (4.0, 10.0, 20.0), "float64": (4.0, 10.0, 20.0), "float16": (1.0, 1.0, 1.0)}
inf, nan = math.inf, math.nan


# --- where to look -------------------------------------------------------------------------------------------------


def points(form: Form, dtype: str) -> list[np.ndarray]:
    """The arguments: all exponents with both signs, zeros, infinities, NaN, subnormal numbers, and what is special."""
    info = np.finfo(dtype)
    if form.arity == 1:
        return [_line(form, dtype, 1)]
    step = max(1, (info.maxexp - info.minexp) // 22)
    one = _line(form, dtype, step)
    special = _special(form, dtype)
    pairs = [(a, b) for a, b in product(one, one)]
    some = np.array([*special, *one[:: max(1, one.size // 24)]], dtype)
    with np.errstate(all="ignore"):
        beside = (some, -some, np.nextafter(some, np.array(inf, dtype)), some * (1 + 2 * info.eps), some * info.eps)
    for other in beside:
        pairs += [*zip(some, other, strict=True), *zip(other, some, strict=True)]
    pairs += list(product(special, special))
    for scale in (1.0, 30.0, 1000.0):
        draw = np.random.default_rng(int(scale))
        pairs += list(draw.normal(0, scale, (150, 2)).astype(dtype))
        pairs += list(np.abs(draw.normal(0, scale, (50, 2))).astype(dtype))
    arrays = [np.array(column, dtype) for column in zip(*pairs, strict=True)]
    for position in form.whole:
        span = 1.2 * (info.maxexp - info.minexp + info.nmant)  # from below the least number to above the largest
        arrays[position] = np.random.default_rng(0).integers(-span, span, arrays[0].size)
    return arrays


def _line(form: Form, dtype: str, step: int) -> np.ndarray:
    info = np.finfo(dtype)
    if dtype == "float16" and step == 1:
        return np.arange(0, 1 << 16, 23, dtype=np.uint16).view(np.float16)
    exponents = np.arange(info.minexp - info.nmant, info.maxexp, step)
    draw = np.random.default_rng(int(exponents.size))
    with np.errstate(all="ignore"):
        mantissas = np.concatenate([np.ones(exponents.size), draw.uniform(1, 2, exponents.size)])
        sizes = np.ldexp(mantissas, np.concatenate([exponents, exponents])).astype(dtype)
    if step == 1:
        ordinary = [draw.normal(0, scale, 200) for scale in (1.0, 30.0, 300.0)]
        near = np.concatenate([_special(form, dtype), *(part.astype(dtype) for part in ordinary)])
    else:
        near = np.array([0.0, inf, nan, info.max, 1.0], dtype)
    return np.concatenate([sizes, near, -sizes, -near])


def _special(form: Form, dtype: str) -> np.ndarray:
    info = np.finfo(dtype)
    found = [0.0, inf, nan, info.max, info.tiny, info.smallest_subnormal, 1.0]
    for place in form.near:
        at = np.array([place], dtype)
        if not np.isfinite(at[0]):  # beyond float16
            continue
        for away in (0.0, *(2.0**-k for k in range(2, info.nmant, 5))):
            found += [at[0] * (1 + away), at[0] * (1 - away)]
        found += [*np.nextafter(at, np.array([inf, -inf], dtype))]
    return np.array(found, dtype)


# --- what is found there -------------------------------------------------------------------------------------------


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="dualbcast-range-")


def scalar_function(form: Form) -> Callable[..., Any]:
    """The form as a user would write it."""
    arguments = ", ".join("xy"[: form.arity])
    modules = "import math\nimport dualbcast.special\nimport numpy\nimport scipy.special\n"
    text = f"{modules}\ndef of({arguments}):\n    return {form.text}\n"
    path = os.path.join(_folder().name, f"form_{list(FORMS).index(form.name)}.py")  # the compiler reads it back
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    namespace: dict[str, Any] = {}
    exec(compile(text, path, "exec"), namespace)
    return namespace["of"]  # type: ignore[no-any-return]


def measured(form: Form, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What one kernel gives for the value, the slopes and the curvatures."""
    function: Any = differentiable_broadcast(scalar_function(form))
    value, jacobian, hessian = function.value_jacobian_and_hessian(*arrays)
    found = [value]
    names = ["xy"[position] for position in range(form.arity) if position not in form.whole]
    for result in RESULTS[form.arity][1:]:
        if any(name not in names for name in result):
            block = np.zeros((), value.dtype)
        else:
            block = jacobian[result] if len(result) == 1 else hessian[result[0], result[1]]
        found.append(np.broadcast_to(np.asarray(block, value.dtype), value.shape))
    return found


# --- how far off it is ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wrong:
    """A result that is off by more than its bound."""

    form: str
    dtype: str
    result: str
    point: tuple[float, ...]
    got: float
    exact: float
    units: float

    def __str__(self) -> str:
        at = ", ".join(f"{x!r}" for x in self.point)
        of = "value" if self.result == "value" else f"derivative in {self.result}"
        return f"{self.dtype} {of} of {self.form} at {at}: {self.got!r}, not {self.exact!r}; {self.units:.3g} units off"


@dataclass
class Exact:
    """Exact results at some points, as (high + low) * 2**exponent, and where one is promised and has a signed zero."""

    high: np.ndarray
    low: np.ndarray
    exponent: np.ndarray
    known: np.ndarray
    signed: np.ndarray

    @classmethod
    def of(cls, numbers: Sequence[Any]) -> Exact:
        size = len(numbers)
        self = cls(np.zeros(size), np.zeros(size), np.zeros(size, np.int64), np.ones(size, bool), np.zeros(size, bool))
        with mp.workprec(PRECISION):
            for at, number in enumerate(numbers):
                if number is ANY:
                    self.known[at] = False
                elif isinstance(number, float):  # a convention, which has a signed zero
                    self.high[at], self.signed[at] = number, number == 0
                elif not mp.isfinite(number):
                    self.high[at] = float(number)
                elif number != 0:
                    mantissa, exponent = mp.frexp(number)
                    self.high[at] = float(mantissa)
                    self.low[at] = float(mantissa - mp.mpf(self.high[at]))
                    self.exponent[at] = max(min(exponent, 5000), -5000)
        return self

    def rounded(self) -> np.ndarray:
        with np.errstate(all="ignore"):
            return np.ldexp(self.high, self.exponent)


def units_off(got: np.ndarray, wanted: Exact) -> np.ndarray:
    """The errors in units of the last place of what is wanted."""
    info = np.finfo(got.dtype)
    with np.errstate(all="ignore"):
        finite = np.isfinite(wanted.high)
        high, low, exponent = (np.where(finite, part, 0) for part in (wanted.high, wanted.low, wanted.exponent))
        # frexp's mantissas begin at 1/2.
        beyond = finite & (np.ldexp(high, exponent - info.maxexp) * np.sign(high) >= 1)
        high = np.where(beyond, np.sign(high) * 0.5, high)
        low = np.where(beyond, 0.0, low)
        exponent = np.where(beyond, info.maxexp + 1, exponent)
        _, shift = np.frexp(high)
        unit = np.maximum(exponent + shift - 1, info.minexp) - info.nmant
        unit = np.where(high == 0, info.minexp - info.nmant, np.minimum(unit, info.maxexp - 1 - info.nmant))
        wide = got.astype(np.float64)
        # A double of its own exponent may not hold 2 ** 1024.
        scaled = np.where(
            np.isinf(wide), np.sign(wide) * np.exp2(info.maxexp - unit.astype(np.float64)), np.ldexp(wide, -unit)
        )
        off = np.abs(scaled - np.ldexp(high, exponent - unit) - np.ldexp(low, exponent - unit))
    off = np.where(finite, off, np.where(wide == wanted.high, 0.0, inf))
    off = np.where(np.isnan(wanted.high), np.where(np.isnan(wide), 0.0, inf), off)
    off = np.where(np.isnan(wide) & ~np.isnan(wanted.high), inf, off)
    return np.where(wanted.known, off, 0.0)


@dataclass
class Grid:
    """What was compared, and what is wrong."""

    forms: int = 0
    points: int = 0
    compared: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("value", "first", "second"), 0))
    outside: int = 0
    excepted: Counter[Exceptional] = field(default_factory=Counter)

    def add(self, other: Grid) -> None:
        self.forms += other.forms
        self.points += other.points
        self.outside += other.outside
        self.excepted.update(other.excepted)
        for order, count in other.compared.items():
            self.compared[order] += count

    def __str__(self) -> str:
        counts = ", ".join(f"{count:,} {order}" for order, count in self.compared.items())
        return (
            f"{self.forms} forms and dtypes, {self.points:,} points; compared: {counts}; "
            f"outside their bounds: {self.outside:,}, and by documented exceptions {self.excepted.total():,}"
        )


@cache
def _exact_results(name: str, dtype: str, chosen: tuple[int, ...] | None) -> tuple[list[np.ndarray], list[Exact]]:
    form = FORMS[name]
    arrays = points(form, dtype)
    if chosen is not None:
        arrays = [array[np.array(chosen) % array.size] for array in arrays]
    rows = [exact(form, tuple(float(x) for x in point)) for point in zip(*arrays, strict=True)]
    return arrays, [Exact.of(column) for column in zip(*rows, strict=True)]


def compare(name: str, dtype: str, chosen: Sequence[int] | None = None) -> tuple[Grid, list[Wrong]]:
    """Hold one form against the exact results, at all points or at those `chosen` of them."""
    form = FORMS[name]
    arrays, wanted = _exact_results(name, dtype, None if chosen is None else tuple(chosen))
    found = measured(form, arrays)
    grid, wrong = Grid(forms=1, points=arrays[0].size), []
    arguments = [array.astype(np.float64) for array in arrays]
    exact = {result: part.rounded() for result, part in zip(RESULTS[form.arity], wanted, strict=True)}
    for got, due, result in zip(found, wanted, RESULTS[form.arity], strict=True):
        order = 0 if result == "value" else len(result)
        off = units_off(got, due)
        if result == "value":  # the zeros of conventions have a sign, and are floats; a limit may be either
            off = np.where(due.signed & (got == 0) & (np.signbit(got) != np.signbit(due.high)), inf, off)
        grid.compared[("value", "first", "second")[order]] += int(due.known.sum())
        outside = off > BOUNDS[dtype][order]
        if outside.any():
            with np.errstate(all="ignore"):
                error = np.abs(got.astype(np.float64) - exact[result])
            error = np.where(np.isfinite(off) & (error == error), error, inf)
            for row, allows in allowed(Found(name, result, arguments, error, exact, got.dtype)):
                grid.excepted[row] += int((outside & allows).sum())
                outside &= ~allows
        grid.outside += int(outside.sum())
        for at in np.flatnonzero(outside):
            point = tuple(float(array[at]) for array in arrays)
            wrong.append(Wrong(name, dtype, result, point, float(got[at]), float(exact[result][at]), float(off[at])))
    return grid, wrong


def all_forms(dtypes: Sequence[str] = DTYPES) -> Iterator[tuple[str, str]]:
    """What the grid is of: every form in float32 and float64, those of one argument in float16 too."""
    for dtype in dtypes:
        for name, form in FORMS.items():
            if dtype != "float16" or form.arity == 1:
                yield name, dtype


def main(dtypes: Sequence[str]) -> Grid:
    """Run the whole grid, and print what is wrong and the counts."""
    np.seterr(all="ignore")
    total = Grid()
    for name, dtype in all_forms(dtypes or DTYPES):
        grid, wrong = compare(name, dtype)
        total.add(grid)
        for each in wrong[:20]:
            print(each, flush=True)
    print(total)
    for row, count in total.excepted.items():
        print(f"{count:8,} {', '.join(row.forms)}: {row.where}")
    return total


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1:]).outside else 0)
