"""The entry of the front end: a scalar function and the kinds of its arguments come in, its IR and captures go out.

The functions and partials of rules and custom derivatives are lowered once, and again when a capture changes.
"""

from __future__ import annotations

import ast
import keyword
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import FunctionType
from typing import Any, Literal, NamedTuple, NoReturn

# Each of these files registers the lowerings of its syntax in the dispatch table.
import dualbcast.frontend.arrays.array_functions
import dualbcast.frontend.calls
import dualbcast.frontend.loops
import dualbcast.frontend.messages
import dualbcast.frontend.objects.iterators
import dualbcast.frontend.operators
import dualbcast.frontend.statements  # noqa: F401
from dualbcast.complex_numbers import Complex
from dualbcast.errors import ArgumentError, CompileError, nested_too_deeply
from dualbcast.frontend import complex_values
from dualbcast.frontend.arithmetic import apply, as_scalar, with_custom_derivative
from dualbcast.frontend.arrays.signatures import Core, returned, with_real_elements
from dualbcast.frontend.arrays.vectors import Dims, captured, is_array
from dualbcast.frontend.builtins import BUILTINS
from dualbcast.frontend.environment import ArrayKind, Environment, held, locate
from dualbcast.frontend.inlining import in_order, lower_body
from dualbcast.frontend.source import find_source, local_names, positional_parameters
from dualbcast.frontend.values import (
    Axes,
    Frame,
    Record,
    Static,
    Unassigned,
    Value,
    Whole,
    complex_number,
    describe,
    enumeration_of,
    without_name,
)
from dualbcast.ir.nodes import NUMBER, Array, Const, Expr, Function, Kind, Names, Op, Output, Structure, Var
from dualbcast.ir.traversal import among, operations_of, remove_dead
from dualbcast.rules.guards import Capture
from dualbcast.rules.registration import open_to_users
from dualbcast.rules.table import CUSTOMS, RULES, Custom, Rule

# Names that the emitted text uses itself; a user's variable of such a name gets a number.
FOREVER = "forever"
# Functions in place of the operators of integers, and one for the end of a range.
RANGE_STOP = "range_stop"
INTEGER_FUNCTIONS = {name: f"int_{name}" for name in ("add", "sub", "mul", "floordiv", "shl", "shr")}
RESERVED = frozenset(keyword.kwlist) | {
    RANGE_STOP,
    *INTEGER_FUNCTIONS.values(),
    FOREVER,
    *("float32", "float64", "int64", "uint8", "range", "quotient"),
    *("divided", "base_logarithm", "muladd", "mulsub", "submul"),
    *(f"{verb}_{half}" for verb in ("load", "store", "from", "to") for half in ("float16", "bfloat16")),
    *(f"{verb}_{lanes}" for verb in ("load", "store") for lanes in (2, 4)),
}


class WholeArray(NamedTuple):
    """The argument of a parameter that is a whole array: the kind of its elements, if there are any, and its axes.

    Its place is taken by a parameter for its first element, and one for the length of each axis.
    """

    kind: Kind
    axes: Axes


Argument = Kind | Const | Static | Core | WholeArray | Literal["complex"]


class Lowered(NamedTuple):
    """A function in IR, and its captures.

    The function's parameters are the arguments that are no constants, then the captured arrays, and then the places of
    the element in the result.
    """

    function: Function
    # The captures that are compiled in, which each call compares with the present objects.
    guards: tuple[Capture, ...]
    # The captured arrays by label, which each call reads again.
    arrays: dict[str, Capture]
    # The axes along which places are asked for.
    axes: tuple[int, ...]
    # Whether it prints, or asserts what is not known.
    speaks: bool


def lower(
    function: Callable[..., Any],
    arguments: Sequence[Argument],
    array_kind: ArrayKind = lambda _: None,
    returns: Sequence[Dims] | None = None,
    *,
    notes: bool = False,
) -> Lowered:
    """The IR of a scalar function, with the guards of every rule and custom derivative that it calls.

    `arguments` has for each parameter in the order of the signature, with the items of `*args` one by one: the kind of
    an array's elements, "complex", a number, a Python object that is known, or the `Core` of an array of parameters.
    `array_kind` gives the kind of the elements of a captured array, or None for an object that is no array. `returns`
    has the core dimensions of the outputs of a function that has some. With `notes` the IR also says what each step
    does. Errors are `CompileError`s at the user's line.
    """
    lowered = _lower_function(function, arguments, array_kind, whole=True, returns=returns, notes=notes)
    return lowered._replace(guards=(*lowered.guards, *guards_of(lowered.function)))


