"""Inlining: arguments bound to parameters as Python binds them, and the body of the function lowered in place."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable
from contextvars import copy_context
from functools import lru_cache
from threading import Thread
from types import FunctionType
from typing import Any

from dualbcast.errors import CompileError
from dualbcast.frontend.dispatch import calls, expression, statements
from dualbcast.frontend.environment import Environment
from dualbcast.frontend.source import FunctionNode, Source, find_source, local_names
from dualbcast.frontend.values import (
    RESULT,
    RETURNED,
    SKIPPING,
    Arguments,
    Bindings,
    Closure,
    Frame,
    Keywords,
    Unassigned,
    Value,
)
from dualbcast.ir.nodes import FALSE, TEMPORARY, TRUE
from dualbcast.rules.guards import Capture

__all__ = ["bind_arguments", "count", "in_order", "inline", "inline_bound", "lower_body"]

# How deep calls may lie within calls, and how many of them share a stack. Python's own limit is 1,000 of its calls on a
# stack, and to lower a call takes some fifteen; deeper calls continue on a thread, which has a stack of its own.
DEEPEST = 1000
ON_A_STACK = 16


def inline(env: Environment, function: FunctionType, arguments: Arguments, node: ast.AST) -> Value:
    """The result of a Python function."""
    source, bindings = bind_arguments(env, function, arguments, node)
    return inline_bound(env, function, source, bindings, node)


def bind_arguments(
    env: Environment, function: FunctionType, arguments: Arguments, node: ast.AST
) -> tuple[Source, Bindings]:
    """The source of a function, and its parameters bound to the arguments and its defaults."""
    try:
        source = find_source(function)
    except CompileError as error:
        env.fail(node, error.message, error.hint)
    env.guards.append(source.code())
    defaults = _defaults(env, function.__defaults__ or (), function, node)
    given = function.__kwdefaults__ or {}
    keyword_defaults = tuple(
        _defaults(env, (given[parameter.arg],), function, node)[0] if parameter.arg in given else None
        for parameter in source.node.args.kwonlyargs
    )
    return source, _bind(env, source.node, function.__name__, arguments, defaults, keyword_defaults, node)


def inline_bound(env: Environment, function: FunctionType, source: Source, bindings: Bindings, node: ast.AST) -> Value:
    """The result of a Python function whose parameters are bound."""
    chain = (*env.frame.calls, (function.__name__, env.locate(node)))
    frame = Frame(source, local_names(source.node), bindings, None, chain, name=function.__name__)
    return _lower_inside(env, function, frame, source.node, node)


@calls(Closure)
def _inline_closure(env: Environment, callee: Closure, arguments: Arguments, node: ast.AST) -> Value:
    """The result of a function that is defined inside the one being compiled."""
    bindings = _bind(env, callee.node, callee.name, arguments, callee.defaults, callee.keyword_defaults, node)
    chain = (*env.frame.calls, (callee.name, env.locate(node)))
    local = local_names(callee.node)
    frame = Frame(callee.frame.source, local, bindings, callee.frame, chain, name=callee.name)
    return _lower_inside(env, callee, frame, callee.node, node)


def _defaults(env: Environment, defaults: tuple[Any, ...], function: FunctionType, node: ast.AST) -> tuple[Value, ...]:
    values: list[Value] = []
    for position, default in enumerate(defaults):
        value = env.known(default, Capture(defaults, position, default, f"default_{position}"))
        if value is None:
            kind = type(default).__name__
            env.fail(node, f"a default of {function.__name__}() is of type {kind}, which a kernel cannot use")
        values.append(value)
    return tuple(values)


def _bind(
    env: Environment,
    node: FunctionNode,
    name: str,
    arguments: Arguments,
    defaults: tuple[Value, ...],
    keyword_defaults: tuple[Value | None, ...],
    at: ast.AST,
) -> Bindings:
    """Python's binding of arguments to parameters."""
    spec, (args, keywords) = node.args, arguments
    positional = [*spec.posonlyargs, *spec.args]
    signature = "" if isinstance(node, ast.Lambda) else f"{name}({_without_types(spec)})"
    bindings: Bindings = {parameter.arg: arg for parameter, arg in zip(positional, args, strict=False)}
    extra = args[len(positional) :]
    if spec.vararg is not None:
        bindings[spec.vararg.arg] = extra
    elif extra:
        takes = count(len(positional), "positional argument")
        env.fail(at, f"{name}() takes {takes}, and {len(args)} are given", signature)
    by_name = {parameter.arg for parameter in (*spec.args, *spec.kwonlyargs)}
    for key in keywords:
        if key in by_name and key in bindings:
            env.fail(at, f"{name}() gets two values for {key}", signature)
        if key not in by_name and spec.kwarg is None:
            env.fail(at, f"{name}() has no parameter {key}", signature)
    bindings.update((key, value) for key, value in keywords.items() if key in by_name)
    if spec.kwarg is not None:
        others = ((key, value) for key, value in keywords.items() if key not in by_name)
        bindings[spec.kwarg.arg] = Keywords(others)
    with_default = positional[len(positional) - len(defaults) :]
    for parameter, default in zip((*with_default, *spec.kwonlyargs), (*defaults, *keyword_defaults), strict=True):
        if default is not None:
            bindings.setdefault(parameter.arg, default)
    missing = [parameter.arg for parameter in (*positional, *spec.kwonlyargs) if parameter.arg not in bindings]
    if missing:
        env.fail(at, f"{name}() lacks a value for {', '.join(missing)}", signature)
    for key, value in bindings.items():
        env.refuse_iterator(value, at, f"the argument {key}")
    return bindings


