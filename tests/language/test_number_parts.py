"""Numbers taken apart, compared, and cast: against Python's and NumPy's own, at awkward values and on both backends."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dualbcast import differentiable_broadcast

BACKENDS = pytest.mark.parametrize("backend", ["python", "cpu"])
DTYPES = pytest.mark.parametrize("dtype", ["float64", "float32"])


def numbers(dtype: str) -> np.ndarray[Any, Any]:
    """Powers of two and their neighbours over the dtype's range, subnormal numbers, zeros and what is not finite."""
    low, high = {"float64": (-1074, 1023), "float32": (-149, 127)}[dtype]
    exponents = np.unique(np.concatenate([np.arange(-70, 70), np.linspace(low, high, 41).astype(int)]))
    powers = np.array([math.ldexp(1.0, int(e)) for e in exponents]).astype(dtype)
    near = [np.nextafter(powers, np.array(toward, dtype)) for toward in (0, np.inf)]
    special = np.array([0.0, -0.0, np.inf, np.nan, 0.5, 2.5, 3.0, 1e-3, 7.75], dtype)
    found = np.concatenate([powers, *near, special])
    return np.concatenate([found, -found])


@BACKENDS
@DTYPES
def test_frexp(backend: Any, dtype: str) -> None:
    x = numbers(dtype)
    # Where subnormal numbers are in play exp2 of a large exponent leaves the range on the way.
    x = x[(np.abs(x) >= np.finfo(dtype).tiny) | (x == 0) | np.isnan(x)]
    parts = differentiable_broadcast(backend=backend)(lambda x: math.frexp(x))
    (mantissa, exponent), jacobian = parts.value_and_jacobian(x)
    wanted, power = np.frexp(x)
    finite = np.isfinite(x)
    np.testing.assert_array_equal(mantissa, wanted)
    np.testing.assert_array_equal(exponent[finite], power[finite])
    slopes = np.ldexp(np.ones_like(x), -power)[finite & (x != 0) & (power < 100)]
    np.testing.assert_array_equal(jacobian[0, "x"][finite & (x != 0) & (power < 100)], slopes)
    np.testing.assert_array_equal(jacobian[1, "x"], 0)


@BACKENDS
@DTYPES
def test_modf(backend: Any, dtype: str) -> None:
    x = numbers(dtype)
    parts = differentiable_broadcast(backend=backend)(lambda x: np.modf(x))
    (rest, whole), jacobian = parts.value_and_jacobian(x)
    for found, wanted in zip((rest, whole), np.modf(x), strict=True):
        np.testing.assert_array_equal(found, wanted)
        np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted))
    finite = np.isfinite(x)
    np.testing.assert_array_equal(jacobian[0, "x"][finite], 1)
    np.testing.assert_array_equal(np.broadcast_to(jacobian[1, "x"], x.shape)[finite], 0)


@BACKENDS
def test_isclose(backend: Any) -> None:
    values = np.array([0.0, 1.0, 1.0 + 1e-10, 1.0 + 1e-8, -1.0, np.inf, -np.inf, np.nan, 1e300])
    a, b = values[:, None], values[None, :]
    close = differentiable_broadcast(backend=backend)(
        lambda a, b: (math.isclose(a, b), math.isclose(a, b, rel_tol=1e-7), math.isclose(a, b, abs_tol=2.0))
    )
    for found, options in zip(close(a, b), ({}, {"rel_tol": 1e-7}, {"abs_tol": 2.0}), strict=True):
        wanted = [[math.isclose(x, y, **options) for y in values] for x in values]
        np.testing.assert_array_equal(found, wanted)


@BACKENDS
def test_dist_and_hypot(backend: Any) -> None:
    x, y, z = np.array([3.0, 0.0, 1e200]), np.array([4.0, 0.0, 1e200]), np.array([12.0, 0.0, 1e200])
    length = differentiable_broadcast(backend=backend)(
        lambda x, y, z: (math.hypot(x, y, z), math.dist((x, y, z), (0.0, 0.0, 0.0)), math.hypot())
    )
    (whole, distance, nothing), jacobian = length.value_and_jacobian(x, y, z)
    wanted = [math.hypot(*point) for point in zip(x, y, z, strict=True)]
    np.testing.assert_allclose(whole, wanted, rtol=4e-16)
    np.testing.assert_allclose(distance, wanted, rtol=4e-16)
    assert not nothing.any()
    np.testing.assert_allclose(jacobian[0, "z"], [12 / 13, 0.0, 3**-0.5], rtol=1e-15)
    np.testing.assert_allclose(jacobian[1, "x"], [3 / 13, 0.0, 3**-0.5], rtol=1e-15)


@BACKENDS
@pytest.mark.parametrize("name", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"])
def test_integer_casts_wrap_around(backend: Any, name: str) -> None:
    n = np.array([0, 1, -1, 127, 128, 255, 256, -129, 2**31, -(2**31) - 1, 2**40 + 3, 70000])
    cast = getattr(np, name)
    f = differentiable_broadcast(backend=backend)(lambda n: cast(n))
    np.testing.assert_array_equal(f(n), n.astype(name))


@BACKENDS
def test_float32_rounds_in_a_float64_kernel_and_passes_derivatives(backend: Any) -> None:
    x = np.array([0.1, 1 / 3, 1e-40, 1e39, -2.5])
    f = differentiable_broadcast(backend=backend)(lambda x: (np.float32(x * 3) - x, np.float32(0.1) * x))
    with np.errstate(over="ignore"):
        (difference, scaled), jacobian = f.value_and_jacobian(x)
        np.testing.assert_array_equal(difference, (x * 3).astype(np.float32).astype(np.float64) - x)
    np.testing.assert_array_equal(scaled, float(np.float32(0.1)) * x)
    np.testing.assert_array_equal(np.broadcast_to(jacobian[0, "x"], x.shape), 2.0)
    np.testing.assert_array_equal(np.broadcast_to(jacobian[1, "x"], x.shape), float(np.float32(0.1)))


def test_known_truth_values_are_numbers() -> None:
    f = differentiable_broadcast(backend="python")(
        lambda x: (x * np.sin(True), x * np.add(True, True), x * np.exp(False))
    )
    np.testing.assert_array_equal([y.item() for y in f(np.array([1.0]))], [math.sin(1.0), 2.0, 1.0])


@BACKENDS
def test_casts_change_nothing_in_a_float32_kernel(backend: Any) -> None:
    x = np.array([0.1, 1 / 3, -2.5], np.float32)
    f = differentiable_broadcast(backend=backend)(lambda x: np.float32(x) * np.float64(x) + np.float64(0.1))
    assert f(x).dtype == np.float32
    np.testing.assert_allclose(f(x), x * x + np.float32(0.1), rtol=2e-7)
