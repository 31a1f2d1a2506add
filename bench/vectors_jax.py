"""JAX on vectors and matrices: `vmap` of `jacfwd` or `jacrev` of a function of one point."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from constants import BULK, HARDENING, INERTIA, SHEAR, STEP, YIELD

CANNOT: dict[str, str] = {}
ROWS = False
Forms = dict[str, Callable[[], Callable[[], Any]]]

jax.config.update("jax_enable_x64", True)


def array(host: Any) -> Any:
    return jnp.asarray(host)


def host(result: Any) -> Any:
    return np.asarray(result)


def _stress(strain: Any, hardened: Any) -> tuple[Any, ...]:
    volume = jnp.trace(strain) * jnp.eye(3)
    trial = 2 * SHEAR * (strain - volume / 3)
    mises = jnp.sqrt(1.5) * jnp.linalg.norm(trial)
    excess = mises - (YIELD + HARDENING * hardened)
    kept = jnp.where(excess > 0, 1 - 3 * SHEAR * excess / ((3 * SHEAR + HARDENING) * mises), 1.0)
    return (kept * trial + BULK * volume,)


def _projection(point: Any, camera: Any) -> tuple[Any, ...]:
    turn, move, focal, k1, k2 = camera[:3], camera[3:6], camera[6], camera[7], camera[8]
    angle = jnp.linalg.norm(turn)
    axis = turn / angle
    along = axis * (axis @ point)
    x = along + jnp.cos(angle) * (point - along) + jnp.sin(angle) * jnp.cross(axis, point) + move
    flat = -x[:2] / x[2]
    r = flat @ flat
    return (focal * (1 + r * (k1 + r * k2)) * flat,)


def _rigid_step(rotation: Any, spin: Any, torque: Any) -> tuple[Any, ...]:
    moments = jnp.array(INERTIA)
    spin = spin + STEP * (torque - jnp.cross(spin, moments * spin)) / moments
    angle = STEP * jnp.linalg.norm(spin)
    x, y, z = STEP * spin / angle
    hat = jnp.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    turn = jnp.eye(3) + jnp.sin(angle) * hat + (1 - jnp.cos(angle)) * (hat @ hat)
    return rotation @ turn, spin


def _dihedral(a: Any, b: Any, c: Any, d: Any) -> tuple[Any, ...]:
    u, v, w = b - a, c - b, d - c
    m, n = jnp.cross(u, v), jnp.cross(v, w)
    return (jnp.arctan2(jnp.cross(m, n) @ v / jnp.linalg.norm(v), m @ n),)


def _equations(a: Any, b: Any) -> tuple[Any, ...]:
    return (jnp.linalg.solve(a, b),)


def _principal_strains(gradient: Any) -> tuple[Any, ...]:
    return (jnp.linalg.eigvalsh(0.5 * (gradient + gradient.T)),)


def _forms(function: Callable[..., Any], arrays: list[Any], active: int) -> Forms:
    places = tuple(range(active))

    def twice(*given: Any) -> Any:
        value = function(*given)
        return value, value

    def form(derive: Any) -> Callable[[], Callable[[], Any]]:
        def prepare() -> Callable[[], Any]:
            compiled = jax.jit(jax.vmap(derive(twice, argnums=places, has_aux=True)))

            def call() -> Any:
                rows, value = jax.block_until_ready(compiled(*arrays))
                return value, rows

            return call

        return prepare

    return {"vmap of jacfwd": form(jax.jacfwd), "vmap of jacrev": form(jax.jacrev)}


def stress(arrays: list[Any]) -> Forms:
    return _forms(_stress, arrays, 1)


def projection(arrays: list[Any]) -> Forms:
    return _forms(_projection, arrays, 2)


def rigid_step(arrays: list[Any]) -> Forms:
    return _forms(_rigid_step, arrays, 3)


def dihedral(arrays: list[Any]) -> Forms:
    return _forms(_dihedral, arrays, 4)


def equations(arrays: list[Any]) -> Forms:
    return _forms(_equations, arrays, 2)


def principal_strains(arrays: list[Any]) -> Forms:
    return _forms(_principal_strains, arrays, 1)
