"""Accesses to memory that a plain load or store does not express: prefetches, nontemporal stores, masked accesses."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from dualbcast.codegen.llvm.values import WORD, word
from dualbcast.codegen.vector_types import PLACE, Lanes

__all__ = ["LINE", "masked_load", "masked_store", "prefetch", "store_past_the_cache"]

# The bytes of a line of the cache, and the bytes between a load and its prefetch: 1024 and 4096 were no better.
LINE, _AHEAD = 64, 2048
# How likely it is that a vector begins with a line.
_MOSTLY = [1000, 1]


def prefetch(builder: ir.IRBuilder, address: ir.Value, size: int) -> None:
    """Ask for the lines that lie some way ahead of a vector of so many bytes.

    The processor foresees by itself how an array goes on, but later, and not of many arrays at a time.
    """
    symbol, module = "llvm.prefetch.p0", builder.module
    if symbol not in module.globals:
        ir.Function(module, ir.FunctionType(ir.VoidType(), [ir.PointerType(), PLACE, PLACE, PLACE]), symbol)
    # To read, near, data.
    how = [ir.Constant(PLACE, number) for number in (0, 3, 1)]
    for past in range(0, size, LINE):
        ahead = builder.gep(address, [word(_AHEAD + past)], source_etype=ir.IntType(8))
        ahead.type = ir.PointerType()
        builder.call(module.globals[symbol], [ahead, *how])


def store_past_the_cache(builder: ir.IRBuilder, vector: ir.Value, address: ir.Value, align: int) -> None:
    """Store a vector of whole lines, without reading these into the cache if the vector begins with a line.

    The processor refuses such a store at any other address. Its test makes the store right wherever outputs, ranges and
    rows begin, and takes no time beside the memory's delay.
    """
    rest = builder.and_(builder.ptrtoint(address, WORD), word(LINE - 1))
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


def masked_load(
    builder: ir.IRBuilder, address: ir.Value, align: int, mask: ir.Value, otherwise: ir.Value
) -> ir.Instruction:
    """The elements of a vector in memory where a mask is true, and those of another vector elsewhere."""
    return _masked(builder, "load", otherwise.type, [address, ir.Constant(PLACE, align), mask, otherwise])


def masked_store(builder: ir.IRBuilder, vector: ir.Value, address: ir.Value, align: int, mask: ir.Value) -> None:
    """Store the elements of a vector where a mask is true."""
    _masked(builder, "store", vector.type, [vector, address, ir.Constant(PLACE, align), mask])


def _masked(builder: ir.IRBuilder, verb: str, kind: Lanes, arguments: Sequence[ir.Value]) -> ir.Instruction:
    symbol, module = f"llvm.masked.{verb}.{kind.intrinsic_name}.p0", builder.module
    function = module.globals.get(symbol)
    if function is None:
        result = kind if verb == "load" else ir.VoidType()
        function = ir.Function(module, ir.FunctionType(result, [argument.type for argument in arguments]), symbol)
    return builder.call(function, arguments)
