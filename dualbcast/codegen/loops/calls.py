"""Small loops and functions beside kernels: compensated sums, calls with arrays, and polls whether a loop may go on.

A poll looks at the clock. If enough time has passed since the last one, it takes the interpreter's lock, lets Python
run the handlers of signals, and calls a Python function. An exception that a handler or the function raises ends the
loops, and is kept for the thread's launch.
"""

from __future__ import annotations

import ctypes
import sys
import time
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from dualbcast.codegen.llvm.target import PERIOD, STOPPING
from dualbcast.codegen.loops import MISALIGNED

if TYPE_CHECKING:
    from dualbcast.codegen.loops.builder import Function, Module, Pointer
    from dualbcast.codegen.values import Value


def add(total: Value, lost: Value, term: Value) -> tuple[Value, Value]:
    """The sum with one more term, and its rounding errors so far, by Knuth's two-sum."""
    new = total + term
    part = new - total
    return new, lost + ((total - (new - part)) + (term - part))


def rounded(total: Value, lost: Value) -> Value:
    """A sum with its rounding errors. Where the sum is infinite these are NaN, and are left out."""
    return (lost - lost == 0.0).choose(total + lost, total)


def write_scatter_add(module: Module, dtype: str, is_compensated: bool) -> Function:
    """`scatter_add(sums, lost, rows, places, count, columns)`: add rows of a dtype to rows of `sums`, in their order.

    Sums are float64. What rounding takes from them is added to `lost` if the sums are compensated.
    """
    kinds = ["*float64", "*float64", f"*{dtype}", "*int64", "int64", "int64"]
    f = module.function("scatter_add", kinds, noalias=True)
    sums, lost, rows, places, count, columns = f.parameters
    with f.range(0, count) as i:
        place = places[i]
        with f.range(0, columns) as j:
            at, term = place * columns + j, rows[i * columns + j].to("float64")
            if is_compensated:
                sums[at], lost[at] = add(sums[at], lost[at], term)
            else:
                sums[at] = sums[at] + term
    f.return_()
    return f


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


def write_batch(module: Module) -> Function:
    """`batch(calls, count)`: make so many calls one after the other, until one returns a status that is not 0.

    Of each call there are the address of a function of `write_call`, the number of arguments, and then what that
    function takes: the address of the function to be called, and the arguments.
    """
    f = module.function("batch", ["*int64", "int64"], "int32")
    calls, count = f.parameters
    at = f.variable(0)
    with f.range(0, count):
        head = calls.at(at.value)
        status = f.call_address(head[0], "int32", [head[2], head.at(3).address()])
        with f.if_(status != 0):
            f.return_(status)
        at.value = at.value + head[1] + 3
    f.return_(0)
    return f


def write_finish(module: Module, dtype: str, is_compensated: bool) -> Function:
    """`finish(sums, lost, results, count)`: store sums as a dtype, and make their accumulators zero.

    What rounding has taken from them is in `lost` if the sums are compensated.
    """
    f = module.function("finish", ["*float64", "*float64", f"*{dtype}", "int64"], "int32", noalias=True)
    sums, lost, results, count = f.parameters
    with f.range(0, count) as i:
        total = sums[i]
        if is_compensated:
            total = rounded(total, lost[i])
            lost[i] = 0.0
        sums[i] = 0.0
        results[i] = total.to(dtype)
    f.return_(0)
    return f


