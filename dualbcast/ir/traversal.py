"""Traversals of a program: its statements, expressions and names, maps over them, new statements, live variables, and
the removal of statements that no output needs.

A map returns the same object where nothing changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace
from operator import is_

from dualbcast.errors import Location
from dualbcast.ir import nodes as ir


def blocks(stmt: ir.Stmt) -> tuple[ir.Block, ...]:
    """The blocks inside a statement, in the order they are written."""
    match stmt:
        case ir.If():
            return (stmt.then, stmt.orelse)
        case ir.While():
            return (stmt.pre, stmt.body)
        case ir.For():
            return (stmt.body,)
        case _:
            return ()


def statements(block: ir.Block, *, in_loops: bool = True) -> list[ir.Stmt]:
    """Every statement of a block, outer ones before those inside them; those inside of loops only if asked for."""
    # Without recursion: a chain of `elif` may be deep. The last iterator is that of the innermost block.
    every: list[ir.Stmt] = []
    pending = [iter(block)]
    while pending:
        for stmt in pending[-1]:
            every.append(stmt)
            if not isinstance(stmt, ir.Assign) and (in_loops or isinstance(stmt, ir.If)):
                pending.extend(map(iter, reversed(blocks(stmt))))
                break
        else:
            pending.pop()
    return every


def jumps(stmt: ir.Stmt) -> bool:
    """Whether a statement leaves the loop around it, or starts its next iteration, on some path."""
    return any(isinstance(part, ir.Break | ir.Continue) for part in statements((stmt,), in_loops=False))


def breaks(body: ir.Block) -> bool:
    """Whether a block leaves the loop around it on some path."""
    return any(isinstance(stmt, ir.Break) for stmt in statements(body, in_loops=False))


def expressions(stmt: ir.Stmt) -> tuple[ir.Expr, ...]:
    """The expressions a statement evaluates itself, not those of its blocks."""
    match stmt:
        case ir.Assign():
            return (stmt.value,)
        case ir.If() | ir.While():
            return (stmt.test,)
        case ir.For():
            return (stmt.start, stmt.stop, stmt.step)
        case ir.Note():
            return stmt.values
        case _:
            return ()


def atoms(expr: ir.Expr) -> list[ir.Expr]:
    """The leaves of an expression."""
    if not isinstance(expr, ir.Op):
        return [expr]
    leaves: list[ir.Expr] = []
    for arg in expr.args:
        if isinstance(arg, ir.Op):
            leaves += atoms(arg)
        else:
            leaves.append(arg)
    return leaves


def variables(expr: ir.Expr) -> list[ir.Var]:
    """The variables in an expression, with repetitions."""
    return [leaf for leaf in atoms(expr) if isinstance(leaf, ir.Var)]


def assignments(block: ir.Block) -> list[ir.Assign]:
    """The assignments of a block, those in inner blocks too."""
    return [stmt for stmt in statements(block) if isinstance(stmt, ir.Assign)]


def assigned(block: ir.Block) -> list[str]:
    """The names a block assigns, with repetitions."""
    return [stmt.target.name for stmt in statements(block) if isinstance(stmt, ir.Assign | ir.For)]


def targets(block: ir.Block) -> dict[str, ir.Var]:
    """The variables that a block assigns, by name."""
    return {stmt.target.name: stmt.target for stmt in statements(block) if isinstance(stmt, ir.Assign | ir.For)}


def has_loops(block: ir.Block) -> bool:
    """Whether there is a loop in a block."""
    return any(isinstance(stmt, ir.For | ir.While) for stmt in statements(block))


def known_iterations(loop: ir.For) -> int | None:
    """The number of iterations of a loop with constant bounds; None for another loop."""
    match loop:
        case ir.For(start=ir.Const(value=start), stop=ir.Const(value=stop), step=ir.Const(value=step)) if step != 0:
            return max(0, -((int(start) - int(stop)) // int(step)))
    return None


def iterations_of(loop: ir.For | ir.While) -> int:
    """The number of iterations of a loop with constant bounds; eight for another loop."""
    known = known_iterations(loop) if isinstance(loop, ir.For) else None
    return 8 if known is None else known


def among(names: Container[str], block: ir.Block) -> tuple[str, ...]:
    """The names that a block assigns and that are in `names`, each once."""
    return tuple([name for name in dict.fromkeys(assigned(block)) if name in names])


def assigned_always(block: Iterable[ir.Stmt]) -> set[str]:
    """The names that a block assigns on every path through it; a loop may have no iteration."""
    return reads_and_writes(block)[1]


def floats(function: ir.Function) -> tuple[int, ...]:
    """The positions of the outputs that are floats: only they have derivatives and cotangents."""
    return tuple(at for at, output in enumerate(function.outputs) if output.value.kind == "float")


def map_expr(expr: ir.Expr, change: Callable[[ir.Expr], ir.Expr]) -> ir.Expr:
    """The expression with `change` applied to each leaf; the same object where that changes nothing."""
    if not isinstance(expr, ir.Op):
        return change(expr)
    args = tuple([map_expr(arg, change) for arg in expr.args])
    if all(map(is_, args, expr.args)):
        return expr
    return ir.Op(expr.name, args, expr.kind, expr.location)


def renamed(expr: ir.Expr, by: Mapping[str, ir.Expr]) -> ir.Expr:
    """The expression with the expressions of `by` in place of the variables of these names."""

    def change(leaf: ir.Expr) -> ir.Expr:
        match leaf:
            case ir.Var():
                return by.get(leaf.name, leaf)
            case ir.Array() if leaf.name in by:
                array = by[leaf.name]
                assert isinstance(array, ir.Var)
                return ir.Array(array.name, leaf.kind)
        return leaf

    return map_expr(expr, change)


def renamed_block(block: ir.Block, by: Mapping[str, ir.Expr]) -> ir.Block:
    """The block with the expressions of `by` in place of the variables of these names; a variable also as a target."""
    new: list[ir.Stmt] = []
    for stmt in block:
        stmt = map_exprs(stmt, lambda expr: renamed(expr, by), lambda inner: renamed_block(inner, by))
        if isinstance(stmt, ir.Assign | ir.For):
            target = by.get(stmt.target.name, stmt.target)
            assert isinstance(target, ir.Var)
            if target is not stmt.target:
                stmt = replace(stmt, target=target)
        new.append(stmt)
    return tuple(new)


def renamed_function(function: ir.Function, by: Mapping[str, ir.Expr]) -> ir.Function:
    """The function with its variables renamed, those in outputs too; the parameters keep their names."""
    outputs = tuple([replace(output, value=renamed(output.value, by)) for output in function.outputs])
    return replace(function, body=renamed_block(function.body, by), outputs=outputs)


def map_function(function: ir.Function, change: Callable[[ir.Expr], ir.Expr]) -> ir.Function:
    """The function with `change` applied to every expression of its statements and outputs."""

    def visit(block: ir.Block) -> ir.Block:
        return tuple([map_exprs(stmt, change, visit) for stmt in block])

    outputs = tuple([replace(output, value=change(output.value)) for output in function.outputs])
    return replace(function, body=visit(function.body), outputs=outputs)


def map_exprs(stmt: ir.Stmt, change: Callable[[ir.Expr], ir.Expr], inner: Callable[[ir.Block], ir.Block]) -> ir.Stmt:
    """The statement with `change` applied to its own expressions and `inner` to its blocks."""
    match stmt:
        case ir.Assign():
            value = change(stmt.value)
            return stmt if value is stmt.value else ir.Assign(stmt.target, value, stmt.location)
        case ir.If():
            return ir.If(change(stmt.test), inner(stmt.then), inner(stmt.orelse), stmt.location)
        case ir.While():
            return ir.While(inner(stmt.pre), change(stmt.test), inner(stmt.body), stmt.location, stmt.masked)
        case ir.For():
            start, stop, step = change(stmt.start), change(stmt.stop), change(stmt.step)
            return ir.For(stmt.target, start, stop, step, inner(stmt.body), stmt.location)
        case ir.Note():
            return replace(stmt, values=tuple(map(change, stmt.values)))
        case _:
            return stmt


def map_blocks(stmt: ir.Stmt, inner: Callable[[ir.Block], ir.Block]) -> ir.Stmt:
    """The statement with `inner` applied to its blocks; an assignment is the same object."""
    return stmt if isinstance(stmt, ir.Assign) else map_exprs(stmt, lambda expr: expr, inner)


def falls_through(block: ir.Block) -> bool:
    """Whether a block's end can be reached."""
    if not block:
        return True
    match block[-1]:
        case ir.Break() | ir.Continue():
            return False
        case ir.If(then=then, orelse=orelse):
            return falls_through(then) or falls_through(orelse)
        case ir.While(test=test, body=body):
            return test != ir.TRUE or breaks(body)
        case _:
            return True


