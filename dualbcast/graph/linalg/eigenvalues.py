"""Eigenvalues and eigenvectors of matrices: eigh, eigvalsh, eig, eigvals.

Comes in: Variables or arrays with matrices in their last two axes. Goes out: Variables of the values and vectors, as by
`numpy.linalg`. The formulas of their derivatives are in M. Giles, "An extended collection of matrix derivative results
for forward and reverse mode algorithmic differentiation" (2008).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from dualbcast.graph import shapes
from dualbcast.graph.arrays import namespace
from dualbcast.graph.complex_numbers.primitives import run_complex
from dualbcast.graph.elementwise import where
from dualbcast.graph.linalg.products import adjoint
from dualbcast.graph.linalg.solving import solve
from dualbcast.graph.primitives import constant, output_of, run, run_several
from dualbcast.graph.tape import Cotangents, Node, Primitive, unary
from dualbcast.graph.variable import Variable


def gaps(values: Variable) -> Variable:
    """How much the j-th value is above the i-th, in row i and column j."""
    return values[..., None, :] - values[..., :, None]


def inverse_off_diagonal(x: Variable) -> Variable:
    """The reciprocals of the elements, except of those on the diagonal, which are zero and stay so."""
    eye = namespace(x).eye(x.shape[-1], dtype=x.real.dtype)
    return 1.0 / (x + eye) - eye  # type: ignore[no-any-return]


# --- of symmetric matrices --------------------------------------------------------------------------------------------


class EighResult(NamedTuple):
    """Eigenvalues in ascending order, and eigenvectors in the columns of matrices."""

    eigenvalues: Variable
    eigenvectors: Variable


def _pullback_of_eigh(node: Node, cotangents: Cotangents, _wanted: tuple[bool, ...]) -> Cotangents:
    values, vectors = output_of(node), output_of(node, 1)
    slope_values, slope_vectors = cotangents
    parts = []
    if slope_values is not None:
        parts.append((vectors * slope_values[..., None, :]) @ adjoint(vectors))
    if slope_vectors is not None:
        turn = adjoint(vectors) @ slope_vectors
        inner = 0.5 * inverse_off_diagonal(gaps(values)) * (turn - adjoint(turn))
        parts.append(vectors @ inner @ adjoint(vectors))
    return (sum(parts[1:], parts[0]),)


_EIGH = Primitive(
    "eigh",
    lambda array, uplo: namespace(array).linalg.eigh(array, UPLO=uplo),
    _pullback_of_eigh,
    saves_outputs=True,
    complex_outputs=(False, True),
)


def eigh(a: Any, UPLO: str = "L") -> EighResult:  # noqa: N803
    """The eigenvalues and eigenvectors of symmetric or Hermitian matrices: `numpy.linalg.eigh`.

    Parameters
    ----------
    a : Variable or array
        Of shape (..., n, n), real or complex.
    UPLO : {"L", "U"}
        The triangle that is read.

    Returns
    -------
    eigenvalues, eigenvectors
        A tuple of real Variables of shape (..., n), and of vectors v in the columns of shape (..., n, n).

    Notes
    -----
    The derivative is that of symmetric (Hermitian) matrices. Eigenvectors of an eigenvalue that comes twice have
    none: their gradient is infinite or NaN, as in PyTorch and JAX, and so are the second derivatives of the eigenvalues
    there.

    The phases of complex eigenvectors are arbitrary. Their derivatives, as in JAX, are those of vectors that do not
    turn along themselves, so that v* dv = 0. A number that depends on the phases has no derivative; PyTorch refuses it,
    and here it is not noticed.

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
    """The eigenvalues of symmetric or Hermitian matrices: `numpy.linalg.eigvalsh`; see `eigh`."""
    return run(_EIGVALSH, (constant(a),), uplo=UPLO)


def _pullback_of_eigvalsh(node: Node, cotangent: Variable) -> Variable:
    vectors = eigh(node.inputs[0], node.static["uplo"])[1]
    return (vectors * cotangent[..., None, :]) @ adjoint(vectors)


