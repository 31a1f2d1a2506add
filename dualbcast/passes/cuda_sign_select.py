"""A product with a factor that a branch has set to 1 or -1 becomes a select between a value and its negative.

Recent versions of LLVM do this themselves; the one in CUDA compilers for devices before 10.0 does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from dualbcast.ir.builder import free_names
from dualbcast.ir.nodes import TEMPORARY, Assign, Block, Const, Expr, Function, If, Names, Op, Stmt, Var
from dualbcast.ir.traversal import assigned, map_exprs
from dualbcast.ir.value_numbering import simplify

__all__ = ["select_signs"]


def select_signs(function: Function) -> Function:
    """The function with selects in place of such products: simplified IR on atoms, or itself where there is none.

    Before::

        function f(x: float)
            a: bool = lt(x, 0.0)
            if a:
                sign: float = -1.0
                y: float = neg(x)
            else:
                sign: float = 1.0
                y: float = x
            slope: float = mul(y, sign)
            output out = slope

    After::

        function f(x: float)
            a: bool = lt(x, 0.0)
            if a:
                y: float = neg(x)
            else:
                y: float = x
            %negative: float = neg(y)
            slope: float = select(a, %negative, y)
            output out = slope
    """
    writes = Counter(assigned(function.body))
    names = free_names(function)

    def visit(block: Block, signs: Mapping[str, tuple[Expr, bool]]) -> Block:
        signs = dict(signs)
        new: list[Stmt] = []
        for stmt in block:
            match stmt:
                case Assign(value=Op(name="mul", args=(first, second))):
                    for value, sign in ((first, second), (second, first)):
                        if isinstance(sign, Var) and sign.name in signs:
                            new += _chosen(stmt, value, *signs[sign.name], names)
                            break
                    else:
                        new.append(stmt)
                case _:
                    new.append(map_exprs(stmt, lambda expr: expr, lambda inner: visit(inner, signs)))
            if isinstance(stmt, If) and _is_constant(stmt.test, writes):
                for name, positive in _signs(stmt, writes).items():
                    signs[name] = stmt.test, positive
        return tuple(new)

    body = visit(function.body, {})
    return function if body == function.body else simplify(replace(function, body=body))


def _is_constant(test: Expr, writes: Counter[str]) -> bool:
    """Whether a test has the same value wherever it can be read."""
    return isinstance(test, Var) and writes[test.name] <= 1


def _signs(stmt: If, writes: Counter[str]) -> dict[str, bool]:
    """The names that a branch sets to 1 on one side and -1 on the other; whether they are 1 on the first."""
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