def _lower_inside(
    env: Environment, callee: FunctionType | Closure, frame: Frame, body: FunctionNode, node: ast.AST
) -> Value:
    """The result of a function that is called at `node`, inside those that are being inlined."""
    if len(env.inlined) >= DEEPEST:
        again = sum(each is callee for each in env.inlined)
        if again > DEEPEST // 8:
            env.fail(
                node,
                f"{frame.name}() is called within itself too deep; calls are inlined, so recursion must end when "
                f"the kernel is compiled, at most {DEEPEST:,} calls deep",
                "a while loop",
            )
        env.fail(node, f"calls are nested more than {DEEPEST:,} deep here, which is the most", "a loop")
    env.inlined.append(callee)
    try:
        if len(env.inlined) % ON_A_STACK:
            return lower_body(env, frame, body)
        return _on_new_stack(lambda: lower_body(env, frame, body))
    finally:
        env.inlined.pop()


def lower_body(env: Environment, frame: Frame, node: FunctionNode) -> Value:
    """Lower the body of a function whose parameters are bound in `frame.bindings`."""
    env.frame, caller = frame, env.frame
    try:
        yielded = _yield_of(node)
        if yielded is not None:
            expression(env, yielded)
        if isinstance(node, ast.Lambda):
            return env.rename(expression(env, node.body), TEMPORARY + "value")
        frame.bindings[RETURNED] = frame.bindings[SKIPPING] = FALSE
        falls = statements(env, node.body)
        returned = frame.bindings.get(RETURNED, FALSE)
        result = frame.bindings.get(RESULT)
        if falls and (returned != TRUE or result is None):
            message = "this function can end without `return`" if result else "this function returns nothing"
            env.fail(node, message, "a return with a value on every path")
        if not falls or result is None:
            env.fail(node, "this function never returns: its loop has no way out", "a break or a return")
        if isinstance(result, Unassigned):
            env.fail(frame.returned_at or node, result.reason, "the same number of values in every return")
        return env.rename(result, TEMPORARY + node.name)
    finally:
        env.frame = caller


def _on_new_stack(work: Callable[[], Value]) -> Value:
    """The result of a function that a thread of its own runs while this one waits."""
    results: list[Value] = []
    errors: list[BaseException] = []
    context = copy_context()

    def run() -> None:
        try:
            results.append(context.run(work))
        except BaseException as error:
            errors.append(error)

    thread = Thread(target=run, daemon=True)
    thread.start()
    thread.join()
    for error in errors:
        raise error
    return results[0]


def in_order(function: FunctionNode, bindings: Bindings) -> tuple[Value, ...]:
    """The values of a function's parameters in their order, those of `*args` one by one."""
    spec = function.args
    values = [bindings[parameter.arg] for parameter in (*spec.posonlyargs, *spec.args)]
    rest = bindings[spec.vararg.arg] if spec.vararg is not None else ()
    assert isinstance(rest, tuple)
    return (*values, *rest, *(bindings[parameter.arg] for parameter in spec.kwonlyargs))


def count(number: int, noun: str) -> str:
    """`1 argument`, `2 arguments`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


@lru_cache(maxsize=1024)
def _without_types(spec: ast.arguments) -> str:
    """Parameters as the user writes them, without annotations."""
    plain = copy.deepcopy(spec)
    for node in ast.walk(plain):
        if isinstance(node, ast.arg):
            node.annotation = None
    return ast.unparse(plain)


@lru_cache(maxsize=1024)
def _yield_of(function: FunctionNode) -> ast.expr | None:
    """The `yield` that makes a function a generator, even where it is never reached."""
    pending: list[ast.AST] = list(function.body) if isinstance(function, ast.FunctionDef) else [function.body]
    while pending:
        node = pending.pop(0)
        if isinstance(node, ast.Yield | ast.YieldFrom):
            return node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            pending[:0] = ast.iter_child_nodes(node)
    return None
