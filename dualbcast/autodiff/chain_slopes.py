"""Which variables need no partials of their own: each depends on one other alone, and its slope in that will do.

A chain of operations then takes a multiplication for each of them and one for each partial, and not one for each pair.
What waits depends on the function alone, not on which derivatives are asked for: their bits do not either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from dualbcast.autodiff.activity import activity, differentiable
from dualbcast.autodiff.presence import doubt
from dualbcast.ir.nodes import Assign, Block, Function, Op, Var
from dualbcast.ir.walk import assigned, atoms, blocks, expressions, use_counts

__all__ = ["waiting"]


def waiting(function: Function) -> frozenset[str]:
    """The variables that are read once, by an operation in the same block, while what their slope is made of lasts.

    Parameters
    ----------
    function : Function
        Operations on atoms.
    """
    seeds = {param.name: frozenset({at}) for at, param in enumerate(function.params) if param.kind == "float"}
    active = activity(function, seeds)
    doubtful = doubt(function, active)
    writes, reads = Counter(assigned(function.body)), use_counts(function)
    once = {name for name in active if writes[name] == reads[name] == 1 and not doubtful.get(name)}
    # By what it depends on alone, what that depends on in turn, and all that the slope may be made of.
    found: dict[str, tuple[str, frozenset[str]]] = {}

    def walk(block: Block) -> None:
        for position, stmt in enumerate(block):
            for inner in blocks(stmt):
                walk(inner)
            if isinstance(stmt, Assign) and stmt.target.name in once and _is_operation(stmt):
                source, held = _source(stmt, active, found)
                if source and len(active[source]) > 1 and _lasts(stmt.target, held, block[position + 1 :]):
                    found[stmt.target.name] = source, held

    walk(function.body)
    return frozenset(found)


def _source(
    stmt: Assign, active: Mapping[str, frozenset[int]], found: Mapping[str, tuple[str, frozenset[str]]]
) -> tuple[str | None, frozenset[str]]:
    """The one variable with partials that a value depends on, if it is one, and what its slope in that is made of."""
    names = [arg.name for arg in differentiable(stmt.value) if active.get(arg.name)]
    sources = {found[name][0] if name in found else name for name in names}
    held = frozenset(leaf.name for leaf in atoms(stmt.value) if isinstance(leaf, Var))
    held = held.union(sources, *(found[name][1] for name in names if name in found))
    return (sources.pop() if len(sources) == 1 else None), held


def _lasts(target: Var, held: frozenset[str], rest: Block) -> bool:
    """Whether an operation reads the target before anything changes."""
    for stmt in rest:
        if target in (leaf for expr in expressions(stmt) for leaf in atoms(expr)):
            return isinstance(stmt, Assign) and _is_operation(stmt)
        if not held.isdisjoint(assigned((stmt,))):
            return False
    return False


def _is_operation(stmt: Assign) -> bool:
    return isinstance(stmt.value, Op) and stmt.value.name != "select"
