"""What the adapters of libraries whose arrays hold NumPy's have in common: a call is made on these, and its results are
put back into arrays of the library."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from dualbcast.adapters import Adapter
from dualbcast.complex_numbers import Complex
from dualbcast.program.element import Element
from dualbcast.runtime.arguments import converted, sign


class HostAdapter(Adapter):
    """An adapter for arrays that hold an array of NumPy's."""

    takes_numpy = True

    @abstractmethod
    def array_in(self, value: Any, name: str) -> Any:
        """The array of NumPy's in one of the library's; anything else as it is."""

    @abstractmethod
    def put_back(self, array: Any, values: Sequence[Any]) -> Any:
        """An array of the library's around one of NumPy's, of the shape that `values` broadcast to."""

    def whole(self, value: Any, name: str) -> Any:
        return self.array_in(value, name)

    def on_host(self, element: Element, values: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any] | None:
        return tuple(map(self.array_in, values, element.names)), None

    def token(self, value: Any, name: str) -> Any:
        return sign((self.array_in(value, name),), (name,)).tokens[0]

    def apply(
        self,
        element: Element,
        values: tuple[Any, ...],
        dtypes: tuple[np.dtype[Any], ...],
        sums: tuple[int | None, ...] | None = None,
    ) -> tuple[Any, ...]:
        arrays = tuple(map(self.array_in, values, element.names))
        targets = [values if at is None else (values[at],) for at in sums or (None,) * len(dtypes)]
        shapes = None
        if sums is not None:
            shapes = tuple([None if at is None else np.shape(arrays[at]) for at in sums])
        outputs = element.parts(arrays, dtypes, shapes)
        return tuple([self.put_back(y, target) for y, target in zip(outputs, targets, strict=True)])

    def complex_of(self, real: Any, imag: Any) -> Any:
        return self.put_back(Complex(self.array_in(real, "real"), self.array_in(imag, "imag")), (real, imag))

    def cast(self, value: Any, dtype: np.dtype[Any], name: str) -> Any:
        return converted(value, dtype, name)
