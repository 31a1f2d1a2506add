"""Threads that share the pieces of a launch: machine code draws pieces and waits, without the interpreter's lock.

A thread without work looks for more before it sleeps, since to wake a thread takes longer than many kernels run. The
thread that launches works as well, so a launch ends even if no other thread comes.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import os
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dualbcast.codegen.llvm.target import POLL, STOPPED
from dualbcast.codegen.loops import LINE, MISALIGNED
from dualbcast.codegen.loops.calls import write_call
from dualbcast.codegen.loops.thread_pool import OFFSETS, STATE_SIZE, write_pool
from dualbcast.runtime.cpu import interrupt
from dualbcast.runtime.cpu.loader import compiled

# The answer of a pool that another launch has.
_NOT_OURS = -1000
# How often an idle thread looks for work before it sleeps: for some 100 microseconds at a stretch, then for some 300
# while it lets others run. Between two calls with tens of large outputs Python takes as long.
_LOOKS, _YIELDS = 4000, 1000
# More threads than processors bring nothing, however many are asked for.
MAX_THREADS = os.cpu_count() or 1
# How many launches may have helping threads at a time; the others do all their work themselves.
_MAX_POOLS = max(1, MAX_THREADS // 4)


@dataclass(frozen=True, slots=True)
class Work:
    """The calls of machine code at an address that make up a launch, one for each piece.

    The code takes 64-bit integers and pointers, and returns a 32-bit status. `arguments` is a contiguous buffer of
    64-bit integers: those of the first piece, of the second, and so on. If a piece works in `memory`, that has so much
    room for each thread, and the last argument is where it begins.
    """

    address: int
    arguments: Any
    count: int
    room: int = 0
    memory: Any = None


def run(work: Work, threads: int = 1) -> float:
    """Run all pieces of work on at most so many threads, the calling one among them; how much faster than alone. That
    follows from the number of pieces that the calling thread ran: another thread may have come late, or not at all.
    It is 0 where an input is misaligned, and the kernel has not run."""
    own = share(work, threads)
    if own < 0 and own != -MISALIGNED:
        raise interrupt.raised()
    return work.count / max(1, own) if own >= 0 else 0.0


def share(work: Work, threads: int) -> int:
    """Run all pieces: how many the calling thread ran, or the negative of a status other than 0 that a call returned;
    it is the last one then that the thread ran."""
    length, count = len(work.arguments) // work.count, work.count
    where = ctypes.addressof(ctypes.c_char.from_buffer(work.arguments))
    helpers = min(threads, count, MAX_THREADS) - 1
    if helpers > 0:
        token = next(_tokens)
        for pool in _pools():
            ran = pool.run(token, work.address, where, length, work.room, count, helpers)
            if ran != _NOT_OURS:
                return ran
    call = _call(length)
    for piece in range(count):
        status = call(work.address, where + 8 * length * piece)
        if status:
            return -int(status)
    return count


def is_watched() -> bool:
    """Whether a thread is awake that looks for work, so that a launch has it at once."""
    return any(pool.watchers.value for pool in _every if not pool.owner.value)


def _pools() -> Iterator[Pool]:
    """The pools that may be free, and then a new one, if there may be more."""
    for pool in list(_every):
        if not pool.owner.value:
            yield pool
    if len(_every) < _MAX_POOLS:
        yield Pool()


class Pool:
    """Threads for one launch at a time. `watchers` counts those that look for work, none of which needs the
    interpreter's lock to take it. `owner` is the launch that has the pool, 0 if none has."""

    def __init__(self) -> None:
        self._memory = ctypes.create_string_buffer(STATE_SIZE + LINE)
        self._state = -(-ctypes.addressof(self._memory) // LINE) * LINE
        self.watchers = ctypes.c_int64.from_address(self._state + OFFSETS["watchers"])
        self._status = ctypes.c_int32.from_address(self._state + OFFSETS["failed"])
        self.owner = ctypes.c_int64.from_address(self._state + OFFSETS["owner"])
        self._post, self._finish, self._attend = _functions()
        self._asleep: deque[Any] = deque()
        self._threads = 0
        _every.append(self)

    def run(self, token: int, address: int, where: int, length: int, room: int, count: int, helpers: int) -> int:
        """See `share`; `token` stands for the launch, `where` its arguments are, `helpers` are the threads beside this
        one. `_NOT_OURS` if another launch has the pool."""
        work = self._state, caller(length), address, where, 8 * length, room, count, helpers, token
        try:
            # First the work, and then who is to do it: whoever wakes and finds none sleeps again, and whoever falls
            # asleep from now on looks once more before.
            if self._post(*work):
                self._hire(helpers)
                for _ in range(min(helpers, len(self._asleep))):
                    self._asleep.pop().release()
        except BaseException:
            if self.owner.value == token:
                self._status.value = STOPPED  # What has not begun does not run.
            raise
        finally:
            # Whatever interrupts: the arrays must outlive the work, and the pool is free again, if this launch has it.
            ran = int(self._finish(self._state, token))
        return ran

    def _hire(self, helpers: int) -> None:
        """Start threads until there are so many, or the system has no more: whoever launches works, too."""
        while self._threads < helpers:
            thread = threading.Thread(target=self._stay, name="dualbcast", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # a limit of the user or the container; or the interpreter ends
                return
            self._threads += 1

    def _stay(self) -> None:
        """Help with launches, and sleep while there are none, for ever."""
        asleep = threading.Lock()
        asleep.acquire()
        interrupt.help_with(self._status)
        while True:
            self._attend(self._state, _LOOKS + _YIELDS)
            self._asleep.append(asleep)
            # Work that was posted while this thread waited for the interpreter did not find it there.
            self._attend(self._state, 1)
            asleep.acquire()


@functools.cache
def _functions() -> tuple[Any, Any, Any]:
    """`post`, `finish` and `attend`."""

    def address(name: str) -> int:
        return compiled(name, write_pool, _YIELDS, _NOT_OURS, STOPPED, POLL, elsewhere=interrupt.symbols())

    pointer, number = ctypes.c_void_p, ctypes.c_int64
    # With the GIL, which others may hold for long; it takes nanoseconds.
    kinds = pointer, pointer, pointer, pointer, number, number, number, number, number
    post = ctypes.PYFUNCTYPE(ctypes.c_int32, *kinds)(address("post"))
    finish = ctypes.CFUNCTYPE(number, pointer, number)(address("finish"))
    return post, finish, ctypes.CFUNCTYPE(ctypes.c_int32, pointer, number)(address("attend"))


@functools.cache
def caller(count: int) -> int:
    """The address of a function that calls another one, at an address, with so many arguments from an array."""
    return compiled("call", write_call, count)


@functools.cache
def _call(count: int) -> Any:
    return ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(caller(count))


_every: list[Pool] = []
# Numbers that tell launches apart.
_tokens = itertools.count(1)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_every.clear)  # Threads do not survive a fork.
