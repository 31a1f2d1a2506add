"""Launches of kernels as a GPU would get them, on arrays of the host: to be counted, where there is no GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.paper import by_hand
from dualbcast.codegen.cuda.build import optional
from dualbcast.counting.devices import Device
from dualbcast.counting.launch import Launch, address_of, launch_of, placed, planned_for_gpu, ptx_of
from dualbcast.errors import BackendError
from dualbcast.runtime.cuda.grid import launch_shape

__all__ = [
    "by_hand_cell",
    "by_hand_product",
    "capability_for",
    "known_capabilities",
    "own",
]

Array = NDArray[Any]


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
    # In the place of the cotangents the call has empty arrays.
    operands = call.plan.operands
    inputs = (*operands.arrays[: len(operands.arrays) - len(cotangents)], *cotangents)
    call.plan = planned_for_gpu(call.plan._replace(operands=operands._replace(arrays=inputs)))
    kernel = call.cuda_kernel(cc)
    is_same = like is not None and like.lanes == kernel.source.layout.lanes
    return launch_of(name, kernel, call.plan, like.ptx if like is not None and is_same else ptx_of(kernel))


def by_hand_cell(
    name: str, arrays: Sequence[Array], results: int, cc: tuple[int, int], width: int, entry: str
) -> Launch:
    """The launch of a kernel by hand of the cell update; the arguments are as for `by_hand.launch_cell`."""
    rows, columns = arrays[0].shape
    places = placed((*arrays, *(np.empty_like(arrays[0]) for _ in range(results))))
    grid, block = launch_shape((rows, -(-columns // width)))
    numbers = (np.uint32(rows), np.uint32(columns), np.int32(columns), np.int32(1))
    kernel = by_hand.compile_by_hand(entry, cc, width)
    text = by_hand.ptx_by_hand(entry, cc, width)
    bits = tuple(number.tobytes() for number in numbers)
    return Launch(name, text, entry, grid, block, bits, tuple(map(address_of, places)), places, kernel.registers, width)


def by_hand_product(name: str, arrays: Sequence[Array], cc: tuple[int, int], width: int, entry: str) -> Launch:
    """The launch of a kernel by hand of the product; the arguments are as for `by_hand.launch_product`."""
    arity, size = len(arrays), arrays[0].size
    places = placed((*arrays, *(np.empty_like(arrays[0]) for _ in range(arity + 1))))
    inputs, outputs = places[:arity], places[arity:]
    grid, block = launch_shape((-(-size // width),))
    kernel = by_hand.compile_by_hand(entry, cc, width, arity)
    text = by_hand.ptx_by_hand(entry, cc, width, arity)
    packed = tuple(b"".join(map(address_of, group)) for group in (inputs, outputs))
    return Launch(name, text, entry, grid, block, (np.uint32(size).tobytes(),), packed, places, kernel.registers, width)
