"""Calls: a function of the rule table becomes an operation, a Python function is inlined, a named tuple or a dataclass
is made from its fields, and all else is refused.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import os
import types
from types import FunctionType
from typing import Any, NoReturn

import numpy as np

from dualbcast import errors
from dualbcast.errors import CompileError, a_or_an
from dualbcast.frontend.arithmetic import apply, as_scalar, with_custom_derivative
from dualbcast.frontend.builtins import BUILTINS, KEYWORDS, NUMERIC
from dualbcast.frontend.derivative_calls import DerivativeOf
from dualbcast.frontend.environment import CALLS, Environment, call_value, expression, held, lowers, register
from dualbcast.frontend.expressions import items_of
from dualbcast.frontend.inlining import bind_arguments, count, in_order, inline, inline_bound
from dualbcast.frontend.loops import is_reduction, reduce_generator
from dualbcast.frontend.values import (
    Arguments,
    Derived,
    Keywords,
    Operator,
    Partial,
    Record,
    Static,
    Value,
    by_position,
    describe,
    object_of,
)
from dualbcast.ir.nodes import Const
from dualbcast.ir.simplification import number
from dualbcast.rules import library
from dualbcast.rules.guards import Capture
from dualbcast.rules.spelling import home, leads_to
from dualbcast.rules.table import Custom, Rule

_LIBRARIES = ("cupy", "numpy", "scipy", "jax", "torch", "random")
_STANDARD, _PACKAGE = os.path.dirname(os.__file__), os.path.dirname(errors.__file__)
_OUTPUT_FUNCTIONS, _OUTPUT_MODULES = ("print", "input", "open"), ("logging", "warnings")
# The methods of these classes change nothing, so they may run when the kernel is compiled.
_IMMUTABLE = (str, bytes, bool, int, float, tuple, frozenset)

# --- the syntax ------------------------------------------------------------------------------------------------------


@lowers(ast.Call)
def _call(env: Environment, node: ast.Call) -> Value:
    callee = expression(env, node.func)
    first = node.args[0] if node.args else None
    if isinstance(callee, Static) and is_reduction(callee.object) and isinstance(first, ast.GeneratorExp):
        return reduce_generator(env, callee.object, first, node, functools.partial(_call_callee, env, callee, node))
    return _call_callee(env, callee, node)


def _call_callee(env: Environment, callee: Value, node: ast.Call) -> Value:
    args = items_of(env, node.args)
    keywords: dict[str, Value] = {}
    for keyword in node.keywords:
        value = expression(env, keyword.value)
        if keyword.arg is not None:
            keywords[keyword.arg] = value
        elif isinstance(value, Keywords) and not value.keys() & keywords.keys():
            keywords.update(value)
        else:
            problem = f"`**` spreads the `**` parameter of a function only, and this is {describe(value)}"
            env.fail(keyword.value, problem, "the keywords written out")
    return call_value(env, callee, Arguments(args, keywords), node)


# --- values that are called ------------------------------------------------------------------------------------------


@register(CALLS, Partial)
def _call_partial(env: Environment, callee: Partial, arguments: Arguments, node: ast.Call) -> Value:
    return call_value(env, callee.function, arguments.after(callee.arguments), node)


@register(CALLS, Static)
def _call_static(env: Environment, callee: Static, arguments: Arguments, node: ast.Call) -> Value:
    return _call_object(env, callee.object, arguments, node)


def _call_object(env: Environment, function: Any, arguments: Arguments, node: ast.Call) -> Value:
    if function is dataclasses.replace and arguments.args:
        return _replace_fields(env, arguments.args[0], arguments.keywords, node)
    if _is_hashable(function) and function in BUILTINS:
        return _call_builtin(env, function, arguments, node)
    if isinstance(function, DerivativeOf):
        place = Capture(function, "function", function.function, _name_of(function), attribute=True)
        return call_value(env, Derived(function.operator, env.captured(place, node)), arguments, node)
    meaning = env.meaning(function)
    if meaning is not None:
        return _call_meaning(env, meaning, function, arguments, node)
    if isinstance(function, functools.partial):
        args = tuple(_bound(env, function, function.args, at, node) for at in range(len(function.args)))
        keywords = {key: _bound(env, function, function.keywords, key, node) for key in function.keywords}
        return call_value(env, Static(function.func), arguments.after(Arguments(args, keywords)), node)
    if isinstance(function, types.MethodType):
        return call_value(env, Static(function.__func__), arguments.after(by_position(Static(function.__self__))), node)
    if function is functools.partial and arguments.args:
        return Partial(arguments.args[0], Arguments(arguments.args[1:], arguments.keywords))
    if isinstance(function, type) and (dataclasses.is_dataclass(function) or hasattr(function, "_field_defaults")):
        return _make_record(env, function, arguments, node)
    if not isinstance(function, FunctionType):
        result = _call_wrapper(env, function, arguments, node)
        if result is not None:
            return result
    elif _module_of(function).partition(".")[0] not in (*_LIBRARIES, *_OUTPUT_MODULES):
        return _inline_any(env, function, arguments, node)
    _refuse(env, function, arguments, node)


def _call_meaning(env: Environment, meaning: Any, function: Any, arguments: Arguments, node: ast.Call) -> Value:
    """The result of a function that has a rule or a custom derivative, or stands for another function."""
    if isinstance(meaning, Rule):
        return _call_rule(env, meaning, function, arguments, node)
    if not isinstance(meaning, Custom):
        return _inline_any(env, meaning, arguments, node)
    source, bindings = bind_arguments(env, meaning.function, arguments, node)
    given = in_order(source.node, bindings)
    value = inline_bound(env, meaning.function, source, bindings, node)
    return with_custom_derivative(env, meaning, value, given, node)


def _call_rule(env: Environment, rule: Rule, function: Any, arguments: Arguments, node: ast.Call) -> Value:
    args, keywords = arguments
    if rule.by_user and isinstance(function, FunctionType) and function is rule.function:
        source, bindings = bind_arguments(env, function, arguments, node)
        args, keywords = in_order(source.node, bindings), {}
    if keywords or len(args) != rule.arity:
        given = f"{len(args)} positional and {len(keywords)} keyword" if keywords else f"{len(args)}"
        takes = count(rule.arity, "positional argument")
        env.fail(node, f"{_name_of(function)}() takes {takes} here, not {given}")
    # A user's function is not called now, because its captures would not be guarded.
    folded = None if rule.by_user else _fold(function, args)
    if folded is not None:
        return folded
    places = node.args if len(node.args) == len(args) else [node] * len(args)  # a starred one is several
    numbers = tuple(as_scalar(env, arg, at) for arg, at in zip(args, places, strict=True))
    return apply(env, rule.name, numbers, node)


def _call_wrapper(env: Environment, function: Any, arguments: Arguments, node: ast.Call) -> Value | None:
    """The result of an object that wraps a Python function, or that may run while the kernel is compiled; else None."""
    if partials := getattr(function, "_partials", ()):
        while function._whole is not None:
            function = function._whole
        derived: Value = Static(function)
        for wrt in partials:
            derived = Derived(Operator("derivative", wrt), derived)
        return call_value(env, derived, arguments, node)
    # Wrappers around an unchanged scalar function: this package's decorator, Numba's, functools.cache.
    for attribute in ("__wrapped__", "py_func"):
        inner = getattr(function, attribute, None)
        if callable(inner):
            return _call_object(env, inner, arguments, node)
    method = next((vars(base)["__call__"] for base in type(function).__mro__ if "__call__" in vars(base)), None)
    if isinstance(method, FunctionType) and not isinstance(function, type):
        env.guards.append(Capture(function, "__call__", function.__call__, _name_of(function), attribute=True))
        return _inline_any(env, method, arguments.after(by_position(Static(function))), node)
    if isinstance(getattr(function, "__self__", None), _IMMUTABLE) or _module_of(function) in ("math", "_operator"):
        return _call_now(env, function, arguments, node)
    return None


def _inline_any(env: Environment, function: FunctionType, arguments: Arguments, node: ast.Call) -> Value:
    """The result of a Python function; an error in Python's library or this package is reported at the call."""
    try:
        return inline(env, function, arguments, node)
    except CompileError as error:
        enters_library = _is_fixed(function.__code__.co_filename) and not _is_fixed(env.frame.source.filename)
        if not enters_library or not _is_fixed(error.filename):
            raise
        instead = error.hint
        if not function.__code__.co_filename.startswith(_PACKAGE):
            instead = "a function of your own that computes it"
        env.fail(node, f"in {function.__name__}(): {error.message}", instead)


