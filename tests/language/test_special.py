"""`special` and `arithmetic` as plain Python: against mpmath at ordinary points, else against SciPy and NumPy."""

from __future__ import annotations

import math
import random
from types import ModuleType
from typing import Any

import mpmath as mp
import numpy as np
import pytest
import rule_oracles as oracles
import scipy.special

from dualbcast import arithmetic, differentiable_broadcast, special
from dualbcast.special import trigonometric

EPS = 2.0**-52
inf, nan = math.inf, math.nan


def spread(low: float, high: float, count: int = 100, seed: int = 0) -> list[float]:
    """Random points, the same ones in every run."""
    draw = random.Random(repr((low, high, seed)))
    return [draw.uniform(low, high) for _ in range(count)]


def magnitudes(low: float, high: float, count: int = 100) -> list[float]:
    return [10.0**power for power in spread(low, high, count)]


# Function, points, and the roundings allowed of max(|value|, scale) + |x * slope|. The scale is that of the terms that
# a value near a zero of the function is the difference of.
ONE_ARGUMENT = {
    "sigmoid": (spread(-40, 40), 4, 0.0),
    "softplus": (spread(-40, 40), 4, 0.0),
    "log_sigmoid": (spread(-40, 40), 4, 0.0),
    "logit": (spread(0.0, 1.0) + magnitudes(-300, -1), 4, 0.0),
    "exp10": (spread(-300, 300), 4, 0.0),
    "digamma": (spread(0.0, 30.0, 200) + magnitudes(-300, 300), 8, 1.0),
    "digamma, negative": (spread(-30.0, 0.0, 200), 8, 1.0),
    "erfinv": (spread(-1, 1, 200) + magnitudes(-300, 0), 4, 0.0),
    "erfinv, tails": ([side * (1.0 - tail) for tail in magnitudes(-15.9, -1) for side in (1, -1)], 4, 0.0),
    "sinc": (spread(-10, 10) + magnitudes(-300, -1), 4, 0.0),
}


def slack(name: str, point: tuple[float, ...], scale: float) -> float:
    """The value's size, and how far it moves when each argument moves by its own size."""
    size = max(abs(oracles.value(name, point)), mp.mpf(scale))
    for position, x in enumerate(point):
        if not isinstance(x, int):
            orders = tuple(int(position == other) for other in range(len(point)))
            size += abs(x * oracles.derivative(name, point, orders))
    return float(size)


@pytest.mark.parametrize("case", ONE_ARGUMENT)
def test_values(case: str) -> None:
    name = case.partition(",")[0]
    points, roundings, scale = ONE_ARGUMENT[case]
    for x in points:
        error = float(abs(getattr(special, name)(x) - oracles.value(name, (x,))))
        assert error <= roundings * EPS * slack(name, (x,), scale), (name, x)


@pytest.mark.parametrize("order", [1, 2, 3, 4, 7, 12, 20])
@pytest.mark.parametrize(("low", "high"), [(0.0, 5.0), (5.0, 80.0), (-4.0, 0.0)])
def test_polygamma(order: int, low: float, high: float) -> None:
    for x in spread(low, high, 40):
        expected = mp.psi(order, mp.mpf(x))
        size = abs(expected) + abs(x * mp.psi(order + 1, mp.mpf(x)))
        # Each of the order + 1 factors of a term rounds; below 0 the terms of both sides of a pole may cancel.
        if x < 0:
            nearest = x - round(x)
            size += math.factorial(order) * abs(nearest) ** -(order + 1.0)
        error = abs(special.polygamma(order, x) - expected)
        assert error <= (8 + 2 * order) * EPS * size, (order, x)


def test_polygamma_of_order_zero_is_digamma() -> None:
    assert special.polygamma(0, 2.5) == special.digamma(2.5)


