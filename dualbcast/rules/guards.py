"""Guards: the captures that a compiled function depends on, and whether they are unchanged.

A capture names a container, such as a scope, and a key in it, so that it can be read again and compared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import getitem
from types import CellType, FunctionType, MethodType
from typing import Any, NamedTuple

import numpy as np

# The value of a name in a scope that does not have it.
ABSENT = object()
# The operators that the class of a number may define in Python; some have a reflected form as well.
_OPERATORS = "add sub mul truediv floordiv mod pow neg pos abs lt le gt ge eq ne bool float int"
_METHODS = [f"__{side}{name}__" for name in _OPERATORS.split() for side in ("", "r")]


class Capture(NamedTuple):
    """An object that a function takes from its surroundings, and how to read it again.

    `place` is where it is: a scope, a closure's cell, a tuple, or (with `attribute`) an object that has it; `key` is
    the name or position there. `value` is the object that was there; it is `ABSENT` for a name that must not be in a
    scope, where it would hide a builtin one. `path` is how the user writes it: `slope`, `self.weights`, `np.pi`.
    """

    place: Any
    key: Any
    value: Any
    path: str
    attribute: bool = False

    def read(self) -> Any:
        """The object that is there now; raises an `Exception` if there is none any more."""
        if self.attribute:
            return getattr(self.place, self.key)
        return self.place.cell_contents if isinstance(self.place, CellType) else self.place[self.key]

    def holds(self) -> bool:
        """Whether the object that is there now leads to the same kernel."""
        if self.value is ABSENT:
            return self.key not in self.place
        try:
            current = self.read()
        except Exception:  # an attribute may be a property, and run anything
            return False
        return current is self.value or (type(current) is type(self.value) and _same(current, self.value))


@dataclass(frozen=True, slots=True, eq=False)
class ElementOf:
    """The place of the elements of a captured array: item `index` is the array of shape () that has that element."""

    array: Capture
    shape: tuple[int, ...]

    def __getitem__(self, index: Any) -> Any:
        array = self.array.read()
        if array.shape != self.shape:
            raise LookupError(f"{self.array.path} has another shape now")
        return array[(*index, ...)]


@dataclass(frozen=True, slots=True, eq=False)
class PartsOf:
    """The place of the parts of a captured array of complex numbers: items "real" and "imag"."""

    array: Capture

    def __getitem__(self, part: str) -> Any:
        return getattr(self.array.read(), part)

    def captures(self) -> tuple[Capture, ...]:
        """The captures of both parts."""
        whole = self.array.read()
        names = "real", "imag"
        return tuple([Capture(self, name, getattr(whole, name), f"{self.array.path}.{name}") for name in names])


@dataclass(frozen=True, slots=True, eq=False)
class KeysOf:
    """The place of the keys of a captured dictionary, which are item 0."""

    mapping: Any

    def __getitem__(self, _: int) -> tuple[Any, ...]:
        return tuple(self.mapping)


def reader(guard: Capture) -> Callable[[], Any]:
    """What reads a captured object as it is now."""
    if guard.attribute:
        return partial(getattr, guard.place, guard.key)
    if isinstance(guard.place, CellType):
        return partial(getattr, guard.place, "cell_contents")
    if guard.value is ABSENT:
        return partial(guard.place.get, guard.key, ABSENT)
    return partial(getitem, guard.place, guard.key)


def _same(a: Any, b: Any) -> bool:
    """Whether two objects of one type are the same number, text or tuple of such."""
    if isinstance(a, MethodType):  # each access makes another object
        return a.__func__ is b.__func__ and a.__self__ is b.__self__
    if isinstance(a, tuple):
        return len(a) == len(b) and all(type(x) is type(y) and _same(x, y) for x, y in zip(a, b, strict=True))
    # repr tells 0.0 from -0.0, and says that nan is nan.
    return a is b or (isinstance(a, bool | int | float | str | np.number) and repr(a) == repr(b))


def has_own_operators(number: object) -> bool:
    """Whether a number is of a class that defines operators in Python, which a kernel would leave out."""
    if type(number) in (bool, int, float):
        return False
    return any(isinstance(getattr(type(number), name, None), FunctionType) for name in _METHODS)
