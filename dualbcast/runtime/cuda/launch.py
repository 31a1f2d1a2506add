"""The GPU side of CUDA kernels: which device there is, how a kernel's threads are laid out on it, and the launch, all
through CuPy.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from functools import lru_cache
from operator import or_
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualbcast.codegen.cuda.build import optional
from dualbcast.codegen.cuda.kernel_shell import THREADS_PER_BLOCK
from dualbcast.codegen.cuda.occupancy import WARP
from dualbcast.errors import BackendError, MissingDependencyError
from dualbcast.kernel_spec import Layout
from dualbcast.runtime.cuda.grid import MAX_GRID_X, MAX_GRID_YZ, reduction_grid
from dualbcast.runtime.cuda.kernel import CudaKernel

# Bytes of the widest access to memory, which are also what it must be aligned to.
WIDEST_ACCESS = 16


def why_not() -> str:
    """Why kernels cannot be launched here, and what to do about it; empty if they can."""
    try:
        cupy = _cupy()
    except MissingDependencyError as error:
        return str(error)
    try:
        if cupy.cuda.runtime.getDeviceCount():
            return ""
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"The NVIDIA driver does not answer ({error}). Install one that is as new as the CUDA packages."
    return "The NVIDIA driver finds no GPU. Check that one is attached and that CUDA_VISIBLE_DEVICES does not hide it."


def available() -> bool:
    """Whether kernels can be launched here: CuPy is installed, and a driver and a GPU answer."""
    return not why_not()


def current_cc() -> tuple[int, int]:
    """The compute capability, (major, minor), of CuPy's current device.

    Raises
    ------
    MissingDependencyError
        If CuPy is not installed.
    BackendError
        If there is no driver or no device.
    """
    cupy = _cupy()
    return _device_cc(cupy, _device(cupy))


def _cupy() -> Any:
    return optional("cupy", "CuPy", "Running a kernel on a GPU")


def _device(cupy: Any) -> int:
    try:
        return int(cupy.cuda.runtime.getDevice())
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise BackendError(f"No kernel can run on a GPU here. {why_not() or error}") from error


@lru_cache
def _device_cc(cupy: Any, device: int) -> tuple[int, int]:
    digits = cupy.cuda.Device(device).compute_capability  # "90", "120"
    return int(digits[:-1]), int(digits[-1])


def launch(
    kernel: CudaKernel,
    total: int,
    sizes: Sequence[int],
    strides: Sequence[int],
    pointers: Sequence[Any],
    stream: Any = None,
) -> None:
    """Start a kernel on CuPy's current device, and return without waiting for it.

    Parameters
    ----------
    kernel : CudaKernel
        Compiled for this device's compute capability or an earlier minor revision of it.
    total : int
        How many elements there are, the product of `sizes`. If there are none nothing is launched.
    sizes : sequence of int
        The coalesced dimensions, outermost first. Where a thread takes several elements, arrays must suit it (`fits`).
    strides : sequence of int
        The run-time strides in elements, class by class, outermost first.
    pointers : sequence of int or numpy.generic
        Device addresses of the inputs and then the outputs; of a summed output that of its partial sums. Inputs that
        are numbers to the kernel are as `by_value` makes them.
    stream : cupy.cuda.Stream, optional
        Where to launch it; by default CuPy's current stream.

    Raises
    ------
    MissingDependencyError
        If CuPy is not installed.
    BackendError
        If there is no driver or no device, if the kernel is for another device or for smaller arrays, or if the driver
        refuses it.
    """
    if total == 0:
        return
    grid, block, numbers = prepared(kernel, tuple(sizes), tuple(strides))
    given = [np.uint64(each) if isinstance(each, int) else each for each in pointers]
    _loaded(kernel)(grid, block, (*numbers, *given), stream=stream)


def by_value(number: NDArray[Any]) -> Any:
    """A 0-d array's number as CuPy passes it to a kernel: a NumPy scalar of as many bytes as the kernel takes."""
    return (number.view(np.uint16) if number.dtype.name == "bfloat16" else number)[()]


