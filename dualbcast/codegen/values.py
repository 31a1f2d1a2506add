"""The values of LLVM code that is being written: numbers and vectors, with Python's operators, and vectors in memory.

A Python number among the operands is a constant of the other operand's type, in all lanes of a vector.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir

# The type of a place in a vector.
PLACE = ir.IntType(32)


class Lanes(ir.VectorType):  # type: ignore[misc]
    """A vector type whose constants are written shortly, and which intrinsics can be declared for."""

    def wrap_constant_value(self, values: Any) -> Any:
        if values is ir.Undefined:
            return values
        if isinstance(values, list | tuple):
            return super().wrap_constant_value(values)
        return (values if isinstance(values, ir.Constant) else ir.Constant(self.element, values),) * self.count

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
        return ir.Constant(kind, value)
    nothing = ir.Constant(kind, ir.Undefined)
    alone = Value(builder, builder.insert_element(nothing, value, ir.Constant(PLACE, 0)))
    return alone.shuffle(Value(builder, nothing), [0] * count).value


def any_of(builder: ir.IRBuilder, test: ir.Value) -> ir.Value:
    """Whether a test is true, in any place if it is a vector."""
    if not isinstance(test.type, ir.VectorType):
        return test
    word = ir.IntType(test.type.count)
    return builder.icmp_unsigned("!=", builder.bitcast(test, word), ir.Constant(word, 0))


def word(number: int) -> ir.Constant:
    """An integer of 64 bits."""
    return ir.Constant(INDEX, number)


def declared(
    module: ir.Module, symbol: str, result: ir.Type, kinds: Sequence[ir.Type], *attributes: str
) -> ir.Function:
    """The function of a module with this symbol, which the first call of this adds without a body."""
    function = module.globals.get(symbol)
    if function is None:
        function = ir.Function(module, ir.FunctionType(result, kinds), symbol)
        attribute(function, *attributes)
    return function


def attribute(function: ir.Function, *attributes: str) -> None:
    """Add attributes to a function."""
    for each in attributes:
        # llvmlite checks attributes against a list that is older than these.
        set.add(function.attributes, each)


TYPES: dict[str, ir.Type] = {
    "bool": ir.IntType(1),
    "float32": ir.FloatType(),
    "float64": ir.DoubleType(),
    **{f"{sign}int{bits}": ir.IntType(bits) for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
FLOATS = ("float32", "float64")
INDEX = TYPES["int64"]


def operand(given: Any, kind: ir.Type) -> ir.Value:
    """A value's LLVM value, or Python's number as a constant of a type."""
    if not isinstance(given, int | float):
        return given.value
    return ir.Constant(kind, float(given) if _is_float(kind) else given)


def _is_float(kind: ir.Type) -> bool:
    return lone(kind) in (ir.FloatType(), ir.DoubleType())


def _arithmetic(name: str) -> tuple[Callable[[Value, Any], Value], Callable[[Value, Any], Value]]:
    """An operator of LLVM's instruction with a name, and the same with its operands exchanged."""

    def apply(left: Value, right: Any) -> Value:
        operation = getattr(left.builder, f"f{name}" if _is_float(left.kind) else name)
        return Value(left.builder, operation(left.value, operand(right, left.kind)))

    return apply, lambda right, left: apply(right.constant(left), right)


def _comparison(sign: str) -> Callable[[Value, Any], Value]:
    def compare(left: Value, right: Any) -> Value:
        if _is_float(left.kind):
            compared = left.builder.fcmp_unordered if sign == "!=" else left.builder.fcmp_ordered
        else:
            compared = left.builder.icmp_unsigned if left.dtype[0] in "ub" else left.builder.icmp_signed
        return Value(left.builder, compared(sign, left.value, operand(right, left.kind)))

    return compare


