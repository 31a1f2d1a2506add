"""A kernel's text, which is a small part of Python, as LLVM IR: a variable has one type, which its first value gives.

Numba compiles the same text, to the same results; what it takes to find out types in all of Python, and to import all
that knows how, is several times as long as LLVM takes to optimise a kernel.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir

from dualbcast.codegen.llvm.expressions import TYPES, WORD, Expressions, Operation, Storage, Typed, names_in
from dualbcast.codegen.llvm.polling import Asking, Countdown
from dualbcast.codegen.llvm.row_loop import LEFT, Rows
from dualbcast.codegen.llvm.target import KERNEL
from dualbcast.codegen.llvm.vector_types import Lanes, lone
from dualbcast.codegen.llvm.vectorize import LINE, Vectors
from dualbcast.codegen.mathlib.primitives import attribute

__all__ = ["Unit", "lower"]

# How many registers each of some vectors side by side needs at least.
_REGISTERS = 8
# Instructions that take liberties with floats.
_FLOAT_OPERATIONS = frozenset({"fadd", "fsub", "fmul", "fdiv", "frem", "fcmp"})
# What a value is: its type as of `Typed`, and how many are a vector, or 0.
_Shape = tuple[str, int]


def lower(
    module: ir.Module,
    text: str,
    names: Mapping[str, Operation | Storage],
    entry: str,
    signature: Sequence[str],
    liberties: Mapping[str, Iterable[str]],
    attributes: Sequence[str] = (),
    lanes: int = 0,
    registers: int = 32,
    element: str = "",
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
        If not 0, the loop of the entry over a row is computed in vectors of so many elements: see `edges`.
    registers : int
        How many vectors the processor has registers for.
    element : str
        The function that the entry calls for each element, in the loops of which it can be stopped: see `polling`.

    Raises
    ------
    TypeError
        An operation does not take what it is given.
    SyntaxError
        The text has something that kernels do not have.
    """
    unit = Unit(module, names, liberties, attributes, lanes, registers)
    for node in ast.parse(text).body:
        match node:
            case ast.FunctionDef():
                unit.definitions[node.name] = node
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id=dtype), args=[argument])):
                unit.constants[name] = unit.constant(dtype, ast.literal_eval(argument))
            case _:
                raise SyntaxError(f"a kernel has no such statement: {ast.unparse(node)}")
    unit.asking = Asking(unit.definitions, element)
    unit.entry(unit.definitions[entry], signature)


class _Made(NamedTuple):
    """A function in the module, and the type of what it returns, if it returns something."""

    made: ir.Function
    result: str


