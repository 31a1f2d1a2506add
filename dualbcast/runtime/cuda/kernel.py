"""Compiled CUDA kernels: their machine code, what the assembler says of it, and where they are kept. To make them needs
no GPU; to launch them does (`launch`).
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dualbcast import disk_cache
from dualbcast.codegen.cuda import build as cuda_build
from dualbcast.codegen.cuda.kernel_shell import THREADS_PER_BLOCK
from dualbcast.codegen.cuda.occupancy import block_size, occupancy
from dualbcast.codegen.cuda.sass import Instructions, count
from dualbcast.errors import BackendError, MissingDependencyError
from dualbcast.kernel_spec import KernelSource, packed, unpacked


@dataclass(frozen=True, eq=False)
class CudaKernel:
    """A compiled kernel, and the figures that the assembler reports.

    `cc` is the compute capability, (major, minor), of the machine code, `image` the cubin. `spill_stores` and
    `spill_loads` are the bytes that each thread writes to and reads from local memory for want of `registers`; `stack`
    is the bytes of local memory of a thread, `shared` those of shared memory of a block. `functions` has the loaded
    kernel of each device.
    """

    source: KernelSource = field(repr=False)
    cc: tuple[int, int]
    fastmath: bool
    image: bytes = field(repr=False)
    registers: int
    spill_stores: int
    spill_loads: int
    stack: int
    shared: int
    functions: dict[int, Any] = field(default_factory=dict, init=False, repr=False)

    @property
    def block(self) -> int:
        """The largest number of threads of a block in a launch of the kernel."""
        # What is summed must not depend on the machine: there the blocks follow from the sizes.
        return THREADS_PER_BLOCK if self.source.summed else block_size(self.cc, self.registers)

    def occupancy(self, threads: int | None = None) -> float:
        """The theoretical occupancy with this number of threads in a block, by default `block`."""
        return occupancy(self.cc, self.registers, threads or self.block, self.shared)

    def ptx(self) -> str:
        """The PTX of the whole kernel, with the element function inlined. Each call compiles it anew."""
        linked, _ = cuda_build.build(self.source, self.cc, self.fastmath, ptx=True)
        return linked.decode().rstrip("\0")

    def instructions(self) -> Instructions:
        """The counts of the machine instructions, by kind; nvdisasm must be installed."""
        return count(self.sass())

    def sass(self) -> str:
        """The disassembled machine code; nvdisasm must be installed."""
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "kernel.cubin")
            path.write_bytes(self.image)
            command = [disassembler(), "--print-code", str(path)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BackendError(f"nvdisasm cannot read the compiled kernel: {done.stderr.strip()}")
        return done.stdout


def compile_kernel(source: KernelSource, cc: tuple[int, int], fastmath: bool = False) -> CudaKernel:
    """The kernel of a text; see `compile_program`."""
    return compile_program("", lambda: source, cc, fastmath)


def compile_program(key: str, write: Callable[[], KernelSource], cc: tuple[int, int], fastmath: bool) -> CudaKernel:
    """The kernel of a program, from this process, or the cache on disk, or compiled. No GPU and no driver is needed.

    `key` stands for the program and its layout; if it is empty, the text that `write` gives does. The machine code also
    runs on later minor revisions of the compute capability.

    `fastmath` allows approximate float32 arithmetic: division, square roots, exp, log, log2, log10, sin, cos and tanh
    lose their last digits, and numbers below 2**-126 count as zero. tanh loses most: by the PTX manual its relative
    error reaches 2**-11, and 1 - tanh(x)**2 keeps no digits near saturation. NaN and infinity keep their meaning;
    float64 is not affected.

    A `MissingDependencyError` says that Numba-CUDA or cuda.core is not installed; a `BackendError`, that the installed
    CUDA compiler does not know the compute capability, or refuses the kernel.
    """
    if not key:
        text = write()
        key, write = text.identity, lambda: text

    def make() -> bytes:
        source = write()
        image, log = cuda_build.build(source, cc, fastmath)
        return packed(source, json.dumps(cuda_build.resources(log)).encode() + b"\n" + image)

    toolchain = cuda_build.toolchain()
    entry = disk_cache.key("cuda", key, disk_cache.STAMP, f"{cc[0]}.{cc[1]}", repr(bool(fastmath)), toolchain)
    kernel = _kernels.get(entry)
    if kernel is None:
        source, code = unpacked(KernelSource, disk_cache.fetch(entry, make))
        resources, _, image = code.partition(b"\n")
        made = CudaKernel(source=source, cc=cc, fastmath=fastmath, image=image, **json.loads(resources))
        kernel = _kernels.setdefault(entry, made)
    return kernel


# One object for equal programs, so that a device loads them once.
_kernels: dict[str, CudaKernel] = {}


def disassembler() -> str:
    """The path of nvdisasm, from its wheel or a CUDA toolkit."""
    purpose, install = "Showing machine code", "nvidia-cuda-nvdisasm"
    pathfinder = cuda_build.optional("cuda.pathfinder", "cuda-pathfinder", purpose, f"cuda-pathfinder {install}")
    path = pathfinder.find_nvidia_binary_utility("nvdisasm")
    if path is None:
        raise MissingDependencyError("nvdisasm", purpose, install)
    return str(path)