def _lower_function(
    function: Callable[..., Any],
    arguments: Sequence[Argument],
    array_kind: ArrayKind,
    *,
    whole: bool,
    returns: Sequence[Dims] | None = None,
    notes: bool | None = None,
) -> Lowered:
    """The IR of a scalar function alone.

    The function's own rule or custom partials count only with `whole`; they do not where its body is lowered for them,
    with floats as outputs.
    """
    source = find_source(function)
    assert isinstance(function, FunctionType)
    node = source.node
    frame = Frame(source, node, local_names(node), {})
    env = Environment(Names(RESERVED | RULES.keys()), array_kind, frame, notes=notes)
    env.complex_array = partial(complex_values.captured, env)
    if returns is not None:
        env.finish, env.core = partial(returned, env, returns), partial(captured, env)
    env.guards.append(source.code())
    params = _bind_parameters(env, node.args, arguments)
    meaning = env.meaning(function) if whole else None
    values = in_order(frame)
    try:
        if isinstance(meaning, Rule):
            numbers = tuple(as_scalar(env, value, node) for value in values)
            value: Value = apply(env, meaning.name, numbers, node)
        else:
            value = lower_body(env, frame)
    except RecursionError:
        env.fail(node, "branches or expressions in this function are nested too deeply", "a loop")
    if isinstance(meaning, Custom):
        value = with_custom_derivative(env, meaning, value, values, node)
    if env.finish is not None:
        value = env.finish(value, frame.returned_at or node)
    outputs, structure = _outputs(env, value, as_floats=not whole)
    try:
        body = env.freeze(env.block)
    except RecursionError:
        raise nested_too_deeply(env.locate(node)) from None
    lowered = Function(
        function.__name__,
        (*params, *(param for param, _ in env.arrays.values()), *env.indices.values()),
        body,
        outputs,
        env.locate(node),
        structure,
        among(env.derived, body),
    )
    if env.speaks and not notes:
        lowered = remove_dead(lowered)  # what only the texts need
    guards = {(id(guard.place), guard.key, guard.attribute): guard for guard in env.guards}
    arrays = {label: capture for label, (_, capture) in env.arrays.items()}
    return Lowered(lowered, tuple(guards.values()), arrays, tuple(env.indices), env.speaks)


def _bind_parameters(env: Environment, spec: ast.arguments, arguments: Sequence[Argument]) -> list[Var]:
    """Bind a function's parameters, `*args` to a tuple; the result has the variables among them."""
    if spec.kwarg is not None:
        env.fail(spec.kwarg, f"a broadcast function cannot take `**{spec.kwarg.arg}`", "named parameters")
    positional, bindings = positional_parameters(spec), env.frame.bindings
    parameters = [(param, param.arg) for param in positional]
    if spec.vararg is not None:
        extra = len(arguments) - len(positional) - len(spec.kwonlyargs)
        parameters += [(spec.vararg, f"{spec.vararg.arg}_{at}") for at in range(extra)]
        bindings[spec.vararg.arg] = Record(tuple, ())
    parameters += [(param, param.arg) for param in spec.kwonlyargs]
    params: list[Var] = []
    for (param, name), argument in zip(parameters, arguments, strict=True):
        value: Value
        if isinstance(argument, Const):
            value = argument
        elif isinstance(argument, Core):
            value = argument.parameters(env, name, params)
        elif isinstance(argument, Static):
            known = argument.object
            instead = "a tuple" if isinstance(known, list) else "a number, an array, or a static argument"
            value = env.usable(held(known, name), param, name, instead)
        elif isinstance(argument, WholeArray):
            shape = [Var(env.names.fresh(f"{name}_shape{axis}"), "int") for axis in range(argument.axes.ndim)]
            first = Var(env.names.fresh(name), argument.kind)
            value = Whole(Array(first.name, first.kind), Const(0, "int"), tuple(shape), argument.axes.is_empty)
            params += [first, *shape]
            env.taken.add(name)
        elif argument == "complex":
            parts = [Var(env.names.fresh(f"{name}_{part}"), "float") for part in Complex.fields]
            value = complex_number(parts)
            params += parts
            env.taken.add(name)
        else:
            value = Var(env.names.fresh(name), argument)
            params.append(value)
            env.taken.add(name)
        if param is spec.vararg:
            value = Record(tuple, (*bindings[param.arg], value))  # type: ignore[misc] # a Record
        bindings[param.arg] = value
    env.taken.update(bindings)
    return params


def _outputs(env: Environment, value: Value, *, as_floats: bool) -> tuple[tuple[Output, ...], Structure]:
    """The numbers that a function returns, and the structure that they have in its value."""
    outputs: list[Output] = []
    place = env.frame.returned_at or env.frame.source.node

    def structure(item: Value, name: str) -> Structure:
        if env.finish is None and is_array(item):
            instead = "a tuple; or a signature for the decorator, such as signature='(),()->(2)'"
            env.fail(place, f"an output is {describe(item)}", instead)
        item = without_name(item)
        if is_array(item):
            item = with_real_elements(env, item, place)
        if isinstance(item, Record) and not item.is_iterator and enumeration_of(item) is None:
            parts = tuple(structure(part, f"{name}{at}") for at, part in enumerate(item))
            return Structure(item.python_type, parts, item.fields)
        if not isinstance(item, Const | Var):
            reason = item.reason if isinstance(item, Unassigned) else f"an output is {describe(item)}"
            env.fail(place, reason, "a return of numbers, or of tuples of numbers")
        number = env.convert(item, "float", place) if as_floats else item
        outputs.append(Output(env.names.fresh(name), env.current(number)))
        return NUMBER

    shape = structure(value, "out")
    if not outputs:
        env.fail(place, "this function returns an empty tuple", "a return of at least one number")
    return tuple(outputs), shape