def all_expressions(part: ir.Function | ir.Block) -> list[ir.Expr]:
    """The expressions of all statements of a function or block, and those of a function's outputs."""
    if isinstance(part, ir.Function):
        return [*all_expressions(part.body), *(output.value for output in part.outputs)]
    return [expr for stmt in statements(part) for expr in expressions(stmt)]


def read_counts(part: ir.Function | ir.Block) -> Counter[str]:
    """How often each name is read in a function or block."""
    return Counter([leaf.name for expr in all_expressions(part) for leaf in variables(expr)])


def results(function: ir.Function) -> list[ir.Var]:
    """The variables that the outputs read."""
    return [leaf for output in function.outputs for leaf in variables(output.value)]


def operations_of(part: ir.Function | ir.Block) -> list[ir.Op]:
    """Every operation of a function or block in the order of its text, each before those in its arguments."""
    pending = all_expressions(part)[::-1]
    operations: list[ir.Op] = []
    while pending:
        expr = pending.pop()
        if isinstance(expr, ir.Op):
            operations.append(expr)
            pending.extend(reversed(expr.args))
    return operations


def whole_arrays(function: ir.Function) -> set[str]:
    """The parameters that are whole arrays of which a function reads elements."""
    operands = [op.args[0] for op in operations_of(function) if op.name == ir.READ]
    return {array.name for array in operands if isinstance(array, ir.Array)}


