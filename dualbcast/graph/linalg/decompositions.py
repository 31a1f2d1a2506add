"""Decompositions of matrices: cholesky, qr, eigh, svd.

Comes in: Variables or arrays with matrices in their last two axes. Goes out: Variables of the factors, as by
`numpy.linalg`. The formulas of their derivatives are in M. Giles, "An extended collection of matrix derivative results
for forward and reverse mode algorithmic differentiation" (2008), and in the papers that functions name.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from dualbcast.errors import ArgumentError
from dualbcast.graph import shapes
from dualbcast.graph.array_functions.assembly import tril
from dualbcast.graph.arrays import namespace
from dualbcast.graph.linalg.solving import solve
from dualbcast.graph.primitives import constant, output_of, run, run_several
from dualbcast.graph.tape import Cotangents, Node, Primitive, unary
from dualbcast.graph.variable import Variable


def _mirrored(a: Variable) -> Variable:
    """The symmetric matrix that has the lower triangle of `a`."""
    return tril(a) + tril(a, -1).mT


def _pullback_of_cholesky(node: Node, cotangent: Variable) -> Variable:
    factor = output_of(node)
    # I. Murray, "Differentiation of the Cholesky decomposition" (2016).
    half = solve(factor.mT, _mirrored(factor.mT @ cotangent))
    return 0.5 * solve(factor.mT, half.mT)


_CHOLESKY = unary(
    "cholesky", lambda array: namespace(array).linalg.cholesky(array), _pullback_of_cholesky, saves_outputs=True
)


def cholesky(a: Any, /, *, upper: bool = False) -> Variable:
    """The lower triangular factor of positive definite matrices: `numpy.linalg.cholesky`.

    The lower triangle of `a` is read. The derivative is that of symmetric matrices: half of each slope stands above the
    diagonal.

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
    """An orthogonal and an upper triangular factor."""

    Q: Variable
    R: Variable


def _pullback_of_qr(node: Node, cotangents: Cotangents, _wanted: tuple[bool, ...]) -> Cotangents:
    q, r = output_of(node), output_of(node, 1)
    slope_q, slope_r = cotangents
    # S. F. Walter and L. Lehmann, "Algorithmic differentiation of linear algebra functions" (2010).
    inner = r @ slope_r.mT if slope_r is not None else None
    if slope_q is not None:
        inner = -(slope_q.mT @ q) if inner is None else inner - slope_q.mT @ q
    assert inner is not None
    total = q @ _mirrored(inner)
    if slope_q is not None:
        total = slope_q + total
    return (solve(r, total.mT).mT,)


_QR = Primitive("qr", lambda array: namespace(array).linalg.qr(array), _pullback_of_qr, saves_outputs=True)


