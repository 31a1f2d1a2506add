"""Products of an element function: from its IR to that of a kernel for its values, Jacobian, Hessian, or several; and
their keys in the cache on disk.

In the first call of a process differentiation takes longer than all else, with the imports that it needs. A product
that is on disk needs neither.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import Any, Literal, NamedTuple

from dualbcast import disk_cache
from dualbcast.ir.nodes import Const, Function, Kind, Op, Output, Structure

# "parts" are the values too, but floats that are one number everywhere are not stored: they are blocks.
Which = Literal["value", "parts", "jacobian", "value_and_jacobian", "hessian", "value_jacobian_and_hessian"]
# An output; its partial in a parameter; its second partial in two.
_Place = tuple[int, ...]


class Block(NamedTuple):
    """Where an array of results comes from: a stored output, or one number for all elements."""

    stored: int | None = None
    constant: float = 0.0


@dataclass(frozen=True)
class Product:
    """A product: its IR, and the results that its kernels store.

    Attributes
    ----------
    kinds : tuple of str
        The kind of each stored output: values first, then the partials that vary.
    values : int
        How many values are stored, 0 for a Jacobian alone.
    structure : Structure
        The structure that the scalar function returns.
    blocks : dict
        Where the other results come from: the partial of an output by (output, parameter), a second partial by (output,
        parameter, parameter) with the parameters in the order of `wrt`, a value among "parts" by (output,). A
        structural zero is the constant 0.
    jacobian : int
        How many first partials are stored; they come after the values.
    work : float
        Of "parts", which may be summed, the operations that an element takes, in units of an addition; else 0.
    make, make_forward : callable
        Make `function` and `forward`.
    """

    kinds: tuple[Kind, ...]
    values: int
    structure: Structure
    blocks: dict[_Place, Block]
    jacobian: int
    work: float
    make: Callable[[], Function]
    make_forward: Callable[[], Function]

    @cached_property
    def function(self) -> Function:
        """The IR of its kernels, with one output for each stored result."""
        return self.make()

    @cached_property
    def forward(self) -> Function:
        """The same in forward mode, for targets with few registers: partials are computed along with the values."""
        return self.make_forward()


def make_product(function: Function, which: Which, wrt: Sequence[int]) -> Product:
    """The product of a scalar function, as it was lowered, with derivatives in the parameters `wrt`.

    Raises
    ------
    CompileError
        At the user's line.
    """
    # Imported here, since a product whose facts are on disk does not need them.
    from dualbcast.autodiff.eliminate import is_shorter
    from dualbcast.autodiff.operation_cost import cost_of_element

    reverse = which not in ("value", "parts") and is_shorter(function)
    both, results = _computed(function, which, wrt, reverse=reverse, fused=True)
    stored: list[_Place] = [(at,) for at in range(len(function.outputs))] if which.startswith("value") else []
    values = len(stored)
    blocks: dict[_Place, Block] = {}
    for place in [place for place in results if which == "parts" or len(place) > 1]:
        value = results[place].value
        # A value that is an integer is stored, so that it keeps its dtype and its digits.
        if isinstance(value, Const) and value.kind == "float":
            blocks[place] = Block(constant=float(value.value))
        else:
            blocks[place] = Block(stored=len(stored))
            stored.append(place)
    final = _storing(both, results, stored)
    return Product(
        kinds=tuple(output.value.kind for output in final.outputs),
        values=values,
        structure=function.structure,
        blocks=blocks,
        jacobian=sum(len(place) == 2 for place in stored),
        work=cost_of_element(final) if which == "parts" else 0.0,
        make=lambda: final,
        make_forward=lambda: _storing(*_computed(function, which, wrt), stored),
    )


def _computed(
    function: Function, which: Which, wrt: Sequence[int], *, reverse: bool = False, fused: bool = False
) -> tuple[Function, dict[_Place, Output]]:
    """IR with all results among its outputs; these, as in `Product.blocks`, and the values. See `dualize`."""
    from dualbcast.autodiff.differentiate import dualize, hessian_of
    from dualbcast.program import pipeline

    count = len(function.outputs)
    both = function
    names: dict[_Place, str | None] = {}
    if which not in ("value", "parts"):
        second: Mapping[Any, str] = {}
        if "hessian" in which:
            dual, second = hessian_of(function, wrt, reverse=reverse)
        else:
            dual = dualize(function, wrt, reverse=reverse)
        both = dual.function
        if which != "hessian":
            names = {(i, d): dual.partials.get((i, d)) for i in range(count) for d in wrt}
        if "hessian" in which:
            pairs = [(p, q) for at, p in enumerate(wrt) for q in wrt[at:]]
            names |= {(i, p, q): second.get((i, p, q)) for i in range(count) for p, q in pairs}
    both = pipeline.run(pipeline.product(fused), both)
    named = {output.name: output for output in both.outputs}
    results: dict[_Place, Output] = {(at,): output for at, output in enumerate(both.outputs[:count])}
    for place, name in names.items():
        # A partial that is zero everywhere has no name.
        zero = Output("_".join(["zero", *map(str, place)]), Const(0.0, "float"))
        results[place] = zero if name is None else named[name]
    return both, results


def _storing(both: Function, results: Mapping[_Place, Output], stored: Sequence[_Place]) -> Function:
    """The IR of some results."""
    from dualbcast.ir.traversal import remove_dead

    return remove_dead(replace(both, outputs=tuple(results[place] for place in stored)))


def product(function: Function, which: Which, wrt: tuple[int, ...], identity: str) -> Product:
    """The product that `make_product` returns. If its facts are on disk, its IR is made only when it is needed."""
    if not identity:
        return make_product(function, which, wrt)
    compiled: list[Product] = []

    def compile_facts() -> bytes:
        new = make_product(function, which, wrt)
        compiled.append(new)
        blocks = {place: tuple(block) for place, block in new.blocks.items()}
        return marshal.dumps((new.kinds, new.values, blocks, new.jacobian, new.work))

    payload = disk_cache.fetch(disk_cache.key("product", disk_cache.STAMP, identity, which, repr(wrt)), compile_facts)
    if compiled:
        return compiled[0]
    kinds, values, places, jacobian, work = marshal.loads(payload)
    blocks = {place: Block(*block) for place, block in places.items()}
    again = cache(partial(make_product, function, which, wrt))
    forms = lambda: again().function, lambda: again().forward
    return Product(kinds, values, function.structure, blocks, jacobian, work, *forms)


def identity(function: Function) -> str:
    """A text that two functions share only if they compile to the same kernels in any process.

    It is empty where the kernels depend on a user's rule or partials, which are not in the IR.
    """
    try:
        return repr(_plain(function))
    except _UserDefined:
        return ""


class _UserDefined(Exception):
    """The IR has an operation whose value or derivative a user has defined.

    A user cannot redefine a function of the library, so that other operations mean the same in any process.
    """


# This function of the library is registered as users' functions are, and always as the first one.
_STOP = "stop_derivative#1"


def _plain(node: Any) -> Any:
    """A node of the IR as tuples, without the parts that no kernel depends on: places in the user's file, and the
    structure that the function returns."""
    kind: Any = type(node)
    if kind is tuple:
        return tuple([_plain(item) for item in node])
    if kind in (str, bool):
        return node
    if kind is Const:
        return "Const", repr(node.value), node.kind
    if kind is Op and "#" in node.name and node.name != _STOP:
        raise _UserDefined
    return kind.__name__, *[_plain(getattr(node, name)) for name in _fields_of(kind)]


@cache
def _fields_of(kind: Any) -> tuple[str, ...]:
    return tuple([name for name in kind.__match_args__ if name not in ("location", "structure")])
