"""Inlining: arguments are bound to parameters as Python binds them, and the function's body is lowered in place."""

from __future__ import annotations

import ast
import copy
from contextvars import copy_context
from types import FunctionType, GeneratorType
from typing import NoReturn

from dualbcast.errors import CompileError
from dualbcast.frontend.environment import CALLS, Environment, expression, lowers, register
from dualbcast.frontend.notes import note
from dualbcast.frontend.objects.outdated import LASTING, note_changes
from dualbcast.frontend.paths import statements
from dualbcast.frontend.source import find_source, first_yield, local_names, positional_parameters
from dualbcast.frontend.values import (
    Arguments,
    Bindings,
    Closure,
    Frame,
    Key,
    Keywords,
    Record,
    Unassigned,
    Value,
)
from dualbcast.ir.nodes import FALSE, TEMPORARY, TRUE
from dualbcast.rules.guards import Capture

# How deep calls may be nested, and how many of them share a stack. Python allows 1,000 of its own calls on a stack, and
# lowering a call takes some fifteen of them; deeper calls continue on a thread, which has a stack of its own.
DEEPEST_CALLS = 1000
CALLS_PER_STACK = 16


def inline(env: Environment, function: FunctionType, arguments: Arguments, node: ast.AST) -> Value:
    """The result of a Python function."""
    return lower_call(env, function, frame_of_call(env, function, arguments, node), node)


def frame_of_call(env: Environment, function: FunctionType, arguments: Arguments, node: ast.AST) -> Frame:
    """The frame of a call, in which the function's parameters are bound to the arguments and its defaults."""
    try:
        source = find_source(function)
    except CompileError as error:
        env.fail(node, error.message, error.hint)
    env.guards.append(source.code())
    spec, name = source.node.args, function.__name__
    bindings = bind(env, spec, name, arguments, _defaults(env, function, spec, node), node)
    return Frame(source, source.node, local_names(source.node), bindings, name=name)


@lowers(ast.Lambda)
def make_closure(env: Environment, node: ast.FunctionDef | ast.Lambda) -> Closure:
    """A function that is defined inside the one being compiled."""
    spec = node.args
    positional = positional_parameters(spec)
    parameters = (*positional[len(positional) - len(spec.defaults) :], *spec.kwonlyargs)
    pairs = zip(parameters, (*spec.defaults, *spec.kw_defaults), strict=True)
    defaults = {param.arg: expression(env, default) for param, default in pairs if default is not None}
    return Closure(node, env.frame, {name: _lasting(default) for name, default in defaults.items()})


def _lasting(value: Value) -> Value:
    """A default as what lasts from call to call, so that a change of it in place is an error."""
    if not isinstance(value, Record) or not value.can_change:
        return value
    default = value.like(value)
    default.bases = (value, LASTING)
    return default


@register(CALLS, Closure)
def _inline_closure(env: Environment, callee: Closure, arguments: Arguments, node: ast.AST) -> Value:
    """The result of a function that is defined inside the one being compiled."""
    bindings = bind(env, callee.node.args, callee.name, arguments, callee.defaults, node)
    local = local_names(callee.node)
    frame = Frame(callee.frame.source, callee.node, local, bindings, callee.frame, name=callee.name)
    return lower_call(env, callee, frame, node)


def _defaults(env: Environment, function: FunctionType, spec: ast.arguments, node: ast.AST) -> dict[str, Value]:
    """The defaults of a function's parameters, by name."""
    defaults, by_keyword = function.__defaults__ or (), function.__kwdefaults__ or {}
    positional = positional_parameters(spec)
    with_default = positional[len(positional) - len(defaults) :]
    places = [(param.arg, defaults, at) for at, param in enumerate(with_default)]
    places += [(param.arg, (by_keyword[param.arg],), 0) for param in spec.kwonlyargs if param.arg in by_keyword]
    label = f"a default of {function.__name__}()"
    return {name: env.usable(Capture(place, at, place[at], f"default_{at}"), node, label) for name, place, at in places}


