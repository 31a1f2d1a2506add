"""torch.compile on the processor: derivatives by `torch.func` inside the graph, or by autograd around it."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from constants import BULK, HARDENING, SHEAR, STEP, STEPS, THREADS, YIELD
from torch.func import jacrev, jvp, vjp, vmap

CANNOT: dict[str, str] = {}
Forms = dict[str, Callable[[], Callable[[], Any]]]
TURNS = 7  # of Newton's method: what the slowest of the orbits needs

torch.set_num_threads(THREADS)


def array(host: Any) -> Any:
    return torch.from_numpy(host)


def host(result: Any) -> Any:
    return result.detach().numpy()


def _forms(arrays: list[Any], **functions: Callable[..., Any]) -> Forms:
    def call(function: Callable[..., Any]) -> Callable[[], Any]:
        torch.compiler.reset()
        compiled = torch.compile(function, fullgraph=True, dynamic=False)
        return lambda: compiled(*arrays)

    return {name.replace("_", " "): partial(call, function) for name, function in functions.items()}


def _with_vjp(function: Callable[..., Any], active: int | None = None) -> Callable[..., Any]:
    """Value and partials: an element-wise function's Jacobian is the pullback of ones."""

    def both(*arrays: Any) -> Any:
        rest = arrays[active:] if active else ()
        value, pullback = vjp(lambda *first: function(*first, *rest), *arrays[:active])
        return value, pullback(torch.ones_like(value))

    return both


def _autograd(function: Callable[..., Any], arrays: list[Any], active: int, bar: Any) -> Forms:
    """As users write it: a compiled forward pass and the backward pass that is compiled with it."""

    def make() -> Callable[[], Any]:
        torch.compiler.reset()
        compiled = torch.compile(function, fullgraph=True, dynamic=False)
        inputs = [a.detach().requires_grad_() for a in arrays[:active]]

        def call() -> Any:
            value = compiled(*inputs, *arrays[active:])
            return value, torch.autograd.grad(value, inputs, bar)

        return call

    return {"autograd": make}


def _cell(c: Any, f: Any, i: Any, g: Any, z: Any, zb: Any) -> Any:
    fresh = torch.sigmoid(i) * torch.tanh(g)
    return torch.where(z == 1, fresh, torch.where(zb == 0, c, torch.sigmoid(f) * c + fresh))


def cell_value(arrays: list[Any]) -> Forms:
    return _forms(arrays, where=_cell)


def cell_jacobian(arrays: list[Any]) -> Forms:
    ones = torch.ones_like(arrays[0])
    return _forms(arrays, vjp=_with_vjp(_cell, 4)) | _autograd(_cell, arrays, 4, ones)


def cell_pullback(arrays: list[Any]) -> Forms:
    def both(*arrays: Any) -> Any:
        *gates, z, zb, bar = arrays
        value, pullback = vjp(lambda *gates: _cell(*gates, z, zb), *gates)
        return value, pullback(bar)

    return _forms(arrays, vjp=both) | _autograd(_cell, arrays[:6], 4, arrays[6])


def product(arrays: list[Any]) -> Forms:
    def scalar(*xs: Any) -> Any:
        y = 1.0
        for x in xs:
            y = y * torch.tanh(torch.where(x > 0.5, x, -x))
        return y

    return _forms(arrays, vjp=_with_vjp(scalar))


def _price(spot: Any, strike: Any, rate: Any, volatility: Any, time: Any) -> Any:
    spread = volatility * torch.sqrt(time)
    d = (torch.log(spot / strike) + rate * time) / spread + spread / 2
    return spot * _normal(d) - strike * torch.exp(-rate * time) * _normal(d - spread)


def _normal(x: Any) -> Any:
    return (1 + torch.erf(x / math.sqrt(2))) / 2


def price(arrays: list[Any]) -> Forms:
    return _forms(arrays, vjp=_with_vjp(_price))


def greeks(arrays: list[Any]) -> Forms:
    def both(spot: Any, strike: Any, rate: Any, volatility: Any, time: Any) -> Any:
        first = _with_vjp(_price)
        along = jvp(lambda s: first(s, strike, rate, volatility, time), (spot,), (torch.ones_like(spot),))
        (value, (delta, _, rho, vega, decay)), (_, (gamma, *_)) = along
        return value, delta, gamma, vega, -decay, rho

    return _forms(arrays, jvp_of_vjp=both)


