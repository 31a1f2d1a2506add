"""The arrays that Variables hold: which library they are of, and which of them carry derivatives."""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

__all__ = ["Array", "as_array", "is_array", "is_float", "is_read_only", "namespace", "on_host"]

Array: TypeAlias = Any  # numpy.ndarray or cupy.ndarray: CuPy is optional and has no types

_NUMPYS = (np.ndarray, np.generic)


def namespace(*values: Any) -> Any:
    """The array library of the first of the values that is an array or a Variable: NumPy, or CuPy as array-api-compat
    wraps it. It is NumPy where there is none."""
    for value in values:
        if isinstance(value, _NUMPYS):
            return np
        if hasattr(type(value), "__broadcast_function__"):  # a Variable
            return value.namespace
        if is_array(value):
            return _cupy()
    return np


@lru_cache
def _cupy() -> Any:
    from array_api_compat import cupy

    return cupy


def is_array(value: Any) -> bool:
    """Whether a value is a NumPy array, a CuPy array or a NumPy scalar."""
    if isinstance(value, _NUMPYS):
        return True
    cupy = sys.modules.get("cupy")
    return cupy is not None and isinstance(value, cupy.ndarray)


def as_array(value: Any) -> Array:
    """A value as an array: NumPy's reductions return scalars, and users pass numbers and lists."""
    if type(value) is np.ndarray or (is_array(value) and not isinstance(value, np.generic)):
        return value
    return np.asarray(value)


def is_float(dtype: Any) -> bool:
    """Whether arrays of this dtype carry derivatives."""
    return bool(dtype.kind == "f") or dtype.name == "bfloat16"


def is_read_only(array: Array) -> bool:
    """Whether nobody can write to an array. CuPy has no such arrays."""
    return isinstance(array, np.ndarray) and not array.flags.writeable


def on_host(array: Array) -> Any:
    """The array, or a NumPy array with the values of a CuPy array."""
    return array if isinstance(array, np.ndarray) else array.get()
