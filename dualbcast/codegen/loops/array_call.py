"""Machine code that reads the addresses of arrays out of two tuples, and calls a kernel with them."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dualbcast.codegen.loops.builder import Function, Module, Pointer
    from dualbcast.codegen.values import Value

# The status that is returned where an input is misaligned, and the kernel has not run.
MISALIGNED = 1


def write_array_calls(
    module: Module, integers: int, masks: tuple[int, ...], outputs: int, items: int, header: int
) -> tuple[Function, Function]:
    """`call_range(head, inputs, outputs, start, stop)` and `call_all(head, inputs, outputs)`.

    `head` has the kernel's address, the number of elements, and the sizes and strides; `inputs` and `outputs` are
    tuples of NumPy arrays.

    Parameters
    ----------
    integers : int
        The number of sizes and strides.
    masks : tuple of int
        For each input the bits that its address must not have.
    outputs : int
        The number of outputs.
    items : int
        The place of a tuple's first item, in bytes.
    header : int
        The place of the address of an array's data in the array, in bytes.
    """

    def addresses(arrays: Pointer, count: int) -> list[Value]:
        pointers = [arrays.skip_bytes(items)[at] for at in range(count)]
        return [pointer.skip_bytes(header).of("int64")[0] for pointer in pointers]

    f = module.function("call_range", ["*int64", "**int8", "**int8", "int64", "int64"], "int32")
    head, input_arrays, output_arrays, start, stop = f.parameters
    kernel, *numbers = (head[at] for at in (0, *range(2, 2 + integers)))
    inputs = addresses(input_arrays, len(masks))
    low_bits = [address & mask for address, mask in zip(inputs, masks, strict=True)]
    if low_bits:
        with f.if_(reduce(or_, low_bits) != 0):
            f.return_(MISALIGNED)
    arguments = [start, stop, *numbers, *inputs, *addresses(output_arrays, outputs)]
    f.return_(f.call_address(kernel, "int32", arguments))

    whole = module.function("call_all", ["*int64", "**int8", "**int8"], "int32")
    head, input_arrays, output_arrays = whole.parameters
    whole.return_(whole.call(f, head, input_arrays, output_arrays, 0, head[1]))
    return f, whole
