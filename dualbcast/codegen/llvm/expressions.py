"""Statements and expressions of a kernel's text as LLVM IR. The LLVM type of a value says whether it is a number or a
vector.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TypeAlias

from llvmlite import ir

from dualbcast.codegen.llvm.typed_values import Typed, binary, cast, compare, select, spread, unary
from dualbcast.codegen.llvm.unit import Countdown, Unit
from dualbcast.codegen.mathlib import STORAGE
from dualbcast.codegen.values import FLOATS, TYPES, Value, word

_COMPARISONS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}


# The blocks that `continue` and `break` go to.
Loop: TypeAlias = tuple[ir.Block, ir.Block]


class Expressions:
    """The statements and expressions of a function that is being written; subclasses say what variables, branches and
    loops become.

    `function` is the name of the function of the text that this is, or is part of, and `builder` is at the place where
    it goes on. `countdown` has the units of work that are left until it polls; None where no loop does.
    """

    unit: Unit
    function: str
    builder: ir.IRBuilder
    values: dict[str, Typed]
    countdown: Countdown | None = None
    loops: list[Loop]

    @property
    def counted(self) -> Countdown:
        """The countdown of a function that has one."""
        assert self.countdown is not None
        return self.countdown

    # --- statements ----------------------------------------------------------------------------------------------

    def block(self, statements: Sequence[ast.stmt]) -> None:
        for stmt in statements:
            match stmt:
                case ast.Assign(targets=[target], value=value):
                    self.put(target, self.expression(value))
                case ast.AugAssign(target=target, op=op, value=value):
                    self.put(target, self.binary(op, self.expression(target), self.expression(value)))
                case ast.Expr(value=ast.Call() as call):
                    self.call(call)
                case ast.If():
                    self.if_(stmt)
                case ast.While(orelse=[]):
                    self.while_(stmt)
                case ast.For(orelse=[]):
                    self.for_(stmt)
                case ast.Break() | ast.Continue() if self.loops:
                    self.builder.branch(self.loops[-1][isinstance(stmt, ast.Break)])
                case ast.Pass():
                    pass
                case _:
                    raise SyntaxError(f"a kernel has no such statement: {ast.unparse(stmt)}")

    def put(self, target: ast.expr, value: Typed) -> None:
        """Give a variable, or an element of an array, a value."""
        match target:
            case ast.Name(name):
                self.assign(name, value)
            case ast.Subscript(array, index):
                self.store(self.expression(array), self.expression(index), value)
            case _:
                raise SyntaxError(f"nothing is assigned to {ast.unparse(target)}")

    def assign(self, name: str, value: Typed) -> None:
        raise NotImplementedError

    def if_(self, stmt: ast.If) -> None:
        raise NotImplementedError

    def while_(self, stmt: ast.While) -> None:
        raise NotImplementedError

    def for_(self, stmt: ast.For) -> None:
        raise NotImplementedError

    # --- expressions ---------------------------------------------------------------------------------------------

    def expression(self, node: ast.expr) -> Typed:
        match node:
            case ast.Name(id=name):
                return self.name(name)
            case ast.Constant(value=bool() as value):
                return Typed(ir.Constant(TYPES["bool"], int(value)), "bool")
            case ast.Constant(value=int() as value):
                return Typed(word(value), "int64")
            case ast.Subscript():
                pointer, index = self.expression(node.value), self.expression(node.slice)
                if pointer.dtype[0] != "*":
                    raise TypeError(f"{ast.unparse(node.value)} is of type {pointer.dtype}, and has no elements")
                return self.load(pointer, index)
            case ast.BinOp(left=left, op=op, right=right):
                return self.binary(op, self.expression(left), self.expression(right))
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return compare(self.builder, _COMPARISONS[type(op)], self.expression(left), self.expression(right))
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as value)):
                return Typed(word(-value), "int64")
            case ast.UnaryOp(op=op, operand=operand):
                return unary(self.builder, op, self.expression(operand))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self.conditional(self.test(test), body, orelse)
            case ast.Call():
                return self.call(node)
        raise SyntaxError(f"a kernel has no such expression: {ast.unparse(node)}")

    def name(self, name: str) -> Typed:
        value = self.values.get(name) or self.unit.constants.get(name)
        if value is None:
            raise NameError(f"nothing is called {name}, or not yet")
        return value

    def test(self, node: ast.expr) -> ir.Value:
        value, dtype = self.expression(node)
        if dtype != "bool":
            raise TypeError(f"a test of type {dtype}: {ast.unparse(node)}")
        return value

    def integer(self, node: ast.expr) -> ir.Value:
        return cast(self.builder, self.expression(node), "int64").value

    def binary(self, op: ast.operator, left: Typed, right: Typed) -> Typed:
        return binary(self.builder, op, left, right)

    def load(self, pointer: Typed, index: Typed) -> Typed:
        """An element of an array, in the type of the array."""
        dtype = pointer.dtype[1:]
        return Typed(self.builder.load(self.element(pointer, index), typ=TYPES[dtype]), dtype)

    def store(self, pointer: Typed, index: Typed, value: Typed) -> None:
        """Store a value in an array, in the type of the array."""
        self.builder.store(cast(self.builder, value, pointer.dtype[1:]).value, self.element(pointer, index))

    def element(self, pointer: Typed, index: Typed) -> ir.Value:
        """The address of an element."""
        return self.builder.gep(pointer.value, [cast(self.builder, index, "int64").value])

    # --- branches and loops --------------------------------------------------------------------------------------

    def conditional(self, test: ir.Value, body: ast.expr, orelse: ast.expr) -> Typed:
        """The value of one expression or of the other; of vectors both are computed."""
        if isinstance(test.type, ir.VectorType):
            return select(self.builder, test, self.expression(body), self.expression(orelse))
        then, other, after = (self.builder.append_basic_block() for _ in range(3))
        self.builder.cbranch(test, then, other)
        sides = []
        for start, node in ((then, body), (other, orelse)):
            self.builder.position_at_end(start)
            sides.append((self.expression(node), self.builder.block))
        values, ends = zip(*sides, strict=True)
        return self.merged([values], ends, after)[0]

    def merged(self, values: Sequence[Sequence[Typed]], ends: Sequence[ir.Block], after: ir.Block) -> list[Typed]:
        """The values of names in a block that several blocks go on to.

        For each name, `values` has the values at the ends of these blocks.
        """
        lanes = [max(each.lanes for each in versions) for versions in values]
        incoming: list[list[ir.Value]] = [[] for _ in values]
        for position, block in enumerate(ends):
            self.builder.position_at_end(block)
            for versions, width, spread_out in zip(values, lanes, incoming, strict=True):
                spread_out.append(spread(self.builder, versions[position], width).value)
            self.builder.branch(after)
        self.builder.position_at_end(after)
        results = []
        for versions, spread_out in zip(values, incoming, strict=True):
            dtype = versions[0].dtype
            if any(each.dtype != dtype for each in versions):
                kinds = ", the other of type ".join(each.dtype for each in versions)
                raise TypeError(f"one of two values is of type {kinds}")
            phi = self.builder.phi(spread_out[0].type)
            for value, block in zip(spread_out, ends, strict=True):
                phi.add_incoming(value, block)
            results.append(Typed(phi, dtype))
        return results

    def range(self, loop: ast.For) -> tuple[str, ir.Value, ir.Value, int]:
        """The target of a loop, and the start, stop and step of its range."""
        match loop:
            case ast.For(target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range"), args=[*bounds])):
                step = _step(bounds.pop()) if len(bounds) == 3 else 1
                start, stop = [word(0), *map(self.integer, bounds)][-2:]
                return name, start, stop, step
        raise SyntaxError(f"a kernel has no such loop: for {ast.unparse(loop.iter)}")

    def iteration_count(self, start: ir.Value, stop: ir.Value, step: int) -> ir.Value:
        """The number of numbers in a range."""
        builder, zero, one = self.builder, word(0), word(1)
        low, high = (start, stop) if step > 0 else (stop, start)
        less = builder.sub(builder.sub(high, low), one)
        count = builder.add(builder.udiv(less, word(abs(step))), one)
        return builder.select(builder.icmp_signed("<", low, high), count, zero)

    # --- calls ---------------------------------------------------------------------------------------------------

    def call(self, node: ast.Call) -> Typed:
        assert isinstance(node.func, ast.Name)
        name = node.func.id
        if name == "scratch":
            return self.scratch(node)
        arguments = [self.expression(argument) for argument in node.args]
        # A user's function may be called int32.
        if name in self.unit.definitions:
            function, result = self.unit.function(name, tuple([(each.dtype, each.lanes) for each in arguments]))
            values = [each.value for each in arguments]
            if name in self.unit.polling:
                values.append(self.counted.place)
            return Typed(self.builder.call(function, values), result)
        if name in TYPES:
            (argument,) = arguments
            return cast(self.builder, argument, name)
        if name == "select":
            test, then, orelse = arguments
            return select(self.builder, test.value, then, orelse)
        if name == "min":
            return select(self.builder, compare(self.builder, "<", *arguments).value, *arguments)
        if name in STORAGE:
            return self._stored(name, *arguments)
        if name not in self.unit.names:
            raise NameError(f"nothing is called {name}")
        kinds = {each.dtype for each in arguments}
        if len(kinds) > 1 or not kinds <= set(FLOATS):
            raise TypeError(f"no {name} of {', '.join(each.dtype for each in arguments)}")
        lanes = max(each.lanes for each in arguments)
        values = [Value(self.builder, spread(self.builder, each, lanes).value) for each in arguments]
        return Typed(self.unit.names[name](*values).value, arguments[0].dtype)

    def _stored(self, name: str, pointer: Typed, index: Typed, *stored: Typed) -> Typed:
        """Load or store a number that is kept in 16 bits."""
        halves, convert = Typed(pointer.value, "*uint16"), STORAGE[name]
        if not stored:
            return Typed(convert(Value(self.builder, self.load(halves, index).value)).value, "float32")
        (value,) = stored
        bits = convert(Value(self.builder, cast(self.builder, value, "float32").value))
        self.store(halves, index, Typed(bits.value, "uint16"))
        return value

    def scratch(self, node: ast.Call) -> Typed:
        """Room for numbers of a type."""
        raise SyntaxError(f"there is no room here: {ast.unparse(node)}")


def _step(node: ast.expr) -> int:
    """The step of a range, which is a literal."""
    match node:
        case ast.Constant(value=int() as step) if step != 0:
            return step
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as step)) if step != 0:
            return -step
    raise TypeError(f"the step of a range is a number other than 0, and not {ast.unparse(node)}")
