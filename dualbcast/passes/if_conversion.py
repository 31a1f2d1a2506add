"""Branches into selects, for a target that runs the elements of a row side by side.

Where the condition of an `if` differs within a row, both sides are computed and each result is chosen between. What the
two have in common is then computed once, and every element is read and written by the same instructions. A branch stays
where its condition is the same for the whole row (the loop over the row is then one of either side). Where a side costs
much, has a loop, or something that had better not run on just any number, an `if` without an `else` stays for it, which
vectors go through of which an element does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from dualbcast.errors import Location
from dualbcast.frontend.rule_bodies import helper_of
from dualbcast.ir.constant_fold import fold
from dualbcast.ir.nodes import (
    ARITHMETIC,
    BITWISE,
    COMPARISONS,
    FUSED,
    LOGIC,
    TEMPORARY,
    Assign,
    Atom,
    Block,
    Break,
    Const,
    Continue,
    Expr,
    For,
    Function,
    If,
    Kind,
    Names,
    Op,
    Stmt,
    Var,
    While,
)
from dualbcast.ir.value_numbering import simplify
from dualbcast.ir.walk import (
    among,
    assigned,
    atoms,
    expressions,
    jumps,
    operations_of,
    read_counts,
    renamed,
    statements,
    use_counts,
)
from dualbcast.passes.cost_model import blocks_vectors, weigh
from dualbcast.passes.select_merging import two_ways
from dualbcast.rules.table import RULES

__all__ = [
    "Choice",
    "into_selects",
    "is_even",
    "is_straight",
    "is_total",
    "leave_apart",
    "may_skip",
    "varies",
    "varying_names",
]

# What an `if` must be able to save a vector, in additions. It costs three to five itself: where half of the elements
# take a side in random order, a kernel takes 1.1 of the time that it does with selects if the side is 14 additions, and
# 0.95 to 1.05 from 36 on. And how many times what the sides have in common, which selects compute once.
LEAST = 30.0
_TIMES = 8.0
# How deep in each other branches may be that are not selects: Python's parser takes 100 blocks inside each other.
_DEEPEST = 12
NONE: dict[Kind, float | int | bool] = {"float": 0.0, "int": 0, "bool": False}
_TOTAL = COMPARISONS | LOGIC | ARITHMETIC | BITWISE | {"to_float", "to_int", "select", "single", *FUSED}


class Choice(NamedTuple):
    """What became of an `if`.

    Attributes
    ----------
    location : Location
        Of the `if`, or of what stands for one, in the user's file.
    selects : bool
        Whether both sides are computed.
    reason : str
        Why, for readers.
    """

    location: Location
    selects: bool
    reason: str

    def __str__(self) -> str:
        return f"{'select' if self.selects else 'branch'} ({self.reason})"


def into_selects(function: Function, steady: Set[str]) -> tuple[Function, list[Choice]]:
    """The function with selects for branches, and what became of each branch.

    Parameters
    ----------
    function : Function
        Simplified, operations on atoms.
    steady : set of str
        The parameters that are the same for the elements of a row.
    """
    if not any(isinstance(stmt, If) for stmt in statements(function.body)):
        return function, []
    pass_ = _Selects(function, varying_names(function, steady))
    body = pass_.block(function.body)
    if body == function.body:
        return function, pass_.choices
    function = simplify(replace(function, body=body))
    merged = two_ways(function)
    return function if merged is function else simplify(merged), pass_.choices


def is_straight(function: Function, steady: Set[str]) -> bool:
    """Whether nothing in a function of selects keeps elements of a row from being computed side by side."""
    if any(blocks_vectors(op.name) for op in operations_of(function)):
        return False
    forks = [stmt for stmt in statements(function.body) if isinstance(stmt, If | For | While)]
    varying = varying_names(function, steady) if forks else set()
    return all(_goes_together(stmt, varying) for stmt in forks)


def _goes_together(stmt: If | For | While, varying: Set[str]) -> bool:
    match stmt:
        case If():
            return not stmt.orelse or not varies(stmt.test, varying)
        case For():
            return is_even(stmt, varying)
        case While():
            return stmt.together


def may_skip(function: Function, steady: Set[str]) -> bool:
    """Whether a function of selects has a branch that differs within a row."""
    tests = [stmt.test for stmt in statements(function.body) if isinstance(stmt, If)]
    varying = varying_names(function, steady) if tests else set()
    return any(varies(test, varying) for test in tests)


def is_even(loop: For, varying: Set[str]) -> bool:
    """Whether all elements of a row go through a loop as often, if these names are what differs between them."""
    bounds = (loop.start, loop.stop, loop.step)
    is_known = isinstance(loop.step, Const) and not any(varies(bound, varying) for bound in bounds)
    return is_known and not any(map(jumps, loop.body))


def leave_apart(block: Block, varying: Set[str], control: bool = False) -> bool:
    """Whether some elements of a row jump in a block where others do not; with `control` they may do so already."""
    for stmt in block:
        match stmt:
            case Break() | Continue() if control:
                return True
            case If():
                inside = control or varies(stmt.test, varying)
                if leave_apart(stmt.then, varying, inside) or leave_apart(stmt.orelse, varying, inside):
                    return True
    return False


class _Selects:
    def __init__(self, function: Function, varying: set[str]) -> None:
        self.varying = varying
        self.seen = {param.name for param in function.params}
        self.names = Names([*self.seen, *assigned(function.body)])
        self.reads = use_counts(function)
        self.choices: list[Choice] = []
        self.depth = 0

    def varies(self, expr: Expr) -> bool:
        return varies(expr, self.varying)

    # --- which -------------------------------------------------------------------------------------------------------

    def block(self, block: Block, scalar: str = "") -> Block:
        """The block, on the way to which something keeps the loop over the row from being vectorised: `scalar`."""
        scalar = scalar or self.obstacle(block)
        found: list[Stmt] = []
        for stmt in block:
            if isinstance(stmt, If):
                found += self.branch(stmt, scalar)
            elif isinstance(stmt, For) and not scalar:
                found.append(replace(stmt, body=self.block(stmt.body)))
            else:
                self.stay(stmt, "inside a loop")
                found.append(stmt)
            self.seen.update(assigned((stmt,)))
        return tuple(found)

    def stay(self, stmt: Stmt, reason: str) -> None:
        self.choices += [Choice(part.location, False, reason) for part in statements((stmt,)) if isinstance(part, If)]

    def obstacle(self, block: Block) -> str:
        """What keeps a block from being vectorised; branches that the loop over a row can be cut in two for do not."""
        for stmt in block:
            if isinstance(stmt, For) and is_even(stmt, self.varying):
                inside = self.obstacle(stmt.body)
                if inside:
                    return inside
            elif isinstance(stmt, For) or (isinstance(stmt, While) and not stmt.together):
                return "there is a loop in the function"
            elif isinstance(stmt, If) and self.varies(stmt.test):
                inside = self.obstacle(stmt.then) or self.obstacle(stmt.orelse)
                if inside:
                    return inside
            elif isinstance(stmt, Assign):
                for op in operations_of((stmt,)):
                    if blocks_vectors(op.name):
                        return f"{op.name.partition('#')[0]} has no version for vectors"
        return ""

    def branch(self, stmt: If, scalar: str) -> list[Stmt]:
        if not self.varies(stmt.test):
            self.choices.append(Choice(stmt.location, False, "does not change within a row"))
            seen = set(self.seen)
            then = self.block(stmt.then, scalar)
            self.seen = seen
            return [replace(stmt, then=then, orelse=self.block(stmt.orelse, scalar))]
        if scalar:
            self.stay(stmt, scalar)
            return [stmt]
        may_run = _may_run_for_all(stmt)
        if self.depth < _DEEPEST and (not may_run or _saves(stmt, self.seen)):
            return self.skipping(stmt)
        if not may_run:
            self.stay(stmt, "too deep in others")
            return [stmt]
        self.count(stmt)
        found: list[Stmt] = []
        merged = self.flatten(stmt, {}, found)
        # They are assigned one after the other: none may read what another has changed.
        if any(leaf.name != name for name, value in merged.items() for leaf in _read(value) if leaf.name in merged):
            clash = {leaf.name for value in merged.values() for leaf in _read(value)} & merged.keys()
            copies = {name: Var(self.names.fresh(TEMPORARY), merged[name].kind) for name in sorted(clash)}
            found += [Assign(copy, Var(name, copy.kind), stmt.location) for name, copy in copies.items()]
            merged = {name: renamed(value, copies) for name, value in merged.items()}
        found += [Assign(Var(name, value.kind), value, stmt.location) for name, value in merged.items()]
        return found

    def count(self, stmt: If) -> int:
        """Note that both sides of a branch and of those in it are computed; how many operations those are."""
        choice = len(self.choices)
        counts = [
            sum(self.count(part) if isinstance(part, If) else len([*operations_of((part,))]) for part in side)
            for side in (stmt.then, stmt.orelse)
        ]
        reason = f"both sides computed: {counts[0]} + {counts[1]} operations"
        self.choices.insert(choice, Choice(stmt.location, True, reason))
        return sum(counts)

    # --- how ---------------------------------------------------------------------------------------------------------

    def flatten(self, stmt: If, outer: dict[str, Atom], found: list[Stmt]) -> dict[str, Expr]:
        """Compute both sides, appending to `found`; for each name that either assigns, its value after the branch.

        `outer` says what holds the value of a name that has been assigned where both sides of other branches are
        computed.
        """
        test = renamed(stmt.test, outer)
        sides: list[dict[str, Atom]] = []
        changed: dict[str, Kind] = {}
        for side in (stmt.then, stmt.orelse):
            held = dict(outer)
            for part in side:
                if isinstance(part, If):
                    values = self.flatten(part, held, found)
                else:
                    assert isinstance(part, Assign)
                    values = {part.target.name: renamed(part.value, held)}
                for name, value in values.items():
                    held[name] = self.hold(name, value, part.location, found)
                    changed[name] = value.kind
            sides.append(held)
        merged: dict[str, Expr] = {}
        for name, kind in changed.items():
            # Where one side does not assign it, it is what it was; if it was nothing, nobody reads it afterwards.
            old = Var(name, kind) if name in self.seen else None
            then, orelse = (held.get(name, old) for held in sides)
            if then is not None and orelse is not None:
                merged[name] = fold(Op("select", (test, then, orelse), kind, stmt.location))
        return merged

    def skipping(self, stmt: If) -> list[Stmt]:
        """The branch as one or two without an `else`, each for a side that vectors go through of which an element does;
        a short side is computed before, for all elements."""
        choice = len(self.choices)
        found: list[Stmt] = []
        # What is read later has a place of its own until then: the other side may read what was there before.
        inside = read_counts((stmt,))
        places = {
            part.target.name: self.fresh(part.target.name, part.target.kind)
            for part in statements((stmt,))
            if isinstance(part, Assign | For) and self.reads[part.target.name] > inside[part.target.name]
        }
        # If it was nothing before, nobody reads it where neither side assigns it.
        values: dict[str, Atom] = {
            name: Var(name, place.kind) if name in self.seen else Const(NONE[place.kind], place.kind)
            for name, place in places.items()
        }
        otherwise = self.hold("", fold(Op("not", (stmt.test,), "bool", stmt.location)), stmt.location, found)
        tests, sides = (stmt.test, otherwise), (stmt.then, stmt.orelse)
        short = min((at for at in (0, 1) if _is_short(sides[at])), key=lambda at: weigh(sides[at]), default=None)
        longer: list[If] = []
        for at, (test, side) in enumerate(zip(tests, sides, strict=True)):
            if at == short:
                held: dict[str, Atom] = {}
                for part in side:
                    assert isinstance(part, Assign)
                    name = part.target.name
                    held[name] = self.hold(name, renamed(part.value, held), part.location, found)
                values |= {name: value for name, value in held.items() if name in places}
            else:
                seen = set(self.seen)
                self.depth += 1
                body = self.block(self.without_steady(side, found))
                self.depth -= 1
                self.seen = seen
                ends = [
                    Assign(places[name], Var(name, places[name].kind), stmt.location) for name in among(places, body)
                ]
                longer.append(If(test, (*body, *ends), (), stmt.location))
        found += [Assign(places[name], value, stmt.location) for name, value in values.items()]
        found += longer
        found += [Assign(Var(name, place.kind), place, stmt.location) for name, place in places.items()]
        which = "each side runs" if short is None else "the longer side runs"
        self.choices.insert(choice, Choice(stmt.location, False, f"{which} for vectors of which an element takes it"))
        return found

    def without_steady(self, side: Block, found: list[Stmt]) -> Block:
        """A side without what it computes that is the same for the whole row, which `found` gets."""
        counts = Counter(assigned(side))
        held: dict[str, Atom] = {}
        left: list[Stmt] = []
        for part in side:
            if isinstance(part, Assign) and isinstance(part.value, Op) and is_total(part.value):
                name, value = part.target.name, renamed(part.value, held)
                if counts[name] == 1 and not self.varies(value):
                    held[name] = self.hold(name, value, part.location, found)
                    part = replace(part, value=held[name])
            left.append(part)
        return tuple(left)

    def hold(self, name: str, value: Expr, location: Location, found: list[Stmt]) -> Atom:
        if isinstance(value, Const | Var):
            return value
        target = self.fresh(name, value.kind)
        found.append(Assign(target, value, location))
        return target

    def fresh(self, name: str, kind: Kind) -> Var:
        base = name if name.startswith(TEMPORARY) else TEMPORARY + name
        return Var(self.names.fresh(base.partition("#")[0]), kind)


def varies(expr: Expr, varying: Set[str]) -> bool:
    """Whether an expression can differ within a row, if these names can."""
    return any(leaf.name in varying for leaf in _read(expr))


def _read(expr: Expr) -> list[Var]:
    return [leaf for leaf in atoms(expr) if isinstance(leaf, Var)]


def _may_run_for_all(stmt: If) -> bool:
    """Whether both sides of a branch may run for all elements."""
    is_line = all(isinstance(part, Assign | If) for part in statements((stmt,)))
    return is_line and all(map(is_total, operations_of((stmt,))))


def _saves(stmt: If, seen: Set[str]) -> bool:
    """Whether vectors had better go through the sides of a branch apart, since one of them may be left out.

    `seen` are the names that were assigned before it.
    """
    once = _once(stmt, seen)
    return once - _least(stmt) > max(LEAST, _TIMES * (_sum(stmt) - once))


def _is_short(side: Block) -> bool:
    """Whether a side may run for all elements at next to no cost."""
    is_line = all(isinstance(part, Assign) for part in side)
    return is_line and all(map(is_total, operations_of(side))) and weigh(side) <= LEAST


def _least(part: Stmt) -> float:
    """What the shortest way through a statement without loops costs."""
    if isinstance(part, If):
        return min(sum(map(_least, side)) for side in (part.then, part.orelse))
    return weigh((part,))


def _sum(part: Stmt) -> float:
    """What all ways through a statement without loops cost, one after the other."""
    return sum(map(_sum, (*part.then, *part.orelse))) if isinstance(part, If) else weigh((part,))


def _once(stmt: If, seen: Set[str]) -> float:
    """What all ways through a statement without loops cost, where what several of them compute is computed once."""
    numbers: dict[object, int] = {}
    total = 0.0

    def walk(block: Block, held: dict[str, int]) -> dict[str, None]:
        """The names that a block assigns, and may be read after it; `held` gets the number of each."""
        nonlocal total

        def number(expr: Expr) -> int:
            nonlocal total
            if not isinstance(expr, Op):
                known = held.get(expr.name) if isinstance(expr, Var) else None
                return numbers.setdefault(expr, len(numbers)) if known is None else known
            key = (expr.name, *map(number, expr.args))
            if key not in numbers:
                numbers[key] = len(numbers)
                total += weigh((Assign(Var("", expr.kind), expr),))
            return numbers[key]

        changed: dict[str, None] = {}
        for part in block:
            if isinstance(part, If):
                then, orelse = dict(held), dict(held)
                for name in walk(part.then, then) | walk(part.orelse, orelse):
                    sides = then.get(name), orelse.get(name)
                    if None in sides and name not in seen:
                        continue
                    merged = (part.test, *sides)
                    held[name] = then[name] if sides[0] == sides[1] else numbers.setdefault(merged, len(numbers))
                    changed[name] = None
            else:
                assert isinstance(part, Assign)
                held[part.target.name] = number(part.value)
                changed[part.target.name] = None
        return changed

    walk((stmt,), {})
    return total


def is_total(op: Op) -> bool:
    """Whether an operation may run on any numbers, those that a guard would have kept away too."""
    if op.name in ("floordiv", "mod") and op.kind == "int":
        divisor = op.args[1]
        return isinstance(divisor, Const) and divisor.value not in (0, -1)
    return op.name in _TOTAL or _is_total_rule(op.name)


@lru_cache(maxsize=1024)
def _is_total_rule(name: str) -> bool:
    row = RULES.get(name)
    if row is None or row.integer:
        return False
    if row.function is None:
        return True
    helper = helper_of(row)
    # A conversion to an integer has no meaning for what does not fit, and no branch may depend on one.
    operations = list(operations_of(helper))
    return all(is_total(op) and op.name != "to_int" for op in operations) and not any(
        isinstance(stmt, For | While) for stmt in statements(helper.body)
    )


def varying_names(function: Function, steady: Set[str]) -> set[str]:
    """The names whose values can differ within a row."""
    varying = {param.name for param in function.params} - steady

    def varies(expr: Expr) -> bool:
        return any(isinstance(leaf, Var) and leaf.name in varying for leaf in atoms(expr))

    def walk(block: Block, control: bool) -> None:
        for stmt in block:
            inside = control or (not isinstance(stmt, Assign) and any(map(varies, expressions(stmt))))
            match stmt:
                case Assign():
                    if control or varies(stmt.value):
                        varying.add(stmt.target.name)
                case If():
                    walk(stmt.then, inside)
                    walk(stmt.orelse, inside)
                case While():
                    inside = inside or leave_apart(stmt.body, varying)
                    walk((*stmt.pre, *stmt.body), inside)
                case For():
                    inside = inside or leave_apart(stmt.body, varying)
                    if inside:
                        varying.add(stmt.target.name)
                    walk(stmt.body, inside)

    size = -1
    while size != len(varying):
        size = len(varying)
        walk(function.body, False)
    return varying
