"""Calls and the operations that lead to them are scheduled first, and all other operations after them.

A vector function of the C library may change all vector registers: a value that is alive across a call is spilled. In
the order of the source, those would be N² values with all partials of a product of N factors.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from dualbcast.frontend.rule_bodies import helper_of
from dualbcast.ir.nodes import TEMPORARY, Assign, Block, Expr, Function, Names, Op, Stmt, Var
from dualbcast.ir.traversal import assigned, map_expr, map_exprs, operations_of, variables
from dualbcast.rules.table import RULES

__all__ = ["INSTRUCTIONS", "is_call", "schedule_calls"]

# Rules that processors have an instruction for, or little more.
INSTRUCTIONS = frozenset({"ceil", "copysign", "fabs", "floor", "rint", "sqrt", "trunc"})
# Calls move in runs of assignments with at least so many of them: few values are alive across a single one.
FEWEST_CALLS = 2


def schedule_calls(function: Function) -> Function:
    """The function with calls, and the operations that lead to them, first in each run of assignments.

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
    names = Names([*RULES, *(param.name for param in function.params), *assigned(function.body)])
    # Results of calls have names that keep them from being written into the expressions that use them.
    named: dict[str, str] = {}

    def rename(expr: Expr) -> Expr:
        def change(leaf: Expr) -> Expr:
            return Var(named[leaf.name], leaf.kind) if isinstance(leaf, Var) and leaf.name in named else leaf

        return map_expr(expr, change)

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

    def rename_targets(block: Block) -> Block:
        new: list[Stmt] = []
        for stmt in block:
            if isinstance(stmt, Assign) and stmt.target.name in named:
                stmt = replace(stmt, target=Var(named[stmt.target.name], stmt.target.kind))
            new.append(map_exprs(stmt, rename, rename_targets))
        return tuple(new)

    body = order(function.body)
    if not named and body == function.body:
        return function
    outputs = tuple(replace(output, value=rename(output.value)) for output in function.outputs)
    return replace(function, body=rename_targets(body), outputs=outputs)


def _order(run: list[Assign], names: Names, named: dict[str, str]) -> list[Assign]:
    calls = [stmt for stmt in run if _calls(stmt)]
    if len(calls) < FEWEST_CALLS:
        return run
    for stmt in calls:
        name = stmt.target.name
        if name.startswith(TEMPORARY) and isinstance(stmt.value, Op):
            own = name.removeprefix(TEMPORARY).partition("#")[0]
            named[name] = names.fresh(own or stmt.value.name.partition("#")[0])
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
