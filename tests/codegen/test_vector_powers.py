"""Powers of zero, negative, subnormal and infinite numbers beside others in a vector: those of C's pow, to the bit."""

from __future__ import annotations

import ctypes
import itertools
import math
import re
from typing import Any

import mpmath
import numpy as np
import pytest
from accuracy import units_off

from dualbcast import differentiable_broadcast
from dualbcast.codegen import mathlib

INF, NAN = math.inf, math.nan
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])
power = differentiable_broadcast(backend="cpu")(lambda x, y: x**y)


def c_pow(x: Any, y: Any) -> Any:
    """The C library's, for numbers of one dtype."""
    kind = ctypes.c_float if x.dtype == np.float32 else ctypes.c_double
    function = ctypes.CDLL("libm.so.6")["powf" if x.dtype == np.float32 else "pow"]
    function.argtypes, function.restype = [kind, kind], kind
    pairs = zip(x.ravel().tolist(), y.ravel().tolist(), strict=True)
    return np.array([function(a, b) for a, b in pairs], x.dtype).reshape(x.shape)


def special(dtype: Any) -> tuple[Any, Any]:
    """All pairs of numbers that have a row of their own in IEEE 754's table, and of their neighbours."""
    info = np.finfo(dtype)
    huge, tiny, small = float(info.max), float(info.smallest_subnormal), float(info.tiny)
    whole = 2.0**info.nmant  # above this all numbers are whole, and above twice this all are even
    sizes = [0.0, tiny, small / 2, small, 0.3, 1 - float(info.epsneg), 1.0, 1 + float(info.eps), 2.0, 7.0, huge, INF]
    bases = [*sizes, *(-size for size in sizes), NAN]
    powers = [0.0, tiny, 0.5, 1.0, 1.5, 2.0, 3.0, whole - 1, whole, whole + 1, 2 * whole - 1, 2 * whole, huge, INF]
    pairs = list(itertools.product(bases, [*powers, *(-each for each in powers), NAN]))
    x, y = (np.array(column, dtype) for column in zip(*pairs, strict=True))
    return x, y


def is_exact(x: Any, y: Any, result: Any) -> Any:
    """Where the table gives the power, or it is beyond the format: all but roundings."""
    known = (x == 0) | np.isinf(x) | np.isnan(x) | (y == 0) | np.isinf(y) | np.isnan(y) | (np.abs(x) == 1)
    return known | (result == 0) | np.isinf(result) | np.isnan(result)


@DTYPES
@pytest.mark.parametrize("beside", ["special", "ordinary"])
def test_special_powers_are_those_of_c(dtype: Any, beside: str) -> None:
    x, y = special(dtype)
    if beside == "ordinary":  # each alone among ordinary ones
        x, y = (
            np.stack([each, *[np.full_like(each, fill)] * 6], axis=1).ravel() for each, fill in ((x, 1.7), (y, 2.3))
        )
    with np.errstate(all="ignore"):
        got, wanted = power(x, y), c_pow(x, y)
    assert got.dtype == dtype
    exact = is_exact(x, y, wanted)
    np.testing.assert_array_equal(got[exact], wanted[exact])
    numbers = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(wanted[numbers]))
    # Subnormal powers are rounded to few digits; the rest to a unit in the last place.
    rounded = ~exact
    with np.errstate(over="ignore"):  # NumPy's spacing of the largest number
        units = np.abs(got[rounded] - wanted[rounded]) / np.spacing(np.abs(wanted[rounded]))
    assert units.max() <= 1
    assert exact.sum() > 500


@DTYPES
def test_powers_of_positive_numbers_keep_their_bits(dtype: Any) -> None:
    """Whatever else is in the vector; and negative bases have the same, with a sign."""
    draw = np.random.default_rng(1)
    x = np.exp2(draw.uniform(-40, 40, 4096)).astype(dtype)
    y = draw.uniform(-2, 2, 4096).astype(dtype)
    alone = power(x, y)
    for at, other in itertools.product((0, 3, 7), (0.0, -1.5, INF, NAN)):
        mixed = x.copy()
        mixed[at::8] = other
        keep = np.arange(x.size) % 8 != at
        np.testing.assert_array_equal(power(mixed, y)[keep], alone[keep])
    for n in (3.0, 4.0, -5.0):
        exponent, sign = np.full(x.size, n, dtype), -1.0 if n % 2 else 1.0
        np.testing.assert_array_equal(power(-x, exponent), sign * power(x, exponent))
    assert np.isnan(power(-x, y + dtype(0.25) * (y == np.trunc(y)))).all()


@DTYPES
def test_where_powers_leave_the_format(dtype: Any) -> None:
    """Around the largest and the smallest number the answer for infinite powers and zeros does not come too early."""
    info = np.finfo(dtype)
    draw = np.random.default_rng(2)
    base = np.exp2(draw.uniform(-3, 3, 4096)).astype(dtype)
    for bound in (info.maxexp, info.minexp, info.minexp - info.nmant - 1):
        exponent = (bound + draw.uniform(-3, 3, base.size)) / np.log2(base.astype(np.float64))
        y = exponent.astype(dtype)
        with np.errstate(all="ignore"):
            got, wanted = power(base, y), c_pow(base, y)
        np.testing.assert_array_equal(np.isinf(got), np.isinf(wanted))
        np.testing.assert_allclose(got, wanted, rtol=2 * float(info.eps), atol=float(info.smallest_subnormal))


