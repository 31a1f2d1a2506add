"""Element functions made of others: compositions, and the contraction of a kept Jacobian.

Comes in: expressions that wait for one another. Goes out: one element function of their leaves.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from dualbcast.autodiff.derived_functions import contraction_of
from dualbcast.graph.lazy import Gathered
from dualbcast.ir.compose import Step, compose
from dualbcast.ir.nodes import Function, Output, Var
from dualbcast.program.element import Element
from dualbcast.program.typed_product import Options

__all__ = ["TOTAL", "Composition", "composed", "composition_of", "contracted"]

# The function that gives its argument, to be summed.
TOTAL = Element(
    Function("total", (Var("x", "float"),), (), (Output("out", Var("x", "float")),)), ("x",), "sum", Options()
)
# The label of a composition names so many of its functions, from the end.
_LABELLED = 4
# Compositions that are remembered: a model has some dozens.
_COMPOSITIONS_KEPT = 2048


def composed(
    steps: Sequence[tuple[Element, tuple[int, ...]]], leaves: int, outputs: tuple[int, ...], options: Options
) -> Element:
    """An element function that computes others, some of them of the results of others.

    Parameters
    ----------
    steps : sequence of (Element, tuple of int)
        Each function with its arguments, which are numbers of values: the parameters of the composition are the first
        values, and the outputs of each step the next.
    leaves : int
        How many parameters the composition has.
    outputs : tuple of int
        The values that it returns, by number.
    options : Options
    """
    ((first, refs), *others) = steps
    if not others and refs == tuple(range(leaves)) and len(outputs) == len(first.function.outputs):
        return first
    labels = [element.label for element, _ in steps]
    label = " → ".join(dict.fromkeys(labels[-_LABELLED:]))
    if len(labels) > _LABELLED:
        label = f"… {label}"
    kinds: dict[int, Any] = {}
    for element, inputs in steps:
        kinds.update(zip(inputs, (param.kind for param in element.function.params), strict=True))
    inner = [Step(element.function, inputs) for element, inputs in steps]
    name = "expression" if others else first.function.name
    function = compose(name, [kinds.get(at, "float") for at in range(leaves)], inner, outputs)
    return Element(function, tuple(param.name for param in function.params), label, options)


@lru_cache(maxsize=1024)
def contracted(pattern: tuple[tuple[float | None, ...], ...], label: str) -> Element:
    """The element function that contracts a kept Jacobian with cotangents; see `contraction_of`."""
    function = contraction_of(pattern)
    return Element(function, tuple(param.name for param in function.params), f"{label}: contraction", Options())


# --- structures of expressions ---------------------------------------------------------------------------------------


class Composition:
    """A structure of expressions, with the element functions made of it.

    Attributes
    ----------
    learned : set of (int, int)
        Outputs of inner expressions that were asked for after all: the kernel gives them, too, the next time.
    """

    __slots__ = ("_elements", "_leaves", "_options", "_steps", "learned")

    def __init__(self, gathered: Gathered) -> None:
        elements = [expression.element for expression in gathered.order]
        self._steps, self._leaves = list(zip(elements, gathered.refs, strict=True)), len(gathered.leaves)
        # They differ at most in whether the Jacobian is kept: the first that is not "auto" counts.
        chosen = [element.options for element in elements]
        self._options = next((options for options in chosen if options.jacobian != "auto"), chosen[0])
        self._elements: dict[tuple[int, ...], Element] = {}
        self.learned: set[tuple[int, int]] = set()

    def element(self, outputs: tuple[int, ...]) -> Element:
        """The element function that gives some of the values, which are numbered as in `compose`."""
        element = self._elements.get(outputs)
        if element is None:
            element = self._elements[outputs] = composed(self._steps, self._leaves, outputs, self._options)
        return element


_COMPOSITIONS: OrderedDict[Any, Composition] = OrderedDict()


def composition_of(gathered: Gathered) -> Composition:
    """The composition of gathered expressions, which is the same object for the same structure."""
    key = (
        tuple([expression.element for expression in gathered.order]),
        tuple(gathered.refs),
        len(gathered.leaves),
    )
    composition = _COMPOSITIONS.get(key)
    if composition is None:
        composition = _COMPOSITIONS[key] = Composition(gathered)
        if len(_COMPOSITIONS) > _COMPOSITIONS_KEPT:
            _COMPOSITIONS.popitem(last=False)
    else:
        _COMPOSITIONS.move_to_end(key)
    return composition
