"""Masked loops, which elements leave one by one: an iteration changes nothing for an element that has left.

Each loop that may end earlier for one element than for another becomes a `While` on a flag. Its body is a straight line
with all paths through its branches; selects keep the variables of elements that have left. Such loops may be nested.
They may also be in branches, and in loops with a uniform number of iterations, which stay as they are.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Set
from dataclasses import replace

from dualbcast.ir import nodes as ir
from dualbcast.ir.builder import assign_together
from dualbcast.ir.simplification import fold, simplify, zero
from dualbcast.ir.traversal import (
    assigned,
    assigned_always,
    expressions,
    falls_through,
    free_names,
    has_loops,
    hold,
    jumps,
    operations_of,
    read_counts,
    renamed,
    statements,
    targets,
)
from dualbcast.passes.branch_fusion import fuse
from dualbcast.passes.if_conversion import merged
from dualbcast.passes.vector_analysis import (
    blocks_vectors,
    has_divergent_jumps,
    is_speculatable,
    is_uniform_loop,
    varies,
    varying_names,
)

# The most new statements of a function: those after an `if` with a jump in it are written twice.
MOST_STATEMENTS = 2000


def mask_loops(function: ir.Function, uniform: Set[str]) -> ir.Function:
    """The function with masked loops; itself if no loop needs a mask, or if one cannot have a mask.

    The parameters in `uniform` are the same for the elements of a row. Operations are on atoms.

    Before (uniform=set())::

        function f(x: float)
            while:
                go: bool = gt(x, 1.0)
            test go:
                x: float = mul(0.5, x)
            output out = x

    After::

        function f(x: float)
            %x: float = x
            %go#1: bool = gt(x, 1.0)
            %going: bool = %go#1
            masked while %going:
                %x#1: float = mul(0.5, %x)
                %go#2: bool = gt(%x#1, 1.0)
                %: bool = and(%going, %go#2)
                %#2: float = select(%going, %x#1, %x)
                %going: bool = %
                %x: float = %#2
            output out = %x
    """
    if not has_loops(function.body):
        return function
    try:
        body = _Masking(function, uniform).block(function.body)
    except _CannotMaskError:
        return function
    return function if body == function.body else simplify(replace(function, body=body))


class _CannotMaskError(Exception):
    """An iteration has too many statements, or an operation that must not run for elements that have left."""


class _Masking:
    def __init__(self, function: ir.Function, uniform: Set[str], *, fuses: bool = True) -> None:
        self.varying, self.fuses = varying_names(function, uniform), fuses
        self.reads = read_counts(function)
        self.own = free_names(function)
        # Names that have a value at this statement; `held` may have a newer one.
        self.seen = {param.name for param in function.params}
        # The variables that count the iterations of one loop; and the number of loops around the current statement.
        self.counters: set[str] = set()
        self.depth = 0
        self.count = 0

    # --- where control flow is uniform -------------------------------------------------------------------------------

    def block(self, block: ir.Block) -> ir.Block:
        """A block that all elements of a row reach."""
        before, new = set(self.seen), list[ir.Stmt]()
        for stmt in block:
            match stmt:
                case ir.For() if is_uniform_loop(stmt, self.varying):
                    self.depth += 1
                    self.seen.add(stmt.target.name)
                    new.append(replace(stmt, body=self.block(stmt.body)))
                    self.depth -= 1
                case ir.If() if has_loops((stmt,)):
                    new.append(replace(stmt, then=self.block(stmt.then), orelse=self.block(stmt.orelse)))
                case ir.For() | ir.While():
                    _refuse_unmaskable(stmt)
                    held: dict[str, ir.Atom] = {}
                    self.flatten((stmt,), held, ir.TRUE, new, is_outer=True)
                    assign_together(held, self.own, new)
                    self.seen |= held.keys()
                case _:
                    new.append(stmt)
            self.seen |= assigned_always((stmt,))
        self.seen = before
        return tuple(new)

    # --- where it diverges -------------------------------------------------------------------------------------------

    def flatten(
        self, block: ir.Block, held: dict[str, ir.Atom], here: ir.Atom, new: list[ir.Stmt], *, is_outer: bool = False
    ) -> ir.Atom:
        """Compute all paths through a block; the mask of the elements that go on to the next iteration.

        `held` has the newest value of each variable that is not in the variable itself, and is updated. `here` is the
        mask of the elements that reach the block. With `is_outer` all elements in the iteration around it do.
        """
        for position, stmt in enumerate(block):
            match stmt:
                case ir.Assign():
                    held[stmt.target.name] = self.hold(renamed(stmt.value, held), new, stmt)
                case ir.If():
                    stays = self.fork(stmt, block[position + 1 :], held, here, new)
                    if jumps(stmt):
                        return stays
                case ir.For() if is_outer and is_uniform_loop(stmt, self.varying):
                    self.uniform_loop(stmt, held, here, new)
                case ir.For() | ir.While():
                    self.divergent_loop(stmt, held, here, new)
                case ir.Break():
                    return ir.FALSE
                case ir.Continue():
                    return ir.TRUE
        return ir.TRUE

    def fork(self, stmt: ir.If, rest: ir.Block, held: dict[str, ir.Atom], here: ir.Atom, new: list[ir.Stmt]) -> ir.Atom:
        """Compute both sides of a branch, and the statements after it if one of them jumps."""
        test = renamed(stmt.test, held)
        assert isinstance(test, ir.Atom)
        rest = rest if jumps(stmt) else ()
        values: list[dict[str, ir.Atom]] = []
        stays: list[ir.Atom] = []
        lines: list[list[ir.Stmt]] = []
        for side, goes_there in ((stmt.then, test), (stmt.orelse, fold(ir.Op("not", (test,), "bool")))):
            path = (*side, *rest) if falls_through(side) else side
            there = here
            if has_loops(path):  # A loop must not run on for elements that do not reach it.
                there = self.hold(fold(ir.Op("and", (here, self.hold(goes_there, new)), "bool")), new)
            values.append(dict(held))
            lines.append([])
            stays.append(self.flatten(path, values[-1], there, lines[-1]))
        if self.fuses and not any(map(has_loops, map(tuple, lines))):
            fused = fuse(test, lines, self.own)
            lines = [fused.line]
            for at in (0, 1):
                values[at] = {name: fused.after(at, value) for name, value in values[at].items()}
                stays[at] = fused.after(at, stays[at])
        new += itertools.chain(*lines)
        then, orelse = values
        for name, value in merged(test, then, orelse, self.seen, stmt.location).items():
            held[name] = self.hold(value, new, stmt)
        return self.hold(fold(ir.Op("select", (test, *stays), "bool", stmt.location)), new, stmt)

    def uniform_loop(self, loop: ir.For, held: dict[str, ir.Atom], here: ir.Atom, new: list[ir.Stmt]) -> None:
        """A loop with the same number of iterations for all elements."""
        start, stop, step = (renamed(bound, held) for bound in (loop.start, loop.stop, loop.step))
        places = self.places(loop, read_counts((loop,)), held, new)
        places.pop(loop.target.name, None)
        target = ir.Var(self.own.fresh(ir.TEMPORARY + loop.target.name), "int")
        iteration: list[ir.Stmt] = []
        end: dict[str, ir.Atom] = {**held, **places, loop.target.name: target}
        self.depth += 1
        self.flatten(loop.body, end, here, iteration, is_outer=True)
        self.depth -= 1
        assign_together({place.name: end[name] for name, place in places.items()}, self.own, iteration)
        new.append(ir.For(target, start, stop, step, tuple(iteration), loop.location))
        held |= places | {loop.target.name: target}

    def divergent_loop(
        self, loop: ir.For | ir.While, held: dict[str, ir.Atom], here: ir.Atom, new: list[ir.Stmt]
    ) -> None:
        """A loop that elements leave one by one."""
        # If all elements reach the loop and iterate equally often, it needs no mask.
        is_uniform = here == ir.TRUE and not any(varies(expr, self.varying) for expr in expressions(loop))
        is_uniform = is_uniform and not has_divergent_jumps(loop.body, self.varying)
        if isinstance(loop, ir.For):
            before, loop = self.as_while(loop)
            self.flatten(before, held, here, new)
        inside = read_counts((loop,))
        places = self.places(loop, inside, held, new)
        held |= places
        self.flatten(loop.pre, held, here, new)
        assign_together({place.name: held[name] for name, place in places.items()}, self.own, new)
        test = renamed(loop.test, held)
        going = ir.Var(self.own.fresh(f"{ir.TEMPORARY}going"), "bool")
        new.append(ir.Assign(going, fold(ir.Op("and", (here, test), "bool"))))
        held |= places

        iteration: list[ir.Stmt] = []
        end = dict(held)
        self.depth += 1
        those_inside = ir.TRUE if is_uniform else going
        stays = self.flatten(loop.body, end, those_inside, iteration, is_outer=True)
        tested = dict(end)
        self.flatten(loop.pre, tested, those_inside, iteration)
        self.depth -= 1
        goes_on = fold(ir.Op("and", (stays, self.hold(renamed(loop.test, tested), iteration)), "bool"))
        goes_on = fold(ir.Op("and", (those_inside, self.hold(goes_on, iteration)), "bool"))
        changes = {going.name: self.hold(goes_on, iteration)}
        for name, place in places.items():
            value = tested[name]
            # The test changes variables only for elements that have not left in the body.
            if value != end[name]:
                value = self.hold(fold(ir.Op("select", (stays, value, end[name]), value.kind)), iteration)
            # A variable that only counts iterations may count on for elements that have left.
            only_counts = place.kind == "int" and not self.depth and self.reads[name] == inside[name]
            if not (is_uniform or only_counts or name in self.counters):
                value = self.hold(fold(ir.Op("select", (going, value, place), place.kind)), iteration)
            changes[place.name] = value
        assign_together(changes, self.own, iteration)
        new.append(ir.While((), going, tuple(iteration), loop.location, masked=True))

    def places(
        self, loop: ir.For | ir.While, inside: Mapping[str, int], held: Mapping[str, ir.Atom], new: list[ir.Stmt]
    ) -> dict[str, ir.Var]:
        """The variables that carry values from iteration to iteration; their initial assignments are appended.

        `inside` says how often each name is read in the loop.
        """
        tested = set(assigned(loop.pre)) if isinstance(loop, ir.While) else set()
        places: dict[str, ir.Var] = {}
        for name, target in targets((loop,)).items():
            is_known = name in held or name in self.seen
            if not is_known and name not in tested and self.reads[name] <= inside[name]:
                continue  # a variable of one iteration
            places[name] = ir.Var(self.own.fresh(ir.temporary(name)), target.kind)
            value = held.get(name, target) if is_known else zero(target.kind)
            new.append(ir.Assign(places[name], value, loop.location))
        return places

    def as_while(self, loop: ir.For) -> tuple[ir.Block, ir.While]:
        """A `For` loop as a `While` loop, with the statements before it."""
        counter, copy = (ir.Var(self.own.fresh(ir.TEMPORARY + name), "int") for name in ("counter", "stop"))
        goes = ir.Var(self.own.fresh(f"{ir.TEMPORARY}goes"), "bool")
        self.counters.add(counter.name)
        assert isinstance(loop.step, ir.Const)
        stop = loop.stop if isinstance(loop.stop, ir.Const) else copy
        test = ir.Op("lt" if loop.step.value > 0 else "gt", (counter, stop), "bool", loop.location)
        body = (
            ir.Assign(loop.target, counter, loop.location),
            ir.Assign(counter, ir.Op("add", (counter, loop.step), "int", loop.location), loop.location),
            *loop.body,
        )
        before = (ir.Assign(counter, loop.start, loop.location), ir.Assign(copy, loop.stop, loop.location))
        return before, ir.While((ir.Assign(goes, test, loop.location),), goes, body, loop.location)

    def hold(self, value: ir.Expr, new: list[ir.Stmt], stmt: ir.Assign | ir.If | None = None) -> ir.Atom:
        if isinstance(value, ir.Op):
            self.count += 1
            if self.count > MOST_STATEMENTS:
                raise _CannotMaskError
        base = ir.temporary(stmt.target.name) if isinstance(stmt, ir.Assign) else ir.TEMPORARY
        return hold(value, self.own, new, ir.NOWHERE if stmt is None else stmt.location, base)


def _refuse_unmaskable(part: ir.Stmt) -> None:
    """Refuse a loop that must not run for arbitrary elements, or that vectors cannot run."""
    for stmt in statements((part,)):
        if isinstance(stmt, ir.For) and not (
            isinstance(stmt.step, ir.Const) and (stmt.step.value == 1 or _is_small(stmt))
        ):
            raise _CannotMaskError
    for op in operations_of((part,)):
        if not is_speculatable(op) or blocks_vectors(op.name):
            raise _CannotMaskError


def _is_small(loop: ir.For) -> bool:
    """Whether the counter of a loop cannot leave 64 bits when a step is added after its last iteration."""
    bounds = (loop.start, loop.stop, loop.step)
    return loop.step != ir.Const(0, "int") and all(
        isinstance(bound, ir.Const) and abs(bound.value) < 2**31 for bound in bounds
    )
