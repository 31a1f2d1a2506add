"""Composition: several functions, some applied to the results of others, become one function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from dualbcast.errors import Location
from dualbcast.ir.nodes import (
    NOWHERE,
    Assign,
    Atom,
    Block,
    Const,
    Expr,
    For,
    Function,
    Kind,
    Names,
    Op,
    Output,
    Stmt,
    Var,
)
from dualbcast.ir.structure import Structure
from dualbcast.ir.traversal import among, hold, map_expr, map_exprs


class Step(NamedTuple):
    """One function of a composition.

    Attributes
    ----------
    function : Function
    inputs : tuple of (int or Const)
        Its arguments: constants, or values by their number. The parameters of the composition are the first values, and
        the outputs of each step are the next ones.
    """

    function: Function
    inputs: tuple[int | Const, ...]


def compose(name: str, params: Sequence[Kind], steps: Sequence[Step], outputs: Sequence[int]) -> Function:
    """The function that computes the steps in their order.

    Parameters
    ----------
    name : str
        The name of the composition.
    params : sequence of str
        The kinds of its parameters.
    steps : sequence of Step
        Each uses values that come before it.
    outputs : sequence of int
        The values that it returns, in a tuple.

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
    names = Names()
    arguments = tuple(Var(names.fresh(f"x{at}"), kind) for at, kind in enumerate(params))
    values: list[Atom] = list(arguments)
    body: list[Stmt] = []
    derived: list[str] = []
    for step in steps:
        actual = [values[each] if isinstance(each, int) else each for each in step.inputs]
        copied = Copy(names, dict(zip((param.name for param in step.function.params), actual, strict=True)))
        body.extend(copied.block(step.function.body))
        renamed = map(copied.actual.__getitem__, among(step.function.derived, step.function.body))
        derived += [var.name for var in renamed if isinstance(var, Var)]
        for output in step.function.outputs:
            values.append(hold(copied.expr(output.value), names, body, step.function.location, output.name))
    several = len(outputs) > 1
    named = tuple(
        Output(names.fresh(f"out{at}" if several else "out"), values[each]) for at, each in enumerate(outputs)
    )
    structure = Structure(tuple, (Structure(),) * len(named)) if several else Structure()
    return Function(name, arguments, tuple(body), named, NOWHERE, structure, tuple(derived))


def restrict(function: Function, outputs: Sequence[int]) -> Function:
    """The function with some of its outputs only, in a tuple."""
    selected = tuple(function.outputs[at] for at in outputs)
    return replace(function, outputs=selected, structure=Structure(tuple, (Structure(),) * len(selected)))


class Copy:
    """Copies statements under new names, with values for parameters.

    The copies have one location and one base of their names, if these are given.
    """

    def __init__(
        self, names: Names, actual: dict[str, Expr], location: Location | None = None, base: str | None = None
    ) -> None:
        self.names, self.actual, self.location, self.base = names, actual, location, base

    def block(self, block: Block) -> Block:
        return tuple(self.statement(stmt) for stmt in block)

    def statement(self, stmt: Stmt) -> Stmt:
        copied = map_exprs(stmt, self.expr, self.block)
        if isinstance(copied, Assign | For):
            copied = replace(copied, target=self.target(copied.target))
        if self.location is None:
            return copied
        if isinstance(copied, Assign) and isinstance(copied.value, Op):
            copied = replace(copied, value=replace(copied.value, location=self.location))
        return replace(copied, location=self.location)

    def target(self, var: Var) -> Var:
        if var.name not in self.actual:
            self.actual[var.name] = Var(self.names.fresh(self.base or var.name), var.kind)
        target = self.actual[var.name]
        assert isinstance(target, Var)
        return target

    def expr(self, expr: Expr) -> Expr:
        return map_expr(expr, self.leaf)

    def leaf(self, leaf: Expr) -> Expr:
        if not isinstance(leaf, Var):
            return leaf
        # A name may be read, in the text of a loop, before the statement that assigns it.
        return self.actual[leaf.name] if leaf.name in self.actual else self.target(leaf)
