"""How long the elements of a kernel take, and which launches are work for several threads."""

from __future__ import annotations

from time import perf_counter_ns

from dualbcast.runtime.cpu import thread_pool

__all__ = ["ALIGNMENT", "RANGE_NS", "THREAD_NS", "Pace", "is_always_short", "is_worth_threads"]

# Nanoseconds of work that are worth a thread which looks for work: it comes within two microseconds. To wake a thread
# that sleeps takes the caller 12 microseconds, and the thread comes after 10 to 100: that takes several times the work.
THREAD_NS = 12_000
_WAKING_FACTOR = 8
# The least nanoseconds that a range of elements should take, if there are two.
RANGE_NS = 10_000
# Elements times pointers of the range that is run first where the pace is not known: the cost of an element varies a
# thousandfold. These take some microseconds at least.
_PROBE = 1 << 16
# Ranges begin at a multiple of this many elements of a row: more than a vectorised loop advances in one step, so that
# which elements go through vector code, and with it every bit of the result, does not depend on the number of threads.
ALIGNMENT = 256


class Pace:
    """The pace of a kernel.

    Attributes
    ----------
    element : float or None
        The nanoseconds that an element took a thread lately; None if that is not known.
    short : int
        A launch of so many elements or fewer is no work for several threads.
    is_warm : bool
        Whether the kernel has run on few elements.
    """

    __slots__ = ("_pointers", "element", "is_warm", "short")

    def __init__(self, pointers: int) -> None:
        self._pointers = pointers
        self.element: float | None = None
        self.short, self.is_warm = 2 * self.probe, False

    @property
    def probe(self) -> int:
        """The number of elements that are run first where the pace is not known."""
        return max(ALIGNMENT, _PROBE // self._pointers)

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
        self.learn(element if self.element is None or took >= THREAD_NS else min(element, self.element))


def is_always_short(total: int) -> bool:
    """Whether so many elements are never work for several threads, at any pace: there would be one range."""
    return total < 2 * ALIGNMENT


def is_worth_threads(work: float) -> bool:
    """Whether so many nanoseconds of work are worth other threads: one that looks for work, or else to wake one.

    If launches take as long as what is between them, the next ones will find it awake.
    """
    if work < THREAD_NS:
        return False
    return thread_pool.is_watched() or work >= min(_WAKING_FACTOR * THREAD_NS, perf_counter_ns() - _last_end)


# When the last launch ended, on the clock of `perf_counter_ns`.
_last_end = 0
