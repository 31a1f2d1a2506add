"""The work of a CUDA thread: several neighbouring elements, with several loads in flight.

The loads of these elements stand side by side, and so do their stores; the kernel's text has such a group as one
access, `load_4` or `store_4` (`codegen/statement_text.py`).

Compilers do not move a load across a branch: of two loads with a branch between them, one would wait for the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import replace
from functools import reduce

from dualbcast.ir.nodes import Assign, Block, Expr, Function, If, Load, Names, Op, Output, Stmt, Var
from dualbcast.ir.traversal import (
    all_expressions,
    assignments,
    atoms,
    expressions,
    has_loops,
    hold,
    map_expr,
    map_exprs,
    targets,
)
from dualbcast.kernel_spec import Layout, neighbour
from dualbcast.passes.shared_loads import ANY
from dualbcast.passes.vector_analysis import uniform_inputs, varies, varying_names


def gather_loads(function: Function, names: Names) -> Function:
    """The function in which the loads of each block are groups of assignments to variables.

    Loads in one side of a conditional expression stay there, and so do loads in loops. New variables take names that
    the kernel's text has not.

    Before::

        function f(x: float, y: float, z: float)
            a: bool = lt(load(x), 0.0)
            if a:
                s: float = 0.0
            else:
                s: float = load(y)
            output out = add(s, load(z))

    After::

        function f(x: float, y: float, z: float)
            x_k: float = load(x)
            z_k: float = load(z)
            a: bool = lt(x_k, 0.0)
            if a:
                s: float = 0.0
            else:
                y_k: float = load(y)
                s: float = y_k
            output out = add(s, z_k)

    """
    elements = _elements(function)

    def visit(block: Block, outputs: tuple[Output, ...] = ()) -> tuple[Block, tuple[Output, ...]]:
        # The loads of this block alone: other paths may not need the loads of the blocks in it.
        loads: list[Stmt] = []
        rest: list[Stmt] = []

        def variable(load: Load) -> Var:
            target = Var(names.fresh(f"{load.name}_k"), load.kind)
            loads.append(Assign(target, load))
            return target

        for stmt in block:
            if isinstance(stmt, Assign) and stmt.target.name in elements:
                loads.append(stmt)
            elif isinstance(stmt, Assign) or (isinstance(stmt, If) and not _is_for_all(stmt.test)):
                rest.append(map_exprs(stmt, lambda expr: _lifted(expr, variable), lambda side: side))
            else:
                rest.append(stmt)
        outputs = tuple([replace(output, value=_lifted(output.value, variable)) for output in outputs])
        inside = [
            replace(stmt, then=visit(stmt.then)[0], orelse=visit(stmt.orelse)[0])
            if isinstance(stmt, If) and not _is_for_all(stmt.test)
            else stmt
            for stmt in rest
        ]
        return (*loads, *inside), outputs

    body, outputs = visit(function.body, function.outputs)
    return replace(function, body=body, outputs=outputs)


def _elements(function: Function) -> set[str]:
    """The variables that are only ever an element of one array."""
    values: dict[str, set[Expr]] = {}
    for stmt in assignments(function.body):
        values.setdefault(stmt.target.name, set()).add(stmt.value)
    return {name for name, several in values.items() if len(several) == 1 and isinstance(next(iter(several)), Load)}


def _lifted(expr: Expr, change: Callable[[Load], Expr]) -> Expr:
    """The expression with others for the loads that it always makes itself, in their order."""
    match expr:
        case Load():
            return change(expr)
        case Op(name="select" | "and" | "or", args=(test, *others)):
            return replace(expr, args=(_lifted(test, change), *others))
        case Op():
            return replace(expr, args=tuple([_lifted(arg, change) for arg in expr.args]))
    return expr


# The widest access to memory, in bytes, which limits the elements of a thread.
WIDEST_ACCESS = 16
# The most registers for all arguments. More elements a thread need more registers, and fewer instructions for each
# element. The assembler holds 58 numbers in 40 registers, with which a multiprocessor of 7.0 keeps three quarters of
# its warps, and 60 in 60 to 64, with which it keeps half of them; for a product of 7 that takes 8 % more instructions
# (`python -m bench.paper sweep --counted`). Only a measurement on a GPU tells which number is best (bench/README.md).
MOST_REGISTERS = 58

_SUFFIXES = "abcd"
_BYTES = {"float32": 4, "float64": 8}


def elements_a_thread(function: Function, layout: Layout, dtype: str) -> int:
    """How many neighbouring elements a thread should compute, where the function has gathered loads: a power of two.

    It is 1 where an array is not contiguous along the innermost dimension, where outputs are summed, and where there
    are loops. Nor do more pay where loads lie in a varying branch: they would be no wide accesses.
    """
    count = len(function.params)
    ends = [layout.classes[which][-1] for which in layout.which]
    if layout.summed(count) or "s" in ends or "1" not in ends[count:] or has_loops(function.body):
        return 1
    if _loads_apart(function, uniform_inputs(function, layout)):
        return 1
    lanes = WIDEST_ACCESS // _BYTES[dtype]
    registers = ends.count("1") * _BYTES[dtype] // 4
    while lanes > 1 and lanes * registers > MOST_REGISTERS:
        lanes //= 2
    return lanes


def _loads_apart(function: Function, uniform: Set[str]) -> bool:
    """Whether an element is loaded on some paths only: in a varying branch, or in a part of an expression."""
    varying = varying_names(function, uniform)

    def reached_by_all(block: Block) -> Iterator[Stmt]:
        for stmt in block:
            yield stmt
            if isinstance(stmt, If) and (_is_for_all(stmt.test) or not varies(stmt.test, varying)):
                yield from reached_by_all((*stmt.then, *stmt.orelse))

    together = [stmt.value for stmt in reached_by_all(function.body) if isinstance(stmt, Assign)]
    leaves = [leaf for expr in all_expressions(function) for leaf in atoms(expr)]

    def count(values: Sequence[Expr]) -> int:
        return sum(isinstance(value, Load) and value.name not in uniform for value in values)

    return count(leaves) > count(together)


def _is_for_all(test: Expr) -> bool:
    """Whether a test is one of all elements of a thread."""
    return isinstance(test, Op) and test.name == ANY


def _of_all(exprs: Sequence[Expr]) -> Expr:
    """The expression for all elements of a thread, where it has one: from those for each of them."""
    tests = dict.fromkeys([expr.args[0] for expr in exprs if isinstance(expr, Op) and expr.name == ANY])
    return reduce(lambda some, one: Op("or", (some, one), "bool"), tests) if tests else exprs[0]


def coarsen(function: Function, layout: Layout, names: Names) -> Function:
    """The function for as many neighbouring elements at once as the layout says; itself where that is one.

    Uniform values are computed once, and a uniform branch is taken once, with the statements of every element in it. A
    varying branch is repeated for one element after the other. The loads of element 2 of `x` are `x+2`, and so are the
    names of its outputs. The function has gathered loads and readable names; new variables take names that the kernel's
    text has not.

    Before (layout=Layout(1, ("1", "0"), (0, 1, 0), lanes=2))::

        function f(x: float, c: float)
            c_k: float = load(c)
            x_k: float = load(x)
            output out = mul(x_k, c_k)

    After::

        function f(x: float, c: float)
            c_k: float = load(c)
            x_k_a: float = load(x)
            x_k_b: float = load(x+1)
            out_a: float = mul(x_k_a, c_k)
            out_b: float = mul(x_k_b, c_k)
            output out = out_a
            output out+1 = out_b
    """
    if layout.lanes == 1:
        return function
    lanes, uniform = layout.lanes, uniform_inputs(function, layout)
    varying = varying_names(function, uniform)
    per_element = {name: var for name, var in targets(function.body).items() if name in varying}
    variables = [
        {name: Var(names.fresh(f"{name}_{suffix}"), var.kind) for name, var in per_element.items()}
        for suffix in _SUFFIXES[:lanes]
    ]

    def one_lane(expr: Expr, lane: int) -> Expr:
        """The expression for one of the elements."""

        def change(leaf: Expr) -> Expr:
            if isinstance(leaf, Load) and leaf.name not in uniform:
                return replace(leaf, name=neighbour(leaf.name, lane))
            return variables[lane].get(leaf.name, leaf) if isinstance(leaf, Var) else leaf

        return map_expr(expr, change)

    def lane_of(stmt: Stmt, lane: int) -> Stmt:
        """The statement for one of the elements."""
        if isinstance(stmt, Assign):
            stmt = replace(stmt, target=variables[lane].get(stmt.target.name, stmt.target))
        return map_exprs(
            stmt, lambda expr: one_lane(expr, lane), lambda side: tuple([lane_of(part, lane) for part in side])
        )

    def all_lanes(block: Block) -> Block:
        new: list[Stmt] = []
        for stmt in block:
            part = stmt.target if isinstance(stmt, Assign) else expressions(stmt)[0]
            if varies(part, varying) and not _is_for_all(part):
                new += [lane_of(stmt, lane) for lane in range(lanes)]
            else:
                new.append(map_exprs(stmt, lambda expr: _of_all([one_lane(expr, n) for n in range(lanes)]), all_lanes))
        return tuple(new)

    body, outputs = list(all_lanes(function.body)), list[Output]()
    for output in function.outputs:
        for lane, suffix in enumerate(_SUFFIXES[:lanes]):
            # Stores with nothing between them can become one.
            value = hold(one_lane(output.value, lane), names, body, base=f"{output.name}_{suffix}")
            outputs.append(Output(neighbour(output.name, lane), value))
    return replace(function, body=tuple(body), outputs=tuple(outputs))
