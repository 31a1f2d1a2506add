"""Works out from shapes and strides alone how a kernel walks arrays: axis order, coalesced sizes, layout and strides.

Memory itself is never looked at, so every result is remembered, and a repeated call costs a look-up.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from dualbcast.errors import ShapeError
from dualbcast.kernel_spec import Layout
from dualbcast.runtime.arguments import Array, DType
from dualbcast.runtime.buffer_pool import MIN_ARRAY_BYTES, MIN_CALL_BYTES, POOL
from dualbcast.runtime.coalescing import Dimensions, Form, coalesced, dimensions_of, fresh_strides, long_rows
from dualbcast.runtime.cpu.pieces import Packing
from dualbcast.runtime.cuda.grid import foremost
from dualbcast.runtime.cuda.memory import reserve, shared_block
from dualbcast.runtime.reduction_blocks import WORK, Split, split_by_panels, split_for_gpu, split_for_threads, sums_of

form_of = attrgetter("shape", "strides", "dtype")
# For each output the shape of its sums, None where it is not summed; None where none is.
Shapes: TypeAlias = "tuple[tuple[int, ...] | None, ...] | None"
# What runs a kernel.
Target = Literal["cpu", "cuda", "python"]

_INT32_MAX = 2**31 - 1


class Geometry(NamedTuple):
    """What follows from the shapes and strides of a call's arguments alone.

    Attributes
    ----------
    shape, total
        The shape of the result, and its number of elements.
    order
        The axes of the result from the outermost in memory to the innermost; None where that is C order.
    layout
        What a kernel is specialised on.
    sizes, strides, ints
        Of the coalesced dimensions, outermost first; strides in elements, class by class, one for each `s`. And both.
    split
        How the space is split where outputs are summed.
    packing
        The inputs that a CPU kernel has as contiguous ones: it is given them piece by piece, or, where it sums, copies.
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

    def is_large(self, count: int) -> bool:
        """Whether so many new arrays of NumPy's have memory of the pool."""
        most = 8 * self.total  # bytes an element
        return most >= MIN_ARRAY_BYTES and most * count >= MIN_CALL_BYTES

    def allocate_all(self, dtypes: Sequence[DType], xp: Any) -> tuple[Array, ...]:
        """Uninitialised arrays of the result's shape, contiguous in the order in which the kernel walks them.

        NumPy's each have memory of their own, so that one that is kept keeps no others. On a GPU they are one block,
        because allocating takes longer than the launch.
        """
        lengths, axes = self.memory
        arrays: Sequence[Array]
        if xp is not np and self.total:
            arrays = tuple(reserve(shared_block(lengths, tuple(dtypes))))
        elif xp is np and self.is_large(len(dtypes)):
            arrays = POOL.empties(lengths, dtypes)
        else:
            arrays = [xp.empty(lengths, dtype) for dtype in dtypes]
        return tuple(arrays if axes is None else [array.transpose(axes) for array in arrays])

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
) -> Geometry:
    """Broadcast, order the axes by memory, and coalesce them, for a kernel of a target.

    `inputs` and `outs` say how each array lies in memory, the strides being whole numbers of elements; an output that
    is None is to be allocated with `Geometry.allocate_all`. `shapes` are those of sums. Where these are not for a CUDA
    kernel, a block has at least so many elements. It raises a `ShapeError`, with the parameters' names, if the shapes
    do not broadcast together. The same arguments give the same object.

    Examples
    --------
    >>> import numpy as np
    >>> geometry = lay_out((form_of(np.ones((2, 3, 4))), form_of(np.ones(4))), (None,), ("x", "y"))
    >>> geometry.layout.classes, geometry.sizes, geometry.strides
    (('s1', '01'), (6, 4), (4,))
    """
    shape = result_shape(inputs, names)
    given = [form for form in outs if form is not None]
    total, rank = 1, len(shape)
    for length in shape:
        total *= length
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
        order = long_rows(shape, order, rows, spans)
    rows += [
        fresh_strides(shape, order, span) if form is None else next(others)
        for form, span in zip(outs, spans, strict=True)
    ]
    if target == "cpu":
        dimensions = dimensions_of(shape, order, rows, inputs, shapes is not None)
    else:
        dimensions = Dimensions(*coalesced(shape, rows, order))
    sizes, rows, packing = dimensions.sizes, dimensions.rows, dimensions.packing
    if shapes is not None and target == "cuda" and (summed := [row for row in rows[len(inputs) :] if 0 in row]):
        sizes, *rows = _with_first(foremost(sizes, summed), sizes, *rows)
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
            split = split_by_panels(packing.count, own)
        elif any(own) and target == "cuda":
            split = split_for_gpu(sizes, own)
        elif any(own):
            split = split_for_threads(sizes, strides, rows, own, least)
    in_order = order == tuple(range(rank))
    return Geometry(shape, total, None if in_order else order, layout, sizes, strides, sizes + strides, split, packing)


@lru_cache(maxsize=1024)
def result_shape(inputs: tuple[Form, ...], names: tuple[str, ...]) -> tuple[int, ...]:
    """The shape that the inputs broadcast to, by NumPy's rules; a `ShapeError`, with the parameters' names, if they do
    not.

    Examples
    --------
    >>> import numpy as np
    >>> result_shape((form_of(np.ones((3, 1))), form_of(np.ones(4))), ("x", "y"))
    (3, 4)
    """
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


def _with_first(dimension: int, *rows: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The rows with the entry of a dimension before the others."""
    return [(row[dimension], *row[:dimension], *row[dimension + 1 :]) for row in rows]


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


# ---- facts about one array -------------------------------------------------------------------------------------------


def extent(form: Form) -> tuple[int, int]:
    """The bytes that an array spans, relative to its element 0: the first, and one past the last.

    Examples
    --------
    >>> import numpy as np
    >>> extent(form_of(np.ones((2, 3))[:, ::-1]))
    (-16, 32)
    """
    shape, strides, dtype = form
    if 0 in shape:
        return 0, 0
    offsets = [stride * (length - 1) for length, stride in zip(shape, strides, strict=True)]
    return sum(min(offset, 0) for offset in offsets), sum(max(offset, 0) for offset in offsets) + dtype.itemsize


def is_nested(form: Form) -> bool:
    """Whether an array's dimensions nest in steps of whole elements, so that no two elements share a byte.

    Examples
    --------
    >>> import numpy as np
    >>> is_nested(form_of(np.ones((2, 3)).T)), is_nested(form_of(np.broadcast_to(1.0, 3)))
    (True, False)
    """
    shape, strides, dtype = form
    if 0 in shape:
        return True
    reach = dtype.itemsize
    for step, length in sorted((abs(stride), length) for length, stride in zip(shape, strides, strict=True)):
        if length > 1:
            if step < reach or step % dtype.itemsize:
                return False
            reach = step * length
    return True
