"""Loops inside an element function, for a target with vectors: some elements at a time go through them together.

A loop is split off from what is before and after it. One turn of it is straight-line code for an element, in which
selects keep the variables of elements that have left the loop; it runs over all elements of a group until every one has
left. Each of the pieces is then a loop over the group, which can be vectorised. What stays between pieces is in small
arrays with a place for each element.
"""

from __future__ import annotations

from collections.abc import Mapping

from dualbcast.compiler.fold import FALSE, TRUE, fold
from dualbcast.compiler.ir import (
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
    Output,
    Stmt,
    Var,
    While,
    assigned,
    atoms,
    blocks,
    expressions,
    map_expr,
    statements,
)
from dualbcast.compiler.schedule import is_call
from dualbcast.compiler.selects import is_total
from dualbcast.compiler.simplify import falls_through, simplify
from dualbcast.compiler.weights import blocks_vectors, operations_of
from dualbcast.record import NamedTuple, replace

__all__ = ["WIDEST", "Lockstep", "Piece", "lockstep"]

# Bytes of the longest vectors, and how many of them a group of elements has, whose instructions alternate: while one
# waits for a result the others go on. More of them would wait longer for the slowest element of the group, and two are
# enough, and leave more registers, where nothing takes long.
WIDEST, SIDE_BY_SIDE, OF_SLOW_TURNS = 64, 2, 4
# Statements that a turn may have. What follows an `if` with a jump in it is written twice before it is simplified.
MOST = 2000


class Piece(NamedTuple):
    """A part of the element function without loops; `turn` if it is repeated while an element of the group goes on.

    Its parameters are those of the element function and the arrays that it reads, its outputs the arrays it writes.
    """

    function: Function
    turn: bool


class Lockstep(NamedTuple):
    """An element function in pieces.

    Attributes
    ----------
    pieces : tuple of Piece
        In order.
    arrays : dict
        The kind of each array that holds a variable for a group.
    going : str
        Which of them says whether an element is still in the loop.
    """

    pieces: tuple[Piece, ...]
    arrays: dict[str, Kind]
    going: str

    @property
    def side_by_side(self) -> int:
        """How many vectors a group has."""
        turns = [op for piece in self.pieces if piece.turn for op in operations_of(piece.function)]
        return OF_SLOW_TURNS if any(map(_takes_long, turns)) else SIDE_BY_SIDE


def lockstep(function: Function, names: Names) -> Lockstep | None:
    """The function in pieces, or None where it has no loop, or one that cannot be run so.

    Parameters
    ----------
    function : Function
        Simplified, operations on atoms.
    names : Names
        Those taken in the text; the arrays get some more.
    """
    loops = [stmt for stmt in function.body if isinstance(stmt, For | While)]
    every = sum(isinstance(stmt, For | While) for stmt in statements(function.body))
    if every != len(loops) or not any(map(_is_worth_it, loops)) or not all(map(_may_run, loops)):
        return None
    own = Names([*(param.name for param in function.params), *assigned(function.body)])
    parts: list[Block | While] = [()]
    for stmt in function.body:
        if isinstance(stmt, For | While):
            before, loop = _as_while(stmt, own) if isinstance(stmt, For) else ((), stmt)
            parts[-1] = (*_block(parts[-1]), *before, *loop.pre)
            parts += [loop, ()]
        else:
            parts[-1] = (*_block(parts[-1]), stmt)
    try:
        return _Pieces(function, parts, own, names).run()
    except _TooLong:
        return None


class _TooLong(Exception):
    """A turn has too many statements."""


def _block(part: Block | While) -> Block:
    assert not isinstance(part, While)
    return part


def _is_worth_it(loop: For | While) -> bool:
    """Whether vectors gain more than the arrays cost; LLVM writes out short loops that always have as many turns."""
    if isinstance(loop, For) and _is_small(loop) and not any(map(_jumps, loop.body)):
        return False
    branches = any(isinstance(stmt, If) and not _is_exit(stmt) for stmt in statements(loop.body))
    return branches or any(map(_takes_long, operations_of((loop,))))


def _takes_long(op: Op) -> bool:
    return op.name in ("div", "sqrt") or is_call(op.name)


def _is_exit(stmt: If) -> bool:
    """Whether an `if` does nothing but end a turn or the loop."""
    return all(isinstance(part, Break | Continue) for side in (stmt.then, stmt.orelse) for part in side)


def _may_run(loop: For | While) -> bool:
    """Whether a turn may run for an element that has left the loop, and in vectors."""
    if isinstance(loop, For):
        step = loop.step
        if not isinstance(step, Const) or not (step.value == 1 or _is_small(loop)):
            return False
    return all(is_total(op) and not blocks_vectors(op.name) for op in operations_of((loop,)))


