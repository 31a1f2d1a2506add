"""The IR of what rules and custom derivatives say: lowered once, and again when something that they capture changes.

Also the way into the front end for whole functions, which may have rules and custom partials themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from dualbcast.compiler import frontend
from dualbcast.compiler.builtin import BUILTINS
from dualbcast.compiler.calls import one_output
from dualbcast.compiler.frontend import Lowered, parameter_names
from dualbcast.compiler.ir import (
    TEMPORARY,
    Assign,
    Atom,
    Const,
    Expr,
    Function,
    Kind,
    Names,
    Op,
    Output,
    Var,
    assigned,
    expressions,
    map_exprs,
    statements,
)
from dualbcast.compiler.rules import CUSTOMS, RULES, Custom, Rule, open_to_users, watch
from dualbcast.compiler.simplify import simplify
from dualbcast.compiler.source import Capture, find_source, locate
from dualbcast.errors import ArgumentError, CompileError

__all__ = ["helper_of", "lower", "partials_of", "source_of", "without_customs"]

Arguments = tuple[Kind | Const, ...]


def lower(function: Callable[..., Any], kinds: Sequence[Kind]) -> Lowered:
    """The IR of a scalar function for arguments of these kinds.

    Unlike the front end alone this minds that the function itself may have a rule or custom partials, and its guards
    are also those of every rule and custom derivative that it calls.
    """
    meaning = watch(function)
    if isinstance(meaning.value, Rule) and meaning.value.by_user:
        lowered = _call_of(meaning.value, function, kinds)
    else:
        lowered = frontend.lower(function, kinds)
    if isinstance(meaning.value, Custom):
        lowered = replace(lowered, function=_with_custom(lowered.function, meaning.value))
    return replace(lowered, guards=(*lowered.guards, meaning, *_guards(lowered.function)))


def helper_of(row: Rule) -> Function:
    """The function that computes a row's."""
    return _numbers(_helper(row).function)


def partials_of(source: Callable[..., Any], args: Sequence[Expr]) -> tuple[Function, list[Expr]]:
    """The partials that `source` gives for these arguments, as a function of the unknown ones and the result."""
    arguments = _arguments(args)
    lowered = _numbers(_lowered(source, arguments).function)
    if len(lowered.outputs) != len(args):
        count = len(args)
        wanted = "1 argument needs 1 partial derivative" if count == 1 else f"{count} arguments need {count}"
        _fail(source, f"{wanted}, and these partials are {len(lowered.outputs)}", "a tuple with one for each argument")
    return lowered, [output.value for output in lowered.outputs]


def source_of(value: Op) -> tuple[Callable[..., Any] | None, tuple[Expr, ...]]:
    """Where the partials of a rule's or a custom derivative's operation are from, and the arguments they are in."""
    custom = CUSTOMS.get(value.name)
    if custom is not None:
        return custom.partials, value.args[1:]
    row = RULES.get(value.name)
    return (None if row is None else row.partials), value.args


def without_customs(function: Function) -> Function:
    """The function as it is computed: a custom derivative matters only to what differentiates it."""
    if not any(op.name in CUSTOMS for op in _operations(function)):
        return function

    def plain(expr: Expr) -> Expr:
        while isinstance(expr, Op) and expr.name in CUSTOMS:
            expr = expr.args[0]
        return expr

    def walk(block: Any) -> Any:
        return tuple(map_exprs(stmt, plain, walk) for stmt in block)

    outputs = tuple(replace(output, value=plain(output.value)) for output in function.outputs)
    return simplify(replace(function, body=walk(function.body), outputs=outputs))


# --- whole functions -------------------------------------------------------------------------------------------------


def _call_of(row: Rule, function: Callable[..., Any], kinds: Sequence[Kind]) -> Lowered:
    """A function that has a rule: one call of it."""
    names = Names()
    source = find_source(function)
    where = locate(source.node, source.filename)
    params = tuple(Var(names.fresh(name), kind) for name, kind in zip(parameter_names(function)[0], kinds, strict=True))
    body, args = [], []
    for position, param in enumerate(params):
        wanted: Kind = "int" if position in row.integer else "float"
        if wanted == "int" and param.kind == "float":
            _fail(function, f"argument {param.name} of {row.label}() must be an integer", "an array of integers")
        arg = param
        if param.kind != wanted:
            arg = Var(names.fresh(TEMPORARY + param.name), wanted)
            body.append(Assign(arg, Op(f"to_{wanted}", (param,), wanted, where), where))
        args.append(arg)
    result = Var(names.fresh(row.label), "float")
    body.append(Assign(result, Op(row.name, tuple(args), "float", where), where))
    output = Output(names.fresh("out"), result)
    return Lowered(Function(function.__name__, params, tuple(body), (output,), where), ())