def bind(
    env: Environment, spec: ast.arguments, name: str, arguments: Arguments, defaults: dict[str, Value], node: ast.AST
) -> Bindings:
    """Python's binding of arguments to parameters."""
    (args, keywords), positional = arguments, positional_parameters(spec)

    def fail(problem: str) -> NoReturn:
        env.fail(node, f"{name}() {problem}", "" if name == "<lambda>" else f"{name}({_without_types(spec)})")

    bindings: Bindings = {parameter.arg: arg for parameter, arg in zip(positional, args, strict=False)}
    extra = args[len(positional) :]
    if spec.vararg is not None:
        bindings[spec.vararg.arg] = Record(tuple, extra)
    elif extra:
        fail(f"takes {count(len(positional), 'positional argument')}, and {len(args)} are given")
    by_name = {parameter.arg for parameter in (*spec.args, *spec.kwonlyargs)}
    others = Keywords()
    for key, value in keywords.items():
        if key not in by_name:
            if spec.kwarg is None:
                fail(f"has no parameter {key}")
            others[key] = value
        elif key in bindings:
            fail(f"gets two values for {key}")
        else:
            bindings[key] = value
    if spec.kwarg is not None:
        bindings[spec.kwarg.arg] = others
    for key, default in defaults.items():
        bindings.setdefault(key, default)
    missing = [parameter.arg for parameter in (*positional, *spec.kwonlyargs) if parameter.arg not in bindings]
    if missing:
        fail(f"lacks a value for {', '.join(missing)}")
    for key, value in bindings.items():
        env.refuse_iterator(value, node, f"the argument {key}")
    return bindings


def lower_call(env: Environment, callee: object, frame: Frame, node: ast.AST) -> Value:
    """Lower a function that is called at `node`, with a check of how deep calls are nested."""
    if len(env.inlined) >= DEEPEST_CALLS:
        again = sum(each is callee for each in env.inlined)
        if again > DEEPEST_CALLS // 8:
            env.fail(
                node,
                f"{frame.name}() is called within itself too deep; calls are inlined, so recursion must end when "
                f"the kernel is compiled, at most {DEEPEST_CALLS:,} calls deep",
                "a while loop",
            )
        env.fail(node, f"calls are nested more than {DEEPEST_CALLS:,} deep here, which is the most", "a loop")
    frame.calls, frame.caller = (*env.frame.calls, (frame.name, env.locate(node))), env.frame
    env.inlined.append(callee)
    try:
        if len(env.inlined) % CALLS_PER_STACK:
            return lower_body(env, frame)
        from concurrent.futures import ThreadPoolExecutor  # needed for deep calls only

        with ThreadPoolExecutor(1) as new_stack:
            return new_stack.submit(copy_context().run, lower_body, env, frame).result()
    finally:
        env.inlined.pop()


def lower_body(env: Environment, frame: Frame) -> Value:
    """Lower the body of a function whose parameters are bound in `frame.bindings`."""
    env.frame, caller, node = frame, env.frame, frame.node
    note_changes(frame.bindings, [caller.bindings])
    try:
        is_generator = first_yield(node) is not None
        if is_generator:
            frame.bindings[Key.YIELDED] = Record(list, ())
        for parameter in (*positional_parameters(node.args), node.args.vararg, *node.args.kwonlyargs):
            if parameter is not None:
                note(env, "argument", parameter.arg, frame.bindings[parameter.arg], parameter)
        if isinstance(node, ast.Lambda):
            value = env.rename(expression(env, node.body), TEMPORARY + "value")
            note(env, "return", "return", value, node.body)
            return value
        frame.bindings[Key.RETURNED] = frame.bindings[Key.SKIPPING] = FALSE
        falls = statements(env, node.body)
        if is_generator:
            return _yielded(env, frame)
        returned = frame.bindings.get(Key.RETURNED, FALSE)
        result = frame.bindings.get(Key.RESULT)
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
        note_changes(caller.bindings, [frame.bindings])


def _yielded(env: Environment, frame: Frame) -> Value:
    """The items of a generator that has run to its end."""
    items = frame.bindings[Key.YIELDED]
    if not isinstance(items, Record):
        problem = "how many items this generator gives depends on the data"
        env.fail(
            first_yield(frame.node) or frame.node, problem, "a function that returns a tuple, or a loop without it"
        )
    return Record(GeneratorType, items)


def in_order(frame: Frame) -> tuple[Value, ...]:
    """The values of a function's parameters in their order, with the items of `*args` one by one."""
    spec, bindings = frame.node.args, frame.bindings
    values = [bindings[parameter.arg] for parameter in positional_parameters(spec)]
    rest = bindings[spec.vararg.arg] if spec.vararg is not None else Record(tuple, ())
    assert isinstance(rest, Record)
    return (*values, *rest, *(bindings[parameter.arg] for parameter in spec.kwonlyargs))


def count(number: int, noun: str) -> str:
    """`1 argument`, `2 arguments`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _without_types(spec: ast.arguments) -> str:
    """Parameters as the user writes them, without annotations."""
    plain = copy.deepcopy(spec)
    for node in ast.walk(plain):
        if isinstance(node, ast.arg):
            node.annotation = None
    return ast.unparse(plain)
