"""What is computed under a condition that next to never holds, in vectors too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from llvmlite import ir

from dualbcast.codegen.mathlib import libm
from dualbcast.codegen.mathlib.primitives import Emit, Steps, attribute, keep
from dualbcast.codegen.mathlib.vector_types import PLACE, Lanes, any_of, is_single, lone

__all__ = ["for_each", "instead", "library", "or_rarely", "under_masks"]

# How many bits the vectors of processors have.
VECTORS = (128, 256, 512)
# How often it is one way, and how often the other.
_RARELY = (1, 2000)


def or_rarely(builder: ir.IRBuilder, rare: ir.Value, result: ir.Value, otherwise: Callable[[], ir.Value]) -> ir.Value:
    """`result`, or where `rare` is true what `otherwise` computes, which is done if it is true anywhere."""
    here, large, after = builder.block, builder.append_basic_block("rare"), builder.append_basic_block("common")
    builder.cbranch(any_of(builder, rare), large, after).set_weights(_RARELY)
    builder.position_at_end(large)
    called = otherwise()
    if isinstance(rare.type, ir.VectorType):
        called = builder.select(rare, called, result)
    builder.branch(after)
    builder.position_at_end(after)
    either = builder.phi(result.type)
    either.add_incoming(result, here)
    either.add_incoming(called, large)
    return either


def instead(
    builder: ir.IRBuilder, rare: ir.Value, usual: Callable[[], ir.Value], otherwise: Callable[[], ir.Value]
) -> ir.Value:
    """What `usual` computes; or all of it by `otherwise`, if `rare` is true anywhere."""
    ways = [builder.append_basic_block(name) for name in ("rare", "usual")]
    after = builder.append_basic_block()
    builder.cbranch(any_of(builder, rare), *ways).set_weights(_RARELY)
    made = []
    for way, compute in zip(ways, (otherwise, usual), strict=True):
        builder.position_at_end(way)
        made.append((compute(), builder.block))
        builder.branch(after)
    builder.position_at_end(after)
    either = builder.phi(made[0][0].type)
    for value, end in made:
        either.add_incoming(value, end)
    return either


def for_each(function: ir.Function, lanes: int) -> ir.Function:
    """A function of vectors of so many, which calls a function of numbers for each."""
    module, arity = function.module, len(function.args)
    symbol = f"{function.name}_each_{lanes}"
    made = module.globals.get(symbol)
    if made is not None:
        return made
    vector = Lanes(function.return_value.type, lanes)
    made = ir.Function(module, ir.FunctionType(vector, [vector] * arity), symbol)
    made.linkage = "linkonce_odr"
    attribute(made, "noinline", "nounwind", "willreturn", "memory(none)")
    builder = ir.IRBuilder(made.append_basic_block())
    result: ir.Value = ir.Constant(vector, ir.Undefined)
    for lane in range(lanes):
        place = ir.Constant(PLACE, lane)
        value = builder.call(function, [builder.extract_element(argument, place) for argument in made.args])
        result = builder.insert_element(result, value, place)
    builder.ret(result)
    return made


def under_masks(function: ir.Function, each: Callable[[int], Emit]) -> None:
    """Give a function of floats of one type versions for vectors with a mask, which LLVM's vectoriser finds.

    They ask whether any of the mask is set, and do nothing if not. Once inlined, that is a branch.

    Parameters
    ----------
    function : llvmlite.ir.Function
        Must not be inlined itself.
    each : function
        How to compute it for a vector of so many.
    """
    module, kind, arity = function.module, function.return_value.type, len(function.args)
    if any(name.startswith(f"{function.name}_masked_") for name in module.globals):
        return
    mappings, versions = [], []
    for bits in VECTORS:
        lanes = bits // (32 if is_single(kind) else 64)
        vector, masks = ir.VectorType(kind, lanes), ir.VectorType(ir.IntType(1), lanes)
        shape = ir.FunctionType(vector, [*[vector] * arity, masks])
        masked = ir.Function(module, shape, f"{function.name}_masked_{lanes}")
        masked.linkage = "linkonce_odr"
        attribute(masked, "alwaysinline", "nounwind", "willreturn", "memory(none)")
        builder = ir.IRBuilder(masked.append_basic_block())
        rare, common = masked.append_basic_block(), masked.append_basic_block()
        builder.cbranch(any_of(builder, masked.args[-1]), rare, common).set_weights(_RARELY)
        ir.IRBuilder(common).ret(ir.Constant(vector, ir.Undefined))
        builder = ir.IRBuilder(rare)
        builder.ret(each(lanes)(builder, masked.args[:-1]))
        mappings.append(f"_ZGV_LLVM_M{lanes}{'v' * arity}_{function.name}({masked.name})")
        versions.append(masked)
    attribute(function, f'"vector-function-abi-variant"="{",".join(mappings)}"')
    keep(module, versions)


def library(f: Steps, name: str, arguments: Sequence[ir.Value]) -> ir.Value:
    """What a function of the C library gives, called under a condition: of vectors, for each element."""
    symbol, number, module = libm.symbol(name + ("f" if is_single(f.kind) else "")), lone(f.kind), f.builder.module
    function = module.globals.get(symbol)
    if function is None:
        function = ir.Function(module, ir.FunctionType(number, [number] * len(arguments)), symbol)
        attribute(function, "memory(none)", "nounwind", "willreturn", "cold")
    if isinstance(f.kind, ir.VectorType):
        return f.builder.call(for_each(function, f.kind.count), arguments)
    under_masks(function, lambda lanes: partial(_call, for_each(function, lanes)))
    return f.builder.call(function, arguments)


def _call(function: ir.Function, builder: ir.IRBuilder, arguments: Sequence[ir.Value]) -> ir.Value:
    return builder.call(function, arguments)
