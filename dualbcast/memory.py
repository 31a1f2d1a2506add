"""The memory that large results on the host are kept in: see how much there is, limit it, and give it back.

The results of a call come from a pool where they have 64 KiB or more together, and 16 KiB each. When such an array and
all its views are gone, its memory waits for the next one, which is then spared what fresh memory costs.

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
from dualbcast.runtime.buffer_pool import Lease as Lease

__all__ = ["Info", "clear", "info", "set_limit"]


class Info(NamedTuple):
    """What the pool holds now.

    Attributes
    ----------
    used : int
        Bytes of the results that are alive, where they have memory of the pool.
    kept : int
        Bytes that wait for the next result.
    limit : int
        The most bytes that are kept waiting; see `set_limit`.
    """

    used: int
    kept: int
    limit: int


def info() -> Info:
    """How much memory the pool holds, in use and waiting."""
    return Info(POOL.used, POOL.kept, POOL.limit)


def clear() -> None:
    """Give all memory that waits back to the system. Results that are alive keep theirs."""
    POOL.clear()


def set_limit(nbytes: int) -> None:
    """Limit how much memory is kept waiting.

    Parameters
    ----------
    nbytes : int
        A number of bytes; with 0, every result has memory of its own, as NumPy's have. At first it is the number that
        the environment variable `DUALBCAST_POOL_BYTES` has, or else an eighth of the machine's (or the container's)
        memory.

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
