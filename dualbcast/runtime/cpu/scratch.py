"""Memory for loops that copy inputs: it is lent to a launch, with a place for each thread.

The stack is too small for that. A thread may have no more than 32 KiB of it.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from dualbcast.codegen.loops.scratch import LINE, PLACES
from dualbcast.runtime.call_key import host_addresses

__all__ = ["Scratch", "give_back", "lend"]

# For how many launches at a time memory is kept. To allocate it takes longer than some launches do.
_MAX_KEPT = 8


class Scratch:
    """Memory of one launch at a time. No place is taken while there is none.

    Attributes
    ----------
    address, size : int
        Where the places begin, and their bytes together.
    """

    __slots__ = ("_memory", "address", "size")

    def __init__(self, size: int) -> None:
        self._memory = np.empty(PLACES + size + LINE, np.uint8)
        (address,) = host_addresses((self._memory,))
        ahead = PLACES + -address % LINE
        self._memory[:ahead] = 0
        self.address, self.size = address + ahead, size


def lend(room: int, threads: int) -> tuple[Scratch, int]:
    """Memory for so many threads at a time, which is to be given back when they are done, and its number of places."""
    places = min(threads, PLACES)
    size = room * places
    try:
        found = _kept.pop()
    except IndexError:
        found = Scratch(size)
    return (found if found.size >= size else Scratch(size)), places


def give_back(scratch: Scratch) -> None:
    """Keep memory that no thread works in for another launch."""
    if len(_kept) < _MAX_KEPT:
        _kept.append(scratch)


_kept: deque[Scratch] = deque()
