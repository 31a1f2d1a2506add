"""Tangents that are absent along some path: where they are, and where that has to be said, for a zero to stay one.

A name that depends on an argument along some paths only has a tangent of zero on the others. As a number that becomes
NaN under an infinite slope, so it is a product's flag that decides, and not the number.

Only the first turns of a loop go without: what will have a tangent in every later one, whatever path they take, is a
zero like any other until then, but under a pole. Else each turn of an integration would ask for what is known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from dualbcast.compiler.activity import differentiable, partials_at
from dualbcast.compiler.ir import (
    Assign,
    Block,
    Const,
    Continue,
    Expr,
    For,
    Function,
    Op,
    Var,
    While,
    assigned,
    assigned_always,
    blocks,
    expressions,
    statements,
)
from dualbcast.record import NamedTuple

__all__ = ["Absences", "absences", "certain", "doubt"]

# For every name, parameters.
_Sets = Mapping[str, frozenset[int]]
_NONE: frozenset[int] = frozenset()
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
    times = Counter([*(param.name for param in function.params), *assigned(function.body)])
    steps = [*_steps(function.body, active, doubtful, times)]
    size = -1
    while size != len(found.lost):
        size = len(found.lost)
        for stmt, late in steps:
            sure, factors = certain(stmt.value, active, doubtful), _factors(stmt.value)
            for source, multiplied in factors.items():
                for seed in doubtful.get(source, _NONE):
                    if not multiplied and (source, seed) not in found.lost:
                        continue
                    begins = seed not in late.get(source, _NONE)
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


def _steps(block: Block, active: _Sets, late: _Sets, times: Counter[str]) -> Iterator[tuple[Assign, _Sets]]:
    """The assignments, and what is in doubt there in all but the first turns of the loops around."""
    for stmt in block:
        if isinstance(stmt, Assign):
            if stmt.target.name in active:
                yield stmt, late
            continue
        within = _later(stmt, active, late, times) if isinstance(stmt, For | While) else late
        for inner in blocks(stmt):
            yield from _steps(inner, active, within, times)


def _later(loop: For | While, active: _Sets, late: _Sets, times: Counter[str]) -> _Sets:
    """What is still in doubt in a loop when it has gone through some turns, whatever path each of them has taken."""
    assigns = [stmt for stmt in statements((loop,)) if isinstance(stmt, Assign) and stmt.target.name in active]
    turn = (*loop.pre, *loop.body) if isinstance(loop, While) else loop.body
    ends = (at for at, stmt in enumerate(turn) if any(isinstance(part, Continue) for part in statements((stmt,))))
    always = assigned_always(turn[: next(ends, len(turn))])
    inside = Counter(assigned((loop,)))
    # Of these there is what they were before the turn.
    carried = [name for name in inside if name not in always and times[name] > inside[name]]
    found: _Sets = late
    while True:
        now = {name: found.get(name, _NONE) if name in carried else _NONE for name in inside}
        for stmt in assigns:
            now[stmt.target.name] |= active[stmt.target.name] - certain(stmt.value, active, found)
        now = {**found, **now}
        if now == found:
            return found
        found = now


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
