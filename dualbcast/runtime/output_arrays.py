"""Arrays of `out=`, validated: their types in every call, their places in memory once for each form; and scalars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy import ndarray

from dualbcast.errors import ArgumentError, DTypeError, ShapeError
from dualbcast.foreign_objects import called
from dualbcast.runtime.arguments import Array, DType, is_array, is_writeable


def check_out(out: Array | Sequence[Array | None], count: int, module: str) -> tuple[Array | None, ...]:
    """`out=`, as the user gave it, as a tuple of arrays of a module, "numpy" or "cupy".

    It raises an `ArgumentError` where there are more or fewer than `count`, or one is no such array or is read-only.
    """
    slots = tuple(out) if isinstance(out, tuple | list) else (out,)
    if len(slots) != count:
        raise ArgumentError(f"out= has {len(slots)} arrays; one is needed for each of {count} outputs.")
    if [*map(type, slots)].count(ndarray) == count and module == "numpy" and all(map(is_writeable, slots)):
        return slots  # by far the most calls, and this runs at every one
    for position, y in enumerate(slots):
        if y is None:
            continue
        name = _out_name(position, count)
        if not is_array(y, module):
            library = "NumPy" if module == "numpy" else "CuPy"
            raise ArgumentError(f"{name} is {called(y)}; it must be a {library} array, as the inputs of this call are.")
        if module == "numpy" and not y.flags.writeable:
            raise ArgumentError(f"{name} is read-only. Pass an array that can be written to.")
    return slots


def check_forms(
    forms: Sequence[tuple[tuple[int, ...], Any, DType] | None], dtypes: Sequence[DType], shape: tuple[int, ...]
) -> None:
    """Check that the arrays of `out=` have exactly these dtypes, and all of them this shape. It depends on their forms
    alone, and can be remembered."""
    for position, (form, dtype) in enumerate(zip(forms, dtypes, strict=True)):
        if form is not None:
            name = _out_name(position, len(forms))
            if form[0] != shape:
                raise ShapeError(f"{name} has shape {form[0]}; it must have the shape of the result, {shape}.")
            if form[2] != dtype:
                raise DTypeError(f"{name} has dtype {form[2]}; it must be exactly that of the output, {dtype}.")


def _out_name(position: int, count: int) -> str:
    return f"out[{position}]" if count > 1 else "out"


def scalars(outputs: tuple[Any, ...], given: tuple[bool, ...]) -> tuple[Any, ...]:
    """The outputs, with scalars for those of shape () that were not given by the caller."""
    return tuple([y if is_given or y.shape else y[()] for y, is_given in zip(outputs, given, strict=True)])
