"""A kernel's text, which is a small part of Python, as LLVM IR: a variable has one type, which its first value gives.

Numba compiles the same text, to the same results; what it takes to find out types in all of Python, and to import all
that knows how, is several times as long as LLVM takes to optimise a kernel.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from llvmlite import ir

from dualbcast.record import NamedTuple, dataclass
from dualbcast.runtime.elementary_steps import Emit, attribute
from dualbcast.runtime.native import KERNEL

__all__ = ["ROW", "WHOLE", "Operation", "Storage", "lower"]

# The loop over a row as a function of where it begins and ends, and of what else it takes; and the same for vectors of
# which no element is missing.
ROW, WHOLE = "dualbcast_row", "dualbcast_whole"
_BOUNDS = ("low#", "high#")
# Bytes of a line of the cache.
_LINE = 64

_WORD = ir.IntType(64)
_TYPES: dict[str, ir.Type] = {
    "bool": ir.IntType(1),
    "float32": ir.FloatType(),
    "float64": ir.DoubleType(),
    **{f"{sign}int{bits}": ir.IntType(bits) for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
_FLOATS = ("float32", "float64")
_ARITHMETIC = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul"}
_BITS = {ast.BitAnd: "and_", ast.BitOr: "or_", ast.BitXor: "xor"}
_COMPARISONS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
# Instructions that take liberties with floats.
_FLOAT_OPERATIONS = frozenset({"fadd", "fsub", "fmul", "fdiv", "frem", "fcmp"})


class Typed(NamedTuple):
    """A value and what it is: "float32", "int64", "bool", …, or of a pointer, "*" and what is there."""

    value: ir.Value
    dtype: str


@dataclass(frozen=True, slots=True)
class Operation:
    """A function on floats of one type, of which the result has the same.

    Attributes
    ----------
    emit : function
        Of a builder and the arguments.
    """

    emit: Emit


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


def lower(
    module: ir.Module,
    text: str,
    names: Mapping[str, Operation | Storage],
    entry: str,
    signature: Sequence[str],
    liberties: Mapping[str, Iterable[str]],
    attributes: Sequence[str] = (),
    lanes: int = 0,
) -> None:
    """Put the functions of a text into a module.

    Parameters
    ----------
    module : llvmlite.ir.Module
    text : str
        Constants, and functions, callees first.
    names : mapping of str to Operation or Storage
        What else its functions call.
    entry : str
        The one for which this is done, which is called `KERNEL` there. Its pointers do not overlap. It returns 0; the
        others become parts of it.
    signature : sequence of str
        The types of its parameters, as of `Typed`.
    liberties : mapping of str to iterable of str
        LLVM's names of those it may take with the floats of a function.
    attributes : sequence of str
        For each function.
    lanes : int
        If not 0, the loop of the entry over a row is computed in vectors of so many elements, the last under a mask.
        It is a function then, `ROW`, and what it is called for as many whole vectors as there are is `WHOLE`, which is
        declared only: see `masks`.

    Raises
    ------
    TypeError
        An operation does not take what it is given.
    SyntaxError
        The text has something that kernels do not have.
    """
    unit = _Unit(module, names, liberties, attributes, lanes)
    for node in ast.parse(text).body:
        match node:
            case ast.FunctionDef():
                unit.definitions[node.name] = node
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id=dtype), args=[argument])):
                unit.constants[name] = unit.constant(dtype, ast.literal_eval(argument))
            case _:
                raise SyntaxError(f"a kernel has no such statement: {ast.unparse(node)}")
    unit.function(entry, tuple(signature), entry=True)


class _Made(NamedTuple):
    """A function in the module, and the type of what it returns, if it returns something."""

    made: ir.Function
    result: str


class _Unit:
    """What the functions of a text share."""

    def __init__(
        self,
        module: ir.Module,
        names: Mapping[str, Operation | Storage],
        liberties: Mapping[str, Iterable[str]],
        attributes: Sequence[str],
        lanes: int,
    ) -> None:
        self.module, self.names, self.liberties, self.attributes = module, names, liberties, attributes
        self.lanes = lanes
        self.constants: dict[str, Typed] = {}
        self.definitions: dict[str, ast.FunctionDef] = {}
        self._made: dict[tuple[str, tuple[str, ...]], _Made] = {}

    def constant(self, dtype: str, value: Any) -> Typed:
        number = float(value) if dtype in _FLOATS else int(value)
        return Typed(ir.Constant(_TYPES[dtype], number), dtype)

    def function(self, name: str, signature: tuple[str, ...], entry: bool = False) -> _Made:
        """A function for arguments of these types."""
        key = name, signature
        if key not in self._made:
            self._made[key] = self.lowered(self.definitions[name], signature, KERNEL if entry else "")
        return self._made[key]

    def lowered(self, node: ast.FunctionDef, signature: tuple[str, ...], symbol: str = "") -> _Made:
        """A function, which has this symbol, or becomes part of those that call it."""
        last = node.body[-1]
        returns = isinstance(last, ast.Return)
        kinds = [_TYPES[dtype.lstrip("*")] for dtype in signature]
        kinds = [kind.as_pointer() if dtype[0] == "*" else kind for kind, dtype in zip(kinds, signature, strict=True)]
        # What it returns is not known before its body is there.
        entry = symbol == KERNEL
        kind = ir.IntType(32) if entry else ir.VoidType()
        made = ir.Function(self.module, ir.FunctionType(kind, kinds), symbol or self.module.get_unique_name(node.name))
        inlined = "noinline" if symbol else "alwaysinline"
        attribute(made, "nounwind", inlined, *self.attributes)
        for parameter, value in zip(node.args.args, made.args, strict=True):
            value.name = parameter.arg
            if symbol and isinstance(value.type, ir.PointerType):
                # Else LLVM compares all pairs of pointers at run time and, past about twenty, gives up vectorising.
                value.add_attribute("noalias")
        body = _Body(self, made, node, signature)
        body.block(node.body[:-1] if returns else node.body)
        result = ""
        if isinstance(last, ast.Return):
            assert last.value is not None
            value, result = body.expression(last.value)
            body.builder.ret(value)
            made.ftype = ir.FunctionType(value.type, kinds)
            made.return_value = ir.values.ReturnValue(made, value.type)
            made.type = made.ftype.as_pointer()
        elif entry:
            body.builder.ret(ir.Constant(kind, 0))
        else:
            body.builder.ret_void()
        if not symbol:
            made.linkage = "internal"
        body.start.branch(body.first)
        self._take_liberties(made, tuple(self.liberties.get(node.name, ())))
        return _Made(made, result)

    @staticmethod
    def _take_liberties(function: ir.Function, liberties: tuple[str, ...]) -> None:
        for block in function.blocks if liberties else ():
            for instruction in block.instructions:
                if isinstance(instruction, ir.CallInstr):
                    if instruction.type in (ir.FloatType(), ir.DoubleType()):
                        instruction.fastmath.update(liberties)
                elif instruction.opname in _FLOAT_OPERATIONS and not instruction.flags:
                    instruction.flags.extend(liberties)


@dataclass(slots=True)
class _Loop:
    """Where a loop goes on and where it ends."""

    again: ir.Block
    after: ir.Block


class _Body:
    """Writes one function: variables live in memory at first, which LLVM puts into registers."""

    def __init__(self, unit: _Unit, made: ir.Function, node: ast.FunctionDef, signature: Sequence[str]) -> None:
        self.unit = unit
        # What makes room for variables comes before all else.
        self.start = ir.IRBuilder(made.append_basic_block())
        self.first = made.append_basic_block()
        self.builder = ir.IRBuilder(self.first)
        self.loops: list[_Loop] = []
        self.values = {
            argument.name: Typed(argument, dtype) for argument, dtype in zip(made.args, signature, strict=True)
        }
        self.variables: dict[str, Typed] = {}
        assigned, once = _assigned(node)
        self.once = once - self.values.keys()
        for name in assigned & self.values.keys():
            self.assign(name, self.values.pop(name))

    # --- statements ----------------------------------------------------------------------------------------------

    def block(self, statements: Sequence[ast.stmt]) -> None:
        for stmt in statements:
            match stmt:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self.assign(name, self.expression(value))
                case ast.Assign(targets=[ast.Subscript() as place], value=value):
                    self.store(place, self.expression(value))
                case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                    self.assign(name, self.binary(op, self.name(name), self.expression(value)))
                case ast.AugAssign(target=ast.Subscript() as place, op=op, value=value):
                    self.store(place, self.binary(op, self.expression(place), self.expression(value)))
                case ast.Expr(value=ast.Call() as call):
                    self.call(call)
                case ast.If():
                    self.if_(stmt)
                case ast.While(orelse=[]):
                    self.while_(stmt)
                case ast.For(orelse=[]):
                    self.for_(stmt)
                case ast.Break():
                    self.builder.branch(self.loops[-1].after)
                case ast.Continue():
                    self.builder.branch(self.loops[-1].again)
                case ast.Pass():
                    pass
                case _:
                    raise SyntaxError(f"a kernel has no such statement: {ast.unparse(stmt)}")

    def assign(self, name: str, value: Typed) -> None:
        """Give a variable a value, which is of the variable's type."""
        if name in self.once:
            self.values[name] = value
            return
        if value.dtype[0] == "*":
            raise TypeError(f"{name} is more than one pointer")
        if name not in self.variables:
            self.variables[name] = Typed(self.start.alloca(value.value.type, name=name), value.dtype)
        place, dtype = self.variables[name]
        if dtype != value.dtype:
            raise TypeError(f"the variable {name} is of type {dtype}, and is given a value of type {value.dtype}")
        self.builder.store(value.value, place)

    def store(self, place: ast.Subscript, value: Typed) -> None:
        address, dtype = self.place(place)
        self.builder.store(self.cast(value, dtype).value, address)

    def if_(self, stmt: ast.If) -> None:
        then, after = self.new_block(), self.new_block()
        orelse = self.new_block() if stmt.orelse else after
        self.builder.cbranch(self.test(stmt.test), then, orelse)
        for start, body in ((then, stmt.body), (orelse, stmt.orelse)):
            if body:
                self.builder.position_at_end(start)
                self.block(body)
                self.go_on(after)
        self.builder.position_at_end(after)

    def while_(self, stmt: ast.While) -> None:
        head, body, after = self.new_block(), self.new_block(), self.new_block()
        self.builder.branch(head)
        self.builder.position_at_end(head)
        self.builder.cbranch(self.test(stmt.test), body, after)
        self.builder.position_at_end(body)
        self.turns(_Loop(head, after), stmt.body)
        self.go_on(head)
        self.builder.position_at_end(after)

    def for_(self, stmt: ast.For) -> None:
        """Over a range, of which the number of turns is known before the first."""
        match stmt:
            case ast.For(target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range"), args=[*bounds])):
                step = _step(bounds.pop()) if len(bounds) == 3 else 1
            case _:
                raise SyntaxError(f"a kernel has no such loop: for {ast.unparse(stmt.iter)}")
        vectors, place = _side_by_side(stmt.body)
        if vectors and self.unit.lanes and self.builder.function.name == KERNEL:
            self.row(stmt, [ir.Constant(_WORD, 0), *map(self.integer, bounds)][-2:], vectors, place)
            return
        builder, zero = self.builder, ir.Constant(_WORD, 0)
        start, stop = [zero, *map(self.integer, bounds)][-2:]
        # By ones the place itself is counted, which is what a vectoriser knows best; else the turns are.
        first, end = (start, stop) if step == 1 else (zero, self.turn_count(start, stop, step))
        counted = self.start.alloca(_WORD)
        builder.store(first, counted)
        head, body, again, after = (self.new_block() for _ in range(4))
        builder.branch(head)
        builder.position_at_end(head)
        at = builder.load(counted, typ=_WORD)
        # From the lowest number to the highest is more turns than an int64 can count.
        compared = builder.icmp_signed if step == 1 else builder.icmp_unsigned
        builder.cbranch(compared("<", at, end), body, after)
        builder.position_at_end(body)
        value = at if step == 1 else builder.add(start, builder.mul(at, ir.Constant(_WORD, step)))
        self.assign(name, Typed(value, "int64"))
        loop = _Loop(again, after)
        self.turns(loop, stmt.body)
        self.go_on(again)
        builder.position_at_end(again)
        builder.store(builder.add(at, ir.Constant(_WORD, 1), flags=["nsw" if step == 1 else "nuw"]), counted)
        back = builder.branch(head)
        if vectors:
            self.hint(back, vectors)
        builder.position_at_end(after)

    def turn_count(self, start: ir.Value, stop: ir.Value, step: int) -> ir.Value:
        """How many numbers a range has."""
        builder, zero, one = self.builder, ir.Constant(_WORD, 0), ir.Constant(_WORD, 1)
        low, high = (start, stop) if step > 0 else (stop, start)
        less = builder.sub(builder.sub(high, low), one)
        count = builder.add(builder.udiv(less, ir.Constant(_WORD, abs(step))), one)
        return builder.select(builder.icmp_signed("<", low, high), count, zero)

    def turns(self, loop: _Loop, body: Sequence[ast.stmt]) -> None:
        self.loops.append(loop)
        self.block(body)
        self.loops.pop()

    def hint(self, back: ir.Instruction, vectors: int) -> None:
        """Tell LLVM's vectoriser how many vectors of a loop's turns to compute side by side, and, if that is decided,
        how many turns are a vector, the last ones under a mask.

        By itself it takes one where the body is long. What a processor looks ahead is then a single chain of
        instructions, each waiting for the one before it.
        """
        module, lanes = self.unit.module, self.unit.lanes
        wanted = [("interleave.count", ir.Constant(ir.IntType(32), vectors))]
        if lanes:
            wanted.append(("vectorize.width", ir.Constant(ir.IntType(32), lanes)))
            wanted.append(("vectorize.predicate.enable", ir.Constant(ir.IntType(1), 1)))
        said = [module.add_metadata([f"llvm.loop.{name}", value]) for name, value in wanted]
        # What names a loop refers to itself, so that it is like no other.
        loop = ir.MDValue(module, said, name=str(len(module.metadata)))
        loop.operands = (loop, *said)
        back.set_metadata("llvm.loop", loop)

    def row(self, loop: ast.For, bounds: Sequence[ir.Value], vectors: int, place: ast.Subscript | None) -> None:
        """A loop as a function, which is called for all whole vectors and for what is left before and after them."""
        assert isinstance(loop.target, ast.Name)
        read = dict.fromkeys(each.id for part in loop.body for each in ast.walk(part) if isinstance(each, ast.Name))
        known = self.values.keys() | self.variables.keys()
        given = {name: self.name(name) for name in read if name in known}
        places: list[ast.expr] = [ast.Name(name, ast.Load()) for name in _BOUNDS]
        over = ast.For(loop.target, ast.Call(ast.Name("range", ast.Load()), places, []), loop.body, [])
        arguments = ast.arguments([], [ast.arg(name) for name in (*_BOUNDS, *given)], None, [], [], None, [])
        node = ast.FunctionDef(ROW, arguments, [over], [])
        row = self.unit.lowered(node, ("int64", "int64", *[each.dtype for each in given.values()]), ROW).made
        whole = ir.Function(self.unit.module, row.ftype, WHOLE)
        attribute(whole, "nounwind")
        builder, rest = self.builder, [each.value for each in given.values()]
        first, end = bounds
        low, at_once = first, self.unit.lanes * vectors
        if place is not None:
            self.values[loop.target.id] = Typed(first, "int64")
            low = self.next_line(first, end, *self.place(place), 8 * at_once)
            del self.values[loop.target.id]
        high = builder.add(low, builder.and_(builder.sub(end, low), ir.Constant(_WORD, -at_once)))
        for part, start, stop in ((row, first, low), (whole, low, high), (row, high, end)):
            if start is not stop:
                with builder.if_then(builder.icmp_signed("<", start, stop)):
                    builder.call(part, [start, stop, *rest])

    def next_line(self, first: ir.Value, end: ir.Value, address: ir.Value, dtype: str, least: int) -> ir.Value:
        """Where in a row the next line of the cache begins, in an array of which the first element in the row is at an
        address; the first place itself if the row has no more elements than `least`."""
        builder = self.builder
        ahead = builder.and_(builder.neg(builder.ptrtoint(address, _WORD)), ir.Constant(_WORD, _LINE - 1))
        low = builder.add(first, builder.udiv(ahead, ir.Constant(_WORD, np.dtype(dtype).itemsize)))
        is_long = builder.icmp_signed(">", builder.sub(end, first), ir.Constant(_WORD, least))
        return builder.select(is_long, low, first)

    def new_block(self) -> ir.Block:
        return self.builder.append_basic_block()

    def go_on(self, block: ir.Block) -> None:
        """Continue there, where this place is not left already."""
        if not self.builder.block.is_terminated:
            self.builder.branch(block)

    # --- expressions ---------------------------------------------------------------------------------------------

    def expression(self, node: ast.expr) -> Typed:
        match node:
            case ast.Name(id=name):
                return self.name(name)
            case ast.Constant(value=bool() as value):
                return Typed(ir.Constant(_TYPES["bool"], int(value)), "bool")
            case ast.Constant(value=int() as value):
                return Typed(ir.Constant(_WORD, value), "int64")
            case ast.Subscript():
                address, dtype = self.place(node)
                return Typed(self.builder.load(address, typ=_TYPES[dtype]), dtype)
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
        if name in self.variables:
            place, dtype = self.variables[name]
            return Typed(self.builder.load(place, typ=_TYPES[dtype]), dtype)
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

    def place(self, node: ast.Subscript) -> tuple[ir.Value, str]:
        """The address of an element, and what is there."""
        pointer, dtype = self.expression(node.value)
        if dtype[0] != "*":
            raise TypeError(f"{ast.unparse(node.value)} is of type {dtype}, and has no elements")
        return self.element(pointer, self.integer(node.slice)), dtype[1:]

    def element(self, pointer: ir.Value, index: ir.Value) -> ir.Value:
        return self.builder.gep(pointer, [index])

    def unary(self, op: ast.unaryop, operand: ast.expr) -> Typed:
        if isinstance(op, ast.USub) and isinstance(operand, ast.Constant):
            return Typed(ir.Constant(_WORD, -operand.value), "int64")  # type: ignore[operator]
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
        then, other, after = (self.new_block() for _ in range(3))
        self.builder.cbranch(test, then, other)
        found = []
        for start, node in ((then, body), (other, orelse)):
            self.builder.position_at_end(start)
            value = self.expression(node)
            found.append((value, self.builder.block))
            self.builder.branch(after)
        self.builder.position_at_end(after)
        (first, _), (second, _) = found
        if first.dtype != second.dtype:
            raise TypeError(f"one of two values is of type {first.dtype}, the other of type {second.dtype}")
        phi = self.builder.phi(first.value.type)
        for (value, _), block in found:
            phi.add_incoming(value, block)
        return Typed(phi, first.dtype)

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
                return Typed(self.divided(*numbers)[kind is ast.Mod], dtype)
            if kind in (ast.LShift, ast.RShift):
                return Typed(self.shifted(*numbers, left=kind is ast.LShift), dtype)
        if kind in _BITS and dtype in ("int64", "bool"):
            return Typed(getattr(self.builder, _BITS[kind])(*numbers), dtype)
        raise TypeError(f"no {kind.__name__} of type {dtype}")

    def divided(self, a: ir.Value, b: ir.Value) -> tuple[ir.Value, ir.Value]:
        """The quotient of integers, rounded down, and what remains, both 0 where b is 0, as NumPy has it."""
        builder, zero, one = self.builder, ir.Constant(_WORD, 0), ir.Constant(_WORD, 1)
        # The processor traps at 0, and at the lowest number by -1.
        by_nothing, negates = (builder.icmp_signed("==", b, ir.Constant(_WORD, value)) for value in (0, -1))
        divisor = builder.select(builder.or_(by_nothing, negates), one, b)
        quotient, rest = builder.sdiv(a, divisor), builder.srem(a, divisor)
        down = builder.icmp_signed("<", builder.xor(rest, divisor), zero)
        down = builder.and_(down, builder.icmp_signed("!=", rest, zero))
        quotient = builder.select(down, builder.sub(quotient, one), quotient)
        rest = builder.select(down, builder.add(rest, divisor), rest)
        quotient = builder.select(negates, builder.neg(a), quotient)
        return builder.select(by_nothing, zero, quotient), rest

    def shifted(self, a: ir.Value, places: ir.Value, left: bool) -> ir.Value:
        """The bits of `a` moved, by 64 places and more as by many steps; LLVM has no number for that."""
        builder, most = self.builder, ir.Constant(_WORD, 63)
        within = builder.icmp_unsigned("<=", places, most)
        if left:
            return builder.select(within, builder.shl(a, places), ir.Constant(_WORD, 0))
        return builder.ashr(a, builder.select(within, places, most))

    def alike(self, left: Typed, right: Typed) -> tuple[Typed, Typed]:
        """Two operands in the type that both go into."""
        if left.dtype == right.dtype:
            return left, right
        if left.dtype in _FLOATS and right.dtype in _FLOATS:
            wider = "float64"
        elif not {left.dtype, right.dtype} & set(_FLOATS) and "*" not in left.dtype + right.dtype:
            wider = "int64"
        else:
            raise TypeError(f"one operand is of type {left.dtype}, the other of type {right.dtype}")
        return self.cast(left, wider), self.cast(right, wider)

    def cast(self, value: Typed, dtype: str) -> Typed:
        """A number in another type."""
        builder, given, kind = self.builder, value.value, _TYPES[dtype]
        source = value.dtype
        if source == dtype:
            return value
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
        elif kind.width <= given.type.width:
            made = builder.trunc(given, kind) if kind.width < given.type.width else given
        else:
            made = builder.sext(given, kind) if signed else builder.zext(given, kind)
        return Typed(made, dtype)

    # --- calls ---------------------------------------------------------------------------------------------------

    def call(self, node: ast.Call) -> Typed:
        assert isinstance(node.func, ast.Name)
        name = node.func.id
        match name, node.args:
            case "side_by_side", _:  # It says so to `for_`.
                return Typed(ir.Constant(_WORD, 0), "int64")
            case "scratch", [ast.Name(id=dtype), ast.Constant(value=int() as length)]:
                return Typed(self.start.alloca(_TYPES[dtype], length), f"*{dtype}")
        arguments = [self.expression(argument) for argument in node.args]
        # A user's function may be called int32.
        if name in self.unit.definitions:
            return self.called(name, arguments)
        if name in _TYPES:
            (argument,) = arguments
            return self.cast(argument, name)
        if name == "select":
            test, then, orelse = arguments
            then, orelse = self.alike(then, orelse)
            return Typed(self.builder.select(test.value, then.value, orelse.value), then.dtype)
        if name == "min":
            low = self.compare("<", *arguments)
            return Typed(self.builder.select(low.value, *(each.value for each in arguments)), "int64")
        operation = self.unit.names.get(name)
        if isinstance(operation, Operation):
            kinds = {each.dtype for each in arguments}
            if len(kinds) > 1 or not kinds <= set(_FLOATS):
                raise TypeError(f"no {name} of {', '.join(each.dtype for each in arguments)}")
            made = operation.emit(self.builder, [each.value for each in arguments])
            return Typed(made, arguments[0].dtype)
        if isinstance(operation, Storage):
            pointer, index, *stored = arguments
            address = self.element(pointer.value, index.value)
            if operation.stores:
                (value,) = stored
                self.builder.store(operation.convert(self.builder, [self.cast(value, "float32").value]), address)
                return value
            loaded = self.builder.load(address, typ=_TYPES["uint16"])
            return Typed(operation.convert(self.builder, [loaded]), "float32")
        raise NameError(f"nothing is called {name}")

    def called(self, name: str, arguments: Sequence[Typed]) -> Typed:
        """What a function of the text returns."""
        made, result = self.unit.function(name, tuple([each.dtype for each in arguments]))
        return Typed(self.builder.call(made, [each.value for each in arguments]), result)


def _step(node: ast.expr) -> int:
    """The step of a range, which is known."""
    match node:
        case ast.Constant(value=int() as step) if step != 0:
            return step
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as step)) if step != 0:
            return -step
    raise TypeError(f"the step of a range is a number other than 0, and not {ast.unparse(node)}")


