"""Adds rows of an array of NumPy's at places that may be the same: in float64, in their order, in one pass.

Of float64, what rounding takes from the sums is kept beside them, as in kernels, where many rows have the same place.
"""

from __future__ import annotations

import ctypes
from functools import cache as once
from typing import TYPE_CHECKING, Any

import numpy as np

from dualbcast.codegen.llvm.target import compiled
from dualbcast.runtime.buffer_pool import POOL

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
    if not rows.size:
        return sums.reshape(length, columns)
    # These live until the sums are there.
    rows = np.ascontiguousarray(rows, np.float32 if rows.dtype.itemsize <= 4 else np.float64)
    places = np.ascontiguousarray(places, np.int64)
    step, rests = _STEPS[rows.dtype.name], sums[:0]
    if rows.dtype == np.float64 and count > _FEW and np.bincount(places).max() > _FEW:
        step, rests = _COMPENSATED, POOL.zeros(sums.size)
    _adding(step)(*[each.ctypes.data for each in (sums, rests, rows, places)], count, columns)
    if rests.size:
        # Where a sum is infinite, what rounding took from it is NaN.
        np.add(sums, rests, out=sums, where=np.isfinite(rests))
    return sums.reshape(length, columns)


# So many terms lose at most 8e-15 of the sum of their magnitudes. To keep that would take a large table, where few rows
# have the same place, three times as long.
_FEW = 64


@once
def _adding(step: str) -> Any:
    """A function of the addresses of sums, rests, rows and places, of the number of rows and that of columns."""
    return ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_int64] * 6)(compiled(_LOOP % step, "add", optimise=True))


_LOOP = """
define i32 @add(ptr noalias %%sums, ptr noalias %%rests, ptr noalias %%rows, ptr noalias %%places, i64 %%count,
                i64 %%columns) {
entry:
  br label %%row
row:
  %%i = phi i64 [ 0, %%entry ], [ %%after, %%added ]
  %%p = getelementptr i64, ptr %%places, i64 %%i
  %%place = load i64, ptr %%p, align 8
  %%to = mul i64 %%place, %%columns
  %%from = mul i64 %%i, %%columns
  br label %%column
column:
  %%j = phi i64 [ 0, %%row ], [ %%next, %%column ]
  %%k = add i64 %%to, %%j
  %%t = add i64 %%from, %%j
  %%s = getelementptr double, ptr %%sums, i64 %%k
  %%old = load double, ptr %%s, align 8
%s
  store double %%new, ptr %%s, align 8
  %%next = add i64 %%j, 1
  %%more = icmp ult i64 %%next, %%columns
  br i1 %%more, label %%column, label %%added
added:
  %%after = add i64 %%i, 1
  %%left = icmp ult i64 %%after, %%count
  br i1 %%left, label %%row, label %%done
done:
  ret i32 0
}
"""

# What is done with an element, by the dtype of the rows.
_STEPS = {
    "float32": """\
  %of.row = getelementptr float, ptr %rows, i64 %t
  %narrow = load float, ptr %of.row, align 4
  %term = fpext float %narrow to double
  %new = fadd double %old, %term""",
    "float64": """\
  %of.row = getelementptr double, ptr %rows, i64 %t
  %term = load double, ptr %of.row, align 8
  %new = fadd double %old, %term""",
}
# By Knuth's two-sum.
_COMPENSATED = f"""\
{_STEPS["float64"]}
  %part = fsub double %new, %old
  %less = fsub double %new, %part
  %of.old = fsub double %old, %less
  %of.term = fsub double %term, %part
  %lost = fadd double %of.old, %of.term
  %r = getelementptr double, ptr %rests, i64 %k
  %rest = load double, ptr %r, align 8
  %rest.new = fadd double %rest, %lost
  store double %rest.new, ptr %r, align 8"""
