"""The readable form of IR: loads where a path first needs them, no copies, nested expressions in place of temporaries,
and readable names.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from functools import partial
from itertools import takewhile

from dualbcast.errors import Location
from dualbcast.ir import nodes as ir
from dualbcast.ir.traversal import (
    assigned,
    blocks,
    expressions,
    has_loops,
    jumps,
    map_blocks,
    read_counts,
    remove_dead,
    renamed,
    renamed_block,
    renamed_function,
    results,
    targets,
    variables,
)

# The separator of a parameter's name and the number of its load, until variables get readable names.
LOAD_MARK = "@"


def place_loads(function: ir.Function) -> ir.Function:
    """The function with a load of each parameter where it is first needed, on the paths that need it and on no others.

    It is given simplified operations on atoms.

    Before::

        function f(x: float, y: float)
            a: bool = lt(x, 0.0)
            if a:
                s: float = mul(x, y)
            else:
                s: float = 0.0
            output out = s

    After::

        function f(x: float, y: float)
            x@0: float = load(x)
            a: bool = lt(x@0, 0.0)
            if a:
                y@0: float = load(y)
                s: float = mul(x@0, y@0)
            else:
                s: float = 0.0
            output out = s
    """
    params = {param.name: param for param in function.params}
    places = {name: itertools.count() for name in params}
    body = _place(function.body, params, {leaf.name for leaf in results(function)}, places)
    loaded = {name: ir.Var(f"{name}{LOAD_MARK}0", param.kind) for name, param in params.items()}
    outputs = [replace(output, value=renamed(output.value, loaded)) for output in function.outputs]
    return replace(function, body=body, outputs=tuple(outputs))


def _place(
    block: ir.Block, params: Mapping[str, ir.Var], later: Set[str], places: Mapping[str, Iterator[int]]
) -> ir.Block:
    """The block with the loads of these parameters; the names in `later` are read after it."""
    using: dict[str, list[int]] = defaultdict(list)
    for position, stmt in enumerate(block):
        for name in read_counts((stmt,)).keys() & params.keys():
            using[name].append(position)
    for name in later & params.keys():
        using[name].append(len(block))
    loads: dict[int, list[ir.Assign]] = defaultdict(list)
    within: dict[int, dict[str, ir.Var]] = defaultdict(dict)
    loaded: dict[str, ir.Var] = {}
    for name in [name for name in params if name in using]:
        first, param = using[name][0], params[name]
        user = block[first] if first < len(block) else None
        if isinstance(user, ir.If) and user.test != param and len(using[name]) == 1:
            within[first][name] = param
        else:
            loaded[name] = ir.Var(f"{name}{LOAD_MARK}{next(places[name])}", param.kind)
            loads[first].append(ir.Assign(loaded[name], ir.Load(name, param.kind)))

    new: list[ir.Stmt] = []
    for position, part in enumerate(renamed_block(block, loaded) if loaded else block):
        new += loads[position]
        if position in within:
            part = map_blocks(part, partial(_place, params=within[position], later=set(), places=places))
        new.append(part)
    return (*new, *loads[len(block)])


# The length of the longest text, in the IR, of an expression that is nested into another one.
LONGEST_NESTED = 70


def coalesce_copies(function: ir.Function) -> ir.Function:
    """The function without copies `m = v` at the ends of branches: the value of `v` is assigned to `m` instead.

    Before::

        function f(x: float)
            a: bool = lt(x, 0.0)
            if a:
                %#1: float = neg(x)
                %y: float = %#1
            else:
                %y: float = 1.0
            output out = %y

    After::

        function f(x: float)
            a: bool = lt(x, 0.0)
            if a:
                %y: float = neg(x)
            else:
                %y: float = 1.0
            output out = %y
    """
    return _Coalescing(function).run()


class _Coalescing:
    """Statements have positions in the order of the text, so that all is found in one walk."""

    def __init__(self, function: ir.Function) -> None:
        self.function = function
        self.counts = read_counts(function), Counter(assigned(function.body))
        # The positions at which each name is read and assigned, and those of the copies of each target and value.
        self.reads: dict[str, list[int]] = defaultdict(list)
        self.writes: dict[str, list[int]] = defaultdict(list)
        self.copies: dict[tuple[str, str], set[int]] = defaultdict(set)
        # The positions of the statements of each block with a jump out of the iteration around it.
        self.jumping: list[list[int]] = []
        # The new name of each merged value, and the location of its copy.
        self.names: dict[str, ir.Expr] = {}
        self.places: dict[str, Location] = {}

    def run(self) -> ir.Function:
        self.visit(self.function.body, 0)
        for value, target in reversed(self.names.items()):
            self.names[value] = renamed(target, self.names)
        body = self.located(self.function.body)
        return remove_dead(renamed_function(replace(self.function, body=body), self.names))

    def located(self, block: ir.Block) -> ir.Block:
        """The block in which merged values without a location, such as loads, have that of the copy."""
        new: list[ir.Stmt] = []
        for stmt in block:
            if isinstance(stmt, ir.Assign) and stmt.location == ir.NOWHERE:
                stmt = replace(stmt, location=self.places.get(stmt.target.name, ir.NOWHERE))
            new.append(map_blocks(stmt, self.located))
        return tuple(new)

    def visit(self, block: ir.Block, position: int) -> int:
        """Merge the copies in a block, which begins at this position; the position after it."""
        places = []
        for stmt in block:
            places.append(position)
            for leaf in (leaf for expr in expressions(stmt) for leaf in variables(expr)):
                self.reads[leaf.name].append(position)
            if isinstance(stmt, ir.Assign | ir.For):
                self.writes[stmt.target.name].append(position)
            if isinstance(stmt, ir.Assign) and isinstance(stmt.value, ir.Var):
                self.copies[stmt.target.name, stmt.value.name].add(position)
            position += 1
            outside = len(self.jumping)
            for inner in blocks(stmt):
                position = self.visit(inner, position)
            if isinstance(stmt, ir.For | ir.While):
                del self.jumping[outside:]
        is_jump = bool(block) and isinstance(block[-1], ir.Break | ir.Continue)
        if is_jump:
            self.jumping.append(places)
        for stmt in takewhile(lambda stmt: isinstance(stmt, ir.Assign), block[-1 - is_jump :: -1]):
            if isinstance(stmt, ir.Assign) and isinstance(stmt.value, ir.Var) and self.may_merge(stmt, block, places):
                self.merge(stmt.target, stmt.value.name)
                self.places[stmt.value.name] = stmt.location
        return position

    def may_merge(self, copy: ir.Assign, block: ir.Block, places: list[int]) -> bool:
        """Whether a value that a block copies at its end may have the target's name from the beginning."""
        assert isinstance(copy.value, ir.Var)
        target, value = copy.target.name, copy.value.name
        reads, writes, copied = self.reads[value], self.writes[value], self.copies[target, value]
        # Everything that mentions the value is in the block, and the first statement that does is its only definition.
        is_local = writes and (len(reads), len(writes)) == tuple(counts[value] for counts in self.counts)
        if not is_local or min(writes[0], reads[0]) < places[0] or self.names.keys() & {target, value}:
            return False
        at = bisect_right(places, writes[0]) - 1
        definition = block[at]
        if not isinstance(definition, ir.Assign | ir.If) or reads[0] < places[at] or writes[-1] >= places[at + 1]:
            return False
        # Other expressions read it under its own name, which says more than that of an output.
        if target.startswith(ir.TEMPORARY) and not copied.issuperset(reads):
            return False
        start = places[at] + isinstance(definition, ir.Assign)
        if any(use >= start and use not in copied for use in (*self.reads[target], *self.writes[target])):
            return False
        return not any(inner[0] >= start and copied.isdisjoint(inner) for inner in self.jumping)

    def merge(self, target: ir.Var, value: str) -> None:
        self.names[value] = target
        copied = self.copies.pop((target.name, value))
        for uses, total in zip((self.reads, self.writes), self.counts, strict=True):
            both = sorted([*uses[target.name], *uses[value]])
            uses[target.name] = [use for use in both if use not in copied]
            total[target.name] += total[value] - len(copied)


