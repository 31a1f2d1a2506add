"""Cotangents of whole arrays: a function and the place of one among its parameters come in, and the cotangents of its
elements go out.

An element reads a whole array at a few places. A kernel gives these places, and the cotangent of what is read there;
the cotangents are added up in the order of the elements, so that the result does not depend on the number of threads.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from dualbcast.ir import nodes as ir
from dualbcast.ir.traversal import free_names, hold, map_blocks
from dualbcast.program.derived_functions import pullback_of
from dualbcast.program.element import Element, plain_errors
from dualbcast.program.outputs import SUM_DTYPE, library_of
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
    if not size:
        return xp.zeros(shape, dtype)
    reads, count = _reads_of(element, place)
    if reads is None:
        total = _at_each_place(element, place, size, values, cotangents)
    else:
        total = np.zeros(size)
        for first in range(0, count, _MOST_PLACES):
            some = range(first, min(first + _MOST_PLACES, count))
            total += _added_up(reads, some, count, len(element.names), size, values, cotangents)
    return xp.asarray(total).astype(dtype, copy=False).reshape(shape)


@lru_cache(maxsize=256)
def _reads_of(element: Element, place: int) -> tuple[Element | None, int]:
    """The function with a change for each read of an array, and how many reads there are; None for the function if it
    depends on reads in loops, whose number is not known."""
    reads = with_changes(element.function, element.function.params[place].name)
    count, before = reads.number, len(element.function.params)
    with plain_errors(element.function):
        pullback = pullback_of(reads.function, [before + count])
    if pullback.outputs[0].value != ir.ZERO:
        return None, 0
    more = tuple(param.name for param in reads.function.params[before:])
    return Element(reads.function, (*element.names, *more), element.label, element.options), count


def _added_up(
    reads: Element, some: range, count: int, before: int, size: int, values: tuple[Any, ...], cotangents: Any
) -> Any:
    """The cotangents of an array's elements by way of some of the reads, of which there are `count`."""
    pulled = reads.derive("value_and_pullback", tuple(before + at for at in some))
    outputs = len(reads.function.outputs) - count
    wanted = pulled.select((*(outputs + at for at in some), *range(outputs + count, outputs + count + len(some))))
    given = (*values, *[0.0] * (count + 1), *cotangents)
    found = wanted.parts(given)
    total = np.zeros(size)
    for place, cotangent in zip(found[: len(some)], found[len(some) :], strict=True):
        # On the host, since additions on a GPU have no order.
        places, terms = (np.broadcast_to(_on_host(each), cotangents[0].shape).ravel() for each in (place, cotangent))
        total += np.bincount(places, terms, size)
    return total


def _at_each_place(element: Element, place: int, size: int, values: tuple[Any, ...], cotangents: Any) -> Any:
    """The cotangents of an array's elements by evaluating the function for each of them."""
    xp = library_of(values[place])
    changed = _changed(element, place)
    count = len(values)
    pulled = changed.derive("pullback", (count,))
    arrays = [value[..., None] if getattr(value, "ndim", 0) else value for value in (*values, *cotangents)]
    given = (*arrays[:count], xp.zeros(size, values[place].dtype), xp.arange(size), *arrays[count:])
    (total,) = pulled.parts(given, (SUM_DTYPE,), ((size,),))
    return total


@lru_cache(maxsize=256)
def _changed(element: Element, place: int) -> Element:
    function = with_change_at(element.function, element.function.params[place].name)
    more = tuple(param.name for param in function.params[-2:])
    return Element(function, (*element.names, *more), element.label, element.options)


def _on_host(array: Any) -> Any:
    return array.get() if hasattr(array, "get") else array


# --- the functions ----------------------------------------------------------------------------------------------------


class Reads(NamedTuple):
    """A function with a parameter at the end for a change of what each of its reads of an array gives.

    Its outputs are followed by the place of each read. Reads in loops have one more parameter together.
    """

    function: ir.Function
    number: int


def with_changes(function: ir.Function, array: str) -> Reads:
    """The function with a change of each read of an array, which is zero."""
    names = free_names(function)
    changes: list[ir.Var] = []
    places: list[ir.Var] = []
    looped = ir.Var(names.fresh(f"{array}_change"), "float")

    def visit(block: ir.Block, in_loop: bool) -> ir.Block:
        new: list[ir.Stmt] = []
        for stmt in block:
            if not _reads(stmt, array):
                new.append(map_blocks(stmt, partial(visit, in_loop=in_loop or isinstance(stmt, ir.For | ir.While))))
                continue
            assert isinstance(stmt, ir.Assign)
            assert isinstance(stmt.value, ir.Op)
            value, where = hold(stmt.value, names, new, stmt.location), stmt.location
            change = looped
            if not in_loop:
                change = ir.Var(names.fresh(f"{array}_change"), "float")
                changes.append(change)
                places.append(ir.Var(names.fresh(f"{array}_place"), "int"))
                new.append(ir.Assign(places[-1], stmt.value.args[1], where))
            new.append(replace(stmt, value=ir.Op(CHANGED, (value, change), "float", where)))
        return tuple(new)

    body = visit(function.body, False)
    first = tuple(ir.Assign(place, ir.Const(0, "int")) for place in places)
    taken = ir.Names(output.name for output in function.outputs)
    outputs = (*function.outputs, *(ir.Output(taken.fresh(place.name), place) for place in places))
    params = (*function.params, *changes, looped)
    structure = ir.numbers(len(outputs))
    final = replace(function, params=params, body=(*first, *body), outputs=outputs, structure=structure)
    return Reads(final, len(changes))


def with_change_at(function: ir.Function, array: str) -> ir.Function:
    """The function with two parameters at the end: a change of an array's element, which is zero, and its place."""
    names = free_names(function)
    change, chosen = ir.Var(names.fresh(f"{array}_change"), "float"), ir.Var(names.fresh(f"{array}_place"), "int")

    def visit(block: ir.Block) -> ir.Block:
        new: list[ir.Stmt] = []
        for stmt in block:
            if not _reads(stmt, array):
                new.append(map_blocks(stmt, visit))
                continue
            assert isinstance(stmt, ir.Assign)
            assert isinstance(stmt.value, ir.Op)
            value, where = hold(stmt.value, names, new, stmt.location), stmt.location
            is_here = hold(ir.Op("eq", (stmt.value.args[1], chosen), "bool", where), names, new, where)
            added = hold(ir.Op(CHANGED, (value, change), "float", where), names, new, where)
            new.append(replace(stmt, value=ir.Op("select", (is_here, added, value), "float", where)))
        return tuple(new)

    return replace(function, params=(*function.params, change, chosen), body=visit(function.body))


def _reads(stmt: ir.Stmt, array: str) -> bool:
    """Whether a statement assigns an element of an array."""
    match stmt:
        case ir.Assign(value=ir.Op(name=ir.READ, args=(ir.Array(name=name), _))):
            return name == array
    return False
