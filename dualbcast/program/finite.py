"""Results that are not finite, though the arguments are: the first such element, and the operation it comes from.

The outputs of a kernel come in. Where one has a NaN, or for "finite" an infinity, an error goes out, for which the
element is evaluated once more step by step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dualbcast.errors import Location, NonFiniteError
from dualbcast.ir import nodes as ir
from dualbcast.ir.traversal import whole_arrays
from dualbcast.program.evaluation import Evaluation, arguments_at, shown_arguments, written
from dualbcast.program.outputs import is_float, library_of, unsound
from dualbcast.program.products import Check, TypedProduct


def error_of(spec: TypedProduct, arrays: Sequence[Any], outputs: Sequence[Any], check: Check) -> NonFiniteError | None:
    """The error for the first element that has such a number, and no argument that is one; None where there is none.

    `arrays` are the arguments, and `outputs` what the kernel of a product has stored, not summed.
    """
    function, shape = spec.product.function, np.shape(outputs[0])
    library: Any = library_of(outputs[0])
    bad = library.zeros(shape, bool)
    for array in outputs:
        if is_float(array):
            bad |= unsound(array, check)
    whole = whole_arrays(function)
    for array, param in zip(arrays, function.params, strict=True):
        if is_float(array) and param.name not in whole:
            bad &= library.broadcast_to(library.asarray(~unsound(array, check)), shape)
    if not bool(bad.any()):
        return None
    index = tuple(map(int, np.unravel_index(int(bad.argmax()), shape)))
    given = arguments_at(function, arrays, index, spec.signature.compute)
    stored = [at for at, array in enumerate(outputs) if is_float(array) and bool(unsound(array[index], check))]
    found = _Sources(spec.signature.compute).run(function, given)
    first = next((at for at in stored if found[at][1] is not None), stored[0])
    nan, any_source = found[first][1] or (None, None)
    source = nan if check == "nan" else any_source
    inputs = shown_arguments(spec.names, given)
    result = f"{_described(spec, first)} is {outputs[first][index]}"
    if source is None:
        number, dtype = found[first][0], outputs[first].dtype
        with np.errstate(over="ignore"):
            is_too_large = not np.isfinite(np.asarray(number).astype(dtype))
        reason = (
            f"since {number:.6g} is beyond the range of {dtype}"
            if is_too_large
            else "which no step gives if this element is computed alone: its operations have another order then"
        )
        text = f"{result}, {reason}"
        return NonFiniteError(spec.label, text, function.location, index, inputs)
    earlier = None if any_source in (None, source) else any_source
    return NonFiniteError(spec.label, f"{source.text} here, so {result}", source.where, index, inputs, earlier)


def error_of_sums(spec: TypedProduct, check: Check) -> NonFiniteError:
    """The error of sums that have such a number, though no term is one."""
    what = "NaN" if check == "nan" else "not finite"
    text = f"a sum over the elements is {what}, though no term of it is"
    return NonFiniteError(spec.label, text, spec.product.function.location)


def _described(spec: TypedProduct, stored: int) -> str:
    """A stored output in a message."""
    product = spec.product
    places = {block.stored: place for place, block in product.blocks.items()}
    output, *wrt = (stored,) if stored < product.values else places[stored]
    if spec.parts is not None or ":" in spec.label:  # of a derived function
        return f"a result of {spec.label}"
    parts = product.structure.labels()[output].split(".")
    # As the user would write it: `f[0].price`.
    name = spec.label + "".join([f"[{part}]" if part.isdigit() else f".{part}" for part in parts if part])
    below = "∂".join(["", *[spec.names[at] for at in wrt]])
    return f"{'∂²' if len(wrt) == 2 else '∂'}{name}/{below}" if wrt else name


class Source(NamedTuple):
    """The operation that a number comes from: its place, and the operation with its numbers."""

    where: Location
    text: str


# Where a number became NaN, and where it stopped being finite.
_Both = tuple[Source | None, Source | None]


class _Sources(Evaluation[_Both]):
    """An evaluation that remembers where numbers that are not finite come from."""

    def known(self, number: Any, where: Location) -> _Both | None:
        if not isinstance(number, np.floating) or np.isfinite(number):
            return None
        source = Source(where, f"the constant {number}")
        return (source if np.isnan(number) else None), source

    def found(self, op: ir.Op, args: Sequence[tuple[Any, _Both | None]], result: Any, where: Location) -> _Both | None:
        if not isinstance(result, np.floating) or np.isfinite(result):
            return None
        own = Source(where, written(op, [number for number, _ in args], result, self.dtype))
        before = [both for number, both in args if both is not None and not np.isfinite(number)]
        nan = next((nan for nan, _ in before if nan is not None), own) if np.isnan(result) else None
        return nan, next((infinity for _, infinity in before if infinity is not None), own)
