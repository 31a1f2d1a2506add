"""Whether the elements of a row can be lanes of vectors, by our own vectoriser or by LLVM's."""

from __future__ import annotations

from collections.abc import Set
from functools import lru_cache

from dualbcast.frontend.rule_bodies import helper_of
from dualbcast.ir.nodes import Assign, Block, Expr, For, Function, If, Op, Var, While
from dualbcast.ir.traversal import blocks, has_loops, operations_of, statements, targets
from dualbcast.passes.uniformity import is_uniform_loop, varies, varying_names
from dualbcast.rules.table import RULES

__all__ = ["blocks_vectors", "fits_vectors", "has_varying_branches", "is_scalar", "suits_llvm_vectoriser"]


def is_scalar(function: Function) -> bool:
    """Whether a loop or an operation in a function keeps the loop over elements from being vectorised."""
    return has_loops(function.body) or any(blocks_vectors(op.name) for op in operations_of(function))


@lru_cache(maxsize=1024)
def blocks_vectors(name: str) -> bool:
    """Whether an operation keeps the loop over elements from being vectorised."""
    row = RULES.get(name)
    return row is not None and row.function is not None and is_scalar(helper_of(row))


def fits_vectors(function: Function, uniform: Set[str]) -> bool:
    """Whether the elements of a row can be lanes of vectors.

    Its varying branches must be selects or have no `else`, and its varying loops must be masked.
    """
    if any(blocks_vectors(op.name) for op in operations_of(function)):
        return False
    forks = [stmt for stmt in statements(function.body) if isinstance(stmt, If | For | While)]
    varying = varying_names(function, uniform) if forks else set()
    return all(_fits(stmt, varying) for stmt in forks)


def _fits(stmt: If | For | While, varying: Set[str]) -> bool:
    match stmt:
        case If():
            return not stmt.orelse or not varies(stmt.test, varying)
        case For():
            return is_uniform_loop(stmt, varying)
        case While():
            return stmt.masked


def has_varying_branches(function: Function, uniform: Set[str]) -> bool:
    """Whether a branch is left whose condition varies."""
    tests = [stmt.test for stmt in statements(function.body) if isinstance(stmt, If)]
    varying = varying_names(function, uniform) if tests else set()
    return any(varies(test, varying) for test in tests)


# Each step of a longer chain of uniform operations in branches doubles the time of LLVM's vectoriser
# (docs/decisions/024-chains-of-uniform-work.md).
LONGEST_CHAIN = 20
# LLVM unrolls loops: a chain is measured through so many more iterations of a loop, for each loop around it.
_MORE_ITERATIONS = 2


def suits_llvm_vectoriser(function: Function, uniform: Set[str]) -> bool:
    """Whether LLVM vectorises a kernel in reasonable time; the parameters in `uniform` do not change within a row."""
    return _longest_chain(function, uniform) <= LONGEST_CHAIN


def _longest_chain(function: Function, uniform: Set[str]) -> int:
    """The length of the longest chain of uniform operations that LLVM cannot hoist out of the loop over a row."""
    varying = varying_names(function, uniform)
    # The length of the chain to each uniform variable.
    chains: dict[str, int] = {}

    def length(expr: Expr, inside: bool) -> int:
        if isinstance(expr, Op):
            longest = max((length(arg, inside) for arg in expr.args), default=0)
            return longest + 1 if inside or longest else 0
        return chains.get(expr.name, 0) if isinstance(expr, Var) else 0

    def visit(block: Block, inside: bool) -> None:
        """Lengthen the chains through a block, which may be inside a branch or a loop."""
        for stmt in block:
            if isinstance(stmt, Assign):
                name = stmt.target.name
                if name not in varying and not varies(stmt.value, varying):
                    chains[name] = max(chains.get(name, 0), length(stmt.value, inside))
                continue
            for inner in blocks(stmt):
                visit(inner, True)
            if isinstance(stmt, If):
                # After the branch, LLVM chooses between the values of both sides.
                for name in targets((stmt,)).keys() & chains.keys():
                    chains[name] = 1 + max(chains[name], length(stmt.test, inside))

    for _ in range(1 + _MORE_ITERATIONS * _loop_depth(function.body)):
        visit(function.body, False)
    return max(chains.values(), default=0)


def _loop_depth(block: Block) -> int:
    """How deep loops are nested in a block."""
    inner = ((stmt, max(map(_loop_depth, blocks(stmt)))) for stmt in block if blocks(stmt))
    return max((depth + isinstance(stmt, For | While) for stmt, depth in inner), default=0)
