"""Functions of a kernel's text as LLVM IR, one element at a time; a loop over a row becomes calls of functions of
vectors, for whole ones and for the first and last elements.

Variables are places on the stack, which LLVM puts into registers. In a function of whole vectors the values that are
the same for the row are computed before the loop, and of a branch that is the same for the row there are two loops.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence
from typing import Any

from llvmlite import ir

from dualbcast.codegen.llvm.expressions import Expressions, Loop
from dualbcast.codegen.llvm.typed_values import Typed
from dualbcast.codegen.llvm.unit import Countdown, Unit, cost, uses
from dualbcast.codegen.llvm.vectorize import Access, Along, VectorBody
from dualbcast.codegen.values import INDEX, LINE, PLACE, TYPES, Lanes, masked_load, masked_store, splat, word

# --- rows of vectors -------------------------------------------------------------------------------------------------

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
    """The function of at most `row.at_once` elements; its parameters are those of `whole`.

    It copies the elements to the stack, calls `whole`, and copies back: so all elements are computed by the same
    instructions.
    """
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


# --- one element at a time -------------------------------------------------------------------------------------------


class ScalarBody(Expressions):
    """Writes one function, an empty one, from its text; `dtypes` are the types of its parameters, as of `Typed`."""

    def __init__(self, unit: Unit, function: ir.Function, node: ast.FunctionDef, dtypes: Sequence[str]) -> None:
        self.unit, self.function = unit, node.name
        # The places of variables come before all other instructions.
        self.start = ir.IRBuilder(function.append_basic_block())
        self._first = function.append_basic_block()
        self.builder = ir.IRBuilder(self._first)
        self.loops = []
        arguments = zip(node.args.args, function.args, dtypes, strict=False)
        self.values = {each.arg: Typed(value, dtype) for each, value, dtype in arguments}
        self._variables: dict[str, Typed] = {}
        assigned = uses(node.body).assigned
        for name in [name for name in self.values if name in assigned]:
            self.assign(name, self.values.pop(name))

    def finish(self) -> None:
        """Go on from the places of variables to the rest."""
        self.start.branch(self._first)

    # --- statements ----------------------------------------------------------------------------------------------

    def assign(self, name: str, value: Typed) -> None:
        """Give a variable a value, whose type is that of its first value. Of a pointer there is one value."""
        if value.dtype[0] == "*":
            if name in self.values:
                raise TypeError(f"{name} is more than one pointer")
            self.values[name] = value
            return
        if name not in self._variables:
            self._variables[name] = Typed(self.start.alloca(value.value.type, name=name), value.dtype)
        place, dtype = self._variables[name]
        if dtype != value.dtype:
            raise TypeError(f"the variable {name} is of type {dtype}, and is given a value of type {value.dtype}")
        self.builder.store(value.value, place)

    def if_(self, stmt: ast.If) -> None:
        then, after = self._new_block(), self._new_block()
        orelse = self._new_block() if stmt.orelse else after
        self.builder.cbranch(self.test(stmt.test), then, orelse)
        for start, body in ((then, stmt.body), (orelse, stmt.orelse)):
            if body:
                self.builder.position_at_end(start)
                self.block(body)
                self._go_on(after)
        self.builder.position_at_end(after)

    def while_(self, stmt: ast.While) -> None:
        head, body, after = self._new_block(), self._new_block(), self._new_block()
        units = self.unit.units(self.function, stmt)
        self.builder.branch(head)
        self.builder.position_at_end(head)
        self.builder.cbranch(self.test(stmt.test), body, after)
        self.builder.position_at_end(body)
        again = self._new_block() if units else head
        self._iteration((again, after), stmt.body)
        if units:
            self.builder.position_at_end(again)
            self.counted.iterate(self.builder, units, head, after)
        self.builder.position_at_end(after)

    def for_(self, stmt: ast.For) -> None:
        """A loop over a range, whose number of iterations is known before the first."""
        name, start, stop, step = self.range(stmt)
        is_row = _calls(stmt.body, self.unit.element)
        if is_row and self.unit.lanes:
            self._row(stmt, (start, stop))
            return
        builder = self.builder
        # By ones the target itself is counted, which a vectoriser knows best; else the iterations are.
        first, end = (start, stop) if step == 1 else (word(0), self.iteration_count(start, stop, step))
        counted = self.start.alloca(INDEX)
        builder.store(first, counted)
        head, body, again, after = (self._new_block() for _ in range(4))
        builder.branch(head)
        builder.position_at_end(head)
        at = builder.load(counted, typ=INDEX)
        # From the lowest number to the highest there are more iterations than an int64 can count.
        compared = builder.icmp_signed if step == 1 else builder.icmp_unsigned
        builder.cbranch(compared("<", at, end), body, after)
        builder.position_at_end(body)
        value = at if step == 1 else builder.add(start, builder.mul(at, word(step)))
        self.assign(name, Typed(value, "int64"))
        self._iteration((again, after), stmt.body)
        builder.position_at_end(again)
        builder.store(builder.add(at, word(1), flags=["nsw" if step == 1 else "nuw"]), counted)
        units = self.unit.units(self.function, stmt)
        if units:
            self.counted.iterate(builder, units, head, after)
        else:
            back = builder.branch(head)
            if is_row:
                self._leave_scalar(back)
        builder.position_at_end(after)

    def _iteration(self, loop: Loop, body: Sequence[ast.stmt]) -> None:
        self.loops.append(loop)
        self.block(body)
        self.loops.pop()
        self._go_on(loop[0])

    def _leave_scalar(self, back: ir.Instruction) -> None:
        """Keep LLVM's vectoriser from a loop over a row, whose body it may look at for minutes (see
        docs/decisions/032-one-vectoriser.md)."""
        module = self.unit.module
        hint = module.add_metadata(["llvm.loop.vectorize.enable", ir.Constant(ir.IntType(1), 0)])
        # The name of a loop refers to itself, so that it is like no other.
        loop = ir.MDValue(module, [hint], name=str(len(module.metadata)))
        loop.operands = (loop, hint)
        back.set_metadata("llvm.loop", loop)

    # --- rows ----------------------------------------------------------------------------------------------------

    def _row(self, loop: ast.For, bounds: Sequence[ir.Value]) -> None:
        """A loop over a row: calls of the function of whole vectors, and of the one of the elements at both ends."""
        names = dict.fromkeys(each.id for part in loop.body for each in ast.walk(part) if isinstance(each, ast.Name))
        known = self.values.keys() | self._variables.keys()
        given = {name: self.name(name) for name in names if name in known}
        if self.countdown is not None:
            given[LEFT] = Typed(self.countdown.place, "*int64")
        at_once = self.unit.lanes * self.unit.vectors
        row = RowLoop(self.unit, loop, {name: value.dtype for name, value in given.items()}, at_once)
        whole, accesses = row.write(WHOLE, self.unit.streamed)
        # Copies on the stack are read at once: stores to them do not go past the cache.
        plain = row.write(f"{WHOLE}_plain", ())[0] if self.unit.streamed else whole
        edge = write_ends(row, plain, accesses)
        builder, rest = self.builder, [each.value for each in given.values()]
        first, end = bounds
        low = self._next_line(first, end, given, accesses, at_once)
        high = builder.add(low, builder.and_(builder.sub(end, low), word(-at_once)))
        for part, start, stop in ((edge, first, low), (whole, low, high), (edge, high, end)):
            if start is not stop:
                with builder.if_then(builder.icmp_signed("<", start, stop)):
                    builder.call(part, [start, stop, *rest])

    def _next_line(
        self, first: ir.Value, end: ir.Value, given: dict[str, Typed], accesses: dict[str, Access], at_once: int
    ) -> ir.Value:
        """The element of a row at which a vector of the first output begins with a line of the cache; the first
        element itself if the row has few elements, or if vectors are no lines."""
        # Terms of sums are stored on the stack.
        outputs = [name for name, access in accesses.items() if access.stores]
        output = next((name for name in given if name in outputs and isinstance(given[name].value, ir.Argument)), "")
        itemsize = given[output].itemsize if output else 0
        if itemsize * at_once < LINE:  # Else the next line may be many vectors away.
            return first
        builder, (offset, stride, _) = self.builder, accesses[output]
        index = builder.mul(first, given[stride].value) if stride else first
        index = builder.add(given[offset].value, index) if offset else index
        address = builder.gep(given[output].value, [index])
        ahead = builder.and_(builder.neg(builder.ptrtoint(address, INDEX)), word(LINE - 1))
        low = builder.add(first, builder.udiv(ahead, word(itemsize)))
        is_long = builder.icmp_signed(">", builder.sub(end, first), word(8 * at_once))
        return builder.select(is_long, low, first)

    # --- names ---------------------------------------------------------------------------------------------------

    def name(self, name: str) -> Typed:
        if name in self._variables:
            place, dtype = self._variables[name]
            return Typed(self.builder.load(place, typ=TYPES[dtype]), dtype)
        return super().name(name)

    def scratch(self, node: ast.Call) -> Typed:
        match node.args:
            case [ast.Name(id=dtype), ast.Constant(value=int() as length)]:
                return Typed(self.start.alloca(TYPES[dtype], length), f"*{dtype}")
        return super().scratch(node)

    def _new_block(self) -> ir.Block:
        return self.builder.append_basic_block()

    def _go_on(self, block: ir.Block) -> None:
        """Continue there, unless this place is left already."""
        if not self.builder.block.is_terminated:
            self.builder.branch(block)


def _calls(body: Sequence[ast.stmt], function: str) -> bool:
    """Whether a block is a call of a function."""
    match body:
        case [ast.Expr(ast.Call(ast.Name(name)))]:
            return name == function
    return False
