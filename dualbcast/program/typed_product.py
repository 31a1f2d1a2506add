"""A product for given dtypes: its kernels for the layouts of its arguments, and the limit of its loops' iterations.

It would look through all that a compilation makes again and again, in up to a tenth of the time of a first call.
"""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from dualbcast.errors import IterationError, Location, nested_too_deeply
from dualbcast.ir.nodes import Function
from dualbcast.kernel_spec import KernelSource, Layout
from dualbcast.program.products import Product, kernel_key
from dualbcast.runtime.arguments import DType
from dualbcast.runtime.call_key import FastPath
from dualbcast.runtime.cuda.memory import beside

# The number of new objects after which it collects. It is not switched off: the program may do that meanwhile.
_NEVER = (1 << 31) - 1
_usual_thresholds: tuple[int, ...] | None = None


@contextlib.contextmanager
def collection_postponed() -> Iterator[None]:
    """A block in which no thread collects garbage, or until the end of another such block that had begun before."""
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


# The dtype of the last output, in which an element has the number of a loop, and the largest number.
_DTYPE, _LAST = np.dtype(np.uint8), 255


class Limit:
    """The meaning of the last output of a product: the loop that an element has left too early, or 0.

    Attributes
    ----------
    dtype : numpy.dtype
        The output's dtype.
    """

    __slots__ = ("_loops", "_max_iterations", "_name", "dtype")

    def __init__(self, max_iterations: int, loops: dict[Location, int], name: str) -> None:
        self._max_iterations, self._loops, self._name, self.dtype = max_iterations, loops, name, _DTYPE

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
            place = next(place for place, each in self._loops.items() if each == number)
            raise IterationError(self._name, self._max_iterations, index, count, place)
        return outputs[:-1]


class Limited:
    """A fast path whose outputs are checked."""

    __slots__ = ("_limit", "_path", "results")

    def __init__(self, path: FastPath, limit: Limit) -> None:
        self._path, self._limit, self.results = path, limit, path.results

    def run(self, values: tuple[Any, ...], out: tuple[Any, ...] = ()) -> Sequence[Any] | None:
        """See `FastPath`."""
        outputs = self._path.run(values, out)
        return None if outputs is None else self._limit.check(outputs)


def limit(product: Product, max_iterations: int, name: str) -> tuple[Product, Limit | None]:
    """The product with limited loops, and one more output; the product itself where no loop can take longer."""
    from dualbcast.passes.iteration_limits import has_long_loops
    from dualbcast.program import pipeline

    if not has_long_loops(product.function.body, max_iterations):
        return product, None
    loops: dict[Location, int] = {}
    passes = pipeline.limited(max_iterations, loops, _LAST)
    function = pipeline.run(passes, product.function)
    limited = Product(
        (*product.kinds, "int"),
        product.values,
        product.count,
        product.structure,
        product.blocks,
        product.jacobian,
        product.work,
        lambda: function,
        lambda: pipeline.run(passes, product.forward),
    )
    return limited, Limit(max_iterations, loops, name)


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
