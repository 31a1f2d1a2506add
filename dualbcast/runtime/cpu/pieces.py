"""Pieces of work other than ranges: the blocks of a kernel that sums, panels of packed inputs, copies of inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import mul
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dualbcast.codegen.loops.scratch import PARAMETERS
from dualbcast.runtime.arguments import Array
from dualbcast.runtime.buffer_pool import POOL
from dualbcast.runtime.call_key import host_addresses
from dualbcast.runtime.cpu.loops import Loop, copying, gathering, joining
from dualbcast.runtime.cpu.scratch import give_back, lend
from dualbcast.runtime.cpu.thread_pool import Work
from dualbcast.runtime.cpu.tile_packing import Packing

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dualbcast.runtime.cpu.kernel import CpuKernel
    from dualbcast.runtime.reduction_blocks import Block

__all__ = ["contiguous_copies", "give_back_scratch", "part_work"]

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
