"""Launches of kernels as a GPU would get them, on arrays of the host.

Comes in: a compiled kernel, its PTX, and a plan. Goes out: a `Launch`, which counts.
"""

from __future__ import annotations

import functools
import hashlib
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualbcast import disk_cache
from dualbcast.codegen.cuda import build as cuda_build
from dualbcast.codegen.cuda.occupancy import occupancy
from dualbcast.counting import executor
from dualbcast.counting.counter import ALIGNMENT, CountedKernel, Counts, Memory, Room
from dualbcast.runtime.cuda.kernel import CudaKernel
from dualbcast.runtime.cuda.launch import by_value, prepared
from dualbcast.runtime.iteration_space import form_of, lay_out
from dualbcast.runtime.launch_plan import Plan, fresh

Array = NDArray[Any]
_counting = threading.Lock()  # a translation has one set of counters


@dataclass(frozen=True)
class Launch:
    """A launch of a compiled kernel.

    Attributes
    ----------
    name : str
    ptx, entry : str
        Its text, and its name there.
    grid, block : tuple of int
    numbers, pointers : tuple of bytes
        The arguments: those before the arrays, and those that have the addresses of arrays, or numbers in their place.
    arrays : tuple of arrays
        All that the kernel may touch; those that it writes are at the end.
    registers, lanes : int
        Registers and elements of a thread; 0 where the registers are not known.
    """

    name: str
    ptx: str = field(repr=False)
    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    numbers: tuple[bytes, ...] = field(repr=False)
    pointers: tuple[bytes, ...] = field(repr=False)
    arrays: tuple[Array, ...] = field(repr=False)
    registers: int
    lanes: int

    def count(self, memory: Memory | None = None) -> Counts:
        """Run it, and count; the `memory` of several launches is theirs together."""
        kernel, memory = _counted_kernel(self.ptx, self.entry), memory or Memory(self.arrays)
        with _counting:
            return kernel.count(self.grid, self.block, (*self.numbers, *self.pointers), memory)

    def occupancy(self, cc: tuple[int, int]) -> float:
        """The theoretical occupancy on a GPU of this capability."""
        return occupancy(cc, self.registers, self.block[0] * self.block[1] * self.block[2])


def count_together(launches: Sequence[Launch]) -> tuple[list[Counts], tuple[int, int]]:
    """The counts of launches one after the other, and the sectors that have to be read and written if caches kept all
    that one launch leaves for the next."""
    arrays = {id(array): array for launch in launches for array in launch.arrays}
    memory = Memory(list(arrays.values()))
    counts = [launch.count(memory) for launch in launches]
    return counts, memory.union()


def planned_for_gpu(plan: Plan) -> Plan:
    """The plan that a GPU's arrays of these forms would have, whose arrays are NumPy's, where a GPU has them."""
    operands = plan.operands
    forms, outputs = tuple(map(form_of, operands.arrays)), (None,) * len(plan.dtypes)
    geometry = lay_out(forms, outputs, operands.names, plan.shapes, "cuda")
    results, targets = fresh(geometry, plan.dtypes, operands.signature.compute, np)
    inputs, targets = placed(operands.arrays), tuple(map(_allocated, targets))
    pointers = tuple([array.ctypes.data for array in (*inputs, *targets)])
    results = targets[: len(results)]
    return plan._replace(
        geometry=geometry,
        pointers=pointers,
        outputs=results,
        targets=targets,
        operands=operands._replace(arrays=inputs),
        fit=None,
    )


