"""The kernels of `reference_kernels.cu` compiled, and those of dualbcast beside them: instructions and registers.

    python bench/reference_kernels.py            # the table; needs the CUDA compilers and nvdisasm, and no GPU

For a GPU: `by_lanes` gives a call's kernel with 1, 2 and 4 elements a thread, to be timed against each other.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from bench.paper.models import cell_update
from dualbcast import differentiable_broadcast
from dualbcast.cli.checking import product as product_of_tanh
from dualbcast.codegen.cuda import build as cuda_build
from dualbcast.codegen.cuda.sass import Instructions, count
from dualbcast.runtime.cuda import kernel as cuda_kernel
from dualbcast.runtime.cuda import launch as cuda_launch

__all__ = ["CAPABILITIES", "Case", "Reference", "by_lanes", "cases", "compile_reference"]

SOURCE = Path(__file__).with_name("reference_kernels.cu")
CAPABILITIES = ((7, 5), (8, 0), (9, 0), (10, 0))
# Registers are allotted to a warp in units of eight a thread.
UNIT = 8


@dataclass(frozen=True)
class Reference:
    """A kernel of `reference_kernels.cu`.

    Attributes
    ----------
    name : str
        Its name there.
    image : bytes
        The cubin, which has all kernels of the file.
    registers : int
        Registers a thread.
    instructions : Instructions
        Its machine code, counted.
    """

    name: str
    image: bytes
    registers: int
    instructions: Instructions


@dataclass(frozen=True)
class Case:
    """A kernel of dualbcast and the one by hand.

    Attributes
    ----------
    title, name : str
        A description, and its name in `reference_kernels.cu`.
    arity : int
        Of a product; else 2.
    fastmath : bool
        Whether mathematics are approximate.
    compile : callable
        Compiles dualbcast's for a compute capability.
    """

    title: str
    name: str
    arity: int
    fastmath: bool
    compile: Callable[[tuple[int, int]], cuda_kernel.CudaKernel]

    def by_hand(self, cc: tuple[int, int]) -> Reference:
        """The kernel by hand with as many elements a thread as dualbcast's."""
        lanes = self.compile(cc).source.layout.lanes
        return compile_reference(self.name, cc, lanes, self.arity, self.fastmath)


@lru_cache
def _compiled(cc: tuple[int, int], width: int, arity: int, fastmath: bool) -> tuple[bytes, str]:
    """The cubin of the whole file, and all that nvdisasm says of it."""
    from cuda.core import Program, ProgramOptions

    macros: list[Any] = [("WIDTH", str(width)), ("ARITY", str(arity))]
    if fastmath:
        macros.append(("ACCURATE_SLOPE", "1"))
    options = ProgramOptions(arch=f"sm_{cc[0]}{cc[1]}", use_fast_math=fastmath, define_macro=macros)
    image = bytes(Program(SOURCE.read_text(encoding="utf-8"), "c++", options).compile("cubin").code)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "reference.cubin")
        path.write_bytes(image)
        command = [cuda_kernel.disassembler(), str(path)]
        return image, subprocess.run(command, capture_output=True, text=True, check=True).stdout


def compile_reference(
    name: str, cc: tuple[int, int], width: int = 1, arity: int = 2, fastmath: bool = False
) -> Reference:
    """Compile a kernel by hand with NVRTC; no GPU is needed.

    Parameters
    ----------
    name : str
        One of hm_lstm, hm_lstm_pullback, product_forward, product_prefix.
    cc : (int, int)
        The compute capability.
    width : int
        Elements a thread: 1, 2 or 4.
    arity : int
        Of the products.
    fastmath : bool
        --use_fast_math, with a slope of tanh that stays accurate.
    """
    image, text = _compiled(cc, width, arity, fastmath)
    found = re.search(rf"EIATTR_REGCOUNT(?:(?!EIATTR).)*?index@\({name}\)\s+/\*\w+\*/\s+\.word\s+(\w+)", text, re.S)
    if found is None:
        raise ValueError(f"nvdisasm does not say how many registers {name} takes")
    return Reference(name, image, int(found[1], 0), count(text, name))


def cases() -> Iterator[Case]:
    """The kernels that have one by hand."""
    full, row = np.ones((8, 8), np.float32), np.ones((8, 1), np.float32)
    wrt = ("c", "f", "i", "g")
    for fast in (False, True):
        cell = differentiable_broadcast(cell_update, fastmath=fast)
        product = differentiable_broadcast(product_of_tanh, fastmath=fast)
        for name, kind in (("hm_lstm", "value_and_jacobian"), ("hm_lstm_pullback", "vjp")):

            def compile_cell(cc: tuple[int, int], cell: Any = cell, kind: Any = kind) -> cuda_kernel.CudaKernel:
                return cell.explain(*[full] * 4, row, row, wrt=wrt, product=kind, cc=cc).cuda

            yield Case(name, name, 2, fast, compile_cell)
        for arity in (2, 8, 16):

            def compile_product(
                cc: tuple[int, int], product: Any = product, arity: int = arity
            ) -> cuda_kernel.CudaKernel:
                return product.explain(*[full] * arity, cc=cc).cuda

            yield Case(f"product of {arity}", "product_forward", arity, fast, compile_product)


def by_lanes(call: Any, cc: tuple[int, int]) -> dict[int, cuda_kernel.CudaKernel]:
    """The kernel of a call with 1, 2 and 4 elements a thread, those that its arrays suit.

    Parameters
    ----------
    call : dualbcast.program.element.Call
        The result of `function._inspected(arrays, wrt, product)`. Each kernel is launched with
        `cuda.launch(kernel, laid.sizes, laid.strides, call.plan.pointers)` where `laid` is
        `call.plan.geometry`.
    cc : (int, int)
        The compute capability.
    """
    planned, spec = call.plan, call.spec
    kernels = {}
    for lanes in (1, 2, 4):
        layout = planned.geometry.layout._replace(lanes=lanes)
        if lanes == 1 or (
            spec.wide(planned.geometry.layout).lanes > 1
            and cuda_launch.fits(layout, planned.geometry.sizes, planned.geometry.strides, planned.pointers)
        ):
            kernels[lanes] = cuda_kernel.compile_kernel(spec.source(layout, "cuda"), cc, spec.options.fastmath)
    return kernels


def _table() -> None:
    for part in cuda_build.toolchain().splitlines():
        if "==" not in part:
            break
        print(part, end="  ")
    print(
        "\n\n| kernel | mathematics | cc | elements | instructions | by hand | registers | by hand | of prefix form |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for case in cases():
        for cc in CAPABILITIES:
            ours, theirs = case.compile(cc), case.by_hand(cc)
            lanes = ours.source.layout.lanes
            prefix = ""
            if case.name == "product_forward":
                other = compile_reference("product_prefix", cc, lanes, case.arity, case.fastmath)
                prefix = f"{other.instructions.total} / {other.registers}"
            print(
                f"| {case.title} | {'fast' if case.fastmath else 'precise'} | {cc[0]}.{cc[1]} | {lanes} "
                f"| {ours.instructions().total} | {theirs.instructions.total} | {ours.registers} | {theirs.registers} "
                f"| {prefix} |",
                flush=True,
            )


if __name__ == "__main__":
    _table()
