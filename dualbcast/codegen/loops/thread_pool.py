"""The machine code of a thread pool: how threads draw the pieces of a launch and wait for each other.

Neither the interpreter nor its lock is needed for that. A pool's state is memory with the numbers of `OFFSETS`.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dualbcast.codegen.loops import LINE

if TYPE_CHECKING:
    from dualbcast.codegen.loops.builder import Function, Module, Pointer
    from dualbcast.codegen.values import Value

# Where each number of a pool's state is, in bytes. Threads that use different lines do not disturb each other.
#
# A launch has a number. The upper halves of `cursor` and `places` are that number; the lower halves are how
# many of its pieces nobody has drawn, and how many more threads may help. A thread that comes late finds another number
# there and touches nothing. `failed` is the status of a piece that failed: the other pieces are drawn then, but do not
# run. It and the numbers after it belong to the launch, and stay as they are until all its pieces are done, hence for
# as long as a thread runs one of them.
_GIVEN = "caller", "function", "arguments", "length", "room", "count"
OFFSETS = {
    "cursor": 0,
    "done": LINE,
    "places": 2 * LINE,
    "failed": 3 * LINE,
    **{name: 3 * LINE + 8 * at for at, name in enumerate(_GIVEN, 1)},
    "watchers": 4 * LINE,
    "owner": 5 * LINE,
}
_KINDS = {"failed": "int32", "arguments": "*int8"}
STATE_SIZE = 6 * LINE
_LOW, _HIGH = (1 << 32) - 1, 32
# How often a thread that waits for others looks at a number before it lets another thread have its processor.
_LOOKS_AT_A_STRETCH = 1000
_PAUSES: dict[str, tuple[str, tuple[int, ...]]] = {
    **dict.fromkeys(("x86_64", "amd64"), ("llvm.x86.sse2.pause", ())),
    **dict.fromkeys(("aarch64", "arm64"), ("llvm.aarch64.hint", (1,))),
}


def write_pool(module: Module, yields: int, not_ours: int, stopped: int, poll: str) -> tuple[Function, ...]:
    """The three functions that a pool calls.

    A thread gives up after it has looked for work `yields` times while it let others have its processor. `finish`
    answers `not_ours` where another launch has the pool. `stopped` is the status of a launch that is to stop; the
    function named `poll` says whether the calling thread is to.
    """
    work = module.use(write_work)
    return write_post(module), write_finish(module, work, not_ours, stopped, poll), write_attend(module, work, yields)


def _number(state: Pointer, name: str) -> Pointer:
    return state.skip_bytes(OFFSETS[name]).of(_KINDS.get(name, "int64"))


def write_work(module: Module) -> Function:
    """`work(state, launch, thread)`: draw the pieces of a launch and run them until none is left; how many this thread
    drew. `thread` is its number among those of the launch: so many rooms further on is the memory that it works in,
    whose address is the last argument of a piece."""
    f = module.function("work", ["*int8", "int64", "int64"], "int64")
    state, launch, thread = f.parameters
    cursor_place, failed = _number(state, "cursor"), _number(state, "failed")
    ran = f.variable(0)
    with f.loop() as leave:
        cursor = cursor_place.load_atomic()
        left = cursor & _LOW
        with f.if_((left == 0) | (cursor >> _HIGH != launch)):
            leave()
        with f.if_(cursor_place.compare_exchange(cursor, cursor - 1)):
            caller, function, arguments, length, room, count = (_number(state, name)[0] for name in _GIVEN)
            with f.if_(failed.load_atomic() == 0):
                own = arguments.skip_bytes((count - left) * length)
                memory = own.skip_bytes(length - 8).of("int64")
                memory[0] = memory[0] + thread * room
                status = f.call_address(caller, "int32", [function, own])
                with f.if_(status != 0):
                    failed.store_atomic(status)
            _number(state, "done").add_atomic(1)
            ran.value = ran.value + 1
    f.return_(ran.value)
    return f


def write_post(module: Module) -> Function:
    """`post(state, caller, function, arguments, length, room, count, helpers, token)`: offer the pieces of a launch, if
    the pool is free; whether it was."""
    f = module.function("post", ["*int8", "int64", "int64", "*int8", *["int64"] * 5], "int32")
    state, *given, helpers, token = f.parameters
    count = given[-1]
    with f.if_(_number(state, "owner").compare_exchange(0, token)):
        _number(state, "failed").store_atomic(0)
        for name, value in zip(_GIVEN, given, strict=True):
            _number(state, name)[0] = value
        _number(state, "done").store_atomic(0)
        cursor = _number(state, "cursor")
        launch = (cursor.load_atomic() >> _HIGH) + 1 << _HIGH
        _number(state, "places").store_atomic(launch | helpers)
        cursor.store_atomic(launch | count)
        f.return_(1)
    f.return_(0)
    return f


@contextmanager
def wait_until(f: Function, number: Pointer, count: Value) -> Iterator[None]:
    """A loop that ends when an atomic number is `count`. The block runs each time that the processor was given away."""
    looks = f.variable(0)
    with f.loop() as leave:
        with f.if_(number.load_atomic() == count):
            leave()
        looks.value = looks.value + 1
        with f.if_else(looks.value > _LOOKS_AT_A_STRETCH) as (long, short):
            with short:
                pause(f)
            with long:
                looks.value = 0
                # The thread that runs the last piece may be waiting for this processor.
                give_way(f)
                yield


def write_finish(module: Module, work: Function, not_ours: int, stopped: int, poll: str) -> Function:
    """`finish(state, token)`: work for the launch of this token, wait for the others, and free the pool; how many
    pieces this thread drew, or the negative of a status that was not 0."""
    f = module.function("finish", ["*int8", "int64"], "int64")
    state, token = f.parameters
    owner, done, failed = (_number(state, name) for name in ("owner", "done", "failed"))
    with f.if_(owner.load_atomic() != token):
        f.return_(not_ours)
    count = _number(state, "count")[0]
    ran = f.call(work, state, _number(state, "cursor").load_atomic() >> _HIGH, 0)
    # A signal may come to this thread while it is in no kernel that would ask.
    with wait_until(f, done, count), f.if_(f.call(module.external(poll, ["int64"], "int64"), 0) < 0):
        failed.store_atomic(stopped)
    status = failed.load_atomic().to("int64")
    owner.store_atomic(0)
    f.return_((status == 0).choose(ran, status * -1))
    return f


def write_attend(module: Module, work: Function, yields: int) -> Function:
    """`attend(state, looks)`: look for work so many times, and as often after each launch that this thread helped."""
    f = module.function("attend", ["*int8", "int64"], "int32")
    state, looks = f.parameters
    places, watchers = _number(state, "places"), _number(state, "watchers")
    watchers.add_atomic(1)
    left = f.variable(looks)
    with f.loop() as leave:
        offered = places.load_atomic()
        cursor = _number(state, "cursor").load_atomic()
        launch = offered >> _HIGH
        is_open = (cursor >> _HIGH == launch) & (cursor & _LOW != 0) & (offered & _LOW != 0)
        with f.if_else(is_open) as (some, none):
            with some, f.if_(places.compare_exchange(offered, offered - 1)):
                f.call(work, state, launch, offered & _LOW)
                left.value = looks
            with none:
                left.value = left.value - 1
                with f.if_(left.value == 0):
                    leave()
                with f.if_else(left.value < yields) as (late, early):
                    with late:
                        give_way(f)
                    with early:
                        pause(f)
    watchers.add_atomic(-1)
    f.return_(0)
    return f


def pause(f: Function) -> None:
    """Tell the processor that this thread waits."""
    name, arguments = _PAUSES.get(platform.machine().lower(), ("", ()))
    if name:
        f.call(f.module.external(name, ["int32"] * len(arguments), "void"), *arguments)


def give_way(f: Function) -> None:
    """Let another thread have this processor."""
    name = "SwitchToThread" if sys.platform == "win32" else "sched_yield"
    f.call(f.module.external(name, [], "int32"))
