"""The arrays that Variables hold, and nested containers of them, such as the parameters of a model.

Comes in: a dict, list, tuple, named tuple, dataclass, or object of a class that is registered with optree. Goes out:
its leaves, or a like container with other leaves.
"""

from __future__ import annotations

import copy
import dataclasses
import sys
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import numpy as np

from dualbcast.adapters import Adapter, adapter_for, is_lazy
from dualbcast.api.complex_arguments import is_complex as is_complex
from dualbcast.complex_numbers import Complex

_NUMPYS = (np.ndarray, np.generic)
_NAMESPACE = "dualbcast"  # of optree, which looks into its global one, too


def namespace(*values: Any) -> Any:
    """The array library of the first of the values that is an array or a Variable: NumPy, CuPy as array-api-compat
    wraps it, or Dask. It is NumPy where there is none."""
    for value in values:
        if isinstance(value, _NUMPYS):
            return np
        if hasattr(type(value), "__broadcast_function__"):  # a Variable
            return value.namespace
        if is_array(value):
            return adapter_for(value).namespace if is_lazy(value) else _cupy()  # type: ignore[union-attr]
    return np


@lru_cache
def _cupy() -> Any:
    from array_api_compat import cupy

    return cupy


def is_array(value: Any) -> bool:
    """Whether a value is a NumPy array, a CuPy array, a Dask array or a NumPy scalar."""
    if isinstance(value, _NUMPYS):
        return True
    cupy = sys.modules.get("cupy")
    return (cupy is not None and isinstance(value, cupy.ndarray)) or is_lazy(value)


def lazy_adapter(values: Iterable[Any]) -> Adapter | None:
    """The adapter of the lazy arrays among some values; None where there are none."""
    for value in values:
        if type(value) is not np.ndarray and is_lazy(value):
            return adapter_for(value)
    return None


def as_array(value: Any) -> Any:
    """A value as an array: NumPy's reductions return scalars, and users pass numbers and lists."""
    if type(value) is np.ndarray or (is_array(value) and not isinstance(value, np.generic)):
        return value
    return np.asarray(value)


def is_float(dtype: Any) -> bool:
    """Whether arrays of this dtype carry derivatives."""
    return bool(dtype.kind == "f") or dtype.name == "bfloat16"


def is_inexact(dtype: Any) -> bool:
    """Whether arrays of this dtype carry derivatives, or have parts that do."""
    return is_float(dtype) or bool(dtype.kind == "c")


def on_host(array: Any) -> Any:
    """The array, or a NumPy array with the values of a CuPy array or, which are computed now, of a Dask array."""
    return array if isinstance(array, np.ndarray) else np.asarray(array) if is_lazy(array) else array.get()


def map_leaves(function: Callable[[str, Any], Any], tree: Any, path: str = "") -> Any:
    """A container like `tree` with `function(path, leaf)` in the place of each leaf.

    Containers are dicts, lists, tuples, named tuples, dataclasses, and objects of classes that a user has registered
    with `optree.register_pytree_node`, globally or in the namespace "dualbcast"; everything else is a leaf, but None
    stays. Complex numbers, arrays of them too, have two leaves: the real and the imaginary parts.

    Examples
    --------
    >>> map_leaves(lambda path, leaf: f"{path} is {leaf}", {"layers": [(1, 2), None]}, "model")
    {'layers': [("model['layers'][0][0] is 1", "model['layers'][0][1] is 2"), None]}
    """
    kind = kind_of(type(tree))
    if kind == "complex" or (kind == "leaf" and is_complex(tree)):
        return joined(function(f"{path}.real", tree.real), function(f"{path}.imag", tree.imag))
    if kind == "leaf":
        return None if tree is None else function(path, tree)
    if kind == "object":
        if not is_registered(type(tree)):
            return function(path, tree)
        accessors, parts, structure = opened(tree)
        return structure.unflatten(
            [map_leaves(function, part, at.codify(path)) for at, part in zip(accessors, parts, strict=True)]
        )
    is_by_name = kind in ("named tuple", "dataclass")
    mapped = {
        key: map_leaves(function, part, f"{path}.{key}" if is_by_name else f"{path}[{key!r}]")
        for key, part in parts_of_tree(kind, tree)
    }
    if kind in ("sequence", "named tuple"):
        # A named tuple's own __new__ takes its fields one by one, or other arguments, if the user wrote it.
        values = list(mapped.values())
        return tuple.__new__(type(tree), values) if isinstance(tree, tuple) else type(tree)(values)
    # Of its own type, with its attributes: a defaultdict's default; without __post_init__, which is for the values that
    # the user gives.
    built = copy.copy(tree)
    for key, part in mapped.items():
        if kind == "dict":
            built[key] = part
        else:
            object.__setattr__(built, key, part)
    return built


