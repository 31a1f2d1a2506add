"""A Python function lowered for what is known of its arguments, with what it captures; how `out=` is read."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np

from dualbcast.call import Options, Specialised
from dualbcast.compiler.frontend import Lowered
from dualbcast.element import Element
from dualbcast.errors import ArgumentError, DTypeError
from dualbcast.jacobian import Jacobian
from dualbcast.located import Derived
from dualbcast.products import Which
from dualbcast.runtime.operands import Signature, array_kind
from dualbcast.structure import Structure

__all__ = ["Variant", "flatten_out", "is_dtype", "stand_in"]


class Variant:
    """A function lowered for one form of call and the kinds of its arrays, with its products so far.

    Attributes
    ----------
    element : Element
        Of the arrays of the call and then the captured ones.
    captures : tuple of Capture
        Where the captured arrays are.
    products : dict
        The products by what is computed, dtypes and `wrt` as it is written.
    positions : dict
        What `wrt` means, by dtypes and as it is written.
    derived : dict
        The `Derived` of its calls, by what it is, dtypes and positions.
    """

    __slots__ = ("_guards", "_kinds", "captures", "derived", "element", "positions", "products")

    def __init__(self, lowered: Lowered, names: tuple[str, ...], label: str, options: Options) -> None:
        self.element = Element(lowered.function, (*names, *lowered.arrays), label, options)
        self._guards = lowered.guards
        # The arrays found then are not kept: they may be large, and others may take their place.
        self.captures = tuple(replace(capture, value=None) for capture in lowered.arrays.values())
        self._kinds = tuple(param.kind for param in lowered.function.params[len(names) :])
        self.products: dict[tuple[Any, ...], Specialised] = {}
        self.positions: dict[tuple[Signature, Any], tuple[int, ...]] = {}
        self.derived: dict[tuple[Any, ...], Derived] = {}

    def holds(self) -> bool:
        """Whether what was compiled in is still so."""
        return all(guard.holds() for guard in self._guards)

    def captured(self) -> tuple[Any, ...] | None:
        """The captured arrays as they are now; None where the function must be lowered anew for them."""
        try:
            arrays = tuple([capture.read() for capture in self.captures])
        except Exception:  # a name is gone; or a property raises, which the front end reports at its line
            return None
        return arrays if tuple(map(array_kind, arrays)) == self._kinds else None


def flatten_out(which: Which, out: Any, structure: Structure) -> Any:
    """The arrays of `out=` in the order in which the kernel stores them; None stands for one to be allocated."""
    if out is None:
        return None
    if which == "value":
        # What is no such structure is refused later, with the other things that an array can have wrong.
        return structure.flatten(out, "out=") if structure.holds(out) else out
    if not (isinstance(out, tuple) and len(out) == 2 and isinstance(out[1], Jacobian)):
        raise ArgumentError("out= must be the pair (value, Jacobian) that an earlier call returned")
    return (*structure.flatten(out[0], "the value in out="), *out[1]._stored)


def stand_in(value: Any, shape: tuple[int, ...] | None = None, module: str = "numpy") -> Any:
    """For a dtype that is given in an array's place a contiguous array; without a shape a number, which suits any."""
    if not is_dtype(value):
        return value
    try:
        if value == "bfloat16":
            import ml_dtypes  # registers the name with NumPy

            value = ml_dtypes.bfloat16
        if shape is None:
            return np.zeros((), value)[()]
        return sys.modules[module].empty(shape, value)
    except TypeError:
        raise DTypeError(f"{value!r} is no dtype; give arrays, or dtypes such as 'float32'") from None


def is_dtype(value: Any) -> bool:
    """Whether an argument is a dtype, or should be one."""
    return isinstance(value, str | type | np.dtype)
