"""The GPU side of CUDA kernels, all through CuPy: which device there is, the launch, and the fast path from arrays of
known forms straight to it.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import or_
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dualbcast.codegen.cuda.build import optional
from dualbcast.errors import BackendError, MissingDependencyError
from dualbcast.kernel_spec import Layout
from dualbcast.runtime import profiling
from dualbcast.runtime.arguments import Array, Operands
from dualbcast.runtime.cuda.grid import launch_shape, reduction_grid
from dualbcast.runtime.cuda.kernel import CudaKernel
from dualbcast.runtime.cuda.memory import reserve, shared_block
from dualbcast.runtime.launch_plan import FastPath, Plan, aside_of, fresh

# Bytes of the widest access to memory, which are also what it must be aligned to.
_WIDEST_ACCESS = 16


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
    """The compute capability, (major, minor), of CuPy's current device."""
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


def launch(kernel: CudaKernel, sizes: Sequence[int], strides: Sequence[int], pointers: Sequence[Any]) -> None:
    """Start a kernel on the current stream of CuPy's current device, and do not wait for it.

    `sizes` are the coalesced dimensions, outermost first; `strides` are the run-time strides in elements, class by
    class, outermost first. Where a thread takes several elements, arrays must suit it (`fits`). `pointers` are device
    addresses of the inputs and then the outputs; of a summed output that of its partial sums. Inputs that are numbers
    to the kernel are as `by_value` makes them.

    A `MissingDependencyError` says that CuPy is not installed; a `BackendError`, that there is no driver or no device,
    that the kernel is for another device or for smaller arrays, or that the driver refuses it.
    """
    if 0 not in sizes:
        grid, block, numbers = prepared(kernel, tuple(sizes), tuple(strides))
        given = [np.uint64(each) if isinstance(each, int) else each for each in pointers]
        loaded(kernel)(grid, block, (*numbers, *given))


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
    if lanes == 1 or sizes[-1] % lanes or functools.reduce(or_, pointers, 0) % _WIDEST_ACCESS:
        return lanes == 1
    return not any(stride % lanes for stride, spans in zip(strides, _grouped(layout), strict=True) if spans)


def loaded(kernel: CudaKernel) -> Any:
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
            function = module.get_function(kernel.source.entry)
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
        if profiling.WANTED:
            title = kernel.source.text.partition("\n")[0].removeprefix("# ")
            function = profiling.Ranged(function, title)
        kernel.functions[device] = function
    return function


class _Ready(NamedTuple):
    """The kernel as it is loaded on a device, its launch, and the bits that no address may have."""

    function: Any
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    ints: tuple[Any, ...]
    mask: int


class CudaFastPath(FastPath):
    """The fast path of calls on CuPy's arrays. Forms do not say where arrays are: there is one path for all devices,
    with the kernel as each has it, also those of the `earlier` path."""

    def __init__(self, planned: Plan, kernel: CudaKernel, results: Any, earlier: FastPath | None) -> None:
        super().__init__(planned, kernel, results, earlier)
        operands, geometry = planned.operands, planned.geometry
        self._converted = tuple([(at, _maker(operands, at)) for at in operands.numbers])
        self._arrays = tuple([at for at in range(len(operands.arrays)) if at not in operands.numbers])
        # Of new outputs that are no sums and not transposed.
        lengths, axes = geometry.memory
        plain = geometry.split is None and axes is None and geometry.total
        self._block = shared_block(lengths, tuple(planned.dtypes)) if plain else None
        device = operands.arrays[self._arrays[0]].data.device_id
        itemsizes = [operands.arrays[at].itemsize for at in self._arrays]
        widest = _WIDEST_ACCESS if kernel.source.layout.lanes > 1 else max(itemsizes)
        launch = prepared(kernel, geometry.sizes, geometry.strides)
        self._ready: dict[int, _Ready] = dict(earlier._ready) if isinstance(earlier, CudaFastPath) else {}
        self._ready[device] = _Ready(kernel.functions[device], *launch, widest - 1)

    def run(self, values: tuple[Array, ...], out: tuple[Array, ...] = ()) -> Sequence[Array] | None:
        cupy = sys.modules["cupy"]
        arrays: Sequence[Array] = values
        if self._converted:
            every = list(values)
            try:
                for at, make in self._converted:
                    every[at] = make(every[at])
            except OverflowError:
                return None  # the longer way has a message for it
            arrays, values = [values[at] for at in self._arrays], tuple(every)
        device, bits = arrays[0].data.device_id, 0
        for x in (*arrays, *out):
            memory = x.data
            if memory.device_id != device:
                return None
            bits |= memory.ptr
        ready = self._ready.get(device)
        if ready is None or bits & ready.mask:
            return None
        if cupy.cuda.runtime.getDevice() == device:
            return self._launch(cupy, ready, values, out)
        with cupy.cuda.Device(device):
            return self._launch(cupy, ready, values, out)

    def _launch(
        self, cupy: Any, ready: _Ready, values: tuple[Any, ...], out: tuple[Array, ...]
    ) -> Sequence[Array] | None:
        outputs: Sequence[Array]
        targets: Sequence[Any]
        if self._fit is None and self._block is not None:
            outputs = reserved = reserve(self._block)
            targets = reserved.pointers
        elif self._fit is None:
            outputs, targets = fresh(self.geometry, self.dtypes, self._compute, cupy)
        else:
            if aside_of(self._fit, tuple([0 if isinstance(x, np.generic) else x.data.ptr for x in (*values, *out)])):
                return None
            outputs = targets = out
        # CuPy takes an array, or memory, for an address, faster than a number.
        ready.function(ready.grid, ready.block, (*ready.ints, *values, *targets))
        return outputs if self._shapes is None else self.finished(outputs, targets)


def _maker(operands: Operands, at: int) -> Callable[[Any], Any]:
    """A function from a number to the argument that `by_value` would make of it."""
    dtype = operands.arrays[at].dtype
    if isinstance(operands.signature.tokens[at], type):
        make: Callable[[Any], Any] = dtype.type
        return make
    return (lambda number: number.view(np.uint16)) if dtype.name == "bfloat16" else (lambda number: number)