class Value:
    """A number, or a vector of numbers.

    Comparisons are those of Python: false for NaN except `!=`. `//`, `%` and `>>` take integers as unsigned. `dtype`
    is the type of the numbers, such as "int64"; it is to be given for unsigned integers, which LLVM does not tell from
    signed ones.
    """

    __slots__ = ("_dtype", "builder", "value")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, builder: ir.IRBuilder, value: ir.Value, dtype: str = "") -> None:
        self.builder, self.value, self._dtype = builder, value, dtype

    @property
    def kind(self) -> ir.Type:
        """The LLVM type."""
        return self.value.type

    @property
    def dtype(self) -> str:
        if not self._dtype:
            number = lone(self.kind)
            if isinstance(number, ir.IntType):
                self._dtype = f"int{number.width}" if number.width > 1 else "bool"
            else:
                self._dtype = "float32" if is_single(number) else "float64"
        return self._dtype

    @property
    def is_vector(self) -> bool:
        return isinstance(self.kind, ir.VectorType)

    @property
    def lanes(self) -> int:
        """The length of a vector; 0 for a number."""
        kind = self.value.type
        return kind.count if isinstance(kind, ir.VectorType) else 0

    def constant(self, number: float) -> Value:
        """A number in this value's type."""
        return Value(self.builder, operand(number, self.kind))

    @property
    def known(self) -> float | None:
        """The float that a constant is, in all lanes; None for other values."""
        if not (isinstance(self.value, ir.Constant) and _is_float(self.kind)):
            return None
        number = self.value.constant[0].constant if self.is_vector else self.value.constant
        if not isinstance(number, float):
            return None
        return float(np.float32(number)) if is_single(self.kind) else number

    # --- operators -----------------------------------------------------------------------------------------------

    def __neg__(self) -> Value:
        return Value(self.builder, (self.builder.fneg if _is_float(self.kind) else self.builder.neg)(self.value))

    def __invert__(self) -> Value:
        return Value(self.builder, self.builder.not_(self.value))

    __add__, __radd__ = _arithmetic("add")
    __sub__, __rsub__ = _arithmetic("sub")
    __mul__ = _arithmetic("mul")[0]
    __truediv__, __rtruediv__ = _arithmetic("div")
    __floordiv__, __rfloordiv__ = _arithmetic("udiv")
    __mod__ = _arithmetic("urem")[0]
    __and__ = _arithmetic("and_")[0]
    __or__ = _arithmetic("or_")[0]
    __xor__ = _arithmetic("xor")[0]
    __lshift__ = _arithmetic("shl")[0]
    __rshift__ = _arithmetic("lshr")[0]
    __lt__ = _comparison("<")
    __le__ = _comparison("<=")
    __gt__ = _comparison(">")
    __ge__ = _comparison(">=")
    __eq__ = _comparison("==")  # type: ignore[assignment]
    __ne__ = _comparison("!=")  # type: ignore[assignment]

    def unordered(self, sign: str, other: Any) -> Value:
        """A comparison of floats that is true where one of them is NaN; the sign "uno" asks for nothing else."""
        return Value(self.builder, self.builder.fcmp_unordered(sign, self.value, operand(other, self.kind)))

    def unsigned(self, sign: str, other: Any) -> Value:
        """A comparison of integers without their signs."""
        return Value(self.builder, self.builder.icmp_unsigned(sign, self.value, operand(other, self.kind)))

    def choose(self, then: Any, otherwise: Any) -> Value:
        """One of two values, by this test; both are computed, and one of them may be Python's number."""
        kind = (otherwise if isinstance(then, int | float) else then).kind
        chosen = self.builder.select(self.value, operand(then, kind), operand(otherwise, kind))
        return Value(self.builder, chosen)

    def at_most(self, limit: Value | float) -> Value:
        """The number, or the limit where that is less."""
        return (self < limit).choose(self, limit)

    # --- conversions ---------------------------------------------------------------------------------------------

    def bits(self) -> Value:
        """The bits of a float, as an integer of its width."""
        width = 32 if lone(self.kind) == ir.FloatType() else 64
        return Value(self.builder, self.builder.bitcast(self.value, like(self.kind, ir.IntType(width))))

    def as_float(self) -> Value:
        """The float whose bits are those of this integer."""
        kind = ir.FloatType() if lone(self.kind).width == 32 else ir.DoubleType()
        return Value(self.builder, self.builder.bitcast(self.value, like(self.kind, kind)))

    def to(self, dtype: str) -> Value:
        """The numbers in another type."""
        source, target = self.dtype, TYPES[dtype]
        if source == dtype:
            return self
        if dtype == "bool":
            return self != self.constant(0)
        kind, builder, given = like(self.kind, target), self.builder, self.value
        if source in FLOATS and dtype in FLOATS:
            convert = builder.fpext if dtype == "float64" else builder.fptrunc
        elif source in FLOATS:
            convert = builder.fptosi if dtype[0] == "i" else builder.fptoui
        elif dtype in FLOATS:
            convert = builder.sitofp if source[0] == "i" else builder.uitofp
        elif target.width > TYPES[source].width:
            convert = builder.sext if source[0] == "i" else builder.zext
        else:
            convert = builder.trunc  # of the same width it is no instruction
        return Value(builder, convert(given, kind), dtype)

    # --- vectors -------------------------------------------------------------------------------------------------

    def splat(self, lanes: int) -> Value:
        """A vector with this number in all lanes."""
        return Value(self.builder, splat(self.builder, self.value, lanes), self._dtype)

    def spread(self, lanes: int) -> Value:
        """The value as a vector of this length, unless that is 0."""
        return self if self.lanes == lanes else self.splat(lanes)

    def first_lanes(self, lanes: int) -> Value:
        """A mask of so many lanes, true in as many of them, from the first on, as this number says."""
        numbers = Value(self.builder, ir.Constant(Lanes(self.kind, lanes), list(range(lanes))))
        return self.splat(lanes) > numbers

    def shuffle(self, other: Value, places: Sequence[int]) -> Value:
        """Elements of this vector and another one, by their places in one after the other."""
        taken = ir.Constant(ir.VectorType(PLACE, len(places)), list(places))
        vector = self.builder.shuffle_vector(self.value, other.value, taken)
        vector.type = Lanes(self.kind.element, len(places))
        return Value(self.builder, vector)

    def halved(self, lanes: int) -> Value:
        """The sum of a vector's parts of so many elements, half by half."""
        total = self
        while total.lanes > lanes:
            half = total.lanes // 2
            total = total.shuffle(total, range(half)) + total.shuffle(total, range(half, 2 * half))
        return total

    def lane(self, place: int) -> Value:
        """An element of a vector."""
        return Value(self.builder, self.builder.extract_element(self.value, ir.Constant(TYPES["int32"], place)))

    def with_lane(self, place: int, number: Value) -> Value:
        """A vector with another element in a place."""
        lane = ir.Constant(TYPES["int32"], place)
        return Value(self.builder, self.builder.insert_element(self.value, number.value, lane))


