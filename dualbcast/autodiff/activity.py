"""The analyses before differentiation: the directions in which each variable has a derivative, the local partials of
operations, the tangents that are absent along some path, and the chains of variables that need no tangents.

The sets of directions are the smallest that the program's assignments allow.

A variable that depends on an argument along some paths only has a tangent of zero on the others. The product of that
zero and an infinite partial would be NaN; therefore a flag decides whether the term counts.

A tangent may be absent in the first iterations of a loop, and present in all later ones on every path. It is then an
ordinary zero in the first iterations, unless it is multiplied by a partial with a pole. Otherwise each iteration of an
integration would read a flag whose value is known.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count, takewhile
from typing import NamedTuple, TypeGuard, TypeVar

from dualbcast.errors import CompileError
from dualbcast.frontend.lower import partials_of
from dualbcast.ir import nodes as ir
from dualbcast.ir.traversal import (
    assigned,
    assigned_always,
    assignments,
    atoms,
    blocks,
    expressions,
    known_iterations,
    operations_of,
    read_counts,
    results,
    statements,
    variables,
)
from dualbcast.rules.curvatures import quotient_slope
from dualbcast.rules.table import CUSTOMS

# The partial of a function that is marked as not differentiable. It is an error if an output depends on it.
UNKNOWN = ir.Const(math.nan, "float")
_NOTHING = ir.Function("", (), (), ())
# A set of directions for every name.
_Sets = Mapping[str, frozenset[int]]
_NONE: frozenset[int] = frozenset()


def seeds_of(function: ir.Function) -> dict[str, frozenset[int]]:
    """Every float parameter with a direction of its own: its position."""
    return {param.name: frozenset({at}) for at, param in enumerate(function.params) if param.kind == "float"}


def activity(function: ir.Function, seeds: _Sets) -> dict[str, frozenset[int]]:
    """For every name, the directions that its value can depend on differentiably; `seeds` are those of parameters."""
    assigns = [stmt for stmt in assignments(function.body) if stmt.target.kind == "float"]
    steps = [(stmt.target.name, differentiable(stmt.value)) for stmt in assigns]
    return _smallest(seeds, steps, lambda args, active: _NONE.union(*[active.get(arg.name, _NONE) for arg in args]))


def sometimes_absent(function: ir.Function, active: _Sets) -> dict[str, frozenset[int]]:
    """For every name, its uncertain directions: the value depends on them along some paths, but not along all."""
    steps = [(stmt.target.name, stmt) for stmt in assignments(function.body) if active.get(stmt.target.name)]
    return _smallest({}, steps, lambda stmt, uncertain: _absent(stmt, active, uncertain))


def _absent(stmt: ir.Assign, active: _Sets, uncertain: _Sets) -> frozenset[int]:
    """The directions of an assignment's target that its value does not depend on along some path."""
    return active[stmt.target.name] - always_present(stmt.value, active, uncertain)


_Value = TypeVar("_Value")


def _smallest(
    start: _Sets, steps: Sequence[tuple[str, _Value]], given: Callable[[_Value, _Sets], frozenset[int]]
) -> dict[str, frozenset[int]]:
    """The smallest sets that contain those of `start`, and for each step what it gives a name."""
    sets = dict(start)
    changed = True
    while changed:
        changed = False
        for name, value in steps:
            more = given(value, sets) - sets.get(name, _NONE)
            if more:
                sets[name] = sets.get(name, _NONE) | more
                changed = True
    return sets


def all_sources(
    names: Iterable[str], assigns: Sequence[ir.Assign], sources: Callable[[ir.Expr], list[ir.Var]]
) -> set[str]:
    """The names, and all that their assignments depend on, where a value depends on its `sources`."""
    needed = set(names)
    size = -1
    while size != len(needed):
        size = len(needed)
        for stmt in assigns:
            if stmt.target.name in needed:
                needed.update(source.name for source in sources(stmt.value))
    return needed


