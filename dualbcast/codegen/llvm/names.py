"""The names of a function in IR: which vary between the elements of a row, and which are read outside of loops."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Set
from itertools import count
from typing import NamedTuple

from dualbcast.ir.nodes import Assign, Block, Expr, For, Function, If, Load, Var, While
from dualbcast.ir.traversal import assigned, atoms, blocks, expressions, statements


class Uses(NamedTuple):
    """The names in some statements."""

    names: set[str]  # variables, those that are assigned too, and arrays
    assigned: set[str]


def uses(block: Block) -> Uses:
    targets = set(assigned(block))
    return Uses(targets.union(*[names_in(expressions(stmt)) for stmt in statements(block)]), targets)


def names_in(expressions: Iterable[Expr]) -> set[str]:
    """The variables and arrays in some expressions."""
    return {leaf.name for expr in expressions for leaf in atoms(expr) if isinstance(leaf, Var | Load)}


class Names(NamedTuple):
    """What is known of the variables of a function."""

    # Those that can differ between elements. In a masked loop nothing varies for that reason alone.
    varying: set[str]
    # Those that are read outside of a loop that assigns them.
    escaping: set[str]


def names_of(function: Function, varying: Set[str]) -> Names:
    """The names of a function in which the parameters, or arrays, in `varying` vary."""
    counts = Counter([*assigned(function.body), *(param.name for param in function.params)])
    # The loops around each assignment in a loop, by number, and those around the reads of each name.
    places: list[tuple[str, tuple[int, ...]]] = []
    reads: defaultdict[str, set[tuple[int, ...]]] = defaultdict(set)
    for name in names_in(output.value for output in function.outputs):
        reads[name].add(())
    numbers = count()
    # Variables, and the names that their values depend on, for those assigned several times with the tests around.
    dependences: list[tuple[str, set[str]]] = []

    def visit(block: Block, around: set[str], loops: tuple[int, ...]) -> None:
        for stmt in block:
            names = names_in(expressions(stmt))
            inside = (*loops, next(numbers)) if isinstance(stmt, For | While) else loops
            for name in names:
                reads[name].add(inside if isinstance(stmt, While) else loops)
            if isinstance(stmt, Assign):
                dependences.append((stmt.target.name, names if counts[stmt.target.name] == 1 else names | around))
            if inside and isinstance(stmt, Assign | For):
                places.append((stmt.target.name, inside))
            for inner in blocks(stmt):
                visit(inner, around | names if isinstance(stmt, If) else around, inside)

    visit(function.body, set(), ())
    known, size = set(varying), -1
    while size != len(known):
        size = len(known)
        known.update(name for name, names in dependences if not names.isdisjoint(known))
    escaping = {name for name, inside in places if any(loops[: len(inside)] != inside for loops in reads[name])}
    return Names(known, escaping)
