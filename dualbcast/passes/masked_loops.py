"""Loops whose turns several elements may take together, since a turn changes nothing for one that has left.

In comes a function with any loops. Out goes one in which each loop that may end earlier for one element than for
another is a `While` on a flag of its own: a turn is a straight line with all paths through its branches, in which
selects keep the variables of elements that have left. Such loops may be inside each other, in branches, and in loops
that all elements go through as often, which stay what they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from dualbcast.ir.constant_fold import fold
from dualbcast.ir.nodes import (
    FALSE,
    TEMPORARY,
    TRUE,
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
    assigned,
    assigned_always,
    expressions,
    falls_through,
    jumps,
    operations_of,
    read_counts,
    renamed,
    statements,
    use_counts,
)
from dualbcast.passes.cost_model import blocks_vectors
from dualbcast.passes.if_conversion import NONE, is_even, is_total, leave_apart, varies, varying_names

__all__ = ["lockstep"]

# Statements that turns may have. What follows an `if` with a jump in it is written twice before it is simplified.
MOST = 2000


def lockstep(function: Function, steady: Set[str]) -> Function | None:
    """The function with such loops, itself if it has none that need it; None where one cannot be run so.

    Parameters
    ----------
    function : Function
        Simplified, operations on atoms.
    steady : set of str
        The parameters that are the same for the elements of a row.
    """
    if not any(isinstance(stmt, For | While) for stmt in statements(function.body)):
        return function
    try:
        body = _Turns(function, steady).block(function.body)
    except _NotSo:
        return None
    return function if body == function.body else simplify(replace(function, body=body))


class _NotSo(Exception):
    """A turn has too many statements, or something that must not run for elements that have left."""


class _Turns:
    def __init__(self, function: Function, steady: Set[str]) -> None:
        self.varying = varying_names(function, steady)
        self.reads = use_counts(function)
        params = [param.name for param in function.params]
        self.own = Names([*params, *assigned(function.body)])
        # Names that have a value at this place, unless what is `held` is newer.
        self.seen = set(params)
        # What counts the turns of one loop, and around how many this place is.
        self.counters: set[str] = set()
        self.depth = 0
        self.count = 0

    # --- where all elements are --------------------------------------------------------------------------------------

    def block(self, block: Block) -> Block:
        """A block that all elements of a row come to."""
        before, found = set(self.seen), list[Stmt]()
        for stmt in block:
            match stmt:
                case For() if is_even(stmt, self.varying):
                    self.depth += 1
                    self.seen.add(stmt.target.name)
                    found.append(replace(stmt, body=self.block(stmt.body)))
                    self.depth -= 1
                case If() if _loops(stmt):
                    found.append(replace(stmt, then=self.block(stmt.then), orelse=self.block(stmt.orelse)))
                case For() | While():
                    _check(stmt)
                    held: dict[str, Atom] = {}
                    self.walk((stmt,), held, TRUE, found, is_outer=True)
                    self.assign_all([(Var(name, value.kind), value) for name, value in held.items()], found)
                    self.seen |= held.keys()
                case _:
                    found.append(stmt)
            self.seen |= assigned_always((stmt,))
        self.seen = before
        return tuple(found)

    # --- where some are ----------------------------------------------------------------------------------------------

    def walk(
        self, block: Block, held: dict[str, Atom], here: Atom, found: list[Stmt], *, is_outer: bool = False
    ) -> Atom:
        """Compute a block on all its paths.

        Parameters
        ----------
        block : Block
        held : dict of str to Atom
            What holds each variable that does not hold itself; afterwards, too.
        here : Atom
            Whether an element comes here.
        found : list of Stmt
            To which is added.
        is_outer : bool
            Whether all that come to the turn around it come here.

        Returns
        -------
        Atom
            Whether an element that has come here goes on to the next turn.
        """
        for position, stmt in enumerate(block):
            match stmt:
                case Assign():
                    held[stmt.target.name] = self.hold(renamed(stmt.value, held), found, stmt)
                case If():
                    stays = self.fork(stmt, block[position + 1 :], held, here, found)
                    if jumps(stmt):
                        return stays
                case For() if is_outer and is_even(stmt, self.varying):
                    self.even(stmt, held, here, found)
                case For() | While():
                    self.loop(stmt, held, here, found)
                case Break():
                    return FALSE
                case Continue():
                    return TRUE
        return TRUE

    def fork(self, stmt: If, rest: Block, held: dict[str, Atom], here: Atom, found: list[Stmt]) -> Atom:
        """Both sides of a branch, and what comes after it, if one of them jumps."""
        test = renamed(stmt.test, held)
        assert isinstance(test, Atom)
        rest = rest if jumps(stmt) else ()
        sides: list[tuple[dict[str, Atom], Atom]] = []
        for side, goes_there in ((stmt.then, test), (stmt.orelse, None)):
            path = (*side, *rest) if falls_through(side) else side
            there = here
            if any(map(_loops, path)):  # One that does not come here must not be waited for.
                if goes_there is None:
                    goes_there = self.hold(fold(Op("not", (test,), "bool")), found)
                there = self.hold(fold(Op("and", (here, goes_there), "bool")), found)
            own = dict(held)
            stays = self.walk(path, own, there, found)
            sides.append((own, stays))
        (then, first), (orelse, second) = sides
        for name in dict.fromkeys([*then, *orelse]):
            old = held.get(name)
            values = [side.get(name) for side in (then, orelse)]
            kind = next(value.kind for value in values if value is not None)
            # Where one side does not assign it, it is what it was; if it was nothing, nobody reads it afterwards.
            if old is None and name in self.seen:
                old = Var(name, kind)
            one, other = (value or old for value in values)
            one, other = one or other, other or one
            assert one is not None and other is not None
            held[name] = self.hold(fold(Op("select", (test, one, other), kind, stmt.location)), found, stmt)
        return self.hold(fold(Op("select", (test, first, second), "bool", stmt.location)), found, stmt)

    def even(self, loop: For, held: dict[str, Atom], here: Atom, found: list[Stmt]) -> None:
        """A loop that all elements of the turn go through as often."""
        start, stop, step = (renamed(bound, held) for bound in (loop.start, loop.stop, loop.step))
        places = self.places(loop, read_counts((loop,)), held, found)
        places.pop(loop.target.name, None)
        target = Var(self.own.fresh(TEMPORARY + loop.target.name), "int")
        turn: list[Stmt] = []
        end: dict[str, Atom] = {**held, **places, loop.target.name: target}
        self.depth += 1
        self.walk(loop.body, end, here, turn, is_outer=True)
        self.depth -= 1
        self.assign_all([(place, end[name]) for name, place in places.items()], turn)
        found.append(For(target, start, stop, step, tuple(turn), loop.location))
        held |= places | {loop.target.name: target}

    def loop(self, loop: For | While, held: dict[str, Atom], here: Atom, found: list[Stmt]) -> None:
        """A loop that elements leave one by one."""
        # Elements that are all here, and take as many turns, need not be kept from changing.
        is_shared = here == TRUE and not any(varies(expr, self.varying) for expr in expressions(loop))
        is_shared = is_shared and not leave_apart(loop.body, self.varying)
        if isinstance(loop, For):
            before, loop = self.as_while(loop)
            self.walk(before, held, here, found)
        inside = read_counts((loop,))
        places = self.places(loop, inside, held, found)
        held |= places
        self.walk(loop.pre, held, here, found)
        self.assign_all([(place, held[name]) for name, place in places.items()], found)
        test = renamed(loop.test, held)
        going = Var(self.own.fresh(f"{TEMPORARY}going"), "bool")
        found.append(Assign(going, fold(Op("and", (here, test), "bool"))))
        held |= places

        turn: list[Stmt] = []
        end = dict(held)
        self.depth += 1
        those_inside = TRUE if is_shared else going
        stays = self.walk(loop.body, end, those_inside, turn, is_outer=True)
        tested = dict(end)
        self.walk(loop.pre, tested, those_inside, turn)
        self.depth -= 1
        goes_on = fold(Op("and", (stays, self.hold(renamed(loop.test, tested), turn)), "bool"))
        goes_on = fold(Op("and", (those_inside, self.hold(goes_on, turn)), "bool"))
        changes: list[tuple[Var, Expr]] = [(going, self.hold(goes_on, turn))]
        for name, place in places.items():
            new = tested[name]
            # What the test needs is computed only for elements that have not left in the body.
            if new != end[name]:
                new = self.hold(fold(Op("select", (stays, new, end[name]), new.kind)), turn)
            # What only counts turns may run on in elements that have left.
            is_of_turns = place.kind == "int" and not self.depth and self.reads[name] == inside[name]
            if not (is_shared or is_of_turns or name in self.counters):
                new = self.hold(fold(Op("select", (going, new, place), place.kind)), turn)
            changes.append((place, new))
        self.assign_all(changes, turn)
        found.append(While((), going, tuple(turn), loop.location, together=True))

    def places(
        self, loop: For | While, inside: Mapping[str, int], held: Mapping[str, Atom], found: list[Stmt]
    ) -> dict[str, Var]:
        """The variables that hold those of a loop from turn to turn, with what they are before the first; `inside` says
        how often names are read in it."""
        tested = set(assigned(loop.pre)) if isinstance(loop, While) else set()
        places: dict[str, Var] = {}
        for name, kind in _targets(loop).items():
            is_known = name in held or name in self.seen
            if not is_known and name not in tested and self.reads[name] <= inside[name]:
                continue  # a variable of one turn
            places[name] = Var(self.own.fresh(TEMPORARY + name.removeprefix(TEMPORARY).partition("#")[0]), kind)
            value = held.get(name, Var(name, kind)) if is_known else Const(NONE[kind], kind)
            found.append(Assign(places[name], value, loop.location))
        return places

    def as_while(self, loop: For) -> tuple[Block, While]:
        """A loop that counts as one that tests, with what comes before it."""
        counter, copy, goes = (Var(self.own.fresh(TEMPORARY + name), kind) for name, kind in _COUNTING)
        self.counters.add(counter.name)
        assert isinstance(loop.step, Const)
        stop = loop.stop if isinstance(loop.stop, Const) else copy
        test = Op("lt" if loop.step.value > 0 else "gt", (counter, stop), "bool", loop.location)
        body = (
            Assign(loop.target, counter, loop.location),
            Assign(counter, Op("add", (counter, loop.step), "int", loop.location), loop.location),
            *loop.body,
        )
        before = (Assign(counter, loop.start, loop.location), Assign(copy, loop.stop, loop.location))
        return before, While((Assign(goes, test, loop.location),), goes, body, loop.location)

    # --- statements --------------------------------------------------------------------------------------------------

    def assign_all(self, changes: Sequence[tuple[Var, Expr]], found: list[Stmt]) -> None:
        """Give some variables values at once."""
        targets = {target for target, _ in changes}
        new: list[Stmt] = []
        for target, value in changes:
            if value == target:
                continue
            if value in targets:  # It may be another one by then.
                copy = Var(self.own.fresh(TEMPORARY), target.kind)
                found.append(Assign(copy, value))
                value = copy
            new.append(Assign(target, value))
        found += new

    def hold(self, value: Expr, found: list[Stmt], stmt: Assign | If | None = None) -> Atom:
        if isinstance(value, Const | Var):
            return value
        base = stmt.target.name.removeprefix(TEMPORARY).partition("#")[0] if isinstance(stmt, Assign) else ""
        target = Var(self.own.fresh(TEMPORARY + base), value.kind)
        found.append(Assign(target, value) if stmt is None else Assign(target, value, stmt.location))
        self.count += 1
        if self.count > MOST:
            raise _NotSo
        return target


_COUNTING: tuple[tuple[str, Kind], ...] = (("counter", "int"), ("stop", "int"), ("goes", "bool"))


def _check(part: Stmt) -> None:
    """Whether all of it may run for any element, and in vectors."""
    for stmt in statements((part,)):
        if isinstance(stmt, For) and not (isinstance(stmt.step, Const) and (stmt.step.value == 1 or _is_small(stmt))):
            raise _NotSo
    for op in operations_of((part,)):
        if not is_total(op) or blocks_vectors(op.name):
            raise _NotSo


def _is_small(loop: For) -> bool:
    """Whether the counter of a loop cannot leave 64 bits when a step is added after its last turn."""
    bounds = (loop.start, loop.stop, loop.step)
    return loop.step != Const(0, "int") and all(
        isinstance(bound, Const) and abs(bound.value) < 2**31 for bound in bounds
    )


def _targets(part: Stmt) -> dict[str, Kind]:
    return {stmt.target.name: stmt.target.kind for stmt in statements((part,)) if isinstance(stmt, Assign | For)}


def _loops(part: Stmt) -> bool:
    return any(isinstance(stmt, For | While) for stmt in statements((part,)))