def leaves(tree: Any) -> list[Any]:
    """The leaves, in the order in which `map_leaves` meets them."""
    kind = kind_of(type(tree))
    if kind == "complex" or (kind == "leaf" and is_complex(tree)):
        return [tree.real, tree.imag]
    if kind == "leaf":
        return [] if tree is None else [tree]
    if kind == "object":
        if not is_registered(type(tree)):
            return [tree]
        parts: Iterable[tuple[Any, Any]] = enumerate(opened(tree)[1])
    else:
        parts = parts_of_tree(kind, tree)
    collected: list[Any] = []
    for _, part in parts:
        collected += leaves(part)
    return collected


class Parts:
    """What stands for the real and the imaginary part of complex numbers, in a container that is none of arrays."""

    __slots__ = ("imag", "real")
    is_of_parts = True

    def __init__(self, real: Any, imag: Any) -> None:
        self.real, self.imag = real, imag


def joined(real: Any, imag: Any) -> Any:
    """The complex numbers with these parts: arrays, numbers or Variables; of any other objects their `Parts`."""
    if real is None and imag is None:
        return None
    if type(real) is float and type(imag) is float:
        return complex(real, imag)
    are_numbers = is_array(real) or hasattr(type(real), "__join_complex__")
    return Complex(real, imag) if are_numbers else Parts(real, imag)


def has_complex(tree: Any) -> bool:
    """Whether there are complex numbers in a container."""
    kind = kind_of(type(tree))
    if kind in ("leaf", "complex"):
        return is_complex(tree)
    if kind == "object":
        return is_registered(type(tree)) and any(map(has_complex, opened(tree)[1]))
    return any(has_complex(part) for _, part in parts_of_tree(kind, tree))


def rebuild(tree: Any, values: Iterable[Any]) -> Any:
    """A container like `tree` with other leaves."""
    remaining = iter(values)
    return map_leaves(lambda _path, _leaf: next(remaining), tree)


def _kind_of_type(type_of_tree: Any) -> str:
    """The kind of container that objects of a type are; "object" if that is for optree to say, each time anew."""
    if type_of_tree.__module__ == "builtins":
        builtin: dict[Any, str] = {dict: "dict", list: "sequence", tuple: "sequence", complex: "complex"}
        return builtin.get(type_of_tree, "leaf")
    if is_registered(type_of_tree):
        return "object"
    if getattr(type_of_tree, "is_of_parts", False):
        return "complex"
    if issubclass(type_of_tree, dict):
        return "dict"
    if issubclass(type_of_tree, list | tuple):
        return "named tuple" if hasattr(type_of_tree, "_fields") else "sequence"
    if dataclasses.is_dataclass(type_of_tree):
        return "dataclass"
    return "leaf" if hasattr(type_of_tree, "dtype") else "object"


# The types of arrays, numbers and containers come again and again.
kind_of: Callable[[Any], str] = lru_cache(_kind_of_type)


def parts_of_tree(kind: str, tree: Any) -> Iterable[tuple[Any, Any]]:
    """The parts of a container with their keys, positions or names."""
    if kind == "dict":
        return tree.items()  # type: ignore[no-any-return]
    if kind == "sequence":
        return enumerate(tree)
    if kind == "complex":
        return [("real", tree.real), ("imag", tree.imag)]
    if kind == "named tuple":
        return zip(tree._fields, tree, strict=True)
    return [(field.name, getattr(tree, field.name)) for field in dataclasses.fields(tree)]


def is_registered(type_of_tree: Any) -> bool:
    """Whether a user has registered a class with optree. Nobody has where it was not imported."""
    optree: Any = sys.modules.get("optree")
    entry = optree and optree.register_pytree_node.get(type_of_tree, namespace=_NAMESPACE)
    return bool(entry) and entry.kind == optree.PyTreeKind.CUSTOM


def opened(tree: Any) -> tuple[list[Any], list[Any], Any]:
    """The parts of an object of a registered class, with how each is reached, and how such an object is built."""
    import optree

    accessors, parts, structure = optree.tree_flatten_with_accessor(
        tree, is_leaf=lambda each: each is not tree, none_is_leaf=True, namespace=_NAMESPACE
    )
    return accessors, parts, structure


def constants_of(tree: Any) -> Any:
    """What an object of a registered class has beside its parts: optree's metadata."""
    import optree

    return optree.tree_flatten_one_level(tree, none_is_leaf=True, namespace=_NAMESPACE)[1]