def work(block: ir.Block) -> int:
    """The operations on atoms in a block: those of both sides of a branch, and of all iterations of a loop."""
    total = 0
    for stmt in block:
        times = iterations_of(stmt) if isinstance(stmt, ir.For | ir.While) else 1
        total += sum(isinstance(expr, ir.Op) for expr in expressions(stmt)) + times * sum(map(work, blocks(stmt)))
    return total


def most_live(function: ir.Function) -> int:
    """About how many values wait to be read at a time, where statements run in their order."""

    def visit(block: ir.Block, live: set[str]) -> int:
        """The most values in a block; `live` has those after it, and gets those before it."""
        most = len(live)
        for stmt in reversed(block):
            inside = blocks(stmt)
            before: set[str] = set()
            for inner in inside:
                own = set(live)
                most = max(most, visit(inner, own))
                before |= own
            if isinstance(stmt, ir.If):
                live.clear()
            live |= before
            live -= {stmt.target.name} if isinstance(stmt, ir.Assign) else set()
            live |= {leaf.name for expr in expressions(stmt) for leaf in variables(expr)}
            most = max(most, len(live))
        return most

    return visit(function.body, {leaf.name for leaf in results(function)})


def free_names(function: ir.Function, taken: Iterable[str] = ()) -> ir.Names:
    """Names that neither the parameters nor the variables of a function have, nor any of those in `taken`."""
    return ir.Names([*taken, *(param.name for param in function.params), *assigned(function.body)])


