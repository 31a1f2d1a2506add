"""The front end's calls: functions of the rule table become operations, all others are inlined."""

from __future__ import annotations

import ast
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

from dualbcast.compiler import rows
from dualbcast.compiler.builtin import BUILTINS
from dualbcast.compiler.expressions import Expressions, wrap
from dualbcast.compiler.fold import FALSE, TRUE, number
from dualbcast.compiler.ir import TEMPORARY, Atom, Const, Op, Var
from dualbcast.compiler.rules import Custom, Rule, watch
from dualbcast.compiler.source import FunctionNode, Source, find_source
from dualbcast.compiler.values import RESULT, RETURNED, SKIPPING, Closure, Frame, Static, Unassigned, Value, describe
from dualbcast.errors import CompileError

__all__ = ["Calls", "local_names", "one_output"]

DEEPEST = 32

_LIBRARIES = ("cupy", "numpy", "scipy", "jax", "torch")
_PRINTING = ("print", "input", "open")


class Calls(Expressions):
    """Lowers calls; `statements` is supplied by the layer above."""

    def statements(self, body: list[ast.stmt]) -> bool:
        raise NotImplementedError

    def call(self, node: ast.Call) -> Value:
        callee = self.expression(node.func)
        args = self.items(node.args)
        keywords: dict[str, Value] = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                self.fail(keyword.value, "`**` arguments cannot be compiled", "the keywords written out")
            keywords[keyword.arg] = self.expression(keyword.value)
        if isinstance(callee, Closure):
            return self._inline_closure(callee, args, keywords, node)
        if not isinstance(callee, Static) or not callable(callee.object):
            self.fail(node.func, f"{describe(callee)} cannot be called")
        return self._call_object(callee.object, args, keywords, node)

    def _call_object(self, function: Any, args: tuple[Value, ...], keywords: dict[str, Value], node: ast.Call) -> Value:
        name = getattr(function, "__name__", type(function).__name__)
        builtin = BUILTINS.get(function) if _hashable(function) else None
        if builtin is not None:
            if keywords:
                self.fail(node, f"{name}() takes no keyword arguments in a kernel")
            folded = _fold(function, args) if args else None
            if folded is not None:
                return folded
            try:
                return builtin(self, node, *args)
            except TypeError as error:
                if error.__traceback__ is not None and error.__traceback__.tb_next is None:
                    self.fail(node, f"{name}() does not take {len(args)} arguments")
                raise
        meaning = self._meaning(function)
        if meaning is None:
            # A decorated scalar function is used through the Python function it wraps.
            for attribute in ("__wrapped__", "py_func"):
                inner = getattr(function, attribute, None)
                function = inner if isinstance(inner, FunctionType) else function
            meaning = self._meaning(function)
        if isinstance(meaning, Custom):
            return self._inline(meaning.function, args, keywords, node, meaning)
        if isinstance(meaning, Rule):
            if meaning.by_user and isinstance(function, FunctionType) and function is meaning.function:
                args, keywords = self._in_order(function, args, keywords, node), {}
            if keywords or len(args) != meaning.arity:
                given = f"{len(args)} positional and {len(keywords)} keyword" if keywords else f"{len(args)}"
                self.fail(node, f"{name}() takes {_count(meaning.arity, 'positional argument')} here, not {given}")
            # What a user's function captures would not be guarded.
            folded = None if meaning.by_user else _fold(function, args)
            if folded is not None:
                return folded
            places = node.args if len(node.args) == len(args) else [node] * len(args)  # a starred one is several
            numbers = tuple(self.as_scalar(arg, at) for arg, at in zip(args, places, strict=True))
            return self.apply(meaning, numbers, node)
        if meaning is not None:
            return self._inline(meaning, args, keywords, node)
        module = getattr(function, "__module__", None) or ("numpy" if isinstance(function, np.ufunc) else "")
        # A library's functions work on arrays; an error inside one would show lines that are not the user's.
        if isinstance(function, FunctionType) and module.partition(".")[0] not in _LIBRARIES:
            return self._inline(function, args, keywords, node)
        if name in _PRINTING:
            self.fail(node, f"{name}() is a side effect, which a kernel cannot have", "the value as another output")
        if getattr(np, name, None) is function:
            module = "numpy"  # the user's spelling, not where NumPy keeps it
        spelling = f"{module}.{name}" if module else name
        reason = rows.EXCLUDED.get(spelling)
        self.fail(
            node,
            f"there is no derivative rule for {spelling}" + (f": it {reason}" if reason else ""),
            "a function from math or numpy that has one, or a Python function that computes it",
        )

    # --- the rule table ------------------------------------------------------------------------------------------

    def _meaning(self, function: Any) -> Any:
        """What a callable means; the kernel holds as long as it means that."""
        found = watch(function)
        if not isinstance(found.value, Rule) or found.value.by_user:
            self.guards.append(found)
        return found.value

    def apply(self, meaning: Rule | Callable[..., Any], args: tuple[Atom, ...], node: ast.AST) -> Atom:
        if not isinstance(meaning, Rule):
            return self.as_scalar(self._inline(meaning, args, {}, node), node)
        where = self.locate(node)
        if meaning.name == "pow" and isinstance(args[1], Const) and _is_small(args[1].value):
            return self.power(args[0], args[1], node)
        numbers: list[Atom] = []
        for position, arg in enumerate(args):
            if position in meaning.integer:
                if arg.kind == "float":
                    self.fail(node, f"argument {position + 1} of {meaning.label}() must be an integer", "int(x)")
                numbers.append(self.convert(arg, "int", where))
            else:
                numbers.append(self.convert(arg, "float", where))
        return self.op(meaning.name, *numbers, kind="float", location=where)

    # --- inlining ------------------------------------------------------------------------------------------------

    def _inline(
        self,
        function: Callable[..., Any],
        args: tuple[Value, ...],
        keywords: dict[str, Value],
        node: ast.AST,
        custom: Custom | None = None,
    ) -> Value:
        source, env = self._arguments(function, args, keywords, node)
        given = () if custom is None else self._numbers(source.node, env, custom.label, node)
        frame = Frame(source, local_names(source.node), env, None, self._deeper(source.function.__name__, node))
        value = self.run(frame, source.node)
        return value if custom is None else self._customised(custom, value, given, node)

    def _arguments(
        self, function: Callable[..., Any], args: tuple[Value, ...], keywords: dict[str, Value], node: ast.AST
    ) -> tuple[Source, dict[str, Value]]:
        """The source of a function, and its parameters bound to the arguments and its defaults."""
        try:
            source = find_source(function)
        except CompileError as error:
            self.fail(node, error.message, error.hint)
        assert isinstance(function, FunctionType)
        defaults = self._wrapped_defaults(function.__defaults__ or (), function, node)
        wanted = function.__kwdefaults__ or {}
        keyword_defaults = tuple(
            self._wrapped_defaults((wanted[arg.arg],), function, node)[0] if arg.arg in wanted else None
            for arg in source.node.args.kwonlyargs
        )
        env = self._bind(source.node, function.__name__, args, keywords, defaults, keyword_defaults, node)
        return source, env

    def _in_order(
        self, function: Callable[..., Any], args: tuple[Value, ...], keywords: dict[str, Value], node: ast.AST
    ) -> tuple[Value, ...]:
        """All arguments of a call by position, keywords and defaults too."""
        source, env = self._arguments(function, args, keywords, node)
        return _in_order(source.node, env)

    def _numbers(self, callee: FunctionNode, env: dict[str, Value], name: str, node: ast.AST) -> tuple[Atom, ...]:
        """The arguments that a custom derivative is in."""
        numbers: list[Atom] = []
        for position, value in enumerate(_in_order(callee, env)):
            if not isinstance(value, Const | Var):
                what = f"argument {position + 1} of {name}() is {describe(value)}"
                self.fail(node, f"{what}, and {name}() has a custom derivative, which is in numbers", "a number")
            numbers.append(value)
        return tuple(numbers)

    def _customised(self, custom: Custom, value: Value, given: tuple[Atom, ...], node: ast.AST) -> Value:
        """A value whose derivative in the given arguments is custom; where all of those are known, it has none."""
        if not any(isinstance(arg, Var) for arg in given):
            return value
        if isinstance(value, tuple):
            if custom.partials is not None:
                self.fail(node, *one_output(custom.label, len(value)))
            return tuple(self._customised(custom, item, given, node) for item in value)
        number = self.as_scalar(value, node)
        where = self.locate(node)
        if custom.partials is not None and any(arg.kind == "float" for arg in given):
            number = self.convert(number, "float", where)
        result = self.emit(Op(custom.name, (number, *given), number.kind, where), where)
        return self.rename(result, TEMPORARY + custom.label)

    def _inline_closure(
        self, callee: Closure, args: tuple[Value, ...], keywords: dict[str, Value], node: ast.AST
    ) -> Value:
        env = self._bind(callee.node, callee.name, args, keywords, callee.defaults, callee.keyword_defaults, node)
        calls = self._deeper(callee.name, node)
        frame = Frame(callee.frame.source, local_names(callee.node), env, callee.frame, calls)
        return self.run(frame, callee.node)

    def _wrapped_defaults(self, defaults: tuple[Any, ...], function: FunctionType, node: ast.AST) -> tuple[Value, ...]:
        found: list[Value] = []
        for default in defaults:
            value = wrap(default)
            if value is None:
                kind = type(default).__name__
                self.fail(node, f"a default of {function.__name__}() is of type {kind}, which a kernel cannot use")
            found.append(value)
        return tuple(found)

    def _deeper(self, name: str, node: ast.AST) -> tuple[tuple[str, Any], ...]:
        if len(self.frame.calls) >= DEEPEST:
            self.fail(
                node,
                f"{name}() is called within itself more than {DEEPEST} deep; calls are inlined, so recursion must end "
                "when the kernel is compiled",
                "a while loop",
            )
        return (*self.frame.calls, (name, self.locate(node)))

    def _bind(
        self,
        node: FunctionNode,
        name: str,
        args: tuple[Value, ...],
        keywords: dict[str, Value],
        defaults: tuple[Value, ...],
        keyword_defaults: tuple[Value | None, ...],
        at: ast.AST,
    ) -> dict[str, Value]:
        """Python's binding of arguments to parameters."""
        spec = node.args
        positional = [*spec.posonlyargs, *spec.args]
        env: dict[str, Value] = {parameter.arg: arg for parameter, arg in zip(positional, args, strict=False)}
        extra = args[len(positional) :]
        if spec.vararg is not None:
            env[spec.vararg.arg] = extra
        elif extra:
            wanted = _count(len(positional), "positional argument")
            self.fail(
                at,
                f"{name}() takes {wanted}, and {len(args)} are given",
                f"{name}({', '.join(a.arg for a in positional)})",
            )
        if spec.kwarg is not None:
            self.fail(at, f"{name}() takes `**{spec.kwarg.arg}`, which cannot be compiled", "named parameters")
        by_name = {parameter.arg for parameter in (*spec.args, *spec.kwonlyargs)}
        for key, value in keywords.items():
            if key not in by_name:
                self.fail(at, f"{name}() has no parameter {key}")
            if key in env:
                self.fail(at, f"{name}() gets two values for {key}")
            env[key] = value
        if defaults:
            for parameter, default in zip(positional[-len(defaults) :], defaults, strict=True):
                env.setdefault(parameter.arg, default)
        for parameter, keyword_default in zip(spec.kwonlyargs, keyword_defaults, strict=True):
            if keyword_default is not None:
                env.setdefault(parameter.arg, keyword_default)
        missing = [parameter.arg for parameter in (*positional, *spec.kwonlyargs) if parameter.arg not in env]
        if missing:
            self.fail(at, f"{name}() lacks a value for {', '.join(missing)}")
        return env

    def run(self, frame: Frame, node: FunctionNode) -> Value:
        """Inline a function whose parameters are bound in `frame.env`."""
        self.frame, caller = frame, getattr(self, "frame", None)
        try:
            if isinstance(node, ast.Lambda):
                return self.rename(self.expression(node.body), TEMPORARY + "value")
            frame.env[RETURNED] = frame.env[SKIPPING] = FALSE
            falls = self.statements(node.body)
            returned = frame.env.get(RETURNED, FALSE)
            result = frame.env.get(RESULT)
            if falls and (returned != TRUE or result is None):
                message = "this function can end without `return`" if result else "this function returns nothing"
                self.fail(node, message, "a return with a value on every path")
            if not falls or result is None:
                self.fail(node, "this function never returns: its loop has no way out", "a break or a return")
            if isinstance(result, Unassigned):
                self.fail(frame.returned_at or node, result.reason, "the same number of values in every return")
            return self.rename(result, TEMPORARY + node.name)
        finally:
            if caller is not None:
                self.frame = caller


