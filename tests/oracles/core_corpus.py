"""Functions of vectors and matrices, each with a signature and arguments; they run in NumPy and under JAX, too."""

# Matrices have the names of mathematics.
# ruff: noqa: N803, N806

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

__all__ = ["CORE_CORPUS", "CoreCase"]


@dataclass(frozen=True)
class CoreCase:
    """A function, its signature, the core shapes of its arguments, and what JAX cannot trace.

    `make` turns an argument of standard normal numbers into one of the function's domain. Results may be off by
    `allowance` roundings, relative to one more than the largest of them.
    """

    function: FunctionType
    signature: str
    shapes: tuple[tuple[int, ...], ...]
    make: Callable[[Any], Any] = lambda x: x
    allowance: float = 64.0
    traceable: bool = True

    @property
    def name(self) -> str:
        return self.function.__name__

    def arguments(self, batch: tuple[int, ...], dtype: str = "float64", seed: int = 0) -> list[Any]:
        """An array for each argument, of this shape before the core."""
        random = np.random.default_rng(seed + len(self.name))
        return [np.asarray(self.make(random.standard_normal((*batch, *shape))), dtype) for shape in self.shapes]


CORE_CORPUS: list[CoreCase] = []


def case(signature: str, *shapes: tuple[int, ...], **options: Any) -> Callable[[Any], Any]:
    def add(function: Any) -> Any:
        CORE_CORPUS.append(CoreCase(function, signature, shapes, **options))
        return function

    return add


def symmetric(x: Any) -> Any:
    """A symmetric matrix with eigenvalues that lie apart."""
    size = x.shape[-1]
    return (x + np.swapaxes(x, -1, -2)) / 2 + np.diag(4.0 * np.arange(size))


def well_conditioned(x: Any) -> Any:
    return x + 4.0 * np.eye(x.shape[-1]) if x.ndim > 1 and x.shape[-1] == x.shape[-2] else x


# --- vectors ---------------------------------------------------------------------------------------------------------


@case("(3),(3,3)->(3)", (3,), (3, 3))
def rotated(v, R):
    return R @ v


@case("(n),(n)->()", (4,), (4,))
def weighted(p, x):
    total = 0.0
    for i in range(len(p)):
        total = total + p[i] * x[i] ** 2
    return total


@case("(3),()->()", (3,), ())
def polynomial(p, x):
    return p[0] + x * (p[1] + x * p[2])


@case("(3),(3)->(3),(),()", (3,), (3,))
def triple(a, b):
    n = np.cross(a, b)
    return n, np.dot(a, b), np.linalg.norm(n - a)


@case("(3),(3),(3),(3)->()", (3,), (3,), (3,), (3,), allowance=256)
def dihedral(a, b, c, d):
    u, v, w = b - a, c - b, d - c
    m, n = np.cross(u, v), np.cross(v, w)
    return np.arctan2(np.dot(np.cross(m, n), v) / np.linalg.norm(v), np.dot(m, n))


@case("(2),(2)->(2)", (2,), (2,), traceable=False)
def bounced(position, velocity):
    if position[0] + position[1] > 0:
        return [-velocity[0], velocity[1]]
    for i in range(2):
        if velocity[i] < 0:
            return position * velocity[i]
    return np.array([position[1], position[0]])


@case("(n),()->(n)", (5,), ())
def slices(v, s):
    first, *rest = v
    w = np.concatenate([v[::-1][1:3], np.array([first * s]), v[-2:]])
    return w * np.sum(np.array(rest)) - (v if len(v) > 3 else w)


@case("(3)->(3,3)", (3,))
def hat(w):
    return ((0.0, -w[2], w[1]), (w[2], 0.0, -w[0]), (-w[1], w[0], 0.0))


@case("(3)->(3)", (3,))
def softmax(v):
    e = np.exp(v - 1.0)
    return e / e.sum() + np.sin(v) * np.tanh(2 * v)


@case("(3),()->(3)", (3,), ())
def clipped_on_one_side(v, bound):
    return np.clip(v, None, bound) * np.clip(v, bound, None) + np.clip(v, -bound, 2.0)


@case("(3),()->(3)", (3,), (), traceable=False)
def clipped(v, bound):
    w = np.where(v > bound, v * bound, v - bound)
    while np.max(w) > 2.0:
        w = w / 2.0
    return w if np.all(w < 1.0) else -w


# --- matrices --------------------------------------------------------------------------------------------------------


@case("(n,m),(m,k)->(n,k)", (2, 3), (3, 4))
def product(A, B):
    return A @ B


@case("(3,3)->(3,3),()", (3, 3), make=well_conditioned, allowance=256)
def inverse_and_determinant(F):
    return np.linalg.inv(F), np.linalg.det(F)


@case("(n,n),(n)->(n)", (4, 4), (4,), make=well_conditioned, allowance=256)
def solved(A, b):
    return np.linalg.solve(A, b)


@case("(2,2),(2,2)->(2,2)", (2, 2), (2, 2), make=well_conditioned, allowance=256)
def solved_columns(A, B):
    return np.linalg.solve(A, B.T) + np.linalg.inv(B)


@case("(3,3),(),()->(3,3)", (3, 3), (), (), make=well_conditioned, allowance=256)
def neo_hookean(F, mu, kappa):
    J = np.linalg.det(F)
    C = F.T @ F
    deviator = np.eye(3) - np.linalg.inv(C) * np.trace(C) / 3.0
    return F @ (mu * np.cbrt(J) ** -2 * deviator + kappa * np.log(J) * np.linalg.inv(C))


@case("(3,3),(3,3)->(),(3,3),(3)", (3, 3), (3, 3))
def contractions(A, B):
    outer = np.outer(A[0], B[:, 1])
    return (
        np.einsum("ij,ij->", A, B),
        outer - np.transpose(A),
        np.diag(A * B) + np.einsum("ijk,jk->i", A[:, :, None] * B, A),
    )


@case("(3,3)->(3)", (3, 3), make=symmetric, allowance=256)
def eigenvalues(A):
    A = np.tril(A) + np.tril(A, -1).T  # NumPy reads this triangle alone, JAX both
    return np.linalg.eigvalsh(A)


@case("(2,2)->(2)", (2, 2), make=symmetric, allowance=256)
def eigenvalues_2(A):
    A = np.tril(A) + np.tril(A, -1).T
    return np.linalg.eigvalsh(A)


@case("(3,3)->(3,3)", (3, 3), make=symmetric, allowance=512)
def exponential(A):
    values, vectors = np.linalg.eigh(np.tril(A) + np.tril(A, -1).T)
    return (vectors * np.exp(-0.1 * values)) @ vectors.T


class Split(NamedTuple):
    volumetric: Any
    deviatoric: Any


@case("(3,3)->(),(3,3)", (3, 3), traceable=False)
def split(A):
    mean = np.trace(A) / 3
    return Split(mean, A - mean * np.eye(3))


@case("(3,3),(),(),()->(3,3)", (3, 3), (), (), (), traceable=False, allowance=256)
def radial_return(strain, mu, kappa, limit):
    pressure = kappa * np.trace(strain)
    deviator = strain - np.trace(strain) / 3 * np.eye(3)
    trial = 2 * mu * deviator
    size = np.linalg.norm(trial)
    if size > abs(limit):
        trial = trial * (abs(limit) / size)
    return trial + pressure * np.eye(3)
