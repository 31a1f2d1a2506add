"""Functions in IR as LLVM code: of one element, or of vectors with an element of the row in each lane.

Where paths merge, the values of a name become one. LLVM's own vectoriser would write the same code of vectors, in most
of the time of a kernel's compilation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from llvmlite import ir

from dualbcast.codegen.llvm.arrays import Along, gathered, load_along, load_masked, store_along, store_masked
from dualbcast.codegen.llvm.names import Names, names_in, names_of
from dualbcast.codegen.llvm.operators import OPERATIONS, iterations, select, spread
from dualbcast.codegen.llvm.polling import Countdown, cost, may_take_long
from dualbcast.codegen.llvm.unit import Unit
from dualbcast.codegen.loops.builder import Function, Module, Pointer
from dualbcast.codegen.mathlib import STORAGE, WITH_RARE_BRANCHES
from dualbcast.codegen.mathlib.primitives import ordinary_elsewhere
from dualbcast.codegen.values import INDEX, TYPES, Lanes, Value, any_of
from dualbcast.ir.nodes import (
    TRUE,
    Array,
    Assign,
    Block,
    Break,
    Const,
    Continue,
    Expr,
    For,
    If,
    Load,
    Op,
    Output,
    Stmt,
    Var,
    While,
)
from dualbcast.ir.traversal import targets


class Element(NamedTuple):
    """Where the element of an array is, or a vector of elements."""

    pointer: Pointer
    at: Value | Along
    storage: str  # the dtype of the array
    is_streamed: bool = False  # whether vectors are stored past the cache


class _Merge(NamedTuple):
    """A block where paths merge, and their ends, with the values that names have there."""

    block: ir.Block
    ends: list[tuple[ir.Block, dict[str, Value]]]


class Body:
    """Writes statements into a function of LLVM, whose `arrays` are read and stored by name.

    Vectors have `lanes` elements, 0 where there are none. Of arrays that go along the row only the elements that the
    `mask` has are read and written, all if it is None. The `countdown` is None where no loop polls.
    """

    def __init__(self, unit: Unit, f: Function, names: Names, lanes: int, countdown: Countdown | None) -> None:
        self.unit, self.f, self.builder, self.names = unit, f, f.builder, names
        self.lanes, self.countdown = lanes, countdown
        self.arrays: Mapping[str, Element] = {}
        self.mask: Value | None = None
        # The ends of paths that continue with the next iteration of a loop, and of those that leave it.
        self._loops: list[tuple[_Merge, _Merge]] = []
        # The mask of the elements that take the branch that is being written; None is all of them.
        self._here: Value | None = None
        # The value of each name that has one on the path that is being written.
        self.values: dict[str, Value] = {}

    # --- statements ----------------------------------------------------------------------------------------------

    def block(self, block: Block) -> None:
        for stmt in block:
            match stmt:
                case Assign():
                    self.assign(stmt.target.name, self.expression(stmt.value))
                case If():
                    self._if(stmt)
                case While():
                    self._while(stmt)
                case For():
                    self._for(stmt)
                case Break() | Continue():
                    self._end_path(self._loops[-1][isinstance(stmt, Break)])

    def assign(self, name: str, value: Value) -> None:
        self.values[name] = value.spread(self.lanes if name in self.names.varying else 0)

    def _merge(self) -> _Merge:
        return _Merge(self.builder.append_basic_block(), [])

    def _end_path(self, merge: _Merge) -> None:
        """Let the path that is being written, if it goes on, go on where others do, too."""
        if not self.builder.block.is_terminated:
            merge.ends.append((self.builder.block, dict(self.values)))
            self.builder.branch(merge.block)

    def _go_on(self, merge: _Merge) -> None:
        """Go on where paths merge, with the names that have a value on all of them."""
        self.builder.position_at_end(merge.block)
        if not merge.ends:
            self.builder.unreachable()
            return
        (_, first), *others = merge.ends
        self.values = {}
        for name, value in first.items():
            values = [values.get(name) for _, values in others]
            if all(each is value for each in values):
                self.values[name] = value
            elif all(each is not None for each in values):
                phi = self.builder.phi(value.kind)
                for block, each in merge.ends:
                    phi.add_incoming(each[name].value, block)
                self.values[name] = Value(self.builder, phi)

    def _if(self, stmt: If) -> None:
        test, then, orelse = self.expression(stmt.test), stmt.then, stmt.orelse
        if not then:
            test, then, orelse = ~test, orelse, ()
        if test.lanes:
            self._if_some(test, then, orelse)
            return
        builder, after, before = self.builder, self._merge(), self.values
        sides = [(builder.append_basic_block(), body) for body in (then, orelse) if body]
        if not orelse:
            after.ends.append((builder.block, before))
        builder.cbranch(test.value, sides[0][0], sides[1][0] if orelse else after.block)
        for side, body in sides:
            builder.position_at_end(side)
            self.values = dict(before)
            self.block(body)
            self._end_path(after)
        self._go_on(after)

    def _if_some(self, test: Value, then: Block, orelse: Block) -> None:
        """A branch that some elements take: selects keep the values of the others. Without `orelse` it is skipped if no
        element takes it; else both sides run."""
        around, before = self._here, self.values
        here = self._here = self._among_these(test)
        if orelse:
            self.values = dict(before)
            self.block(then)
            taken, self.values = self.values, dict(before)
            self._here = ~here
            self.block(orelse)
            self._select(test, taken, self.values)
        else:
            after, side = self._merge(), self.builder.append_basic_block()
            after.ends.append((self.builder.block, before))
            self.builder.cbranch(any_of(self.builder, here.value), side, after.block)
            self.builder.position_at_end(side)
            self.values = dict(before)
            self.block(then)
            self._select(here, self.values, before)
            self._end_path(after)
            self._go_on(after)
        self._here = around

    def _select(self, test: Value, then: Mapping[str, Value], orelse: Mapping[str, Value]) -> None:
        """Choose between the values of each name that has two. The target of a loop is the same for all elements that
        come there, and no others read it."""
        for name in then.keys() & orelse.keys() & self.names.varying:
            if then[name] is not orelse[name]:
                self.values[name] = select(test, then[name], orelse[name])

    def _among_these(self, test: Value) -> Value:
        """A test that is false for elements that do not come here: a select, since it may be undefined for them."""
        return self._here.choose(test, 0) if self._here is not None and test.lanes else test

    def _while(self, stmt: While) -> None:
        def goes_on() -> Value | None:
            self.block(stmt.pre)
            return None if stmt.test == TRUE else self.expression(stmt.test)

        self._loop(stmt, goes_on)

    def _for(self, stmt: For) -> None:
        """A loop over a range, whose number of iterations is known before the first."""
        assert isinstance(stmt.step, Const)
        step = int(stmt.step.value)
        start, stop = (self.expression(bound).to("int64") for bound in (stmt.start, stmt.stop))
        # By ones the target itself is counted, which a vectoriser knows best; else the iterations are, of which there
        # may be more than a signed number can count.
        first, end = (start, stop) if step == 1 else (start.constant(0), iterations(start, stop, step))
        counted = f"range#{len(self._loops)}"
        self.values[counted] = first

        def goes_on() -> Value:
            at = self.values[counted]
            return at < end if step == 1 else at.unsigned("<", end)

        def enter() -> None:
            at = self.values[counted]
            self.assign(stmt.target.name, at if step == 1 else start + at * step)

        def advance() -> None:
            at, one = self.values[counted].value, ir.Constant(INDEX, 1)
            self.values[counted] = Value(self.builder, self.builder.add(at, one, flags=["nsw" if step == 1 else "nuw"]))

        self._loop(stmt, goes_on, [counted], enter, advance)

    def _loop(
        self,
        stmt: For | While,
        goes_on: Callable[[], Value | None],
        counted: Sequence[str] = (),
        enter: Callable[[], None] = lambda: None,
        advance: Callable[[], None] = lambda: None,
    ) -> None:
        """A loop. In vectors it is masked: an iteration changes nothing for elements for which it has ended."""
        builder, again, after = self.builder, self._merge(), self._merge()

        def decide() -> None:
            test = goes_on()
            if test is not None:
                after.ends.append((builder.block, dict(self.values)))
                body = builder.append_basic_block()
                builder.cbranch(any_of(builder, self._among_these(test).value), body, after.block)
                builder.position_at_end(body)

        self._loops.append((again, after))
        # The few passes that vectors go through do not move a loop's test to its end, which saves a jump.
        if self.lanes:
            decide()
        before, head = builder.block, builder.append_basic_block()
        builder.branch(head)
        builder.position_at_end(head)
        carried = [(name, self._carry(name, value, before)) for name, value in self._before(stmt, counted)]
        if not self.lanes:
            decide()
        enter()
        self.block(stmt.body)
        self._end_path(again)
        self._loops.pop()
        self._go_on(again)
        if again.ends:
            advance()
            if self.lanes:
                decide()
            if self.countdown is not None and may_take_long(stmt):
                self.countdown.iterate(1 + cost(stmt.body), lambda: self._end_path(after))
            for name, phi in carried:
                phi.add_incoming(self.values[name].value, builder.block)
            builder.branch(head)
        self._go_on(after)

    def _before(self, stmt: Stmt, counted: Sequence[str]) -> Iterator[tuple[str, ir.Value]]:
        """The names that iterations of a loop change, with their values before the loop."""
        for name in counted:
            yield name, self.values[name].value
        for name, var in targets((stmt,)).items():
            if name in self.values:
                yield name, self.values[name].value
            elif name in self.names.escaping:  # A loop that has no iteration leaves it undefined.
                lanes = self.lanes if name in self.names.varying else 0
                yield name, ir.Constant(_vector_type(self.unit.dtype_of(var.kind), lanes), ir.Undefined)

    def _carry(self, name: str, value: ir.Value, before: ir.Block) -> ir.PhiInstr:
        """Let a name have this value at first, and later the one that an iteration leaves."""
        phi = self.builder.phi(value.type)
        phi.add_incoming(value, before)
        self.values[name] = Value(self.builder, phi)
        return phi

    # --- expressions ---------------------------------------------------------------------------------------------

    def expression(self, expr: Expr) -> Value:
        match expr:
            case Var(name=name):
                return self.values[name]
            case Const(value=value, kind=kind):
                number = float(value) if kind == "float" else int(value)
                return Value(self.builder, ir.Constant(TYPES[self.unit.dtype_of(kind)], number))
            case Load():
                return self._load(expr)
            case Op(name="read", args=(Array() as array, place)):
                return self._read(array, self.expression(place))
        assert isinstance(expr, Op)
        return self._operation(expr.name, [self.expression(arg) for arg in expr.args])

    def _operation(self, name: str, args: list[Value]) -> Value:
        dtype = self.unit.program.spec.dtype
        if name == "select":
            return select(*args)
        if name in OPERATIONS:
            return OPERATIONS[name](*spread(*args))
        if name == "to_float":
            return args[0].to(dtype)
        if name == "single":  # a value rounded to float32
            return args[0].to("float32").to(dtype)
        # What the mathematics has needs no helper.
        if name in self.unit.mathematics:
            if self._here is not None and name in WITH_RARE_BRANCHES:
                args = [ordinary_elsewhere(self._here, each) if each.lanes else each for each in args]
            return self.unit.mathematics[name](*spread(*args))
        return self._helper(name, args)

    def _helper(self, name: str, args: list[Value]) -> Value:
        f = self.unit.module.use(_write_helper, self.unit, name, tuple([each.lanes for each in args]))
        values = [each.value for each in args]
        if self.countdown is not None:
            values.append(self.countdown.left.value)
        return Value(self.builder, self.builder.call(f.code, values))

    # --- arrays --------------------------------------------------------------------------------------------------

    def _load(self, load: Load) -> Value:
        """An element of an array, or the vector of elements from it on, in the type that it is computed in."""
        pointer, index, storage, _ = self.arrays[load.name]
        if isinstance(index, Along):
            if self.mask is None:
                value = load_along(pointer, index, self.lanes, prefetches=not self._loops)
            else:
                value = load_masked(pointer, index, self.mask)
        else:
            value = pointer[index]
        if storage in STORAGE:
            value = STORAGE[storage][0](value)
        return value.to(self.unit.dtype_of(load.kind))

    def _read(self, array: Array, place: Value) -> Value:
        """Elements of a whole array, whose first one is that of the argument."""
        pointer, _, storage, _ = self.arrays[array.name]
        value = gathered(pointer, place) if place.lanes else pointer[place]
        if storage in STORAGE:
            value = STORAGE[storage][0](value)
        return value.to(self.unit.dtype_of(array.kind))

    def store(self, output: Output) -> None:
        """Store an output in the type of its array."""
        pointer, index, storage, is_streamed = self.arrays[output.name]
        value = self.expression(output.value)
        value = STORAGE[storage][1](value.to("float32")) if storage in STORAGE else value.to(pointer.kind)
        if isinstance(index, Along):
            if self.mask is None:
                store_along(pointer, index, value.spread(self.lanes), is_streamed)
            else:
                store_masked(pointer, index, self.mask, value.spread(self.lanes))
        else:
            pointer[index] = value


def _write_helper(_module: Module, unit: Unit, name: str, lanes: tuple[int, ...]) -> Function:
    """The function of a rule for arguments that are vectors of these lengths, or numbers.

    If loops poll, the address of the countdown is one argument more.
    """
    helper = unit.program.helpers[name]
    names = names_of(helper, {param.name for param, count in zip(helper.params, lanes, strict=True) if count})
    most, result = max(lanes, default=0), helper.outputs[0].value
    wide = most if names_in([result]) & names.varying else 0
    dtypes = [unit.dtype_of(param.kind) for param in helper.params]
    kinds = [_vector_type(dtype, count) for dtype, count in zip(dtypes, lanes, strict=True)]
    if unit.polls:
        kinds, dtypes = [*kinds, ir.PointerType()], [*dtypes, "*int64"]
    f = unit.inlined(name, _vector_type(unit.dtype_of(result.kind), wide), kinds, dtypes)
    body = Body(unit, f, names, most, Countdown(f, f.parameters[-1]) if unit.polls else None)
    for param, value in zip(helper.params, f.parameters, strict=False):
        body.assign(param.name, value)
    body.block(helper.body)
    f.return_(body.expression(result).spread(wide))
    unit.take_liberties(f)
    return f


def _vector_type(dtype: str, lanes: int) -> ir.Type:
    return Lanes(TYPES[dtype], lanes) if lanes else TYPES[dtype]
