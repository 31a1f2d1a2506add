"""Which loops of a kernel poll whether they may go on.

A loop that polls counts down the cost of its iterations. At zero it calls a function, which returns the units of work
until the next call, or says that all loops end. An iteration takes an instruction and a branch more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dualbcast.codegen.llvm.target import PERIOD, POLL, STOPPED, STOPPING, WORK_LEFT
from dualbcast.codegen.loops.builder import Function, Pointer
from dualbcast.ir.nodes import Block, For, If, Stmt, While
from dualbcast.ir.traversal import known_iterations, statements

# Statements that a loop runs in all, up to which it does not poll; and those of an element's longest loop, up to which
# rows of elements do not. (Fifty steps of an oscillator are 2,000. If its kernel polled, it would take 1.02 of the
# time, since LLVM distributes the registers otherwise.)
_SHORT_LOOP, _SHORT_ELEMENT = 1 << 16, 1 << 14


def cost(block: Block) -> int:
    """How many statements run, without those in loops that poll."""
    total = 0
    for stmt in block:
        total += 1
        match stmt:
            case If():
                total += cost(stmt.then) + cost(stmt.orelse)
            case For() if not may_take_long(stmt):
                total += (known_iterations(stmt) or 0) * (1 + cost(stmt.body))
    return total


def may_take_long(stmt: Stmt) -> bool:
    """Whether a statement is a loop that may take long."""
    if not isinstance(stmt, For):
        return isinstance(stmt, While)
    iterations = known_iterations(stmt)
    return iterations is None or iterations * (1 + cost(stmt.body)) > _SHORT_LOOP


def is_long(bodies: Iterable[Block]) -> bool:
    """Whether rows of elements that run these blocks may take long."""
    loops = [stmt for body in bodies for stmt in statements(body) if isinstance(stmt, For | While)]
    return any(may_take_long(loop) or cost((loop,)) > _SHORT_ELEMENT for loop in loops)


class Countdown:
    """The units of work that a function has left until it polls, in memory."""

    def __init__(self, f: Function, left: Pointer) -> None:
        self._f, self.left = f, left

    @staticmethod
    def begin(f: Function) -> Countdown:
        """The countdown of a kernel, which goes on where the last kernel of any thread has stopped."""
        return Countdown(f, f.variable_of_process(WORK_LEFT)).copied()

    def end(self) -> None:
        """Return the status of a kernel."""
        left = self.left[0]
        is_stopping = left < STOPPING
        self._f.variable_of_process(WORK_LEFT)[0] = is_stopping.choose(left.constant(PERIOD), left)
        self._f.return_(is_stopping.choose(left.constant(STOPPED), 0).to("int32"))

    def copied(self) -> Countdown:
        """A copy, which LLVM can keep in a register."""
        copy = Countdown(self._f, self._f.room(1))
        self.copy_to(copy)
        return copy

    def copy_to(self, other: Countdown) -> None:
        other.left[0] = self.left[0]

    def iterate(self, units: int, leave: Callable[[], Any]) -> None:
        """Write the end of an iteration of so many units; `leave` writes the way out of the loop."""
        f, left = self._f, self.left[0] - units
        self.left[0] = left
        with f.if_(left < 0, likely=False):
            poll = f.module.external(POLL, ["int64"], "int64")
            for each in ("nounwind", "cold"):
                set.add(poll.attributes, each)
            new = f.call(poll, left)
            self.left[0] = new
            with f.if_(new < 0):
                leave()
