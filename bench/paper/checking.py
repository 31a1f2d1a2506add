"""Derivatives of the HM-LSTM cell update held against a float64 reference, in units in the last place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.paper.models import Array, cell_update_reference
from dualbcast.cli.checking import BLOCK_ELEMENTS, judge, row_blocks

__all__ = ["CellReference"]

_COMPARED_ELEMENTS = 1 << 22  # at most


class CellReference:
    """The right results of the HM-LSTM update in float64: its partials in (c, f, i, g), or its value and cotangents.

    Parameters
    ----------
    arguments : sequence of six arrays
        c, f, i, g of one shape, and z and zb, which broadcast to it.
    cotangent : array, optional
        The cotangent of the value. With it the results are the value and the cotangents, else the partials alone.

    Notes
    -----
    At most 2²² elements are compared: of larger arrays blocks of rows, spread from the first row to the last.
    """

    def __init__(self, arguments: Sequence[NDArray[Any]], cotangent: NDArray[Any] | None = None) -> None:
        shape = arguments[0].shape
        full = [np.broadcast_to(argument, shape) for argument in arguments]
        self.elements = 0
        self._parts: list[tuple[slice, list[tuple[str, Array, Array]]]] = []
        for rows in _spread(list(row_blocks(shape)), _COMPARED_ELEMENTS // BLOCK_ELEMENTS):
            exact, partials = cell_update_reference(*(argument[rows].astype(np.float64) for argument in full))
            scales = [np.maximum(1, np.abs(partial)) for partial in partials]
            names = [f"∂/∂{name}" for name in "cfig"]
            judged = list(zip(names, partials, scales, strict=True))
            if cotangent is not None:
                bar = cotangent[rows].astype(np.float64)
                size = np.maximum(1, np.abs(bar))
                judged = [(f"the cotangent of {name[-1]}", bar * one, size * scale) for name, one, scale in judged]
                judged.insert(0, ("the value", exact, np.maximum(1, np.abs(exact))))
            self._parts.append((rows, judged))
            self.elements += exact.size

    def check(self, results: Sequence[Any], host: Callable[[Any], NDArray[Any]], tolerance: float, who: str) -> float:
        """The largest |result - reference| in units of eps · max(1, |reference|), and of the cotangent if that is more.

        Parameters
        ----------
        results : sequence of 2-d arrays
        host : callable
            Makes a NumPy array of rows of one of them.
        tolerance : float
            The largest error allowed.
        who : str
            The implementation that computed them, for the message.

        Raises
        ------
        CheckError
            If an error exceeds the tolerance.
        """
        worst = 0.0
        for rows, judged in self._parts:
            for result, (name, reference, scale) in zip(results, judged, strict=True):
                worst = max(worst, judge(f"{name} ({who})", host(result[rows]), reference, scale, tolerance))
        return worst


def _spread(blocks: Sequence[slice], count: int) -> list[slice]:
    """At most `count` of the blocks, spread evenly, the first and the last among them."""
    if len(blocks) <= count:
        return list(blocks)
    return [blocks[at] for at in np.linspace(0, len(blocks) - 1, count).round().astype(int)]
