"""Functions of a kernel's text as LLVM IR, one element at a time.

Variables are places on the stack, which LLVM puts into registers. A loop over a row becomes calls of functions of
vectors.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from llvmlite import ir

from dualbcast.codegen.llvm.expressions import Expressions, Loop
from dualbcast.codegen.llvm.row_loop import LEFT, WHOLE, RowLoop, write_ends
from dualbcast.codegen.llvm.typed_values import Typed
from dualbcast.codegen.llvm.unit import Unit, uses
from dualbcast.codegen.llvm.vectorize import Access
from dualbcast.codegen.values import INDEX, LINE, TYPES, word


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
