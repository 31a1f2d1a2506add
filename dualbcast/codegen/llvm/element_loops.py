"""The function of a kernel that is called from outside: the loops over rows, and those that sum.

It handles the linear indices in [start, stop) of the coalesced space, so that any split over threads is right. Where
outputs are sums it covers the whole space, tile by tile of a row. Vectors add the terms of a sum over the row up in
registers. Other terms go to memory of a tile. The sums of a tile are then added to the accumulators, or to those of the
row, which are written at its end. The order of the additions is fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from llvmlite import ir

from dualbcast.codegen.llvm.polling import Countdown
from dualbcast.codegen.llvm.rows import Row, RowWriter
from dualbcast.codegen.llvm.target import KERNEL
from dualbcast.codegen.llvm.unit import Unit
from dualbcast.codegen.loops.builder import Function, Module, Pointer, Variable
from dualbcast.codegen.loops.calls import add, rounded
from dualbcast.codegen.values import INDEX, TYPES, Lanes, Value, lane_sums, word
from dualbcast.kernel_spec import PANEL, tile_length

# The most terms that a lane adds up without compensation: with 128 a sum has an error of 1e-15 of its terms' size.
_TERMS_OF_A_LANE = 128


def write_entry(unit: Unit) -> None:
    """Write the kernel, whose symbol is `KERNEL`. It returns a status, and its pointers do not overlap."""
    spec = unit.program.spec
    layout, bounds = spec.layout, 0 if spec.summed else 2
    integers = bounds + layout.rank + layout.stride_count
    f = unit.function(KERNEL, [*["int64"] * integers, *unit.pointers()], "int32")
    numbers, pointers = f.parameters[bounds:integers], f.parameters[integers:]
    sizes, flat = numbers[: layout.rank], iter(numbers[layout.rank :])
    strides = [{at: next(flat) for at, kind in enumerate(pattern) if kind == "s"} for pattern in layout.classes]
    entry = _Entry(unit, f, sizes, strides, pointers)
    if spec.summed:
        entry.sum()
    elif layout.rank == 1:
        entry.row(f.parameters[0], f.parameters[1], [None] * len(strides))
    else:
        entry.rows(f.parameters[0], f.parameters[1])
    if entry.countdown is None:
        f.return_(0)
    else:
        entry.countdown.end()
    unit.take_liberties(f)


class _Entry:
    """Writes the kernel. `strides` has for each class those given at run time, by dimension."""

    def __init__(
        self, unit: Unit, f: Function, sizes: Sequence[Value], strides: Sequence[dict[int, Value]], pointers: Any
    ) -> None:
        self.unit, self.f, self.sizes, self.strides, self.pointers = unit, f, sizes, strides, pointers
        self.countdown = Countdown.begin(f) if unit.polls else None
        self.layout = unit.program.spec.layout
        self.last = self.layout.rank - 1
        self.inputs = len(unit.program.spec.inputs)
        self.writer = RowWriter(unit)
        # Only these classes are indexed by the element function.
        self.indexed = self.layout.indexed(self.inputs)

    def at_end(self, leave: Callable[[], Any]) -> None:
        """The end of an iteration of a loop around rows."""
        if self.countdown is not None:
            self.countdown.iterate(self.unit.units, leave)

    def row(
        self, first: Value, end: Value, offsets: Sequence[Value | None], pointers: Sequence[Pointer] | None = None
    ) -> None:
        """The elements of a row from the first one to the end; `offsets` has for each class where the row begins."""
        kept = tuple([offset if at in self.indexed else None for at, offset in enumerate(offsets)])
        strides = tuple([by.get(self.last) if at in self.indexed else None for at, by in enumerate(self.strides)])
        row = Row(kept, strides, tuple(self.pointers if pointers is None else pointers))
        self.writer.write(self.f, row, first, end, self.countdown)

    def begin(self, places: Sequence[Value]) -> list[Value | None]:
        """Where each class is at the beginning of the row at these places of the outer dimensions; None for 0."""
        return [_total([places[at] * stride for at, stride in by.items() if at != self.last]) for by in self.strides]

    def rows(self, start: Value, stop: Value) -> None:
        """The elements from the start to the stop, row by row."""
        f, length = self.f, self.sizes[self.last]
        # One division is enough; it takes as long as a short row.
        at, row = f.variable(start), f.variable(start // length)
        with f.loop() as leave:
            with f.if_(at.value >= stop):
                leave()
            first = at.value - row.value * length
            end = (first + stop - at.value).at_most(length)
            places: list[Value] = []
            remaining = row.value
            for size in self.sizes[self.last - 1 : 0 : -1]:
                quotient = remaining // size
                places.insert(0, remaining - quotient * size)
                remaining = quotient
            self.row(first, end, self.begin([remaining, *places]))
            at.value = at.value + end - first
            row.value = row.value + 1
            self.at_end(leave)

    # --- sums ----------------------------------------------------------------------------------------------------

    def sum(self) -> None:
        """Add the sums over the whole space to the accumulators, tile by tile of a row; or write those of each row."""
        f, spec = self.f, self.unit.program.spec
        self.is_compensated = spec.dtype == "float64"
        summed = [self.inputs + position for position in spec.summed]
        lane_sums = self.writer.room_for_sums(f) if self.writer.lane_sums else {}
        stored = [at for at in summed if at not in lane_sums]
        tile = tile_length(len(stored), 8 if self.is_compensated else 4)
        if lane_sums:
            tile = min(tile, _TERMS_OF_A_LANE * self.unit.lanes)
        self.terms = {at: f.room(tile, spec.dtype) for at in stored} | lane_sums
        self.lost = dict(zip(summed, self.pointers[len(self.layout.which) :], strict=False))
        pointers = [self.terms.get(at, self.pointers[at]) for at in range(len(self.layout.which))]

        along = [at for at in summed if self.layout.classes[self.layout.which[at]][self.last] != "0"]
        # Sums over the row, those from the lanes of vectors in groups that are added up together.
        together, of_lanes = self.unit.lanes, list(lane_sums)
        groups = [of_lanes[at : at + together] for at in range(0, len(of_lanes), together or 1)]
        groups += [[at] for at in stored if at not in along]

        with self._rows(bool(along)) as (panel, stop, begins):
            totals = [self._zeros(group) for group in groups] if self.layout.whole_rows else []
            with f.range(panel, stop, tile, self.at_end) as first:
                count = (stop - first).at_most(tile)
                offsets = [self._moved(at, begin, first) for at, begin in enumerate(begins)]
                self.row(first.constant(0), count, offsets, pointers)
                if along:
                    with f.range(0, count) as place:
                        for at in along:
                            which = self.layout.which[at]
                            index = self._moved(which, offsets[which], place)
                            assert index is not None
                            self._add(at, index, self.terms[at][place])
                for number, group in enumerate(groups):
                    term = self._sum_of_tile(group, count)
                    if totals:
                        _add_to(*totals[number], term)
                        continue
                    for at, each in zip(group, _numbers_of(term), strict=False):
                        self._add(at, self._place_of_sum(at, begins), each)
            for group, (total, lost) in zip(groups, totals, strict=False):
                sums = total.value if lost is None else rounded(total.value, lost.value)
                for at, each in zip(group, _numbers_of(sums), strict=False):
                    self.pointers[at][self._place_of_sum(at, begins)] = each

    def _zeros(self, group: Sequence[int]) -> tuple[Variable, Variable | None]:
        """Sums of a row, and their rounding errors where they are compensated."""
        length = 1 << (len(group) - 1).bit_length()
        kind = Lanes(TYPES["float64"], length) if group[0] in self.writer.lane_sums.values() else TYPES["float64"]
        zero = Value(self.f.builder, ir.Constant(kind, 0.0))
        return self.f.variable(zero), self.f.variable(zero) if self.is_compensated else None

    def _sum_of_tile(self, group: Sequence[int], count: Value) -> Value:
        """The sums of the terms of a tile: for those from the lanes of vectors, a vector with them."""
        f, dtype, (first, *_) = self.f, self.unit.program.spec.dtype, group
        if first not in self.writer.lane_sums.values():
            return f.call(f.module.use(_write_sum_terms, self.unit, dtype), self.terms[first], count).to("float64")
        return lane_sums([self.terms[at].vector(0, self.unit.lanes) for at in group])

    def _place_of_sum(self, at: int, begins: Sequence[Value | None]) -> Value:
        begin = begins[self.layout.which[at]]
        return Value(self.f.builder, word(0)) if begin is None else begin

    def _add(self, at: int, place: Value, term: Value) -> None:
        """Add a term to an accumulator."""
        sums, term = self.pointers[at], term.to("float64")
        if self.is_compensated:
            sums[place], self.lost[at][place] = add(sums[place], self.lost[at][place], term)
        else:
            sums[place] = sums[place] + term

    def _moved(self, which: int, begin: Value | None, place: Value) -> Value | None:
        """The index of a class so many places of the row after its beginning."""
        if self.layout.classes[which][self.last] == "0":
            return begin
        stride = self.strides[which].get(self.last)
        return _total([*([] if begin is None else [begin]), place if stride is None else place * stride])

    @contextmanager
    def _rows(self, lie_along: bool) -> Iterator[tuple[Value, Value, list[Value | None]]]:
        """Loops over all rows, or parts of them: the first place in the row, the one after the last, and where each
        class begins. `lie_along` says whether accumulators lie along the row."""
        length = self.sizes[self.last]
        with ExitStack() as stack:

            def loop(first: Any, end: Any, step: int = 1) -> Value:
                return stack.enter_context(self.f.range(first, end, step, self.at_end))

            panel, stop = length.constant(0), length
            if self.last and lie_along:
                # The next row comes after a panel, so that accumulators stay in the second-level cache.
                panel = loop(0, length, PANEL)
                stop = (panel + PANEL).at_most(length)
            yield panel, stop, self.begin([loop(0, size) for size in self.sizes[:-1]])


def _add_to(total: Variable, lost: Variable | None, term: Value) -> None:
    if lost is None:
        total.value = total.value + term
    else:
        total.value, lost.value = add(total.value, lost.value, term)


def _numbers_of(value: Value) -> list[Value]:
    """The elements of a vector, or a number alone."""
    return [value.lane(at) for at in range(value.lanes)] if value.is_vector else [value]


def _total(terms: Sequence[Value]) -> Value | None:
    """The sum of some numbers; None where there are none."""
    total: Value | None = None
    for term in terms:
        total = term if total is None else total + term
    return total


def _write_sum_terms(_module: Module, unit: Unit, dtype: str) -> Function:
    """The sum of a row's first elements in float64, in an order that suits vectors but depends on nothing else: LLVM
    may change the order of its additions."""
    f = unit.inlined("sum_terms", TYPES["float64"], [ir.PointerType(), INDEX], [f"*{dtype}", "int64"])
    terms, count = f.parameters
    total = f.variable(0.0, "float64")
    with f.range(0, count) as place:
        added = total.value + terms[place].to("float64")
        added.value.flags.append("reassoc")
        total.value = added
    f.return_(total.value)
    return f
