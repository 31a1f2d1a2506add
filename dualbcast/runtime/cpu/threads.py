"""The number of threads of a launch on the CPU: set by the program or the environment, or else the number of CPUs."""

from __future__ import annotations

import functools
import operator
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from dualbcast.errors import ArgumentError, BackendError

_NAME = "DUALBCAST_NUM_THREADS"
_KEY = os.environ.encodekey(_NAME)
_ENVIRONMENT: Any = getattr(os.environ, "_data", None)
_chosen: int | None = None
_within: ContextVar[int | None] = ContextVar("num_threads", default=None)


def get_num_threads() -> int:
    """How many threads a kernel that is launched here and now may use on the CPU, the calling one among them.

    The number of an enclosing `num_threads`, else that of `set_num_threads`, else the environment variable
    `DUALBCAST_NUM_THREADS` if it is not empty, else how many CPUs the process might run on when that was first asked
    for, in it or after the fork that made it. A kernel uses fewer where more would not pay, never more than the machine
    has CPUs, and gives the same bits with any number.
    """
    chosen = _within.get() or _chosen
    if chosen is not None:
        return chosen
    if _is_absent():
        return allowed_cpus()
    return _parsed(os.environ[_NAME]) or allowed_cpus()


def _is_absent() -> bool:
    """Whether the environment has no number. To ask `os.environ` raises an exception, which takes 1.6 µs at each
    launch; to ask the dict in it takes a tenth."""
    return _KEY not in _ENVIRONMENT if type(_ENVIRONMENT) is dict else _NAME not in os.environ


def set_num_threads(count: int | None) -> None:
    """Say how many threads a kernel may use on the CPU, in the whole process and from now on.

    Parameters
    ----------
    count : int or None
        At least 1; more than there are CPUs bring nothing. None for what holds if nothing is said.

    Examples
    --------
    >>> set_num_threads(1)
    >>> get_num_threads()
    1
    >>> set_num_threads(None)
    """
    global _chosen
    _chosen = None if count is None else _checked(count)


@contextmanager
def num_threads(count: int) -> Iterator[None]:
    """Say how many threads a kernel may use on the CPU, for a while and for launches of this thread.

    Parameters
    ----------
    count : int
        At least 1.

    Examples
    --------
    >>> with num_threads(1):
    ...     get_num_threads()
    1
    """
    token = _within.set(_checked(count))
    try:
        yield
    finally:
        _within.reset(token)


def _checked(count: int) -> int:
    try:
        number = 0 if isinstance(count, bool) else operator.index(count)
    except TypeError:
        number = 0
    if number < 1:
        raise ArgumentError(f"the number of threads is a positive integer, not {count!r}")
    return number


@functools.cache
def _parsed(text: str) -> int | None:
    """The number that the environment has; None where it is empty, as if it were not there."""
    if not text.strip():
        return None
    if not text.strip().isdecimal() or int(text) < 1:
        raise BackendError(f"DUALBCAST_NUM_THREADS must be a positive integer, not {text!r}")
    return int(text)


@functools.cache
def allowed_cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


if hasattr(os, "register_at_fork"):
    # Who forks workers may give each its own CPUs.
    os.register_at_fork(after_in_child=allowed_cpus.cache_clear)
