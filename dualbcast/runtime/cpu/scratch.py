"""Memory in which loops around kernels lay inputs out: lent to a launch, a place for each thread, taken piece by piece.

On the stack there is too little. A thread may have 32 KiB of it, and nobody says so before the process ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dualbcast.runtime.call_key import host_addresses

__all__ = ["FUNCTIONS", "GIVE", "PARAMETERS", "Loop", "Scratch", "give_back", "lend", "take"]

# A line of the processor's cache, where each place begins.
_LINE = 64
# How many there are at most, a byte for each, which says whether it is taken. More threads than that wait.
_PLACES = 1024
# For how many launches at a time memory is kept: to get it from the pool takes longer than some of them.
_MOST = 8


class Loop(NamedTuple):
    """A loop around kernels. The last of its arguments are the address of a `Scratch` and how many places it has.

    Attributes
    ----------
    address : int
        Of the machine code.
    room : int
        The bytes that a call of it works in.
    """

    address: int
    room: int


class Scratch:
    """Memory of one launch at a time, in which no place is taken but while there is one.

    Attributes
    ----------
    address, size : int
        Of what there is for the places.
    """

    __slots__ = ("_memory", "address", "size")

    def __init__(self, size: int) -> None:
        self._memory = np.empty(_PLACES + size + _LINE, np.uint8)
        (address,) = host_addresses((self._memory,))
        ahead = _PLACES + -address % _LINE
        self._memory[:ahead] = 0
        self.address, self.size = address + ahead, size


def lend(room: int, threads: int) -> tuple[Scratch, int]:
    """Memory for so many threads at a time, which is to be given back when they are done, and its number of places."""
    places = min(threads, _PLACES)
    size = room * places
    try:
        found = _kept.pop()
    except IndexError:
        found = Scratch(size)
    return (found if found.size >= size else Scratch(size)), places


def give_back(scratch: Scratch) -> None:
    """Keep memory that no thread works in for another launch."""
    if len(_kept) < _MOST:
        _kept.append(scratch)


_kept: deque[Scratch] = deque()

# What a loop has for it in LLVM's language: parameters, functions of its module, and, where it ends, this line.
PARAMETERS = ("ptr %scratch", "i64 %places")
FUNCTIONS = f"""\
define private i64 @take(ptr %scratch, i64 %places) {{
entry:
  br label %look
look:
  %place = phi i64 [ 0, %entry ], [ %next, %other ]
  %from = sub i64 %place, {_PLACES}
  %flag = getelementptr i8, ptr %scratch, i64 %from
  %taken = atomicrmw xchg ptr %flag, i8 1 seq_cst
  %free = icmp eq i8 %taken, 0
  br i1 %free, label %found, label %other
other:
  ; Not more threads run than there are places, but what was free may be taken meanwhile.
  %beyond = add i64 %place, 1
  %next = urem i64 %beyond, %places
  br label %look
found:
  ret i64 %place
}}
define private void @give(ptr %scratch, i64 %place) {{
  %from = sub i64 %place, {_PLACES}
  %flag = getelementptr i8, ptr %scratch, i64 %from
  store atomic i8 0, ptr %flag seq_cst, align 1
  ret void
}}
"""
GIVE = "  call void @give(ptr %scratch, i64 %place)"


def take(sizes: Sequence[tuple[str, int]]) -> tuple[list[str], int]:
    """The lines with which a loop begins, of pointers of these names to so many bytes each, and the room for all."""
    room = 0
    lines = []
    for name, size in sizes:
        lines.append(f"  {name} = getelementptr i8, ptr %begin, i64 {room}")
        room += -(-size // _LINE) * _LINE
    taking = [
        "  %place = call i64 @take(ptr %scratch, i64 %places)",
        f"  %ahead = mul i64 %place, {room}",
        "  %begin = getelementptr i8, ptr %scratch, i64 %ahead",
    ]
    return taking + lines, room
