"""The front end's entry: from a scalar function and the kinds of its arguments to IR, and the names it captures."""

from __future__ import annotations

import ast
import keyword
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType
from typing import Any, NamedTuple, NoReturn

# Each of these files registers the lowerings of its syntax in the dispatch table.
import dualbcast.frontend.calls
import dualbcast.frontend.loops
import dualbcast.frontend.operators
import dualbcast.frontend.statements  # noqa: F401
from dualbcast.errors import nested_too_deeply
from dualbcast.frontend.arithmetic import apply, as_scalar, with_custom_derivative
from dualbcast.frontend.environment import ArrayKind, Environment, freeze
from dualbcast.frontend.inlining import in_order, lower_body
from dualbcast.frontend.source import find_source, local_names
from dualbcast.frontend.values import Frame, Record, Static, Unassigned, Value, describe
from dualbcast.ir.nodes import Const, Function, Kind, Names, Output, Var
from dualbcast.ir.structure import NUMBER, Structure
from dualbcast.ir.traversal import among
from dualbcast.rules.guards import Capture
from dualbcast.rules.table import RULES, Custom, Rule

__all__ = ["FOREVER", "RESERVED", "ArrayKind", "Lowered", "lower", "no_arrays"]

# Names that emitted text uses for itself; a user's variable of that name gets a number.
FOREVER = "forever"
RESERVED = frozenset(keyword.kwlist) | {
    FOREVER,
    *("float32", "float64", "int64", "uint8", "range", "min", "quotient", "divided"),
    *("scratch", "select", "sum_terms", "muladd", "mulsub", "submul"),
    *(f"{verb}_{half}" for verb in ("load", "store", "from", "to") for half in ("float16", "bfloat16")),
    *(f"{verb}_{lanes}" for verb in ("load", "store") for lanes in (2, 4)),
}

Argument = Kind | Const | Static


class Lowered(NamedTuple):
    """A function in IR, and its captures.

    Attributes
    ----------
    function : Function
        Its parameters are the arguments that are no constants, and then the captured arrays.
    guards : tuple of Capture
        The captures that are compiled in: a call compares them with the objects that are there then.
    arrays : dict of str to Capture
        The captured arrays by the names that they go by; a call reads them anew.
    """

    function: Function
    guards: tuple[Capture, ...]
    arrays: dict[str, Capture]


def no_arrays(value: object) -> None:
    """The kind of the elements of a captured array, where none may be captured."""


def lower(
    function: Callable[..., Any],
    arguments: Sequence[Argument],
    array_kind: ArrayKind = no_arrays,
    *,
    whole: bool = False,
) -> Lowered:
    """The IR of a scalar function.

    Parameters
    ----------
    function : function
        A Python function.
    arguments : sequence
        For each parameter in the order of the signature, with those of `*args` spread in their place, the kind of an
        array's elements, a number, or a Python object that is known.
    array_kind : function
        The kind of the elements of a captured array, or None for an object that is no array.
    whole : bool
        Whether this is a user's whole function, which may have a rule or custom partials; not the body of one.

    Raises
    ------
    CompileError
        At the user's line, for whatever cannot be compiled.
    """
    source = find_source(function)
    assert isinstance(function, FunctionType)
    node = source.node
    frame = Frame(source, local_names(node), {})
    env = Environment(Names(RESERVED | RULES.keys()), array_kind, frame)
    env.guards.append(source.code())
    params = _bind(env, node.args, iter(arguments), len(arguments))
    meaning = env.meaning(function) if whole else None
    values = in_order(node, frame.bindings)
    try:
        if isinstance(meaning, Rule):
            numbers = tuple(as_scalar(env, value, node) for value in values)
            value: Value = apply(env, meaning, numbers, node)
        else:
            value = lower_body(env, frame, node)
    except RecursionError:
        env.fail(node, "branches or expressions in this function are nested too deeply", "a loop")
    if isinstance(meaning, Custom):
        value = with_custom_derivative(env, meaning, value, values, node)
    outputs, structure = _outputs(env, value)
    try:
        body = freeze(env.block, env.current)
    except RecursionError:
        raise nested_too_deeply(env.locate(node)) from None
    lowered = Function(
        function.__name__,
        (*params, *(param for param, _ in env.arrays.values())),
        body,
        outputs,
        env.locate(node),
        structure,
        among(env.derived, body),
    )
    guards = {(id(guard.place), guard.key, guard.attribute): guard for guard in env.guards}
    arrays = {label: capture for label, (_, capture) in env.arrays.items()}
    return Lowered(lowered, tuple(guards.values()), arrays)


def _bind(env: Environment, spec: ast.arguments, arguments: Iterator[Argument], count: int) -> list[Var]:
    """Bind a function's parameters to its `count` arguments; the variables for those that are arrays."""
    params: list[Var] = []
    labels: list[str] = []
    bindings = env.frame.bindings

    def bind(parameter: ast.arg, name: str) -> Value:
        argument = next(arguments)
        if isinstance(argument, Const):
            return argument
        if isinstance(argument, Static):
            value = env.known(argument.object, Capture((argument.object,), 0, argument.object, name))
            if value is None:
                _refuse(env, parameter, name, argument)
            return value
        params.append(Var(env.names.fresh(name), argument))
        labels.append(name)
        return params[-1]

    if spec.kwarg is not None:
        env.fail(spec.kwarg, f"a broadcast function cannot take `**{spec.kwarg.arg}`", "named parameters")
    positional = [*spec.posonlyargs, *spec.args]
    for parameter in positional:
        bindings[parameter.arg] = bind(parameter, parameter.arg)
    if spec.vararg is not None:
        rest, extra = spec.vararg, count - len(positional) - len(spec.kwonlyargs)
        bindings[rest.arg] = tuple(bind(rest, f"{rest.arg}_{at}") for at in range(extra))
    for parameter in spec.kwonlyargs:
        bindings[parameter.arg] = bind(parameter, parameter.arg)
    env.taken.update(labels, bindings)
    return params


def _refuse(env: Environment, parameter: ast.arg, name: str, argument: Static) -> NoReturn:
    kind = type(argument.object).__name__
    instead = "a tuple" if isinstance(argument.object, list) else "a number, an array, or a static argument"
    env.fail(parameter, f"{name} is of type {kind}, which a kernel cannot use", instead)


def _outputs(env: Environment, value: Value) -> tuple[tuple[Output, ...], Structure]:
    """The numbers that a function returns, and how they make up its value."""
    outputs: list[Output] = []
    place = env.frame.returned_at or env.frame.source.node

    def structure(item: Value, name: str) -> Structure:
        if isinstance(item, tuple) and not (isinstance(item, Record) and item.is_iterator):
            kind, fields = (item.python_type, item.fields) if isinstance(item, Record) else (tuple, ())
            return Structure(kind, tuple(structure(part, f"{name}{at}") for at, part in enumerate(item)), fields)
        if not isinstance(item, Const | Var):
            reason = item.reason if isinstance(item, Unassigned) else f"an output is {describe(item)}"
            env.fail(place, reason, "a return of numbers, or of tuples of numbers")
        outputs.append(Output(env.names.fresh(name), env.current(item)))
        return NUMBER

    shape = structure(value, "out")
    if not outputs:
        env.fail(place, "this function returns an empty tuple", "a return of at least one number")
    return tuple(outputs), shape
