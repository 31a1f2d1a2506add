"""A product for given dtypes, and its kernels for the layouts of its arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from dualbcast.errors import nested_too_deeply
from dualbcast.ir.nodes import Function
from dualbcast.kernel_spec import KernelSource, Layout
from dualbcast.program.iteration_limit import Limit
from dualbcast.program.postponed_collection import collection_postponed
from dualbcast.program.product_cache import kernel_key
from dualbcast.program.products import Product
from dualbcast.runtime.arguments import DType

__all__ = ["Backend", "Keeping", "Options", "TypedProduct"]

Backend = Literal["auto", "python", "cpu", "cuda"]
# Makes a kernel from the key of its text and a function that writes the text.
Compiler = Callable[[str, Callable[[], KernelSource]], Any]
# Whether a graph keeps the Jacobian of a recorded call for the backward pass.
Keeping = Literal["auto", "cache", "recompute"]


class Options(NamedTuple):
    """Options of the decorator: how kernels are made, where they run, and whether a graph keeps their Jacobians."""

    fastmath: bool = False
    backend: Backend = "auto"
    jacobian: Keeping = "auto"
    max_iterations: int | None = None

    def runs_like(self, other: Options) -> bool:
        """Whether functions with these options can be in one kernel."""
        return self._replace(jacobian=other.jacobian) == other


@dataclass(slots=True)
class TypedProduct:
    """A product for given dtypes, with the kernels made of it so far, by target, variant of it and layout.

    Attributes
    ----------
    product, wrt
        The product, and the positions of the parameters that it is differentiated in.
    dtypes, result, compute, inputs
        The dtypes of the outputs, of floats among the results, of the arithmetic, and of the inputs in memory.
    title, options, names
        The first line of the kernel's text, the decorator's options, and the names of all parameters.
    identity : str
        A text that only products with the same IR share; see `product_cache`. Empty where there is none.
    limit : Limit or None
        The meaning of the last output, where loops end after some iterations.
    within : tuple of str
        The names of the parameters in `wrt`.
    """

    product: Product
    wrt: tuple[int, ...]
    dtypes: tuple[DType, ...]
    result: DType
    compute: str
    inputs: tuple[str, ...]
    title: str
    options: Options
    names: tuple[str, ...]
    identity: str
    limit: Limit | None = None
    within: tuple[str, ...] = field(init=False)
    kernels: dict[tuple[str, Any, Layout], Any] = field(default_factory=dict)
    widened: dict[Layout, Layout] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.within = tuple([self.names[at] for at in self.wrt])

    def source(self, layout: Layout, target: str) -> KernelSource:
        """The text of a kernel, with comments from the user's file as it is now."""
        return self._source(layout, target, None)

    def passes(self, layout: Layout, target: str) -> list[tuple[str, Function]]:
        """The passes of a kernel, each with the IR after it."""
        trace: list[tuple[str, Function]] = []
        self._source(layout, target, trace)
        return trace

    def _source(self, layout: Layout, target: str, trace: list[tuple[str, Function]] | None) -> KernelSource:
        from dualbcast.program.pipeline import kernel_source

        function = self.product.forward if target == "cuda" else self.product.function
        try:
            return kernel_source(function, layout, *self._text_arguments(target), trace)
        except RecursionError:
            raise nested_too_deeply(function.location) from None

    def _text_arguments(self, target: str) -> tuple[str, tuple[str, ...], tuple[str, ...], str, str, bool]:
        outputs = tuple([dtype.name for dtype in self.dtypes])
        return self.compute, self.inputs, outputs, target, self.title, self.options.fastmath

    def wide(self, layout: Layout) -> Layout:
        """The layout with the number of elements for a CUDA thread that is fastest."""
        wide = self.widened.get(layout)
        if wide is None:
            from dualbcast.program.pipeline import elements_a_thread

            lanes = elements_a_thread(self.product.forward, layout, self.compute)
            wide = self.widened[layout] = layout._replace(lanes=lanes)
        return wide

    def kernel(self, target: str, layout: Layout, compile_kernel: Compiler, variant: Any = None) -> Any:
        """The kernel for a layout and a variant of the target, compiled where this product has none yet."""
        key = target, variant, layout
        kernel = self.kernels.get(key)
        if kernel is None:
            with collection_postponed():
                key_of_text = kernel_key(self.identity, layout, self._text_arguments(target))
                kernel = self.kernels[key] = compile_kernel(key_of_text, lambda: self.source(layout, target))
        return kernel
