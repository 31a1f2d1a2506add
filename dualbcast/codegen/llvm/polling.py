"""Which loops of a kernel ask now and then whether to go on, and the instructions for that.

A loop counts down what its turns cost; where nothing is left it calls a function, which says how much there is until
the next time, or that all loops end. That costs an instruction and a branch in each turn.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from llvmlite import ir

from dualbcast.codegen.llvm.expressions import WORD
from dualbcast.codegen.mathlib.primitives import attribute
from dualbcast.runtime.cpu.interrupt import PERIOD, POLL, STOPPED, STOPPING, UNITS

__all__ = ["Asking", "Countdown", "asks", "cost"]

# A loop that is no more than so many statements in all does not ask; elements with a loop of more than so many let rows
# ask. (Fifty steps of an oscillator are 815; asked after each row of vectors, its kernel would take 1.02 of the time,
# since LLVM distributes the registers otherwise.)
_SHORT, _FEW = 1 << 14, 1 << 12
# How likely it is that a loop does not ask in a turn.
_SELDOM = [1 << 20, 1]


def _turns(loop: ast.For) -> int | None:
    """How many turns it has; None where that depends on data."""
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
    """How many statements run, without those in loops that ask."""
    total = 0
    for stmt in statements:
        total += 1
        match stmt:
            case ast.If():
                total += cost(stmt.body) + cost(stmt.orelse)
            case ast.For() if not asks(stmt):
                total += (_turns(stmt) or 0) * (1 + cost(stmt.body))
    return total


def asks(loop: ast.stmt) -> bool:
    """Whether a statement is a loop that may take long."""
    if not isinstance(loop, ast.For):
        return isinstance(loop, ast.While)
    turns = _turns(loop)
    return turns is None or turns * (1 + cost(loop.body)) > _SHORT


class Asking:
    """Which loops of a kernel ask.

    Parameters
    ----------
    definitions : mapping of str to ast.FunctionDef
        The functions of the text.
    element : str
        The one that is called for each element.

    Attributes
    ----------
    functions : set of str
        Those that an element runs, itself among them, if rows of such elements may take long; else none.
    """

    def __init__(self, definitions: Mapping[str, ast.FunctionDef], element: str) -> None:
        self._definitions, self._element = definitions, element
        found, pending = set[str](), [element]
        while pending:
            name = pending.pop()
            if name not in found and name in definitions:
                found.add(name)
                pending += _called(definitions[name])
        loops = [
            stmt for name in found for stmt in ast.walk(definitions[name]) if isinstance(stmt, ast.For | ast.While)
        ]
        self.functions = found if any(asks(loop) or cost([loop]) > _FEW for loop in loops) else set[str]()

    def units(self, function: str, loop: ast.For | ast.While) -> int:
        """What a turn of a loop of a function counts before it asks whether to go on; 0 if it does not ask."""
        if not self.functions:
            return 0
        if function in self.functions:
            return 1 + cost(loop.body) if asks(loop) else 0
        return 1 + cost(self._definitions[self._element].body) if self._element in _called(loop) else 0


def _called(node: ast.AST) -> list[str]:
    """The names of the functions that are called somewhere in it."""
    calls = (each.func for each in ast.walk(node) if isinstance(each, ast.Call))
    return [function.id for function in calls if isinstance(function, ast.Name)]


class Countdown:
    """What a function has left until it asks.

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
        """That of a kernel, which begins with what the last one has left."""
        found = Countdown(module, builder.alloca(WORD, name="units"))
        builder.store(builder.load(_units(module), typ=WORD), found.place)
        return found

    def end(self, builder: ir.IRBuilder) -> None:
        """Return from a kernel: its status."""
        left = builder.load(self.place, typ=WORD)
        stopping = builder.icmp_signed("<", left, ir.Constant(WORD, STOPPING))
        builder.store(builder.select(stopping, ir.Constant(WORD, PERIOD), left), _units(self.module))
        status = ir.IntType(32)
        builder.ret(builder.select(stopping, ir.Constant(status, STOPPED), ir.Constant(status, 0)))

    def lent(self, builder: ir.IRBuilder) -> Countdown:
        """A copy, which LLVM can keep in a register."""
        found = Countdown(self.module, builder.alloca(WORD, name="left"))
        self.give(builder, found)
        return found

    def give(self, builder: ir.IRBuilder, other: Countdown) -> None:
        """Let another one have what is left."""
        builder.store(builder.load(self.place, typ=WORD), other.place)

    def turn(self, builder: ir.IRBuilder, units: int, again: ir.Block, after: ir.Block) -> list[ir.Block]:
        """End a block that ends a turn: it goes on to another one, from these blocks, or leaves the loop from the
        last of them."""
        left = builder.sub(builder.load(self.place, typ=WORD), ir.Constant(WORD, units))
        builder.store(left, self.place)
        asking = builder.append_basic_block()
        going = builder.icmp_signed(">=", left, ir.Constant(WORD, 0))
        start = builder.block
        builder.cbranch(going, again, asking).set_weights(_SELDOM)
        builder.position_at_end(asking)
        new = builder.call(_poll(self.module), [left])
        builder.store(new, self.place)
        builder.cbranch(builder.icmp_signed(">=", new, ir.Constant(WORD, 0)), again, after)
        return [start, asking]


def _units(module: ir.Module) -> ir.Value:
    if UNITS not in module.globals:
        ir.GlobalVariable(module, WORD, UNITS).linkage = "external"
    return module.globals[UNITS]


def _poll(module: ir.Module) -> ir.Value:
    if POLL not in module.globals:
        attribute(ir.Function(module, ir.FunctionType(WORD, [WORD]), POLL), "nounwind", "cold")
    return module.globals[POLL]
