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
        From the arrays c, f, i, g, z, zb and, for the pullback, the cotangent, a call; it gives a list of what the mode
        asks for: the partials, or the value and the cotangents.
    moved : int or None
        The bytes that it reads and writes, where that is known: arrays whole, but for loads in branches.
    launches : callable
        Gives the number of kernels of a call, once it has been made; None where that is not known.
    tolerance : float
        The largest error, in ulp, that its results may have.
    wait : callable, optional
        For what runs on streams of its own: waits for all calls. Such calls are timed by the clock on the wall.
    host : callable
        A part of a result as a NumPy array.
    is_peer : bool
        Whether it is a framework's: one that fails is left out, and said to be.
    """

    name: str
    prepare: Callable[[Sequence[Any]], Callable[[], Sequence[Any]]]
    moved: int | None
    launches: Callable[[], int | None]
    tolerance: float
    wait: Callable[[], object] | None
    host: Callable[[Any], NDArray[Any]]
    is_peer: bool = False
