"""NumPy by hand: whole arrays, `where` for `if`, derivatives that somebody has worked out; NumPy has one thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from constants import BULK, HARDENING, SHEAR, STEP, STEPS, TOLERANCE, YIELD
from scipy.special import ndtr

from bench.paper.models import cell_update_by_hand

CANNOT: dict[str, str] = {}
Forms = dict[str, Callable[[], Callable[[], Any]]]


def array(host: Any) -> Any:
    return host


def host(result: Any) -> Any:
    return np.asarray(result)


def _form(function: Callable[..., Any], arrays: list[Any]) -> Forms:
    return {"by hand": lambda: lambda: function(*arrays)}


def cell_value(arrays: list[Any]) -> Forms:
    def value(c: Any, f: Any, i: Any, g: Any, z: Any, zb: Any) -> Any:
        fresh = np.tanh(g) / (1 + np.exp(-i))
        return np.where(z == 1, fresh, np.where(zb == 0, c, c / (1 + np.exp(-f)) + fresh))

    return _form(value, arrays)


def cell_jacobian(arrays: list[Any]) -> Forms:
    return _form(lambda *arrays: cell_update_by_hand(np, *arrays), arrays)


def cell_pullback(arrays: list[Any]) -> Forms:
    def both(*arrays: Any) -> Any:
        value, partials = cell_update_by_hand(np, *arrays[:6])
        return value, [arrays[6] * partial for partial in partials]

    return _form(both, arrays)


def product(arrays: list[Any]) -> Forms:
    def both(*xs: Any) -> Any:
        """Products from the left and from the right."""
        slopes = [np.where(x > 0.5, np.float32(1), np.float32(-1)) for x in xs]
        factors = [np.tanh(slope * x) for slope, x in zip(slopes, xs, strict=True)]
        before = [np.ones_like(xs[0])]
        for factor in factors:
            before.append(before[-1] * factor)
        after = np.ones_like(xs[0])
        partials = []
        for slope, factor, left in zip(slopes[::-1], factors[::-1], before[-2::-1], strict=True):
            partials.append(slope * (1 - factor * factor) * left * after)
            after = after * factor
        return before[-1], partials[::-1]

    return _form(both, arrays)


def _market(spot: Any, strike: Any, rate: Any, volatility: Any, time: Any) -> tuple[Any, ...]:
    spread = volatility * np.sqrt(time)
    d = (np.log(spot / strike) + rate * time) / spread + spread / 2
    paid, delta, chance = strike * np.exp(-rate * time), ndtr(d), ndtr(d - spread)
    density = np.exp(-d * d / 2) / np.sqrt(2 * np.pi)
    value = spot * delta - paid * chance
    vega = spot * density * np.sqrt(time)
    decay = vega * volatility / (2 * time) + rate * paid * chance
    return value, delta, density / (spot * spread), vega, decay, paid * chance


def price(arrays: list[Any]) -> Forms:
    def both(spot: Any, strike: Any, rate: Any, volatility: Any, time: Any) -> Any:
        value, delta, _, vega, decay, paid = _market(spot, strike, rate, volatility, time)
        return value, delta, -paid / strike, paid * time, vega, decay

    return _form(both, arrays)


def greeks(arrays: list[Any]) -> Forms:
    def both(spot: Any, strike: Any, rate: Any, volatility: Any, time: Any) -> Any:
        value, delta, gamma, vega, decay, paid = _market(spot, strike, rate, volatility, time)
        return value, delta, gamma, vega, -decay, paid * time

    return _form(both, arrays)


def oscillator(arrays: list[Any]) -> Forms:
    def all_of(x: Any, v: Any, damping: Any) -> Any:
        """Tangents go along, a row for each argument."""
        along_x, along_v = (np.zeros((3, len(x))) for _ in range(2))
        along_x[0] = along_v[1] = 1
        for _ in range(STEPS):
            bent = 1 - x * x
            change = damping * bent * along_v - (2 * damping * x * v + 1) * along_x
            change[2] += bent * v
            v = v + STEP * (damping * bent * v - x)
            along_v = along_v + STEP * change
            x = x + STEP * v
            along_x = along_x + STEP * along_v
        return x, *along_x

    return _form(all_of, arrays)


def kepler(arrays: list[Any]) -> Forms:
    def both(mean: Any, eccentricity: Any) -> Any:
        """All iterate until the last is done."""
        x = mean + eccentricity * np.sin(mean)
        step = np.inf
        while np.max(np.abs(step)) > TOLERANCE:
            step = (x - eccentricity * np.sin(x) - mean) / (1 - eccentricity * np.cos(x))
            x = x - step
        slope = 1 / (1 - eccentricity * np.cos(x))
        return x, slope, np.sin(x) * slope

    return _form(both, arrays)


def plasticity(arrays: list[Any]) -> Forms:
    def both(*arrays: Any) -> Any:
        *strain, hardened = arrays
        volume = strain[0] + strain[1] + strain[2]
        trial = [2 * SHEAR * (e - volume / 3) for e in strain[:3]] + [2 * SHEAR * e for e in strain[3:]]
        squares = [s * s for s in trial]
        mises = np.sqrt(1.5 * (sum(squares[:3]) + 2 * sum(squares[3:])))
        limit = YIELD + HARDENING * hardened
        yields = mises > limit
        soft = 3 * SHEAR / (3 * SHEAR + HARDENING)
        kept = np.where(yields, 1 - soft * (1 - limit / mises), 1)
        value = [kept * s + BULK * volume for s in trial[:3]] + [kept * s for s in trial[3:]]
        turned = np.where(yields, -3 * SHEAR * soft * limit / mises**3, 0)  # ∂kept/∂strain is this times the stress
        twice = [*(turned * s for s in trial[:3]), *(2 * turned * s for s in trial[3:])]
        tangent = [s * t for s in trial for t in twice]
        for i in range(6):
            tangent[7 * i] += 2 * SHEAR * kept
        for i in range(3):
            for j in range(3):
                tangent[6 * i + j] += BULK - 2 * SHEAR / 3 * kept
        return value, tangent

    return _form(both, arrays)


def layer(arrays: list[Any]) -> Forms:
    def both(x: Any, w: Any, b: Any, bar: Any) -> Any:
        value = np.tanh(x * w + b)
        slope = bar * (1 - value * value)
        return value, slope * w, (slope * x).sum(0), slope.sum(1, keepdims=True)

    return _form(both, arrays)
