"""What can be computed of a scalar function, each as IR ready to be emitted: its value, its Jacobian, or both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from dualbcast.compiler.dualize import dualize
from dualbcast.compiler.ir import Const, Function, Kind, Output
from dualbcast.compiler.simplify import remove_dead, simplify
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
    """

    function: Function
    values: int
    count: int
    structure: Structure
    blocks: dict[tuple[int, int], Block]

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kind of each stored output."""
        return tuple(output.value.kind for output in self.function.outputs)


def make_product(function: Function, which: Which, wrt: Sequence[int]) -> Product:
    """Compile a scalar function to a product.

    Parameters
    ----------
    function : Function
        As it was lowered.
    which : str
        What to compute.
    wrt : sequence of int
        The parameters to differentiate in.

    Raises
    ------
    CompileError
        At the user's line.
    """
    count, structure = len(function.outputs), function.structure
    if which == "value":
        return Product(simplify(function), count, count, structure, {})
    dual = dualize(function, wrt)
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
    return Product(final, values, count, structure, blocks)
