"""The operations of the graph by name: each registers itself, and the operators and methods of Variable look it up.

So `Variable` imports no operation, and every operation may import `Variable`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import numpy as np

from dualbcast.graph.arrays import is_array

__all__ = ["OPERATIONS", "operators", "registered"]

Function = TypeVar("Function", bound=Callable[..., Any])
Method: TypeAlias = Callable[[Any, Any], Any]

# Operations that are called by operators have the names of NumPy's ufuncs.
OPERATIONS: dict[str, Callable[..., Any]] = {}

# The operands of operators, beside Variables and arrays of CuPy's.
_OPERANDS = (np.ndarray, np.generic, int, float)


def registered(operation: Function) -> Function:
    """Enter an operation into the table; a decorator."""
    OPERATIONS[operation.__name__] = operation
    return operation


def operators(name: str) -> tuple[Method, Method]:
    """The methods of Variable for a binary operator: with the other operand on the right, and with it on the left.

    They refuse all but operands, which gives Python the chance to ask the other object.
    """

    def left(self: Any, other: Any) -> Any:
        if type(other) is type(self) or isinstance(other, _OPERANDS) or is_array(other):
            return OPERATIONS[name](self, other)
        return NotImplemented

    def right(self: Any, other: Any) -> Any:
        if type(other) is type(self) or isinstance(other, _OPERANDS) or is_array(other):
            return OPERATIONS[name](other, self)
        return NotImplemented

    return left, right
