"""Arrays whose elements become lanes of vectors: how an index goes along a row, and vectors from memory and to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from llvmlite import ir

from dualbcast.codegen.values import INDEX, PLACE, TYPES, Lanes, Value, declared, masked_load, masked_store, splat, word

# The bytes of a line of the cache, and the bytes between a load and its prefetch: 1024 and 4096 were no better.
LINE, _AHEAD = 64, 2048
# How likely it is that a vector begins with a line.
_MOSTLY = [1000, 1]


class Along(NamedTuple):
    """An index that goes along the row: place * stride + offset."""

    first: ir.Value  # the index of a vector's first element
    step: ir.Value | None  # the difference between two elements; None is 1
    # The names of the parameters in the formula; empty where there are none.
    offset: str
    stride: str


class Access(NamedTuple):
    """How an array is read or written, a vector at a time; `offset` and `stride` are those of its index."""

    offset: str
    stride: str
    stores: bool


def index_along(builder: ir.IRBuilder, place: ir.Value, offset: str, stride: str, values: Mapping[str, Value]) -> Along:
    """The index of a place of the row."""
    step = values[stride].value if stride else None
    index = builder.mul(place, step) if stride else place
    return Along(builder.add(index, values[offset].value) if offset else index, step, offset, stride)


def size_of(pointer: Value) -> int:
    """The bytes of a number that a pointer points to."""
    return np.dtype(pointer.dtype[1:]).itemsize


def _first(builder: ir.IRBuilder, pointer: Value, index: Along) -> ir.Value:
    """The address of a vector, or of its first number."""
    address = builder.gep(pointer.value, [index.first])
    address.type = ir.PointerType()
    return address


def _lane(builder: ir.IRBuilder, pointer: Value, index: Along, lane: int) -> ir.Value:
    """The address of an element of a vector whose elements do not lie side by side."""
    return builder.gep(pointer.value, [builder.add(index.first, builder.mul(index.step, word(lane)))])


def load_along(builder: ir.IRBuilder, pointer: Value, index: Along, lanes: int, prefetches: bool) -> ir.Value:
    """The vector of elements from an index on."""
    number, size = TYPES[pointer.dtype[1:]], size_of(pointer)
    kind = Lanes(number, lanes)
    if index.step is None:
        address = _first(builder, pointer, index)
        if prefetches:
            _prefetch(builder, address, size * lanes)
        return builder.load(address, align=size, typ=kind)
    vector: ir.Value = ir.Constant(kind, ir.Undefined)
    for lane in range(lanes):
        value = builder.load(_lane(builder, pointer, index, lane), typ=number)
        vector = builder.insert_element(vector, value, ir.Constant(PLACE, lane))
    return vector


def store_along(builder: ir.IRBuilder, pointer: Value, index: Along, vector: ir.Value, is_streamed: bool) -> None:
    """Store a vector from an index on, past the cache where it is to be streamed."""
    size, lanes = size_of(pointer), vector.type.count
    if index.step is None:
        address = _first(builder, pointer, index)
        # A line that is streamed in two parts, with those of other outputs in between, is written twice: of 42
        # outputs that took six times as long.
        if is_streamed and size * lanes >= LINE:
            _store_past_the_cache(builder, vector, address, size)
        else:
            builder.store(vector, address, align=size)
        return
    for lane in range(lanes):
        number = builder.extract_element(vector, ir.Constant(PLACE, lane))
        builder.store(number, _lane(builder, pointer, index, lane))


def load_masked(builder: ir.IRBuilder, pointer: Value, index: Along, mask: ir.Value) -> ir.Value:
    """The elements from an index on that a mask has, and the first element in the other places."""
    lanes, number = mask.type.count, TYPES[pointer.dtype[1:]]
    address = _first(builder, pointer, index)
    vector = splat(builder, builder.load(address, typ=number), lanes)
    if index.step is None:
        return masked_load(builder, address, size_of(pointer), mask, vector)
    for lane in range(1, lanes):
        place = ir.Constant(PLACE, lane)
        ahead = builder.mul(index.step, word(lane))
        ahead = builder.select(builder.extract_element(mask, place), ahead, word(0))
        value = builder.load(builder.gep(pointer.value, [builder.add(index.first, ahead)]), typ=number)
        vector = builder.insert_element(vector, value, place)
    return vector


def store_masked(builder: ir.IRBuilder, pointer: Value, index: Along, mask: ir.Value, vector: ir.Value) -> None:
    """Store the elements of a vector that a mask has."""
    if index.step is None:
        masked_store(builder, vector, _first(builder, pointer, index), size_of(pointer), mask)
        return
    for lane in range(mask.type.count):
        place = ir.Constant(PLACE, lane)
        with builder.if_then(builder.extract_element(mask, place)):
            builder.store(builder.extract_element(vector, place), _lane(builder, pointer, index, lane))


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
