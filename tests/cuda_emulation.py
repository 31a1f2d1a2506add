"""Runs a CUDA C++ kernel on the processor, compiled by g++: what its text means, where there is no GPU.

The threads of a block are coroutines. They run one after another up to where they wait for each other, and all must
wait at the same kind of place: what would hang a GPU, or is undefined there, aborts.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np

COMPILER = shutil.which("g++")

_HEADER = """
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>
#include <ucontext.h>
#define __device__
#define __global__
#define __shared__ static
#define __launch_bounds__(threads)
struct dim3 { unsigned int x, y, z; };
dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace emulation {
const unsigned int STACK = 1 << 16;
enum State { READY, BARRIER, SHUFFLE, DONE };
ucontext_t scheduler;
std::vector<ucontext_t> contexts;
std::vector<std::vector<char>> stacks;
std::vector<State> states;
std::vector<double> slots;
std::function<void()> kernel;
unsigned int current;

void wait(State state)
{
    states[current] = state;
    swapcontext(&contexts[current], &scheduler);
}

void thread()
{
    kernel();
    wait(DONE);
}

void run_block()
{
    const unsigned int count = blockDim.x * blockDim.y * blockDim.z;
    contexts.resize(count);
    stacks.resize(count);
    slots.assign(count, 0.0);
    states.assign(count, READY);
    for (unsigned int i = 0; i < count; ++i) {
        stacks[i].resize(STACK);
        getcontext(&contexts[i]);
        contexts[i].uc_stack.ss_sp = stacks[i].data();
        contexts[i].uc_stack.ss_size = STACK;
        contexts[i].uc_link = nullptr;
        makecontext(&contexts[i], thread, 0);
    }
    do {
        for (current = 0; current < count; ++current) {
            threadIdx = {current % blockDim.x, current / blockDim.x % blockDim.y, current / blockDim.x / blockDim.y};
            swapcontext(&scheduler, &contexts[current]);
        }
        for (State state : states)
            if (state != states[0]) {
                std::fprintf(stderr, "the threads of a block wait at different places\\n");
                std::abort();
            }
    } while (states[0] != DONE);
}
}

void __syncthreads() { emulation::wait(emulation::BARRIER); }

double __shfl_down_sync(unsigned int mask, double value, unsigned int delta, unsigned int width)
{
    const unsigned int own = emulation::current;
    if (mask != 0xffffffffu || width == 0 || width > 32 || (width & (width - 1))) std::abort();
    emulation::slots[own] = value;
    emulation::wait(emulation::SHUFFLE);
    const double other = emulation::slots[own % width + delta < width ? own + delta : own];
    emulation::wait(emulation::SHUFFLE);
    return other;
}
"""

_DRIVER = """
extern "C" void emulate(const unsigned int* grid, const unsigned int* block, const long long* ints, void** pointers)
{
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {block[0], block[1], block[2]};
    emulation::kernel = [=] { ENTRY(ARGUMENTS); };
    for (blockIdx.z = 0; blockIdx.z < gridDim.z; ++blockIdx.z)
        for (blockIdx.y = 0; blockIdx.y < gridDim.y; ++blockIdx.y)
            for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x) emulation::run_block();
}
"""


class Emulated:
    """A kernel, from the text of its shell and the C++ body of its element function."""

    def __init__(self, shell: str, entry: str, body: str, folder: Path) -> None:
        head, parameters = re.search(rf"(void {entry}_element\((.*?)\));", shell).groups()
        kernel = re.search(rf"^{entry}\((.*)\)$", shell, re.MULTILINE).group(1).split(", ")
        assert COMPILER is not None and parameters
        types = [re.sub(r"( __restrict__)? \w+$", "", parameter) for parameter in kernel]
        self.integers = sum(not parameter.split()[-1].startswith(("in", "out")) for parameter in kernel)
        arguments = [f"({kind})ints[{i}]" for i, kind in enumerate(types[: self.integers])]
        # A number that the kernel takes by value is in an array of one element.
        arguments += [
            f"({kind})pointers[{i}]" if "*" in kind else f"*({kind}*)pointers[{i}]"
            for i, kind in enumerate(types[self.integers :])
        ]
        driver = _DRIVER.replace("ENTRY", entry).replace("ARGUMENTS", ", ".join(arguments))
        text = f'{_HEADER}\n{shell.replace(" void", " void")}\nextern "C" {head}\n{{\n{body}\n}}\n{driver}'
        source, library = folder / "kernel.cpp", folder / "kernel.so"
        source.write_text(text)
        command = [COMPILER, "-std=c++17", "-O1", "-ffp-contract=off", "-shared", "-fPIC", "-o", library, source]
        subprocess.run(command, check=True, capture_output=True, text=True)
        self._function = ctypes.CDLL(str(library)).emulate

    def __call__(
        self, grid: Sequence[int], block: Sequence[int], ints: Sequence[int], arrays: Sequence[np.ndarray]
    ) -> None:
        assert len(ints) == self.integers
        pointers = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
        self._function(
            (ctypes.c_uint * 3)(*grid), (ctypes.c_uint * 3)(*block), (ctypes.c_longlong * len(ints))(*ints), pointers
        )
