"""The cost of kernels, counted in their IR.

Comes in: an element function. Goes out: the operations for an element, of its values and its derivatives.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

from dualbcast.autodiff.operation_cost import cost_of_element as work
from dualbcast.passes.vectorization import is_scalar
from dualbcast.program.element import Element
from dualbcast.program.products import make_product

__all__ = ["Counts", "count", "work", "work_of"]


class Counts(NamedTuple):
    """The cost of an element: of an element function, and of its derivatives in some parameters.

    Attributes
    ----------
    value, both, pullback : float
        Operations for the value, for value and Jacobian, and for the pullback, in units of an addition.
    blocks, outputs : int
        The number of entries of the Jacobian that vary, and the number of outputs.
    scalar : bool
        Whether something in it, such as a loop of its own, keeps the loop over elements from being vectorised.
    """

    value: float
    both: float
    pullback: float
    blocks: int
    outputs: int
    scalar: bool


@lru_cache(maxsize=1024)
def work_of(element: Element) -> float:
    """The operations for the values of an element, or infinity if they are not vectorised; no derivative is counted."""
    return math.inf if is_scalar(element.function) else work(element.function)


@lru_cache(maxsize=1024)
def count(element: Element, wrt: tuple[int, ...]) -> Counts:
    """The counts of an element function and of its derivatives in the parameters at `wrt`."""
    value = make_product(element.function, "value", ()).function
    both = make_product(element.function, "value_and_jacobian", wrt)
    pullback = element.derive("pullback", wrt).function
    outputs = len(element.function.outputs)
    return Counts(
        work(value), work(both.function), work(pullback), len(both.kinds) - both.values, outputs, is_scalar(value)
    )
