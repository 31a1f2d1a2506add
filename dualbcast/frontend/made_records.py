"""Named tuples and dataclasses that a kernel makes from their fields, or from others, and calls of them."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from dualbcast.errors import a_or_an
from dualbcast.frontend.builtins import BUILTINS
from dualbcast.frontend.environment import CALLS, Environment, call_value, expression, held, lowers, register
from dualbcast.frontend.expressions import sequence
from dualbcast.frontend.inlining import bind, inline
from dualbcast.frontend.objects.comprehensions import iterate
from dualbcast.frontend.objects.dictionaries import (
    dictionary,
    is_dictionary,
    items_at,
    keys_of,
    text_key,
    value_at,
)
from dualbcast.frontend.records import as_record, class_of
from dualbcast.frontend.values import Arguments, Partial, Record, Static, Value, describe, is_complex

_NONE = Static(None)


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


# --- dictionaries and tuples of fields -------------------------------------------------------------------------------


@lowers(ast.DictComp)
def _dict_comprehension(env: Environment, node: ast.DictComp) -> Value:
    items: dict[str, Value] = {}

    def append() -> None:
        key = text_key(env, expression(env, node.key), node.key)
        items[key] = expression(env, node.value)

    iterate(env, node, append)
    return dictionary(items)


@register(BUILTINS, dict)
def _dict(env: Environment, node: ast.Call, mapping: Value | None = None, /, **keywords: Value) -> Record:
    """`dict(mapping, a=x)`, and `_asdict` of a named tuple."""
    if mapping is None:
        return dictionary(keywords)
    if isinstance(mapping, Record) and mapping.fields:
        return dictionary({**dict(zip(mapping.fields, mapping, strict=True)), **keywords})
    if is_dictionary(mapping):
        return dictionary({**items_at(env, mapping, "", node), **keywords})
    items: dict[str, Value] = {}
    for pair in sequence(env, mapping, node):
        parts = sequence(env, pair, node)
        if len(parts) != 2:
            env.fail(node, "dict() takes a dictionary, or pairs of a key and a value", "keywords: dict(a=x)")
        items[text_key(env, parts[0], node)] = parts[1]
    return dictionary(items | keywords)


@register(BUILTINS, dict.get)
def _get(env: Environment, node: ast.Call, mapping: Value, key: Value, default: Value = _NONE, /) -> Value:
    known = env.known_object(key, node, "the key of a dictionary must be known", "if/elif on the key")
    value = value_at(env, mapping, known, f"{ast.unparse(node.func).removesuffix('.get')}[{known!r}]", node)
    return default if value is None else value


@register(BUILTINS, dict.items)
def _items(env: Environment, node: ast.Call, mapping: Value, /) -> Record:
    pairs = items_at(env, mapping, ast.unparse(node.func).removesuffix(".items"), node).items()
    return _view(mapping, [Record(tuple, (env.usable(held(key, ""), node, "a key"), value)) for key, value in pairs])


@register(BUILTINS, dict.values)
def _values(env: Environment, node: ast.Call, mapping: Value, /) -> Record:
    return _view(mapping, items_at(env, mapping, ast.unparse(node.func).removesuffix(".values"), node).values())


@register(BUILTINS, dict.keys)
def _keys(env: Environment, node: ast.Call, mapping: Value, /) -> Record:  # noqa: ARG001
    return _view(mapping, keys_of(env, mapping) or ())


def _view(mapping: Value, items: Iterable[Value]) -> Record:
    """What shows the changes of a dictionary."""
    view = Record(tuple, items)
    view.bases = (mapping,) if isinstance(mapping, Record) else ()
    return view


@register(BUILTINS, getattr)
def _getattr(env: Environment, node: ast.Call, obj: Value, name: Value, /) -> Value:  # noqa: ARG001
    known = env.known_object(
        name, node, "the name of an attribute must be known when the kernel is compiled", "if/elif"
    )
    if not isinstance(known, str):
        env.fail(node, "the name of an attribute is text", 'getattr(x, "name")')
    return expression(env, ast.copy_location(ast.Attribute(node.args[0], known, ast.Load()), node))


@register(BUILTINS, dataclasses.astuple)
def _astuple(env: Environment, node: ast.Call, obj: Value, /) -> Value:
    return _of_fields(env, obj, node, lambda record: Record(tuple, record))


@register(BUILTINS, dataclasses.asdict)
def _asdict(env: Environment, node: ast.Call, obj: Value, /) -> Value:
    return _of_fields(env, obj, node, lambda record: dictionary(dict(zip(record.fields, record, strict=True))))


def _of_fields(env: Environment, obj: Value, node: ast.Call, make: Callable[[Record], Record]) -> Record:
    """What `make` gives for the fields of a dataclass, and in it for those of the dataclasses that it holds."""
    place = node.args[0] if node.args else node
    record = as_record(env, obj, place)
    if not isinstance(record, Record) or not dataclasses.is_dataclass(record.python_type):
        env.fail(place, f"{describe(obj)} is no object of a dataclass", "its items")

    def inner(item: Value) -> Value:
        item = as_record(env, item, place)
        if not isinstance(item, Record) or is_complex(item):
            return item
        parts = item.like(map(inner, item))
        return make(parts) if dataclasses.is_dataclass(item.python_type) else parts

    return make(record.like(map(inner, record)))