def _with_custom(function: Function, custom: Custom) -> Function:
    """A function that has a custom derivative, its outputs with that."""
    to_float = custom.partials is not None and any(param.kind == "float" for param in function.params)
    if custom.partials is not None and (function.packed or len(function.outputs) != 1):
        _fail(custom.function, *one_output(custom.label, len(function.outputs)))
    names = Names([*(param.name for param in function.params), *assigned(function.body)])
    body, outputs = list(function.body), []
    for output in function.outputs:
        assert isinstance(output.value, Atom)
        value = output.value
        kind: Kind = "float" if to_float else value.kind
        if value.kind != kind:
            number = Var(names.fresh(TEMPORARY), kind)
            body.append(Assign(number, Op("to_float", (value,), kind, function.location), function.location))
            value = number
        target = Var(names.fresh(TEMPORARY + custom.label), kind)
        body.append(Assign(target, Op(custom.name, (value, *function.params), kind, function.location)))
        outputs.append(replace(output, value=target))
    return replace(function, body=tuple(body), outputs=tuple(outputs))


# --- lowering, once --------------------------------------------------------------------------------------------------


def _lowered(function: Callable[..., Any], arguments: Arguments) -> Lowered:
    key = function, arguments
    found = _kept.get(key)
    if found is None or not all(guard.holds() for guard in found.guards):
        names, _ = parameter_names(function, len(arguments))
        if len(names) != len(arguments):
            _fail(function, f"this function is given {len(arguments)} arguments, and takes {len(names)}")
        found = _kept[key] = frontend.lower(function, arguments, called=True)
    return found


_kept: dict[tuple[Callable[..., Any], Arguments], Lowered] = {}


def _helper(row: Rule) -> Lowered:
    assert row.function is not None
    return _lowered(row.function, tuple("int" if at in row.integer else "float" for at in range(row.arity)))


def _arguments(args: Sequence[Expr]) -> Arguments:
    """The kinds of the arguments, or what they are known to be, and that of the result."""
    return (*(arg if isinstance(arg, Const) else arg.kind for arg in args), "float")


def _numbers(function: Function) -> Function:
    """The function with outputs that are all floats."""
    if all(output.value.kind == "float" for output in function.outputs):
        return function
    names = Names([*(param.name for param in function.params), *assigned(function.body)])
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


def _operations(function: Function) -> Iterator[Op]:
    """Every operation of a function, those inside others too."""
    pending: list[Expr] = [expr for stmt in statements(function.body) for expr in expressions(stmt)]
    pending.extend(output.value for output in function.outputs)
    while pending:
        expr = pending.pop()
        if isinstance(expr, Op):
            yield expr
            pending.extend(expr.args)


# --- guards ----------------------------------------------------------------------------------------------------------


def _guards(function: Function) -> Iterable[Capture]:
    """What the users' rules and custom derivatives rest on that a function calls, and that those call, and so on."""
    found: list[Capture] = []
    seen: set[tuple[Any, ...]] = set()
    pending = [(function, True)]
    while pending:
        caller, first = pending.pop()
        for op in _operations(caller):
            row, custom = RULES.get(op.name), CUSTOMS.get(op.name)
            if custom is None and (row is None or not row.by_user):
                continue
            # Known numbers make different partials. Partials of partials may have ever other numbers: their kinds do.
            key = op.name, tuple(arg if isinstance(arg, Const) and first else arg.kind for arg in op.args)
            if key in seen:
                continue
            seen.add(key)
            for lowered in _sources(op):
                found.extend(lowered.guards)
                pending.append((lowered.function, False))
    return found


def _sources(op: Op) -> Iterator[Lowered]:
    row = RULES.get(op.name)
    if row is not None and row.function is not None:
        yield _helper(row)
    source, args = source_of(op)
    if source is not None:
        partials_of(source, args)  # refuses the wrong number of them
        yield _lowered(source, _arguments(args))


# --- what a row must be ----------------------------------------------------------------------------------------------


def _check(row: Rule, callables: list[Any]) -> None:
    """Refuse a user's row that could not be used."""
    for each in callables:
        if any(each is known for known in BUILTINS):  # it may not be hashable
            raise ArgumentError(f"{getattr(each, '__name__', each)} has a meaning in kernels already")
    function = _helper(row).function
    assert row.function is not None
    if function.packed:
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
    """The rules that the text of a function needs."""
    found: set[Rule] = set()
    pending = [function]
    while pending:
        for op in _operations(pending.pop()):
            row = RULES.get(op.name)
            if row is not None and row.function is not None and row not in found:
                found.add(row)
                pending.append(_helper(row).function)
    return found


open_to_users(_check)


def _fail(function: Callable[..., Any], message: str, hint: str = "") -> NoReturn:
    source = find_source(function)
    raise CompileError(message, locate(source.node, source.filename), hint)
