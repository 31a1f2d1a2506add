"""How a running kernel is stopped: by a signal whose handler raises, as Ctrl-C's does, or by `cancel`.

Kernels with loops poll every few thousand iterations. At most once in `_PERIOD_MS` milliseconds a thread takes the
interpreter's lock then, lets Python run the handlers of signals, and asks whether its launch is cancelled.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import sys
from threading import get_ident
from typing import Any

from dualbcast.codegen.llvm.target import PERIOD, POLL, WORK_LEFT
from dualbcast.codegen.loops.calls import PYTHON, write_go_on, write_poll
from dualbcast.errors import KernelCancelled
from dualbcast.runtime.cpu.loader import compiled, keep_forever

# Where other threads keep the lock, it takes 5 milliseconds and more to get it.
_PERIOD_MS = 100


def cancel(thread: int | None = None) -> None:
    """Stop kernels that run on the CPU: each call raises `KernelCancelled` in the thread that made it.

    A kernel with a loop that may take long stops within some 0.2 seconds; its outputs are then undefined. Any other
    kernel runs to its end. Ctrl-C stops only kernels of the main thread; this function stops any.

    Parameters
    ----------
    thread : int, optional
        The thread whose kernel is to stop, by its `ident`; by default the kernels of all threads stop.

    Examples
    --------
    >>> import threading
    >>> import dualbcast
    >>> dualbcast.cancel()  # stops all kernels that run now; here none does
    >>> dualbcast.cancel(threading.main_thread().ident)
    """
    cancelled.update(sys._current_frames() if thread is None else [thread])


def begin() -> None:
    """Forget that the calling thread was cancelled: that concerned an earlier launch. Every launch begins with it."""
    cancelled.discard(get_ident())


def help_with(status: Any) -> None:
    """Note that the calling thread works for others' launches, which have failed once `status.value` is not 0."""
    _helping[get_ident()] = status


def raised() -> BaseException:
    """The exception that stopped the launch of the calling thread."""
    for ident in (get_ident(), *_helping):  # It may have been raised in a thread that helped.
        error = _raised.pop(ident, None)
        if error is not None:
            return error
    return KernelCancelled("the kernel was stopped")


@functools.cache
def symbols() -> tuple[tuple[str, int], ...]:
    """The symbols of this process that code uses which polls: names and addresses."""
    elsewhere = {name: _address(getattr(ctypes.pythonapi, name)) for name in PYTHON}
    elsewhere |= {"ask": id(_ask), "raised": id(_raised), "key": _key()}
    elsewhere["closing"] = ctypes.addressof(_closing)
    if sys.platform == "win32":
        elsewhere["GetTickCount64"] = _address(ctypes.WinDLL("kernel32").GetTickCount64)
    poll = compiled("poll", write_poll, _PERIOD_MS, elsewhere=tuple(elsewhere.items()))
    return (POLL, poll), (WORK_LEFT, ctypes.addressof(_work_left))


@functools.cache
def no_symbols() -> tuple[tuple[str, int], ...]:
    """The same symbols for code that nothing stops, and that never waits for the interpreter."""
    return (POLL, compiled("go_on", write_go_on)), (WORK_LEFT, ctypes.addressof(_work_left_detached))


def _ask() -> bool:
    """Whether the calling thread is to stop; an exception is raised by its launch."""
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
    """The address of a key for the time of each thread's last question; it stays in the process."""
    allocate = ctypes.PYFUNCTYPE(ctypes.c_void_p)(_address(ctypes.pythonapi.PyThread_tss_alloc))
    create = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(_address(ctypes.pythonapi.PyThread_tss_create))
    key = allocate()
    if not key or create(key):
        raise MemoryError("there is no room for data of threads")
    return int(key)


# The threads whose launches are to stop. Others may be among them, until they launch something.
cancelled: set[int] = set()
# By thread: the status of the launches that it helps with; and the exception that has stopped its launch.
_helping: dict[int, Any] = {}
_raised: dict[int, BaseException] = {}
# The units of work that the last kernel of any thread has left until it polls. Kernels begin with them, so that one of
# many short kernels polls, too.
_work_left = ctypes.c_int64(PERIOD)
# Not 0 when the interpreter is about to end. A thread then takes its lock no more, and goes on until the process ends.
_closing = ctypes.c_int64(0)
_work_left_detached = ctypes.c_int64(PERIOD)
for _cell in (_work_left, _closing, _work_left_detached):
    keep_forever(_cell)
atexit.register(setattr, _closing, "value", 1)
if hasattr(os, "register_at_fork"):
    for _record in (cancelled, _helping, _raised):
        os.register_at_fork(after_in_child=_record.clear)
