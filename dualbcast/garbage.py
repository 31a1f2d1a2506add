"""Python's collector of cycles, made to wait while the compiler works: it would look again and again through all that
a compilation makes, little of which is garbage before the end, in up to a tenth of the time of a first call."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from typing import ParamSpec, TypeVar

__all__ = ["collected_later"]

_P = ParamSpec("_P")
_R = TypeVar("_R")


def collected_later(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """The function, in whose calls no garbage is collected; not even by other threads, that need no more for it."""

    @functools.wraps(function)
    def waited(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if not gc.isenabled():
            return function(*args, **kwargs)
        gc.disable()
        try:
            return function(*args, **kwargs)
        finally:
            gc.enable()

    return waited
