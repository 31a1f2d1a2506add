"""JAX: `jit`; partials by `vjp` of whole arrays or `vmap` of scalar derivatives; `where` or `lax.cond` for `if`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from constants import BULK, HARDENING, SHEAR, STEP, STEPS, TOLERANCE, YIELD
from jax import lax
from jax.scipy.special import erfc, ndtr

CANNOT: dict[str, str] = {}
Forms = dict[str, Callable[[], Callable[[], Any]]]

jax.config.update("jax_enable_x64", True)  # arrays of float32 stay float32


def array(host: Any) -> Any:
    return jnp.asarray(host)


def host(result: Any) -> Any:
    return np.asarray(result)


def _forms(arrays: list[Any], **functions: Callable[..., Any]) -> Forms:
    def call(function: Callable[..., Any]) -> Callable[[], Any]:
        compiled = jax.jit(function)
        return lambda: jax.block_until_ready(compiled(*arrays))

    return {name.replace("_", " "): partial(call, function) for name, function in functions.items()}


def _with_vjp(function: Callable[..., Any], active: int | None = None) -> Callable[..., Any]:
    """Value and partials: an element-wise function's Jacobian is the pullback of ones."""

    def both(*arrays: Any) -> Any:
        rest = arrays[active:] if active else ()
        value, pullback = jax.vjp(lambda *first: function(*first, *rest), *arrays[:active])
        return value, pullback(jnp.ones_like(value))

    return both


def cell_where(c: Any, f: Any, i: Any, g: Any, z: Any, zb: Any) -> Any:
    fresh = jax.nn.sigmoid(i) * jnp.tanh(g)
    return jnp.where(z == 1, fresh, jnp.where(zb == 0, c, jax.nn.sigmoid(f) * c + fresh))


def cell_cond(c: Any, f: Any, i: Any, g: Any, z: Any, zb: Any) -> Any:
    def fresh() -> Any:
        return jax.nn.sigmoid(i) * jnp.tanh(g)

    return lax.cond(z == 1, fresh, lambda: lax.cond(zb == 0, lambda: c, lambda: jax.nn.sigmoid(f) * c + fresh()))


def _cells(function: Callable[..., Any], arrays: list[Any]) -> Callable[..., Any]:
    """A function of scalars over arrays (n, n), the two controls one number a row or an element."""
    if arrays[4].shape[1] > 1:
        return jax.vmap(jax.vmap(function))
    axes = (*(0 for _ in range(4)), None, None, *(0 for _ in arrays[6:]))
    rows = jax.vmap(jax.vmap(function, in_axes=axes))
    return lambda c, f, i, g, z, zb, *bar: rows(c, f, i, g, z[:, 0], zb[:, 0], *bar)


def cell_value(arrays: list[Any]) -> Forms:
    return _forms(arrays, where=cell_where, cond=_cells(cell_cond, arrays))


def cell_jacobian(arrays: list[Any]) -> Forms:
    def scalar(function: Callable[..., Any]) -> Callable[..., Any]:
        return _cells(jax.value_and_grad(function, argnums=(0, 1, 2, 3)), arrays)

    return _forms(
        arrays, vjp_where=_with_vjp(cell_where, 4), vmap_where=scalar(cell_where), vmap_cond=scalar(cell_cond)
    )


def cell_pullback(arrays: list[Any]) -> Forms:
    def pulled(function: Callable[..., Any]) -> Callable[..., Any]:
        def both(c: Any, f: Any, i: Any, g: Any, z: Any, zb: Any, bar: Any) -> Any:
            value, pullback = jax.vjp(lambda *gates: function(*gates, z, zb), c, f, i, g)
            return value, pullback(bar)

        return both

    return _forms(arrays, vjp_where=pulled(cell_where), vmap_cond=_cells(pulled(cell_cond), arrays))


def product(arrays: list[Any]) -> Forms:
    def scalar(*xs: Any) -> Any:
        y = 1.0
        for x in xs:
            y = y * jnp.tanh(jnp.where(x > 0.5, x, -x))
        return y

    each = jax.vmap(jax.vmap(jax.value_and_grad(scalar, argnums=tuple(range(len(arrays))))))
    return _forms(arrays, vjp=_with_vjp(scalar), vmap=each)


def _price(cdf: Callable[..., Any]) -> Callable[..., Any]:
    def price(spot: Any, strike: Any, rate: Any, volatility: Any, time: Any) -> Any:
        spread = volatility * jnp.sqrt(time)
        d = (jnp.log(spot / strike) + rate * time) / spread + spread / 2
        return spot * cdf(d) - strike * jnp.exp(-rate * time) * cdf(d - spread)

    return price


def _erfc(x: Any) -> Any:
    return erfc(-x / np.sqrt(2)) / 2


def price(arrays: list[Any]) -> Forms:
    return _forms(arrays, vjp_erfc=_with_vjp(_price(_erfc)), vjp_ndtr=_with_vjp(_price(ndtr)))


def greeks(arrays: list[Any]) -> Forms:
    def all_of(cdf: Callable[..., Any]) -> Callable[..., Any]:
        def both(spot: Any, strike: Any, rate: Any, volatility: Any, time: Any) -> Any:
            first = _with_vjp(_price(cdf))
            along = jax.jvp(lambda s: first(s, strike, rate, volatility, time), (spot,), (jnp.ones_like(spot),))
            (value, (delta, _, rho, vega, decay)), (_, (gamma, *_)) = along
            return value, delta, gamma, vega, -decay, rho

        return both

    return _forms(arrays, jvp_of_vjp_erfc=all_of(_erfc), jvp_of_vjp_ndtr=all_of(ndtr))


