"""Forward mode: each active variable gets tangents beside it, in variables of their own, by the rules of the table. A
variable in a chain, which depends on one other variable alone, needs none.

The local partials along a chain are multiplied with each other first, and then with the tangents of its first variable.
A chain takes one multiplication for each operation and one for each tangent, instead of one for each pair. Chains
depend on the function alone, so that the bits of a derivative do not depend on the other derivatives.

A variable has no tangent in a direction that it never depends on; an output has a structural zero there. If a variable
depends on a direction along some paths only, a flag beside it tells the path: an absent tangent must not be multiplied
by a partial, which may be infinite.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from dualbcast.autodiff.activity import (
    AbsentTerms,
    absent_terms,
    activity,
    always_present,
    chained,
    differentiable,
    is_operation,
    is_zero,
    partials_at,
    refuse_marked,
    sometimes_absent,
)
from dualbcast.errors import Location
from dualbcast.ir import nodes as ir
from dualbcast.ir.compose import copy
from dualbcast.ir.simplification import fold
from dualbcast.ir.traversal import (
    among,
    assigned,
    free_names,
    hold,
    map_blocks,
    renamed,
)
from dualbcast.rules.table import RULES

_UNNAMED = re.compile(rf"{ir.TEMPORARY}(#\d+)?")


@dataclass(frozen=True, slots=True)
class Dual:
    """A function of values and tangents; `partials[i, d]` names the output that is the tangent of i in direction d.

    The directions of a Jacobian are parameters. A missing pair is a structural zero. Where an output depends on a
    direction along some paths only, `flags[i, d]` tells whether it does. Elsewhere the tangent is zero, or any number
    for a caller that reads the flags.
    """

    function: ir.Function
    partials: dict[tuple[int, int], str]
    flags: dict[tuple[int, int], ir.Var] = field(default_factory=dict)

    def tangents(self) -> dict[tuple[int, int], ir.Atom]:
        """The tangents by output and direction; a structural zero is missing."""
        values = {output.name: output.value for output in self.function.outputs if isinstance(output.value, ir.Atom)}
        return {place: values[name] for place, name in self.partials.items()}


class Direction(NamedTuple):
    """A direction to differentiate in: the tangents of the parameters that have one, and a label for the names."""

    label: str
    tangents: Mapping[int, ir.Atom]


def unused_names(function: ir.Function) -> ir.Names:
    """Names that are not in use in a function, and mean nothing else in a kernel."""
    return free_names(function, [*(output.name for output in function.outputs), *RULES])


def unit_directions(params: Sequence[ir.Var], seeds: Iterable[int]) -> dict[int, Direction]:
    """The directions of the parameters at `seeds`."""
    return {
        seed: Direction(params[seed].name.removeprefix(ir.TEMPORARY).replace("#", "_"), {seed: ir.ONE})
        for seed in seeds
    }


class ForwardMode:
    """The partials of every variable beside it; the function is as the front end gives it: operations on atoms.

    `names` are those of the function that the result becomes part of; those of `function` if not given.
    """

    def __init__(self, function: ir.Function, directions: dict[int, Direction], names: ir.Names | None) -> None:
        self.function, self.seeds = function, tuple(directions)
        self.seeded: dict[str, dict[int, ir.Atom]] = {}
        for seed, direction in directions.items():
            for position, tangent in direction.tangents.items():
                self.seeded.setdefault(function.params[position].name, {})[seed] = tangent
        self.active = activity(function, {name: frozenset(by) for name, by in self.seeded.items()})
        refuse_marked(function, self.active)
        taken = {*(param.name for param in function.params), *assigned(function.body)}
        self.names = names or unused_names(function)
        # The names of values, which are no derivatives.
        self.values = taken - {*function.derived}
        self.label = {seed: direction.label for seed, direction in directions.items()}
        self.tangents: dict[tuple[str, int], ir.Var] = {}
        self.flags: dict[tuple[str, int], ir.Var] = {}
        # The first variable of the chain of each chained variable, and the partial in it.
        self.chain_partials: dict[str, tuple[ir.Var, ir.Atom]] = {}
        # Temporaries that are a constant times a variable, or divided by one: the constant first.
        self.scaled: dict[str, ir.Op] = {}
        self.block: list[ir.Stmt] = []

    # These are computed when they are first needed: reverse mode needs none of them.
    @cached_property
    def uncertain(self) -> dict[str, frozenset[int]]:
        return sometimes_absent(self.function, self.active)

    @cached_property
    def absent_terms(self) -> AbsentTerms:
        return absent_terms(self.function, self.active, self.uncertain)

    @cached_property
    def chained(self) -> frozenset[str]:
        return chained(self.function)

    def run(self, *, flagged: bool = False) -> Dual:
        """The function of values and tangents; `flagged` says whether the caller reads the flags."""
        body, where = self.visit(self.function.body), self.function.location
        self.block = []
        tangents, flags = {}, {}
        for position, output in enumerate(self.function.outputs):
            for seed in self.seeds:
                if seed not in self.directions(output.value):
                    continue
                tangent, flag = self.tangent(output.value, seed), self.flag(output.value, seed)
                if isinstance(flag, ir.Var) and isinstance(output.value, ir.Var):
                    flags[position, seed] = flag
                    if not flagged and (output.value.name, seed) in self.absent_terms.unspecified:
                        tangent = self.emit(self.zero_if_absent(flag, tangent, where), where)
                tangents[position, seed] = tangent
        return self.dual((*body, *self.block), tangents, flags)

    def dual(
        self, body: ir.Block, tangents: Mapping[tuple[int, int], ir.Atom], flags: dict[tuple[int, int], ir.Var]
    ) -> Dual:
        """The function of values and of tangents by output and direction."""
        outputs, partials = list(self.function.outputs), {}
        for (position, seed), tangent in tangents.items():
            name = self.names.fresh(f"{self.function.outputs[position].name}_d{self.label[seed]}")
            outputs.append(ir.Output(name, tangent))
            partials[position, seed] = name
        derived = among({*assigned(body)} - self.values, body)
        return Dual(replace(self.function, body=body, outputs=tuple(outputs), derived=derived), partials, flags)

    # --- tangents and flags --------------------------------------------------------------------------------------

    def directions(self, value: ir.Expr) -> frozenset[int]:
        return self.active.get(value.name, frozenset()) if isinstance(value, ir.Var) else frozenset()

    def tangent(self, value: ir.Expr, seed: int) -> ir.Atom:
        """The tangent of a value in a direction."""
        if not isinstance(value, ir.Var) or seed not in self.directions(value):
            return ir.ZERO
        if value.name in self.seeded:
            return self.seeded[value.name][seed]
        key = (value.name, seed)
        if key not in self.tangents:
            base = ir.TEMPORARY if _UNNAMED.fullmatch(value.name) else f"{value.name}_d{self.label[seed]}"
            self.tangents[key] = ir.Var(self.names.fresh(base), "float")
        return self.tangents[key]

    def flag(self, value: ir.Expr, seed: int) -> ir.Atom:
        """Whether a value depends on a direction along the path that has led to it."""
        if not isinstance(value, ir.Var) or seed not in self.directions(value):
            return ir.FALSE
        if seed not in self.uncertain.get(value.name, ()):
            return ir.TRUE
        key = (value.name, seed)
        if key not in self.flags:
            self.flags[key] = ir.Var(self.names.fresh(f"{value.name}_in_{self.label[seed]}"), "bool")
        return self.flags[key]

    def zero_if_absent(self, flag: ir.Atom, tangent: ir.Expr, where: Location) -> ir.Expr:
        """A tangent that is an exact zero where the flag is false."""
        return fold(ir.Op("select", (flag, self.emit(tangent, where), ir.ZERO), "float", where))

    # --- statements ----------------------------------------------------------------------------------------------

    def visit(self, block: ir.Block) -> ir.Block:
        new: list[ir.Stmt] = []
        for stmt in block:
            if isinstance(stmt, ir.Assign):
                self.block = new
                self.assign(stmt)
            else:
                new.append(map_blocks(stmt, self.visit))
        return tuple(new)

    def assign(self, stmt: ir.Assign) -> None:
        """Append the assignment and those of its target's tangents and flags."""
        self.block.append(stmt)
        directions, value, where = self.directions(stmt.target), stmt.value, stmt.location
        if not directions:
            return
        if isinstance(value, ir.Op) and not is_operation(value):
            terms = self._selected(value, where)
        else:
            partials = self.local_partials(stmt)
            if stmt.target.name in self.chained and len(partials) == 1:
                (self.chain_partials[stmt.target.name],) = partials.items()
                return
            terms = self._terms(stmt.target, partials, where)
        for seed in sorted(directions):
            self.set(self.tangent(stmt.target, seed), self.total(terms.get(seed, []), where), where)
        for seed in sorted(self.uncertain.get(stmt.target.name, ())):
            self.set(self.flag(stmt.target, seed), self._presence(value, seed, where), where)

    def set(self, target: ir.Atom, value: ir.Expr, where: Location) -> None:
        assert isinstance(target, ir.Var)
        self.block.append(ir.Assign(target, value, where))

    def emit(self, value: ir.Expr, where: Location) -> ir.Atom:
        """The value as an atom; if it is none, its assignment to a temporary is appended."""
        atom = hold(value, self.names, self.block, where)
        if atom is not value:
            self.note(self.block[-1])
        return atom

    def note(self, stmt: ir.Stmt) -> None:
        """Remember the value of a temporary that is assigned once, if it is a product with a constant."""
        match stmt:
            case ir.Assign(target, ir.Op("mul" | "div", (ir.Const(), ir.Var()), "float") as value):
                self.scaled[target.name] = value
            case ir.Assign(target, ir.Op("mul", (ir.Var() as factor, ir.Const() as constant), "float") as value):
                self.scaled[target.name] = replace(value, args=(constant, factor))

    def total(self, terms: Sequence[ir.Expr], where: Location) -> ir.Expr:
        """The sum of some terms; all but its last step are appended."""
        total: ir.Expr = terms[0] if terms else ir.ZERO
        for term in terms[1:]:
            if isinstance(term, ir.Op) and term.name == "neg":
                total = fold(ir.Op("sub", (self.emit(total, where), *term.args), "float", where))
            else:
                total = fold(ir.Op("add", (self.emit(total, where), self.emit(term, where)), "float", where))
        return total

    def _presence(self, value: ir.Expr, seed: int, where: Location) -> ir.Expr:
        """Whether a value depends on a direction."""
        if isinstance(value, ir.Op) and value.name == "select":
            test, then, orelse = value.args
            return fold(ir.Op("select", (test, self.flag(then, seed), self.flag(orelse, seed)), "bool", where))
        if seed in always_present(value, self.active, self.uncertain):
            return ir.TRUE
        result: ir.Expr = ir.FALSE
        for arg in dict.fromkeys(differentiable(value)):
            result = fold(ir.Op("or", (self.emit(result, where), self.flag(arg, seed)), "bool", where))
        return result

    def _selected(self, select: ir.Op, where: Location) -> dict[int, list[ir.Expr]]:
        """For each direction, the tangent of a select."""
        test, then, orelse = select.args
        return {
            seed: [fold(ir.Op("select", (test, self.tangent(then, seed), self.tangent(orelse, seed)), "float", where))]
            for seed in self.directions(then) | self.directions(orelse)
        }

    def _terms(self, target: ir.Var, partials: Mapping[ir.Var, ir.Atom], where: Location) -> dict[int, list[ir.Expr]]:
        """For each direction, the products of partial and tangent whose sum is the tangent of a name."""
        terms: dict[int, list[ir.Expr]] = {}
        for source, partial in partials.items():
            for seed in sorted(self.directions(source)):
                term = fold(ir.Op("mul", (partial, self.tangent(source, seed)), "float", where))
                if (target.name, source.name, seed) in self.absent_terms.guarded:
                    term = self.zero_if_absent(self.flag(source, seed), term, where)
                terms.setdefault(seed, []).append(term)
        return terms

    # --- local partials ------------------------------------------------------------------------------------------

    def local_partials(self, stmt: ir.Assign) -> dict[ir.Var, ir.Atom]:
        """The variables with tangents that a copy or an operation depends on, and its partials in them.

        The statements that compute these are appended.
        """
        value, where = stmt.value, stmt.location
        if not isinstance(value, ir.Op):
            return {value: ir.ONE} if isinstance(value, ir.Var) else {}
        if not any(map(self.directions, value.args)):  # such as a conversion, which has no partial
            return {}
        template, args, partials = partials_at(value)
        needed = [
            (arg, partial)
            for arg, partial in zip(value.args, partials, strict=True)
            if isinstance(arg, ir.Var) and self.directions(arg) and not is_zero(partial)
        ]
        if not needed:
            return {}
        # A template has no parameters for arguments that are known numbers.
        unknown = [arg for arg in (*args, stmt.target) if not isinstance(arg, ir.Const)] if template.params else []
        body, by = copy(template, unknown, self.names, ir.TEMPORARY, where)
        self.block.extend(body)
        names = assigned(body)
        for part in body if len(set(names)) == len(names) == len(body) else ():
            self.note(part)
        by_source: dict[ir.Var, ir.Atom] = {}
        for source, expr in needed:
            partial = self.emit(renamed(expr, by), where)
            if source.name in self.chain_partials:
                source, inner = self.chain_partials[source.name]
                partial = self.emit(self.product(partial, inner, where), where)
            total = by_source.get(source)
            by_source[source] = partial if total is None else self.emit(self.total([total, partial], where), where)
        return by_source

    def product(self, one: ir.Atom, other: ir.Atom, where: Location) -> ir.Expr:
        """The product of two partials, whose operands have not changed; constants in both become one."""
        for left, right in ((one, other), (other, one)):
            op = self.scaled.get(left.name) if isinstance(left, ir.Var) else None
            if op is not None and op.name == "mul":
                constant, rest = op.args
                rescaled = self._rescaled(right, constant)
                if rescaled is not None:
                    return fold(ir.Op("mul", (self.emit(rescaled, where), rest), "float", where))
            rescaled = self._rescaled(right, left)
            if rescaled is not None:
                return rescaled
        return fold(ir.Op("mul", (one, other), "float", where))

    def _rescaled(self, partial: ir.Atom, factor: ir.Expr) -> ir.Expr | None:
        """The product of a partial and a constant as one operation, if the partial has a constant in it."""
        op = self.scaled.get(partial.name) if isinstance(partial, ir.Var) else None
        if op is None or not isinstance(factor, ir.Const) or abs(factor.value) == 1:
            return None
        constant, rest = op.args
        assert isinstance(constant, ir.Const)
        product = constant.value * factor.value
        # With larger or smaller constants, the product could overflow or underflow where the original one does not.
        return replace(op, args=(ir.Const(product, "float"), rest)) if 1e-6 < abs(product) < 1e6 else None