def launch_of(name: str, kernel: CudaKernel, plan: Plan, ptx: str) -> Launch:
    """The launch of a kernel with the arrays of a plan for a GPU; `ptx` is the kernel's text."""
    source, arrays = kernel.source, (*plan.operands.arrays, *plan.targets)
    grid, block, numbers = prepared(kernel, plan.geometry.sizes, plan.geometry.strides)
    pointers = [
        by_value(array).tobytes() if at in source.layout.values else address_of(array)
        for at, array in enumerate(arrays)
    ]
    bits, places = tuple([number.tobytes() for number in numbers]), tuple(pointers)
    # With an array without axes all that it is a view of: see `_followed`.
    memory = tuple([array if array.ndim else _root(array) for array in arrays])
    return Launch(name, ptx, source.entry, grid, block, bits, places, memory, kernel.registers, source.layout.lanes)


def ptx_of(kernel: CudaKernel) -> str:
    """A kernel's PTX, which to make anew takes as long as to compile it."""
    key = disk_cache.key("PTX", hashlib.sha256(kernel.image).hexdigest(), cuda_build.toolchain())
    return disk_cache.fetch(key, lambda: kernel.ptx().encode()).decode()


def placed(arrays: Sequence[Array]) -> tuple[Array, ...]:
    """The arrays, or copies that lie in memory as on a GPU: what arrays are views of begins where allocations do, and
    they are at the same place in it, with the same strides. So counts do not depend on addresses of this machine."""
    bounds = np.lib.array_utils.byte_bounds
    roots, spans = [_root(array) for array in arrays], dict[int, tuple[int, int]]()
    for array, root in zip(arrays, roots, strict=True):
        low, high = bounds(_followed(array))
        first, last = spans.get(id(root), (low, high))
        spans[id(root)] = min(low, first), max(high, last)
    copies: dict[int, tuple[Room, int]] = {}
    found = []
    for array, root in zip(arrays, roots, strict=True):
        begin, _ = bounds(root)
        if isinstance(root.base, Room) or begin % ALIGNMENT == 0:
            found.append(array)
            continue
        low, high = spans[id(root)]
        if id(root) not in copies:
            room = Room.of(high - low + ALIGNMENT)
            copies[id(root)] = room, (low - begin - room.ctypes.data) % ALIGNMENT
        room, start = copies[id(root)]
        old = _followed(array)
        copy: Array = np.ndarray(old.shape, old.dtype, room, start + old.ctypes.data - low, old.strides)
        copy[...] = old
        found.append(copy if old is array else copy[0, ...])
    return tuple(found)


def _followed(array: Array) -> Array:
    """An array without axes with all that follows it in what it is a view of: it may be the first element of a whole
    array, whose kernels know its length."""
    root = _root(array)
    if array.ndim or root is array:
        return array
    _, end = np.lib.array_utils.byte_bounds(root)
    length = (end - array.ctypes.data) // array.itemsize
    return np.lib.stride_tricks.as_strided(array, (length,), (array.itemsize,), writeable=False)


def _allocated(array: Array) -> Array:
    """A new array of this shape and these strides, which begins where allocations do."""
    low, high = np.lib.array_utils.byte_bounds(array)
    room = Room.of(high - low + ALIGNMENT)
    return np.ndarray(array.shape, array.dtype, room, -room.ctypes.data % ALIGNMENT, array.strides)


def _root(array: Array) -> Array:
    """The array that has the memory of a view; in a room, an array is its own."""
    while isinstance(array.base, np.ndarray) and not isinstance(array.base, Room):
        array = array.base
    return array


def address_of(array: Array) -> bytes:
    """The address of an array, as an argument."""
    return np.uint64(array.ctypes.data).tobytes()


class _Kept(CountedKernel):
    """A kernel whose translation is in the cache on disk once it was compiled."""

    def library_of(self, text: str) -> bytes:
        key = disk_cache.key("counted", text, str(executor.COMPILER))
        return disk_cache.fetch(key, lambda: executor.compiled(text))


@functools.lru_cache(maxsize=256)
def _counted_kernel(ptx: str, entry: str) -> CountedKernel:
    return _Kept(ptx, entry, Path(_folder().name))


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """From where this process loads the translations."""
    return tempfile.TemporaryDirectory(prefix="dualbcast-")
