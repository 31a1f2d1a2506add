"""How a kernel that runs is stopped: by a signal whose handler raises, as Ctrl-C's does, or by `cancel`.

Kernels with loops call `POLL` every few thousand turns. At most once in `_EVERY` milliseconds a thread takes the
interpreter's lock there, lets Python run the handlers of signals, and asks whether its launch is cancelled.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import sys
import time
from threading import get_ident
from typing import Any

from dualbcast.errors import KernelCancelled
from dualbcast.runtime.cpu.loader import compiled, keep_forever

__all__ = [
    *("PERIOD", "POLL", "STOPPED", "STOPPING", "UNITS"),
    *("begin", "cancel", "cancelled", "help_with", "raised", "symbols"),
]

# What machine code calls the function, and where the units of work are that a thread has left until it calls it.
POLL, UNITS = "dualbcast_poll", "dualbcast_units"
# Some 50 microseconds to a few milliseconds of work: a unit is a statement for a vector, see `polling`.
PERIOD = 1 << 16
# Fewer units than that are the answer to stop; and the status that a kernel returns then.
STOPPING, STOPPED = -(1 << 62), 2
# Milliseconds. Where other threads keep the lock, each time takes 5 and more.
_EVERY = 100


def cancel(thread: int | None = None) -> None:
    """Stop kernels that run on the CPU: each call raises `KernelCancelled` in the thread that made it.

    A kernel with a loop that may take long stops within some 0.2 seconds, any other one runs to its end. What it has
    written to its outputs is undefined. Ctrl-C stops kernels of the main thread only, as Python sends it there; this is
    for those of others.

    Parameters
    ----------
    thread : int, optional
        The thread whose kernel is to stop, by its `ident`; by default those of all threads.

    Examples
    --------
    >>> import threading
    >>> import dualbcast
    >>> dualbcast.cancel()  # all that run now; none does
    >>> dualbcast.cancel(threading.main_thread().ident)
    """
    cancelled.update(sys._current_frames() if thread is None else [thread])


def begin() -> None:
    """What a launch does first if there are any threads in `cancelled`: those are cancelled that ran before."""
    cancelled.discard(get_ident())


def help_with(status: Any) -> None:
    """Say that the calling thread works for others' launches, which fail where `status.value` is not 0."""
    _helping[get_ident()] = status


def raised() -> BaseException:
    """What stopped the launch that the calling thread has made."""
    for ident in (get_ident(), *_helping):  # It may have been raised in a thread that helped.
        found = _raised.pop(ident, None)
        if found is not None:
            return found
    return KernelCancelled("the kernel was stopped")


@functools.cache
def symbols() -> tuple[tuple[str, int], ...]:
    """What code that polls uses of this process: names and addresses."""
    elsewhere = {name: _address(getattr(ctypes.pythonapi, name)) for name in _API}
    elsewhere |= {"ask": id(_ask), "raised": id(_raised), "key": _key()}
    elsewhere["closing"] = ctypes.addressof(_closing)
    if sys.platform == "win32":
        elsewhere["GetTickCount64"] = _address(ctypes.WinDLL("kernel32").GetTickCount64)
    text = _TEXT.format(
        clock=_TICKS if sys.platform == "win32" else _CLOCK.format(clock=time.CLOCK_MONOTONIC),
        long=8 * ctypes.sizeof(ctypes.c_ulong),
        stopping=STOPPING,
        stop=STOPPING + STOPPING // 2,
        period=PERIOD,
        every=_EVERY,
    )
    return (POLL, compiled(text, "poll", elsewhere=tuple(elsewhere.items()))), (UNITS, ctypes.addressof(_units))


def _ask() -> bool:
    """Whether the calling thread is to stop; what it raises is raised by the launch."""
    me = get_ident()
    helping = _helping.get(me)
    if helping is not None:
        return bool(helping.value)
    if me in cancelled:
        raise KernelCancelled("the kernel was stopped by dualbcast.cancel()")
    return False


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _key() -> int:
    """The address of what the time of a thread's last question is kept by; it stays in the process."""
    allocate = ctypes.PYFUNCTYPE(ctypes.c_void_p)(_address(ctypes.pythonapi.PyThread_tss_alloc))
    create = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(_address(ctypes.pythonapi.PyThread_tss_create))
    key = allocate()
    if not key or create(key):
        raise MemoryError("there is no room for what is kept for each thread")
    return int(key)


def _renew_after_fork() -> None:
    cancelled.clear()
    _helping.clear()
    _raised.clear()


# The threads whose launches are to stop. Others may be among them, until they launch something.
cancelled: set[int] = set()
# By thread: the status of the launches that it helps with; what has stopped its launch.
_helping: dict[int, Any] = {}
_raised: dict[int, BaseException] = {}
# What is left until the next question, of whichever thread has worked last: kernels begin with it, so that many short
# ones ask, too.
_units = ctypes.c_int64(PERIOD)
# Not 0 when the interpreter is about to end: who asks nothing of it any more goes on until the process ends.
_closing = ctypes.c_int64(0)
for _cell in (_units, _closing):
    keep_forever(_cell)