@DTYPES
def test_slopes_at_special_bases(dtype: Any) -> None:
    """p * x**(p - 1), by C's pow."""
    x = np.array([0.0, -0.0, -2.5, -1.0, 3.0, 1.5, 0.25, -7.0] * 4, dtype)
    p = np.repeat(np.array([2.0, 3.0, -3.0, 1.0], dtype), 8)
    value, jacobian = power.value_and_jacobian(x, p)
    np.testing.assert_allclose(value, c_pow(x, p), rtol=2 * float(np.finfo(dtype).eps))
    np.testing.assert_allclose(jacobian["x"], p * c_pow(x, p - 1), rtol=4 * float(np.finfo(dtype).eps))


@DTYPES
def test_slopes_where_the_power_leaves_the_format(dtype: Any) -> None:
    """p * x**(p - 1), where x**p is infinite, 0 or subnormal, and the slope is an ordinary number."""
    last = np.finfo(dtype).maxexp
    exponents = np.array([last - 1, last // 2 + 8, -last + 8, -last // 2 - 8, -last // 2 - last // 4, 3], np.int32)
    x = np.ldexp(dtype(1.5), np.tile(exponents, 4)).astype(dtype)
    for p in (2.0, 1.25):
        slope = power.value_and_jacobian(x, np.full_like(x, p), wrt="x")[1]["x"]
        with np.errstate(all="ignore"):
            wanted = (p * x.astype(np.longdouble) ** (p - 1.0)).astype(dtype)
        np.testing.assert_allclose(slope, wanted, rtol=4 * float(np.finfo(dtype).eps))
        assert np.all(slope > 0)


@pytest.mark.parametrize("thirds", [-2, -1, 1, 2, 4, 5])
@DTYPES
def test_thirds_are_the_powers_that_they_are(dtype: Any, thirds: int) -> None:
    """Not roots: what an exponent such as 2 / 3 loses when it is rounded counts where the logarithm is large."""
    function = differentiable_broadcast(backend="cpu")(lambda x: x ** (thirds / 3))
    random, info, y = np.random.default_rng(9), np.finfo(dtype), float(dtype(thirds / 3))
    reach = math.log10(float(info.max))
    x = np.concatenate([random.uniform(0.1, 30, 900), 10 ** random.uniform(-reach, reach, 900)])
    x = np.concatenate([x, np.arange(1, 30) ** 3.0, 2.0 ** np.arange(-20, 20)]).astype(dtype)
    with np.errstate(over="ignore", under="ignore"):
        value, jacobian = function.value_and_jacobian(x)
        slope = np.asarray(jacobian[0])
    for found, factor, less, units in ((value, 1.0, 0, 2.5), (slope, y, 1, 4.0)):
        with mpmath.workprec(200):
            exact = [factor * mpmath.mpf(float(each)) ** (mpmath.mpf(y) - less) for each in x]
            # A partial is a product with the exponent, which comes last.
            kept = [k for k, each in enumerate(exact) if 4 * info.tiny < abs(each) < float(info.max) / 4]
            assert max(units_off(found[k], exact[k]) for k in kept) <= units
            assert len(kept) > 1000
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -8.0, 1.0, info.smallest_subnormal, info.max], dtype)
    for beside in (special, np.repeat(special, 16)):
        with np.errstate(all="ignore"):
            expected = np.power(beside.astype(np.float64), y).astype(dtype)
        np.testing.assert_allclose(function(beside), expected, rtol=4 * float(info.eps))


@pytest.mark.skipif(not mathlib.has_fma(), reason="needs fused multiply-add")
@DTYPES
def test_a_power_calls_one_function_and_that_rarely(dtype: Any) -> None:
    text = power.inspect_llvm(np.ones(64, dtype), np.ones(64, dtype))
    others = text[text.index("define linkonce_odr") :] if "define linkonce_odr" in text else ""
    assert "dualbcast_pow_of_any" in others
    assert "cold" in text


@pytest.mark.skipif(not mathlib.has_fma(), reason="the C library computes them")
@pytest.mark.parametrize(
    ("function", "alone"),
    [
        (lambda x, y: x**y * math.log(x) + x ** (y + 1.0), lambda x, y: x**y),
        (lambda x, y: math.sin(x) + math.cos(x) + y, lambda x, y: math.sin(x) + y),
        (lambda x, y: math.sinh(x) + math.cosh(x) + y, lambda x, y: math.sinh(x) + y),
        (lambda x, y: math.exp(x) + math.expm1(x) + y, lambda x, y: math.expm1(x) + y),
    ],
    ids=["powers and a logarithm", "sine and cosine", "sinh and cosh", "exponentials"],
)
def test_what_functions_of_one_number_have_in_common_is_computed_once(function: Any, alone: Any) -> None:
    def reductions(of: Any) -> int:
        code = differentiable_broadcast(backend="cpu")(of).inspect_llvm("float64", "float64", product="value")
        whole = next(part for part in code.split("\ndefine ") if "dualbcast_whole" in part.partition("{")[0])
        # The shift that leaves the exponent of a power's base, and the multiples of 2 / pi and of 1 or 16 / log(2).
        marks = r" lshr .*\(i64 52\)", "0x3FE45F306DC9C883", "0x3FF71547652B82FE|0x40371547652B82FE"
        return sum(len(re.findall(mark, whole)) for mark in marks)

    assert reductions(function) == reductions(alone) > 0