def nest_expressions(function: ir.Function) -> ir.Function:
    """The function with each temporary that is read once at the place where it is read; none moves into a loop.

    Before::

        function f(x: float, y: float)
            %: float = mul(x, y)
            %#1: float = sin(%)
            s: float = add(%#1, x)
            output out = s

    After::

        function f(x: float, y: float)
            s: float = add(sin(mul(x, y)), x)
            output out = s
    """
    return _Nesting(function).run()


class _Nesting:
    def __init__(self, function: ir.Function) -> None:
        self.function = function
        self.counts = read_counts(function)
        self.once = {name for name, count in Counter(assigned(function.body)).items() if count == 1}
        # Names that never change once they have a value.
        self.settled = self.once - {param.name for param in function.params}
        # The assignments that move to where they are read, and the names that their values read.
        self.pending: dict[str, tuple[ir.Assign, set[str]]] = {}

    def run(self) -> ir.Function:
        new = self.block(self.function.body, last=False)
        outputs = tuple(ir.Output(output.name, self.expression(output.value)[0]) for output in self.function.outputs)
        new += self.flush(set(self.pending))
        return replace(self.function, body=tuple(new), outputs=outputs)

    def expression(self, expr: ir.Expr) -> tuple[ir.Expr, set[str]]:
        """The expression with the pending values that it reads, and the names that it reads then."""
        reads = {leaf.name for leaf in variables(expr)}
        held = {name: self.pending.pop(name) for name in reads & self.pending.keys()}
        if not held:
            return expr, reads
        nested = renamed(expr, {name: stmt.value for name, (stmt, _) in held.items()})
        return nested, reads.difference(held).union(*(within for _, within in held.values()))

    def movable(self, stmt: ir.Assign) -> bool:
        name = stmt.target.name
        temporary = name.startswith(ir.TEMPORARY) or isinstance(stmt.value, ir.Load)
        return (
            temporary
            and name in self.once
            and self.counts[name] == 1
            and len(ir.format_expr(stmt.value)) <= LONGEST_NESTED
        )

    def flush(self, names: Set[str]) -> list[ir.Stmt]:
        """The pending assignments to these names."""
        return [self.pending.pop(name)[0] for name in list(self.pending) if name in names]

    def touched(self, changed: Set[str]) -> set[str]:
        """The pending names whose values read one of the names that a statement assigns."""
        changed = changed - self.settled
        return {name for name, (_, reads) in self.pending.items() if not reads.isdisjoint(changed)}

    def block(self, block: ir.Block, *, last: bool = True) -> list[ir.Stmt]:
        outer = set(self.pending)
        new: list[ir.Stmt] = []
        for position, stmt in enumerate(block):
            match stmt:
                case ir.Assign():
                    value, reads = self.expression(stmt.value)
                    stmt = ir.Assign(stmt.target, value, stmt.location)
                    new += self.flush(self.touched({stmt.target.name}))
                    if self.movable(stmt):
                        self.pending[stmt.target.name] = stmt, reads
                    else:
                        new.append(stmt)
                case ir.If():
                    test = self.expression(stmt.test)[0]
                    # A loop in the branch would write out pending assignments there.
                    inside = set(assigned((stmt,)))
                    new += self.flush(self.pending.keys() if has_loops((stmt,)) else self.touched(inside))
                    if jumps(stmt):
                        # A jump skips the end of this block, where the others would be written out.
                        new += self.flush(self.pending.keys() - outer - read_counts(block[position:]).keys())
                    then, orelse = self.block(stmt.then), self.block(stmt.orelse)
                    new.append(replace(stmt, test=test, then=tuple(then), orelse=tuple(orelse)))
                case ir.While():
                    new += self.flush(self.pending.keys())
                    pre = self.block(stmt.pre, last=False)
                    test = self.expression(stmt.test)[0]
                    pre += self.flush(self.pending.keys())
                    new.append(replace(stmt, pre=tuple(pre), test=test, body=tuple(self.block(stmt.body))))
                case ir.For():
                    start, stop, step = (self.expression(bound)[0] for bound in (stmt.start, stmt.stop, stmt.step))
                    new += self.flush(self.pending.keys())
                    new.append(replace(stmt, start=start, stop=stop, step=step, body=tuple(self.block(stmt.body))))
                case ir.Break() | ir.Continue():
                    new += self.flush(self.pending.keys() - outer)
                    new.append(stmt)
        if last:
            new += self.flush(self.pending.keys() - outer)
        return new


