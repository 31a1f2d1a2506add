"""Pairs of selects between three values become one select if two of the values are equal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from dualbcast.ir.builder import hold
from dualbcast.ir.constant_fold import fold
from dualbcast.ir.nodes import Assign, Atom, Block, Expr, Function, Names, Op, Stmt, Var
from dualbcast.ir.traversal import assigned, map_exprs, use_counts
from dualbcast.ir.value_numbering import simplify

__all__ = ["merge_selects"]


def merge_selects(function: Function) -> Function:
    """The function with one select for each such pair, simplified; itself where there is none.

    In an `if` with `elif` and `else`, two sides often agree on a partial: it is zero on both, or they share a term. All
    such partials share the condition of the merged select, which is a mask.

    Parameters
    ----------
    function : Function
        Simplified, operations on atoms.
    """
    merging = _Merging(function)
    body = merging.block(function.body)
    return simplify(replace(function, body=body)) if merging.merges else function


class _Merging:
    def __init__(self, function: Function) -> None:
        counts = Counter([*(param.name for param in function.params), *assigned(function.body)])
        # Names with one assignment: they have one value, or one in each iteration of a loop.
        self.lasting = {name for name, count in counts.items() if count == 1}
        self.names = Names(counts)
        self.reads = use_counts(function)
        self.selects: dict[str, tuple[Expr, ...]] = {}
        self.merges = False

    def block(self, block: Block) -> Block:
        new: list[Stmt] = []
        for stmt in block:
            if isinstance(stmt, Assign):
                if isinstance(stmt.value, Op) and stmt.value.name == "select":
                    stmt = replace(stmt, value=self.merged(stmt.value, new))
                    self.remember(stmt)
                new.append(stmt)
            else:
                new.append(map_exprs(stmt, lambda expr: expr, self.block))
        return tuple(new)

    def remember(self, stmt: Assign) -> None:
        value = stmt.value
        if isinstance(value, Op) and all(
            not isinstance(leaf, Var) or leaf.name in self.lasting for leaf in (stmt.target, *value.args)
        ):
            self.selects[stmt.target.name] = value.args

    def merged(self, value: Op, new: list[Stmt]) -> Expr:
        """The select, or one that needs no other; its condition is appended to `new`."""
        test, then, orelse = value.args

        def condition(name: str, *args: Expr) -> Atom:
            atom = hold(fold(Op(name, args, "bool", value.location)), self.names, new, value.location)
            if isinstance(atom, Var) and atom not in args:
                self.lasting.add(atom.name)
            return atom

        for inner, other, is_first in ((orelse, then, False), (then, orelse, True)):
            if isinstance(inner, Var) and inner.name in self.selects and self.reads[inner.name] == 1:
                arguments = _one(test, other, self.selects[inner.name], is_first, condition)
                if arguments is not None:
                    self.merges = True
                    return replace(value, args=arguments)
        return value


def _one(
    test: Expr, other: Expr, inner: tuple[Expr, ...], is_first: bool, condition: Callable[..., Atom]
) -> tuple[Expr, ...] | None:
    """The arguments of one select for `select(test, select(*inner), other)`, or with these two the other way round."""
    inside, then, orelse = inner
    if other == then and not is_first:
        return condition("or", test, inside), other, orelse
    if other not in (then, orelse):
        return None
    # The condition that the inner select is reached and takes its other value.
    reached = test if is_first else condition("not", test)
    if other == orelse:
        return condition("and", reached, inside), then, other
    return condition("and", reached, condition("not", inside)), orelse, other
