"""Dr.Jit on vectors and matrices, LLVM backend: its arrays have a column for each component, and one traced kernel has
all passes, forward for each component of the arguments or backward for each of the results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import drjit as dr
import numpy as np
from constants import BULK, HARDENING, INERTIA, SHEAR, STEP, THREADS, YIELD
from drjit.llvm.ad import Array3f64, Array4f64, Float64, Matrix3f64, Matrix4f64

CANNOT = {"principal_strains": "it has no eigenvalues"}
ROWS = True  # results are columns, of one result after the other
Forms = dict[str, Callable[[], Callable[[], Any]]]

if not dr.has_backend(dr.JitBackend.LLVM):
    raise ImportError("Dr.Jit finds no LLVM library; name one in DRJIT_LIBLLVM_PATH")
dr.set_thread_count(THREADS)


def array(host: Any) -> list[Any]:
    """A column for each component."""
    columns = [Float64(np.ascontiguousarray(column)) for column in host.reshape(len(host), -1).T]
    dr.eval(columns)
    return columns


def host(result: Any) -> Any:
    return result.numpy()


def _matrix(x: Sequence[Any]) -> Any:
    return Matrix3f64(Array3f64(*x[:3]), Array3f64(*x[3:6]), Array3f64(*x[6:]))


def _rows(m: Any) -> list[Any]:
    return [m[i, j] for i in range(3) for j in range(3)]


def _stress(e: Sequence[Any], hardened: Any) -> list[Any]:
    volume = e[0] + e[4] + e[8]
    trial = [2 * SHEAR * (x - volume / 3 if k in (0, 4, 8) else x) for k, x in enumerate(e)]
    mises = dr.sqrt(1.5 * sum(x * x for x in trial))
    excess = mises - (YIELD + HARDENING * hardened)
    kept = dr.select(excess > 0, 1 - 3 * SHEAR * excess / ((3 * SHEAR + HARDENING) * mises), 1.0)
    return [kept * x + BULK * volume if k in (0, 4, 8) else kept * x for k, x in enumerate(trial)]


def _projection(x: Sequence[Any]) -> list[Any]:
    point, turn, move = Array3f64(*x[:3]), Array3f64(*x[3:6]), Array3f64(*x[6:9])
    focal, k1, k2 = x[9:]
    angle = dr.norm(turn)
    axis = turn / angle
    along = axis * dr.dot(axis, point)
    seen = along + dr.cos(angle) * (point - along) + dr.sin(angle) * dr.cross(axis, point) + move
    a, b = -seen.x / seen.z, -seen.y / seen.z
    r = a * a + b * b
    scale = focal * (1 + r * (k1 + r * k2))
    return [scale * a, scale * b]


def _rigid_step(x: Sequence[Any]) -> list[Any]:
    rotation, spin, torque = _matrix(x[:9]), Array3f64(*x[9:12]), Array3f64(*x[12:])
    moments = Array3f64(*INERTIA)
    spin = spin + STEP * (torque - dr.cross(spin, moments * spin)) / moments
    angle = STEP * dr.norm(spin)
    axis = STEP * spin / angle
    a, b, c = axis.x, axis.y, axis.z
    zero = dr.zeros(Float64)
    hat = _matrix([zero, -c, b, c, zero, -a, -b, a, zero])
    one = dr.identity(Matrix3f64)
    turn = one + dr.sin(angle) * hat + (1 - dr.cos(angle)) * (hat @ hat)
    return [*_rows(rotation @ turn), spin.x, spin.y, spin.z]


def _dihedral(x: Sequence[Any]) -> list[Any]:
    a, b, c, d = (Array3f64(*x[k : k + 3]) for k in (0, 3, 6, 9))
    u, v, w = b - a, c - b, d - c
    m, n = dr.cross(u, v), dr.cross(v, w)
    return [dr.atan2(dr.dot(dr.cross(m, n), v) / dr.norm(v), dr.dot(m, n))]


def _equations(x: Sequence[Any]) -> list[Any]:
    a = Matrix4f64(*[Array4f64(*x[4 * k : 4 * k + 4]) for k in range(4)])
    return [*(dr.rcp(a) @ Array4f64(*x[16:]))]


def _forms(function: Callable[..., list[Any]], active: list[Any], *rest: Any) -> Forms:
    def backward(*columns: Any) -> Any:
        values, rows = function([dr.detach(x) for x in columns], *rest), []
        for at in range(len(values)):  # traced anew for each: Dr.Jit computes what is the same only once
            given = [Float64(x) for x in columns]
            dr.enable_grad(given)
            value = function(given, *rest)[at]
            dr.backward_from(value)
            rows.append([dr.grad(x) for x in given])
        return values, rows

    def forward(*columns: Any) -> Any:
        tangents = []
        for at in range(len(columns)):
            given = [Float64(x) for x in columns]
            dr.enable_grad(given[at])
            values = function(given, *rest)
            dr.forward_from(given[at], dr.ADFlag.ClearEdges)  # a result may be on the way to another
            tangents.append([dr.grad(y) for y in values])
        rows = [[column[k] for column in tangents] for k in range(len(values))]
        return [dr.detach(value) for value in values], rows

    def call(both: Callable[..., Any]) -> Callable[[], Any]:
        def evaluated() -> Any:
            values, rows = both(*active)
            count = dr.width(active[0])
            # A derivative that is one number is a column as well.
            rows = [[x + dr.zeros(Float64, count) if dr.width(x) != count else x for x in row] for row in rows]
            dr.eval(values, rows)
            dr.sync_thread()
            return values, rows

        return evaluated

    return {
        "backward": lambda: call(backward),
        "backward, frozen": lambda: call(dr.freeze(backward)),
        "forward": lambda: call(forward),
        "forward, frozen": lambda: call(dr.freeze(forward)),
    }


def stress(arrays: list[Any]) -> Forms:
    return _forms(_stress, arrays[0], *arrays[1])


def projection(arrays: list[Any]) -> Forms:
    return _forms(_projection, [*arrays[0], *arrays[1]])


def rigid_step(arrays: list[Any]) -> Forms:
    return _forms(_rigid_step, [*arrays[0], *arrays[1], *arrays[2]])


def dihedral(arrays: list[Any]) -> Forms:
    return _forms(_dihedral, [x for each in arrays for x in each])


def equations(arrays: list[Any]) -> Forms:
    return _forms(_equations, [*arrays[0], *arrays[1]])
