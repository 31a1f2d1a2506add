"""The function that loops call to ask whether they may go on.

It looks at the clock, and seldom enough it takes the interpreter's lock, lets Python run the handlers of signals, and
calls a Python function. An exception that either raises is kept for the thread's launch, and ends the loops.
"""

from __future__ import annotations

import ctypes
import sys
import time
from typing import TYPE_CHECKING, Any

from dualbcast.codegen.llvm.target import PERIOD, STOPPING

if TYPE_CHECKING:
    from dualbcast.codegen.loops.builder import Function, Module
    from dualbcast.codegen.values import Value

_LONG = f"int{8 * ctypes.sizeof(ctypes.c_ulong)}"
# The functions of Python's C interface that it calls: the kinds of their results and parameters. An object is its
# address, a number.
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


def _milliseconds(f: Function) -> Value:
    """The time of a clock that never goes back."""
    if sys.platform == "win32":
        return f.call(f.module.external("GetTickCount64", [], "int64"))
    instant = f.room(2)
    f.call(f.module.external("clock_gettime", ["int32", "*int64"], "int32"), time.CLOCK_MONOTONIC, instant)
    seconds: Value = instant[0]
    nanoseconds: Value = instant[1]
    return seconds * 1000 + nanoseconds // 1_000_000
