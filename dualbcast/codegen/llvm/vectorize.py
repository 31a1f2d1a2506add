"""Straight lines of a kernel's text as LLVM IR on vectors, an element of the row in each place.

LLVM's vectoriser would make the same of them, in most of the time that it takes for a kernel.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from llvmlite import ir

from dualbcast.codegen.llvm.expressions import TYPES, WORD, Expressions, Operation, Typed
from dualbcast.codegen.llvm.mentions import differing, mentions
from dualbcast.codegen.llvm.vector_types import PLACE, Lanes, any_of
from dualbcast.codegen.mathlib.primitives import is_never_positive

if TYPE_CHECKING:
    from dualbcast.codegen.llvm.lower import Unit

__all__ = ["AHEAD", "LINE", "Access", "Along", "Vectors"]

# Bytes of a line of the cache; and how many bytes ahead of a load there is a prefetch: 1024 and 4096 were no better.
LINE, AHEAD = 64, 2048


class Along(NamedTuple):
    """An index that goes along the row.

    Attributes
    ----------
    first : llvmlite.ir.Value
        That of a vector's first element.
    step : llvmlite.ir.Value or None
        From one element to the next; None is 1.
    offset, stride : str
        The parameters that the place in the row is multiplied by, and which is added then, if there are any.
    """

    first: ir.Value
    step: ir.Value | None = None
    offset: str = ""
    stride: str = ""


class Access(NamedTuple):
    """How an array is read or written, a vector at a time.

    Attributes
    ----------
    offset, stride : str
        As of `Along`.
    stores : bool
        Whether it is written.
    """

    offset: str
    stride: str
    stores: bool


class Vectors(Expressions):
    """Writes a straight line: a name stands for the value that it has at the place where the text is.

    Parameters
    ----------
    unit : Unit
        What the functions of the text share.
    builder : llvmlite.ir.IRBuilder
    values : mapping of str to Typed or Along
        What names stand for at the beginning.
    function : str
        The function of the text that this is, or is part of.
    at_once : int
        How many elements of the row are a vector.
    """

    def __init__(
        self, unit: Unit, builder: ir.IRBuilder, values: Mapping[str, Any], function: str, at_once: int = 0
    ) -> None:
        self.unit, self.builder, self.function, self.at_once = unit, builder, function, at_once
        self.values = dict(values)
        # Whether what is read is asked for early, and whether elements differ in whether they come here.
        self.looks_ahead = self.is_split = False
        # Which elements come here; None where all do.
        self.here: ir.Value | None = None
        self.accesses: dict[str, Access | None] = {}

    # --- statements ----------------------------------------------------------------------------------------------

    def block(self, statements: Sequence[ast.stmt]) -> None:
        for stmt in statements:
            match stmt:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self.values[name] = self.expression(value)
                case ast.Assign(targets=[ast.Subscript() as place], value=value):
                    self.store(self.expression(place.value), self.expression(place.slice), self.expression(value))
                case ast.Expr(value=ast.Call() as call):
                    self.call(call)
                case ast.If():
                    self.if_(stmt)
                case ast.For(orelse=[]):
                    self.for_(stmt)
                case ast.While(orelse=[]):
                    self.while_(stmt)
                case ast.Pass():
                    pass
                case _:
                    raise SyntaxError(f"a straight line has no such statement: {ast.unparse(stmt)}")

    def if_(self, stmt: ast.If) -> None:
        """Of a test that is a vector both sides, and of what they assign that of the side that each element takes; what
        has no other side runs only if an element takes it."""
        test, before, was_split = self.test(stmt.test), self.values, self.is_split
        is_vector = isinstance(test.type, ir.VectorType)
        if is_vector and not stmt.orelse:
            self.some(test, stmt.body)
            return
        self.is_split |= is_vector
        starts = [] if is_vector else [self.builder.append_basic_block() for _ in range(2)]
        if not is_vector:
            self.builder.cbranch(test, *starts)
        sides, ends = [], []
        for position, body in enumerate((stmt.body, stmt.orelse)):
            if not is_vector:
                self.builder.position_at_end(starts[position])
            self.values = dict(before)
            self.block(body)
            sides.append(self.values)
            ends.append(self.builder.block)
        self.is_split = was_split
        then, orelse = sides
        # What only one side assigns, and nothing before it, is not read later.
        left = {name: then[name] for name in then if name in orelse}
        changed = [name for name in left if then[name] is not orelse[name]]
        ways = [(then[name], orelse[name]) for name in changed]
        if is_vector:
            made = [self.select(test, *both) for both in ways]
        else:
            made = self.merged(ways, ends, self.builder.append_basic_block())
        self.values = left | dict(zip(changed, made, strict=True))

    def some(self, test: ir.Value, body: Sequence[ast.stmt]) -> None:
        """What runs if a test is true for an element, and changes nothing for the others."""
        builder, around, was_split = self.builder, self.here, self.is_split
        here = self.here = self.among_these(test)
        targets = mentions(body).targets
        lanes = test.type.count
        before = {name: self.spread(self.values[name], lanes) for name in self.values if name in targets}
        self.values |= before
        start, inside, after = builder.block, *(builder.append_basic_block() for _ in range(2))
        left = dict(self.values)
        builder.cbranch(any_of(builder, here), inside, after)
        builder.position_at_end(inside)
        self.is_split = True
        self.block(body)
        self.here, self.is_split = around, was_split
        changed = {name: self.select(here, self.values[name], old) for name, old in before.items()}
        end = builder.block
        builder.branch(after)
        builder.position_at_end(after)
        for name, old in before.items():
            phi = builder.phi(old.value.type)
            phi.add_incoming(old.value, start)
            phi.add_incoming(changed[name].value, end)
            left[name] = Typed(phi, old.dtype)
        self.values = left

    def among_these(self, test: ir.Value) -> ir.Value:
        """A test that is false where elements do not come here: a select, since it may mean nothing for them."""
        if self.here is None or not isinstance(test.type, ir.VectorType):
            return test
        return self.builder.select(self.here, test, ir.Constant(test.type, 0))

    def while_(self, stmt: ast.While) -> None:
        """A loop whose turns change nothing for the elements for which it has ended, so that it ends with the last."""

        def goes_on() -> ir.Value:
            return any_of(self.builder, self.among_these(self.test(stmt.test)))

        def turn() -> ir.Value:
            self.block(stmt.body)
            return goes_on()

        targets = mentions(stmt.body).targets
        carried = [name for name in self.values if name in targets]
        units = self.unit.asking.units(self.function, stmt)
        self.turns(carried, differing(stmt.body, self.differing()), turn, goes_on(), units)

    def for_(self, stmt: ast.For) -> None:
        """A loop that every element goes through as often."""
        target, start, stop, step = self.range(stmt)
        builder, one = self.builder, ir.Constant(WORD, 1)
        runs: ir.Value | None = None
        if isinstance(start, ir.Constant) and isinstance(stop, ir.Constant):
            count = ir.Constant(WORD, len(range(start.constant, stop.constant, step)))
            if not count.constant:
                return
        else:
            count = self.turn_count(start, stop, step)
            runs = builder.icmp_unsigned("!=", count, ir.Constant(WORD, 0))
        counted = f"{target}#"  # a name that no text has
        self.values[counted] = Typed(ir.Constant(WORD, 0), "int64")
        targets = mentions([stmt]).targets
        carried = [counted, *(name for name in self.values if name in targets)]

        def turn() -> ir.Value:
            done = self.values[counted].value
            place = builder.add(start, builder.mul(done, ir.Constant(WORD, step)))
            self.values[target] = Typed(place, "int64")
            self.block(stmt.body)
            again = builder.add(done, one, flags=["nuw"])
            self.values[counted] = Typed(again, "int64")
            return builder.icmp_unsigned("<", again, count)

        units = self.unit.asking.units(self.function, stmt)
        self.turns(carried, differing(stmt.body, self.differing()), turn, runs, units)

    def differing(self) -> set[str]:
        """The names that differ between elements at this place."""
        return {name for name, value in self.values.items() if isinstance(value, Along) or value.lanes}

    def turns(
        self,
        carried: Sequence[str],
        varying: Container[str],
        turn: Callable[[], ir.Value],
        runs: ir.Value | None,
        units: int = 0,
    ) -> None:
        """A loop.

        Parameters
        ----------
        carried : sequence of str
            The names whose values are other ones in each turn, all of which have a value before.
        varying : container of str
            Those of them that are vectors.
        turn : callable
            Writes a turn and gives whether there is another one.
        runs : llvmlite.ir.Value or None
            Whether there is a first one; None if there is.
        units : int
            What a turn counts before it asks whether to go on; 0 if it does not.
        """
        builder = self.builder
        before = self.values | {
            name: self.spread(self.values[name], self.at_once) for name in carried if name in varying
        }
        start, body, after = builder.block, *(builder.append_basic_block() for _ in range(2))
        if runs is None:
            builder.branch(body)
        else:
            builder.cbranch(runs, body, after)
        builder.position_at_end(body)
        phis = {name: builder.phi(before[name].value.type) for name in carried}
        self.values = before | {name: Typed(phi, before[name].dtype) for name, phi in phis.items()}
        ahead, self.looks_ahead = self.looks_ahead, False
        goes_on = turn()
        self.looks_ahead = ahead
        # What has differed between elements may be the same for all from now on.
        found = self.values | {
            name: self.spread(self.values[name], self.at_once) for name in carried if before[name].lanes
        }
        backs = leaves = [builder.block]
        if units:
            asking = builder.append_basic_block()
            builder.cbranch(goes_on, asking, after)
            builder.position_at_end(asking)
            backs = self.counted.turn(builder, units, body, after)
            leaves = [*leaves, backs[-1]]
        else:
            builder.cbranch(goes_on, body, after)
        builder.position_at_end(after)
        for name, phi in phis.items():
            phi.add_incoming(before[name].value, start)
            for back in backs:
                phi.add_incoming(found[name].value, back)
        self.values = found
        if runs is not None:
            self.values = dict(before)
            for name, phi in phis.items():
                left = builder.phi(phi.type)
                left.add_incoming(before[name].value, start)
                for leave in leaves:
                    left.add_incoming(found[name].value, leave)
                self.values[name] = Typed(left, before[name].dtype)

    # --- arrays --------------------------------------------------------------------------------------------------

    def binary(self, op: ast.operator, left: Any, right: Any) -> Any:
        along, other = (left, right) if isinstance(left, Along) else (right, left)
        if not isinstance(along, Along):
            return super().binary(op, left, right)
        if isinstance(other, Typed) and isinstance(other.value, ir.Argument):
            name, value = other.value.name, other.value
            match op:
                case ast.Add() if not along.offset:
                    return along._replace(first=self.builder.add(along.first, value), offset=name)
                case ast.Mult() if not along.offset and not along.stride:
                    return along._replace(first=self.builder.mul(along.first, value), step=value, stride=name)
        raise TypeError(f"no {type(op).__name__} of an index along the row and something else than a parameter")

    def load(self, pointer: Any, index: Any) -> Typed:
        if not isinstance(index, Along):
            self.accessed(pointer, None)
            return super().load(pointer, index)
        self.accessed(pointer, Access(index.offset, index.stride, stores=False))
        dtype, builder = pointer.dtype[1:], self.builder
        kind = Lanes(TYPES[dtype], self.at_once)
        if index.step is None:
            address, size = self.element(pointer, index), np.dtype(dtype).itemsize
            if self.looks_ahead:
                self.prefetch(address, size * self.at_once)
            return Typed(builder.load(address, align=size, typ=kind), dtype)
        found: ir.Value = ir.Constant(kind, ir.Undefined)
        for lane in range(self.at_once):
            value = builder.load(self.of_lane(pointer, index, lane), typ=TYPES[dtype])
            found = builder.insert_element(found, value, ir.Constant(PLACE, lane))
        return Typed(found, dtype)

    def store(self, pointer: Any, index: Any, value: Typed) -> None:
        if self.is_split or not isinstance(index, Along):
            raise TypeError("what a vector is stored to goes along the row, and all of it is stored")
        self.accessed(pointer, Access(index.offset, index.stride, stores=True))
        dtype, builder = pointer.dtype[1:], self.builder
        made = self.spread(self.cast(value, dtype), self.at_once).value
        if index.step is None:
            builder.store(made, self.element(pointer, index), align=np.dtype(dtype).itemsize)
            return
        for lane in range(self.at_once):
            builder.store(builder.extract_element(made, ir.Constant(PLACE, lane)), self.of_lane(pointer, index, lane))

    def element(self, pointer: Typed, index: Any) -> ir.Value:
        if not isinstance(index, Along):
            return super().element(pointer, index)
        address = self.builder.gep(pointer.value, [index.first])
        address.type = ir.PointerType()  # to a vector, or to a number
        return address

    def of_lane(self, pointer: Typed, index: Along, lane: int) -> ir.Value:
        """The address of an element of a vector that does not lie side by side."""
        place = self.builder.add(index.first, self.builder.mul(index.step, ir.Constant(WORD, lane)))
        return self.builder.gep(pointer.value, [place])

    def prefetch(self, address: ir.Value, size: int) -> None:
        """Ask for the lines of what is some way on from a vector.

        The processor foresees what is next in an array by itself, but later, and not of many arrays at a time.
        """
        builder, symbol, module = self.builder, "llvm.prefetch.p0", self.unit.module
        if symbol not in module.globals:
            ir.Function(module, ir.FunctionType(ir.VoidType(), [ir.PointerType(), PLACE, PLACE, PLACE]), symbol)
        # To read, near, data.
        how = [ir.Constant(PLACE, number) for number in (0, 3, 1)]
        for past in range(0, size, LINE):
            ahead = builder.gep(address, [ir.Constant(WORD, AHEAD + past)], source_etype=ir.IntType(8))
            ahead.type = ir.PointerType()
            builder.call(module.globals[symbol], [ahead, *how])

    def accessed(self, pointer: Typed, access: Access | None) -> None:
        """Note how an array is read or written; None is the same place for all elements."""
        name = pointer.value.name
        if self.accesses.setdefault(name, access) != access:
            raise TypeError(f"{name} is read along the row, and not along it, or in two ways")

    # --- calls ---------------------------------------------------------------------------------------------------

    def operate(self, name: str, operation: Operation, values: Sequence[ir.Value]) -> ir.Value:
        # What is known of an argument is not seen from inside a function.
        if not operation.is_long or any(map(is_never_positive, values)):
            return super().operate(name, operation, values)
        made = self.unit.operation(name, operation, [value.type for value in values], self.function)
        return self.builder.call(made, values)
