"""A loop over a row as an LLVM function: whole vectors, and the first and last elements, which are none.

Values that are the same for the whole row are computed before the loop. Of a branch that is the same for the row there
are two loops.

It copies them to the stack, calls the function of whole vectors, and copies back: so all elements are computed by the
same instructions.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence
from typing import Any

from llvmlite import ir

from dualbcast.codegen.llvm.typed_values import Typed
from dualbcast.codegen.llvm.unit import Countdown, Unit, cost, uses
from dualbcast.codegen.llvm.vectorize import Access, Along, VectorBody
from dualbcast.codegen.values import INDEX, LINE, PLACE, Lanes, masked_load, masked_store, splat, word

# The symbol of the function.
WHOLE = "dualbcast_whole"
# Its parameters: the first element and the one after the last, and the address of the kernel's countdown, if there is
# one, after all others.
BOUNDS = {"low#": "int64", "high#": "int64"}
LEFT = "left#"
# The most statements, over all loops, that one loop may become for the sake of branches.
_MOST_STATEMENTS = 512


class RowLoop:
    """A loop over a row, whose body is a call of the element function.

    `params` are the names that its body uses from around it, and their types: the parameters of the function after the
    bounds. A vector has `at_once` elements.
    """

    def __init__(self, unit: Unit, loop: ast.For, params: dict[str, str], at_once: int) -> None:
        match loop:
            case ast.For(target=ast.Name(id=place), body=[ast.Expr(ast.Call(ast.Name(id=name), arguments))]):
                self._place, self.element = place, unit.definitions[name]
            case _:
                raise SyntaxError(f"a loop over a row calls an element function: {ast.unparse(loop)}")
        self.unit, self.params, self.at_once = unit, params, at_once
        self._arguments = dict(zip([each.arg for each in self.element.args.args], arguments, strict=True))
        self._along = {name for name, argument in self._arguments.items() if place in uses([argument]).names}
        self._size = sum(isinstance(each, ast.stmt) for each in ast.walk(self.element))

    def write(self, symbol: str, streamed: Collection[str]) -> tuple[ir.Function, dict[str, Access]]:
        """The function of the loop, and how it accesses arrays along the row.

        The function takes a number of elements that is a multiple of `at_once`, and is not 0. Stores to `streamed`
        arrays go past the cache.
        """
        function = self.unit.declared(symbol, ir.VoidType(), BOUNDS | self.params)
        builder = ir.IRBuilder(function.append_basic_block())
        line = VectorBody(self.unit, builder, {}, self.element.name, self.at_once, prefetches=True, streamed=streamed)
        around = Countdown(self.unit.module, function.args[-1]) if LEFT in self.params else None
        if around is not None:
            line.countdown = around.copied(line.builder)
        line.values = self._given(line, {}, self._arguments.keys() - self._along)
        after = ir.IRBuilder(line.builder.append_basic_block())
        self._write_loops(line, after.block, self.element.body, 1)
        if around is not None:
            line.counted.copy_to(around, after)
        after.ret_void()
        self.unit.take_liberties(function, self.element.name)
        return function, {name: access for name, access in line.accesses.items() if access is not None}

    def parameters(self, function: ir.Function) -> dict[str, Typed]:
        """The values of the parameters after the bounds."""
        return {value.name: Typed(value, self.params[value.name]) for value in function.args[len(BOUNDS) :]}

    def _given(self, line: VectorBody, known: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
        """The values of some arguments of the element function."""
        values = self.parameters(line.builder.function) | known
        around = VectorBody(self.unit, line.builder, values, line.function, self.at_once)
        return {name: around.expression(self._arguments[name]) for name in self._arguments if name in names}

    def _write_loops(self, line: VectorBody, after: ir.Block, statements: Sequence[ast.stmt], loops: int) -> None:
        """A loop of these statements, or several, which go on to `after`."""
        is_small = 2 * loops * self._size <= _MOST_STATEMENTS
        inside: list[ast.stmt] = []
        varying, mentioned = set(self._along), set[str]()
        for position, stmt in enumerate(statements):
            names, assigned, written, calls = uses([stmt])
            if not (written or calls or names & varying or assigned & mentioned):
                line.block([stmt])
                continue
            if is_small and isinstance(stmt, ast.If) and not uses([stmt.test]).names & varying:
                before, rest = line.values, statements[position + 1 :]
                sides = [line.builder.append_basic_block() for _ in range(2)]
                line.builder.cbranch(line.test(stmt.test), *sides)
                for side, body in zip(sides, (stmt.body, stmt.orelse), strict=True):
                    line.builder.position_at_end(side)
                    line.values = dict(before)
                    self._write_loops(line, after, [*inside, *body, *rest], 2 * loops)
                return
            inside.append(stmt)
            varying |= assigned
            mentioned |= names
        self._write_loop(line, after, inside)

    def _write_loop(self, line: VectorBody, after: ir.Block, statements: Sequence[ast.stmt]) -> None:
        builder = line.builder
        low, high, *_ = builder.function.args
        before, body = builder.block, builder.append_basic_block()
        builder.branch(body)
        builder.position_at_end(body)
        first = builder.phi(INDEX)
        first.add_incoming(low, before)
        line.values |= self._given(line, {self._place: Along(first)}, self._along)
        line.block(statements)
        again = builder.add(first, word(self.at_once), flags=["nsw"])
        goes_on, backs = builder.icmp_signed("<", again, high), [builder.block]
        if line.countdown is None:
            builder.cbranch(goes_on, body, after)
        else:
            polling = builder.append_basic_block()
            builder.cbranch(goes_on, polling, after)
            builder.position_at_end(polling)
            backs = line.countdown.iterate(builder, 1 + cost(self.element.body), body, after)
        for back in backs:
            first.add_incoming(again, back)


# The symbol of the function.
EDGE = "dualbcast_edge"


def write_ends(row: RowLoop, whole: ir.Function, accesses: dict[str, Access]) -> ir.Function:
    """The function of at most `row.at_once` elements; its parameters are those of `whole`, which it calls."""
    function = row.unit.declared(EDGE, ir.VoidType(), BOUNDS | row.params)
    builder, (low, high, *given) = ir.IRBuilder(function.append_basic_block()), function.args
    values, at_once = row.parameters(function), row.at_once
    line = VectorBody(row.unit, builder, values, row.element.name, at_once)
    lanes = ir.Constant(Lanes(INDEX, at_once), [*range(at_once)])
    mask = builder.icmp_unsigned("<", lanes, splat(builder, builder.sub(high, low), at_once))
    # On the stack all arrays begin with the first of the elements, which lie side by side.
    handed: dict[str, ir.Value] = {}
    places, rooms = {}, {}
    for name, (offset, stride, stores) in accesses.items():
        index: Any = Along(low)
        for parameter, operator, on_stack in ((stride, ast.Mult(), 1), (offset, ast.Add(), 0)):
            if parameter:
                index = line.binary(operator, index, values[parameter])
                handed[parameter] = word(on_stack)
        number = values[name].number
        places[name], rooms[name] = index, builder.alloca(Lanes(number, at_once))
        rooms[name].align = LINE
        handed[name] = builder.bitcast(rooms[name], number.as_pointer())
        if not stores:
            builder.store(_loaded(line, values[name], index, mask), rooms[name], align=LINE)
    builder.call(whole, [word(0), word(at_once), *[handed.get(value.name, value) for value in given]])
    for name, access in accesses.items():
        if access.stores:
            computed = builder.load(rooms[name], align=LINE, typ=Lanes(values[name].number, at_once))
            _store(line, values[name], places[name], mask, computed)
    builder.ret_void()
    return function


def _loaded(line: VectorBody, pointer: Typed, index: Along, mask: ir.Value) -> ir.Value:
    """The elements of an array that the mask has, and the first element in the other places."""
    builder, address, number = line.builder, line.element(pointer, index), pointer.number
    vector = splat(builder, builder.load(address, typ=number), line.at_once)
    if index.step is None:
        return masked_load(builder, address, pointer.itemsize, mask, vector)
    for lane in range(1, line.at_once):
        place = ir.Constant(PLACE, lane)
        ahead = builder.mul(index.step, word(lane))
        ahead = builder.select(builder.extract_element(mask, place), ahead, word(0))
        there = line.element(pointer, index._replace(first=builder.add(index.first, ahead)))
        vector = builder.insert_element(vector, builder.load(there, typ=number), place)
    return vector


def _store(line: VectorBody, pointer: Typed, index: Along, mask: ir.Value, computed: ir.Value) -> None:
    """Store the elements that the mask has."""
    builder = line.builder
    if index.step is None:
        masked_store(builder, computed, line.element(pointer, index), pointer.itemsize, mask)
        return
    for lane in range(line.at_once):
        place = ir.Constant(PLACE, lane)
        with builder.if_then(builder.extract_element(mask, place)):
            builder.store(builder.extract_element(computed, place), line.of_lane(pointer, index, lane))
