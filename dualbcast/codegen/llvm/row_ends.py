"""The first and last elements of a row, which are no whole vector, as an LLVM function.

It copies them to the stack, calls the function of whole vectors, and copies back: so all elements are computed by the
same instructions.
"""

from __future__ import annotations

import ast
from typing import Any

import numpy as np
from llvmlite import ir

from dualbcast.codegen.llvm.memory import LINE, masked_load, masked_store
from dualbcast.codegen.llvm.row_loop import BOUNDS, RowLoop
from dualbcast.codegen.llvm.values import TYPES, WORD, Typed, word
from dualbcast.codegen.llvm.vectorize import Access, Along, VectorBody
from dualbcast.codegen.vector_types import PLACE, Lanes, splat

__all__ = ["EDGE", "write_ends"]

# The symbol of the function.
EDGE = "dualbcast_edge"


def write_ends(row: RowLoop, whole: ir.Function, accesses: dict[str, Access]) -> ir.Function:
    """The function of at most `row.at_once` elements; its parameters are those of `whole`, which it calls."""
    function = row.unit.declared(EDGE, ir.VoidType(), BOUNDS | row.params)
    builder, (low, high, *given) = ir.IRBuilder(function.append_basic_block()), function.args
    values, at_once = row.parameters(function), row.at_once
    line = VectorBody(row.unit, builder, values, row.element.name, at_once)
    lanes = ir.Constant(Lanes(WORD, at_once), [*range(at_once)])
    mask = builder.icmp_unsigned("<", lanes, splat(builder, builder.sub(high, low), at_once))
    # On the stack all arrays begin with the first of the elements, which lie side by side.
    handed: dict[str, ir.Value] = {}
    places, rooms = {}, {}
    for name, (offset, stride, stores) in accesses.items():
        index: Any = Along(low)
        for parameter, operator, on_stack in ((stride, ast.Mult(), 1), (offset, ast.Add(), 0)):
            if parameter:
                index = line.binary(operator, index, values[parameter])
                handed[parameter] = word(on_stack)
        number = _number(values[name])
        places[name], rooms[name] = index, builder.alloca(Lanes(number, at_once))
        rooms[name].align = LINE
        handed[name] = builder.bitcast(rooms[name], number.as_pointer())
        if not stores:
            builder.store(_loaded(line, values[name], index, mask), rooms[name], align=LINE)
    builder.call(whole, [word(0), word(at_once), *[handed.get(value.name, value) for value in given]])
    for name, access in accesses.items():
        if access.stores:
            computed = builder.load(rooms[name], align=LINE, typ=Lanes(_number(values[name]), at_once))
            _store(line, values[name], places[name], mask, computed)
    builder.ret_void()
    return function


def _loaded(line: VectorBody, pointer: Typed, index: Along, mask: ir.Value) -> ir.Value:
    """The elements of an array that the mask has, and the first element in the other places."""
    builder, address, number = line.builder, line.element(pointer, index), _number(pointer)
    vector = splat(builder, builder.load(address, typ=number), line.at_once)
    if index.step is None:
        return masked_load(builder, address, _itemsize(pointer), mask, vector)
    for lane in range(1, line.at_once):
        place = ir.Constant(PLACE, lane)
        ahead = builder.mul(index.step, word(lane))
        ahead = builder.select(builder.extract_element(mask, place), ahead, word(0))
        there = line.element(pointer, index._replace(first=builder.add(index.first, ahead)))
        vector = builder.insert_element(vector, builder.load(there, typ=number), place)
    return vector


def _store(line: VectorBody, pointer: Typed, index: Along, mask: ir.Value, computed: ir.Value) -> None:
    """Store the elements that the mask has."""
    builder = line.builder
    if index.step is None:
        masked_store(builder, computed, line.element(pointer, index), _itemsize(pointer), mask)
        return
    for lane in range(line.at_once):
        place = ir.Constant(PLACE, lane)
        with builder.if_then(builder.extract_element(mask, place)):
            builder.store(builder.extract_element(computed, place), line.of_lane(pointer, index, lane))


def _number(pointer: Typed) -> ir.Type:
    return TYPES[pointer.dtype[1:]]


def _itemsize(pointer: Typed) -> int:
    return int(np.dtype(pointer.dtype[1:]).itemsize)
