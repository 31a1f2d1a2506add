"""What a call leaves behind for the next one like it: from arrays of known forms straight to the CPU kernel."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Any, Protocol, TypeVar

import numpy as np

from dualbcast.runtime import cpu
from dualbcast.runtime.broadcast import Plan, fresh, host_addresses, summed
from dualbcast.runtime.operands import Array, Token, are_plain, on_host

__all__ = ["Recent", "Route", "Way"]

_T = TypeVar("_T")
_LIMIT = 1024


class Recent(dict[Any, _T]):
    """What was found out lately: a dict that begins anew when it is full."""

    def keep(self, key: Any, value: _T) -> _T:
        """Remember `value`."""
        if len(self) >= _LIMIT:
            self.clear()
        self[key] = value
        return value


class Way(Protocol):
    """A route on any device."""

    results: Any

    def run(self, values: Sequence[Array]) -> tuple[Array, ...] | None:
        """Run the kernel on arguments of known forms; its outputs, or None where it cannot read them in place."""


class Route:
    """The way of the calls whose arguments have the same forms (`operands.forms_of`) as those of one that was made.

    Attributes
    ----------
    results
        Whatever belongs to those calls, too.
    """

    __slots__ = ("_converted", "_dtypes", "_geometry", "_kernel", "_mask", "_names", "_shapes", "_signature", "results")

    def __init__(self, planned: Plan, kernel: cpu.CpuKernel, converted: Sequence[tuple[int, Token]], results: Any):
        operands, geometry = planned.operands, planned.geometry
        self._kernel, self._geometry, self._dtypes, self.results = kernel, geometry, planned.dtypes, results
        self._converted, self._names, self._signature = tuple(converted), operands.names, operands.signature
        trivial = geometry.split is None and {None, geometry.shape}.issuperset(planned.shapes or ())
        self._shapes = None if trivial else planned.shapes
        self._mask = max([array.itemsize for array in operands.arrays], default=1) - 1

    @staticmethod
    def of(planned: Plan, values: Sequence[Any], kernel: cpu.CpuKernel, results: Any) -> Route | None:
        """The route of a call that has allocated its outputs; None where the forms of `values` do not say it all."""
        operands = planned.operands
        if operands.module != "numpy" or not are_plain(values):
            return None
        pairs = zip(values, operands.arrays, operands.signature.tokens, strict=True)
        converted = [(at, token) for at, (x, array, token) in enumerate(pairs) if x is not array]
        if any(type(values[at]) is np.ndarray for at, _ in converted):  # misaligned, or in the other byte order
            return None
        return Route(planned, kernel, converted, results)

    def run(self, values: Sequence[Array]) -> tuple[Array, ...] | None:
        """Run the kernel on arguments of these forms; its outputs, or None where it cannot read them in place."""
        if self._converted:
            values = list(values)
            for at, token in self._converted:
                values[at] = on_host(values[at], token, self._signature, self._names[at])
        geometry, dtypes = self._geometry, self._dtypes
        outputs, targets = fresh(geometry, dtypes, self._signature.compute, np)
        pointers = host_addresses((*values, *targets))
        # The strides are whole numbers of elements, as they were at the first call; the address is each array's own.
        if reduce(or_, pointers) & self._mask:
            return None
        blocks = None if geometry.split is None else geometry.split.blocks
        cpu.launch(self._kernel, geometry.total, geometry.ints, pointers, blocks=blocks)
        return outputs if self._shapes is None else summed(geometry, self._shapes, dtypes, outputs, targets)
