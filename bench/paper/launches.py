"""Launches of kernels as a GPU would get them, on arrays of the host: to be counted, where there is no GPU."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.paper import by_hand
from dualbcast.counting.counter import CountedKernel, Counts, Memory
from dualbcast.counting.devices import Device
from dualbcast import disk_cache
from dualbcast.codegen.cuda import build as cuda_build
from dualbcast.codegen.cuda.build import optional
from dualbcast.codegen.cuda.occupancy import occupancy
from dualbcast.errors import BackendError
from dualbcast.runtime.cuda.grid import launch_shape
from dualbcast.runtime.cuda.kernel import CudaKernel
from dualbcast.runtime.cuda.launch import prepared

__all__ = [
    "Launch",
    "address_of",
    "by_hand_cell",
    "by_hand_product",
    "capability_for",
    "count_together",
    "known_capabilities",
    "own",
    "placed",
]

Array = NDArray[Any]


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
        The arguments: those before the arrays, and those that have the addresses of arrays.
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
        kernel = _kernel(self.ptx, self.entry)
        return kernel.count(self.grid, self.block, (*self.numbers, *self.pointers), memory or Memory(self.arrays))

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


@functools.lru_cache(maxsize=256)
def _kernel(ptx: str, entry: str) -> CountedKernel:
    return CountedKernel(ptx, entry, _folder())


@functools.cache
def _folder() -> Path:
    """Where the translations are kept: they are as good for the next run."""
    path = disk_cache.directory() / "ptx"
    path.mkdir(parents=True, exist_ok=True)
    return path


def capability_for(device: Device) -> tuple[int, int]:
    """The capability to compile for: that of the device, or the next one that the installed compiler knows.

    CUDA 13 does not compile for 7.0 any more. The next one is 7.5, whose PTX is the same for these kernels, but not the
    registers.
    """
    known = known_capabilities()
    later = sorted(cc for cc in known if cc >= device.cc)
    if not later:
        raise BackendError(f"The installed CUDA compiler knows no compute capability from {device.cc} on.")
    return later[0]


def known_capabilities() -> list[tuple[int, int]]:
    """Those that NVRTC compiles for."""
    nvrtc = optional("cuda.bindings.nvrtc", "cuda-core", "Compiling a CUDA kernel")
    status, known = nvrtc.nvrtcGetSupportedArchs()
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise BackendError(f"NVRTC does not say which architectures it compiles for: {status}")
    return [divmod(number, 10) for number in known]


def own(
    name: str,
    function: Any,
    arrays: Sequence[Array],
    cc: tuple[int, int],
    wrt: Any = None,
    product: Any = "value",
    cotangents: Sequence[Array] = (),
    like: Launch | None = None,
) -> Launch:
    """The launch for a call of one of our functions.

    Parameters
    ----------
    name : str
    function : BroadcastFunction
    arrays : sequence of arrays
        The arguments; those that do not begin at a multiple of 256 bytes are copied.
    cc : tuple of int
        The compute capability.
    wrt, product
        As for `explain`.
    cotangents : sequence of arrays
        Those of the outputs, for a pullback.
    like : Launch, optional
        One for another capability: where threads have as many elements its PTX is taken, and not made anew.
    """
    call = function._inspected(tuple(arrays), wrt, product)
    kernel, planned = call.cuda_kernel(cc), call.plan
    if planned.geometry.packing is not None or planned.geometry.split is not None:
        raise ValueError(f"{name}: a call that packs or sums is launched in another way")
    grid, block, numbers = prepared(kernel, planned.geometry.sizes, planned.geometry.strides)
    # In the place of the cotangents the call has empty arrays.
    inputs = (*planned.operands.arrays[: len(planned.operands.arrays) - len(cotangents)], *cotangents)
    places = tuple(map(placed, (*inputs, *planned.targets)))
    return Launch(
        name,
        like.ptx if like is not None and like.lanes == kernel.source.layout.lanes else _text(kernel),
        kernel.source.entry,
        grid,
        block,
        tuple(number.tobytes() for number in numbers),
        tuple(map(address_of, places)),
        places,
        kernel.registers,
        kernel.source.layout.lanes,
    )


def _text(kernel: CudaKernel) -> str:
    """A kernel's PTX, which to make anew takes as long as to compile it."""
    key = disk_cache.key("PTX", hashlib.sha256(kernel.image).hexdigest(), cuda_build.toolchain())
    return disk_cache.fetch(key, lambda: kernel.ptx().encode()).decode()


def by_hand_cell(
    name: str, arrays: Sequence[Array], results: int, cc: tuple[int, int], width: int, entry: str
) -> Launch:
    """The launch of a kernel by hand of the cell update; the arguments are as for `by_hand.launch_cell`."""
    rows, columns = arrays[0].shape
    places = (*map(placed, arrays), *(placed(np.empty_like(arrays[0])) for _ in range(results)))
    grid, block = launch_shape((rows, -(-columns // width)))
    numbers = (np.uint32(rows), np.uint32(columns), np.int32(columns), np.int32(1))
    kernel = by_hand.compile_by_hand(entry, cc, width)
    text = by_hand.ptx_by_hand(entry, cc, width)
    bits = tuple(number.tobytes() for number in numbers)
    return Launch(name, text, entry, grid, block, bits, tuple(map(address_of, places)), places, kernel.registers, width)


def by_hand_product(name: str, arrays: Sequence[Array], cc: tuple[int, int], width: int, entry: str) -> Launch:
    """The launch of a kernel by hand of the product; the arguments are as for `by_hand.launch_product`."""
    arity, size = len(arrays), arrays[0].size
    inputs = tuple(map(placed, arrays))
    outputs = tuple(placed(np.empty_like(arrays[0])) for _ in range(arity + 1))
    grid, block = launch_shape((-(-size // width),))
    kernel = by_hand.compile_by_hand(entry, cc, width, arity)
    text = by_hand.ptx_by_hand(entry, cc, width, arity)
    packed = tuple(b"".join(map(address_of, group)) for group in (inputs, outputs))
    places = (*inputs, *outputs)
    return Launch(name, text, entry, grid, block, (np.uint32(size).tobytes(),), packed, places, kernel.registers, width)


def placed(array: Array) -> Array:
    """The array, or a copy of it that begins where an allocation of a GPU does."""
    return array if array.ctypes.data % 256 == 0 else Memory.aligned(array)


def address_of(array: Array) -> bytes:
    """The address of an array, as an argument."""
    return np.uint64(array.ctypes.data).tobytes()
