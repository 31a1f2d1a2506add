"""The entry of a kernel's text as LLVM IR: a loop over a row becomes calls of functions of vectors, for whole ones and
for the first and last elements.

In a function of whole vectors the values that are the same for the row are computed before the loop, and of a branch
that is the same for the row there are two loops.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping, Sequence

from llvmlite import ir

from dualbcast.codegen.llvm.arrays import LINE, Access, index_along, load_masked, size_of, store_masked
from dualbcast.codegen.llvm.body import Body
from dualbcast.codegen.llvm.unit import Countdown, Unit, cost, statements, uses
from dualbcast.codegen.values import INDEX, TYPES, Lanes, Value, splat, word

# The symbols of the functions of whole vectors and of the first and last elements.
WHOLE, EDGE = "dualbcast_whole", "dualbcast_edge"
# Their first parameters: the first element and the one after the last. The address of the kernel's countdown, if there
# is one, comes after all others.
BOUNDS = {"low#": "int64", "high#": "int64"}
LEFT = "left#"
# The most statements, over all loops, that one loop may become for the sake of branches.
_MOST_STATEMENTS = 512


class Entry(Body):
    """The function that is called from outside."""

    def for_(self, stmt: ast.For) -> None:
        match stmt:
            case ast.For(iter=ast.Call(args=bounds), body=[ast.Expr(ast.Call() as call)]) if (
                self.unit.lanes and self.unit.is_row(stmt.body)
            ):
                bounds = [ast.Constant(0), *bounds][-2:]
                self._row(stmt, call, *[self.expression(bound).value for bound in bounds])
            case _:
                super().for_(stmt)

    def _row(self, loop: ast.For, call: ast.Call, first: ir.Value, end: ir.Value) -> None:
        """A loop over a row: calls of the function of whole vectors, and of the one of the elements at both ends."""
        names = dict.fromkeys(each.id for each in ast.walk(call) if isinstance(each, ast.Name))
        given = {name: self.name(name) for name in names if name in self.values or name in self.variables}
        if self.countdown is not None:
            given[LEFT] = Value(self.builder, self.countdown.place, "*int64")
        row = _RowLoop(self.unit, loop, call, {name: value.dtype for name, value in given.items()})
        whole, accesses = row.write(WHOLE, self.unit.streamed)
        # Copies on the stack are read at once: stores to them do not go past the cache.
        plain = row.write(f"{WHOLE}_plain", ())[0] if self.unit.streamed else whole
        edge = row.write_ends(plain, accesses)
        builder, rest = self.builder, [each.value for each in given.values()]
        low = self._next_line(first, end, given, accesses, row.lanes)
        high = builder.add(low, builder.and_(builder.sub(end, low), word(-row.lanes)))
        for part, start, stop in ((edge, first, low), (whole, low, high), (edge, high, end)):
            if start is not stop:
                with builder.if_then(builder.icmp_signed("<", start, stop)):
                    builder.call(part, [start, stop, *rest])

    def _next_line(
        self, first: ir.Value, end: ir.Value, given: Mapping[str, Value], accesses: Mapping[str, Access], lanes: int
    ) -> ir.Value:
        """The element of a row at which a vector of the first output begins with a line of the cache; the first
        element itself if the row has few elements, or if vectors are no lines."""
        # Terms of sums are stored on the stack.
        stored = [name for name in given if name in accesses and accesses[name].stores]
        output = next((name for name in stored if isinstance(given[name].value, ir.Argument)), "")
        itemsize = size_of(given[output]) if output else 0
        if itemsize * lanes < LINE:  # Else the next line may be many vectors away.
            return first
        builder = self.builder
        index = index_along(builder, first, *accesses[output][:2], given)
        address = builder.gep(given[output].value, [index.first])
        ahead = builder.and_(builder.neg(builder.ptrtoint(address, INDEX)), word(LINE - 1))
        low = builder.add(first, builder.udiv(ahead, word(itemsize)))
        is_long = builder.icmp_signed(">", builder.sub(end, first), word(8 * lanes))
        return builder.select(is_long, low, first)


class _RowLoop:
    """A loop over a row, whose body is a call of the element function.

    `params` are the names that the call uses from around it, with their types: the parameters that follow the bounds.
    """

    def __init__(self, unit: Unit, loop: ast.For, call: ast.Call, params: dict[str, str]) -> None:
        assert isinstance(loop.target, ast.Name)
        self.unit, self.params, self.element = unit, params, unit.definitions[unit.element]
        self.lanes = unit.lanes * unit.vectors
        arguments = zip([each.arg for each in self.element.args.args], call.args, strict=True)
        # The arguments that are the same for the row, and the offsets and strides of the indices along it.
        self._same: dict[str, ast.expr] = {}
        self._along: dict[str, tuple[str, str]] = {}
        for name, argument in arguments:
            if loop.target.id in uses([argument]).names:
                self._along[name] = _formula(argument)
            else:
                self._same[name] = argument
        self._size = len(statements(self.element.body))

    def write(self, symbol: str, streamed: Collection[str]) -> tuple[ir.Function, dict[str, Access]]:
        """The function of the loop, and how it accesses arrays along the row.

        It computes a positive multiple of `lanes` elements. Stores to `streamed` arrays go past the cache.
        """
        line, around = self._body(symbol, self._along, streamed), None
        self._given = line.values
        if LEFT in self.params:
            around = Countdown(self.unit.module, line.values[LEFT].value)
            line.countdown = around.copied(line.start)
        line.values = {name: line.expression(argument) for name, argument in self._same.items()}
        after = ir.IRBuilder(line.builder.append_basic_block())
        self._write_loops(line, after.block, self.element.body, 1)
        if around is not None and line.countdown is not None:
            line.countdown.copy_to(around, after)
        after.ret_void()
        self.unit.take_liberties(line.builder.function, self.element.name)
        return line.builder.function, {name: each for name, each in line.accesses.items() if each is not None}

    def _body(self, symbol: str, along: Collection[str] = (), streamed: Collection[str] = ()) -> Body:
        """The body of a new function, which knows its parameters."""
        function = self.unit.declared(symbol, ir.VoidType(), BOUNDS | self.params)
        body = Body(self.unit, function, self.element, (), self.lanes, along, streamed)
        pairs = zip(function.args[len(BOUNDS) :], self.params.values(), strict=True)
        body.values = {value.name: Value(body.builder, value, dtype) for value, dtype in pairs}
        return body

    def _write_loops(self, line: Body, after: ir.Block, block: Sequence[ast.stmt], loops: int) -> None:
        """A loop of these statements, or several, which go on to `after`."""
        is_small = 2 * loops * self._size <= _MOST_STATEMENTS
        inside: list[ast.stmt] = []
        varying, mentioned = set(self._along), set[str]()
        for position, stmt in enumerate(block):
            names, assigned, stores = self.unit.uses(stmt)
            if not (stores or names & varying or assigned & mentioned):
                line.block([stmt])
                continue
            if is_small and isinstance(stmt, ast.If) and not uses([stmt.test]).names & (varying | line.varying):
                rest = block[position + 1 :]
                sides = [line.builder.append_basic_block() for _ in range(2)]
                line.builder.cbranch(line.test(stmt.test).value, *sides)
                for side, body in zip(sides, (stmt.body, stmt.orelse), strict=True):
                    line.builder.position_at_end(side)
                    self._write_loops(line, after, [*inside, *body, *rest], 2 * loops)
                return
            inside.append(stmt)
            varying |= assigned
            mentioned |= names
        self._write_loop(line, after, inside)

    def _write_loop(self, line: Body, after: ir.Block, block: Sequence[ast.stmt]) -> None:
        builder = line.builder
        low, high, *_ = builder.function.args
        # Of a variable that changes in the loop, each iteration begins with the value before the loop.
        changed = line.known(uses(block).assigned)
        before, body = builder.block, builder.append_basic_block()
        builder.branch(body)
        builder.position_at_end(body)
        first = builder.phi(INDEX)
        first.add_incoming(low, before)
        for name, formula in self._along.items():
            line.values[name] = index_along(builder, first, *formula, self._given)
        for name, value in changed.items():
            line.assign(name, value)
        line.block(block)
        again = builder.add(first, word(self.lanes), flags=["nsw"])
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

    def write_ends(self, whole: ir.Function, accesses: Mapping[str, Access]) -> ir.Function:
        """The function of at most `lanes` elements; its parameters are those of `whole`.

        It copies the elements to the stack, calls `whole`, and copies back: the same instructions compute all elements.
        """
        line, lanes = self._body(EDGE), self.lanes
        builder, values = line.builder, line.values
        low, high, *given = builder.function.args
        numbers = ir.Constant(Lanes(INDEX, lanes), [*range(lanes)])
        mask = builder.icmp_unsigned("<", numbers, splat(builder, builder.sub(high, low), lanes))
        # On the stack all arrays begin with the first of the elements, which lie side by side.
        handed: dict[str, ir.Value] = {}
        stored = []
        for name, (offset, stride, stores) in accesses.items():
            handed |= {parameter: word(number) for parameter, number in ((offset, 0), (stride, 1)) if parameter}
            index, number = index_along(builder, low, offset, stride, values), TYPES[values[name].dtype[1:]]
            room = line.start.alloca(Lanes(number, lanes))
            room.align = LINE
            handed[name] = builder.bitcast(room, number.as_pointer())
            if stores:
                stored.append((values[name], index, room))
            else:
                builder.store(load_masked(builder, values[name], index, mask), room, align=LINE)
        builder.call(whole, [word(0), word(lanes), *[handed.get(value.name, value) for value in given]])
        for pointer, index, room in stored:
            store_masked(builder, pointer, index, mask, builder.load(room, align=LINE))
        builder.ret_void()
        return builder.function


def _formula(argument: ast.expr) -> tuple[str, str]:
    """The offset and the stride in the text of an index along the row, both empty where there are none."""
    match argument:
        case ast.BinOp(ast.Name(offset), ast.Add(), rest):
            return offset, _formula(rest)[1]
        case ast.BinOp(ast.Name(), ast.Mult(), ast.Name(stride)):
            return "", stride
        case ast.Name():
            return "", ""
    raise SyntaxError(f"a kernel has no such index: {ast.unparse(argument)}")
