"""Vectors as llvmlite has them, and what it lacks: the type of a vector like another, one number in all places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

__all__ = ["PLACE", "Lanes", "any_of", "is_single", "like", "lone", "shuffled", "splat"]

# The type of a place in a vector.
PLACE = ir.IntType(32)


class Lanes(ir.VectorType):  # type: ignore[misc]
    """A vector type whose constants are written shortly, and which intrinsics can be declared for."""

    def wrap_constant_value(self, values: Any) -> Any:
        if values is ir.Undefined:
            return values
        if isinstance(values, list | tuple):
            return super().wrap_constant_value(values)
        return (ir.Constant(self.element, values),) * self.count

    def format_constant(self, value: Any) -> str:
        first = value[0]
        if any(each is not first and each.constant != first.constant for each in value):
            return str(super().format_constant(value))
        return f"splat ({first.type} {first.get_reference()})"

    @property
    def intrinsic_name(self) -> str:
        return f"v{self.count}{self.element.intrinsic_name}"


def lone(kind: ir.Type) -> ir.Type:
    """The type of an element of a vector; another type itself."""
    return kind.element if isinstance(kind, ir.VectorType) else kind


def is_single(kind: ir.Type) -> bool:
    """Whether numbers or vectors of this type are of float32."""
    return isinstance(lone(kind), ir.FloatType)


def like(kind: ir.Type, element: ir.Type) -> ir.Type:
    """The type of vectors as long as those of a type, of other elements; the element's where that is no vector."""
    return Lanes(element, kind.count) if isinstance(kind, ir.VectorType) else element


def splat(builder: ir.IRBuilder, value: ir.Value, count: int) -> ir.Value:
    """A number in all places of a vector."""
    kind = Lanes(value.type, count)
    if isinstance(value, ir.Constant):
        return ir.Constant(kind, [value] * count)
    nothing = ir.Constant(kind, ir.Undefined)
    alone = builder.insert_element(nothing, value, ir.Constant(PLACE, 0))
    return shuffled(builder, alone, nothing, [0] * count)


def shuffled(builder: ir.IRBuilder, one: ir.Value, other: ir.Value, places: Sequence[int]) -> ir.Value:
    """Elements of two vectors, by their places in one after the other."""
    vector = builder.shuffle_vector(one, other, ir.Constant(ir.VectorType(PLACE, len(places)), list(places)))
    vector.type = Lanes(one.type.element, len(places))
    return vector


def any_of(builder: ir.IRBuilder, test: ir.Value) -> ir.Value:
    """Whether a test is true, in any place if it is a vector."""
    if not isinstance(test.type, ir.VectorType):
        return test
    word = ir.IntType(test.type.count)
    return builder.icmp_unsigned("!=", builder.bitcast(test, word), ir.Constant(word, 0))
