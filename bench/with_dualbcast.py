"""dualbcast: the functions in `problems`, as they are."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import problems

from bench.paper.models import cell_update
from dualbcast import custom_partials, differentiable_broadcast
from dualbcast.cli.checking import product as product_of_tanh

CANNOT: dict[str, str] = {}
Forms = dict[str, Callable[[], Callable[[], Any]]]
GATES = ("c", "f", "i", "g")


def array(host: Any) -> Any:
    return host


def host(result: Any) -> Any:
    return np.asarray(result)


def _jacobian(function: Callable[..., Any], arrays: list[Any], wrt: Any = None) -> Forms:
    ours: Any = differentiable_broadcast(function)
    return {"value_and_jacobian": lambda: lambda: ours.value_and_jacobian(*arrays, wrt=wrt)}


def _value(function: Callable[..., Any], arrays: list[Any]) -> Forms:
    ours: Any = differentiable_broadcast(function)
    return {"call": lambda: lambda: ours(*arrays)}


def _pullback(function: Callable[..., Any], arrays: list[Any], wrt: Any = None) -> Forms:
    ours: Any = differentiable_broadcast(function)

    def call() -> Any:
        value, pullback = ours.vjp(*arrays[:-1], wrt=wrt)
        return value, pullback(arrays[-1])

    primals, cotangent = tuple(arrays[:-1]), arrays[-1]
    return {"value_and_vjp": lambda: lambda: ours.value_and_vjp(primals, cotangent, wrt=wrt), "vjp": lambda: call}


def cell_value(arrays: list[Any]) -> Forms:
    return _value(cell_update, arrays)


def cell_jacobian(arrays: list[Any]) -> Forms:
    return _jacobian(cell_update, arrays, GATES)


def cell_jacobian_reused(arrays: list[Any]) -> Forms:
    """With `out=`: nothing is allocated."""
    ours: Any = differentiable_broadcast(cell_update)
    out = ours.value_and_jacobian(*arrays, wrt=GATES)
    return {"out=": lambda: lambda: ours.value_and_jacobian(*arrays, wrt=GATES, out=out)}


def cell_jacobian_transposed(arrays: list[Any]) -> Forms:
    """With the first in Fortran's order."""
    return cell_jacobian([np.asfortranarray(arrays[0]), *arrays[1:]])


def cell_pullback(arrays: list[Any]) -> Forms:
    return _pullback(cell_update, arrays, GATES)


def cell_pullback_kept(arrays: list[Any]) -> Forms:
    """Value and Jacobian in one kernel; another that contracts them."""
    ours: Any = differentiable_broadcast(cell_update)
    contract: Any = differentiable_broadcast(lambda bar, c, f, i, g: (bar * c, bar * f, bar * i, bar * g))

    def call() -> Any:
        value, jacobian = ours.value_and_jacobian(*arrays[:6], wrt=GATES)
        return value, contract(arrays[6], *[jacobian[name] for name in GATES])

    return {"Jacobian, then contracted": lambda: call}


def product(arrays: list[Any]) -> Forms:
    return _jacobian(product_of_tanh, arrays)


def price(arrays: list[Any]) -> Forms:
    return _jacobian(problems.call_price, arrays)


def greeks(arrays: list[Any]) -> Forms:
    return _value(problems.greeks, arrays)


def kepler(arrays: list[Any]) -> Forms:
    return _jacobian(problems.eccentric_anomaly, arrays)


def oscillator(arrays: list[Any]) -> Forms:
    return _jacobian(problems.oscillator, arrays)


def kepler_implicit(arrays: list[Any]) -> Forms:
    """With the derivative of the inverse function given by hand."""

    def partials(_: float, eccentricity: float, x: float) -> tuple[float, float]:
        slope = 1 / (1 - eccentricity * math.cos(x))
        return slope, slope * math.sin(x)

    @custom_partials(partials)
    def anomaly(mean: float, eccentricity: float) -> float:
        return problems.eccentric_anomaly(mean, eccentricity)

    return {"custom_partials": _jacobian(anomaly, arrays)["value_and_jacobian"]}


def plasticity(arrays: list[Any]) -> Forms:
    return _jacobian(problems.stress, arrays, ("xx", "yy", "zz", "xy", "xz", "yz"))


def layer(arrays: list[Any]) -> Forms:
    return _pullback(problems.layer, arrays)
