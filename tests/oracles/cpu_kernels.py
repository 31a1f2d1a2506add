"""Kernels for the CPU tests, written by hand as the compiler would emit them, and how to run them."""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from kernel_parser import parsed

from dualbcast import differentiable_broadcast
from dualbcast.codegen import mathlib
from dualbcast.codegen.llvm import target
from dualbcast.codegen.program import KernelProgram
from dualbcast.kernel_spec import KernelSpec, Layout
from dualbcast.runtime.cpu import kernel as cpu_kernel
from dualbcast.runtime.cpu.kernel import CpuKernel


class Kernel(NamedTuple):
    """A kernel of rank 1 as a test writes it, and the program that it is."""

    text: str
    program: KernelProgram


def source_of(
    body: str,
    dtype: str,
    inputs: dict[str, str],
    outputs: dict[str, str],
    prelude: str = "",
    vectors: int = 0,
    layout: Layout | None = None,
) -> Kernel:
    """A rank-1 kernel: `body` is the element function's, `inputs` and `outputs` name the pointers and their dtypes."""
    body = textwrap.dedent(body).strip()
    text = f"{prelude}\ndef element(k, {', '.join([*inputs, *outputs])}):\n{textwrap.indent(body, '    ')}\n"
    layout = layout or Layout(1, ("1",), (0,) * (len(inputs) + len(outputs)))
    spec = KernelSpec("element", dtype, tuple(inputs.values()), tuple(outputs.values()), layout, vectors)
    return Kernel(text, KernelProgram(spec, *parsed(body, dtype, inputs, outputs, prelude)))


def compiled(kernel: Kernel, fastmath: bool = False) -> CpuKernel:
    return cpu_kernel.compile_kernel(kernel.program, fastmath)


def forget(kernel: Kernel) -> None:
    """Let the process know nothing of a kernel."""
    cpu_kernel._kernels.pop(cpu_kernel._key(kernel.program.identity, False), None)


def vectors(function: Callable[..., Any], *arrays: Any, product: str = "value_and_jacobian") -> int:
    """How many vectors the kernel of a function computes side by side; 0 if it computes element after element."""
    call = differentiable_broadcast(function)._inspected(arrays, None, product)
    return int(call.spec.program(call.plan.geometry.layout).spec.vectors)


def run(source: Kernel, *inputs: np.ndarray, fastmath: bool = False, threads: int = 1) -> list[np.ndarray]:
    return run_program(source.program, *inputs, fastmath=fastmath, threads=threads)


def run_program(
    program: KernelProgram, *inputs: np.ndarray, fastmath: bool = False, threads: int = 1
) -> list[np.ndarray]:
    kernel, source = cpu_kernel.compile_kernel(program, fastmath), program.spec
    storage = {"bool": np.uint8, "float16": np.uint16, "bfloat16": np.uint16}
    outputs = [np.full(inputs[0].shape, 7, storage.get(name, name)) for name in source.outputs]
    for array, name in zip(inputs, source.inputs, strict=True):
        assert array.flags.c_contiguous
        assert array.dtype.itemsize == np.dtype(storage.get(name, name)).itemsize
    pointers = [array.ctypes.data for array in (*inputs, *outputs)]
    cpu_kernel.launch(kernel, inputs[0].size, (inputs[0].size,), pointers, threads)
    return outputs


def run_afresh(kernel: Kernel, *inputs: np.ndarray) -> tuple[list[np.ndarray], str]:
    """The outputs of a kernel that is compiled for this call, whatever the caches have, and its assembly."""
    program = kernel.program
    built = cpu_kernel._build(program, False)
    fresh = CpuKernel("", program.spec, False, built.object_file(), lambda: program)
    outputs = [np.full(inputs[0].shape, 7, name) for name in program.spec.outputs]
    size = inputs[0].size
    fresh(0, size, (size,), tuple(array.ctypes.data for array in (*inputs, *outputs)))
    return outputs, built.asm


def library_calls(llvm: str) -> set[str]:
    """The functions of the C library that are called, by their names in float64."""
    return {name for name in target.FUNCTIONS if re.search(rf"call [^\n]*@dualbcast_{name}f?\(", llvm)}


