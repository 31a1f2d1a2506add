"""Works out from shapes and strides alone how a kernel walks arrays: axis order, coalesced sizes, layout and strides.

Memory itself is never looked at, so every result is remembered, and a repeated call costs a look-up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np

from dualbcast.abi import TILE, Layout
from dualbcast.errors import ShapeError
from dualbcast.record import NamedTuple
from dualbcast.runtime.cuda_blocks import foremost
from dualbcast.runtime.cuda_memory import allocate
from dualbcast.runtime.memory import POOL, SMALLEST, WORTH
from dualbcast.runtime.operands import Array, DType
from dualbcast.runtime.packing import Copied, Packing
from dualbcast.runtime.reduction import Block, Space, Split
from dualbcast.runtime.short_rows import LONGEST

__all__ = ["Form", "Geometry", "Shapes", "extent", "form_of", "is_nested", "lay_out", "result_shape"]

# How an array lies in memory: its shape, its strides in bytes, its dtype.
Form: TypeAlias = "tuple[tuple[int, ...], tuple[int, ...], DType]"
form_of = attrgetter("shape", "strides", "dtype")
# For each output the shape of its sums, None where it is not summed; None where none is.
Shapes: TypeAlias = "tuple[tuple[int, ...] | None, ...] | None"

_INT32_MAX = 2**31 - 1


class Geometry(NamedTuple):
    """What follows from the shapes and strides of a call's arguments alone.

    Attributes
    ----------
    shape : tuple of int
        The shape of the result.
    total : int
        Its number of elements.
    order : tuple of int or None
        The axes of the result from the outermost in memory to the innermost; None where that is C order.
    layout : Layout
        What a kernel is specialised on.
    sizes, strides : tuple of int
        Of the coalesced dimensions, outermost first; strides in elements, class by class, one for each `s`.
    ints : tuple of int
        `sizes` and `strides`.
    split : Split or None
        How the space is split where outputs are summed.
    packing : Packing or None
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

    @property
    def blocks(self) -> Sequence[Block] | Copied | Packing | None:
        """The parts of the space that a kernel is run on where it sums or inputs are packed; else None."""
        if self.split is None or not self.split.blocks:
            return self.packing
        return self.split.blocks if self.packing is None else Copied(self.packing, self.split.blocks)

    def is_large(self, count: int) -> bool:
        """Whether so many new arrays of NumPy's have memory of the pool."""
        most = 8 * self.total  # bytes an element
        return most >= SMALLEST and most * count >= WORTH

    def allocate_all(self, dtypes: Sequence[DType], xp: Any) -> tuple[Array, ...]:
        """Uninitialised arrays of the result's shape, contiguous in the order in which the kernel walks them.

        NumPy's each have memory of their own, so that one that is kept keeps no others. On a GPU they are one block,
        because allocating takes longer than the launch.
        """
        if xp is not np and self.total:
            return self._on_device(dtypes)
        pooled = xp is np and self.is_large(len(dtypes))
        lengths, axes = self.memory
        arrays = POOL.empties(lengths, dtypes) if pooled else [xp.empty(lengths, dtype) for dtype in dtypes]
        return tuple(arrays if axes is None else [array.transpose(axes) for array in arrays])

    @property
    def memory(self) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
        """The shape that the result has in memory, and the axes to transpose that by; None where it is C order."""
        if self.order is None:
            return self.shape, None
        axes = sorted(range(len(self.order)), key=self.order.__getitem__)
        return tuple([self.shape[axis] for axis in self.order]), tuple(axes)

    def _on_device(self, dtypes: Sequence[DType]) -> tuple[Array, ...]:
        lengths, axes = self.memory
        arrays = allocate(lengths, dtypes)
        return arrays if axes is None else tuple([array.transpose(axes) for array in arrays])


