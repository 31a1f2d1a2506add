"""Inputs that lie otherwise in memory than the rest, transposed or with gaps: read tile by tile.

The kernel then has them contiguous, and vectorises. It is called for the rows of tiles, by a loop in LLVM's language
that gathers first. Panels, which threads run, and tiles follow from shapes alone, and so does every bit of the result.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache as once
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dualbcast.runtime.cpu import scratch
from dualbcast.runtime.cpu.loader import compiled
from dualbcast.runtime.cpu.row_joining import ROWS
from dualbcast.runtime.cpu.scratch import Loop

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dualbcast.runtime.reduction_blocks import Block

__all__ = ["Copied", "Packing", "Panel", "copying", "gathering"]

# Most rows and columns of a tile, where there are many rows and where there is one. In a transposed input, what is in a
# column lies together, and in the other arrays what is in a row. The first is the dearer: in float32 4096 by 4096, 64
# rows, 256 bytes, took 5.2 ms to gather, 128 took 3.2, and 512 still 3.0. So rows are as many as there are in so many
# bytes.
_TILE, _ROW, _RUN = (128, 512), (1, 2048), 512
# Elements of a tile's row beyond its columns: with a power of two all rows would be in few sets of the cache.
_GAP = 16
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


@once
def gathering(
    integers: int, pointers: int, packed: tuple[int, ...], itemsizes: tuple[int, ...], tile: tuple[int, int]
) -> Loop:
    """A loop over a panel around kernels of a signature.

    It is a function of the kernel's address, the panel's `start`, `step`, `rows` and `columns`; for each packed input
    the bytes from a row to the next and from a column to the next; sizes, strides and pointers, of packed inputs to the
    panel's first element.

    Parameters
    ----------
    integers, pointers : int
        How many sizes and strides, and how many pointers, the kernels take.
    packed : tuple of int
        Which pointers are of packed inputs.
    itemsizes : tuple of int
        The bytes of an element of each of these.
    tile : (int, int)
        The most rows and columns of a tile.
    """
    most, width = tile
    pitch = width + _GAP
    own = [f"i64 %n{k}" for k in range(integers)]
    given = [f"ptr %x{k}" for k in range(pointers)]
    steps = [f"i64 %{way}{k}" for k in range(len(packed)) for way in ("across", "along")]
    bounds = ["i64 %start", "i64 %step", "i64 %rows", "i64 %columns"]
    called = list(given)
    for k, position in enumerate(packed):
        called[position] = f"ptr %moved{k}"
    head = ["ptr %kernel", *bounds, *steps, *own, *given, *scratch.PARAMETERS]
    taking, room = scratch.take([(f"%t{k}", most * pitch * size) for k, size in enumerate(itemsizes)])
    lines = [
        scratch.FUNCTIONS,
        "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)",
        *(_pack(size, pitch) for size in sorted(set(itemsizes))),
        f"define i32 @loop({', '.join(head)}) {{",
        "entry:",
        *taking,
        "  br label %tile",
        "tile:",
        "  %column = phi i64 [ 0, %entry ], [ %beyond, %tiled ]",
        f"  %beyond = add i64 %column, {width}",
        "  %left = sub i64 %columns, %column",
        f"  %whole = icmp sge i64 %left, {width}",
        f"  %count = select i1 %whole, i64 {width}, i64 %left",
    ]
    for k, (position, size) in enumerate(zip(packed, itemsizes, strict=True)):
        lines += [
            f"  %o{k} = mul i64 %column, %along{k}",
            f"  %s{k} = getelementptr i8, ptr %x{position}, i64 %o{k}",
            f"  call void @pack{size}(ptr %t{k}, ptr %s{k}, i64 %rows, i64 %count, i64 %across{k}, i64 %along{k})",
        ]
    lines += [
        "  %corner = add i64 %start, %column",
        "  br label %row",
        "row:",
        "  %i = phi i64 [ 0, %tile ], [ %next, %ran ]",
        "  %at = phi i64 [ %corner, %tile ], [ %below, %ran ]",
        "  %end = add i64 %at, %count",
    ]
    for k, size in enumerate(itemsizes):
        lines += [
            f"  %r{k} = mul i64 %i, {pitch}",
            f"  %d{k} = sub i64 %r{k}, %at",
            f"  %b{k} = mul i64 %d{k}, {size}",
            f"  %moved{k} = getelementptr i8, ptr %t{k}, i64 %b{k}",
        ]
    arguments = ["i64 %at", "i64 %end", *own, *called]
    lines += [
        f"  %status = call i32 %kernel({', '.join(arguments)})",
        "  %stopped = icmp ne i32 %status, 0",
        "  br i1 %stopped, label %done, label %ran",
        "ran:",
        "  %next = add i64 %i, 1",
        "  %below = add i64 %at, %step",
        "  %rest = icmp slt i64 %next, %rows",
        "  br i1 %rest, label %row, label %tiled",
        "tiled:",
        "  %more = icmp slt i64 %beyond, %columns",
        "  br i1 %more, label %tile, label %done",
        "done:",
        scratch.GIVE,
        "  ret i32 %status",
        "}",
    ]
    return Loop(compiled("\n".join(lines), "loop", optimise=True), room)


@once
def copying(sizes: tuple[int, ...]) -> int:
    """The address of a kernel that copies: inputs of elements of so many bytes, to as many outputs."""
    places = range(len(sizes))
    pointers = [f"ptr %{kind}{k}" for kind in ("from", "to") for k in places]
    lines = [
        "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
        f"define i32 @copy(i64 %at, i64 %end, {', '.join(pointers)}) {{",
        "  %count = sub i64 %end, %at",
    ]
    for k, size in enumerate(sizes):
        lines += [
            f"  %bytes{k} = mul i64 %count, {size}",
            f"  %offset{k} = mul i64 %at, {size}",
            f"  %source{k} = getelementptr i8, ptr %from{k}, i64 %offset{k}",
            f"  %target{k} = getelementptr i8, ptr %to{k}, i64 %offset{k}",
            f"  call void @llvm.memcpy.p0.p0.i64(ptr %target{k}, ptr %source{k}, i64 %bytes{k}, i1 false)",
        ]
    return compiled("\n".join([*lines, "  ret i32 0", "}"]), "copy")


# The even lanes of a vector; the last lane would be beyond the end of an input, so a row's last element goes alone.
_EVEN = "i32 0, i32 2, i32 4, i32 6, i32 8, i32 10, i32 12, i32 14"


def _pack(size: int, pitch: int) -> str:
    """Copy `rows` by `columns` elements of so many bytes to a tile; eight by eight where a column's lie together."""
    # Of columns three or four apart, as of points, LLVM takes many at a time; of wide elements that is no faster.
    known = (3, 4) if size <= 4 else ()
    apart = "".join(f" i64 {way * size}, label %apart{way}" for way in known)
    further = "\n".join(
        f"""\
apart{way}:
  call void @copy{size}(ptr %to, ptr %from, i64 0, i64 %rows, i64 0, i64 %columns, i64 %across, i64 {way * size})
  ret void"""
        for way in known
    )
    text = [f"define private void @pack{size}(ptr %to, ptr %from, i64 %rows, i64 %columns, i64 %across, i64 %along) {{"]
    text += f"""\
entry:
  %close = icmp eq i64 %across, {size}
  %rows8 = and i64 %rows, -8
  %columns8 = and i64 %columns, -8
  %high = icmp ne i64 %rows8, 0
  %wide = icmp ne i64 %columns8, 0
  %large = and i1 %high, %wide
  %fast = and i1 %close, %large
  br i1 %fast, label %column, label %slow
slow:
  switch i64 %along, label %any [ i64 -{size}, label %back  i64 {2 * size}, label %second {apart} ]
{further}
any:
  call void @copy{size}(ptr %to, ptr %from, i64 0, i64 %rows, i64 0, i64 %columns, i64 %across, i64 %along)
  ret void
back:
  call void @copy{size}(ptr %to, ptr %from, i64 0, i64 %rows, i64 0, i64 %columns, i64 %across, i64 -{size})
  ret void
second:
  call void @second{size}(ptr %to, ptr %from, i64 %rows, i64 %columns, i64 %across)
  ret void
column:
  %j = phi i64 [ 0, %entry ], [ %jnext, %columned ]
  %jo = mul i64 %j, %along
  %jp = getelementptr i8, ptr %from, i64 %jo
  br label %row
row:
  %i = phi i64 [ 0, %column ], [ %inext, %row ]
  %io = mul i64 %i, {size}
  %ip = getelementptr i8, ptr %jp, i64 %io""".splitlines()
    vector = f"<8 x i{8 * size}>"
    for v in range(8):
        text += [
            f"  %l{v} = mul i64 %along, {v}",
            f"  %p{v} = getelementptr i8, ptr %ip, i64 %l{v}",
            f"  %v0{v} = load {vector}, ptr %p{v}, align {size}",
            # What the next turn of the outer loop reads: too little lies together for the processor to foresee it.
            f"  %f{v} = mul i64 %along, {v + 8}",
            f"  %g{v} = getelementptr i8, ptr %ip, i64 %f{v}",
            f"  call void @llvm.prefetch.p0(ptr %g{v}, i32 0, i32 3, i32 1)",
        ]
    low = "i32 0, i32 8, i32 1, i32 9, i32 2, i32 10, i32 3, i32 11"
    high = "i32 4, i32 12, i32 5, i32 13, i32 6, i32 14, i32 7, i32 15"
    # Interleaving those four apart moves a bit of the row's number to the column's: three times transposes.
    for turn in range(3):
        for v in range(4):
            for part, mask in enumerate((low, high)):
                pair = f"{vector} %v{turn}{v}, {vector} %v{turn}{v + 4}"
                text.append(f"  %v{turn + 1}{2 * v + part} = shufflevector {pair}, <8 x i32> <{mask}>")
    for v in range(8):
        text += [
            f"  %i{v} = add i64 %i, {v}",
            f"  %q{v} = mul i64 %i{v}, {pitch}",
            f"  %e{v} = add i64 %q{v}, %j",
            f"  %b{v} = mul i64 %e{v}, {size}",
            f"  %w{v} = getelementptr i8, ptr %to, i64 %b{v}",
            f"  store {vector} %v3{v}, ptr %w{v}, align {size}",
        ]
    text += f"""\
  %inext = add i64 %i, 8
  %imore = icmp ult i64 %inext, %rows8
  br i1 %imore, label %row, label %columned
columned:
  %jnext = add i64 %j, 8
  %jmore = icmp ult i64 %jnext, %columns8
  br i1 %jmore, label %column, label %rest
rest:
  call void @copy{size}(ptr %to, ptr %from, i64 %rows8, i64 %rows, i64 0, i64 %columns, i64 %across, i64 %along)
  call void @copy{size}(ptr %to, ptr %from, i64 0, i64 %rows8, i64 %columns8, i64 %columns, i64 %across, i64 %along)
  ret void
}}
define private void @second{size}(ptr noalias %to, ptr noalias %from, i64 %rows, i64 %columns, i64 %across) {{
entry:
  %less = sub i64 %columns, 1
  %columns8 = and i64 %less, -8
  %any = icmp ugt i64 %columns8, 0
  br i1 %any, label %row, label %rest
row:
  %i = phi i64 [ 0, %entry ], [ %inext, %rowed ]
  %io = mul i64 %i, %across
  %ip = getelementptr i8, ptr %from, i64 %io
  %ir = mul i64 %i, {pitch * size}
  %iq = getelementptr i8, ptr %to, i64 %ir
  br label %column
column:
  %j = phi i64 [ 0, %row ], [ %jnext, %column ]
  %jo = mul i64 %j, {2 * size}
  %p = getelementptr i8, ptr %ip, i64 %jo
  %jr = mul i64 %j, {size}
  %q = getelementptr i8, ptr %iq, i64 %jr
  %x = load <16 x i{8 * size}>, ptr %p, align {size}
  %y = shufflevector <16 x i{8 * size}> %x, <16 x i{8 * size}> poison, <8 x i32> <{_EVEN}>
  store <8 x i{8 * size}> %y, ptr %q, align {size}
  %jnext = add i64 %j, 8
  %jmore = icmp ult i64 %jnext, %columns8
  br i1 %jmore, label %column, label %rowed
rowed:
  %inext = add i64 %i, 1
  %imore = icmp ult i64 %inext, %rows
  br i1 %imore, label %row, label %rest
rest:
  call void @copy{size}(
    ptr %to, ptr %from, i64 0, i64 %rows, i64 %columns8, i64 %columns, i64 %across, i64 {2 * size}
  )
  ret void
}}
define private void @copy{size}(
  ptr noalias %to, ptr noalias %from, i64 %i0, i64 %i1, i64 %j0, i64 %j1, i64 %across, i64 %along
) alwaysinline {{
entry:
  %anyi = icmp ult i64 %i0, %i1
  %anyj = icmp ult i64 %j0, %j1
  %any = and i1 %anyi, %anyj
  br i1 %any, label %row, label %done
row:
  %i = phi i64 [ %i0, %entry ], [ %inext, %rowed ]
  %io = mul i64 %i, %across
  %ip = getelementptr i8, ptr %from, i64 %io
  %ir = mul i64 %i, {pitch * size}
  %iq = getelementptr i8, ptr %to, i64 %ir
  br label %column
column:
  %j = phi i64 [ %j0, %row ], [ %jnext, %column ]
  %jo = mul i64 %j, %along
  %p = getelementptr i8, ptr %ip, i64 %jo
  %jr = mul i64 %j, {size}
  %q = getelementptr i8, ptr %iq, i64 %jr
  %x = load i{8 * size}, ptr %p, align {size}
  store i{8 * size} %x, ptr %q, align {size}
  %jnext = add i64 %j, 1
  %jmore = icmp ult i64 %jnext, %j1
  br i1 %jmore, label %column, label %rowed
rowed:
  %inext = add i64 %i, 1
  %imore = icmp ult i64 %inext, %i1
  br i1 %imore, label %row, label %done
done:
  ret void
}}""".splitlines()
    return "\n".join(text)