def _side_by_side(body: Sequence[ast.stmt]) -> tuple[int, ast.Subscript | None]:
    """How many vectors of a loop's turns the loop says to compute side by side, and the array of whose elements in a
    line each should be; 0 and None if it does not."""
    match body[-1]:
        case ast.Expr(ast.Call(ast.Name("side_by_side"), [ast.Constant(value=int() as vectors), *places])):
            return vectors, next((place for place in places if isinstance(place, ast.Subscript)), None)
    return 0, None


def _assigned(function: ast.FunctionDef) -> tuple[set[str], set[str]]:
    """The names that a function assigns, and those with one assignment, which comes before all uses, in the block that
    these are in or around it.

    Such are values. All others are variables.
    """
    places: dict[str, list[int]] = {}
    found: dict[str, bool] = {}

    def read(node: ast.expr, open_blocks: set[int]) -> None:
        match node:
            case ast.Name(id=name):
                if name in places:
                    found[name] &= places[name][-1] in open_blocks
                else:
                    found.setdefault(name, False)
            case ast.BinOp(left=left, right=right) | ast.Compare(left=left, comparators=[right]):
                read(left, open_blocks)
                read(right, open_blocks)
            case ast.Call(args=args):
                for each in args:
                    read(each, open_blocks)
            case ast.Subscript(value=value, slice=index):
                read(value, open_blocks)
                read(index, open_blocks)
            case ast.UnaryOp(operand=operand):
                read(operand, open_blocks)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                for each in (test, body, orelse):
                    read(each, open_blocks)

    def assign(name: str, block: int) -> None:
        # Where it was read before, it is a variable of a loop.
        found[name] = name not in found
        places.setdefault(name, []).append(block)

    def block(statements: Sequence[ast.stmt], open_blocks: set[int]) -> None:
        here = id(statements)
        open_blocks = {*open_blocks, here}
        for stmt in statements:
            match stmt:
                case ast.Assign(targets=[target], value=value) | ast.AugAssign(target=target, value=value):
                    read(value, open_blocks)
                    if not isinstance(target, ast.Name):
                        read(target, open_blocks)
                        continue
                    if isinstance(stmt, ast.AugAssign):
                        found[target.id] = False
                    assign(target.id, here)
                case ast.If() | ast.While():
                    read(stmt.test, open_blocks)
                    block(stmt.body, open_blocks)
                    block(stmt.orelse, open_blocks)
                case ast.For():
                    read(stmt.iter, open_blocks)
                    assert isinstance(stmt.target, ast.Name)
                    assign(stmt.target.id, id(stmt.body))
                    block(stmt.body, open_blocks)
                case ast.Expr(value=ast.expr() as value) | ast.Return(value=ast.expr() as value):
                    read(value, open_blocks)

    block(function.body, set())
    return set(places), {name for name, once in found.items() if once and name in places}
