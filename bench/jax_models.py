"""The two scalar functions for JAX, with value and partials by `vmap` of `value_and_grad`, compiled by `jit`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def cell_update(jax: Any) -> Callable[..., Any]:
    """The HM-LSTM update: (c, f, i, g) of shape (n, n) and (z, zb) of shape (n, 1) → value, four partials."""
    numpy, sigmoid = jax.numpy, jax.nn.sigmoid

    def scalar(c: Any, f: Any, i: Any, g: Any, z: Any, zb: Any) -> Any:
        update = sigmoid(f) * c + sigmoid(i) * numpy.tanh(g)
        return numpy.where(z == 1, sigmoid(i) * numpy.tanh(g), numpy.where(zb == 0, c, update))

    one = jax.value_and_grad(scalar, argnums=(0, 1, 2, 3))
    rows = jax.vmap(jax.vmap(one, in_axes=(0, 0, 0, 0, None, None)))
    return jax.jit(lambda c, f, i, g, z, zb: rows(c, f, i, g, z[:, 0], zb[:, 0]))  # type: ignore[no-any-return]


def cell_pullback(jax: Any) -> Callable[..., Any]:
    """The HM-LSTM update and a cotangent of it → value, cotangents of c, f, i, g."""
    numpy, sigmoid = jax.numpy, jax.nn.sigmoid

    def update(c: Any, f: Any, i: Any, g: Any, z: Any, zb: Any) -> Any:
        fresh = sigmoid(i) * numpy.tanh(g)
        return numpy.where(z == 1, fresh, numpy.where(zb == 0, c, sigmoid(f) * c + fresh))

    def both(c: Any, f: Any, i: Any, g: Any, z: Any, zb: Any, cotangent: Any) -> Any:
        value, pullback = jax.vjp(lambda *gates: update(*gates, z, zb), c, f, i, g)
        return value, pullback(cotangent)

    return jax.jit(both)  # type: ignore[no-any-return]


def product(jax: Any, arity: int) -> Callable[..., Any]:
    """∏ tanh(g(x)): arrays of shape (n, n) → value, a partial for each."""
    numpy = jax.numpy

    def scalar(*xs: Any) -> Any:
        y = 1.0
        for x in xs:
            y = y * numpy.tanh(numpy.where(x > 0.5, x, -x))
        return y

    one = jax.value_and_grad(scalar, argnums=tuple(range(arity)))
    return jax.jit(jax.vmap(jax.vmap(one)))  # type: ignore[no-any-return]
