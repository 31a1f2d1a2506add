"""The front end's inlining: arguments bound to parameters as Python binds them, and the body lowered in place."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import lru_cache
from threading import Thread
from types import FunctionType
from typing import Any

from dualbcast.errors import CompileError
from dualbcast.frontend.expressions import Expressions
from dualbcast.frontend.source import FunctionNode, Source, find_source
from dualbcast.frontend.values import (
    RESULT,
    RETURNED,
    SKIPPING,
    Closure,
    Frame,
    Keywords,
    Unassigned,
    Value,
    describe,
    items_like,
)
from dualbcast.ir.constant_fold import FALSE, TRUE
from dualbcast.ir.nodes import TEMPORARY, Atom, Const, Kind, Names, Op, Var
from dualbcast.rules.guards import Capture
from dualbcast.rules.table import Custom, Rule, watch

__all__ = ["Inlining", "assigned_names", "count", "in_order", "local_names", "one_output"]

# How deep calls may lie within calls, and how many of them share a stack. Python's own limit is 1,000 of its calls on a
# stack, and to lower a call takes some fifteen; what is deeper continues on a thread, which has a stack of its own.
DEEPEST = 1000
ON_A_STACK = 16


class Inlining(Expressions):
    """Lowers bodies of functions; `statements` is supplied by the layer above."""

    def __init__(self, names: Names, array_kind: Callable[[Any], Kind | None]) -> None:
        super().__init__(names, array_kind)
        # The functions that are being inlined, outermost first, each inside the one before it.
        self.inlined: list[FunctionType | Closure] = []

    def statements(self, body: list[ast.stmt]) -> bool:
        raise NotImplementedError

    def meaning(self, function: Any) -> Any:
        """What a callable means; the kernel holds as long as it means that."""
        found = watch(function)
        if not isinstance(found.value, Rule) or found.value.by_user:
            self.guards.append(found)
        return found.value

    def inline(
        self,
        function: FunctionType,
        args: tuple[Value, ...],
        keywords: dict[str, Value],
        node: ast.AST,
        custom: Custom | None = None,
    ) -> Value:
        """The result of a Python function, with its automatic derivative or a custom one."""
        source, env = self.arguments(function, args, keywords, node)
        given = in_order(source.node, env)
        calls = (*self.frame.calls, (function.__name__, self.locate(node)))
        frame = Frame(source, local_names(source.node), env, None, calls, name=function.__name__)
        value = self._run_inside(function, frame, source.node, node)
        return value if custom is None else self.customised(custom, value, given, node)

    def customised(self, custom: Custom, value: Value, given: tuple[Value, ...], node: ast.AST) -> Value:
        """A value whose derivative in the given arguments is custom; where all of those are known, it has none."""
        numbers: list[Atom] = []
        for position, arg in enumerate(given):
            if not isinstance(arg, Const | Var):
                what = f"argument {position + 1} of {custom.label}() is {describe(arg)}"
                self.fail(
                    node, f"{what}, and {custom.label}() has a custom derivative, which is in numbers", "a number"
                )
            numbers.append(arg)
        if not any(isinstance(arg, Var) for arg in numbers):
            return value
        if isinstance(value, tuple):
            if custom.partials is not None:
                self.fail(node, *one_output(custom.label, len(value)))
            return items_like(value, [self.customised(custom, item, given, node) for item in value])
        number, where = self.as_scalar(value, node), self.locate(node)
        if custom.partials is not None and any(arg.kind == "float" for arg in numbers):
            number = self.convert(number, "float", where)
        result = self.emit(Op(custom.name, (number, *numbers), number.kind, where), where)
        return self.rename(result, TEMPORARY + custom.label)

    def arguments(
        self, function: FunctionType, args: tuple[Value, ...], keywords: dict[str, Value], node: ast.AST
    ) -> tuple[Source, dict[str, Value]]:
        """The source of a function, and its parameters bound to the arguments and its defaults."""
        try:
            source = find_source(function)
        except CompileError as error:
            self.fail(node, error.message, error.hint)
        self.guards.append(source.code())
        defaults = self._defaults(function.__defaults__ or (), function, node)
        wanted = function.__kwdefaults__ or {}
        keyword_defaults = tuple(
            self._defaults((wanted[arg.arg],), function, node)[0] if arg.arg in wanted else None
            for arg in source.node.args.kwonlyargs
        )
        return source, self._bind(source.node, function.__name__, args, keywords, defaults, keyword_defaults, node)

    def inline_closure(
        self, callee: Closure, args: tuple[Value, ...], keywords: dict[str, Value], node: ast.AST
    ) -> Value:
        """The result of a function that is defined inside the one being compiled."""
        env = self._bind(callee.node, callee.name, args, keywords, callee.defaults, callee.keyword_defaults, node)
        calls = (*self.frame.calls, (callee.name, self.locate(node)))
        local = local_names(callee.node)
        frame = Frame(callee.frame.source, local, env, callee.frame, calls, name=callee.name)
        return self._run_inside(callee, frame, callee.node, node)

    def _defaults(self, defaults: tuple[Any, ...], function: FunctionType, node: ast.AST) -> tuple[Value, ...]:
        found: list[Value] = []
        for position, default in enumerate(defaults):
            value = self.known(default, Capture(defaults, position, default, f"default_{position}"))
            if value is None:
                kind = type(default).__name__
                self.fail(node, f"a default of {function.__name__}() is of type {kind}, which a kernel cannot use")
            found.append(value)
        return tuple(found)

    def _run_inside(self, callee: FunctionType | Closure, frame: Frame, body: FunctionNode, node: ast.AST) -> Value:
        """The result of a function that is called at `node`, inside those that are being inlined."""
        if len(self.inlined) >= DEEPEST:
            again = sum(each is callee for each in self.inlined)
            if again > DEEPEST // 8:
                self.fail(
                    node,
                    f"{frame.name}() is called within itself too deep; calls are inlined, so recursion must end when "
                    f"the kernel is compiled, at most {DEEPEST:,} calls deep",
                    "a while loop",
                )
            self.fail(node, f"calls are nested more than {DEEPEST:,} deep here, which is the most", "a loop")
        self.inlined.append(callee)
        try:
            if len(self.inlined) % ON_A_STACK:
                return self.run(frame, body)
            return on_new_stack(lambda: self.run(frame, body))
        finally:
            self.inlined.pop()

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
        signature = "" if isinstance(node, ast.Lambda) else f"{name}({_without_types(spec)})"
        env: dict[str, Value] = {parameter.arg: arg for parameter, arg in zip(positional, args, strict=False)}
        extra = args[len(positional) :]
        if spec.vararg is not None:
            env[spec.vararg.arg] = extra
        elif extra:
            wanted = count(len(positional), "positional argument")
            self.fail(at, f"{name}() takes {wanted}, and {len(args)} are given", signature)
        by_name = {parameter.arg for parameter in (*spec.args, *spec.kwonlyargs)}
        others = Keywords()
        for key, value in keywords.items():
            if key not in by_name and spec.kwarg is not None:
                others[key] = value
            elif key not in by_name:
                self.fail(at, f"{name}() has no parameter {key}", signature)
            elif key in env:
                self.fail(at, f"{name}() gets two values for {key}", signature)
            else:
                env[key] = value
        if spec.kwarg is not None:
            env[spec.kwarg.arg] = others
        if defaults:
            for parameter, default in zip(positional[-len(defaults) :], defaults, strict=True):
                env.setdefault(parameter.arg, default)
        for parameter, keyword_default in zip(spec.kwonlyargs, keyword_defaults, strict=True):
            if keyword_default is not None:
                env.setdefault(parameter.arg, keyword_default)
        missing = [parameter.arg for parameter in (*positional, *spec.kwonlyargs) if parameter.arg not in env]
        if missing:
            self.fail(at, f"{name}() lacks a value for {', '.join(missing)}", signature)
        for key, value in env.items():
            self.refuse_iterator(value, at, f"the argument {key}")
        return env

    def run(self, frame: Frame, node: FunctionNode) -> Value:
        """Lower the body of a function whose parameters are bound in `frame.env`."""
        self.frame, caller = frame, getattr(self, "frame", None)
        try:
            given = _yield_of(node)
            if given is not None:
                self.expression(given)
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


def on_new_stack(work: Callable[[], Value]) -> Value:
    """The result of a function that a thread of its own runs while this one waits."""
    results: list[Value] = []
    errors: list[BaseException] = []
    context = copy_context()

    def run() -> None:
        try:
            results.append(context.run(work))
        except BaseException as error:
            errors.append(error)

    thread = Thread(target=run, daemon=True)
    thread.start()
    thread.join()
    for error in errors:
        raise error
    return results[0]


def local_names(function: FunctionNode) -> frozenset[str]:
    """The names that are local to a function: its parameters and what its own statements assign."""
    spec = function.args
    parameters = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs, spec.vararg, spec.kwarg]
    names = {parameter.arg for parameter in parameters if parameter is not None}
    return frozenset(
        names | assigned_names(function.body if isinstance(function, ast.FunctionDef) else [function.body])
    )


def assigned_names(nodes: Sequence[ast.AST]) -> set[str]:
    """The names that code assigns; those of functions and comprehensions inside it are their own."""
    found: set[str] = set()
    pending: list[ast.AST] = list(nodes)
    while pending:
        node = pending.pop()
        match node:
            case ast.FunctionDef(name=name):
                found.add(name)
                pending.extend(_defaults(node))
            case ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                found.add(name)
                pending.extend(ast.iter_child_nodes(node))
            case ast.Lambda():
                pending.extend(_defaults(node))
            case ast.comprehension():
                pending.extend([node.iter, *node.ifs])
            case _:
                pending.extend(ast.iter_child_nodes(node))
    return found


def _defaults(function: FunctionNode) -> list[ast.expr]:
    """What is computed where a function is defined, outside of it: in `lambda v=(x := 1): v` a name is assigned."""
    return [default for default in (*function.args.defaults, *function.args.kw_defaults) if default is not None]


def in_order(function: FunctionNode, env: dict[str, Value]) -> tuple[Value, ...]:
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


@lru_cache(maxsize=1024)
def _without_types(spec: ast.arguments) -> str:
    """Parameters as the user writes them, without annotations."""
    plain = copy.deepcopy(spec)
    for node in ast.walk(plain):
        if isinstance(node, ast.arg):
            node.annotation = None
    return ast.unparse(plain)


@lru_cache(maxsize=1024)
def _yield_of(function: FunctionNode) -> ast.expr | None:
    """The `yield` that makes a function a generator, even where it is never reached."""
    pending: list[ast.AST] = list(function.body) if isinstance(function, ast.FunctionDef) else [function.body]
    while pending:
        node = pending.pop(0)
        if isinstance(node, ast.Yield | ast.YieldFrom):
            return node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            pending[:0] = ast.iter_child_nodes(node)
    return None


def count(number: int, noun: str) -> str:
    """`1 argument`, `2 arguments`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
