"""How the elements of a launch are run: on how many threads, and with which outputs stored past the cache.

An ordinary store to memory that is not in the cache reads the line first, and drives lines with inputs out of the
cache. A streaming store of a whole line does neither.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import operator
import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from time import perf_counter_ns

from dualbcast.codegen.llvm.target import features
from dualbcast.errors import ArgumentError, BackendError
from dualbcast.kernel_spec import Layout
from dualbcast.runtime.cpu import thread_pool

_NAME = "DUALBCAST_NUM_THREADS"
_chosen: int | None = None
_within: ContextVar[int | None] = ContextVar("num_threads", default=None)


def get_num_threads() -> int:
    """The number of threads that a kernel may now use on the CPU, with the calling thread among them.

    It is the number of an enclosing `num_threads`, else that of `set_num_threads`, else that of the environment
    variable `DUALBCAST_NUM_THREADS`, else the number of CPUs that the process may run on. These CPUs are counted when
    the number is first needed, and anew in a forked process. A kernel uses fewer threads if more would not pay, never
    uses more than the machine has CPUs, and gives the same bits with any number.
    """
    return _within.get() or _chosen or _parsed(os.environ.get(_NAME, "")) or allowed_cpus()


def set_num_threads(count: int | None) -> None:
    """Set how many threads a kernel may use on the CPU, in the whole process and from now on.

    Parameters
    ----------
    count : int or None
        At least 1; more threads than CPUs save no time. None restores the default; see `get_num_threads`.

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
    """A context manager that sets how many threads a kernel may use on the CPU, for launches of this thread.

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


# Nanoseconds of work that are worth a thread which looks for work: it comes within two microseconds. To wake a thread
# that sleeps takes the caller 12 microseconds, and the thread comes after 10 to 100: that takes several times the work.
THREAD_NS = 12_000
_WAKING_FACTOR = 8
# The least nanoseconds that a range of elements should take, if there are two.
RANGE_NS = 10_000
# Elements times pointers that one thread runs alone while the pace is not known. They take some microseconds at least.
FEW = 1 << 17
# Ranges begin at a multiple of this many elements of a row: more than a vectorised loop advances in one step, so that
# which elements go through vector code, and with it every bit of the result, does not depend on the number of threads.
ALIGNMENT = 256


@dataclass(slots=True)
class Pace:
    """The pace of a kernel: a launch of at most `short` elements is no work for several threads; `element` is the
    nanoseconds that an element took a thread lately, infinite if that is not known; `is_warm` says whether the kernel
    has run on few elements."""

    short: int
    element: float = math.inf
    is_warm: bool = False

    def learn(self, element: float) -> None:
        """Set the nanoseconds for an element."""
        self.element, self.short = element, max(2 * ALIGNMENT - 1, int(THREAD_NS / max(element, 1e-3)))

    def note(self, began: int, faster: float, total: int) -> None:
        """Learn from a launch of so many elements, which was so many times as fast as one thread alone."""
        global _last_end
        _last_end = perf_counter_ns()
        took = _last_end - began
        element = took * faster / total
        # Most of a short launch is the launch itself: an element takes no longer than that.
        self.learn(element if took >= THREAD_NS else min(element, self.element))


def threads_for(pace: Pace, total: int, most: int | None = None) -> int:
    """How many threads a launch of so many elements is worth, at most so many; by default `get_num_threads()`."""
    # The number that may be used comes last, since it takes the longest to find out.
    if total <= pace.short or not is_worth_threads(pace.element * total):
        return 1
    return most or get_num_threads()


def is_worth_threads(work: float) -> bool:
    """Whether so many nanoseconds of work are worth other threads: one that looks for work, or else to wake one.

    If launches take as long as what is between them, the next ones will find it awake.
    """
    if work < THREAD_NS:
        return False
    return thread_pool.is_watched() or work >= min(_WAKING_FACTOR * THREAD_NS, perf_counter_ns() - _last_end)


# When the last launch ended, on the clock of `perf_counter_ns`.
_last_end = 0


# The most bytes of the last-level cache for each CPU that the process may use: a virtual machine sees a cache that
# others use too. More outputs than `_MANY_OUTPUTS` are streamed from half the room on. The figures are in
# docs/decisions/044-room-in-the-cache.md.
_CACHE_PER_CPU = 1 << 23
_MANY_OUTPUTS = 24


def goes_past_the_cache(layout: Layout, total: int, itemsizes: Sequence[int], inputs: int) -> bool:
    """Whether outputs of a launch of so many elements are streamed: it moves more than the cache has room for, and
    stores vectors to most of them, as to a Jacobian beside a value of structures. `itemsizes` are those of all
    arguments, the first `inputs` of which are inputs."""
    patterns = [layout.classes[which] for which in layout.which]
    moved = total * sum(itertools.compress(itemsizes, ["0" not in pattern for pattern in patterns]))
    # Sums stay in the cache.
    stored = [pattern for pattern in patterns[inputs:] if "0" not in pattern]
    most = room() // 2 if len(stored) > _MANY_OUTPUTS else room()
    # Vectors are as long as a line of the cache.
    stores_lines = platform.machine() in ("x86_64", "AMD64") and "avx512f" in features()
    return moved > most and stores_lines and 2 * sum(pattern.endswith("1") for pattern in stored) > len(stored)


def room() -> int:
    """The bytes that may be thought to stay in the cache from one launch to the next."""
    return min(last_level_cache() or 1 << 25, _CACHE_PER_CPU * allowed_cpus())


@functools.cache
def last_level_cache() -> int:
    """The bytes of the processor's largest cache; 0 where the system does not say (only Linux does)."""
    import glob

    sizes = []
    for path in glob.glob("/sys/devices/system/cpu/cpu0/cache/index*/size"):
        with contextlib.suppress(OSError, ValueError), open(path) as file:
            sizes.append(int(file.read().strip().removesuffix("K")) << 10)
    return max(sizes, default=0)
