"""If-conversion: varying branches become selects, or branches without an `else` that vectors skip.

Selects compute both sides for all elements and choose between the results. Operations that the sides share are then
computed once, and the same instructions read and write every element. A uniform branch stays: the loop over the row is
then split into one for each side. A varying branch stays as an `if` without an `else` if a side costs much, has a loop,
or must not run on arbitrary numbers. A vector runs such a side if one of its elements takes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import replace
from typing import NamedTuple

from dualbcast.errors import Location
from dualbcast.ir import nodes as ir
from dualbcast.ir.builder import assign_together
from dualbcast.ir.simplification import fold, simplify, zero
from dualbcast.ir.traversal import (
    among,
    assigned,
    blocks,
    free_names,
    hold,
    operations_of,
    read_counts,
    renamed,
    statements,
    targets,
)
from dualbcast.passes.branch_fusion import fuse
from dualbcast.passes.cost_model import cost_of_block
from dualbcast.passes.vector_analysis import (
    blocks_vectors,
    is_short,
    is_speculatable,
    is_uniform_loop,
    may_run_for_all,
    skipping_saves,
    varies,
    varying_names,
)

# The deepest nesting of branches that stay: Python's parser takes 100 nested blocks.
_DEEPEST = 12


class Choice(NamedTuple):
    """The decision about an `if` or a conditional expression: whether both sides are computed, and why, for readers."""

    location: Location
    selects: bool
    reason: str

    def __str__(self) -> str:
        return f"{'select' if self.selects else 'branch'} ({self.reason})"


def convert_ifs(function: ir.Function, uniform: Set[str]) -> ir.Function:
    """The function with selects in place of varying branches, where they pay. Operations are on atoms.

    The parameters in `uniform` are the same for the elements of a row.

    Before (uniform={"n"})::

        function f(x: float, n: int)
            a: bool = lt(x, 0.0)
            if a:
                y: float = neg(x)
            else:
                y: float = mul(2.0, x)
            b: bool = lt(n, 0)
            if b:
                y: float = 0.0
            output out = y

    After::

        function f(x: float, n: int)
            a: bool = lt(x, 0.0)
            %y: float = neg(x)
            %y#1: float = mul(2.0, x)
            y: float = select(a, %y, %y#1)
            b: bool = lt(n, 0)
            if b:
                y: float = 0.0
            output out = y
    """
    return with_selects(function, uniform)[0]


def branch_choices(function: ir.Function, uniform: Set[str]) -> list[Choice]:
    """The decision of `convert_ifs` about each branch."""
    return with_selects(function, uniform)[1]


def with_selects(function: ir.Function, uniform: Set[str]) -> tuple[ir.Function, list[Choice]]:
    """What `convert_ifs` makes of a function, and its decisions."""
    if not any(isinstance(stmt, ir.If) for stmt in statements(function.body)):
        return function, []
    conversion = _Conversion(function, varying_names(function, uniform))
    body = conversion.block(function.body)
    if body == function.body:
        return function, conversion.choices
    return simplify(replace(function, body=body)), conversion.choices


def merged(
    test: ir.Expr, then: Mapping[str, ir.Atom], orelse: Mapping[str, ir.Atom], seen: Set[str], where: Location
) -> dict[str, ir.Expr]:
    """The value of each variable after a branch, from those after both sides; the ones in `seen` have one before it."""
    values: dict[str, ir.Expr] = {}
    for name in dict.fromkeys([*then, *orelse]):
        kind = (then[name] if name in then else orelse[name]).kind
        # If one side does not assign it, it keeps its value. If it had none, it is not read after the branch.
        old = ir.Var(name, kind) if name in seen else None
        first, second = then.get(name, old), orelse.get(name, old)
        if first is not None and second is not None:
            values[name] = fold(ir.Op("select", (test, first, second), kind, where)) if first != second else first
    return values


class _Conversion:
    def __init__(self, function: ir.Function, varying: set[str]) -> None:
        self.varying = varying
        self.seen = {param.name for param in function.params}
        self.names = free_names(function)
        self.reads = read_counts(function)
        self.choices: list[Choice] = []
        # Of branches that became selects, the operations that run once for both sides; and what that saves.
        self.fused: dict[int, tuple[str, ...]] = {}
        self.saved = 0.0
        self.depth = 0

    def varies(self, expr: ir.Expr) -> bool:
        return varies(expr, self.varying)

    # --- decisions ---------------------------------------------------------------------------------------------------

    def block(self, block: ir.Block, scalar: str = "") -> ir.Block:
        """The converted block; `scalar` names an obstacle around it to vectorising the loop over the row."""
        scalar = scalar or self.obstacle(block)
        new: list[ir.Stmt] = []
        for stmt in block:
            if isinstance(stmt, ir.If):
                new += self.branch(stmt, scalar)
            elif isinstance(stmt, ir.For) and not scalar:
                new.append(replace(stmt, body=self.block(stmt.body)))
            else:
                self.stay(stmt, "inside a loop")
                new.append(stmt)
            self.seen.update(assigned((stmt,)))
        return tuple(new)

    def stay(self, stmt: ir.Stmt, reason: str) -> None:
        self.choices += [
            Choice(part.location, False, reason) for part in statements((stmt,)) if isinstance(part, ir.If)
        ]

    def obstacle(self, block: ir.Block) -> str:
        """An obstacle to vectorising a block, if there is one. A uniform branch is none: the loop can be split."""
        for stmt in block:
            match stmt:
                case ir.Assign(value=ir.Op(name=name)) if blocks_vectors(name):
                    return f"{name.partition('#')[0]} has no version for vectors"
                case ir.For() if not is_uniform_loop(stmt, self.varying):
                    return "there is a loop in the function"
                case ir.While(masked=False):
                    return "there is a loop in the function"
                case ir.If() if not self.varies(stmt.test):
                    continue
            for inner in blocks(stmt):
                if inside := self.obstacle(inner):
                    return inside
        return ""

    def branch(self, stmt: ir.If, scalar: str) -> list[ir.Stmt]:
        if not self.varies(stmt.test):
            self.choices.append(Choice(stmt.location, False, "does not change within a row"))
            seen = set(self.seen)
            then = self.block(stmt.then, scalar)
            self.seen = seen
            return [replace(stmt, then=then, orelse=self.block(stmt.orelse, scalar))]
        if scalar:
            self.stay(stmt, scalar)
            return [stmt]
        if not may_run_for_all(stmt):
            if self.depth < _DEEPEST:
                return self.skipping(stmt)
            self.stay(stmt, "too deep in others")
            return [stmt]
        mark, line, self.saved = self.names.mark(), list[ir.Stmt](), 0.0
        values = self.flatten(stmt, {}, line)
        if self.depth < _DEEPEST and skipping_saves(stmt, line, self.saved):
            self.names.reset(mark)
            return self.skipping(stmt)
        self.count(stmt)
        assign_together(values, self.names, line, stmt.location)
        return line

    def count(self, stmt: ir.If) -> int:
        """Record that both sides of a branch, and of inner branches, are computed; the number of their operations."""
        choice = len(self.choices)
        counts = [
            sum(self.count(part) if isinstance(part, ir.If) else len([*operations_of((part,))]) for part in side)
            for side in (stmt.then, stmt.orelse)
        ]
        reason = f"both sides computed: {counts[0]} + {counts[1]} operations"
        if once := self.fused.get(id(stmt)):
            reason += f"; {', '.join(dict.fromkeys(once))} once for both"
        self.choices.insert(choice, Choice(stmt.location, True, reason))
        return sum(counts)

    # --- conversion --------------------------------------------------------------------------------------------------

    def flatten(self, stmt: ir.If, outer: dict[str, ir.Atom], new: list[ir.Stmt]) -> dict[str, ir.Expr]:
        """Append the statements of both sides to `new`; the values of variables after the branch.

        `outer` maps names to the variables that hold their values inside of other flattened branches.
        """
        test = renamed(stmt.test, outer)
        assert isinstance(test, ir.Atom)
        lines: tuple[list[ir.Stmt], list[ir.Stmt]] = [], []
        then, orelse = self.line(stmt.then, outer, lines[0]), self.line(stmt.orelse, outer, lines[1])
        fused = fuse(test, lines, self.names)
        new += fused.line
        self.fused[id(stmt)] = fused.operations
        self.saved += fused.saved
        for at, (side, other) in enumerate(((then, orelse), (orelse, then))):
            side |= {name: fused.after(at, value) for name, value in side.items()}
            # What a side does not assign keeps the value from around the branch.
            side |= {name: outer[name] for name in other if name in outer and name not in side}
        return merged(test, then, orelse, self.seen, stmt.location)

    def line(self, block: ir.Block, outer: dict[str, ir.Atom], new: list[ir.Stmt]) -> dict[str, ir.Atom]:
        """Append the statements of a block without loops to `new`; the values after it of what it assigns.

        `outer` has the values of variables before it.
        """
        held, changed = dict(outer), dict[str, ir.Atom]()
        for part in block:
            if isinstance(part, ir.If):
                values = self.flatten(part, held, new)
            else:
                assert isinstance(part, ir.Assign)
                values = {part.target.name: renamed(part.value, held)}
            for name, value in values.items():
                held[name] = changed[name] = self.hold(name, value, part.location, new)
        return changed

    def skipping(self, stmt: ir.If) -> list[ir.Stmt]:
        """The branch as one or two without an `else`, which a vector runs if one of its elements takes it.

        A short side is computed before them, for all elements.
        """
        choice = len(self.choices)
        new: list[ir.Stmt] = []
        # The new values of variables that are read later: the other side may still read the old ones.
        inside = read_counts((stmt,))
        results = {
            name: ir.Var(self.names.fresh(ir.temporary(name)), target.kind)
            for name, target in targets((stmt,)).items()
            if self.reads[name] > inside[name]
        }
        # A path that does not assign a variable without an earlier value does not read it either.
        values: dict[str, ir.Atom] = {
            name: ir.Var(name, result.kind) if name in self.seen else zero(result.kind)
            for name, result in results.items()
        }
        otherwise = self.hold("", fold(ir.Op("not", (stmt.test,), "bool", stmt.location)), stmt.location, new)
        tests, sides = (stmt.test, otherwise), (stmt.then, stmt.orelse)
        short = min((at for at in (0, 1) if is_short(sides[at])), key=lambda at: cost_of_block(sides[at]), default=None)
        longer: list[ir.If] = []
        for at, (test, side) in enumerate(zip(tests, sides, strict=True)):
            if at == short:
                values |= {name: value for name, value in self.line(side, {}, new).items() if name in results}
            else:
                seen = set(self.seen)
                self.depth += 1
                body = self.block(self.hoist_uniform(side, new))
                self.depth -= 1
                self.seen = seen
                ends = [
                    ir.Assign(results[name], ir.Var(name, results[name].kind), stmt.location)
                    for name in among(results, body)
                ]
                longer.append(ir.If(test, (*body, *ends), (), stmt.location))
        new += [ir.Assign(results[name], value, stmt.location) for name, value in values.items()]
        new += longer
        new += [ir.Assign(ir.Var(name, result.kind), result, stmt.location) for name, result in results.items()]
        side_run = "each side runs" if short is None else "the longer side runs"
        reason = f"{side_run} for vectors with an element that takes it"
        self.choices.insert(choice, Choice(stmt.location, False, reason))
        return new

    def hoist_uniform(self, side: ir.Block, new: list[ir.Stmt]) -> ir.Block:
        """The side without its uniform operations, which are appended to `new`."""
        counts = Counter(assigned(side))
        held: dict[str, ir.Atom] = {}
        left: list[ir.Stmt] = []
        for part in side:
            if isinstance(part, ir.Assign) and isinstance(part.value, ir.Op) and is_speculatable(part.value):
                name, value = part.target.name, renamed(part.value, held)
                if counts[name] == 1 and not self.varies(value):
                    # No temporary, which would move back to where it is read.
                    own = ir.temporary(name).removeprefix(ir.TEMPORARY) or "uniform"
                    held[name] = hold(value, self.names, new, part.location, own)
                    part = replace(part, value=held[name])
            left.append(part)
        return tuple(left)

    def hold(self, name: str, value: ir.Expr, location: Location, new: list[ir.Stmt]) -> ir.Atom:
        return hold(value, self.names, new, location, ir.temporary(name))
