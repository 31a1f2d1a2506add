"""Machine code that calls a kernel: with arguments from a buffer, or with the addresses of arrays from tuples."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from dualbcast.codegen.loops import MISALIGNED

if TYPE_CHECKING:
    from dualbcast.codegen.loops.builder import Function, Module, Pointer
    from dualbcast.codegen.values import Value


def write_call(module: Module, count: int) -> Function:
    """`call(function, arguments)`: integers and pointers are passed alike, so one function serves all signatures."""
    f = module.function("call", ["int64", "*int64"], "int32")
    function, arguments = f.parameters
    status = f.call_address(function, "int32", [arguments[at] for at in range(count)])
    # Other threads may see late what a kernel has stored past the cache, but for this. It is here and not in kernels,
    # since a loop may call a kernel for each row of a tile, and to wait each time takes longer than the rows.
    f.fence()
    f.return_(status)
    return f


def write_array_call(
    module: Module, integers: int, masks: tuple[int, ...], outputs: int, items: int, header: int
) -> Function:
    """`call(head, inputs, outputs, start, stop)`: run a kernel on a range of two tuples of NumPy arrays.

    `head` has the kernel's address, and so many sizes and strides. `masks` are the bits that
    the address of each input must not have. A tuple's items begin at the byte `items`; an array has its data's address
    at the byte `header`.
    """

    def addresses(arrays: Pointer, count: int) -> list[Value]:
        pointers = [arrays.skip_bytes(items)[at] for at in range(count)]
        return [pointer.skip_bytes(header).of("int64")[0] for pointer in pointers]

    f = module.function("array_call", ["*int64", "**int8", "**int8", "int64", "int64"], "int32")
    head, input_arrays, output_arrays, start, stop = f.parameters
    kernel, *numbers = (head[at] for at in range(1 + integers))
    inputs = addresses(input_arrays, len(masks))
    low_bits = [address & mask for address, mask in zip(inputs, masks, strict=True)]
    if low_bits:
        with f.if_(reduce(or_, low_bits) != 0):
            f.return_(MISALIGNED)
    arguments = [start, stop, *numbers, *inputs, *addresses(output_arrays, outputs)]
    f.return_(f.call_address(kernel, "int32", arguments))
    return f
