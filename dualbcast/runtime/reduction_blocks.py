"""Sums over parts of an iteration space: the blocks it is split into, their accumulators, and how these are combined.

All of it follows from shapes and the function, never from the number of threads: so sums are the same to the last bit.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from dualbcast.kernel_spec import TILE
from dualbcast.runtime.arguments import Array, DType
from dualbcast.runtime.buffer_pool import POOL

# The most blocks, and the number of blocks that is not reduced further to save memory for accumulators.
_MOST_BLOCKS, _ENOUGH_BLOCKS = 64, 16
# The fewest elements of a block that is worth a thread. A block of more operations than these gets fewer elements.
WORK = 1 << 15
_MOST_OPERATIONS = 1 << 23


def least_of(work: float) -> int:
    """The fewest elements of a block, if an element takes so many operations."""
    least = WORK
    while least > TILE and least * work > _MOST_OPERATIONS:
        least //= 2
    return least


class Block(NamedTuple):
    """A part of the iteration space that one thread runs: its sizes and strides, as the kernel takes them, and the
    offset of each pointer argument, in elements."""

    ints: tuple[int, ...]
    offsets: tuple[int, ...]


class Sum(NamedTuple):
    """An output that is a sum of more than one element, of the `shape` that the caller gets.

    `lengths` are those of the accumulators' axes in the kernel's order, `axes` the transposition from that to the order
    of `shape`, `size` the number of sums. `row` has the strides of the accumulators over the kernel's dimensions. Where
    short rows were made long ones, `folds` accumulators of each sum lie side by side in the innermost dimension, whose
    length was `length` before. Each sum has `copies` accumulators: one for each block or panel, or one in all if no two
    blocks add to the same sum. On a GPU that is the number of partial sums.
    """

    shape: tuple[int, ...]
    lengths: tuple[int, ...]
    axes: tuple[int, ...]
    size: int
    row: tuple[int, ...]
    folds: int
    length: int
    copies: int = 1

    @property
    def total(self) -> int:
        """The number of accumulators."""
        return self.copies * self.folds * self.size

    def apart(self, sums: Array) -> Array:
        """The accumulators, with those of one sum along the first axis."""
        if self.folds == 1:
            return sums.reshape(self.copies, self.size)
        folded = sums.reshape(self.copies, -1, self.folds, self.length).swapaxes(1, 2)
        return folded.reshape(self.copies * self.folds, self.size)


# The sum of each output, None where it is not summed.
Sums: TypeAlias = "tuple[Sum | None, ...]"


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Blocks, and the sum of each output. There are no blocks where panels of short rows are run, nor for a CUDA
    kernel. That writes each accumulator once, as a CPU kernel does where sums are those of whole rows (`is_written`).
    One is made for each way in which arrays lie, and compared by identity."""

    blocks: tuple[Block, ...]
    sums: Sums
    is_written: bool = False

    @property
    def has_whole_rows(self) -> bool:
        """Whether each sum is over the innermost dimension and no other one, and no block has a part of a row."""
        sums = [s for s in self.sums if s is not None]
        return all(s.copies == s.folds == 1 and s.row[-1] == 0 and 0 not in s.row[:-1] for s in sums)

    def accumulators(self, is_compensated: bool, xp: Any) -> tuple[list[Array | None], list[Array]]:
        """An array for each summed output; and others for rounding errors where sums are compensated. They are zeros if
        the kernel adds to them."""
        if self.is_written:
            totals = [s.total for s in self.sums if s is not None]
            if xp is np and len({*totals}) == 1:
                new = iter(POOL.empties((totals[0],), [np.dtype(np.float64)] * len(totals)))
            else:
                new = iter([xp.empty(total) for total in totals])
            return [None if s is None else next(new) for s in self.sums], []
        zeros = POOL.zeros if xp is np else xp.zeros
        sums = [None if s is None else zeros(s.total) for s in self.sums]
        rests = [zeros(array.size) for array in sums if array is not None] if is_compensated else []
        return sums, rests