def differentiable(value: ir.Expr) -> list[ir.Var]:
    """The variables that a value depends on through a partial that is not zero everywhere."""
    return [source for source, _ in _links(value)]


def _links(value: ir.Expr) -> list[tuple[ir.Var, ir.Expr]]:
    """The variables that a value depends on, and its partial in each; 1 for a copy and for the sides of a select."""
    if isinstance(value, ir.Var):
        return [(value, ir.ONE)]
    if not isinstance(value, ir.Op) or value.name in ("to_float", "to_int"):
        return []
    if value.name == "select":
        return [(side, ir.ONE) for side in value.args[1:] if isinstance(side, ir.Var)]
    pairs = zip(value.args, partials_at(value)[2], strict=True)
    return [(arg, partial) for arg, partial in pairs if isinstance(arg, ir.Var) and not is_zero(partial)]


def is_operation(value: ir.Expr) -> TypeGuard[ir.Op]:
    """Whether a value has local partials: a copy and a select have tangents as their operands do."""
    return isinstance(value, ir.Op) and value.name != "select"


def is_zero(partial: ir.Expr) -> bool:
    """Whether a partial is zero everywhere: it is absent, and never multiplied."""
    return isinstance(partial, ir.Const) and partial.value == 0


def is_marked(value: ir.Expr) -> TypeGuard[ir.Op]:
    """Whether a value is of a function that is marked as not differentiable."""
    return isinstance(value, ir.Op) and value.name in CUSTOMS and CUSTOMS[value.name].partials is None


def refuse_marked(function: ir.Function, active: _Sets) -> None:
    """Refuse to differentiate a function that is marked as not differentiable, where an output depends on it."""
    assigns = assignments(function.body)
    marked = [
        (stmt, CUSTOMS[stmt.value.name].label)
        for stmt in assigns
        if is_marked(stmt.value) and any(active.get(arg.name) for arg in stmt.value.args[1:] if isinstance(arg, ir.Var))
    ]
    if not marked:
        return
    needed = all_sources((value.name for value in results(function) if value.kind == "float"), assigns, _carriers)
    for stmt, name in marked:
        if stmt.target.name in needed:
            raise CompileError(
                f"{name}() is marked as not differentiable, and its derivative is needed here",
                stmt.location,
                f"dualbcast.stop_derivative({name}(...)) for a derivative of zero, or give {name}() custom_partials",
            )


def _carriers(value: ir.Expr) -> list[ir.Var]:
    """The variables that a value is computed from, unless a step ends differentiation on purpose."""
    if isinstance(value, ir.Op) and value.name not in CUSTOMS and (value.name == "to_float" or value.kind == "int"):
        ends = value.name == "to_int" and value.args[0].kind == "float"
        return [] if ends else [arg for arg in value.args if isinstance(arg, ir.Var)]
    # Tests look at values only.
    is_test = isinstance(value, ir.Op) and value.kind == "bool" and value.name not in CUSTOMS
    return [] if is_test else differentiable(value)


# --- partials of operators and rules --------------------------------------------------------------------------------

# The rules of operators, in the form of the table's. Their arguments are floats; integers carry no derivative.
_OPERATORS: dict[str, Callable[..., object]] = {
    "add": lambda a, b, y: (1.0, 1.0),  # noqa: ARG005
    "sub": lambda a, b, y: (1.0, -1.0),  # noqa: ARG005
    "mul": lambda a, b, y: (b, a),  # noqa: ARG005
    # One slow division serves both partials. It overflows only for a subnormal b, as the partial in a does; then 0 / b
    # has nan for its partial in b, where -(y / b) would not.
    "div": lambda a, b, y: (1.0 / b, quotient_slope(y, b)),  # noqa: ARG005
    "neg": lambda a, y: (-1.0,),  # noqa: ARG005
    "single": lambda a, y: (1.0,),  # noqa: ARG005
}


