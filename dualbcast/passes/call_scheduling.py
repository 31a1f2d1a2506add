"""Calls, and the operations that they need, are scheduled before all other operations.

A vector function of the C library may change all vector registers: a value that is alive across a call is spilled. The
partials of a product of N factors would spill N² values in the order of the source.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from dualbcast.frontend.rule_bodies import helper_of
from dualbcast.ir.builder import free_names
from dualbcast.ir.nodes import TEMPORARY, Assign, Block, Function, Names, Op, Stmt, Var
from dualbcast.ir.traversal import map_exprs, operations_of, renamed, renamed_block, variables
from dualbcast.rules.table import RULES

__all__ = ["INSTRUCTIONS", "is_call", "schedule_calls"]

# Rules that processors have an instruction for, or little more.
INSTRUCTIONS = frozenset({"ceil", "copysign", "fabs", "floor", "rint", "sqrt", "trunc"})
# Calls move only in runs of assignments with at least so many calls: few values are alive across a single one.
FEWEST_CALLS = 2


def schedule_calls(function: Function) -> Function:
    """The function with calls, and the operations that they need, first in each run of assignments.

    Before::

        function f(x: float, y: float)
            a: float = exp(x)
            b: float = mul(a, y)
            c: float = exp(y)
            d: float = mul(b, c)
            output out = d

    After::

        function f(x: float, y: float)
            a: float = exp(x)
            c: float = exp(y)
            b: float = mul(a, y)
            d: float = mul(b, c)
            output out = d

    Parameters
    ----------
    function : Function
        Simplified, operations on atoms.
    """
    names = free_names(function, RULES)
    # Results of calls get names that are no temporaries', so that they stay statements of their own.
    named: dict[str, Var] = {}

    def order(block: Block) -> Block:
        new: list[Stmt] = []
        run: list[Assign] = []
        for stmt in block:
            if isinstance(stmt, Assign):
                run.append(stmt)
            else:
                new += [*_order(run, names, named), map_exprs(stmt, lambda expr: expr, order)]
                run = []
        return (*new, *_order(run, names, named))

    body = order(function.body)
    if not named and body == function.body:
        return function
    outputs = tuple(replace(output, value=renamed(output.value, named)) for output in function.outputs)
    return replace(function, body=renamed_block(body, named), outputs=outputs)


def _order(run: list[Assign], names: Names, named: dict[str, Var]) -> list[Assign]:
    calls = [stmt for stmt in run if _calls(stmt)]
    if len(calls) < FEWEST_CALLS:
        return run
    for stmt in calls:
        name = stmt.target.name
        if name.startswith(TEMPORARY) and isinstance(stmt.value, Op):
            own = name.removeprefix(TEMPORARY).partition("#")[0]
            named[name] = Var(names.fresh(own or stmt.value.name.partition("#")[0]), stmt.target.kind)
    first: list[Assign] = []
    last: list[Assign] = []
    needed: set[str] = set()
    written: set[str] = set()
    for stmt in reversed(run):
        read = {leaf.name for leaf in variables(stmt.value)}
        # A statement moves to the front with the definitions it reads, and with earlier reads and writes of its target.
        if _calls(stmt) or stmt.target.name in needed | written or read & written:
            first.append(stmt)
            needed |= read
            written.add(stmt.target.name)
        else:
            last.append(stmt)
    return first[::-1] + last[::-1]


def _calls(stmt: Assign) -> bool:
    return isinstance(stmt.value, Op) and is_call(stmt.value.name)


@lru_cache(maxsize=1024)
def is_call(name: str) -> bool:
    """Whether an operation is a call of the C library, or makes one."""
    row = RULES.get(name)
    if row is None or name in INSTRUCTIONS:
        return False
    return row.function is None or any(is_call(op.name) for op in operations_of(helper_of(row)))
