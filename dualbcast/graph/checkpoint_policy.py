"""Whether a recorded kernel keeps its Jacobian for the backward pass, or computes the derivatives anew there.

Both ways are costed: the bytes that each moves and the operations that it takes, at the speeds that were measured on
this machine. The model is coarse, since it only has to tell which is faster.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from dualbcast.graph.cost import count, work_of
from dualbcast.graph.machine import machine_of
from dualbcast.graph.tape import STATE
from dualbcast.graph.variable import Variable
from dualbcast.program.element import Element

__all__ = ["Decision", "decide"]

# What a scalar loop costs more than a vectorised one, for float32 and float64.
_SCALAR = {4: 10.0, 8: 6.0}
# Seconds for a launch: below that the two ways are the same.
_LAUNCH = 2e-5
# Operations, of the values alone, that with their derivatives take less than that on any machine.
_FEW = 1e4


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided for a kernel, and why.

    Attributes
    ----------
    keeps : bool
        Whether the Jacobian is kept.
    reason : str
    blocks : int
        Bytes of the Jacobian.
    bytes_kept, bytes_again : int
        What both passes together move, if it is kept and if it is computed anew.
    seconds_kept, seconds_again : float
        What both passes together are expected to take.
    """

    keeps: bool
    reason: str
    blocks: int = 0
    bytes_kept: int = 0
    bytes_again: int = 0
    seconds_kept: float = math.nan
    seconds_again: float = math.nan


def decide(
    element: Element, leaves: Sequence[Any], wrt: tuple[int, ...], shape: tuple[int, ...], dtype: np.dtype[Any]
) -> Decision:
    """Whether a kernel that is about to run should keep its Jacobian.

    Parameters
    ----------
    element : Element
        Its function.
    leaves : sequence
        The arguments: Variables and numbers.
    wrt : tuple of int
        Those that carry derivatives.
    shape : tuple of int
        What the arguments broadcast to.
    dtype : numpy.dtype
        Of the arithmetic.
    """
    mode = element.options.jacobian if STATE.jacobian == "auto" else STATE.jacobian
    if mode == "recompute":
        return Decision(False, 'jacobian="recompute"')
    if mode == "cache":
        return Decision(True, 'jacobian="cache"', count(element, wrt).blocks * math.prod(shape) * dtype.itemsize)
    if work_of(element) * math.prod(shape) <= _FEW:
        return _EITHER
    arrays = [leaf.array for leaf in leaves if isinstance(leaf, Variable)]
    reads = sum([array.nbytes for array in arrays])
    gradients = sum([leaves[at].array.nbytes for at in wrt])
    library = "numpy" if isinstance(arrays[0], np.ndarray) else "cupy"
    return _decide(element, wrt, math.prod(shape), dtype.itemsize, reads, gradients, library)


_EITHER = Decision(False, "so little is computed that either way takes as long as a launch")


@lru_cache(maxsize=1024)
def _decide(
    element: Element, wrt: tuple[int, ...], size: int, itemsize: int, reads: int, gradients: int, library: str
) -> Decision:
    machine = machine_of(library)
    counts = count(element, wrt)
    array = size * itemsize
    blocks, values, cotangents = counts.blocks * array, counts.outputs * array, counts.outputs * array
    again = [
        (reads, values, counts.value),
        (reads + cotangents, gradients, counts.pullback),
    ]
    kept = [
        (reads, values + blocks, counts.both),
        (blocks + cotangents, gradients, 2.0 * counts.blocks),
    ]
    slow = _SCALAR[max(4, min(8, itemsize))] if counts.scalar and library == "numpy" else 1.0

    def seconds(kernels: list[tuple[int, int, float]]) -> float:
        total = 0.0
        for place, (read, written, operations) in enumerate(kernels):
            # Contracting is always vectorised.
            factor = 1.0 if kernels is kept and place == 1 else slow
            total += machine.seconds(read, written, size * operations * factor, itemsize)
        return total

    moved_again, moved_kept = (sum(read + written for read, written, _ in way) for way in (again, kept))
    seconds_again, seconds_kept = seconds(again), seconds(kept)
    known = (blocks, moved_kept, moved_again, seconds_kept, seconds_again)
    if blocks > machine.free() // 2:
        return Decision(False, "the Jacobian would take more than half of the free memory", *known)
    if seconds_again <= seconds_kept + _LAUNCH:
        return Decision(False, "computing the derivatives again is cheaper than writing and reading them", *known)
    return Decision(True, "the derivatives cost more to compute again than to write and read", *known)
