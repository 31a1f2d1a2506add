"""Partials from the outputs back: how an output changes with each step's result, and with what that is made of.

A step is a statement of the function's body: an operation, of which the slopes are found where it is, or a branch, of
which the partials in what it reads are found forward. For one output of many parameters this takes a few operations for
each step, and not for each step and parameter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from typing import NamedTuple

from dualbcast.autodiff.activity import ZERO, activity, differentiable
from dualbcast.autodiff.chain_slopes import waiting
from dualbcast.autodiff.linearize import ONE, Direction, Dual, Tangents
from dualbcast.autodiff.presence import doubt
from dualbcast.errors import Location
from dualbcast.ir.constant_fold import fold
from dualbcast.ir.nodes import TEMPORARY, TRUE, Assign, Atom, Expr, Function, If, Op, Output, Stmt, Var
from dualbcast.ir.walk import assigned, assigned_always, atoms, expressions, statements
from dualbcast.rules.table import CUSTOMS

__all__ = ["Adjoints", "Step", "is_shorter", "operations_each_way"]

# Operations with slopes of 1 or -1, which nothing is multiplied by.
_UNIT = frozenset({"add", "sub", "neg", "single"})
_Active = dict[str, frozenset[int]]


class _Slope(NamedTuple):
    """What a result changes by with a variable; where the flag is false it does not depend on that."""

    source: Var
    slope: Atom
    flag: Atom = TRUE


class Step(NamedTuple):
    """A result, and what it changes by with all that it is made of."""

    result: str
    slopes: list[_Slope]
    where: Location


def is_shorter(function: Function) -> bool:
    """Whether the partials in all parameters take fewer operations so; it depends on nothing but the function."""
    both = operations_each_way(function)
    # What is about as long stays as people write it.
    return both is not None and 4 * both[1] < 3 * both[0]


def operations_each_way(function: Function) -> tuple[int, int] | None:
    """About how many operations the partials in all parameters take forward and back; None where there is no way back.

    There is none where a step may not depend on a variable along some path: the change with this would be zero there,
    and what it is made of may have an infinite slope, in which forward it is not multiplied.
    """
    every = _seeded(function)
    times = Counter([*every, *(name for stmt in function.body for name in set(assigned((stmt,))))])
    if len(every) < 2 or max(times.values()) > 1 or any(map(_is_marked, statements(function.body))):
        return None
    if not all(isinstance(stmt, Assign | If) for stmt in function.body):
        return None
    active = activity(function, every)
    results = {leaf.name for output in function.outputs for leaf in _variables(output.value) if active.get(leaf.name)}
    doubtful = doubt(function, active)
    if any(doubtful.get(result) for result in results):
        return None
    count, parts = -len(results) * sum(map(bool, active.values())), _parts(function, active)
    for position, stmt in enumerate(function.body):
        if isinstance(stmt, Assign):
            sources = differentiable(stmt.value) if active.get(stmt.target.name) else []
            sources = [source for source in sources if active.get(source.name)]
            if sources and isinstance(stmt.value, Op) and stmt.value.name == "select":
                return None
            count += len(results) * len(sources) * (1 + _multiplies(stmt.value))
            continue
        part, always = parts[position], assigned_always((stmt,))
        within = activity(part, _seeded(part))
        unsure = doubt(part, within)
        for output in part.outputs:
            # On the way back all partials are read, and so must be there.
            doubted = (part.params[at].name for at in unsure.get(output.name, ()))
            if output.name not in always or any(name not in every for name in doubted):
                return None
            count += 2 * len(results) * len(within.get(output.name, ()))
        count += _operations(part, within, frozenset())
    return _operations(function, active, waiting(function)), count


def _operations(function: Function, active: _Active, alone: Set[str]) -> int:
    """About how many operations partials take that are found with the values, of which some have none of their own."""
    params = {param.name for param in function.params}
    count = 0
    for stmt in statements(function.body):
        if not isinstance(stmt, Assign) or not active.get(stmt.target.name):
            continue
        if stmt.target.name in alone:
            count += _multiplies(stmt.value)
            continue
        for source in differentiable(stmt.value):
            multiplied = _multiplies(stmt.value) and source.name not in params
            count += len(active.get(source.name, ())) * (1 + multiplied)
        count -= len(active[stmt.target.name])
    return count


def _is_marked(stmt: Stmt) -> bool:
    """Whether it is something that has no derivative, which is an error only where an output needs that."""
    value = stmt.value if isinstance(stmt, Assign) else None
    return isinstance(value, Op) and value.name in CUSTOMS and CUSTOMS[value.name].partials is None


def _multiplies(value: Expr) -> bool:
    return isinstance(value, Op) and value.name not in _UNIT and value.name != "select"


def _is_active(value: Expr, active: _Active) -> bool:
    return isinstance(value, Var) and value.kind == "float" and bool(active.get(value.name))


def _seeded(function: Function) -> _Active:
    return {param.name: frozenset({at}) for at, param in enumerate(function.params) if param.kind == "float"}


def _parts(function: Function, active: _Active) -> dict[int, Function]:
    """The branches, by position, as functions of what has partials before them to what has some and is read later."""
    later = {leaf.name for output in function.outputs for leaf in _variables(output.value)}
    found = {}
    for position, stmt in reversed([*enumerate(function.body)]):
        read = [leaf for part in statements((stmt,)) for expr in expressions(part) for leaf in _variables(expr)]
        if not isinstance(stmt, Assign):
            inside = {part.target.name: part.target for part in statements((stmt,)) if isinstance(part, Assign)}
            given = [Output(name, var) for name, var in inside.items() if name in later and _is_active(var, active)]
            params = [leaf for leaf in dict.fromkeys(read) if leaf.name not in inside and _is_active(leaf, active)]
            found[position] = Function(function.name, tuple(params), (stmt,), tuple(given), function.location)
        later.update(leaf.name for leaf in read)
    return found


def _variables(expr: Expr) -> list[Var]:
    return [leaf for leaf in atoms(expr) if isinstance(leaf, Var)]


class Adjoints(Tangents):
    """The partials of each output in what it is made of, from the last step to the first."""

    def run(self, *, flagged: bool = False) -> Dual:  # noqa: ARG002
        steps = self.steps()
        outputs, partials = list(self.function.outputs), {}
        for position, output in enumerate(self.function.outputs):
            if not _is_active(output.value, self.active):
                continue
            changes = self.back(output.value, steps)
            for seed in self.seeds:
                change = changes.get(self.function.params[seed].name)
                if change is not None:
                    name = self.names.fresh(f"{output.name}_d{self.label[seed]}")
                    outputs.append(Output(name, change))
                    partials[position, seed] = name
        return Dual(self.whole(tuple(self.block), outputs), partials)

    def steps(self) -> list[Step]:
        """The steps of the function; their statements are appended, with what computing the slopes takes."""
        parts = _parts(self.function, self.active)
        steps: list[Step] = []
        for position, stmt in enumerate(self.function.body):
            if isinstance(stmt, Assign):
                self.block.append(stmt)
                if self.directions(stmt.target):
                    steps.append(Step(stmt.target.name, self._of(stmt), stmt.location))
            else:
                steps += self._branch(parts[position])
        return steps

    def _of(self, stmt: Assign) -> list[_Slope]:
        """What an assignment changes by; what computing that takes is appended."""
        if isinstance(stmt.value, Op):
            return [_Slope(*each) for each in self._slopes(stmt.value, stmt.target, stmt.location).items()]
        return [_Slope(stmt.value, ONE)] if isinstance(stmt.value, Var) else []

    def _branch(self, part: Function) -> list[Step]:
        """A branch with its partials, appended, and what each of its results changes by."""
        directions = {
            at: Direction(param.name.strip(TEMPORARY).replace("#", "_"), {at: ONE})
            for at, param in enumerate(part.params)
        }
        dual = Tangents(part, directions, self.names).run(flagged=True)
        self.block.extend(dual.function.body)
        values = {output.name: output.value for output in dual.function.outputs}
        found = []
        for at, output in enumerate(part.outputs):
            slopes = []
            for seed, source in enumerate(part.params):
                slope = values[dual.partials[at, seed]] if (at, seed) in dual.partials else ZERO
                if slope != ZERO:
                    assert isinstance(slope, Atom)
                    slopes.append(_Slope(source, slope, dual.flags.get((at, seed), TRUE)))
            found.append(Step(output.name, slopes, part.body[0].location))
        return found

    def back(self, result: Expr, steps: Sequence[Step], ends: Set[str] = frozenset()) -> dict[str, Atom]:
        """What a result changes by with each variable that it depends on, as if nothing else led to those among the
        `ends`; what computing that takes is appended."""
        assert isinstance(result, Var)
        changes: dict[str, Atom] = {result.name: ONE}
        for name, slopes, where in reversed(steps):
            change = changes.get(name) if name == result.name or name not in ends else None
            for source, slope, flag in slopes if change is not None else ():
                assert change is not None
                term = self._product(change, slope, where)
                if flag != TRUE:
                    term = fold(Op("select", (flag, self.emit(term, where), ZERO), "float", where))
                before = changes.get(source.name)
                if before is not None and isinstance(term, Op) and term.name == "neg":
                    term = fold(Op("sub", (before, *term.args), "float", where))
                elif before is not None:
                    term = fold(Op("add", (before, self.emit(term, where)), "float", where))
                changes[source.name] = self.emit(term, where)
        return changes
