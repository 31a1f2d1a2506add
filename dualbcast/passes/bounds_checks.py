"""Indices of whole arrays that stay in their axes: an additional output names the first that did not."""

from __future__ import annotations

from dataclasses import replace

from dualbcast.errors import Location
from dualbcast.ir import nodes as ir
from dualbcast.ir.simplification import fold
from dualbcast.ir.traversal import free_names, hold, map_blocks, operations_of

_NONE = ir.Const(0, "int")


def has_indices(function: ir.Function) -> bool:
    """Whether a function has indices that are to be checked."""
    return any(op.name == ir.BOUNDED for op in operations_of(function))


def number_of_indices(function: ir.Function) -> int:
    """The number of places in the user's source where there are such indices."""
    return len({op.location for op in operations_of(function) if op.name == ir.BOUNDED})


def check_bounds(function: ir.Function, places: dict[Location, int], last: int) -> ir.Function:
    """The function with indices that count from the end where they are negative, and are 0 where they are out of range.

    Before (places={}, last=255)::

        function f(table: float, length: int, i: int)
            at: int = bounded(i, length)
            y: float = read(table, at)
            output out = y

    After::

        function f(table: float, length: int, i: int)
            reached: int = 0
            %end: int = add(i, length)
            %negative: bool = lt(i, 0)
            %index: int = select(%negative, %end, i)
            %below: bool = lt(%index, 0)
            %above: bool = ge(%index, length)
            %outside: bool = or(%below, %above)
            %first: bool = eq(reached, 0)
            %fails: bool = and(%outside, %first)
            reached: int = select(%fails, 1, reached)
            at: int = select(%outside, 0, %index)
            y: float = read(table, at)
            output out = y
            output reached = reached

    The last output is the number of the first index of the element that was out of range, or 0. `places` has the
    numbers of indices, from 1 to `last`, by their location, and gets new ones; those beyond `last` share it.
    """
    names = free_names(function)
    reached = ir.Var(names.fresh("reached"), "int")

    def visit(block: ir.Block) -> ir.Block:
        new: list[ir.Stmt] = []
        for stmt in block:
            match stmt:
                case ir.Assign(value=ir.Op(name=ir.BOUNDED)):
                    checked(stmt, new)
                case _:
                    new.append(map_blocks(stmt, visit))
        return tuple(new)

    def checked(stmt: ir.Assign, new: list[ir.Stmt]) -> None:
        assert isinstance(stmt.value, ir.Op)
        (index, length), place = stmt.value.args, stmt.value.location

        def operate(base: str, kind: ir.Kind, name: str, *args: ir.Expr) -> ir.Atom:
            value = fold(ir.Op(name, args, kind, place))
            return hold(value, names, new, place, f"{ir.TEMPORARY}{base}")

        if not (isinstance(index, ir.Const) and index.value >= 0):
            end = operate("end", "int", "add", index, length)
            index = operate("index", "int", "select", operate("negative", "bool", "lt", index, _NONE), end, index)
        outside = operate(
            *("outside", "bool", "or"),
            operate("below", "bool", "lt", index, _NONE),
            operate("above", "bool", "ge", index, length),
        )
        number = ir.Const(min(places.setdefault(place, len(places) + 1), last), "int")
        fails = operate("fails", "bool", "and", outside, operate("first", "bool", "eq", reached, _NONE))
        new.append(ir.Assign(reached, ir.Op("select", (fails, number, reached), "int", place), place))
        new.append(replace(stmt, value=ir.Op("select", (outside, _NONE, index), "int", place)))

    body = (ir.Assign(reached, _NONE), *visit(function.body))
    taken = ir.Names(output.name for output in function.outputs)
    return replace(function, body=body, outputs=(*function.outputs, ir.Output(taken.fresh("reached"), reached)))
