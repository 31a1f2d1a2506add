"""Each parameter is loaded where it is first needed, on the paths that need it and on no others."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Set
from dataclasses import replace

from dualbcast.ir.nodes import Assign, Block, Function, If, Load, Output, Stmt, Var
from dualbcast.ir.traversal import all_atoms, renamed, renamed_block, variables

__all__ = ["LOAD_MARK", "place_loads"]

# The separator of a parameter's name and the number of its load, until variables get readable names.
LOAD_MARK = "@"


def place_loads(function: Function) -> Function:
    """The function with a load of each parameter where it is first needed, on the paths that need it and on no others.

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

    Parameters
    ----------
    function : Function
        Simplified, operations on atoms.
    """
    final = {leaf.name for output in function.outputs for leaf in variables(output.value)}
    params = {param.name: param for param in function.params}
    places = {name: itertools.count() for name in params}
    body = _place(function.body, params, final, places)
    loaded = {name: Var(f"{name}{LOAD_MARK}0", param.kind) for name, param in params.items()}
    outputs = tuple(Output(output.name, renamed(output.value, loaded)) for output in function.outputs)
    return replace(function, body=body, outputs=outputs)


def _place(block: Block, params: Mapping[str, Var], later: Set[str], places: Mapping[str, Iterator[int]]) -> Block:
    """The block with the loads of these parameters; the names in `later` are read after it."""
    using: dict[str, list[int]] = {name: [] for name in params}
    for position, stmt in enumerate(block):
        for name in {leaf.name for leaf in all_atoms(stmt) if isinstance(leaf, Var)} & params.keys():
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
