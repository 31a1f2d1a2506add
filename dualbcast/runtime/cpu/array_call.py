"""A kernel with its sizes and strides, to be called with tuples of arrays.

To hand twenty numbers over by way of ctypes takes longer than a kernel takes on small arrays. Two tuples take little
time; machine code reads the addresses of the arrays out of them.
"""

from __future__ import annotations

import ctypes
import functools
from array import array
from collections.abc import Callable, Sequence

from dualbcast.codegen.llvm.abi import STOPPED
from dualbcast.codegen.loops.array_call import write_array_calls
from dualbcast.codegen.loops.recipe import Recipe
from dualbcast.runtime.arguments import Array
from dualbcast.runtime.call_key import HEADER
from dualbcast.runtime.cpu import interrupt
from dualbcast.runtime.cpu.loader import compiled
from dualbcast.runtime.cpu.thread_pool import Work

__all__ = ["ArrayCall"]

# Where the items of a tuple begin.
_ITEMS = tuple.__basicsize__
_PROTOTYPE = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 3)


class ArrayCall:
    """A kernel with all its arguments but the arrays.

    Parameters
    ----------
    kernel : int
        The address of its machine code, a function of a range, sizes, strides and pointers.
    total : int
        The number of elements.
    ints : sequence of int
        Sizes and strides.
    masks : tuple of int
        For each input the bits that its address must not have.
    outputs : int
        The number of outputs.

    Attributes
    ----------
    run_all : callable
        Given `head` and the `id` of two tuples of NumPy arrays, inputs and outputs, which must live until it is done,
        it runs the kernel on all elements, without the GIL. It returns the kernel's status, 0 after a success, or
        `MISALIGNED` where the kernel has not run.
    head : int
    """

    __slots__ = ("_address", "_numbers", "head", "run_all")

    def __init__(self, kernel: int, total: int, ints: Sequence[int], masks: tuple[int, ...], outputs: int) -> None:
        head = kernel, total, *ints
        self._numbers = (ctypes.c_int64 * len(head))(*head)
        self.head = ctypes.addressof(self._numbers)
        recipe = Recipe(write_array_calls, (len(ints), masks, outputs, _ITEMS, HEADER))
        self._address = compiled(recipe, "call_range")
        self.run_all: Callable[..., int] = _PROTOTYPE(compiled(recipe, "call_all"))

    def run(self, inputs: tuple[Array, ...], outputs: tuple[Array, ...]) -> bool:
        """Run the kernel on all elements; False where an input is misaligned, and it has not run."""
        status = self.run_all(self.head, id(inputs), id(outputs))
        if status == STOPPED:
            raise interrupt.raised()
        return not status

    def ranges(self, bounds: tuple[int, ...], inputs: tuple[Array, ...], outputs: tuple[Array, ...]) -> Work:
        """The work from each of `bounds` to the next; the tuples must live until it is done."""
        count = len(bounds) - 1
        numbers = array("q", (self.head, id(inputs), id(outputs), 0, 0)) * count
        numbers[3::5], numbers[4::5] = _starts_and_stops(bounds)
        return Work(self._address, numbers, count)


@functools.lru_cache(maxsize=256)
def _starts_and_stops(bounds: tuple[int, ...]) -> tuple[array[int], array[int]]:
    return array("q", bounds[:-1]), array("q", bounds[1:])
