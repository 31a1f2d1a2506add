"""Arguments of the cases with vectors and matrices, and their results: NumPy on whole arrays, and derivatives by
complex steps, which have no rounding errors of differences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from constants import BULK, HARDENING, INERTIA, SHEAR, STEP, YIELD

# By case: the cores of the arguments that are differentiated in, and those of the outputs.
CORES: dict[str, tuple[list[tuple[int, ...]], list[tuple[int, ...]]]] = {
    "stress": ([(3, 3)], [(3, 3)]),
    "projection": ([(3,), (9,)], [(2,)]),
    "rigid_step": ([(3, 3), (3,), (3,)], [(3, 3), (3,)]),
    "dihedral": ([(3,)] * 4, [()]),
    "equations": ([(4, 4), (4,)], [(4,)]),
    "principal_strains": ([(3, 3)], [(3,)]),
}


@lru_cache(maxsize=2)
def arguments(case: str, n: int) -> list[Any]:
    """An array for each argument, with its core last; those that are not differentiated in come after the others."""
    random = np.random.default_rng(0)
    normal = random.standard_normal
    if case == "stress":
        return [2e-3 * normal((n, 3, 3)), random.uniform(0, 0.1, n)]
    if case == "projection":
        point, camera = normal((n, 3)), normal((n, 9)) * 0.1
        point[:, 2] += 8
        camera[:, 6] += 800
        return [point, camera]
    if case == "rigid_step":
        turned = np.linalg.qr(normal((n, 3, 3)))[0]
        return [turned, normal((n, 3)), normal((n, 3))]
    if case == "equations":
        return [normal((n, 4, 4)) + 3 * np.eye(4), normal((n, 4))]
    if case == "principal_strains":
        return [1e-3 * normal((n, 3, 3))]
    return [normal((n, 3)) for _ in range(4)]


def _norm(a: Any) -> Any:
    return np.sqrt((a * a).sum(-1))


def stress(strain: Any, hardened: Any) -> list[Any]:
    """J2 plasticity with a full strain: a radial return."""
    volume = np.trace(strain, axis1=-2, axis2=-1)[:, None, None] * np.eye(3)
    trial = 2 * SHEAR * (strain - volume / 3)
    mises = np.sqrt(1.5 * (trial * trial).sum((-2, -1)))
    excess = mises - YIELD - HARDENING * hardened
    kept = np.where(excess.real > 0, 1 - 3 * SHEAR * excess / ((3 * SHEAR + HARDENING) * mises), 1.0)
    return [kept[:, None, None] * trial + BULK * volume]


def projection(point: Any, camera: Any) -> list[Any]:
    """A point seen by a camera of a rotation vector, a translation, a focal length and two distortions."""
    angle = _norm(camera[:, :3])[:, None]
    axis = camera[:, :3] / angle
    along = axis * (axis * point).sum(-1, keepdims=True)
    x = along + np.cos(angle) * (point - along) + np.sin(angle) * np.cross(axis, point) + camera[:, 3:6]
    flat = -x[:, :2] / x[:, 2:]
    r = (flat * flat).sum(-1)
    return [(camera[:, 6] * (1 + r * (camera[:, 7] + r * camera[:, 8])))[:, None] * flat]


def rigid_step(rotation: Any, spin: Any, torque: Any) -> list[Any]:
    """Euler's equations of a body with principal moments, and its rotation by the exponential of the new spin."""
    moments = np.array(INERTIA)
    spin = spin + STEP * (torque - np.cross(spin, moments * spin)) / moments
    angle = STEP * _norm(spin)[:, None, None]
    axis = STEP * spin / angle[..., 0]
    hat = np.cross(np.eye(3)[None], axis[:, None, :])  # its rows are products with the axis
    turn = np.eye(3) + np.sin(angle) * hat + (1 - np.cos(angle)) * (hat @ hat)
    return [rotation @ turn, spin]


def dihedral(a: Any, b: Any, c: Any, d: Any) -> list[Any]:
    """The angle between the planes of four points around the line from the second to the third."""
    u, v, w = b - a, c - b, d - c
    m, n = np.cross(u, v), np.cross(v, w)
    sine, cosine = (np.cross(m, n) * v).sum(-1) / _norm(v), (m * n).sum(-1)
    if np.iscomplexobj(sine):  # arctan2 of complex numbers, near its real value
        real = np.arctan2(sine.real, cosine.real)
        return [real + 1j * (sine.imag * cosine.real - cosine.imag * sine.real) / (sine.real**2 + cosine.real**2)]
    return [np.arctan2(sine, cosine)]


def equations(a: Any, b: Any) -> list[Any]:
    """Four linear equations."""
    return [np.linalg.solve(a, b[..., None])[..., 0]]


def principal_strains(gradient: Any) -> list[Any]:
    """The eigenvalues of the symmetric part of a gradient of displacements."""
    strain = 0.5 * (gradient + np.swapaxes(gradient, -1, -2))
    values, vectors = np.linalg.eigh(strain.real)
    # The first order of perturbation theory, near the real values.
    slopes = np.einsum("nik,nij,njk->nk", vectors, strain.imag, vectors)
    return [values + 1j * slopes if np.iscomplexobj(strain) else values]


def expected(case: str, given: Sequence[Any]) -> tuple[list[Any], list[list[Any]]]:
    """The outputs, and for each output its derivative in each argument."""
    function: Callable[..., list[Any]] = globals()[case]
    cores, _ = CORES[case]
    values, columns = function(*given), []
    for at, core in enumerate(cores):
        own = []
        for index in np.ndindex(*core):
            moved = given[at].astype(complex)
            moved[(..., *index)] += 1e-100j
            own.append([y.imag / 1e-100 for y in function(*given[:at], moved, *given[at + 1 :])])
        columns.append(own)
    rows = [
        [
            np.stack([column[k] for column in own], axis=-1).reshape((*values[k].shape, *core))
            for own, core in zip(columns, cores, strict=True)
        ]
        for k in range(len(values))
    ]
    return values, rows
