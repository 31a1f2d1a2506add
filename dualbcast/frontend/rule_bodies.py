"""The functions and partials of rules and custom derivatives in IR, lowered once, and again when a capture changes.

Users' functions, which may have rules or custom partials themselves, enter the front end here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from dualbcast.errors import ArgumentError, CompileError
from dualbcast.frontend import lower as lower_function
from dualbcast.frontend.builtins import BUILTINS
from dualbcast.frontend.environment import ArrayKind
from dualbcast.frontend.lower import Lowered, no_arrays
from dualbcast.frontend.source import find_source, locate
from dualbcast.frontend.values import Static
from dualbcast.ir.nodes import TEMPORARY, Assign, Const, Expr, Function, Kind, Op, Var
from dualbcast.ir.structure import NUMBER
from dualbcast.ir.traversal import free_names, operations_of
from dualbcast.rules.guards import Capture, all_hold
from dualbcast.rules.registration import open_to_users
from dualbcast.rules.table import CUSTOMS, RULES, Rule

Arguments = tuple[Kind | Const, ...]


def lower(
    function: Callable[..., Any], arguments: Sequence[Kind | Const | Static], array_kind: ArrayKind = no_arrays
) -> Lowered:
    """The IR of a scalar function, with the guards of every rule and custom derivative that it calls."""
    lowered = lower_function.lower(function, arguments, array_kind, whole=True)
    return lowered._replace(guards=(*lowered.guards, *guards_of(lowered.function)))


def helper_of(row: Rule) -> Function:
    """The IR of a rule's function, with float outputs."""
    return _numbers(_helper(row).function)


def partials_of(source: Callable[..., Any], args: Sequence[Expr]) -> tuple[Function, list[Expr]]:
    """The partials of `source` for these arguments, as a function of the unknown ones and of the result."""
    arguments = _arguments(args)
    lowered = _numbers(_lowered(source, arguments).function)
    if len(lowered.outputs) != len(args):
        count = len(args)
        wanted = "1 argument needs 1 partial derivative" if count == 1 else f"{count} arguments need {count}"
        _fail(source, f"{wanted}, and these partials are {len(lowered.outputs)}", "a tuple with one for each argument")
    return lowered, [output.value for output in lowered.outputs]


def source_of(value: Op) -> tuple[Callable[..., Any] | None, tuple[Expr, ...]]:
    """The Python function of an operation's partials, if any, and the arguments to differentiate in."""
    custom = CUSTOMS.get(value.name)
    if custom is not None:
        return custom.partials, value.args[1:]
    row = RULES.get(value.name)
    return (None if row is None else row.partials), value.args


# --- lowering, once --------------------------------------------------------------------------------------------------


def _lowered(function: Callable[..., Any], arguments: Arguments) -> Lowered:
    key = function, arguments
    lowered = _lowerings.get(key)
    if lowered is None or not all_hold(lowered.guards):
        spec = find_source(function).node.args
        takes = len(spec.posonlyargs) + len(spec.args)
        if len(arguments) != takes and not (spec.vararg is not None and len(arguments) > takes):
            _fail(function, f"this function is given {len(arguments)} arguments, and takes {takes}")
        lowered = _lowerings[key] = lower_function.lower(function, arguments)
    return lowered


_lowerings: dict[tuple[Callable[..., Any], Arguments], Lowered] = {}


def _helper(row: Rule) -> Lowered:
    assert row.function is not None
    return _lowered(row.function, tuple("int" if at in row.integer else "float" for at in range(row.arity)))


def _arguments(args: Sequence[Expr]) -> Arguments:
    """The kinds of the arguments, or their values where these are known, and the kind of the result."""
    return (*(arg if isinstance(arg, Const) else arg.kind for arg in args), "float")


def _numbers(function: Function) -> Function:
    """The function with every output converted to float."""
    if all(output.value.kind == "float" for output in function.outputs):
        return function
    names = free_names(function)
    body, outputs = list(function.body), []
    for output in function.outputs:
        value = output.value
        if isinstance(value, Const):
            value = Const(float(value.value), "float")
        elif value.kind != "float":
            value = Var(names.fresh(TEMPORARY), "float")
            body.append(Assign(value, Op("to_float", (output.value,), "float", function.location), function.location))
        outputs.append(replace(output, value=value))
    return replace(function, body=tuple(body), outputs=tuple(outputs))


# --- guards ----------------------------------------------------------------------------------------------------------


def guards_of(function: Function) -> list[Capture]:
    """The guards of the users' rules and custom derivatives that a function calls, directly or through others."""
    guards: list[Capture] = []
    seen: set[tuple[Any, ...]] = set()
    pending = [(function, True)]
    while pending:
        caller, first = pending.pop()
        for op in operations_of(caller):
            row, custom = RULES.get(op.name), CUSTOMS.get(op.name)
            if not any(each is not None and each.by_user for each in (row, custom)):
                continue
            # Partials depend on the arguments that are known numbers. In partials of partials only the kinds count,
            # because the numbers might differ each time, without end.
            key = op.name, tuple(arg if isinstance(arg, Const) and first else arg.kind for arg in op.args)
            if key in seen:
                continue
            seen.add(key)
            for lowered in _sources(op):
                guards.extend(lowered.guards)
                pending.append((lowered.function, False))
    return guards


def _sources(op: Op) -> Iterator[Lowered]:
    row = RULES.get(op.name)
    if row is not None and row.function is not None:
        yield _helper(row)
    source, args = source_of(op)
    if source is not None:
        partials_of(source, args)  # refuses the wrong number of them
        yield _lowered(source, _arguments(args))


# --- checks of a user's row ------------------------------------------------------------------------------------------


def _check(row: Rule, callables: list[Any]) -> None:
    """Refuse a user's row that could not be used."""
    for each in callables:
        if any(each is known for known in BUILTINS):  # it may not be hashable
            raise ArgumentError(f"{getattr(each, '__name__', each)} has a meaning in kernels already")
    function = _helper(row).function
    assert row.function is not None
    if function.structure != NUMBER:
        _fail(
            row.function,
            f"the function of the rule {row.label} returns a tuple; it must be one number",
            "a rule for each output",
        )
    if row in _called(function):
        _fail(
            row.function, f"the function of the rule {row.label} calls itself, and kernels have no recursion", "a loop"
        )
    params = tuple(Var(f"x{at}", "int" if at in row.integer else "float") for at in range(row.arity))
    partials_of(row.partials, params)


def _called(function: Function) -> set[Rule]:
    """The rules with a function of their own that a function calls, directly or through others."""
    rows: set[Rule] = set()
    pending = [function]
    while pending:
        for op in operations_of(pending.pop()):
            row = RULES.get(op.name)
            if row is not None and row.function is not None and row not in rows:
                rows.add(row)
                pending.append(_helper(row).function)
    return rows


open_to_users(_check)


def _fail(function: Callable[..., Any], message: str, hint: str = "") -> NoReturn:
    source = find_source(function)
    raise CompileError(message, locate(source.node, source.filename), hint)
