"""Linear algebra of small vectors and matrices, written in the language of scalar functions.

In a kernel, NumPy's functions of the same names are these. In plain Python they take arrays, or tuples of numbers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dualbcast.complex_numbers import abs2
from dualbcast.errors import ShapeError
from dualbcast.rules.registration import custom_partials, stop_derivative

__all__ = ["cross", "det", "eigh", "eigvalsh", "inv", "norm", "normalize", "solve"]


def __dir__() -> list[str]:
    return __all__


# Cyclic Jacobi iterations converge quadratically: 3 by 3 matrices in float64 need five at most.
_SWEEPS = 6


def rows_of_square(a: Any) -> Any:
    """The number of rows of a square matrix; any other is a `ShapeError`, and in a kernel an error of the compiler."""
    if not all(np.shape(row) == (len(a),) for row in a):
        raise ShapeError(f"a square matrix is needed, and this has shape {np.shape(a)}")
    return len(a)


def cross(a: Any, b: Any) -> Any:
    """The cross product of two vectors.

    Parameters
    ----------
    a, b : array of shape (3,)
        The vectors.

    Returns
    -------
    array of shape (3,)

    Examples
    --------
    >>> from dualbcast import linalg
    >>> linalg.cross((1.0, 0.0, 0.0), (0.0, 1.0, 0.0))
    array([0., 0., 1.])
    """
    a0, a1, a2 = a
    b0, b1, b2 = b
    return np.array([a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0])


def norm(a: Any) -> Any:
    """The Euclidean norm of a vector, or the Frobenius norm of a matrix.

    Parameters
    ----------
    a : array
        A vector or a matrix.

    Returns
    -------
    float
        Its derivative at zero is taken to be 0, as PyTorch has it; JAX gives NaN.

    Examples
    --------
    >>> from dualbcast import linalg
    >>> linalg.norm((3.0, 4.0))
    5.0
    """
    return _root(np.sum([abs2(x) for x in np.ravel(a)]))


# The root is that of the value, by which users divide as well: the reciprocal is computed once.
@custom_partials(lambda _total, root: (0.5 / root if root > 0.0 else 0.0,))
def _root(total: float) -> float:
    """The square root, with the derivative 0 at 0."""
    return math.sqrt(total)


def normalize(a: Any) -> Any:
    """A vector or a matrix divided by its norm; NaN if that is zero.

    Parameters
    ----------
    a : array

    Returns
    -------
    array of the shape of `a`

    Examples
    --------
    >>> from dualbcast import linalg
    >>> linalg.normalize((3.0, 4.0))
    array([0.6, 0.8])
    """
    return np.divide(a, norm(a))


def det(a: Any) -> Any:
    """The determinant of a square matrix: by its definition up to 3 by 3, else by elimination with pivots.

    Parameters
    ----------
    a : array of shape (n, n)
        The matrix.

    Returns
    -------
    float
        Where elimination meets a column of zeros, it is 0, and its derivative in that column is NaN.

    Raises
    ------
    ShapeError
        The matrix is not square. In a kernel that is a `CompileError`.

    Examples
    --------
    >>> from dualbcast import linalg
    >>> linalg.det(((2.0, 1.0), (1.0, 3.0)))
    5.0
    """
    size = rows_of_square(a)
    if size == 1:
        return a[0][0]
    if size == 2:
        return a[0][0] * a[1][1] - a[0][1] * a[1][0]
    if size == 3:
        return (
            a[0][0] * (a[1][1] * a[2][2] - a[1][2] * a[2][1])
            + a[0][1] * (a[1][2] * a[2][0] - a[1][0] * a[2][2])
            + a[0][2] * (a[1][0] * a[2][1] - a[1][1] * a[2][0])
        )
    rows, sign = _eliminated([(*row,) for row in a], size, True)
    return math.prod([sign, *[row[at] for at, row in enumerate(rows)]])


def inv(a: Any) -> Any:
    """The inverse of a square matrix: up to 3 by 3 the adjugate over the determinant, else by elimination with pivots.

    Parameters
    ----------
    a : array of shape (n, n)
        The matrix.

    Returns
    -------
    array of shape (n, n)
        Its elements are infinite or NaN if the matrix is singular.

    Raises
    ------
    ShapeError
        The matrix is not square. In a kernel that is a `CompileError`.

    Notes
    -----
    Up to 3 by 3, the result is NaN, infinite or 0 where the determinant leaves the range of its format: for elements
    around 1e-100 and less or 1e100 and more, and in float32 around 1e-12 and 1e12. To scale every matrix first would
    more than double the time; multiply by a power of two beforehand where that may happen.

    Examples
    --------
    >>> from dualbcast import linalg
    >>> linalg.inv(((2.0, 0.0), (0.0, 4.0)))
    array([[ 0.5 , -0.  ],
           [-0.  ,  0.25]])
    """
    size = rows_of_square(a)
    if size == 1:
        return np.array([[1.0 / a[0][0]]])
    if size > 3:
        return solve(a, np.eye(size))
    scale = 1.0 / det(a)
    if size == 2:
        return np.array([[a[1][1] * scale, -a[0][1] * scale], [-a[1][0] * scale, a[0][0] * scale]])
    columns = (cross(a[1], a[2]), cross(a[2], a[0]), cross(a[0], a[1]))
    return np.array([[column[at] * scale for column in columns] for at in range(3)])


def solve(a: Any, b: Any) -> Any:
    """The solution x of `a @ x = b`, for a vector or a matrix b.

    Parameters
    ----------
    a : array of shape (n, n)
        The matrix.
    b : array of shape (n,) or (n, k)
        The right side, or one in each column.

    Returns
    -------
    array
        Of the shape of `b`. Its elements are infinite or NaN if the matrix is singular. Up to 3 by 3 it is the product
        with `inv`, whose notes say for how large and small elements.

    Raises
    ------
    ShapeError
        The matrix is not square. In a kernel that is a `CompileError`.

    Examples
    --------
    >>> from dualbcast import linalg
    >>> linalg.solve(((2.0, 0.0), (0.0, 4.0)), (2.0, 2.0))
    array([1. , 0.5])
    """
    size = rows_of_square(a)
    if size <= 3:
        return inv(a) @ np.array(b)
    right = np.array(b)
    columns = right if right.ndim == 2 else right[:, None]
    rows, _ = _eliminated([(*one, *other) for one, other in zip(a, columns, strict=True)], size, False)
    found: list[Any] = []
    for row in rows[::-1]:  # from the last unknown to the first
        known = [np.multiply(row[size - 1 - at], part) for at, part in enumerate(found)]
        total = np.array(row[size:])
        for part in known:
            total = total - part
        found = [*found, total / row[size - 1 - len(found)]]
    solution = np.array(found[::-1])
    return solution if right.ndim == 2 else solution[:, 0]


def _eliminated(rows: Any, size: int, has_zeros: bool) -> Any:
    """Rows of an upper triangular matrix, by elimination with partial pivots, and the sign of their exchanges.

    A pivot is zero only if all elements below it are. With `has_zeros` there is nothing to eliminate then, but what is
    left has the derivative NaN in these elements; else all that follows is NaN.
    """
    sign = 1.0
    for at in range(size):
        for below in range(at + 1, size):
            first, second = rows[at], rows[below]
            if abs(second[at]) > abs(first[at]):
                first, second, sign = second, first, -sign
            rows = [*rows[:at], first, *rows[at + 1 : below], second, *rows[below + 1 :]]
        pivot = rows[at]
        later: list[Any] = []
        for row in rows[at + 1 :]:
            # The square root of a square that is zero has the derivative NaN.
            factor = math.sqrt(abs2(row[at])) if has_zeros and pivot[at] == 0.0 else row[at] / pivot[at]
            later = [*later, tuple([x - factor * y for x, y in zip(row, pivot)])]  # noqa: B905
        rows = [*rows[: at + 1], *later]
    return rows, sign


# --- eigenvalues of symmetric matrices -------------------------------------------------------------------------------


def eigvalsh(a: Any) -> Any:
    """The eigenvalues of a symmetric matrix.

    Parameters
    ----------
    a : array of shape (n, n)
        The matrix, of which the lower triangle is read, as NumPy does.

    Returns
    -------
    array of shape (n,)
        In ascending order.

    Raises
    ------
    ShapeError
        The matrix is not square. In a kernel that is a `CompileError`.

    Notes
    -----
    The matrix is diagonalised by Jacobi's rotations (G. H. Golub and C. F. Van Loan, *Matrix Computations*, 4th ed.,
    section 8.5), which have no derivative here. Rotations that have one then follow, from a matrix that is diagonal in
    value: a derivative loses no digits where eigenvalues are close to each other, nor where they are equal. There that
    of one eigenvalue is the one along a basis of eigenvectors that the rotations happen to find; symmetric functions of
    the equal ones, such as their sum, have the right first derivatives. Second derivatives do not exist there one by
    one, and are those of the same basis. The rotations that have derivatives are two sweeps, which give those of
    eigenvalues up to the seventh, and those of eigenvectors up to the third.

    Examples
    --------
    >>> from dualbcast import linalg
    >>> linalg.eigvalsh(((2.0, 1.0), (1.0, 2.0))).round(12)
    array([1., 3.])
    """
    diagonal, _ = _diagonal(a, False)
    return np.array(_sorted(diagonal, None)[0])


def eigh(a: Any) -> Any:
    """The eigenvalues and eigenvectors of a symmetric matrix; see `eigvalsh` for the method and the errors.

    Parameters
    ----------
    a : array of shape (n, n)
        The matrix, of which the lower triangle is read, as NumPy does.

    Returns
    -------
    eigenvalues : array of shape (n,)
        In ascending order.
    eigenvectors : array of shape (n, n)
        One in each column, of the length 1. It may have the other sign than NumPy's. Where eigenvalues are equal, their
        vectors have no derivative: it is NaN.

    Examples
    --------
    >>> from dualbcast import linalg
    >>> values, vectors = linalg.eigh(((2.0, 0.0), (0.0, 1.0)))
    >>> values
    array([1., 2.])
    """
    diagonal, vectors = _diagonal(a, True)
    values, columns = _sorted(diagonal, vectors)
    return np.array(values), np.transpose(np.array(columns))


def _diagonal(a: Any, has_vectors: bool) -> Any:
    """The eigenvalues in any order, and the eigenvectors, one after the other."""
    size = rows_of_square(a)
    whole = [[a[max(i, j)][min(i, j)] for j in range(size)] for i in range(size)]
    basis = _basis([[stop_derivative(x) for x in row] for row in whole])
    # In that basis the matrix is diagonal, up to roundings; what is beside the diagonal is zero, with its derivative.
    turned = np.array(basis) @ np.array(whole) @ np.transpose(np.array(basis))
    near = [[x if i == j else x - stop_derivative(x) for j, x in enumerate(row)] for i, row in enumerate(turned)]
    vectors = [[*row] for row in basis]
    # Each sweep doubles the order of the derivatives that are right: after two, the third of a vector.
    for _sweep in (0, 1):
        for p in range(size):
            for q in range(p + 1, size):
                gap, beside = near[q][q] - near[p][p], near[p][q]
                slope = beside / gap if gap != 0.0 else 0.0
                tangent = 2.0 * slope / (1.0 + math.sqrt(1.0 + 4.0 * slope * slope))
                near = _rotated(near, p, q, tangent)
                if has_vectors:
                    # The square root of a square that is zero has the derivative NaN.
                    vectors = _mixed(vectors, p, q, tangent if gap != 0.0 else math.sqrt(beside * beside))
    return [near[at][at] for at in range(size)], vectors


def _basis(a: Any) -> Any:
    """The eigenvectors of a symmetric matrix, one after the other, by Jacobi's rotations."""
    size = len(a)
    vectors = [[1.0 if i == j else 0.0 for j in range(size)] for i in range(size)]
    for _sweep in range(_SWEEPS):
        for p in range(size):
            for q in range(p + 1, size):
                beside, gap = 2.0 * a[p][q], a[q][q] - a[p][p]
                length = math.hypot(beside, gap)
                tangent = math.copysign(1.0, gap) * beside / (abs(gap) + length) if beside != 0.0 else 0.0
                a = _rotated(a, p, q, tangent)
                vectors = _mixed(vectors, p, q, tangent)
    return vectors


