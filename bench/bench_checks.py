"""What an assertion, and the check for NaN, take of a call: a cheap function and a dear one, with each and without."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dualbcast import differentiable_broadcast


@differentiable_broadcast
def cheap(x: float, y: float) -> float:
    """A call that only moves memory."""
    assert x > 0.0, f"x is {x}"
    return x * y


@differentiable_broadcast
def dear(x: float, y: float) -> float:
    """A call that computes."""
    assert x > 0.0, f"x is {x}"
    return math.exp(-x) * math.sin(y) + math.log(x) * math.tanh(y)


WAYS: dict[str, dict[str, Any]] = {"nothing": {"debug": False}, "assert": {}, "check": {"debug": False, "check": "nan"}}


@pytest.mark.parametrize("points", [4, 1_000, 100_000])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("function", [cheap, dear], ids=["cheap", "dear"])
def bench_checks(benchmark: Any, function: Any, way: str, points: int) -> None:
    """The value and the Jacobian."""
    checked = differentiable_broadcast(function, **WAYS[way])
    x = np.linspace(0.5, 2.0, points)
    benchmark.group = f"a function that is {function.__name__}, {points:,} points"
    checked.value_and_jacobian(x, x)  # compiles
    benchmark(checked.value_and_jacobian, x, x)