def from_library(*names: str) -> set[str]:
    """Those that are not inlined on this machine."""
    return {name for name in names if not is_inlined(name)}


def is_inlined(name: str) -> bool:
    return name in mathlib.FUNCTIONS and mathlib.has_fma()


PRELUDE = """
f32_0 = float32(0.0)
f32_1 = float32(1.0)

def sigmoid(x):
    return f32_1 / (f32_1 + exp(-x))
"""
# The HM-LSTM update with control per row, its value and four partials, over rank 2: one z and zb for each row.
CELL_UPDATE = """
if z[k_z] == f32_1:
    s = sigmoid(i[k])
    t = tanh(g[k])
    y = s * t
    y_c = f32_0
    y_f = f32_0
    y_i = s * (f32_1 - s) * t
    y_g = s * (f32_1 - t * t)
elif zb[k_z] == f32_0:
    y = c[k]
    y_c = f32_1
    y_f = f32_0
    y_i = f32_0
    y_g = f32_0
else:
    s = sigmoid(f[k])
    q = sigmoid(i[k])
    t = tanh(g[k])
    y = s * c[k] + q * t
    y_c = s
    y_f = s * (f32_1 - s) * c[k]
    y_i = q * (f32_1 - q) * t
    y_g = q * (f32_1 - t * t)
out[k] = y
out_c[k] = y_c
out_f[k] = y_f
out_i[k] = y_i
out_g[k] = y_g
"""
CELL = source_of(
    CELL_UPDATE,
    "float32",
    dict.fromkeys(("c", "f", "i", "g", "z", "zb"), "float32"),
    dict.fromkeys(("out", "out_c", "out_f", "out_i", "out_g"), "float32"),
    PRELUDE,
    vectors=2,
    layout=Layout(2, ("s1", "s0"), (0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0)),
)


def cell_arguments(rows: int, columns: int) -> list[np.ndarray]:
    random = np.random.default_rng(4)
    gates = [random.standard_normal((rows, columns), dtype=np.float32) for _ in range(4)]
    # Every other one belongs to the control: a stride of two.
    return [*gates, *(random.integers(0, 2, 2 * rows).astype(np.float32) for _ in range(2))]


def cell_run(arguments: list[np.ndarray], threads: int = 1, pieces: list[int] | None = None) -> np.ndarray:
    rows, columns = arguments[0].shape
    out = np.full((5, rows, columns), np.nan, np.float32)
    pointers = [array.ctypes.data for array in (*arguments, *out)]
    kernel = compiled(CELL)
    if pieces is None:
        cpu_kernel.launch(kernel, rows * columns, (rows, columns, columns, 2), pointers, threads)
    else:
        for start, stop in itertools.pairwise(pieces):
            kernel(start, stop, (rows, columns, columns, 2), pointers)
    return out


def cell_expected(arguments: list[np.ndarray]) -> np.ndarray:
    """The update and its partials by hand, in float64."""
    c, f, i, g = (array.astype(np.float64) for array in arguments[:4])
    z, zb = (array[::2, None] for array in arguments[4:])
    s, q, t = 1 / (1 + np.exp(-f)), 1 / (1 + np.exp(-i)), np.tanh(g)
    zero, one = np.zeros_like(c), np.ones_like(c)
    flush = [q * t, zero, zero, q * (1 - q) * t, q * (1 - t**2)]
    copy = [c, one, zero, zero, zero]
    update = [s * c + q * t, s, s * (1 - s) * c, q * (1 - q) * t, q * (1 - t**2)]
    return np.array([np.where(z == 1, a, np.where(zb == 0, b, u)) for a, b, u in zip(flush, copy, update, strict=True)])


DOUBLE = source_of("out[k] = x[k] + tanh(x[k])", "float64", {"x": "float64"}, {"out": "float64"}, vectors=2)


def renamed(kernel: Kernel, text: str) -> Kernel:
    """The same kernel under another name, that no cache has seen."""
    program = kernel.program
    return kernel._replace(program=program._replace(spec=program.spec._replace(element=text.replace(" ", "_"))))