def _call_builtin(env: Environment, function: Any, arguments: Arguments, node: ast.Call) -> Value:
    (args, keywords), allowed = arguments, KEYWORDS.get(function, frozenset())
    if keywords.keys() - allowed:
        few = f"only the keyword {', '.join(sorted(allowed))}" if allowed else "no keyword arguments"
        env.fail(node, f"{_name_of(function)}() takes {few} in a kernel")
    folded = _fold(function, args) if args and not keywords else None
    if folded is not None:
        return folded
    if function in NUMERIC:
        args = tuple(as_scalar(env, arg, node) for arg in args)
    try:
        return BUILTINS[function](env, node, *args, **keywords)
    except TypeError as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is None:
            env.fail(node, f"{_name_of(function)}() does not take {count(len(args), 'argument')}")
        raise


def _bound(env: Environment, function: Any, place: Any, key: Any, node: ast.AST) -> Value:
    """An argument that a partial function holds."""
    names = getattr(getattr(function.func, "__code__", None), "co_varnames", ())
    path = key if isinstance(key, str) else names[key] if key < len(names) else f"argument_{key}"
    return env.captured(Capture(place, key, place[key], path), node)


def _call_now(env: Environment, function: Any, arguments: Arguments, node: ast.Call) -> Value:
    """The result of a pure function of known objects, computed when the kernel is compiled."""
    args, keywords = arguments
    plain: list[Any] = []
    for arg in (*args, *keywords.values()):
        if not isinstance(arg, Const | Static):
            if _module_of(function):
                _no_rule(env, function, args, node)
            problem = f"{function.__name__}() needs arguments that are known when the kernel is compiled"
            env.fail(node, f"{problem}, not {describe(arg)}")
        plain.append(object_of(arg))
    named = dict(zip(keywords, plain[len(args) :], strict=True))
    result = env.evaluate(node, function, *plain[: len(args)], **named)
    return env.usable(held(result, ast.unparse(node)), node, "this")