# --- rules and custom derivatives -------------------------------------------------------------------------------------

_Kinds = tuple[Kind | Const, ...]


def helper_of(row: Rule) -> Function:
    """The IR of a rule's function, with float outputs."""
    return _helper(row).function


def partials_of(value: Op, builtin: Mapping[str, Callable[..., Any]]) -> tuple[Function, Sequence[Expr], list[Expr]]:
    """The partials of an operation as a function of the unknown arguments and the result, with these arguments.

    `builtin` has the partials of operations that are neither rules nor custom derivatives.
    """
    meaning = RULES.get(value.name) or CUSTOMS.get(value.name)
    args = value.args[1:] if isinstance(meaning, Custom) else value.args
    source = meaning.partials if meaning is not None and meaning.partials is not None else builtin[value.name]
    function = _partials_of(source, args).function
    return function, args, [output.value for output in function.outputs]


def _partials_of(source: Callable[..., Any], args: Sequence[Expr]) -> Lowered:
    """The partials as a function of the arguments, by their values where these are known, and the result."""
    lowered = _lowered(source, (*(arg if isinstance(arg, Const) else arg.kind for arg in args), "float"))
    given, count = len(lowered.function.outputs), len(args)
    if given != count:
        wanted = "1 argument needs 1 partial derivative" if count == 1 else f"{count} arguments need {count}"
        _fail(source, f"{wanted}, and these partials are {given}", "a tuple with one for each argument")
    return lowered


def _lowered(function: Callable[..., Any], arguments: _Kinds) -> Lowered:
    key = function, arguments
    lowered = _lowerings.get(key)
    if lowered is None or not all(guard.holds() for guard in lowered.guards):
        spec = find_source(function).node.args
        takes = len(positional_parameters(spec))
        if len(arguments) != takes and not (spec.vararg is not None and len(arguments) > takes):
            _fail(function, f"this function is given {len(arguments)} arguments, and takes {takes}")
        lowered = _lower_function(function, arguments, lambda _: None, whole=False)
        assert isinstance(function, FunctionType)
        # Not by `__module__`, which `functools.wraps` copies.
        if str(function.__globals__.get("__name__")).startswith("dualbcast."):
            lowered = lowered._replace(guards=())  # what this package's own functions capture does not change
        _lowerings[key] = lowered
    return lowered


_lowerings: dict[tuple[Callable[..., Any], _Kinds], Lowered] = {}


def _helper(row: Rule) -> Lowered:
    assert row.function is not None
    return _lowered(row.function, tuple("int" if at in row.integer else "float" for at in range(row.arity)))


def guards_of(function: Function) -> list[Capture]:
    """The guards of the users' rules and custom derivatives that a function calls, directly or through others."""
    guards: list[Capture] = []
    seen: set[tuple[Any, ...]] = set()
    pending = [(function, True)]
    while pending:
        caller, first = pending.pop()
        for op in operations_of(caller):
            meaning = RULES.get(op.name) or CUSTOMS.get(op.name)
            if meaning is None or not meaning.by_user:
                continue
            # Partials depend on the arguments that are known numbers. In partials of partials only the kinds count,
            # because the numbers might differ each time, without end.
            key = op.name, tuple(arg if isinstance(arg, Const) and first else arg.kind for arg in op.args)
            if key in seen:
                continue
            seen.add(key)
            called = [_helper(meaning)] if isinstance(meaning, Rule) else []
            if meaning.partials is not None:
                called.append(_partials_of(meaning.partials, op.args[1:] if isinstance(meaning, Custom) else op.args))
            for lowered in called:
                guards.extend(lowered.guards)
                pending.append((lowered.function, False))
    return guards


# --- checks of a user's row ------------------------------------------------------------------------------------------


def _check(row: Rule, callables: list[Any]) -> None:
    """Refuse a user's row that could not be used."""
    for each in callables:
        if any(each is known for known in BUILTINS):  # it may not be hashable
            raise ArgumentError(f"{getattr(each, '__name__', each)} has a meaning in kernels already")
    function = _helper(row).function
    assert row.function is not None
    if function.structure != NUMBER:
        problem = f"the function of the rule {row.label} returns a tuple; it must be one number"
        _fail(row.function, problem, "a rule for each output")
    if _calls(function, row):
        problem = f"the function of the rule {row.label} calls itself, and kernels have no recursion"
        _fail(row.function, problem, "a loop")
    params = tuple(Var(f"x{at}", "int" if at in row.integer else "float") for at in range(row.arity))
    _partials_of(row.partials, params)


def _calls(function: Function, row: Rule) -> bool:
    """Whether a function calls a rule, directly or through the functions of other rules."""
    called = [RULES[op.name] for op in operations_of(function) if op.name in RULES]
    return row in called or any(each.function is not None and _calls(helper_of(each), row) for each in called)


open_to_users(_check)


def _fail(function: Callable[..., Any], message: str, hint: str = "") -> NoReturn:
    source = find_source(function)
    raise CompileError(message, locate(source.node, source.filename), hint)
