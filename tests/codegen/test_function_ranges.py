"""Functions of vectors outside their domains and where they are infinite; remainders of huge quotients: C's values."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from accuracy import written

from dualbcast import differentiable_broadcast

INF, NAN = math.inf, math.nan
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])

# Numbers in the domain of each function of one number.
WITHIN = {
    "exp2": (-20.0, 20.0),
    **dict.fromkeys(("log2", "log10"), (1e-3, 50.0)),
    "log1p": (-0.9, 50.0),
    **dict.fromkeys(("asin", "acos", "atanh"), (-0.95, 0.95)),
    "acosh": (1.05, 50.0),
    **dict.fromkeys(("asinh", "erf", "cbrt"), (-5.0, 5.0)),
    **dict.fromkeys(("sinh", "cosh"), (-20.0, 20.0)),
    "tan": (-1.5, 1.5),
}
NAMES = pytest.mark.parametrize("name", WITHIN)
OF_NUMPY = {
    "asin": np.arcsin,
    "acos": np.arccos,
    "atanh": np.arctanh,
    "acosh": np.arccosh,
    "asinh": np.arcsinh,
    "erf": np.vectorize(math.erf),
}


def compiled(name: str) -> Any:
    return differentiable_broadcast(backend="cpu")(written(f"math.{name}", 1))


def edges(dtype: Any) -> Any:
    """Ends of domains and of the format, with their neighbours, and all kinds of special numbers."""
    info = np.finfo(dtype)
    ends = [0.0, 1.0, 2.0, 88.9, 89.4, 89.5, 90.0, 127.9, 128.0, 149.0, 150.0, 151.0, 710.4, 710.5, 711.0]
    ends += [1023.9, 1024.0, 1074.0, 1075.0, 1076.0, 1e30, float(info.max), float(info.tiny), float(info.eps), INF]
    x = np.array([*ends, *(-end for end in ends)], dtype)
    with np.errstate(over="ignore"):
        beside = [np.nextafter(x, dtype(way)) for way in (INF, -INF)]
    return np.concatenate([x, *beside, np.array([NAN, info.smallest_subnormal, -info.smallest_subnormal], dtype)])


@NAMES
@DTYPES
@pytest.mark.parametrize("apart", [False, True])
def test_values_beyond_the_range_are_those_of_numpy(name: str, dtype: Any, apart: bool) -> None:
    x = edges(dtype)
    if apart:  # each alone among ordinary ones
        x = np.insert(x[:, None], [1] * 6, 1.0 if name == "acosh" else 0.5, axis=1).ravel()
    with np.errstate(all="ignore"):
        got, wanted = compiled(name)(x), OF_NUMPY.get(name, getattr(np, name, None))(x.astype(np.longdouble))
        stored = wanted.astype(dtype)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(stored))
    numbers = ~np.isnan(got)
    np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(stored[numbers]))
    # At the last number of the format a rounding decides between it and infinity.
    sure = numbers & ~(np.abs(np.abs(wanted) / float(np.finfo(dtype).max) - 1) < 64 * np.finfo(dtype).eps)
    np.testing.assert_array_equal(np.isinf(got[sure]), np.isinf(stored[sure]))
    finite = sure & np.isfinite(stored)
    np.testing.assert_allclose(
        got[finite], stored[finite], rtol=4 * float(np.finfo(dtype).eps), atol=float(np.finfo(dtype).smallest_subnormal)
    )


@NAMES
@DTYPES
def test_neighbours_change_no_bit(name: str, dtype: Any) -> None:
    x = np.random.default_rng(4).uniform(*WITHIN[name], 1024).astype(dtype)
    function = compiled(name)
    alone = function(x)
    for at, other in itertools.product((0, 5), (INF, -INF, NAN, -3.0, 3000.0)):
        mixed = x.copy()
        mixed[at::8] = other
        keep = np.arange(x.size) % 8 != at
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(function(mixed)[keep], alone[keep])


# --- remainders -------------------------------------------------------------------------------------------------------

remainder = differentiable_broadcast(backend="cpu")(lambda a, b: math.fmod(a, b))


def check_remainders(a: Any, b: Any) -> None:
    with np.errstate(all="ignore"):
        got, wanted = remainder(a, b), np.fmod(a, b)
    np.testing.assert_array_equal(got, wanted)
    numbers = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(wanted[numbers]))


@DTYPES
def test_remainders_of_any_bits_are_exact(dtype: Any) -> None:
    """All exponents, subnormal numbers, infinities and NaN among them."""
    info, draw = np.finfo(dtype), np.random.default_rng(5)
    kind = np.dtype(f"u{info.bits // 8}")
    a, b = (draw.integers(0, 2**info.bits, 20_000, dtype=np.uint64).astype(kind).view(dtype) for _ in range(2))
    check_remainders(a, b)
    small = draw.integers(1, 2**info.nmant, 4000, dtype=np.uint64).astype(kind).view(dtype)
    for others in (a[:4000], small[::-1].copy(), np.full_like(small, info.max)):
        check_remainders(others, small)
        check_remainders(small, others)


@DTYPES
def test_special_remainders(dtype: Any) -> None:
    info = np.finfo(dtype)
    numbers = [0.0, 1.0, 3.0, 1e10, float(info.max), float(info.tiny), float(info.tiny) * 0.75, float(info.eps), INF]
    numbers += [float(info.smallest_subnormal), 2.0 ** (info.nmant - 2), 2.0**info.nmant, 2.0 ** (info.nmant + 1) - 1]
    pairs = list(itertools.product([*numbers, *(-each for each in numbers), NAN], repeat=2))
    a, b = (np.array(column, dtype) for column in zip(*pairs, strict=True))
    check_remainders(a, b)
    # Quotients on both sides of where the steps begin, with remainders that are nearly 0 and nearly the divisor.
    divisor = np.array([3.0, 0.1, 7.7, 1e-3], dtype)
    for power in range(info.nmant - 4, info.nmant + 8):
        multiple = divisor * dtype(2.0**power)
        for a_each in (multiple, np.nextafter(multiple, dtype(0)), np.nextafter(multiple, dtype(INF))):
            check_remainders(a_each, divisor)


@DTYPES
def test_python_remainders_of_huge_quotients(dtype: Any) -> None:
    """`%` and `//`, by whole numbers of any size."""
    a = np.array([1e30, -1e30, 3e25, -7e35, 1.5, 2.0**100, -(2.0**90)], dtype)
    b = np.array([3.0, 7.0, -11.0, 13.0, 4.0, -5.0, 9.0], dtype)
    exact = [int(x) % int(y) if float(x).is_integer() else float(x) % float(y) for x, y in zip(a, b, strict=True)]
    f = differentiable_broadcast(backend="cpu")(lambda x, y: x % y)
    np.testing.assert_array_equal(f(a, b), np.array(exact, dtype))
