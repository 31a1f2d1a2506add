"""Values of a kernel's text in LLVM IR: each with the type that the text gives it, and the operations on them that have
a name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from llvmlite import ir

from dualbcast.codegen.mathlib.primitives import Emit
from dualbcast.codegen.values import FLOATS, INDEX, TYPES
from dualbcast.codegen.vector_types import Lanes

__all__ = ["FLOATS", "TYPES", "WORD", "Operation", "Storage", "Typed", "llvm_type", "word"]

WORD = INDEX


class Typed(NamedTuple):
    """A value and its type in the text: "float32", "int64", "bool", …, or "*float32" for a pointer to such numbers."""

    value: ir.Value
    dtype: str

    @property
    def lanes(self) -> int:
        """The length of a vector; 0 for a number."""
        kind = self.value.type
        return kind.count if isinstance(kind, ir.VectorType) else 0


@dataclass(frozen=True, slots=True)
class Operation:
    """A function whose arguments and result are floats of one type, or vectors of them.

    Attributes
    ----------
    emit : function
        Of the arguments, as `codegen.values.Value`.
    is_long : bool
        Whether it has so many instructions that they are better written once, as a function, than at each call.
    """

    emit: Emit
    is_long: bool = False


@dataclass(frozen=True, slots=True)
class Storage:
    """A load or a store of a float32 that is kept in 16 bits.

    Attributes
    ----------
    convert : function
        Of the `codegen.values.Value` that is loaded, or is to be stored.
    stores : bool
        Whether this is a store.
    """

    convert: Emit
    stores: bool


def llvm_type(dtype: str, lanes: int = 0) -> ir.Type:
    """LLVM's type of values with a type of the text, or of vectors of them."""
    if dtype[0] == "*":
        return TYPES[dtype[1:]].as_pointer()
    return Lanes(TYPES[dtype], lanes) if lanes else TYPES[dtype]


def word(number: int) -> ir.Constant:
    """An integer of 64 bits."""
    return ir.Constant(WORD, number)
