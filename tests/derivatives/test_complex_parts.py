"""The parts of complex functions, of which one may be small beside the other: derivatives against mpmath."""

from __future__ import annotations

from typing import Any

import mpmath as mp
import numpy as np
import pytest

from dualbcast import differentiable_broadcast

SLOPES: dict[str, Any] = {
    "tanh": lambda z: mp.sech(z) ** 2,
    "tan": lambda z: mp.sec(z) ** 2,
    "atanh": lambda z: 1 / (1 - z * z),
    "atan": lambda z: 1 / (1 + z * z),
    "asinh": lambda z: 1 / mp.sqrt(1 + z * z),
    "asin": lambda z: 1 / mp.sqrt(1 - z * z),
}
CURVATURES: dict[str, Any] = {
    "tanh": lambda z: -2 * mp.tanh(z) * mp.sech(z) ** 2,
    "tan": lambda z: 2 * mp.tan(z) * mp.sec(z) ** 2,
    "atanh": lambda z: 2 * z / (1 - z * z) ** 2,
    "atan": lambda z: -2 * z / (1 + z * z) ** 2,
    "asinh": lambda z: -z / mp.sqrt(1 + z * z) ** 3,
    "asin": lambda z: z / mp.sqrt(1 - z * z) ** 3,
}
NEAR = [
    (1e-3, 1e-3),
    (1e-8, -3e-9),
    (1e-20, 0.5),
    (0.5, 1e-20),
    (0.3, 0.4),
    (-1e-10, 3.0),
    (1.5, -2.0),
    (30.0, 1.0),
    (1.0, 30.0),
    (1.0, 0.25),
    (-1.0, 0.5),
]
FAR = [(1e-150, 1e-140), (1e-100, -0.75), (0.75, 1e-100), (1e8, 3.0), (3.0, -1e8)]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", SLOPES)
def test_slopes_and_curvatures(name: str, dtype: Any) -> None:
    """Parts were lost beside the other ones, such as 1e-20 beside 1, and curvatures at 1e-150 were 0."""
    x, y = np.array(NEAR + (FAR if dtype is np.float64 else []), dtype).T
    of = differentiable_broadcast.from_source(
        f"import cmath\ndef f(x, y):\n    z = cmath.{name}(complex(x, y))\n    return z.real, z.imag\n"
    )
    _, jacobian, hessian = of.value_jacobian_and_hessian(x, y)
    info = np.finfo(dtype)
    for row, (a, b) in enumerate(zip(map(float, x), map(float, y), strict=True)):
        with mp.workdps(400):
            slope, curvature = (of[name](mp.mpc(a, b)) for of in (SLOPES, CURVATURES))
        wanted = {
            (0, "x"): slope.real,
            (0, "y"): -slope.imag,
            (1, "x"): slope.imag,
            (1, "y"): slope.real,
            (0, "x", "x"): curvature.real,
            (0, "x", "y"): -curvature.imag,
            (1, "x", "y"): curvature.real,
            (1, "y", "y"): -curvature.imag,
        }
        for place, exact in wanted.items():
            got = float((jacobian if len(place) == 2 else hessian)[place][row])
            assert abs(got - exact) <= 64 * info.eps * abs(exact) + 4 * info.tiny, (a, b, place, got, float(exact))
