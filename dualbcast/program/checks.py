"""Checks of each element while a kernel runs: loops that take too long and indices out of range.

Comes in: a product's function. Goes out: one with an additional output, and the error for what that says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dualbcast.errors import BoundsError, IterationError, Location
from dualbcast.ir.nodes import Function
from dualbcast.runtime.arguments import beside

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


def checks_of(
    function: Function, max_iterations: int | None, name: str
) -> tuple[Function, Callable[[Function], Function], Checks] | None:
    """A product's function with one more output, how another form of it gets that, and the checks; None where nothing
    can fail."""
    from dualbcast.passes.bounds_checks import has_indices, number_of_indices
    from dualbcast.passes.iteration_limits import has_long_loops
    from dualbcast.program import pipeline

    reads, most = has_indices(function), max_iterations
    if most is not None and not has_long_loops(function.body, most):
        most = None
    if not reads and most is None:
        return None
    places: dict[Location, int] = {}
    run = partial(pipeline.run, pipeline.checked(most, places, _LAST_PLACE, reads))
    # Made at once, and not when a kernel is: it fills `places`.
    return run(function), run, Checks(name, max_iterations, places, number_of_indices(function))
