"""Python's collector of cycles, made to wait while the compiler works: it would look again and again through all that
a compilation makes, little of which is garbage before the end, in up to a tenth of the time of a first call."""

from __future__ import annotations

import functools
import gc
import os
from collections.abc import Callable
from typing import ParamSpec, TypeVar

__all__ = ["collected_later"]

_P = ParamSpec("_P")
_R = TypeVar("_R")

# So many new objects before it looks. It is not switched off: whoever does that meanwhile finds it as they left it.
_NEVER = (1 << 31) - 1


def collected_later(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """The function, in whose calls no garbage is collected; not even by other threads, that need no more for it."""

    @functools.wraps(function)
    def waited(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        call = object()
        try:
            _begin(call)
            return function(*args, **kwargs)
        finally:
            _end(call)

    return waited


# Steps that any thread, or an interrupt, may come between: at worst something is collected during a compilation.
def _begin(call: object) -> None:
    global _usual
    _calls.add(call)
    now = gc.get_threshold()
    if now[0] != _NEVER:
        _usual = now
        gc.set_threshold(_NEVER, *now[1:])


def _end(call: object) -> None:
    _calls.discard(call)
    if not _calls and gc.get_threshold()[0] == _NEVER:
        gc.set_threshold(*_usual)


def _forget() -> None:
    """In the child of a fork the threads that compiled are not there any more."""
    _calls.clear()
    _end(None)


# The calls that it waits for, and how often it looked before.
_calls: set[object] = set()
_usual: tuple[int, ...] = gc.get_threshold()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
