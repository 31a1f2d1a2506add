"""Results from the arrays that a kernel has written: values, a Jacobian, a Hessian, or the parts of a function."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dualbcast.program.hessian import Hessian
from dualbcast.program.jacobian import Frame, Jacobian, everywhere
from dualbcast.program.typed_product import TypedProduct
from dualbcast.runtime.arguments import DType, no_derivative
from dualbcast.runtime.cuda.memory import beside
from dualbcast.runtime.iteration_space import Shapes
from dualbcast.runtime.launch_plan import Plan
from dualbcast.runtime.output_arrays import scalars

__all__ = ["Results"]


class Results:
    """Makes the results of a call from the outputs of its kernel, in the same way for all calls of one form.

    Attributes
    ----------
    shape : tuple of int
        The shape that the arguments broadcast to.
    may_wait : bool
        Whether there are partials. Arrays are made of them when they are asked for.
    """

    __slots__ = (
        "_are_stored",
        "_arrays",
        "_given",
        "_hessian",
        "_jacobian",
        "_module",
        "_partials",
        "_parts",
        "_signature",
        "_spec",
        "_structure",
        "_sums",
        "_total",
        "_values",
        "may_wait",
        "shape",
    )

    def __init__(self, spec: TypedProduct, planned: Plan, parts: tuple[DType, ...] | None, sums: Shapes) -> None:
        operands = planned.operands
        self.shape, self._total = planned.geometry.shape, planned.total
        self._spec, self._structure, self._values = spec, spec.product.structure, spec.product.values
        self.may_wait = parts is None and spec.product.jacobian > 0
        self._module, self._parts, self._sums = operands.module, parts, sums
        self._signature = operands.signature
        self._arrays = {spec.names[at]: operands.arrays[at].shape for at in spec.wrt}
        # Fresh outputs of shape () become scalars, as those of NumPy's own functions do. CuPy's stay arrays, so that
        # nothing waits for the device.
        given = planned.given if spec.limit is None else planned.given[:-1]
        self._given = None if self.shape or self._module != "numpy" else given
        self._partials = slice(self._values, self._values + spec.product.jacobian)
        self._jacobian: Frame | None = None
        self._hessian: Frame | None = None
        self._are_stored: bool | None = None

    def value(self, outputs: Sequence[Any]) -> Any:
        """The structure that the function returns, with arrays."""
        if self._given is not None:
            outputs = scalars(tuple(outputs), self._given)
        return self._structure.pack(outputs[: self._values])

    def jacobian(self, outputs: Sequence[Any]) -> Jacobian:
        """The first partial derivatives."""
        if self._jacobian is None:
            self._jacobian = self._frame(2, self._values)
        return Jacobian(self._jacobian, outputs[self._partials])

    def hessian(self, outputs: Sequence[Any]) -> Hessian:
        """The second partial derivatives."""
        first = self._values + self._spec.product.jacobian
        if self._hessian is None:
            self._hessian = self._frame(3, first)
        if self._given is not None:
            outputs = scalars(tuple(outputs), self._given)
        return Hessian(self._hessian, outputs[first:])

    def parts(self, outputs: Sequence[Any]) -> tuple[Any, ...]:
        """The results of a product of "parts": stored arrays, and views of one number where a part is constant."""
        if self._are_stored is None:
            self._are_stored = self._find_stored()
        if self._are_stored:
            return tuple(outputs)
        parts = [
            self._constant(place[0], block.constant, outputs) if block.stored is None else outputs[block.stored]
            for place, block in self._spec.product.blocks.items()
        ]
        if self._module == "numpy" and (self._given is not None or self._sums is not None):
            return tuple([y if y.shape else y[()] for y in parts])
        return tuple(parts)

    def _find_stored(self) -> bool:
        """Whether the parts are the arrays that the kernel writes, as they are."""
        stored = [block.stored for block in self._spec.product.blocks.values()]
        shapes = [self.shape if shape is None else shape for shape in self._sums or (None,)]
        return stored == list(range(len(stored))) and (self._module != "numpy" or () not in shapes)

    def _constant(self, at: int, number: float, outputs: Sequence[Any]) -> Any:
        shape = None if self._sums is None else self._sums[at]
        # The number of elements that are summed into one.
        terms = 1 if shape is None else self._total // max(1, math.prod(shape))
        dtype = self._parts[at] if self._parts else self._spec.result
        with beside(outputs):
            return everywhere(number * terms, dtype, self.shape if shape is None else shape, self._module)

    def _frame(self, depth: int, first: int) -> Frame:
        """The frame of the blocks whose keys have `depth` parts; `first` is the kernel's output they begin with."""
        spec = self._spec
        places = []
        for place, block in spec.product.blocks.items():
            if len(place) == depth:
                key = place[0], *[spec.names[at] for at in place[1:]]
                places.append((key, None if block.stored is None else block.stored - first, block.constant))
        others = {
            name: f"for {name} give wrt={(*spec.within, name)}" if kind == "float" else no_derivative(name, token)
            for name, kind, token in zip(spec.names, self._signature.kinds, self._signature.tokens, strict=False)
            if name not in spec.within
        }
        return Frame(
            spec.within, self._structure, self.shape, self._arrays, tuple(places), spec.result, self._module, others
        )
