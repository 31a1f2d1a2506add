"""Chains: variables that need no tangents of their own, since each depends on one other variable alone.

The local partials along a chain are multiplied with each other first, and then with the tangents of its first variable.
A chain takes one multiplication for each operation and one for each tangent, instead of one for each pair. Chains
depend on the function alone, so that the bits of a derivative do not depend on the other derivatives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from dualbcast.autodiff.activity import activity, differentiable
from dualbcast.autodiff.presence import sometimes_absent
from dualbcast.ir.nodes import Assign, Block, Function, Op, Var
from dualbcast.ir.traversal import assigned, atoms, blocks, expressions, use_counts, variables

__all__ = ["chained"]


def chained(function: Function) -> frozenset[str]:
    """The variables that are read once, by an operation in the same block, before the operands of their partial change.

    Parameters
    ----------
    function : Function
        Operations on atoms.
    """
    seeds = {param.name: frozenset({at}) for at, param in enumerate(function.params) if param.kind == "float"}
    active = activity(function, seeds)
    uncertain = sometimes_absent(function, active)
    writes, reads = Counter(assigned(function.body)), use_counts(function)
    once = {name for name in active if writes[name] == reads[name] == 1 and not uncertain.get(name)}
    # For each chained variable, the first variable of its chain and all operands of its partial in that.
    chains: dict[str, tuple[str, frozenset[str]]] = {}

    def visit(block: Block) -> None:
        for position, stmt in enumerate(block):
            for inner in blocks(stmt):
                visit(inner)
            if isinstance(stmt, Assign) and stmt.target.name in once and _is_operation(stmt):
                source, operands = _source(stmt, active, chains)
                if source and len(active[source]) > 1 and _lasts(stmt.target, operands, block[position + 1 :]):
                    chains[stmt.target.name] = source, operands

    visit(function.body)
    return frozenset(chains)


def _source(
    stmt: Assign, active: Mapping[str, frozenset[int]], chains: Mapping[str, tuple[str, frozenset[str]]]
) -> tuple[str | None, frozenset[str]]:
    """The one variable with tangents that a value depends on, if it is one; and the operands of its partial in that."""
    names = [arg.name for arg in differentiable(stmt.value) if active.get(arg.name)]
    sources = {chains[name][0] if name in chains else name for name in names}
    operands = frozenset(leaf.name for leaf in variables(stmt.value))
    operands = operands.union(sources, *(chains[name][1] for name in names if name in chains))
    return (sources.pop() if len(sources) == 1 else None), operands


def _lasts(target: Var, operands: frozenset[str], rest: Block) -> bool:
    """Whether an operation reads the target before one of its operands changes."""
    for stmt in rest:
        if target in (leaf for expr in expressions(stmt) for leaf in atoms(expr)):
            return isinstance(stmt, Assign) and _is_operation(stmt)
        if not operands.isdisjoint(assigned((stmt,))):
            return False
    return False


def _is_operation(stmt: Assign) -> bool:
    return isinstance(stmt.value, Op) and stmt.value.name != "select"
