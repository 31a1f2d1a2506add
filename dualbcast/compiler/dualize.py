"""Forward mode, IR to IR: each active variable gets named partials beside it, by the rules of the table.

Activity is a set of directions for every name, the smallest that is closed under the program's assignments; a variable
has no partial in a direction it never depends on, and an output that never does has a structural zero there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from dualbcast.compiler.fold import fold
from dualbcast.compiler.ir import (
    TEMPORARY,
    Assign,
    Atom,
    Block,
    Const,
    Expr,
    For,
    Function,
    Kind,
    Names,
    Op,
    Output,
    Stmt,
    Var,
    assigned,
    map_expr,
    map_exprs,
    statements,
)
from dualbcast.compiler.rules import CUSTOMS, RULES
from dualbcast.compiler.templates import partials_of, source_of
from dualbcast.errors import CompileError, Location

__all__ = ["Dual", "activity", "dualize"]

UNNAMED = re.compile(rf"{TEMPORARY}(#\d+)?")
ZERO, ONE = Const(0.0, "float"), Const(1.0, "float")
# The derivative of what is not differentiable. No output depends on it: that is an error.
UNKNOWN = Const(math.nan, "float")
_NOTHING = Function("", (), (), ())


@dataclass(frozen=True, slots=True)
class Dual:
    """A value-and-Jacobian function; `partials[i, d]` names the output that is ∂output i/∂parameter d.

    A pair that is not there is a structural zero.
    """

    function: Function
    partials: dict[tuple[int, int], str]


def activity(function: Function, seeds: Iterable[int]) -> dict[str, frozenset[int]]:
    """For every name, the parameters (by position, among `seeds`) that its value can depend on differentiably."""
    active = {function.params[seed].name: frozenset((seed,)) for seed in seeds}
    assigns = [stmt for stmt in statements(function.body) if isinstance(stmt, Assign)]
    changed = True
    while changed:
        changed = False
        for stmt in assigns:
            if stmt.target.kind != "float":
                continue
            found = active.get(stmt.target.name, frozenset()).union(
                *(active.get(arg.name, frozenset()) for arg in _differentiable(stmt.value))
            )
            if found != active.get(stmt.target.name, frozenset()):
                active[stmt.target.name] = found
                changed = True
    return active


def _differentiable(value: Expr) -> list[Var]:
    """The variables that a value depends on through a partial that is not zero everywhere."""
    if isinstance(value, Var):
        return [value]
    if not isinstance(value, Op):
        return []
    if value.name in ("to_float", "to_int"):
        return []
    if value.name == "select":
        return [arg for arg in value.args[1:] if isinstance(arg, Var)]
    flat = [not (isinstance(part, Const) and part.value == 0) for part in _partials(value)[2]]
    return [arg for arg, smooth in zip(value.args, flat, strict=True) if smooth and isinstance(arg, Var)]


def _refuse(function: Function, active: dict[str, frozenset[int]]) -> None:
    """Refuse a derivative of what is marked as not differentiable, where an output depends on it."""
    assigns = [stmt for stmt in statements(function.body) if isinstance(stmt, Assign)]
    marked = [
        (stmt, stmt.value)
        for stmt in assigns
        if isinstance(stmt.value, Op)
        and stmt.value.name in CUSTOMS
        and CUSTOMS[stmt.value.name].partials is None
        and any(active.get(arg.name) for arg in stmt.value.args[1:] if isinstance(arg, Var))
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
    """The variables that a value is computed from, other than by a step that ends differentiation on purpose."""
    if isinstance(value, Op) and value.name not in CUSTOMS and (value.name == "to_float" or value.kind == "int"):
        ends = value.name == "to_int" and value.args[0].kind == "float"
        return [] if ends else [arg for arg in value.args if isinstance(arg, Var)]
    # Tests look at values only.
    return (
        [] if isinstance(value, Op) and value.kind == "bool" and value.name not in CUSTOMS else _differentiable(value)
    )


def dualize(function: Function, seeds: Sequence[int]) -> Dual:
    """The function that returns the outputs of `function` and their partials in the parameters at `seeds`.

    Parameters
    ----------
    function : Function
        As the front end gives it: operations on atoms.
    seeds : sequence of int
        Positions of float parameters.
    """
    return _Dualizer(function, seeds).run()


class _Dualizer:
    def __init__(self, function: Function, seeds: Sequence[int]) -> None:
        self.function, self.seeds = function, tuple(seeds)
        self.active = activity(function, seeds)
        _refuse(function, self.active)
        self.names = Names(
            [
                *(param.name for param in function.params),
                *assigned(function.body),
                *(output.name for output in function.outputs),
                *RULES,
            ]
        )
        self.label = {seed: function.params[seed].name for seed in self.seeds}
        self.tangents: dict[tuple[str, int], Var] = {}
        self.block: list[Stmt] = []

    def run(self) -> Dual:
        body = self.walk(self.function.body)
        outputs, partials = list(self.function.outputs), {}
        for position, output in enumerate(self.function.outputs):
            if output.value.kind != "float":
                continue
            for seed in self.seeds:
                tangent = self.tangent(output.value, seed)
                if tangent is not None:
                    name = self.names.fresh(f"{output.name}_d{self.label[seed]}")
                    outputs.append(Output(name, tangent))
                    partials[position, seed] = name
        return Dual(replace(self.function, body=body, outputs=tuple(outputs)), partials)

    # --- tangents ------------------------------------------------------------------------------------------------

    def directions(self, value: Expr) -> frozenset[int]:
        return self.active.get(value.name, frozenset()) if isinstance(value, Var) else frozenset()

    def tangent(self, value: Expr, seed: int) -> Atom | None:
        """The partial of a value in a direction, or None where it is zero."""
        if not isinstance(value, Var) or seed not in self.directions(value):
            return None
        if value.name == self.label[seed]:
            return ONE
        key = (value.name, seed)
        if key not in self.tangents:
            base = TEMPORARY if UNNAMED.fullmatch(value.name) else f"{value.name}_d{self.label[seed]}"
            self.tangents[key] = Var(self.names.fresh(base), "float")
        return self.tangents[key]

    def walk(self, block: Block) -> Block:
        found: list[Stmt] = []
        for stmt in block:
            if isinstance(stmt, Assign):
                self.block = found
                self.assign(stmt)
            else:
                found.append(map_exprs(stmt, lambda expr: expr, self.walk))
        return tuple(found)

    def emit(self, value: Expr, where: Location) -> Atom:
        if isinstance(value, Atom):
            return value
        target = Var(self.names.fresh(TEMPORARY), value.kind)
        self.block.append(Assign(target, value, where))
        return target

    def op(self, name: str, *args: Expr, where: Location) -> Atom:
        return self.emit(fold(Op(name, args, "float", where)), where)

    def assign(self, stmt: Assign) -> None:
        """Append the assignment and those of its target's partials."""
        self.block.append(stmt)
        where = stmt.location
        terms: dict[int, list[Expr]] = {}
        directions = self.directions(stmt.target)
        if directions:
            terms = self._terms(stmt.value, stmt.target, where)
        for seed in sorted(directions):
            target = self.tangent(stmt.target, seed)
            assert isinstance(target, Var)
            parts = terms.get(seed, [])
            total: Expr = parts[0] if parts else ZERO
            for part in parts[1:]:
                if isinstance(part, Op) and part.name == "neg":
                    total = fold(Op("sub", (self.emit(total, where), *part.args), "float", where))
                else:
                    total = fold(Op("add", (self.emit(total, where), self.emit(part, where)), "float", where))
            self.block.append(Assign(target, total, where))

    def _terms(self, value: Expr, result: Var, where: Location) -> dict[int, list[Expr]]:
        """For each direction, the products of partial and tangent whose sum is the tangent of `value`."""
        if isinstance(value, Var):
            return {seed: [tangent] for seed, tangent in self._tangents(value)}
        if not isinstance(value, Op) or not any(map(self.directions, value.args)):
            return {}
        if value.name == "select":
            test, then, orelse = value.args
            terms: dict[int, list[Expr]] = {}
            for seed in self.directions(then) | self.directions(orelse):
                sides = (self.tangent(then, seed) or ZERO, self.tangent(orelse, seed) or ZERO)
                terms[seed] = [fold(Op("select", (test, *sides), "float", where))]
            return terms
        partials = self._instantiate(value, result, where)
        combined: dict[Expr, Expr] = {}
        for arg, partial in zip(value.args, partials, strict=True):
            # A partial that is zero everywhere is absent, never multiplied.
            if (
                partial.kind != "float"
                or (isinstance(partial, Const) and partial.value == 0)
                or not self.directions(arg)
            ):
                continue
            combined[arg] = self.op("add", combined[arg], partial, where=where) if arg in combined else partial
        found: dict[int, list[Expr]] = {}
        for arg, partial in combined.items():
            for seed, tangent in self._tangents(arg):
                found.setdefault(seed, []).append(fold(Op("mul", (partial, tangent), "float", where)))
        return found

    def _tangents(self, value: Expr) -> list[tuple[int, Atom]]:
        pairs = ((seed, self.tangent(value, seed)) for seed in sorted(self.directions(value)))
        return [(seed, tangent) for seed, tangent in pairs if tangent is not None]

    def _instantiate(self, value: Op, result: Var, where: Location) -> list[Expr]:
        """The partials of an operation at its arguments; what computing them takes is appended."""
        template, args, partials = _partials(value)
        actual: dict[str, Expr] = {}
        known = [*args, result] if template.params else []
        free = [arg for arg in known if not isinstance(arg, Const)]
        actual.update(zip((param.name for param in template.params), free, strict=True))

        def rename(expr: Expr) -> Expr:
            return map_expr(expr, lambda leaf: actual.get(leaf.name, leaf) if isinstance(leaf, Var) else leaf)

        def copy(block: Block) -> Block:
            return tuple(instantiate(stmt) for stmt in block)

        def instantiate(stmt: Stmt) -> Stmt:
            for name, kind in _targets(stmt):
                if name not in actual:
                    actual[name] = Var(self.names.fresh(TEMPORARY), kind)
            renamed = map_exprs(stmt, rename, copy)
            if isinstance(renamed, Assign | For):
                target = actual[renamed.target.name]
                assert isinstance(target, Var)
                renamed = replace(renamed, target=target)
            if isinstance(renamed, Assign) and isinstance(renamed.value, Op):
                renamed = replace(renamed, value=replace(renamed.value, location=where))
            return replace(renamed, location=where)

        needed = [
            bool(self.directions(arg)) and not (isinstance(partial, Const) and partial.value == 0)
            for arg, partial in zip(value.args, partials, strict=True)
        ]
        self.block.extend(instantiate(stmt) for stmt in template.body if any(needed))
        return [rename(partial) if wanted else ZERO for partial, wanted in zip(partials, needed, strict=True)]


