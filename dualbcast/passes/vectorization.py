"""Whether the elements of a row can be lanes of vectors, by our own vectoriser or by LLVM's."""

from __future__ import annotations

from collections.abc import Set
from functools import lru_cache

from dualbcast.frontend.rule_bodies import helper_of
from dualbcast.ir.nodes import Assign, Block, Const, Expr, For, Function, If, Load, Op, Var, While
from dualbcast.ir.traversal import assigned, operations_of, statements
from dualbcast.passes.uniformity import is_uniform_loop, varies, varying_names
from dualbcast.rules.table import RULES

__all__ = ["blocks_vectors", "fits_vectors", "has_varying_branches", "is_scalar", "suits_llvm_vectoriser"]


def is_scalar(function: Function) -> bool:
    """Whether a loop or an operation in a function keeps the loop over elements from being vectorised."""
    if any(isinstance(stmt, For | While) for stmt in statements(function.body)):
        return True
    return any(blocks_vectors(op.name) for op in operations_of(function))


@lru_cache(maxsize=1024)
def blocks_vectors(name: str) -> bool:
    """Whether an operation keeps the loop over elements from being vectorised."""
    row = RULES.get(name)
    return row is not None and row.function is not None and is_scalar(helper_of(row))


def fits_vectors(function: Function, uniform: Set[str]) -> bool:
    """Whether nothing in a function keeps elements of a row from being computed as lanes of vectors.

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
LONGEST = 20


def suits_llvm_vectoriser(function: Function, uniform: Set[str]) -> bool:
    """Whether LLVM vectorises a kernel in reasonable time; the parameters in `uniform` do not change within a row."""
    return _longest(function.body, uniform, {}, False) <= LONGEST


def _longest(block: Block, uniform: Set[str], chains: dict[str, int], inside: bool, iterations: int = 3) -> int:
    """The longest chain of uniform operations, through so many iterations of each loop.

    `chains` maps every uniform name to the length of its chain, and is added to.
    """

    def chain(expr: Expr) -> int | None:
        """The length of the chain to a uniform value that LLVM cannot hoist; None for a varying value."""
        match expr:
            case Const():
                return 0
            case Load():
                return 0 if expr.name in uniform else None
            case Var():
                return chains.get(expr.name)
            case Op():
                lengths = [chain(arg) for arg in expr.args]
                known = [length for length in lengths if length is not None]
                if len(known) < len(lengths):
                    return None
                longest = max(known, default=0)
                return longest + 1 if inside or longest else 0

    longest = 0
    for stmt in block:
        match stmt:
            case Assign():
                length = chain(stmt.value)
                if length is None:
                    chains.pop(stmt.target.name, None)
                else:
                    chains[stmt.target.name] = length
                    longest = max(longest, length)
            case If():
                test = chain(stmt.test)
                sides = []
                for side in (stmt.then, stmt.orelse):
                    own = dict(chains)
                    longest = max(longest, _longest(side, uniform, own, True, iterations))
                    sides.append(own)
                for name in set(assigned((stmt,))):
                    lengths = [own[name] for own in sides if name in own]
                    chains.pop(name, None)
                    if test is not None and lengths:
                        chains[name] = max(*lengths, test) + 1 if len(lengths) > 1 else lengths[0] + 1
            case For() | While():
                # A loop that LLVM unrolls is as long a chain as it has iterations. Several iterations of the loops
                # inside it are looked at in its first only: of six nested loops they would be 729.
                before = dict(chains)
                for iteration in range(iterations):
                    longest = max(longest, _longest(stmt.body, uniform, chains, True, 1 if iteration else iterations))
                for name in set(assigned((stmt,))) & before.keys():
                    chains.setdefault(name, before[name])
    return longest
