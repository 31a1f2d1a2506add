"""Derivatives inside the language: a kernel differentiates a function that it calls, to any order.

The call is lowered with fresh names for the arguments to differentiate in, its IR is differentiated, and the result is
inlined. Only those names are seeds, so derivatives in different arguments are never confused.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

from dualbcast.errors import ArgumentError
from dualbcast.frontend.builtins import BUILTINS
from dualbcast.frontend.environment import CALLS, LONGEST, Environment, call_value, register
from dualbcast.frontend.source import positional_parameters
from dualbcast.frontend.values import (
    Arguments,
    Closure,
    Derived,
    Operator,
    Partial,
    Record,
    Static,
    Value,
    describe,
    is_function,
)
from dualbcast.ir.nodes import TEMPORARY, Assign, Atom, Block, Const, Function, Names, Output, Stmt, Var
from dualbcast.ir.simplification import simplify
from dualbcast.ir.traversal import all_expressions, among, statements, variables
from dualbcast.rules.guards import Capture


class DerivativeOf:
    """A derivative of a function as a Python object."""

    def __init__(self, function: Any, operator: Operator) -> None:
        self.function, self.operator = function, operator


# Takes (function, names, has_value), and differentiates a function in IR in all its parameters, with fresh names from
# `names`. The outputs of the result are those of the function, if `has_value`, and then the partials by parameter. The
# guards are those of the rules that were used. Differentiation is above the front end, since it lowers partials.
WithPartials = Callable[[Function, Names, bool], tuple[Function, Sequence[Capture]]]
_with_partials: WithPartials


def differentiate_by(with_partials: WithPartials) -> None:
    """Set the transformation that carries out the derivatives that a kernel takes."""
    global _with_partials
    _with_partials = with_partials


# --- calls of derivatives --------------------------------------------------------------------------------------------


@register(CALLS, Derived)
def _differentiate(env: Environment, derived: Derived, arguments: Arguments, node: ast.Call) -> Value:
    """The result of calling a derivative of a function."""
    operator, sequence = derived.operator, (*derived.calls, arguments)
    (args, keywords), later = sequence[0], sequence[1:]
    names = parameter_names(derived.function)
    wanted = _wanted(env, operator, names, sequence[0], node)
    given: dict[int | str, Value] = dict(enumerate(args))
    given.update(keywords)
    seeds: dict[int | str, Var] = {}
    moves: list[Stmt] = []
    for at in dict.fromkeys(wanted):
        label = at if isinstance(at, str) else names[at] if at < len(names) else "x"
        is_aligned = isinstance(at, int) and not derived.calls and len(node.args) == len(args)
        point = _point(env, given[at], at, operator, node.args[at] if is_aligned else node)  # type: ignore[index]
        seeds[at] = Var(env.names.fresh(label), "float")
        moves.append(Assign(seeds[at], point, env.locate(node)))
    given.update(seeds)
    first = Arguments(tuple(given[at] for at in range(len(args))), {key: given[key] for key in keywords})
    body: list[Stmt] = []
    notes = env.notes
    if notes:
        # The derivative has no notes. Those of the function come from a value that nothing else reads.
        _value_in(env, env.block, derived.function, sequence, node)
        env.notes = False
    try:
        value = _value_in(env, body, derived.function, (first, *later), node)
    finally:
        env.notes = notes
    if is_function(value):
        # The derivative of a function that returns a function is a function too; it is taken when that is called.
        if operator.has_value:
            problem = f"{describe(derived.function)} returns {describe(value)}, which cannot be an output"
            instead = f"{operator.name.removeprefix('value_and_')}(…), and the value by a call of its own"
            env.fail(node, problem, instead)
        return Derived(operator, derived.function, sequence)
    leaves = list(_leaves(env, value, derived, node))
    outputs = tuple(Output(f"{TEMPORARY}{at}", env.current(leaf)) for at, leaf in enumerate(leaves))
    inside, params = env.freeze(body), tuple(seeds.values())
    function = Function("", params, inside, outputs, env.locate(node), derived=among(env.derived, inside))
    results = iter(_append_partials(env, function, env.freeze(moves), operator.has_value, node))
    primal = [_rebuild(value, results)] if operator.has_value else []
    partials = {at: _rebuild(value, results) for at in seeds}
    derivative: Value = Record(tuple, (partials[at] for at in wanted))
    if operator.wrt is not None and not isinstance(operator.wrt, tuple):
        derivative = partials[wanted[0]]
    return Record(tuple, (*primal, derivative)) if primal else derivative


def _value_in(
    env: Environment, body: list[Stmt], function: Value, sequence: tuple[Arguments, ...], node: ast.Call
) -> Value:
    """Lower a call of a function into `body`, then a call of its result with the next arguments, and so on."""
    root = env.root
    if env.block is root:
        env.root = body  # a statement that always runs in the called function always runs here
    try:
        with env.into(body):
            value = function
            for arguments in sequence:
                value = call_value(env, value, arguments, node)
    finally:
        env.root = root
    return value


def _append_partials(env: Environment, function: Function, moves: Block, has_value: bool, node: ast.AST) -> list[Atom]:
    """Append the partials of a function at the point that `moves` set, after its values if those are wanted."""
    partials, guards = _with_partials(function, env.names, has_value)
    env.guards.extend(guards)
    whole = Function("", (), (*moves, *partials.body), partials.outputs, function.location)
    read = {leaf.name: leaf for expr in all_expressions(whole) for leaf in variables(expr)}
    final = simplify(replace(whole, params=tuple(read.values())))
    env.length += len(statements(final.body))
    if env.length > LONGEST:
        env.fail(node, f"this derivative makes more than {LONGEST:,} operations of the function", "a lower order")
    env.block.extend(final.body)
    env.derived.update(partials.derived)
    return [output.value for output in final.outputs if isinstance(output.value, Atom)]


# --- arguments and results -------------------------------------------------------------------------------------------


def _wanted(
    env: Environment, operator: Operator, names: Sequence[str], arguments: Arguments, node: ast.Call
) -> list[int | str]:
    """The arguments to differentiate in: each a position, or a name if the call gives it by name."""
    args, keywords = arguments
    if operator.wrt is None:
        if not args and not keywords:
            env.fail(node, f"{operator.name}() is taken in the arguments of this call, and there are none")
        return [*range(len(args)), *keywords]
    places: list[int | str] = []
    for item in operator.items:
        at = find_argument(item, names, len(args), keywords)
        if at is None:
            shown = f"argument {item + 1}" if isinstance(item, int) and item >= 0 else f"wrt={item!r}"
            problem = f"{operator.name}() is taken in {shown}, which this call does not give"
            env.fail(node, problem, "a call that also gives it")
        places.append(at)
    return places


def _point(env: Environment, value: Value, at: int | str, operator: Operator, where: ast.AST) -> Atom:
    """The number at which a derivative is taken."""
    label = at if isinstance(at, str) else f"argument {at + 1}"
    if isinstance(value, Const) and value.kind == "int":  # 2 for 2.0
        return Const(float(value.value), "float")
    env.merged(value, where)
    others = "wrt= for the arguments that are floats" if operator.wrt is None else ""
    if not isinstance(value, Atom):
        env.fail(where, f"a derivative is taken in numbers, and {label} is {describe(value)}", others)
    if value.kind != "float":
        kind = "an integer" if value.kind == "int" else "a bool"
        instead = f"float(…) around it{', or ' * bool(others)}{others}"
        env.fail(where, f"{label} is {kind}, in which there is no derivative", instead)
    return value


def _leaves(env: Environment, value: Value, derived: Derived, node: ast.Call) -> Iterator[Atom]:
    """The numbers that a function returns."""
    if isinstance(value, Record):
        for item in value:
            yield from _leaves(env, item, derived, node)
    elif isinstance(value, Atom):
        yield value
    else:
        env.merged(value, node)
        problem = f"an output of {describe(derived.function)} is {describe(value)}"
        env.fail(node, f"{problem}, which has no derivative", "numbers, or tuples of them")


def parameter_names(function: Value) -> Sequence[str]:
    """The names of a function's positional parameters; none if they are unknown."""
    match function:
        case Closure():
            return [parameter.arg for parameter in positional_parameters(function.node.args)]
        case Partial():
            args, keywords = function.arguments
            return [name for name in parameter_names(function.function)[len(args) :] if name not in keywords]
        case Derived():
            return parameter_names(function.function)
        case Static(DerivativeOf() as known):
            return parameter_names(Static(known.function))
        case Static(known):
            try:
                parameters = inspect.signature(known, follow_wrapped=False).parameters.values()
            except (TypeError, ValueError):
                return []
            by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
            return [parameter.name for parameter in parameters if parameter.kind in by_position]
    return []