def oscillator(arrays: list[Any]) -> Forms:
    """One step is compiled, with its tangents; all 50 in one graph take minutes to compile."""

    def step(x: Any, v: Any, damping: Any) -> Any:
        v = v + STEP * (damping * (1 - x * x) * v - x)
        return x + STEP * v, v

    def with_tangents(x: Any, v: Any, damping: Any, *along: Any) -> Any:
        (x_after, v_after), slopes = jvp(step, (x, v, damping), (along[0][0], along[1][0], torch.zeros_like(x)))
        found = [slopes]
        for k in (1, 2):
            bar = torch.full_like(x, float(k == 2))
            found.append(jvp(step, (x, v, damping), (along[0][k], along[1][k], bar))[1])
        return x_after, v_after, *(torch.stack(each) for each in zip(*found, strict=True))

    def make() -> Callable[[], Any]:
        torch.compiler.reset()
        compiled = torch.compile(with_tangents, fullgraph=True, dynamic=False)

        def call() -> Any:
            x, v, damping = arrays
            along = [torch.zeros(3, len(x), dtype=x.dtype) for _ in range(2)]
            along[0][0] = along[1][1] = 1
            for _ in range(STEPS):
                x, v, *along = compiled(x, v, damping, *along)
            return x, list(along[0])

        return call

    return {"compiled step": make}


def kepler(arrays: list[Any]) -> Forms:
    def masked(mean: Any, eccentricity: Any) -> Any:
        x = mean + eccentricity * torch.sin(mean)
        for _ in range(TURNS):
            x = x - (x - eccentricity * torch.sin(x) - mean) / (1 - eccentricity * torch.cos(x))
        return x

    def implicit(mean: Any, eccentricity: Any) -> Any:
        x = masked(mean, eccentricity)
        slope = 1 / (1 - eccentricity * torch.cos(x))
        return x, slope, torch.sin(x) * slope

    return _forms(arrays, fixed_iterations_vjp=_with_vjp(masked), fixed_iterations_implicit=implicit)


def _stress(*arguments: Any) -> list[Any]:
    xx, yy, zz, xy, xz, yz, hardened = arguments
    volume = xx + yy + zz
    trial = [2 * SHEAR * (e - volume / 3) for e in (xx, yy, zz)] + [2 * SHEAR * e for e in (xy, xz, yz)]
    squares = [s * s for s in trial]
    mises = torch.sqrt(1.5 * (sum(squares[:3]) + 2 * sum(squares[3:])))
    excess = mises - (YIELD + HARDENING * hardened)
    kept = torch.where(excess > 0, 1 - 3 * SHEAR * excess / ((3 * SHEAR + HARDENING) * mises), 1.0)
    return [kept * s + BULK * volume for s in trial[:3]] + [kept * s for s in trial[3:]]


def plasticity(arrays: list[Any]) -> Forms:
    strain, hardened = torch.stack(arrays[:6], dim=1), arrays[6]

    def point(strain: Any, hardened: Any) -> Any:
        def twice(strain: Any) -> Any:
            found = torch.stack(_stress(*strain.unbind(), hardened))
            return found, found

        tangent, found = jacrev(twice, has_aux=True)(strain)
        return found, tangent

    def columns(*arrays: Any) -> Any:
        zero, one = torch.zeros_like(arrays[0]), torch.ones_like(arrays[0])
        each = []
        for j in range(6):
            tangents = tuple(one if k == j else zero for k in range(6))
            value, column = jvp(lambda *strain: tuple(_stress(*strain, arrays[6])), arrays[:6], tangents)
            each.append(column)
        return list(value), [each[j][i] for i in range(6) for j in range(6)]

    return _forms(arrays, one_array_a_component=columns) | _forms([strain, hardened], vmap_of_jacrev=vmap(point))


def layer(arrays: list[Any]) -> Forms:
    def both(x: Any, w: Any, b: Any, bar: Any) -> Any:
        value, pullback = vjp(lambda x, w, b: torch.tanh(x * w + b), x, w, b)
        return value, pullback(bar)

    return _forms(arrays, vjp=both)
