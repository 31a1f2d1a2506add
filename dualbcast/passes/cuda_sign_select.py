"""A factor that is 1 after one side of a branch and -1 after the other: a choice between a value and its negative.

Recent versions of LLVM find this themselves; the one that CUDA compilers have for devices before 10.0 does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from dualbcast.ir.nodes import TEMPORARY, Assign, Block, Const, Expr, Function, If, Names, Op, Stmt, Var
from dualbcast.ir.value_numbering import simplify
from dualbcast.ir.walk import assigned, map_exprs

__all__ = ["choose_signs"]


def choose_signs(function: Function) -> Function:
    """The function with such products replaced; simplified IR on atoms, and so is the result."""
    writes = Counter(assigned(function.body))
    names = Names({*writes, *(param.name for param in function.params)})

    def walk(block: Block, signs: Mapping[str, tuple[Expr, bool]]) -> Block:
        signs = dict(signs)
        found: list[Stmt] = []
        for stmt in block:
            match stmt:
                case Assign(value=Op(name="mul", args=(first, second))):
                    for value, sign in ((first, second), (second, first)):
                        if isinstance(sign, Var) and sign.name in signs:
                            found += _chosen(stmt, value, *signs[sign.name], names)
                            break
                    else:
                        found.append(stmt)
                case _:
                    found.append(map_exprs(stmt, lambda expr: expr, lambda inner: walk(inner, signs)))
            if isinstance(stmt, If) and _settled(stmt.test, writes):
                for name, positive in _signs(stmt, writes).items():
                    signs[name] = stmt.test, positive
        return tuple(found)

    body = walk(function.body, {})
    return function if body == function.body else simplify(replace(function, body=body))


def _settled(test: Expr, writes: Counter[str]) -> bool:
    """Whether a test means the same wherever it can be read."""
    return isinstance(test, Var) and writes[test.name] <= 1


def _signs(stmt: If, writes: Counter[str]) -> dict[str, bool]:
    """The names that a branch leaves at 1 on one side and -1 on the other, and whether they are 1 where it is taken."""
    sides = [_constants(side) for side in (stmt.then, stmt.orelse)]
    return {
        name: sides[0][name] > 0
        for name in sides[0].keys() & sides[1].keys()
        if writes[name] == 2 and {sides[0][name], sides[1][name]} == {1.0, -1.0}
    }


def _constants(block: Block) -> dict[str, float]:
    return {
        stmt.target.name: float(stmt.value.value)
        for stmt in block
        if isinstance(stmt, Assign) and isinstance(stmt.value, Const) and stmt.target.kind == "float"
    }


def _chosen(stmt: Assign, value: Expr, test: Expr, positive: bool, names: Names) -> list[Stmt]:
    negative = Var(names.fresh(f"{TEMPORARY}negative"), stmt.target.kind)
    sides = (value, negative) if positive else (negative, value)
    return [
        Assign(negative, Op("neg", (value,), "float"), stmt.location),
        replace(stmt, value=Op("select", (test, *sides), "float")),
    ]
