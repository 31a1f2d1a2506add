"""What calls of one form have in common, and what each has for itself: the key of a form, and addresses."""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Hashable, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy import ndarray

from dualbcast.runtime.arguments import STORAGES, WEAK, Array
from dualbcast.runtime.cpu.array_headers import HEADER, Readers, readers

__all__ = ["are_plain", "device_addresses", "forms_of", "host_addresses"]

# The types whose objects are numbers of one dtype.
_NUMBERS: frozenset[type] = frozenset({*WEAK, *[np.dtype(name).type for name in STORAGES.values()]})

# The type of CuPy's arrays once there are any: machine code need not be asked to describe them, which it does not.
_on_device: type | None = None


def forms_of(values: tuple[Any, ...]) -> Hashable:
    """What calls of one form have in common, as a key: an array's shape, strides and dtype, a number's type.

    Arguments with the same forms have the same signature and broadcast to the same shape; and where they `are_plain`,
    everything else about a call is the same, too, but what is in the arrays and where they are.
    """
    global _on_device
    own = _on_device
    if own is None or not values or type(values[0]) is not own:
        found = _described(values) if _readers is None else _readers.describe(values)
        if found:
            return found
        cupy, own = sys.modules.get("cupy"), ndarray
        if cupy is not None and values and type(values[0]) is cupy.ndarray:
            own = _on_device = cupy.ndarray
    key: list[Any] = [own]
    for x in values:
        if type(x) is own:
            key += (x.shape, x.strides, x.dtype)
        else:
            key.append(_other_form(x))
    return tuple(key)


# NumPy's own dtypes in native byte order, of which there is one object each, for ever. (Some have two characters.)
_OWN = [np.dtype(character) for character in "df?e" + np.typecodes["AllInteger"]]
_KNOWN = {*map(id, _OWN)}
_readers: Readers | None = None
# Calls described before machine code for it is made: that takes longer than they do, and many processes make few.
_FEW = 20
_calls = 0


def _described(values: tuple[Any, ...]) -> bytes:
    """What `Readers.describe` gives."""
    global _calls, _readers
    _calls += 1
    if _calls > _FEW:
        _readers = readers(ndarray, _OWN, (*reversed(WEAK), *_NUMBERS.difference(WEAK)))
    words: list[int] = []
    for value in values:
        kind = type(value)
        if kind is ndarray and id(value.dtype) in _KNOWN:
            words += [id(value.dtype), value.ndim, *chain(*zip(value.shape, value.strides, strict=True))]
        elif kind in _NUMBERS:
            words.append(id(kind))
        else:
            return b""
    return struct.pack(f"{len(words)}q", *words)


def _other_form(value: Any) -> Any:
    kind = type(value)
    if kind in _NUMBERS:
        return kind
    own = getattr(value, "__form__", None)
    if own is not None:  # a Variable of the graph
        return kind, own
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


def host_addresses(arrays: tuple[Array, ...]) -> tuple[int, ...]:
    """Of NumPy's arrays."""
    found = None if _readers is None else _readers.locate(arrays)
    if found:
        return struct.unpack(f"{len(arrays)}q", found)
    return tuple([_read_pointer(id(array) + HEADER).value for array in arrays])


def device_addresses(arrays: Sequence[Array]) -> tuple[int, ...]:
    """Of CuPy arrays; 0 for numbers, which are on the host."""
    return tuple([0 if type(array) is ndarray else array.data.ptr for array in arrays])
