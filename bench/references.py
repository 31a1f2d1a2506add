"""Random arguments for each case, NumPy arrays, and the right results in float64.

The references share no formula with the systems: they go case by case, by closed forms, by bisection or by complex
steps.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from constants import BULK, HARDENING, SHEAR, STEP, STEPS, YIELD
from scipy.special import ndtr

from bench.paper.models import cell_update_reference
from dualbcast.cli.checking import product_reference


@lru_cache(maxsize=1)
def cell_arguments(n: int, control: str, columns: int = 0) -> list[Any]:
    """c, f, i, g of shape (n, n), or (n, columns); z, zb of shape (n, 1) or, per element, the same. float32."""
    random = np.random.default_rng(0)
    gates = [random.standard_normal((n, columns or n), np.float32) for _ in range(4)]
    shape = (n, 1) if control == "rows" else gates[0].shape
    return [*gates, *(random.integers(0, 2, shape).astype(np.float32) for _ in range(2))]


@lru_cache(maxsize=1)
def cotangent(n: int) -> Any:
    """A float32 cotangent of shape (n, n)."""
    return np.random.default_rng(1).standard_normal((n, n), np.float32)


@lru_cache(maxsize=1)
def product_arguments(arity: int, n: int) -> list[Any]:
    """Float32 arrays of shape (n, n)."""
    random = np.random.default_rng(0)
    return [random.uniform(-2, 2, (n, n)).astype(np.float32) for _ in range(arity)]


@lru_cache(maxsize=1)
def market(n: int) -> list[Any]:
    """spot, strike, rate, volatility, time."""
    random = np.random.default_rng(0)
    ranges = (80, 120), (80, 120), (0.0, 0.1), (0.1, 0.5), (0.1, 2.0)
    return [random.uniform(low, high, n) for low, high in ranges]


@lru_cache(maxsize=1)
def orbits(n: int) -> list[Any]:
    """Mean anomalies of half a turn, eccentricities up to 0.9."""
    random = np.random.default_rng(0)
    return [random.uniform(0, math.pi, n), random.uniform(0, 0.9, n)]


@lru_cache(maxsize=1)
def oscillators(n: int) -> list[Any]:
    """Places, speeds, and how much they are damped."""
    random = np.random.default_rng(0)
    return [random.uniform(-2, 2, n), random.uniform(-2, 2, n), random.uniform(0.5, 2, n)]


@lru_cache(maxsize=1)
def strains(n: int) -> list[Any]:
    """Six strains and the hardening so far: about half of the points yield."""
    random = np.random.default_rng(0)
    return [*(random.normal(0, 6e-4, n) for _ in range(6)), random.uniform(0, 0.01, n)]


@lru_cache(maxsize=1)
def layer_arguments(rows: int, columns: int) -> list[Any]:
    """x, a row w, a column b, and a cotangent. float32."""
    random = np.random.default_rng(1)
    return [
        random.standard_normal(shape, np.float32) for shape in ((rows, columns), (columns,), (rows, 1), (rows, columns))
    ]


def cell_expected(*arguments: Any) -> list[Any]:
    """The value and ∂/∂(c, f, i, g)."""
    value, partials = cell_update_reference(*arguments)
    return [value, *partials]


def cell_value_expected(*arguments: Any) -> list[Any]:
    """The value alone."""
    return cell_expected(*arguments)[:1]


def cell_pullback_expected(*arguments: Any) -> list[Any]:
    """The value and the cotangents of c, f, i, g; the cotangent of the value comes last."""
    value, *partials = cell_expected(*arguments[:6])
    return [value, *(arguments[6] * partial for partial in partials)]


def product_expected(*xs: Any) -> list[Any]:
    """The product and its partials."""
    value, partials, _ = product_reference(xs)
    return [value, *partials]


def greeks_expected(spot: Any, strike: Any, rate: Any, volatility: Any, time: Any) -> list[Any]:
    """The textbook's formulas."""
    root, discount = np.sqrt(time), np.exp(-rate * time)
    d1 = (np.log(spot) - np.log(strike) + (rate + volatility**2 / 2) * time) / (volatility * root)
    d2 = d1 - volatility * root
    density = np.exp(-(d1**2) / 2) / np.sqrt(2 * np.pi)
    rent = rate * strike * discount * ndtr(d2)
    return [
        spot * ndtr(d1) - strike * discount * ndtr(d2),
        ndtr(d1),
        density / (spot * volatility * root),
        spot * density * root,
        -spot * density * volatility / (2 * root) - rent,
        strike * time * discount * ndtr(d2),
    ]


def price_expected(spot: Any, strike: Any, rate: Any, volatility: Any, time: Any) -> list[Any]:
    """The price and its derivatives in spot, strike, rate, volatility and time."""
    value, delta, _, vega, theta, rho = greeks_expected(spot, strike, rate, volatility, time)
    return [value, delta, (value - spot * delta) / strike, rho, vega, -theta]


def orbits_expected(mean: Any, eccentricity: Any) -> list[Any]:
    """The root by bisection, polished, and the derivatives of the inverse function."""
    low, high = mean - 1, mean + 1
    for _ in range(60):
        middle = (low + high) / 2
        above = middle - eccentricity * np.sin(middle) > mean
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    x = (low + high) / 2
    slope = 1 - eccentricity * np.cos(x)
    return [x, 1 / slope, np.sin(x) / slope]


def oscillators_expected(*start: Any) -> list[Any]:
    """The place after all steps, and by complex steps its derivatives in the initial values."""

    def after(x: Any, v: Any, damping: Any) -> Any:
        for _ in range(STEPS):
            v = v + STEP * (damping * v - damping * v * x**2 - x)
            x = x + STEP * v
        return x

    tiny = 1e-200
    moved = [[each + 1j * tiny * (at == which) for at, each in enumerate(start)] for which in range(len(start))]
    return [after(*start), *(after(*each).imag / tiny for each in moved)]


def strains_expected(*arguments: Any) -> list[Any]:
    """The six stresses, and by complex steps the 36 derivatives, row by row."""
    *strain, hardened = arguments

    def stresses(*strain: Any) -> Any:
        volume = strain[0] + strain[1] + strain[2]
        trial = [2 * SHEAR * (e - volume / 3) for e in strain[:3]] + [2 * SHEAR * e for e in strain[3:]]
        squares = [s * s for s in trial]
        mises = np.sqrt(1.5 * sum(squares[:3]) + 3 * sum(squares[3:]))
        limit = YIELD + HARDENING * hardened
        flow = np.where(mises.real > limit, (mises - limit) / (3 * SHEAR + HARDENING), 0)
        kept = [s - 3 * SHEAR * flow * s / mises for s in trial]
        return [s + BULK * volume for s in kept[:3]] + kept[3:]

    columns = []
    for j in range(6):
        moved = [e + 1e-30j if k == j else e + 0j for k, e in enumerate(strain)]
        columns.append([s.imag / 1e-30 for s in stresses(*moved)])
    return [*stresses(*strain), *(columns[j][i] for i in range(6) for j in range(6))]


def layer_expected(x: Any, w: Any, b: Any, cotangent: Any) -> list[Any]:
    """The value and the cotangents of x, w and b."""
    slope = cotangent / np.cosh(x * w + b) ** 2
    return [np.tanh(x * w + b), slope * w, (slope * x).sum(0), slope.sum(1, keepdims=True)]
