"""One way to compute the derivatives of the HM-LSTM cell update, as all that are compared are described."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from numpy.typing import NDArray

__all__ = ["ITEM", "MODES", "WRT", "Implementation", "Mode"]

Mode = Literal["derivatives", "value and pullback"]
MODES: tuple[Mode, ...] = ("derivatives", "value and pullback")
WRT = ("c", "f", "i", "g")
ITEM = 4  # bytes of a float32


@dataclass(frozen=True)
class Implementation:
    """One way to compute the update's derivatives.

    Attributes
    ----------
    name : str
    prepare : callable
        Takes the arrays c, f, i, g, z, zb and, for the pullback, the cotangent; returns a call. The call returns the
        results of the mode: the partials, or the value and the cotangents.
    moved : int or None
        The bytes that it reads and writes, where that is known.
    launches : callable
        Returns the number of kernels of a call, after a call; None where that is not known.
    tolerance : float
        The largest error, in ulp, that its results may have.
    wait : callable, optional
        Waits for all calls, for a runtime with streams of its own. Such calls are timed by the clock.
    host : callable
        Takes a part of a result; returns it as a NumPy array.
    is_peer : bool
        Whether it is a framework's. A framework that fails is left out, and the output says so.
    """

    name: str
    prepare: Callable[[Sequence[Any]], Callable[[], Sequence[Any]]]
    moved: int | None
    launches: Callable[[], int | None]
    tolerance: float
    wait: Callable[[], object] | None
    host: Callable[[Any], NDArray[Any]]
    is_peer: bool = False
