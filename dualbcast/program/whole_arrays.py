"""Derivatives in whole arrays: a function and the places of such arrays among its parameters come in; the cotangents of
their elements go out, or a function that has what it reads as parameters.

An element reads a whole array at a few places. A kernel gives these places, and the cotangent of what is read there;
the cotangents are added up in the order of the elements, so that the result does not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from dualbcast.ir import nodes as ir
from dualbcast.ir.simplification import simplify
from dualbcast.ir.traversal import free_names, hold, map_blocks
from dualbcast.program.derived_functions import pullback_of
from dualbcast.program.element import Element, plain_errors
from dualbcast.program.outputs import SUM_DTYPE, library_of
from dualbcast.program.scatter import add_rows
from dualbcast.rules.library import CHANGED
from dualbcast.runtime.arguments import DType

# The most places of an element in one launch: each takes 16 bytes of an element.
_MOST_PLACES = 16


def cotangent(
    element: Element, place: int, axes: int, values: tuple[Any, ...], cotangents: tuple[Any, ...], dtype: DType
) -> Any:
    """The cotangent of the whole array at a place among the parameters of an element function.

    `values` are its arguments, and `cotangents` those of its float outputs. The result has the dtype given.
    """
    shape = tuple(values[place + 1 : place + 1 + axes])
    size, xp = prod(shape), library_of(values[place])
    if not size or not cotangents:
        return xp.zeros(shape, dtype)
    count = reads_outside_loops(element, place)
    if count is None:
        total = _at_each_place(element, place, size, values, cotangents)
    else:
        total = xp.zeros((size, 1))
        for first in range(0, count, _MOST_PLACES):
            some = range(first, min(first + _MOST_PLACES, count))
            total += _added_up(element, place, some, count, size, values, cotangents)
    return total.astype(dtype, copy=False).reshape(shape)


@lru_cache(maxsize=256)
def reads_outside_loops(element: Element, place: int) -> int | None:
    """How many reads of an array there are; None if outputs have derivatives in reads in loops, whose number is not
    known."""
    function, count = with_changes(element.function, element.function.params[place].name)
    with plain_errors(element.function):
        pullback = pullback_of(function, [len(function.params) - 1])
    return count if pullback.outputs[0].value == ir.ZERO else None


@lru_cache(maxsize=256)
def _changed(element: Element, place: int) -> Element:
    """The function with the place of each read as an output, and a change of each."""
    array = element.function.params[place].name
    return _like(element, with_changes(with_places(element.function, array)[0], array)[0])


def _added_up(
    element: Element, place: int, some: range, count: int, size: int, values: tuple[Any, ...], cotangents: Any
) -> Any:
    """The cotangents of an array's elements by way of some of the reads, of which there are `count`."""
    changed, before, outputs = _changed(element, place), len(values), len(element.function.outputs)
    # The pullback of all reads is derived once: that of some would be derived in all of them, too.
    pulled = changed.derive("value_and_pullback", tuple(range(before, before + count)))
    wanted = pulled.select((*(outputs + at for at in some), *(outputs + count + at for at in some)))
    found = wanted.parts((*values, *[0.0] * (count + 1), *cotangents))
    xp, shape = library_of(values[place]), cotangents[0].shape
    total = xp.zeros((size, 1))
    for where, terms in zip(found[: len(some)], found[len(some) :], strict=True):
        rows, places = (xp.broadcast_to(each, shape).reshape(-1) for each in (terms, where))
        total += add_rows(rows.astype(np.float64, copy=False).reshape(-1, 1), places, size)
    return total


def _at_each_place(element: Element, place: int, size: int, values: tuple[Any, ...], cotangents: Any) -> Any:
    """The cotangents of an array's elements by evaluating the function for each of them."""
    xp, count = library_of(values[place]), len(values)
    pulled = _changed_somewhere(element, place).derive("pullback", (count,))
    arrays = [value[..., None] if getattr(value, "ndim", 0) else value for value in (*values, *cotangents)]
    given = (*arrays[:count], xp.zeros(size, values[place].dtype), xp.arange(size), *arrays[count:])
    (total,) = pulled.parts(given, (SUM_DTYPE,), ((size,),))
    return total


@lru_cache(maxsize=256)
def _changed_somewhere(element: Element, place: int) -> Element:
    return _like(element, with_change_at(element.function, element.function.params[place].name))


class Opened(NamedTuple):
    """A function whose reads of whole arrays are parameters at its end, array by array."""

    # A function of the original's parameters that gives the place of each read; None where there is none.
    finder: Element | None
    element: Element
    counts: tuple[int, ...]  # the reads of each array


