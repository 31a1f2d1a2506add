"""Whether the elements of a row can be lanes of vectors."""

from __future__ import annotations

from collections.abc import Set
from functools import lru_cache

from dualbcast.frontend.rule_bodies import helper_of
from dualbcast.ir.nodes import For, Function, If, While
from dualbcast.ir.traversal import has_loops, operations_of, statements
from dualbcast.passes.uniformity import is_uniform_loop, varies, varying_names
from dualbcast.rules.table import RULES

__all__ = ["blocks_vectors", "fits_vectors", "has_varying_branches", "is_scalar"]


def is_scalar(function: Function) -> bool:
    """Whether a loop or an operation in a function keeps the loop over elements from being vectorised."""
    return has_loops(function.body) or any(blocks_vectors(op.name) for op in operations_of(function))


@lru_cache(maxsize=1024)
def blocks_vectors(name: str) -> bool:
    """Whether an operation keeps the loop over elements from being vectorised."""
    row = RULES.get(name)
    return row is not None and row.function is not None and is_scalar(helper_of(row))


def fits_vectors(function: Function, uniform: Set[str]) -> bool:
    """Whether the elements of a row can be lanes of vectors.

    Its varying branches must be selects or have no `else`, and its varying loops must be masked.
    """
    if any(blocks_vectors(op.name) for op in operations_of(function)):
        return False
    forks = [stmt for stmt in statements(function.body) if isinstance(stmt, If | For | While)]
    varying = varying_names(function, uniform) if forks else set()
    return all(_fits(stmt, varying) for stmt in forks)


def _fits(stmt: If | For | While, varying: Set[str]) -> bool:
    match stmt:
        case If():
            return not stmt.orelse or not varies(stmt.test, varying)
        case For():
            return is_uniform_loop(stmt, varying)
        case While():
            return stmt.masked


def has_varying_branches(function: Function, uniform: Set[str]) -> bool:
    """Whether a branch is left whose condition varies."""
    tests = [stmt.test for stmt in statements(function.body) if isinstance(stmt, If)]
    varying = varying_names(function, uniform) if tests else set()
    return any(varies(test, varying) for test in tests)
