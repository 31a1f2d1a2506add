"""Presence analysis: the tangents that are absent along some path, and the terms that must read a flag for that.

A variable that depends on an argument along some paths only has a tangent of zero on the others. The product of that
zero and an infinite partial would be NaN; therefore a flag decides whether the term counts.

A tangent may be absent in the first iterations of a loop, and present in all later ones on every path. It is then an
ordinary zero in the first iterations, unless it is multiplied by a partial with a pole. Otherwise each iteration of an
integration would read a flag whose value is known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import count
from typing import NamedTuple

from dualbcast.autodiff.activity import differentiable, partials_at
from dualbcast.ir.nodes import Assign, Block, Break, Const, Continue, Expr, For, Function, If, Op, Var, While
from dualbcast.ir.traversal import (
    assigned,
    assigned_always,
    assignments,
    blocks,
    expressions,
    known_iterations,
    statements,
    variables,
)

__all__ = ["AbsentTerms", "absent_terms", "always_present", "sometimes_absent"]

# A set of parameters for every name.
_Sets = Mapping[str, frozenset[int]]
_NONE: frozenset[int] = frozenset()
# An assignment; the uncertain parameters of each name that it reads; and those in all but the first iterations of its
# loop, if it is in one.
_Step = tuple[Assign, _Sets, _Sets | None]
# Operations through which a partial becomes infinite where the value need not be.
_POLES = frozenset({"div", "log", "log2", "log10", "log1p", "pow", "lgamma", "tgamma", "digamma", "polygamma"})


def sometimes_absent(function: Function, active: _Sets) -> dict[str, frozenset[int]]:
    """For every name, its uncertain parameters: the value depends on them along some paths, but not along all."""
    uncertain: dict[str, frozenset[int]] = {}
    assigns = [stmt for stmt in assignments(function.body) if active.get(stmt.target.name)]
    changed = True
    while changed:
        changed = False
        for stmt in assigns:
            sure = always_present(stmt.value, active, uncertain)
            now = uncertain.get(stmt.target.name, frozenset()) | (active[stmt.target.name] - sure)
            if now != uncertain.get(stmt.target.name, frozenset()):
                uncertain[stmt.target.name] = now
                changed = True
    return uncertain


def always_present(value: Expr, active: _Sets, uncertain: _Sets) -> frozenset[int]:
    """The parameters that a value depends on along every path to it."""

    def sure(arg: Expr) -> frozenset[int]:
        return active.get(arg.name, _NONE) - uncertain.get(arg.name, _NONE) if isinstance(arg, Var) else _NONE

    if isinstance(value, Op) and value.name == "select":
        return sure(value.args[1]) & sure(value.args[2])
    return _NONE.union(*map(sure, differentiable(value)))


class AbsentTerms(NamedTuple):
    """Where absent tangents matter.

    Attributes
    ----------
    guarded : set of (str, str, int)
        A name, an operand of its value, a parameter: the term is zero where the operand's flag is false.
    unspecified : set of (str, int)
        A name, a parameter: where the name's flag is false, its tangent is an arbitrary number, which nothing may read.
    """

    guarded: set[tuple[str, str, int]]
    unspecified: set[tuple[str, int]]


def absent_terms(function: Function, active: _Sets, uncertain: _Sets) -> AbsentTerms:
    """The terms of tangents that read a flag, and the tangents that are arbitrary where they are absent.

    A value of one variable alone is absent where that variable is, so that only the end of a chain of operations reads
    a flag.
    """
    terms = AbsentTerms(set(), set())
    if not any(uncertain.values()):
        return terms
    steps = _Flow(function, active, uncertain).steps
    size = -1
    while size != len(terms.unspecified):
        size = len(terms.unspecified)
        for stmt, here, late in steps:
            sure, factors = always_present(stmt.value, active, here), _factors(stmt.value)
            for source, multiplied in factors.items():
                for seed in here.get(source, _NONE):
                    if not multiplied and (source, seed) not in terms.unspecified:
                        continue
                    begins = late is not None and seed not in late.get(source, _NONE)
                    others = (seed in active.get(other, _NONE) for other in factors if other != source)
                    if begins and multiplied and _has_poles(stmt.value):
                        terms.guarded.add((stmt.target.name, source, seed))
                    elif _chooses(stmt.value) or not any(others):
                        terms.unspecified.add((stmt.target.name, seed))
                    elif not begins:
                        terms.guarded.add((stmt.target.name, source, seed))
                    elif seed not in sure:
                        terms.unspecified.add((stmt.target.name, seed))
    return terms


class _Flow:
    """The uncertain parameters of each name at each statement; at other statements, a name may have more."""

    def __init__(self, function: Function, active: _Sets, uncertain: _Sets) -> None:
        self.active, self.uncertain = active, uncertain
        self.times = Counter([*(param.name for param in function.params), *assigned(function.body)])
        self.steps: list[_Step] = []
        self.block(function.body, {}, None)

    def block(self, block: Block, here: dict[str, frozenset[int]], late: _Sets | None) -> dict[str, None]:
        """Append the assignments of a block, with the uncertain parameters of the names that each reads.

        `here` has the uncertain parameters before the block, and is updated to those after it. The names that the block
        assigns and that may be read after it are returned.
        """
        changed: dict[str, None] = {}
        for stmt in block:
            if isinstance(stmt, Assign):
                name = stmt.target.name
                if name in self.active:
                    step = stmt, _of_operands(stmt, here), None if late is None else _of_operands(stmt, late)
                    self.steps.append(step)
                    here[name] = self.active[name] - always_present(stmt.value, self.active, here)
                    changed[name] = None
            elif isinstance(stmt, If):
                then, orelse = dict(here), dict(here)
                for name in self.block(stmt.then, then, late) | self.block(stmt.orelse, orelse, late):
                    # A name that is assigned once, on one side, is not read after the branch.
                    if self.times[name] > 1:
                        here[name] = then.get(name, _NONE) | orelse.get(name, _NONE)
                        changed[name] = None
            elif isinstance(stmt, For | While):
                inside = {*assigned((stmt,))}
                unknown = {name: self.uncertain.get(name, _NONE) for name in inside}
                here |= unknown
                later = self.after(stmt, here if late is None else {**late, **unknown}, None)
                for inner in blocks(stmt):
                    self.block(inner, dict(here), later)
                here |= self.after(stmt, here, _least_iterations(stmt))
                changed |= dict.fromkeys(inside)
        return changed

    def after(self, loop: For | While, here: _Sets, iterations: int | None) -> _Sets:
        """The uncertain parameters after this number of iterations of a loop, or any number, whatever their paths."""
        assigns = [stmt for stmt in assignments((loop,)) if stmt.target.name in self.active]
        iteration = (*loop.pre, *loop.body) if isinstance(loop, While) else loop.body
        ends = (
            at for at, stmt in enumerate(iteration) if any(isinstance(part, Continue) for part in statements((stmt,)))
        )
        always = assigned_always(iteration[: next(ends, len(iteration))])
        inside = Counter(assigned((loop,)))
        # These may have values from before the iteration.
        carried = [name for name in inside if name not in always and self.times[name] > inside[name]]
        for _ in count() if iterations is None else range(iterations):
            now = {name: here.get(name, _NONE) if name in carried else _NONE for name in inside}
            for stmt in assigns:
                now[stmt.target.name] |= self.active[stmt.target.name] - always_present(stmt.value, self.active, here)
            now = {**here, **now}
            if now == here:
                break
            here = now
        return here


def _of_operands(stmt: Assign, uncertain: _Sets) -> _Sets:
    return {leaf.name: uncertain.get(leaf.name, _NONE) for leaf in variables(stmt.value)}


def _least_iterations(loop: For | While) -> int:
    """The least number of iterations of a loop."""
    if isinstance(loop, While) or any(isinstance(stmt, Break) for stmt in statements((loop,))):
        return 0
    return known_iterations(loop) or 0


def _factors(value: Expr) -> dict[str, bool]:
    """The variables that a value depends on, and whether their tangents are multiplied by a varying partial."""
    factors = {source.name: False for source in differentiable(value)}
    if factors and isinstance(value, Op) and value.name != "select":
        for arg, partial in zip(value.args, partials_at(value)[2], strict=True):
            if isinstance(arg, Var) and arg.name in factors:
                factors[arg.name] |= not isinstance(partial, Const)
    return factors


def _chooses(value: Expr) -> bool:
    return not isinstance(value, Op) or value.name == "select"


def _has_poles(value: Expr) -> bool:
    """Whether a partial of an operation can be infinite at finite arguments."""
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