class Unit:
    """What the functions of a text share.

    Attributes
    ----------
    module, names, attributes, lanes, registers
        See `lower`.
    constants : dict of str to Typed
    definitions, asking : dict of str to ast.FunctionDef, Asking
        The functions of the text, and which of their loops ask whether to go on.
    """

    def __init__(
        self,
        module: ir.Module,
        names: Mapping[str, Operation | Storage],
        liberties: Mapping[str, Iterable[str]],
        attributes: Sequence[str],
        lanes: int,
        registers: int,
    ) -> None:
        self.module, self.names, self._liberties, self.attributes = module, names, liberties, attributes
        self.lanes, self.registers = lanes, registers
        self.constants: dict[str, Typed] = {}
        self.definitions: dict[str, ast.FunctionDef] = {}
        self.asking = Asking(self.definitions, "")
        self._made: dict[Any, _Made] = {}

    def constant(self, dtype: str, value: Any) -> Typed:
        number = float(value) if dtype in ("float32", "float64") else int(value)
        return Typed(ir.Constant(TYPES[dtype], number), dtype)

    def entry(self, node: ast.FunctionDef, signature: Sequence[str]) -> None:
        """The function that is called from outside."""
        named = {argument.arg: dtype for argument, dtype in zip(node.args.args, signature, strict=True)}
        made = self.declared(KERNEL, ir.IntType(32), named)
        body = _Body(self, made, node, signature)
        if self.asking.functions:
            body.countdown = Countdown.begin(self.module, body.start)
        body.block(node.body)
        if body.countdown is None:
            body.builder.ret(ir.Constant(ir.IntType(32), 0))
        else:
            body.countdown.end(body.builder)
        body.start.branch(body.first)

    def declared(self, symbol: str, result: ir.Type, named: Mapping[str, str]) -> ir.Function:
        """A function with pointers to arrays, which is not inlined; `named` has the types of its parameters."""
        made = ir.Function(self.module, ir.FunctionType(result, [_kind_of(each) for each in named.values()]), symbol)
        attribute(made, "nounwind", "noinline", *self.attributes)
        for name, value in zip(named, made.args, strict=True):
            value.name = name
            if isinstance(value.type, ir.PointerType):
                # Else LLVM compares all pairs of pointers at run time and, past about twenty, gives up vectorising.
                value.add_attribute("noalias")
        return made

    def function(self, name: str, signature: tuple[_Shape, ...]) -> _Made:
        """A function for arguments of these types, which becomes part of those that call it."""
        if (name, signature) not in self._made:
            node = self.definitions[name]
            kinds = [_kind_of(*shape) for shape in signature]
            made = self.inlined(name, [*kinds, WORD.as_pointer()] if name in self.asking.functions else kinds)
            if any(lanes for _, lanes in signature):
                arguments = zip(node.args.args, made.args, signature, strict=False)
                values = {each.arg: Typed(value, dtype) for each, value, (dtype, _) in arguments}
                found: _Body | Vectors = Vectors(self, ir.IRBuilder(made.append_basic_block()), values, name)
            else:
                found = _Body(self, made, node, [dtype for dtype, _ in signature])
            if name in self.asking.functions:
                found.countdown = Countdown(self.module, made.args[-1])
            last = node.body[-1]
            result = ""
            if isinstance(last, ast.Return):
                assert last.value is not None
                found.block(node.body[:-1])
                value, result = found.expression(last.value)
                _returns(found.builder, made, value)
            else:
                found.block(node.body)
                found.builder.ret_void()
            if isinstance(found, _Body):
                found.start.branch(found.first)
            self.take_liberties(made, name)
            self._made[name, signature] = _Made(made, result)
        return self._made[name, signature]

    def operation(self, name: str, operation: Operation, kinds: Sequence[ir.Type], caller: str) -> ir.Function:
        """An operation as a function, with the liberties of the one that calls it."""
        key = name, tuple(map(str, kinds)), tuple(self._liberties.get(caller, ()))
        if key not in self._made:
            made = self.inlined(name, kinds)
            builder = ir.IRBuilder(made.append_basic_block())
            _returns(builder, made, operation.emit(builder, made.args))
            self.take_liberties(made, caller)
            self._made[key] = _Made(made, "")
        return self._made[key].made

    def inlined(self, name: str, kinds: Sequence[ir.Type]) -> ir.Function:
        """A function that becomes part of others. What it returns is not known before its body is there."""
        made = ir.Function(self.module, ir.FunctionType(ir.VoidType(), kinds), self.module.get_unique_name(name))
        made.linkage = "internal"
        attribute(made, "nounwind", "alwaysinline", *self.attributes)
        return made

    def take_liberties(self, function: ir.Function, name: str) -> None:
        """Let LLVM take those with the floats of a function that are taken with those of the text's function."""
        liberties = tuple(self._liberties.get(name, ()))
        for block in function.blocks if liberties else ():
            for instruction in block.instructions:
                if isinstance(instruction, ir.CallInstr):
                    if lone(instruction.type) in (ir.FloatType(), ir.DoubleType()):
                        instruction.fastmath.update(liberties)
                elif instruction.opname in _FLOAT_OPERATIONS and not instruction.flags:
                    instruction.flags.extend(liberties)


def _kind_of(dtype: str, lanes: int = 0) -> ir.Type:
    """LLVM's type of what is of a type, as of `Typed`."""
    if dtype[0] == "*":
        return TYPES[dtype[1:]].as_pointer()
    return Lanes(TYPES[dtype], lanes) if lanes else TYPES[dtype]


def _returns(builder: ir.IRBuilder, made: ir.Function, value: ir.Value) -> None:
    """End a function with returning a value."""
    builder.ret(value)
    made.ftype = ir.FunctionType(value.type, made.ftype.args)
    made.return_value = ir.values.ReturnValue(made, value.type)
    made.type = made.ftype.as_pointer()


@dataclass(slots=True)
class _Loop:
    """Where a loop goes on and where it ends."""

    again: ir.Block
    after: ir.Block


