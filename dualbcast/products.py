"""What can be computed of a scalar function, each as IR ready to be emitted: its value, its Jacobian, or both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from dualbcast.compiler.dualize import dualize
from dualbcast.compiler.ir import Const, Function, Kind, Output
from dualbcast.compiler.simplify import remove_dead, simplify
from dualbcast.compiler.source import Capture
from dualbcast.compiler.templates import lower
from dualbcast.structure import Structure

__all__ = ["Block", "Product", "Which", "make_product"]

Which = Literal["value", "jacobian", "value_and_jacobian"]


@dataclass(frozen=True, slots=True)
class Block:
    """Where the block ∂output/∂parameter of a Jacobian comes from: a stored output, or one number for all elements."""

    stored: int | None = None
    constant: float = 0.0


@dataclass(frozen=True, slots=True)
class Product:
    """A product in IR.

    Attributes
    ----------
    function : Function
        Its outputs are what the kernel stores: values first, then the partials that vary.
    values : int
        How many values are stored, 0 for a Jacobian alone.
    count : int
        How many outputs the scalar function has.
    structure : Structure
        What the scalar function returns.
    blocks : dict
        For each (output, parameter) where the block comes from; a structural zero is the constant 0.
    guards : tuple of Capture
        The captured names that were compiled in, with their values then.
    """

    function: Function
    values: int
    count: int
    structure: Structure
    blocks: dict[tuple[int, int], Block]
    guards: tuple[Capture, ...]

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kind of each stored output."""
        return tuple(output.value.kind for output in self.function.outputs)


def make_product(function: Callable[..., Any], which: Which, kinds: Sequence[Kind], wrt: Sequence[int]) -> Product:
    """Compile a scalar function to a product.

    Parameters
    ----------
    function : function
        The user's.
    which : str
        What to compute.
    kinds : sequence of str
        "float", "int" or "bool" for each argument.
    wrt : sequence of int
        The arguments to differentiate in.

    Raises
    ------
    CompileError
        At the user's line.
    """
    lowered = lower(function, kinds)
    count, structure = len(lowered.function.outputs), lowered.function.structure
    if which == "value":
        return Product(simplify(lowered.function), count, count, structure, {}, lowered.guards)
    dual = dualize(lowered.function, wrt)
    both = simplify(dual.function)
    outputs = {output.name: output for output in both.outputs}
    stored: list[Output] = list(both.outputs[:count]) if which == "value_and_jacobian" else []
    values = len(stored)
    blocks = {(i, d): Block() for i in range(count) for d in wrt}
    for place, name in dual.partials.items():
        output = outputs[name]
        if isinstance(output.value, Const):
            blocks[place] = Block(constant=float(output.value.value))
        else:
            blocks[place] = Block(stored=len(stored))
            stored.append(output)
    final = remove_dead(replace(both, outputs=tuple(stored)))
    return Product(final, values, count, structure, blocks, lowered.guards)