def _targets(stmt: Stmt) -> list[tuple[str, Kind]]:
    """What a statement assigns itself and, so that reads after a branch find it, inside."""
    return [(part.target.name, part.target.kind) for part in statements((stmt,)) if isinstance(part, Assign | For)]


# --- partials of operators and rules --------------------------------------------------------------------------------

# The operators' rows, in the form of the table's. Their arguments are floats here; integers carry no derivative.
_OPERATORS: dict[str, Callable[..., object]] = {
    "add": lambda a, b, y: (1.0, 1.0),  # noqa: ARG005
    "sub": lambda a, b, y: (1.0, -1.0),  # noqa: ARG005
    "mul": lambda a, b, y: (b, a),  # noqa: ARG005
    "div": lambda a, b, y: (1.0 / b, -(y / b)),  # noqa: ARG005
    "neg": lambda a, y: (-1.0,),  # noqa: ARG005
    "single": lambda a, y: (1.0,),  # noqa: ARG005
}


def _partials(value: Op) -> tuple[Function, Sequence[Expr], list[Expr]]:
    """The partials of an operation in its arguments, as a function of some of those and of its result."""
    custom = CUSTOMS.get(value.name)
    if custom is not None and custom.partials is None:
        return _NOTHING, (), [ZERO, *[UNKNOWN] * (len(value.args) - 1)]
    source, args = source_of(value)
    template, partials = partials_of(source or _OPERATORS[value.name], args)
    # In the value of a custom derivative, which comes before the arguments, it is zero: that is what custom means.
    return template, args, [ZERO] * (custom is not None) + partials
