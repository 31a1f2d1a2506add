"""Memory for large outputs on the host: a block comes back when its array and all views are gone, and is used again.

Fresh memory costs more than most kernels do, since the system clears each page when it is first touched.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import math
import mmap
import os
from collections import deque
from collections.abc import Iterable
from typing import Any
from weakref import WeakSet

import numpy as np

from dualbcast.errors import ArgumentError, BackendError
from dualbcast.runtime.arguments import Array, DType

# The fewest bytes, of all arrays of a call together and of one of them, for which blocks of the pool pay. For less the
# C library is faster. For more it returns memory to the system each time and gets it anew.
MIN_CALL_BYTES = 1 << 16
MIN_ARRAY_BYTES = 1 << 14
# Blocks of this size and more begin at a multiple of it, so that the system can back them with huge pages.
_HUGE = 1 << 21
_PAGE = mmap.PAGESIZE
_LIMIT = "DUALBCAST_POOL_BYTES"
# The offsets in the first page of a block at which arrays begin, one after the other. They differ, since a processor's
# first cache has few lines for the same offset of all pages. A kernel with 42 outputs is twice as fast.
_PLACES = tuple([at * 320 % _PAGE for at in range(_PAGE // 64)])
# The limit of the memory that waits is the machine's memory divided by this.
_LIMIT_DIVISOR = 8


class _Block:
    """Some memory, which waits on its shelf or is lent to one array, and is unmapped with the last reference.

    It begins at a page, and a huge one if it is large. `returned` says when it came back: a larger number is later.
    """

    __slots__ = ("__weakref__", "_memory", "address", "returned")

    def __init__(self, size: int) -> None:
        # A page more than that: see `_PLACES`.
        room = size + _PAGE + (_HUGE - _PAGE if size >= _HUGE else 0)
        if hasattr(mmap, "MAP_ANONYMOUS"):
            # Private: after a fork the child and its parent have their own.
            memory = mmap.mmap(-1, room, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        else:
            memory = mmap.mmap(-1, room)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        if size >= _HUGE:
            self.address += -self.address % _HUGE
            if hasattr(mmap, "MADV_HUGEPAGE"):
                with contextlib.suppress(OSError):  # a system without them
                    memory.madvise(mmap.MADV_HUGEPAGE)
        self._memory, self.returned = memory, 0


class Lease:
    """The `base` of an array with memory of a pool, which gives its block back when it is collected."""

    __slots__ = ()


class _Shelf:
    """The blocks of which each has memory for an array of so many bytes.

    The blocks that are `waiting` are free, the latest at the right. `lease` makes an array's `base` from an address.
    """

    __slots__ = ("blocks", "lease", "size", "waiting")

    def __init__(self, pool: Pool, size: int) -> None:
        self.size, self.blocks = size, WeakSet[_Block]()
        waiting = self.waiting = deque[_Block]()

        def give_back(lease: Any) -> None:
            block = getattr(lease, "block", None)  # An interrupt may come before it is assigned.
            if block is not None:
                block.returned = next(pool.clock)
                waiting.append(block)
                if pool.is_beyond:
                    pool.trim()

        # NumPy keeps it for as long as the array or a view lives: a view's base is the array, or the array's base.
        names = {"__doc__": "Memory of the pool.", "__slots__": ("block",), "__del__": give_back}
        self.lease = type("PooledMemory", (ctypes.c_char * size, Lease), names).from_address  # type: ignore[attr-defined]


class Pool:
    """Blocks that are kept for the next array, by size, up to a limit.

    An array's block comes back when the array is collected, in whatever thread and at whatever moment that is, in the
    middle of a method of the pool too. So there are no locks here: each step is one operation of a deque, which hands
    a block to one taker only, and everything else (what is counted, what is dropped first) may be off for a moment.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        # By size. The mapping is never changed but replaced, so that it can be walked.
        self._shelves: dict[int, _Shelf] = {}
        self._places = itertools.cycle(_PLACES)
        self.clock = itertools.count(1)
        # Whether all blocks have more bytes than the limit: otherwise nothing need be counted when one comes back.
        self.is_beyond = False

    @property
    def limit(self) -> int:
        """The most bytes that are kept without being in use; with 0, every array has memory of its own."""
        if self._limit is None:
            chosen = os.environ.get(_LIMIT, "").strip()
            if chosen and not chosen.isdecimal():
                raise BackendError(f"{_LIMIT} must be a number of bytes, not {chosen!r}")
            self._limit = int(chosen) if chosen else total_memory() // _LIMIT_DIVISOR
        return self._limit

    @limit.setter
    def limit(self, nbytes: int) -> None:
        if isinstance(nbytes, bool) or not isinstance(nbytes, (int, np.integer)) or nbytes < 0:
            raise ArgumentError(f"the limit of the memory pool is a number of bytes, not {nbytes!r}")
        self._limit = int(nbytes)
        self._note_excess()
        self.trim()

    @property
    def kept(self) -> int:
        """The bytes that wait to be used again."""
        return sum([size * len(shelf.waiting) for size, shelf in self._shelves.items()])

    @property
    def used(self) -> int:
        """The bytes of the blocks that arrays have."""
        return sum([size * max(0, len(shelf.blocks) - len(shelf.waiting)) for size, shelf in self._shelves.items()])

    def empty(self, shape: tuple[int, ...], dtype: DType) -> Array:
        """An uninitialised array in C order, as of `numpy.empty`; with memory of the pool if it is large."""
        if math.prod(shape) * dtype.itemsize < MIN_CALL_BYTES:
            return np.empty(shape, dtype)
        return self.empties(shape, (dtype,))[0]

    def empties(self, shape: tuple[int, ...], dtypes: Iterable[DType]) -> list[Array]:
        """Such arrays for a call, one for each of `dtypes`, that begin at different places of their pages.

        The pool pays where they have `MIN_CALL_BYTES` bytes together.
        """
        arrays: list[Array] = []
        places, ndarray = self._places, np.ndarray
        shelf, former = None, None
        for dtype in dtypes:
            if dtype is not former:
                shelf, former = self._shelf(math.prod(shape) * dtype.itemsize), dtype
            block: _Block | None = None
            if shelf is not None:
                try:
                    block = shelf.waiting.pop()
                except IndexError:  # there is none
                    block = self._new(shelf)
            if shelf is None or block is None:
                arrays.append(np.empty(shape, dtype))
                continue
            lease = shelf.lease(block.address + next(places))
            lease.block = block
            arrays.append(ndarray(shape, dtype, lease))
        return arrays

    def zeros(self, size: int) -> Array:
        """An array of `size` zeros, in float64."""
        if size * 8 < MIN_CALL_BYTES:
            return np.zeros(size)
        array = self.empty((size,), np.dtype(np.float64))
        array.fill(0.0)
        return array

    def clear(self) -> None:
        """Give all blocks that are not in use back to the system."""
        for shelf in self._shelves.values():
            shelf.waiting.clear()

    def trim(self) -> None:
        """Drop those that came back first until no more are kept than may be."""
        while self.kept > self.limit:
            firsts = [(block.returned, size) for size, shelf in self._shelves.items() for block in [*shelf.waiting][:1]]
            if firsts:
                with contextlib.suppress(IndexError):
                    self._shelves[min(firsts)[1]].waiting.popleft()

    def _shelf(self, nbytes: int) -> _Shelf | None:
        """Where blocks for an array of so many bytes are; None where it should have memory of its own."""
        if nbytes < MIN_ARRAY_BYTES:
            return None
        size = size_class(nbytes)
        if size > self.limit:
            return None
        shelf = self._shelves.get(size)
        if shelf is None:
            # If two threads are here at a time, the blocks of one shelf are those of no pool when they come back.
            shelf = _Shelf(self, size)
            self._shelves = {**self._shelves, size: shelf}
        return shelf

    def _new(self, shelf: _Shelf) -> _Block | None:
        """Another block; None where the system has none to give."""
        try:
            block = _Block(shelf.size)
        except (OSError, ValueError, MemoryError):
            self.clear()
            return None
        shelf.blocks.add(block)
        self._note_excess()
        return block

    def _note_excess(self) -> None:
        self.is_beyond = sum([size * len(shelf.blocks) for size, shelf in self._shelves.items()]) > self.limit


def size_class(nbytes: int) -> int:
    """The bytes of the block that an array has: there are eight sizes to each power of two, at least a page apart."""
    step = max(_PAGE, 1 << max(0, nbytes.bit_length() - 4))
    return -(-nbytes // step) * step


def total_memory() -> int:
    """The bytes of memory that this process may use: the machine's, or less in a container."""
    size = 1 << 34
    with contextlib.suppress(AttributeError, ValueError, OSError):
        size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError), open(path) as file:  # no such file, or "max"
            size = min(size, int(file.read()))
    return size


POOL = Pool()
