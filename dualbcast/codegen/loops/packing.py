"""Loops around kernels whose inputs are packed.

Inputs that lie in another order than the output are copied tile by tile. A tile holds a block of rows, contiguous along
the row; the kernel is then called for each of these rows.

Short rows, as of points with three coordinates each, are joined: many become one long row. Inputs that repeat along
rows, or lie otherwise, are copied to a contiguous piece. Where an output is a sum, the kernel writes the terms to a
piece as well, and the loop adds them up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dualbcast.codegen.loops import calls, places_of

if TYPE_CHECKING:
    from dualbcast.codegen.loops.builder import Function, Module, Pointer, Variable
    from dualbcast.codegen.values import Value

# Elements of a tile's row beyond its columns: rows a power of two apart would share few sets of the processor's cache.
_GAP = 16
# The rows and columns that are transposed at once.
_BLOCK = 8
# The most elements of a row that is short.
SHORT = 32
# The rows of a piece are a multiple of this, so that pieces end where vectors do.
ROWS = 64
# The elements of a piece, unless so many rows have more.
_PIECE = 2048
# The elements of a vector. The last vector of a row is written whole, over the beginning of the next row.
_LANES = 8
_LARGEST_PIECE = max(_PIECE, ROWS * SHORT) + _LANES

# Which pointer is of a sum; whether it is over "rows" or "columns"; and the bytes of a term.
Sums = tuple[tuple[int, str, int], ...]


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
    kind = f"int{8 * size}"
    f = module.function(f"pack{size}", ["*int8", "*int8", *["int64"] * 4], noalias=True)
    to, source, rows, columns, across, along = f.parameters
    rows8, columns8 = rows & -_BLOCK, columns & -_BLOCK
    prefetch = module.external("llvm.prefetch.p0", ["*int8", "int32", "int32", "int32"], "void")

    def copy(rows: tuple[Any, Any], columns: tuple[Any, Any], along: Any) -> None:
        """Copy the elements of some rows and columns, one by one."""
        with f.range(*rows) as i, f.range(*columns) as j:
            to.of(kind)[i * pitch + j] = source.skip_bytes(i * across + j * along).of(kind)[0]

    with f.if_((across == size) & (rows8 != 0) & (columns8 != 0)):
        with f.range(0, columns8, _BLOCK) as j, f.range(0, rows8, _BLOCK) as i:
            corner = source.skip_bytes(j * along + i * size).of(kind)
            block = []
            for k in range(_BLOCK):
                block.append(corner.skip_bytes(along * k).vector(0, _BLOCK))
                # The next iteration of the outer loop reads it, too far away for the processor to foresee.
                f.call(prefetch, corner.skip_bytes(along * (k + _BLOCK)), 0, 3, 1)  # to read it, into all caches
            for k, row in enumerate(_transposed(block)):
                to.of(kind)[(i + k) * pitch + j] = row
        copy((rows8, rows), (0, columns), along)
        copy((0, rows8), (columns8, columns), along)
        f.return_()
    # Complex numbers have columns two apart, points three or four. For wide elements this is no faster.
    for stride in (-size, 2 * size, 3 * size, 4 * size) if size <= 4 else (-size, 2 * size):
        with f.if_(along == stride):
            copy((0, rows), (0, columns), stride)
            f.return_()
    copy((0, rows), (0, columns), along)
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


def write_copies(module: Module, sizes: tuple[int, ...]) -> Function:
    """A kernel that copies inputs, of elements of so many bytes, to as many outputs: it takes a range and pointers."""
    f = module.function("copies", ["int64", "int64", *["*int8"] * (2 * len(sizes))], "int32")
    start, stop, *pointers = f.parameters
    memcpy = module.external("llvm.memcpy.p0.p0.i64", ["*int8", "*int8", "int64", "bool"], "void")
    for size, source, to in zip(sizes, pointers[: len(sizes)], pointers[len(sizes) :], strict=True):
        f.call(memcpy, to.skip_bytes(start * size), source.skip_bytes(start * size), (stop - start) * size, False)
    f.return_(0)
    return f


# ---- short rows ------------------------------------------------------------------------------------------------------


def piece_places(itemsizes: tuple[int, ...], sums: Sums) -> list[int]:
    """Where the pieces of inputs, those of terms, and the sums of columns begin, and the bytes of all."""
    pieces = [_LARGEST_PIECE * size for size in (*itemsizes, *[size for _, _, size in sums])]
    return places_of([*pieces, *[2 * SHORT * 8] * len(sums)])


def write_join(
    module: Module, integers: int, pointers: int, joined: tuple[int, ...], itemsizes: tuple[int, ...], sums: Sums
) -> Function:
    """A loop over a panel of short rows around kernels that take so many sizes and strides, and so many pointers.

    It is a function of the arguments of `write_gather`, with two differences, since rows follow one
    another: in place of `step` it takes the number of rows of a plane, and before the bytes from row to row those from
    plane to plane. `joined` says which pointers are of inputs that are copied to pieces, `itemsizes` the bytes of their
    elements. Pointers of `sums` are to the panel's own, in float64. For each sum of float64 terms there is one more
    pointer after the others, to what rounding takes; then comes memory for pieces.
    """
    kinds = ["int64"] * (5 + 3 * len(joined) + integers) + ["*int8"] * pointers
    kinds += ["*float64"] * sum(size == 8 for _, _, size in sums)
    f = module.function("join", [*kinds, "*int8"], "int32")
    kernel, start, plane, rows, columns, *given, memory = f.parameters
    strides, given = given[: 3 * len(joined)], given[3 * len(joined) :]
    given, lost = given[: integers + pointers], iter(given[integers + pointers :])
    arrays = [memory.skip_bytes(place) for place in piece_places(itemsizes, sums)[:-1]]
    pieces, terms = arrays[: len(joined)], arrays[len(joined) : len(joined) + len(sums)]
    totals = arrays[len(joined) + len(sums) :]
    inputs = [given[integers + position] for position in joined]
    results = [given[integers + position].of("float64") for position, _, _ in sums]
    for total in totals:
        with f.range(0, 2 * SHORT) as i:
            total.of("float64")[i] = 0.0
    fitting = _PIECE // columns & -ROWS
    most = (fitting != 0).choose(fitting, ROWS)
    with f.range(0, rows, most) as row:
        count, first = (rows - row).at_most(most), start + row * columns
        for k, (position, size, piece) in enumerate(zip(joined, itemsizes, pieces, strict=True)):
            lay = module.use(write_lay, size)
            f.call(lay, piece, inputs[k], row, count, columns, plane, *strides[3 * k : 3 * k + 3])
            # The kernel indexes it with the linear index, which is `first` at the beginning of the piece.
            given[integers + position] = piece.skip_bytes(first * -size)
        for (position, _, size), piece in zip(sums, terms, strict=True):
            given[integers + position] = piece.skip_bytes(first * -size)
        status = f.call_address(kernel, "int32", [first, first + count * columns, *given])
        with f.if_(status != 0):
            f.return_(status)
        for (_, over, size), piece, total, result in zip(sums, terms, totals, results, strict=True):
            if over == "columns":
                f.call(module.use(write_add_columns, size), result.at(row), piece, count, columns)
            else:
                f.call(module.use(write_add_rows, size), total, piece, count, columns)
    for (_, over, size), total, result in zip(sums, totals, results, strict=True):
        kept = [result, next(lost)] if size == 8 else [result]
        if over == "rows":
            with f.range(0, columns) as j:
                for at, to in enumerate(kept):
                    to[j] = total.of("float64")[j + at * SHORT]
    f.return_(0)
    return f


def write_lay(module: Module, size: int) -> Function:
    """Copy rows of elements of so many bytes to one long row, from one row of the input on, plane by plane."""
    f = module.function(f"lay{size}", ["*int8", "*int8", *["int64"] * 7])
    to, source, row, count, columns, plane, over, across, along = f.parameters
    laid = f.variable(0)
    with f.loop() as leave:
        above, down = (row + laid.value) // plane, (row + laid.value) % plane
        some = (plane - down).at_most(count - laid.value)
        corner = source.skip_bytes(above * over + down * across)
        spread = module.use(write_spread, size)
        f.call(spread, to.skip_bytes(laid.value * columns * size), corner, some, columns, across, along)
        laid.value = laid.value + some
        with f.if_(laid.value == count):
            leave()
    f.return_()
    return f


def write_spread(module: Module, size: int) -> Function:
    """Copy rows of elements of so many bytes to one long row.

    A vector of columns is copied for all rows, then the one before it: the last vector of a row is written beyond the
    row's end, which the next row's elements replace.
    """
    f = module.function(f"spread{size}", ["*int8", "*int8", *["int64"] * 4], noalias=True)
    to, source, rows, columns, across, along = f.parameters
    to, source = (pointer.of(f"int{8 * size}") for pointer in (to, source))
    last = (columns - 1) & -_LANES

    def copy_vectors(read: Callable[[Pointer, Value, Value], Value]) -> None:
        with f.range(0, last + 1, _LANES) as behind:
            column = last - behind
            mask = (columns - column).first_lanes(_LANES)
            with f.range(0, rows) as i:
                to[i * columns + column] = read(source.skip_bytes(i * across), column, mask)
        f.return_()

    with f.if_(along == 0):
        copy_vectors(lambda row, _column, _mask: row[0].splat(_LANES))
    with f.if_(along == size):
        copy_vectors(lambda row, column, mask: row.masked_vector(column, _LANES, mask))
    with f.range(0, rows) as i, f.range(0, columns) as j:
        to[i * columns + j] = source.skip_bytes(i * across + j * along)[0]
    f.return_()
    return f


def write_add_columns(module: Module, size: int) -> Function:
    """The sum of each row of terms of so many bytes."""
    kind = f"float{8 * size}"
    f = module.function(f"add_columns{size}", ["*float64", f"*{kind}", "int64", "int64"], noalias=True)
    to, source, rows, columns = f.parameters
    with f.range(0, rows) as i:
        total, lost = f.variable(0.0, "float64"), f.variable(0.0, "float64")
        with f.range(0, columns) as j:
            _add(total, lost, source[i * columns + j], size)
        to[i] = calls.rounded(total.value, lost.value)
    f.return_()
    return f


def write_add_rows(module: Module, size: int) -> Function:
    """Add rows of terms of so many bytes to the sums of the columns, which are followed, after `SHORT` numbers, by what
    they lost. Whole vectors are added; beyond the columns the sums mean nothing."""
    kind = f"float{8 * size}"
    f = module.function(f"add_rows{size}", ["*float64", f"*{kind}", "int64", "int64"], noalias=True)
    to, source, rows, columns = f.parameters
    with f.range(0, columns, _LANES) as j:
        total, lost = f.variable(to.vector(j, _LANES)), f.variable(to.vector(j + SHORT, _LANES))
        with f.range(0, rows) as i:
            _add(total, lost, source.vector(i * columns + j, _LANES), size)
        to[j], to[j + SHORT] = total.value, lost.value
    f.return_()
    return f


def _add(total: Variable, lost: Variable, term: Value, size: int) -> None:
    """Add a term of so many bytes; the sum of float32 terms is exact enough in float64 by itself."""
    if size == 8:
        total.value, lost.value = calls.add(total.value, lost.value, term)
    else:
        total.value = total.value + term.to("float64")
