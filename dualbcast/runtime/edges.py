"""An element function as two LLVM functions of a part of a row: one of whole vectors, and one of any elements, which
copies them to the stack, calls the other, and copies back. So all elements are computed by the same instructions.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir

from dualbcast.record import NamedTuple
from dualbcast.runtime.expressions import TYPES, WORD, Typed, names_in
from dualbcast.runtime.vectors import LINE, Access, Along, Room, Vectors
from dualbcast.runtime.wide import PLACE, Lanes, any_of, splat

if TYPE_CHECKING:
    from dualbcast.runtime.lowering import Unit

__all__ = ["EDGE", "WHOLE", "Groups", "Rows"]

# What the two functions are called.
WHOLE, EDGE = "dualbcast_whole", "dualbcast_edge"
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
                address = line.element(values[name], places[name])
                self._masked(builder, "store", computed.type, [computed, address, _alignment(values[name]), mask])
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
        line.values = self._arguments(line, {}, self.arguments.keys() - self.along)
        self.end = line.builder.append_basic_block()
        self.size = sum(isinstance(each, ast.stmt) for each in ast.walk(self.element))
        self._loops(line, self.element.body, 1)
        ir.IRBuilder(self.end).ret_void()

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
            names, targets, written, calls = _mentions([stmt])
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
        first.add_incoming(again, builder.block)
        builder.cbranch(builder.icmp_signed("<", again, high), body, self.end)


class Groups(_Parts):
    """An element function of a group that takes each turn of its loops together, where each turn is a straight line.

    Its arrays of one number for each element are vectors, and so in registers as far as there are any. The functions
    take one group.

    Parameters
    ----------
    unit : Unit
    element : ast.FunctionDef
        Its first parameter is how many elements a group has.
    given : dict of str to str
        Its other parameters, and their types.
    at_once : int
        How many elements a whole group has.
    """

    def write(self, line: Vectors) -> None:
        line.values = dict(self.parameters(self.whole))
        self.count = self.element.args.args[0].arg
        self._block(line, self.element.body)
        line.builder.ret_void()

    def _block(self, line: Vectors, statements: Sequence[ast.stmt]) -> None:
        for stmt in statements:
            match stmt:
                case ast.Assign([ast.Name(name)], ast.Call(ast.Name("scratch"), [ast.Name(dtype), _])):
                    line.values[name] = Room(f"{name}[]", f"*{dtype}")  # type: ignore[assignment]
                case ast.For(ast.Name(place), ast.Call(ast.Name("range"), [ast.Name(self.count)]), body):
                    self._each(line, place, body)
                case ast.While(ast.Name(test), body):
                    self._turns(line, test, body)
                case _:
                    line.block([stmt])

    def _each(self, line: Vectors, place: str, statements: Sequence[ast.stmt]) -> None:
        """What is done for each element of the group."""
        before = dict(line.values)
        line.values[place] = Along(self.whole.args[0])  # type: ignore[assignment]
        line.block(statements)
        # Of a number that is one for the whole group, there are as many now; it says whether something is so somewhere.
        for name, value in before.items():
            now = line.values[name]
            if isinstance(value, Typed) and value.dtype == "bool" and not value.lanes and now is not value:
                line.values[name] = Typed(any_of(line.builder, now.value), "bool")

    def _turns(self, line: Vectors, test: str, statements: Sequence[ast.stmt]) -> None:
        """A loop that ends when none of the group goes on."""
        builder, before = line.builder, line.values
        inside = _mentions(statements)
        changed = inside.targets | inside.written
        carried = [name for name in before if name.removesuffix("[]") in changed and isinstance(before[name], Typed)]
        varying = self._varying(before, statements)
        before = before | {name: line.spread(before[name], self.at_once) for name in carried if name in varying}
        start, body, after = builder.block, *(builder.append_basic_block() for _ in range(2))
        builder.cbranch(before[test].value, body, after)
        builder.position_at_end(body)
        phis = {name: builder.phi(before[name].value.type) for name in carried}
        line.values = before | {name: Typed(phi, before[name].dtype) for name, phi in phis.items()}
        line.looks_ahead = False
        self._block(line, statements)
        line.looks_ahead = True
        # What has differed between elements may be the same for all from now on.
        for name in carried:
            if before[name].lanes:
                line.values[name] = line.spread(line.values[name], self.at_once)
        end, found = builder.block, line.values
        builder.cbranch(found[test].value, body, after)
        builder.position_at_end(after)
        line.values = dict(before)
        for name in carried:
            phis[name].add_incoming(before[name].value, start)
            phis[name].add_incoming(found[name].value, end)
            left = builder.phi(phis[name].type)
            left.add_incoming(before[name].value, start)
            left.add_incoming(found[name].value, end)
            line.values[name] = Typed(left, before[name].dtype)

    def _varying(self, before: dict[str, Typed], statements: Sequence[ast.stmt]) -> set[str]:
        """The values of arrays that differ from one element to another in the turns of a loop."""
        rooms = {name for name, value in before.items() if isinstance(value, Room)}
        varying = {
            name.removesuffix("[]") for name, value in before.items() if isinstance(value, Typed) and value.lanes
        }
        # What is assigned, and what it is made of.
        made: list[tuple[set[str], set[str]]] = []
        pending = list(statements)
        while pending:
            match pending.pop():
                case ast.Assign(targets=[target], value=value):
                    made.append((names_in(target, set(), rooms), names_in(value, set(), rooms)))
                case ast.For(target=ast.Name(place), body=body):
                    varying.add(place)
                    pending += body
                case ast.If(test=test, body=body, orelse=orelse):
                    sides = _mentions([*body, *orelse])
                    made.append((sides.targets | sides.written, names_in(test, set(), rooms)))
                    pending += [*body, *orelse]
        count = 0
        while count != len(varying):
            count = len(varying)
            for targets, names in made:
                if names & varying:
                    varying |= targets
        return {f"{name}[]" for name in varying & rooms}


def _alignment(pointer: Typed) -> ir.Constant:
    return ir.Constant(PLACE, np.dtype(pointer.dtype[1:]).itemsize)


class _Mentions(NamedTuple):
    """What a statement mentions.

    Attributes
    ----------
    names, targets, written : set of str
        All names but those of functions, those that it assigns, and those of arrays that it writes to.
    calls : bool
        Whether it calls something that is there for more than its value.
    """

    names: set[str]
    targets: set[str]
    written: set[str]
    calls: bool


def _mentions(statements: Sequence[ast.stmt]) -> _Mentions:
    names: set[str] = set()
    targets: set[str] = set()
    written: set[str] = set()
    calls = False
    for stmt in statements:
        match stmt:
            case ast.Assign(targets=[target], value=value):
                names_in(value, names)
                names_in(target, names)
                match target:
                    case ast.Name(name):
                        targets.add(name)
                    case ast.Subscript(ast.Name(name)):
                        written.add(name)
            case ast.If() | ast.While() | ast.For():
                inner = _mentions([*stmt.body, *stmt.orelse])
                names |= inner.names
                targets |= inner.targets
                written |= inner.written
                calls |= inner.calls
                names_in(stmt.iter if isinstance(stmt, ast.For) else stmt.test, names)
            case ast.Expr(value):
                names_in(value, names)
                calls = True
    return _Mentions(names, targets, written, calls)
