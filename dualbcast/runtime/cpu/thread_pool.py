"""Threads that share the pieces of a launch: machine code draws them and waits, without the interpreter and its lock.

A thread that has no work watches for more for a while, since to wake it takes longer than many kernels run; then it
sleeps. Whoever launches works, too, so that a launch ends even if no other thread comes.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import os
import platform
import sys
import threading
from array import array
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dualbcast.codegen.llvm.abi import STOPPED
from dualbcast.runtime.cpu import interrupt
from dualbcast.runtime.cpu.loader import compiled

if TYPE_CHECKING:
    from dualbcast.runtime.cpu.scratch import Scratch

__all__ = ["Pool", "Work", "is_watched", "share"]

# What a pool answers that another launch has.
_NOT_OURS = -1000
# How often an idle thread looks for work before it sleeps: some 100 microseconds at a stretch, and then some 300 while
# it lets others run. As much Python is between two calls that have tens of large outputs.
_LOOKS, _YIELDS = 4000, 1000
# Threads beyond the processors bring nothing, however many are asked for.
_MOST = os.cpu_count() or 1
# How many launches may have threads to help them at a time; others do their work themselves.
_POOLS = max(1, _MOST // 4)
# Bytes of a pool's state: the cursor, the number of pieces done, and the free places have a cache line each, and so
# have the status of a launch, the number of threads that watch, and whose the pool is, which are at these bytes.
_STATE, _LINE, _STATUS, _WATCHERS, _OWNER = 512, 64, 192, 256, 320


@dataclass(frozen=True, slots=True)
class Work:
    """What a launch calls machine code with, piece by piece.

    Attributes
    ----------
    address : int
        Of the code.
    arguments : array
        Its arguments, 64-bit integers: those of the first piece, of the second, and so on.
    count : int
        How many pieces there are.
    scratch : Scratch or None
        What the code works in.
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
    helpers = min(threads, count, _MOST) - 1
    if helpers > 0:
        token = next(_tokens)
        for found in _pools():
            ran = found.run(token, address, where, length, count, helpers)
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
    return any(found.watchers.value for found in _every if not found.owner.value)


def _address_of(numbers: Any) -> int:
    if isinstance(numbers, array):
        return numbers.buffer_info()[0]
    return int(numbers.ctypes.data)


