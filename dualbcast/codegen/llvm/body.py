"""The functions of a kernel's text as LLVM IR: of one element, or of vectors with an element of the row in each lane.

Variables are places on the stack, which LLVM puts into registers. LLVM's own vectoriser would write the same code of
vectors, in most of the time of a kernel's compilation.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any

from llvmlite import ir

from dualbcast.codegen.llvm.arrays import Access, Along, load_along, store_along
from dualbcast.codegen.llvm.operators import FUNCTIONS, apply, iterations, select
from dualbcast.codegen.llvm.unit import Countdown, Unit, end_with, uses
from dualbcast.codegen.mathlib import STORAGE
from dualbcast.codegen.values import INDEX, TYPES, Value, any_of, word


class Body:
    """Writes an empty function of LLVM from the text `node`, statement by statement.

    `dtypes` are the types of its parameters, and vectors have `lanes` elements. The names in `along` vary between the
    elements, and vectors are stored past the cache in the `streamed` arrays.
    """

    def __init__(
        self,
        unit: Unit,
        function: ir.Function,
        node: ast.FunctionDef,
        dtypes: Iterable[str],
        lanes: int = 0,
        along: Collection[str] = (),
        streamed: Collection[str] = (),
    ) -> None:
        self.unit, self.node, self.lanes, self.streamed = unit, node, lanes, streamed
        # The places of variables come before all other instructions.
        self.start = ir.IRBuilder(function.append_basic_block())
        self.builder = ir.IRBuilder(function.append_basic_block())
        self.start.position_before(self.start.branch(self.builder.block))
        # The units of work that are left until the function polls; None where no loop does.
        self.countdown: Countdown | None = None
        # The blocks that `continue` and `break` go to.
        self.loops: list[tuple[ir.Block, ir.Block]] = []
        # The mask of the elements that take the branch that is being written; None is all of them.
        self.here: Value | None = None
        # How each array is read or written; None is one element for all.
        self.accesses: dict[str, Access | None] = {}
        self.variables: dict[str, Value] = {}
        # How many blocks of the text are around the statement that is being written.
        self._depth = 0
        arguments = zip(node.args.args, function.args, dtypes, strict=False)
        self.values: dict[str, Any] = {each.arg: Value(self.builder, value, dtype) for each, value, dtype in arguments}
        vectors = {name for name, value in self.values.items() if value.lanes}
        self.varying, self._once = unit.names_in(node.body, vectors.union(along))
        assigned = uses(node.body).assigned if self.values else ()
        for name in [name for name in self.values if name in assigned]:
            self.assign(name, self.values.pop(name))

    # --- statements ----------------------------------------------------------------------------------------------

    def block(self, statements: Sequence[ast.stmt]) -> None:
        self._depth += 1
        for stmt in statements:
            match stmt:
                case ast.Assign(targets=[target], value=value):
                    self._put(target, self.expression(value))
                case ast.AugAssign(target=target, op=op, value=value):
                    self._put(target, apply(op, self.expression(target), self.expression(value)))
                case ast.Expr(value=ast.Call() as call):
                    self._call(call)
                case ast.If():
                    self._if(stmt)
                case ast.While(orelse=[]):
                    self._loop(stmt, partial(self.test, stmt.test))
                case ast.For(orelse=[]):
                    self.for_(stmt)
                case ast.Break() | ast.Continue() if self.loops and not self.lanes:
                    self.builder.branch(self.loops[-1][isinstance(stmt, ast.Break)])
                case ast.Pass():
                    pass
                case _:
                    raise SyntaxError(f"a kernel has no such statement: {ast.unparse(stmt)}")
        self._depth -= 1

    def _put(self, target: ast.expr, value: Value) -> None:
        """Give a variable, or an element of an array, a value."""
        match target:
            case ast.Name(name):
                self.assign(name, value)
            case ast.Subscript(array, index):
                self._store(self.expression(array), self.expression(index), value)
            case _:
                raise SyntaxError(f"nothing is assigned to {ast.unparse(target)}")

    def assign(self, name: str, value: Value) -> None:
        """Give a variable a value, whose type is that of its first value. Of a pointer there is one value."""
        if value.dtype[0] == "*":
            if name in self.values:
                raise TypeError(f"{name} is more than one pointer")
            self.values[name] = value
            return
        if self._depth == 1 and name in self._once and name not in self.variables:
            self.values[name] = value  # It is the same for all that follows.
            return
        value = value.spread(self.lanes if name in self.varying else 0)
        if name not in self.variables:
            self.variables[name] = Value(self.start, self.start.alloca(value.kind, name=name), value.dtype)
        variable = self.variables[name]
        if variable.dtype != value.dtype:
            raise TypeError(
                f"the variable {name} is of type {variable.dtype}, and is given a value of type {value.dtype}"
            )
        self.builder.store(value.value, variable.value)

    def _if(self, stmt: ast.If) -> None:
        test = self.test(stmt.test)
        if test.is_vector:
            self._if_some(test, stmt)
        elif stmt.orelse:
            with self.builder.if_else(test.value) as sides:
                for side, body in zip(sides, (stmt.body, stmt.orelse), strict=True):
                    with side:
                        self.block(body)
        else:
            with self.builder.if_then(test.value):
                self.block(stmt.body)

    def _if_some(self, test: Value, stmt: ast.If) -> None:
        """A branch that some elements take: selects keep the values of the others. Without `else` it is skipped if no
        element takes it; else both sides run."""
        # The target of a loop in a side is the same for all elements that come there, and no others read it.
        around, names = self.here, uses([*stmt.body, *stmt.orelse]).assigned & self.varying
        before = self.known(names)
        here = self.here = self._among_these(test)
        if stmt.orelse:
            self.block(stmt.body)
            then = self.known(names)
            for name, value in before.items():
                self.assign(name, value)
            self.here = ~here
            self.block(stmt.orelse)
            for name, value in then.items():
                self.assign(name, select(test, value, self.name(name)))
        else:
            with self.builder.if_then(any_of(self.builder, here.value)):
                self.block(stmt.body)
                for name, value in before.items():
                    self.assign(name, select(here, self.name(name), value))
        self.here = around

    def known(self, names: Iterable[str]) -> dict[str, Value]:
        """The values of those variables among some names that have one."""
        return {name: self.name(name) for name in sorted(names) if name in self.variables}

    def _among_these(self, test: Value) -> Value:
        """A test that is false for elements that do not come here: a select, since it may be undefined for them."""
        return self.here.choose(test, 0) if self.here is not None and test.is_vector else test

    def for_(self, stmt: ast.For) -> None:
        """A loop over a range, whose number of iterations is known before the first."""
        match stmt:
            case ast.For(target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range"), args=[*bounds])):
                step = _step(bounds.pop()) if len(bounds) == 3 else 1
                start, stop = (self.expression(bound).to("int64") for bound in [ast.Constant(0), *bounds][-2:])
            case _:
                raise SyntaxError(f"a kernel has no such loop: for {ast.unparse(stmt.iter)}")
        builder = self.builder
        # By ones the target itself is counted, which a vectoriser knows best; else the iterations are, of which there
        # may be more than a signed number can count.
        first, end = (start, stop) if step == 1 else (start.constant(0), iterations(start, stop, step))
        counted = self.start.alloca(INDEX)
        builder.store(first.value, counted)
        at = first

        def goes_on() -> Value:
            nonlocal at
            at = Value(builder, builder.load(counted))
            return at < end if step == 1 else at.unsigned("<", end)

        def enter() -> None:
            nonlocal at
            if self.lanes:  # The test was not the last thing before.
                at = Value(builder, builder.load(counted))
            self.assign(name, at if step == 1 else start + at * step)

        def advance() -> None:
            builder.store(builder.add(at.value, word(1), flags=["nsw" if step == 1 else "nuw"]), counted)

        self._loop(stmt, goes_on, enter, advance)

    def _loop(
        self,
        stmt: ast.For | ast.While,
        goes_on: Callable[[], Value],
        enter: Callable[[], None] = lambda: None,
        advance: Callable[[], None] = lambda: None,
    ) -> None:
        """A loop. In vectors it is masked: an iteration changes nothing for elements for which it has ended."""
        builder, units = self.builder, self.unit.units(self.node.name, stmt)
        head, body, again, after = (builder.append_basic_block() for _ in range(4))

        def test() -> ir.Value:
            return any_of(builder, self._among_these(goes_on()).value)

        builder.branch(head)
        builder.position_at_end(head)
        builder.cbranch(test(), body, after)
        builder.position_at_end(body)
        enter()
        self.loops.append((again, after))
        self.block(stmt.body)
        self.loops.pop()
        if not builder.block.is_terminated:
            builder.branch(again)
        builder.position_at_end(again)
        advance()
        if self.lanes:
            # The few passes that vectors go through do not move a loop's test to its end, which saves a jump.
            head, end = body, builder.append_basic_block()
            builder.cbranch(test(), end, after)
            builder.position_at_end(end)
        if units and self.countdown is not None:
            self.countdown.iterate(builder, units, head, after)
        elif self.unit.is_row(stmt.body):
            self.unit.leave_scalar(builder.branch(head))
        else:
            builder.branch(head)
        builder.position_at_end(after)

    # --- expressions ---------------------------------------------------------------------------------------------

    def expression(self, node: ast.expr) -> Any:
        """The value of an expression; of the name of an index along the row, an `Along`."""
        match node:
            case ast.Name(id=name):
                return self.name(name)
            case ast.Constant(value=int() as value):
                kind = TYPES["bool"] if isinstance(value, bool) else INDEX
                return Value(self.builder, ir.Constant(kind, int(value)))
            case ast.Subscript():
                pointer, index = self.expression(node.value), self.expression(node.slice)
                if pointer.dtype[0] != "*":
                    raise TypeError(f"{ast.unparse(node.value)} is of type {pointer.dtype}, and has no elements")
                return self._load(pointer, index)
            case ast.BinOp(left=left, op=op, right=right) | ast.Compare(left=left, ops=[op], comparators=[right]):
                return apply(op, self.expression(left), self.expression(right))
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as value)):
                return Value(self.builder, word(-value))
            case ast.UnaryOp(op=op, operand=operand):
                return apply(op, self.expression(operand))
            case ast.IfExp():
                return self._conditional(node)
            case ast.Call():
                return self._call(node)
        raise SyntaxError(f"a kernel has no such expression: {ast.unparse(node)}")

    def name(self, name: str) -> Any:
        if name in self.variables:
            variable = self.variables[name]
            return Value(self.builder, self.builder.load(variable.value), variable.dtype)
        if name in self.values:
            return self.values[name]
        if name not in self.unit.constants:
            raise NameError(f"nothing is called {name}, or not yet")
        return Value(self.builder, *self.unit.constants[name])

    def test(self, node: ast.expr) -> Value:
        value: Value = self.expression(node)
        if value.dtype != "bool":
            raise TypeError(f"a test of type {value.dtype}: {ast.unparse(node)}")
        return value

    def _conditional(self, node: ast.IfExp) -> Value:
        """The value of one expression or of the other; of vectors both are computed."""
        test, sides = self.test(node.test), (node.body, node.orelse)
        if test.is_vector:
            return select(test, *map(self.expression, sides))
        lanes = self.lanes if uses(sides).names & self.varying else 0
        incoming: list[tuple[Value, ir.Block]] = []
        with self.builder.if_else(test.value) as ways:
            for way, side in zip(ways, sides, strict=True):
                with way:
                    value = self.expression(side).spread(lanes)
                    incoming.append((value, self.builder.block))
        (then, _), (orelse, _) = incoming
        if then.dtype != orelse.dtype:
            raise TypeError(f"one of two values is of type {then.dtype}, the other of type {orelse.dtype}")
        phi = self.builder.phi(then.kind)
        for value, end in incoming:
            phi.add_incoming(value.value, end)
        return Value(self.builder, phi, then.dtype)

    # --- arrays --------------------------------------------------------------------------------------------------

    def _load(self, pointer: Value, index: Any) -> Value:
        """An element of an array, or the vector of elements from it on, in the type of the array."""
        self._accessed(pointer, index, stores=False)
        if isinstance(index, Along):
            vector = load_along(self.builder, pointer, index, self.lanes, prefetches=not self.loops)
            return Value(self.builder, vector, pointer.dtype[1:])
        address = self.builder.gep(pointer.value, [index.to("int64").value])
        return Value(self.builder, self.builder.load(address, typ=TYPES[pointer.dtype[1:]]), pointer.dtype[1:])

    def _store(self, pointer: Value, index: Any, value: Value) -> None:
        """Store a value in an array, in the type of the array."""
        stored = value.to(pointer.dtype[1:])
        if not self.lanes:
            self.builder.store(stored.value, self.builder.gep(pointer.value, [index.to("int64").value]))
            return
        if self.here is not None or not isinstance(index, Along):
            raise TypeError("a vector is stored along the row, and all of it")
        self._accessed(pointer, index, stores=True)
        is_streamed = pointer.value.name in self.streamed
        store_along(self.builder, pointer, index, stored.spread(self.lanes).value, is_streamed)

    def _accessed(self, pointer: Value, index: Any, stores: bool) -> None:
        """Note how an array is read or written."""
        name = pointer.value.name
        access = Access(index.offset, index.stride, stores) if isinstance(index, Along) else None
        if self.accesses.setdefault(name, access) != access and self.lanes:
            raise TypeError(f"{name} is read along the row, and not along it, or in two ways")

    # --- calls ---------------------------------------------------------------------------------------------------

    def _call(self, node: ast.Call) -> Value:
        assert isinstance(node.func, ast.Name)
        builder, name = self.builder, node.func.id
        if name == "scratch":
            match node.args:
                case [ast.Name(id=dtype), ast.Constant(value=int() as length)]:
                    return Value(builder, self.start.alloca(TYPES[dtype], length), f"*{dtype}")
        arguments: list[Value] = [self.expression(argument) for argument in node.args]
        # A user's function may be called int32.
        if name in self.unit.definitions:
            values = [each.value for each in arguments]
            if name in self.unit.polling and self.countdown is not None:
                values.append(self.countdown.place)
            return Value(builder, builder.call(self._function(name, arguments), values))
        if name in TYPES:
            return arguments[0].to(name)
        if name in FUNCTIONS:
            return FUNCTIONS[name](*arguments)
        if name in STORAGE:
            return self._stored(name, *arguments)
        return self.unit.mathematics(name, arguments)

    def _stored(self, name: str, pointer: Value, index: Any, *stored: Value) -> Value:
        """Load or store a number that is kept in 16 bits."""
        halves, convert = Value(self.builder, pointer.value, "*uint16"), STORAGE[name]
        for value in stored:
            self._store(halves, index, Value(self.builder, convert(value.to("float32")).value, "uint16"))
        return convert(self._load(halves, index)) if not stored else halves

    def _function(self, name: str, arguments: Sequence[Value]) -> ir.Function:
        """The LLVM function of a function of the text, for arguments of these types. It is inlined into its callers.

        If the function polls, the address of the countdown is one argument more.
        """
        unit, node = self.unit, self.unit.definitions[name]
        key = name, tuple([(each.dtype, each.lanes) for each in arguments])
        if key in unit.functions:
            return unit.functions[key]
        kinds = [each.kind for each in arguments]
        function = unit.inlined(name, [*kinds, INDEX.as_pointer()] if name in unit.polling else kinds)
        lanes = max([each.lanes for each in arguments], default=0)
        body = Body(unit, function, node, [each.dtype for each in arguments], lanes)
        if name in unit.polling:
            body.countdown = Countdown(unit.module, function.args[-1])
        match node.body:
            case [*statements, ast.Return(value=ast.expr() as returned)]:
                body.block(statements)
                end_with(body.builder, body.expression(returned).value)
            case _:
                body.block(node.body)
                body.builder.ret_void()
        unit.take_liberties(function, name)
        unit.functions[key] = function
        return function


def _step(node: ast.expr) -> int:
    """The step of a range, which is a literal."""
    try:
        step = int(ast.literal_eval(node))
    except ValueError:
        step = 0
    if step == 0:
        raise TypeError(f"the step of a range is a number other than 0, and not {ast.unparse(node)}")
    return step
