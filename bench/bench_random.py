"""Random numbers of a million elements: drawn in a kernel from counters, beside NumPy's Generator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dualbcast import differentiable_broadcast, random

COUNT = 1_000_000


@differentiable_broadcast
def normals(key: int, i: int) -> float:
    """One number from four words; the second that they could give is not used."""
    return random.normal(key, i)


@differentiable_broadcast
def uniforms(key: int, i: int) -> float:
    """One number from two of the four words."""
    return random.uniform(key, i)


def ways(what: str) -> dict[str, Callable[[], Any]]:
    """Calls that give a new array each."""
    i, generator = np.arange(COUNT), np.random.default_rng(0)
    ours, numpys = (normals, generator.standard_normal) if what == "normal" else (uniforms, generator.random)
    return {"dualbcast": lambda: ours(7, i), "numpy": lambda: numpys(COUNT)}


@pytest.mark.parametrize("way", ways("normal"))
@pytest.mark.parametrize("what", ["uniform", "normal"])
def bench_random(benchmark: Any, what: str, way: str) -> None:
    """NumPy has one thread."""
    call = ways(what)[way]
    benchmark.group = f"{COUNT:,} {what} numbers"
    assert abs(call().mean() - (0.5 if what == "uniform" else 0.0)) < 0.01
    benchmark(call)
