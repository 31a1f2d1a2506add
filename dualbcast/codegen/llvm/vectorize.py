"""The statements of an element function as LLVM IR on vectors, with an element of the row in each lane.

LLVM's vectoriser would write the same code, in most of the time of a kernel's compilation.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from typing import Any, NamedTuple

from llvmlite import ir

from dualbcast.codegen.llvm.expressions import Expressions
from dualbcast.codegen.llvm.typed_values import Typed, cast, select, spread
from dualbcast.codegen.llvm.unit import Unit, uses, varying_after
from dualbcast.codegen.values import LINE, PLACE, Lanes, any_of, prefetch, store_past_the_cache, word


class Along(NamedTuple):
    """An index that goes along the row: stride * place + offset."""

    first: ir.Value  # the index of a vector's first element
    step: ir.Value | None = None  # the difference between two elements; None is 1
    # The names of the parameters in the formula; empty where there are none.
    offset: str = ""
    stride: str = ""


class Access(NamedTuple):
    """How an array is read or written, a vector at a time; `offset` and `stride` are those of its index."""

    offset: str
    stride: str
    stores: bool


class VectorBody(Expressions):
    """Writes statements on vectors of `at_once` elements. A name stands for its value at that place of the text.

    With `prefetches` vectors that are loaded are prefetched, and the stores to `streamed` arrays go past the cache.
    """

    def __init__(
        self,
        unit: Unit,
        builder: ir.IRBuilder,
        values: Mapping[str, Any],
        function: str,
        at_once: int = 0,
        prefetches: bool = False,
        streamed: Collection[str] = (),
    ) -> None:
        self.unit, self.builder, self.function, self.at_once = unit, builder, function, at_once
        self.values, self.prefetches, self.streamed = dict(values), prefetches, streamed
        # Whether some elements may not take the branch that is being written, and the mask of those that do; None is
        # all of them.
        self.is_split = False
        self.here: ir.Value | None = None
        # How each array is read or written; None is one element for all.
        self.accesses: dict[str, Access | None] = {}
        self.loops = []

    # --- statements ----------------------------------------------------------------------------------------------

    def assign(self, name: str, value: Typed) -> None:
        self.values[name] = value

    def if_(self, stmt: ast.If) -> None:
        """A branch. Where elements differ in the side that they take, both sides run, and selects choose the values; a
        branch without `else` is skipped if no element takes it."""
        test, before, was_split = self.test(stmt.test), self.values, self.is_split
        is_vector = isinstance(test.type, ir.VectorType)
        if is_vector and not stmt.orelse:
            self.if_any(test, stmt.body)
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
        # A name that only one side assigns, and nothing before the branch, is not read later.
        left = {name: then[name] for name in then if name in orelse}
        changed = [name for name in left if then[name] is not orelse[name]]
        versions = [(then[name], orelse[name]) for name in changed]
        if is_vector:
            merged = [select(self.builder, test, *both) for both in versions]
        else:
            merged = self.merged(versions, ends, self.builder.append_basic_block())
        self.values = left | dict(zip(changed, merged, strict=True))

    def if_any(self, test: ir.Value, body: Sequence[ast.stmt]) -> None:
        """Statements that run if a test is true for any element, and that change nothing for the others."""
        builder, around, was_split = self.builder, self.here, self.is_split
        here = self.here = self.among_these(test)
        assigned = uses(body).assigned
        lanes = test.type.count
        before = {name: spread(builder, self.values[name], lanes) for name in self.values if name in assigned}
        self.values |= before
        inside, skip, after = (builder.append_basic_block() for _ in range(3))
        left = dict(self.values)
        builder.cbranch(any_of(builder, here), inside, skip)
        builder.position_at_end(inside)
        self.is_split = True
        self.block(body)
        self.here, self.is_split = around, was_split
        versions = [(select(builder, here, self.values[name], old), old) for name, old in before.items()]
        merged = self.merged(versions, [builder.block, skip], after)
        self.values = left | dict(zip(before, merged, strict=True))

    def among_these(self, test: ir.Value) -> ir.Value:
        """A test that is false for elements that do not come here. It is a select, since the test may be undefined for
        them."""
        if self.here is None or not isinstance(test.type, ir.VectorType):
            return test
        return self.builder.select(self.here, test, ir.Constant(test.type, 0))

    def while_(self, stmt: ast.While) -> None:
        """A masked loop: its iterations change nothing for elements for which it has ended. It ends with the last."""

        def goes_on() -> ir.Value:
            return any_of(self.builder, self.among_these(self.test(stmt.test)))

        def iteration() -> ir.Value:
            self.block(stmt.body)
            return goes_on()

        assigned = uses(stmt.body).assigned
        carried = [name for name in self.values if name in assigned]
        self.loop(stmt, carried, iteration, goes_on())

    def for_(self, stmt: ast.For) -> None:
        """A loop with the same number of iterations for all elements."""
        target, start, stop, step = self.range(stmt)
        builder, one = self.builder, word(1)
        runs: ir.Value | None = None
        if isinstance(start, ir.Constant) and isinstance(stop, ir.Constant):
            count = word(len(range(start.constant, stop.constant, step)))
            if not count.constant:
                return
        else:
            count = self.iteration_count(start, stop, step)
            runs = builder.icmp_unsigned("!=", count, word(0))
        counted = f"{target}#"  # a name that no text has
        self.values[counted] = Typed(word(0), "int64")
        assigned = uses([stmt]).assigned
        carried = [counted, *(name for name in self.values if name in assigned)]

        def iteration() -> ir.Value:
            done = self.values[counted].value
            place = builder.add(start, builder.mul(done, word(step)))
            self.values[target] = Typed(place, "int64")
            self.block(stmt.body)
            again = builder.add(done, one, flags=["nuw"])
            self.values[counted] = Typed(again, "int64")
            return builder.icmp_unsigned("<", again, count)

        self.loop(stmt, carried, iteration, runs)

    def varying(self) -> set[str]:
        """The names that vary between elements at this place."""
        return {name for name, value in self.values.items() if isinstance(value, Along) or value.lanes}

    def loop(
        self,
        stmt: ast.For | ast.While,
        carried: Sequence[str],
        iteration: Callable[[], ir.Value],
        runs: ir.Value | None,
    ) -> None:
        """A loop, in which the values of `carried` names change, all of which have a value before.

        `iteration` writes an iteration and gives whether there is another one. `runs` says whether there is a first
        one; if it is None there is, and names that the loop assigns first have a value after it.
        """
        builder, units = self.builder, self.unit.units(self.function, stmt)
        before = self.values | self.spread_out(carried, varying_after(stmt.body, self.varying()))
        start, body, after = builder.block, *(builder.append_basic_block() for _ in range(2))
        if runs is None:
            builder.branch(body)
        else:
            builder.cbranch(runs, body, after)
        builder.position_at_end(body)
        phis = {name: builder.phi(before[name].value.type) for name in carried}
        self.values = before | {name: Typed(phi, before[name].dtype) for name, phi in phis.items()}
        prefetches, self.prefetches = self.prefetches, False
        goes_on = iteration()
        self.prefetches = prefetches
        # A value that varied between elements before may be uniform after an iteration.
        left = self.values | self.spread_out(carried, {name for name in carried if before[name].lanes})
        backs = leaves = [builder.block]
        if units:
            polling = builder.append_basic_block()
            builder.cbranch(goes_on, polling, after)
            builder.position_at_end(polling)
            backs = self.counted.iterate(builder, units, body, after)
            leaves = [*leaves, backs[-1]]
        else:
            builder.cbranch(goes_on, body, after)
        builder.position_at_end(after)
        # At the head of the loop, and after it.
        last = {} if runs is None else {name: builder.phi(phi.type) for name, phi in phis.items()}
        for merged, blocks in ((phis, backs), (last, leaves)):
            for name, phi in merged.items():
                phi.add_incoming(before[name].value, start)
                for block in blocks:
                    phi.add_incoming(left[name].value, block)
        self.values = left if runs is None else dict(before)
        self.values |= {name: Typed(phi, before[name].dtype) for name, phi in last.items()}

    def spread_out(self, names: Sequence[str], wanted: Container[str]) -> dict[str, Typed]:
        """The wanted values among some as vectors."""
        return {name: spread(self.builder, self.values[name], self.at_once) for name in names if name in wanted}

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
        kind = Lanes(pointer.number, self.at_once)
        if index.step is None:
            address, size = self.element(pointer, index), pointer.itemsize
            if self.prefetches:
                prefetch(builder, address, size * self.at_once)
            return Typed(builder.load(address, align=size, typ=kind), dtype)
        vector: ir.Value = ir.Constant(kind, ir.Undefined)
        for lane in range(self.at_once):
            value = builder.load(self.of_lane(pointer, index, lane), typ=pointer.number)
            vector = builder.insert_element(vector, value, ir.Constant(PLACE, lane))
        return Typed(vector, dtype)

    def store(self, pointer: Any, index: Any, value: Typed) -> None:
        if self.is_split or not isinstance(index, Along):
            raise TypeError("a vector is stored along the row, and all of it")
        self.accessed(pointer, Access(index.offset, index.stride, stores=True))
        dtype, builder = pointer.dtype[1:], self.builder
        vector = spread(builder, cast(builder, value, dtype), self.at_once).value
        if index.step is None:
            address, size = self.element(pointer, index), pointer.itemsize
            # A line that is streamed in two parts, with those of other outputs in between, is written twice: of 42
            # outputs that took six times as long.
            if pointer.value.name in self.streamed and size * self.at_once >= LINE:
                store_past_the_cache(builder, vector, address, size)
            else:
                builder.store(vector, address, align=size)
            return
        for lane in range(self.at_once):
            number = builder.extract_element(vector, ir.Constant(PLACE, lane))
            builder.store(number, self.of_lane(pointer, index, lane))

    def element(self, pointer: Typed, index: Any) -> ir.Value:
        if not isinstance(index, Along):
            return super().element(pointer, index)
        address = self.builder.gep(pointer.value, [index.first])
        address.type = ir.PointerType()  # to a vector, or to a number
        return address

    def of_lane(self, pointer: Typed, index: Along, lane: int) -> ir.Value:
        """The address of an element of a vector whose elements do not lie side by side."""
        place = self.builder.add(index.first, self.builder.mul(index.step, word(lane)))
        return self.builder.gep(pointer.value, [place])

    def accessed(self, pointer: Typed, access: Access | None) -> None:
        """Note how an array is read or written; None is one element for all."""
        name = pointer.value.name
        if self.accesses.setdefault(name, access) != access:
            raise TypeError(f"{name} is read along the row, and not along it, or in two ways")
