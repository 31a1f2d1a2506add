"""User's arrays that the tape depends on: small ones are copied, and others are read-only while they are needed.

Comes in: a user's array. Goes out: an array that stays as it is, and an object that stands for the need of that; when
the object ends, the array is writable again.
"""

from __future__ import annotations

import math
import mmap
import os
import threading
from collections import deque
from contextlib import ContextDecorator
from dataclasses import dataclass
from sys import getrefcount
from typing import Any

import numpy as np

from dualbcast.adapters import adapter_for, is_lazy
from dualbcast.errors import ArgumentError, DTypeError, ShapeError
from dualbcast.foreign_objects import called, has_own_arithmetic, instead, refused_argument
from dualbcast.graph.arrays import as_array
from dualbcast.graph.tape import STATE
from dualbcast.runtime.buffer_pool import Lease

# An array of so many bytes is copied; see docs/decisions/061-thresholds-of-the-graph.md.
COPIED_BYTES = 8192

# Arrays with these bases do not own their memory, but nobody else writes to it.
_OWN = (Lease, mmap.mmap)


@dataclass(eq=False, slots=True)
class _Memory:
    """The memory of one array, which is read-only while somebody needs it to stay as it is."""

    # The `id` of the array that the memory belongs to; that array, and views of it which were writable, in the order in
    # which they may become so again.
    key: int
    arrays: list[Any]
    # The outermost transformation that is under way, where only that needs the memory.
    call: object
    # The number of `Frozen` objects for it.
    count: int = 0


@dataclass(eq=False, slots=True)
class Frozen:
    """Keeps an array as it is, for a Variable and others that share its memory, for as long as this object lives."""

    memory: _Memory

    def __del__(self) -> None:
        # This runs at any moment and in any thread, also in the one that has the lock, which then counts this end.
        _ENDED.append(self.memory)
        _count_ended()

    def check(self) -> None:
        """Refuse an array that may have changed because the call that needed it has failed."""
        if self.memory in ABANDONED:
            raise ArgumentError(
                "this Variable was made from an array in a call that ended in an exception. Since then the array may "
                "have been written to. Make the call again, and keep no Variables of one that failed"
            )


# The memory that is needed, by its `key`; and the memory whose needs have ended but have not been counted yet.
_MEMORIES: dict[int, _Memory] = {}
_ENDED: deque[_Memory] = deque()
# Memory that is writable again although Variables need it, because their call has ended in an exception.
ABANDONED: set[_Memory] = set()
_LOCK = threading.Lock()


def _count_ended() -> None:
    """Count the needs that have ended. If another thread has the lock, it counts them after it has released it."""
    while _ENDED and _LOCK.acquire(False):
        try:
            while _ENDED:
                memory = _ENDED.popleft()
                memory.count -= 1
                if not memory.count:
                    if memory in ABANDONED:
                        ABANDONED.discard(memory)
                    else:
                        _restore(memory)
        finally:
            _LOCK.release()


def _restore(memory: _Memory) -> None:
    """Make the arrays of a memory writable again."""
    del _MEMORIES[memory.key]
    for array in memory.arrays:
        try:
            array.setflags(True)
        except ValueError:  # the user has made its base read-only in the meantime
            continue


def _references() -> int:
    """How many references `getrefcount` counts to an object that only a local variable refers to."""
    probe = object()
    return getrefcount(probe)


_REFERENCES_OF_LOCAL = _references()


def freeze(array: Any, is_read_again: bool = False) -> tuple[Any, Frozen | None]:
    """Give the array, read-only until the object beside it ends; or a copy and None if it is small or cannot be frozen.

    CuPy arrays cannot, nor memory that no NumPy array owns, nor views if others may see the same memory. Earlier views
    of an array that owns its memory stay writable. A copy does not help if the array `is_read_again` by a second call.
    Lazy arrays do not change.
    """
    if is_lazy(array):
        return array, None
    if array.nbytes <= COPIED_BYTES and not (is_read_again and type(array) is np.ndarray):
        return array.copy("K"), None
    if not isinstance(array, np.ndarray):
        return array.copy(), None  # CuPy's, on the current stream
    owner = array
    views: tuple[Any, ...] = ()
    while owner.base is not None and isinstance(base := _base_of(owner), np.ndarray):
        views = (owner, *views)
        owner = base
    base = None  # it would count as a reference
    if owner.base is not None and not isinstance(owner.base, _OWN):
        is_writable = any(each.flags.writeable for each in (owner, *views))
        if is_writable and is_read_again:
            raise ArgumentError(
                "a checkpointed function has captured an array whose memory belongs to something else than an "
                "array of NumPy's, so it might change before the function is called again. Pass it as an argument"
            )
        return (array.copy() if is_writable else array), None
    if views and not is_read_again:
        # All other views of the memory, and all names for it, refer to its owner, beside `owner` and the view here.
        is_shared = len(views) > 1 or getrefcount(owner) > _REFERENCES_OF_LOCAL + 1
        if is_shared:
            return _copy_of_view(array, owner), None
    memory = _held(owner, views)
    if memory is None:
        # A writable view of read-only memory: once read-only, it could not be made writable again.
        return (array.copy() if array.flags.writeable else array), None
    _count_ended()
    return array, Frozen(memory)


