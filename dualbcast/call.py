"""A call on its way: a function lowered for what is known of its arguments, with its products and their kernels."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dualbcast.abi import KernelSource, Layout
from dualbcast.compiler.emit import emit
from dualbcast.compiler.frontend import Lowered
from dualbcast.errors import ArgumentError, DTypeError
from dualbcast.jacobian import Jacobian
from dualbcast.products import Product, Which
from dualbcast.runtime.broadcast import Plan
from dualbcast.runtime.operands import Operands, array_kind
from dualbcast.structure import Structure

__all__ = ["Call", "Specialised", "Variant", "flatten_out", "is_dtype", "stand_in"]


@dataclass(slots=True)
class Specialised:
    """A product for given dtypes, with the kernels made of it so far, by target, variant of it and layout."""

    product: Product
    wrt: tuple[int, ...]
    dtypes: tuple[np.dtype[Any], ...]
    result: np.dtype[Any]
    compute: str
    inputs: tuple[str, ...]
    title: str
    kernels: dict[tuple[str, Any, Layout], Any] = field(default_factory=dict)

    def source(self, layout: Layout, target: str) -> KernelSource:
        outputs = [dtype.name for dtype in self.dtypes]
        return emit(self.product.function, layout, self.compute, self.inputs, outputs, target, self.title)

    def kernel(self, target: str, layout: Layout, make: Callable[[KernelSource], Any], variant: Any = None) -> Any:
        """The kernel for a layout, compiled by `make` where this product has none yet for the target's variant."""
        key = target, variant, layout
        kernel = self.kernels.get(key)
        if kernel is None:
            kernel = self.kernels[key] = make(self.source(layout, target))
        return kernel


class Variant:
    """A function lowered for one form of call and the kinds of its arrays, with its products so far.

    Attributes
    ----------
    function : Function
        Its IR.
    names : tuple of str
        The arrays of the call, and then the captured ones.
    captures : tuple of Capture
        Where the captured arrays are.
    products : dict
        The products by what is computed, dtypes and `wrt`.
    """

    __slots__ = ("_guards", "_kinds", "captures", "function", "names", "products")

    def __init__(self, lowered: Lowered, names: tuple[str, ...]) -> None:
        self.function, self._guards = lowered.function, lowered.guards
        self.names = (*names, *lowered.arrays)
        # The arrays found then are not kept: they may be large, and others may take their place.
        self.captures = tuple(replace(capture, value=None) for capture in lowered.arrays.values())
        self._kinds = tuple(param.kind for param in lowered.function.params[len(names) :])
        self.products: dict[tuple[Any, ...], Specialised] = {}

    def holds(self) -> bool:
        """Whether what was compiled in is still so."""
        return all(guard.holds() for guard in self._guards)

    def captured(self) -> tuple[Any, ...] | None:
        """The captured arrays as they are now; None where the function must be lowered anew for them."""
        try:
            arrays = tuple([capture.read() for capture in self.captures])
        except Exception:  # a name is gone; or a property raises, which the front end reports at its line
            return None
        return arrays if tuple(map(array_kind, arrays)) == self._kinds else None


@dataclass(slots=True)
class Call:
    """A call that is ready to run."""

    spec: Specialised
    operands: Operands
    plan: Plan

    def jacobian(self) -> Jacobian:
        """The Jacobian object over the arrays that the kernel has written."""
        product, names = self.spec.product, self.operands.names
        library = np if self.operands.module == "numpy" else sys.modules["cupy"]
        shape = self.plan.geometry.shape
        blocks: dict[tuple[int, str], Any] = {}
        for (output, position), block in product.blocks.items():
            if block.stored is None:
                number = library.asarray(block.constant, self.spec.result)
                blocks[output, names[position]] = library.broadcast_to(number, shape)
            else:
                blocks[output, names[position]] = self.plan.outputs[block.stored]
        wrt = tuple(names[position] for position in self.spec.wrt)
        shapes = {names[position]: self.operands.arrays[position].shape for position in self.spec.wrt}
        stored = self.plan.outputs[product.values :]
        return Jacobian(blocks, wrt, product.structure, shape, shapes, stored)


def flatten_out(which: Which, out: Any, structure: Structure) -> Any:
    """The arrays of `out=` in the order in which the kernel stores them; None stands for one to be allocated."""
    if out is None:
        return None
    if which == "value":
        # What is no such structure is refused later, with the other things that an array can have wrong.
        return structure.flatten(out, "out=") if structure.holds(out) else out
    if not (isinstance(out, tuple) and len(out) == 2 and isinstance(out[1], Jacobian)):
        raise ArgumentError("out= must be the pair (value, Jacobian) that an earlier call returned")
    return (*structure.flatten(out[0], "the value in out="), *out[1]._stored)


def stand_in(value: Any, shape: tuple[int, ...] | None = None, module: str = "numpy") -> Any:
    """For a dtype that is given in an array's place a contiguous array; without a shape a number, which suits any."""
    if not is_dtype(value):
        return value
    try:
        if value == "bfloat16":
            import ml_dtypes  # registers the name with NumPy

            value = ml_dtypes.bfloat16
        if shape is None:
            return np.zeros((), value)[()]
        return sys.modules[module].empty(shape, value)
    except TypeError:
        raise DTypeError(f"{value!r} is no dtype; give arrays, or dtypes such as 'float32'") from None


def is_dtype(value: Any) -> bool:
    """Whether an argument is a dtype, or should be one."""
    return isinstance(value, str | type | np.dtype)
