"""How inputs that are transposed or have gaps are packed: the panels that threads run, and the tiles of each.

Strides and shapes come in, and a `Packing` goes out. It depends on nothing else, so every bit of a result is the same
on any number of threads. The loops that pack are in `codegen.loops`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dualbcast.codegen.loops.row_joining import ROWS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dualbcast.runtime.reduction_blocks import Block

__all__ = ["Copied", "Packing"]

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
