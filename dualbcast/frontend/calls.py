"""Calls: a function of the rule table becomes an operation, a Python function is inlined, a named tuple or a dataclass
is made from its fields, and all else is refused.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import functools
import inspect
import os
import types
from collections.abc import Callable
from types import FunctionType
from typing import Any, NoReturn

import numpy as np

from dualbcast import errors, tables
from dualbcast.errors import CompileError
from dualbcast.frontend import complex_values
from dualbcast.frontend.arithmetic import apply, as_scalar, of_object, with_custom_derivative
from dualbcast.frontend.arrays.array_functions import MAKERS, OF_ARRAYS
from dualbcast.frontend.arrays.vectors import elementwise, generalised, is_array
from dualbcast.frontend.builtins import BUILTINS
from dualbcast.frontend.derivative_calls import DerivativeOf
from dualbcast.frontend.environment import CALLS, Environment, call_value, expression, held, lowers, register
from dualbcast.frontend.expressions import items_of
from dualbcast.frontend.inlining import count, frame_of_call, in_order, inline, lower_call
from dualbcast.frontend.made_records import make_record
from dualbcast.frontend.objects.comprehensions import reduce_generator
from dualbcast.frontend.objects.dictionaries import is_dictionary, items_at
from dualbcast.frontend.objects.iterators import quantified
from dualbcast.frontend.source import REDUCTIONS, positional_parameters
from dualbcast.frontend.values import (
    Arguments,
    Derived,
    Operator,
    Partial,
    Record,
    Static,
    Value,
    Whole,
    describe,
)
from dualbcast.ir.nodes import Atom, Const
from dualbcast.ir.simplification import number
from dualbcast.rules import library
from dualbcast.rules.guards import Capture
from dualbcast.rules.spelling import home, leads_to
from dualbcast.rules.table import Custom, Rule

_LIBRARIES = ("cupy", "numpy", "scipy", "jax", "torch", "random")
_STANDARD, _PACKAGE = os.path.dirname(os.__file__), os.path.dirname(errors.__file__)
_OUTPUT_FUNCTIONS, _OUTPUT_MODULES = ("print", "input", "open"), ("logging", "warnings")
_signature = functools.cache(inspect.signature)
# Other callables may not be hashable.
_KINDS_OF_BUILTINS = (type, types.BuiltinFunctionType, FunctionType, np.ufunc, type(np.take), type(dict.get))
# Functions of numbers that are no ufuncs, and take arrays.
_ELEMENTWISE = (abs, np.where, np.clip, np.sinc, np.angle, np.nan_to_num)
# The functions of these modules and the methods of these classes change nothing: they may run during compilation.
_PURE, _IMMUTABLE = ("math", "_operator"), (str, bytes, bool, int, float, tuple, frozenset)


@lowers(ast.Call)
def _call(env: Environment, node: ast.Call) -> Value:
    callee = expression(env, node.func)
    function = callee.object if isinstance(callee, Static) else None
    if node.args and isinstance(function, types.BuiltinFunctionType) and function in REDUCTIONS:
        first, call = node.args[0], functools.partial(_call_callee, env, callee, node)
        if isinstance(first, ast.GeneratorExp):
            return reduce_generator(env, function, first, node, call)
        return quantified(env, function, node) or call()
    return _call_callee(env, callee, node)


def _call_callee(env: Environment, callee: Value, node: ast.Call) -> Value:
    args = items_of(env, node.args)
    keywords: dict[str, Value] = {}
    for keyword in node.keywords:
        value = expression(env, keyword.value)
        if keyword.arg is not None:
            keywords[keyword.arg] = value
        elif is_dictionary(value):
            spread = items_at(env, value, ast.unparse(keyword.value), keyword.value)
            if spread.keys() & keywords.keys():
                env.fail(keyword.value, f"two values for {', '.join(spread.keys() & keywords.keys())}", "one of them")
            keywords.update(spread)
        else:
            problem = f"`**` spreads dictionaries only, and this is {describe(value)}"
            env.fail(keyword.value, problem, "the keywords written out")
    return call_value(env, callee, Arguments(args, keywords), node)


# --- values that are called ------------------------------------------------------------------------------------------


@register(CALLS, Partial)
def _call_partial(env: Environment, callee: Partial, arguments: Arguments, node: ast.Call) -> Value:
    return call_value(env, callee.function, arguments.after(callee.arguments), node)


@register(CALLS, Static)
def _call_object(env: Environment, callee: Static, arguments: Arguments, node: ast.Call) -> Value:
    function = callee.object
    builtin = _call_builtin_of(env, callee, arguments, node)
    if builtin is not None:
        return builtin
    if isinstance(function, DerivativeOf):
        place = Capture(function, "function", function.function, _name_of(function), attribute=True)
        return call_value(env, Derived(function.operator, env.captured(place, node)), arguments, node)
    meaning = env.meaning(function)
    if isinstance(meaning, Rule):
        return _call_rule(env, meaning, function, arguments, node)
    if isinstance(meaning, Custom):
        return _call_custom(env, meaning, arguments, node)
    if meaning is not None:
        return _inline_any(env, meaning, arguments, node)
    if isinstance(function, functools.partial):
        args = tuple(_bound(env, function, function.args, at, node) for at in range(len(function.args)))
        keywords = {key: _bound(env, function, function.keywords, key, node) for key in function.keywords}
        return call_value(env, Static(function.func), arguments.after(Arguments(args, keywords)), node)
    if isinstance(function, types.MethodType):
        own = Arguments((Static(function.__self__),))
        return call_value(env, Static(function.__func__), arguments.after(own), node)
    if isinstance(function, type) and (dataclasses.is_dataclass(function) or hasattr(function, "_field_defaults")):
        return make_record(env, function, arguments, node)
    if not isinstance(function, FunctionType):
        result = _call_wrapper(env, function, arguments, node)
        if result is not None:
            return result
    elif _module_of(function).partition(".")[0] not in (*_LIBRARIES, *_OUTPUT_MODULES):
        return _inline_any(env, function, arguments, node)
    _refuse(env, function, arguments, node)


def _call_builtin_of(env: Environment, callee: Static, arguments: Arguments, node: ast.Call) -> Value | None:
    """The result of a function of complex numbers, of a builtin function, or of NumPy's function of numbers on arrays;
    None for any other."""
    function = callee.object
    args, named = arguments
    if any(map(is_array, args)) and _is_elementwise(function) and (not named or function is np.nan_to_num):
        return elementwise(env, lambda *each: call_value(env, callee, Arguments(each, named), node), args, node)
    result = complex_values.call(env, function, arguments, node)
    if result is None and isinstance(function, _KINDS_OF_BUILTINS):
        result = of_object(env, function, arguments, node)
    if result is None and isinstance(function, _KINDS_OF_BUILTINS):
        is_of_arrays = function in MAKERS or any(isinstance(arg, Record) for arg in arguments.args)
        for table in (OF_ARRAYS, BUILTINS) if is_of_arrays else (BUILTINS,):
            if function in table:
                return _call_builtin(env, table[function], function, arguments, node)
    return result


def _is_elementwise(function: Any) -> bool:
    """Whether NumPy calls a function for each element of arrays."""
    if isinstance(function, np.ufunc):
        return function.signature is None
    binder = getattr(function, "_binder", None)  # of a decorated function; one with core dimensions has `cores`
    is_decorated = binder is not None and not hasattr(binder, "cores")
    return is_decorated or any(function is each for each in _ELEMENTWISE)  # it may not be hashable


def _call_custom(env: Environment, custom: Custom, arguments: Arguments, node: ast.Call) -> Value:
    frame = frame_of_call(env, custom.function, arguments, node)
    given = in_order(frame)
    return with_custom_derivative(env, custom, lower_call(env, custom.function, frame, node), given, node)


def _call_rule(env: Environment, rule: Rule, function: Any, arguments: Arguments, node: ast.Call) -> Value:
    args, keywords = arguments
    if rule.by_user and isinstance(function, FunctionType) and function is rule.function:
        args, keywords = in_order(frame_of_call(env, function, arguments, node)), {}
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
        while function._origin is not None:
            function = function._origin
        derived: Value = Static(function)
        for wrt in partials:
            derived = Derived(Operator("derivative", wrt), derived)
        return call_value(env, derived, arguments, node)
    cores = getattr(getattr(function, "_binder", None), "cores", None)
    if cores is not None and not arguments.keywords and len(arguments.args) == len(cores.inputs):
        call = functools.partial(_call_wrapped, env, function, node)
        return generalised(env, cores.inputs, call, arguments.args, node)
    # Wrappers around an unchanged scalar function: this package's decorator, Numba's, functools.cache.
    for attribute in ("__wrapped__", "py_func"):
        inner = getattr(function, attribute, None)
        if callable(inner):
            return call_value(env, Static(inner), arguments, node)
    method = next((vars(base)["__call__"] for base in type(function).__mro__ if "__call__" in vars(base)), None)
    if isinstance(method, FunctionType) and not isinstance(function, type):
        env.guards.append(Capture(function, "__call__", function.__call__, _name_of(function), attribute=True))
        return _inline_any(env, method, arguments.after(Arguments((Static(function),))), node)
    is_pure = isinstance(function, enum.EnumMeta) or isinstance(getattr(function, "__self__", None), _IMMUTABLE)
    return _call_now(env, function, arguments, node) if is_pure or _module_of(function) in _PURE else None


def _call_wrapped(env: Environment, function: Any, node: ast.Call, *args: Value) -> Value:
    """The result of the function that a decorated one wraps."""
    return call_value(env, Static(function.__wrapped__), Arguments(args), node)


def _inline_any(env: Environment, function: FunctionType, arguments: Arguments, node: ast.Call) -> Value:
    """The result of a Python function; an error in Python's library or this package is reported at the call."""
    if function.__module__ == tables.__name__ and not function.__name__.startswith("_"):
        _require_whole(env, function, arguments, node)
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


