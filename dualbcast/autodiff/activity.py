"""Activity and presence analysis: the directions in which each variable has a derivative, the local partials of
operations, and the tangents that are absent along some path.

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
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import NamedTuple, TypeGuard

from dualbcast.errors import CompileError
from dualbcast.frontend.lower import partials_of
from dualbcast.ir.nodes import ZERO, Assign, Block, Break, Const, Continue, Expr, For, Function, If, Op, Var, While
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
from dualbcast.rules.curvatures import quotient_slope
from dualbcast.rules.table import CUSTOMS

# The partial of a function that is marked as not differentiable. It is an error if an output depends on it.
UNKNOWN = Const(math.nan, "float")
_NOTHING = Function("", (), (), ())


def activity(function: Function, seeds: Mapping[str, frozenset[int]]) -> dict[str, frozenset[int]]:
    """For every name, the directions that its value can depend on differentiably; `seeds` are those of parameters."""
    active = dict(seeds)
    assigns = assignments(function.body)
    changed = True
    while changed:
        changed = False
        for stmt in assigns:
            if stmt.target.kind != "float":
                continue
            directions = active.get(stmt.target.name, frozenset()).union(
                *(active.get(arg.name, frozenset()) for arg in differentiable(stmt.value))
            )
            if directions != active.get(stmt.target.name, frozenset()):
                active[stmt.target.name] = directions
                changed = True
    return active


def differentiable(value: Expr) -> list[Var]:
    """The variables that a value depends on through a partial that is not zero everywhere."""
    if isinstance(value, Var):
        return [value]
    if not isinstance(value, Op):
        return []
    if value.name in ("to_float", "to_int"):
        return []
    if value.name == "select":
        return [arg for arg in value.args[1:] if isinstance(arg, Var)]
    flat = [not (isinstance(part, Const) and part.value == 0) for part in partials_at(value)[2]]
    return [arg for arg, smooth in zip(value.args, flat, strict=True) if smooth and isinstance(arg, Var)]


def is_marked(value: Expr) -> TypeGuard[Op]:
    """Whether a value is of a function that is marked as not differentiable."""
    return isinstance(value, Op) and value.name in CUSTOMS and CUSTOMS[value.name].partials is None


def refuse_marked(function: Function, active: dict[str, frozenset[int]]) -> None:
    """Refuse to differentiate a function that is marked as not differentiable, where an output depends on it."""
    assigns = assignments(function.body)
    marked = [
        (stmt, stmt.value)
        for stmt in assigns
        if is_marked(stmt.value) and any(active.get(arg.name) for arg in stmt.value.args[1:] if isinstance(arg, Var))
    ]
    if not marked:
        return
    outputs = [output.value for output in function.outputs]
    needed = {value.name for value in outputs if isinstance(value, Var) and value.kind == "float"}
    size = -1
    while size != len(needed):
        size = len(needed)
        for stmt in assigns:
            if stmt.target.name in needed:
                needed.update(arg.name for arg in _carriers(stmt.value))
    for stmt, value in marked:
        if stmt.target.name in needed:
            name = CUSTOMS[value.name].label
            raise CompileError(
                f"{name}() is marked as not differentiable, and its derivative is needed here",
                stmt.location,
                f"dualbcast.stop_derivative({name}(...)) for a derivative of zero, or give {name}() custom_partials",
            )


def _carriers(value: Expr) -> list[Var]:
    """The variables that a value is computed from, unless a step ends differentiation on purpose."""
    if isinstance(value, Op) and value.name not in CUSTOMS and (value.name == "to_float" or value.kind == "int"):
        ends = value.name == "to_int" and value.args[0].kind == "float"
        return [] if ends else [arg for arg in value.args if isinstance(arg, Var)]
    # Tests look at values only.
    return [] if isinstance(value, Op) and value.kind == "bool" and value.name not in CUSTOMS else differentiable(value)


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


def partials_at(value: Op) -> tuple[Function, Sequence[Expr], list[Expr]]:
    """The partials of an operation in its arguments, as a function of some of those and of its result."""
    if is_marked(value):
        return _NOTHING, (), [ZERO, *[UNKNOWN] * (len(value.args) - 1)]
    template, args, partials = partials_of(value, _OPERATORS)
    # The first argument of a custom derivative is its value, in which the partial is zero by definition.
    return template, args, [ZERO] * (value.name in CUSTOMS) + partials


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
