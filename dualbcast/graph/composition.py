"""Element functions made of others: compositions, the contraction of a kept Jacobian, and the sum of what there is."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from dualbcast.autodiff.derived_functions import contraction_of
from dualbcast.ir.compose import Step, compose
from dualbcast.ir.nodes import Function, Output, Var
from dualbcast.program.element import Element
from dualbcast.program.typed_product import Options

__all__ = ["TOTAL", "composed", "contracted"]

# The function that gives its argument, to be summed.
TOTAL = Element(
    Function("total", (Var("x", "float"),), (), (Output("out", Var("x", "float")),)), ("x",), "sum", Options()
)
# So many of its functions, the last ones, a composition is called after.
_NAMED = 4


def composed(
    steps: Sequence[tuple[Element, tuple[int, ...]]], leaves: int, outputs: tuple[int, ...], options: Options
) -> Element:
    """An element function that computes others, some of them of the results of others.

    Parameters
    ----------
    steps : sequence of (Element, tuple of int)
        Each with its arguments, which are values by their number: the parameters of the composition are the first
        ones, and the outputs of each step the next.
    leaves : int
        How many parameters it has.
    outputs : tuple of int
        The values that it returns.
    options : Options
    """
    ((first, refs), *others) = steps
    if not others and refs == tuple(range(leaves)) and len(outputs) == len(first.function.outputs):
        return first
    labels = [element.label for element, _ in steps]
    label = " → ".join(dict.fromkeys(labels[-_NAMED:]))
    if len(labels) > _NAMED:
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
