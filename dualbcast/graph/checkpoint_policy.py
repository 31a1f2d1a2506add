"""The decision whether a recorded kernel keeps its Jacobian, or the backward pass computes the derivatives anew.

Comes in: the element function of a kernel and its arguments. Goes out: a decision for the way that a roofline model
expects to be faster. The ratios of the model are fixed, so the same program chooses the same on every run.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dualbcast.graph.primitives import tracked_positions
from dualbcast.graph.tape import STATE
from dualbcast.graph.variable import Variable
from dualbcast.ir.traversal import statements
from dualbcast.passes.cost_model import cost_of_element
from dualbcast.passes.vector_analysis import is_scalar
from dualbcast.program.element import Element
from dualbcast.program.products import Keeping, make_product
from dualbcast.runtime.buffer_pool import total_memory


class Cost(NamedTuple):
    """The cost of an element: of an element function, and of its pullback to some parameters."""

    # Operations, in units of an addition.
    value: float
    pullback: float
    # The number of outputs.
    outputs: int
    # Whether an operation or a loop in it keeps the loop over elements from being vectorised.
    scalar: bool
    # The statements of the pullback: its size as a program, whatever its loops cost.
    statements: int


@lru_cache(maxsize=1024)
def cost_of(element: Element, wrt: tuple[int, ...]) -> Cost:
    """The cost of an element function and of its pullback to the parameters at `wrt`."""
    value = make_product(element.function, "value", ()).function
    pullback = element.derive("pullback", wrt).function
    costs = cost_of_element(value), cost_of_element(pullback)
    return Cost(*costs, len(element.function.outputs), is_scalar(value), len(statements(pullback.body)))


@lru_cache(maxsize=1024)
def jacobian_of(element: Element, wrt: tuple[int, ...]) -> tuple[float, int]:
    """The operations of an element's value and Jacobian, and the number of entries of the Jacobian that vary."""
    both = make_product(element.function, "value_and_jacobian", wrt)
    return cost_of_element(both.function), len(both.kinds) - both.values


@lru_cache(maxsize=1024)
def _cost_of_values(element: Element) -> float:
    """The operations for the values of an element, or infinity if they are not vectorised: enough for small kernels."""
    return math.inf if is_scalar(element.function) else cost_of_element(element.function)


class _Roofline(NamedTuple):
    """The ratios of a kind of device, in pairs for float32 and float64."""

    # The vectorised additions that it computes in the time in which it moves a byte.
    balance: tuple[float, float]
    # The factor by which a loop takes longer if it is not vectorised.
    scalar: tuple[float, float]
    # The bytes that it moves in the time that a launch takes: a smaller difference decides nothing.
    launch: float


# By array library; see docs/decisions/060-fixed-roofline.md for the figures behind them.
_ROOFLINES = {
    "numpy": _Roofline(balance=(1.5, 0.75), scalar=(10.0, 6.0), launch=2.5e5),
    "cupy": _Roofline(balance=(10.0, 5.0), scalar=(1.0, 1.0), launch=2e7),
}
# A Jacobian that takes a larger share of all memory is not kept.
_MEMORY_SHARE = 1 / 4
# Statements of a pullback. It takes seconds to write the Jacobian of such a program, only to count its operations.
_LARGE_PROGRAM = 5000
# If the values take no more operations, they take less time than a launch on any machine, with their derivatives.
_NEGLIGIBLE = 1e4


class Decision(NamedTuple):
    """Whether a kernel keeps its Jacobian, why, and how many bytes the Jacobian takes."""

    keeps: bool
    reason: str
    blocks: int = 0


_EITHER = Decision(False, "so little is computed that either way takes as long as a launch")
_CHEAPER = "computing the derivatives again is cheaper than writing and reading them"


def decide(element: Element, leaves: Sequence[Any], shape: tuple[int, ...], dtype: np.dtype[Any]) -> Decision:
    """Whether a kernel that computes in `dtype`, from leaves that broadcast to `shape`, should keep its Jacobian."""
    mode: Any = element.options.jacobian if STATE.jacobian == "auto" else STATE.jacobian
    size = math.prod(shape)
    decision = decide_without_sizes(element, size, mode)
    if decision is not None:
        return decision
    arrays = [leaf.array if isinstance(leaf, Variable) else None for leaf in leaves]
    return decide_by_sizes(element, tracked_positions(leaves), arrays, size, dtype, mode)


def decide_without_sizes(element: Element, size: int, mode: Keeping) -> Decision | None:
    """The decision for `size` elements, if it does not depend on what is read and written."""
    if mode == "recompute":
        return Decision(False, 'jacobian="recompute"')
    if mode == "auto" and _cost_of_values(element) * size <= _NEGLIGIBLE:
        return _EITHER
    return None


def decide_by_sizes(
    element: Element, wrt: tuple[int, ...], arrays: Sequence[Any], size: int, dtype: np.dtype[Any], mode: Keeping
) -> Decision:
    """The decision for derivatives in the arguments at `wrt`; `arrays` are the arguments, with None for a number."""
    present = [array for array in arrays if array is not None]
    is_on_host = isinstance(present[0], np.ndarray)
    moved = sum([array.nbytes for array in present]), sum([arrays[at].nbytes for at in wrt])
    if mode == "cache":
        return Decision(True, 'jacobian="cache"', jacobian_of(element, wrt)[1] * size * dtype.itemsize)
    decision = compare(element, wrt, size, dtype.itemsize, *moved, "numpy" if is_on_host else "cupy")
    if not decision.keeps:
        return decision
    memory = total_memory() if is_on_host else int(sys.modules["cupy"].cuda.Device().mem_info[1])
    if decision.blocks > _MEMORY_SHARE * memory:
        return Decision(False, f"the Jacobian would take more than {_MEMORY_SHARE:.0%} of the memory", decision.blocks)
    return decision


def compare(
    element: Element, wrt: tuple[int, ...], size: int, itemsize: int, read: int, gradients: int, library: str
) -> Decision:
    """Whether it is faster to keep the Jacobian in the parameters at `wrt` than to compute it again.

    There are `size` elements, and results of so many bytes each; arguments have so many bytes to `read`, and their
    `gradients` so many. The `library` of the arrays tells the kind of device.
    """
    cost = cost_of(element, wrt)
    outputs = cost.outputs * size * itemsize
    roofline = _ROOFLINES[library]
    vectorised = size / roofline.balance[itemsize == 8]
    computed = vectorised * (roofline.scalar[itemsize == 8] if cost.scalar else 1.0)
    # In bytes moved: a kernel moves its arrays or computes, and the longer of the two counts. The forward pass writes
    # the outputs, the backward pass reads their cotangents. A contraction is always vectorised.
    value = max(read + outputs, cost.value * computed)
    anew = value + max(read + outputs + gradients, cost.pullback * computed)
    if cost.statements > _LARGE_PROGRAM:
        return Decision(False, "they are a large program, which is not compiled twice to save the values alone")
    # If a Jacobian that cost nothing were no gain, its program is not made.
    if anew <= value + outputs + gradients + roofline.launch:
        return Decision(False, _CHEAPER)
    both, entries = jacobian_of(element, wrt)
    blocks = entries * size * itemsize
    stored = max(read + outputs + blocks, both * computed)
    stored += max(blocks + outputs + gradients, 2.0 * entries * vectorised)
    if anew <= stored + roofline.launch:
        return Decision(False, _CHEAPER, blocks)
    return Decision(True, "the derivatives cost more to compute again than to write and read", blocks)