def _held(owner: Any, views: tuple[Any, ...]) -> _Memory | None:
    """The memory of an array, which is made read-only and counted once more; None if it was read-only before."""
    with _LOCK:
        memory = _MEMORIES.get(id(owner))
        if memory is None:
            if not owner.flags.writeable:
                return None
            memory = _MEMORIES[id(owner)] = _Memory(id(owner), [], STATE.outermost)
        elif memory.call is not STATE.outermost:
            memory.call = None
        memory.count += 1
        for array in (owner, *views):
            if array.flags.writeable:  # the user may have made it so since
                array.setflags(False)
                memory.arrays.append(array)
    return memory


def freeze_value(value: Any, is_read_again: bool) -> tuple[Any, Frozen | None]:
    """The array of a Variable that a user makes from a value, as `freeze` gives it; of real numbers."""
    array = value
    if type(value) is not np.ndarray:
        if is_lazy(value):
            adapter_for(value).token(value, "the value of a Variable")  # type: ignore[union-attr]
            if math.isnan(sum(value.shape)):
                raise ShapeError("a Variable has a known shape. Call compute_chunk_sizes() of the Dask array first")
        elif has_own_arithmetic(value) or (isinstance(value, np.ndarray) and type(value) is not np.memmap):
            raise refused_argument(value, "the value of a Variable")
        array = as_array(value)
        if array.dtype.kind == "O" and array is not value:
            hint = instead(value, "it")
            raise ArgumentError(f"a Variable holds an array of numbers, not {called(value)}. {hint}".rstrip())
    if array.dtype.kind not in "fbiu" and array.dtype.name != "bfloat16":
        raise DTypeError(f"a Variable holds numbers, not {array.dtype}; convert with .astype('float64')")
    return freeze(array, is_read_again)


def _base_of(array: Any) -> Any:
    """The object that an array is a view of; `as_strided` puts an object in between that has only the address."""
    base = array.base
    inner = getattr(base, "base", None)
    return inner if type(base).__name__ == "DummyArray" and isinstance(inner, np.ndarray) else base


def _copy_of_view(array: Any, owner: Any) -> Any:
    """A copy with the same strides, in which elements share memory as before."""
    if array.nbytes <= owner.nbytes:
        return array.copy("K")
    offset = array.ctypes.data - owner.ctypes.data
    # An owner of memory is contiguous in one of the two orders.
    memory = (owner if owner.flags.c_contiguous else owner.T).copy()
    return np.ndarray(array.shape, array.dtype, memory.data, offset, array.strides)


class thaw_on_failure(ContextDecorator):  # noqa: N801
    """Around a transformation: if it fails, arrays that it alone needs are writable again, although the traceback
    refers to their Variables, and an interactive session keeps it.

    It has no generator, so that functions which it decorates go to other processes.
    """

    _call: object | None = None

    def _recreate_cm(self) -> thaw_on_failure:
        return thaw_on_failure()

    def __enter__(self) -> None:
        if STATE.outermost is None:
            self._call = STATE.outermost = object()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._call is None:
            return
        STATE.outermost = None
        if kind is not None:
            with _LOCK:
                for memory in [each for each in _MEMORIES.values() if each.call is self._call]:
                    ABANDONED.add(memory)
                    _restore(memory)
            _count_ended()


def _in_the_child() -> None:
    """Renew the lock after a fork: another thread, which the child lacks, may have had it."""
    global _LOCK
    _LOCK = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_the_child)
