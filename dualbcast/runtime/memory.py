"""Memory for large outputs on the host: blocks that come back when an array and its views are gone, and are used anew.

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
from collections.abc import Iterator
from functools import cache as once
from pathlib import Path
from typing import Any

import numpy as np

from dualbcast.errors import ArgumentError, BackendError
from dualbcast.runtime.operands import Array, DType

__all__ = ["POOL", "SMALLEST", "Pool", "size_class"]

# Bytes from which an array has a block of the pool. The C library keeps what is smaller for itself, and is as fast.
SMALLEST = 1 << 17
# Blocks of this size and more begin at a multiple of it, so that the system can back them with huge pages.
_HUGE = 1 << 21
_PAGE = mmap.PAGESIZE
_LIMIT = "DUALBCAST_POOL_BYTES"
# Of the machine's memory: the most that is kept without being in use.
_SHARE = 8


class _Block:
    """Some memory, which is on one shelf of the pool or lent to one array, and is unmapped with the last reference.

    Attributes
    ----------
    pool : Pool
        Where it belongs.
    address, size : int
        Where it begins, and its bytes.
    returned : int
        When it came back: a larger number is later.
    """

    __slots__ = ("_memory", "address", "pool", "returned", "size")

    def __init__(self, pool: Pool, size: int) -> None:
        room = size + _HUGE - _PAGE if size >= _HUGE else size
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
        self._memory, self.pool, self.size, self.returned = memory, pool, size, 0


class Pool:
    """Blocks that are kept for the next array, by size, up to a limit.

    An array's block comes back when the array is collected, in whatever thread and at whatever moment that is, in the
    middle of a method of the pool too. So there are no locks here: each step is one operation of a deque, which hands
    a block to one taker only, and everything else (what is counted, what is dropped first) may be off for a moment.

    Parameters
    ----------
    limit : int, optional
        See `limit`.

    Examples
    --------
    >>> pool = Pool(limit=1 << 30)
    >>> y = pool.empty((512, 512), np.dtype(np.float64))
    >>> pool.used, pool.kept
    (2097152, 0)
    >>> del y
    >>> pool.used, pool.kept
    (0, 2097152)
    """

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        # Those returned last at the right. The mapping is never changed but replaced, so that it can be walked.
        self._shelves: dict[int, deque[_Block]] = {}
        self._lent: dict[int, int] = {}
        self._clock = itertools.count(1)

    @property
    def limit(self) -> int:
        """The most bytes that are kept without being in use; with 0, every array has memory of its own."""
        if self._limit is None:
            chosen = os.environ.get(_LIMIT)
            self._limit = _total_memory() // _SHARE if chosen is None else _parse_limit(chosen)
        return self._limit

    @limit.setter
    def limit(self, nbytes: int) -> None:
        if isinstance(nbytes, bool) or not isinstance(nbytes, (int, np.integer)) or nbytes < 0:
            raise ArgumentError(f"the limit of the memory pool is a number of bytes, not {nbytes!r}")
        self._limit = int(nbytes)
        self._trim()

    @property
    def kept(self) -> int:
        """The bytes that wait to be used again."""
        return sum([size * len(shelf) for size, shelf in self._shelves.items()])

    @property
    def used(self) -> int:
        """The bytes of the blocks that arrays have."""
        return sum(list(self._lent.values()))

    def empty(self, shape: tuple[int, ...], dtype: DType) -> Array:
        """An uninitialised array in C order: `numpy.empty`, with memory of the pool where that is worth while."""
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes < SMALLEST:
            return np.empty(shape, dtype)
        size = size_class(nbytes)
        block = self._take(size) if size <= self.limit else None
        if block is None:
            return np.empty(shape, dtype)
        lease = _lease_type(size).from_address(block.address)
        lease.block = block
        self._lent[block.address] = size
        return np.ndarray(shape, dtype, lease)

    def zeros(self, size: int) -> Array:
        """An array of `size` zeros, in float64."""
        if size * 8 < SMALLEST:
            return np.zeros(size)
        array = self.empty((size,), np.dtype(np.float64))
        array.fill(0.0)
        return array

    def clear(self) -> None:
        """Give all blocks that are not in use back to the system."""
        for shelf in self._shelves.values():
            shelf.clear()

    def _take(self, size: int) -> _Block | None:
        """The block of that size that came back last, else a new one; None where the system has none to give."""
        shelf = self._shelves.get(size)
        if shelf is None:
            self._shelves = {**self._shelves, size: deque()}
        elif shelf:
            try:
                return shelf.pop()
            except IndexError:  # another thread was faster
                pass
        try:
            return _Block(self, size)
        except (OSError, ValueError, MemoryError):
            self.clear()
            return None

    def _give(self, block: _Block) -> None:
        """Take a block back."""
        self._lent.pop(block.address, None)
        block.returned = next(self._clock)
        shelf = self._shelves.get(block.size)
        if shelf is not None:
            shelf.append(block)
            if self.kept > self.limit:
                self._trim()

    def _trim(self) -> None:
        """Drop those that came back first until no more are kept than may be."""
        while self.kept > self.limit:
            oldest = min(self._firsts(), default=None)
            if oldest is not None:
                with contextlib.suppress(IndexError):
                    self._shelves[oldest[1]].popleft()

    def _firsts(self) -> Iterator[tuple[int, int]]:
        """When the first block of each shelf came back, and its size."""
        for size, shelf in self._shelves.items():
            with contextlib.suppress(IndexError):
                yield shelf[0].returned, size


@once
def _lease_type(size: int) -> Any:
    """The class of what arrays of that size class have for their `base`: its end gives the block back.

    NumPy keeps it for as long as the array or a view lives; a view's base is the array, or the array's base.
    """

    def __del__(self: Any) -> None:  # noqa: N807
        block = getattr(self, "block", None)  # not there if an interrupt came before it was assigned
        if block is not None:
            block.pool._give(block)

    return type("PooledMemory", (ctypes.c_char * size,), {"__doc__": "Memory of the pool.", "__del__": __del__})


def size_class(nbytes: int) -> int:
    """The bytes of the block that an array has: there are eight sizes to each power of two, at least a page apart.

    Examples
    --------
    >>> size_class(1 << 20), size_class((1 << 20) + 1)
    (1048576, 1179648)
    """
    step = max(_PAGE, 1 << max(0, nbytes.bit_length() - 4))
    return -(-nbytes // step) * step


def _total_memory() -> int:
    """The bytes of memory that this process may use: the machine's, or less in a container."""
    found = 1 << 34
    with contextlib.suppress(AttributeError, ValueError, OSError):
        found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
            found = min(found, int(Path(path).read_text()))
    return found


def _parse_limit(text: str) -> int:
    if not text.strip().isdecimal():
        raise BackendError(f"{_LIMIT} must be a number of bytes, not {text!r}")
    return int(text)


POOL = Pool()
