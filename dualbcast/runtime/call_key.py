"""The key of a call's form, which many calls share, the addresses of its arrays, which are its own, and the fast paths
that calls leave for others of their form.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Hashable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy import ndarray

from dualbcast.runtime.arguments import STORAGES, WEAK, Array

# The types whose objects are numbers of one dtype, each with the form of its numbers. That is no bare type, since a
# dtype is equal to the type of its numbers.
_TYPES: tuple[type, ...] = (*WEAK, *[np.dtype(name).type for name in STORAGES.values()])
_NUMBERS = {kind: (kind,) for kind in _TYPES}

# Where a NumPy array has the address of its data: by NumPy's stable C ABI it comes first after the object's header.
HEADER = object.__basicsize__


def forms_of(values: tuple[Any, ...]) -> Hashable:
    """A key of the form of a call: an array's shape, strides and dtype, a number's type.

    Arguments with the same forms have the same signature and broadcast to the same shape. Where they `are_plain`, calls
    differ only in the arrays' contents and addresses.
    """
    # A flat tuple takes the least time to make, to hash and to compare. It is unambiguous: a NumPy array is as many
    # integers as it has lengths and strides, and then a dtype; anything else is a tuple.
    key: list[Any] = []
    for x in values:
        if type(x) is ndarray:
            key += x.shape
            key += x.strides
            key.append(x.dtype)
        else:
            key.append(_other_form(x))
    return tuple(key)


def _other_form(value: Any) -> tuple[Any, ...]:
    kind = type(value)
    number = _NUMBERS.get(kind)
    if number is not None:
        return number
    variable = getattr(value, "__form__", None)
    if variable is not None:  # a Variable of the graph
        return kind, variable
    cupy = sys.modules.get("cupy")
    if cupy is not None and kind is cupy.ndarray:
        return kind, value.shape, value.strides, value.dtype
    dtype = getattr(value, "dtype", None)
    lengths = [getattr(value, name, None) for name in ("shape", "strides")]
    known = dtype if isinstance(dtype, np.dtype) else None
    return kind, known, *[each if type(each) is tuple else None for each in lengths]


def are_plain(values: Sequence[object]) -> bool:
    """Whether all are NumPy arrays or numbers, of no other class."""
    return all(type(value) is ndarray or type(value) in _NUMBERS for value in values)


# `array.ctypes.data` and `__array_interface__` build objects and take 0.75 µs an array; a call has ten arrays.
_read_pointer = ctypes.c_size_t.from_address


def host_addresses(arrays: Sequence[Array]) -> tuple[int, ...]:
    """The addresses of the data of NumPy's arrays."""
    return tuple([_read_pointer(id(array) + HEADER).value for array in arrays])


def device_addresses(arrays: Sequence[Array]) -> tuple[int, ...]:
    """The addresses of CuPy arrays; 0 for numbers, which are on the host."""
    return tuple([0 if type(array) is ndarray else array.data.ptr for array in arrays])


_T = TypeVar("_T")
# The most entries of a table whose keys are forms of arrays: new forms may come without end.
_MOST_ENTRIES = 1024


class Recent(dict[Any, _T]):
    """A dict that begins anew when it is full."""

    def keep(self, key: Any, value: _T) -> _T:
        """Remember `value`."""
        if len(self) >= _MOST_ENTRIES:
            self.clear()
        self[key] = value
        return value


class FastPath(Protocol):
    """A kernel with all that calls of one form have in common, on any device; `results` is the caller's own object."""

    results: Any

    def run(self, values: tuple[Array, ...], out: tuple[Array, ...] = ()) -> Sequence[Array] | None:
        """Run the kernel on arguments of known forms; its outputs, or None where it cannot use them in place."""
