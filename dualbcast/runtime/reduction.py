"""Sums over a part of the iteration space: the blocks that it is split into, the accumulators of each, what becomes of
them.

All of it follows from shapes alone, never from the number of threads, so that sums are the same to the last bit.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dualbcast.abi import TILE
from dualbcast.runtime.operands import Array, DType

__all__ = ["Block", "Split", "Sum", "combine", "split"]

# How many blocks there are where the work suffices, how many must not be given up to save memory, and the elements that
# each has at least, so that it is worth a thread's while.
_MOST, _ENOUGH = 64, 16
_WORK = 1 << 15


class Block(NamedTuple):
    """A part of the iteration space that one thread runs.

    Attributes
    ----------
    ints : tuple of int
        Sizes and strides, as the kernel takes them.
    offsets : tuple of int
        Of each pointer argument, in elements.
    """

    ints: tuple[int, ...]
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Sum:
    """An output that is summed.

    Attributes
    ----------
    shape : tuple of int
        What the caller gets.
    lengths, axes : tuple of int
        The accumulators' lengths in the order in which the kernel walks them, and the transposition that brings them
        into the order of `shape`.
    size : int
        The number of sums.
    copies : int
        How often there are accumulators: once for each block, or once where blocks have accumulators apart.
    """

    shape: tuple[int, ...]
    lengths: tuple[int, ...]
    axes: tuple[int, ...]
    size: int
    copies: int


@dataclass(frozen=True, slots=True)
class Split:
    """Blocks, and for each output its sum, or None where it is not summed."""

    blocks: tuple[Block, ...]
    sums: tuple[Sum | None, ...]

    def accumulators(self, compute: str) -> tuple[list[Array | None], list[Array]]:
        """Zeros for each summed output, and where the arithmetic is float64 others for what rounding takes away."""
        sums = [None if s is None else np.zeros(s.copies * s.size) for s in self.sums]
        rests = [np.zeros_like(array) for array in sums if array is not None] if compute == "float64" else []
        return sums, rests


def split(
    shape: Sequence[int],
    order: Sequence[int],
    sizes: tuple[int, ...],
    strides: tuple[int, ...],
    rows: Sequence[tuple[int, ...]],
    shapes: Sequence[tuple[int, ...] | None],
) -> Split | None:
    """Split an iteration space for outputs that are summed.

    One dimension is cut. A sum that spans it has accumulators apart in each block; of others there is a copy for each.
    So the dimension is chosen that makes for the fewest copies, if it gives enough blocks.

    Parameters
    ----------
    shape, order : sequence of int
        The result's shape, and its axes from the outermost to the innermost.
    sizes, strides : tuple of int
        The coalesced dimensions, and the run-time strides.
    rows : sequence of tuple of int
        For each pointer argument its strides over the coalesced dimensions.
    shapes : sequence of (tuple of int or None)
        For each output the shape that its sums have, or None.

    Returns
    -------
    Split or None
        None where no output is summed over more than one element.
    """
    spans = [row for row, summed in zip(rows[len(rows) - len(shapes) :], shapes, strict=True) if summed is not None]
    spans = [row for row in spans if 0 in row]
    if not spans:
        return None
    last = len(sizes) - 1
    counts = [math.prod(size for size, step in zip(sizes, row, strict=True) if step) for row in spans]
    wanted = max(1, min(_MOST, math.prod(sizes) // _WORK))
    pieces = [-(-size // TILE) if dimension == last else size for dimension, size in enumerate(sizes)]
    parts = [min(wanted, count) for count in pieces]

    def cost(dimension: int) -> tuple[int, int, int]:
        few = max(0, min(wanted, _ENOUGH) - parts[dimension])
        copied = sum(count for row, count in zip(spans, counts, strict=True) if not row[dimension])
        return few, parts[dimension] * copied, -parts[dimension]

    cut = min(range(len(sizes)), key=cost)
    unit = TILE if cut == last else 1
    borders = [min(sizes[cut], unit * (pieces[cut] * part // parts[cut])) for part in range(parts[cut] + 1)]
    borders[-1] = sizes[cut]

    sums: list[Sum | None] = []
    for row, wanted_shape in zip(rows[len(rows) - len(shapes) :], shapes, strict=True):
        if wanted_shape is None or 0 not in row:
            sums.append(None)
            continue
        full = (1,) * (len(shape) - len(wanted_shape)) + wanted_shape
        spanned = [axis for axis in order if full[axis] > 1]
        lengths = tuple([shape[axis] for axis in spanned])
        axes = tuple(sorted(range(len(spanned)), key=spanned.__getitem__))
        copies = 1 if row[cut] else parts[cut]
        sums.append(Sum(wanted_shape, lengths, axes, math.prod(lengths), copies))

    blocks = []
    for number, (start, stop) in enumerate(itertools.pairwise(borders)):
        ints = (*sizes[:cut], stop - start, *sizes[cut + 1 :], *strides)
        offsets = [start * row[cut] for row in rows]
        first = len(rows) - len(shapes)
        for position, s in enumerate(sums):
            if s is not None and s.copies > 1:
                offsets[first + position] = number * s.size
        rests = [offsets[first + position] for position, s in enumerate(sums) if s is not None]
        blocks.append(Block(ints, (*offsets, *rests)))
    return Split(tuple(blocks), tuple(sums))


def combine(s: Sum, sums: Array, rests: Array | None, dtype: DType) -> Array:
    """The sums as the caller gets them, from the accumulators of all blocks. To be called under `numpy.errstate`."""
    sums = sums.reshape(s.copies, s.size)
    if rests is None:
        total = sums[0] if s.copies == 1 else sums.sum(axis=0)
    else:
        total = _compensated(sums, rests.reshape(s.copies, s.size))
    return total.astype(dtype, copy=False).reshape(s.lengths).transpose(s.axes).reshape(s.shape)


def _compensated(sums: Any, rests: Any) -> Any:
    """The sums along the first axis: halves are added, rounding errors on the side, until one is left."""
    while len(sums) > 1:
        half = len(sums) // 2
        old, term = sums[:half], sums[half : 2 * half]
        new = old + term
        part = new - old
        rest = rests[:half] + rests[half : 2 * half] + ((old - (new - part)) + (term - part))
        if len(sums) % 2:
            new, rest = np.concatenate([new, sums[-1:]]), np.concatenate([rest, rests[-1:]])
        sums, rests = new, rest
    # Where a sum is infinite, what rounding took from it is NaN.
    return sums[0] + np.where(np.isfinite(rests[0]), rests[0], 0.0)
