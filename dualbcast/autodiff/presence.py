"""Tangents that are absent along some path: where they are, and where that has to be said, for a zero to stay one.

A name that depends on an argument along some paths only has a tangent of zero on the others. As a number that becomes
NaN under an infinite slope, so it is a product's flag that decides, and not the number.

Only the first turns of a loop go without: what will have a tangent in every later one, whatever path they take, is a
zero like any other until then, but under a pole. Else each turn of an integration would ask for what is known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import count
from typing import NamedTuple

from dualbcast.autodiff.activity import differentiable, partials_at
from dualbcast.ir.nodes import Assign, Block, Break, Const, Continue, Expr, For, Function, If, Op, Var, While
from dualbcast.ir.walk import assigned, assigned_always, atoms, blocks, expressions, statements

__all__ = ["Absences", "absences", "certain", "doubt"]

# For every name, parameters.
_Sets = Mapping[str, frozenset[int]]
_NONE: frozenset[int] = frozenset()
# An assignment, what is in doubt of what it reads, and in all but the first turns of the loop around it.
_Step = tuple[Assign, _Sets, _Sets | None]
# Operations through which a partial becomes infinite where the value need not be.
_POLES = frozenset({"div", "log", "log2", "log10", "log1p", "pow", "lgamma", "tgamma", "digamma", "polygamma"})


def doubt(function: Function, active: _Sets) -> dict[str, frozenset[int]]:
    """For every name, the parameters that its value does not depend on along some path, though on others it does."""
    found: dict[str, frozenset[int]] = {}
    assigns = [stmt for stmt in statements(function.body) if isinstance(stmt, Assign) and active.get(stmt.target.name)]
    changed = True
    while changed:
        changed = False
        for stmt in assigns:
            sure = certain(stmt.value, active, found)
            now = found.get(stmt.target.name, frozenset()) | (active[stmt.target.name] - sure)
            if now != found.get(stmt.target.name, frozenset()):
                found[stmt.target.name] = now
                changed = True
    return found


def certain(value: Expr, active: _Sets, doubtful: _Sets) -> frozenset[int]:
    """The parameters that a value depends on whatever path has led to it."""

    def sure(arg: Expr) -> frozenset[int]:
        return active.get(arg.name, _NONE) - doubtful.get(arg.name, _NONE) if isinstance(arg, Var) else _NONE

    if isinstance(value, Op) and value.name == "select":
        return sure(value.args[1]) & sure(value.args[2])
    return _NONE.union(*map(sure, differentiable(value)))


class Absences(NamedTuple):
    """What is to be done for absent tangents to be zero.

    Attributes
    ----------
    kept : set of (str, str, int)
        A name, a variable that it is made of, a parameter: the term is to be zero where the variable's flag is false.
    lost : set of (str, int)
        A name, a parameter: where the name's flag is false its tangent is just any number, which nobody is to see.
    """

    kept: set[tuple[str, str, int]]
    lost: set[tuple[str, int]]


def absences(function: Function, active: _Sets, doubtful: _Sets) -> Absences:
    """Which terms of tangents ask a flag, and which tangents are left without.

    What is made of one variable alone is absent where that is, so of a chain of operations only the end asks.
    """
    found = Absences(set(), set())
    if not any(doubtful.values()):
        return found
    steps = _Walk(function, active, doubtful).steps
    size = -1
    while size != len(found.lost):
        size = len(found.lost)
        for stmt, here, late in steps:
            sure, factors = certain(stmt.value, active, here), _factors(stmt.value)
            for source, multiplied in factors.items():
                for seed in here.get(source, _NONE):
                    if not multiplied and (source, seed) not in found.lost:
                        continue
                    begins = late is not None and seed not in late.get(source, _NONE)
                    others = (seed in active.get(other, _NONE) for other in factors if other != source)
                    if begins and multiplied and _has_poles(stmt.value):
                        found.kept.add((stmt.target.name, source, seed))
                    elif _chooses(stmt.value) or not any(others):
                        found.lost.add((stmt.target.name, seed))
                    elif not begins:
                        found.kept.add((stmt.target.name, source, seed))
                    elif seed not in sure:
                        found.lost.add((stmt.target.name, seed))
    return found


class _Walk:
    """What is in doubt at each place of a function, which is less than what is for a name wherever it stands."""

    def __init__(self, function: Function, active: _Sets, doubtful: _Sets) -> None:
        self.active, self.doubtful = active, doubtful
        self.times = Counter([*(param.name for param in function.params), *assigned(function.body)])
        self.steps: list[_Step] = []
        self.block(function.body, {}, None)

    def block(self, block: Block, here: dict[str, frozenset[int]], late: _Sets | None) -> dict[str, None]:
        """Append the assignments of a block, with what is in doubt about what each reads.

        `here` is what is in doubt before the block, and then what is after it. The names of which that may be read
        there, and have been assigned in the block, are returned.
        """
        changed: dict[str, None] = {}
        for stmt in block:
            if isinstance(stmt, Assign):
                name = stmt.target.name
                if name in self.active:
                    step = stmt, _of_what_is_read(stmt, here), None if late is None else _of_what_is_read(stmt, late)
                    self.steps.append(step)
                    here[name] = self.active[name] - certain(stmt.value, self.active, here)
                    changed[name] = None
            elif isinstance(stmt, If):
                then, orelse = dict(here), dict(here)
                for name in self.block(stmt.then, then, late) | self.block(stmt.orelse, orelse, late):
                    # What is assigned once, on one side, is not read after the branch.
                    if self.times[name] > 1:
                        here[name] = then.get(name, _NONE) | orelse.get(name, _NONE)
                        changed[name] = None
            elif isinstance(stmt, For | While):
                inside = {*assigned((stmt,))}
                unknown = {name: self.doubtful.get(name, _NONE) for name in inside}
                here |= unknown
                later = self.after(stmt, here if late is None else {**late, **unknown}, None)
                for inner in blocks(stmt):
                    self.block(inner, dict(here), later)
                here |= self.after(stmt, here, _least_turns(stmt))
                changed |= dict.fromkeys(inside)
        return changed

    def after(self, loop: For | While, here: _Sets, turns: int | None) -> _Sets:
        """What is still in doubt when a loop has gone through some turns, as many as it takes or so many, whatever
        path each of them has taken."""
        assigns = [stmt for stmt in statements((loop,)) if isinstance(stmt, Assign) and stmt.target.name in self.active]
        turn = (*loop.pre, *loop.body) if isinstance(loop, While) else loop.body
        ends = (at for at, stmt in enumerate(turn) if any(isinstance(part, Continue) for part in statements((stmt,))))
        always = assigned_always(turn[: next(ends, len(turn))])
        inside = Counter(assigned((loop,)))
        # Of these there is what they were before the turn.
        carried = [name for name in inside if name not in always and self.times[name] > inside[name]]
        for _ in count() if turns is None else range(turns):
            now = {name: here.get(name, _NONE) if name in carried else _NONE for name in inside}
            for stmt in assigns:
                now[stmt.target.name] |= self.active[stmt.target.name] - certain(stmt.value, self.active, here)
            now = {**here, **now}
            if now == here:
                break
            here = now
        return here


def _of_what_is_read(stmt: Assign, doubtful: _Sets) -> _Sets:
    return {leaf.name: doubtful.get(leaf.name, _NONE) for leaf in atoms(stmt.value) if isinstance(leaf, Var)}


def _least_turns(loop: For | While) -> int:
    """How many turns a loop takes at least."""
    if isinstance(loop, While) or any(isinstance(stmt, Break) for stmt in statements((loop,))):
        return 0
    bounds = [bound.value for bound in (loop.start, loop.stop, loop.step) if isinstance(bound, Const)]
    return len(range(*map(int, bounds))) if len(bounds) == 3 and bounds[2] != 0 else 0


def _factors(value: Expr) -> dict[str, bool]:
    """The variables that a value depends on, and whether their tangents are multiplied by something that varies."""
    found = {source.name: False for source in differentiable(value)}
    if found and isinstance(value, Op) and value.name != "select":
        for arg, partial in zip(value.args, partials_at(value)[2], strict=True):
            if isinstance(arg, Var) and arg.name in found:
                found[arg.name] |= not isinstance(partial, Const)
    return found


def _chooses(value: Expr) -> bool:
    return not isinstance(value, Op) or value.name == "select"


def _has_poles(value: Expr) -> bool:
    """Whether a partial of an operation can be infinite at finite arguments with a finite value, or at a pole."""
    if _chooses(value):
        return False
    assert isinstance(value, Op)
    template, _, partials = partials_at(value)
    pending: list[Expr] = [*partials, *(expr for stmt in statements(template.body) for expr in expressions(stmt))]
    while pending:
        expr = pending.pop()
        if isinstance(expr, Op):
            if expr.name in _POLES and not isinstance(expr.args[-1], Const):
                return True
            pending.extend(expr.args)
    return False
