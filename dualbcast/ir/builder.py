"""A builder of statements: operations are folded and held in variables with fresh names, in the block that is open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from dualbcast.errors import Location
from dualbcast.ir import nodes as ir
from dualbcast.ir.simplification import fold
from dualbcast.ir.traversal import hold, renamed, variables


class Builder:
    """Appends statements to `block`."""

    def __init__(self, names: ir.Names) -> None:
        self.names = names
        self.block: list[ir.Stmt] = []

    @contextmanager
    def inside(self, block: list[ir.Stmt]) -> Iterator[list[ir.Stmt]]:
        """Append to another block for a while."""
        outer, self.block = self.block, block
        yield block
        self.block = outer

    def emit(self, value: ir.Expr, where: Location) -> ir.Atom:
        """The value as an atom; if it is none, its assignment to a temporary is appended."""
        return hold(value, self.names, self.block, where)

    def operate(self, name: str, *args: ir.Expr, kind: ir.Kind = "float", where: Location) -> ir.Atom:
        """The result of an operation, as simple as it is known to be."""
        return self.emit(fold(ir.Op(name, args, kind, where)), where)

    def assign(self, target: ir.Var, value: ir.Expr, where: Location) -> None:
        """Append an assignment."""
        self.block.append(ir.Assign(target, value, where))


def assign_together(
    values: Mapping[str, ir.Expr], names: ir.Names, new: list[ir.Stmt], where: Location = ir.NOWHERE
) -> None:
    """Assign variables simultaneously: one that another's value reads is copied first."""
    values = {name: value for name, value in values.items() if value != ir.Var(name, value.kind)}
    read = {leaf.name for name, value in values.items() for leaf in variables(value) if leaf.name != name}
    copies = {name: ir.Var(names.fresh(ir.TEMPORARY), value.kind) for name, value in values.items() if name in read}
    new += [ir.Assign(copy, ir.Var(name, copy.kind), where) for name, copy in copies.items()]
    new += [ir.Assign(ir.Var(name, value.kind), renamed(value, copies), where) for name, value in values.items()]
