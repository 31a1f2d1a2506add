"""Named tuples and dataclasses that a kernel makes from their fields, or from others, and calls of them."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
from collections.abc import Iterable
from typing import Any, NoReturn

from dualbcast.errors import a_or_an
from dualbcast.frontend.builtins import BUILTINS
from dualbcast.frontend.environment import CALLS, Environment, call_value, held, register
from dualbcast.frontend.inlining import bind, inline
from dualbcast.frontend.records import as_record, class_of
from dualbcast.frontend.values import Arguments, Partial, Record, Static, Value, describe, is_complex


def make_record(env: Environment, kind: type, arguments: Arguments, node: ast.Call) -> Record:
    """`kind(*args, **keywords)`."""
    by_keyword: list[str] = []
    defaults: dict[str, Any]
    if dataclasses.is_dataclass(kind):
        every = dataclasses.fields(kind)
        fields = tuple(field.name for field in every)
        by_keyword = [field.name for field in every if field.kw_only]
        defaults = {field.name: field.default for field in every if field.default is not dataclasses.MISSING}
        is_plain = _is_plain_dataclass(kind)
    else:
        fields, defaults = tuple(getattr(kind, "_fields", ())), getattr(kind, "_field_defaults", {})
        scope = getattr(kind.__new__, "__globals__", {})
        inits = any("__init__" in vars(base) for base in kind.__mro__[:-2])
        is_plain = not inits and str(scope.get("__name__")).startswith("namedtuple_")
    if not is_plain:
        _refuse_own_code(env, kind, node)
    _require_fields(env, kind, fields, arguments.keywords, node)
    positional = [name for name in fields if name not in by_keyword]
    names = [[ast.arg(name) for name in part] for part in (positional, by_keyword)]
    spec = ast.arguments([], names[0], None, names[1], [None for _ in by_keyword], None, [])
    given = {*positional[: len(arguments.args)], *arguments.keywords}
    lacking = [name for name in fields if name not in given]
    known = {name: env.known(held(defaults[name], f"{kind.__name__}.{name}")) for name in lacking if name in defaults}
    usable = {name: value for name, value in known.items() if value is not None}
    for field in dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ():
        if field.default_factory is not dataclasses.MISSING and field.name not in given:
            usable[field.name] = call_value(env, Static(field.default_factory), Arguments(()), node)
    bindings = bind(env, spec, kind.__name__, arguments, usable, node)
    return Record(kind, (bindings[name] for name in fields), fields)


def _is_plain_dataclass(kind: type) -> bool:
    """Whether to make an object of a dataclass is to set its fields, and nothing else."""
    made: Any = getattr(getattr(kind, "__init__", None), "__code__", None)
    if made is None or made.co_filename != "<string>":  # the decorator leaves an __init__ of the class as it is
        return False
    takes = made.co_varnames[1 : made.co_argcount + made.co_kwonlyargcount]
    runs_own = hasattr(kind, "__post_init__") or getattr(kind, "__new__", None) is not object.__new__
    return not runs_own and {*takes} == {field.name for field in dataclasses.fields(kind)}


def _refuse_own_code(env: Environment, kind: type, node: ast.AST) -> NoReturn:
    problem = f"making {a_or_an(kind.__name__)} runs code of its own (__init__, __new__ or __post_init__)"
    instead = "a class that holds its fields, and a function that makes it"
    env.fail(node, f"{problem}, which a kernel cannot run", instead)


def _require_fields(env: Environment, kind: type, fields: tuple[str, ...], names: Iterable[str], node: ast.AST) -> None:
    for name in names:
        if name not in fields:
            env.fail(node, f"{kind.__name__} has no field {name}", f"one of {', '.join(fields)}")


@register(BUILTINS, type)
def _type(env: Environment, node: ast.Call, value: Value, /) -> Value:
    """`type(self)`, of an object of a class that the user has defined."""
    kind = class_of(value)
    if kind is None or is_complex(value) or not (dataclasses.is_dataclass(kind) or hasattr(kind, "_fields")):
        env.fail(node, "type objects cannot be made in a kernel", "isinstance(x, float)")
    return Static(kind)


@register(CALLS, Record)
def _call_record(env: Environment, callee: Record, arguments: Arguments, node: ast.Call) -> Value:
    method = inspect.getattr_static(callee.python_type, "__call__")
    return inline(env, method, arguments.after(Arguments((callee,))), node)


@register(BUILTINS, functools.partial)
def _partial(env: Environment, node: ast.Call, function: Value, /, *args: Value, **keywords: Value) -> Value:  # noqa: ARG001
    return Partial(function, Arguments(args, keywords))


@register(BUILTINS, dataclasses.replace)
def _replace_fields(env: Environment, node: ast.Call, record: Value, /, **keywords: Value) -> Record:
    """The record with some fields changed: `dataclasses.replace`, and `_replace` of a named tuple."""
    place = node.args[0] if node.args else node
    record = as_record(env, record, place)
    if not isinstance(record, Record) or not record.fields:
        env.fail(node, f"the fields of {describe(record)} cannot be replaced", "a named tuple or a dataclass")
    if dataclasses.is_dataclass(record.python_type) and not _is_plain_dataclass(record.python_type):
        _refuse_own_code(env, record.python_type, node)
    _require_fields(env, record.python_type, record.fields, keywords, node)
    return record.like(keywords.get(key, item) for key, item in zip(record.fields, record, strict=True))