def find_argument(item: int | str, names: Sequence[str], count: int, named: Collection[str]) -> int | str | None:
    """The argument of a call that `item` of a `wrt=` means, as a position or a name; None if the call lacks it.

    `names` are those of the function's parameters; the call gives `count` arguments by position and others by name.
    """
    at = item
    if isinstance(at, int):
        at = at + count if at < 0 else at
        at = names[at] if count <= at < len(names) else at
    elif at not in named and at in names:
        at = names.index(at)
    return at if at in named or at in range(count) else None


def _rebuild(model: Value, leaves: Iterator[Atom]) -> Value:
    """The structure of `model` with other numbers in it."""
    if isinstance(model, Record):
        return model.like(_rebuild(item, leaves) for item in model)
    return next(leaves)


# --- the public functions in a kernel --------------------------------------------------------------------------------


def take_derivative(public: Callable[..., Any], default: int | None) -> None:
    """Let kernels call a public function, which makes the operator of its name; `default` is its usual `wrt`."""

    def lowering(env: Environment, node: ast.Call, function: Value, /, *more: Value, wrt: Value | None = None) -> Value:
        name = public.__name__
        if more or not is_function(function):
            problem = f"{name}() takes a function, and this is {describe(function)}"
            if more:
                problem = f"{name}() takes only a function; its result takes the arguments"
            env.fail(node, problem, f"{name}(g)(x)")
        known: Any = default
        if wrt is not None:
            problem = f"wrt= must be known when the kernel is compiled, and this is {describe(wrt)}"
            known = env.known_object(wrt, node, problem)
        try:
            return Derived(Operator(name, tuple(known) if isinstance(known, list) else known), function)
        except ArgumentError as error:
            env.fail(node, str(error))

    BUILTINS[public] = lowering


def called_with(function: Any, names: tuple[str, ...], *args: Any) -> Any:
    """Call `function` with the last arguments under these names; plain Python compiles this to call a derivative."""
    return _spread(function, names, *args)


def _spread(function: Any, names: tuple[str, ...], *args: Any) -> Any:
    count = len(args) - len(names)
    return function(*args[:count], **dict(zip(names, args[count:], strict=True)))


def _lower_spread(env: Environment, node: ast.Call, function: Value, names: tuple[Static, ...], *args: Value) -> Value:
    count = len(args) - len(names)
    named = dict(zip((name.object for name in names), args[count:], strict=True))
    return call_value(env, function, Arguments(args[:count], named), node)


BUILTINS[_spread] = _lower_spread
