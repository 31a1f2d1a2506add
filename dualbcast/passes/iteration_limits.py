"""Loops that end after a limit of iterations: an additional output names the first loop that ended because of it."""

from __future__ import annotations

from dataclasses import replace

from dualbcast.errors import Location
from dualbcast.ir import nodes as ir
from dualbcast.ir.traversal import free_names, hold, known_iterations, map_exprs, statements

_NONE = ir.Const(0, "int")


def has_long_loops(block: ir.Block, most: int) -> bool:
    """Whether a block has a loop that may take more than `most` iterations."""
    return any(_is_long(stmt, most) for stmt in statements(block) if isinstance(stmt, ir.For | ir.While))


def limit_iterations(
    function: ir.Function, most: int, loops: dict[Location, int], last: int, is_checked: bool = False
) -> ir.Function:
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

    The last output is the number of the first loop that the element left because of the limit, or 0. `loops` has the
    numbers of loops, from 1 to `last`, by their location, and gets new ones; loops beyond `last` share it. A function
    that `is_checked` has that output, for other checks.
    """
    names = free_names(function)
    reached = function.outputs[-1].value if is_checked else ir.Var(names.fresh("reached"), "int")
    assert isinstance(reached, ir.Var)

    def compared(name: str, left: ir.Expr, right: ir.Expr, place: Location, new: list[ir.Stmt]) -> ir.Atom:
        """The result of a comparison, which is appended to some statements."""
        return hold(ir.Op(name, (left, right), "bool", place), names, new, place, f"{ir.TEMPORARY}test")

    def visit(block: ir.Block, inside: bool) -> ir.Block:
        """The statements, `inside` a loop or not."""
        new: list[ir.Stmt] = []
        for stmt in block:
            match stmt:
                case ir.For() | ir.While():
                    new += limited(stmt)
                    if inside and has_long_loops((stmt,), most):
                        left = compared("ne", reached, _NONE, stmt.location, new)
                        new.append(ir.If(left, (ir.Break(stmt.location),), (), stmt.location))
                case _:
                    new.append(map_exprs(stmt, lambda expr: expr, lambda block: visit(block, inside)))
        return tuple(new)

    def limited(loop: ir.For | ir.While) -> list[ir.Stmt]:
        looped = map_exprs(loop, lambda expr: expr, lambda block: visit(block, True))
        if not _is_long(loop, most):
            return [looped]
        iterations, place = ir.Var(names.fresh("iterations"), "int"), loop.location
        number = ir.Const(min(loops.setdefault(place, len(loops) + 1), last), "int")
        head: list[ir.Stmt] = []
        over = compared("ge", iterations, ir.Const(most, "int"), place, head)
        leave: list[ir.Stmt] = []
        first = compared("eq", reached, _NONE, place, leave)
        leave.append(ir.Assign(reached, ir.Op("select", (first, number, reached), "int", place), place))
        head.append(ir.If(over, (*leave, ir.Break(place)), (), place))
        head.append(ir.Assign(iterations, ir.Op("add", (iterations, ir.Const(1, "int")), "int", place), place))
        assert isinstance(looped, ir.For | ir.While)
        return [ir.Assign(iterations, _NONE, place), replace(looped, body=(*head, *looped.body))]

    body = visit(function.body, False)
    if is_checked:
        return replace(function, body=body)
    body = (ir.Assign(reached, _NONE), *body)
    taken = ir.Names(output.name for output in function.outputs)
    return replace(function, body=body, outputs=(*function.outputs, ir.Output(taken.fresh("reached"), reached)))


def _is_long(loop: ir.For | ir.While, most: int) -> bool:
    """Whether a loop may take more than `most` iterations."""
    iterations = known_iterations(loop) if isinstance(loop, ir.For) else None
    return iterations is None or iterations > most
