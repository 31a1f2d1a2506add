"""Whole arrays in calls on Variables: those that carry derivatives come in, and the elements that are read of them go
out as Variables, which the call gets in their place.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dualbcast.api.specialisation import Specialisation
from dualbcast.api.whole_arrays import flat, spread
from dualbcast.errors import ArgumentError
from dualbcast.graph.frozen import freeze
from dualbcast.graph.fused_region import parts_of
from dualbcast.graph.indexing import getitem
from dualbcast.graph.primitives import arrays_of
from dualbcast.graph.recording import fresh_constant, performed
from dualbcast.graph.shapes import reshape
from dualbcast.graph.tape import STATE
from dualbcast.graph.variable import Variable, registered
from dualbcast.program.element import Element
from dualbcast.program.whole_arrays import opened, reads_outside_loops


@registered
def open_whole(specialisation: Specialisation, values: tuple[Any, ...]) -> tuple[Element, tuple[Any, ...]]:
    """The function of a call, and its arguments, where what it reads of tracked Variables are arguments, too."""
    whole, element = specialisation.program.whole, specialisation.element
    arguments, tracked = list(values), list[int]()
    for place, axes in whole:
        value = values[place]
        # No element of an empty array is read, and none has a cotangent.
        if isinstance(value, Variable) and value.tracked and STATE.is_recording and value.size:
            tracked.append(place)
        arguments[place] = _first_of(values, place, axes)
    if not tracked:
        return element, tuple(arguments)
    for place in tracked:
        if reads_outside_loops(element, place) is None:
            name = element.names[place]
            raise ArgumentError(
                f"{element.label} reads {name} in a loop, and {name} is a Variable: the graph takes no derivative in "
                f"it there. Pass {name}.value as a constant; or loop over a short range that is known, and write its "
                f"variable in the index, such as for k in range(3) and {name}[i + k]"
            )
    finder, inner, counts = opened(element, tuple(tracked))
    if finder is None:
        return inner, tuple(arguments)
    dtypes = (np.dtype(np.int64),) * sum(counts)
    found = iter(performed(parts_of, *arrays_of(arguments), element=finder, dtypes=dtypes, shapes=None))
    read = []
    for place, count in zip(tracked, counts, strict=True):
        elements = reshape(values[place], (-1,))
        read += [getitem(elements, next(found)) for _ in range(count)]
    return inner, (*arguments, *read)


def _first_of(values: tuple[Any, ...], place: int, axes: int) -> Variable:
    """The first element of a whole array, in whose memory the others follow and stay as they are."""
    value = values[place]
    if isinstance(value, Variable):
        if STATE.recorder is not None:
            # A program gives small arrays memory of its own, element by element.
            STATE.recorder.stop("a call reads a Variable as a whole array")
        first = Variable._of(spread(value.array, "")[0], False)
        first.frozen = value.frozen
        return first
    array = flat(values, place, axes)
    if not array.size:
        return Variable._of(value, False)
    array, frozen = freeze(array, STATE.observer is not None)
    first = Variable._of(fresh_constant(array[0, ...]), False)
    first.frozen = frozen
    return first