def partials_at(value: ir.Op) -> tuple[ir.Function, Sequence[ir.Expr], list[ir.Expr]]:
    """The partials of an operation in its arguments, as a function of some of those and of its result."""
    if is_marked(value):
        return _NOTHING, (), [ir.ZERO, *[UNKNOWN] * (len(value.args) - 1)]
    template, args, partials = partials_of(value, _OPERATORS)
    # The first argument of a custom derivative is its value, in which the partial is zero by definition.
    return template, args, [ir.ZERO] * (value.name in CUSTOMS) + partials


# --- presence -------------------------------------------------------------------------------------------------------

# An assignment; the uncertain directions of the names that it reads; and those in later iterations of its loop, if any.
_Step = tuple[ir.Assign, _Sets, _Sets | None]
# Operations through which a partial becomes infinite where the value need not be.
_POLES = frozenset({"div", "log", "log2", "log10", "log1p", "pow", "lgamma", "tgamma", "digamma", "polygamma"})


def always_present(value: ir.Expr, active: _Sets, uncertain: _Sets) -> frozenset[int]:
    """The directions that a value depends on along every path to it."""

    def sure(arg: ir.Expr) -> frozenset[int]:
        return active.get(arg.name, _NONE) - uncertain.get(arg.name, _NONE) if isinstance(arg, ir.Var) else _NONE

    if isinstance(value, ir.Op) and value.name == "select":
        return sure(value.args[1]) & sure(value.args[2])
    return _NONE.union(*map(sure, differentiable(value)))


class AbsentTerms(NamedTuple):
    """Where absent tangents matter."""

    # A name, an operand of its value, a direction: the term is zero where the operand's flag is false.
    guarded: set[tuple[str, str, int]]
    # A name, a direction: where the name's flag is false, its tangent is an arbitrary number, which nothing may read.
    unspecified: set[tuple[str, int]]