@pytest.mark.parametrize("name", ["logaddexp", "logaddexp2", "xlogy", "xlog1py"])
def test_values_of_two_arguments(name: str) -> None:
    for x, y in zip(spread(-30, 30), spread(0.01, 30), strict=True):
        # A sum of exponentials is near 0 by cancellation of the larger argument and the logarithm.
        scale = max(abs(x), abs(y)) if name.startswith("log") else 0.0
        error = float(abs(getattr(special, name)(x, y) - oracles.value(name, (x, y))))
        assert error <= 4 * EPS * slack(name, (x, y), scale), (x, y)


def test_sinc_slope_on_both_sides_of_its_switch() -> None:
    for x in [*spread(-3, 3), *magnitudes(-12, 0), 1 / math.pi, -1 / math.pi, math.nextafter(1 / math.pi, 1)]:
        slope, curve = oracles.derivative("sinc", (x,), (1,)), oracles.derivative("sinc", (x,), (2,))
        allowed = 16 * EPS * (abs(slope) + abs(x * curve))
        assert abs(trigonometric.sinc_slope(x, special.sinc(x)) - slope) <= allowed, x


@pytest.mark.parametrize("x", [0.0, -0.0, -1.0, -2.0, -1e30, inf, -inf, nan, 1e-320, -1e-320])
def test_poles_of_digamma(x: float) -> None:
    np.testing.assert_equal(special.digamma(x), float(scipy.special.digamma(x)))


@pytest.mark.parametrize("x", [0.0, -0.0, -1.0, -2.0, inf, nan])
@pytest.mark.parametrize("order", [1, 2, 3])
def test_poles_of_polygamma(order: int, x: float) -> None:
    np.testing.assert_equal(special.polygamma(order, x), float(scipy.special.polygamma(order, x)))


def test_ends_of_erfinv() -> None:
    for x in (1.0, -1.0, 0.0, 1.5, -1.5, inf, nan):
        np.testing.assert_equal(special.erfinv(x), float(scipy.special.erfinv(x)))
    assert math.copysign(1.0, special.erfinv(-0.0)) == -1.0


EXTREMES = (0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 1e-320, -1e-320, 1e300, -1e300, inf, -inf, nan)


def bits(x: float) -> tuple[bool, float]:
    """Tells 0.0 from -0.0; every NaN is the same."""
    return (math.copysign(1.0, x) < 0 and x == x, x if x == x else 12345.0)


@pytest.mark.parametrize(
    "ours",
    [
        *(special.logaddexp, special.logaddexp2, arithmetic.heaviside),
        *(arithmetic.maximum, arithmetic.minimum, arithmetic.fmax, arithmetic.fmin),
    ],
)
def test_extremes_of_two_arguments(ours) -> None:  # type: ignore[no-untyped-def]
    with np.errstate(all="ignore"):
        for x in EXTREMES:
            for y in EXTREMES:
                expected = float(getattr(np, ours.__name__)(x, y))
                np.testing.assert_allclose(ours(x, y), expected, rtol=2 * EPS, err_msg=f"{x}, {y}")


@pytest.mark.parametrize("name", ["sign", "isnan", "isinf", "isfinite", "signbit"])
def test_extremes_of_one_argument(name: str) -> None:
    for x in EXTREMES:
        if not (name == "signbit" and x != x):  # the sign of a NaN says nothing
            assert bits(getattr(arithmetic, name)(x)) == bits(getattr(np, name)(x)), x


@pytest.mark.parametrize("name", ["xlogy", "xlog1py"])
def test_zero_times_a_logarithm(name: str) -> None:
    for y in (0.0, 1.0, inf, -1.0, nan):
        np.testing.assert_equal(getattr(special, name)(0.0, y), float(getattr(scipy.special, name)(0.0, y)))


DIVISIONS = [*zip(spread(-50, 50, 300), spread(-4, 4, 300), strict=True)]
DIVISIONS += [(float(a), float(b)) for a in range(-12, 13) for b in (-4, -3, -2, -1, 1, 2, 3, 4)]
DIVISIONS += [(a, inf) for a in (1.0, -1.0, 0.0, -0.0)] + [(a, -inf) for a in (1.0, -1.0, 0.0, -0.0)]
DIVISIONS += [(3 * b - 1e-15, b) for b in spread(0.1, 1, 50)] + [
    (math.nextafter(7 * b, 0), b) for b in spread(0.1, 1, 50)
]
DIVISIONS += [(1e300, 3.0), (-1e300, 7.0), (2.0**53 + 2, 1.0), (2.0**60, 3.0), (nan, 1.0), (1.0, nan)]


