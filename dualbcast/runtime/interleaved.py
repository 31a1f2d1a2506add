"""A hint for LLVM's vectoriser, of which Numba has no word: how many vectors of a loop's steps to compute side by side.

By itself it takes one where the body is long. What a processor looks ahead is then a single chain of instructions, each
waiting for the one before it.
"""

from __future__ import annotations

from llvmlite import ir

__all__ = ["hint", "mark"]

_ATTRIBUTE = "dualbcast_side_by_side"


def mark(block: ir.Block, count: int) -> None:
    """Note that `block`, which is still being written, ends the body of a loop, with so many vectors side by side."""
    setattr(block, _ATTRIBUTE, count)


def hint(module: ir.Module) -> None:
    """Tell LLVM of each marked loop, by metadata at the branch back to its beginning."""
    for function in module.functions:
        for block in function.blocks:
            count = getattr(block, _ATTRIBUTE, None)
            if count is not None:
                wanted = module.add_metadata(["llvm.loop.interleave.count", ir.Constant(ir.IntType(32), count)])
                # What names a loop refers to itself, so that it is like no other.
                loop = ir.MDValue(module, [wanted], name=str(len(module.metadata)))
                loop.operands = (loop, wanted)
                block.terminator.set_metadata("llvm.loop", loop)
