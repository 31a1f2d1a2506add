"""Kernels written by hand in CUDA C++ : compiled by NVRTC, without a GPU, and launched through CuPy."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache as once
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from dualbcast import disk_cache
from dualbcast.codegen.cuda import build as cuda_build
from dualbcast.codegen.cuda.build import optional
from dualbcast.errors import BackendError
from dualbcast.runtime.cuda.grid import launch_shape

__all__ = ["HandKernel", "compile_by_hand", "launch_cell", "launch_product", "ptx_by_hand"]

_CELL = Path(__file__).with_name("experiment_kernels.cu")
_PRODUCT = Path(__file__).parents[1] / "reference_kernels.cu"


@dataclass(frozen=True, eq=False)
class HandKernel:
    """A compiled kernel.

    Attributes
    ----------
    name : str
        Its name in the source.
    width, arity : int
        Elements a thread; factors of the product.
    image : bytes
        The cubin.
    registers, spill_bytes : int
        The counts that the assembler reports.
    """

    name: str
    width: int
    arity: int
    image: bytes = field(repr=False)
    registers: int
    spill_bytes: int

    @property
    def label(self) -> str:
        """A name that tells it from other kernels."""
        return f"{self.name}, {self.width} a thread"


@lru_cache(maxsize=256)
def compile_by_hand(name: str, cc: tuple[int, int], width: int, arity: int = 1) -> HandKernel:
    """Compile one of the kernels, or take it from the cache.

    Parameters
    ----------
    name : str
        `product_…` of `reference_kernels.cu`, or another of either file.
    cc : tuple of int
        The compute capability.
    width, arity : int
        Elements a thread; factors of the product.
    """
    file = _PRODUCT if name.startswith("product") else _CELL
    core = optional("cuda.core", "cuda-core", "Compiling kernels written by hand")
    texts = [path.read_text(encoding="utf-8") for path in (_PRODUCT, _CELL)]  # one includes the other
    version = str(core.__version__)

    def make() -> bytes:
        options = core.ProgramOptions(
            arch=f"sm_{cc[0]}{cc[1]}",
            define_macro=[("WIDTH", str(width)), ("ARITY", str(arity))],
            include_path=[str(_PRODUCT.parent)],
            ptxas_options=["-v"],
        )
        log = io.StringIO()
        image = core.Program(file.read_text(encoding="utf-8"), "c++", options).compile("cubin", logs=log)
        return json.dumps(_resources(log.getvalue())).encode() + b"\n" + bytes(image.code)

    key = disk_cache.key("by hand", file.name, *texts, f"{cc}", f"{width}", f"{arity}", version)
    resources, _, image = disk_cache.fetch(key, make).partition(b"\n")
    registers, spills = json.loads(resources)[name]
    return HandKernel(name, width, arity, image, registers, spills)


@lru_cache(maxsize=256)
def ptx_by_hand(name: str, cc: tuple[int, int], width: int, arity: int = 1) -> str:
    """The PTX of a kernel; the arguments are those of `compile_by_hand`.

    By NVRTC itself: cuda.core asks the driver whether it can load the PTX, and there may be none.
    """
    file = _PRODUCT if name.startswith("product") else _CELL
    nvrtc = optional("cuda.bindings.nvrtc", "cuda-core", "Compiling kernels written by hand")
    texts = [path.read_text(encoding="utf-8") for path in (_PRODUCT, _CELL)]
    options = [f"-arch=sm_{cc[0]}{cc[1]}", f"-DWIDTH={width}", f"-DARITY={arity}", f"-I{_PRODUCT.parent}"]

    def checked(status: Any, *results: Any) -> Any:
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise BackendError(f"NVRTC does not compile {name}: {status}")
        return results[0] if results else None

    def make() -> bytes:
        program = checked(*nvrtc.nvrtcCreateProgram(texts[file == _CELL].encode(), file.name.encode(), 0, [], []))
        checked(*nvrtc.nvrtcCompileProgram(program, len(options), [each.encode() for each in options]))
        text = bytearray(checked(*nvrtc.nvrtcGetPTXSize(program)))
        checked(*nvrtc.nvrtcGetPTX(program, text))
        return bytes(text)

    key = disk_cache.key("PTX by hand", file.name, *texts, *options[:-1], cuda_build.toolchain())
    return disk_cache.fetch(key, make).decode().rstrip("\0")


def _resources(log: str) -> dict[str, tuple[int, int]]:
    """For each kernel its registers and the bytes it spills, from the log of `ptxas -v`."""
    resources = {}
    for part in log.split("Compiling entry function '")[1:]:
        counts = [re.search(pattern, part) for pattern in (r"Used (\d+) registers", r"(\d+) bytes spill stores")]
        loads = re.search(r"(\d+) bytes spill loads", part)
        registers, stores, loaded = (int(match[1]) if match else 0 for match in (*counts, loads))
        resources[part.partition("'")[0]] = (registers, stores + loaded)
    return resources


@once
def _function(kernel: HandKernel, _device: int) -> Any:
    """The kernel, loaded on the device of that number, the current one."""
    cupy = optional("cupy", "CuPy", "Running a kernel on a GPU")
    module = cupy.cuda.function.Module()
    module.load(kernel.image)
    return module.get_function(kernel.name)


def _launch(kernel: HandKernel, sizes: tuple[int, ...], arguments: Sequence[Any]) -> None:
    cupy = optional("cupy", "CuPy", "Running a kernel on a GPU")
    grid, block = launch_shape((*sizes[:-1], -(-sizes[-1] // kernel.width)))
    _function(kernel, cupy.cuda.runtime.getDevice())(grid, block, tuple(arguments))


def launch_cell(kernel: HandKernel, arrays: Sequence[Any], out: Sequence[Any]) -> None:
    """Launch a kernel of the cell update: arrays (n, n) of float32, the controls (n, 1), the columns whole threads."""
    rows, columns = arrays[0].shape
    sizes = [np.uint32(rows), np.uint32(columns), np.int32(columns), np.int32(1)]
    pointers = [np.uint64(array.data.ptr) for array in (*arrays, *out)]
    _launch(kernel, (rows, columns), (*sizes, *pointers))


def launch_product(kernel: HandKernel, arrays: Sequence[Any], out: Sequence[Any]) -> None:
    """Launch a kernel of the product: contiguous arrays of float32, of one size; the value and then the partials."""
    packed = []
    for group in (arrays, out):
        # CuPy passes a NumPy array of one element by value: the structure that the kernel takes.
        structure = np.zeros(1, np.dtype([("at", np.uint64, (len(group),))]))
        structure["at"][0] = [array.data.ptr for array in group]
        packed.append(structure)
    _launch(kernel, (arrays[0].size,), (np.uint32(arrays[0].size), *packed))
