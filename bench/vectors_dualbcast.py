"""dualbcast on vectors and matrices: functions with signatures, of arrays of structures or of contiguous columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from constants import BULK, HARDENING, INERTIA, SHEAR, STEP, YIELD

from dualbcast import differentiable_broadcast

CANNOT: dict[str, str] = {}
ROWS = False
Forms = dict[str, Callable[[], Callable[[], Any]]]


def array(host: Any) -> Any:
    return host


def host(result: Any) -> Any:
    return result


@differentiable_broadcast(signature="(3,3),()->(3,3)", wrt="strain")
def _stress(strain, hardened):
    volume = np.trace(strain) * np.eye(3)
    trial = 2 * SHEAR * (strain - volume / 3)
    mises = np.sqrt(1.5) * np.linalg.norm(trial)
    excess = mises - (YIELD + HARDENING * hardened)
    if excess > 0:
        trial = trial * (1 - 3 * SHEAR * excess / ((3 * SHEAR + HARDENING) * mises))
    return trial + BULK * volume


@differentiable_broadcast(signature="(3),(9)->(2)")
def _projection(point, camera):
    turn, move, (focal, k1, k2) = camera[:3], camera[3:6], camera[6:]
    angle = np.linalg.norm(turn)
    axis = turn / angle
    along = axis * (axis @ point)
    x = along + np.cos(angle) * (point - along) + np.sin(angle) * np.cross(axis, point) + move
    flat = -x[:2] / x[2]
    r = flat @ flat
    return focal * (1 + r * (k1 + r * k2)) * flat


@differentiable_broadcast(signature="(3,3),(3),(3)->(3,3),(3)")
def _rigid_step(rotation, spin, torque):
    moments = np.array(INERTIA)
    spin = spin + STEP * (torque - np.cross(spin, moments * spin)) / moments
    angle = STEP * np.linalg.norm(spin)
    x, y, z = STEP * spin / angle
    hat = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    turn = np.eye(3) + np.sin(angle) * hat + (1 - np.cos(angle)) * (hat @ hat)
    return rotation @ turn, spin


@differentiable_broadcast(signature="(3),(3),(3),(3)->()")
def _dihedral(a, b, c, d):
    u, v, w = b - a, c - b, d - c
    m, n = np.cross(u, v), np.cross(v, w)
    return np.arctan2(np.cross(m, n) @ v / np.linalg.norm(v), m @ n)


@differentiable_broadcast(signature="(4,4),(4)->(4)")
def _equations(a, b):
    return np.linalg.solve(a, b)


@differentiable_broadcast(signature="(3,3)->(3)")
def _principal_strains(gradient):
    return np.linalg.eigvalsh(0.5 * (gradient + gradient.T))


def _forms(function: Any, arrays: list[Any]) -> Forms:
    def call(given: list[Any]) -> Callable[[], Any]:
        def both() -> Any:
            value, jacobian = function.value_and_jacobian(*given)
            return value, [[jacobian[k, name] for name in jacobian.wrt] for k in range(jacobian.outputs)]

        return both

    return {"arrays of structures": lambda: call(arrays), "columns": lambda: call([_columns(x) for x in arrays])}


def _columns(array: Any) -> Any:
    axes = (*range(1, array.ndim), 0)
    return np.ascontiguousarray(array.transpose(axes)).transpose((array.ndim - 1, *range(array.ndim - 1)))


def stress(arrays: list[Any]) -> Forms:
    return _forms(_stress, arrays)


def projection(arrays: list[Any]) -> Forms:
    return _forms(_projection, arrays)


def rigid_step(arrays: list[Any]) -> Forms:
    return _forms(_rigid_step, arrays)


def dihedral(arrays: list[Any]) -> Forms:
    return _forms(_dihedral, arrays)


def equations(arrays: list[Any]) -> Forms:
    return _forms(_equations, arrays)


def principal_strains(arrays: list[Any]) -> Forms:
    return _forms(_principal_strains, arrays)
