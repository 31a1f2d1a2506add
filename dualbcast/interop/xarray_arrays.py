"""DataArrays and Variables of xarray as arguments: dimensions broadcast by name, and results have the coordinates."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import xarray as xr

from dualbcast.adapters import Adapter, adapter_for, register
from dualbcast.complex_numbers import Complex
from dualbcast.errors import ArgumentError, ShapeError
from dualbcast.program.element import Element
from dualbcast.runtime.arguments import is_array, sign

# The dimension of the arguments, in arrays of stacked blocks.
_STACKED = "argument"


class LabelledAdapter(Adapter):
    """For arrays with named dimensions, which may hold NumPy's, CuPy's or Dask's.

    `xarray.apply_ufunc` broadcasts them, compares their coordinates and makes the results.
    """

    name, arrays = "xarray", "xarray.DataArray"

    def token(self, value: Any, name: str) -> Any:
        if isinstance(value, xr.Dataset):
            first = next(iter(value.data_vars), "variable")
            raise ArgumentError(f"{name} is an xarray.Dataset. Pass its variables, for example {name}[{first!r}].")
        return sign((np.empty((), value.dtype),), (name,)).tokens[0]

    def whole(self, value: Any, name: str) -> Any:
        self.token(value, name)
        array = value.data
        return array if is_array(array, "cupy") else np.asarray(array)

    def apply(
        self,
        element: Element,
        values: tuple[Any, ...],
        dtypes: tuple[np.dtype[Any], ...],
        sums: tuple[int | None, ...] | None = None,
    ) -> tuple[Any, ...]:
        def on_arrays(*arrays: Any) -> Any:
            inner = next(filter(None, map(adapter_for, arrays)), None)
            outputs = element.parts(arrays, dtypes) if inner is None else inner.apply(element, arrays, dtypes)
            return outputs[0] if len(dtypes) == 1 else outputs

        try:
            outputs = xr.apply_ufunc(on_arrays, *values, output_core_dims=[[]] * len(dtypes), dask="allowed")
        except xr.AlignmentError as error:
            raise ShapeError(
                f"the arrays differ in coordinates: {error}. Align them first: x, y = xarray.align(x, y)."
            ) from error
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        if sums is None:
            return outputs
        return tuple([y if at is None else _summed(y, values[at]) for y, at in zip(outputs, sums, strict=True)])

    def on_host(self, element: Element, values: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any] | None:
        labelled = [value for value in values if isinstance(value, xr.DataArray | xr.Variable)]
        if not all(isinstance(value.data, np.ndarray) for value in labelled):
            return None
        found: list[tuple[Any, ...]] = []

        def noted(*arrays: Any) -> Any:
            found.append(arrays)
            return np.empty(
                np.broadcast_shapes(*[np.shape(x) for at, x in enumerate(arrays) if at not in element.whole])
            )

        try:
            xr.apply_ufunc(noted, *values)
        except xr.AlignmentError:  # which `apply` explains
            return None
        return found[0], None

    def shape(self, values: tuple[Any, ...]) -> tuple[int, ...]:
        return tuple(_sizes(values).values())

    def fits(self, value: Any, values: tuple[Any, ...], exactly: bool = False) -> bool:
        whole, own = _sizes(values), _sizes((value,))
        return own == whole if exactly else own.items() <= whole.items()

    def stand_ins(self, values: tuple[Any, ...], names: Sequence[str]) -> tuple[Any, ...]:
        sizes = _sizes(values)
        stand_ins = []
        for value, name in zip(values, names, strict=True):
            shape = [length if dim in getattr(value, "dims", ()) else 1 for dim, length in sizes.items()]
            is_labelled = isinstance(value, xr.DataArray | xr.Variable)
            stand_ins.append(np.empty(shape, self.token(value, name)) if is_labelled else value)
        return tuple(stand_ins)

    def cast(self, value: Any, dtype: np.dtype[Any], name: str) -> Any:
        if isinstance(value, xr.DataArray | xr.Variable):
            self.token(value, name)
            return value if value.dtype == dtype else value.astype(dtype)
        array = np.asarray(value)
        if array.shape:
            raise ArgumentError(
                f"{name} is an array without names of dimensions, beside arrays of xarray's. "
                "Pass a DataArray: xarray.DataArray(array, dims=[…])."
            )
        sign((value,), (name,))
        return dtype.type(value)

    def complex_of(self, real: Any, imag: Any) -> Any:
        return xr.apply_ufunc(Complex, real, imag, dask="allowed")

    def stack(self, blocks: Sequence[Any]) -> Any:
        if not any(isinstance(block, xr.DataArray | xr.Variable) for block in blocks):  # sums over all dimensions
            return np.stack(blocks, axis=-1)
        blocks = xr.broadcast(*blocks)
        return xr.concat(blocks, dim=_STACKED).transpose(..., _STACKED)


def _sizes(values: tuple[Any, ...]) -> dict[Hashable, int]:
    """The lengths of the dimensions that the values broadcast to."""
    sizes: dict[Hashable, int] = {}
    for value in values:
        if isinstance(value, xr.DataArray | xr.Variable):
            sizes.update(value.sizes)
    return sizes


def _summed(array: Any, argument: Any) -> Any:
    """The sum over the dimensions that an argument does not have, in the order of its dimensions."""
    dims = getattr(argument, "dims", ())
    total = array.sum([dim for dim in array.dims if dim not in dims], skipna=False).transpose(*dims)
    if isinstance(argument, xr.DataArray | xr.Variable):
        return total
    return total.data[()] if isinstance(total, xr.DataArray | xr.Variable) else total


register(LabelledAdapter(), xr.DataArray, xr.Variable, xr.Dataset)
