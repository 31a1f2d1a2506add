"""How a CUDA thread reads: loads together where their values are needed, and several neighbouring elements at a time.

The text has such a group of elements as one access, `load_4` or `store_4`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import replace
from typing import TypeGuard

from dualbcast.frontend.rule_bodies import without_customs
from dualbcast.ir.nodes import Assign, Block, Const, Expr, For, Function, If, Load, Names, Op, Output, Stmt, Var, While
from dualbcast.ir.walk import map_expr, statements
from dualbcast.kernel_spec import Layout
from dualbcast.passes.cuda_sign_select import choose_signs
from dualbcast.passes.readable_form import arrange
from dualbcast.passes.uniformity import steady_inputs

__all__ = ["arranged", "elements_a_thread", "group_loads", "group_outputs", "spread"]

# What separates an array's name from the number of the neighbour that is meant.
_LANE = "+"

# Elements a thread: the switch. A group of elements is at most this many bytes of the compute dtype, the widest access
# there is, and all that a thread reads and writes at most so many registers, which leaves a multiprocessor at half its
# warps or more. Fewer elements a thread need fewer registers, more elements fewer instructions each and fewer threads
# to keep memory busy; which of them pays can only be measured on a GPU (bench/README.md).
WIDEST_ACCESS = 16
MOST_REGISTERS = 64
# Loads that are in flight together; more of them would hold registers for values that are needed late.
TOGETHER = 8

_SUFFIXES = "abcd"
_BYTES = {"float32": 4, "float64": 8}


def elements_a_thread(function: Function, layout: Layout, dtype: str) -> int:
    """How many neighbouring elements a CUDA thread should compute: a power of two, 1 where more do not pay.

    They do not where an array is not contiguous along the innermost dimension, where outputs are summed, where there
    are loops, and where loads are in a branch that neighbours need not take together: they would be no wide accesses.

    Parameters
    ----------
    function : Function
        As `emit` takes it.
    layout : Layout
        How the arguments are addressed.
    dtype : str
        The compute dtype.
    """
    count = len(function.params)
    ends = [layout.classes[which][-1] for which in layout.which]
    if layout.summed(count) or "s" in ends or "1" not in ends[count:]:
        return 1
    if any(isinstance(stmt, For | While) for stmt in statements(function.body)):
        return 1
    function = arranged(function, Names())
    stays = steady_inputs(function, layout)
    if any(_spanning(output.value, stays, False) for output in function.outputs):
        return 1
    if _loads_apart(function.body, stays, _varying(function.body, stays), False):
        return 1
    lanes = WIDEST_ACCESS // _BYTES[dtype]
    registers = ends.count("1") * _BYTES[dtype] // 4
    while lanes > 1 and lanes * registers > MOST_REGISTERS:
        lanes //= 2
    return lanes


def arranged(function: Function, names: Names) -> Function:
    """The function ready to be written out for a CUDA thread's one element."""
    return _gather_loads(arrange(choose_signs(without_customs(function)), names, loads=True), names)


def _gather_loads(function: Function, names: Names) -> Function:
    """Read what a block needs in groups, each before the first of its values is needed, into variables of their own.

    What is between two loads may end in a branch, which compilers do not move loads across: one would wait for the
    other. What only one side of a conditional expression reads stays there, and what is in loops.
    """

    elements = _elements(function)

    def walk(block: Block, outputs: tuple[Output, ...] = ()) -> tuple[Block, tuple[Output, ...]]:
        # What this block reads itself, and into what; what its statements' blocks read other paths may not need.
        wanted: list[Assign] = []

        def note(load: Load) -> Load:
            wanted.append(Assign(Var(names.fresh(f"{load.name}_k"), load.kind), load))
            return load

        for stmt in block:
            if _only_loads(stmt, elements):
                wanted.append(stmt)
            else:
                _lift(stmt, note)
        for output in outputs:
            _lifted(output.value, note)
        place = itertools.count()
        found: list[Stmt] = []
        made = 0

        def value(_: Expr) -> Var:
            nonlocal made
            position = next(place)
            if position == made:
                found.extend(wanted[made : made + TOGETHER])
                made += TOGETHER
            return wanted[position].target

        for stmt in block:
            if _only_loads(stmt, elements):
                value(stmt.value)
                continue
            stmt = _lift(stmt, value)
            if isinstance(stmt, If):
                stmt = replace(stmt, then=walk(stmt.then)[0], orelse=walk(stmt.orelse)[0])
            found.append(stmt)
        outputs = tuple(replace(output, value=_lifted(output.value, value)) for output in outputs)
        return tuple(found), outputs

    body, outputs = walk(function.body, function.outputs)
    return replace(function, body=body, outputs=outputs)