def _require_whole(env: Environment, function: FunctionType, arguments: Arguments, node: ast.Call) -> None:
    """An error if a table is no whole array, since the places in it are computed."""
    try:
        given = _signature(function).bind(*arguments.args, **arguments.keywords).arguments
    except TypeError:
        return  # said elsewhere
    for name, parameter in _signature(function).parameters.items():
        table = given.get(name)
        if parameter.annotation == "Any" and table is not None and not isinstance(table, Whole):
            shown = "one element of an array" if isinstance(table, Atom) else describe(table)
            env.fail(
                node,
                f"{_name_of(function)}() reads its {name} at places that are computed, and this is {shown}",
                'a parameter for the table, and that in whole= of the decorator: whole=("xp", "fp")',
            )


def _call_builtin(
    env: Environment, lowering: Callable[..., Value], function: Any, arguments: Arguments, node: ast.Call
) -> Value:
    args, keywords = arguments
    signature = _signature(lowering)
    parameters = [each for each in signature.parameters.values() if each.kind >= each.POSITIONAL_OR_KEYWORD]
    by_name = sorted(each.name for each in parameters if each.kind is not each.VAR_POSITIONAL)
    if keywords.keys() - by_name and not any(each.kind is each.VAR_KEYWORD for each in parameters):
        few = f"only the keyword {', '.join(by_name)}" if by_name else "no keyword arguments"
        env.fail(node, f"{_name_of(function)}() takes {few} in a kernel")
    folded = _fold(function, args) if args and not keywords else None
    if folded is not None:
        return folded
    if any(str(each.annotation).startswith("Atom") for each in signature.parameters.values()):
        args = tuple(as_scalar(env, arg, node) for arg in args)
    try:
        signature.bind(env, node, *args, **keywords)
    except TypeError:
        env.fail(node, f"{_name_of(function)}() does not take {count(len(args), 'argument')}")
    return lowering(env, node, *args, **keywords)


