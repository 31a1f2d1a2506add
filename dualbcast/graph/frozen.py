"""Arrays of the user's that something recorded depends on: they are read-only for as long as it does."""

from __future__ import annotations

import functools
import mmap
import os
import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

import numpy as np

from dualbcast.errors import ArgumentError
from dualbcast.memory import Lease

__all__ = ["Frozen", "freeze", "thaws_if_it_fails"]

Function = TypeVar("Function", bound=Callable[..., Any])

_ndarray, _memmap = np.ndarray, np.memmap
# What lies under an array that owns no memory itself, where nobody else writes there.
_OWN = (Lease, mmap.mmap)


class _Memory:
    """The memory of one array, which is read-only while somebody needs it to stay as it is.

    Attributes
    ----------
    key : int
        The `id` of the array that the memory belongs to.
    arrays : list of numpy.ndarray
        That array and views of it which were writable, in the order in which they may become so again.
    count : int
        By how many it is needed.
    call : _Call or None
        The outermost transformation that is under way, where only that needs it.
    is_given_up : bool
        Whether it is writable again although it is needed: the call ended in an exception.
    """

    __slots__ = ("arrays", "call", "count", "is_given_up", "key")

    def __init__(self, key: int, arrays: list[Any], call: _Call | None) -> None:
        self.key, self.arrays, self.call = key, arrays, call
        self.count, self.is_given_up = 1, False

    def restore(self) -> None:
        """Make it writable again."""
        if _MEMORIES.get(self.key) is self:
            del _MEMORIES[self.key]
        for array in self.arrays:
            try:
                array.setflags(True)
            except ValueError:  # the user has made what is under it read-only in the meantime
                continue
        self.arrays = []


class Frozen:
    """The need of a Variable, and of what shares its memory, that an array stays as it is. It ends with this object."""

    __slots__ = ("_memory",)

    def __init__(self, memory: _Memory) -> None:
        self._memory = memory

    def __del__(self) -> None:
        # At any moment and in any thread: also where this thread has the lock, which then takes care of it.
        _ENDED.append(self._memory)
        if _LOCK.acquire(False):
            _release()

    def check(self) -> None:
        """Refuse an array that may have changed because the call that needed it has failed."""
        if self._memory.is_given_up:
            raise ArgumentError(
                "this Variable was made from an array in a call that ended in an exception. Since then the array may "
                "have been written to. Make the call again, and keep no Variables of one that failed"
            )


# The memory that is needed, by its `key`; and what is needed once less but has not been counted yet.
_MEMORIES: dict[int, _Memory] = {}
_ENDED: deque[_Memory] = deque()
_LOCK = threading.Lock()


def _release() -> None:
    """Count what has ended, then give the lock back, which the caller has taken."""
    while True:
        try:
            while _ENDED:
                memory = _ENDED.popleft()
                memory.count -= 1
                if not memory.count:
                    memory.restore()
        finally:
            _LOCK.release()
        # What has come while the lock was held is left to us.
        if not _ENDED or not _LOCK.acquire(False):
            return


def freeze(array: Any) -> tuple[Any, Frozen | None]:
    """See to it that an array of the user's stays as it is now.

    Parameters
    ----------
    array : numpy.ndarray or cupy.ndarray

    Returns
    -------
    array
        The same, which is read-only from now on, as is the array that it is a view of. A copy, where reading alone
        cannot be allowed: CuPy's arrays, and memory that belongs to something else than an array of NumPy's.
    frozen : Frozen or None
        With the end of this the array is writable again. None where there is nothing to end: a copy, or an array that
        has always been read-only.

    Notes
    -----
    Views that are there already stay writable, and so do arrays that C code or another library has on the memory.
    """
    kind = type(array)
    if kind is not _ndarray and kind is not _memmap:
        return array.copy(), None
    owner = array
    views: tuple[Any, ...] = ()
    while isinstance(owner.base, _ndarray):
        views = (owner, *views)
        owner = owner.base
    if owner.base is not None and not isinstance(owner.base, _OWN):
        is_writable = owner.flags.writeable or any(each.flags.writeable for each in views)
        return (array.copy() if is_writable else array), None
    key = id(owner)
    with _LOCK:
        memory = _MEMORIES.get(key)
        if memory is None:
            if not owner.flags.writeable:
                # A view that was left writable could not be made so again.
                return (array.copy() if array.flags.writeable else array), None
            owner.setflags(False)
            memory = _MEMORIES[key] = _Memory(key, [owner], _current.call)
        else:
            memory.count += 1
            if memory.call is not _current.call:
                memory.call = None
            if owner.flags.writeable:  # the user has made it so
                owner.setflags(False)
        for view in views:
            if view.flags.writeable:
                view.setflags(False)
                memory.arrays.append(view)
    if _ENDED and _LOCK.acquire(False):
        _release()
    return array, Frozen(memory)


# --- calls that fail --------------------------------------------------------------------------------------------------


class _Call:
    """The outermost transformation of a thread. Where it ends in an exception, nothing that it has made needs arrays:
    the traceback, which an interactive session keeps, would have them read-only for as long."""

    __slots__ = ("_is_outermost",)

    def __enter__(self) -> None:
        self._is_outermost = _current.call is None
        if self._is_outermost:
            _current.call = self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_outermost:
            return
        _current.call = None
        if kind is not None:
            with _LOCK:
                for memory in [each for each in _MEMORIES.values() if each.call is self]:
                    memory.is_given_up = True
                    memory.restore()
            if _ENDED and _LOCK.acquire(False):
                _release()


class _Current(threading.local):
    call: _Call | None = None


_current = _Current()


def thaws_if_it_fails(function: Function) -> Function:
    """A transformation, or part of one: arrays that it alone needs are writable again if it ends in an exception."""

    @functools.wraps(function)
    def called(*args: Any, **named: Any) -> Any:
        with _Call():
            return function(*args, **named)

    return called  # type: ignore[return-value]


def _in_the_child() -> None:
    """After a fork: another thread, which is not there any more, may have had the lock."""
    global _LOCK
    _LOCK = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_the_child)