def absent_terms(function: ir.Function, active: _Sets, uncertain: _Sets) -> AbsentTerms:
    """The terms of tangents that read a flag, and the tangents that are arbitrary where they are absent.

    A value of one variable alone is absent where that variable is: only the end of a chain of operations reads a flag.
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
                    elif not is_operation(stmt.value) or not any(others):
                        terms.unspecified.add((stmt.target.name, seed))
                    elif not begins:
                        terms.guarded.add((stmt.target.name, source, seed))
                    elif seed not in sure:
                        terms.unspecified.add((stmt.target.name, seed))
    return terms


class _Flow:
    """The uncertain directions of each name at each statement; at other statements, a name may have more."""

    def __init__(self, function: ir.Function, active: _Sets, uncertain: _Sets) -> None:
        self.active, self.uncertain = active, uncertain
        self.times = Counter([*(param.name for param in function.params), *assigned(function.body)])
        self.steps: list[_Step] = []
        self.block(function.body, {}, None)

    def block(self, block: ir.Block, here: dict[str, frozenset[int]], late: _Sets | None) -> None:
        """Append the assignments of a block; `here` has the uncertain directions before it, and gets those after it."""
        for stmt in block:
            if isinstance(stmt, ir.Assign):
                name = stmt.target.name
                if name in self.active:
                    read = {leaf.name: here.get(leaf.name, _NONE) for leaf in variables(stmt.value)}
                    self.steps.append((stmt, read, late))
                    here[name] = _absent(stmt, self.active, here)
            elif isinstance(stmt, ir.If):
                then, orelse = dict(here), dict(here)
                self.block(stmt.then, then, late)
                self.block(stmt.orelse, orelse, late)
                here |= {name: then.get(name, _NONE) | orelse.get(name, _NONE) for name in then | orelse}
            elif isinstance(stmt, ir.For | ir.While):
                unknown = {name: self.uncertain.get(name, _NONE) for name in assigned((stmt,))}
                here |= unknown
                # A copy: the steps hold it, and `here` changes.
                later = dict(self.after(stmt, here if late is None else {**late, **unknown}, None))
                for inner in blocks(stmt):
                    self.block(inner, dict(here), later)
                here |= self.after(stmt, here, _least_iterations(stmt))

    def after(self, loop: ir.For | ir.While, here: _Sets, iterations: int | None) -> _Sets:
        """The uncertain directions after this number of iterations of a loop, or any number, whatever their paths."""
        assigns = [stmt for stmt in assignments((loop,)) if stmt.target.name in self.active]
        iteration = (*loop.pre, *loop.body) if isinstance(loop, ir.While) else loop.body
        always = assigned_always(takewhile(lambda stmt: not _continues(stmt), iteration))
        inside = Counter(assigned((loop,)))
        # These may have values from before the iteration.
        carried = [name for name in inside if name not in always and self.times[name] > inside[name]]
        for _ in count() if iterations is None else range(iterations):
            now = {name: here.get(name, _NONE) if name in carried else _NONE for name in inside}
            for stmt in assigns:
                now[stmt.target.name] |= _absent(stmt, self.active, here)
            now = {**here, **now}
            if now == here:
                break
            here = now
        return here


def _continues(stmt: ir.Stmt) -> bool:
    return any(isinstance(part, ir.Continue) for part in statements((stmt,)))


def _least_iterations(loop: ir.For | ir.While) -> int:
    """The least number of iterations of a loop."""
    if isinstance(loop, ir.While) or any(isinstance(stmt, ir.Break) for stmt in statements((loop,))):
        return 0
    return known_iterations(loop) or 0


def _factors(value: ir.Expr) -> dict[str, bool]:
    """The variables that a value depends on, and whether their tangents are multiplied by a varying partial."""
    factors: dict[str, bool] = {}
    for source, partial in _links(value):
        factors[source.name] = factors.get(source.name, False) or not isinstance(partial, ir.Const)
    return factors


def _has_poles(value: ir.Expr) -> bool:
    """Whether a partial of an operation can be infinite at finite arguments."""
    operations = operations_of(partials_at(value)[0]) if is_operation(value) else []
    return any(op.name in _POLES and not isinstance(op.args[-1], ir.Const) for op in operations)


# --- chains ---------------------------------------------------------------------------------------------------------


def chained(function: ir.Function) -> frozenset[str]:
    """The variables that are read once, by an operation in the same block, before the operands of their partial change.

    It is given operations on atoms.
    """
    active = activity(function, seeds_of(function))
    uncertain = sometimes_absent(function, active)
    writes, reads = Counter(assigned(function.body)), read_counts(function)
    once = {name for name in active if writes[name] == reads[name] == 1 and not uncertain.get(name)}
    # For each chained variable, the first variable of its chain and all operands of its partial in that.
    chains: dict[str, tuple[str, frozenset[str]]] = {}

    def visit(block: ir.Block) -> None:
        for position, stmt in enumerate(block):
            for inner in blocks(stmt):
                visit(inner)
            if not isinstance(stmt, ir.Assign) or stmt.target.name not in once or not is_operation(stmt.value):
                continue
            names = [arg.name for arg in differentiable(stmt.value) if active.get(arg.name)]
            links = [chains.get(name, (name, frozenset({name}))) for name in names]
            operands = frozenset(leaf.name for leaf in variables(stmt.value)).union(*(read for _, read in links))
            sources = {source for source, _ in links}
            if len(sources) == 1 and _lasts(stmt.target, operands, block[position + 1 :]):
                source = sources.pop()
                if len(active[source]) > 1:
                    chains[stmt.target.name] = source, operands

    visit(function.body)
    return frozenset(chains)


def _lasts(target: ir.Var, operands: frozenset[str], rest: ir.Block) -> bool:
    """Whether an operation reads the target before one of its operands changes."""
    for stmt in rest:
        if any(target in atoms(expr) for expr in expressions(stmt)):
            return isinstance(stmt, ir.Assign) and is_operation(stmt.value)
        if not operands.isdisjoint(assigned((stmt,))):
            return False
    return False
