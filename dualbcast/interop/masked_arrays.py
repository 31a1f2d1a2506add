"""NumPy's masked arrays as arguments: an element of a result is masked where one of the arguments is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dualbcast.adapters import register
from dualbcast.errors import ArgumentError
from dualbcast.interop.host_arrays import HostAdapter
from dualbcast.program.element import Element
from dualbcast.program.outputs import sum_to


class MaskedAdapter(HostAdapter):
    """For `numpy.ma.MaskedArray`. The numbers below a mask are computed with, and stay masked; sums leave them out."""

    name, arrays = "numpy.ma", "masked array"

    def array_in(self, value: Any, name: str) -> Any:  # noqa: ARG002
        return value.data if isinstance(value, np.ma.MaskedArray) else value

    def whole(self, value: Any, name: str) -> Any:
        if np.ma.is_masked(value):
            raise ArgumentError(
                f"{name} is whole, and has masked elements; pass {name}.filled(…), or what is left of it"
            )
        return self.array_in(value, name)

    def put_back(self, array: Any, values: Sequence[Any]) -> Any:
        if not any(isinstance(value, np.ma.MaskedArray) for value in values):
            return array
        return np.ma.MaskedArray(array, _mask(values, np.shape(array)))

    def apply(
        self,
        element: Element,
        values: tuple[Any, ...],
        dtypes: tuple[np.dtype[Any], ...],
        sums: tuple[int | None, ...] | None = None,
    ) -> tuple[Any, ...]:
        if element.options.check is not None:  # which leaves out an element with an argument that is NaN
            values = tuple(map(_nan_below_mask, values))
        if element.whole:  # in which the numbers below a mask may be no places
            values = tuple(map(_valid_below_mask, values))
        outputs = super().apply(element, values, dtypes)
        if sums is None:
            return outputs
        # The kernel's own sums would have masked elements in them.
        return tuple([y if at is None else _summed(y, values[at]) for y, at in zip(outputs, sums, strict=True)])

    def on_host(self, element: Element, values: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any] | None:
        if element.whole:
            values = tuple(map(_valid_below_mask, values))
        at_elements = [value for at, value in enumerate(values) if at not in element.whole]
        arrays, _ = super().on_host(element, values) or (values, None)
        return arrays, _mask(at_elements, self.shape(tuple(at_elements)))

    def stack(self, blocks: Sequence[Any]) -> Any:
        return np.ma.stack(blocks, axis=-1)


def _mask(values: Sequence[Any], shape: tuple[int, ...]) -> Any:
    """Whether an element of the values, which broadcast to a shape, is masked; `nomask` where none can be."""
    masks = [np.ma.getmask(value) for value in values]
    if all(each is np.ma.nomask for each in masks):
        return np.ma.nomask
    mask = np.zeros(shape, np.bool_)
    for each in masks:
        mask |= each
    return mask


def _nan_below_mask(value: Any) -> Any:
    """A masked array of floats that has NaN where it is masked; anything else as it is."""
    if not isinstance(value, np.ma.MaskedArray) or value.dtype.kind != "f":
        return value
    return np.ma.MaskedArray(value.filled(np.nan), value.mask)


def _valid_below_mask(value: Any) -> Any:
    """A masked array that has an element of its own where it is masked; anything else as it is."""
    if not np.ma.is_masked(value) or not value.count():
        return value
    return np.ma.MaskedArray(value.filled(value.compressed()[0]), value.mask)


def _summed(array: Any, argument: Any) -> Any:
    """The sum of what is not masked, in the shape of an argument, and of its kind."""
    total = np.ma.asarray(sum_to(np.ma.asarray(array), np.shape(argument)))
    if isinstance(argument, np.ma.MaskedArray):
        return total
    # No element that is not masked depends on an argument where all are masked.
    filled = total.filled(0)
    return filled if filled.shape else filled[()]


register(MaskedAdapter(), np.ma.MaskedArray)