def _rotated(a: Any, p: Any, q: Any, tangent: Any) -> Any:
    """A symmetric matrix with rows and columns p and q rotated, so that the element (p, q) becomes zero."""
    size = len(a)
    cosine = 1.0 / math.sqrt(1.0 + tangent * tangent)
    sine = tangent * cosine
    shift = tangent * a[p][q]
    rows: Any = []
    for i in range(size):
        row: Any = []
        for j in range(size):
            if i == j:
                x = a[i][i] - shift if i == p else a[i][i] + shift if i == q else a[i][i]
            elif i in (p, q) and j in (p, q):
                x = 0.0
            elif i in (p, q) or j in (p, q):
                own, other = (i, j) if i in (p, q) else (j, i)
                x = cosine * a[p][other] - sine * a[q][other] if own == p else sine * a[p][other] + cosine * a[q][other]
            else:
                x = a[i][j]
            row = [*row, x]
        rows = [*rows, row]
    return rows


def _mixed(rows: Any, p: Any, q: Any, tangent: Any) -> Any:
    """Rows of which two are rotated."""
    cosine = 1.0 / math.sqrt(1.0 + tangent * tangent)
    sine = tangent * cosine
    first = [cosine * x - sine * y for x, y in zip(rows[p], rows[q])]  # noqa: B905
    second = [sine * x + cosine * y for x, y in zip(rows[p], rows[q])]  # noqa: B905
    return [first if at == p else second if at == q else row for at, row in enumerate(rows)]


def _sorted(values: Any, rows: Any) -> Any:
    """Values in ascending order, and the rows that belong to them."""
    for end in range(1, len(values)):
        for at in range(end, 0, -1):
            low, high = values[at - 1], values[at]
            is_right = not high < low
            values = [*values[: at - 1], *([low, high] if is_right else [high, low]), *values[at + 1 :]]
            if rows is not None:
                one, other = rows[at - 1], rows[at]
                rows = [*rows[: at - 1], *([one, other] if is_right else [other, one]), *rows[at + 1 :]]
    return values, rows
