"""The gamma function in vectors: factorials, poles, signs, where it leaves the format, and its errors by mpmath."""

from __future__ import annotations

import itertools
import math
from typing import Any

import mpmath
import numpy as np
import pytest
from accuracy import units_off
from cpu_kernels import vectors

from dualbcast import differentiable_broadcast
from dualbcast.codegen import mathlib

INF, NAN = math.inf, math.nan
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])
gamma = differentiable_broadcast(backend="cpu")(lambda x: math.gamma(x))

# Where the way of computing it changes, and where it is infinite or 0 from.
RANGES = {
    np.float32: (-42.0, -30.0, -5.5, -3.5, -0.5, 0.5, 1.5, 2.5, 3.5, 12.0, 35.04),
    np.float64: (-184.0, -170.0, -30.0, -5.5, -0.5, 0.5, 1.5, 2.5, 5.5, 20.0, 100.0, 171.62),
}


def exact(x: Any) -> Any:
    with mpmath.workprec(300):
        return mpmath.gamma(mpmath.mpf(float(x)))


def worst(x: Any) -> float:
    with np.errstate(all="ignore"):
        found = gamma(x)
    with mpmath.workprec(300):
        return max(float(units_off(got, exact(each))) for got, each in zip(found, x, strict=True))


@pytest.mark.skipif(not mathlib.has_fma(), reason="the C library's, whose manual allows 9")
@DTYPES
def test_it_is_off_by_four_units_at_most(dtype: Any) -> None:
    draw, bounds = np.random.default_rng(3), RANGES[dtype]
    for low, high in itertools.pairwise(bounds):
        assert worst(draw.uniform(low, high, 500).astype(dtype)) <= 4
    for bound in (each for each in bounds[:-1] if each > 0 or each % 1):
        near = np.array([bound], dtype)
        neighbours = [near, np.nextafter(near, dtype(INF)), np.nextafter(near, dtype(-INF))]
        assert worst(np.concatenate(neighbours)) <= 4


@pytest.mark.skipif(not mathlib.has_fma(), reason="the C library's, whose manual allows 9")
@DTYPES
def test_near_poles(dtype: Any) -> None:
    info, poles = np.finfo(dtype), np.arange(0, -30, -1.0)
    distances = [2.0**-k for k in (2, 5, 9, 15)]
    x = np.concatenate([(poles + sign * distance).astype(dtype) for distance in distances for sign in (1, -1)])
    assert worst(x) <= 4
    beside = [np.nextafter(poles[1:].astype(dtype), dtype(way)) for way in (INF, -INF)]
    assert worst(np.concatenate(beside)) <= 4
    small = np.exp2(np.arange(info.minexp + 2, -1.0)).astype(dtype)
    assert worst(np.concatenate([small, -small])) <= 4


@DTYPES
def test_factorials_are_exact(dtype: Any) -> None:
    """As long as they are numbers of the format; those that fit into an int32, and Γ(1/2)'s neighbours by doubling."""
    n = np.arange(1, 14)
    wanted = np.array([float(math.factorial(int(k) - 1)) for k in n])
    np.testing.assert_array_equal(gamma(n.astype(dtype)), wanted.astype(dtype))


@DTYPES
def test_special_values_are_those_of_c(dtype: Any) -> None:
    """C's Annex F, in every place of a vector, beside ordinary numbers."""
    tiny = float(np.finfo(dtype).smallest_subnormal)
    points = [0.0, -0.0, INF, -INF, NAN, -1.0, -2.0, -33.0, -1e30, tiny, -tiny, 200.0, 1e30, -200.5, -201.5]
    wanted = [INF, -INF, INF, NAN, NAN, NAN, NAN, NAN, NAN, INF, -INF, INF, INF, -0.0, 0.0]
    x = np.insert(np.array(points, dtype)[:, None], [1] * 4, [3.0, 0.3, -2.3, 7.5], axis=1).ravel()
    with np.errstate(all="ignore"):
        got = gamma(x)[np.isin(np.arange(x.size) % 5, [0])]
    np.testing.assert_array_equal(got, np.array(wanted, dtype))
    numbers = ~np.isnan(got)
    np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(wanted)[numbers])


@DTYPES
def test_where_it_leaves_the_format(dtype: Any) -> None:
    info = np.finfo(dtype)
    last = dtype(35.040096) if dtype == np.float32 else dtype(171.6243769563027)
    x = last + (np.arange(-40, 41) * np.spacing(last)).astype(dtype)
    with np.errstate(all="ignore"):
        got = gamma(x)
    with mpmath.workprec(300):
        largest = mpmath.mpf(float(info.max))
        for value, each in zip(got, x, strict=True):
            ratio = exact(each) / largest
            if abs(ratio - 1) > 8 * float(info.eps) * float(each):
                assert np.isinf(value) == (ratio > 1), each


def test_the_slope_goes_through_vectors() -> None:
    """Γ'(x) = Γ(x) ψ(x), which was computed one element after the other."""
    x = np.concatenate([np.linspace(0.1, 20.0, 60), np.linspace(-6.45, -0.55, 60)])
    assert vectors(gamma.__wrapped__, x)
    value, jacobian = gamma.value_and_jacobian(x)
    with mpmath.workprec(200):
        wanted = [exact(each) * mpmath.digamma(mpmath.mpf(float(each))) for each in x]
    scale = np.maximum(np.abs(value), np.abs(np.array(wanted, float)))
    np.testing.assert_allclose(np.array(jacobian["x"]) / scale, np.array(wanted, float) / scale, atol=1e-13)


@DTYPES
def test_bits_do_not_depend_on_neighbours(dtype: Any) -> None:
    x = np.linspace(-30.3, 34.0, 1001).astype(dtype)
    whole = gamma(x)
    np.testing.assert_array_equal(gamma(x[::-1].copy())[::-1], whole)
    np.testing.assert_array_equal(np.concatenate([gamma(x[:13]), gamma(x[13:])]), whole)
