"""Least squares: pinv and lstsq.

Comes in: Variables or arrays of matrices, and of what they are to give. Goes out: Variables of solutions, as by
`numpy.linalg`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dualbcast.errors import ShapeError
from dualbcast.graph import shapes
from dualbcast.graph.arrays import namespace
from dualbcast.graph.elementwise import apply, floating, where
from dualbcast.graph.linalg.products import adjoint
from dualbcast.graph.linalg.singular_values import svd
from dualbcast.graph.primitives import constant, output_of, run, stop_gradient
from dualbcast.graph.recording import decided
from dualbcast.graph.tape import Cotangents, Node, Primitive, unary
from dualbcast.graph.variable import Variable


def _pullback_of_pinv(node: Node, g: Variable) -> Variable:
    a, p = node.inputs[0], output_of(node)
    pt, gt = adjoint(p), adjoint(g)
    outside = gt @ p @ pt
    inside = pt @ p @ gt
    by_kept = outside - a @ (p @ outside) + inside - (inside @ p) @ a - pt @ g @ pt
    return _by_whole(a, p, by_kept, node.static["rcond"])


# Steps of Smith's iteration: enough if the greatest singular value that is cut is less by 1e-6 than the least that is
# kept, relative to it.
_DOUBLINGS = 25


def _by_whole(a: Variable, p: Variable, by_kept: Variable, rcond: Any) -> Variable:
    """The derivative by `a` of what has the derivative `by_kept` by a p a, the part of `a` that is kept.

    It differs where `rcond` cuts singular values that are more than roundings. A step h of `a` moves the kept part by
    (a p) h (p a) + x + y, and with the cut part r = a - a p a

        x = (a p) h (1 - p a) + pᴴ yᴴ r,    y = (1 - a p) h (p a) + r xᴴ pᴴ.

    This linear map is its own adjoint. Put together, the equations are Stein's, x = c + (pᴴ p) x (rᴴ r), whose series
    Smith's iteration sums: R. A. Smith, SIAM J. Appl. Math. 16 (1968).
    """
    if rcond is None or a.size == 0 or np.max(rcond) <= _cutoff(a, None):
        return by_kept
    pt, pa = adjoint(p), p @ a
    r = a - a @ pa
    left, right = a @ (p @ by_kept), by_kept @ pa
    both = left @ pa
    y = right - both
    x = left - both + pt @ (adjoint(y) @ r)
    # With this scale no power of the factors overflows. It cancels, so it is a constant.
    scale = svd(stop_gradient(p), compute_uv=False)[..., :1, None] ** 2
    first = pt @ p / where(apply("equal", scale, 0.0), 1.0, scale)
    second = adjoint(r) @ r * scale
    for _ in range(_DOUBLINGS):
        x = x + first @ x @ second
        first, second = first @ first, second @ second
    return both + x + y + r @ adjoint(x) @ pt


_PINV = unary(
    "pinv",
    lambda array, rcond: namespace(array).linalg.pinv(array, **({} if rcond is None else {"rtol": rcond})),
    _pullback_of_pinv,
    saves_outputs=True,
    complex_outputs=(True,),
)


def pinv(a: Any, rcond: Any = None, *, rtol: Any = None) -> Variable:
    """The Moore-Penrose inverses of matrices: `numpy.linalg.pinv`.

    Parameters
    ----------
    a : Variable or array
        Of shape (..., m, n).
    rcond, rtol : float, optional
        Smaller singular values, relative to the largest, count as zero.

    Notes
    -----
    The derivative is that among matrices of which as many singular values count: G. H. Golub and V. Pereyra, SIAM J.
    Numer. Anal. 10 (1973).
    """
    return run(_PINV, (constant(a),), rcond=rcond if rtol is None else rtol)


class LstsqResult(NamedTuple):
    """A solution by least squares, with the sums of squared residuals, the rank, and the singular values."""

    x: Variable
    residuals: Variable
    rank: Any
    s: Variable


def _lstsq(a: Any, b: Any, rcond: float | None) -> Any:
    return namespace(a, b).linalg.lstsq(a, b, rcond)[0]


def _pullback_of_lstsq(node: Node, cotangents: Cotangents, wanted: tuple[bool, ...]) -> Cotangents:
    (a, b), c, x = node.inputs, cotangents[0], output_of(node)
    cutoff = _cutoff(a, node.static["rcond"])
    p = pinv(a, cutoff)
    y = adjoint(p) @ c
    if not wanted[0]:
        return None, y
    left = (b - a @ x) @ adjoint(p @ y) + (adjoint(p) @ x) @ adjoint(c - adjoint(a) @ y)
    return _by_whole(a, p, left - y @ adjoint(x), cutoff), y


def _cutoff(a: Variable, rcond: float | None) -> float:
    """What LAPACK takes for `rcond`: it replaces values outside of (0, 1)."""
    epsilon = float(np.finfo(a.dtype).eps)
    if rcond is None:
        return epsilon * max(a.shape[-2:])
    return rcond if 0 < rcond < 1 else epsilon


def _rank(s: Any, cutoff: float) -> int:
    return int((s > cutoff * s[:1]).sum())


_LSTSQ = Primitive("lstsq", _lstsq, _pullback_of_lstsq, saves_outputs=True, complex_outputs=(True,))


def lstsq(a: Any, b: Any, rcond: float | None = None) -> LstsqResult:
    """The shortest x with the least sum of squares of b - a @ x: `numpy.linalg.lstsq`.

    Parameters
    ----------
    a : Variable or array
        Of shape (m, n).
    b : Variable or array
        Of shape (m,) or (m, k).
    rcond : float, optional
        Smaller singular values, relative to the largest, count as zero.

    Returns
    -------
    x, residuals, rank, s
        A tuple, as NumPy's: the solution; the sums of squares, empty unless `a` has more rows than columns, and full
        rank; the rank, an integer; the singular values of `a`.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> a, b = np.array([[1.0], [1.0], [2.0]]), np.array([1.0, 2.0, 3.0])
    >>> graph.grad(lambda b: np.linalg.lstsq(a, b)[1][0])(b).round(12)
    array([-1.,  1.,  0.])
    """
    a, b = floating(a), floating(b)
    if a.ndim != 2 or b.ndim not in (1, 2) or a.shape[0] != b.shape[0]:
        raise ShapeError(f"lstsq is of a matrix and of one or two dimensions; the shapes are {a.shape} and {b.shape}")
    columns, rcond = shapes.expand_dims(b, 1) if b.ndim == 1 else b, None if rcond is None else float(rcond)
    x = run(_LSTSQ, (a, columns), rcond=rcond)
    s = svd(a, full_matrices=False, compute_uv=False)
    rank = np.int32(decided(_rank, s.array, cutoff=_cutoff(a, rcond)))
    difference = columns - a @ x
    residuals = shapes.sum((difference * difference.conj()).real, axis=0)
    if a.shape[0] <= a.shape[1] or rank != a.shape[1]:
        residuals = residuals[:0]
    return LstsqResult(shapes.squeeze(x, 1) if b.ndim == 1 else x, residuals, rank, s)
