"""Threads that share the pieces of a launch, and the memory they are lent: machine code draws pieces and waits, without
the interpreter's lock.

The stack is too small for that. A thread may have no more than 32 KiB of it.

A thread without work looks for more before it sleeps, since to wake a thread takes longer than many kernels run. The
thread that launches works as well, so a launch ends even if no other thread comes.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import os
import threading
from array import array
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dualbcast.codegen.llvm.target import POLL, STOPPED
from dualbcast.codegen.loops.recipe import Recipe
from dualbcast.codegen.loops.scratch import LINE, PLACES
from dualbcast.codegen.loops.thread_pool import OFFSETS, STATE_SIZE, write_call, write_pool
from dualbcast.runtime.call_key import host_addresses
from dualbcast.runtime.cpu import interrupt
from dualbcast.runtime.cpu.loader import compiled

if TYPE_CHECKING:
    pass

# The most pieces of memory that wait for a launch. To allocate one takes longer than some launches.
_MOST_WAITING = 8


class Scratch:
    """Memory of one launch at a time. Between launches no thread has a place in it.

    Attributes
    ----------
    address, size : int
        Where the places begin, and their bytes together.
    """

    __slots__ = ("_memory", "address", "size")

    def __init__(self, size: int) -> None:
        self._memory = np.empty(PLACES + size + LINE, np.uint8)
        (address,) = host_addresses((self._memory,))
        ahead = PLACES + -address % LINE
        self._memory[:ahead] = 0
        self.address, self.size = address + ahead, size


def lend(room: int, threads: int) -> tuple[Scratch, int]:
    """Memory for so many threads at a time, which is to be given back when they are done, and its number of places."""
    places = min(threads, PLACES)
    size = room * places
    try:
        scratch = _waiting.pop()
    except IndexError:
        scratch = Scratch(size)
    return (scratch if scratch.size >= size else Scratch(size)), places


def give_back(scratch: Scratch) -> None:
    """Keep memory that no thread works in for another launch."""
    if len(_waiting) < _MOST_WAITING:
        _waiting.append(scratch)


_waiting: deque[Scratch] = deque()


# The answer of a pool that another launch has.
_NOT_OURS = -1000
# How often an idle thread looks for work before it sleeps: for some 100 microseconds at a stretch, then for some 300
# while it lets others run. Between two calls with tens of large outputs Python takes as long.
_LOOKS, _YIELDS = 4000, 1000
# More threads than processors bring nothing, however many are asked for.
_MAX_THREADS = os.cpu_count() or 1
# How many launches may have helping threads at a time; the others do all their work themselves.
_MAX_POOLS = max(1, _MAX_THREADS // 4)


@dataclass(frozen=True, slots=True)
class Work:
    """The calls of machine code that make up a launch, one for each piece.

    Attributes
    ----------
    address : int
        Where the code is.
    arguments : array
        Its arguments, 64-bit integers: those of the first piece, of the second, and so on.
    count : int
        How many pieces there are.
    scratch : Scratch or None
        The memory that the code works in.
    """

    address: int
    arguments: Any
    count: int
    scratch: Scratch | None = None


def share(address: int, arguments: Any, length: int, first: int, count: int, threads: int) -> int:
    """Call a function of the machine once for each piece of work, on several threads, and return when all are done.

    Parameters
    ----------
    address : int
        Of the function. It takes 64-bit integers and pointers, and returns a 32-bit status.
    arguments : array
        A contiguous buffer of 64-bit integers: the arguments of one call after the other.
    length : int
        How many of them belong to a call.
    first, count : int
        The piece to begin with, and how many there are to run.
    threads : int
        At most so many, the calling one among them; more than the machine has processors are as many as it has.

    Returns
    -------
    int
        How many the calling thread ran, or the negative of a status other than 0 that a call returned; it is the last
        one then that the thread ran.
    """
    where = _address_of(arguments) + 8 * length * first
    helpers = min(threads, count, _MAX_THREADS) - 1
    if helpers > 0:
        token = next(_tokens)
        for pool in _pools():
            ran = pool.run(token, address, where, length, count, helpers)
            if ran != _NOT_OURS:
                return ran
    call = _call(length)
    for piece in range(count):
        status = call(address, where + 8 * length * piece)
        if status:
            return -int(status)
    return count


def is_watched() -> bool:
    """Whether a thread is awake that looks for work, so that a launch has it at once."""
    return any(pool.watchers.value for pool in _every if not pool.owner.value)


def _address_of(numbers: Any) -> int:
    if isinstance(numbers, array):
        return numbers.buffer_info()[0]
    return int(numbers.ctypes.data)


def _pools() -> Iterator[Pool]:
    """The pools that may be free, and then a new one, if there may be more."""
    for pool in list(_every):
        if not pool.owner.value:
            yield pool
    if len(_every) < _MAX_POOLS:
        yield Pool()


class Pool:
    """Threads for one launch at a time.

    Attributes
    ----------
    watchers : ctypes.c_int64
        How many threads look for work, none of which needs the interpreter's lock to take it.
    owner : ctypes.c_int64
        Which launch has the pool; 0 if none.
    """

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

    def run(self, token: int, address: int, where: int, length: int, count: int, helpers: int) -> int:
        """See `share`; `token` stands for the launch, `where` the arguments are, `helpers` are the threads beside this
        one. `_NOT_OURS` if another launch has the pool."""
        work = self._state, _caller(length), address, where, 8 * length, count, helpers, token
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
    recipe = Recipe(write_pool, (_YIELDS, _NOT_OURS, STOPPED, POLL))
    address = functools.partial(compiled, recipe, elsewhere=interrupt.symbols())
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    # With the GIL, which others may hold for long; it takes nanoseconds.
    kinds = pointer, pointer, pointer, pointer, number, number, number, number
    post = ctypes.PYFUNCTYPE(ctypes.c_int32, *kinds)(address("post"))
    finish = ctypes.CFUNCTYPE(number, pointer, number)(address("finish"))
    return post, finish, ctypes.CFUNCTYPE(ctypes.c_int32, pointer, number)(address("attend"))


@functools.cache
def _caller(count: int) -> int:
    """The address of a function that calls another one, at an address, with so many arguments from an array."""
    return compiled(Recipe(write_call, (count,)), "call")


@functools.cache
def _call(count: int) -> Any:
    return ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(_caller(count))


def _renew_after_fork() -> None:
    # Threads do not survive a fork.
    _every.clear()


_every: list[Pool] = []
# Numbers that tell launches apart.
_tokens = itertools.count(1)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_after_fork)
