"""The function that loops call to ask whether they may go on, as a module in LLVM's language.

It looks at the clock, and seldom enough it takes the interpreter's lock, lets Python run the handlers of signals, and
calls a Python function. An exception that either raises is kept for the thread's launch, and ends the loops.
"""

from __future__ import annotations

import ctypes
import sys
import time

from llvmlite import ir

from dualbcast.codegen.llvm.abi import PERIOD, STOPPING
from dualbcast.codegen.llvm.values import WORD, word

__all__ = ["PYTHON", "poll_function"]

_POINTER, _STATUS, _NOTHING = ir.PointerType(), ir.IntType(32), ir.VoidType()
_LONG = ir.IntType(8 * ctypes.sizeof(ctypes.c_ulong))
_NULL = ir.Constant(_POINTER, None)
# The functions of Python's C interface that it calls: their results and parameters.
PYTHON: dict[str, tuple[ir.Type, list[ir.Type]]] = {
    "PyGILState_Ensure": (_STATUS, []),
    "PyGILState_Release": (_NOTHING, [_STATUS]),
    "PyErr_CheckSignals": (_STATUS, []),
    "PyObject_CallNoArgs": (_POINTER, [_POINTER]),
    "PyObject_IsTrue": (_STATUS, [_POINTER]),
    "PyErr_Fetch": (_NOTHING, [_POINTER] * 3),
    "PyErr_NormalizeException": (_NOTHING, [_POINTER] * 3),
    "PyException_SetTraceback": (_STATUS, [_POINTER] * 2),
    "PyDict_SetItem": (_STATUS, [_POINTER] * 3),
    "Py_DecRef": (_NOTHING, [_POINTER]),
    "PyLong_FromUnsignedLong": (_POINTER, [_LONG]),
    "PyThread_get_thread_ident": (_LONG, []),
    "PyThread_tss_get": (_POINTER, [_POINTER]),
    "PyThread_tss_set": (_STATUS, [_POINTER] * 2),
}


def poll_function(milliseconds: int) -> str:
    """The module of `poll`, a function of the units of work that are left, which gives those until the next call.

    The module declares, beside functions of the C library and those in `PYTHON`: `ask`, the Python function, which says
    whether to stop; `raised`, a dict, where an exception is kept by the thread's identifier; `key`, by which a thread
    keeps the time of its last question; and `closing`, an integer that is not 0 once the interpreter is about to end. A
    thread asks at most once in so many milliseconds.
    """
    module = ir.Module("poll")
    module.triple = ""
    function = ir.Function(module, ir.FunctionType(WORD, [WORD]), "poll")
    builder = ir.IRBuilder(function.append_basic_block())
    ask, raised, key = (ir.GlobalVariable(module, ir.IntType(8), name) for name in ("ask", "raised", "key"))
    closing = ir.GlobalVariable(module, WORD, "closing")
    go_on, stop = word(PERIOD), word(STOPPING + STOPPING // 2)

    def call(name: str, *arguments: ir.Value) -> ir.Instruction:
        return _call(builder, name, *PYTHON[name], *arguments)

    slots = [builder.alloca(_POINTER) for _ in range(3)]
    with builder.if_then(builder.icmp_signed("<", function.args[0], word(STOPPING))):
        builder.ret(stop)
    now = _milliseconds(builder)
    since = builder.sub(now, builder.ptrtoint(call("PyThread_tss_get", key), WORD))
    with builder.if_then(builder.icmp_unsigned("<", since, word(milliseconds))):
        builder.ret(go_on)
    is_closing = builder.load_atomic(closing, "seq_cst", 8, typ=WORD)
    with builder.if_then(builder.icmp_unsigned("!=", is_closing, word(0))):
        builder.ret(go_on)
    call("PyThread_tss_set", key, builder.inttoptr(now, _POINTER))
    lock = call("PyGILState_Ensure")
    nothing_raised = builder.icmp_signed("==", call("PyErr_CheckSignals"), ir.Constant(_STATUS, 0))
    with builder.if_then(nothing_raised):
        answer = call("PyObject_CallNoArgs", ask)
        with builder.if_then(builder.icmp_unsigned("!=", answer, _NULL)):
            stops = builder.icmp_signed("!=", call("PyObject_IsTrue", answer), ir.Constant(_STATUS, 0))
            call("Py_DecRef", answer)
            call("PyGILState_Release", lock)
            builder.ret(builder.select(stops, stop, go_on))
    # An exception was raised, be it a signal's before the first line of the Python function.
    for slot in slots:
        builder.store(_NULL, slot)
    call("PyErr_Fetch", *slots)
    call("PyErr_NormalizeException", *slots)
    kind, value, trace = (builder.load(slot, typ=_POINTER) for slot in slots)
    with builder.if_then(builder.icmp_unsigned("!=", trace, _NULL)):
        call("PyException_SetTraceback", value, trace)
    thread = call("PyLong_FromUnsignedLong", call("PyThread_get_thread_ident"))
    call("PyDict_SetItem", raised, thread, value)
    for owned in (thread, kind, value, trace):
        call("Py_DecRef", owned)
    call("PyGILState_Release", lock)
    builder.ret(stop)
    return str(module)


def _milliseconds(builder: ir.IRBuilder) -> ir.Value:
    """The time of a clock that never goes back."""
    if sys.platform == "win32":
        return _call(builder, "GetTickCount64", WORD, [])
    with builder.goto_entry_block():
        instant = builder.alloca(WORD, 2)
    clock = ir.Constant(_STATUS, time.CLOCK_MONOTONIC)
    _call(builder, "clock_gettime", _STATUS, [_STATUS, _POINTER], clock, instant)
    seconds = builder.load(instant, typ=WORD)
    nanoseconds = builder.load(builder.gep(instant, [word(1)], source_etype=WORD), typ=WORD)
    return builder.add(builder.mul(seconds, word(1000)), builder.sdiv(nanoseconds, word(1_000_000)))


def _call(
    builder: ir.IRBuilder, name: str, result: ir.Type, params: list[ir.Type], *arguments: ir.Value
) -> ir.Instruction:
    module = builder.module
    function = module.globals.get(name) or ir.Function(module, ir.FunctionType(result, params), name)
    return builder.call(function, arguments)
