"""Named tuples and dataclasses in a kernel: they are made from fields, or from another with some fields replaced."""

from __future__ import annotations

import ast
import dataclasses
from typing import Any

from dualbcast.errors import a_or_an
from dualbcast.frontend.environment import Environment
from dualbcast.frontend.values import Arguments, Record, Value, describe


def is_record_type(kind: Any) -> bool:
    """Whether an object is a class of named tuples or a dataclass."""
    return isinstance(kind, type) and (dataclasses.is_dataclass(kind) or hasattr(kind, "_field_defaults"))


def make_record(env: Environment, kind: type, arguments: Arguments, node: ast.AST) -> Record:
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
            known = env.constant(default, f"{name}.{key}")
            if known is not None:
                values[key] = known
    missing = [key for key in every if key not in values]
    if missing:
        env.fail(node, f"{name}() lacks a value for {', '.join(missing)}")
    return Record(kind, (values[key] for key in every), every)


def replace_fields(env: Environment, record: Value, keywords: dict[str, Value], node: ast.AST) -> Record:
    """The record with some fields changed: `dataclasses.replace`, and `_replace` of a named tuple."""
    if not isinstance(record, Record) or not record.fields:
        env.fail(node, f"the fields of {describe(record)} cannot be replaced", "a named tuple or a dataclass")
    for key in keywords:
        if key not in record.fields:
            name = record.python_type.__name__
            env.fail(node, f"{name} has no field {key}", f"one of {', '.join(record.fields)}")
    return record.like(keywords.get(key, item) for key, item in zip(record.fields, record, strict=True))
