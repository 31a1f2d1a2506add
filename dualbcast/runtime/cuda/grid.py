"""How the thread blocks of a CUDA kernel share its iteration space, and how many partial sums they write.

For a kernel that sums, both follow from the sizes alone, so that sums are the same to the last bit on every launch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from dualbcast.codegen.cuda.kernel_shell import THREADS_PER_BLOCK
from dualbcast.codegen.cuda.occupancy import WARP
from dualbcast.errors import BackendError

MAX_GRID_X, MAX_GRID_YZ = 2**31 - 1, 65535
# The number of blocks that is enough for any GPU, and the iterations of a thread from which on there are more blocks.
_BLOCKS, _ITERATIONS = 2048, 8


@lru_cache(maxsize=4096)
def launch_shape(
    sizes: tuple[int, ...], threads: int = THREADS_PER_BLOCK
) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """The grid and the block over `sizes`: the innermost dimension along x, all others together along y and z.

    The block, of `threads` at most, is the largest of those that leave, to a tenth, the fewest lanes of their warps
    without an element along x; where the innermost dimension is short, several rows share a block and its warps.
    """
    inner, outer = sizes[-1], math.prod(sizes[:-1])
    candidates = [(x, min(threads // x, outer)) for x in (256, 128, 64, 32, inner) if x <= threads]
    x, y = max(candidates, key=lambda block: (round(_used(inner, *block), 1), block[0] * block[1], block[0]))
    return _grid(-(-inner // x), -(-outer // y), sizes), (x, y, 1)


def _used(inner: int, x: int, y: int) -> float:
    """The share of the lanes of a row of blocks that have an element along x."""
    return inner * y / (-(-inner // x) * -(-x * y // WARP) * WARP)


class ReductionGrid(NamedTuple):
    """The blocks of a launch: the `span` of elements of the outermost dimension that a block goes through, how many
    spans (`chunks`) there are in it, how many tiles (`columns`) the innermost dimension has; along x, y and z."""

    span: int
    chunks: int
    columns: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]


@lru_cache(maxsize=4096)
def reduction_grid(sizes: tuple[int, ...]) -> ReductionGrid:
    """The launch over `sizes`, for the kernels of `codegen.cuda.kernel_shell`: for 1000 rows of 3, say, two blocks of 4
    by 64 threads, the first of which goes through 512 rows."""
    x = min(THREADS_PER_BLOCK, 1 << (sizes[-1] - 1).bit_length()) if len(sizes) > 1 else THREADS_PER_BLOCK
    y = THREADS_PER_BLOCK // x
    columns = -(-sizes[-1] // x) if len(sizes) > 1 else 1
    middle = math.prod(sizes[1:-1])
    # Elements of the outermost dimension that the block takes at a time.
    step = y if len(sizes) > 1 else x
    iterations = -(-sizes[0] // step)
    wanted = min(-(-_BLOCKS // (columns * middle)), max(1, iterations // _ITERATIONS))
    span = step * -(-iterations // wanted)
    chunks = -(-sizes[0] // span)
    return ReductionGrid(span, chunks, columns, _grid(columns, chunks * middle, sizes), (x, y, 1))


def _grid(columns: int, rows: int, sizes: tuple[int, ...]) -> tuple[int, int, int]:
    """A grid of so many columns along x, and at least so many rows along y and z; `sizes` are for the error."""
    depth = -(-rows // MAX_GRID_YZ)
    if columns > MAX_GRID_X or depth > MAX_GRID_YZ:
        raise BackendError(f"An iteration space of {' x '.join(map(str, sizes))} is too large for one launch.")
    return columns, -(-rows // depth), depth


def partial_sums(sizes: tuple[int, ...], row: Sequence[int]) -> int:
    """How many partial sums there are for each sum, where `row` has its strides."""
    grid, last = reduction_grid(sizes), len(sizes) - 1
    across = [size for size, step in zip(sizes[1:last], row[1:last], strict=True) if not step]
    return math.prod(across) * (1 if row[0] else grid.chunks) * (1 if row[last] else grid.columns)


def foremost(sizes: tuple[int, ...], rows: Sequence[tuple[int, ...]]) -> int:
    """The dimension that, as the outermost, lets sums with these strides need least memory."""

    def cost(dimension: int) -> int:
        lengths = moved(sizes, dimension)
        return sum(
            partial_sums(lengths, moved(row, dimension))
            * math.prod(n for n, step in zip(sizes, row, strict=True) if step)
            for row in rows
        )

    return min(range(max(1, len(sizes) - 1)), key=cost)


def moved(values: tuple[int, ...], dimension: int) -> tuple[int, ...]:
    """The values with that of a dimension before the others."""
    return (values[dimension], *values[:dimension], *values[dimension + 1 :])
