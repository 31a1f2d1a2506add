"""Loops that end after a limit of iterations: an additional output names the first loop that ended because of it."""

from __future__ import annotations

from dataclasses import replace

from dualbcast.errors import Location
from dualbcast.ir.nodes import (
    TEMPORARY,
    Assign,
    Atom,
    Block,
    Break,
    Const,
    Expr,
    For,
    Function,
    If,
    Names,
    Op,
    Output,
    Stmt,
    Var,
    While,
)
from dualbcast.ir.traversal import free_names, hold, known_iterations, statements

_NONE = Const(0, "int")


def has_long_loops(block: Block, most: int) -> bool:
    """Whether a block has a loop that may take more than `most` iterations."""
    return any(_is_long(stmt, most) for stmt in statements(block) if isinstance(stmt, For | While))


def limit_iterations(function: Function, most: int, loops: dict[Location, int], last: int) -> Function:
    """The function with loops that an element leaves when it would begin another iteration after `most`.

    Before (most=100, loops={}, last=255)::

        function f(x: float)
            while:
                go: bool = gt(x, 1.0)
            test go:
                x: float = mul(0.5, x)
            output out = x

    After::

        function f(x: float)
            reached: int = 0
            iterations: int = 0
            while:
                go: bool = gt(x, 1.0)
            test go:
                %test: bool = ge(iterations, 100)
                if %test:
                    %test#1: bool = eq(reached, 0)
                    reached: int = select(%test#1, 1, reached)
                    break
                iterations: int = add(iterations, 1)
                x: float = mul(0.5, x)
            output out = x
            output reached = reached

    Parameters
    ----------
    function : Function
        Operations on atoms.
    most : int
    loops : dict
        The numbers of loops, from 1 to `last`, by their location; new ones are added. Loops beyond `last` share it.
    last : int

    Returns
    -------
    Function
        The last output is the number of the first loop that the element left because of the limit, or 0.
    """
    writer = _Writer(free_names(function), most, loops, last)
    body = writer.block(function.body, inside=False)
    taken = Names(output.name for output in function.outputs)
    output = Output(taken.fresh("reached"), writer.reached)
    return replace(function, body=(Assign(writer.reached, _NONE), *body), outputs=(*function.outputs, output))


class _Writer:
    """Writes the blocks anew.

    Attributes
    ----------
    reached : Var
        The number of the loop that the element has left.
    """

    def __init__(self, names: Names, most: int, loops: dict[Location, int], last: int) -> None:
        self.names, self.most, self.loops, self.last = names, most, loops, last
        self.reached = Var(names.fresh("reached"), "int")

    def block(self, block: Block, inside: bool) -> Block:
        """The statements, `inside` a loop or not."""
        new: list[Stmt] = []
        for stmt in block:
            match stmt:
                case If():
                    then, orelse = self.block(stmt.then, inside), self.block(stmt.orelse, inside)
                    new.append(replace(stmt, then=then, orelse=orelse))
                case For() | While():
                    new += self.loop(stmt)
                    if inside and has_long_loops((stmt,), self.most):
                        left = self.compared("ne", self.reached, _NONE, stmt.location, new)
                        new.append(If(left, (Break(stmt.location),), (), stmt.location))
                case _:
                    new.append(stmt)
        return tuple(new)

    def loop(self, loop: For | While) -> list[Stmt]:
        body = self.block(loop.body, inside=True)
        if isinstance(loop, While):
            loop = replace(loop, pre=self.block(loop.pre, inside=True))
        if not _is_long(loop, self.most):
            return [replace(loop, body=body)]
        iterations, place = Var(self.names.fresh("iterations"), "int"), loop.location
        number = Const(min(self.loops.setdefault(place, len(self.loops) + 1), self.last), "int")
        head: list[Stmt] = []
        over = self.compared("ge", iterations, Const(self.most, "int"), place, head)
        leave: list[Stmt] = []
        first = self.compared("eq", self.reached, _NONE, place, leave)
        leave.append(Assign(self.reached, Op("select", (first, number, self.reached), "int", place), place))
        head.append(If(over, (*leave, Break(place)), (), place))
        head.append(Assign(iterations, Op("add", (iterations, Const(1, "int")), "int", place), place))
        return [Assign(iterations, _NONE, place), replace(loop, body=(*head, *body))]

    def compared(self, name: str, left: Expr, right: Expr, place: Location, new: list[Stmt]) -> Atom:
        """The result of a comparison, which is appended to some statements."""
        return hold(Op(name, (left, right), "bool", place), self.names, new, place, f"{TEMPORARY}test")


def _is_long(loop: For | While, most: int) -> bool:
    """Whether a loop may take more than `most` iterations."""
    iterations = known_iterations(loop) if isinstance(loop, For) else None
    return iterations is None or iterations > most
