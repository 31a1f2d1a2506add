"""Adds rows of an array of NumPy's at places that may be the same: in float64, in their order, in one pass."""

from __future__ import annotations

import ctypes
from functools import cache as once
from typing import TYPE_CHECKING, Any

import numpy as np

from dualbcast.runtime.memory import POOL
from dualbcast.runtime.native import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["row_sums"]


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
    if rows.size:
        if rows.dtype not in _NAMES:
            rows = rows.astype(np.float64)
        # These live until the sums are there.
        rows, places = np.ascontiguousarray(rows), np.ascontiguousarray(places, np.int64)
        _adding(_NAMES[rows.dtype])(sums.ctypes.data, rows.ctypes.data, places.ctypes.data, count, columns)
    return sums.reshape(length, columns)


# What LLVM calls the dtypes that are read as they are.
_NAMES = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}


@once
def _adding(number: str) -> Any:
    """A function of the addresses of sums, rows and places, of the number of rows and that of columns."""
    term = "%term = fpext float %read to double" if number == "float" else "%term = fadd double %read, -0.0"
    text = f"""
define i32 @add(ptr noalias %sums, ptr noalias %rows, ptr noalias %places, i64 %count, i64 %columns) {{
entry:
  br label %row
row:
  %i = phi i64 [ 0, %entry ], [ %after, %added ]
  %p = getelementptr i64, ptr %places, i64 %i
  %place = load i64, ptr %p, align 8
  %to = mul i64 %place, %columns
  %from = mul i64 %i, %columns
  %sum.row = getelementptr double, ptr %sums, i64 %to
  %term.row = getelementptr {number}, ptr %rows, i64 %from
  br label %column
column:
  %j = phi i64 [ 0, %row ], [ %next, %column ]
  %s = getelementptr double, ptr %sum.row, i64 %j
  %t = getelementptr {number}, ptr %term.row, i64 %j
  %sum = load double, ptr %s, align 8
  %read = load {number}, ptr %t, align {4 if number == "float" else 8}
  {term}
  %new = fadd double %sum, %term
  store double %new, ptr %s, align 8
  %next = add i64 %j, 1
  %more = icmp ult i64 %next, %columns
  br i1 %more, label %column, label %added
added:
  %after = add i64 %i, 1
  %left = icmp ult i64 %after, %count
  br i1 %left, label %row, label %done
done:
  ret i32 0
}}
"""
    return ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_int64] * 5)(compiled(text, "add", optimise=True))
