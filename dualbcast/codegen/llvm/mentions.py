"""What statements of a kernel's text mention, and what of it differs between the elements of a row."""

from __future__ import annotations

import ast
from collections.abc import Sequence, Set
from typing import NamedTuple

from dualbcast.codegen.llvm.expressions import names_in

__all__ = ["Mentions", "differing", "mentions"]


class Mentions(NamedTuple):
    """What a statement mentions.

    Attributes
    ----------
    names, targets, written : set of str
        All names but those of functions, those that it assigns, and those of arrays that it writes to.
    calls : bool
        Whether it calls something that is there for more than its value.
    """

    names: set[str]
    targets: set[str]
    written: set[str]
    calls: bool


def mentions(statements: Sequence[ast.stmt]) -> Mentions:
    """What some statements mention, with those inside them."""
    names: set[str] = set()
    targets: set[str] = set()
    written: set[str] = set()
    calls = False
    for stmt in statements:
        match stmt:
            case ast.Assign(targets=[target], value=value):
                names_in(value, names)
                names_in(target, names)
                match target:
                    case ast.Name(name):
                        targets.add(name)
                    case ast.Subscript(ast.Name(name)):
                        written.add(name)
            case ast.If() | ast.While() | ast.For():
                inner = mentions([*stmt.body, *stmt.orelse])
                names |= inner.names
                targets |= inner.targets
                written |= inner.written
                calls |= inner.calls
                if isinstance(stmt, ast.For):
                    names_in(stmt.target, targets)
                names_in(stmt.iter if isinstance(stmt, ast.For) else stmt.test, names)
            case ast.Expr(value):
                names_in(value, names)
                calls = True
    return Mentions(names, targets, written, calls)


def differing(statements: Sequence[ast.stmt], varying: Set[str]) -> set[str]:
    """The names that differ between elements after any number of runs of statements, if these did before."""
    # What is assigned, and what it is made of.
    made: list[tuple[set[str], set[str]]] = []
    found = set(varying)
    pending = list(statements)
    while pending:
        match pending.pop():
            case ast.Assign(targets=[target], value=value):
                made.append((names_in(target, set()), names_in(value, set())))
            case ast.For(body=body) | ast.While(body=body):
                pending += body
            case ast.If(test=test, body=body, orelse=orelse):
                sides = mentions([*body, *orelse])
                made.append((sides.targets | sides.written, names_in(test, set())))
                pending += [*body, *orelse]
    count = 0
    while count != len(found):
        count = len(found)
        for targets, names in made:
            if names & found:
                found |= targets
    return found