atexit.register(setattr, _closing, "value", 1)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_after_fork)

_API = (
    *("PyGILState_Ensure", "PyGILState_Release", "PyErr_CheckSignals", "PyObject_CallNoArgs", "PyObject_IsTrue"),
    *("PyErr_Fetch", "PyErr_NormalizeException", "PyException_SetTraceback", "PyDict_SetItem", "Py_DecRef"),
    *("PyLong_FromUnsignedLong", "PyThread_get_thread_ident", "PyThread_tss_get", "PyThread_tss_set"),
)
# Milliseconds of a clock that never goes back.
_CLOCK = """\
declare i32 @clock_gettime(i32, ptr)
define private i64 @now() {{
  %time = alloca [2 x i64]
  %status = call i32 @clock_gettime(i32 {clock}, ptr %time)
  %seconds = load i64, ptr %time
  %rest.at = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %rest.at
  %thousands = mul i64 %seconds, 1000
  %parts = sdiv i64 %rest, 1000000
  %now = add i64 %thousands, %parts
  ret i64 %now
}}
"""
_TICKS = """\
declare i64 @GetTickCount64()
define private i64 @now() {
  %now = call i64 @GetTickCount64()
  ret i64 %now
}
"""
# Whatever the Python function raises, and be it a signal's exception before its first line, is kept for the launch.
_TEXT = """\
@ask = external global i8
@raised = external global i8
@key = external global i8
@closing = external global i64
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare i32 @PyErr_CheckSignals()
declare ptr @PyObject_CallNoArgs(ptr)
declare i32 @PyObject_IsTrue(ptr)
declare void @PyErr_Fetch(ptr, ptr, ptr)
declare void @PyErr_NormalizeException(ptr, ptr, ptr)
declare i32 @PyException_SetTraceback(ptr, ptr)
declare i32 @PyDict_SetItem(ptr, ptr, ptr)
declare void @Py_DecRef(ptr)
declare ptr @PyLong_FromUnsignedLong(i{long})
declare i{long} @PyThread_get_thread_ident()
declare ptr @PyThread_tss_get(ptr)
declare i32 @PyThread_tss_set(ptr, ptr)
{clock}
define i64 @poll(i64 %units) {{
entry:
  %kind = alloca ptr
  %value = alloca ptr
  %trace = alloca ptr
  %stopping = icmp slt i64 %units, {stopping}
  br i1 %stopping, label %stop, label %look
look:
  %now = call i64 @now()
  %kept = call ptr @PyThread_tss_get(ptr @key)
  %last = ptrtoint ptr %kept to i64
  %since = sub i64 %now, %last
  %due = icmp uge i64 %since, {every}
  br i1 %due, label %due.now, label %go
due.now:
  %closing = load atomic i64, ptr @closing seq_cst, align 8
  %open = icmp eq i64 %closing, 0
  br i1 %open, label %ask, label %go
ask:
  %new = inttoptr i64 %now to ptr
  %set = call i32 @PyThread_tss_set(ptr @key, ptr %new)
  %lock = call i32 @PyGILState_Ensure()
  %bad = call i32 @PyErr_CheckSignals()
  %fine = icmp eq i32 %bad, 0
  br i1 %fine, label %call, label %keep
call:
  %answer = call ptr @PyObject_CallNoArgs(ptr @ask)
  %none = icmp eq ptr %answer, null
  br i1 %none, label %keep, label %read
read:
  %true = call i32 @PyObject_IsTrue(ptr %answer)
  call void @Py_DecRef(ptr %answer)
  call void @PyGILState_Release(i32 %lock)
  %no = icmp eq i32 %true, 0
  br i1 %no, label %go, label %stop
keep:
  store ptr null, ptr %kind
  store ptr null, ptr %value
  store ptr null, ptr %trace
  call void @PyErr_Fetch(ptr %kind, ptr %value, ptr %trace)
  call void @PyErr_NormalizeException(ptr %kind, ptr %value, ptr %trace)
  %a.kind = load ptr, ptr %kind
  %a.value = load ptr, ptr %value
  %a.trace = load ptr, ptr %trace
  %untraced = icmp eq ptr %a.trace, null
  br i1 %untraced, label %store, label %traced
traced:
  %also = call i32 @PyException_SetTraceback(ptr %a.value, ptr %a.trace)
  br label %store
store:
  %me = call i{long} @PyThread_get_thread_ident()
  %by = call ptr @PyLong_FromUnsignedLong(i{long} %me)
  %stored = call i32 @PyDict_SetItem(ptr @raised, ptr %by, ptr %a.value)
  call void @Py_DecRef(ptr %by)
  call void @Py_DecRef(ptr %a.kind)
  call void @Py_DecRef(ptr %a.value)
  call void @Py_DecRef(ptr %a.trace)
  call void @PyGILState_Release(i32 %lock)
  br label %stop
go:
  ret i64 {period}
stop:
  ret i64 {stop}
}}
"""
