"""What can be computed of an element function, each as IR ready to be emitted: values, Jacobian, Hessian, or more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from dualbcast.compiler.ir import Const, Function, Kind, Output
from dualbcast.record import NamedTuple, replace
from dualbcast.structure import Structure

__all__ = ["Block", "Product", "Which", "make_product"]

# "parts" are the values too, but floats that are one number everywhere are not stored: they are blocks.
Which = Literal["value", "parts", "jacobian", "value_and_jacobian", "hessian", "value_jacobian_and_hessian"]


class Block(NamedTuple):
    """Where an array of results comes from: a stored output, or one number for all elements."""

    stored: int | None = None
    constant: float = 0.0


class Product:
    """A product: its IR, and what its kernels store.

    Attributes
    ----------
    kinds : tuple of str
        The kind of each stored output: values first, then the partials that vary.
    values : int
        How many values are stored, 0 for a Jacobian alone.
    count : int
        How many outputs the scalar function has.
    structure : Structure
        What the scalar function returns.
    blocks : dict
        Where the other results come from: the partial of an output by (output, parameter), a second partial by (output,
        parameter, parameter) with the parameters in the order of `wrt`, a value among "parts" by (output,). A
        structural zero is the constant 0.
    jacobian : int
        How many first partials are stored; they come after the values.
    """

    __slots__ = ("_function", "_make", "blocks", "count", "jacobian", "kinds", "structure", "values")

    def __init__(
        self,
        kinds: tuple[Kind, ...],
        values: int,
        count: int,
        structure: Structure,
        blocks: dict[tuple[int, ...], Block],
        jacobian: int,
        make: Callable[[], Function],
    ) -> None:
        self.kinds, self.values, self.count, self.structure = kinds, values, count, structure
        self.blocks, self.jacobian = blocks, jacobian
        self._make = make
        self._function: Function | None = None

    @property
    def function(self) -> Function:
        """Its IR, ready to be emitted; the outputs are what is stored."""
        if self._function is None:
            self._function = self._make()
        return self._function


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
    # They are not needed, nor imported, for what has been kept.
    from dualbcast.compiler.dualize import dualize
    from dualbcast.compiler.simplify import remove_dead, simplify
    from dualbcast.compiler.transform import hessian_of

    count, structure = len(function.outputs), function.structure
    if which == "value":
        return _product(simplify(function), count, count, structure, {})
    places: dict[tuple[int, ...], str | None] = {}
    if which == "parts":
        both = simplify(function)
        places = {(at,): output.name for at, output in enumerate(both.outputs)}
    elif "hessian" in which:
        dual, second = hessian_of(function, wrt)
        both = dual.function
        pairs = [(i, p, q) for i in range(count) for at, p in enumerate(wrt) for q in wrt[at:]]
        if which != "hessian":
            places = {(i, d): dual.partials.get((i, d)) for i in range(count) for d in wrt}
        places.update({pair: second.get(pair) for pair in pairs})
    else:
        dual = dualize(function, wrt)
        both = simplify(dual.function)
        places = {(i, d): dual.partials.get((i, d)) for i in range(count) for d in wrt}
    outputs = {output.name: output for output in both.outputs}
    stored: list[Output] = list(both.outputs[:count]) if which.startswith("value") else []
    values = len(stored)
    blocks: dict[tuple[int, ...], Block] = {}
    for place, name in places.items():
        value = None if name is None else outputs[name].value
        # A value that is an integer is stored, so that it keeps its dtype and its digits.
        if value is None or (isinstance(value, Const) and value.kind == "float"):
            blocks[place] = Block(constant=0.0 if value is None else float(value.value))
        else:
            assert name is not None
            blocks[place] = Block(stored=len(stored))
            stored.append(outputs[name])
    final = remove_dead(replace(both, outputs=tuple(stored)))
    first = sum(len(place) == 2 and block.stored is not None for place, block in blocks.items())
    return _product(final, values, count, structure, blocks, first)


def _product(
    function: Function,
    values: int,
    count: int,
    structure: Structure,
    blocks: dict[tuple[int, ...], Block],
    jacobian: int = 0,
) -> Product:
    kinds = tuple(output.value.kind for output in function.outputs)
    return Product(kinds, values, count, structure, blocks, jacobian, lambda: function)
