"""Memory for loops that copy inputs: it is lent to a launch, with a place for each thread.

The stack is too small for that. A thread may have no more than 32 KiB of it.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from dualbcast.codegen.loops.scratch import LINE, PLACES
from dualbcast.runtime.call_key import host_addresses

__all__ = ["Scratch", "give_back", "lend"]

# The most pieces of memory that wait for a launch. To allocate one takes longer than some launches.
_MOST_WAITING = 8


class Scratch:
    """Memory of one launch at a time. Between launches no thread has a place in it.

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
        scratch = _waiting.pop()
    except IndexError:
        scratch = Scratch(size)
    return (scratch if scratch.size >= size else Scratch(size)), places


def give_back(scratch: Scratch) -> None:
    """Keep memory that no thread works in for another launch."""
    if len(_waiting) < _MOST_WAITING:
        _waiting.append(scratch)


_waiting: deque[Scratch] = deque()
