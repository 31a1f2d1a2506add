"""From axes to the dimensions that a CPU kernel walks: inputs packed or copied, short rows joined or made long ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from dualbcast.abi import TILE
from dualbcast.record import NamedTuple
from dualbcast.runtime.operands import DType
from dualbcast.runtime.packing import Packing
from dualbcast.runtime.short_rows import LONGEST

__all__ = ["Form", "Walk", "coalesced", "fresh_strides", "walk"]

# How an array lies in memory: its shape, its strides in bytes, its dtype.
Form: TypeAlias = "tuple[tuple[int, ...], tuple[int, ...], DType]"
# Strides in elements along axes or dimensions.
_Row: TypeAlias = "tuple[int, ...]"

# Short rows are joined where there are some thousand elements in them and they have at most so many, but not as many as
# whole vectors (of float32 they are of 16): where that takes less time, of x * z, tanh(x) * z and the HM-LSTM update
# with derivatives, where z and the control are one number a row. With 3 in a row they take 0.11 to 0.27 of it, with 12
# 0.38 to 0.84, with 24 0.47 to 1.09. So many elements in a run are worth their panel.
_SHORT, _WHOLE, _MANY, _RUN = 24, 16, 4096, 256


class Walk(NamedTuple):
    """Dimensions that a kernel walks.

    Attributes
    ----------
    sizes : tuple of int
        Their lengths, outermost first.
    rows : list of tuple of int
        The strides of each array, in elements; of a packed one those of what the kernel has for it.
    packing : Packing or None
        The packed inputs.
    repeats, rest : int
        See `Space`.
    unjoined : list of tuple of int, or None
        The strides of arrays in dimensions in which rows are not joined, where there are sums over them.
    """

    sizes: tuple[int, ...]
    rows: list[_Row]
    packing: Packing | None
    repeats: int = 1
    rest: int = 0
    unjoined: list[_Row] | None = None


def walk(
    shape: tuple[int, ...], order: tuple[int, ...], rows: Sequence[_Row], inputs: tuple[Form, ...], sums: bool
) -> Walk | None:
    """How a kernel walks arrays that it should not have as they lie; None where it should.

    Parameters
    ----------
    shape, order : tuple of int
        The result's shape, and its axes from the outermost in memory to the innermost.
    rows : sequence of tuple of int
        The strides of inputs and then of outputs along each axis; 0 where an output is summed.
    inputs : tuple of Form
    sums : bool
        Whether outputs may be sums.
    """
    own = _grouped(shape, order, rows, len(inputs)) or _joined(shape, order, rows, inputs)
    return own or _packed(shape, order, rows, inputs, sums)


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
) -> Walk | None:
    """Short rows made one: the inputs are packed whose elements do not all follow one another, and sums over each row
    are of terms that the kernel hands over, in the dtype that it computes in."""
    whole, count = fresh_strides(shape, order, None), len(inputs)
    packed = tuple([position for position, row in enumerate(rows[:count]) if row != whole and any(row)])
    sums = tuple([position for position, row in enumerate(rows[count:], count) if row != whole])
    if not packed:
        return None
    sizes, (steps, *strides) = coalesced(shape, [whole, *[rows[position] for position in (*packed, *sums)]], order)
    if len(sizes) == 1 or sizes[-1] > _SHORT or sizes[-1] % _WHOLE == 0:
        return None
    if math.prod(sizes) < _MANY or sizes[-2] * sizes[-1] < min(_RUN, _MANY):
        return None
    if any(row != (1, 0) for row in strides[len(packed) :]) or (sums and not _is_of_one_float(inputs)):
        return None
    packing = Packing.of_rows(packed, sizes, steps, tuple(strides[: len(packed)]), sums)
    joined = [whole if position in packed or position in sums else row for position, row in enumerate(rows)]
    return Walk(*coalesced(shape, joined, order), packing, unjoined=coalesced(shape, rows, order)[1] if sums else None)


def _is_of_one_float(inputs: tuple[Form, ...]) -> bool:
    """Whether what is computed and stored is all of one dtype, float32 or float64."""
    dtypes = {dtype for _, _, dtype in inputs if dtype.kind != "b"}
    return len(dtypes) == 1 and dtypes <= {np.dtype(np.float32), np.dtype(np.float64)}


def _grouped(shape: tuple[int, ...], order: tuple[int, ...], rows: Sequence[_Row], count: int) -> Walk | None:
    """Short rows made long ones, of several each, where sums are over all rows: each row has sums of its own."""
    whole = fresh_strides(shape, order, None)
    if all(row == whole for row in rows[count:]):
        return None
    sizes, (steps, *every) = coalesced(shape, [whole, *rows], order)
    length = sizes[-1]
    if len(sizes) != 2 or length > LONGEST or any(row not in (steps, (0, 1), (0, 0)) for row in every[count:]):
        return None
    repeats = TILE // length // _WHOLE * _WHOLE
    many, rest = divmod(sizes[0], repeats)
    wide = repeats * length
    if many * wide < _MANY:
        return None
    packed = tuple([position for position, row in enumerate(every[:count]) if row != steps and any(row)])
    strides = tuple([every[position] for position in packed])
    # What is the same in all rows is copied for one long one.
    alike = not any(row[0] for row in strides)
    packing = Packing.of_rows(packed, (repeats if alike else sizes[0], length), steps, strides) if packed else None
    found = [(wide, 1) if row == steps else row for row in every]
    for position in packed:
        found[position] = (0 if alike else wide, 1)
    return Walk((many, wide), found, packing, repeats, rest * length)


def _packed(
    shape: tuple[int, ...], order: tuple[int, ...], rows: Sequence[_Row], inputs: tuple[Form, ...], copied: bool
) -> Walk | None:
    """Inputs packed whose elements are not next to each other in the innermost axis; those that have all axes, if they
    are to be `copied`, as they are where there are sums."""
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
    return Walk(*coalesced(shape, [whole if at in packed else row for at, row in enumerate(rows)], order), packing)
