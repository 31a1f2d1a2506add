"""Checks of each element while a kernel runs: loops that take too long and indices out of range.

Comes in: a product. Goes out: one with an additional output, and the error for what that says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dualbcast.errors import BoundsError, IterationError, Location
from dualbcast.ir.nodes import Function
from dualbcast.runtime.arguments import beside

if TYPE_CHECKING:
    from dualbcast.program.products import Product

# The dtype of the last output, in which an element has the number of the place that has failed, and the largest number.
PLACE_DTYPE, _LAST_PLACE = np.dtype(np.uint8), 255


class Checks(NamedTuple):
    """The meaning of the last output of a product: the number of the first place where an element has failed, or 0.

    A place is a loop that the element has left too early, or, at the numbers up to `indices`, an index out of range.
    `name` is the function's in messages.
    """

    name: str
    max_iterations: int | None
    places: dict[Location, int]
    indices: int

    def check(self, outputs: Sequence[Any]) -> Any:
        """The outputs but the last one; a BoundsError or an IterationError where an element has failed."""
        (reached,) = outputs[-1:]  # a slice, since on a GPU the other outputs may not be arrays yet
        with beside((reached,)):
            count = int((reached != 0).sum())
            if not count:
                return outputs[:-1]
            first = int((reached != 0).argmax())
            number = int(reached.reshape(-1)[first])
        index = tuple(map(int, np.unravel_index(first, reached.shape)))
        place = next(place for place, each in self.places.items() if each == number)
        if number <= self.indices or self.max_iterations is None:
            raise BoundsError(self.name, index, count, place)
        raise IterationError(self.name, self.max_iterations, index, count, place)


def checked(
    product: Product, function: Function, max_iterations: int | None, name: str
) -> tuple[Product, Checks | None]:
    """The product of a function with checks, and one more output; the product itself where nothing can fail."""
    from dualbcast.passes.bounds_checks import has_indices, number_of_indices
    from dualbcast.passes.iteration_limits import has_long_loops
    from dualbcast.program import pipeline

    # The function itself says it, too, and a product whose facts are on disk is not made.
    reads = has_indices(function) and has_indices(product.function)
    is_long = max_iterations is not None and has_long_loops(product.function.body, max_iterations)
    if not reads and not is_long:
        return product, None
    places: dict[Location, int] = {}
    passes = pipeline.checked(max_iterations if is_long else None, places, _LAST_PLACE, reads)
    # Made at once, and not when a kernel is: it fills `places`.
    final = pipeline.run(passes, product.function)
    new = replace(
        product,
        kinds=(*product.kinds, "int"),
        make=lambda: final,
        make_forward=lambda: pipeline.run(passes, product.forward),
    )
    return new, Checks(name, max_iterations, places, number_of_indices(product.function))
