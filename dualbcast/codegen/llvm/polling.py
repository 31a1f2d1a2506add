"""Which loops of a kernel poll, and the instructions for it.

A loop counts down the cost of its iterations. At zero it calls a function, which returns the units of work until the
next call, or says that all loops end. An iteration takes an instruction and a branch more.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from llvmlite import ir

from dualbcast.codegen.llvm.abi import PERIOD, POLL, STOPPED, STOPPING, WORK_LEFT
from dualbcast.codegen.llvm.names import called_functions
from dualbcast.codegen.llvm.values import WORD, word
from dualbcast.codegen.mathlib.primitives import attribute

__all__ = ["Countdown", "PollingLoops", "cost", "may_take_long"]

# Statements that a loop runs in all, up to which it does not poll; and those of an element's longest loop, up to which
# rows of elements do not. (Fifty steps of an oscillator are 815. If its kernel polled, it would take 1.02 of the time,
# since LLVM distributes the registers otherwise.)
_SHORT_LOOP, _SHORT_ELEMENT = 1 << 14, 1 << 12
# How likely it is that an iteration does not call the function.
_SELDOM = [1 << 20, 1]


def _iterations(loop: ast.For) -> int | None:
    """The number of iterations of a loop; None where it depends on data."""
    bounds = []
    for bound in loop.iter.args if isinstance(loop.iter, ast.Call) else [loop.iter]:
        sign = -1 if isinstance(bound, ast.UnaryOp) and isinstance(bound.op, ast.USub) else 1
        number = bound.operand if isinstance(bound, ast.UnaryOp) else bound
        if not (isinstance(number, ast.Constant) and isinstance(number.value, int)):
            return None
        bounds.append(sign * number.value)
    start, stop, step = [0, *bounds, 1][:3] if len(bounds) == 1 else [*bounds, 1][:3]
    return max(0, -(-(stop - start) // step)) if step else None


def cost(statements: Sequence[ast.stmt]) -> int:
    """How many statements run, without those in loops that poll."""
    total = 0
    for stmt in statements:
        total += 1
        match stmt:
            case ast.If():
                total += cost(stmt.body) + cost(stmt.orelse)
            case ast.For() if not may_take_long(stmt):
                total += (_iterations(stmt) or 0) * (1 + cost(stmt.body))
    return total


def may_take_long(stmt: ast.stmt) -> bool:
    """Whether a statement is a loop that may take long."""
    if not isinstance(stmt, ast.For):
        return isinstance(stmt, ast.While)
    iterations = _iterations(stmt)
    return iterations is None or iterations * (1 + cost(stmt.body)) > _SHORT_LOOP


class PollingLoops:
    """Which loops of a kernel poll.

    Parameters
    ----------
    definitions : mapping of str to ast.FunctionDef
        The functions of the text.
    element : str
        The function that is called for each element.

    Attributes
    ----------
    functions : set of str
        The functions that an element runs, if rows of such elements may take long; else empty.
    """

    def __init__(self, definitions: Mapping[str, ast.FunctionDef], element: str) -> None:
        self._definitions, self._element = definitions, element
        reached, pending = set[str](), [element]
        while pending:
            name = pending.pop()
            if name not in reached and name in definitions:
                reached.add(name)
                pending += called_functions(definitions[name])
        nodes = (node for name in reached for node in ast.walk(definitions[name]))
        loops = [node for node in nodes if isinstance(node, ast.For | ast.While)]
        polls = any(may_take_long(loop) or cost([loop]) > _SHORT_ELEMENT for loop in loops)
        self.functions = reached if polls else set[str]()

    def units(self, function: str, loop: ast.For | ast.While) -> int:
        """The units of work of an iteration of a loop that polls; 0 for any other loop."""
        if not self.functions:
            return 0
        if function in self.functions:
            return 1 + cost(loop.body) if may_take_long(loop) else 0
        return 1 + cost(self._definitions[self._element].body) if self._element in called_functions(loop) else 0


class Countdown:
    """The units of work that a function has left until it polls.

    Parameters
    ----------
    module : llvmlite.ir.Module
    place : llvmlite.ir.Value
        The address of the number.
    """

    def __init__(self, module: ir.Module, place: ir.Value) -> None:
        self.module, self.place = module, place

    @staticmethod
    def begin(module: ir.Module, builder: ir.IRBuilder) -> Countdown:
        """The countdown of a kernel, which goes on where the last kernel of any thread has stopped."""
        countdown = Countdown(module, builder.alloca(WORD, name="units"))
        builder.store(builder.load(_work_left(module), typ=WORD), countdown.place)
        return countdown

    def end(self, builder: ir.IRBuilder) -> None:
        """Return the status of a kernel."""
        left = builder.load(self.place, typ=WORD)
        stopping = builder.icmp_signed("<", left, word(STOPPING))
        builder.store(builder.select(stopping, word(PERIOD), left), _work_left(self.module))
        status = ir.IntType(32)
        builder.ret(builder.select(stopping, ir.Constant(status, STOPPED), ir.Constant(status, 0)))

    def copied(self, builder: ir.IRBuilder) -> Countdown:
        """A copy, which LLVM can keep in a register."""
        copy = Countdown(self.module, builder.alloca(WORD, name="left"))
        self.copy_to(copy, builder)
        return copy

    def copy_to(self, other: Countdown, builder: ir.IRBuilder) -> None:
        builder.store(builder.load(self.place, typ=WORD), other.place)

    def iterate(self, builder: ir.IRBuilder, units: int, again: ir.Block, after: ir.Block) -> list[ir.Block]:
        """End the last block of an iteration of so many units. The blocks are returned that go on to `again`; the last
        of them may leave the loop and go on to `after`."""
        left = builder.sub(builder.load(self.place, typ=WORD), word(units))
        builder.store(left, self.place)
        polling = builder.append_basic_block()
        going = builder.icmp_signed(">=", left, word(0))
        start = builder.block
        builder.cbranch(going, again, polling).set_weights(_SELDOM)
        builder.position_at_end(polling)
        new = builder.call(_poll(self.module), [left])
        builder.store(new, self.place)
        builder.cbranch(builder.icmp_signed(">=", new, word(0)), again, after)
        return [start, polling]


def _work_left(module: ir.Module) -> ir.Value:
    if WORK_LEFT not in module.globals:
        ir.GlobalVariable(module, WORD, WORK_LEFT).linkage = "external"
    return module.globals[WORK_LEFT]


def _poll(module: ir.Module) -> ir.Value:
    if POLL not in module.globals:
        attribute(ir.Function(module, ir.FunctionType(WORD, [WORD]), POLL), "nounwind", "cold")
    return module.globals[POLL]