@lru_cache(maxsize=256)
def opened(element: Element, places: tuple[int, ...]) -> Opened:
    """The function for the whole arrays at some places among its parameters; reads in loops stay as they are."""
    located = inner = element.function
    counts = []
    for place in places:
        located, count = with_places(located, element.function.params[place].name)
        inner = with_values(inner, element.function.params[place].name)
        counts.append(count)
    outputs = located.outputs[len(element.function.outputs) :]
    finder = None
    if outputs:
        finder = _like(element, simplify(replace(located, outputs=outputs, structure=ir.numbers(len(outputs)))))
    return Opened(finder, _like(element, simplify(inner)), tuple(counts))


def _like(element: Element, function: ir.Function) -> Element:
    """Another function with the parameters of an element function, and then more."""
    more = tuple(param.name for param in function.params[len(element.names) :])
    return Element(function, (*element.names, *more), element.label, element.options)


# --- functions --------------------------------------------------------------------------------------------------------


def with_places(function: ir.Function, array: str) -> tuple[ir.Function, int]:
    """The function with more outputs: the place of each read of an array that is in no loop; and how many these are."""
    names, places = free_names(function), list[ir.Var]()

    def change(stmt: ir.Assign, place: ir.Expr, in_loop: bool, new: list[ir.Stmt]) -> ir.Expr:
        if not in_loop:
            places.append(ir.Var(names.fresh(f"{array}_place"), "int"))
            new.append(ir.Assign(places[-1], place, stmt.location))
        return stmt.value

    body = _map_reads(function.body, array, change)
    # A read may be in a branch that is not taken.
    first = tuple(ir.Assign(place, ir.Const(0, "int")) for place in places)
    taken = ir.Names(output.name for output in function.outputs)
    outputs = (*function.outputs, *(ir.Output(taken.fresh(place.name), place) for place in places))
    structure = ir.numbers(len(outputs))
    return replace(function, body=(*first, *body), outputs=outputs, structure=structure), len(places)


def with_values(function: ir.Function, array: str) -> ir.Function:
    """The function with more parameters: what each read of an array that is in no loop gives."""
    names, values = free_names(function), list[ir.Var]()

    def change(stmt: ir.Assign, _place: ir.Expr, in_loop: bool, _new: list[ir.Stmt]) -> ir.Expr:
        if in_loop:
            return stmt.value
        values.append(ir.Var(names.fresh(f"{array}_element"), stmt.target.kind))
        return values[-1]

    body = _map_reads(function.body, array, change)
    return replace(function, params=(*function.params, *values), body=body)


def with_changes(function: ir.Function, array: str) -> tuple[ir.Function, int]:
    """The function with more parameters, which are zero: a change of what each read of an array gives, and last one for
    all reads in loops; and how many reads are in no loop."""
    names, changes = free_names(function), list[ir.Var]()
    looped = ir.Var(names.fresh(f"{array}_change"), "float")

    def change(stmt: ir.Assign, _place: ir.Expr, in_loop: bool, new: list[ir.Stmt]) -> ir.Expr:
        value, each = hold(stmt.value, names, new, stmt.location), looped
        if not in_loop:
            each = ir.Var(names.fresh(f"{array}_change"), "float")
            changes.append(each)
        return ir.Op(CHANGED, (value, each), "float", stmt.location)

    body = _map_reads(function.body, array, change)
    return replace(function, params=(*function.params, *changes, looped), body=body), len(changes)


def with_change_at(function: ir.Function, array: str) -> ir.Function:
    """The function with two more parameters: a change of an array's element, which is zero, and its place."""
    names = free_names(function)
    added, chosen = ir.Var(names.fresh(f"{array}_change"), "float"), ir.Var(names.fresh(f"{array}_place"), "int")

    def change(stmt: ir.Assign, place: ir.Expr, _in_loop: bool, new: list[ir.Stmt]) -> ir.Expr:
        where = stmt.location
        value = hold(stmt.value, names, new, where)
        is_here = hold(ir.Op("eq", (place, chosen), "bool", where), names, new, where)
        changed = hold(ir.Op(CHANGED, (value, added), "float", where), names, new, where)
        return ir.Op("select", (is_here, changed, value), "float", where)

    body = _map_reads(function.body, array, change)
    return replace(function, params=(*function.params, added, chosen), body=body)


def _map_reads(
    block: ir.Block,
    array: str,
    change: Callable[[ir.Assign, ir.Expr, bool, list[ir.Stmt]], ir.Expr],
    in_loop: bool = False,
) -> ir.Block:
    """The block with other values of the statements that read an array.

    `change` takes such a statement, the place that it reads, whether it is in a loop, and the statements before it.
    """
    new: list[ir.Stmt] = []
    for stmt in block:
        match stmt:
            case ir.Assign(value=ir.Op(name=ir.READ, args=(ir.Array(name=name), place))) if name == array:
                new.append(replace(stmt, value=change(stmt, place, in_loop, new)))
            case _:
                inside = in_loop or isinstance(stmt, ir.For | ir.While)
                new.append(map_blocks(stmt, partial(_map_reads, array=array, change=change, in_loop=inside)))
    return tuple(new)
