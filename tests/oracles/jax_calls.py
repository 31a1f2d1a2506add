"""Calls of the corpus with JAX's arrays, and the functions that several tests of JAX differentiate."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import numpy as np
from corpus import CORPUS, Case
from oracles import is_smooth, numbers_of

from dualbcast import differentiable_broadcast

__all__ = ["CASES", "cell", "compiled", "float_outputs", "kepler", "smooth_arrays"]

# Those with a float argument and a point at which they are smooth.
CASES = [
    case
    for case in CORPUS
    if case.floats
    and any(
        at not in case.kinks and is_smooth(case.function, point, case.floats) for at, point in enumerate(case.points)
    )
]


@cache
def compiled(case: Case) -> Any:
    return differentiable_broadcast(case.function)


def smooth_arrays(case: Case) -> list[Any]:
    """The points at which the function is smooth, as one array for each argument."""
    good = [
        point
        for at, point in enumerate(case.points)
        if at not in case.kinks and is_smooth(case.function, point, case.floats)
    ]
    return [jax.numpy.asarray(np.array(column)) for column in zip(*good, strict=True)]


def float_outputs(case: Case, arrays: list[Any], wrap: Callable[[Any], Any] = lambda f: f) -> Callable[..., list[Any]]:
    """The float outputs of a function of its float arguments, the others being fixed."""

    def call(*floats: Any) -> list[Any]:
        values = list(arrays)
        for at, value in zip(case.floats, floats, strict=True):
            values[at] = value
        leaves = numbers_of(wrap(compiled(case))(*values))
        return [leaf for leaf in leaves if jax.numpy.issubdtype(leaf.dtype, np.floating)]

    return call


@differentiable_broadcast
def cell(c: float, f: float, i: float, g: float, z: float, zb: float) -> float:
    """The hidden state of a hierarchical multiscale LSTM: flush, copy or update."""
    if z == 1:
        return math.tanh(g) / (1 + math.exp(-i))
    if zb == 0:
        return c
    return c / (1 + math.exp(-f)) + math.tanh(g) / (1 + math.exp(-i))


@differentiable_broadcast
def kepler(mean: float, eccentricity: float) -> float:
    """Kepler's equation by Newton's method, until a step is small."""
    x = mean + eccentricity * math.sin(mean)
    step = 1.0
    while abs(step) > 1e-10:
        step = (x - eccentricity * math.sin(x) - mean) / (1 - eccentricity * math.cos(x))
        x -= step
    return x
