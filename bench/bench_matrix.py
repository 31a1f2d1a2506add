"""The Jacobian of a decay with three parameters as one matrix, assembled in several ways or written by the kernel."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dualbcast import differentiable_broadcast

PARAMETERS = ("height", "rate", "background")


@differentiable_broadcast
def decay(time: float, height: float, rate: float, background: float) -> float:
    """One partial derivative of three is constant."""
    return height * math.exp(-rate * time) + background


def ways(points: int) -> dict[str, Callable[[], Any]]:
    """Calls that give the value and the matrix; the first gives the blocks alone."""
    arguments = np.linspace(0, 3, points), np.float64(2.0), np.float64(1.0), np.float64(0.5)
    value, rows, columns = np.empty(points), np.empty((points, 3)), np.empty((3, points)).T

    def blocks() -> Any:
        return decay.value_and_jacobian(*arguments, wrt=PARAMETERS)

    def stacked() -> Any:
        value, jacobian = blocks()
        return value, np.stack([jacobian[name] for name in PARAMETERS], axis=-1)

    def matrix(out: Any) -> Any:
        value, jacobian = decay.value_and_jacobian(*arguments, wrt=PARAMETERS, out=out)
        return value, jacobian.matrix()

    return {
        "blocks": blocks,
        "np.stack": stacked,
        "J.matrix()": lambda: matrix(None),
        "out='matrix'": lambda: matrix("matrix"),
        "out=, rows": lambda: matrix((value, rows)),
        "out=, columns": lambda: matrix((value, columns)),
    }


@pytest.mark.parametrize("points", [1_000, 100_000, 1_000_000])
@pytest.mark.parametrize("way", ways(1))
def bench_matrix(benchmark: Any, way: str, points: int) -> None:
    """The value is new in each call, but for the last two."""
    calls = ways(points)
    call = calls[way]
    benchmark.group = f"a decay's value and matrix of derivatives, {points:,} points"
    call()  # compiles
    if way != "blocks":
        np.testing.assert_array_equal(call()[1], calls["np.stack"]()[1])
    benchmark(call)
