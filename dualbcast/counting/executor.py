"""Runs a CUDA kernel where there is no GPU: its PTX, as the compilers made and optimised it, translated to C.

What an instruction means is in `executor.c`, after the manual (PTX ISA 9.0,
docs.nvidia.com/cuda/parallel-thread-execution). An instruction that is not known there is an error. So are accesses
outside the arrays that a kernel was given and misaligned ones.
"""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dualbcast.counting.operands import PtxError
from dualbcast.counting.translation import translate
from dualbcast.disk_cache import write_whole
from dualbcast.errors import MissingDependencyError

# The translation uses extensions that gcc and clang have.
COMPILER = shutil.which("gcc") or shutil.which("clang")
HEAD = Path(__file__).with_suffix(".c")
_FLAGS = ("-std=gnu11", "-O1", "-fno-strict-aliasing", "-ffp-contract=off", "-fwrapv", "-U_FORTIFY_SOURCE", "-w")


def block_of(array: np.ndarray) -> tuple[int, int]:
    """The address and the size of the memory of an array, whatever its strides."""
    low, high = np.lib.array_utils.byte_bounds(array)
    return low, high - low


def compiler() -> str:
    """The C compiler, or a MissingDependencyError."""
    if COMPILER is None:
        raise MissingDependencyError("a C compiler (gcc or clang)", "Counting without a GPU", "gcc", "sudo apt install")
    return COMPILER


def compiled(text: str) -> bytes:
    """The shared library of a C program."""
    command = [compiler(), *_FLAGS, "-shared", "-fPIC", "-x", "c", "-", "-lm", "-o"]
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "kernel.so")
        done = subprocess.run([*command, str(made)], input=text, capture_output=True, text=True, check=False)
        if done.returncode:
            raise PtxError(f"the translation does not compile:\n{done.stderr[:4000]}")
        return made.read_bytes()


_REPORT = 256  # as in `executor.c`


class Kernel:
    """A kernel of a PTX text, to be launched on host memory.

    Where `may_end` is set, threads may end before a barrier that others wait at, as the hardware lets them.
    """

    def __init__(self, ptx: str, entry: str, folder: Path, may_end: bool = False) -> None:
        text, self.sizes, waits, self.most = self.translated(ptx, entry)
        self.together = waits * (1 + may_end)
        name = hashlib.sha256(text.encode()).hexdigest()[:24]
        self.path = folder / f"{name}.so"
        if not self.path.exists():  # or another process has made it
            write_whole(self.path, self.library_of(text))

    def library_of(self, text: str) -> bytes:
        """The shared library of the C program."""
        return compiled(text)

    def translated(self, ptx: str, entry: str) -> tuple[str, list[int], bool, int]:
        """All of the C program, and what `translate` says of the kernel."""
        text, sizes, waits, most = translate(ptx, entry)
        return f"{HEAD.read_text()}\n{text}\nstatic void block_done(u32 count) {{}}\n", sizes, waits, most

    def library(self) -> ctypes.CDLL:
        """The compiled program."""
        return ctypes.CDLL(str(self.path))

    def __call__(
        self, grid: Sequence[int], block: Sequence[int], arguments: Sequence[bytes], blocks: Sequence[tuple[int, int]]
    ) -> None:
        """Run the kernel; `blocks` are the addresses and sizes of the memory that it may touch."""
        if [len(each) for each in arguments] != self.sizes:
            raise PtxError(f"arguments of {[len(a) for a in arguments]} bytes for parameters of {self.sizes}")
        if block[0] * block[1] * block[2] > self.most:
            raise PtxError(f"blocks of {block} threads, of {self.most} at most")
        held = [ctypes.create_string_buffer(each, len(each)) for each in arguments]
        pointers = (ctypes.c_void_p * len(held))(*map(ctypes.addressof, held))
        known = (ctypes.c_ulonglong * (2 * len(blocks)))(*(number for each in blocks for number in each))
        report = ctypes.create_string_buffer(_REPORT)
        triple = ctypes.c_uint * 3
        launch = self.library().launch
        if launch(triple(*grid), triple(*block), self.together, pointers, known, len(blocks), report):
            raise PtxError(report.value.decode())