def _bound(env: Environment, function: Any, place: Any, key: Any, node: ast.AST) -> Value:
    """An argument that a partial function holds."""
    names = getattr(getattr(function.func, "__code__", None), "co_varnames", ())
    path = key if isinstance(key, str) else names[key] if key < len(names) else f"argument_{key}"
    return env.captured(Capture(place, key, place[key], path), node)


def _call_now(env: Environment, function: Any, arguments: Arguments, node: ast.Call) -> Value:
    """The result of a pure function of known objects, computed when the kernel is compiled."""
    args, keywords = arguments
    is_known = all(isinstance(arg, Const | Static) for arg in (*args, *keywords.values()))
    if _module_of(function) and not is_known and not isinstance(function, type):
        _no_rule(env, function, args, node)
    problem = f"{_name_of(function)}() needs arguments that are known when the kernel is compiled"
    plain = [env.known_object(arg, node, problem) for arg in args]
    named = {name: env.known_object(arg, node, problem) for name, arg in keywords.items()}
    result = env.evaluate(node, function, *plain, **named)
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


def _name_of(function: Any) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _module_of(function: Any) -> str:
    """The name of the module that defines a callable; a ufunc has none of its own."""
    return getattr(function, "__module__", None) or ("numpy" if isinstance(function, np.ufunc) else "")


