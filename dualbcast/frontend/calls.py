"""The front end's calls: functions of the rule table become operations, all others are inlined."""

from __future__ import annotations

import ast
import dataclasses
import functools
import os
import types
from collections.abc import Callable
from types import FunctionType
from typing import Any, NoReturn

import numpy as np

from dualbcast import errors
from dualbcast.errors import CompileError
from dualbcast.frontend.builtins import BUILTINS, KEYWORDS
from dualbcast.frontend.derivative_calls import DerivativeOf, Derivatives
from dualbcast.frontend.inlining import count, in_order
from dualbcast.frontend.record_types import is_record_type, make_record, replace_fields
from dualbcast.frontend.values import Closure, Derived, Keywords, Operator, Partial, Static, Value, describe
from dualbcast.ir.constant_fold import number
from dualbcast.ir.nodes import Atom, Const
from dualbcast.rules import library
from dualbcast.rules.guards import Capture
from dualbcast.rules.spelling import home, leads_to
from dualbcast.rules.table import Custom, Rule

__all__ = ["Calls"]

_LIBRARIES = ("cupy", "numpy", "scipy", "jax", "torch", "random")
_STANDARD, _PACKAGE = os.path.dirname(os.__file__), os.path.dirname(errors.__file__)
_PRINTING, _TELLING = ("print", "input", "open"), ("logging", "warnings")
# Their methods change nothing, so that they may run when the kernel is compiled.
_IMMUTABLE = (str, bytes, bool, int, float, tuple, frozenset)


