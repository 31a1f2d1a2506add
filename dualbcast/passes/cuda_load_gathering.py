"""Loads are gathered in groups before the first value of each group is needed; a thread has several in flight.

Compilers do not move a load across a branch: of two loads with a branch between, one would wait for the other.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Set
from dataclasses import replace
from typing import TypeGuard

from dualbcast.ir.nodes import Assign, Block, Expr, Function, If, Load, Names, Op, Output, Stmt, Var
from dualbcast.ir.traversal import statements

__all__ = ["gather_loads"]

# The most loads in flight together: more of them would hold registers for values that are needed late.
IN_FLIGHT = 8


def gather_loads(function: Function, names: Names) -> Function:
    """The function in which the loads of each block are groups of assignments to variables.

    Loads in one side of a conditional expression stay there, and so do loads in loops.

    Before::

        function f(x: float, y: float, z: float)
            a: bool = lt(load(x), 0.0)
            if a:
                s: float = 0.0
            else:
                s: float = load(y)
            output out = add(s, load(z))

    After::

        function f(x: float, y: float, z: float)
            x_k: float = load(x)
            z_k: float = load(z)
            a: bool = lt(x_k, 0.0)
            if a:
                s: float = 0.0
            else:
                y_k: float = load(y)
                s: float = y_k
            output out = add(s, z_k)

    Parameters
    ----------
    function : Function
        With loads and readable names.
    names : Names
        The names of the kernel's text, which new variables must not take.
    """

    elements = _elements(function)

    def visit(block: Block, outputs: tuple[Output, ...] = ()) -> tuple[Block, tuple[Output, ...]]:
        # The loads of this block alone: other paths may not need the loads of the blocks in it.
        loads: list[Assign] = []

        def note(load: Load) -> Load:
            loads.append(Assign(Var(names.fresh(f"{load.name}_k"), load.kind), load))
            return load

        for stmt in block:
            if _is_load(stmt, elements):
                loads.append(stmt)
            else:
                _lift(stmt, note)
        for output in outputs:
            _lifted(output.value, note)
        place = itertools.count()
        new: list[Stmt] = []
        done = 0

        def value(_: Expr) -> Var:
            nonlocal done
            position = next(place)
            if position == done:
                new.extend(loads[done : done + IN_FLIGHT])
                done += IN_FLIGHT
            return loads[position].target

        for stmt in block:
            if _is_load(stmt, elements):
                value(stmt.value)
                continue
            stmt = _lift(stmt, value)
            if isinstance(stmt, If):
                stmt = replace(stmt, then=visit(stmt.then)[0], orelse=visit(stmt.orelse)[0])
            new.append(stmt)
        outputs = tuple(replace(output, value=_lifted(output.value, value)) for output in outputs)
        return tuple(new), outputs

    body, outputs = visit(function.body, function.outputs)
    return replace(function, body=body, outputs=outputs)


def _elements(function: Function) -> set[str]:
    """The variables that are only ever an element of one array."""
    values: dict[str, set[Expr]] = {}
    for stmt in statements(function.body):
        if isinstance(stmt, Assign):
            values.setdefault(stmt.target.name, set()).add(stmt.value)
    return {
        name
        for name, several in values.items()
        if len(several) == 1 and all(isinstance(value, Load) for value in several)
    }


def _is_load(stmt: Stmt, elements: Set[str]) -> TypeGuard[Assign]:
    """Whether a statement loads an element into a variable of its own."""
    return isinstance(stmt, Assign) and stmt.target.name in elements


def _lift(stmt: Stmt, change: Callable[[Load], Expr]) -> Stmt:
    """The statement with other expressions for the loads that it always makes itself, in their order."""
    match stmt:
        case Assign():
            return replace(stmt, value=_lifted(stmt.value, change))
        case If():
            return replace(stmt, test=_lifted(stmt.test, change))
    return stmt


def _lifted(expr: Expr, change: Callable[[Load], Expr]) -> Expr:
    match expr:
        case Load():
            return change(expr)
        case Op(name="select" | "and" | "or", args=(test, *others)):
            return replace(expr, args=(_lifted(test, change), *others))
        case Op():
            return replace(expr, args=tuple([_lifted(arg, change) for arg in expr.args]))
    return expr
