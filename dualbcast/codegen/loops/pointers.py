"""The pointers and the variables of a loop that is being written."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from dualbcast.codegen.llvm.memory import masked_load
from dualbcast.codegen.values import INDEX, TYPES, Value, operand
from dualbcast.codegen.vector_types import Lanes

__all__ = ["ORDER", "Pointer", "Variable", "type_of"]

ORDER = "seq_cst"


def type_of(kind: str) -> ir.Type:
    """LLVM's type of a kind: "int64", "float32", …, or, of a pointer, "*" and the kind of its elements."""
    if kind == "void":
        return ir.VoidType()
    return ir.PointerType() if kind[0] == "*" else TYPES[kind]


def _size_of(kind: str) -> int:
    """The bytes of an element of a kind, which it is aligned to as well."""
    return {"*": 8, "b": 1}.get(kind[0]) or int(kind.lstrip("intfloa")) // 8


class Pointer:
    """The address of elements of a kind: `p[i]` loads an element, and `p[i] = x` stores one, or a vector from it on."""

    __slots__ = ("builder", "kind", "value")

    def __init__(self, builder: ir.IRBuilder, value: ir.Value, kind: str) -> None:
        self.builder, self.value, self.kind = builder, value, kind

    def at(self, index: Any) -> Pointer:
        """The address of an element."""
        address = self.builder.gep(self.value, [operand(index, INDEX)], source_etype=type_of(self.kind))
        return Pointer(self.builder, address, self.kind)

    def skip_bytes(self, count: Any) -> Pointer:
        """The address so many bytes further on."""
        return self.of("int8").at(count).of(self.kind)

    def of(self, kind: str) -> Pointer:
        """The same address, of elements of another kind."""
        return Pointer(self.builder, self.value, kind)

    def address(self) -> Value:
        """The address as a number."""
        return Value(self.builder, self.builder.ptrtoint(self.value, INDEX))

    def __getitem__(self, index: Any) -> Any:
        address, kind = self.at(index).value, type_of(self.kind)
        value = self.builder.load(address, typ=kind, align=_size_of(self.kind))
        return Pointer(self.builder, value, self.kind[1:]) if self.kind[0] == "*" else Value(self.builder, value)

    def __setitem__(self, index: Any, value: Any) -> None:
        self.builder.store(operand(value, type_of(self.kind)), self.at(index).value, align=_size_of(self.kind))

    def vector(self, index: Any, lanes: int) -> Value:
        """The elements from an index on as a vector."""
        kind = Lanes(type_of(self.kind), lanes)
        return Value(self.builder, self.builder.load(self.at(index).value, typ=kind, align=_size_of(self.kind)))

    def masked_vector(self, index: Any, lanes: int, mask: Value) -> Value:
        """The elements where a mask is true, and 0 elsewhere, where nothing is read."""
        nothing = ir.Constant(Lanes(type_of(self.kind), lanes), 0)
        address = self.at(index).value
        return Value(self.builder, masked_load(self.builder, address, _size_of(self.kind), mask.value, nothing))

    # --- elements that several threads use, one by one ------------------------------------------------------------

    def load_atomic(self) -> Value:
        kind = type_of(self.kind)
        return Value(self.builder, self.builder.load_atomic(self.value, ORDER, _size_of(self.kind), typ=kind))

    def add_atomic(self, number: int) -> None:
        self.builder.atomic_rmw("add", self.value, operand(number, type_of(self.kind)), ORDER)

    def store_atomic(self, value: Any) -> None:
        self.exchange(value)  # It is one instruction on x86. (llvmlite's own wants typed pointers.)

    def exchange(self, value: Any) -> Value:
        """Store a number; the one that was there."""
        stored = operand(value, type_of(self.kind))
        return Value(self.builder, self.builder.atomic_rmw("xchg", self.value, stored, ORDER))

    def compare_exchange(self, old: Any, new: Any) -> Value:
        """Store a number where another one is; whether it was there."""
        expected, stored = (operand(each, type_of(self.kind)) for each in (old, new))
        pair = self.builder.cmpxchg(self.value, expected, stored, ORDER, ORDER)
        return Value(self.builder, self.builder.extract_value(pair, 1))


class Variable:
    """A number, or a vector, that changes while the function runs."""

    __slots__ = ("_builder", "_place", "_type")

    def __init__(self, builder: ir.IRBuilder, place: ir.Value, kind: ir.Type) -> None:
        self._builder, self._place, self._type = builder, place, kind

    @property
    def value(self) -> Value:
        return Value(self._builder, self._builder.load(self._place, typ=self._type))

    @value.setter
    def value(self, value: Any) -> None:
        self._builder.store(operand(value, self._type), self._place)
