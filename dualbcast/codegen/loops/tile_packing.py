"""The loop around a kernel whose inputs lie in another order than its output: it copies them tile by tile.

A tile holds a block of rows, contiguous along the row; the kernel is then called for each of these rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dualbcast.codegen.loops import places_of

if TYPE_CHECKING:
    from dualbcast.codegen.loops.builder import Function, Module
    from dualbcast.codegen.values import Value

# Elements of a tile's row beyond its columns. If rows were a power of two apart, all of them would share few sets of
# the processor's cache.
_GAP = 16
# The rows and columns that are transposed at once.
_BLOCK = 8


def tile_places(itemsizes: Sequence[int], tile: tuple[int, int]) -> list[int]:
    """Where the tiles of inputs begin, and the bytes of all."""
    rows, columns = tile
    return places_of([rows * (columns + _GAP) * size for size in itemsizes])


def write_gather(
    module: Module,
    integers: int,
    pointers: int,
    packed: tuple[int, ...],
    itemsizes: tuple[int, ...],
    tile: tuple[int, int],
) -> Function:
    """A loop over a panel around kernels that take so many sizes and strides, and so many pointers.

    It is a function of the kernel's address, the panel's `start`, `step`, `rows` and `columns`; for each packed input
    the bytes from a row to the next and from a column to the next; and sizes, strides and pointers, of packed inputs to
    the panel's first element; and memory for tiles. `packed` says which pointers are of packed inputs, `itemsizes` the
    bytes of their elements, `tile` the most rows and columns of a tile.
    """
    width = tile[1]
    pitch = width + _GAP
    packs = {size: module.use(write_pack, size, pitch) for size in sorted(set(itemsizes))}
    parameters = ["int64"] * (5 + 2 * len(packed) + integers) + ["*int8"] * pointers
    f = module.function("gather", [*parameters, "*int8"], "int32")
    kernel, start, step, rows, columns, *given, memory = f.parameters
    strides, given = given[: 2 * len(packed)], given[2 * len(packed) :]
    tiles = [memory.skip_bytes(place) for place in tile_places(itemsizes, tile)[:-1]]
    inputs = [given[integers + position] for position in packed]
    with f.range(0, columns, width) as column:
        count = (columns - column).at_most(width)
        for source, to, size, across, along in zip(inputs, tiles, itemsizes, strides[::2], strides[1::2], strict=True):
            f.call(packs[size], to, source.skip_bytes(column * along), rows, count, across, along)
        with f.range(0, rows) as row:
            first = start + column + row * step
            for position, to, size in zip(packed, tiles, itemsizes, strict=True):
                # The kernel indexes it with the linear index, which is `first` at the beginning of the tile's row.
                given[integers + position] = to.skip_bytes((row * pitch - first) * size)
            status = f.call_address(kernel, "int32", [first, first + count, *given])
            with f.if_(status != 0):
                f.return_(status)
    f.return_(0)
    return f


def write_pack(module: Module, size: int, pitch: int) -> Function:
    """Copy elements of so many bytes to the rows of a tile, `pitch` elements apart.

    Its arguments are the tile and the input, the numbers of rows and columns, and the input's bytes from a row to the
    next and from a column to the next. A stride that is known is one that LLVM vectorises.
    """
    copy, second = (module.use(write, size, pitch) for write in (write_copy, write_copy_second))
    f = module.function(f"pack{size}", ["*int8", "*int8", *["int64"] * 4])
    to, source, rows, columns, across, along = f.parameters
    rows8, columns8 = rows & -_BLOCK, columns & -_BLOCK
    with f.if_((across == size) & (rows8 != 0) & (columns8 != 0)):
        with f.range(0, columns8, _BLOCK) as j, f.range(0, rows8, _BLOCK) as i:
            corner = source.skip_bytes(j * along + i * size).of(f"int{8 * size}")
            block = []
            for k in range(_BLOCK):
                block.append(corner.skip_bytes(along * k).vector(0, _BLOCK))
                # The next iteration of the outer loop reads it, too far away for the processor to foresee.
                f.prefetch(corner.skip_bytes(along * (k + _BLOCK)))
            for k, row in enumerate(_transposed(block)):
                to.of(f"int{8 * size}")[(i + k) * pitch + j] = row
        f.call(copy, to, source, rows8, rows, 0, columns, across, along)
        f.call(copy, to, source, 0, rows8, columns8, columns, across, along)
        f.return_()
    with f.if_(along == 2 * size):
        f.call(second, to, source, rows, columns, across)
        f.return_()
    # Columns three or four apart are those of points. With wide elements that is no faster.
    for stride in (-size, 3 * size, 4 * size) if size <= 4 else (-size,):
        with f.if_(along == stride):
            f.call(copy, to, source, 0, rows, 0, columns, across, stride)
            f.return_()
    f.call(copy, to, source, 0, rows, 0, columns, across, along)
    f.return_()
    return f


def _transposed(block: Sequence[Value]) -> Sequence[Value]:
    """The columns of eight vectors of eight elements."""
    low, high = ([at + _BLOCK * which for at in half for which in (0, 1)] for half in (range(4), range(4, 8)))
    # To interleave vectors four apart moves a bit of the row's number to the column's: three times transposes.
    for _ in range(3):
        pairs = zip(block[:4], block[4:], strict=True)
        block = [one.shuffle(other, half) for one, other in pairs for half in (low, high)]
    return block


def write_copy(module: Module, size: int, pitch: int) -> Function:
    """Copy the elements of some rows and columns, one by one, to where they belong in a tile."""
    f = module.function(f"copy{size}", ["*int8", "*int8", *["int64"] * 6], noalias=True, inline=True)
    to, source, first_row, stop_row, first_column, stop_column, across, along = f.parameters
    with f.range(first_row, stop_row) as i, f.range(first_column, stop_column) as j:
        element: Any = source.skip_bytes(i * across + j * along).of(f"int{8 * size}")[0]
        to.of(f"int{8 * size}")[i * pitch + j] = element
    f.return_()
    return f


def write_copy_second(module: Module, size: int, pitch: int) -> Function:
    """Copy every second element of rows, several at a time."""
    copy = module.use(write_copy, size, pitch)
    f = module.function(f"copy_second{size}", ["*int8", "*int8", *["int64"] * 3], noalias=True)
    to, source, rows, columns, across = f.parameters
    to, source = (pointer.of(f"int{8 * size}") for pointer in (to, source))
    # The last element goes alone: the one after it may be outside the input.
    columns8 = (columns - 1) & -_BLOCK
    with f.range(0, rows) as i, f.range(0, columns8, _BLOCK) as j:
        pairs = source.skip_bytes(i * across).vector(j * 2, 2 * _BLOCK)
        to[i * pitch + j] = pairs.shuffle(pairs, range(0, 2 * _BLOCK, 2))
    f.call(copy, to, source, 0, rows, columns8, columns, across, 2 * size)
    f.return_()
    return f


def write_copies(module: Module, sizes: tuple[int, ...]) -> Function:
    """A kernel that copies inputs, of elements of so many bytes, to as many outputs: it takes a range and pointers."""
    f = module.function("copies", ["int64", "int64", *["*int8"] * (2 * len(sizes))], "int32")
    start, stop, *pointers = f.parameters
    for size, source, to in zip(sizes, pointers[: len(sizes)], pointers[len(sizes) :], strict=True):
        f.copy_bytes(to.skip_bytes(start * size), source.skip_bytes(start * size), (stop - start) * size)
    f.return_(0)
    return f
