"""A function that is called under a condition which next to never holds, in vectors too."""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from dualbcast.runtime.elementary_steps import Emit, attribute, keep

__all__ = ["or_rarely", "under_masks"]

# How many bits the vectors of processors have.
VECTORS = (128, 256, 512)
# How often it is one way, and how often the other.
_RARELY = (1, 2000)


def or_rarely(builder: ir.IRBuilder, rare: ir.Value, result: ir.Value, otherwise: Callable[[], ir.Value]) -> ir.Value:
    """`result`, or where `rare` is true what `otherwise` computes."""
    here, large, after = builder.block, builder.append_basic_block("rare"), builder.append_basic_block("common")
    builder.cbranch(rare, large, after).set_weights(_RARELY)
    builder.position_at_end(large)
    called = otherwise()
    builder.branch(after)
    builder.position_at_end(after)
    either = builder.phi(result.type)
    either.add_incoming(result, here)
    either.add_incoming(called, large)
    return either


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
    mappings, versions = [], []
    for bits in VECTORS:
        lanes = bits // (32 if isinstance(kind, ir.FloatType) else 64)
        vector, masks = ir.VectorType(kind, lanes), ir.VectorType(ir.IntType(1), lanes)
        shape = ir.FunctionType(vector, [*[vector] * arity, masks])
        masked = ir.Function(module, shape, f"{function.name}_masked_{lanes}")
        masked.linkage = "linkonce_odr"
        attribute(masked, "alwaysinline", "nounwind", "willreturn", "memory(none)")
        builder = ir.IRBuilder(masked.append_basic_block())
        rare, common = masked.append_basic_block(), masked.append_basic_block()
        word = ir.IntType(lanes)
        any_ = builder.icmp_unsigned("!=", builder.bitcast(masked.args[-1], word), ir.Constant(word, 0))
        builder.cbranch(any_, rare, common).set_weights(_RARELY)
        ir.IRBuilder(common).ret(ir.Constant(vector, ir.Undefined))
        builder = ir.IRBuilder(rare)
        builder.ret(each(lanes)(builder, masked.args[:-1]))
        mappings.append(f"_ZGV_LLVM_M{lanes}{'v' * arity}_{function.name}({masked.name})")
        versions.append(masked)
    attribute(function, f'"vector-function-abi-variant"="{",".join(mappings)}"')
    keep(module, versions)
