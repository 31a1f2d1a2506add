"""Dr.Jit, LLVM backend: one traced kernel for the value and a backward traversal; also with the trace kept.

Dr.Jit differentiates once: where a second derivative is wanted (gamma), its formula is written by hand.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import drjit as dr
import numpy as np
from constants import BULK, HARDENING, SHEAR, STEP, STEPS, THREADS, TOLERANCE, YIELD
from drjit.llvm.ad import Float as Float32
from drjit.llvm.ad import Float64, UInt32

CANNOT: dict[str, str] = {}
Forms = dict[str, Callable[[], Callable[[], Any]]]

if not dr.has_backend(dr.JitBackend.LLVM):
    raise ImportError("Dr.Jit finds no LLVM library; name one in DRJIT_LIBLLVM_PATH")
dr.set_thread_count(THREADS)


def array(host: Any) -> Any:
    found = (Float32 if host.dtype == np.float32 else Float64)(host.ravel())
    dr.eval(found)
    return found


def host(result: Any) -> Any:
    return result.numpy()


def _forms(arrays: list[Any], **functions: Callable[..., Any]) -> Forms:
    def call(function: Callable[..., Any]) -> Callable[[], Any]:
        def evaluated() -> Any:
            results = function(*arrays)
            dr.eval(results)
            dr.sync_thread()
            return results

        return evaluated

    found = {}
    for name, function in functions.items():
        found[name] = partial(call, function)
        found[f"{name}, frozen"] = lambda function=function: call(dr.freeze(function))
    return found


def _pull(function: Callable[..., Any], inputs: list[Any], bar: Any) -> Any:
    """The value and the cotangents of `inputs`, traced."""
    inputs = [type(x)(x) for x in inputs]
    dr.enable_grad(inputs)
    value = function(*inputs)
    dr.set_grad(value, bar)
    dr.enqueue(dr.ADMode.Backward, value)
    dr.traverse(dr.ADMode.Backward)
    return dr.detach(value), [dr.grad(x) for x in inputs]


def _with_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """Value and partials: an element-wise function's Jacobian is the pullback of ones."""
    return lambda *arrays: _pull(function, list(arrays), 1)


