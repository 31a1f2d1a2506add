"""A product for given dtypes: its kernels for the layouts of its arguments, and the limit of its loops' iterations."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from dualbcast import disk_cache
from dualbcast.errors import IterationError, Location, nested_too_deeply
from dualbcast.ir.nodes import Function
from dualbcast.kernel_spec import KernelSource, Layout
from dualbcast.program.products import Product
from dualbcast.runtime.arguments import DType, Signature, beside

Backend = Literal["auto", "python", "cpu", "cuda"]
# Whether a graph keeps the Jacobian of a recorded call for the backward pass.
Keeping = Literal["auto", "cache", "recompute"]
# Makes a kernel from the key of its text and a function that writes the text.
Compiler = Callable[[str, Callable[[], KernelSource]], Any]


class Options(NamedTuple):
    """Options of the decorator: how kernels are made, where they run, and whether a graph keeps their Jacobians."""

    fastmath: bool = False
    backend: Backend = "auto"
    jacobian: Keeping = "auto"
    max_iterations: int | None = None

    def runs_like(self, other: Options) -> bool:
        """Whether functions with these options can be in one kernel."""
        return self._replace(jacobian=other.jacobian) == other


# The dtype of the last output, in which an element has the number of a loop, and the largest number.
_LIMIT_DTYPE, _LAST_LOOP = np.dtype(np.uint8), 255


class Limit(NamedTuple):
    """The meaning of the last output of a product: the loop that an element has left too early, or 0.

    `name` is the function's in messages, and `loops` has the number of each loop.
    """

    name: str
    max_iterations: int
    loops: dict[Location, int]
    dtype: DType = _LIMIT_DTYPE

    def check(self, outputs: Sequence[Any]) -> Any:
        """The outputs but the last one.

        Raises
        ------
        IterationError
            An element has left a loop that had not ended.
        """
        (reached,) = outputs[-1:]  # a slice, since on a GPU the other outputs may not be arrays yet
        with beside((reached,)):
            count = int((reached != 0).sum())
            if count:
                first = int((reached != 0).argmax())
                number = int(reached.reshape(-1)[first])
        if count:
            index = tuple([int(at) for at in np.unravel_index(first, reached.shape)])
            place = next(place for place, each in self.loops.items() if each == number)
            raise IterationError(self.name, self.max_iterations, index, count, place)
        return outputs[:-1]


def limit(product: Product, max_iterations: int, name: str) -> tuple[Product, Limit | None]:
    """The product with limited loops, and one more output; the product itself where no loop can take longer."""
    from dualbcast.passes.iteration_limits import has_long_loops
    from dualbcast.program import pipeline

    if not has_long_loops(product.function.body, max_iterations):
        return product, None
    loops: dict[Location, int] = {}
    passes = pipeline.limited(max_iterations, loops, _LAST_LOOP)
    # Made at once, and not when a kernel is: it fills `loops`.
    function = pipeline.run(passes, product.function)
    limited = replace(
        product,
        kinds=(*product.kinds, "int"),
        make=lambda: function,
        make_forward=lambda: pipeline.run(passes, product.forward),
    )
    return limited, Limit(name, max_iterations, loops)


@dataclass(slots=True)
class TypedProduct:
    """A product for given dtypes, with the kernels made of it so far, by target, variant of it and layout.

    Attributes
    ----------
    wrt
        The positions of the parameters that it is differentiated in.
    dtypes
        Of the outputs, in memory.
    signature
        Of the arguments.
    title
        The first line of the kernel's text.
    names
        Of all parameters.
    identity : str
        A text that only products with the same IR share. Empty where there is none.
    limit : Limit or None
        The meaning of the last output, where loops end after some iterations.
    lanes : dict
        For layouts, the number of elements for a CUDA thread that is fastest.
    """

    product: Product
    wrt: tuple[int, ...]
    dtypes: tuple[DType, ...]
    signature: Signature
    title: str
    options: Options
    names: tuple[str, ...]
    identity: str
    limit: Limit | None = None
    kernels: dict[tuple[str, Any, Layout], Any] = field(default_factory=dict)
    lanes: dict[Layout, int] = field(default_factory=dict)

    def source(self, layout: Layout, target: str, trace: list[tuple[str, Function]] | None = None) -> KernelSource:
        """The text of a kernel, with comments from the user's file as it is now; `trace` gets the IR after passes."""
        from dualbcast.program.pipeline import kernel_source

        function = self.product.forward if target == "cuda" else self.product.function
        try:
            return kernel_source(function, layout, *self._text_arguments(target), trace)
        except RecursionError:
            raise nested_too_deeply(function.location) from None

    def _text_arguments(self, target: str) -> tuple[str, tuple[str, ...], tuple[str, ...], str, str, bool]:
        """All that a text depends on beside the IR and the layout."""
        outputs = tuple([dtype.name for dtype in self.dtypes])
        signature = self.signature
        return signature.compute, signature.storages, outputs, target, self.title, self.options.fastmath

    def wide(self, layout: Layout) -> Layout:
        """The layout with the number of elements for a CUDA thread that is fastest."""
        if layout not in self.lanes:
            from dualbcast.program.pipeline import elements_a_thread

            self.lanes[layout] = elements_a_thread(self.product.forward, layout, self.signature.compute)
        return layout._replace(lanes=self.lanes[layout])

    def kernel(self, target: str, layout: Layout, compile_kernel: Compiler, variant: Any = None) -> Any:
        """The kernel for a layout and a variant of the target, compiled where this product has none yet."""
        place = target, variant, layout
        kernel = self.kernels.get(place)
        if kernel is None:
            with collection_postponed():
                # All that the text depends on; empty where only the text itself can be the key.
                key = self.identity and disk_cache.key(
                    "kernel", self.identity, repr(layout), repr(self._text_arguments(target))
                )
                kernel = self.kernels[place] = compile_kernel(key, lambda: self.source(layout, target))
        return kernel


# The number of new objects after which it collects. It is not switched off: the program may do that meanwhile.
_NEVER = (1 << 31) - 1
_usual_thresholds: tuple[int, ...] | None = None


@contextlib.contextmanager
def collection_postponed() -> Iterator[None]:
    """A block in which no thread collects garbage, or until the end of another such block that had begun before.

    The collector would look through all that a compilation makes again and again, in up to a tenth of the time of a
    first call.
    """
    global _usual_thresholds
    thresholds = gc.get_threshold()
    if thresholds[0] == _NEVER:
        yield
        return
    try:
        _usual_thresholds = thresholds
        gc.set_threshold(_NEVER, *thresholds[1:])
        yield
    finally:
        _resume()


def _resume() -> None:
    global _usual_thresholds
    thresholds, _usual_thresholds = _usual_thresholds, None
    # Otherwise somebody has set others meanwhile.
    if thresholds is not None and gc.get_threshold()[0] == _NEVER:
        gc.set_threshold(*thresholds)


if hasattr(os, "register_at_fork"):
    # The child has none of the other threads, one of which may have been in a block.
    os.register_at_fork(after_in_child=_resume)
