"""New statements: an expression comes in, and the variable that holds its value goes out."""

from __future__ import annotations

from dualbcast.errors import Location
from dualbcast.ir.nodes import NOWHERE, TEMPORARY, Assign, Atom, Expr, Names, Stmt, Var

__all__ = ["hold"]


def hold(value: Expr, names: Names, block: list[Stmt], location: Location = NOWHERE, base: str = TEMPORARY) -> Atom:
    """The value as an atom; if it is none, its assignment to a variable with a fresh name is appended to a block."""
    if isinstance(value, Atom):
        return value
    target = Var(names.fresh(base), value.kind)
    block.append(Assign(target, value, location))
    return target