@lru_cache(maxsize=4096)
def prepared(
    kernel: CudaKernel, sizes: tuple[int, ...], strides: tuple[int, ...]
) -> tuple[tuple[int, int, int], tuple[int, int, int], tuple[Any, ...]]:
    """The grid, the block and the arguments before the pointers: all of a launch that does not change between calls."""
    layout = kernel.source.layout
    total = math.prod(sizes)
    if total > 2**31 - 1 and not layout.wide:
        raise BackendError(f"{total} elements are too many for a kernel with 32-bit indices.")
    size_type, index_type = (np.int64, np.int64) if layout.wide else (np.uint32, np.int32)
    if layout.lanes > 1:
        sizes = (*sizes[:-1], sizes[-1] // layout.lanes)
        steps = _grouped(layout)
        strides = tuple(
            [stride // layout.lanes if spans else stride for stride, spans in zip(strides, steps, strict=True)]
        )
    span: tuple[Any, ...] = ()
    if kernel.source.summed:
        sums = reduction_grid(sizes)
        span, grid, block = (size_type(sums.span),), sums.grid, sums.block
    else:
        grid, block = launch_shape(sizes, kernel.block)
    numbers = (*map(size_type, sizes), *span, *map(index_type, strides))
    return grid, block, numbers


@lru_cache
def _grouped(layout: Layout) -> tuple[bool, ...]:
    """For each run-time stride whether its class spans the innermost dimension, and so is in groups of elements."""
    return tuple([pattern[-1] == "1" for pattern in layout.classes for kind in pattern if kind == "s"])


def fits(layout: Layout, sizes: tuple[int, ...], strides: tuple[int, ...], pointers: Sequence[int]) -> bool:
    """Whether arrays suit a kernel whose threads take `layout.lanes` elements: whole groups, on their boundaries."""
    lanes = layout.lanes
    if lanes == 1 or sizes[-1] % lanes or functools.reduce(or_, pointers, 0) % WIDEST_ACCESS:
        return lanes == 1
    return not any(stride % lanes for stride, spans in zip(strides, _grouped(layout), strict=True) if spans)


def _loaded(kernel: CudaKernel) -> Any:
    """The kernel as a function on the current device; it keeps its module loaded."""
    cupy = _cupy()
    device = _device(cupy)
    function = kernel.functions.get(device)
    if function is None:
        have, need = _device_cc(cupy, device), kernel.cc
        if have[0] != need[0] or have[1] < need[1]:
            raise BackendError(
                f"The kernel is compiled for compute capability {need[0]}.{need[1]}, this GPU has {have[0]}.{have[1]}."
            )
        try:
            module = cupy.cuda.function.Module()
            module.load(kernel.image)
            function = module.get_function(kernel.entry)
        except cupy.cuda.driver.CUDADriverError as error:
            if "OUT_OF_MEMORY" in str(error):
                raise BackendError(
                    f"The GPU has no memory left for a kernel's code: {error}. Delete arrays, and give back what CuPy "
                    "keeps: cupy.get_default_memory_pool().free_all_blocks()"
                ) from error
            if "STREAM_CAPTURE" in str(error):
                raise BackendError(
                    f"The kernel is loaded at its first call, and not while a stream is captured: {error}. Make the "
                    "call once before the capture, with arrays of the same forms and alignment."
                ) from error
            driver = cupy.cuda.runtime.driverGetVersion()
            raise BackendError(
                f"The NVIDIA driver (for CUDA {driver // 1000}.{driver % 1000 // 10}) refuses the kernel: {error}.\n"
                'Update the driver, or install packages that suit it: pip install "dualbcast[cuda12]"'
            ) from error
        kernel.functions[device] = function
    return function


@lru_cache(maxsize=4096)
def launch_shape(
    sizes: tuple[int, ...], threads: int = THREADS_PER_BLOCK
) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """The grid and the block over `sizes`: the innermost dimension along x, all others together along y and z.

    The block, of `threads` at most, is the largest of those that leave, to a tenth, the fewest lanes of their warps
    without an element along x; where the innermost dimension is short, several rows share a block and its warps.

    Examples
    --------
    >>> launch_shape((1_000_000,))
    ((3907, 1, 1), (256, 1, 1))
    >>> launch_shape((1000, 3))  # 85 rows of 3 in a block
    ((1, 12, 1), (3, 85, 1))
    >>> launch_shape((512, 64, 320))
    ((5, 8192, 1), (64, 4, 1))
    """
    inner, outer = sizes[-1], math.prod(sizes[:-1])
    candidates = [(x, min(threads // x, outer)) for x in (256, 128, 64, 32, inner) if x <= threads]
    x, y = max(candidates, key=lambda block: (round(_used(inner, *block), 1), block[0] * block[1], block[0]))
    columns, rows = -(-inner // x), -(-outer // y)
    depth = -(-rows // MAX_GRID_YZ)
    grid = (columns, -(-rows // depth), depth)
    if columns > MAX_GRID_X or depth > MAX_GRID_YZ:
        raise BackendError(f"An iteration space of {' x '.join(map(str, sizes))} is too large for one launch.")
    return grid, (x, y, 1)


def _used(inner: int, x: int, y: int) -> float:
    """The share of the lanes of a row of blocks that have an element along x."""
    return inner * y / (-(-inner // x) * -(-x * y // WARP) * WARP)
