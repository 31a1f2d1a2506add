"""An element function as two LLVM functions of a part of a row: one of whole vectors, and one of any elements, which
copies them to the stack, calls the other, and copies back. So all elements are computed by the same instructions.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir

from dualbcast.codegen.llvm.expressions import TYPES, WORD, Typed, names_in
from dualbcast.codegen.llvm.mentions import mentions
from dualbcast.codegen.llvm.polling import Countdown, cost
from dualbcast.codegen.llvm.vector_types import PLACE, Lanes, splat
from dualbcast.codegen.llvm.vectorize import LINE, Access, Along, Vectors

if TYPE_CHECKING:
    from dualbcast.codegen.llvm.lower import Unit

__all__ = ["EDGE", "LEFT", "WHOLE", "Rows"]

# What the two functions are called.
WHOLE, EDGE = "dualbcast_whole", "dualbcast_edge"
# Among what they are given: where the kernel's countdown is.
LEFT = "left#"
_BOUNDS = {"low#": "int64", "high#": "int64"}
# The most statements of all loops together that are made of one for the sake of branches.
_STATEMENTS = 512


class _Parts:
    """What both have in common.

    Parameters
    ----------
    unit : Unit
        What the functions of the text share.
    element : ast.FunctionDef
        The element function.
    given : dict of str to str
        What both functions take after the bounds, by name, and the types.
    at_once : int
        How many elements are a vector.

    Attributes
    ----------
    whole : llvmlite.ir.Function
        Of the first place and the one after the last, for a number of elements that is a multiple of `at_once`, and is
        not 0; and of what is given.
    edge : llvmlite.ir.Function
        The same for at most `at_once` elements.
    """

    def __init__(self, unit: Unit, element: ast.FunctionDef, given: dict[str, str], at_once: int) -> None:
        self.unit, self.element, self.given, self.at_once = unit, element, given, at_once
        void = ir.VoidType()
        self.whole = unit.declared(WHOLE, void, _BOUNDS | given)
        line = Vectors(unit, ir.IRBuilder(self.whole.append_basic_block()), {}, element.name, at_once)
        line.looks_ahead = True
        self.write(line)
        unit.take_liberties(self.whole, element.name)
        self.edge = unit.declared(EDGE, void, _BOUNDS | given)
        self._write_edge({name: access for name, access in line.accesses.items() if access is not None})

    def write(self, line: Vectors) -> None:
        """Write the function of whole vectors."""
        raise NotImplementedError

    def parameters(self, function: ir.Function) -> dict[str, Typed]:
        """What is given, in one of the two functions."""
        return {value.name: Typed(value, self.given[value.name]) for value in function.args[len(_BOUNDS) :]}

    def _write_edge(self, accesses: dict[str, Access]) -> None:
        builder, (low, high, *given) = ir.IRBuilder(self.edge.append_basic_block()), self.edge.args
        values = self.parameters(self.edge)
        line = Vectors(self.unit, builder, values, self.element.name, self.at_once)
        lanes = ir.Constant(Lanes(WORD, self.at_once), [*range(self.at_once)])
        mask = builder.icmp_unsigned("<", lanes, splat(builder, builder.sub(high, low), self.at_once))
        # On the stack all arrays begin with the first of the elements, which lie side by side.
        handed: dict[str, ir.Value] = {}
        places, rooms = {}, {}
        for name, (offset, stride, stores) in accesses.items():
            index: Any = Along(low)
            for parameter, operator, on_stack in ((stride, ast.Mult(), 1), (offset, ast.Add(), 0)):
                if parameter:
                    index = line.binary(operator, index, values[parameter])
                    handed[parameter] = ir.Constant(WORD, on_stack)
            number = TYPES[self.given[name][1:]]
            places[name], rooms[name] = index, builder.alloca(Lanes(number, self.at_once))
            rooms[name].align = LINE
            handed[name] = builder.bitcast(rooms[name], number.as_pointer())
            if not stores:
                builder.store(self._taken(line, values[name], index, mask), rooms[name], align=LINE)
        first, last = (ir.Constant(WORD, place) for place in (0, self.at_once))
        builder.call(self.whole, [first, last, *[handed.get(value.name, value) for value in given]])
        for name, access in accesses.items():
            if access.stores:
                number = TYPES[self.given[name][1:]]
                computed = builder.load(rooms[name], align=LINE, typ=Lanes(number, self.at_once))
                self._put(line, values[name], places[name], mask, computed)
        builder.ret_void()

    def _taken(self, line: Vectors, pointer: Typed, index: Along, mask: ir.Value) -> ir.Value:
        """The elements of an array that the mask has, and for others the first."""
        builder, address, number = line.builder, line.element(pointer, index), TYPES[pointer.dtype[1:]]
        taken = splat(builder, builder.load(address, typ=number), self.at_once)
        if index.step is None:
            return self._masked(builder, "load", taken.type, [address, _alignment(pointer), mask, taken])
        for lane in range(1, self.at_once):
            at = ir.Constant(PLACE, lane)
            ahead = builder.mul(index.step, ir.Constant(WORD, lane))
            ahead = builder.select(builder.extract_element(mask, at), ahead, ir.Constant(WORD, 0))
            there = line.element(pointer, index._replace(first=builder.add(index.first, ahead)))
            taken = builder.insert_element(taken, builder.load(there, typ=number), at)
        return taken

    def _put(self, line: Vectors, pointer: Typed, index: Along, mask: ir.Value, computed: ir.Value) -> None:
        """Store the elements that the mask has."""
        builder = line.builder
        if index.step is None:
            address = line.element(pointer, index)
            self._masked(builder, "store", computed.type, [computed, address, _alignment(pointer), mask])
            return
        for lane in range(self.at_once):
            at = ir.Constant(PLACE, lane)
            with builder.if_then(builder.extract_element(mask, at)):
                builder.store(builder.extract_element(computed, at), line.of_lane(pointer, index, lane))

    def _masked(self, builder: ir.IRBuilder, what: str, kind: Lanes, arguments: Sequence[ir.Value]) -> ir.Value:
        """A "load" or a "store" under a mask."""
        symbol, module = f"llvm.masked.{what}.{kind.intrinsic_name}.p0", self.unit.module
        function = module.globals.get(symbol)
        if function is None:
            shape = [argument.type for argument in arguments]
            result = kind if what == "load" else ir.VoidType()
            function = ir.Function(module, ir.FunctionType(result, shape), symbol)
        return builder.call(function, arguments)


class Rows(_Parts):
    """A loop over a row, of an element that is a straight line.

    What is the same for the whole row is computed before the loop, and of a branch that is the same for the row there
    are two loops.

    Parameters
    ----------
    unit : Unit
    loop : ast.For
        Whose body is a call of the element function.
    given : dict of str to str
        What its body has from around it, by name, and the types.
    at_once : int
        How many elements are a vector.
    """

    def __init__(self, unit: Unit, loop: ast.For, given: dict[str, str], at_once: int) -> None:
        match loop:
            case ast.For(target=ast.Name(id=place), body=[ast.Expr(ast.Call(ast.Name(id=name), arguments)), *_]):
                self.place, element = place, unit.definitions[name]
            case _:
                raise SyntaxError(f"a loop over a row calls an element function: {ast.unparse(loop)}")
        self.arguments = dict(zip([each.arg for each in element.args.args], arguments, strict=True))
        self.along = {name for name, argument in self.arguments.items() if place in names_in(argument, set())}
        super().__init__(unit, element, given, at_once)

    def write(self, line: Vectors) -> None:
        around = Countdown(self.unit.module, self.whole.args[-1]) if LEFT in self.given else None
        if around is not None:
            line.countdown = around.lent(line.builder)
        line.values = self._arguments(line, {}, self.arguments.keys() - self.along)
        self.end = line.builder.append_basic_block()
        self.size = sum(isinstance(each, ast.stmt) for each in ast.walk(self.element))
        self._loops(line, self.element.body, 1)
        end = ir.IRBuilder(self.end)
        if around is not None:
            line.counted.give(end, around)
        end.ret_void()

    def _arguments(self, line: Vectors, known: dict[str, Any], names: set[str]) -> dict[str, Any]:
        """Some arguments of the element function."""
        around = Vectors(self.unit, line.builder, self.parameters(self.whole) | known, line.function, self.at_once)
        return {name: around.expression(self.arguments[name]) for name in self.arguments if name in names}

    def _loops(self, line: Vectors, statements: Sequence[ast.stmt], loops: int) -> None:
        """A loop of these statements, or several; then the end."""
        is_small = 2 * loops * self.size <= _STATEMENTS
        inside: list[ast.stmt] = []
        varying, mentioned = set(self.along), set[str]()
        for position, stmt in enumerate(statements):
            names, targets, written, calls = mentions([stmt])
            if not (written or calls or names & varying or targets & mentioned):
                line.block([stmt])
                continue
            if is_small and isinstance(stmt, ast.If) and not names_in(stmt.test, set()) & varying:
                before, rest = line.values, statements[position + 1 :]
                sides = [line.builder.append_basic_block() for _ in range(2)]
                line.builder.cbranch(line.test(stmt.test), *sides)
                for side, body in zip(sides, (stmt.body, stmt.orelse), strict=True):
                    line.builder.position_at_end(side)
                    line.values = dict(before)
                    self._loops(line, [*inside, *body, *rest], 2 * loops)
                return
            inside.append(stmt)
            varying |= targets
            mentioned |= names
        self._turns(line, inside)

    def _turns(self, line: Vectors, statements: Sequence[ast.stmt]) -> None:
        builder, (low, high, *_) = line.builder, self.whole.args
        before, body = builder.block, builder.append_basic_block()
        builder.branch(body)
        builder.position_at_end(body)
        first = builder.phi(WORD)
        first.add_incoming(low, before)
        line.values |= self._arguments(line, {self.place: Along(first)}, self.along)
        line.block(statements)
        again = builder.add(first, ir.Constant(WORD, self.at_once), flags=["nsw"])
        goes_on, backs = builder.icmp_signed("<", again, high), [builder.block]
        if line.countdown is None:
            builder.cbranch(goes_on, body, self.end)
        else:
            asking = builder.append_basic_block()
            builder.cbranch(goes_on, asking, self.end)
            builder.position_at_end(asking)
            backs = line.countdown.turn(builder, 1 + cost(self.element.body), body, self.end)
        for back in backs:
            first.add_incoming(again, back)


def _alignment(pointer: Typed) -> ir.Constant:
    return ir.Constant(PLACE, np.dtype(pointer.dtype[1:]).itemsize)