def _solve(mean: Any, eccentricity: Any) -> Any:
    def turn(state: Any) -> Any:
        x, _ = state
        step = (x - eccentricity * jnp.sin(x) - mean) / (1 - eccentricity * jnp.cos(x))
        return x - step, step

    start = mean + eccentricity * jnp.sin(mean)
    return lax.while_loop(lambda state: jnp.abs(state[1]) > TOLERANCE, turn, (start, jnp.ones_like(mean)))[0]


def _oscillate(x: Any, v: Any, damping: Any, unrolled: bool = False) -> Any:
    def step(_: Any, state: Any) -> Any:
        x, v = state
        v = v + STEP * (damping * (1 - x * x) * v - x)
        return x + STEP * v, v

    if unrolled:
        for turn in range(STEPS):
            x, v = step(turn, (x, v))
        return x
    return lax.fori_loop(0, STEPS, step, (x, v))[0]


def oscillator(arrays: list[Any]) -> Forms:
    def forward(*scalars: Any) -> Any:
        along = jax.vmap(lambda tangents: jax.jvp(_oscillate, scalars, tuple(tangents)), out_axes=(None, 0))
        value, slopes = along(jnp.eye(3))
        return value, [slopes[k] for k in range(3)]

    def whole(*arrays: Any) -> Any:
        zeros, ones = jnp.zeros_like(arrays[0]), jnp.ones_like(arrays[0])
        found = [jax.jvp(_oscillate, arrays, tuple(ones if at == k else zeros for at in range(3))) for k in range(3)]
        return found[0][0], [slope for _, slope in found]

    return _forms(
        arrays,
        jvp_of_scalars=jax.vmap(forward),
        jvp=whole,
        vjp=_with_vjp(_oscillate),
        vjp_unrolled=_with_vjp(partial(_oscillate, unrolled=True)),
    )


@jax.custom_jvp
def _implicit(mean: Any, eccentricity: Any) -> Any:
    return _solve(mean, eccentricity)


@_implicit.defjvp
def _implicit_jvp(primals: Any, tangents: Any) -> Any:
    x = _implicit(*primals)
    return x, (tangents[0] + jnp.sin(x) * tangents[1]) / (1 - primals[1] * jnp.cos(x))


def kepler(arrays: list[Any]) -> Forms:
    def forward(mean: Any, eccentricity: Any) -> Any:
        along = jax.vmap(lambda t: jax.jvp(_solve, (mean, eccentricity), t), out_axes=(None, 0))
        value, slopes = along((jnp.array([1.0, 0.0]), jnp.array([0.0, 1.0])))
        return value, slopes[0], slopes[1]

    both = jax.value_and_grad(_implicit, argnums=(0, 1))

    def chunked(*arrays: Any) -> Any:
        return lax.map(lambda arguments: both(*arguments), arrays, batch_size=1000)

    return _forms(
        arrays, jvp_through_the_loop=jax.vmap(forward), custom_jvp=jax.vmap(both), custom_jvp_in_chunks=chunked
    )


def _stress(*arguments: Any) -> list[Any]:
    xx, yy, zz, xy, xz, yz, hardened = arguments
    volume = xx + yy + zz
    trial = [2 * SHEAR * (e - volume / 3) for e in (xx, yy, zz)] + [2 * SHEAR * e for e in (xy, xz, yz)]
    squares = [s * s for s in trial]
    mises = jnp.sqrt(1.5 * (sum(squares[:3]) + 2 * sum(squares[3:])))
    excess = mises - (YIELD + HARDENING * hardened)
    kept = jnp.where(excess > 0, 1 - 3 * SHEAR * excess / ((3 * SHEAR + HARDENING) * mises), 1.0)
    return [kept * s + BULK * volume for s in trial[:3]] + [kept * s for s in trial[3:]]


def plasticity(arrays: list[Any]) -> Forms:
    strain, hardened = jnp.stack(arrays[:6], axis=1), arrays[6]

    def point(strain: Any, hardened: Any) -> Any:
        def twice(strain: Any) -> Any:
            found = jnp.stack(_stress(*(strain[k] for k in range(6)), hardened))
            return found, found

        tangent, found = jax.jacfwd(twice, has_aux=True)(strain)
        return found, tangent

    def columns(*arrays: Any) -> Any:
        zero, one = jnp.zeros_like(arrays[0]), jnp.ones_like(arrays[0])
        value, push = jax.linearize(lambda *strain: _stress(*strain, arrays[6]), *arrays[:6])
        each = [push(*(one if k == j else zero for k in range(6))) for j in range(6)]
        return value, [each[j][i] for i in range(6) for j in range(6)]

    return _forms(arrays, one_array_a_component=columns) | _forms([strain, hardened], vmap_of_jacfwd=jax.vmap(point))


def layer(arrays: list[Any]) -> Forms:
    def both(x: Any, w: Any, b: Any, bar: Any) -> Any:
        value, pullback = jax.vjp(lambda x, w, b: jnp.tanh(x * w + b), x, w, b)
        return value, pullback(bar)

    return _forms(arrays, vjp=both)