@pytest.mark.parametrize(
    ("ours", "reference"),
    [
        (arithmetic.modulo, np.mod),
        (arithmetic.floor_divide, np.floor_divide),
        (arithmetic.ieee_remainder, math.remainder),
    ],
)
def test_divisions_are_exact(ours, reference) -> None:  # type: ignore[no-untyped-def]
    for a, b in DIVISIONS:
        if not (a != a or b != b) or ours is arithmetic.modulo:
            assert bits(ours(a, b)) == bits(float(reference(a, b))), (a, b)


def test_ldexp_is_exact() -> None:
    for x in (1.0, -0.75, 1e-300, 1e300, 0.0, -0.0, inf):
        for n in (0, 1, -1, 7, 60, -60, 1000, -1000):
            if math.isinf(x) or x == 0 or abs(math.log2(abs(x)) + n) < 1020:
                assert bits(arithmetic.ldexp(x, n)) == bits(math.ldexp(x, n)), (x, n)


def test_clip_where_and_the_small_ones() -> None:
    assert [arithmetic.clip(x, -1.0, 2.0) for x in (-3.0, 0.5, 7.0)] == [-1.0, 0.5, 2.0]
    assert [arithmetic.clip(x, None, 2.0) for x in (-3.0, 7.0)] == [-3.0, 2.0]
    assert arithmetic.where(False, 1.0, 2.0) == 2.0
    assert arithmetic.square(-3.0) == 9.0
    assert arithmetic.reciprocal(4.0) == 0.25
    assert arithmetic.radians(90.0) == math.radians(90.0)
    assert arithmetic.degrees(1.5) == pytest.approx(math.degrees(1.5), rel=2 * EPS)


@pytest.mark.parametrize("module", [arithmetic, special])
def test_every_public_name_has_a_docstring(module: ModuleType) -> None:
    for name in module.__all__:
        assert getattr(module, name).__doc__, name


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nan_to_num(dtype: Any) -> None:
    """NumPy's function; the derivative is 1 where x is finite, and elsewhere that of the number in its place."""
    x, y = np.array([1.5, np.nan, np.inf, -np.inf, -0.0], dtype), dtype(3.0)
    in_x = np.isfinite(x).astype(dtype)
    cases = [
        (lambda x, y: np.nan_to_num(x) * y, in_x * y),
        (lambda x, y: np.nan_to_num(x, nan=y * y, posinf=y, neginf=2), in_x),
        (lambda x, y: np.nan_to_num(x / y, False, 1.0, None, y), in_x / y),
    ]
    for function, slope in cases:
        with np.errstate(over="ignore"):
            value, jacobian = differentiable_broadcast(function).value_and_jacobian(x, y)
            np.testing.assert_array_equal(value, function(x, y))
        np.testing.assert_array_equal(jacobian["x"], slope)
    np.testing.assert_array_equal(
        differentiable_broadcast(cases[1][0]).jacobian(x, y)["y"], np.array([0.0, 6.0, 1.0, 0.0, 0.0], dtype)
    )
    of_vectors = differentiable_broadcast(lambda v: np.nan_to_num(v, nan=2.0), signature="(n)->(n)")
    np.testing.assert_array_equal(of_vectors(x), np.nan_to_num(x, nan=2.0))


def test_a_bound_of_clip_may_be_none() -> None:
    x = np.array([-2.0, 0.5, 3.0])
    found = differentiable_broadcast(lambda x: (np.clip(x, 0.0, None), np.clip(x, None, 1.0), np.clip(x, None, None)))(
        x
    )
    np.testing.assert_array_equal(found, [np.clip(x, 0.0, None), np.clip(x, None, 1.0), x])
