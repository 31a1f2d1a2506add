"""Element functions made of others: compositions, and the contraction of a kept Jacobian.

Comes in: expressions that wait for one another. Goes out: one element function of their leaves.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from dualbcast.autodiff.differentiate import contraction_of
from dualbcast.graph.lazy import Gathered
from dualbcast.ir.compose import Step, compose
from dualbcast.ir.nodes import Function, Output, Var
from dualbcast.program.element import Element
from dualbcast.program.typed_product import Options

# The identity function, whose output is summed.
TOTAL = Element(
    Function("total", (Var("x", "float"),), (), (Output("out", Var("x", "float")),)), ("x",), "sum", Options()
)
# The label of a composition names so many of its last functions.
_LABELLED = 4
# A model has some dozens of compositions.
_COMPOSITIONS_KEPT = 2048


class Composition:
    """A structure of expressions, with the element functions made of it.

    Parameters
    ----------
    elements : tuple of Element
        Functions, some of which take results of earlier ones.
    refs : tuple of tuple of int
        For each function its arguments, which are numbers of values: the parameters of the composition are the first
        values, and the outputs of each function the next.
    leaves : int
        How many parameters the composition has.

    Attributes
    ----------
    learned : set of (int, int)
        Outputs of inner expressions that were asked for later, by the position of the expression and their own. The
        next kernel stores them, too.
    """

    __slots__ = ("_composed", "_elements", "_leaves", "_refs", "learned")

    def __init__(self, elements: tuple[Element, ...], refs: tuple[tuple[int, ...], ...], leaves: int) -> None:
        self._elements, self._refs, self._leaves = elements, refs, leaves
        self._composed: dict[tuple[int, ...], Element] = {}
        self.learned: set[tuple[int, int]] = set()

    def element(self, outputs: tuple[int, ...]) -> Element:
        """The element function that gives some of the values, by their numbers."""
        element = self._composed.get(outputs)
        if element is None:
            element = self._composed[outputs] = self._compose(outputs)
        return element

    def _compose(self, outputs: tuple[int, ...]) -> Element:
        first, *others = self._elements
        if not others and self._refs[0] == tuple(range(self._leaves)) and len(outputs) == len(first.function.outputs):
            return first
        labels = [element.label for element in self._elements]
        label = " → ".join(dict.fromkeys(labels[-_LABELLED:]))
        if len(labels) > _LABELLED:
            label = f"… {label}"
        kinds: dict[int, Any] = {}
        for element, inputs in zip(self._elements, self._refs, strict=True):
            kinds.update(zip(inputs, (param.kind for param in element.function.params), strict=True))
        steps = [Step(element.function, inputs) for element, inputs in zip(self._elements, self._refs, strict=True)]
        name = "expression" if others else first.function.name
        function = compose(name, [kinds.get(at, "float") for at in range(self._leaves)], steps, outputs)
        # The options differ at most in whether the Jacobian is kept. The first that is not "auto" counts.
        chosen = [element.options for element in self._elements]
        options = next((options for options in chosen if options.jacobian != "auto"), chosen[0])
        return Element(function, tuple(param.name for param in function.params), label, options)


_composition = lru_cache(maxsize=_COMPOSITIONS_KEPT)(Composition)


def composition_of(gathered: Gathered) -> Composition:
    """The composition of gathered expressions, which is the same object for the same structure."""
    elements = tuple([expression.element for expression in gathered.order])
    return _composition(elements, tuple(gathered.refs), len(gathered.leaves))


@lru_cache(maxsize=1024)
def contracted(pattern: tuple[tuple[float | None, ...], ...], label: str) -> Element:
    """The element function that contracts a kept Jacobian with cotangents; see `contraction_of`."""
    function = contraction_of(pattern)
    return Element(function, tuple(param.name for param in function.params), f"{label}: contraction", Options())