def _cell(c: Any, f: Any, i: Any, g: Any, z: Any, zb: Any) -> Any:
    if len(z) < len(c):  # a control for each row
        z, zb = dr.repeat(z, len(c) // len(z)), dr.repeat(zb, len(c) // len(z))
    fresh = dr.tanh(g) / (1 + dr.exp(-i))
    return dr.select(z == 1, fresh, dr.select(zb == 0, c, c / (1 + dr.exp(-f)) + fresh))


def cell_value(arrays: list[Any]) -> Forms:
    return _forms(arrays, select=_cell)


def cell_jacobian(arrays: list[Any]) -> Forms:
    def both(*arrays: Any) -> Any:
        return _pull(lambda *gates: _cell(*gates, *arrays[4:]), list(arrays[:4]), 1)

    return _forms(arrays, backward=both)


def cell_pullback(arrays: list[Any]) -> Forms:
    def both(*arrays: Any) -> Any:
        return _pull(lambda *gates: _cell(*gates, *arrays[4:6]), list(arrays[:4]), arrays[6])

    return _forms(arrays, backward=both)


def product(arrays: list[Any]) -> Forms:
    def scalar(*xs: Any) -> Any:
        return math.prod(dr.tanh(dr.select(x > 0.5, x, -x)) for x in xs)

    return _forms(arrays, backward=_with_gradient(scalar))


def _normal(x: Any) -> Any:
    return (1 + dr.erf(x / math.sqrt(2))) / 2


def _price(spot: Any, strike: Any, rate: Any, volatility: Any, time: Any) -> Any:
    spread = volatility * dr.sqrt(time)
    d = (dr.log(spot / strike) + rate * time) / spread + spread / 2
    return spot * _normal(d) - strike * dr.exp(-rate * time) * _normal(d - spread)


def price(arrays: list[Any]) -> Forms:
    return _forms(arrays, backward=_with_gradient(_price))


def greeks(arrays: list[Any]) -> Forms:
    def both(spot: Any, strike: Any, rate: Any, volatility: Any, time: Any) -> Any:
        function = partial(_at_strike, strike)
        value, (delta, rho, vega, decay) = _pull(function, [spot, rate, volatility, time], 1)
        spread = volatility * dr.sqrt(time)
        d = (dr.log(spot / strike) + rate * time) / spread + spread / 2
        gamma = dr.exp(-d * d / 2) / (math.sqrt(2 * math.pi) * spot * spread)
        return value, delta, gamma, vega, -decay, rho

    return _forms(arrays, backward_gamma_by_hand=both)


def _at_strike(strike: Any, spot: Any, rate: Any, volatility: Any, time: Any) -> Any:
    return _price(spot, strike, rate, volatility, time)


def _solve(mean: Any, eccentricity: Any) -> Any:
    def turn(x: Any, step: Any) -> Any:
        sin, cos = dr.sincos(x)
        step = (x - eccentricity * sin - mean) / (1 - eccentricity * cos)
        return x - step, step

    start = mean + eccentricity * dr.sin(mean), dr.full(Float64, 1, len(mean))
    return dr.while_loop(start, lambda _, step: dr.abs(step) > TOLERANCE, turn)[0]


def _oscillate(x: Any, v: Any, damping: Any) -> Any:
    for _ in range(STEPS):
        v = dr.fma(STEP, damping * (1 - x * x) * v - x, v)
        x = dr.fma(STEP, v, x)
    return x


def oscillator(arrays: list[Any]) -> Forms:
    def by_hand(x: Any, v: Any, damping: Any) -> Any:
        """A symbolic loop in which the tangents go along."""

        def step(turn: Any, x: Any, v: Any, *along: Any) -> Any:
            bent = 1 - x * x
            slope, rest = damping * bent, 2 * damping * x * v + 1
            speeds = [dr.fma(STEP, slope * w - rest * u, w) for u, w in zip(along[::2], along[1::2], strict=True)]
            speeds[2] = dr.fma(STEP, bent * v, speeds[2])
            v = dr.fma(STEP, slope * v - x, v)
            places = [dr.fma(STEP, w, u) for u, w in zip(along[::2], speeds, strict=True)]
            after = [each for pair in zip(places, speeds, strict=True) for each in pair]
            return turn + 1, dr.fma(STEP, v, x), v, *after

        first = [dr.full(Float64, value, len(x)) for value in (1, 0, 0, 1, 0, 0)]
        state = dr.while_loop((UInt32(0), x, v, *first), lambda turn, *_: turn < STEPS, step)
        return state[1], *state[3::2]

    return _forms(arrays, backward_unrolled=_with_gradient(_oscillate), tangents_by_hand=by_hand)


def kepler(arrays: list[Any]) -> Forms:
    def one_more(mean: Any, eccentricity: Any) -> Any:
        """An iteration that is differentiated, at the root: it has the root's derivatives."""
        with dr.suspend_grad():
            x = _solve(mean, eccentricity)
            slope = 1 / (1 - eccentricity * dr.cos(x))
        return x - slope * (x - eccentricity * dr.sin(x) - mean)

    def implicit(mean: Any, eccentricity: Any) -> Any:
        x = _solve(mean, eccentricity)
        sin, cos = dr.sincos(x)
        slope = 1 / (1 - eccentricity * cos)
        return x, slope, sin * slope

    return _forms(arrays, one_turn_more_backward=_with_gradient(one_more), implicit=implicit)


def _stress(*arguments: Any) -> list[Any]:
    xx, yy, zz, xy, xz, yz, hardened = arguments
    volume = xx + yy + zz
    trial = [2 * SHEAR * (e - volume / 3) for e in (xx, yy, zz)] + [2 * SHEAR * e for e in (xy, xz, yz)]
    squares = [s * s for s in trial]
    mises = dr.sqrt(1.5 * (sum(squares[:3]) + 2 * sum(squares[3:])))
    excess = mises - (YIELD + HARDENING * hardened)
    kept = dr.select(excess > 0, 1 - 3 * SHEAR * excess / ((3 * SHEAR + HARDENING) * mises), 1.0)
    return [kept * s + BULK * volume for s in trial[:3]] + [kept * s for s in trial[3:]]


def plasticity(arrays: list[Any]) -> Forms:
    def backward(*arrays: Any) -> Any:
        rows = [_pull(lambda *strain, i=i: _stress(*strain, arrays[6])[i], list(arrays[:6]), 1) for i in range(6)]
        return [value for value, _ in rows], [row for _, row in rows]

    def forward(*arrays: Any) -> Any:
        columns = []
        for j in range(6):
            strain = [type(x)(x) for x in arrays[:6]]
            dr.enable_grad(strain[j])
            found = _stress(*strain, arrays[6])
            dr.forward_from(strain[j])
            columns.append([dr.grad(y) for y in found])
        return [dr.detach(y) for y in found], [columns[j][i] for i in range(6) for j in range(6)]

    return _forms(arrays, six_backward=backward, six_forward=forward)


def layer(arrays: list[Any]) -> Forms:
    def both(x: Any, w: Any, b: Any, bar: Any) -> Any:
        rows, columns = len(b), len(w)
        return _pull(lambda x, w, b: dr.tanh(x * dr.tile(w, rows) + dr.repeat(b, columns)), [x, w, b], bar)

    return _forms(arrays, backward=both)
