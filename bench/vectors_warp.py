"""Warp on vectors and matrices, on the processor: its own types of vectors, and a tape that is gone back through once
for each component of the results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import constants
import numpy as np
import warp as wp

CANNOT: dict[str, str] = {}
ROWS = True
Forms = dict[str, Callable[[], Callable[[], Any]]]
BULK, SHEAR = wp.constant(wp.float64(constants.BULK)), wp.constant(wp.float64(constants.SHEAR))
YIELD, HARDENING = wp.constant(wp.float64(constants.YIELD)), wp.constant(wp.float64(constants.HARDENING))
STEP = wp.constant(wp.float64(constants.STEP))
I0, I1, I2 = (wp.constant(wp.float64(each)) for each in constants.INERTIA)
vector9 = wp.types.vector(length=9, dtype=wp.float64)

wp.config.quiet = True
wp.config.log_level = getattr(wp, "LOG_WARNING", 30)
wp.init()


def array(host: Any) -> Any:
    kinds = {
        (): wp.float64,
        (2,): wp.vec2d,
        (3,): wp.vec3d,
        (4,): wp.vec4d,
        (9,): vector9,
        (3, 3): wp.mat33d,
        (4, 4): wp.mat44d,
    }
    return wp.array(np.ascontiguousarray(host), dtype=kinds[host.shape[1:]], device="cpu")


def host(result: Any) -> Any:
    return result.numpy()


@wp.kernel
def _stress(strain: wp.array(dtype=wp.mat33d), hardened: wp.array(dtype=wp.float64), out: wp.array(dtype=wp.mat33d)):
    k = wp.tid()
    e = strain[k]
    one, two, three = wp.float64(1.0), wp.float64(2.0), wp.float64(3.0)
    volume = wp.trace(e) * wp.identity(n=3, dtype=wp.float64)
    trial = two * SHEAR * (e - volume / three)
    mises = wp.sqrt(wp.float64(1.5) * wp.ddot(trial, trial))
    excess = mises - (YIELD + HARDENING * hardened[k])
    kept = one
    if excess > wp.float64(0.0):
        kept = one - three * SHEAR * excess / ((three * SHEAR + HARDENING) * mises)
    out[k] = kept * trial + BULK * volume


@wp.kernel
def _projection(points: wp.array(dtype=wp.vec3d), cameras: wp.array(dtype=vector9), out: wp.array(dtype=wp.vec2d)):
    k = wp.tid()
    c, point = cameras[k], points[k]
    turn, move = wp.vec3d(c[0], c[1], c[2]), wp.vec3d(c[3], c[4], c[5])
    angle = wp.length(turn)
    axis = turn / angle
    along = axis * wp.dot(axis, point)
    x = along + wp.cos(angle) * (point - along) + wp.sin(angle) * wp.cross(axis, point) + move
    flat = wp.vec2d(-x[0] / x[2], -x[1] / x[2])
    r = wp.dot(flat, flat)
    out[k] = c[6] * (wp.float64(1.0) + r * (c[7] + r * c[8])) * flat


@wp.kernel
def _rigid_step(
    rotations: wp.array(dtype=wp.mat33d),
    spins: wp.array(dtype=wp.vec3d),
    torques: wp.array(dtype=wp.vec3d),
    out: wp.array(dtype=wp.mat33d),
    out_spin: wp.array(dtype=wp.vec3d),
):
    k = wp.tid()
    s = spins[k]
    zero, one = wp.float64(0.0), wp.float64(1.0)
    t = torques[k] - wp.cross(s, wp.vec3d(I0 * s[0], I1 * s[1], I2 * s[2]))
    spin = s + STEP * wp.vec3d(t[0] / I0, t[1] / I1, t[2] / I2)
    angle = STEP * wp.length(spin)
    a = STEP * spin / angle
    hat = wp.mat33d(zero, -a[2], a[1], a[2], zero, -a[0], -a[1], a[0], zero)
    turn = wp.identity(n=3, dtype=wp.float64) + wp.sin(angle) * hat + (one - wp.cos(angle)) * (hat @ hat)
    out[k] = rotations[k] @ turn
    out_spin[k] = spin


@wp.kernel
def _dihedral(
    aa: wp.array(dtype=wp.vec3d),
    bb: wp.array(dtype=wp.vec3d),
    cc: wp.array(dtype=wp.vec3d),
    dd: wp.array(dtype=wp.vec3d),
    out: wp.array(dtype=wp.float64),
):
    k = wp.tid()
    u, v, w = bb[k] - aa[k], cc[k] - bb[k], dd[k] - cc[k]
    m, n = wp.cross(u, v), wp.cross(v, w)
    out[k] = wp.atan2(wp.dot(wp.cross(m, n), v) / wp.length(v), wp.dot(m, n))


@wp.kernel
def _equations(aa: wp.array(dtype=wp.mat44d), bb: wp.array(dtype=wp.vec4d), out: wp.array(dtype=wp.vec4d)):
    k = wp.tid()
    out[k] = wp.inverse(aa[k]) * bb[k]


@wp.kernel
def _principal_strains(gradients: wp.array(dtype=wp.mat33d), out: wp.array(dtype=wp.vec3d)):
    k = wp.tid()
    gradient = gradients[k]
    _vectors, d = wp.eig3(wp.float64(0.5) * (gradient + wp.transpose(gradient)))
    low, high = wp.min(d[0], wp.min(d[1], d[2])), wp.max(d[0], wp.max(d[1], d[2]))
    out[k] = wp.vec3d(low, d[0] + d[1] + d[2] - low - high, high)


def _forms(kernel: Any, arrays: list[Any], active: int, outputs: list[tuple[Any, int]]) -> Forms:
    count, first = len(arrays[0]), arrays[:active]
    units = []
    for kind, size in outputs:
        shape = np.zeros((count, size))
        units.append([])
        for at in range(size):
            unit = shape.copy()
            unit[:, at] = 1.0
            whole = unit.reshape((count, 3, 3)) if size == 9 else unit[:, 0] if size == 1 else unit
            units[-1].append(wp.array(whole, dtype=kind, device="cpu"))
    for x in first:
        x.requires_grad = True

    def call() -> Any:
        values = [wp.empty(count, dtype=kind, device="cpu", requires_grad=True) for kind, _ in outputs]
        tape = wp.Tape()
        with tape:
            wp.launch(kernel, dim=count, inputs=arrays, outputs=values, device="cpu")
        rows = []
        for value, own in zip(values, units, strict=True):
            for unit in own:
                for x in first:
                    x.grad = wp.zeros_like(x, requires_grad=False)
                wp.copy(value.grad, unit)
                tape.backward()
                value.grad.zero_()
                rows.append([x.grad for x in first])
        return values, rows

    return {"a pass back for each result": lambda: call}


def stress(arrays: list[Any]) -> Forms:
    return _forms(_stress, arrays, 1, [(wp.mat33d, 9)])


def projection(arrays: list[Any]) -> Forms:
    return _forms(_projection, arrays, 2, [(wp.vec2d, 2)])


def rigid_step(arrays: list[Any]) -> Forms:
    return _forms(_rigid_step, arrays, 3, [(wp.mat33d, 9), (wp.vec3d, 3)])


def dihedral(arrays: list[Any]) -> Forms:
    return _forms(_dihedral, arrays, 4, [(wp.float64, 1)])


def equations(arrays: list[Any]) -> Forms:
    return _forms(_equations, arrays, 2, [(wp.vec4d, 4)])


def principal_strains(arrays: list[Any]) -> Forms:
    return _forms(_principal_strains, arrays, 1, [(wp.vec3d, 3)])
