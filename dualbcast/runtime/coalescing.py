"""From the axes of a result to the dimensions of a CPU kernel: neighbouring axes merged, inputs packed, rows joined."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from dualbcast.codegen.loops.row_joining import SHORT
from dualbcast.kernel_spec import TILE
from dualbcast.runtime.arguments import DType
from dualbcast.runtime.cpu.pieces import Packing

# How an array lies in memory: its shape, its strides in bytes, its dtype.
Form: TypeAlias = "tuple[tuple[int, ...], tuple[int, ...], DType]"
# Strides in elements along axes or dimensions.
_Row: TypeAlias = "tuple[int, ...]"

# Short rows are joined if there are `_MANY_ELEMENTS`, and a row has at most `_SHORT_ROW` of them, but not a multiple of
# `_WHOLE_VECTORS`. With sums over all rows they are joined up to `SHORT`. The figures are in
# docs/decisions/043-limits-of-short-rows.md.
_SHORT_ROW, _WHOLE_VECTORS, _MANY_ELEMENTS = 24, 16, 4096
# The elements of a row that is long. More arrays than this, 16 KiB each, would overflow the second-level cache.
_LONG_ROW, _MOST_JOINED_ARRAYS = 100, 128
# Two axes change places if rows are short beside columns. The fewest elements of such a column; the most elements of a
# plane of short rows; and the fewest elements of a row that stays a row beside short columns if no sum is over columns.
_LONG_COLUMN, _LARGEST_PLANE, _TINY_ROW = 16, 1 << 15, 8


class Dimensions(NamedTuple):
    """The dimensions of a kernel's iteration space, their `sizes` outermost first.

    `rows` are the strides of each array, in elements; those of its contiguous stand-in if it is packed. `unjoined` are
    the strides in dimensions in which rows are not joined, where there are sums over joined rows. For `folds` and
    `length` see `reduction_blocks.Sum`; no folds are as many ones.
    """

    sizes: tuple[int, ...]
    rows: list[_Row]
    packing: Packing | None = None
    unjoined: Sequence[_Row] = ()
    folds: tuple[int, ...] = ()
    length: int = 1


def dimensions_of(
    shape: tuple[int, ...], order: tuple[int, ...], rows: Sequence[_Row], inputs: tuple[Form, ...], sums: bool
) -> Dimensions:
    """The dimensions of a kernel, and the inputs that are packed for it.

    `order` has the axes of the result's shape from the outermost in memory to the innermost. `rows` are the strides of
    inputs and then of outputs along each axis, 0 where an output is summed. `sums` says whether outputs may be sums.
    """
    return (
        _joined(shape, order, rows, inputs)
        or _grouped(shape, order, rows, len(inputs))
        or _packed(shape, order, rows, inputs, sums)
        or Dimensions(*coalesced(shape, rows, order))
    )


def long_rows(
    shape: tuple[int, ...], order: tuple[int, ...], inputs: Sequence[_Row], sums: Sequence[tuple[int, ...] | None]
) -> tuple[int, ...]:
    """The order of the axes, in which the last two change places where rows would be short and columns are long.

    That is for kernels of which every output is a sum over some axis and no input has all of them, as of pairs of
    points. Then the inputs are so small beside the space that it does not matter how they lie in memory. `inputs` are
    their strides along each axis, `sums` the shape of each output that is summed.
    """
    axes = [axis for axis in order if shape[axis] > 1]
    if len(axes) < 2 or math.prod(shape) < _MANY_ELEMENTS:
        return order
    high, last = axes[-2:]
    rows, columns = shape[high], shape[last]
    if columns > SHORT or rows < max(_LONG_COLUMN, columns) or rows * columns > _LARGEST_PLANE:
        return order
    if any(all(row[axis] for axis in axes) for row in inputs):
        return order
    spans = [fresh_strides(shape, order, own) for own in sums]
    if any(own is None or all(span[axis] for axis in axes) for own, span in zip(sums, spans, strict=True)):
        return order
    is_over_columns = any(span[last] and not span[high] for span in spans)
    if not is_over_columns and (columns == SHORT or (rows <= SHORT and columns >= _TINY_ROW)):
        return order
    return (*[axis for axis in order if axis not in (high, last)], last, high)


def coalesced(
    shape: tuple[int, ...], rows: Sequence[_Row], order: tuple[int, ...]
) -> tuple[tuple[int, ...], list[_Row]]:
    """Sizes, and strides for each array, with axes of length 1 dropped and neighbours merged where all arrays allow."""
    axes = [axis for axis in order if shape[axis] > 1]
    sizes, columns = [shape[axes[0]]], [[row[axes[0]] for row in rows]]
    for axis in axes[1:]:
        size, inner = shape[axis], [row[axis] for row in rows]
        if all(outer == step * size for outer, step in zip(columns[-1], inner, strict=True)):
            sizes[-1], columns[-1] = sizes[-1] * size, inner
        else:
            sizes.append(size)
            columns.append(inner)
    return tuple(sizes), list(zip(*columns, strict=True))


def fresh_strides(shape: tuple[int, ...], order: tuple[int, ...], own: tuple[int, ...] | None) -> _Row:
    """The strides of a fresh output, of the result's shape or for sums `own`; contiguous in the axes' order."""
    full = shape if own is None else (1,) * (len(shape) - len(own)) + own
    strides, step = [0] * len(shape), 1
    for axis in reversed(order):
        if full[axis] > 1:
            strides[axis] = step
            step *= shape[axis]
    return tuple(strides)


def _joined(
    shape: tuple[int, ...], order: tuple[int, ...], rows: Sequence[_Row], inputs: tuple[Form, ...]
) -> Dimensions | None:
    """Short rows joined to one row. Inputs are packed unless all their elements follow one another; the kernel hands
    over the terms of sums, in its compute dtype."""
    whole, count = fresh_strides(shape, order, None), len(inputs)
    packed = tuple([position for position, row in enumerate(rows[:count]) if row != whole and any(row)])
    summed = tuple([position for position, row in enumerate(rows[count:], count) if row != whole])
    if not 0 < len(packed) + len(summed) <= _MOST_JOINED_ARRAYS:
        return None
    sizes, (steps, *strides) = coalesced(shape, [whole, *[rows[position] for position in (*packed, *summed)]], order)
    sums = {position: _OVER.get(row, "") for position, row in zip(summed, strides[len(packed) :], strict=True)}
    if len(sizes) == 1 or "" in sums.values() or (sums and not _is_of_one_float(inputs)):
        return None
    last = sizes[-1]
    is_short = last <= SHORT if "rows" in sums.values() else last <= _SHORT_ROW and last % _WHOLE_VECTORS
    if not is_short or math.prod(sizes) < _MANY_ELEMENTS:
        return None
    packing = Packing.of_rows(packed, sizes, steps, tuple(strides[: len(packed)]), tuple(sums.items()))
    joined = [whole if position in packed or position in summed else row for position, row in enumerate(rows)]
    return Dimensions(*coalesced(shape, joined, order), packing, coalesced(shape, rows, order)[1])


# The elements that a sum is over, by its strides in two dimensions.
_OVER: dict[_Row, str] = {(1, 0): "columns", (0, 1): "rows", (0, 0): "all"}


def _is_of_one_float(inputs: tuple[Form, ...]) -> bool:
    """Whether all that is computed and stored is float32, or all float64; integers do not count."""
    dtypes = {dtype for shape, _, dtype in inputs if dtype.kind not in ("b" if shape else "biu")}
    return len(dtypes) == 1 and dtypes <= {np.dtype(np.float32), np.dtype(np.float64)}


def _grouped(shape: tuple[int, ...], order: tuple[int, ...], rows: Sequence[_Row], count: int) -> Dimensions | None:
    """Several short rows joined to each long row, where there are sums in more dimensions than two.

    A sum over the elements of short rows becomes as many sums side by side as a long row has short ones. Inputs are
    copied unless their short rows follow one another.
    """
    whole = fresh_strides(shape, order, None)
    if all(row == whole for row in rows[count:]):
        return None
    sizes, (steps, *every) = coalesced(shape, [whole, *rows], order)
    *outer, high, last = (1, *sizes)
    if len(sizes) < 3 or last > SHORT or math.prod(sizes) < _MANY_ELEMENTS:
        return None
    if any(any(row) and (row[-1] != 1 or row[-2] not in (0, last)) for row in every[count:]):
        return None
    over_rows = [row[-2:] == (0, 1) for row in every[count:]]
    # A whole number of long rows, so that there is no rest; and several, if sums are over them.
    most = min(high - (True in over_rows), TILE // last)
    group = max((n for n in range(1, most + 1) if high % n == 0), default=1)
    if group * last < _LONG_ROW:
        return None
    packed = tuple([at for at, row in enumerate(every[:count]) if any(row[-2:]) and row[-2:] != (last, 1)])
    folds = tuple([group if is_over else 1 for is_over in over_rows])
    rows = [steps if at in packed else row for at, row in enumerate(every[:count])]
    rows += [(*[n * fold for n in row[:-2]], *row[-2:]) for row, fold in zip(every[count:], folds, strict=True)]
    rows = [(*row[:-2], row[-2] * group, row[-1]) for row in rows]
    lengths = (*outer[1:], high // group, group * last)
    packing = Packing.of_rows(packed, sizes, steps, tuple([every[at] for at in packed])) if packed else None
    return Dimensions(*coalesced(lengths, rows, tuple(range(len(lengths)))), packing, folds=folds, length=last)


def _packed(
    shape: tuple[int, ...], order: tuple[int, ...], rows: Sequence[_Row], inputs: tuple[Form, ...], copied: bool
) -> Dimensions | None:
    """Inputs are packed if their elements are not next to each other in the innermost axis. Where there are sums they
    are `copied`, and only those that span all axes."""
    axes = [axis for axis in order if shape[axis] > 1]
    packed = [position for position, row in enumerate(rows[: len(inputs)]) if row[axes[-1]] not in (0, 1)]
    if copied:
        packed = [position for position in packed if all(rows[position][axis] for axis in axes)]
    if not packed:
        return None
    whole = fresh_strides(shape, order, None)
    sizes, columns = coalesced(shape, [whole, *(rows[position] for position in packed)], order)
    itemsizes = [inputs[position][2].itemsize for position in packed]
    packing = Packing.of(tuple(packed), sizes, columns[0], tuple(columns[1:]), itemsizes)
    if packing is None:
        return None
    rows = [whole if at in packed else row for at, row in enumerate(rows)]
    return Dimensions(*coalesced(shape, rows, order), packing)
