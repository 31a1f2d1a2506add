"""Inputs that lie otherwise in memory than the rest, transposed or with gaps: read tile by tile.

The kernel then has them contiguous, and vectorises. It is called for the rows of tiles, by a loop in LLVM's language
that gathers first. Panels, which threads run, and tiles follow from shapes alone, and so does every bit of the result.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dualbcast.codegen.loops.row_joining import ROWS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dualbcast.runtime.reduction_blocks import Block

__all__ = ["Copied", "Packing", "Panel"]

# Most rows and columns of a tile, where there are many rows and where there is one. In a transposed input, what is in a
# column lies together, and in the other arrays what is in a row. The first is the dearer: in float32 4096 by 4096, 64
# rows, 256 bytes, took 5.2 ms to gather, 128 took 3.2, and 512 still 3.0. So rows are as many as there are in so many
# bytes.
_TILE, _ROW, _RUN = (128, 512), (1, 2048), 512
# Bytes of the tiles of all packed inputs, which stay in the second-level cache. Columns can be fewer, unless these are
# whole rows, then rows, and at last columns again: to call the kernel for a row of so few takes little beside what so
# many inputs take.
_TILES, _NARROW, _LOW, _NARROWEST = 1 << 18, 256, 8, 64
# How many panels there are at least, unless they are of one tile of so many rows; how many elements one has at most,
# and at least for this to be worth while.
_PANELS, _FEW, _LARGEST, _WORTH_IT = 16, 64, 1 << 18, 4096
# A space of fewer elements is in the cache, where it takes half the time to read them one by one as they lie.
_SMALL = 1 << 14
# How many elements a panel of short rows has at least.
_LEAST = 1024


class Panel(NamedTuple):
    """A part of the iteration space that one thread runs: rows apart by `step`, in the linear index, from `start` on.

    Attributes
    ----------
    start, step, rows, columns : int
    offsets : tuple of int
        Where each packed input has the first element, in elements.
    packing : Packing
    """

    start: int
    step: int
    rows: int
    columns: int
    offsets: tuple[int, ...]
    packing: Packing


@dataclass(frozen=True, slots=True)
class Packing:
    """The panels of an iteration space.

    Attributes
    ----------
    inputs : tuple of int
        Which are packed.
    sizes : tuple of int
        The dimensions, outermost first, coalesced for these inputs only.
    steps : tuple of int
        What the linear index advances in each.
    strides : tuple of (tuple of int)
        What each packed input does, in elements.
    down : int
        The dimension that the rows of a tile are from; that of its columns is the last.
    most, wide : int
        The most rows and columns of a panel.
    columns : int
        The most columns of a tile.
    joined : bool
        Whether rows are short, and follow one another; see `short_rows`.
    sums : tuple of (int, str)
        Which outputs, among all pointers, are sums, there of two dimensions: over "rows", "columns", "all".
    plane : int
        Where a panel is several times all rows of the dimension `down`, one plane after the other, how many these are.
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
        # Where elements of most inputs are next to each other, else the next to last.
        down = max(outer, key=lambda at: (sum(abs(row[at]) == 1 for row in strides), at))
        rows, columns = _TILE if sizes[down] > 1 else _ROW
        whole, itemsize = math.prod(sizes), sum(itemsizes)
        rows = min(rows, max(1, _RUN // min(itemsizes)))
        narrow = _NARROW
        if rows > 1 and sizes[-1] <= 2 * columns:
            # Whole rows, so that the other arrays are read and written from one end to the other.
            narrow = columns = columns if sizes[-1] <= columns else 2 * columns
        while rows > _FEW and rows * columns * _PANELS > whole:
            rows //= 2
        while columns > _NARROWEST and rows * columns * itemsize > _TILES:
            if columns <= narrow and rows > _LOW:
                rows //= 2
            else:
                columns //= 2
        high = min(rows, sizes[down])
        most = min(_LARGEST, whole // _PANELS)
        wide = max(columns, most // high // columns * columns)
        if whole < _SMALL or high * min(wide, sizes[-1]) < _WORTH_IT:
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
        most = max(-(-_LEAST // last), min(_LARGEST, math.prod(sizes) // _PANELS) // last)
        most = -(-most // ROWS) * ROWS
        plane = high if outer and 2 * high <= most else 0
        return Packing(inputs, sizes, steps, strides, len(sizes) - 2, most, last, last, True, sums, plane)

    @property
    def count(self) -> int:
        """How many panels there are."""
        return math.prod(self._counts())

    def _cut(self) -> tuple[int, int]:
        """The dimension that panels are cut from beside the last, and how much of it one has."""
        return (self.down - 1, self.most // self.plane) if self.plane else (self.down, self.most)

    def _counts(self) -> list[int]:
        (cut, most), (*outer, last) = self._cut(), self.sizes
        counts = [-(-size // most) if at == cut else size for at, size in enumerate(outer)]
        if self.plane:
            counts[self.down] = 1
        return [*counts, -(-last // self.wide)]

    def table(self) -> NDArray[np.int64]:
        """The panels, a row each: `start`, `step`, `rows`, `columns`, and then `offsets`; see `Panel`."""
        (cut, most), counts, last = self._cut(), self._counts(), self.sizes[-1]
        places = np.indices(counts, np.int64).reshape(len(counts), -1)
        places[cut] *= most
        places[-1] *= self.wide
        start, *offsets = np.array([self.steps, *self.strides]) @ places
        step = np.full_like(start, self.steps[self.down])
        rows = np.minimum(most, self.sizes[cut] - places[cut]) * (self.plane or 1)
        columns = np.minimum(self.wide, last - places[-1])
        return np.stack([start, step, rows, columns, *offsets], axis=1)

    def offset(self, strides: tuple[int, ...], row: int) -> int:
        """From the beginning of a panel to one of its rows, for an input of these strides."""
        if not self.plane:
            return row * strides[self.down]
        over, down = divmod(row, self.plane)
        return over * strides[self.down - 1] + down * strides[self.down]

    def __iter__(self) -> Iterator[Panel]:
        for start, step, rows, columns, *offsets in self.table().tolist():
            yield Panel(start, step, rows, columns, tuple(offsets), self)


class Copied(NamedTuple):
    """The blocks of a kernel that sums, and the inputs that it has contiguous copies of.

    Attributes
    ----------
    inputs : Packing
    blocks : sequence of Block
    """

    inputs: Packing
    blocks: Sequence[Block]
