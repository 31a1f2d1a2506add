"""Python's collector of cycles, made to wait while the compiler works.

It would look again and again through all that a compilation makes, little of which is garbage before the end, in up to
a tenth of the time of a first call.
"""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterator

__all__ = ["collected_later"]

# So many new objects before it looks. It is not switched off: whoever does that meanwhile finds it as they left it.
_NEVER = (1 << 31) - 1


@contextlib.contextmanager
def collected_later() -> Iterator[None]:
    """A block in which no garbage is collected; not even by other threads, which need no more memory for it."""
    block = object()
    try:
        _begin(block)
        yield
    finally:
        _end(block)


# Steps that any thread, or an interrupt, may come between: at worst something is collected during a compilation.
def _begin(block: object) -> None:
    global _usual
    _blocks.add(block)
    now = gc.get_threshold()
    if now[0] != _NEVER:
        _usual = now
        gc.set_threshold(_NEVER, *now[1:])


def _end(block: object) -> None:
    _blocks.discard(block)
    if not _blocks and gc.get_threshold()[0] == _NEVER:
        gc.set_threshold(*_usual)


def _forget() -> None:
    """In the child of a fork the threads that compiled are not there any more."""
    _blocks.clear()
    _end(None)


# The blocks that are entered, and the thresholds outside of them.
_blocks: set[object] = set()
_usual: tuple[int, ...] = gc.get_threshold()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
