"""How functions go through a pickle: a BroadcastFunction comes in, and what `pickle` makes another one of goes out.

A function that another process can import goes by its name. Others go by value, if the pickler is `cloudpickle` or one
like it: with their code, of which it keeps no text, goes the text of the files that the code is of.
"""

from __future__ import annotations

import functools
import linecache
import sys
from collections.abc import Callable
from pickle import PicklingError
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

from dualbcast.frontend.source import take_text
from dualbcast.frontend.source_text import SourceText, names_of, origin_of
from dualbcast.rules.registration import customise
from dualbcast.rules.table import Custom, Rule, given

_MAIN = "__main__"


def reduced(function: Any, options: dict[str, Any], is_by_value: bool) -> str | tuple[Any, ...]:
    """What `__reduce__` gives for a BroadcastFunction with these options that is neither a method nor a partial
    derivative."""
    by_name = _found(function.__module__, function.__qualname__) is function
    if by_name and not (is_by_value and function.__module__ == _MAIN):
        return str(function.__qualname__)
    kind: Any = type(function)
    origin = origin_of(function._function)
    if origin is not None:
        return _of_text, (kind, *origin, options)
    if is_by_value:
        needs = _Needs(function._function)
        return _of_code, (kind, function._function, [*needs.texts], needs.customs, options)
    return functools.partial(kind, **options), (function._function,)


def is_pickled_by_value() -> bool:
    """Whether the `__reduce__` that calls this is called by a pickler that pickles functions by value."""
    # Picklers are written in C, and are called by `dump` of the module that extends them. Libraries have copies of it.
    name = sys._getframe(2).f_globals.get("__name__", "")
    return str(name).rpartition(".")[2].startswith("cloudpickle")


class _Needs:
    """What a function needs that its code does not have: the texts of files, and the custom derivatives of functions,
    each as the arguments of `customise`."""

    def __init__(self, function: Any) -> None:
        self.texts: dict[str, None] = {}
        self.customs: list[tuple[Any, ...]] = []
        seen, pending = dict[int, Any](), [function]
        while pending:
            value = pending.pop()
            if id(value) not in seen:
                seen[id(value)] = value  # which keeps the number its own
                pending += self._visit(value)

    def _visit(self, value: Any) -> list[Any]:
        """Note what the object needs; the objects that it may call."""
        meaning = given(value) if callable(value) else None
        if isinstance(meaning, Rule) and meaning.by_user:
            raise PicklingError(
                f"{value.__name__}() has a rule of yours, {meaning.label}, which no other process knows. Call "
                "dualbcast.rule in a module that both import, and take the function from there"
            )
        if not isinstance(value, FunctionType):
            return _parts(value)
        of_meaning = []
        if isinstance(meaning, Custom) and (meaning.partials is None or not _is_imported(meaning.partials)):
            decorator = "custom_partials" if meaning.partials else "not_differentiable"
            self.customs.append((value, meaning.partials, meaning.domain, decorator))
            of_meaning = [meaning.partials]
        if _is_imported(value):
            return of_meaning
        text = "".join(linecache.getlines(value.__code__.co_filename, value.__globals__))
        self.texts |= {text: None} if text else {}
        return [*_parts(value), *of_meaning]


def _is_imported(function: Any) -> bool:
    """Whether a function is one that another process finds by its name."""
    if not isinstance(function, FunctionType) or function.__module__ == _MAIN:
        return False
    found = _found(function.__module__, function.__qualname__)
    return getattr(found, "_function", found) is function


def _found(module: str, qualname: str) -> Any:
    """The object of this name; None where there is none."""
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found


def _code_of(function: Any) -> Any:
    return getattr(function, "__code__", None)


def _of_text(kind: type, text: SourceText, name: str, options: dict[str, Any]) -> Any:
    return kind(text.function(name), **options)


def _of_code(kind: type, function: Any, texts: list[str], customs: list[Any], options: dict[str, Any]) -> Any:
    for text in texts:
        take_text(text)
    for own, partials, *rest in customs:
        known = given(own)
        if not isinstance(known, Custom) or _code_of(known.partials) != _code_of(partials):
            customise(own, partials, *rest)
    return kind(function, **options)


def _parts(value: Any) -> list[Any]:
    """The objects that an object may call."""
    for kinds, parts in _PARTS:
        if isinstance(value, kinds):
            return parts(value)
    is_decorated = hasattr(type(value), "value_and_jacobian")
    return [value._function if is_decorated else type(value)]


def _of_function(function: FunctionType) -> list[Any]:
    names, values = sorted(names_of(function.__code__)), function.__globals__
    found, seen = [values[name] for name in names if name in values], set[int]()
    for value in found:  # which grows: by the functions of modules, and of modules of these
        if isinstance(value, ModuleType) and id(value) not in seen:
            seen.add(id(value))
            found += [vars(value)[name] for name in names if name in vars(value)]
    return [*(function.__closure__ or ()), *found]


def _of_cell(cell: CellType) -> list[Any]:
    try:
        return [cell.cell_contents]
    except ValueError:  # it is empty yet
        return []


def _of_class(kind: type) -> list[Any]:
    return [*vars(kind).values()] if kind.__module__ == _MAIN or "<locals>" in kind.__qualname__ else []


_PARTS: tuple[tuple[Any, Callable[[Any], list[Any]]], ...] = (
    (FunctionType, _of_function),
    (CellType, _of_cell),
    (type, _of_class),
    (MethodType, lambda method: [method.__func__, method.__self__]),
    (functools.partial, lambda partial: [partial.func, *partial.args, *partial.keywords.values()]),
    ((staticmethod, classmethod), lambda method: [method.__func__]),
    (property, lambda of: [of.fget]),
    ((list, tuple), list),
    (dict, lambda of: [*of.values()]),
    (ModuleType, lambda _: []),
)