def _fold(function: Any, args: tuple[Value, ...]) -> Const | None:
    """The result of a known function of known numbers, where Python can compute it."""
    numbers = [arg.value for arg in args if isinstance(arg, Const)]
    if len(numbers) != len(args):
        return None
    if isinstance(function, np.ufunc):  # NumPy computes with bools in float16, or as bools
        numbers = [int(number) if isinstance(number, bool) else number for number in numbers]
    try:
        with np.errstate(all="raise"):
            result = function(*numbers)
        return number(result.item() if isinstance(result, np.generic) else result)
    except (ArithmeticError, ValueError, TypeError):
        return None


def _is_fixed(file: str) -> bool:
    """Whether a file belongs to Python's own library or to this package."""
    return file.startswith(_PACKAGE) or (file.startswith(_STANDARD) and "site-packages" not in file)


def _is_hashable(function: Any) -> bool:
    try:
        hash(function)
    except TypeError:
        return False
    return True


def _name_of(function: Any) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _module_of(function: Any) -> str:
    """The name of the module that defines a callable; a ufunc has none of its own."""
    return getattr(function, "__module__", None) or ("numpy" if isinstance(function, np.ufunc) else "")


# --- named tuples and dataclasses ------------------------------------------------------------------------------------


def _make_record(env: Environment, kind: type, arguments: Arguments, node: ast.AST) -> Record:
    """`kind(*args, **keywords)`."""
    name, (args, keywords) = kind.__name__, arguments
    defaults: dict[str, Any]
    if dataclasses.is_dataclass(kind):
        fields = dataclasses.fields(kind)
        positional = [field.name for field in fields if not field.kw_only]
        every = tuple(field.name for field in fields)
        defaults = {field.name: field.default for field in fields if field.default is not dataclasses.MISSING}
        params = kind.__dict__.get("__dataclass_params__")
        has_own = (
            not (params and params.init) or hasattr(kind, "__post_init__") or not all(field.init for field in fields)
        )
    else:
        every = tuple(getattr(kind, "_fields", ()))
        positional, defaults = list(every), getattr(kind, "_field_defaults", {})
        scope = getattr(kind.__new__, "__globals__", {})
        inits = any("__init__" in vars(base) for base in kind.__mro__[:-2])
        has_own = inits or not str(scope.get("__name__")).startswith("namedtuple_")
    if has_own:
        problem = f"making {a_or_an(name)} runs code of its own (__init__, __new__ or __post_init__)"
        instead = "a class that holds its fields, and a function that makes it"
        env.fail(node, f"{problem}, which a kernel cannot run", instead)
    if len(args) > len(positional):
        env.fail(node, f"{name}() takes {len(positional)} positional arguments, and {len(args)} are given")
    values: dict[str, Value] = dict(zip(positional, args, strict=False))
    for key, value in keywords.items():
        if key not in every:
            env.fail(node, f"{name} has no field {key}", f"one of {', '.join(every)}")
        if key in values:
            env.fail(node, f"{name}() gets two values for {key}")
        values[key] = value
    for key, default in defaults.items():
        if key not in values:
            known = env.known(held(default, f"{name}.{key}"))
            if known is not None:
                values[key] = known
    missing = [key for key in every if key not in values]
    if missing:
        env.fail(node, f"{name}() lacks a value for {', '.join(missing)}")
    return Record(kind, (values[key] for key in every), every)


