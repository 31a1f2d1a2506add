"""Launches of kernels by XLA on NVIDIA GPUs: as `xla` for the CPU. Nothing is summed by a kernel here; XLA does that.

CuPy loads the kernel on each GPU that JAX has, in the context that JAX uses as well, and a handler of machine code
launches it on the stream that XLA gives.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from functools import cache, lru_cache

import numpy as np

from dualbcast import disk_cache
from dualbcast.codegen.cuda.build import optional
from dualbcast.codegen.llvm.target import LOCK
from dualbcast.codegen.loops.xla_cuda import CUDA_LAUNCH, write_cuda_handler
from dualbcast.errors import BackendError
from dualbcast.interop.xla import Launch, Prepared, Result, kept, signature_of, strides_of, symbols, table
from dualbcast.program.element import Element, cuda_kernel_for
from dualbcast.program.products import TypedProduct
from dualbcast.runtime.arguments import DType
from dualbcast.runtime.cpu.loader import compiled, keep_forever
from dualbcast.runtime.cuda import launch as cuda_launch
from dualbcast.runtime.iteration_space import Geometry, lay_out

# XLA's arrays begin at a multiple of this many bytes.
_ALIGNMENT = 16


@lru_cache(maxsize=4096)
def prepare(
    element: Element,
    arguments: tuple[tuple[tuple[int, ...], DType], ...],
    dtypes: tuple[DType, ...],
    compute: str,
    devices: tuple[int, ...],
    cc: tuple[int, int],
) -> Prepared:
    """The outputs of an element function, and the launch that computes them, as `xla.prepare`; for GPUs of these
    numbers, which are of the compute capability `cc`."""
    signature = signature_of(element, tuple([dtype for _, dtype in arguments]), compute)
    spec = element.typed("parts", (), signature, dtypes)
    stored = [place[0] for place, block in spec.product.blocks.items() if block.stored is not None]
    forms = tuple([(shape, strides_of(shape, dtype.itemsize), dtype) for shape, dtype in arguments])
    geometry = lay_out(forms, (None,) * len(stored), element.names, None, "cuda")
    outputs: list[tuple[tuple[int, ...], DType, int | float]] = []
    for (at,), block in spec.product.blocks.items():
        place = block.constant if block.stored is None else stored.index(at) if geometry.total else 0.0
        outputs.append((geometry.shape, dtypes[at], place))
    launch = _launch(spec, geometry, devices, cc) if stored and geometry.total else None
    return Prepared(tuple(outputs), launch, (), geometry.shape)


def _launch(spec: TypedProduct, geometry: Geometry, devices: Sequence[int], cc: tuple[int, int]) -> Launch:
    """The launch of a kernel, which is compiled and loaded."""
    layout = spec.wide(geometry.layout)
    if not cuda_launch.fits(layout, geometry.sizes, geometry.strides, ()):
        layout = geometry.layout
    kernel = cuda_kernel_for(spec, layout, cc)
    lengths, axes = geometry.memory
    results = tuple([Result(lengths, dtype, axes) for dtype in spec.dtypes])
    content = kernel.source.identity, kernel.fastmath, cc, geometry, results
    name = int(disk_cache.key("xla on cuda", *map(repr, content))[:16], 16) - (1 << 63)
    with LOCK:
        if name in table().launches:
            return Launch(name, results)
    cupy = optional("cupy", "CuPy", "A kernel on a GPU")
    handles = np.zeros(max(devices) + 1, np.int64)
    for device in devices:
        with cupy.cuda.Device(device):
            function = cuda_launch.loaded(kernel)
        keep_forever(function)
        handles[device] = function.ptr
    grid, block, numbers = cuda_launch.prepared(kernel, geometry.sizes, geometry.strides)
    values = {
        "functions": kept(handles),
        "devices": len(handles),
        **dict(zip(("grid_x", "grid_y", "grid_z"), grid, strict=True)),
        **dict(zip(("block_x", "block_y", "block_z"), block, strict=True)),
        "addresses": kept(np.array([kept(np.array([number])) for number in numbers], np.int64)),
        "numbers": len(numbers),
        "pointers": len(kernel.source.inputs) + len(kernel.source.outputs),
        "arguments": len(kernel.source.inputs),
        "mask": _ALIGNMENT - 1 if kernel.source.layout.lanes > 1 else 0,
    }
    with LOCK:
        if name not in table().launches:
            table().add(name, [values[each] for each in CUDA_LAUNCH])
    return Launch(name, results)


@cache
def handler() -> int:
    """The address of the handler."""
    library = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        driver = ctypes.CDLL(library).cuLaunchKernel
    except OSError:
        raise BackendError(f"the NVIDIA driver is missing: there is no {library}") from None
    return handler_with(ctypes.cast(driver, ctypes.c_void_p).value or 0)


def handler_with(launch_kernel: int) -> int:
    """The address of a handler that calls a function at this address, in the place of cuLaunchKernel."""
    elsewhere = (*symbols(), ("launch_kernel", launch_kernel))
    with LOCK:
        return compiled("cuda_handler", write_cuda_handler, optimise=True, elsewhere=elsewhere)
