"""Oracles for the graph's tests: derivatives by differences of functions that NumPy alone computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = Any


def slopes(function: Callable[..., Any], args: Sequence[Array], step: float = 1e-3) -> list[Array]:
    """The gradient of a number in every element of every argument, by central differences of sixth order."""
    found = []
    for at, arg in enumerate(args):
        slope = np.zeros(np.shape(arg))
        for place in np.ndindex(np.shape(arg)):

            def moved(distance: float, at: int = at, place: Any = place) -> Any:
                new = [np.array(each, float) for each in args]
                new[at][place] += distance
                return function(*new)

            terms = ((45, 1), (-9, 2), (1, 3))
            slope[place] = sum(w * (moved(k * step) - moved(-k * step)) for w, k in terms) / (60 * step)
        found.append(slope)
    return found


def along(function: Callable[..., Any], args: Sequence[Array], tangents: Sequence[Array], step: float = 1e-3) -> Any:
    """The tangent of an array, or of a list of arrays, along tangents of the arguments, in the same way."""

    def moved(distance: float) -> Any:
        result = function(*[arg + distance * tangent for arg, tangent in zip(args, tangents, strict=True)])
        return result if isinstance(result, list) else np.asarray(result)

    def combined(parts: list[Any]) -> Any:
        return (45 * parts[0] - 9 * parts[1] + parts[2]) / (60 * step)

    pairs = [(moved(k * step), moved(-k * step)) for k in (1, 2, 3)]
    if not isinstance(pairs[0][0], list):
        return combined([plus - minus for plus, minus in pairs])
    return [combined([plus[at] - minus[at] for plus, minus in pairs]) for at in range(len(pairs[0][0]))]
