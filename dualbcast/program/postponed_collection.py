"""Python's collector of reference cycles waits while something is compiled, which makes little garbage before its end.

It would look through all that a compilation makes again and again, in up to a tenth of the time of a first call.
"""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterator

__all__ = ["collection_postponed"]

# The number of new objects after which it collects. It is not switched off: the program may do that meanwhile.
_NEVER = (1 << 31) - 1
_usual_thresholds: tuple[int, ...] | None = None


@contextlib.contextmanager
def collection_postponed() -> Iterator[None]:
    """A block in which no thread collects garbage, or until the end of another such block that had begun before."""
    global _usual_thresholds
    thresholds = gc.get_threshold()
    if thresholds[0] == _NEVER:
        yield
        return
    try:
        _usual_thresholds = thresholds
        gc.set_threshold(_NEVER, *thresholds[1:])
        yield
    finally:
        _resume()


def _resume() -> None:
    global _usual_thresholds
    thresholds, _usual_thresholds = _usual_thresholds, None
    # Otherwise somebody has set others meanwhile.
    if thresholds is not None and gc.get_threshold()[0] == _NEVER:
        gc.set_threshold(*thresholds)


if hasattr(os, "register_at_fork"):
    # The child has none of the other threads, one of which may have been in a block.
    os.register_at_fork(after_in_child=_resume)
