"""The machine code of a handler of XLA's foreign function interface that launches CUDA kernels on XLA's stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dualbcast.codegen.loops.xla import (
    EXHAUSTED,
    FRAME,
    INTERNAL,
    ORDINAL_SIZE,
    STREAM_SIZE,
    ask,
    begin,
    buffer,
    field,
    new_error,
)

if TYPE_CHECKING:
    from dualbcast.codegen.loops.builder import Function, Module

# A launch is a table of 64-bit numbers: the handles of the kernel on each of so many `devices`; the grid and the block;
# the addresses of so many `numbers`, which are the kernel's first arguments; how many `pointers` follow, the first
# `arguments` of which are to arguments of the call; and the bits that no pointer must have.
_NAMES = "functions", "devices", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"
CUDA_LAUNCH = {name: at for at, name in enumerate((*_NAMES, "addresses", "numbers", "pointers", "arguments", "mask"))}


def write_cuda_handler(module: Module) -> Function:
    """`handler(frame)`: as `write_handler`, for launches of CUDA kernels.

    The module declares the symbols `table`, `unknown`, `failed` and `no_memory`, as there; `misaligned`, the text of
    another error; and `launch_kernel`, the driver's function cuLaunchKernel.
    """
    f = module.function("cuda_handler", ["*int8"], "int64")
    (frame,) = f.parameters
    api = field(frame, FRAME["api"], "*int8")
    launch = begin(f, frame)
    number = {name: launch[at] for name, at in CUDA_LAUNCH.items()}
    ordinal = f.variable(0)
    with f.if_(number["devices"] > 1):
        error, answer = ask(f, frame, "device_ordinal", ORDINAL_SIZE, 0)
        with f.if_(error != 0):
            f.return_(error)
        ordinal.value = answer.at(3).of("int32")[0].to("int64")
        with f.if_(ordinal.value >= number["devices"]):
            f.return_(new_error(f, api, "unknown", INTERNAL))
    error, answer = ask(f, frame, "stream", STREAM_SIZE, 0)
    with f.if_(error != 0):
        f.return_(error)
    stream = answer[3]
    count = number["numbers"] + number["pointers"]
    memory = f.call(module.external("malloc", ["int64"], "int64"), count * 16)
    with f.if_(memory == 0):
        f.return_(new_error(f, api, "no_memory", EXHAUSTED))
    # The addresses of the arguments; those that are pointers lie behind.
    places = f.pointer(memory, "int64")
    pointers, addresses = places.at(count), f.pointer(number["addresses"], "int64")
    with f.range(0, number["numbers"]) as i:
        places[i] = addresses[i]
    bits = f.variable(0)
    with f.range(0, number["pointers"]) as i:
        pointers[i] = buffer(f, frame, i, number["arguments"])
        bits.value = bits.value | pointers[i]
        places[number["numbers"] + i] = pointers.at(i).address()
    free = module.external("free", ["int64"], "void")
    with f.if_(bits.value & number["mask"] != 0):
        f.call(free, memory)
        f.return_(new_error(f, api, "misaligned", INTERNAL))
    function = f.pointer(number["functions"], "int64")[ordinal.value]
    shape = [number[name] for name in _NAMES[2:]]
    nothing = function.constant(0)
    given = [function, *shape, nothing, stream, places.address(), nothing]
    driver = f.variable_of_process("launch_kernel").address()
    status = f.call_address(driver, "int32", given)
    f.call(free, memory)
    with f.if_(status != 0):
        f.return_(new_error(f, api, "failed", INTERNAL))
    f.return_(0)
    return f
