"""Rows that are added up at places, which may be the same for several: arrays of NumPy or CuPy come in, and sums go out
that have the same bits on every run.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from dualbcast.codegen.loops.calls import write_scatter_add
from dualbcast.program.outputs import library_of
from dualbcast.runtime.buffer_pool import POOL
from dualbcast.runtime.cpu.loader import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray


def add_rows(rows: Any, places: Any, length: int) -> Any:
    """An array of `length` rows, with each of `rows` added at its place."""
    xp = library_of(rows)
    if isinstance(rows, np.ndarray) and rows.dtype.kind == "f" and rows.dtype.itemsize <= 8:
        with np.errstate(over="ignore"):
            return row_sums(rows, places, length).astype(rows.dtype, copy=False)
    result = xp.zeros((length, rows.shape[1]), dtype=rows.dtype)
    if places.size == 0:
        return result
    # Rows for the same place side by side, then a running sum that begins anew at each place, over rows twice as far
    # apart each time; the last row of each place has its sum. No atomic additions, so the order is always the same.
    order = xp.argsort(places, kind="stable")
    places, sums = places[order], rows[order]
    distance = 1
    while distance < places.size and bool((places[distance:] == places[:-distance]).any()):
        same = (places[distance:] == places[:-distance])[:, None]
        sums[distance:] = sums[distance:] + xp.where(same, sums[:-distance], xp.zeros_like(sums[:-distance]))
        distance *= 2
    last = xp.concatenate([places[1:] != places[:-1], xp.ones(1, dtype=bool)])
    result[places[last]] = sums[last]
    return result


# Sums of so many terms are not compensated; see docs/decisions/061-thresholds-of-the-graph.md.
_TERMS_UNCOMPENSATED = 64


def row_sums(rows: NDArray[Any], places: NDArray[Any], length: int) -> NDArray[Any]:
    """As `add_rows`, in float64 and in the order of the rows.

    If many float64 rows have one place, the rounding errors are added up beside the sums, as in kernels.
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
    address = compiled("scatter_add", write_scatter_add, dtype, is_compensated, optimise=True)
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4, *[ctypes.c_int64] * 2)(address)
