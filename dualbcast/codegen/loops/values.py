"""The values of a function that is being written: numbers, vectors, pointers and variables, with Python's operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from dualbcast.codegen.mathlib.vector_types import Lanes, shuffled, splat

__all__ = ["INDEX", "ORDER", "Pointer", "Value", "Variable", "operand", "type_of"]

INDEX = ir.IntType(64)
_TYPES = {
    "void": ir.VoidType(),
    "bool": ir.IntType(1),
    **{f"int{bits}": ir.IntType(bits) for bits in (8, 16, 32, 64)},
    "float32": ir.FloatType(),
    "float64": ir.DoubleType(),
}
ORDER = "seq_cst"


def type_of(kind: str) -> ir.Type:
    """LLVM's type of a kind: "int64", "float32", …, or, of a pointer, "*" and the kind of its elements."""
    return ir.PointerType() if kind[0] == "*" else _TYPES[kind]


def _size_of(kind: str) -> int:
    """The bytes of an element of a kind, which it is aligned to as well."""
    return {"*": 8, "b": 1}.get(kind[0]) or int(kind.lstrip("intfloa")) // 8


def operand(given: Any, kind: ir.Type) -> ir.Value:
    """A value, or Python's number as a constant of this type."""
    return given.value if isinstance(given, Value | Pointer) else ir.Constant(kind, given)


class Value:
    """A number, or a vector of numbers, of the function that is being written.

    Integers are compared with their signs. `//`, `%` and `>>` take them as unsigned.
    """

    __slots__ = ("builder", "value")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, builder: ir.IRBuilder, value: ir.Value) -> None:
        self.builder, self.value = builder, value

    @property
    def _is_float(self) -> bool:
        kind = self.value.type
        return getattr(kind, "element", kind) in (ir.FloatType(), ir.DoubleType())

    def _binary(self, name: str, other: Any) -> Value:
        operation = getattr(self.builder, f"f{name}" if self._is_float else name)
        return Value(self.builder, operation(self.value, operand(other, self.value.type)))

    def _compared(self, sign: str, other: Any) -> Value:
        compare = self.builder.fcmp_ordered if self._is_float else self.builder.icmp_signed
        return Value(self.builder, compare(sign, self.value, operand(other, self.value.type)))

    def __add__(self, other: Any) -> Value:
        return self._binary("add", other)

    def __sub__(self, other: Any) -> Value:
        return self._binary("sub", other)

    def __mul__(self, other: Any) -> Value:
        return self._binary("mul", other)

    def __floordiv__(self, other: Any) -> Value:
        return self._binary("udiv", other)

    def __rfloordiv__(self, other: Any) -> Value:
        return Value(self.builder, self.builder.udiv(operand(other, self.value.type), self.value))

    def __mod__(self, other: Any) -> Value:
        return self._binary("urem", other)

    def __and__(self, other: Any) -> Value:
        return self._binary("and_", other)

    def __or__(self, other: Any) -> Value:
        return self._binary("or_", other)

    def __lshift__(self, places: int) -> Value:
        return self._binary("shl", places)

    def __rshift__(self, places: int) -> Value:
        return self._binary("lshr", places)

    def __lt__(self, other: Any) -> Value:
        return self._compared("<", other)

    def __gt__(self, other: Any) -> Value:
        return self._compared(">", other)

    def __eq__(self, other: object) -> Value:  # type: ignore[override]
        return self._compared("==", other)

    def __ne__(self, other: object) -> Value:  # type: ignore[override]
        return self._compared("!=", other)

    def choose(self, then: Value, otherwise: Any) -> Value:
        """One of two values, by this test; both are computed."""
        chosen = self.builder.select(self.value, then.value, operand(otherwise, then.value.type))
        return Value(self.builder, chosen)

    def at_most(self, limit: Any) -> Value:
        """The number, or the limit where that is less."""
        return self._compared("<", limit).choose(self, limit)

    def to_int64(self) -> Value:
        return Value(self.builder, self.builder.sext(self.value, INDEX))

    def to_float64(self) -> Value:
        """The same number, or vector of numbers, in float64."""
        kind = self.value.type
        wide = Lanes(ir.DoubleType(), kind.count) if isinstance(kind, ir.VectorType) else ir.DoubleType()
        return Value(self.builder, self.builder.fpext(self.value, wide) if kind != wide else self.value)

    def splat(self, lanes: int) -> Value:
        """A vector with this number in all lanes."""
        return Value(self.builder, splat(self.builder, self.value, lanes))

    def first_lanes(self, lanes: int) -> Value:
        """A mask of so many lanes, true in as many of them, from the first on, as this number says."""
        numbers = ir.Constant(ir.VectorType(INDEX, lanes), list(range(lanes)))
        return Value(self.builder, self.builder.icmp_unsigned(">", self.splat(lanes).value, numbers))

    def shuffle(self, other: Value, places: Sequence[int]) -> Value:
        """Elements of this vector and another one, by their places in one after the other."""
        return Value(self.builder, shuffled(self.builder, self.value, other.value, places))


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
        module, kind = self.builder.module, Lanes(type_of(self.kind), lanes)
        name = f"llvm.masked.load.{kind.intrinsic_name}.p0"
        function = module.globals.get(name)
        if function is None:
            arguments = [ir.PointerType(), ir.IntType(32), mask.value.type, kind]
            function = ir.Function(module, ir.FunctionType(kind, arguments), name)
        align, nothing = ir.Constant(ir.IntType(32), _size_of(self.kind)), ir.Constant(kind, 0)
        return Value(self.builder, self.builder.call(function, [self.at(index).value, align, mask.value, nothing]))

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
