"""The loops around kernels, compiled for the numbers and sizes of a kernel's arguments."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from dualbcast.codegen.loops.recipe import Recipe
from dualbcast.codegen.loops.row_joining import Sums, piece_sizes, write_join
from dualbcast.codegen.loops.scratch import room_of
from dualbcast.codegen.loops.tile_packing import tile_sizes, write_copies, write_gather
from dualbcast.runtime.cpu.loader import compiled

__all__ = ["Loop", "copying", "gathering", "joining"]


class Loop(NamedTuple):
    """A loop around kernels. The last of its arguments are the address of a `Scratch` and its number of places.

    Attributes
    ----------
    address : int
        Of the machine code.
    room : int
        The bytes that a call of it works in.
    """

    address: int
    room: int


@cache
def gathering(
    integers: int, pointers: int, packed: tuple[int, ...], itemsizes: tuple[int, ...], tile: tuple[int, int]
) -> Loop:
    """The loop of `write_gather`, which has the parameters."""
    recipe = Recipe(write_gather, (integers, pointers, packed, itemsizes, tile))
    return Loop(compiled(recipe, "gather", optimise=True), room_of(tile_sizes(itemsizes, tile)))


@cache
def joining(integers: int, pointers: int, joined: tuple[int, ...], itemsizes: tuple[int, ...], sums: Sums) -> Loop:
    """The loop of `write_join`, which has the parameters."""
    recipe = Recipe(write_join, (integers, pointers, joined, itemsizes, sums))
    return Loop(compiled(recipe, "join", optimise=True), room_of(piece_sizes(itemsizes, sums)))


@cache
def copying(sizes: tuple[int, ...]) -> int:
    """The address of the kernel of `write_copies`."""
    return compiled(Recipe(write_copies, (sizes,)), "copies")
