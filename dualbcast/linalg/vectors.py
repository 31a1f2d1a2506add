"""Cross products and lengths of vectors, in the language of scalar functions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dualbcast.complex_numbers import abs2
from dualbcast.rules.registration import custom_partials


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
