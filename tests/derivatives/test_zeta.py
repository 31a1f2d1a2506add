"""The zeta functions and their derivatives in both arguments against mpmath, and at the ends against SciPy."""

from __future__ import annotations

import math
import random

import mpmath as mp
import numpy as np
import pytest
import scipy.special

from dualbcast import differentiable_broadcast, special

riemann = differentiable_broadcast(lambda x: scipy.special.zeta(x))
hurwitz = differentiable_broadcast(lambda x, q: scipy.special.zeta(x, q))
less_one = differentiable_broadcast(lambda x: scipy.special.zetac(x))


def close(got: float, exact: mp.mpf, scale: mp.mpf, units: float, dtype: str) -> bool:
    return bool(abs(float(got) - exact) <= units * np.finfo(dtype).eps * abs(scale) + np.finfo(dtype).tiny)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_of_one_number(dtype: str) -> None:
    draw = random.Random(1)
    points = [draw.uniform(0, 3) for _ in range(20)] + [draw.uniform(-12, 40) for _ in range(30)] + [-2.0, -4.0, -10.0]
    x = np.array(points, dtype)
    value, jacobian = riemann.value_and_jacobian(x)
    rest, rest_jacobian = less_one.value_and_jacobian(x)
    with mp.workdps(60):
        for row, at in enumerate(map(mp.mpf, x.astype(float).tolist())):
            exact, slope, curvature = mp.zeta(at), mp.diff(mp.zeta, at), mp.diff(mp.zeta, at, 2)
            # A rounding of the argument moves the result; near its zeros more than the result is.
            assert close(value[row], exact, abs(exact) + abs(at * slope), 24, dtype), at
            assert close(jacobian["x"][row], slope, abs(slope) + abs(at * curvature) + abs(exact), 64, dtype), at
            if at > 1:
                tail = mp.zeta(at, 2)
                assert close(rest[row], tail, tail, 32 + 8 * at, dtype), at
                assert close(rest_jacobian["x"][row], slope, slope, 64 + 16 * at, dtype), at


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_of_two_numbers(dtype: str) -> None:
    draw = random.Random(2)
    s = np.array([1 + 10 ** draw.uniform(-3, 1) for _ in range(40)], dtype)
    q = np.array([10 ** draw.uniform(-2, 2) for _ in range(40)], dtype)
    value, jacobian = hurwitz.value_and_jacobian(s, q)
    with mp.workdps(90):  # mpmath's error is absolute
        for row, (a, b) in enumerate(zip(s.astype(float).tolist(), q.astype(float).tolist(), strict=True)):
            exact, in_s = mp.zeta(a, b), mp.zeta(a, b, 1)
            in_q = -a * mp.zeta(mp.mpf(a) + 1, b)
            units = 16 + 8 * a
            assert close(value[row], exact, exact + abs(in_q * b) / 8, units, dtype), (a, b)
            assert close(jacobian["x"][row], in_s, abs(in_s) + exact, 4 * units, dtype), (a, b)
            assert close(jacobian["q"][row], in_q, in_q, 4 * units, dtype), (a, b)


def test_ends() -> None:
    for x in (1.0, 0.0, math.inf, math.nan, 200.0, -2.0):
        np.testing.assert_allclose(riemann(np.array([x]))[0], float(scipy.special.zeta(x)), atol=1e-16)
    for x, q in ((1.0, 2.0), (0.5, 2.0), (2.0, math.nan), (3.0, 1e-200)):
        np.testing.assert_allclose(hurwitz(np.array([x]), q)[0], float(scipy.special.zeta(x, q)), rtol=1e-14)
    assert special.zeta(3.0, 1.0) == special.zeta(3.0)
