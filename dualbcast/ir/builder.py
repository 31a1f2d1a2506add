"""New statements: an expression comes in, and the variable that holds its value goes out."""

from __future__ import annotations

from collections.abc import Iterable

from dualbcast.errors import Location
from dualbcast.ir.nodes import NOWHERE, TEMPORARY, Assign, Atom, Expr, Function, Names, Stmt, Var
from dualbcast.ir.traversal import assigned

__all__ = ["free_names", "hold"]


def free_names(function: Function, taken: Iterable[str] = ()) -> Names:
    """Names that neither the parameters nor the variables of a function have, nor any of those in `taken`."""
    return Names([*taken, *(param.name for param in function.params), *assigned(function.body)])


def hold(value: Expr, names: Names, block: list[Stmt], location: Location = NOWHERE, base: str = TEMPORARY) -> Atom:
    """The value as an atom; if it is none, its assignment to a variable with a fresh name is appended to a block."""
    if isinstance(value, Atom):
        return value
    target = Var(names.fresh(base), value.kind)
    block.append(Assign(target, value, location))
    return target