class Calls(Derivatives):
    """Lowers calls."""

    def call(self, node: ast.Call) -> Value:
        callee = self.expression(node.func)
        if isinstance(callee, Static) and node.args and isinstance(node.args[0], ast.GeneratorExp):
            reduced = self.reduction(callee.object, node.args[0], node)
            if reduced is not None:
                return reduced
        return self.call_with((), callee, node)

    def call_with(self, first: tuple[Value, ...], callee: Value, node: ast.Call) -> Value:
        args = (*first, *self.items(node.args[len(first) :]))
        keywords: dict[str, Value] = {}
        for keyword in node.keywords:
            value = self.expression(keyword.value)
            if keyword.arg is not None:
                keywords[keyword.arg] = value
            elif isinstance(value, Keywords) and not value.keys() & keywords.keys():
                keywords.update(value)
            else:
                self.fail(
                    keyword.value,
                    f"`**` spreads the `**` parameter of a function only, and this is {describe(value)}",
                    "the keywords written out",
                )
        return self.call_value(callee, args, keywords, node)

    def call_value(self, callee: Value, args: tuple[Value, ...], keywords: dict[str, Value], node: ast.Call) -> Value:
        """The result of calling a value."""
        if isinstance(callee, Closure):
            return self.inline_closure(callee, args, keywords, node)
        if isinstance(callee, Partial):
            return self.call_value(callee.function, (*callee.args, *args), {**callee.keywords, **keywords}, node)
        if isinstance(callee, Derived):
            return self.differentiate(callee, args, keywords, node)
        if not isinstance(callee, Static) or not callable(callee.object):
            self.fail(node.func, f"{describe(callee)} cannot be called")
        return self._call_object(callee.object, args, keywords, node)

    def _call_object(self, function: Any, args: tuple[Value, ...], keywords: dict[str, Value], node: ast.Call) -> Value:
        name = getattr(function, "__name__", type(function).__name__)
        if function is dataclasses.replace and args:
            return replace_fields(self, args[0], keywords, node)
        builtin = BUILTINS.get(function) if _hashable(function) else None
        if builtin is not None:
            return self._builtin(name, builtin, function, args, keywords, node)
        if isinstance(function, DerivativeOf):
            place = Capture(function, "function", function.function, name, attribute=True)
            return self.differentiate(Derived(function.operator, self.captured(place, node)), args, keywords, node)
        meaning = self.meaning(function)
        if isinstance(meaning, Custom):
            return self.inline(meaning.function, args, keywords, node, meaning)
        if isinstance(meaning, Rule):
            if meaning.by_user and isinstance(function, FunctionType) and function is meaning.function:
                source, env = self.arguments(function, args, keywords, node)
                args, keywords = in_order(source.node, env), {}
            if keywords or len(args) != meaning.arity:
                given = f"{len(args)} positional and {len(keywords)} keyword" if keywords else f"{len(args)}"
                self.fail(node, f"{name}() takes {count(meaning.arity, 'positional argument')} here, not {given}")
            # What a user's function captures would not be guarded.
            folded = None if meaning.by_user else _fold(function, args)
            if folded is not None:
                return folded
            places = node.args if len(node.args) == len(args) else [node] * len(args)  # a starred one is several
            numbers = tuple(self.as_scalar(arg, at) for arg, at in zip(args, places, strict=True))
            return self.apply(meaning, numbers, node)
        if isinstance(meaning, FunctionType):
            return self._inline_any(meaning, args, keywords, node)
        if isinstance(function, functools.partial):
            bound = tuple(self._bound(function, function.args, at, node) for at in range(len(function.args)))
            named = {key: self._bound(function, function.keywords, key, node) for key in function.keywords}
            return self.call_value(Static(function.func), (*bound, *args), {**named, **keywords}, node)
        if isinstance(function, types.MethodType):
            return self.call_value(Static(function.__func__), (Static(function.__self__), *args), keywords, node)
        if function is functools.partial and args:
            return Partial(args[0], args[1:], keywords)
        if is_record_type(function):
            return make_record(self, function, args, keywords, node)
        module = getattr(function, "__module__", None) or ("numpy" if isinstance(function, np.ufunc) else "")
        if isinstance(function, FunctionType):
            # A library's functions work on arrays; an error inside one would show lines that are not the user's.
            if module in _TELLING:
                self._side_effect(name, node)
            if module.partition(".")[0] not in _LIBRARIES:
                return self._inline_any(function, args, keywords, node)
        else:
            if partials := getattr(function, "_partials", ()):
                while function._whole is not None:
                    function = function._whole
                derived: Value = Static(function)
                for wrt in partials:
                    derived = Derived(Operator("derivative", wrt), derived)
                return self.call_value(derived, args, keywords, node)
            # What wraps a scalar function without changing it: this package's decorator, Numba's, functools.cache.
            for attribute in ("__wrapped__", "py_func"):
                inner = getattr(function, attribute, None)
                if callable(inner):
                    return self._call_object(inner, args, keywords, node)
            method = next((vars(base)["__call__"] for base in type(function).__mro__ if "__call__" in vars(base)), None)
            if isinstance(method, FunctionType) and not isinstance(function, type):
                self.guards.append(Capture(function, "__call__", function.__call__, name, attribute=True))
                return self._inline_any(method, (Static(function), *args), keywords, node)
            if isinstance(getattr(function, "__self__", None), _IMMUTABLE) or module in ("math", "_operator"):
                return self._now(function, args, keywords, node)
        if name in _PRINTING:
            self._side_effect(name, node)
        if isinstance(function, type) and not module.startswith("numpy"):
            instead = "isinstance(x, float)" if function is type else "a named tuple, a dataclass, or plain numbers"
            self.fail(node, f"{name} objects cannot be made in a kernel", instead)
        self._no_rule(function, name, module, args, node)

    def _inline_any(
        self, function: FunctionType, args: tuple[Value, ...], keywords: dict[str, Value], node: ast.Call
    ) -> Value:
        """The result of a Python function; an error in a library that is no user's to change is one of calling it."""
        if not _is_fixed(function.__code__.co_filename) or _is_fixed(self.frame.source.filename):
            return self.inline(function, args, keywords, node)
        try:
            return self.inline(function, args, keywords, node)
        except CompileError as error:
            if not _is_fixed(error.filename):
                raise
            instead = error.hint
            if not function.__code__.co_filename.startswith(_PACKAGE):
                instead = "a function of your own that computes it"
            self.fail(node, f"in {function.__name__}(): {error.message}", instead)

    def _side_effect(self, name: str, node: ast.Call) -> NoReturn:
        self.fail(node, f"{name}() is a side effect, which a kernel cannot have", "the value as another output")

    def _no_rule(self, function: Any, name: str, module: str, args: tuple[Value, ...], node: ast.Call) -> NoReturn:
        if module == "builtins":
            self.fail(node, f"{name}() cannot be compiled", "a Python function that computes it from numbers")
        spelling = self._spelling(function, name, module, args, node)
        reason = library.EXCLUDED.get(spelling)
        if reason is None and spelling.startswith("numpy.") and not isinstance(function, np.ufunc):
            reason = "works on arrays, and a kernel on one element of each"
        instead = "a function from math or numpy that has one, or a Python function that computes it"
        if "random" in f"{module} {type(getattr(function, '__self__', None)).__module__}":
            reason, instead = "gives another number at every call", "an array of random numbers as another argument"
        self.fail(node, f"there is no derivative rule for {spelling}" + (f": it {reason}" if reason else ""), instead)

    def _spelling(self, function: Any, name: str, module: str, args: tuple[Value, ...], node: ast.Call) -> str:
        """A function's dotted name: as the user writes it, if that begins with a module, or as its library does."""
        path: list[str] = []
        root: ast.AST = node.func
        while isinstance(root, ast.Attribute):
            path.insert(0, root.attr)
            root = root.value
        known = self.name(root) if isinstance(root, ast.Name) else None
        beginning = written = known.object if isinstance(known, Static) else None
        for part in path:
            written = getattr(written, part, None)
        is_written = leads_to(written, function)
        if is_written and isinstance(beginning, types.ModuleType):
            return ".".join([beginning.__name__, *path])
        if found := home(function):
            return found
        if is_written and path:
            return ".".join([home(beginning), *path]) if home(beginning) else ast.unparse(node.func)
        owner = args[0].object if args and isinstance(args[0], Static) else None
        if hasattr(owner, name) and home(owner):
            return f"{home(owner)}.{name}"
        public = ".".join(part for part in module.removeprefix("_").split(".") if not part.startswith("_"))
        return f"{public}.{name}" if public else ast.unparse(node.func)

    def _builtin(
        self,
        name: str,
        lowering: Callable[..., Value],
        function: Any,
        args: tuple[Value, ...],
        keywords: dict[str, Value],
        node: ast.Call,
    ) -> Value:
        if keywords.keys() - KEYWORDS.get(function, frozenset()):
            allowed = KEYWORDS.get(function)
            few = f"only the keyword {', '.join(sorted(allowed))}" if allowed else "no keyword arguments"
            self.fail(node, f"{name}() takes {few} in a kernel")
        folded = _fold(function, args) if args and not keywords else None
        if folded is not None:
            return folded
        try:
            return lowering(self, node, *args, **keywords)
        except TypeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is None:
                self.fail(node, f"{name}() does not take {count(len(args), 'argument')}")
            raise

    def _bound(self, function: Any, place: Any, key: Any, node: ast.AST) -> Value:
        """An argument that a partial function holds."""
        names = getattr(getattr(function.func, "__code__", None), "co_varnames", ())
        path = key if isinstance(key, str) else names[key] if key < len(names) else f"argument_{key}"
        return self.captured(Capture(place, key, place[key], path), node)

    def _now(self, function: Any, args: tuple[Value, ...], keywords: dict[str, Value], node: ast.Call) -> Value:
        """The result of a pure function of known objects, computed when the kernel is compiled."""
        plain: list[Any] = []
        for arg in (*args, *keywords.values()):
            if not isinstance(arg, Const | Static):
                module, name = getattr(function, "__module__", None), function.__name__
                if module:
                    self._no_rule(function, name, module, args, node)
                self.fail(node, f"{name}() needs what is known when the kernel is compiled, not {describe(arg)}")
            plain.append(arg.value if isinstance(arg, Const) else arg.object)
        try:
            result = function(*plain[: len(args)], **dict(zip(keywords, plain[len(args) :], strict=True)))
        except Exception as error:
            self.fail(node, f"this raises {type(error).__name__}: {error}")
        known = self.known(result, Capture((result,), 0, result, ast.unparse(node)))
        if known is None:
            self.fail(node, f"this is of type {type(result).__name__}, which a kernel cannot use")
        return known

    # --- the rule table ------------------------------------------------------------------------------------------

    def apply(self, meaning: Rule | Callable[..., Any], args: tuple[Atom, ...], node: ast.AST) -> Atom:
        if not isinstance(meaning, Rule):
            assert isinstance(meaning, FunctionType)
            return self.as_scalar(self.inline(meaning, args, {}, node), node)
        where = self.locate(node)
        if meaning.name == "pow" and isinstance(args[1], Const) and _is_small(args[1].value):
            return self.power(args[0], args[1], node)
        faster = self.instead_of_pow(*args) if meaning.name == "pow" else None
        if faster is not None:
            return self.apply(*faster, node)
        numbers: list[Atom] = []
        for position, arg in enumerate(args):
            if position in meaning.integer:
                if arg.kind == "float":
                    self.fail(node, f"argument {position + 1} of {meaning.label}() must be an integer", "int(x)")
                numbers.append(self.convert(arg, "int", where))
            else:
                numbers.append(self.convert(arg, "float", where))
        return self.op(meaning.name, *numbers, kind="float", location=where)


def _is_fixed(file: str) -> bool:
    """Whether a file is of Python's own library or of this package's functions."""
    return file.startswith(_PACKAGE) or (file.startswith(_STANDARD) and "site-packages" not in file)


def _hashable(function: Any) -> bool:
    try:
        hash(function)
    except TypeError:
        return False
    return True


def _is_small(exponent: float) -> bool:
    return exponent == int(exponent if abs(exponent) < 99 else 0) and abs(exponent) <= 8


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
