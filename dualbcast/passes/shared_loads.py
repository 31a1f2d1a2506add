"""Loads in varying branches, made for all elements of a CUDA thread in one access each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from dataclasses import replace
from itertools import chain

from dualbcast.ir.nodes import FALSE, ONE, TRUE, Assign, Block, Const, Expr, Function, If, Load, Op, Stmt, Var
from dualbcast.ir.simplification import fold
from dualbcast.ir.traversal import (
    assigned,
    assignments,
    expressions,
    has_loops,
    map_blocks,
    read_counts,
    renamed_function,
    results,
    variables,
    whole_arrays,
)
from dualbcast.kernel_spec import Layout
from dualbcast.passes.if_conversion import with_selects
from dualbcast.passes.readable_form import LOAD_MARK
from dualbcast.passes.vector_analysis import has_varying_branches, is_short, uniform_inputs, varies, varying_names

# Whether something holds for any of the elements of a thread.
ANY = "any"
# What elements have that load nothing. With 0, divisions would take the long path of the GPU's.
_UNUSED = {"float": ONE, "int": Const(1, "int"), "bool": FALSE}


def share_loads(function: Function, layout: Layout) -> Function:
    """The function in which an array that varying branches read is loaded before them, once, and only if one of the
    thread's elements gets to where it is read. The others do not use the number that they have then.

    Branches become selects where they do on a CPU. The function stays as it is if a thread has one element, or if more
    than few operations decide which arrays are loaded. Operations are on atoms.

    Before (layout=Layout(1, ("1",), (0, 0, 0, 0), lanes=4))::

        function f(x: float, y: float, z: float)
            a: bool = lt(z, 0.0)
            if a:
                s: float = mul(x, y)
            else:
                s: float = x
            output out = s

    After::

        function f(x: float, y: float, z: float)
            x@0: float = load(x)
            a: bool = lt(z, 0.0)
            if any(a):
                y@0: float = load(y)
            else:
                y@0: float = 1.0
            %s: float = mul(x@0, y@0)
            s: float = select(a, %s, x@0)
            output out = s
    """
    if layout.lanes == 1 or has_loops(function.body) or whole_arrays(function):
        return function
    uniform = uniform_inputs(function, layout)
    varying = varying_names(function, uniform)
    params = {param.name: param for param in function.params}
    inside = _read_inside(function.body, varying) - uniform - {leaf.name for leaf in results(function)}
    paths = _paths(function.body, params.keys())
    before = _Before(function, {name: paths[name] for name in params if name in inside})
    if not before.shared or not before.is_cheap():
        return function

    def without(block: Block) -> Block:
        """The block without the statements that come before all others."""
        left = [stmt for stmt in block if not (isinstance(stmt, Assign) and stmt.target.name in before.tests)]
        return tuple([map_blocks(stmt, without) for stmt in left])

    tests = [stmt.target for stmt in before.tests.values()]
    rest = replace(function, params=(*function.params, *tests), body=without(function.body))
    uniform |= {test.name for test in tests if test.name not in varying}
    converted, _ = with_selects(rest, uniform)
    if has_varying_branches(converted, uniform):
        # It has branches without an `else` that vectors can skip.
        converted = rest
    elements = {name: _element(params[name]) for name in before.shared}
    body = (*before.block, *converted.body)
    return renamed_function(replace(converted, params=function.params, body=body), elements)


def _element(param: Var) -> Var:
    return Var(f"{param.name}{LOAD_MARK}0", param.kind)


def _read_inside(block: Block, varying: Set[str]) -> set[str]:
    """The names that a block reads in the sides of one varying branch only, so that each side would load them."""
    reads = [read_counts((stmt,)).keys() for stmt in block]
    counts = Counter(chain.from_iterable(reads))
    found: set[str] = set()
    for stmt, names in zip(block, reads, strict=True):
        if isinstance(stmt, If):
            of_sides = {name for name in names if counts[name] == 1} - {leaf.name for leaf in variables(stmt.test)}
            if not varies(stmt.test, varying):
                of_sides &= _read_inside(stmt.then, varying) | _read_inside(stmt.orelse, varying)
            found |= of_sides
    return found


def _paths(block: Block, params: Set[str]) -> dict[str, Expr]:
    """For each parameter that a block reads, the condition under which it does, in terms of the tests of branches."""
    paths: dict[str, Expr] = {}
    for stmt in block:
        found: dict[str, Expr] = {leaf.name: TRUE for expr in expressions(stmt) for leaf in variables(expr)}
        if isinstance(stmt, If):
            then, orelse = _paths(stmt.then, params), _paths(stmt.orelse, params)
            found = {
                name: _chosen(stmt.test, then.get(name, FALSE), orelse.get(name, FALSE)) for name in then | orelse
            } | found
        for name in found.keys() & params:
            paths[name] = _either(paths.get(name, FALSE), found[name])
    return paths


def _chosen(test: Expr, then: Expr, orelse: Expr) -> Expr:
    """The value of one condition where a test holds, and of another where it does not."""
    otherwise = fold(Op("not", (test,), "bool"))
    if then == orelse:
        return then
    if TRUE in (then, orelse):
        return _either(test, orelse) if then == TRUE else _either(otherwise, then)
    if FALSE in (then, orelse):
        return fold(Op("and", (otherwise, orelse) if then == FALSE else (test, then), "bool"))
    return Op("select", (test, then, orelse), "bool")


def _either(first: Expr, second: Expr) -> Expr:
    return first if first == second else fold(Op("or", (first, second), "bool"))


class _Before:
    """What is computed before all else: the tests of branches, and the loads that they decide on."""

    def __init__(self, function: Function, shared: dict[str, Expr]) -> None:
        # The condition under which each array is read.
        self.shared = shared
        self.params = {param.name: param for param in function.params}
        counts = Counter(assigned(function.body))
        self.definitions = {
            stmt.target.name: stmt for stmt in assignments(function.body) if counts[stmt.target.name] == 1
        }
        self.block: list[Stmt] = []
        self.tests: dict[str, Assign] = {}
        # Whether each name has a value here; that of an array is false while the tests of its condition are looked for.
        self.known = dict.fromkeys(self.params.keys() - shared.keys(), True)

    def is_cheap(self) -> bool:
        """Whether all loads can come before all else, after few operations."""
        if not all(map(self.has, self.shared)):
            return False
        conditions = [Assign(Var("", "bool"), path) for path in dict.fromkeys(self.shared.values())]
        return is_short((*self.tests.values(), *conditions))

    def has(self, name: str) -> bool:
        """Whether a name has a value, if need be by statements that are appended here."""
        if name not in self.known:
            self.known[name] = False
            self.known[name] = self.load(self.shared[name]) if name in self.shared else self.compute(name)
        return self.known[name]

    def compute(self, name: str) -> bool:
        stmt = self.definitions.get(name)
        if stmt is None or not all(self.has(leaf.name) for leaf in variables(stmt.value)):
            return False
        self.tests[name] = stmt
        self.block.append(stmt)
        return True

    def load(self, path: Expr) -> bool:
        """Whether the arrays that are read where this holds can be loaded here."""
        if not all(self.has(leaf.name) for leaf in variables(path)):
            return False
        params = [self.params[name] for name, other in self.shared.items() if other == path]
        self.known |= {param.name: True for param in params}
        loads = [Assign(_element(param), Load(param.name, param.kind)) for param in params]
        unused = [replace(load, value=_UNUSED[load.target.kind]) for load in loads]
        self.block += loads if path == TRUE else [If(Op(ANY, (path,), "bool"), tuple(loads), tuple(unused))]
        return True