# --- the methods of parent classes -----------------------------------------------------------------------------------


@register(BUILTINS, super)
def _super(env: Environment, node: ast.Call, *given: Value) -> Static:
    """`super()` in a method, or `super(Class, self)`: the object's attributes after those of the class."""
    kind, owner = given if len(given) == 2 else (None, None)
    if not given:
        cell, parameters = env.frame.source.capture("__class__"), positional_parameters(env.frame.node.args)
        kind = Static(cell.value) if cell is not None else None
        owner = env.frame.bindings.get(parameters[0].arg) if parameters else None
    if not isinstance(kind, Static) or not isinstance(kind.object, type):
        env.fail(node, "super() belongs in a method of a class", "the parent class by name: Parent.method(self, x)")
    if not isinstance(owner, Static):
        problem = "super() is for objects that exist when the kernel is compiled"
        problem += f", and this one is {describe(owner)} that the kernel makes" if owner is not None else ""
        env.fail(node, problem, f"the parent class by name, such as {kind.object.__mro__[1].__name__}.method(self)")
    return Static(env.evaluate(node, super, kind.object, owner.object))


# --- refusals --------------------------------------------------------------------------------------------------------


def _refuse(env: Environment, function: Any, arguments: Arguments, node: ast.Call) -> NoReturn:
    name = _name_of(function)
    if name in _OUTPUT_FUNCTIONS or _module_of(function).partition(".")[0] in _OUTPUT_MODULES:
        problem = f"{name}() is a side effect, which a kernel cannot have"
        instead = "a statement of its own: print(…)" if name == "print" else "the value as another output"
        env.fail(node, problem, instead)
    if isinstance(function, type) and not _module_of(function).startswith("numpy"):
        instead = library.instead_of_class(name, _module_of(function))
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
    instead = library.ADVICE.get(spelling)
    if instead is None:
        instead = "a function from math or numpy that has one, a Python function that computes it, or a dualbcast.rule"
    if "random" in f"{module} {type(getattr(function, '__self__', None)).__module__}":
        reason, instead = (
            "gives another number at every call",
            "an array of random numbers as another argument, or dualbcast.random",
        )
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
