"""Presence: whether a value depends on a direction along the path that was taken. The partials of a region with their
presence, and the directions in which the variables of a loop have a derivative along every path.

A variable that depends on an argument along some paths only has a derivative of zero on the others. The product of that
zero and an infinite partial would be NaN; therefore a flag decides whether the term counts.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from dualbcast.autodiff.activity import NONE, Directions, differentiable, is_finite, links
from dualbcast.ir import nodes as ir
from dualbcast.ir.traversal import assigned, assignments, breaks, known_iterations


# Tests, each with the result that it must have.
Conditions = frozenset[tuple[ir.Atom, bool]]


@dataclass(frozen=True, slots=True)
class Edge:
    """A partial of one value in another.

    Where the flag is false the value does not depend on the other one. The partial is zero there, unless it is because
    of an `unmasked` condition that the flag is false: the partial may be any number then. The flag `begins` where it is false in the first iterations of a loop only: an integration would
    otherwise read, in each iteration, a flag whose value is known. The partial is then an ordinary zero in the first
    iterations, unless it is multiplied by one that `has_poles`: that can be infinite at finite arguments. A partial that
    `is_bounded` is made of constants alone, so that it is finite, and zero only where there is no dependence. One that
    `is_negative` is to be multiplied by -1: signs meet in products and in sums.
    """

    partial: ir.Atom
    flag: ir.Atom = ir.TRUE
    unmasked: Conditions = frozenset()
    begins: bool = False
    has_poles: bool = False
    is_bounded: bool = False
    is_negative: bool = False


UNIT = Edge(ir.ONE, is_bounded=True)


class LoopPresence(NamedTuple):
    """The directions that the variables of a loop depend on along every path: when an iteration begins, when a later
    one than the first few begins, and after the loop."""

    entry: Directions
    late: Directions
    after: Directions


def bounded_names(loop: ir.For | ir.While, given: Mapping[str, Mapping[int, Edge]], active: Directions) -> set[str]:
    """The names whose partials in a loop `is_bounded`, from the edges into those that have a value before it."""
    bounded = {name for name in active if all(edge.is_bounded for edge in given.get(name, {}).values())}
    steps = [(stmt.target.name, links(stmt.value)) for stmt in assignments((loop,)) if stmt.target.name in active]
    size = -1
    while size != len(bounded):
        size = len(bounded)
        for name, sources in steps:
            if any(var.name in active and not (var.name in bounded and is_finite(to)) for var, to in sources):
                bounded.discard(name)
    return bounded


def loop_presence(loop: ir.For | ir.While, before: Directions, active: Directions) -> LoopPresence:
    """The presence in a loop, from the directions that variables depend on along every path before it.

    `active` has, for every name, the directions that it can depend on.
    """
    carried = [name for name in dict.fromkeys(assigned((loop,))) if name in active]
    entry = dict(before)
    while True:
        after, _ = _iterated(loop, entry, active)
        kept = {name: entry.get(name, NONE) & after.get(name, NONE) for name in carried}
        if all(kept[name] == entry.get(name, NONE) for name in carried):
            break
        entry |= kept
    least = 0
    if isinstance(loop, ir.For) and not breaks(loop.body):
        least = known_iterations(loop) or 0
    late, iterations, leaving = entry, 0, _iterated(loop, entry, active)[1]
    while True:
        after = {**late, **_iterated(loop, late, active)[0]}
        if iterations < least:
            iterations += 1
            leaving = after
        if all(after.get(name, NONE) == late.get(name, NONE) for name in carried):
            break
        late = after
    return LoopPresence(entry, late, leaving)


def _iterated(loop: ir.For | ir.While, start: Directions, active: Directions) -> tuple[Directions, Directions]:
    """What every path depends on after one iteration, and where the loop is left before or in it."""
    here, leaving = dict(start), dict(start)
    again: list[dict[str, frozenset[Hashable]]] = []
    left: list[dict[str, frozenset[Hashable]]] = []
    if isinstance(loop, ir.While):
        _follow(loop.pre, here, active, again, left)
        leaving = dict(here)
    if _follow(loop.body, here, active, again, left):
        again.append(here)
    if not isinstance(loop, ir.While) or loop.test != ir.TRUE:
        left.append(leaving)
    return _on_all(again, start), _on_all(left, start)


def _follow(
    block: ir.Block,
    here: dict[str, frozenset[Hashable]],
    active: Directions,
    again: list[dict[str, frozenset[Hashable]]],
    left: list[dict[str, frozenset[Hashable]]],
) -> bool:
    """Whether the end of a block can be reached; `here` gets what every path to it depends on, and the lists what those
    to the jumps in it do."""
    for stmt in block:
        match stmt:
            case ir.Assign(target=target) if target.name in active:
                here[target.name] = _present(stmt.value, here)
            case ir.If():
                sides = dict(here), dict(here)
                blocks = stmt.then, stmt.orelse
                ends = [
                    side
                    for side, inner in zip(sides, blocks, strict=True)
                    if _follow(inner, side, active, again, left)
                ]
                if not ends:
                    return False
                here.update(_on_all(ends, here))
            case ir.For() | ir.While():
                here.update(loop_presence(stmt, here, active).after)
            case ir.Continue():
                again.append(dict(here))
                return False
            case ir.Break():
                left.append(dict(here))
                return False
    return True


def _present(value: ir.Expr, here: Directions) -> frozenset[Hashable]:
    """The directions that a value depends on along every path to it."""
    if isinstance(value, ir.Op) and value.name == "select":
        then, orelse = [here.get(side.name, NONE) if isinstance(side, ir.Var) else NONE for side in value.args[1:]]
        return then & orelse
    return NONE.union(*[here.get(source.name, NONE) for source in differentiable(value)])


def _on_all(paths: list[dict[str, frozenset[Hashable]]], default: Directions) -> dict[str, frozenset[Hashable]]:
    """What a value depends on along each of some paths; the default where there is no path."""
    if not paths:
        return dict(default)
    first, *others = paths
    return {
        name: directions.intersection(*[other[name] for other in others])
        for name, directions in first.items()
        if all(name in other for other in others)
    }
