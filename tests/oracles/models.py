"""Scalar functions that several tests compile, each with its value and partials by hand, in NumPy and float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = Any


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def cell_update(c, f, i, g, z, zb):
    """The cell update of an HM-LSTM: Eq. 6 of the paper."""
    if z == 1:  # FLUSH
        return sigmoid(i) * math.tanh(g)
    if zb == 0:  # COPY
        return c
    return sigmoid(f) * c + sigmoid(i) * math.tanh(g)  # UPDATE


def cell_update_by_hand(c: Array, f: Array, i: Array, g: Array, z: Array, zb: Array) -> tuple[Array, dict[str, Array]]:
    """Value and partials of `cell_update`, by the product and chain rules."""
    c, f, i, g, z, zb = np.broadcast_arrays(*(np.asarray(a, np.float64) for a in (c, f, i, g, z, zb)))
    forget, write, tanh = 1 / (1 + np.exp(-f)), 1 / (1 + np.exp(-i)), np.tanh(g)
    flush, copy = z == 1, (z != 1) & (zb == 0)
    value = np.where(flush, write * tanh, np.where(copy, c, forget * c + write * tanh))
    partials = {
        "c": np.where(flush, 0, np.where(copy, 1, forget)),
        "f": np.where(flush | copy, 0, c * forget * (1 - forget)),
        "i": np.where(copy, 0, tanh * write * (1 - write)),
        "g": np.where(copy, 0, write * (1 - tanh * tanh)),
    }
    return value, partials


def fold(x):
    return x if x > 0.5 else -x


def product_of_tanh(*xs):
    """The function of the paper's arity experiment."""
    product = 1.0
    for x in xs:
        product *= math.tanh(fold(x))
    return product


def product_of_tanh_by_hand(*xs: Array) -> tuple[Array, list[Array]]:
    """Value and partials of `product_of_tanh`: each partial is the product of the other factors and a derivative."""
    arrays = np.broadcast_arrays(*(np.asarray(x, np.float64) for x in xs))
    factors = [np.tanh(np.where(x > 0.5, x, -x)) for x in arrays]
    partials = []
    for position, (x, factor) in enumerate(zip(arrays, factors, strict=True)):
        others = [other for place, other in enumerate(factors) if place != position]
        slope = (1 - factor * factor) * np.where(x > 0.5, 1, -1)
        partials.append(slope * np.prod(others, axis=0) if others else slope)
    return np.prod(factors, axis=0), partials


def eccentric_anomaly(mean, eccentricity):
    """Kepler's equation, E - e sin E = M, solved for E by Newton's method."""
    anomaly = mean
    for _ in range(50):
        error = anomaly - eccentricity * math.sin(anomaly) - mean
        step = error / (1 - eccentricity * math.cos(anomaly))
        anomaly -= step
        if abs(step) < 1e-9:
            break
    return anomaly


def eccentric_anomaly_by_hand(mean: Array, eccentricity: Array) -> tuple[Array, dict[str, Array]]:
    """The root, by bisection (E lies within 1 of M for e < 1), and its partials by the implicit function theorem."""
    mean, eccentricity = np.broadcast_arrays(np.asarray(mean, np.float64), np.asarray(eccentricity, np.float64))
    low, high = mean - 1.0, mean + 1.0
    for _ in range(60):
        middle = (low + high) / 2
        below = middle - eccentricity * np.sin(middle) < mean
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    slope = 1 - eccentricity * np.cos(low)
    return low, {"mean": 1 / slope, "eccentricity": np.sin(low) / slope}


def smooth_step(x, edge):
    """Hermite's cubic from 0 to 1, flat outside: early returns and a helper that is given a tuple."""
    if x <= 0:
        return 0.0
    if x >= edge:
        return 1.0
    return horner(x / edge, (0, 0, 3, -2))


def horner(x, coefficients):
    total = 0
    for coefficient in reversed(coefficients):
        total = total * x + coefficient
    return total


def smooth_step_by_hand(x: Array, edge: Array) -> tuple[Array, dict[str, Array]]:
    """Value and partials of `smooth_step`."""
    x, edge = np.broadcast_arrays(np.asarray(x, np.float64), np.asarray(edge, np.float64))
    t = np.clip(x / edge, 0, 1)
    slope = np.where((x > 0) & (x < edge), 6 * t * (1 - t), 0)
    return t * t * (3 - 2 * t), {"x": slope / edge, "edge": -slope * x / edge**2}
