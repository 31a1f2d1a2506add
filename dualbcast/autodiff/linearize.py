"""Forward mode: each active variable gets tangents beside it, in variables of their own, by the rules of the table. A
variable in a chain, which depends on one other variable alone, needs none.

The local partials along a chain are multiplied with each other first, and then with the tangents of its first variable.
A chain takes one multiplication for each operation and one for each tangent, instead of one for each pair. Chains
depend on the function alone, so that the bits of a derivative do not depend on the other derivatives.

A variable has no tangent in a direction that it never depends on; an output has a structural zero there. If a variable
depends on a direction along some paths only, a flag beside it tells the path: an absent tangent must not be multiplied
by a partial, which may be infinite (`presence`). The variables of a chain have no tangents (`chains`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from dualbcast.autodiff.activity import (
    AbsentTerms,
    absent_terms,
    activity,
    always_present,
    differentiable,
    partials_at,
    refuse_marked,
    sometimes_absent,
)
from dualbcast.errors import Location
from dualbcast.ir.compose import copy
from dualbcast.ir.constant_fold import fold
from dualbcast.ir.nodes import (
    FALSE,
    TEMPORARY,
    TRUE,
    ZERO,
    Assign,
    Atom,
    Block,
    Const,
    Expr,
    Function,
    Names,
    Op,
    Output,
    Stmt,
    Var,
)
from dualbcast.ir.traversal import (
    among,
    assigned,
    atoms,
    blocks,
    expressions,
    map_exprs,
    renamed,
    use_counts,
    variables,
)
from dualbcast.rules.table import RULES


def chained(function: Function) -> frozenset[str]:
    """The variables that are read once, by an operation in the same block, before the operands of their partial change.

    Parameters
    ----------
    function : Function
        Operations on atoms.
    """
    seeds = {param.name: frozenset({at}) for at, param in enumerate(function.params) if param.kind == "float"}
    active = activity(function, seeds)
    uncertain = sometimes_absent(function, active)
    writes, reads = Counter(assigned(function.body)), use_counts(function)
    once = {name for name in active if writes[name] == reads[name] == 1 and not uncertain.get(name)}
    # For each chained variable, the first variable of its chain and all operands of its partial in that.
    chains: dict[str, tuple[str, frozenset[str]]] = {}

    def visit(block: Block) -> None:
        for position, stmt in enumerate(block):
            for inner in blocks(stmt):
                visit(inner)
            if isinstance(stmt, Assign) and stmt.target.name in once and _is_operation(stmt):
                source, operands = _source(stmt, active, chains)
                if source and len(active[source]) > 1 and _lasts(stmt.target, operands, block[position + 1 :]):
                    chains[stmt.target.name] = source, operands

    visit(function.body)
    return frozenset(chains)


def _source(
    stmt: Assign, active: Mapping[str, frozenset[int]], chains: Mapping[str, tuple[str, frozenset[str]]]
) -> tuple[str | None, frozenset[str]]:
    """The one variable with tangents that a value depends on, if it is one; and the operands of its partial in that."""
    names = [arg.name for arg in differentiable(stmt.value) if active.get(arg.name)]
    sources = {chains[name][0] if name in chains else name for name in names}
    operands = frozenset(leaf.name for leaf in variables(stmt.value))
    operands = operands.union(sources, *(chains[name][1] for name in names if name in chains))
    return (sources.pop() if len(sources) == 1 else None), operands


def _lasts(target: Var, operands: frozenset[str], rest: Block) -> bool:
    """Whether an operation reads the target before one of its operands changes."""
    for stmt in rest:
        if target in (leaf for expr in expressions(stmt) for leaf in atoms(expr)):
            return isinstance(stmt, Assign) and _is_operation(stmt)
        if not operands.isdisjoint(assigned((stmt,))):
            return False
    return False


def _is_operation(stmt: Assign) -> bool:
    return isinstance(stmt.value, Op) and stmt.value.name != "select"


UNNAMED = re.compile(rf"{TEMPORARY}(#\d+)?")


@dataclass(frozen=True, slots=True)
class Dual:
    """A function of values and tangents; `partials[i, d]` names the output that is the tangent of i in direction d.

    The directions of a Jacobian are parameters. A missing pair is a structural zero. Where an output depends on a
    direction along some paths only, `flags[i, d]` tells whether it does. Elsewhere the tangent is zero, or any number
    for a caller that reads the flags.
    """

    function: Function
    partials: dict[tuple[int, int], str]
    flags: dict[tuple[int, int], Var] = field(default_factory=dict)


class Direction(NamedTuple):
    """A direction to differentiate in: the tangents of the parameters that have one, and a label for the names."""

    label: str
    tangents: Mapping[int, Atom]


class ForwardMode:
    """The partials of every variable beside it.

    Parameters
    ----------
    function : Function
        As the front end gives it: operations on atoms.
    directions : dict of int to Direction
    names : Names, optional
        The names of the function that the result becomes part of; those of `function` if not given.
    """

    def __init__(self, function: Function, directions: dict[int, Direction], names: Names | None) -> None:
        self.function, self.seeds = function, tuple(directions)
        self.seeded: dict[str, dict[int, Atom]] = {}
        for seed, direction in directions.items():
            for position, tangent in direction.tangents.items():
                self.seeded.setdefault(function.params[position].name, {})[seed] = tangent
        self.active = activity(function, {name: frozenset(by) for name, by in self.seeded.items()})
        refuse_marked(function, self.active)
        self.flags: dict[tuple[str, int], Var] = {}
        taken = {*(param.name for param in function.params), *assigned(function.body)}
        self.names = names or Names([*taken, *(output.name for output in function.outputs), *RULES])
        # The names of values, which are no derivatives.
        self.values = taken - {*function.derived}
        self.label = {seed: direction.label for seed, direction in directions.items()}
        self.tangents: dict[tuple[str, int], Var] = {}
        # The first variable of the chain of each chained variable, and the partial in it.
        self.chain_partials: dict[str, tuple[Var, Atom]] = {}
        # Temporaries that are a constant times a variable, or divided by one: the constant first.
        self.scaled: dict[str, Op] = {}
        self.block: list[Stmt] = []

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
        outputs, partials, flags = list(self.function.outputs), {}, {}
        for position, output in enumerate(self.function.outputs):
            if output.value.kind != "float":
                continue
            for seed in self.seeds:
                tangent = self.tangent(output.value, seed)
                if tangent is not None:
                    name = self.names.fresh(f"{output.name}_d{self.label[seed]}")
                    flag = self.flag(output.value, seed)
                    if isinstance(flag, Var):
                        flags[position, seed] = flag
                    if not flagged and isinstance(flag, Var) and self.is_unspecified(output.value, seed):
                        tangent = self.emit(self.zero_if_absent(flag, tangent, where), where)
                    outputs.append(Output(name, tangent))
                    partials[position, seed] = name
        return Dual(self.whole((*body, *self.block), outputs), partials, flags)

    def whole(self, body: Block, outputs: Sequence[Output]) -> Function:
        """The function of values and derivatives."""
        derived = among({*assigned(body)} - self.values, body)
        return replace(self.function, body=body, outputs=tuple(outputs), derived=derived)

    # --- tangents ------------------------------------------------------------------------------------------------

    def directions(self, value: Expr) -> frozenset[int]:
        return self.active.get(value.name, frozenset()) if isinstance(value, Var) else frozenset()

    def tangent(self, value: Expr, seed: int) -> Atom | None:
        """The tangent of a value in a direction, or None where it is zero."""
        if not isinstance(value, Var) or seed not in self.directions(value):
            return None
        if value.name in self.seeded:
            return self.seeded[value.name][seed]
        key = (value.name, seed)
        if key not in self.tangents:
            base = TEMPORARY if UNNAMED.fullmatch(value.name) else f"{value.name}_d{self.label[seed]}"
            self.tangents[key] = Var(self.names.fresh(base), "float")
        return self.tangents[key]

    def visit(self, block: Block) -> Block:
        new: list[Stmt] = []
        for stmt in block:
            if isinstance(stmt, Assign):
                self.block = new
                self.assign(stmt)
            else:
                new.append(map_exprs(stmt, lambda expr: expr, self.visit))
        return tuple(new)

    def emit(self, value: Expr, where: Location) -> Atom:
        if isinstance(value, Atom):
            return value
        target = Var(self.names.fresh(TEMPORARY), value.kind)
        stmt = Assign(target, value, where)
        self.block.append(stmt)
        self.note(stmt)
        return target

    def note(self, stmt: Stmt) -> None:
        """Remember the value of a temporary that is assigned once, if it is a product with a constant."""
        match stmt:
            case Assign(target, Op("mul" | "div", (Const(), Var()), "float") as value):
                self.scaled[target.name] = value
            case Assign(target, Op("mul", (Var() as factor, Const() as constant), "float") as value):
                self.scaled[target.name] = replace(value, args=(constant, factor))

    def op(self, name: str, *args: Expr, where: Location) -> Atom:
        return self.emit(fold(Op(name, args, "float", where)), where)

    def total(self, terms: Sequence[Expr], where: Location) -> Expr:
        """The sum of some terms; all but its last step are appended."""
        total: Expr = terms[0] if terms else ZERO
        for term in terms[1:]:
            if isinstance(term, Op) and term.name == "neg":
                total = fold(Op("sub", (self.emit(total, where), *term.args), "float", where))
            else:
                total = fold(Op("add", (self.emit(total, where), self.emit(term, where)), "float", where))
        return total

    def assign(self, stmt: Assign) -> None:
        """Append the assignment and those of its target's tangents."""
        self.block.append(stmt)
        where = stmt.location
        terms: dict[int, list[Expr]] = {}
        directions = self.directions(stmt.target)
        if directions and isinstance(stmt.value, Op) and stmt.value.name != "select":
            partials = self._local_partials(stmt.value, stmt.target, where)
            if stmt.target.name in self.chained and len(partials) == 1:
                (self.chain_partials[stmt.target.name],) = partials.items()
                return
            terms = self._terms(stmt.target, partials, where)
        elif directions:
            terms = self._copied(stmt.value, where)
        for seed in sorted(directions):
            target = self.tangent(stmt.target, seed)
            assert isinstance(target, Var)
            self.block.append(Assign(target, self.total(terms.get(seed, []), where), where))
        for seed in sorted(self.uncertain.get(stmt.target.name, ())):
            flag = self.flag(stmt.target, seed)
            assert isinstance(flag, Var)
            self.block.append(Assign(flag, self._presence(stmt.value, seed, where), where))

    def flag(self, value: Expr, seed: int) -> Atom:
        """Whether a value depends on a direction along the path that has led to it."""
        if not isinstance(value, Var) or seed not in self.directions(value):
            return FALSE
        if seed not in self.uncertain.get(value.name, ()):
            return TRUE
        key = (value.name, seed)
        if key not in self.flags:
            self.flags[key] = Var(self.names.fresh(f"{value.name}_in_{self.label[seed]}"), "bool")
        return self.flags[key]

    def zero_if_absent(self, flag: Atom, tangent: Expr, where: Location) -> Expr:
        """A tangent that is an exact zero where the flag is false."""
        return fold(Op("select", (flag, self.emit(tangent, where), ZERO), "float", where))

    def is_unspecified(self, value: Expr, seed: int) -> bool:
        """Whether the tangent of a value is unspecified where its flag is false."""
        return isinstance(value, Var) and (value.name, seed) in self.absent_terms.unspecified

    def _presence(self, value: Expr, seed: int, where: Location) -> Expr:
        if isinstance(value, Op) and value.name == "select":
            test, then, orelse = value.args
            return fold(Op("select", (test, self.flag(then, seed), self.flag(orelse, seed)), "bool", where))
        if seed in always_present(value, self.active, self.uncertain):
            return TRUE
        result: Expr = FALSE
        for arg in dict.fromkeys(differentiable(value)):
            result = fold(Op("or", (self.emit(result, where), self.flag(arg, seed)), "bool", where))
        return result

    def _copied(self, value: Expr, where: Location) -> dict[int, list[Expr]]:
        """For each direction, the tangent of a copy or of a select."""
        if isinstance(value, Var):
            return {seed: [tangent] for seed, tangent in self._tangents(value)}
        if not isinstance(value, Op):
            return {}
        test, then, orelse = value.args
        terms: dict[int, list[Expr]] = {}
        for seed in self.directions(then) | self.directions(orelse):
            sides = (self.tangent(then, seed) or ZERO, self.tangent(orelse, seed) or ZERO)
            terms[seed] = [fold(Op("select", (test, *sides), "float", where))]
        return terms

    def _local_partials(self, value: Op, result: Var, where: Location) -> dict[Var, Atom]:
        """The variables with tangents that `value` depends on, and its partials in them."""
        by_source: dict[Var, Atom] = {}
        if not any(map(self.directions, value.args)):
            return by_source
        for arg, partial in zip(value.args, self._instantiate(value, result, where), strict=True):
            # A partial that is zero everywhere is absent, never multiplied.
            if (
                partial.kind != "float"
                or (isinstance(partial, Const) and partial.value == 0)
                or not isinstance(arg, Var)
                or not self.directions(arg)
            ):
                continue
            partial = self.emit(partial, where)
            source = arg
            if arg.name in self.chain_partials:
                source, inner = self.chain_partials[arg.name]
                partial = self.emit(self._product(partial, inner, where), where)
            total = by_source.get(source)
            by_source[source] = partial if total is None else self.op("add", total, partial, where=where)
        return by_source

    def _terms(self, target: Var, partials: Mapping[Var, Atom], where: Location) -> dict[int, list[Expr]]:
        """For each direction, the products of partial and tangent whose sum is the tangent of a name."""
        terms: dict[int, list[Expr]] = {}
        for source, partial in partials.items():
            for seed, tangent in self._tangents(source):
                term = fold(Op("mul", (partial, tangent), "float", where))
                if (target.name, source.name, seed) in self.absent_terms.guarded:
                    term = self.zero_if_absent(self.flag(source, seed), term, where)
                terms.setdefault(seed, []).append(term)
        return terms

    def _product(self, one: Atom, other: Atom, where: Location) -> Expr:
        """The product of two partials, whose operands have not changed; constants in both become one."""
        for left, right in ((one, other), (other, one)):
            op = self.scaled.get(left.name) if isinstance(left, Var) else None
            if op is not None and op.name == "mul":
                constant, rest = op.args
                rescaled = self._rescaled(right, constant)
                if rescaled is not None:
                    return fold(Op("mul", (self.emit(rescaled, where), rest), "float", where))
            rescaled = self._rescaled(right, left)
            if rescaled is not None:
                return rescaled
        return fold(Op("mul", (one, other), "float", where))

    def _rescaled(self, partial: Atom, factor: Expr) -> Expr | None:
        """The product of a partial and a constant as one operation, if the partial has a constant in it."""
        op = self.scaled.get(partial.name) if isinstance(partial, Var) else None
        if op is None or not isinstance(factor, Const) or abs(factor.value) == 1:
            return None
        constant, rest = op.args
        assert isinstance(constant, Const)
        product = constant.value * factor.value
        # With larger or smaller constants, the product could overflow or underflow where the original one does not.
        return replace(op, args=(Const(product, "float"), rest)) if 1e-6 < abs(product) < 1e6 else None

    def _tangents(self, value: Expr) -> list[tuple[int, Atom]]:
        pairs = ((seed, self.tangent(value, seed)) for seed in sorted(self.directions(value)))
        return [(seed, tangent) for seed, tangent in pairs if tangent is not None]

    def _instantiate(self, value: Op, result: Var, where: Location) -> list[Expr]:
        """The partials of an operation at its arguments; the statements that compute them are appended."""
        template, args, partials = partials_at(value)
        # A template has no parameters for arguments that are known numbers.
        unknown = [arg for arg in (*args, result) if not isinstance(arg, Const)] if template.params else []
        needed = [
            bool(self.directions(arg)) and not (isinstance(partial, Const) and partial.value == 0)
            for arg, partial in zip(value.args, partials, strict=True)
        ]
        if not any(needed):
            return [ZERO] * len(needed)
        body, by = copy(template, unknown, self.names, TEMPORARY, where)
        self.block.extend(body)
        names = assigned(body)
        for stmt in body if len(set(names)) == len(names) == len(body) else ():
            self.note(stmt)
        return [
            renamed(partial, by) if is_needed else ZERO for partial, is_needed in zip(partials, needed, strict=True)
        ]
