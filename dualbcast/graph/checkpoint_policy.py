"""Whether a recorded kernel keeps its Jacobian for the backward pass, or computes the derivatives anew there.

Comes in: the element function of a kernel and its arguments. Goes out: a decision for the way that a roofline model
expects to be faster. The ratios of the model are fixed, so the same program chooses the same on every run.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from dualbcast.graph.cost import count, work_of
from dualbcast.graph.tape import STATE
from dualbcast.graph.variable import Variable
from dualbcast.program.element import Element
from dualbcast.runtime.buffer_pool import total_memory

__all__ = ["Decision", "decide"]


@dataclass(frozen=True, slots=True)
class _Roofline:
    """The ratios of a kind of device.

    Attributes
    ----------
    balance4, balance8 : float
        The vectorised additions that it computes in the time in which it moves a byte, in float32 and float64.
    launch : float
        The bytes that it moves in the time that a launch takes: a smaller difference decides nothing.
    scalar4, scalar8 : float
        The factor by which a loop takes longer if it is not vectorised.
    """

    balance4: float
    balance8: float
    launch: float
    scalar4: float = 1.0
    scalar8: float = 1.0

    def cost(self, moved: int, operations: float, itemsize: int, is_scalar: bool) -> float:
        """The time of a kernel, in bytes moved: it moves its arrays or computes, and the longer of the two counts."""
        balance, scalar = (self.balance8, self.scalar8) if itemsize == 8 else (self.balance4, self.scalar4)
        return max(moved, operations / balance * (scalar if is_scalar else 1.0))


# By array library; see docs/decisions/060-fixed-roofline.md for the figures behind them.
_ROOFLINES = {
    "numpy": _Roofline(balance4=1.5, balance8=0.75, launch=2.5e5, scalar4=10.0, scalar8=6.0),
    "cupy": _Roofline(balance4=10.0, balance8=5.0, launch=2e7),
}
# A Jacobian that takes more than this part of all memory is not kept.
_MEMORY_SHARE = 1 / 4
# So many operations for the values take, with their derivatives, less time than a launch on any machine.
_NEGLIGIBLE = 1e4


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision for a kernel.

    Attributes
    ----------
    keeps : bool
        Whether the Jacobian is kept.
    reason : str
    blocks : int
        Bytes of the Jacobian.
    """

    keeps: bool
    reason: str
    blocks: int = 0


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
        The positions of the arguments that carry derivatives.
    shape : tuple of int
        The shape that the arguments broadcast to.
    dtype : numpy.dtype
        The dtype of the arithmetic.
    """
    mode = element.options.jacobian if STATE.jacobian == "auto" else STATE.jacobian
    if mode == "recompute":
        return Decision(False, 'jacobian="recompute"')
    if mode == "cache":
        return Decision(True, 'jacobian="cache"', count(element, wrt).blocks * math.prod(shape) * dtype.itemsize)
    if work_of(element) * math.prod(shape) <= _NEGLIGIBLE:
        return _EITHER
    arrays = [leaf.array for leaf in leaves if isinstance(leaf, Variable)]
    read = sum([array.nbytes for array in arrays])
    gradients = sum([leaves[at].array.nbytes for at in wrt])
    library = "numpy" if isinstance(arrays[0], np.ndarray) else "cupy"
    return _decide(element, wrt, math.prod(shape), dtype.itemsize, read, gradients, library)


_EITHER = Decision(False, "so little is computed that either way takes as long as a launch")


@lru_cache(maxsize=1024)
def _decide(
    element: Element, wrt: tuple[int, ...], size: int, itemsize: int, read: int, gradients: int, library: str
) -> Decision:
    roofline, counts = _ROOFLINES[library], count(element, wrt)
    blocks, outputs = counts.blocks * size * itemsize, counts.outputs * size * itemsize

    def cost(moved: int, operations: float, is_scalar: bool) -> float:
        return roofline.cost(moved, operations * size, itemsize, is_scalar)

    # The forward pass writes the outputs, the backward pass reads their cotangents. A contraction is always vectorised.
    anew = cost(read + outputs, counts.value, counts.scalar)
    anew += cost(read + outputs + gradients, counts.pullback, counts.scalar)
    kept = cost(read + outputs + blocks, counts.both, counts.scalar)
    kept += cost(blocks + outputs + gradients, 2.0 * counts.blocks, False)
    if blocks > _MEMORY_SHARE * _memory(library):
        return Decision(False, f"the Jacobian would take more than {_MEMORY_SHARE:.0%} of the memory", blocks)
    if anew <= kept + roofline.launch:
        return Decision(False, "computing the derivatives again is cheaper than writing and reading them", blocks)
    return Decision(True, "the derivatives cost more to compute again than to write and read", blocks)


def _memory(library: str) -> int:
    """The bytes of memory of the device that arrays of a library are on."""
    return total_memory() if library == "numpy" else int(sys.modules["cupy"].cuda.Device().mem_info[1])