def _is_small(loop: For) -> bool:
    """Whether the counter of a loop cannot leave 64 bits when a step is added after its last turn."""
    bounds = (loop.start, loop.stop, loop.step)
    return loop.step != Const(0, "int") and all(
        isinstance(bound, Const) and abs(bound.value) < 2**31 for bound in bounds
    )


def _as_while(loop: For, own: Names) -> tuple[Block, While]:
    """A loop that counts as one that tests, with what comes before it."""
    counter, copy, goes = (Var(own.fresh(TEMPORARY + name), kind) for name, kind in _COUNTING)
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


_COUNTING: tuple[tuple[str, Kind], ...] = (("counter", "int"), ("stop", "int"), ("goes", "bool"))


class _Pieces:
    def __init__(self, function: Function, parts: list[Block | While], own: Names, names: Names) -> None:
        self.function, self.parts, self.own, self.names = function, parts, own, names
        self.params = {param.name for param in function.params}
        targets = [_targets((part,) if isinstance(part, While) else part) for part in parts]
        self.kinds: dict[str, Kind] = {name: kind for found in targets for name, kind in found.items()}
        self.targets = targets
        # The array of each variable that has one.
        self.arrays: dict[str, str] = {}
        self.going = names.fresh("going")

    def run(self) -> Lockstep:
        final = {leaf.name for output in self.function.outputs for leaf in atoms(output.value) if isinstance(leaf, Var)}
        # Which variables are read after each part; a loop's turn reads some from the turn before.
        needed: set[str] = final - self.params
        pieces: list[Piece] = []
        for position in range(len(self.parts) - 1, -1, -1):
            part, targets = self.parts[position], self.targets[position]
            if isinstance(part, While):
                piece, reads = self.turn(part, targets, needed)
                needed = needed | reads
            else:
                last = position == len(self.parts) - 1
                outputs = self.function.outputs if last else self.stores(position, targets, needed)
                piece, reads = self.straight(position, part, outputs)
                needed = (needed - targets.keys()) | reads
            pieces.append(piece)
        kinds = {array: self.kinds[name] for name, array in self.arrays.items()}
        return Lockstep(tuple(pieces[::-1]), {**kinds, self.going: "bool"}, self.going)

    def reads(self, block: Block) -> set[str]:
        found = {leaf.name for stmt in statements(block) for expr in expressions(stmt) for leaf in _leaves(expr)}
        return found & self.kinds.keys()

    def reads_of(self, outputs: tuple[Output, ...]) -> set[str]:
        return {leaf.name for output in outputs for leaf in _leaves(output.value)} & self.kinds.keys()

    def array(self, name: str) -> Var:
        """The array that holds a variable."""
        if name not in self.arrays:
            self.arrays[name] = self.names.fresh(name.removeprefix(TEMPORARY).partition("#")[0] or "t")
        return Var(self.arrays[name], self.kinds[name])

    def stores(self, position: int, targets: Mapping[str, Kind], needed: set[str]) -> tuple[Output, ...]:
        """What a part before a loop keeps, and whether the loop has a first turn."""
        kept = [Output(self.array(name).name, Var(name, kind)) for name, kind in targets.items() if name in needed]
        loop = self.parts[position + 1]
        assert isinstance(loop, While)
        return (*kept, Output(self.going, loop.test))

    def straight(self, position: int, block: Block, outputs: tuple[Output, ...]) -> tuple[Piece, set[str]]:
        """A part without a loop, and the variables that it takes from the arrays to begin with."""
        before = {name for targets in self.targets[:position] for name in targets}
        # One that this part assigns on some paths only may keep an older value.
        taken = sorted((self.reads(block) | self.reads_of(outputs)) & before)
        loads = tuple(Assign(Var(name, self.kinds[name]), self.array(name)) for name in taken)
        params = (*self.function.params, *(self.array(name) for name in taken))
        piece = replace(self.function, params=params, body=(*loads, *block), outputs=outputs)
        return Piece(simplify(piece), False), set(taken)

    # --- turns -------------------------------------------------------------------------------------------------------

    def turn(self, loop: While, targets: Mapping[str, Kind], needed: set[str]) -> tuple[Piece, set[str]]:
        """One turn, the next one's test included, and the variables that it reads as they were before it."""
        found: list[Stmt] = []
        going = Var(self.going, "bool")
        end, stays = self.walk(loop.body, {}, found)
        # What the test needs is computed only for elements that have not left in the body.
        tested, _ = self.walk(loop.pre, dict(end), found)
        test = _renamed(loop.test, tested)
        for name, value in tested.items():
            if end.get(name) != value:
                old = Var(name, self.kinds[name])
                tested[name] = self.hold(fold(Op("select", (stays, value, end.get(name, old)), old.kind)), found)
        goes_on = self.hold(fold(Op("and", (stays, test), "bool")), found)
        going_on = self.hold(fold(Op("and", (going, goes_on), "bool")), found)
        stored = {name for name in targets if name in needed}
        while True:
            outputs: list[Output] = []
            body = list(found)
            for name in sorted(stored):
                old = Var(name, self.kinds[name])
                new: Expr = tested.get(name, old)
                # What only counts turns may run on in elements that have left.
                if name in needed or old.kind != "int":
                    new = fold(Op("select", (going, new, old), old.kind))
                outputs.append(Output(name, self.hold(new, body)))
            outputs.append(Output(self.going, going_on))
            params = (*self.function.params, going, *(Var(name, kind) for name, kind in self.kinds.items()))
            piece = simplify(replace(self.function, params=params, body=tuple(body), outputs=tuple(outputs)))
            reads = self.reads(piece.body) | self.reads_of(piece.outputs)
            if reads & targets.keys() <= stored:
                break
            stored |= reads & targets.keys()
        change = {name: self.array(name) for name in reads | stored}
        final = tuple(
            Output(change[output.name].name if output.name in change else output.name, _renamed(output.value, change))
            for output in piece.outputs
        )
        body = [replace(stmt, value=_renamed(stmt.value, change)) for stmt in piece.body if isinstance(stmt, Assign)]
        assert len(body) == len(piece.body)
        params = (*self.function.params, going, *(change[name] for name in sorted(reads)))
        return Piece(replace(piece, params=params, body=tuple(body), outputs=final), True), reads

    def walk(self, block: Block, held: dict[str, Atom], found: list[Stmt]) -> tuple[dict[str, Atom], Atom]:
        """Compute a block on all its paths; what holds each variable after it, and whether the element goes on."""
        for position, stmt in enumerate(block):
            match stmt:
                case Assign():
                    held[stmt.target.name] = self.hold(_renamed(stmt.value, held), found, stmt)
                case If():
                    test = _renamed(stmt.test, held)
                    rest = block[position + 1 :] if _jumps(stmt) else ()
                    sides = [
                        self.walk((*side, *rest) if falls_through(side) else side, dict(held), found)
                        for side in (stmt.then, stmt.orelse)
                    ]
                    held, stays = self.merge(test, sides, found, stmt)
                    if _jumps(stmt):
                        return held, stays
                case Break():
                    return held, FALSE
                case Continue():
                    return held, TRUE
        return held, TRUE

    def merge(
        self, test: Expr, sides: list[tuple[dict[str, Atom], Atom]], found: list[Stmt], stmt: If
    ) -> tuple[dict[str, Atom], Atom]:
        (then, first), (orelse, second) = sides
        held: dict[str, Atom] = {}
        for name in dict.fromkeys([*then, *orelse]):
            old = Var(name, self.kinds[name])
            values = test, then.get(name, old), orelse.get(name, old)
            held[name] = self.hold(fold(Op("select", values, old.kind, stmt.location)), found, stmt)
        return held, self.hold(fold(Op("select", (test, first, second), "bool", stmt.location)), found, stmt)

    def hold(self, value: Expr, found: list[Stmt], stmt: Assign | If | None = None) -> Atom:
        if isinstance(value, Const | Var):
            return value
        base = stmt.target.name.removeprefix(TEMPORARY).partition("#")[0] if isinstance(stmt, Assign) else ""
        target = Var(self.own.fresh(TEMPORARY + base), value.kind)
        found.append(Assign(target, value) if stmt is None else Assign(target, value, stmt.location))
        if len(found) > MOST:
            raise _TooLong
        return target


def _targets(block: Block) -> dict[str, Kind]:
    return {stmt.target.name: stmt.target.kind for stmt in statements(block) if isinstance(stmt, Assign | For)}


def _leaves(expr: Expr) -> list[Var]:
    return [leaf for leaf in atoms(expr) if isinstance(leaf, Var)]


def _renamed(expr: Expr, held: Mapping[str, Atom]) -> Expr:
    return map_expr(expr, lambda leaf: held.get(leaf.name, leaf) if isinstance(leaf, Var) else leaf)


def _jumps(stmt: Stmt) -> bool:
    return isinstance(stmt, Break | Continue) or any(_jumps(inner) for block in blocks(stmt) for inner in block)
