"""Derivatives of high order where the text of a slope is special: at zeros, at whole numbers and at ties.

A slope that is computed by an absolute value, or by a branch for one number, has the right value there. Its own
derivatives are right only if they are written with the others in mind. The derivatives are compared with mpmath's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from suites import sampled

from dualbcast import differentiable_broadcast, special

WHOLE = (-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0)
# By name the function, mpmath's, the points, and the highest order.
OF_ONE: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], tuple[float, ...], int]] = {
    "sinc": (lambda x: np.sinc(x), mp.sincpi, WHOLE, 4),
    "rgamma": (lambda x: special.rgamma(x), mp.rgamma, WHOLE, 4),
    "tanh": (lambda x: math.tanh(x), mp.tanh, (-1.0, 0.0, 2.0), 5),
    "sigmoid": (lambda x: special.sigmoid(x), lambda x: 1 / (1 + mp.exp(-x)), (-1.0, 0.0, 2.0), 5),
}
OF_TWO: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[float, ...], tuple[float, ...], int]] = {
    "power": (lambda x, y: x**y, lambda x, y: mp.exp(y * mp.log(x)), (0.5, 2.0), (-1.0, 0.0, 1.0, 2.0), 4),
    "logaddexp": (
        lambda x, y: np.logaddexp(x, y),
        lambda x, y: mp.log(mp.exp(x) + mp.exp(y)),
        (0.0, 1.0),
        (0.0, 1.0),
        4,
    ),
    "logaddexp2": (
        lambda x, y: np.logaddexp2(x, y),
        lambda x, y: mp.log(2**x + 2**y, 2),
        (0.0, 1.0),
        (0.0, 1.0),
        4,
    ),
    "hypot of three": (
        lambda x, y: math.hypot(x, y, 1.0),
        lambda x, y: mp.sqrt(x * x + y * y + 1),
        (-1.0, 0.0, 2.0),
        (-1.0, 0.0, 2.0),
        3,
    ),
    "distance in space": (
        lambda x, y: math.dist((x, y, 0.0), (0.0, 0.0, 3.0)),
        lambda x, y: mp.sqrt(x * x + y * y + 9),
        (-3.0, 0.0),
        (-3.0, 0.0),
        3,
    ),
}


@pytest.mark.parametrize("name", [pytest.param(each, marks=[pytest.mark.slow] * (each == "rgamma")) for each in OF_ONE])
def test_of_one_argument(name: str) -> None:
    function, wanted, points, highest = OF_ONE[name]
    derivative = differentiable_broadcast(function)
    for order in range(1, highest + 1):
        derivative = derivative.partial("x")
        with mp.workdps(40):
            expected = [float(mp.diff(wanted, mp.mpf(x), order)) for x in points]
        np.testing.assert_allclose(derivative(np.array(points)), expected, rtol=1e-9, atol=1e-9, err_msg=str(order))


@pytest.mark.parametrize("name", sampled(OF_TWO, 2))
def test_of_two_arguments(name: str) -> None:
    function, wanted, xs, ys, highest = OF_TWO[name]
    x, y = (each.ravel() for each in np.meshgrid(xs, ys))
    for orders in [(i, order - i) for order in range(1, highest + 1) for i in range(order + 1)]:
        derivative = differentiable_broadcast(function)
        for argument, count in zip("xy", orders, strict=True):
            for _ in range(count):
                derivative = derivative.partial(argument)
        with mp.workdps(40):
            expected = [float(mp.diff(wanted, point, orders)) for point in zip(x, y, strict=True)]
        np.testing.assert_allclose(derivative(x, y), expected, rtol=1e-9, atol=1e-9, err_msg=str(orders))