def spread(function: Function, layout: Layout, names: Names) -> Function:
    """The function for as many neighbouring elements at once as the layout says.

    What is the same for all of them is computed once. The branches that they take together are taken once, with every
    element's statements in them; other branches stand there for one element after the other.

    The loads of element 2 of `x` are `x+2`, and so are its outputs' names.
    """
    lanes, stays = layout.lanes, steady_inputs(function, layout)
    varying = _varying(function.body, stays)
    kinds = {
        stmt.target.name: stmt.target.kind
        for stmt in statements(function.body)
        if isinstance(stmt, Assign) and stmt.target.name in varying
    }
    own = [
        {name: Var(names.fresh(f"{name}_{suffix}"), kind) for name, kind in kinds.items()}
        for suffix in _SUFFIXES[:lanes]
    ]

    def of(lane: int) -> Callable[[Expr], Expr]:
        def leaf(at: Expr) -> Expr:
            match at:
                case Var():
                    return own[lane].get(at.name, at)
                case Load() if at.name not in stays:
                    return replace(at, name=_neighbour(at.name, lane))
            return at

        return lambda expr: map_expr(expr, leaf)

    def alone(block: Block, lane: int) -> Block:
        change = of(lane)
        found: list[Stmt] = []
        for stmt in block:
            match stmt:
                case Assign():
                    found.append(replace(stmt, target=own[lane][stmt.target.name], value=change(stmt.value)))
                case If():
                    sides = alone(stmt.then, lane), alone(stmt.orelse, lane)
                    found.append(replace(stmt, test=change(stmt.test), then=sides[0], orelse=sides[1]))
        return tuple(found)

    def together(block: Block) -> Block:
        found: list[Stmt] = []
        for stmt in block:
            match stmt:
                case Assign() if stmt.target.name in varying:
                    found += [each for lane in range(lanes) for each in alone((stmt,), lane)]
                case If() if _varies(stmt.test, stays, varying):
                    found += [each for lane in range(lanes) for each in alone((stmt,), lane)]
                case If():
                    found.append(replace(stmt, then=together(stmt.then), orelse=together(stmt.orelse)))
                case _:
                    found.append(stmt)
        return tuple(found)

    body, outputs = list(together(function.body)), list[Output]()
    for output in function.outputs:
        for lane in range(lanes):
            value = of(lane)(output.value)
            if isinstance(value, Op):  # stores with nothing between them can become one
                kept = Var(names.fresh(f"{output.name}_{_SUFFIXES[lane]}"), value.kind)
                body.append(Assign(kept, value))
                value = kept
            outputs.append(Output(_neighbour(output.name, lane), value))
    return replace(function, body=tuple(body), outputs=tuple(outputs))


def group_loads(block: Block, lanes: int) -> Iterator[tuple[Stmt, ...]]:
    """The statements of a block, those together that load an element and its neighbours."""
    place = 0
    while place < len(block):
        stmt = block[place]
        follower = block[place + 1] if place + 1 < len(block) and lanes > 1 else stmt
        count = 1
        if _loaded(stmt) and _loaded(follower) == _neighbour(_loaded(stmt), 1):
            count = lanes
        yield block[place : place + count]
        place += count


