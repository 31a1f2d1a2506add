"""Series of pandas as arguments: the call is made on their numbers, and its results have their index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from dualbcast.adapters import register
from dualbcast.errors import ArgumentError, DTypeError, ShapeError
from dualbcast.interop.host_arrays import HostAdapter
from dualbcast.runtime.arguments import storage_name


class SeriesAdapter(HostAdapter):
    """For Series whose indexes are equal. A result has their index, and their name if they all have the same."""

    name, arrays = "pandas", "pandas.Series"

    def array_in(self, value: Any, name: str) -> Any:
        if isinstance(value, pd.DataFrame):
            raise ArgumentError(
                f"{name} is a pandas.DataFrame. Pass its columns, for example {name}[{next(iter(value), 'column')!r}], "
                f"or {name}.to_numpy() if the columns mean the same."
            )
        if not isinstance(value, pd.Series):
            return value
        dtype = value.dtype
        if isinstance(dtype, np.dtype):
            return value.to_numpy()
        # A nullable or an Arrow dtype, which is that of NumPy's with missing values.
        plain = getattr(dtype, "numpy_dtype", None)
        if not isinstance(plain, np.dtype) or not storage_name(plain):
            raise DTypeError(f"{name} has dtype {dtype}, which is not supported. Pass {name}.astype('float64').")
        if plain.kind == "f":
            return value.to_numpy(dtype=plain, na_value=np.nan)
        if value.hasnans:
            raise ArgumentError(
                f"{name} has missing values, which {plain} cannot hold. Pass {name}.astype('Float64'), where they "
                f"are NaN, or {name}.dropna()."
            )
        return value.to_numpy(dtype=plain)

    def put_back(self, array: Any, values: Sequence[Any]) -> Any:
        series = [value for value in values if isinstance(value, pd.Series)]
        if not series:
            return array
        names = {value.name for value in series}
        return pd.Series(array, index=series[0].index, name=names.pop() if len(names) == 1 else None, copy=False)

    def on_host(self, element: Any, values: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any] | None:
        self._check(values)
        return super().on_host(element, values)

    def apply(self, element: Any, values: tuple[Any, ...], dtypes: Any, sums: Any = None) -> tuple[Any, ...]:
        self._check(values)
        return super().apply(element, values, dtypes, sums)

    def stack(self, blocks: Sequence[Any]) -> Any:
        return np.stack(blocks, axis=-1)

    def _check(self, values: Sequence[Any]) -> None:
        """Refuse Series of unequal indexes, and arrays that do not have one element for each of theirs."""
        index = next(value.index for value in values if isinstance(value, pd.Series))
        for value in values:
            if isinstance(value, pd.Series):
                if value.index is not index and not value.index.equals(index):
                    raise ShapeError("the Series of a call need equal indexes. Align them first: x, y = x.align(y).")
            elif np.shape(value) not in ((), (len(index),)):
                raise ShapeError(
                    f"an array of shape {np.shape(value)} stands beside Series of {len(index)} elements; it must have "
                    f"the shape () or ({len(index)},)"
                )


register(SeriesAdapter(), pd.Series, pd.DataFrame)
