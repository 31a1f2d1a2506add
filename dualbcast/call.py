"""A call on its way: a product for given dtypes with the kernels made of it, and the arguments given for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dualbcast.abi import KernelSource, Layout
from dualbcast.compiler.emit import emit
from dualbcast.errors import ArgumentError, DTypeError
from dualbcast.jacobian import Jacobian, library_of
from dualbcast.products import Product
from dualbcast.runtime.broadcast import Plan
from dualbcast.runtime.operands import Operands

__all__ = ["Call", "Specialised", "flatten_out", "stand_in", "wrt_key"]


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


@dataclass(slots=True)
class Call:
    """A call that is ready to run."""

    spec: Specialised
    operands: Operands
    plan: Plan

    def jacobian(self) -> Jacobian:
        """The Jacobian object over the arrays that the kernel has written."""
        product, names = self.spec.product, self.operands.names
        library = library_of(self.operands.arrays[0])
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
        return Jacobian(blocks, wrt, product.count, product.structure.type is not None, shape, shapes, stored)


def flatten_out(out: Any) -> tuple[Any, ...]:
    """The arrays of `out=(value, Jacobian)`, in the order in which the kernel stores them."""
    if not (isinstance(out, tuple) and len(out) == 2 and isinstance(out[1], Jacobian)):
        raise ArgumentError("out= must be the pair (value, Jacobian) that an earlier call returned")
    value, jacobian = out
    return (*(value if isinstance(value, tuple) else (value,)), *jacobian._stored)


def stand_in(array: Any) -> Any:
    """A contiguous array for a dtype that is given in its place."""
    if not isinstance(array, str | type | np.dtype):
        return array
    try:
        if array == "bfloat16":
            import ml_dtypes  # registers the name with NumPy

            array = ml_dtypes.bfloat16
        return np.empty(2, array)
    except TypeError:
        raise DTypeError(f"{array!r} is no dtype; give arrays, or dtypes such as 'float32'") from None


def wrt_key(wrt: Any) -> str | int | tuple[Any, ...] | None:
    """`wrt=` as part of a key; whether it names arguments is found out later."""
    if isinstance(wrt, np.integer):
        return int(wrt)
    if wrt is None or isinstance(wrt, str | int):
        return wrt
    try:
        items = tuple(int(item) if isinstance(item, np.integer) else item for item in wrt)
        hash(items)
    except TypeError:
        raise ArgumentError(f"wrt={wrt!r} does not name arguments; give names or positions: wrt=('x', 1)") from None
    return items