def local_names(function: FunctionNode) -> frozenset[str]:
    """The names that are local to a function: its parameters and what its own statements assign."""
    spec = function.args
    parameters = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs, spec.vararg, spec.kwarg]
    names = {parameter.arg for parameter in parameters if parameter is not None}
    if isinstance(function, ast.FunctionDef):
        names |= assigned_names(function.body)
    return frozenset(names)


def assigned_names(nodes: list[ast.stmt]) -> set[str]:
    """The names that statements assign, those of functions defined inside them left out."""
    found: set[str] = set()
    pending: list[ast.AST] = list(nodes)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif not isinstance(node, ast.Lambda):
            pending.extend(ast.iter_child_nodes(node))
    return found


def _in_order(function: FunctionNode, env: dict[str, Value]) -> tuple[Value, ...]:
    """The values of a function's parameters in their order, those of `*args` one by one."""
    spec = function.args
    values = [env[parameter.arg] for parameter in (*spec.posonlyargs, *spec.args)]
    rest = env[spec.vararg.arg] if spec.vararg is not None else ()
    assert isinstance(rest, tuple)
    return (*values, *rest, *(env[parameter.arg] for parameter in spec.kwonlyargs))


def one_output(name: str, count: int) -> tuple[str, str]:
    """What to say where a function of several outputs has custom partials, and what to write instead."""
    what = f"{name}() returns a tuple of {count}, and custom partials are for a function of one number"
    return what, "a function for each output"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


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
    try:
        with np.errstate(all="raise"):
            result = function(*numbers)
        return number(result.item() if isinstance(result, np.generic) else result)
    except (ArithmeticError, ValueError, TypeError):
        return None
