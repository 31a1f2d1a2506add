"""Primitives of complex arrays, applied to the parts of complex Variables.

Comes in: a primitive whose forward function and pullback take complex arrays and Variables. Goes out: one of the real
and imaginary parts, so that batches, replays and derivatives of derivatives meet real arrays only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from dualbcast.graph.arrays import is_complex, namespace
from dualbcast.graph.primitives import output_of, run, run_several, zeros
from dualbcast.graph.shapes import sum_to
from dualbcast.graph.tape import Cotangents, Node, Primitive
from dualbcast.graph.variable import Variable, registered

# The outputs of a primitive that gives one real array, which has fixed memory in replays.
_ONE_REAL = (False,)


@registered
def run_complex(primitive: Primitive, inputs: tuple[Any, ...], static: dict[str, Any]) -> tuple[Variable, ...]:
    """The outputs of a primitive of complex numbers; its inputs may be real as well."""
    kinds = tuple([is_complex(each) for each in inputs])
    parts, of_parts = tuple(_parts(inputs, kinds)), _of_parts(primitive, kinds)
    if primitive.complex_outputs == _ONE_REAL:
        return (run(of_parts, parts, **static),)
    return tuple(_joined(run_several(of_parts, parts, **static), primitive.complex_outputs))


def _parts(values: Sequence[Any], kinds: Sequence[bool]) -> Iterator[Any]:
    """The real and imaginary parts of complex values, the real parts of the others; None has parts that are None."""
    for value, has_parts in zip(values, kinds, strict=True):
        yield None if value is None else value.real
        if has_parts:
            yield None if value is None else value.imag


def _joined(parts: Sequence[Any], kinds: Sequence[bool]) -> Iterator[Any]:
    """The values that have these parts: Variables or arrays. Of cotangents one part may be missing, or both."""
    remaining = iter(parts)
    for has_parts in kinds:
        real: Any = next(remaining)
        imag: Any = next(remaining) if has_parts else None
        if not has_parts or (real is None and imag is None):
            yield real
        elif isinstance(real, Variable) or isinstance(imag, Variable):
            yield Variable.__join_complex__(
                zeros(imag) if real is None else real, zeros(real) if imag is None else imag
            )
        else:
            shape = real.shape if real.shape == imag.shape else np.broadcast_shapes(real.shape, imag.shape)
            array = namespace(real).empty(shape, dtype=np.result_type(real.dtype, np.complex64))
            array.real, array.imag = real, imag
            yield array


@cache
def _of_parts(primitive: Primitive, kinds: tuple[bool, ...]) -> Primitive:
    """The primitive whose inputs and outputs are the parts; `kinds` says which of the inputs are complex."""
    kinds_of_outputs = primitive.complex_outputs

    def forward(*parts: Any, **static: Any) -> Any:
        found = primitive.forward(*_joined(parts, kinds), **static)
        if kinds_of_outputs == _ONE_REAL:
            return found
        return [*_parts(found if isinstance(found, tuple) else (found,), kinds_of_outputs)]

    def pullback(node: Node, cotangents: Cotangents, wanted: tuple[bool, ...]) -> Cotangents:
        saved = [output_of(node, index) for index in range(len(node.saved))]
        whole: Any = SimpleNamespace(
            inputs=tuple(_joined(node.inputs, kinds)),
            static=node.static,
            saved=tuple(_joined(saved, kinds_of_outputs)) if saved else (),
        )
        remaining = iter(wanted)
        pairs = [[next(remaining) for _ in range(1 + has_parts)] for has_parts in kinds]
        pulled = primitive.pullback(whole, tuple(_joined(cotangents, kinds_of_outputs)), tuple(map(any, pairs)))
        # Parts may have been broadcast to one another.
        return [
            None if part is None else sum_to(part, each.shape)
            for part, each in zip(_parts(pulled, kinds), node.inputs, strict=True)
        ]

    return Primitive(primitive.name, forward, pullback, primitive.saves_outputs)
