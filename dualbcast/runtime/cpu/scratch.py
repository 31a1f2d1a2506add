"""Memory in which loops around kernels lay inputs out: lent to a launch, a place for each thread, taken piece by piece.

On the stack there is too little. A thread may have 32 KiB of it, and nobody says so before the process ends.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from dualbcast.codegen.loops.scratch import LINE, PLACES
from dualbcast.runtime.call_key import host_addresses

__all__ = ["Scratch", "give_back", "lend"]

# For how many launches at a time memory is kept: to get it from the pool takes longer than some of them.
_MOST = 8


class Scratch:
    """Memory of one launch at a time, in which no place is taken but while there is one.

    Attributes
    ----------
    address, size : int
        Of what there is for the places.
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
    if len(_kept) < _MOST:
        _kept.append(scratch)


_kept: deque[Scratch] = deque()