def write_array_call(
    module: Module, integers: int, masks: tuple[int, ...], outputs: int, items: int, header: int
) -> Function:
    """`call(head, inputs, outputs, start, stop)`: run a kernel on a range of two tuples of NumPy arrays.

    `head` has the kernel's address, and so many sizes and strides. `masks` are the bits that the address of each input
    must not have. A tuple's items begin at the byte `items`; an array has its data's address at the byte `header`.
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


def write_address_call(module: Module, integers: int, masks: tuple[int, ...], outputs: int) -> Function:
    """`call(head, addresses)`: run a kernel on all elements of arrays at `addresses`, inputs and then outputs.

    `head` has the kernel's address, the number of elements, and so many sizes and strides. For `masks` see
    `write_array_call`.
    """
    f = module.function("address_call", ["*int64", "*int64"], "int32")
    head, addresses = f.parameters
    kernel, total, *numbers = (head[at] for at in range(2 + integers))
    given = [addresses[at] for at in range(len(masks) + outputs)]
    low_bits = [address & mask for address, mask in zip(given, masks, strict=False)]
    if low_bits:
        with f.if_(reduce(or_, low_bits) != 0):
            f.return_(MISALIGNED)
    f.return_(f.call_address(kernel, "int32", [total.constant(0), total, *numbers, *given]))
    return f


# Where a NumPy array has its flags, in bytes from its data's address on, by NumPy's stable C ABI; and the flag of those
# that may be written to.
_FLAGS, _WRITEABLE = 6 * ctypes.sizeof(ctypes.c_void_p), 0x400


def write_conflict(module: Module, items: int, header: int) -> Function:
    """`conflict(spans, inputs, outputs, count, total)`: whether outputs may be unfit for a kernel to write to.

    They are if one of `total` is read-only or misaligned, or spans a byte that an input or an output before it spans.
    `spans` has for each of `count` inputs, and then for each output, the first byte that it spans, their end,
    and the bits that its address must not have. For `items` and `header` see `write_array_call`.
    """
    f = module.function("conflict", ["*int64", "**int8", "**int8", "int64", "int64"], "int32")
    spans, inputs, outputs, count, total = f.parameters

    def span(arrays: Pointer, at: Value, place: Value) -> tuple[Value, Value, Value]:
        address = arrays.skip_bytes(items)[at].skip_bytes(header).of("int64")[0]
        return address + spans[place * 3], address + spans[place * 3 + 1], address & spans[place * 3 + 2]

    with f.range(0, total) as i:
        start, stop, low_bits = span(outputs, i, count + i)
        flags = outputs.skip_bytes(items)[i].skip_bytes(header + _FLAGS).of("int32")[0]
        with f.if_((flags & _WRITEABLE == 0) | (low_bits != 0)):
            f.return_(1)
        for arrays, many, first in ((inputs, count, 0), (outputs, i, count)):
            with f.range(0, many) as j:
                begin, end, _ = span(arrays, j, j + first)
                with f.if_((begin < stop) & (start < end)):
                    f.return_(1)
    f.return_(0)
    return f


_LONG = f"int{8 * ctypes.sizeof(ctypes.c_ulong)}"
# Functions of Python's C interface: the kinds of their results and parameters. An object is its address, a number.
PYTHON: dict[str, tuple[str, list[str]]] = {
    "PyGILState_Ensure": ("int32", []),
    "PyGILState_Release": ("void", ["int32"]),
    "PyErr_CheckSignals": ("int32", []),
    "PyObject_CallNoArgs": ("int64", ["int64"]),
    "PyObject_IsTrue": ("int32", ["int64"]),
    "PyErr_Fetch": ("void", ["*int64"] * 3),
    "PyErr_NormalizeException": ("void", ["*int64"] * 3),
    "PyException_SetTraceback": ("int32", ["int64"] * 2),
    "PyDict_SetItem": ("int32", ["int64"] * 3),
    "Py_DecRef": ("void", ["int64"]),
    "PyLong_FromUnsignedLong": ("int64", [_LONG]),
    "PyThread_get_thread_ident": (_LONG, []),
    "PyThread_tss_get": ("int64", ["int64"]),
    "PyThread_tss_set": ("int32", ["int64"] * 2),
}


def write_poll(module: Module, milliseconds: int) -> Function:
    """`poll(left)`: of the units of work that are left, those until the next call.

    The module declares, beside functions of the C library and those in `PYTHON`: `ask`, the Python function, which says
    whether to stop; `raised`, a dict, where an exception is kept by the thread's identifier; `key`, by which a thread
    keeps the time of its last question; and `closing`, an integer that is not 0 once the interpreter is about to end. A
    thread asks at most once in so many milliseconds.
    """
    f = module.function("poll", ["int64"], "int64")
    (left,) = f.parameters
    ask, raised, key = (f.variable_of_process(name).address() for name in ("ask", "raised", "key"))
    stop = STOPPING + STOPPING // 2

    def call(name: str, *arguments: Any) -> Any:
        kind, parameters = PYTHON[name]
        return f.call(module.external(name, parameters, kind), *arguments)

    slots = [f.room(1) for _ in range(3)]
    with f.if_(left < STOPPING):
        f.return_(stop)
    now = _milliseconds(f)
    with f.if_((now - call("PyThread_tss_get", key)).unsigned("<", milliseconds)):
        f.return_(PERIOD)
    with f.if_(f.variable_of_process("closing").load_atomic() != 0):
        f.return_(PERIOD)
    call("PyThread_tss_set", key, now)
    lock = call("PyGILState_Ensure")
    with f.if_(call("PyErr_CheckSignals") == 0):
        answer = call("PyObject_CallNoArgs", ask)
        with f.if_(answer != 0):
            stops = call("PyObject_IsTrue", answer) != 0
            call("Py_DecRef", answer)
            call("PyGILState_Release", lock)
            f.return_(stops.choose(left.constant(stop), PERIOD))
    # An exception was raised, be it a signal's before the first line of the Python function.
    for slot in slots:
        slot[0] = 0
    call("PyErr_Fetch", *slots)
    call("PyErr_NormalizeException", *slots)
    kind, value, trace = (slot[0] for slot in slots)
    with f.if_(trace != 0):
        call("PyException_SetTraceback", value, trace)
    thread = call("PyLong_FromUnsignedLong", call("PyThread_get_thread_ident"))
    call("PyDict_SetItem", raised, thread, value)
    for owned in (thread, kind, value, trace):
        call("Py_DecRef", owned)
    call("PyGILState_Release", lock)
    f.return_(stop)
    return f


def write_go_on(module: Module) -> Function:
    """`go_on(left)`: a poll that asks nobody: see `write_poll`."""
    f = module.function("go_on", ["int64"], "int64")
    f.return_(PERIOD)
    return f


def _milliseconds(f: Function) -> Value:
    """The time of a clock that never goes back."""
    if sys.platform == "win32":
        return f.call(f.module.external("GetTickCount64", [], "int64"))
    instant = f.room(2)
    f.call(f.module.external("clock_gettime", ["int32", "*int64"], "int32"), time.CLOCK_MONOTONIC, instant)
    seconds: Value = instant[0]
    nanoseconds: Value = instant[1]
    return seconds * 1000 + nanoseconds // 1_000_000