def lane_sums(vectors: Sequence[Value]) -> Value:
    """The sum of the elements of each vector, as the first elements of one: half by half.

    All vectors are added up together, which takes about two shuffles for each, however long it is.
    """
    lanes, count = vectors[0].lanes, 1 << (len(vectors) - 1).bit_length()

    def merged(given: Sequence[Value]) -> Value:
        """So many parts of the sum of each."""
        if len(given) == 1:
            return given[0]
        half, parts = len(given) // 2, lanes // len(given)
        # Places in the same 16 bytes of both vectors are exchanged by a single instruction.
        pairs = (given[::2], given[1::2]) if parts == 1 else (given[:half], given[half:])
        left, right = map(merged, pairs)
        blocks = range(0, lanes, 2 * parts)
        if parts == 1:
            places = [first + side for first in blocks for side in (0, lanes)]
        else:
            places = [first + side + at for side in (0, lanes) for first in blocks for at in range(parts)]
        return left.shuffle(right, places) + left.shuffle(right, [place + parts for place in places])

    total = merged([*vectors, *[vectors[0].constant(0)] * (count - len(vectors))])
    parts = lanes // count
    while parts > 1:
        parts //= 2
        places = [first + at for first in range(0, 2 * parts * count, 2 * parts) for at in range(parts)]
        total = total.shuffle(total, places) + total.shuffle(total, [place + parts for place in places])
    return total


def intrinsic(name: str, first: Value, *others: Any) -> Value:
    """What LLVM's function `llvm.{name}` computes of values of one type."""
    builder, kind = first.builder, first.kind
    arguments = [first.value, *[operand(each, kind) for each in others]]
    function_type = ir.FunctionType(kind, [kind] * len(arguments))
    return Value(
        builder, builder.call(builder.module.declare_intrinsic(f"llvm.{name}", [kind], function_type), arguments)
    )


# --- memory -----------------------------------------------------------------------------------------------------------


def masked_load(
    builder: ir.IRBuilder, address: ir.Value, align: int, mask: ir.Value, otherwise: ir.Value
) -> ir.Instruction:
    """The elements of a vector in memory where a mask is true, and those of another vector elsewhere."""
    return _masked(builder, "load", otherwise, otherwise.type, [address, ir.Constant(PLACE, align), mask, otherwise])


def masked_store(builder: ir.IRBuilder, vector: ir.Value, address: ir.Value, align: int, mask: ir.Value) -> None:
    """Store the elements of a vector where a mask is true."""
    _masked(builder, "store", vector, ir.VoidType(), [vector, address, ir.Constant(PLACE, align), mask])


def _masked(
    builder: ir.IRBuilder, verb: str, vector: ir.Value, result: ir.Type, arguments: Sequence[ir.Value]
) -> ir.Instruction:
    symbol = f"llvm.masked.{verb}.{vector.type.intrinsic_name}.p0"
    function = declared(builder.module, symbol, result, [argument.type for argument in arguments])
    return builder.call(function, arguments)
