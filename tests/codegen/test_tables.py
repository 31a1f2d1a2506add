"""Tables in vector registers, functions with them and without, and powers of bases that are known, against mpmath."""

from __future__ import annotations

import decimal
import itertools
import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from accuracy import units_off
from cpu_kernels import run_afresh, source_of
from suites import sampled

from dualbcast import differentiable_broadcast
from dualbcast.codegen import mathlib
from dualbcast.codegen.mathlib import tables

pytestmark = pytest.mark.skipif(not mathlib.has_fma(), reason="the C library computes all functions")
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])
WITH_TABLES = pytest.mark.parametrize(
    "with_tables",
    [
        False,
        pytest.param(True, marks=pytest.mark.skipif(not tables.available(), reason="no instruction for tables")),
    ],
)
DIGITS = 200

# Of each function what is exact, and how far its values may be off.
FUNCTIONS: dict[str, tuple[Callable[..., Any], float]] = {
    "exp": (mpmath.exp, 1.2),
    "exp2": (lambda x: mpmath.mpf(2) ** x, 1.2),
    "expm1": (mpmath.expm1, 2.6),
    "log": (mpmath.log, 1.0),
    "log2": (lambda x: mpmath.log(x) / mpmath.log(2), 1.1),
    "log10": (lambda x: mpmath.log(x) / mpmath.log(10), 1.2),
    "log1p": (mpmath.log1p, 1.6),
    "sinh": (mpmath.sinh, 2.6),
    "cosh": (mpmath.cosh, 2.0),
    "tanh": (mpmath.tanh, 2.3),
    "erfc": (mpmath.erfc, 3.6),
}


def worst(found: np.ndarray, exact: Callable[..., Any], *arguments: np.ndarray) -> float:
    """The largest error, in units in the last place, of the normal values."""
    info, largest = np.finfo(found.dtype), 0.0
    with mpmath.workprec(DIGITS):
        for value, *given in zip(found, *arguments, strict=True):
            true = exact(*map(mpmath.mpf, map(float, given)))
            if float(info.tiny) <= abs(true) <= float(info.max):
                largest = max(largest, units_off(value, true))
    return largest


def arguments_of(name: str, dtype: Any) -> np.ndarray:
    random = np.random.default_rng(31)
    info = np.finfo(dtype)
    top = math.log(float(info.max))
    # Where another entry of a table is nearest, and where the results are smallest.
    halves = np.arange(-40, 40) / 32 * math.log(2)
    near_zero = np.concatenate([random.uniform(-0.06, 0.06, 400), 10.0 ** random.uniform(-12, -2, 100)])
    if name.startswith("log"):
        ends = np.array([tables.START + k / 32 for k in range(10)] + [1 + k / 48 for k in range(20)])
        x = np.concatenate([1 + near_zero, ends, np.exp(random.uniform(-top, top, 300)), random.uniform(0.5, 2, 500)])
        # Subnormal numbers, too.
        x = np.concatenate([x, random.uniform(0, float(info.tiny), 20)])
        x = x - 1 if name == "log1p" else x
    else:
        x = np.concatenate([near_zero, -near_zero, halves, random.uniform(-3, 3, 300), random.uniform(-top, top, 300)])
    around = x.astype(dtype)
    return np.concatenate([around, np.nextafter(around, dtype(9))])


@WITH_TABLES
@DTYPES
@pytest.mark.parametrize("name", sampled(FUNCTIONS, 2))
def test_functions_are_as_accurate_with_tables_as_without(
    name: str, dtype: Any, with_tables: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "available", lambda: with_tables)
    exact, limit = FUNCTIONS[name]
    x = arguments_of(name, dtype)
    kind = np.dtype(dtype).name
    source = source_of(f"out[k] = {name}(x[k])", kind, {"x": kind}, {"out": kind}, vectors=2)
    (found,), asm = run_afresh(source, x)
    assert ("vpermt2pd" in asm or "vpermi2pd" in asm) == (with_tables and dtype is np.float64)
    assert worst(found, exact, x) <= limit


@WITH_TABLES
@DTYPES
def test_powers_are_as_accurate_with_tables_as_without(
    dtype: Any, with_tables: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "available", lambda: with_tables)
    random, top = np.random.default_rng(32), math.log(float(np.finfo(dtype).max))
    ends = np.array([tables.START + k / 32 for k in range(10)] + [1 + k / 48 for k in range(20)])
    x = np.concatenate(
        [np.exp(random.uniform(-top, top, 400)), random.uniform(0.5, 2, 600), np.repeat(ends, 10), 1 + ends * 1e-3]
    )
    x = np.concatenate([x, np.nextafter(x, 9)]).astype(dtype)
    # Results of all sizes, which magnify an error of the logarithm.
    y = (random.uniform(-1, 1, x.size) * top / np.maximum(np.abs(np.log(x.astype(np.float64))), 1e-6)).astype(dtype)
    kind = np.dtype(dtype).name
    source = source_of("out[k] = pow(x[k], y[k])", kind, {"x": kind, "y": kind}, {"out": kind}, vectors=2)
    (found,), _ = run_afresh(source, x, y)
    assert worst(found, mpmath.power, x, y) <= (0.85 if with_tables or dtype is np.float32 else 1.3)


