"""A product for given dtypes, and its kernels: what a layout turns into the text of a kernel."""

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
# Makes a kernel of what stands for its text in a key, and what writes the text.
Compiler = Callable[[str, Callable[[], KernelSource]], Any]
# Whether a graph keeps the Jacobian of a recorded call for the backward pass.
Keeping = Literal["auto", "cache", "recompute"]


class Options(NamedTuple):
    """How kernels are made, where they run, and whether a graph keeps their Jacobians, as the decorator was told."""

    fastmath: bool = False
    backend: Backend = "auto"
    jacobian: Keeping = "auto"
    max_iterations: int | None = None

    def runs_like(self, other: Options) -> bool:
        """Whether kernels of both can be one."""
        return self._replace(jacobian=other.jacobian) == other


@dataclass(slots=True)
class TypedProduct:
    """A product for given dtypes, with the kernels made of it so far, by target, variant of it and layout.

    Attributes
    ----------
    product, wrt, dtypes, result, compute, inputs, title, options
        What is computed; the parameters differentiated in; the dtypes of outputs, of floats among the results, of the
        arithmetic, and of the inputs as they are stored; what it is called in the kernel's text; how it is made.
    names : tuple of str
        All parameters.
    identity : str
        What tells the product's IR from any other; see `product_cache`; empty where nothing does.
    limit : Limit or None
        What the last output says, where loops end after some iterations.
    within : tuple of str
        The names of those in `wrt`.
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
            return kernel_source(function, layout, *self._said(target), trace)
        except RecursionError:
            raise nested_too_deeply(function.location) from None

    def _said(self, target: str) -> tuple[str, tuple[str, ...], tuple[str, ...], str, str, bool]:
        outputs = tuple([dtype.name for dtype in self.dtypes])
        return self.compute, self.inputs, outputs, target, self.title, self.options.fastmath

    def wide(self, layout: Layout) -> Layout:
        """The layout with as many elements for a CUDA thread as pay."""
        found = self.widened.get(layout)
        if found is None:
            from dualbcast.program.pipeline import elements_a_thread

            lanes = elements_a_thread(self.product.forward, layout, self.compute)
            found = self.widened[layout] = layout._replace(lanes=lanes)
        return found

    def kernel(self, target: str, layout: Layout, compiled: Compiler, variant: Any = None) -> Any:
        """The kernel for a layout, `compiled` where this product has none yet for the target's variant."""
        key = target, variant, layout
        kernel = self.kernels.get(key)
        if kernel is None:
            with collection_postponed():
                text = kernel_key(self.identity, layout, self._said(target))
                kernel = self.kernels[key] = compiled(text, lambda: self.source(layout, target))
        return kernel
