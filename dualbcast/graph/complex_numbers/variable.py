"""`ComplexVariable`: a Variable of complex numbers, which is a pair of Variables, its real and its imaginary part.

Comes in: two Variables, or a user's complex array. Goes out: results of operations, part by part where they are linear.
Its gradient is that by the real part, plus 1j times that by the imaginary part, as PyTorch has it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from dualbcast.adapters import is_lazy
from dualbcast.complex_numbers import Complex
from dualbcast.errors import ArgumentError, DTypeError
from dualbcast.graph.arrays import as_array, is_float
from dualbcast.graph.recording import read_by_python
from dualbcast.graph.tape import Primitive
from dualbcast.graph.variable import OPERATIONS, Variable, registered


@registered
class ComplexVariable(Variable):
    """A Variable of complex numbers.

    `graph.Variable(z)` makes one of a complex array, and operations do. In containers of arrays it has two leaves, so
    that no transformation meets it as a whole.

    Attributes
    ----------
    real, imag : Variable
        The parts, of one shape and dtype.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> z = graph.Variable([3.0 + 4.0j, 1.0j])
    >>> graph.grad(np.sum(abs(z)), z)
    array([0.6+0.8j, 0. +1.j ])
    """

    __slots__ = ("_imag", "_real")
    is_of_parts = True  # see `arrays.map_leaves`

    _real: Variable
    _imag: Variable

    def __init__(self, value: Any, tracked: bool = True) -> None:
        if is_lazy(value):
            raise DTypeError("a Variable of a Dask array holds real numbers: make two, of z.real and z.imag")
        parts = value if isinstance(value, Variable) else as_array(value)
        self._set(Variable(parts.real, tracked), Variable(parts.imag, tracked))

    def _set(self, real: Variable, imag: Variable) -> None:
        self._real, self._imag = real, imag
        # What waits for its value is waited for by the parts.
        self._value = self.node = self.source = self.frozen = None
        self.index, self.serial = 0, real.serial
        self.tracked = real.tracked or imag.tracked

    @property
    def real(self) -> Variable:
        return self._real

    @property
    def imag(self) -> Variable:
        return self._imag

    def conj(self) -> Variable:
        return join(self._real, -self._imag)

    conjugate = conj

    @property
    def value(self) -> Any:
        read_by_python(".value")
        return Complex(self._real.value, self._imag.value)

    @property
    def array(self) -> Any:
        return Complex(self._real.array, self._imag.array)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._real.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.result_type(self._real.dtype, np.complex64)

    @property
    def namespace(self) -> Any:
        return self._real.namespace

    def __complex__(self) -> complex:
        if self.tracked:
            raise ArgumentError(
                "complex() of a Variable would lose its derivative; write z.item() for the number alone"
            )
        return complex(self.item())

    def __reduce__(self) -> tuple[Any, ...]:
        (_, (real, _)), (_, (imag, _)) = self._real.__reduce__(), self._imag.__reduce__()
        return Variable, (Complex(real, imag), self.tracked)

    def __deepcopy__(self, memo: dict[int, Any]) -> Variable:
        return join(self._real.__deepcopy__(memo), self._imag.__deepcopy__(memo))


@registered
def join(real: Any, imag: Any) -> Variable:
    """The Variable of complex numbers with these parts."""
    real, imag = [part if isinstance(part, Variable) else Variable(part, tracked=False) for part in (real, imag)]
    if real.dtype != imag.dtype or not is_float(real.dtype) or real.dtype.itemsize == 2:
        # No complex number has parts of half precision.
        dtype = np.empty(0, np.result_type(real.dtype, imag.dtype, np.complex64)).real.dtype
        real, imag = OPERATIONS["astype"](real, dtype), OPERATIONS["astype"](imag, dtype)
    if real.shape != imag.shape:
        shape = np.broadcast_shapes(real.shape, imag.shape)
        real, imag = OPERATIONS["broadcast_to"](real, shape), OPERATIONS["broadcast_to"](imag, shape)
    new = object.__new__(ComplexVariable)
    new._set(real, imag)
    return new


def of_parts(runner: Callable[..., Any], primitive: Primitive, inputs: tuple[Any, ...], static: dict[str, Any]) -> Any:
    """What a primitive gives for inputs of which some are complex; `runner` applies it to Variables and arrays."""
    if primitive.linear_in == "all":
        found = [
            runner(primitive, tuple([getattr(each, part) for each in inputs]), **static) for part in ("real", "imag")
        ]
        return join(*found)
    if primitive.complex_outputs:
        found = OPERATIONS["run_complex"](primitive, inputs, static)  # type: ignore[assignment]
        return found[0] if len(found) == 1 else found
    if primitive.linear_in != "each":
        raise ArgumentError(
            f"{primitive.name} of complex Variables has no derivative here; write it by z.real and z.imag, or by abs(z)"
        )
    # A term has a factor of 1j for each imaginary part.
    sums: list[Any] = [None, None]
    kinds = [("real", "imag") if isinstance(each, ComplexVariable) else ("",) for each in inputs]
    for term in itertools.product(*kinds):
        parts = tuple([getattr(each, part) if part else each for each, part in zip(inputs, term, strict=True)])
        product, power = runner(primitive, parts, **static), term.count("imag")
        product = -product if power % 4 in (2, 3) else product
        sums[power % 2] = product if sums[power % 2] is None else sums[power % 2] + product
    return join(*sums)
