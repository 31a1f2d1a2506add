"""The readable form of IR: loads where a path first needs them, no copies, nested expressions in place of temporaries,
and readable names.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace

from dualbcast.ir.nodes import (
    NOWHERE,
    TEMPORARY,
    Assign,
    Block,
    Break,
    Continue,
    Expr,
    For,
    Function,
    If,
    Load,
    Names,
    Output,
    Stmt,
    Var,
    While,
    format_expr,
)
from dualbcast.ir.traversal import (
    assigned,
    counts_by_statement,
    has_loops,
    jumping_blocks,
    map_blocks,
    read_counts,
    renamed,
    renamed_block,
    renamed_function,
    results,
    statements,
    targets,
    use_counts,
    variables,
)

# The separator of a parameter's name and the number of its load, until variables get readable names.
LOAD_MARK = "@"


def place_loads(function: Function) -> Function:
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
    loaded = {name: Var(f"{name}{LOAD_MARK}0", param.kind) for name, param in params.items()}
    outputs = [replace(output, value=renamed(output.value, loaded)) for output in function.outputs]
    return replace(function, body=body, outputs=tuple(outputs))


def _place(block: Block, params: Mapping[str, Var], later: Set[str], places: Mapping[str, Iterator[int]]) -> Block:
    """The block with the loads of these parameters; the names in `later` are read after it."""
    using: dict[str, list[int]] = {name: [] for name in params}
    for position, (reads, _) in enumerate(counts_by_statement(block)):
        for name in reads.keys() & params.keys():
            using[name].append(position)
    loads: dict[int, list[Assign]] = {}
    within: dict[int, dict[str, Var]] = {}
    loaded: dict[str, Var] = {}
    for name, param in params.items():
        if not using[name] and name not in later:
            continue
        first = using[name][0] if using[name] else len(block)
        user = block[first] if using[name] else None
        if isinstance(user, If) and user.test != param and len(using[name]) == 1 and name not in later:
            within.setdefault(first, {})[name] = param
        else:
            loaded[name] = Var(f"{name}{LOAD_MARK}{next(places[name])}", param.kind)
            loads.setdefault(first, []).append(Assign(loaded[name], Load(name, param.kind)))

    new: list[Stmt] = []
    for position, part in enumerate(renamed_block(block, loaded) if loaded else block):
        new += loads.get(position, ())
        if isinstance(part, If) and position in within:
            then, orelse = (_place(side, within[position], set(), places) for side in (part.then, part.orelse))
            part = If(part.test, then, orelse, part.location)
        new.append(part)
    return (*new, *loads.get(len(block), ()))


# The length of the longest text, in the IR, of an expression that is nested into another one.
LONGEST_NESTED = 70


# --- copies at the ends of branches ----------------------------------------------------------------------------------


def coalesce_copies(function: Function) -> Function:
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
    reads = use_counts(function)
    writes = Counter(assigned(function.body))

    def visit(block: Block) -> Block:
        block = tuple([map_blocks(stmt, visit) for stmt in block])
        for stmt in reversed(block):
            if isinstance(stmt, Break | Continue):
                continue
            if not isinstance(stmt, Assign):
                break
            if isinstance(stmt.value, Var) and stmt in block:  # an earlier merge may have renamed it
                block = _merge_copy(block, stmt, stmt.value, reads, writes)
        return block

    return replace(function, body=visit(function.body))


def _merge_copy(block: Block, copy: Assign, value: Var, reads: Counter[str], writes: Counter[str]) -> Block:
    """The block with `value` renamed to the copy's target, where that changes nothing."""
    target, uses = copy.target, counts_by_statement(block)
    first = next((position for position, (_, names) in enumerate(uses) if value.name in names), None)
    read = sum(names[value.name] for names, _ in uses)
    # All statements with `value` are here, and the first is its only definition.
    if (
        first is None
        or not isinstance(block[first], Assign | If)
        or uses[first][1][value.name] != writes[value.name]
        or read != reads[value.name]
        or any(value.name in names for names, _ in uses[:first])
    ):
        return block
    if target.name.startswith(TEMPORARY) and read != sum(_is_copy(stmt, target, value) for stmt in block):
        return block  # Other expressions read it under its own name, which says more than that of an output.
    if _uses_target(block[first:], uses[first:], target, value):
        return block

    def visit(inner: Block) -> Block:
        kept: list[Stmt] = []
        for stmt in inner:
            if _is_copy(stmt, target, target):
                reads[target.name] -= 1
                writes[target.name] -= 1
                continue
            if isinstance(stmt, Assign) and stmt.target == target and stmt.location == NOWHERE:
                stmt = replace(stmt, location=copy.location)
            kept.append(stmt)
        return tuple([map_blocks(stmt, visit) for stmt in kept])

    merged = (*block[:first], *visit(renamed_block(block[first:], {value.name: target})))
    reads[target.name] += reads.pop(value.name)
    writes[target.name] += writes.pop(value.name)
    return merged