def qr(a: Any, mode: str = "reduced") -> Any:
    """The reduced factors Q and R of matrices: `numpy.linalg.qr`.

    Parameters
    ----------
    a : Variable or array
        Of shape (..., m, n). Its first min(m, n) columns must be linearly independent for a derivative.
    mode : {"reduced", "r"}
        "r" gives R alone. The further columns of Q that "complete" adds have no derivative.

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
        result = QRResult(q, shapes.concat([r, q.mT @ a[..., rows:]], axis=-1))
    return result.R if mode == "r" else result


# --- eigenvalues and singular values ----------------------------------------------------------------------------------


class EighResult(NamedTuple):
    """Eigenvalues in ascending order, and eigenvectors in the columns of matrices."""

    eigenvalues: Variable
    eigenvectors: Variable


class SVDResult(NamedTuple):
    """Singular vectors in the columns of U and the rows of Vh, and singular values in descending order."""

    U: Variable
    S: Variable
    Vh: Variable


def _inverse_gaps(gaps: Variable) -> Variable:
    """The reciprocals of the elements, except of those on the diagonal, which are zero and stay so."""
    eye = namespace(gaps).eye(gaps.shape[-1], dtype=gaps.dtype)
    return 1.0 / (gaps + eye) - eye  # type: ignore[no-any-return]


def _pullback_of_eigh(node: Node, cotangents: Cotangents, _wanted: tuple[bool, ...]) -> Cotangents:
    values, vectors = output_of(node), output_of(node, 1)
    slope_values, slope_vectors = cotangents
    parts = []
    if slope_values is not None:
        parts.append((vectors * slope_values[..., None, :]) @ vectors.mT)
    if slope_vectors is not None:
        turn = vectors.mT @ slope_vectors
        inverse = _inverse_gaps(values[..., None, :] - values[..., :, None])
        parts.append(vectors @ (0.5 * inverse * (turn - turn.mT)) @ vectors.mT)
    return (_total(parts),)


def _total(parts: list[Variable]) -> Variable:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


_EIGH = Primitive(
    "eigh", lambda array, uplo: namespace(array).linalg.eigh(array, UPLO=uplo), _pullback_of_eigh, saves_outputs=True
)


def eigh(a: Any, UPLO: str = "L") -> EighResult:  # noqa: N803
    """The eigenvalues and eigenvectors of symmetric matrices: `numpy.linalg.eigh`.

    Parameters
    ----------
    a : Variable or array
        Of shape (..., n, n).
    UPLO : {"L", "U"}
        The triangle that is read.

    Notes
    -----
    The derivative is that of symmetric matrices. Eigenvectors of an eigenvalue that comes twice have none: their
    gradient is infinite or NaN, as in PyTorch and JAX, and so are the second derivatives of the eigenvalues there.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> graph.grad(lambda a: np.linalg.eigh(a)[0][-1])(np.array([[2.0, 1.0], [1.0, 2.0]])).round(12)
    array([[0.5, 0.5],
           [0.5, 0.5]])
    """
    return EighResult(*run_several(_EIGH, (constant(a),), uplo=UPLO))


def eigvalsh(a: Any, UPLO: str = "L") -> Variable:  # noqa: N803
    """The eigenvalues of symmetric matrices: `numpy.linalg.eigvalsh`; see `eigh`."""
    return run(_EIGVALSH, (constant(a),), uplo=UPLO)


def _pullback_of_eigvalsh(node: Node, cotangent: Variable) -> Variable:
    vectors = eigh(node.inputs[0], node.static["uplo"])[1]
    return (vectors * cotangent[..., None, :]) @ vectors.mT


# They are computed without vectors, as by NumPy; the derivative needs these.
_EIGVALSH = unary(
    "eigvalsh", lambda array, uplo: namespace(array).linalg.eigvalsh(array, UPLO=uplo), _pullback_of_eigvalsh
)


def _pullback_of_svd(node: Node, cotangents: Cotangents, _wanted: tuple[bool, ...]) -> Cotangents:
    u, s, vh = (output_of(node, index) for index in range(3))
    slope_u, slope_s, slope_vh = cotangents
    (rows, columns), rank = node.inputs[0].shape[-2:], s.shape[-1]
    # J. Townsend, "Differentiating the singular value decomposition" (2016).
    across, down = s[..., None, :], s[..., :, None]
    parts = []
    if slope_s is not None:
        parts.append((u * slope_s[..., None, :]) @ vh)
    if slope_u is not None or slope_vh is not None:
        inverse = _inverse_gaps((across - down) * (across + down))
    if slope_u is not None:
        turn = u.mT @ slope_u
        parts.append(u @ (inverse * (turn - turn.mT) * across) @ vh)
        if rows > rank:
            rest = slope_u / across
            parts.append((rest - u @ (u.mT @ rest)) @ vh)
    if slope_vh is not None:
        turn = vh @ slope_vh.mT
        parts.append(u @ (down * inverse * (turn - turn.mT)) @ vh)
        if columns > rank:
            rest = slope_vh / down
            parts.append(u @ (rest - (rest @ vh.mT) @ vh))
    return (_total(parts),)


_SVD = Primitive(
    "svd",
    lambda array: namespace(array).linalg.svd(array, full_matrices=False),
    _pullback_of_svd,
    saves_outputs=True,
)


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
    and JAX, and so are the second derivatives of the singular values there.

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


_SVDVALS = unary("svdvals", lambda array: namespace(array).linalg.svdvals(array), _pullback_of_svdvals)


def svdvals(x: Any) -> Variable:
    """The singular values of matrices in descending order: `numpy.linalg.svdvals`; see `svd`."""
    values: Variable = svd(x, compute_uv=False)
    return values
