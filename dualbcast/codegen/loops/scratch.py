"""How a loop around kernels gets memory to work in: it takes a free place of what its launch was lent, and gives it
back. The memory itself is lent by `runtime.cpu.scratch`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dualbcast.codegen.loops.builder import Function, Pointer
    from dualbcast.codegen.values import Value

# The bytes of a line of the processor's cache: every place, and every array in it, begins at one.
LINE = 64
# The most places. Each has a flag of one byte before the memory, which says whether it is taken.
PLACES = 1024
# The last parameters of a loop: where the memory begins after the flags, and the number of places.
PARAMETERS = ("*int8", "int64")


def room_of(sizes: Sequence[int]) -> int:
    """The bytes of a place with arrays of so many bytes each."""
    return sum(_padded(size) for size in sizes)


def take(f: Function, scratch: Pointer, places: Value, sizes: Sequence[int]) -> tuple[Value, list[Any]]:
    """Take a place, and divide it into arrays of so many bytes: its number, and the arrays."""
    place = f.variable(0)
    with f.loop() as search:
        with f.if_(_flag(scratch, place.value).exchange(1) == 0):
            search.leave()
        # There is a place for every thread, but a free one that was passed may be the only one by now.
        place.value = (place.value + 1) % places
    taken = place.value
    begin, offsets = scratch.skip_bytes(taken * room_of(sizes)), [room_of(sizes[:at]) for at in range(len(sizes))]
    return taken, [begin.skip_bytes(offset) for offset in offsets]


def give(scratch: Pointer, place: Value) -> None:
    """Give a place back."""
    _flag(scratch, place).store_atomic(0)


def _flag(scratch: Pointer, place: Value) -> Pointer:
    return scratch.at(place - PLACES)


def _padded(size: int) -> int:
    return -(-size // LINE) * LINE