# They are computed without vectors, as by NumPy; the derivative needs these.
_EIGVALSH = unary(
    "eigvalsh",
    lambda array, uplo: namespace(array).linalg.eigvalsh(array, UPLO=uplo),
    _pullback_of_eigvalsh,
    complex_outputs=(False,),
)


# --- of all square matrices -------------------------------------------------------------------------------------------


class EigResult(NamedTuple):
    """Complex eigenvalues in no order, and eigenvectors in the columns of matrices."""

    eigenvalues: Variable
    eigenvectors: Variable


def _kept_real(vectors: Any) -> Any:
    """Where a column has its largest component, which LAPACK makes real; of components as large the one that is."""
    if vectors.size == 0:
        return vectors == 0
    xp = namespace(vectors)
    sizes = abs(vectors) * xp.where(vectors.imag == 0, 1.001, 1.0)
    return xp.arange(vectors.shape[-2])[:, None] == xp.argmax(sizes, axis=-2)[..., None, :]


_KEPT_REAL = Primitive("eig", _kept_real, None, complex_outputs=(False,))


def _pullback_of_eig(node: Node, cotangents: Cotangents, _wanted: tuple[bool, ...]) -> Cotangents:
    values, vectors = output_of(node), output_of(node, 1)
    slope_values, slope_vectors = cotangents
    back, inner = adjoint(vectors), 0.0
    if slope_values is not None:
        inner = namespace(values).eye(values.shape[-1], dtype=values.real.dtype) * slope_values[..., None, :]
    if slope_vectors is not None:
        # The vectors keep their lengths, and one component of each stays real.
        along = shapes.sum(vectors.conj() * slope_vectors, axis=-2, keepdims=True)
        is_kept = run(_KEPT_REAL, (vectors,))
        kept = shapes.sum(where(is_kept, vectors, 0.0), axis=-2, keepdims=True)
        across = slope_vectors - vectors * along.real - where(is_kept, 1j * along.imag / kept.conj(), 0.0)
        inner = inner + inverse_off_diagonal(gaps(values)).conj() * (back @ across)
    return (solve(back, inner @ back),)


_EIG = Primitive(
    "eig",
    lambda array: namespace(array).linalg.eig(array),
    _pullback_of_eig,
    saves_outputs=True,
    complex_outputs=(True, True),
)


def eig(a: Any) -> EigResult:
    """The eigenvalues and right eigenvectors of square matrices: `numpy.linalg.eig`.

    Parameters
    ----------
    a : Variable or array
        Of shape (..., n, n), real or complex.

    Returns
    -------
    eigenvalues, eigenvectors
        A tuple of Variables of shape (..., n), and of vectors in the columns of shape (..., n, n). They are complex in
        any case, while NumPy gives real arrays if all eigenvalues of real matrices are real.

    Notes
    -----
    NumPy's `LinAlgError` says that a matrix is not square, or has elements that are not finite; or, for the derivative,
    that its eigenvectors are linearly dependent.

    Each vector has the length 1, and LAPACK makes its largest component real. The derivative, as in JAX, is that of
    these vectors; PyTorch refuses numbers that depend on their phases. For the vectors of an eigenvalue that comes
    twice it is infinite or NaN.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> turn = np.array([[0.0, -2.0], [2.0, 0.0]])
    >>> graph.grad(lambda a: np.sum(np.linalg.eig(a).eigenvalues.imag ** 2))(turn).round(12)
    array([[ 0., -4.],
           [ 4.,  0.]])
    """
    return EigResult(*run_complex(_EIG, (constant(a),), {}))


def eigvals(a: Any) -> Variable:
    """The eigenvalues of square matrices, in the order of `eig`, which see: `numpy.linalg.eigvals`."""
    # Without vectors LAPACK may find them in another order, and the derivative could not tell which is which.
    return eig(a).eigenvalues