def name_variables(function: ir.Function, names: ir.Names, *, loads: bool = True) -> ir.Function:
    """The function with readable names: `x_k` for the element of `x`, `t`, `t_1`, … for temporaries.

    `names` are those of the text around the function. With `loads` its parameters are arrays, as in the element
    function, and else numbers, as in a helper function.

    Before (loads=True)::

        function f(x: float)
            x@0: float = load(x)
            %: float = mul(x@0, x@0)
            %#1: float = add(%, x@0)
            output out = %
            output out_dx = %#1

    After::

        function f(x: float)
            x_k: float = load(x)
            out_k: float = mul(x_k, x_k)
            out_dx_k: float = add(out_k, x_k)
            output out = out_k
            output out_dx = out_dx_k
    """
    stored = {
        output.value.name: output.name
        for output in function.outputs
        if isinstance(output.value, ir.Var) and output.value.name.startswith(ir.TEMPORARY)
    }
    mapping: dict[str, ir.Var] = {}
    # The names of the elements of parameters, which may have several loads.
    elements: dict[str, str] = {}
    scalars = {} if loads else {param.name: param for param in function.params}
    for name, var in (scalars | targets(function.body)).items():
        if LOAD_MARK in name:
            param = name.partition(LOAD_MARK)[0]
            if param not in elements:
                elements[param] = names.fresh(f"{param}_k")
            readable = elements[param]
        elif name in stored:
            readable = names.fresh(f"{stored[name]}_k")
        elif name.startswith(ir.TEMPORARY):
            readable = names.fresh(re.sub(r"#\d+", "", name).removeprefix(ir.TEMPORARY) or "t")
        else:
            readable = names.fresh(name)
        mapping[name] = ir.Var(readable, var.kind)
    params = function.params if loads else tuple(mapping[param.name] for param in function.params)
    return replace(renamed_function(function, mapping), params=params)