def sums_of(
    shape: tuple[int, ...],
    order: tuple[int, ...],
    rows: Sequence[tuple[int, ...]],
    shapes: Sequence[tuple[int, ...] | None],
    folds: Sequence[int],
    length: int,
) -> Sums:
    """The sum of each output, or None, of an iteration space with axes in an order.

    `rows` are the strides of all pointer arguments over the kernel's dimensions, `shapes` the shape that the sums of
    each output have, or None. For `folds`, of each output, and `length` see `Sum`.
    """
    sums: list[Sum | None] = []
    for row, own, fold in zip(rows[len(rows) - len(shapes) :], shapes, folds, strict=True):
        if own is None or (0 not in row and fold == 1):
            sums.append(None)
            continue
        full = (1,) * (len(shape) - len(own)) + own
        spanned = [axis for axis in order if full[axis] > 1]
        lengths = tuple([full[axis] for axis in spanned])
        axes = tuple(sorted(range(len(spanned)), key=spanned.__getitem__))
        sums.append(Sum(own, lengths, axes, math.prod(lengths), row, fold, length))
    return tuple(sums)


def split_for_threads(
    sizes: tuple[int, ...], strides: tuple[int, ...], rows: Sequence[tuple[int, ...]], sums: Sums, least: int
) -> Split:
    """Blocks for threads, of at least so many elements, and their sums.

    One dimension is cut. A sum that spans it has accumulators apart in each block; of others there is a copy for each.
    So the dimension is chosen that makes for the fewest copies, if it gives enough blocks.
    """
    last = len(sizes) - 1
    spans = [s.row for s in sums if s is not None]
    counts = [math.prod(size for size, step in zip(sizes, row, strict=True) if step) for row in spans]
    wanted = max(1, min(_MOST_BLOCKS, math.prod(sizes) // least))
    units = [-(-size // TILE) if dimension == last else size for dimension, size in enumerate(sizes)]
    parts = [min(wanted, count) for count in units]

    def cost(dimension: int) -> tuple[int, int, int]:
        missing = max(0, min(wanted, _ENOUGH_BLOCKS) - parts[dimension])
        copied = sum(count for row, count in zip(spans, counts, strict=True) if not row[dimension])
        return missing, parts[dimension] * copied, -parts[dimension]

    cut = min(range(len(sizes)), key=cost)
    unit, many = TILE if cut == last else 1, parts[cut]
    borders = [min(sizes[cut], unit * (units[cut] * part // many)) for part in range(many + 1)]
    sums = copied(sums, lambda s: 1 if s.row[cut] else many)
    first = len(rows) - len(sums)
    blocks = []
    for number, (start, stop) in enumerate(itertools.pairwise(borders)):
        offsets = [start * row[cut] for row in rows]
        for position, s in enumerate(sums):
            if s is not None and s.copies > 1:
                offsets[first + position] = number * s.size * s.folds
        rests = [offsets[first + position] for position, s in enumerate(sums) if s is not None]
        ints = (*sizes[:cut], stop - start, *sizes[cut + 1 :], *strides)
        blocks.append(Block(ints, (*offsets, *rests)))
    return Split(tuple(blocks), sums)


def copied(sums: Sums, copies: Callable[[Sum], int]) -> Sums:
    """The sums with so many accumulators as a function says of each."""
    return tuple([None if s is None else s._replace(copies=copies(s)) for s in sums])


def combine(s: Sum, sums: Array, rests: Array | None, dtype: DType) -> Array:
    """The sums as the caller gets them, from the accumulators of all blocks. To be called under `numpy.errstate`."""
    apart = s.apart(sums)
    if rests is not None:
        total = _compensated(apart, s.apart(rests))
    else:
        total = apart[0] if len(apart) == 1 else apart.sum(axis=0)
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
    # Where a sum is infinite, its rounding error is NaN.
    return sums[0] + np.where(np.isfinite(rests[0]), rests[0], 0.0)
