"""Work other than ranges: the blocks of a kernel that sums, panels and tiles of packed inputs, copies of inputs.

Strides and shapes come in, and a `Packing` goes out. It depends on nothing else, so every bit of a result is the same
on any number of threads. The loops that pack are in `codegen.loops`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import mul
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from dualbcast.codegen.loops import LINE
from dualbcast.codegen.loops import packing as loops
from dualbcast.runtime.arguments import Array, host_addresses
from dualbcast.runtime.buffer_pool import POOL
from dualbcast.runtime.cpu import thread_pool
from dualbcast.runtime.cpu.loader import compiled
from dualbcast.runtime.cpu.thread_pool import Work

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dualbcast.runtime.reduction_blocks import Split

# The most rows and columns of a tile, where there are many rows and where there is one; and the most bytes of a tile's
# column, which is contiguous in a transposed input. See docs/decisions/051-tiles.md.
_LARGEST_TILE, _LARGEST_ROW, _COLUMN_BYTES = (128, 512), (1, 2048), 512
# The most bytes of the tiles of all packed inputs, which stay in the second-level cache. To fit, a tile gets fewer
# columns down to the first number (unless it has whole rows), then fewer rows, then fewer columns again.
_MOST_TILE_BYTES, _FEW_COLUMNS, _FEWEST_ROWS, _FEWEST_COLUMNS = 1 << 18, 256, 8, 64
# The fewest panels, for which a tile may get fewer rows, down to so many.
_FEWEST_PANELS, _FEW_ROWS = 16, 64
# The most elements of a panel, and the fewest for which packing pays.
_LARGEST_PANEL, _SMALLEST_PANEL = 1 << 18, 4096
# An iteration space of fewer elements is in the cache, where it takes half the time to read elements as they lie.
_SMALLEST_SPACE = 1 << 14
# The fewest elements of a panel of short rows.
_SMALLEST_JOINED_PANEL = 1024


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """The panels of an iteration space. One is made for each way in which arrays lie, and so compared by identity.

    `inputs` are the positions of the packed inputs, `sizes` the dimensions, outermost first, coalesced for these inputs
    only; the linear index grows along them by `steps`, a packed input's place by `strides`, in elements. A tile has its
    rows along the dimension `down`, its columns along the last one. A panel has at most `most` rows and `wide` columns,
    a tile so many `columns`. Short rows are `joined`; see `codegen.loops.packing`. `sums` has the positions of
    outputs that are sums, and whether each is over "rows" or "columns". `plane` is the number of rows along `down` if a
    panel has several whole planes of them, else 0.
    """

    inputs: tuple[int, ...]
    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    down: int
    most: int
    wide: int
    columns: int
    joined: bool = False
    sums: tuple[tuple[int, str], ...] = ()
    plane: int = 0

    @staticmethod
    def of(
        inputs: tuple[int, ...],
        sizes: tuple[int, ...],
        steps: tuple[int, ...],
        strides: tuple[tuple[int, ...], ...],
        itemsizes: Sequence[int],
    ) -> Packing | None:
        """The packing of inputs of these `itemsizes`; None where panels would be too small."""
        if len(sizes) == 1:
            sizes, steps, strides = (1, *sizes), (0, *steps), tuple([(0, *row) for row in strides])
        outer = range(len(sizes) - 1)
        # The dimension along which most inputs are contiguous, else the one before the last.
        down = max(outer, key=lambda at: (sum(abs(row[at]) == 1 for row in strides), at))
        rows, columns = _LARGEST_TILE if sizes[down] > 1 else _LARGEST_ROW
        whole, itemsize = math.prod(sizes), sum(itemsizes)
        rows = min(rows, max(1, _COLUMN_BYTES // min(itemsizes)))
        few_columns = _FEW_COLUMNS
        if rows > 1 and sizes[-1] <= 2 * columns:
            # Whole rows, so that the other arrays are read and written from one end to the other.
            few_columns = columns = columns if sizes[-1] <= columns else 2 * columns
        while rows > _FEW_ROWS and rows * columns * _FEWEST_PANELS > whole:
            rows //= 2
        while columns > _FEWEST_COLUMNS and rows * columns * itemsize > _MOST_TILE_BYTES:
            if columns <= few_columns and rows > _FEWEST_ROWS:
                rows //= 2
            else:
                columns //= 2
        high = min(rows, sizes[down])
        most = min(_LARGEST_PANEL, whole // _FEWEST_PANELS)
        wide = max(columns, most // high // columns * columns)
        if whole < _SMALLEST_SPACE or high * min(wide, sizes[-1]) < _SMALLEST_PANEL:
            return None
        return Packing(inputs, sizes, steps, strides, down, rows, wide, columns)

    @staticmethod
    def of_rows(
        inputs: tuple[int, ...],
        sizes: tuple[int, ...],
        steps: tuple[int, ...],
        strides: tuple[tuple[int, ...], ...],
        sums: tuple[tuple[int, str], ...] = (),
    ) -> Packing:
        """The packing of short rows, which are joined."""
        *outer, high, last = sizes
        most = max(-(-_SMALLEST_JOINED_PANEL // last), min(_LARGEST_PANEL, math.prod(sizes) // _FEWEST_PANELS) // last)
        most = -(-most // loops.ROWS) * loops.ROWS
        plane = high if outer and 2 * high <= most else 0
        return Packing(inputs, sizes, steps, strides, len(sizes) - 2, most, last, last, True, sums, plane)

    def table(self) -> NDArray[np.int64]:
        """The panels, a row each.

        A row has the linear index of the panel's first element, the distance of its rows in the linear index, the
        number of its rows and of its columns, and for each packed input where the first element is, in elements.
        """
        *outer, last = self.sizes
        # The dimension that is cut beside the last one, and the length of a panel along it.
        cut, most = (self.down - 1, self.most // self.plane) if self.plane else (self.down, self.most)
        counts = [*[-(-size // most) if at == cut else size for at, size in enumerate(outer)], -(-last // self.wide)]
        if self.plane:
            counts[self.down] = 1
        places = np.indices(counts, np.int64).reshape(len(counts), -1)
        places[cut] *= most
        places[-1] *= self.wide
        start, *offsets = np.array([self.steps, *self.strides]) @ places
        step = np.full_like(start, self.steps[self.down])
        rows = np.minimum(most, self.sizes[cut] - places[cut]) * (self.plane or 1)
        columns = np.minimum(self.wide, last - places[-1])
        return np.stack([start, step, rows, columns, *offsets], axis=1)


# The address of machine code; the arguments of its calls, a row for each, with offsets in the place of pointers; and
# the bytes that each call works in.
_Rows: TypeAlias = "tuple[int, NDArray[np.int64], int]"
# The number of ways in which arrays lie whose blocks or panels are remembered: they often lie in a few ways, by turns.
_REMEMBERED_ROWS = 256


def block_work(address: int, itemsizes: tuple[int, ...], split: Split, pointers: Sequence[int]) -> Work:
    """The work of blocks of a space, of a kernel that sums, whose arguments have these `itemsizes`; `pointers` are
    those of the whole space."""
    return _work(_block_rows(address, itemsizes, split), pointers[: len(itemsizes)], 1)


def panel_work(
    address: int,
    itemsizes: tuple[int, ...],
    packing: Packing,
    ints: tuple[int, ...],
    pointers: Sequence[int],
    threads: int,
) -> Work:
    """The work of panels of a space, for so many threads; `pointers` are those of the whole space."""
    # A kernel that adds up has arrays for the rounding errors of sums; so have panels that add up float64 terms.
    count = len(itemsizes) + sum(itemsizes[at] == 8 for at, _ in packing.sums)
    return _work(_panel_rows(address, itemsizes, packing, ints), pointers[:count], threads)


def contiguous_copies(
    itemsizes: tuple[int, ...], packing: Packing, pointers: Sequence[int], threads: int
) -> tuple[list[int], tuple[Array, ...]]:
    """The pointers with those of contiguous copies for some inputs, and the copies, which must live as long."""
    sizes = tuple([itemsizes[at] for at in packing.inputs])
    total = math.prod(packing.sizes)
    arrays = tuple([POOL.empty((total * size,), np.dtype(np.uint8)) for size in sizes])
    addresses = host_addresses(arrays)
    ends = [*[pointers[at] for at in packing.inputs], *addresses]
    thread_pool.run(_work(_copy_rows(packing, sizes), ends, threads), threads)
    replaced = dict(zip(packing.inputs, addresses, strict=True))
    return [replaced.get(at, pointer) for at, pointer in enumerate(pointers)], arrays


@lru_cache(maxsize=_REMEMBERED_ROWS)
def _block_rows(address: int, itemsizes: tuple[int, ...], split: Split) -> _Rows:
    rows = [(*block.ints, *map(mul, block.offsets, itemsizes)) for block in split.blocks]
    return address, np.array(rows, np.int64), 0


@lru_cache(maxsize=_REMEMBERED_ROWS)
def _panel_rows(address: int, itemsizes: tuple[int, ...], packing: Packing, ints: tuple[int, ...]) -> _Rows:
    sizes = tuple([itemsizes[at] for at in packing.inputs])
    terms = tuple([(at, over, itemsizes[at]) for at, over in packing.sums])
    return _gathered(packing, address, sizes, packing.inputs, ints, len(itemsizes), terms)


@lru_cache(maxsize=_REMEMBERED_ROWS)
def _copy_rows(packing: Packing, sizes: tuple[int, ...]) -> _Rows:
    address, count = compiled("copies", loops.write_copies, sizes), len(sizes)
    return _gathered(packing, address, sizes, tuple(range(count)), (), 2 * count)


def _gathered(
    packing: Packing,
    kernel: int,
    sizes: tuple[int, ...],
    packed: tuple[int, ...],
    ints: Sequence[int],
    count: int,
    sums: loops.Sums = (),
) -> _Rows:
    """A loop that gathers, and its arguments for each panel.

    It calls the function at the address `kernel` for a tile, which takes `ints` and `count` pointers; `packed` says
    which of these are of packed inputs, whose itemsizes are `sizes`.
    """
    down = packing.down
    ways = [(down - 1, down, -1) if packing.plane else (down, down, -1)] if packing.joined else [(down, -1)]
    steps = [row[at] * size for row, size in zip(packing.strides, sizes, strict=True) for way in ways for at in way]
    panels = packing.table()
    compensated = [at for at, (_, _, size) in enumerate(sums) if size == 8]
    first = 5 + len(steps) + len(ints)
    rows = np.zeros((len(panels), first + count + len(compensated) + 1), np.int64)
    rows[:, 0], rows[:, 1:5] = kernel, panels[:, :4]
    rows[:, 5:first] = [*steps, *ints]
    offsets = rows[:, first:]
    offsets[:, list(packed)] = panels[:, 4:] * sizes
    signature = len(ints), count, packed, sizes
    if not packing.joined:
        tile = packing.most, packing.columns
        address = compiled("gather", loops.write_gather, *signature, tile, optimise=True)
        return address, rows, loops.tile_places(sizes, tile)[-1]
    rows[:, 2] = packing.plane or panels[:, 2]
    numbers = np.arange(len(panels))
    places = {"rows": numbers * packing.columns, "columns": panels[:, 0] // packing.columns}
    for at, over, _ in sums:
        offsets[:, at] = 8 * places[over]  # of float64
    for place, at in enumerate(compensated, count):
        offsets[:, place] = offsets[:, sums[at][0]]
    address = compiled("join", loops.write_join, *signature, sums, optimise=True)
    return address, rows, loops.piece_places(sizes, sums)[-1]


def _work(made: _Rows, pointers: Sequence[int], threads: int) -> Work:
    """The work of rows of arguments that end with offsets from these pointers, and from memory that is worked in."""
    address, rows, room = made
    memory, ends = None, [*pointers]
    if room:
        places = min(threads, len(rows), thread_pool.MAX_THREADS)
        memory = POOL.empty((room * places + LINE,), np.dtype(np.uint8))
        (begin,) = host_addresses((memory,))
        ends.append(begin + -begin % LINE)
    arguments = rows + np.array([*[0] * (rows.shape[1] - len(ends)), *ends])
    return Work(address, arguments.reshape(-1), len(rows), room, memory)
