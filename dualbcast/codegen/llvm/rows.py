"""A row of elements as LLVM code: one by one, or by calls of functions of vectors, for whole ones and for the first and
last elements.

In a function of whole vectors the values that are the same for the row are computed before the loop, and of a branch
that is the same for the row there are two loops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from llvmlite import ir

from dualbcast.codegen.llvm.arrays import Along, load_masked, store_masked
from dualbcast.codegen.llvm.body import Body, Element
from dualbcast.codegen.llvm.names import Names, Uses, names_in, names_of, uses
from dualbcast.codegen.llvm.polling import Countdown
from dualbcast.codegen.llvm.unit import Unit
from dualbcast.codegen.loops import LINE
from dualbcast.codegen.loops.builder import Function, Pointer, Variable, size_of
from dualbcast.codegen.values import INDEX, TYPES, Lanes, Value, word
from dualbcast.ir.nodes import Block, If, Load, Stmt
from dualbcast.ir.traversal import all_expressions, atoms, statements

# The symbols of the functions of whole vectors and of the first and last elements.
WHOLE, EDGE = "dualbcast_whole", "dualbcast_edge"
# The most statements, over all loops, that one loop may become for the sake of branches.
_MOST_STATEMENTS = 1024


class Row(NamedTuple):
    """A row of elements.

    The index of an element is, in each class of the layout: the offset, where there is one; and for a class that goes
    along the row the element's place in it, times the stride, where there is one.
    """

    offsets: tuple[Value | None, ...]
    strides: tuple[Value | None, ...]
    # The inputs and the outputs; in the place of sums their terms, whose index is the place, or a sum for each lane.
    pointers: tuple[Pointer, ...]


@dataclass(eq=False)
class RowWriter:
    """Writes the elements of rows of a kernel, which are computed in vectors if the unit's `lanes` say so."""

    unit: Unit
    # By symbol, the functions of vectors.
    _functions: dict[str, Function] = field(default_factory=dict)

    def __post_init__(self) -> None:
        spec = self.unit.program.spec
        self.function, layout = self.unit.program.function, spec.layout
        inputs = len(spec.inputs)
        self.arrays = [param.name for param in self.function.params] + [output.name for output in self.function.outputs]
        terms = {inputs + position for position in spec.summed}
        self.storages = [
            spec.dtype if at in terms else dtype
            for at, dtype in zip(range(len(layout.which)), spec.inputs + spec.outputs, strict=False)
        ]
        # Of each array the class of its index; None for terms.
        self.classes = [None if at in terms else which for at, which in enumerate(layout.which)]
        self.patterns = [pattern[-1] for pattern in layout.classes]
        # Vectors add the terms of a sum over the row to a vector with a sum for each lane, which stays in a register.
        # Beside an output that is no sum they do not: its address says where vectors begin, and so what a lane adds.
        # Nor do they in float32, where converting each vector to float64 at once takes as long as storing it.
        is_double = spec.dtype == "float64"
        has_lanes = self.unit.lanes > 0 and is_double and len(terms) == len(self.function.outputs)
        of_row = [at for at in sorted(terms) if has_lanes and self.patterns[layout.which[at]] == "0"]
        self.lane_sums = {self.arrays[at]: at for at in of_row}
        for at in of_row:
            self.storages[at] = "float64"
        along = [which is None or self.patterns[which] != "0" for which in self.classes]
        self.along = {name for name, is_along in zip(self.arrays, along, strict=True) if is_along}
        self.lanes = self.unit.lanes * self.unit.vectors
        self._size = len(statements(self.function.body))
        self._uses: dict[int, Uses] = {}
        self._sums: dict[str, Variable] = {}

    @cached_property
    def names(self) -> Names:
        return names_of(self.function, self.along if self.lanes else set())

    def write(self, f: Function, row: Row, first: Value, end: Value, countdown: Countdown | None) -> None:
        """The elements of a row from the first one to the end."""
        if self.lanes:
            self._call_parts(f, row, first, end, countdown)
            return
        at_end = None if countdown is None else lambda leave: countdown.iterate(self.unit.units, leave)
        with f.range(first, end, at_end=at_end, is_scalar=True) as place:
            body = Body(self.unit, f, self.names, 0, countdown)
            self._place(body, row, place)
            body.block(self.function.body)
            self._store(body, {})

    def _store(self, body: Body, sums: Mapping[str, Variable]) -> None:
        for output in self.function.outputs:
            if output.name in sums:
                total, term = sums[output.name], body.expression(output.value).to("float64").spread(body.lanes)
                # Vectors side by side add to the same lanes: there are registers for as many sums.
                term = term.halved(self.unit.lanes) if body.mask is None else body.mask.choose(term, 0.0)
                total.value = total.value + term
            else:
                body.store(output)

    def _place(self, body: Body, row: Row, place: Value, streamed: bool = False) -> None:
        """Tell a body where the element of a place of the row is, or the vector of elements from there on."""
        indices: list[Value | Along] = []
        for pattern, offset, stride in zip(self.patterns, row.offsets, row.strides, strict=True):
            if pattern == "0":
                indices.append(place.constant(0) if offset is None else offset)
                continue
            index = place if stride is None else place * stride
            index = index if offset is None else index + offset
            indices.append(Along(index, stride) if self.lanes else index)
        term = Along(place, None) if self.lanes else place
        streams = self.unit.streamed if streamed else ()
        body.arrays = {
            name: Element(pointer, term if which is None else indices[which], storage, at in streams)
            for at, (name, pointer, which, storage) in enumerate(
                zip(self.arrays, row.pointers, self.classes, self.storages, strict=True)
            )
        }

    # --- calls of functions of vectors ---------------------------------------------------------------------------

    def _call_parts(self, f: Function, row: Row, first: Value, end: Value, countdown: Countdown | None) -> None:
        """Calls of the function of whole vectors, and of the one of the elements at both ends."""
        given = [each for each in (*row.offsets, *row.strides) if each is not None] + self._handed_over(row.pointers)
        if countdown is not None:
            given.append(countdown.left)
        if not self._functions:
            self._shape = [[each is not None for each in part] for part in (row.offsets, row.strides)]
            self._kinds = [f"*{each.kind}" if isinstance(each, Pointer) else "int64" for each in given]
            self._functions[WHOLE] = whole = self._write_whole(WHOLE, streamed=True)
            # Copies on the stack are read at once: stores to them do not go past the cache.
            if self.lane_sums:
                self._functions[EDGE] = self._write_whole(EDGE, streamed=False, masked=True)
            else:
                plain = self._write_whole(f"{WHOLE}_plain", streamed=False) if self.unit.streamed else whole
                self._functions[EDGE] = self._write_edge(plain)
        low = self._next_line(first, end, row)
        high = low + ((end - low) & -self.lanes)
        if self.lane_sums:
            # Whole vectors write the sums, and the others add to them.
            with f.if_(low >= high):
                for at in self.lane_sums.values():
                    row.pointers[at][0] = self._no_sums(f)
        for symbol, start, stop in ((EDGE, first, low), (WHOLE, low, high), (EDGE, high, end)):
            if start is not stop:
                with f.if_(start < stop):
                    f.call(self._functions[symbol], start, stop, *given)

    def room_for_sums(self, f: Function) -> dict[int, Pointer]:
        """Memory for the sums of lanes, side by side, by the position of the array."""
        room = f.room(len(self.lane_sums) * self.unit.lanes, "float64", LINE)
        return {at: room.at(number * self.unit.lanes) for number, at in enumerate(self.lane_sums.values())}

    def _handed_over(self, pointers: Sequence[Pointer]) -> list[Pointer]:
        """The pointers that a function of vectors gets: the first one of the sums of lanes stands for all."""
        others = [*self.lane_sums.values()][1:]
        return [pointer for at, pointer in enumerate(pointers) if at not in others]

    def _no_sums(self, f: Function) -> Value:
        return Value(f.builder, ir.Constant(Lanes(TYPES["float64"], self.unit.lanes), 0.0))

    def _next_line(self, first: Value, end: Value, row: Row) -> Value:
        """The element of a row at which a vector of the first output that is no sum begins with a line of the cache;
        the first element itself if the row has few elements, or if vectors are no lines. Of these outputs the first one
        with elements side by side counts, if there is one: only its vectors can be stored past the cache."""
        inputs = len(self.function.params)
        pairs = zip(row.pointers[inputs:], self.classes[inputs:], strict=True)
        outputs = [(pointer, which) for pointer, which in pairs if which is not None]
        outputs.sort(key=lambda pair: row.strides[pair[1]] is not None)
        pointer, which = outputs[0] if outputs else (None, 0)
        # Else the next line may be many vectors away.
        if pointer is None or which is None or size_of(pointer.kind) * self.lanes < LINE:
            return first
        offset, stride = row.offsets[which], row.strides[which]
        index = first if stride is None else first * stride
        address = pointer.at(index if offset is None else index + offset).address()
        low = first + (-address & (LINE - 1)) // size_of(pointer.kind)
        return (end - first > 8 * self.lanes).choose(low, first)

    def _given(self, f: Function) -> tuple[Value, Value, Row, Countdown | None]:
        """The parameters of a function of vectors: the first element, the one after the last, and the row."""
        low, high, *given = f.parameters
        rest = iter(given)
        offsets, strides = (tuple([next(rest) if there else None for there in part]) for part in self._shape)
        pointers: list[Pointer] = []
        sums = [*self.lane_sums.values()]
        for at, name in enumerate(self.arrays):
            if at in sums[1:]:
                pointers.append(pointers[sums[0]].at(sums.index(at) * self.unit.lanes))
            else:
                pointers.append(next(rest))
                pointers[-1].value.name = name
        left = next(rest, None)
        return low, high, Row(offsets, strides, tuple(pointers)), None if left is None else Countdown(f, left)

    # --- functions of vectors ------------------------------------------------------------------------------------

    def _write_whole(self, symbol: str, streamed: bool, masked: bool = False) -> Function:
        """The function of a positive multiple of `lanes` elements; or of any number, one masked vector at a time."""
        f = self.unit.function(symbol, ["int64", "int64", *self._kinds])
        low, _, row, around = self._given(f)
        countdown = None if around is None else around.copied()
        body = Body(self.unit, f, self.names, self.unit.lanes if masked else self.lanes, countdown)
        self._place(body, row, low)
        after = f.builder.append_basic_block()
        self._sums = {}
        for name, at in self.lane_sums.items():
            before = row.pointers[at].vector(0, self.unit.lanes) if masked else self._no_sums(f)
            self._sums[name] = f.variable(before)
        self._is_masked = masked
        self._write_loops(body, row, streamed, after, self.function.body, 1)
        f.builder.position_at_end(after)
        for name, at in self.lane_sums.items():
            row.pointers[at][0] = self._sums[name].value
        if around is not None and countdown is not None:
            countdown.copy_to(around)
        f.return_()
        self.unit.take_liberties(f)
        return f

    def _write_loops(
        self, body: Body, row: Row, streamed: bool, after: ir.Block, block: Sequence[Stmt], loops: int
    ) -> None:
        """A loop of these statements, or several, which go on to `after`."""
        is_small = 2 * loops * self._size <= _MOST_STATEMENTS
        inside: list[Stmt] = []
        varying, mentioned = set(self.along), set[str]()
        for position, stmt in enumerate(block):
            names, assigned = self._uses_of(stmt)
            if varying.isdisjoint(names) and mentioned.isdisjoint(assigned):
                body.block((stmt,))
                continue
            if is_small and isinstance(stmt, If):
                test = names_in([stmt.test])
                if varying.isdisjoint(test) and self.names.varying.isdisjoint(test):
                    builder, before, rest = body.builder, body.values, block[position + 1 :]
                    sides = [builder.append_basic_block() for _ in range(2)]
                    builder.cbranch(body.expression(stmt.test).value, *sides)
                    for side, taken in zip(sides, (stmt.then, stmt.orelse), strict=True):
                        builder.position_at_end(side)
                        body.values = dict(before)
                        self._write_loops(body, row, streamed, after, [*inside, *taken, *rest], 2 * loops)
                    return
            inside.append(stmt)
            varying |= assigned
            mentioned |= names
        self._write_loop(body, row, streamed, after, tuple(inside))

    def _uses_of(self, stmt: Stmt) -> Uses:
        if id(stmt) not in self._uses:
            self._uses[id(stmt)] = uses((stmt,))
        return self._uses[id(stmt)]

    def _write_loop(self, body: Body, row: Row, streamed: bool, after: ir.Block, block: Block) -> None:
        builder = body.builder
        low, high = body.f.parameters[:2]
        before, start = builder.block, builder.append_basic_block()
        builder.branch(start)
        builder.position_at_end(start)
        first = builder.phi(INDEX)
        first.add_incoming(low.value, before)
        self._place(body, row, Value(builder, first), streamed)
        if self._is_masked:
            body.mask = (high - Value(builder, first)).first_lanes(body.lanes)
        body.block(block)
        self._store(body, self._sums)
        again = Value(builder, builder.add(first, word(body.lanes), flags=["nsw"]))
        if body.countdown is not None:
            with body.f.if_(again >= high):
                builder.branch(after)
            body.countdown.iterate(self.unit.units, lambda: builder.branch(after))
            builder.branch(start)
        else:
            builder.cbranch((again < high).value, start, after)
        first.add_incoming(again.value, builder.block)

    def _write_edge(self, whole: Function) -> Function:
        """The function of at most `lanes` elements; its parameters are those of `whole`.

        It copies the elements to the stack, calls `whole`, and copies back: the same instructions compute all elements.
        """
        f, lanes = self.unit.function(EDGE, ["int64", "int64", *self._kinds]), self.lanes
        low, high, row, around = self._given(f)
        # With signs, and as wide as most elements are: AVX2 has masks of such numbers, and no other comparison.
        mask = (high - low).to("int32" if self.unit.program.spec.dtype == "float32" else "int64").first_lanes(lanes)
        body = Body(self.unit, f, self.names, lanes, None)
        self._place(body, row, low)
        # On the stack all arrays begin with the first of the elements, which lie side by side.
        here = [
            None if each is None else each.constant(0) if kind != "0" else each
            for kind, each in zip(self.patterns, row.offsets, strict=True)
        ]
        side_by_side = [None if each is None else each.constant(1) for each in row.strides]
        loaded = {leaf.name for e in all_expressions(self.function) for leaf in atoms(e) if isinstance(leaf, Load)}
        outputs = {output.name for output in self.function.outputs}
        handed = list(row.pointers)
        stored: list[tuple[Pointer, Along, ir.Value]] = []
        for at, name in enumerate(self.arrays):
            pointer, index, *_ = body.arrays[name]
            if not isinstance(index, Along) or name not in loaded | outputs:
                continue
            with f.builder.goto_entry_block():
                place = f.builder.alloca(Lanes(TYPES[pointer.kind], lanes))
            place.align = LINE
            handed[at] = Pointer(f.builder, place, pointer.kind)
            if name in outputs:
                stored.append((pointer, index, place))
            else:
                f.builder.store(load_masked(pointer, index, mask).value, place, align=LINE)
        given = [each for each in (*here, *side_by_side) if each is not None] + handed
        f.call(whole, low.constant(0), low.constant(lanes), *given, *([] if around is None else [around.left]))
        for pointer, index, place in stored:
            store_masked(pointer, index, mask, Value(f.builder, f.builder.load(place, align=LINE)))
        f.return_()
        return f
