"""Dictionaries whose keys are known: those that a kernel makes, those of `**` parameters, and captured ones.

A kernel has their values only. One that it makes is a `Record` whose fields are the keys.
"""

from __future__ import annotations

import ast
import collections
import types
from typing import Any

from dualbcast.frontend.environment import Environment, expression, lowers
from dualbcast.frontend.values import Arguments, Keywords, Partial, Record, Static, Value
from dualbcast.rules.guards import ABSENT, Capture, KeysOf

# The methods that change nothing.
_METHODS = {"get": dict.get, "items": dict.items, "keys": dict.keys, "values": dict.values}
_CAPTURED = (dict, collections.OrderedDict, types.MappingProxyType)


def is_dictionary(value: Value) -> bool:
    """Whether a value is a dictionary."""
    if isinstance(value, Record):
        return value.python_type is dict
    return isinstance(value, Keywords) or (isinstance(value, Static) and type(value.object) in _CAPTURED)


def keys_of(env: Environment, value: Value) -> tuple[Value, ...] | None:
    """The keys of a dictionary, those of a captured one guarded; None for anything else."""
    if not is_dictionary(value):
        return None
    if isinstance(value, Record):
        return tuple(map(Static, value.fields))
    if not isinstance(value, Static):
        assert isinstance(value, Keywords)
        return tuple(map(Static, value))
    place = KeysOf(value.object)
    env.guards.append(Capture(place, 0, place[0], "its keys"))
    return tuple([key for each in place[0] if (key := env.known(Capture(place[0], 0, each, ""))) is not None])


def value_at(env: Environment, mapping: Value, key: Any, path: str, node: ast.AST) -> Value | None:
    """The value at a key that is known; None if there is none, which is guarded in a captured dictionary."""
    if isinstance(mapping, Record):
        return mapping[mapping.fields.index(key)] if key in mapping.fields else None
    if isinstance(mapping, Keywords):
        return mapping.get(key)
    assert isinstance(mapping, Static)
    owner = mapping.object
    if not env.evaluate(node, lambda: key in owner):
        env.guards.append(Capture(owner, key, ABSENT, path))
        return None
    return env.captured(Capture(owner, key, owner[key], path), node)


def items_at(env: Environment, mapping: Value, path: str, node: ast.AST) -> dict[Any, Value]:
    """All values of a dictionary by their keys."""
    items: dict[Any, Value] = {}
    for known in keys_of(env, mapping) or ():
        key = env.known_object(known, node, "")
        value = value_at(env, mapping, key, f"{path}[{key!r}]", node)
        if value is not None:
            items[key] = value
    return items


def has_key(env: Environment, mapping: Value, key: Value, node: ast.AST) -> bool:
    """`key in mapping`."""
    known = env.known_object(key, node, "whether a dictionary has a number depends on the data", "a tuple of numbers")
    if isinstance(mapping, Static):  # its value, which may be of no use to a kernel, need not be captured
        is_in = env.evaluate(node, lambda: known in mapping.object)
        place = KeysOf(mapping.object)
        env.guards.append(Capture(place, 0, place[0], "its keys"))
        return is_in
    return value_at(env, mapping, known, "", node) is not None


def item(env: Environment, mapping: Value, node: ast.Subscript) -> Value:
    """`mapping[key]`."""
    problem = "a dictionary can only be indexed by a known value"
    key = env.known_object(expression(env, node.slice), node.slice, problem, "if/elif on the index")
    value = value_at(env, mapping, key, ast.unparse(node), node)
    if value is None:
        keys = ", ".join(map(repr, items_at(env, mapping, "", node)))
        env.fail(node, f"this raises KeyError: {key!r}", f"one of {keys}" if keys else "")
    return env.merged(value, node)


def method(env: Environment, mapping: Value, node: ast.Attribute) -> Value:
    """`mapping.get` and the like."""
    if node.attr not in _METHODS:
        instead = f"one of its methods {', '.join(_METHODS)}, or a new dictionary: {{**options, 'key': value}}"
        env.fail(node, f"a dictionary has no {node.attr} in a kernel", instead)
    return Partial(Static(_METHODS[node.attr]), Arguments((mapping,)))


@lowers(ast.Dict)
def _display(env: Environment, node: ast.Dict) -> Record:
    """`{"a": x, **others}`."""
    items: dict[Any, Value] = {}
    for at, written in zip(node.keys, node.values, strict=True):
        value = expression(env, written)
        if at is not None:
            env.refuse_iterator(value, written, "an item here")
            items[text_key(env, expression(env, at), at)] = value
        elif is_dictionary(value):
            items |= {text_key(env, Static(key), node): each for key, each in items_at(env, value, "", written).items()}
        else:
            env.fail(written, "`**` spreads dictionaries only", "the keys written out")
    return dictionary(items)


def text_key(env: Environment, key: Value, node: ast.AST) -> str:
    """The key of a dictionary that a kernel makes."""
    known = env.known_object(key, node, "a key of a dictionary must be known text", "a tuple")
    if not isinstance(known, str):
        env.fail(node, "a key of a dictionary must be known text", "a tuple")
    return known


def dictionary(items: dict[str, Value]) -> Record:
    """A dictionary with these items."""
    return Record(dict, items.values(), tuple(items))