class _Body(Expressions):
    """Writes one function: variables live in memory at first, which LLVM puts into registers."""

    def __init__(self, unit: Unit, made: ir.Function, node: ast.FunctionDef, signature: Sequence[str]) -> None:
        self.unit, self.function = unit, node.name
        # What makes room for variables comes before all else.
        self.start = ir.IRBuilder(made.append_basic_block())
        self.first = made.append_basic_block()
        self.builder = ir.IRBuilder(self.first)
        self.loops: list[_Loop] = []
        arguments = zip(node.args.args, made.args, signature, strict=False)
        self.values = {each.arg: Typed(value, dtype) for each, value, dtype in arguments}
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
                    self.store(self.expression(place.value), self.expression(place.slice), self.expression(value))
                case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                    self.assign(name, self.binary(op, self.name(name), self.expression(value)))
                case ast.AugAssign(target=ast.Subscript() as place, op=op, value=value):
                    pointer, index = self.expression(place.value), self.expression(place.slice)
                    changed = self.binary(op, self.load(pointer, index), self.expression(value))
                    self.store(pointer, index, changed)
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
        units = self.unit.asking.units(self.function, stmt)
        self.builder.branch(head)
        self.builder.position_at_end(head)
        self.builder.cbranch(self.test(stmt.test), body, after)
        self.builder.position_at_end(body)
        again = self.new_block() if units else head
        self.turns(_Loop(again, after), stmt.body)
        self.go_on(again)
        if units:
            self.builder.position_at_end(again)
            self.counted.turn(self.builder, units, head, after)
        self.builder.position_at_end(after)

    def for_(self, stmt: ast.For) -> None:
        """Over a range, of which the number of turns is known before the first."""
        name, start, stop, step = self.range(stmt)
        vectors, place = _side_by_side(stmt.body)
        if vectors and self.unit.lanes and self.builder.function.name == KERNEL:
            self.row(stmt, (start, stop), vectors, place)
            return
        builder, zero = self.builder, ir.Constant(WORD, 0)
        # By ones the place itself is counted, which is what a vectoriser knows best; else the turns are.
        first, end = (start, stop) if step == 1 else (zero, self.turn_count(start, stop, step))
        counted = self.start.alloca(WORD)
        builder.store(first, counted)
        head, body, again, after = (self.new_block() for _ in range(4))
        builder.branch(head)
        builder.position_at_end(head)
        at = builder.load(counted, typ=WORD)
        # From the lowest number to the highest is more turns than an int64 can count.
        compared = builder.icmp_signed if step == 1 else builder.icmp_unsigned
        builder.cbranch(compared("<", at, end), body, after)
        builder.position_at_end(body)
        value = at if step == 1 else builder.add(start, builder.mul(at, ir.Constant(WORD, step)))
        self.assign(name, Typed(value, "int64"))
        loop = _Loop(again, after)
        self.turns(loop, stmt.body)
        self.go_on(again)
        builder.position_at_end(again)
        builder.store(builder.add(at, ir.Constant(WORD, 1), flags=["nsw" if step == 1 else "nuw"]), counted)
        units = self.unit.asking.units(self.function, stmt)
        if units:
            self.counted.turn(builder, units, head, after)
        else:
            back = builder.branch(head)
            if vectors:
                self.hint(back, vectors)
        builder.position_at_end(after)

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
        """A loop over a row: calls of what computes whole vectors of it, and of what does so with a few elements."""
        assert isinstance(loop.target, ast.Name)
        read = dict.fromkeys(each.id for part in loop.body for each in ast.walk(part) if isinstance(each, ast.Name))
        known = self.values.keys() | self.variables.keys()
        given = {name: self.name(name) for name in read if name in known}
        if self.countdown is not None:
            given[LEFT] = Typed(self.countdown.place, "*int64")
        at_once = self.unit.lanes * min(vectors, self.unit.registers // _REGISTERS)
        rows = Rows(self.unit, loop, {name: value.dtype for name, value in given.items()}, at_once)
        builder, rest = self.builder, [each.value for each in given.values()]
        first, end = bounds
        low = first
        if place is not None:
            self.values[loop.target.id] = Typed(first, "int64")
            pointer, index = self.expression(place.value), self.expression(place.slice)
            del self.values[loop.target.id]
            itemsize = np.dtype(pointer.dtype[1:]).itemsize
            if itemsize * at_once >= LINE:  # Else vectors are no lines, and to the next line may be many.
                low = self.next_line(first, end, self.element(pointer, index), itemsize, 8 * at_once)
        high = builder.add(low, builder.and_(builder.sub(end, low), ir.Constant(WORD, -at_once)))
        for part, start, stop in ((rows.edge, first, low), (rows.whole, low, high), (rows.edge, high, end)):
            if start is not stop:
                with builder.if_then(builder.icmp_signed("<", start, stop)):
                    builder.call(part, [start, stop, *rest])

    def next_line(self, first: ir.Value, end: ir.Value, address: ir.Value, itemsize: int, least: int) -> ir.Value:
        """Where in a row the next line of the cache begins, in an array of which the first element in the row is at an
        address; the first place itself if the row has no more elements than `least`."""
        builder = self.builder
        ahead = builder.and_(builder.neg(builder.ptrtoint(address, WORD)), ir.Constant(WORD, LINE - 1))
        low = builder.add(first, builder.udiv(ahead, ir.Constant(WORD, itemsize)))
        is_long = builder.icmp_signed(">", builder.sub(end, first), ir.Constant(WORD, least))
        return builder.select(is_long, low, first)

    def name(self, name: str) -> Typed:
        if name in self.variables:
            place, dtype = self.variables[name]
            return Typed(self.builder.load(place, typ=TYPES[dtype]), dtype)
        return super().name(name)

    def scratch(self, node: ast.Call) -> Typed:
        match node.args:
            case [ast.Name(id=dtype), ast.Constant(value=int() as length)]:
                return Typed(self.start.alloca(TYPES[dtype], length), f"*{dtype}")
        return super().scratch(node)

    def new_block(self) -> ir.Block:
        return self.builder.append_basic_block()

    def go_on(self, block: ir.Block) -> None:
        """Continue there, where this place is not left already."""
        if not self.builder.block.is_terminated:
            self.builder.branch(block)


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
        for name in names_in(node, set()):
            if name in places:
                found[name] &= places[name][-1] in open_blocks
            else:
                found.setdefault(name, False)

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
