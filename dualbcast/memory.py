"""The pool of memory for large results on the host: see how much it holds, limit it, and give memory back.

The results of a call come from the pool if together they have 64 KiB or more, and each has 16 KiB or more. When such an
array and all its views are gone, its memory waits for the next result. The system would have to clear new memory.

>>> import numpy as np
>>> from dualbcast import differentiable_broadcast, memory
>>> @differentiable_broadcast
... def f(x):
...     return x * x
>>> memory.clear()
>>> before = memory.info().used
>>> y = f(np.ones(1 << 20))
>>> memory.info().used - before
8388608
>>> del y
>>> memory.info().used - before, memory.info().kept
(0, 8388608)
>>> memory.clear()
>>> memory.info().kept
0
"""

from __future__ import annotations

from typing import NamedTuple

from dualbcast.runtime.buffer_pool import POOL

__all__ = ["Info", "clear", "info", "set_limit"]


def __dir__() -> list[str]:
    """The public names, for completion at the prompt."""
    return __all__


class Info(NamedTuple):
    """The memory that the pool holds now.

    Attributes
    ----------
    used : int
        The bytes of the results that exist and have memory from the pool.
    kept : int
        The bytes that wait for the next result.
    limit : int
        The bytes that may be kept waiting; see `set_limit`.
    """

    used: int
    kept: int
    limit: int


def info() -> Info:
    """The memory that the pool holds, in use and waiting."""
    return Info(POOL.used, POOL.kept, POOL.limit)


def clear() -> None:
    """Give all waiting memory back to the system. Results that still exist keep their memory."""
    POOL.clear()


def set_limit(nbytes: int) -> None:
    """Limit how much memory is kept waiting.

    Parameters
    ----------
    nbytes : int
        A number of bytes; with 0, every result has memory of its own, as NumPy's have. Until it is set, the limit is
        the number in the environment variable `DUALBCAST_POOL_BYTES`, or else an eighth of the memory of the machine or
        container.

    Examples
    --------
    >>> from dualbcast import memory
    >>> before = memory.info().limit
    >>> memory.set_limit(1 << 28)
    >>> memory.info().limit
    268435456
    >>> memory.set_limit(before)
    """
    POOL.limit = nbytes
