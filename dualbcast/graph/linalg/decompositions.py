"""Triangular factors of matrices: cholesky, qr.

Comes in: Variables or arrays with matrices in their last two axes. Goes out: Variables of the factors, as by
`numpy.linalg`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from dualbcast.errors import ArgumentError
from dualbcast.graph import shapes
from dualbcast.graph.array_functions.assembly import tril
from dualbcast.graph.arrays import namespace
from dualbcast.graph.linalg.products import adjoint
from dualbcast.graph.linalg.solving import solve
from dualbcast.graph.primitives import constant, output_of, run, run_several
from dualbcast.graph.tape import Cotangents, Node, Primitive, unary
from dualbcast.graph.variable import Variable


def _mirrored(a: Variable) -> Variable:
    """The symmetric, or Hermitian, matrix that has the lower triangle of `a`, and the real part of its diagonal."""
    half = (tril(a) + tril(a, -1)) * 0.5
    return half + adjoint(half)


def _pullback_of_cholesky(node: Node, cotangent: Variable) -> Variable:
    factor = output_of(node)
    # I. Murray, "Differentiation of the Cholesky decomposition" (2016).
    transposed = adjoint(factor)
    half = solve(transposed, _mirrored(transposed @ cotangent))
    return 0.5 * solve(transposed, adjoint(half))


_CHOLESKY = unary(
    "cholesky",
    lambda array: namespace(array).linalg.cholesky(array),
    _pullback_of_cholesky,
    saves_outputs=True,
    complex_outputs=(True,),
)


def cholesky(a: Any, /, *, upper: bool = False) -> Variable:
    """The lower triangular factor of positive definite matrices: `numpy.linalg.cholesky`.

    The lower triangle of `a` is read. The derivative is that of symmetric (Hermitian) matrices: half of each slope
    stands above the diagonal.

    Parameters
    ----------
    a : Variable or array
        Of shape (..., n, n).
    upper : bool
        Read the upper triangle, and give its factor.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> graph.grad(lambda a: np.sum(np.linalg.cholesky(a)))(np.array([[4.0, 2.0], [2.0, 2.0]])).round(4)
    array([[0.25, 0.  ],
           [0.  , 0.5 ]])
    """
    a = constant(a)
    return run(_CHOLESKY, (a.mT,)).mT if upper else run(_CHOLESKY, (a,))


# --- QR ---------------------------------------------------------------------------------------------------------------


class QRResult(NamedTuple):
    """An orthogonal (unitary) and an upper triangular factor."""

    Q: Variable
    R: Variable


def _pullback_of_qr(node: Node, cotangents: Cotangents, _wanted: tuple[bool, ...]) -> Cotangents:
    q, r = output_of(node), output_of(node, 1)
    slope_q, slope_r = cotangents
    # S. F. Walter and L. Lehmann, "Algorithmic differentiation of linear algebra functions" (2010).
    inner = r @ adjoint(slope_r) if slope_r is not None else None
    if slope_q is not None:
        inner = -(adjoint(slope_q) @ q) if inner is None else inner - adjoint(slope_q) @ q
    assert inner is not None
    total = q @ _mirrored(inner)
    if slope_q is not None:
        total = slope_q + total
    return (adjoint(solve(r, adjoint(total))),)


_QR = Primitive(
    "qr",
    lambda array: namespace(array).linalg.qr(array),
    _pullback_of_qr,
    saves_outputs=True,
    complex_outputs=(True, True),
)


def qr(a: Any, mode: str = "reduced") -> Any:
    """The reduced factors Q and R of matrices: `numpy.linalg.qr`.

    Parameters
    ----------
    a : Variable or array
        Of shape (..., m, n). Its first min(m, n) columns must be linearly independent for a derivative.
    mode : {"reduced", "r"}
        "r" gives R alone. The further columns of Q that "complete" adds have no derivative.

    Notes
    -----
    The diagonal of R stays real, as LAPACK has it for complex matrices, too.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> graph.grad(lambda a: np.linalg.qr(a).R[1, 1])(np.array([[3.0, 1.0], [4.0, 2.0]])).round(3)
    array([[ 0.352, -0.8  ],
           [-0.264,  0.6  ]])
    """
    a = constant(a)
    if mode not in ("reduced", "r"):
        raise ArgumentError(f"qr of a Variable has the modes reduced and r, not {mode!r}")
    rows, columns = a.shape[-2:] if a.ndim > 1 else (0, 0)
    if rows >= columns:
        result = QRResult(*run_several(_QR, (a,)))
    else:
        # The first columns determine the factors; the others are multiplied by them.
        q, r = run_several(_QR, (a[..., :rows],))
        result = QRResult(q, shapes.concat([r, adjoint(q) @ a[..., rows:]], axis=-1))
    return result.R if mode == "r" else result