def _pools() -> Iterator[Pool]:
    """Those that may be free, and then a new one, if there may be more."""
    for found in list(_every):
        if not found.owner.value:
            yield found
    if len(_every) < _POOLS:
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
        self._memory = ctypes.create_string_buffer(_STATE + _LINE)
        self._state = -(-ctypes.addressof(self._memory) // _LINE) * _LINE
        self.watchers = ctypes.c_int64.from_address(self._state + _WATCHERS)
        self._status = ctypes.c_int32.from_address(self._state + _STATUS)
        self.owner = ctypes.c_int64.from_address(self._state + _OWNER)
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
        """What the other threads do."""
        asleep = threading.Lock()
        asleep.acquire()
        interrupt.help_with(self._status)
        while True:
            self._attend(self._state, _LOOKS + _YIELDS)
            self._asleep.append(asleep)
            # Work that was posted while this thread waited for the interpreter did not find it there.
            self._attend(self._state, 1)
            asleep.acquire()


def _prototype(*kinds: Any, returned: Any = ctypes.c_int32) -> Any:
    return ctypes.CFUNCTYPE(returned, *kinds)


@functools.cache
def _functions() -> tuple[Any, Any, Any]:
    """`post`, `finish` and `attend`."""
    pause, declared = _PAUSES.get(platform.machine().lower(), ("", ""))
    text = _TEXT.format(
        pause=pause,
        yields=_YIELDS,
        watchers=_WATCHERS,
        owner=_OWNER,
        not_ours=_NOT_OURS,
        stopped=STOPPED,
        **_yielding(),
    )
    text, elsewhere = text + declared, interrupt.symbols()
    pointer, word = ctypes.c_void_p, ctypes.c_int64
    # With the GIL, which others may hold for long; it takes nanoseconds.
    kinds = pointer, pointer, pointer, pointer, word, word, word, word
    post = ctypes.PYFUNCTYPE(ctypes.c_int32, *kinds)(compiled(text, "post", elsewhere=elsewhere))
    finish = _prototype(pointer, word, returned=word)(compiled(text, "finish", elsewhere=elsewhere))
    return post, finish, _prototype(pointer, word)(compiled(text, "attend", elsewhere=elsewhere))


@functools.cache
def _caller(count: int) -> int:
    """The address of `call(function, arguments)`: integers and pointers are passed alike, so one serves for all."""
    numbers = [f"%n{at}" for at in range(count)]
    lines = ["define i32 @call(ptr %function, ptr %arguments) {"]
    for at, number in enumerate(numbers):
        lines += [f"  {number}.at = getelementptr i64, ptr %arguments, i64 {at}"]
        lines += [f"  {number} = load i64, ptr {number}.at"]
    lines += [f"  %status = call i32 %function({', '.join(f'i64 {number}' for number in numbers)})"]
    # What `streams` lets a kernel store past the cache may be seen late by other threads but for this. It is here since
    # a kernel may be called for each row of a tile, and to wait each time takes longer than the rows.
    lines += ["  fence seq_cst"]
    return compiled("\n".join([*lines, "  ret i32 %status", "}"]), "call")


@functools.cache
def _call(count: int) -> Any:
    return _prototype(ctypes.c_void_p, ctypes.c_void_p)(_caller(count))


def _yielding() -> dict[str, str]:
    """How a thread lets others run, where there is a way."""
    if sys.platform == "win32":
        return {"declare": "declare i32 @SwitchToThread()", "rest": "call i32 @SwitchToThread()"}
    return {"declare": "declare i32 @sched_yield()", "rest": "call i32 @sched_yield()"}


_PAUSES = {
    **dict.fromkeys(
        ("x86_64", "amd64"), ("call void @llvm.x86.sse2.pause()", "\ndeclare void @llvm.x86.sse2.pause()\n")
    ),
    **dict.fromkeys(
        ("aarch64", "arm64"), ("call void @llvm.aarch64.hint(i32 1)", "\ndeclare void @llvm.aarch64.hint(i32)\n")
    ),
}

# The state of a pool, by byte: at 0 the cursor, at 64 how many pieces are done, at 128 the places for threads, at 192
# a status that was not 0, the caller, its function, the arguments, the bytes of those of a piece, and how many pieces
# there are; at 256 how many threads watch; at 320 the token of the launch that has the pool, or 0. The cursor's lower
# half counts the pieces that nobody has drawn; the upper half, and that of the places, counts the launches: who comes
# late finds another number there, and touches nothing. The rest belongs to the launch, and stays as it is until all of
# its pieces are done, and so for as long as a thread has drawn one. Where a piece has failed, the others are drawn and
# do not run.
_TEXT = """\
{declare}
declare i64 @dualbcast_poll(i64)

define private i64 @work(ptr %state, i64 %launch) {{
entry:
  %done = getelementptr i8, ptr %state, i64 64
  %failed = getelementptr i8, ptr %state, i64 192
  %caller.at = getelementptr i8, ptr %state, i64 200
  %function.at = getelementptr i8, ptr %state, i64 208
  %arguments.at = getelementptr i8, ptr %state, i64 216
  %length.at = getelementptr i8, ptr %state, i64 224
  %count.at = getelementptr i8, ptr %state, i64 232
  br label %look
look:
  %ran = phi i64 [ 0, %entry ], [ %ran, %draw ], [ %one.more, %count.it ]
  %cursor = load atomic i64, ptr %state seq_cst, align 8
  %left = and i64 %cursor, 4294967295
  %current = lshr i64 %cursor, 32
  %some = icmp ne i64 %left, 0
  %same = icmp eq i64 %current, %launch
  %go = and i1 %some, %same
  br i1 %go, label %draw, label %end
draw:
  %less = sub i64 %cursor, 1
  %drawn = cmpxchg ptr %state, i64 %cursor, i64 %less seq_cst seq_cst
  %mine = extractvalue {{ i64, i1 }} %drawn, 1
  br i1 %mine, label %run, label %look
run:
  %caller = load ptr, ptr %caller.at
  %function = load ptr, ptr %function.at
  %arguments = load ptr, ptr %arguments.at
  %length = load i64, ptr %length.at
  %count = load i64, ptr %count.at
  %piece = sub i64 %count, %left
  %offset = mul i64 %piece, %length
  %own = getelementptr i8, ptr %arguments, i64 %offset
  %so.far = load atomic i32, ptr %failed seq_cst, align 8
  %sound = icmp eq i32 %so.far, 0
  br i1 %sound, label %call, label %count.it
call:
  %status = call i32 %caller(ptr %function, ptr %own)
  %good = icmp eq i32 %status, 0
  br i1 %good, label %count.it, label %note
note:
  store atomic i32 %status, ptr %failed seq_cst, align 8
  br label %count.it
count.it:
  %before = atomicrmw add ptr %done, i64 1 seq_cst
  %one.more = add i64 %ran, 1
  br label %look
end:
  ret i64 %ran
}}

define i32 @post(
  ptr %state, ptr %caller, ptr %function, ptr %arguments, i64 %length, i64 %count, i64 %places, i64 %token
) {{
entry:
  %owner = getelementptr i8, ptr %state, i64 {owner}
  %taken = cmpxchg ptr %owner, i64 0, i64 %token seq_cst seq_cst
  %mine = extractvalue {{ i64, i1 }} %taken, 1
  br i1 %mine, label %post, label %not.free
not.free:
  ret i32 0
post:
  %done = getelementptr i8, ptr %state, i64 64
  %places.at = getelementptr i8, ptr %state, i64 128
  %failed = getelementptr i8, ptr %state, i64 192
  %caller.at = getelementptr i8, ptr %state, i64 200
  %function.at = getelementptr i8, ptr %state, i64 208
  %arguments.at = getelementptr i8, ptr %state, i64 216
  %length.at = getelementptr i8, ptr %state, i64 224
  %count.at = getelementptr i8, ptr %state, i64 232
  store atomic i32 0, ptr %failed seq_cst, align 8
  store ptr %caller, ptr %caller.at
  store ptr %function, ptr %function.at
  store ptr %arguments, ptr %arguments.at
  store i64 %length, ptr %length.at
  store i64 %count, ptr %count.at
  store atomic i64 0, ptr %done seq_cst, align 8
  %old = load atomic i64, ptr %state seq_cst, align 8
  %former = lshr i64 %old, 32
  %after = add i64 %former, 1
  %launch = and i64 %after, 4294967295
  %high = shl i64 %launch, 32
  %offered = or i64 %high, %places
  store atomic i64 %offered, ptr %places.at seq_cst, align 8
  %cursor = or i64 %high, %count
  store atomic i64 %cursor, ptr %state seq_cst, align 8
  ret i32 1
}}

define i64 @finish(ptr %state, i64 %token) {{
start:
  %owner = getelementptr i8, ptr %state, i64 {owner}
  %has.it = load atomic i64, ptr %owner seq_cst, align 8
  %mine = icmp eq i64 %has.it, %token
  br i1 %mine, label %entry, label %not.mine
not.mine:
  ret i64 {not_ours}
entry:
  %done = getelementptr i8, ptr %state, i64 64
  %failed = getelementptr i8, ptr %state, i64 192
  %count.at = getelementptr i8, ptr %state, i64 232
  %count = load i64, ptr %count.at
  %cursor = load atomic i64, ptr %state seq_cst, align 8
  %launch = lshr i64 %cursor, 32
  %ran = call i64 @work(ptr %state, i64 %launch)
  br label %wait
wait:
  %turn = phi i64 [ 0, %entry ], [ %next, %more ], [ 0, %rest ], [ 0, %fail ]
  %finished = load atomic i64, ptr %done seq_cst, align 8
  %all = icmp eq i64 %finished, %count
  br i1 %all, label %end, label %again
again:
  %next = add i64 %turn, 1
  %long = icmp ugt i64 %next, 1000
  br i1 %long, label %rest, label %more
more:
  {pause}
  br label %wait
rest:
  ; Who runs the last piece may be waiting for this processor.
  {rest}
  ; Nor is the thread to be stopped in a kernel, where signals come to it.
  %units = call i64 @dualbcast_poll(i64 0)
  %stop = icmp slt i64 %units, 0
  br i1 %stop, label %fail, label %wait
fail:
  store atomic i32 {stopped}, ptr %failed seq_cst, align 8
  br label %wait
end:
  %status = load atomic i32, ptr %failed seq_cst, align 8
  %good = icmp eq i32 %status, 0
  %wide = sext i32 %status to i64
  %negative = sub i64 0, %wide
  %result = select i1 %good, i64 %ran, i64 %negative
  store atomic i64 0, ptr %owner seq_cst, align 8
  ret i64 %result
}}

define i32 @attend(ptr %state, i64 %looks) {{
entry:
  %places.at = getelementptr i8, ptr %state, i64 128
  %watchers = getelementptr i8, ptr %state, i64 {watchers}
  %one.more = atomicrmw add ptr %watchers, i64 1 seq_cst
  br label %look
look:
  %left = phi i64 [ %looks, %entry ], [ %less, %stay ], [ %less, %yield ], [ %looks, %back ], [ %left, %place ]
  %offered = load atomic i64, ptr %places.at seq_cst, align 8
  %free = and i64 %offered, 4294967295
  %launch = lshr i64 %offered, 32
  %cursor = load atomic i64, ptr %state seq_cst, align 8
  %undrawn = and i64 %cursor, 4294967295
  %current = lshr i64 %cursor, 32
  %same = icmp eq i64 %current, %launch
  %some = icmp ne i64 %undrawn, 0
  %room = icmp ne i64 %free, 0
  %work = and i1 %same, %some
  %go = and i1 %work, %room
  br i1 %go, label %place, label %nothing
nothing:
  %less = sub i64 %left, 1
  %over = icmp eq i64 %less, 0
  br i1 %over, label %end, label %idle
idle:
  %late = icmp ult i64 %less, {yields}
  br i1 %late, label %yield, label %stay
stay:
  {pause}
  br label %look
yield:
  {rest}
  br label %look
place:
  %fewer = sub i64 %offered, 1
  %taken = cmpxchg ptr %places.at, i64 %offered, i64 %fewer seq_cst seq_cst
  %mine = extractvalue {{ i64, i1 }} %taken, 1
  br i1 %mine, label %back, label %look
back:
  %ran = call i64 @work(ptr %state, i64 %launch)
  br label %look
end:
  %one.less = atomicrmw sub ptr %watchers, i64 1 seq_cst
  ret i32 0
}}
"""


def _renew_after_fork() -> None:
    # Threads do not survive a fork.
    _every.clear()


_every: list[Pool] = []
# What launches are known by.
_tokens = itertools.count(1)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_after_fork)
