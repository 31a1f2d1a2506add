"""Launches of kernels by XLA on the CPU: an element function and the shapes of its arguments come in; out goes the name
of a launch, by which a handler of machine code finds it.

The handler is reached through XLA's foreign function interface. A name follows from the launch alone, so a program that
XLA keeps on disk has the same name in another process, and runs once that process has prepared the launch.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from dualbcast import disk_cache
from dualbcast.codegen.llvm.target import LOCK
from dualbcast.codegen.loops import places_of
from dualbcast.codegen.loops.calls import write_call
from dualbcast.codegen.loops.xla import LAUNCH, SUM, write_handler
from dualbcast.program.element import Element
from dualbcast.program.products import TypedProduct
from dualbcast.runtime.arguments import DType, Signature
from dualbcast.runtime.cpu import kernel as cpu_kernel
from dualbcast.runtime.cpu.kernel import CpuKernel, aligned_bounds
from dualbcast.runtime.cpu.loader import compiled, keep_forever
from dualbcast.runtime.cpu.pieces import block_work, panel_work
from dualbcast.runtime.iteration_space import Form, Geometry, Shapes, lay_out
from dualbcast.runtime.reduction_blocks import Sum, least_of

# The most pieces of a call.
_MOST_PIECES = 64
# The slots of the first table; a table with more names than half of its slots is replaced by one twice as long.
_FIRST_SLOTS = 256
_ERRORS = {
    "unknown": "this program calls a kernel of dualbcast that this process has not prepared: programs that were "
    "compiled ahead of time or exported cannot call one. Trace the function again in this process",
    "failed": "a kernel of dualbcast failed",
    "misaligned": "an array is not aligned for a kernel of dualbcast",
    "no_memory": "there is no memory for the sums of a kernel of dualbcast",
}


class Result(NamedTuple):
    """An array that XLA allocates for a launch, and how an output is made of it: by a transposition, where there are
    `axes`, and a change of shape."""

    shape: tuple[int, ...]
    dtype: DType
    axes: tuple[int, ...] | None = None


class Launch(NamedTuple):
    """A launch that the handler finds by its `name`, and the array of each stored output."""

    name: int
    results: tuple[Result, ...]


class Prepared(NamedTuple):
    """The outputs of a call: for each its shape and dtype, and its place among the results of the launch, or the number
    that it is everywhere. There is no launch where all are numbers, or there are no elements. Arguments at the
    positions `expanded` are to be broadcast to `shape` first."""

    outputs: tuple[tuple[tuple[int, ...], DType, int | float], ...]
    launch: Launch | None
    expanded: tuple[int, ...]
    shape: tuple[int, ...]


@lru_cache(maxsize=4096)
def prepare(
    element: Element,
    arguments: tuple[tuple[tuple[int, ...], DType], ...],
    dtypes: tuple[DType, ...],
    shapes: Shapes,
    compute: str,
) -> Prepared:
    """The outputs of an element function, and the launch that computes them, from contiguous arrays.

    `arguments` are their shapes and dtypes; `dtypes` and `shapes` are as for `Element.prepare`. `compute` is the dtype
    of the arithmetic.
    """
    signature = signature_of(element, tuple([dtype for _, dtype in arguments]), compute)
    spec = element.typed("parts", (), signature, dtypes)
    blocks = spec.product.blocks
    stored = [place[0] for place, block in blocks.items() if block.stored is not None]
    sums = None if shapes is None else tuple([shapes[at] for at in stored])
    geometry, expanded = _geometry(arguments, len(stored), element.names, sums, spec)
    outputs: list[tuple[tuple[int, ...], DType, int | float]] = []
    for (at,), block in blocks.items():
        shape = geometry.shape if shapes is None or (own := shapes[at]) is None else own
        terms = geometry.total // max(1, math.prod(shape))
        # (A sum of no terms is zero.)
        number = block.constant * terms if block.stored is None else 0.0
        is_number = block.stored is None or not geometry.total
        outputs.append((shape, dtypes[at], float(number) if is_number else stored.index(at)))
    launch = _launch(spec, geometry) if stored and geometry.total else None
    return Prepared(tuple(outputs), launch, expanded, geometry.shape)


def signature_of(element: Element, dtypes: tuple[DType, ...], compute: str) -> Signature:
    """The signature of arrays of these dtypes, with arithmetic in the dtype `compute`."""
    kinds = tuple([param.kind for param in element.function.params])
    return Signature(dtypes, kinds, tuple([dtype.name for dtype in dtypes]), np.dtype(compute), compute, True)


def _geometry(
    arguments: Sequence[tuple[tuple[int, ...], DType]],
    outputs: int,
    names: tuple[str, ...],
    sums: Shapes,
    spec: TypedProduct,
) -> tuple[Geometry, tuple[int, ...]]:
    """The geometry of a launch on contiguous arrays, and the arguments that are broadcast for it: those of which a
    kernel that sums would need contiguous copies, which XLA can make."""
    least, expanded = least_of(spec.product.work), tuple[int, ...]()
    while True:
        forms: list[Form] = []
        shape = np.broadcast_shapes(*[shape for shape, _ in arguments]) if expanded else ()
        for at, (own, dtype) in enumerate(arguments):
            lengths = shape if at in expanded else own
            forms.append((lengths, strides_of(lengths, dtype.itemsize), dtype))
        counts = any(dtype.kind in "biu" for dtype in spec.dtypes)
        geometry = lay_out(tuple(forms), (None,) * outputs, names, sums, "cpu", least, counts)
        if geometry.packing is None or geometry.split is None or not geometry.split.blocks:
            return geometry, expanded
        expanded = (*expanded, *geometry.packing.inputs)


def strides_of(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """The strides of a contiguous array."""
    return tuple([itemsize * math.prod(shape[axis + 1 :]) for axis in range(len(shape))])


def _launch(spec: TypedProduct, geometry: Geometry) -> Launch:
    """The launch of a kernel, which is compiled."""
    # XLA's threads must not wait for the interpreter, which may wait for them.
    make = partial(cpu_kernel.compile_program, fastmath=spec.options.fastmath, detached=True)
    kernel: CpuKernel = spec.kernel("cpu", geometry.layout, make, "detached")
    sums: Sequence[Sum | None] = (None,) * len(spec.dtypes) if geometry.split is None else geometry.split.sums
    results = [_result(geometry, dtype, s) for dtype, s in zip(spec.dtypes, sums, strict=True)]
    content = kernel.key, geometry, results
    name = int(disk_cache.key("xla", *map(repr, content))[:16], 16) - (1 << 63)
    with LOCK:
        if name not in table().launches:
            table().add(name, _numbers(kernel, geometry, sums, least_of(spec.product.work)))
    return Launch(name, tuple(results))


def _result(geometry: Geometry, dtype: DType, s: Sum | None) -> Result:
    """The array that the handler writes for an output."""
    if s is None:
        lengths, axes = geometry.memory
        return Result(lengths, dtype, axes)
    # The handler stores float32 or float64.
    axes = None if s.axes == tuple(range(len(s.axes))) else s.axes
    return Result(s.lengths, dtype if dtype.itemsize == 8 else np.dtype(np.float32), axes)


def _numbers(kernel: CpuKernel, geometry: Geometry, sums: Sequence[Sum | None], least: int) -> list[int]:
    """The table of a launch, see `codegen.loops.xla.LAUNCH`; what it points to stays for ever."""
    inputs, count = len(kernel.spec.inputs), len(kernel.itemsizes)
    split, packing = geometry.split, geometry.packing
    zeros, room = [0] * (2 * count), 0
    if split is not None and split.blocks:
        assert packing is None
        work = block_work(kernel.address(geometry.total), kernel.itemsizes, split, zeros)
        function, rows = work.address, work.arguments.reshape(work.count, -1)
    elif packing is not None:
        address = kernel.address(geometry.total, tuple([at for at, _ in packing.sums]))
        work = panel_work(address, kernel.itemsizes, packing, geometry.ints, zeros, 1)
        count += sum(kernel.itemsizes[at] == 8 for at, _ in packing.sums)
        function, rows, room = work.address, work.arguments.reshape(work.count, -1), work.room
    else:
        pieces = min(_MOST_PIECES, max(1, geometry.total // least))
        bounds = aligned_bounds(geometry.total, geometry.sizes[-1], pieces)
        function = kernel.address(geometry.total)
        rows = np.zeros((len(bounds) - 1, 2 + len(geometry.ints) + count), np.int64)
        rows[:, 0], rows[:, 1] = bounds[:-1], bounds[1:]
        rows[:, 2 : 2 + len(geometry.ints)] = geometry.ints
    summed = [(at, s) for at, s in enumerate(sums) if s is not None]
    terms = [kernel.itemsizes[at] for at, _ in packing.sums] if packing is not None and packing.sums else []
    is_compensated = 8 in terms if terms else kernel.spec.dtype == "float64"
    places = places_of([8 * s.total for _, s in summed] * (2 if is_compensated else 1))
    first = {at: places[number] for number, (at, _) in enumerate(summed)}
    rests = places[len(summed) : -1]
    sources = [*range(inputs), *[-1 - first[at] if at in first else inputs + at for at in range(len(sums))]]
    # A kernel that writes the sums of whole rows leaves the rounding errors at zero.
    sources += [] if geometry.layout.whole_rows else [-1 - place for place in rests]
    assert len(sources) == count
    sum_rows = np.zeros((len(summed), len(SUM)), np.int64)
    for number, (at, s) in enumerate(summed):
        rest = rests[number] if rests else -1
        groups, length = (1, s.size) if s.folds == 1 else (s.size // s.length, s.length)
        sum_rows[number] = first[at], rest, at, groups, s.folds, length, s.copies
    values = {
        "caller": compiled("call", write_call, rows.shape[1]),
        "function": function,
        "count": len(rows),
        "length": rows.shape[1],
        "rows": kept(rows),
        "pointers": count,
        "room": room,
        "arguments": inputs,
        "sources": kept(np.array(sources, np.int64)),
        "accumulators": places[-1],
        "sum_count": len(summed),
        "sums": kept(sum_rows),
    }
    return [values[name] for name in LAUNCH]


def kept(array: Any) -> int:
    """The address of an array that stays in the process."""
    array = np.ascontiguousarray(array)
    keep_forever(array)
    return int(array.ctypes.data)


# --- the handler ------------------------------------------------------------------------------------------------------


class Table:
    """The launches of this process by name, in memory that the handler reads while others are added: an entry is
    complete before its address is stored, and a table that is replaced stays."""

    def __init__(self) -> None:
        self.root = np.zeros(1, np.int64)
        self.launches: dict[int, int] = {}
        self.slots = _FIRST_SLOTS
        self._replace()
        keep_forever(self.root)

    def add(self, name: int, numbers: Sequence[int]) -> None:
        """Add a launch, whose table has these numbers."""
        self.launches[name] = kept(np.array(numbers, np.int64))
        if 2 * len(self.launches) > self.slots:
            self.slots *= 2
            self._replace()
        else:
            self._enter(self.memory, name, self.launches[name])

    def _replace(self) -> None:
        self.memory = np.zeros(1 + 2 * self.slots, np.int64)
        self.memory[0] = self.slots - 1
        for name, address in self.launches.items():
            self._enter(self.memory, name, address)
        self.root[0] = kept(self.memory)

    def _enter(self, memory: Any, name: int, address: int) -> None:
        slot = name & (self.slots - 1)
        while memory[2 + 2 * slot]:
            slot = (slot + 1) & (self.slots - 1)
        memory[1 + 2 * slot] = name
        memory[2 + 2 * slot] = address


@cache
def table() -> Table:
    """The launches of this process."""
    return Table()


@cache
def handler() -> int:
    """The address of the handler."""
    with LOCK:
        return compiled("handler", write_handler, optimise=True, elsewhere=symbols())


@cache
def symbols() -> tuple[tuple[str, int], ...]:
    """The symbols that handlers use, by name: the table, and the texts of errors."""
    texts = {name: ctypes.create_string_buffer(text.encode()) for name, text in _ERRORS.items()}
    for text in texts.values():
        keep_forever(text)
    addresses = {name: ctypes.addressof(text) for name, text in texts.items()}
    return ("table", int(table().root.ctypes.data)), *addresses.items()
