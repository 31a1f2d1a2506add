"""Arrays whose elements become lanes of vectors: how an index goes along a row, and vectors from memory and to it."""

from __future__ import annotations

from typing import NamedTuple

from llvmlite import ir

from dualbcast.codegen.loops import LINE
from dualbcast.codegen.loops.builder import Pointer, size_of, type_of
from dualbcast.codegen.values import INDEX, PLACE, TYPES, Lanes, Value, declared, masked_load, masked_store, word

# The bytes between a load and its prefetch: 1024 and 4096 were no better.
_AHEAD = 2048
# How likely it is that a vector begins with a line.
_MOSTLY = [1000, 1]


class Along(NamedTuple):
    """An index that goes along the row."""

    first: Value  # the index of a vector's first element
    step: Value | None  # the difference between two elements; None is 1


def load_along(pointer: Pointer, index: Along, lanes: int, prefetches: bool) -> Value:
    """The vector of elements from an index on."""
    if index.step is None:
        pointer = pointer.at(index.first)
        if prefetches:
            _prefetch(pointer.builder, pointer.value, size_of(pointer.kind) * lanes)
        return pointer.vector(0, lanes)
    vector = Value(pointer.builder, ir.Constant(Lanes(TYPES[pointer.kind], lanes), ir.Undefined))
    for lane in range(lanes):
        vector = vector.with_lane(lane, pointer[_lane(index, lane)])
    return Value(pointer.builder, vector.value, pointer.kind)


def gathered(pointer: Pointer, places: Value) -> Value:
    """The elements at the places that a vector of indices has."""
    builder, lanes, kind = pointer.builder, places.lanes, type_of(pointer.kind)
    addresses = builder.gep(pointer.value, [places.value], source_etype=kind)
    addresses.type = Lanes(ir.PointerType(), lanes)
    result = Lanes(kind, lanes)
    every = ir.Constant(Lanes(ir.IntType(1), lanes), [1] * lanes)
    arguments = [addresses, ir.Constant(PLACE, size_of(pointer.kind)), every, ir.Constant(result, ir.Undefined)]
    # In an array that the kernel never writes, a gather may run wherever its places are known.
    symbol = f"llvm.masked.gather.{result.intrinsic_name}.v{lanes}p0"
    function = declared(builder.module, symbol, result, [argument.type for argument in arguments])
    return Value(builder, builder.call(function, arguments), pointer.kind)


def store_along(pointer: Pointer, index: Along, vector: Value, is_streamed: bool) -> None:
    """Store a vector from an index on, past the cache where it is to be streamed."""
    if index.step is not None:
        for lane in range(vector.lanes):
            pointer[_lane(index, lane)] = vector.lane(lane)
    # A line that is streamed in two parts, with those of other outputs in between, is written twice: of 42 outputs that
    # took six times as long.
    elif is_streamed and size_of(pointer.kind) * vector.lanes >= LINE:
        address, align = pointer.at(index.first).value, size_of(pointer.kind)
        _store_past_the_cache(pointer.builder, vector.value, address, align)
    else:
        pointer[index.first] = vector


def load_masked(pointer: Pointer, index: Along, mask: Value) -> Value:
    """The elements from an index on that a mask has, and the first element in the other places."""
    builder, pointer = pointer.builder, pointer.at(index.first)
    vector: Value = pointer[0].splat(mask.lanes)
    if index.step is None:
        loaded = masked_load(builder, pointer.value, size_of(pointer.kind), mask.value, vector.value)
        return Value(builder, loaded, pointer.kind)
    for lane in range(1, mask.lanes):
        ahead = mask.lane(lane).choose(index.step * lane, 0)
        vector = vector.with_lane(lane, pointer[ahead])
    return Value(builder, vector.value, pointer.kind)


def store_masked(pointer: Pointer, index: Along, mask: Value, vector: Value) -> None:
    """Store the elements of a vector that a mask has."""
    builder = pointer.builder
    if index.step is None:
        masked_store(builder, vector.value, pointer.at(index.first).value, size_of(pointer.kind), mask.value)
        return
    for lane in range(mask.lanes):
        with builder.if_then(mask.lane(lane).value):
            pointer[_lane(index, lane)] = vector.lane(lane)


def _lane(index: Along, lane: int) -> Value:
    """The index of an element of a vector whose elements do not lie side by side."""
    assert index.step is not None
    return index.first + index.step * lane


def _prefetch(builder: ir.IRBuilder, address: ir.Value, size: int) -> None:
    """Ask for the lines that lie some way ahead of a vector of so many bytes.

    The processor foresees by itself how an array goes on, but later, and not of many arrays at a time.
    """
    kinds = [ir.PointerType(), PLACE, PLACE, PLACE]
    function = declared(builder.module, "llvm.prefetch.p0", ir.VoidType(), kinds)
    # To read, near, data.
    how = [ir.Constant(PLACE, number) for number in (0, 3, 1)]
    for past in range(0, size, LINE):
        ahead = builder.gep(address, [word(_AHEAD + past)], source_etype=ir.IntType(8))
        ahead.type = ir.PointerType()
        builder.call(function, [ahead, *how])


def _store_past_the_cache(builder: ir.IRBuilder, vector: ir.Value, address: ir.Value, align: int) -> None:
    """Store a vector of whole lines, without reading these into the cache if the vector begins with a line.

    The processor refuses such a store at any other address. Its test makes the store right wherever outputs, ranges and
    rows begin, and takes no time beside the memory's delay.
    """
    rest = builder.and_(builder.ptrtoint(address, INDEX), word(LINE - 1))
    past, through, after = (builder.append_basic_block() for _ in range(3))
    builder.cbranch(builder.icmp_unsigned("==", rest, word(0)), past, through).set_weights(_MOSTLY)
    builder.position_at_end(past)
    store = builder.store(vector, address, align=LINE)
    store.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)]))
    builder.branch(after)
    builder.position_at_end(through)
    builder.store(vector, address, align=align)
    builder.branch(after)
    builder.position_at_end(after)
