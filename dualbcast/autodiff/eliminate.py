"""Reverse mode: the partials of an output in each intermediate result, from the last statement to the first.

A step is a statement of the function's body: an operation with its local partials, or a branch, whose partials in the
variables that it reads come from forward mode. For one output, each step takes a few operations, however many
parameters there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from typing import NamedTuple

from dualbcast.autodiff.activity import (
    activity,
    chained,
    differentiable,
    is_marked,
    is_operation,
    seeds_of,
    sometimes_absent,
)
from dualbcast.autodiff.linearize import Dual, ForwardMode, unit_directions
from dualbcast.errors import Location
from dualbcast.ir import nodes as ir
from dualbcast.ir.traversal import assigned, assigned_always, assignments, read_counts, results, targets

# Operations whose partials are 1 or -1, which take no multiplication.
_UNIT = frozenset({"add", "sub", "neg", "single"})
_Active = dict[str, frozenset[int]]


class _Partial(NamedTuple):
    """The partial of a result in a variable; where the flag is false it does not depend on that."""

    source: ir.Var
    partial: ir.Atom
    flag: ir.Atom = ir.TRUE


class Step(NamedTuple):
    """A result, and its partials in the variables that it depends on."""

    result: str
    partials: list[_Partial]
    where: Location


def is_shorter(function: ir.Function) -> bool:
    """Whether reverse mode takes fewer operations for all parameters; it depends on the function alone."""
    both = operations_each_way(function)
    # If both are about equally long, forward mode is easier to read.
    return both is not None and 4 * both[1] < 3 * both[0]


def operations_each_way(function: ir.Function) -> tuple[int, int] | None:
    """About how many operations the partials in all parameters take in forward and in reverse mode.

    None where reverse mode is impossible: if a step does not depend on a variable along some path, its partial would be
    a zero that is multiplied by other partials, which may be infinite. Forward mode does not multiply absent partials.
    """
    every = seeds_of(function)
    times = Counter([*every, *(name for stmt in function.body for name in set(assigned((stmt,))))])
    # A function without a derivative is an error only where an output needs it.
    marked = any(is_marked(stmt.value) for stmt in assignments(function.body))
    if marked or len(every) < 2 or max(times.values()) > 1:
        return None
    if not all(isinstance(stmt, ir.Assign | ir.If) for stmt in function.body):
        return None
    active = activity(function, every)
    ends = {leaf.name for leaf in results(function) if active.get(leaf.name)}
    uncertain = sometimes_absent(function, active)
    if any(uncertain.get(end) for end in ends):
        return None
    count, parts = -len(ends) * len(active), _parts(function, active)
    for position, stmt in enumerate(function.body):
        if isinstance(stmt, ir.Assign):
            sources = differentiable(stmt.value) if active.get(stmt.target.name) else []
            sources = [source for source in sources if active.get(source.name)]
            if sources and isinstance(stmt.value, ir.Op) and stmt.value.name == "select":
                return None
            count += len(ends) * len(sources) * (1 + _multiplies(stmt.value))
            continue
        part, always = parts[position], assigned_always((stmt,))
        within = activity(part, seeds_of(part))
        unsure = sometimes_absent(part, within)
        for output in part.outputs:
            # Reverse mode reads all partials, so that they must be present.
            absent = (part.params[at].name for at in unsure.get(output.name, ()))
            if output.name not in always or any(name not in every for name in absent):
                return None
            count += 2 * len(ends) * len(within.get(output.name, ()))
        count += _operations(part, within, frozenset())
    return _operations(function, active, chained(function)), count


def _operations(function: ir.Function, active: _Active, alone: Set[str]) -> int:
    """About how many operations the partials take in forward mode; the variables in `alone` have no tangents."""
    params = {param.name for param in function.params}
    count = 0
    for stmt in assignments(function.body):
        if not active.get(stmt.target.name):
            continue
        if stmt.target.name in alone:
            count += _multiplies(stmt.value)
            continue
        for source in differentiable(stmt.value):
            multiplied = _multiplies(stmt.value) and source.name not in params
            count += len(active.get(source.name, ())) * (1 + multiplied)
        count -= len(active[stmt.target.name])
    return count


def _multiplies(value: ir.Expr) -> bool:
    return is_operation(value) and value.name not in _UNIT


def _parts(function: ir.Function, active: _Active) -> dict[int, ir.Function]:
    """The branches by position, as functions of active variables, with the active results that are read later."""
    later = {leaf.name for leaf in results(function)}
    parts = {}
    for position, stmt in reversed([*enumerate(function.body)]):
        read = read_counts((stmt,))
        if not isinstance(stmt, ir.Assign):
            inside = targets((stmt,))
            params = tuple(ir.Var(name, "float") for name in read if name not in inside and active.get(name))
            given = tuple(ir.Output(name, var) for name, var in inside.items() if name in later and active.get(name))
            parts[position] = ir.Function(function.name, params, (stmt,), given, function.location)
        later |= read.keys()
    return parts


class ReverseMode(ForwardMode):
    """The partials of every output in the variables before it."""

    def run(self, *, flagged: bool = False) -> Dual:  # noqa: ARG002
        steps, partials = self.steps(), {}
        for position, output in enumerate(self.function.outputs):
            cotangents = self.back(output.value, steps) if self.directions(output.value) else {}
            for seed in self.seeds:
                cotangent = cotangents.get(self.function.params[seed].name)
                if cotangent is not None:
                    partials[position, seed] = cotangent
        return self.dual(tuple(self.block), partials, {})

    def steps(self) -> list[Step]:
        """The steps of the function; the statements for values and local partials are appended."""
        parts = _parts(self.function, self.active)
        steps: list[Step] = []
        for position, stmt in enumerate(self.function.body):
            if isinstance(stmt, ir.Assign):
                self.block.append(stmt)
                if self.directions(stmt.target):
                    partials = [_Partial(*each) for each in self.local_partials(stmt).items()]
                    steps.append(Step(stmt.target.name, partials, stmt.location))
            else:
                steps += self._branch(parts[position])
        return steps

    def _branch(self, part: ir.Function) -> list[Step]:
        """Append a branch with its partials; the steps of its results."""
        directions = unit_directions(part.params, range(len(part.params)))
        dual = ForwardMode(part, directions, self.names).run(flagged=True)
        self.block.extend(dual.function.body)
        tangents = dual.tangents()
        steps = []
        for at, output in enumerate(part.outputs):
            partials = [
                _Partial(source, tangents[at, seed], dual.flags.get((at, seed), ir.TRUE))
                for seed, source in enumerate(part.params)
                if tangents.get((at, seed), ir.ZERO) != ir.ZERO
            ]
            steps.append(Step(output.name, partials, part.body[0].location))
        return steps

    def back(self, result: ir.Expr, steps: Sequence[Step], ends: Set[str] = frozenset()) -> dict[str, ir.Atom]:
        """The partials of a result in each variable that it depends on; the statements that compute them are appended.

        The variables in `ends` count as independent of all others.
        """
        assert isinstance(result, ir.Var)
        cotangents: dict[str, ir.Atom] = {result.name: ir.ONE}
        for name, partials, where in reversed(steps):
            cotangent = cotangents.get(name) if name == result.name or name not in ends else None
            for source, partial, flag in partials if cotangent is not None else ():
                assert cotangent is not None
                term = self.product(cotangent, partial, where)
                if flag != ir.TRUE:
                    term = self.zero_if_absent(flag, term, where)
                before = cotangents.get(source.name)
                terms = [term] if before is None else [before, term]
                cotangents[source.name] = self.emit(self.total(terms, where), where)
        return cotangents
