"""The front end's entry: from a scalar function and the kinds of its arguments to IR, and the names it captures."""

from __future__ import annotations

import ast
import keyword
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, NamedTuple

from dualbcast.errors import nested_too_deeply
from dualbcast.frontend.environment import freeze
from dualbcast.frontend.inlining import in_order, local_names
from dualbcast.frontend.source import Capture, find_source
from dualbcast.frontend.statements import Statements
from dualbcast.frontend.values import Env, Frame, Record, Static, Unassigned, Value, describe
from dualbcast.ir.nodes import Const, Function, Kind, Names, Output, Var
from dualbcast.ir.structure import NUMBER, Structure
from dualbcast.ir.walk import among
from dualbcast.rules.table import RULES, Custom, Rule

__all__ = ["FOREVER", "RESERVED", "ArrayKind", "Lowered", "lower", "no_arrays"]

# Names that emitted text uses for itself; a user's variable of that name gets a number.
FOREVER = "forever"
RESERVED = frozenset(keyword.kwlist) | {
    FOREVER,
    *("float32", "float64", "int64", "uint8", "range", "min", "quotient", "divided"),
    *("scratch", "select", "side_by_side", "sum_terms", "muladd", "mulsub", "submul"),
    *(f"{verb}_{half}" for verb in ("load", "store", "from", "to") for half in ("float16", "bfloat16")),
    *(f"{verb}_{lanes}" for verb in ("load", "store") for lanes in (2, 4)),
}


class Lowered(NamedTuple):
    """A function in IR, and what it takes from its surroundings.

    Attributes
    ----------
    function : Function
        Its parameters are the arguments that are no constants, and then the captured arrays.
    guards : tuple of Capture
        What is compiled in: a call compares it with what is there then.
    arrays : dict of str to Capture
        The captured arrays by the names that they go by; a call reads them anew.
    """

    function: Function
    guards: tuple[Capture, ...]
    arrays: dict[str, Capture]


ArrayKind = Callable[[Any], Kind | None]


def no_arrays(value: object) -> None:
    """The kind of the elements of a captured array, where none may be captured."""


def lower(
    function: Callable[..., Any],
    arguments: Sequence[Kind | Const | Static],
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
        The kind of the elements of a captured array, or None for what is no array.
    whole : bool
        Whether this is a user's whole function, which may have a rule or custom partials; not the body of one.

    Raises
    ------
    CompileError
        At the user's line, for whatever cannot be compiled.
    """
    source = find_source(function)
    assert isinstance(function, FunctionType)
    names = Names(RESERVED | RULES.keys())
    frontend = Statements(names, array_kind)
    frontend.guards.append(source.code())
    params: list[Var] = []
    labels: list[str] = []
    env: Env = {}
    frontend.frame = frame = Frame(source, local_names(source.node), env)

    def bind(node: ast.arg, name: str, argument: Kind | Const | Static) -> Value:
        if isinstance(argument, Const):
            return argument
        if isinstance(argument, Static):
            value = frontend.known(argument.object, Capture((argument.object,), 0, argument.object, name))
            if value is None:
                kind = type(argument.object).__name__
                instead = "a tuple" if isinstance(argument.object, list) else "a number, an array, or a static argument"
                frontend.fail(node, f"{name} is of type {kind}, which a kernel cannot use", instead)
            return value
        params.append(Var(names.fresh(name), argument))
        labels.append(name)
        return params[-1]

    spec = source.node.args
    if spec.kwarg is not None:
        frontend.fail(spec.kwarg, f"a broadcast function cannot take `**{spec.kwarg.arg}`", "named parameters")
    positional, named = [*spec.posonlyargs, *spec.args], spec.kwonlyargs
    extra = len(arguments) - len(positional) - len(named)
    given = iter(arguments)
    for parameter in positional:
        env[parameter.arg] = bind(parameter, parameter.arg, next(given))
    if spec.vararg is not None:
        rest = spec.vararg
        env[rest.arg] = tuple(bind(rest, f"{rest.arg}_{at}", next(given)) for at in range(extra))
    for parameter in named:
        env[parameter.arg] = bind(parameter, parameter.arg, next(given))
    frontend.taken.update(labels, env)
    meaning = frontend.meaning(function) if whole else None
    values = in_order(source.node, env)
    try:
        if isinstance(meaning, Rule):
            numbers = tuple(frontend.as_scalar(value, source.node) for value in values)
            value: Value = frontend.apply(meaning, numbers, source.node)
        else:
            value = frontend.run(frame, source.node)
    except RecursionError:
        frontend.fail(source.node, "branches or expressions in this function are nested too deeply", "a loop")
    frontend.frame = frame
    if isinstance(meaning, Custom):
        value = frontend.customised(meaning, value, values, source.node)
    outputs: list[Output] = []

    def structure(item: Value, name: str) -> Structure:
        if isinstance(item, tuple) and not (isinstance(item, Record) and item.is_iterator):
            kind, fields = (item.python_type, item.fields) if isinstance(item, Record) else (tuple, ())
            return Structure(kind, tuple(structure(part, f"{name}{at}") for at, part in enumerate(item)), fields)
        if not isinstance(item, Const | Var):
            reason = item.reason if isinstance(item, Unassigned) else f"an output is {describe(item)}"
            frontend.fail(frame.returned_at or source.node, reason, "a return of numbers, or of tuples of numbers")
        outputs.append(Output(names.fresh(name), frontend.current(item)))
        return NUMBER

    shape = structure(value, "out")
    if not outputs:
        at = frame.returned_at or source.node
        frontend.fail(at, "this function returns an empty tuple", "a return of at least one number")
    try:
        body = freeze(frontend.block, frontend.current)
    except RecursionError:
        raise nested_too_deeply(frontend.locate(source.node)) from None
    lowered = Function(
        function.__name__,
        (*params, *(param for param, _ in frontend.arrays.values())),
        body,
        tuple(outputs),
        frontend.locate(source.node),
        shape,
        among(frontend.derived, body),
    )
    guards = {(id(guard.place), guard.key, guard.attribute): guard for guard in frontend.guards}
    arrays = {label: capture for label, (_, capture) in frontend.arrays.items()}
    return Lowered(lowered, tuple(guards.values()), arrays)
