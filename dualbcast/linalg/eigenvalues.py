"""Eigenvalues and eigenvectors of symmetric matrices, in the language of scalar functions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dualbcast.linalg.equations import rows_of_square
from dualbcast.rules.registration import custom_partials

# Cyclic Jacobi iterations converge quadratically: 3 by 3 matrices in float64 need five at most.
_SWEEPS = 6


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
    section 8.5). The derivatives are those of perturbation theory: ∂λ/∂a[i, j] = v[i] v[j], with the eigenvector v of
    length 1. That loses no digits where eigenvalues are close to each other, nor where they are equal. There the
    derivative of one eigenvalue is the one along a basis of eigenvectors that the rotations happen to find; symmetric
    functions of the equal ones, such as their sum, have the right first derivatives. Second derivatives do not exist
    there one by one, and are those of the same basis.

    Examples
    --------
    >>> from dualbcast import linalg
    >>> linalg.eigvalsh(((2.0, 1.0), (1.0, 2.0))).round(12)
    array([1., 3.])
    """
    values, vectors = _decomposed(a)
    return _with_partials(a, values, vectors, True)[0]


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
    values, vectors = _decomposed(a)
    values, vectors = _with_partials(a, values, vectors, True)
    return values, np.transpose(vectors)


def _decomposed(a: Any) -> Any:
    """The eigenvalues in ascending order, and the eigenvectors one after the other, by rotations."""
    size = rows_of_square(a)
    a = [[a[max(i, j)][min(i, j)] for j in range(size)] for i in range(size)]
    vectors = [[1.0 if i == j else 0.0 for j in range(size)] for i in range(size)]
    for _sweep in range(_SWEEPS):
        for p in range(size):
            for q in range(p + 1, size):
                beside, gap = 2.0 * a[p][q], a[q][q] - a[p][p]
                length = abs(gap) + math.hypot(beside, gap)
                tangent = math.copysign(1.0, gap) * beside / (length if length != 0.0 else 1.0)
                a = _rotated(a, p, q, tangent)
                vectors = _mixed(vectors, p, q, tangent)
    return _sorted([a[at][at] for at in range(size)], vectors)


# --- derivatives -----------------------------------------------------------------------------------------------------

# Eigenvectors turn, dv[k] = Σ v[m] t[k, m] with t[k, m] = v[m] dA v[k] / (λ[k] - λ[m]) = -t[m, k].


def _with_partials(a: Any, values: Any, vectors: Any, is_strict: Any) -> Any:
    """The eigenvalues and eigenvectors that were found, with their derivatives.

    In vectors of the same eigenvalue these are NaN if `is_strict`, and else those along the basis that was found.
    """
    size = len(a)
    given = [*values, *np.ravel(vectors), *[a[i][j] for i in range(size) for j in range(i + 1)]]
    every: list[Any] = []
    for k, vector in enumerate(vectors):
        turns = [_turn(0.0, size, min(k, m), max(k, m), is_strict, *given) if m != k else 0.0 for m in range(size)]
        turns = [turn if m > k else -turn for m, turn in enumerate(turns)]
        every = [*every, [_component(x, size, k, at, is_strict, *turns, *given) for at, x in enumerate(vector)]]
    return np.array([_eigenvalue(x, size, at, *given) for at, x in enumerate(values)]), np.array(every)


def _differentiable(size: Any, given: Any, is_strict: Any) -> Any:
    """What was given, with derivatives by these formulas and not by those of the steps that computed it."""
    values, rest = given[:size], given[size : size * (size + 1)]
    vectors = [rest[size * row : size * (row + 1)] for row in range(size)]
    lower = given[size * (size + 1) : -1]
    a = [[lower[i * (i + 1) // 2 + j] for j in range(i + 1)] for i in range(size)]
    return _with_partials(a, values, vectors, is_strict)


def _partials_of_eigenvalue(_x: Any, size: Any, at: Any, *given: Any) -> Any:
    """v[i] v[j], twice where a[i, j] stands for a[j, i], too."""
    v = _differentiable(size, given, False)[1][at]
    partials = [v[i] * v[i] if i == j else 2.0 * v[i] * v[j] for i in range(size) for j in range(i + 1)]
    return *[0] * (3 + size * (size + 1)), *partials


@custom_partials(_partials_of_eigenvalue)
def _eigenvalue(x: Any, _size: Any, _at: Any, *_given: Any) -> Any:
    """An eigenvalue from its value; given are all values and vectors as they were computed, and the lower triangle."""
    return x


def _partials_of_turn(_value: Any, size: Any, k: Any, m: Any, is_strict: Any, *given: Any) -> Any:
    values, vectors = _differentiable(size, given, is_strict)
    gap = values[k] - values[m]
    scale = (math.nan if is_strict else 0.0) if gap == 0.0 else 1.0 / gap
    v, w = vectors[k], [scale * each for each in vectors[m]]
    partials = [w[i] * v[i] if i == j else w[i] * v[j] + w[j] * v[i] for i in range(size) for j in range(i + 1)]
    return *[0] * (5 + size * (size + 1)), *partials


@custom_partials(_partials_of_turn)
def _turn(value: Any, _size: Any, _k: Any, _m: Any, _is_strict: Any, *_given: Any) -> Any:
    """The angle by which eigenvector k turns towards m: zero, with its derivative. The rest is as for an eigenvalue."""
    return value


def _partials_of_component(_x: Any, size: Any, k: Any, at: Any, is_strict: Any, *turns_and_given: Any) -> Any:
    vectors = _differentiable(size, turns_and_given[size:], is_strict)[1]
    partials = [vectors[m][at] if m != k else 0 for m in range(size)]
    return 0, 0, 0, 0, 0, *partials, *[0] * (len(turns_and_given) - size - 1)


@custom_partials(_partials_of_component)
def _component(x: Any, _size: Any, _k: Any, _at: Any, _is_strict: Any, *_turns_and_given: Any) -> Any:
    """A component of eigenvector k, from its value and the angles by which that turns towards each other one."""
    return x


# --- rotations -------------------------------------------------------------------------------------------------------


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
            one, other = rows[at - 1], rows[at]
            rows = [*rows[: at - 1], *([one, other] if is_right else [other, one]), *rows[at + 1 :]]
    return values, rows
