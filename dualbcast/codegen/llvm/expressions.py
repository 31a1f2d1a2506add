"""Expressions of a kernel's text as LLVM IR, of numbers and of vectors, which are so in the types of their values.

Where one operand is a vector, the other is, too, in all places the same.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from llvmlite import ir

from dualbcast.codegen.llvm.vector_types import like, splat
from dualbcast.codegen.mathlib.primitives import Emit

if TYPE_CHECKING:
    from dualbcast.codegen.llvm.lower import Unit
    from dualbcast.codegen.llvm.polling import Countdown

__all__ = ["TYPES", "WORD", "Expressions", "Operation", "Storage", "Typed", "names_in"]

WORD = ir.IntType(64)
TYPES: dict[str, ir.Type] = {
    "bool": ir.IntType(1),
    "float32": ir.FloatType(),
    "float64": ir.DoubleType(),
    **{f"{sign}int{bits}": ir.IntType(bits) for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
_FLOATS = ("float32", "float64")
_ARITHMETIC = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul"}
# What of an expression is expressions again; the function of a call is none.
_PARTS: dict[type[ast.expr], tuple[str, ...]] = {
    ast.BinOp: ("left", "right"),
    ast.Compare: ("left", "comparators"),
    ast.Call: ("args",),
    ast.Subscript: ("value", "slice"),
    ast.UnaryOp: ("operand",),
    ast.IfExp: ("test", "body", "orelse"),
}
_BITS = {ast.BitAnd: "and_", ast.BitOr: "or_", ast.BitXor: "xor"}
_COMPARISONS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}


class Typed(NamedTuple):
    """A value and what it is: "float32", "int64", "bool", …, or of a pointer, "*" and what is there."""

    value: ir.Value
    dtype: str

    @property
    def lanes(self) -> int:
        """How many numbers are a vector; 0 if it is none."""
        kind = self.value.type
        return kind.count if isinstance(kind, ir.VectorType) else 0


@dataclass(frozen=True, slots=True)
class Operation:
    """A function on floats of one type, of which the result has the same; and on vectors of these.

    Attributes
    ----------
    emit : function
        Of a builder and the arguments.
    is_long : bool
        Whether it is so many instructions that it is better written once than wherever it is called.
    """

    emit: Emit
    is_long: bool = False


@dataclass(frozen=True, slots=True)
class Storage:
    """A load or a store of a float32 that is kept in 16 bits.

    Attributes
    ----------
    convert : function
        Of a builder and what is loaded, or is to be stored, in a list.
    stores : bool
        Whether this is a store.
    """

    convert: Emit
    stores: bool


def names_in(node: ast.expr, found: set[str]) -> set[str]:
    """Add the names in an expression to what is found.

    (`ast.walk` would take half of the time of lowering.)
    """
    kind = type(node)
    if kind is ast.Name:
        found.add(node.id)  # type: ignore[attr-defined]
    elif kind is not ast.Constant:
        for field in _PARTS.get(kind, ()):
            part = getattr(node, field)
            if type(part) is list:
                for each in part:
                    names_in(each, found)
            else:
                names_in(part, found)
    return found


class Expressions:
    """Expressions in a function that is being written.

    Attributes
    ----------
    unit : Unit
        What the functions of a text share.
    builder : llvmlite.ir.IRBuilder
        At the place where the function goes on.
    values : dict of str to Typed
        What names stand for.
    countdown : Countdown or None
        What is left until a loop asks whether to go on; None where none does.
    """

    unit: Unit
    builder: ir.IRBuilder
    values: dict[str, Typed]
    countdown: Countdown | None = None

    @property
    def counted(self) -> Countdown:
        """The countdown of a function that has one."""
        assert self.countdown is not None
        return self.countdown

    def expression(self, node: ast.expr) -> Typed:
        match node:
            case ast.Name(id=name):
                return self.name(name)
            case ast.Constant(value=bool() as value):
                return Typed(ir.Constant(TYPES["bool"], int(value)), "bool")
            case ast.Constant(value=int() as value):
                return Typed(ir.Constant(WORD, value), "int64")
            case ast.Subscript():
                pointer, index = self.expression(node.value), self.expression(node.slice)
                if pointer.dtype[0] != "*":
                    raise TypeError(f"{ast.unparse(node.value)} is of type {pointer.dtype}, and has no elements")
                return self.load(pointer, index)
            case ast.BinOp(left=left, op=op, right=right):
                return self.binary(op, self.expression(left), self.expression(right))
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self.compare(_COMPARISONS[type(op)], self.expression(left), self.expression(right))
            case ast.UnaryOp(op=op, operand=operand):
                return self.unary(op, operand)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self.either(self.test(test), body, orelse)
            case ast.Call():
                return self.call(node)
        raise SyntaxError(f"a kernel has no such expression: {ast.unparse(node)}")

    def name(self, name: str) -> Typed:
        found = self.values.get(name) or self.unit.constants.get(name)
        if found is None:
            raise NameError(f"nothing is called {name}, or not yet")
        return found

    def test(self, node: ast.expr) -> ir.Value:
        value, dtype = self.expression(node)
        if dtype != "bool":
            raise TypeError(f"a test of type {dtype}: {ast.unparse(node)}")
        return value

    def integer(self, node: ast.expr) -> ir.Value:
        return self.cast(self.expression(node), "int64").value

    def load(self, pointer: Typed, index: Typed) -> Typed:
        """An element, of the type that is there."""
        dtype = pointer.dtype[1:]
        return Typed(self.builder.load(self.element(pointer, index), typ=TYPES[dtype]), dtype)

    def store(self, pointer: Typed, index: Typed, value: Typed) -> None:
        """Make a value an element, in the type that is there."""
        self.builder.store(self.cast(value, pointer.dtype[1:]).value, self.element(pointer, index))

    def element(self, pointer: Typed, index: Typed) -> ir.Value:
        """The address of an element."""
        return self.builder.gep(pointer.value, [self.cast(index, "int64").value])

    def unary(self, op: ast.unaryop, operand: ast.expr) -> Typed:
        if isinstance(op, ast.USub) and isinstance(operand, ast.Constant):
            return Typed(ir.Constant(WORD, -operand.value), "int64")  # type: ignore[operator]
        value, dtype = self.expression(operand)
        match op:
            case ast.Not() if dtype == "bool":
                return Typed(self.builder.not_(value), dtype)
            case ast.Invert() if dtype == "int64":
                return Typed(self.builder.not_(value), dtype)
            case ast.USub() if dtype in _FLOATS:
                return Typed(self.builder.fneg(value), dtype)
            case ast.USub() if dtype == "int64":
                return Typed(self.builder.neg(value), dtype)
        raise TypeError(f"no {type(op).__name__} of type {dtype}")

    def either(self, test: ir.Value, body: ast.expr, orelse: ast.expr) -> Typed:
        """The value of one expression or of the other; of vectors both are computed."""
        if isinstance(test.type, ir.VectorType):
            return self.select(test, self.expression(body), self.expression(orelse))
        then, other, after = (self.builder.append_basic_block() for _ in range(3))
        self.builder.cbranch(test, then, other)
        found = []
        for start, node in ((then, body), (other, orelse)):
            self.builder.position_at_end(start)
            found.append((self.expression(node), self.builder.block))
        values, blocks = zip(*found, strict=True)
        return self.merged([values], blocks, after)[0]

    def merged(self, values: Sequence[Sequence[Typed]], blocks: Sequence[ir.Block], after: ir.Block) -> list[Typed]:
        """What values are in a block that others go on to: of each what it is at the end of each of these."""
        lanes = [max(each.lanes for each in ways) for ways in values]
        incoming: list[list[ir.Value]] = [[] for _ in values]
        for position, block in enumerate(blocks):
            self.builder.position_at_end(block)
            for ways, width, found in zip(values, lanes, incoming, strict=True):
                found.append(self.spread(ways[position], width).value)
            self.builder.branch(after)
        self.builder.position_at_end(after)
        made = []
        for ways, found in zip(values, incoming, strict=True):
            dtype = ways[0].dtype
            if any(each.dtype != dtype for each in ways):
                kinds = ", the other of type ".join(each.dtype for each in ways)
                raise TypeError(f"one of two values is of type {kinds}")
            phi = self.builder.phi(found[0].type)
            for value, block in zip(found, blocks, strict=True):
                phi.add_incoming(value, block)
            made.append(Typed(phi, dtype))
        return made

    def select(self, test: ir.Value, then: Typed, orelse: Typed) -> Typed:
        then, orelse = self.alike(then, orelse)
        if isinstance(test.type, ir.VectorType):
            then, orelse = (self.spread(each, test.type.count) for each in (then, orelse))
        return Typed(self.builder.select(test, then.value, orelse.value), then.dtype)

    def compare(self, sign: str, left: Typed, right: Typed) -> Typed:
        left, right = self.alike(left, right)
        builder = self.builder
        if left.dtype in _FLOATS:
            made = (builder.fcmp_unordered if sign == "!=" else builder.fcmp_ordered)(sign, left.value, right.value)
        elif left.dtype[0] != "i":
            made = builder.icmp_unsigned(sign, left.value, right.value)
        else:
            made = builder.icmp_signed(sign, left.value, right.value)
        return Typed(made, "bool")

    def binary(self, op: ast.operator, left: Typed, right: Typed) -> Typed:
        divisor = right.value.constant if isinstance(right.value, ir.Constant) else 0
        left, right = self.alike(left, right)
        dtype, kind = left.dtype, type(op)
        numbers = left.value, right.value
        if dtype in _FLOATS:
            if kind in _ARITHMETIC:
                return Typed(getattr(self.builder, f"f{_ARITHMETIC[kind]}")(*numbers), dtype)
            if kind is ast.Div:
                return Typed(self.builder.fdiv(*numbers), dtype)
        if dtype == "int64":
            if kind in _ARITHMETIC:
                return Typed(getattr(self.builder, _ARITHMETIC[kind])(*numbers), dtype)
            if kind in (ast.FloorDiv, ast.Mod):
                shift = isinstance(divisor, int) and abs(divisor) > 1 and not abs(divisor) & (abs(divisor) - 1)
                pair = self.halved(left.value, divisor) if shift else self.divided(*numbers)
                return Typed(pair[kind is ast.Mod], dtype)
            if kind in (ast.LShift, ast.RShift):
                return Typed(self.shifted(*numbers, left=kind is ast.LShift), dtype)
        if kind in _BITS and dtype in ("int64", "bool"):
            return Typed(getattr(self.builder, _BITS[kind])(*numbers), dtype)
        raise TypeError(f"no {kind.__name__} of type {dtype}")

    def divided(self, a: ir.Value, b: ir.Value) -> tuple[ir.Value, ir.Value]:
        """The quotient of integers, rounded down, and what remains, both 0 where b is 0, as NumPy has it."""
        builder, zero, one = self.builder, ir.Constant(a.type, 0), ir.Constant(a.type, 1)
        # The processor traps at 0, and at the lowest number by -1.
        by_nothing, negates = (builder.icmp_signed("==", b, ir.Constant(a.type, value)) for value in (0, -1))
        divisor = builder.select(builder.or_(by_nothing, negates), one, b)
        quotient, rest = builder.sdiv(a, divisor), builder.srem(a, divisor)
        down = builder.icmp_signed("<", builder.xor(rest, divisor), zero)
        down = builder.and_(down, builder.icmp_signed("!=", rest, zero))
        quotient = builder.select(down, builder.sub(quotient, one), quotient)
        rest = builder.select(down, builder.add(rest, divisor), rest)
        quotient = builder.select(negates, builder.neg(a), quotient)
        return builder.select(by_nothing, zero, quotient), rest

    def halved(self, a: ir.Value, divisor: int) -> tuple[ir.Value, ir.Value]:
        """The same by a power of 2, or by its negative: bits are moved.

        Of vectors of 64 bits that were numbers of 8 bits, LLVM 22 makes wrong machine code for AVX-512 where they are
        divided by -2: the quotient is the dividend.
        """
        builder, size = self.builder, abs(divisor)
        quotient = builder.ashr(a, ir.Constant(a.type, size.bit_length() - 1))
        rest = builder.and_(a, ir.Constant(a.type, size - 1))
        if divisor > 0:
            return quotient, rest
        # What remains has the divisor's sign, and then the quotient is one less.
        some = builder.icmp_signed("!=", rest, ir.Constant(a.type, 0))
        rest = builder.select(some, builder.sub(rest, ir.Constant(a.type, size)), rest)
        return builder.sub(builder.select(some, ir.Constant(a.type, -1), ir.Constant(a.type, 0)), quotient), rest

    def shifted(self, a: ir.Value, places: ir.Value, left: bool) -> ir.Value:
        """The bits of `a` moved, by 64 places and more as by many steps; LLVM has no number for that."""
        builder, most = self.builder, ir.Constant(a.type, 63)
        within = builder.icmp_unsigned("<=", places, most)
        if left:
            return builder.select(within, builder.shl(a, places), ir.Constant(a.type, 0))
        return builder.ashr(a, builder.select(within, places, most))

    def alike(self, left: Typed, right: Typed) -> tuple[Typed, Typed]:
        """Two operands in the type that both go into, vectors if one of them is."""
        if left.dtype == right.dtype:
            wider = left.dtype
        elif left.dtype in _FLOATS and right.dtype in _FLOATS:
            wider = "float64"
        elif not {left.dtype, right.dtype} & set(_FLOATS) and "*" not in left.dtype + right.dtype:
            wider = "int64"
        else:
            raise TypeError(f"one operand is of type {left.dtype}, the other of type {right.dtype}")
        lanes = left.lanes or right.lanes
        return self.spread(self.cast(left, wider), lanes), self.spread(self.cast(right, wider), lanes)

    def spread(self, value: Typed, lanes: int) -> Typed:
        """A value as a vector of so many, unless that is 0."""
        return value if value.lanes == lanes else Typed(splat(self.builder, value.value, lanes), value.dtype)

    def cast(self, value: Typed, dtype: str) -> Typed:
        """A number in another type."""
        builder, given, source = self.builder, value.value, value.dtype
        if source == dtype:
            return value
        number = TYPES[dtype]
        kind = like(given.type, number)
        signed = source[0] == "i"
        if source[0] == "*":
            raise TypeError(f"a pointer is no {dtype}")
        if dtype == "bool":
            return self.compare("!=", value, Typed(ir.Constant(given.type, 0), source))
        if source in _FLOATS:
            if dtype in _FLOATS:
                made = builder.fpext(given, kind) if dtype == "float64" else builder.fptrunc(given, kind)
            else:
                made = (builder.fptosi if dtype[0] == "i" else builder.fptoui)(given, kind)
        elif dtype in _FLOATS:
            made = builder.sitofp(given, kind) if signed else builder.uitofp(given, kind)
        elif number.width <= TYPES[source].width:
            made = builder.trunc(given, kind) if number.width < TYPES[source].width else given
        else:
            made = builder.sext(given, kind) if signed else builder.zext(given, kind)
        return Typed(made, dtype)

    # --- loops ---------------------------------------------------------------------------------------------------

    def range(self, loop: ast.For) -> tuple[str, ir.Value, ir.Value, int]:
        """The name of a loop's place, and the first place, the end and the step of its range."""
        match loop:
            case ast.For(target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range"), args=[*bounds])):
                step = _step(bounds.pop()) if len(bounds) == 3 else 1
                start, stop = [ir.Constant(WORD, 0), *map(self.integer, bounds)][-2:]
                return name, start, stop, step
        raise SyntaxError(f"a kernel has no such loop: for {ast.unparse(loop.iter)}")

    def turn_count(self, start: ir.Value, stop: ir.Value, step: int) -> ir.Value:
        """How many numbers a range has."""
        builder, zero, one = self.builder, ir.Constant(WORD, 0), ir.Constant(WORD, 1)
        low, high = (start, stop) if step > 0 else (stop, start)
        less = builder.sub(builder.sub(high, low), one)
        count = builder.add(builder.udiv(less, ir.Constant(WORD, abs(step))), one)
        return builder.select(builder.icmp_signed("<", low, high), count, zero)

    # --- calls ---------------------------------------------------------------------------------------------------

    def call(self, node: ast.Call) -> Typed:
        assert isinstance(node.func, ast.Name)
        name = node.func.id
        if name == "side_by_side":  # It says so to the loop around it.
            return Typed(ir.Constant(WORD, 0), "int64")
        if name == "scratch":
            return self.scratch(node)
        arguments = [self.expression(argument) for argument in node.args]
        # A user's function may be called int32.
        if name in self.unit.definitions:
            made, result = self.unit.function(name, tuple([(each.dtype, each.lanes) for each in arguments]))
            values = [each.value for each in arguments]
            if name in self.unit.asking.functions:
                values.append(self.counted.place)
            return Typed(self.builder.call(made, values), result)
        if name in TYPES:
            (argument,) = arguments
            return self.cast(argument, name)
        if name == "select":
            test, then, orelse = arguments
            return self.select(test.value, then, orelse)
        if name == "min":
            return self.select(self.compare("<", *arguments).value, *arguments)
        operation = self.unit.names.get(name)
        if isinstance(operation, Operation):
            kinds = {each.dtype for each in arguments}
            if len(kinds) > 1 or not kinds <= set(_FLOATS):
                raise TypeError(f"no {name} of {', '.join(each.dtype for each in arguments)}")
            lanes = max(each.lanes for each in arguments)
            values = [self.spread(each, lanes).value for each in arguments]
            return Typed(self.operate(name, operation, values), arguments[0].dtype)
        if isinstance(operation, Storage):
            pointer, index, *stored = arguments
            bits = Typed(pointer.value, "*uint16")
            if operation.stores:
                (value,) = stored
                made = operation.convert(self.builder, [self.cast(value, "float32").value])
                self.store(bits, index, Typed(made, "uint16"))
                return value
            return Typed(operation.convert(self.builder, [self.load(bits, index).value]), "float32")
        raise NameError(f"nothing is called {name}")

    def operate(self, _name: str, operation: Operation, values: Sequence[ir.Value]) -> ir.Value:
        """The result of an operation, which has a name."""
        return operation.emit(self.builder, values)

    def scratch(self, node: ast.Call) -> Typed:
        """Room for numbers of a type."""
        raise SyntaxError(f"there is no room here: {ast.unparse(node)}")


def _step(node: ast.expr) -> int:
    """The step of a range, which is known."""
    match node:
        case ast.Constant(value=int() as step) if step != 0:
            return step
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as step)) if step != 0:
            return -step
    raise TypeError(f"the step of a range is a number other than 0, and not {ast.unparse(node)}")