def hold(
    value: ir.Expr, names: ir.Names, block: list[ir.Stmt], location: Location = ir.NOWHERE, base: str = ir.TEMPORARY
) -> ir.Atom:
    """The value as an atom; if it is none, its assignment to a variable with a fresh name is appended to a block."""
    if isinstance(value, ir.Atom):
        return value
    target = ir.Var(names.fresh(base), value.kind)
    block.append(ir.Assign(target, value, location))
    return target


def reads_and_writes(block: Iterable[ir.Stmt]) -> tuple[dict[str, ir.Var], set[str]]:
    """The variables that a block reads before it assigns them, and the names that it assigns on all paths."""
    reads: dict[str, ir.Var] = {}
    writes: set[str] = set()
    for stmt in block:
        read = {leaf.name: leaf for expr in expressions(stmt) for leaf in variables(expr)}
        always: set[str] = set()
        match stmt:
            case ir.Assign():
                always = {stmt.target.name}
            case ir.If():
                (then, on_then), (orelse, on_else) = reads_and_writes(stmt.then), reads_and_writes(stmt.orelse)
                read, always = read | then | orelse, on_then & on_else
            case ir.For():
                read |= _without(reads_and_writes(stmt.body)[0], {stmt.target.name})
            case ir.While():
                # The test reads what `pre` assigns.
                before, always = reads_and_writes(stmt.pre)
                read = before | _without(read | reads_and_writes(stmt.body)[0], always)
        reads |= _without(read, writes)
        writes |= always
    return reads, writes


def most_carried(function: ir.Function) -> int:
    """The largest number of floats that the iterations of one loop hand on to later ones."""
    loops = [(stmt,) for stmt in statements(function.body) if isinstance(stmt, ir.For | ir.While)]
    return max((len(_floats(targets(loop)) & _floats(reads_and_writes(loop)[0])) for loop in loops), default=0)


def _floats(variables: Mapping[str, ir.Var]) -> set[str]:
    return {name for name, var in variables.items() if var.kind == "float"}


def _without(read: dict[str, ir.Var], names: set[str]) -> dict[str, ir.Var]:
    return {name: var for name, var in read.items() if name not in names}


def remove_dead(function: ir.Function) -> ir.Function:
    """The function without the statements that no output needs; every loop is assumed to end."""
    live = {leaf.name for leaf in results(function)}
    return replace(function, body=_live(function.body, live, in_live_loop=False))


def _live(block: ir.Block, live: set[str], in_live_loop: bool) -> ir.Block:
    """The statements of a block that assign a name in `live`, or jump in such a loop; `live` gets what they read."""
    kept: list[ir.Stmt] = []  # the last one first
    for stmt in reversed(block):
        is_needed = False
        match stmt:
            case ir.Assign(target, value):
                is_copy_of_itself = isinstance(value, ir.Var) and value.name == target.name
                is_needed = target.name in live and not is_copy_of_itself
            case ir.Break() | ir.Continue():
                is_needed = in_live_loop
            case ir.If():
                then, orelse = (_live(side, live, in_live_loop) for side in (stmt.then, stmt.orelse))
                is_needed = bool(then or orelse)
                if orelse and not falls_through(then):
                    kept.extend(reversed(orelse))
                    orelse = ()
                stmt = ir.If(stmt.test, then, orelse, stmt.location)
            case ir.While() | ir.For():
                is_needed = not live.isdisjoint(assigned((stmt,)))
                if is_needed:
                    live.update([leaf.name for expr in expressions(stmt) for leaf in variables(expr)])
                    stmt = _live_loop(stmt, live)
        if is_needed:
            kept.append(stmt)
            live.update([leaf.name for expr in expressions(stmt) for leaf in variables(expr)])
    return tuple(reversed(kept))


def _live_loop(loop: ir.While | ir.For, live: set[str]) -> ir.Stmt:
    """A loop with the statements that need to stay, for what is read behind it or in a later iteration."""
    size = -1
    needed: ir.Stmt = loop
    while size != len(live):
        size = len(live)
        needed = map_blocks(loop, lambda inner: _live(inner, live, in_live_loop=True))
    return needed