def group_outputs(outputs: Sequence[Output], lanes: int) -> list[tuple[str, list[Expr]]]:
    """The name of each output, with its values for an element and its neighbours."""
    return [
        (outputs[first].name, [output.value for output in outputs[first : first + lanes]])
        for first in range(0, len(outputs), lanes)
    ]


def _loaded(stmt: Stmt) -> str:
    return stmt.value.name if isinstance(stmt, Assign) and isinstance(stmt.value, Load) else ""


def _neighbour(name: str, lane: int) -> str:
    return f"{name}{_LANE}{lane}" if lane else name


# --- what differs between neighbours -------------------------------------------------------------------------------


def _varies(expr: Expr, stays: Set[str], varying: Set[str]) -> bool:
    match expr:
        case Const():
            return False
        case Load():
            return expr.name not in stays
        case Var():
            return expr.name in varying
        case Op():
            return any(_varies(arg, stays, varying) for arg in expr.args)


def _varying(block: Block, stays: Set[str]) -> set[str]:
    """The variables that may differ between neighbouring elements, in their values or in the path to them."""
    varying: set[str] = set()

    def walk(block: Block, apart: bool) -> None:
        for stmt in block:
            match stmt:
                case Assign() if apart or _varies(stmt.value, stays, varying):
                    varying.add(stmt.target.name)
                case If():
                    inside = apart or _varies(stmt.test, stays, varying)
                    walk(stmt.then, inside)
                    walk(stmt.orelse, inside)

    size = -1
    while len(varying) > size:
        size = len(varying)
        walk(block, False)
    return varying


def _loads_apart(block: Block, stays: Set[str], varying: Set[str], apart: bool) -> bool:
    """Whether an element is loaded in a branch that its neighbours need not take."""
    for stmt in block:
        match stmt:
            case Assign() if _spanning(stmt.value, stays, apart):
                return True
            case If():
                inside = apart or _varies(stmt.test, stays, varying)
                if _spanning(stmt.test, stays, apart):
                    return True
                if any(_loads_apart(side, stays, varying, inside) for side in (stmt.then, stmt.orelse)):
                    return True
    return False


def _spanning(expr: Expr, stays: Set[str], apart: bool) -> bool:
    """Whether an expression loads an element in a part of it that is not always evaluated, or all of it is such."""
    match expr:
        case Load():
            return apart and expr.name not in stays
        case Op(name="select" | "and" | "or", args=(test, *others)):
            return _spanning(test, stays, apart) or any(_spanning(arg, stays, True) for arg in others)
        case Op():
            return any(_spanning(arg, stays, apart) for arg in expr.args)
    return False


# --- loads in expressions ------------------------------------------------------------------------------------------


def _elements(function: Function) -> set[str]:
    """The variables that are never anything but an element of one array."""
    values: dict[str, set[Expr]] = {}
    for stmt in statements(function.body):
        if isinstance(stmt, Assign):
            values.setdefault(stmt.target.name, set()).add(stmt.value)
    return {
        name for name, found in values.items() if len(found) == 1 and all(isinstance(value, Load) for value in found)
    }


def _only_loads(stmt: Stmt, elements: Set[str]) -> TypeGuard[Assign]:
    """Whether a statement does nothing but load into a variable that is for that."""
    return isinstance(stmt, Assign) and stmt.target.name in elements


def _lift(stmt: Stmt, change: Callable[[Load], Expr]) -> Stmt:
    """The statement with the loads changed that its own expressions make in any case, in the order they are made."""
    match stmt:
        case Assign():
            return replace(stmt, value=_lifted(stmt.value, change))
        case If():
            return replace(stmt, test=_lifted(stmt.test, change))
    return stmt


def _lifted(expr: Expr, change: Callable[[Load], Expr]) -> Expr:
    match expr:
        case Load():
            return change(expr)
        case Op(name="select" | "and" | "or", args=(test, *others)):
            return replace(expr, args=(_lifted(test, change), *others))
        case Op():
            return replace(expr, args=tuple([_lifted(arg, change) for arg in expr.args]))
    return expr
