"""The dispatch table of the front end: from a class of syntax node to the function that lowers it.

Each file registers the lowerings of its nodes here, and lowers the nodes inside them through `expression` and
`statements`, and calls through `call_value`. So the files need not import each other in a circle.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from dualbcast.frontend.environment import Environment
from dualbcast.frontend.paths import leave_if_returned, unless
from dualbcast.frontend.values import SKIPPING, Arguments, Value, describe
from dualbcast.ir.nodes import FALSE, TRUE, Var

# The lowering of an expression takes (env, node) and gives its value. The lowering of a statement takes
# (env, node, rest), where `rest` has the statements after it in its block. It gives None if those are to be lowered
# next. Otherwise `rest` is lowered already or never reached, and the result says whether the end of the block is
# reached.
LOWERINGS: dict[type[ast.AST], Callable[..., Any]] = {}
# How a value is called, by its class: takes (env, callee, arguments, node) and gives the result.
CALLS: dict[type, Callable[..., Value]] = {}

_Lowering = TypeVar("_Lowering", bound=Callable[..., Any])


def lowers(*classes: type[ast.AST]) -> Callable[[_Lowering], _Lowering]:
    """Register the lowering of these classes of syntax nodes."""

    def register(lowering: _Lowering) -> _Lowering:
        LOWERINGS.update(dict.fromkeys(classes, lowering))
        return lowering

    return register


def refuses(kind: type[ast.AST], name: str, instead: str) -> None:
    """Register that a class of syntax nodes cannot be compiled; `instead` is the advice."""

    def refuse(env: Environment, node: ast.AST, *_: object) -> None:
        env.fail(node, f"{name} cannot be compiled", instead)

    LOWERINGS[kind] = refuse


def calls(kind: type) -> Callable[[_Lowering], _Lowering]:
    """Register how values of a class are called."""

    def register(call: _Lowering) -> _Lowering:
        CALLS[kind] = call
        return call

    return register


def expression(env: Environment, node: ast.expr) -> Value:
    """The value of an expression; the operations that compute it are appended to the open block."""
    lowering = LOWERINGS.get(type(node))
    if lowering is None:
        env.fail(node, f"this expression ({type(node).__name__}) cannot be compiled")
    value: Value = lowering(env, node)
    return value


def statements(env: Environment, body: list[ast.stmt]) -> bool:
    """Lower a block; False if its end is never reached. Paths whose flag is set skip the remaining statements."""
    frame = env.frame
    for position, stmt in enumerate(body):
        if not leave_if_returned(env, stmt):
            return False
        pending = next((flag for flag in frame.flags if frame.bindings.get(flag, FALSE) != FALSE), None)
        if pending is not None:
            flag = frame.bindings[pending]
            if frame.bindings.get(SKIPPING) == TRUE:
                return True  # no path reaches this statement, whichever flag each has set
            assert isinstance(flag, Var), flag
            return unless(env, pending, flag, stmt, partial(statements, env, body[position:]))
        lowering = LOWERINGS.get(type(stmt))
        if lowering is None:
            env.fail(stmt, f"this statement ({type(stmt).__name__}) cannot be compiled")
        end: bool | None = lowering(env, stmt, body[position + 1 :])
        if end is not None:
            return end
    return True


def call_value(env: Environment, callee: Value, arguments: Arguments, node: ast.Call) -> Value:
    """The result of calling a value."""
    call = CALLS.get(type(callee))
    if call is None:
        env.fail(node.func, f"{describe(callee)} cannot be called")
    return call(env, callee, arguments, node)