def _replace_fields(env: Environment, record: Value, keywords: dict[str, Value], node: ast.AST) -> Record:
    """The record with some fields changed: `dataclasses.replace`, and `_replace` of a named tuple."""
    if not isinstance(record, Record) or not record.fields:
        env.fail(node, f"the fields of {describe(record)} cannot be replaced", "a named tuple or a dataclass")
    for key in keywords:
        if key not in record.fields:
            name = record.python_type.__name__
            env.fail(node, f"{name} has no field {key}", f"one of {', '.join(record.fields)}")
    return record.like(keywords.get(key, item) for key, item in zip(record.fields, record, strict=True))


# --- refusals --------------------------------------------------------------------------------------------------------


def _refuse(env: Environment, function: Any, arguments: Arguments, node: ast.Call) -> NoReturn:
    name = _name_of(function)
    if name in _OUTPUT_FUNCTIONS or _module_of(function).partition(".")[0] in _OUTPUT_MODULES:
        problem = f"{name}() is a side effect, which a kernel cannot have"
        env.fail(node, problem, "the value as another output")
    if isinstance(function, type) and not _module_of(function).startswith("numpy"):
        instead = "isinstance(x, float)" if function is type else "a named tuple, a dataclass, or plain numbers"
        env.fail(node, f"{name} objects cannot be made in a kernel", instead)
    _no_rule(env, function, arguments.args, node)


def _no_rule(env: Environment, function: Any, args: tuple[Value, ...], node: ast.Call) -> NoReturn:
    module = _module_of(function)
    if module == "builtins":
        env.fail(node, f"{_name_of(function)}() cannot be compiled", "a Python function that computes it from numbers")
    spelling = _spelling(env, function, args, node)
    reason = library.EXCLUDED.get(spelling)
    if reason is None and spelling.startswith("numpy.") and not isinstance(function, np.ufunc):
        reason = "works on arrays, and a kernel on one element of each"
    instead = "a function from math or numpy that has one, or a Python function that computes it"
    if "random" in f"{module} {type(getattr(function, '__self__', None)).__module__}":
        reason, instead = "gives another number at every call", "an array of random numbers as another argument"
    env.fail(node, f"there is no derivative rule for {spelling}" + (f": it {reason}" if reason else ""), instead)


def _spelling(env: Environment, function: Any, args: tuple[Value, ...], node: ast.Call) -> str:
    """The dotted name of a function: the user's spelling if that begins with a module, or its library's."""
    path: list[str] = []
    root: ast.AST = node.func
    while isinstance(root, ast.Attribute):
        path.insert(0, root.attr)
        root = root.value
    known = expression(env, root) if isinstance(root, ast.Name) else None
    beginning = written = known.object if isinstance(known, Static) else None
    for part in path:
        written = getattr(written, part, None)
    is_written = leads_to(written, function)
    if is_written and isinstance(beginning, types.ModuleType):
        return ".".join([beginning.__name__, *path])
    if public_name := home(function):
        return public_name
    if is_written and path:
        return ".".join([home(beginning), *path]) if home(beginning) else ast.unparse(node.func)
    name = _name_of(function)
    owner = args[0].object if args and isinstance(args[0], Static) else None
    if hasattr(owner, name) and home(owner):
        return f"{home(owner)}.{name}"
    public = ".".join(part for part in _module_of(function).removeprefix("_").split(".") if not part.startswith("_"))
    return f"{public}.{name}" if public else ast.unparse(node.func)
