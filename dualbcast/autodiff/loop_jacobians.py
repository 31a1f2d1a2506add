"""Forward mode through loops, with the Jacobian of each straight line in an iteration from reverse mode.

Each direction then takes one product for each partial of that Jacobian, instead of one for each operation of the
iteration. Kernels spend most of their time in loops of many iterations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from dualbcast.autodiff.activity import all_sources, differentiable
from dualbcast.autodiff.eliminate import ReverseMode, operations_each_way
from dualbcast.autodiff.linearize import Direction, ForwardMode, unit_directions
from dualbcast.autodiff.operation_cost import cost_of_block
from dualbcast.errors import Location
from dualbcast.ir import nodes as ir
from dualbcast.ir.simplification import fold
from dualbcast.ir.traversal import (
    assigned,
    assignments,
    has_loops,
    jumps,
    read_counts,
    reads_and_writes,
    remove_dead,
    renamed,
    renamed_block,
    results,
    targets,
)


def is_shorter(function: ir.Function) -> bool:
    """Whether the tangents in all parameters take less work with loop Jacobians; it depends on the function alone."""
    seeds = [at for at, param in enumerate(function.params) if param.kind == "float"]
    if len(seeds) < 2 or not has_loops(function.body):
        return False
    directions = unit_directions(function.params, seeds)
    every, through = (
        cost_of_block(remove_dead(kind(function, directions, None).run().function).body)
        for kind in (ForwardMode, LoopJacobians)
    )
    # If both are about equally long, plain forward mode is easier to read.
    return through < 0.9 * every


class LoopJacobians(ForwardMode):
    """Forward mode in which each straight line of a loop has its Jacobian from reverse mode."""

    def __init__(self, function: ir.Function, directions: dict[int, Direction], names: ir.Names | None) -> None:
        super().__init__(function, directions, names)
        self.depth = 0
        ends = [leaf.name for leaf in results(function) if leaf.kind == "float"]
        assigns = [stmt for stmt in assignments(function.body) if stmt.target.kind == "float"]
        # The variables whose derivatives the outputs need.
        self.useful = all_sources(ends, assigns, differentiable)
        # How often the derivative of each variable is needed.
        self.flows = _flows(function.body, self.useful) + Counter(ends)
        self.reads = read_counts(function)

    def visit(self, block: ir.Block) -> ir.Block:
        new: list[ir.Stmt] = []
        for run in _runs(block):
            if self.depth and _is_straight(run[0]) and self.through(run, new):
                continue
            is_loop = isinstance(run[0], ir.For | ir.While)
            self.depth += is_loop
            new += super().visit(run)
            self.depth -= is_loop
        return tuple(new)

    def assign(self, stmt: ir.Assign) -> None:
        if stmt.target.name in self.useful:
            super().assign(stmt)
        else:  # Its operands may have no tangents.
            self.block.append(stmt)

    def through(self, run: ir.Block, output: list[ir.Stmt]) -> bool:
        """Append a straight line with its Jacobian and tangents; False where reverse mode is impossible."""
        before, always = reads_and_writes(run)
        if not always | before.keys() >= {*assigned(run)}:  # it assigns a variable on some paths, and may not read it
            return False
        inside = read_counts(run)
        needed = _flows(run, self.useful)
        once, last = _written_once(run, before, self.names)
        # The variables whose derivatives are needed outside of the straight line.
        exits = {
            name: var
            for name, var in last.items()
            if name in self.useful and self.directions(ir.Var(name, var.kind))
            if self.flows[name] > needed[name] or name in before
        }
        params = [var for var in before.values() if var.kind == "float" and self.directions(var)]
        mentioned = {*last, *inside}
        # In a branch the dependences are those of the path that was taken.
        unsure = any(isinstance(stmt, ir.If) for stmt in run) and mentioned & self.uncertain.keys()
        if not exits or unsure or mentioned & self.chain_partials.keys():
            return False
        outputs = tuple(ir.Output(name, var) for name, var in exits.items())
        part = ir.Function(self.function.name, tuple(params), tuple(once), outputs, self.function.location)
        if operations_each_way(part) is None:
            return False
        back = ReverseMode(part, unit_directions(params, range(len(params))), self.names)
        self.values |= back.values
        steps, ends = back.steps(), {var.name for var in exits.values()} - before.keys()
        cotangents = {var.name: back.back(var, steps, ends) for var in dict.fromkeys(exits.values())}
        output += back.block
        self.block = output
        computed = {stmt.target.name for stmt in _assigns(run, self.useful)}
        asking = {seed for target, _, seed in self.absent_terms.guarded if target in computed}
        # The results of the straight line, each after the results that it depends on.
        order = {step.result: at for at, step in enumerate(steps)}
        # Their tangents, and whether they depend on the direction, by their names in the straight line.
        new: dict[tuple[str, int], tuple[ir.Atom, ir.Atom]] = {}
        after: list[tuple[ir.Var, ir.Expr]] = []
        for name, var in sorted(exits.items(), key=lambda pair: order.get(pair[1].name, -1)):
            # A constant, and a variable that holds the earlier value of another one, have no step.
            where = steps[order[var.name]].where if var.name in order else self.function.location
            for seed in sorted(self.directions(ir.Var(name, "float"))):
                if (var.name, seed) not in new:  # two variables may have one value
                    sources = [
                        (partial, new.get((source, seed)) if source in ends else self._old(before.get(source), seed))
                        for source, partial in cotangents[var.name].items()
                    ]
                    new[var.name, seed] = self._combined(sources, seed in asking, where)
                targets = self.tangent(ir.Var(name, "float"), seed), self.flag(ir.Var(name, "float"), seed)
                pairs = zip(targets, new[var.name, seed], strict=True)
                after += [(target, value) for target, value in pairs if isinstance(target, ir.Var)]
        for name, var in last.items():
            if var.name != name and (self.reads[name] > inside[name] or name in before):
                # The earlier value of a variable is copied before the variable changes.
                value = self.held(var, self.function.location) if var.name in before else var
                after.append((ir.Var(name, var.kind), value))
        output += [ir.Assign(target, value) for target, value in after]
        return True

    def _old(self, source: ir.Var | None, seed: int) -> tuple[ir.Atom, ir.Atom] | None:
        """The earlier tangent of a variable, and whether it depends on the direction; None if it never does."""
        if source is None or seed not in self.directions(source):
            return None
        return self.tangent(source, seed), self.flag(source, seed)

    def _combined(
        self, sources: Sequence[tuple[ir.Atom, tuple[ir.Atom, ir.Atom] | None]], asks: bool, where: Location
    ) -> tuple[ir.Atom, ir.Atom]:
        """The sum of products of partials and tangents, and whether it depends on the direction.

        Absent tangents are left out if the sum `asks` their flags.
        """
        terms: list[ir.Expr] = []
        depends: ir.Expr = ir.FALSE
        for partial, source in sources:
            if source is None:
                continue
            tangent, flag = source
            term = fold(ir.Op("mul", (partial, tangent), "float", where))
            if flag != ir.TRUE and asks:
                term = self.zero_if_absent(flag, term, where)
            terms.append(term)
            depends = fold(ir.Op("or", (self.emit(depends, where), flag), "bool", where))
        return self.held(self.total(terms, where), where), self.held(depends, where)

    def held(self, value: ir.Expr, where: Location) -> ir.Atom:
        """The value in a variable of its own, since its operands will change."""
        if isinstance(value, ir.Const):
            return value
        target = ir.Var(self.names.fresh(ir.TEMPORARY), value.kind)
        self.block.append(ir.Assign(target, value, where))
        return target


def _runs(block: ir.Block) -> Iterator[ir.Block]:
    """The statements of a block; those of a straight line are one group."""
    for is_straight, group in groupby(block, _is_straight):
        run = tuple(group)
        yield from [run] if is_straight else [(stmt,) for stmt in run]


def _is_straight(stmt: ir.Stmt) -> bool:
    return not jumps(stmt) and not has_loops((stmt,))


def _flows(block: ir.Block, useful: Container[str]) -> Counter[str]:
    """How often the statements of a block need the derivative of each variable."""
    return Counter(source.name for stmt in _assigns(block, useful) for source in differentiable(stmt.value))


def _assigns(block: ir.Block, names: Container[str]) -> list[ir.Assign]:
    """The assignments of a block to floats of these names."""
    return [stmt for stmt in assignments(block) if stmt.target.name in names and stmt.target.kind == "float"]


def _written_once(
    run: ir.Block, before: Mapping[str, ir.Var], names: ir.Names
) -> tuple[list[ir.Stmt], dict[str, ir.Var]]:
    """A straight line in which each variable is assigned by one statement and not read before it; the final names."""
    times = Counter(name for stmt in run for name in set(assigned((stmt,))))
    now: dict[str, ir.Var] = {}
    new_run: list[ir.Stmt] = []

    def named(target: ir.Var) -> ir.Var:
        if times[target.name] == 1 and target.name not in before:
            return target
        return ir.Var(names.fresh(target.name), target.kind)

    for stmt in run:
        old = dict(now)
        if isinstance(stmt, ir.Assign):
            value = renamed(stmt.value, old)
            if isinstance(value, ir.Var):
                now[stmt.target.name] = value
                continue
            target = now[stmt.target.name] = named(stmt.target)
            new_run.append(replace(stmt, target=target, value=value))
            continue
        assert isinstance(stmt, ir.If)
        inside = targets((stmt,))
        new = {name: named(target) for name, target in inside.items()}
        # Before either side it has its earlier value.
        copies = [
            ir.Assign(var, old.get(name, inside[name]), stmt.location)
            for name, var in new.items()
            if var != inside[name] and (name in old or name in before)
        ]
        now |= new
        sides = [(*copies, *renamed_block(side, now)) for side in (stmt.then, stmt.orelse)]
        test = renamed(stmt.test, old)
        new_run.append(replace(stmt, test=test, then=sides[0], orelse=sides[1]))
    return new_run, now
