"""Linear algebra of small vectors and matrices, written in the language of scalar functions.

In a kernel, NumPy's functions of the same names are these. In plain Python they take arrays, or tuples of numbers.
Comes in: vectors and matrices. Goes out: such, or a number.
"""

from __future__ import annotations

from dualbcast.linalg.eigenvalues import eigh, eigvalsh
from dualbcast.linalg.equations import cholesky, det, inv, slogdet, solve
from dualbcast.linalg.equations import rows_of_square as rows_of_square
from dualbcast.linalg.vectors import cross, norm, normalize

__all__ = ["cholesky", "cross", "det", "eigh", "eigvalsh", "inv", "norm", "normalize", "slogdet", "solve"]


def __dir__() -> list[str]:
    return __all__
