"""Works out from shapes and strides alone how a kernel walks arrays: axis order, coalesced dimensions, layout, strides;
on a CPU also which inputs are packed and which rows are joined.

Memory itself is never looked at, so every result is remembered, and a repeated call costs a look-up.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from operator import attrgetter
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from dualbcast.codegen.loops.packing import SHORT
from dualbcast.errors import ShapeError
from dualbcast.kernel_spec import TILE, Layout
from dualbcast.runtime.arguments import DType
from dualbcast.runtime.cpu.pieces import Packing
from dualbcast.runtime.cuda.grid import foremost, moved, partial_sums
from dualbcast.runtime.reduction_blocks import WORK, Split, copied, split_for_threads, sums_of

form_of = attrgetter("shape", "strides", "dtype")
# For each output the shape of its sums, None where it is not summed; None where none is.
Shapes: TypeAlias = "tuple[tuple[int, ...] | None, ...] | None"
# What runs a kernel.
Target = Literal["cpu", "cuda", "python"]

# How an array lies in memory: its shape, its strides in bytes, its dtype.
Form: TypeAlias = "tuple[tuple[int, ...], tuple[int, ...], DType]"
# Strides in elements along axes or dimensions.
_Row: TypeAlias = "tuple[int, ...]"

# Short rows are joined if there are `_MANY_ELEMENTS`, and a row has at most `_SHORT_ROW` of them, but not a multiple of
# `_WHOLE_VECTORS`. With sums over all rows they are joined up to `SHORT`. The figures are in
# docs/decisions/043-limits-of-short-rows.md. Where all outputs are sums of float64 over a row, vectors add up
# terms, and are ahead of joined rows from this number on (docs/decisions/122-sums-in-registers.md).
_SHORT_ROW, _WHOLE_VECTORS, _MANY_ELEMENTS, _MOST_JOINED_TERMS = 24, 16, 4096, 9
# The elements of a row that is long. More arrays than this, 16 KiB each, would overflow the second-level cache.
_LONG_ROW, _MOST_JOINED_ARRAYS = 100, 128
# Two axes change places if rows are short beside columns. The fewest elements of such a column; the most elements of a
# plane of short rows; and the fewest elements of a row that stays a row beside short columns if no sum is over columns.
_LONG_COLUMN, _LARGEST_PLANE, _TINY_ROW = 16, 1 << 15, 8
_INT32_MAX = 2**31 - 1


class Geometry(NamedTuple):
    """What follows from the shapes and strides of a call's arguments alone.

    `shape` and `total` are those of the result. `order` has its axes from the outermost in memory to the innermost,
    None where that is C order. `sizes` and `strides` are those of the coalesced dimensions, outermost first; strides
    are in elements, class by class, one for each `s` of the layout; `ints` are both. `split` says how the space is
    split where outputs are summed. `packing` has the inputs that a CPU kernel has as contiguous ones: it is given them
    piece by piece, or, where it sums, copies.
    """

    shape: tuple[int, ...]
    total: int
    order: tuple[int, ...] | None
    layout: Layout
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    ints: tuple[int, ...]
    split: Split | None = None
    packing: Packing | None = None

    @property
    def memory(self) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
        """The shape that the result has in memory, and the axes to transpose that by; None where it is C order."""
        if self.order is None:
            return self.shape, None
        axes = sorted(range(len(self.order)), key=self.order.__getitem__)
        return tuple([self.shape[axis] for axis in self.order]), tuple(axes)


@lru_cache(maxsize=1024)
def lay_out(
    inputs: tuple[Form, ...],
    outs: tuple[Form | None, ...],
    names: tuple[str, ...],
    shapes: Shapes = None,
    target: Target = "cpu",
    least: int = WORK,
    counts: bool = False,
) -> Geometry:
    """Broadcast, order the axes by memory, and coalesce them, for a kernel of a target.

    `inputs` and `outs` say how each array lies in memory, the strides being whole numbers of elements; an output that
    is None is to be allocated. `shapes` are those of sums. Where these are not for a CUDA kernel, a block has at least
    so many elements; `counts` says that some outputs are integers. It raises a `ShapeError`, with the parameters'
    names, if the shapes do not broadcast together. The same arguments give the same object.
    """
    shape = result_shape(inputs, names)
    given = [form for form in outs if form is not None]
    total, rank = math.prod(shape), len(shape)
    if total <= 1:
        # Nothing to walk. A function tried on single numbers then needs no other kernel than one for contiguous arrays.
        layout = Layout(1, ("1",), (0,) * (len(inputs) + len(outs)))
        return Geometry(shape, total, None, layout, (total,), (), (total,))
    steps = [_steps(form, shape) for form in (*inputs, *given)]
    order = _memory_order(steps, rank)
    rows = steps[: len(inputs)]
    others = iter(steps[len(inputs) :])
    spans = (None,) * len(outs) if shapes is None else shapes
    if target == "cpu":
        order = _long_rows(shape, order, rows, spans)
    rows += [
        _fresh_strides(shape, order, span) if form is None else next(others)
        for form, span in zip(outs, spans, strict=True)
    ]
    axes = [axis for axis in order if shape[axis] > 1]
    sizes, rows = tuple([shape[axis] for axis in axes]), [tuple([row[axis] for axis in axes]) for row in rows]
    if target == "cpu":
        dimensions = _dimensions_of(sizes, rows, inputs, shapes is not None, counts)
    else:
        dimensions = _Dimensions(*_coalesced(sizes, rows))
    sizes, rows, packing = dimensions.sizes, dimensions.rows, dimensions.packing
    if shapes is not None and target == "cuda" and (summed := [row for row in rows[len(inputs) :] if 0 in row]):
        first = foremost(sizes, summed)
        sizes, *rows = [moved(each, first) for each in (sizes, *rows)]
    wide = total > _INT32_MAX or any(
        sum(abs(step) * (size - 1) for step, size in zip(row, sizes, strict=True)) > _INT32_MAX for row in rows
    )
    distinct = list(dict.fromkeys(rows))
    layout = Layout(len(sizes), tuple(map(_pattern, distinct)), tuple(map(distinct.index, rows)), wide)
    strides = tuple(
        step
        for row, pattern in zip(distinct, layout.classes, strict=True)
        for step, mark in zip(row, pattern, strict=True)
        if mark == "s"
    )
    split = None
    if shapes is not None:
        folds = dimensions.folds or (1,) * len(shapes)
        own = sums_of(shape, order, dimensions.unjoined or rows, shapes, folds, dimensions.length)
        if packing is not None and packing.sums:
            panels = len(packing.table())  # that have whole rows
            split = Split((), copied(own, lambda s: 1 if s.row[0] else panels))
        elif any(own) and target == "cuda":
            split = Split((), copied(own, lambda s: partial_sums(sizes, s.row)), True)
        elif any(own):
            split = split_for_threads(sizes, strides, rows, own, least)
            if target == "cpu" and len(sizes) > 1 and total and split.has_whole_rows:
                layout, split = layout._replace(whole_rows=True), replace(split, is_written=True)
    in_order = order == tuple(range(rank))
    return Geometry(shape, total, None if in_order else order, layout, sizes, strides, sizes + strides, split, packing)


@lru_cache(maxsize=1024)
def result_shape(inputs: tuple[Form, ...], names: tuple[str, ...]) -> tuple[int, ...]:
    """The shape that the inputs broadcast to, by NumPy's rules; or a `ShapeError`, with the parameters' names."""
    rank = max((len(shape) for shape, _, _ in inputs), default=0)
    lengths = []
    for axis in range(-rank, 0):
        spanning = {shape[axis] for shape, _, _ in inputs if len(shape) >= -axis} - {1}
        if len(spanning) > 1:
            listing = ", ".join(f"{name} {shape}" for name, (shape, _, _) in zip(names, inputs, strict=True))
            lengths_there = " and ".join(map(str, sorted(spanning)))
            raise ShapeError(
                f"The shapes do not broadcast together: {listing}. "
                f"Axis {axis} has lengths {lengths_there}; lengths along an axis must be equal, or 1."
            )
        lengths.append(spanning.pop() if spanning else 1)
    return tuple(lengths)


def _steps(form: Form, shape: tuple[int, ...]) -> tuple[int, ...]:
    """An array's strides in elements along each axis of the result, 0 where it does not span it."""
    own, strides, dtype = form
    steps = [stride // dtype.itemsize if length > 1 else 0 for length, stride in zip(own, strides, strict=True)]
    return (0,) * (len(shape) - len(own)) + tuple(steps)


def _memory_order(steps: Sequence[tuple[int, ...]], rank: int) -> tuple[int, ...]:
    """The axes from the outermost in memory to the innermost, as NumPy's order "K" has them.

    An axis goes outside another where every array that spans both has the larger stride there; C order decides where no
    array spans both and where arrays disagree. That relation need not be transitive, so, as in NumPy, it is an
    insertion sort that defines the order: each axis moves past those it belongs inside of.
    """
    order: list[int] = []
    for axis in reversed(range(rank)):
        place = 0  # in `order`, which is outermost first, all of its axes being later ones than `axis`
        for position, other in enumerate(order):
            pairs = [(abs(row[axis]), abs(row[other])) for row in steps if row[axis] and row[other]]
            if not pairs:
                continue
            if any(mine >= its for mine, its in pairs):
                break
            place = position + 1
        order.insert(place, axis)
    return tuple(order)


def _pattern(row: tuple[int, ...]) -> str:
    """The address class of coalesced strides, as `Layout` describes it."""
    marks = ["s" if step else "0" for step in row]
    if row[-1] == 1:
        marks[-1] = "1"
    return "".join(marks)


# ---- dimensions ------------------------------------------------------------------------------------------------------


class _Dimensions(NamedTuple):
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


def _dimensions_of(lengths: _Row, rows: list[_Row], inputs: tuple[Form, ...], sums: bool, counts: bool) -> _Dimensions:
    """The dimensions of a kernel, and the inputs that are packed for it.

    `lengths` are those of the result's axes, from the outermost in memory to the innermost. `rows` are the strides of
    inputs and then of outputs along each axis, 0 where an output is summed. `sums` says whether outputs may be sums.
    """
    return (
        _joined(lengths, rows, inputs, counts)
        or _grouped(lengths, rows, len(inputs))
        or _packed(lengths, rows, inputs, sums)
        or _Dimensions(*_coalesced(lengths, rows))
    )


def _long_rows(
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
    spans = [_fresh_strides(shape, order, own) for own in sums]
    if any(own is None or all(span[axis] for axis in axes) for own, span in zip(sums, spans, strict=True)):
        return order
    is_over_columns = any(span[last] and not span[high] for span in spans)
    if not is_over_columns and (columns == SHORT or (rows <= SHORT and columns >= _TINY_ROW)):
        return order
    return (*[axis for axis in order if axis not in (high, last)], last, high)


def _coalesced(lengths: _Row, rows: Sequence[_Row]) -> tuple[_Row, list[_Row]]:
    """Sizes, and strides for each array, with axes of length 1 dropped and neighbours merged where all arrays allow."""
    sizes, columns = list[int](), list[list[int]]()
    for size, *inner in zip(lengths, *rows, strict=True):
        if sizes and all(outer == step * size for outer, step in zip(columns[-1], inner, strict=True)):
            sizes[-1], columns[-1] = sizes[-1] * size, inner
        elif size > 1:
            sizes.append(size)
            columns.append(inner)
    return tuple(sizes), list(zip(*columns, strict=True))


def _contiguous(lengths: _Row) -> _Row:
    """The strides of an array whose elements follow one another."""
    return tuple([math.prod(lengths[axis + 1 :]) for axis in range(len(lengths))])


def _fresh_strides(shape: tuple[int, ...], order: tuple[int, ...], own: tuple[int, ...] | None) -> _Row:
    """The strides of a fresh output, of the result's shape or for sums `own`; contiguous in the axes' order."""
    full = shape if own is None else (1,) * (len(shape) - len(own)) + own
    strides, step = [0] * len(shape), 1
    for axis in reversed(order):
        if full[axis] > 1:
            strides[axis] = step
            step *= shape[axis]
    return tuple(strides)


def _joined(lengths: _Row, rows: list[_Row], inputs: tuple[Form, ...], counts: bool) -> _Dimensions | None:
    """Short rows joined to one row. Inputs are packed unless all their elements follow one another; the kernel hands
    over the terms of sums, in its compute dtype."""
    whole, count = _contiguous(lengths), len(inputs)
    packed = tuple([position for position, row in enumerate(rows[:count]) if row != whole and any(row)])
    summed = tuple([position for position, row in enumerate(rows[count:], count) if row != whole])
    if not 0 < len(packed) + len(summed) <= _MOST_JOINED_ARRAYS:
        return None
    sizes, (steps, *strides) = _coalesced(lengths, [whole, *[rows[position] for position in (*packed, *summed)]])
    sums = {position: _OVER.get(row, "") for position, row in zip(summed, strides[len(packed) :], strict=True)}
    if len(sizes) == 1 or "" in sums.values() or (sums and (counts or not _is_of_one_float(inputs))):
        return None
    last = sizes[-1]
    is_double = any(dtype == np.float64 for _, _, dtype in inputs)
    are_of_rows = len(sums) == len(rows) - count and {*sums.values()} == {"columns"}
    if are_of_rows and is_double and len(sums) * last > _MOST_JOINED_TERMS:
        return None
    is_short = last <= SHORT if "rows" in sums.values() else last <= _SHORT_ROW and last % _WHOLE_VECTORS
    if not is_short or math.prod(sizes) < _MANY_ELEMENTS:
        return None
    # What is summed over all is summed over rows here, and these sums are added up by `reduction_blocks.combine`.
    folds = tuple([last if sums.get(at) == "all" else 1 for at in range(count, len(rows))])
    over = tuple([(at, "rows" if way == "all" else way) for at, way in sums.items()])
    packing = Packing.of_rows(packed, sizes, steps, tuple(strides[: len(packed)]), over)
    joined = [whole if position in packed or position in summed else row for position, row in enumerate(rows)]
    return _Dimensions(*_coalesced(lengths, joined), packing, _coalesced(lengths, rows)[1], folds)


# The elements that a sum is over, by its strides in two dimensions.
_OVER: dict[_Row, str] = {(1, 0): "columns", (0, 1): "rows", (0, 0): "all"}


def _is_of_one_float(inputs: tuple[Form, ...]) -> bool:
    """Whether all that is computed and stored is float32, or all float64; integers do not count."""
    dtypes = {dtype for shape, _, dtype in inputs if dtype.kind not in ("b" if shape else "biu")}
    return len(dtypes) == 1 and dtypes <= {np.dtype(np.float32), np.dtype(np.float64)}


def _grouped(lengths: _Row, rows: list[_Row], count: int) -> _Dimensions | None:
    """Several short rows joined to each long row, where there are sums in more dimensions than two.

    A sum over the elements of short rows becomes as many sums side by side as a long row has short ones. Inputs are
    copied unless their short rows follow one another.
    """
    whole = _contiguous(lengths)
    if all(row == whole for row in rows[count:]):
        return None
    sizes, (steps, *every) = _coalesced(lengths, [whole, *rows])
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
    long = (*outer[1:], high // group, group * last)
    packing = Packing.of_rows(packed, sizes, steps, tuple([every[at] for at in packed])) if packed else None
    return _Dimensions(*_coalesced(long, rows), packing, folds=folds, length=last)


def _packed(lengths: _Row, rows: list[_Row], inputs: tuple[Form, ...], copied: bool) -> _Dimensions | None:
    """Inputs are packed if their elements are not next to each other in the innermost axis, but for the fields of
    structures, whose cache lines are used whole. Where there are sums they are `copied`, and only those that span all
    axes."""
    packed = [at for at, row in enumerate(rows[: len(inputs)]) if row[-1] not in (0, 1) and (all(row) or not copied)]
    # Several inputs with one step that could fill it are taken for fields, which are read where they lie in half of the
    # time. A lone input with a step of half a cache line or more takes up to twice the time so.
    itemsizes = [dtype.itemsize for _, _, dtype in inputs]
    steps = {at: abs(rows[at][-1]) * itemsizes[at] for at in packed}
    filled: Counter[int] = Counter()
    for at, step in steps.items():
        filled[step] += itemsizes[at]
    packed = [at for at, step in steps.items() if filled[step] < max(step, 2 * itemsizes[at])]
    if not packed:
        return None
    whole = _contiguous(lengths)
    sizes, columns = _coalesced(lengths, [whole, *(rows[position] for position in packed)])
    packing = Packing.of(tuple(packed), sizes, columns[0], tuple(columns[1:]), [itemsizes[at] for at in packed])
    if packing is None:
        return None
    rows = [whole if at in packed else row for at, row in enumerate(rows)]
    return _Dimensions(*_coalesced(lengths, rows), packing)
