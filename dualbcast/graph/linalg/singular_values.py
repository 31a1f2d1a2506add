"""Singular values and vectors of matrices: svd, svdvals.

Comes in: Variables or arrays with matrices in their last two axes. Goes out: Variables of the factors, as by
`numpy.linalg`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dualbcast.errors import ArgumentError
from dualbcast.graph import shapes
from dualbcast.graph.arrays import is_complex, namespace
from dualbcast.graph.elementwise import where
from dualbcast.graph.linalg.eigenvalues import gaps, inverse_off_diagonal
from dualbcast.graph.linalg.products import adjoint, diagonal
from dualbcast.graph.primitives import constant, output_of, run, run_several
from dualbcast.graph.tape import Cotangents, Node, Primitive, unary
from dualbcast.graph.variable import Variable


class SVDResult(NamedTuple):
    """Singular vectors in the columns of U and the rows of Vh, and singular values in descending order."""

    U: Variable
    S: Variable
    Vh: Variable


def _pullback_of_svd(node: Node, cotangents: Cotangents, _wanted: tuple[bool, ...]) -> Cotangents:
    u, s, vh = (output_of(node, index) for index in range(3))
    slope_u, slope_s, slope_vh = cotangents
    (rows, columns), rank = node.inputs[0].shape[-2:], s.shape[-1]
    # J. Townsend, "Differentiating the singular value decomposition" (2016); for complex matrices Z.-Q. Wan and S.-X.
    # Zhang, "Automatic differentiation for complex valued SVD" (2019), with the phases of V as in `eigh`.
    across, down = s[..., None, :], s[..., :, None]
    parts = []
    if slope_s is not None:
        parts.append((u * slope_s[..., None, :]) @ vh)
    if slope_u is not None or slope_vh is not None:
        inverse = inverse_off_diagonal(gaps(s) * (across + down))
    if slope_u is not None:
        turn = adjoint(u) @ slope_u
        parts.append(u @ (inverse * (turn - adjoint(turn)) * across) @ vh)
        if is_complex(turn):
            parts.append((u * (1j * _phases(turn, slope_u, s))[..., None, :]) @ vh)
        if rows > rank:
            rest = slope_u / across
            parts.append((rest - u @ (adjoint(u) @ rest)) @ vh)
    if slope_vh is not None:
        turn = vh @ adjoint(slope_vh)
        parts.append(u @ (down * inverse * (turn - adjoint(turn))) @ vh)
        if columns > rank:
            rest = slope_vh / down
            parts.append(u @ (rest - (rest @ adjoint(vh)) @ vh))
    return (sum(parts[1:], parts[0]),)


_SVD = Primitive(
    "svd",
    lambda array: namespace(array).linalg.svd(array, full_matrices=False),
    _pullback_of_svd,
    saves_outputs=True,
    complex_outputs=(True, False, True),
)


def _phases(turn: Variable, slope_u: Variable, s: Variable) -> Variable:
    """The slopes by the phases of the columns of U over the singular values.

    Both may be zero but for roundings: nothing sets the phase between the vectors of a singular value of zero, and a
    number that does not depend on it has a derivative.
    """
    slopes, rounding = diagonal(turn, 0, -2, -1).imag, s.shape[-1] * float(np.finfo(s.dtype).eps)
    least = where(s <= rounding * s[..., :1], rounding * shapes.sum(abs(slope_u), axis=-2), -1.0)
    are_zero = abs(slopes) <= least
    return where(are_zero, 0.0, slopes / where(are_zero, 1.0, s))


def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    """The singular values and vectors of matrices: `numpy.linalg.svd`.

    Parameters
    ----------
    a : Variable or array
        Of shape (..., m, n).
    full_matrices : bool
        Must be False unless m = n: the further vectors have no derivative.
    compute_uv : bool
        Whether the vectors are given, and not the singular values alone.

    Notes
    -----
    Vectors of a singular value that comes twice have no derivative: their gradient is infinite or NaN, as in PyTorch
    and JAX, and so are the second derivatives of the singular values there. The phases of the vectors of complex
    matrices are arbitrary. Their derivatives, as in JAX, are those of a row v of Vh that does not turn along itself, so
    that v* dv = 0. A number that depends on the phases has no derivative; PyTorch refuses it, and here it is not
    noticed.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> graph.grad(lambda a: np.linalg.svd(a, compute_uv=False)[0])(np.array([[3.0, 0.0], [0.0, 1.0], [0.0, 0.0]]))
    array([[1., 0.],
           [0., 0.],
           [0., 0.]])
    """
    a = constant(a)
    if compute_uv and full_matrices and a.ndim > 1 and a.shape[-1] != a.shape[-2]:
        raise ArgumentError(
            f"svd of a Variable of shape {a.shape} takes full_matrices=False: the further vectors have no derivative"
        )
    return SVDResult(*run_several(_SVD, (a,))) if compute_uv else run(_SVDVALS, (a,))


def _pullback_of_svdvals(node: Node, cotangent: Variable) -> Variable:
    u, _, vh = svd(node.inputs[0], full_matrices=False)
    return (u * cotangent[..., None, :]) @ vh  # type: ignore[no-any-return]


_SVDVALS = unary(
    "svdvals",
    lambda array: namespace(array).linalg.svdvals(array),
    _pullback_of_svdvals,
    complex_outputs=(False,),
)


def svdvals(x: Any) -> Variable:
    """The singular values of matrices in descending order: `numpy.linalg.svdvals`; see `svd`."""
    values: Variable = svd(x, compute_uv=False)
    return values
