"""`max_iterations=`: products whose loops end after some iterations, and the error that names the first element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dualbcast.errors import IterationError, Location
from dualbcast.program.products import Product
from dualbcast.runtime.cuda.memory import beside
from dualbcast.runtime.fast_path import FastPath

__all__ = ["Limit", "Limited", "limit"]

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
