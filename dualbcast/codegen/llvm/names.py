"""The names that the statements of a kernel's text read, assign and write to, and which of them vary in a row."""

from __future__ import annotations

import ast
from collections.abc import Sequence, Set
from typing import NamedTuple

# The fields of an expression that are expressions again; the function of a call is none.
_PARTS: dict[type[ast.expr], tuple[str, ...]] = {
    ast.BinOp: ("left", "right"),
    ast.Compare: ("left", "comparators"),
    ast.Call: ("args",),
    ast.Subscript: ("value", "slice"),
    ast.UnaryOp: ("operand",),
    ast.IfExp: ("test", "body", "orelse"),
}


class Uses(NamedTuple):
    """The names in some statements.

    Attributes
    ----------
    names : set of str
        All names but those of functions.
    assigned : set of str
        The variables that are assigned.
    written : set of str
        The arrays that are written to.
    calls : bool
        Whether a function is called as a statement.
    """

    names: set[str]
    assigned: set[str]
    written: set[str]
    calls: bool


def names_in(node: ast.expr, names: set[str]) -> set[str]:
    """Add the names in an expression to a set, which is returned.

    (`ast.walk` would take half of the time of lowering.)
    """
    kind = type(node)
    if kind is ast.Name:
        names.add(node.id)  # type: ignore[attr-defined]
    elif kind is not ast.Constant:
        for field in _PARTS.get(kind, ()):
            part = getattr(node, field)
            if type(part) is list:
                for each in part:
                    names_in(each, names)
            else:
                names_in(part, names)
    return names


def called_functions(node: ast.AST) -> list[str]:
    """The names of the functions that are called somewhere in a statement."""
    calls = (each.func for each in ast.walk(node) if isinstance(each, ast.Call))
    return [function.id for function in calls if isinstance(function, ast.Name)]


def uses(statements: Sequence[ast.stmt]) -> Uses:
    """The names in some statements and in those inside them."""
    names: set[str] = set()
    assigned: set[str] = set()
    written: set[str] = set()
    calls = False
    for stmt in statements:
        match stmt:
            case ast.Assign(targets=[target], value=value):
                names_in(value, names)
                names_in(target, names)
                match target:
                    case ast.Name(name):
                        assigned.add(name)
                    case ast.Subscript(ast.Name(name)):
                        written.add(name)
            case ast.If() | ast.While() | ast.For():
                inner = uses([*stmt.body, *stmt.orelse])
                names |= inner.names
                assigned |= inner.assigned
                written |= inner.written
                calls |= inner.calls
                if isinstance(stmt, ast.For):
                    names_in(stmt.target, assigned)
                names_in(stmt.iter if isinstance(stmt, ast.For) else stmt.test, names)
            case ast.Expr(value):
                names_in(value, names)
                calls = True
    return Uses(names, assigned, written, calls)


def varying_after(statements: Sequence[ast.stmt], varying: Set[str]) -> set[str]:
    """The names that vary between elements after any number of runs of some statements, if `varying` do before."""
    # Names that are assigned, and those that their values depend on.
    dependences: list[tuple[set[str], set[str]]] = []
    result = set(varying)
    pending = list(statements)
    while pending:
        match pending.pop():
            case ast.Assign(targets=[target], value=value):
                dependences.append((names_in(target, set()), names_in(value, set())))
            case ast.For(body=body) | ast.While(body=body):
                pending += body
            case ast.If(test=test, body=body, orelse=orelse):
                sides = uses([*body, *orelse])
                dependences.append((sides.assigned | sides.written, names_in(test, set())))
                pending += [*body, *orelse]
    count = 0
    while count != len(result):
        count = len(result)
        for targets, sources in dependences:
            if sources & result:
                result |= targets
    return result


def assigned_names(function: ast.FunctionDef) -> set[str]:
    """The names that a function assigns."""
    return {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