@lru_cache(maxsize=1024)
def lay_out(
    inputs: tuple[Form, ...],
    outs: tuple[Form | None, ...],
    names: tuple[str, ...],
    shapes: Shapes = None,
    gpu: bool = False,
) -> Geometry:
    """Broadcast, order the axes by memory, and coalesce them.

    Parameters
    ----------
    inputs : tuple of Form
        How each input lies in memory; the strides are whole numbers of elements.
    outs : tuple of (Form or None)
        The same for each output; None is one to be allocated with `Geometry.allocate_all`.
    names : tuple of str
        The parameters, for the error.
    shapes : tuple of (tuple of int or None), optional
        For each output the shape of its sums, None where it is not summed.
    gpu : bool
        Whether sums are for a CUDA kernel.

    Returns
    -------
    Geometry
        Remembered: the same arguments give the same object.

    Raises
    ------
    ShapeError
        The shapes do not broadcast together.

    Examples
    --------
    >>> import numpy as np
    >>> found = lay_out((form_of(np.ones((2, 3, 4))), form_of(np.ones(4))), (None,), ("x", "y"))
    >>> found.layout.classes, found.sizes, found.strides
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
    rows += [
        _fresh(shape, order, span) if form is None else next(others) for form, span in zip(outs, spans, strict=True)
    ]
    packing, repeats, rest, unjoined = None, 1, 0, None
    grouped = None if gpu else _grouped(shape, order, rows, len(inputs))
    if grouped is not None:
        packing, sizes, rows, repeats, rest = grouped
    else:
        if not gpu:
            packing = _joining(shape, order, rows, inputs)
            packing = packing or _packing(shape, order, rows[: len(inputs)], inputs, shapes is not None)
        if packing is not None:
            if packing.sums:
                _, unjoined = _coalesced(shape, rows, order)
            for position in (*packing.inputs, *packing.sums):
                rows[position] = _fresh(shape, order, None)
        sizes, rows = _coalesced(shape, rows, order)
    if shapes is not None and gpu and (summed := [row for row in rows[len(inputs) :] if 0 in row]):
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
    parts = None
    if shapes is not None:
        space = Space(shape, order, sizes, strides, rows, shapes, repeats, rest)
        if unjoined is not None:
            parts = space._replace(rows=unjoined).split_by_rows()
        else:
            parts = space.split_for_gpu() if gpu else space.split()
    in_order = order == tuple(range(rank))
    return Geometry(shape, total, None if in_order else order, layout, sizes, strides, sizes + strides, parts, packing)


@lru_cache(maxsize=1024)
def result_shape(inputs: tuple[Form, ...], names: tuple[str, ...]) -> tuple[int, ...]:
    """The shape that the inputs broadcast to, by NumPy's rules.

    Parameters
    ----------
    inputs : tuple of Form
        How each input lies in memory.
    names : tuple of str
        The parameters, for the error.

    Raises
    ------
    ShapeError
        The shapes do not broadcast together.

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
            found = " and ".join(map(str, sorted(spanning)))
            raise ShapeError(
                f"The shapes do not broadcast together: {listing}. "
                f"Axis {axis} has lengths {found}; lengths along an axis must be equal, or 1."
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


def _fresh(shape: tuple[int, ...], order: tuple[int, ...], own: tuple[int, ...] | None) -> tuple[int, ...]:
    """The strides of a fresh output, of the result's shape or for sums `own`; contiguous in the axes' order."""
    full = shape if own is None else (1,) * (len(shape) - len(own)) + own
    strides, step = [0] * len(shape), 1
    for axis in reversed(order):
        if full[axis] > 1:
            strides[axis] = step
            step *= shape[axis]
    return tuple(strides)


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


def _coalesced(
    shape: tuple[int, ...], rows: Sequence[tuple[int, ...]], order: tuple[int, ...]
) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
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


# Short rows are joined where there are some thousand elements in them, and they have at most so many elements, but not as
# many as whole vectors (of float32 they are of 16): where that takes less time, of x * z and its derivatives, tanh(x) * z
# and the HM-LSTM update, where z and the control are one number a row. With 3 in a row they take 0.11 to 0.27 of it,
# with 12 0.38 to 0.84, with 24 0.47 to 1.09. So many elements in a run are worth their panel.
_SHORT, _WHOLE, _MANY, _RUN = 24, 16, 4096, 256


def _joining(
    shape: tuple[int, ...], order: tuple[int, ...], rows: Sequence[tuple[int, ...]], inputs: tuple[Form, ...]
) -> Packing | None:
    """How short rows are made one: the inputs are packed whose elements do not all follow one another, and sums over
    each row are of terms that the kernel hands over, in the dtype that it computes in."""
    whole, count = _fresh(shape, order, None), len(inputs)
    packed = tuple([position for position, row in enumerate(rows[:count]) if row != whole and any(row)])
    sums = tuple([position for position, row in enumerate(rows[count:], count) if row != whole])
    if not packed:
        return None
    sizes, (steps, *strides) = _coalesced(shape, [whole, *(rows[position] for position in (*packed, *sums))], order)
    if len(sizes) == 1 or sizes[-1] > _SHORT or sizes[-1] % _WHOLE == 0:
        return None
    if math.prod(sizes) < _MANY or sizes[-2] * sizes[-1] < min(_RUN, _MANY):
        return None
    if any(row != (1, 0) for row in strides[len(packed) :]) or (sums and not _is_of_one_float(inputs)):
        return None
    return Packing.of_rows(packed, sizes, steps, tuple(strides[: len(packed)]), sums)


def _is_of_one_float(inputs: tuple[Form, ...]) -> bool:
    """Whether what is computed and stored is all of one dtype, float32 or float64."""
    dtypes = {dtype for _, _, dtype in inputs if dtype.kind != "b"}
    return len(dtypes) == 1 and dtypes <= {np.dtype(np.float32), np.dtype(np.float64)}


# What a kernel with sums has for a space of two dimensions: copies, sizes, strides, and `Space.repeats` and `Space.rest`.
_Grouped: TypeAlias = "tuple[Packing | None, tuple[int, ...], list[tuple[int, ...]], int, int]"


def _grouped(
    shape: tuple[int, ...], order: tuple[int, ...], rows: Sequence[tuple[int, ...]], count: int
) -> _Grouped | None:
    """How short rows are made long ones, of several each, where sums are over all rows: each row has sums of its own."""
    whole = _fresh(shape, order, None)
    if all(row == whole for row in rows[count:]):
        return None
    sizes, (steps, *every) = _coalesced(shape, [whole, *rows], order)
    length = sizes[-1]
    if len(sizes) != 2 or length > LONGEST or any(row not in (steps, (0, 1), (0, 0)) for row in every[count:]):
        return None
    repeats = TILE // length // _WHOLE * _WHOLE
    many, rest = divmod(sizes[0], repeats)
    if many * repeats * length < _MANY:
        return None
    wide = repeats * length
    packed = tuple([at for at, row in enumerate(every[:count]) if row != steps and any(row)])
    strides = tuple([every[at] for at in packed])
    # What is the same in all rows is copied for one long one.
    alike = not any(row[0] for row in strides)
    packing = Packing.of_rows(packed, (repeats if alike else sizes[0], length), steps, strides) if packed else None
    found = [(0, 0) if not any(row) else (0, 1) if row[0] == 0 else (wide, 1) for row in every]
    for at in packed:
        found[at] = (0 if alike else wide, 1)
    return packing, (many, wide), found, repeats, rest * length


def _packing(
    shape: tuple[int, ...],
    order: tuple[int, ...],
    rows: Sequence[tuple[int, ...]],
    inputs: tuple[Form, ...],
    copied: bool,
) -> Packing | None:
    """How the inputs are packed whose elements are not next to each other in the innermost axis; those that have all
    axes, if they are to be `copied`."""
    axes = [axis for axis in order if shape[axis] > 1]
    packed = tuple([position for position, row in enumerate(rows) if row[axes[-1]] not in (0, 1)])
    if copied:
        packed = tuple([position for position in packed if all(rows[position][axis] for axis in axes)])
    if not packed:
        return None
    sizes, columns = _coalesced(shape, [_fresh(shape, order, None), *(rows[position] for position in packed)], order)
    itemsizes = [inputs[position][2].itemsize for position in packed]
    return Packing.of(packed, sizes, columns[0], tuple(columns[1:]), itemsizes)


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