BASES = [10.0, 0.5, 4.0, 1.04, 0.9, 3.7, 7.0, 1e-5, 1e30]


def powers_of(base: float) -> Any:
    """The powers of a base that is a constant of the kernel."""
    return differentiable_broadcast(backend="cpu")(lambda x: base**x)


@DTYPES
@pytest.mark.parametrize("base", BASES)
def test_powers_of_a_known_base(base: float, dtype: Any) -> None:
    """float32 takes the base in its own precision, as it takes all constants."""
    power = powers_of(base)
    random, rounded = np.random.default_rng(33), float(dtype(base))
    top = math.log(float(np.finfo(dtype).max)) / abs(math.log(rounded))
    x = np.concatenate([random.uniform(-top, top, 500), random.uniform(-1, 1, 300), np.arange(-20, 20)]).astype(dtype)
    value, jacobian = power.value_and_jacobian(x)
    assert worst(value, lambda y: mpmath.mpf(rounded) ** y, x) <= 0.85
    slope = np.asarray(jacobian[0])
    # The logarithm of the base as the program has it.
    assert worst(slope, lambda y: mpmath.mpf(rounded) ** y * mpmath.log(base), x) <= 2.5
    special = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1.1 * top, -1.1 * top, 1e30, -1e30], dtype)
    with np.errstate(all="ignore"):
        expected = np.power(dtype(base), special)
    np.testing.assert_allclose(power(special), expected, rtol=8 * float(np.finfo(dtype).eps))


@DTYPES
@pytest.mark.parametrize("base", [10.0, 3.0, 7.0, 0.5, 2.0, 6.0])
def test_whole_powers_of_a_known_base_are_exact_where_the_format_has_them(base: float, dtype: Any) -> None:
    powers = [int(base) ** n for n in range(60)] if base > 1 else [2.0**-n for n in range(60)]
    with np.errstate(over="ignore"):
        exact = [(n, p) for n, p in enumerate(powers) if float(dtype(float(p))) == p]
    n = np.array([n for n, _ in exact], dtype)
    np.testing.assert_array_equal(powers_of(base)(n), np.array([float(p) for _, p in exact], dtype))


def test_a_known_base_behind_a_guard_and_for_a_single_number() -> None:
    x = np.linspace(-3, 3, 1001)
    guarded = differentiable_broadcast(backend="cpu")(
        lambda x: 10.0**x + 10.0 ** (x * 0.7) + 10.0 ** (x * 0.3) if x > 0.0 else 0.25 * x
    )
    expected = np.where(x > 0, 10.0**x + 10.0 ** (x * 0.7) + 10.0 ** (x * 0.3), 0.25 * x)
    np.testing.assert_allclose(guarded(x), expected, rtol=1e-15)
    many = differentiable_broadcast(backend="cpu")(lambda x, y: 10.0**x + math.log(x) ** 2 + x**2.5 + 0 * y)
    a = np.abs(x[:700]) + 0.1
    alone = np.concatenate([many(a[k : k + 1], np.zeros(1)) for k in range(a.size)])
    uniform = np.array([many(float(value), np.zeros(40))[7] for value in a[:50]])
    np.testing.assert_array_equal(many(a, np.zeros(a.size)), alone)
    np.testing.assert_array_equal(uniform, alone[:50])


@DTYPES
def test_bases_that_have_no_logarithm_keep_their_powers(dtype: Any) -> None:
    n = np.array([0.0, 1.0, 2.0, -1.0, 0.5, np.inf, -np.inf, np.nan], dtype)
    for base in (1.0, 0.0, -2.0, -0.5, 5e-324, 1e-310, np.inf):
        with np.errstate(all="ignore"):
            expected = np.power(dtype(base), n)
        np.testing.assert_allclose(powers_of(base)(n), expected, rtol=8 * float(np.finfo(dtype).eps))


def test_tables_have_what_they_say() -> None:
    for made in (tables.roots_of_two, tables.cells, tables.short_step):
        made.cache_clear()
    # A program may have made decimal numbers short, and their roundings errors.
    with decimal.localcontext(decimal.Context(prec=3, traps=[decimal.Inexact])), mpmath.workprec(DIGITS):
        for k, (root, lacking) in enumerate(zip(*tables.roots_of_two(), strict=True)):
            assert abs(mpmath.mpf(root) + lacking - mpmath.mpf(2) ** (mpmath.mpf(k) / 16)) < 2**-104
        bits = np.arange(17, dtype=np.int64) << 48
        ends = (np.float64(tables.START).view(np.int64) + bits).view(np.float64)
        for base, unit in ((1, 1), (2, mpmath.log(2)), (10, mpmath.log(10))):
            rows = zip(*tables.cells(base), itertools.pairwise(ends), strict=True)
            for reciprocal, logarithm, lacking, (low, high) in rows:
                assert abs(low * reciprocal - 1) < 0.0326
                assert abs(high * reciprocal - 1) < 0.0326
                assert (logarithm * 2**42).is_integer()
                assert abs(mpmath.mpf(logarithm) + lacking + mpmath.log(reciprocal) / unit) < 2**-90
                assert (reciprocal == 1.0 and logarithm == lacking == 0.0) == (low < 1.0 < high)
            step, step_low = tables.short_step(base)
            assert abs(mpmath.mpf(step) + step_low - mpmath.log(2) / unit) < 2**-90
