"""Determinants, inverses and linear equations, in the language of scalar functions.

Derivatives are those of the inverse, in which those of the pivots cancel out.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from dualbcast.complex_numbers import abs2
from dualbcast.errors import ShapeError
from dualbcast.linalg.vectors import cross
from dualbcast.rules.registration import custom_partials


def rows_of_square(a: Any) -> Any:
    """The number of rows of a square matrix; any other is a `ShapeError`, and in a kernel an error of the compiler."""
    if not all(np.shape(row) == (len(a),) for row in a):
        raise ShapeError(f"a square matrix is needed, and this has shape {np.shape(a)}")
    return len(a)


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
    sign, pivots = _pivots(a, size)
    return math.prod([sign, *pivots])


class LogDeterminant(NamedTuple):
    """A determinant as its sign, of which a complex one is a number of length 1, and the logarithm of its size."""

    sign: Any
    logabsdet: Any


def slogdet(a: Any) -> Any:
    """The sign of a determinant and the logarithm of its absolute value.

    Parameters
    ----------
    a : array of shape (n, n)
        The matrix.

    Returns
    -------
    sign, logabsdet : float
        A named tuple; 0 and -inf if the matrix is singular. Above 3 by 3 the logarithm is a sum, so that it is finite
        where the determinant is not.

    Raises
    ------
    ShapeError
        The matrix is not square. In a kernel that is a `CompileError`.

    Examples
    --------
    >>> from dualbcast import linalg
    >>> sign, logabsdet = linalg.slogdet(((0.0, 1.0), (1.0, 0.0)))
    >>> float(sign), float(logabsdet)
    (-1.0, 0.0)
    """
    size = rows_of_square(a)
    sign, factors = (1.0, [det(a)]) if size <= 3 else _pivots(a, size)
    return LogDeterminant(math.prod([sign, *map(_sign, factors)]), sum([np.log(abs(each)) for each in factors]))


def _sign(x: Any) -> Any:
    size: Any = abs(x)
    return x / size if isinstance(x, complex | np.complexfloating) else np.sign(x)


def cholesky(a: Any) -> Any:
    """The lower triangular matrix L with positive diagonal of which a positive definite matrix is `L @ L.conj().T`.

    Parameters
    ----------
    a : array of shape (n, n)
        The matrix, of which the lower triangle is read, as NumPy does.

    Returns
    -------
    array of shape (n, n)
        It has NaN where the matrix is not positive definite; NumPy raises an error then.

    Raises
    ------
    ShapeError
        The matrix is not square. In a kernel that is a `CompileError`.

    Notes
    -----
    The derivative is that of each step (G. H. Golub and C. F. Van Loan, *Matrix Computations*, 4th ed., section 4.2).

    Examples
    --------
    >>> from dualbcast import linalg
    >>> linalg.cholesky(((4.0, 2.0), (2.0, 5.0)))
    array([[2., 0.],
           [1., 2.]])
    """
    size = rows_of_square(a)
    rows: list[Any] = []
    for i in range(size):
        row: list[Any] = []
        for j in range(i):
            total = a[i][j]
            for k in range(j):
                total = total - row[k] * np.conj(rows[j][k])
            row = [*row, total / rows[j][j]]
        total = np.real(a[i][i])
        for each in row:
            total = total - abs2(each)
        rows = [*rows, [*row, np.sqrt(total), *[0.0] * (size - 1 - i)]]
    return np.array(rows)


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
    inverse = _inverse(a, rows_of_square(a))
    return _with_partials(a, np.eye(len(a)), inverse, inverse, _is_complex(a))


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
    right = np.array(b)
    columns = right if right.ndim == 2 else right[:, None]
    if size <= 3:
        inverse = _inverse(a, size)
        found = inverse @ columns
    else:
        both = _solution(a, [(*one, *unit) for unit, one in zip(np.eye(size), columns, strict=True)], size)
        found, inverse = both[:, :-size], both[:, -size:]
    solution = _with_partials(a, columns, found, inverse, _is_complex(a) or _is_complex(columns))
    return solution if right.ndim == 2 else solution[:, 0]


def _inverse(a: Any, size: int) -> Any:
    if size == 1:
        return np.array([[1.0 / a[0][0]]])
    if size > 3:
        return _solution(a, np.eye(size), size)
    scale = 1.0 / det(a)
    if size == 2:
        return np.array([[a[1][1] * scale, -a[0][1] * scale], [-a[1][0] * scale, a[0][0] * scale]])
    columns = (cross(a[1], a[2]), cross(a[2], a[0]), cross(a[0], a[1]))
    return np.array([[column[at] * scale for column in columns] for at in range(3)])


def _solution(a: Any, columns: Any, size: int) -> Any:
    """The solution for several right sides, by elimination."""
    rows, _ = _eliminated([(*one, *other) for one, other in zip(a, columns, strict=True)], size, False)
    found: list[Any] = []
    for row in rows[::-1]:  # from the last unknown to the first
        known = [np.multiply(row[size - 1 - at], part) for at, part in enumerate(found)]
        total = np.array(row[size:])
        for part in known:
            total = total - part
        found = [*found, total / row[size - 1 - len(found)]]
    return np.array(found[::-1])


# --- derivatives of solutions ----------------------------------------------------------------------------------------

# With the inverse Y, dx = Y (db - dA x). Derivatives of the elimination itself take up to ten times as many operations.


def _with_partials(a: Any, columns: Any, found: Any, inverse: Any, is_complex: Any) -> Any:
    """The solutions that were found for some right sides, with derivatives in these and in the matrix."""
    size = len(a)
    solutions: list[Any] = []
    for x, b in zip(np.transpose(found), np.transpose(columns), strict=True):
        given = [*np.ravel(inverse), *x, *np.ravel(a), *b]
        errors = [_of_parts(_error, 0.0, size, at, given, is_complex) for at in range(size)]
        given = [*np.ravel(inverse), *np.ravel(a), *errors]
        unknowns = [_of_parts(_unknown, each, size, at, given, is_complex) for at, each in enumerate(x)]
        solutions = [*solutions, unknowns]
    return np.transpose(np.array(solutions))


def _is_complex(a: Any) -> Any:
    """Whether any element of an array is a complex number."""
    return any(isinstance(each, complex | np.complexfloating) for each in np.ravel(a))


def _of_parts(function: Any, value: Any, size: Any, at: Any, given: Any, is_complex: Any) -> Any:
    """A function of numbers; of complex ones its real part and its imaginary part, each a function of parts."""
    if not is_complex:
        return function(value, size, at, 0, *given)
    parts = [*[np.real(each) for each in given], *[np.imag(each) for each in given]]
    return complex(function(np.real(value), size, at, 1, *parts), function(np.imag(value), size, at, 2, *parts))


def _joined(given: Any, part: Any) -> Any:
    """The numbers of which parts were given."""
    if part == 0:
        return given
    count = len(given) // 2
    return [complex(real, imag) for real, imag in zip(given[:count], given[count:], strict=True)]


def _by_parts(partials: Any, part: Any) -> Any:
    """The partials in what was given, from those in numbers."""
    if part == 0:
        return 0, 0, 0, 0, *partials
    real, imag = [each.real for each in partials], [each.imag for each in partials]
    return 0, 0, 0, 0, *(real if part == 1 else imag), *([-each for each in imag] if part == 1 else real)


def _partials_of_error(_value: Any, size: Any, at: Any, part: Any, *given: Any) -> Any:
    numbers = _joined(given[:-1], part)
    grid = [np.array(numbers[size * row : size * (row + 1)]) for row in range(2 * size + 2)]
    inverse, x, a, b = np.array(grid[:size]), grid[size], np.array(grid[size + 1 : -1]), grid[-1]
    # Partials have derivatives by these formulas, too, and not by those of the steps that computed what is given.
    x = _with_partials(a, b[:, None], x[:, None], inverse, part != 0)[:, 0]
    partials = [0] * (size * (size + 1)) + [-x[k] if j == at else 0 for j in range(size) for k in range(size)]
    return _by_parts([*partials, *[int(j == at) for j in range(size)]], part)


@custom_partials(_partials_of_error)
def _error(value: Any, _size: Any, _at: Any, _part: Any, *_given: Any) -> Any:
    """What the solution x lacks in an equation, b - A x: zero, with its derivative in A and b, or a part of it.

    Given are the inverse and x as they were computed, A and b; matrices are row by row. Imaginary parts follow.
    """
    return value


def _partials_of_unknown(_x: Any, size: Any, at: Any, part: Any, *given: Any) -> Any:
    numbers = _joined(given[:-1], part)
    grid = [numbers[size * row : size * (row + 1)] for row in range(2 * size)]
    inverse, a = np.array(grid[:size]), np.array(grid[size:])
    weights = _with_partials(a, np.eye(size), inverse, inverse, part != 0)[at]
    return _by_parts([*[0] * (2 * size * size), *weights], part)


@custom_partials(_partials_of_unknown)
def _unknown(x: Any, _size: Any, _at: Any, _part: Any, *_given: Any) -> Any:
    """An unknown from its value, the inverse as it was computed, the matrix and the errors, or a part of it."""
    return x


# --- elimination -----------------------------------------------------------------------------------------------------


def _pivots(a: Any, size: int) -> Any:
    """The sign of the exchanges, and the pivots, whose product with it is the determinant."""
    rows, sign = _eliminated([(*row,) for row in a], size, True)
    return sign, [row[at] for at, row in enumerate(rows)]


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
