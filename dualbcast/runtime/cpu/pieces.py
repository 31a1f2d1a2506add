"""Pieces of work other than ranges: the blocks of a kernel that sums, panels and tiles of packed inputs, copies of
inputs.

Strides and shapes come in, and a `Packing` goes out. It depends on nothing else, so every bit of a result is the same
on any number of threads. The loops that pack are in `codegen.loops`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import mul
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from dualbcast.codegen.loops.row_joining import ROWS
from dualbcast.codegen.loops.scratch import PARAMETERS
from dualbcast.runtime.arguments import Array
from dualbcast.runtime.buffer_pool import POOL
from dualbcast.runtime.call_key import host_addresses
from dualbcast.runtime.cpu.loader import Loop, copying, gathering, joining
from dualbcast.runtime.cpu.thread_pool import Work, give_back, lend

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dualbcast.runtime.cpu.kernel import CpuKernel
    from dualbcast.runtime.reduction_blocks import Block

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


@dataclass(frozen=True, slots=True)
class Packing:
    """The panels of an iteration space.

    Attributes
    ----------
    inputs : tuple of int
        The positions of the packed inputs.
    sizes : tuple of int
        The dimensions, outermost first, coalesced for these inputs only.
    steps : tuple of int
        How much the linear index grows along each dimension.
    strides : tuple of (tuple of int)
        The strides of each packed input, in elements.
    down : int
        The dimension along which a tile has its rows. Its columns are along the last one.
    most, wide : int
        The most rows and columns of a panel.
    columns : int
        The most columns of a tile.
    joined : bool
        Whether the rows are short ones that are joined; see `codegen.loops.row_joining`.
    sums : tuple of (int, str)
        The positions of the outputs that are sums, and whether each is over "rows", "columns" or "all".
    plane : int
        The number of rows along `down`, if a panel has several whole planes of them; else 0.
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
        most = -(-most // ROWS) * ROWS
        plane = high if outer and 2 * high <= most else 0
        return Packing(inputs, sizes, steps, strides, len(sizes) - 2, most, last, last, True, sums, plane)

    @property
    def count(self) -> int:
        """How many panels there are."""
        return math.prod(self._counts())

    def _cut(self) -> tuple[int, int]:
        """The dimension that is cut into panels beside the last one, and the length of a panel along it."""
        return (self.down - 1, self.most // self.plane) if self.plane else (self.down, self.most)

    def _counts(self) -> list[int]:
        (cut, most), (*outer, last) = self._cut(), self.sizes
        counts = [-(-size // most) if at == cut else size for at, size in enumerate(outer)]
        if self.plane:
            counts[self.down] = 1
        return [*counts, -(-last // self.wide)]

    def table(self) -> NDArray[np.int64]:
        """The panels, a row each.

        A row has the linear index of the panel's first element, the distance of its rows in the linear index, the
        number of its rows and of its columns, and for each packed input where the first element is, in elements.
        """
        (cut, most), counts, last = self._cut(), self._counts(), self.sizes[-1]
        places = np.indices(counts, np.int64).reshape(len(counts), -1)
        places[cut] *= most
        places[-1] *= self.wide
        start, *offsets = np.array([self.steps, *self.strides]) @ places
        step = np.full_like(start, self.steps[self.down])
        rows = np.minimum(most, self.sizes[cut] - places[cut]) * (self.plane or 1)
        columns = np.minimum(self.wide, last - places[-1])
        return np.stack([start, step, rows, columns, *offsets], axis=1)


class Copied(NamedTuple):
    """The blocks of a kernel that sums, and the inputs that it has contiguous copies of.

    Attributes
    ----------
    inputs : Packing
    blocks : sequence of Block
    """

    inputs: Packing
    blocks: Sequence[Block]


# Machine code, and the arguments of its calls, a row for each.
_Rows: TypeAlias = "tuple[Loop, NDArray[np.int64]]"
# The number of ways in which arrays lie whose blocks or panels a kernel remembers.
_REMEMBERED_ROWS = 8


def part_work(
    kernel: CpuKernel,
    parts: Sequence[Block] | Packing,
    ints: Sequence[int],
    pointers: Sequence[int],
    total: int,
    threads: int,
) -> Work:
    """The work of blocks, of a kernel that sums, or of panels; `pointers` are those of the whole space."""
    if isinstance(parts, Packing):
        packing = parts
        loop, rows = _remembered(kernel, (packing, ints), lambda: _panel_rows(kernel, packing, ints, total))
        # A kernel that adds up has arrays for the rounding errors of sums; so have panels that add up float64 terms.
        pointers = pointers[: len(kernel.itemsizes) + sum(kernel.itemsizes[at] == 8 for at, _ in packing.sums)]
    else:
        blocks = parts
        loop, rows = _remembered(kernel, (blocks, ints), lambda: _block_rows(kernel, blocks, total))
        pointers = pointers[: len(kernel.itemsizes)]
    return _work(loop, rows, pointers, threads)


def contiguous_copies(
    kernel: CpuKernel, packing: Packing, pointers: Sequence[int], threads: int
) -> tuple[list[int], tuple[Array, ...]]:
    """The pointers with those of contiguous copies for some inputs, and the copies, which must live as long."""
    sizes = tuple([kernel.itemsizes[at] for at in packing.inputs])
    total = math.prod(packing.sizes)
    arrays = tuple([POOL.empty((total * size,), np.dtype(np.uint8)) for size in sizes])
    addresses = host_addresses(arrays)
    loop, rows = _remembered(
        kernel,
        (packing, None),
        lambda: _gathered(packing, copying(sizes), sizes, range(len(sizes)), (), 2 * len(sizes)),
    )
    work = _work(loop, rows, [*[pointers[at] for at in packing.inputs], *addresses], threads)
    kernel.run(work, threads)
    give_back_scratch(work)
    replaced = dict(zip(packing.inputs, addresses, strict=True))
    return [replaced.get(at, pointer) for at, pointer in enumerate(pointers)], arrays


def give_back_scratch(work: Work) -> None:
    """Give the memory back that finished work had."""
    if work.scratch is not None:
        give_back(work.scratch)


def _remembered(kernel: CpuKernel, given: tuple[Any, Any], make: Callable[[], _Rows]) -> _Rows:
    """The rows that were made for two objects lately, or new ones: arrays often lie in a few ways, by turns."""
    key = id(given[0]), id(given[1])
    entry = kernel.rows.get(key)
    if entry is None:
        # With the objects, so that no other objects have their ids.
        entry = given, make()
        kernel.rows = {**dict([*kernel.rows.items()][1 - _REMEMBERED_ROWS :]), key: entry}
    rows: _Rows = entry[1]
    return rows


def _block_rows(kernel: CpuKernel, blocks: Sequence[Block], total: int) -> _Rows:
    """The arguments of each block, without the pointers that its offsets are from."""
    rows = [(*block.ints, *map(mul, block.offsets, kernel.itemsizes)) for block in blocks]
    return Loop(kernel.address(total), 0), np.array(rows, np.int64)


def _panel_rows(kernel: CpuKernel, packing: Packing, ints: Sequence[int], total: int) -> _Rows:
    address = kernel.address(total, tuple([at for at, _ in packing.sums]))
    sizes = tuple([kernel.itemsizes[at] for at in packing.inputs])
    terms = tuple([(at, over, kernel.itemsizes[at]) for at, over in packing.sums])
    return _gathered(packing, address, sizes, packing.inputs, ints, len(kernel.itemsizes), terms)


def _gathered(
    packing: Packing,
    kernel: int,
    sizes: tuple[int, ...],
    packed: Sequence[int],
    ints: Sequence[int],
    count: int,
    sums: tuple[tuple[int, str, int], ...] = (),
) -> _Rows:
    """A loop that gathers, and its arguments for each panel, with offsets in the place of pointers.

    Parameters
    ----------
    packing : Packing
    kernel : int
        The address of the function that is called for a tile. It takes `ints`, and `count` pointers.
    sizes : tuple of int
        The itemsizes of the packed inputs.
    packed : sequence of int
        Which pointers are those of packed inputs.
    ints, count
        See `kernel`.
    sums : tuple of (int, str, int)
        Which pointers are those of sums, what each is over, and the bytes of a term; see `joining`.
    """
    down = packing.down
    ways = [(down - 1, down, -1) if packing.plane else (down, down, -1)] if packing.joined else [(down, -1)]
    steps = [row[at] * size for row, size in zip(packing.strides, sizes, strict=True) for way in ways for at in way]
    panels = packing.table()
    compensated = [at for at, (_, _, size) in enumerate(sums) if size == 8]
    first = 5 + len(steps) + len(ints)
    rows = np.zeros((len(panels), first + count + len(compensated) + len(PARAMETERS)), np.int64)
    rows[:, 0], rows[:, 1:5] = kernel, panels[:, :4]
    rows[:, 5:first] = [*steps, *ints]
    offsets = rows[:, first:]
    offsets[:, list(packed)] = panels[:, 4:] * sizes
    if not packing.joined:
        return gathering(len(ints), count, tuple(packed), sizes, (packing.most, packing.columns)), rows
    rows[:, 2] = packing.plane or panels[:, 2]
    numbers = np.arange(len(panels))
    places = {"rows": numbers * packing.columns, "columns": panels[:, 0] // packing.columns, "all": numbers}
    for at, over, _ in sums:
        offsets[:, at] = 8 * places[over]  # of float64
    for place, at in enumerate(compensated, count):
        offsets[:, place] = offsets[:, sums[at][0]]
    return joining(len(ints), count, tuple(packed), sizes, sums), rows


def _work(loop: Loop, rows: NDArray[np.int64], pointers: Sequence[int], threads: int) -> Work:
    """The work of rows of arguments that end with offsets from these pointers, and from the loop's scratch memory."""
    scratch, ends = None, [*pointers]
    if loop.room:
        scratch, places = lend(loop.room, min(threads, len(rows)))
        ends += [scratch.address, places]
    arguments = rows + np.array([*[0] * (rows.shape[1] - len(ends)), *ends])
    return Work(loop.address, arguments.reshape(-1), len(rows), scratch)
