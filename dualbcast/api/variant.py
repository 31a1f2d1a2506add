"""A Python function lowered for what is known of its arguments, with what it captures."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from dualbcast.api.dispatch import Derived
from dualbcast.errors import DTypeError
from dualbcast.frontend.lower import Lowered
from dualbcast.program.element import Element
from dualbcast.program.launch import Options
from dualbcast.rules.guards import ABSENT
from dualbcast.runtime.arguments import array_kind

__all__ = ["Variant", "is_dtype", "stand_in"]


class Variant:
    """A function lowered for one form of call and the kinds of its arrays, with its products so far.

    Attributes
    ----------
    element : Element
        Of the arrays of the call and then the captured ones.
    captures : tuple of Capture
        Where the captured arrays are.
    derived : dict
        The `Derived` of its calls, by what it is, dtypes and positions.
    """

    __slots__ = ("_codes", "_guards", "_kinds", "_names", "captures", "derived", "element")

    def __init__(self, lowered: Lowered, names: tuple[str, ...], label: str, options: Options) -> None:
        self.element = Element(lowered.function, (*names, *lowered.arrays), label, options)
        # Names in scopes and functions' code, which most are, are looked at here, as this happens at every call.
        names_in_scopes, codes, others = [], [], []
        for guard in lowered.guards:
            if guard.attribute and guard.key == "__code__":
                codes.append((guard.place, guard.value))
            elif type(guard.place) is dict and not guard.attribute:
                names_in_scopes.append((guard.place, guard.key, guard.value, guard))
            else:
                others.append(guard)
        self._names, self._codes, self._guards = tuple(names_in_scopes), tuple(codes), tuple(others)
        # The arrays found then are not kept: they may be large, and others may take their place.
        self.captures = tuple(capture._replace(value=None) for capture in lowered.arrays.values())
        self._kinds = tuple(param.kind for param in lowered.function.params[len(names) :])
        self.derived: dict[tuple[Any, ...], Derived] = {}

    def captured(self) -> tuple[Any, ...] | None:
        """The captured arrays as they are now; None where the function must be lowered anew, because what was compiled
        in is no longer so, or for those arrays."""
        for place, key, value, guard in self._names:
            if place.get(key, ABSENT) is not value and not guard.holds():
                return None
        for function, code in self._codes:
            if function.__code__ is not code:
                return None
        for guard in self._guards:
            if not guard.holds():
                return None
        if not self.captures:
            return ()
        try:
            arrays = tuple([capture.read() for capture in self.captures])
        except Exception:  # a name is gone; or a property raises, which the front end reports at its line
            return None
        return arrays if tuple(map(array_kind, arrays)) == self._kinds else None


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
