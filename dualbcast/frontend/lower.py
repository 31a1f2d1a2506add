"""The entry of the front end: a scalar function and the kinds of its arguments come in, its IR and captures go out."""

from __future__ import annotations

import ast
import keyword
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, NamedTuple

# Each of these files registers the lowerings of its syntax in the dispatch table.
import dualbcast.frontend.calls
import dualbcast.frontend.loops
import dualbcast.frontend.operators
import dualbcast.frontend.statements  # noqa: F401
from dualbcast.errors import nested_too_deeply
from dualbcast.frontend.arithmetic import apply, as_scalar, with_custom_derivative
from dualbcast.frontend.environment import ArrayKind, Environment, freeze
from dualbcast.frontend.inlining import bind, lower_body
from dualbcast.frontend.source import find_source, local_names
from dualbcast.frontend.values import Arguments, Frame, Record, Static, Unassigned, Value, describe
from dualbcast.ir.nodes import Const, Function, Kind, Names, Output, Var
from dualbcast.ir.structure import NUMBER, Structure
from dualbcast.ir.traversal import among
from dualbcast.rules.guards import Capture
from dualbcast.rules.table import RULES, Custom, Rule

# Names that the emitted text uses itself; a user's variable of such a name gets a number.
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
        The captures that are compiled in; each call compares them with the present objects.
    arrays : dict of str to Capture
        The captured arrays by label; each call reads them again.
    """

    function: Function
    guards: tuple[Capture, ...]
    arrays: dict[str, Capture]


def no_arrays(value: object) -> None:
    """The kind of a captured array's elements, for functions that may capture none: no object is an array."""


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
        For each parameter in the order of the signature, with the items of `*args` one by one: the kind of an array's
        elements, a number, or a Python object that is known.
    array_kind : function
        The kind of the elements of a captured array, or None for an object that is no array.
    whole : bool
        Whether the function's own rule or custom partials count; they do not where its body is lowered for them.

    Raises
    ------
    CompileError
        Something cannot be compiled; the error points at the user's line.
    """
    source = find_source(function)
    assert isinstance(function, FunctionType)
    node = source.node
    frame = Frame(source, local_names(node), {})
    env = Environment(Names(RESERVED | RULES.keys()), array_kind, frame)
    env.guards.append(source.code())
    values, params = _values(env, node.args, arguments)
    meaning = env.meaning(function) if whole else None
    by_keyword = [param.arg for param in node.args.kwonlyargs]
    count = len(values) - len(by_keyword)
    given = Arguments(values[:count], dict(zip(by_keyword, values[count:], strict=True)))
    frame.bindings = bind(env, node, function.__name__, given, {}, node)
    env.taken.update(frame.bindings)
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


def _values(
    env: Environment, spec: ast.arguments, arguments: Sequence[Argument]
) -> tuple[tuple[Value, ...], list[Var]]:
    """The values of a function's parameters, those of `*args` one by one, and the variables among them for arrays."""
    if spec.kwarg is not None:
        env.fail(spec.kwarg, f"a broadcast function cannot take `**{spec.kwarg.arg}`", "named parameters")
    positional = [*spec.posonlyargs, *spec.args]
    parameters = [(param, param.arg) for param in positional]
    if spec.vararg is not None:
        extra = len(arguments) - len(positional) - len(spec.kwonlyargs)
        parameters += [(spec.vararg, f"{spec.vararg.arg}_{at}") for at in range(extra)]
    parameters += [(param, param.arg) for param in spec.kwonlyargs]
    values: list[Value] = []
    # A list: an argument of `*rest` may have the name of another parameter, as rest_0.
    params: list[Var] = []
    for (param, name), argument in zip(parameters, arguments, strict=True):
        if isinstance(argument, Const):
            values.append(argument)
        elif isinstance(argument, Static):
            known = argument.object
            instead = "a tuple" if isinstance(known, list) else "a number, an array, or a static argument"
            values.append(env.usable(Capture((known,), 0, known, name), param, name, instead))
        else:
            params.append(Var(env.names.fresh(name), argument))
            values.append(params[-1])
            env.taken.add(name)
    return tuple(values), params


def _outputs(env: Environment, value: Value) -> tuple[tuple[Output, ...], Structure]:
    """The numbers that a function returns, and the structure that they have in its value."""
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
