"""The sums of rows of a NumPy array that belong to the same row of a table.

Comes in: rows, and for each the index of its row in the table. Goes out: the table. The rows are added in their order,
in float64. If many float64 rows have one index, the rounding errors are added up beside the sums, as in kernels.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from dualbcast.codegen.loops.recipe import Recipe
from dualbcast.codegen.loops.scatter_add import write_scatter_add
from dualbcast.runtime.buffer_pool import POOL
from dualbcast.runtime.cpu.loader import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["row_sums"]

# Sums of so many terms are not compensated; see docs/decisions/061-thresholds-of-the-graph.md.
_TERMS_UNCOMPENSATED = 64


def row_sums(rows: NDArray[Any], places: NDArray[Any], length: int) -> NDArray[Any]:
    """An array of `length` rows, with each of `rows` added at its place.

    Parameters
    ----------
    rows : array of two dimensions
        Of a float dtype that float64 can hold.
    places : array of int
        One for each row.
    length : int

    Raises
    ------
    IndexError
        There is no such place.

    Examples
    --------
    >>> row_sums(np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), np.array([1, 1, 0]), 3)
    array([[5., 6.],
           [4., 6.],
           [0., 0.]])
    """
    count, columns = rows.shape
    if count and (places.min() < 0 or places.max() >= length):
        raise IndexError(f"an index is out of bounds for an axis with size {length}")
    sums: NDArray[Any] = POOL.zeros(length * columns)
    if not rows.size:
        return sums.reshape(length, columns)
    # These live until the sums are there.
    rows = np.ascontiguousarray(rows, np.float32 if rows.dtype.itemsize <= 4 else np.float64)
    places = np.ascontiguousarray(places, np.int64)
    is_compensated = rows.dtype == np.float64 and bool(
        count > _TERMS_UNCOMPENSATED and np.bincount(places).max() > _TERMS_UNCOMPENSATED
    )
    lost = POOL.zeros(sums.size) if is_compensated else sums[:0]
    arrays = sums, lost, rows, places
    _scatter_add(rows.dtype.name, is_compensated)(*[each.ctypes.data for each in arrays], count, columns)
    if is_compensated:
        # Where a sum is infinite, its rounding error is NaN.
        np.add(sums, lost, out=sums, where=np.isfinite(lost))
    return sums.reshape(length, columns)


@cache
def _scatter_add(dtype: str, is_compensated: bool) -> Any:
    address = compiled(Recipe(write_scatter_add, (dtype, is_compensated)), "scatter_add", optimise=True)
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4, *[ctypes.c_int64] * 2)(address)
