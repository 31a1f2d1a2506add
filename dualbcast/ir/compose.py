"""Composition: several functions, some applied to the results of others, become one function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from dualbcast.errors import Location
from dualbcast.ir import nodes as ir
from dualbcast.ir.traversal import hold, map_blocks, renamed, renamed_block, targets


class Step(NamedTuple):
    """One function of a composition, and its arguments: constants, or values by their number.

    The parameters of the composition are the first values, and the outputs of each step are the next ones.
    """

    function: ir.Function
    inputs: tuple[int | ir.Const, ...]


def compose(name: str, params: Sequence[ir.Kind], steps: Sequence[Step], outputs: Sequence[int]) -> ir.Function:
    """The function of parameters of these kinds that computes the steps in their order; each uses values before it.

    `outputs` are the values that it returns, in a tuple.

    Examples
    --------
    >>> from dualbcast.ir.nodes import dump
    >>> from dualbcast.frontend.lower import lower
    >>> double = lower(lambda x: 2.0 * x, ["float"]).function
    >>> total = lower(lambda x, y: x + y, ["float", "float"]).function
    >>> print(dump(compose("f", ["float"], [Step(double, (0,)), Step(total, (0, 1))], [2])))
    function f(x0: float)
        %value: float = mul(2.0, x0)       # line 1
        %value#1: float = add(x0, %value)  # line 1
        output out = %value#1
    <BLANKLINE>
    """
    names = ir.Names()
    arguments = tuple(ir.Var(names.fresh(f"x{at}"), kind) for at, kind in enumerate(params))
    values: list[ir.Atom] = list(arguments)
    body: list[ir.Stmt] = []
    derived: list[str] = []
    for step in steps:
        actual = [values[each] if isinstance(each, int) else each for each in step.inputs]
        copied, by = copy(step.function, actual, names)
        body.extend(copied)
        derived += [var.name for name in step.function.derived if isinstance(var := by.get(name), ir.Var)]
        for output in step.function.outputs:
            values.append(hold(renamed(output.value, by), names, body, step.function.location, output.name))
    several = len(outputs) > 1
    named = tuple(
        ir.Output(names.fresh(f"out{at}" if several else "out"), values[each]) for at, each in enumerate(outputs)
    )
    structure = ir.numbers(len(named)) if several else ir.NUMBER
    return ir.Function(name, arguments, tuple(body), named, ir.NOWHERE, structure, tuple(derived))


def restrict(function: ir.Function, outputs: Sequence[int]) -> ir.Function:
    """The function with some of its outputs only, in a tuple."""
    selected = tuple(function.outputs[at] for at in outputs)
    return replace(function, outputs=selected, structure=ir.numbers(len(selected)))


def copy(
    function: ir.Function,
    actual: Sequence[ir.Expr],
    names: ir.Names,
    base: str | None = None,
    where: Location | None = None,
) -> tuple[ir.Block, dict[str, ir.Expr]]:
    """The body of a function under fresh names, with values for its parameters; and what each name became.

    The copies have one base of their names and one location, if these are given.
    """
    by = dict(zip((param.name for param in function.params), actual, strict=True))
    for name, var in targets(function.body).items():
        assert name not in by, "a parameter is assigned"
        by[name] = ir.Var(names.fresh(base or name), var.kind)
    body = renamed_block(function.body, by)
    return (body if where is None else _at(body, where)), by


def _at(block: ir.Block, where: Location) -> ir.Block:
    """The block with one location."""
    new: list[ir.Stmt] = []
    for stmt in block:
        if isinstance(stmt, ir.Assign) and isinstance(stmt.value, ir.Op):
            stmt = replace(stmt, value=replace(stmt.value, location=where))
        new.append(replace(map_blocks(stmt, lambda inner: _at(inner, where)), location=where))
    return tuple(new)
