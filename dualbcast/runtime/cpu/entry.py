"""The short way into a CPU kernel: machine code that takes the addresses out of tuples of arrays, and calls the kernel.

Twenty numbers take longer to hand over by way of ctypes than a kernel takes on small arrays; two tuples take little. Of
pieces for several threads, too, each then has five numbers and not all addresses.
"""

from __future__ import annotations

import ctypes
import functools
from array import array
from collections.abc import Callable, Sequence

from dualbcast.runtime.arguments import Array
from dualbcast.runtime.call_key import HEADER
from dualbcast.runtime.cpu.loader import compiled
from dualbcast.runtime.cpu.thread_pool import Work

__all__ = ["Entry"]

# What the code returns instead of a kernel's 0 where an input is misaligned, and the kernel has not run.
_REFUSED = 1
# Where the items of a tuple begin.
_ITEMS = tuple.__basicsize__


class Entry:
    """A kernel with all that it takes besides arrays, to be called for those.

    Parameters
    ----------
    kernel : int
        The address of its machine code, a function of a range, sizes, strides and pointers.
    total : int
        The number of elements.
    ints : sequence of int
        Sizes and strides.
    masks : tuple of int
        What the address of each input must have no bit of.
    outputs : int
        How many there are.

    Attributes
    ----------
    run_all : callable
        Given `head` and the `id` of two tuples of NumPy arrays, inputs and outputs, which must live until it is done,
        it runs the kernel on all elements, without the GIL, and returns 0, or another number where it refuses: an
        input is misaligned, and the kernel has not run.
    head : int
    """

    __slots__ = ("_address", "_numbers", "head", "run_all")

    def __init__(self, kernel: int, total: int, ints: Sequence[int], masks: tuple[int, ...], outputs: int) -> None:
        head = kernel, total, *ints
        self._numbers = (ctypes.c_int64 * len(head))(*head)
        self.head = ctypes.addressof(self._numbers)
        text = _text(len(ints), masks, outputs)
        self._address = compiled(text, "enter")
        self.run_all: Callable[..., int] = _PROTOTYPE(compiled(text, "enter_all"))

    def ranges(self, bounds: tuple[int, ...], inputs: tuple[Array, ...], outputs: tuple[Array, ...]) -> Work:
        """The work from each of `bounds` to the next; the tuples must live until it is done."""
        count = len(bounds) - 1
        numbers = array("q", (self.head, id(inputs), id(outputs), 0, 0)) * count
        numbers[3::5], numbers[4::5] = _starts_and_stops(bounds)
        return Work(self._address, numbers, count)


@functools.lru_cache(maxsize=256)
def _starts_and_stops(bounds: tuple[int, ...]) -> tuple[array[int], array[int]]:
    return array("q", bounds[:-1]), array("q", bounds[1:])


_PROTOTYPE = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 3)


def _text(ints: int, masks: tuple[int, ...], outputs: int) -> str:
    """LLVM IR: `enter(head, inputs, outputs, start, stop)`, where `head` is the kernel's address, how many
    elements there are, and `ints`; and `enter_all(head, inputs, outputs)`."""
    numbers = [f"%head{at}" for at in range(ints + 2)]
    arrays = {
        "inputs": [f"%inputs{at}" for at in range(len(masks))],
        "outputs": [f"%outputs{at}" for at in range(outputs)],
    }
    lines = ["define i32 @enter(ptr %head, ptr %inputs, ptr %outputs, i64 %start, i64 %stop) {"]
    for at, number in enumerate(numbers):
        lines += [f"  {number}.at = getelementptr i64, ptr %head, i64 {at}", f"  {number} = load i64, ptr {number}.at"]
    for side, names in arrays.items():
        for at, name in enumerate(names):
            lines += [
                f"  {name}.at = getelementptr i8, ptr %{side}, i64 {_ITEMS + ctypes.sizeof(ctypes.c_void_p) * at}",
                f"  {name}.array = load ptr, ptr {name}.at",
                f"  {name}.data = getelementptr i8, ptr {name}.array, i64 {HEADER}",
                f"  {name} = load i64, ptr {name}.data",
            ]
    every = "0"
    for name, mask in zip(arrays["inputs"], masks, strict=True):
        lines += [f"  {name}.low = and i64 {name}, {mask}", f"  {name}.or = or i64 {every}, {name}.low"]
        every = f"{name}.or"
    given = "%start", "%stop", *numbers[2:], *arrays["inputs"], *arrays["outputs"]
    return "\n".join(
        [
            *lines,
            f"  %aligned = icmp eq i64 {every}, 0",
            "  br i1 %aligned, label %call, label %refuse",
            "refuse:",
            f"  ret i32 {_REFUSED}",
            "call:",
            f"  %kernel = inttoptr i64 {numbers[0]} to ptr",
            f"  %status = call i32 %kernel({', '.join(f'i64 {name}' for name in given)})",
            "  ret i32 %status",
            "}",
            "define i32 @enter_all(ptr %head, ptr %inputs, ptr %outputs) {",
            "  %total.at = getelementptr i64, ptr %head, i64 1",
            "  %total = load i64, ptr %total.at",
            "  %status = call i32 @enter(ptr %head, ptr %inputs, ptr %outputs, i64 0, i64 %total)",
            "  ret i32 %status",
            "}",
        ]
    )