def _uses_target(block: Block, uses: Sequence[tuple[Counter[str], Counter[str]]], target: Var, value: Var) -> bool:
    """Whether the target may have another value than `value` in a block that begins with the definition of that one."""
    start, rest = block[0], block[1:]
    is_branch = isinstance(start, If)
    if any(target.name in reads for reads, _ in (uses if is_branch else uses[1:])):
        return True
    if is_branch and (target.name in uses[0][1] or jumping_blocks(start)):
        return True
    copies = [stmt for stmt in statements(rest) if _is_copy(stmt, target, value)]
    if sum(writes[target.name] for _, writes in uses[1:]) != len(copies):
        return True
    jumping = [inner for stmt in rest if isinstance(stmt, If) for inner in jumping_blocks(stmt)]
    return not all(any(_is_copy(stmt, target, value) for stmt in inner) for inner in jumping)


def _is_copy(stmt: Stmt, target: Var, value: Var) -> bool:
    return isinstance(stmt, Assign) and stmt.target == target and stmt.value == value


# --- nesting ---------------------------------------------------------------------------------------------------------


def nest_expressions(function: Function) -> Function:
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
    def __init__(self, function: Function) -> None:
        self.function = function
        self.counts = use_counts(function)
        self.once = {name for name, count in Counter(assigned(function.body)).items() if count == 1}
        # Names that never change once they have a value.
        self.settled = self.once - {param.name for param in function.params}
        # The assignments that move to where they are read, and the names that their values read.
        self.pending: dict[str, tuple[Assign, set[str]]] = {}

    def run(self) -> Function:
        new = self.block(self.function.body, last=False)
        outputs = tuple(Output(output.name, self.expression(output.value)[0]) for output in self.function.outputs)
        new += self.flush(set(self.pending))
        return replace(self.function, body=tuple(new), outputs=outputs)

    def expression(self, expr: Expr) -> tuple[Expr, set[str]]:
        """The expression with the pending values that it reads, and the names that it reads then."""
        reads = {leaf.name for leaf in variables(expr)}
        held = {name: self.pending.pop(name) for name in reads & self.pending.keys()}
        if not held:
            return expr, reads
        nested = renamed(expr, {name: stmt.value for name, (stmt, _) in held.items()})
        return nested, reads.difference(held).union(*(within for _, within in held.values()))

    def movable(self, stmt: Assign) -> bool:
        name = stmt.target.name
        temporary = name.startswith(TEMPORARY) or isinstance(stmt.value, Load)
        return (
            temporary
            and name in self.once
            and self.counts[name] == 1
            and len(format_expr(stmt.value)) <= LONGEST_NESTED
        )

    def flush(self, names: Set[str]) -> list[Stmt]:
        """The pending assignments to these names."""
        return [self.pending.pop(name)[0] for name in list(self.pending) if name in names]

    def touched(self, changed: Set[str]) -> set[str]:
        """The pending names whose values read one of the names that a statement assigns."""
        changed = changed - self.settled
        return {name for name, (_, reads) in self.pending.items() if not reads.isdisjoint(changed)}

    def block(self, block: Block, *, last: bool = True) -> list[Stmt]:
        outer = set(self.pending)
        new: list[Stmt] = []
        for position, stmt in enumerate(block):
            match stmt:
                case Assign():
                    value, reads = self.expression(stmt.value)
                    stmt = Assign(stmt.target, value, stmt.location)
                    new += self.flush(self.touched({stmt.target.name}))
                    if self.movable(stmt):
                        self.pending[stmt.target.name] = stmt, reads
                    else:
                        new.append(stmt)
                case If():
                    test = self.expression(stmt.test)[0]
                    # A loop in the branch would write out pending assignments there.
                    inside = set(assigned((stmt,)))
                    new += self.flush(self.pending.keys() if has_loops((stmt,)) else self.touched(inside))
                    if jumping_blocks(stmt):
                        # A jump skips the end of this block, where the others would be written out.
                        new += self.flush(self.pending.keys() - outer - read_counts(block[position:]).keys())
                    then, orelse = self.block(stmt.then), self.block(stmt.orelse)
                    new.append(replace(stmt, test=test, then=tuple(then), orelse=tuple(orelse)))
                case While():
                    new += self.flush(self.pending.keys())
                    pre = self.block(stmt.pre, last=False)
                    test = self.expression(stmt.test)[0]
                    pre += self.flush(self.pending.keys())
                    new.append(replace(stmt, pre=tuple(pre), test=test, body=tuple(self.block(stmt.body))))
                case For():
                    start, stop, step = (self.expression(bound)[0] for bound in (stmt.start, stmt.stop, stmt.step))
                    new += self.flush(self.pending.keys())
                    new.append(replace(stmt, start=start, stop=stop, step=step, body=tuple(self.block(stmt.body))))
                case Break() | Continue():
                    new += self.flush(self.pending.keys() - outer)
                    new.append(stmt)
        if last:
            new += self.flush(self.pending.keys() - outer)
        return new


# --- names -----------------------------------------------------------------------------------------------------------


def name_variables(function: Function, names: Names, *, loads: bool = True) -> Function:
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
        if isinstance(output.value, Var) and output.value.name.startswith(TEMPORARY)
    }
    mapping: dict[str, Var] = {}
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
        elif name.startswith(TEMPORARY):
            readable = names.fresh(re.sub(r"#\d+", "", name).removeprefix(TEMPORARY) or "t")
        else:
            readable = names.fresh(name)
        mapping[name] = Var(readable, var.kind)
    params = function.params if loads else tuple(mapping[param.name] for param in function.params)
    return replace(renamed_function(function, mapping), params=params)
