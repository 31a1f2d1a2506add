"""The rule table, the custom derivatives of users' functions, and the meanings of Python callables in kernels: a row of
the table, a custom derivative, or another function to inline. Tests and the documentation read the same rows.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from types import FunctionType, MethodType
from typing import Any
from weakref import WeakKeyDictionary

from dualbcast.rules.guards import Capture

Interval = tuple[float, float]
Kink = tuple[tuple[float, ...], tuple[float, ...]]

REAL: Interval = (-20.0, 20.0)
WHOLE: Interval = (0.0, 5.0)


@dataclass(frozen=True, eq=False, slots=True)
class Named:
    """What has a unique name in the IR; that of a user's ends with `#` and a number, so that two are never confused."""

    name: str

    @property
    def label(self) -> str:
        """The name for readers, which emitted text uses too, with a number where it is taken there."""
        return self.name.partition("#")[0]

    @property
    def by_user(self) -> bool:
        """Whether a user has added it."""
        return "#" in self.name


@dataclass(frozen=True, eq=False, slots=True)
class Rule(Named):
    """One differentiable function, with the parts that `dualbcast.rule` explains.

    `function` is None if every target has the function natively. `spellings` has dotted names only.
    """

    partials: Callable[..., Any]
    spellings: tuple[str, ...]
    function: FunctionType | None
    domain: tuple[Interval, ...]
    kinks: tuple[Kink, ...]
    integer: tuple[int, ...]

    @property
    def arity(self) -> int:
        """The number of arguments of the function."""
        return len(self.domain)


@dataclass(frozen=True, eq=False, slots=True)
class Custom(Named):
    """A Python function whose derivative is given instead of derived from its body.

    The body is inlined, as any function's is. Then the operation `name(value, *arguments)` stands for "`value`, with
    this derivative in `arguments`". It computes nothing, and kernels have no code for it. `partials` and `domain` are
    as a `Rule`'s; without partials the function is not differentiable.
    """

    function: FunctionType
    partials: Callable[..., Any] | None
    domain: tuple[Interval, ...] | None


# By their names in the IR.
RULES: dict[str, Rule] = {}
CUSTOMS: dict[str, Custom] = {}

# The functions that are inlined, by dotted name.
ALIASES: dict[str, Callable[..., Any]] = {}
# Meanings by dotted name.
BY_SPELLING: dict[str, Any] = {}

# Modules that add rows, which are imported when a function may be one of theirs: of SciPy, or of a module named here.
LATER: dict[str, tuple[str, ...]] = {}

# Each callable has a dictionary for its meaning, which kernels guard as they guard captured names. A Python function is
# not kept alive by it. Another callable, which may be unhashable, has a dictionary only if it has a meaning.
_FUNCTIONS: WeakKeyDictionary[FunctionType, dict[str, Any]] = WeakKeyDictionary()
_OBJECTS: dict[int, tuple[Any, dict[str, Any]]] = {}


def add_later_rows() -> None:
    """Import the modules whose rows wait until they are needed."""
    for module in LATER:
        import_module(module)


def lookup(function: Any) -> Any:
    """The meaning of a Python callable: its row, its custom derivative, or the scalar function to inline for it.

    None where it has no meaning but its source.
    """
    return _place(function)["meaning"]


def given(function: Any) -> Any:
    """The meaning that a callable has been given itself; unlike `lookup`, this does not search the dotted names."""
    place = _stored(function)
    return None if place is None else place["meaning"]


def watch(function: Any) -> Capture:
    """The meaning of a callable as a guard, which holds until the meaning changes."""
    place = _place(function)
    return Capture(place, "meaning", place["meaning"], "")


def set_meaning(function: Any, meaning: Any) -> None:
    """Give a callable a meaning, or with None take it away; the guards of kernels that have used it then fail."""
    place = _stored(function)
    if place is None:
        _store(function, meaning)
    else:
        place["meaning"] = meaning


def meanings() -> list[tuple[Any, Any]]:
    """Every callable that has been looked up, with its meaning."""
    return [(each, place["meaning"]) for each, place in [*_FUNCTIONS.items(), *_OBJECTS.values()]]


def resolve(spelling: str, methods: bool = True) -> Any:
    """The object of a dotted name, or without `methods` the object in a module.

    None where there is none, or its module would have to be imported.
    """
    place, _, name = spelling.rpartition(".")
    # SciPy is not imported to look its functions up: a program that has not imported it does not call them.
    if place in sys.modules or place.startswith(("math", "numpy", "builtins", "dualbcast")):
        return getattr(sys.modules.get(place) or import_module(place), name, None)
    if not methods:
        return None
    # A method of an object, such as scipy.stats.norm.cdf.
    module, _, owner = place.rpartition(".")
    return getattr(getattr(sys.modules.get(module), owner, None), name, None)


def _place(function: Any) -> dict[str, Any]:
    """The dictionary that has the meaning of a callable, under "meaning"."""
    place = _stored(function)
    if place is None and _may_be_later(function):
        add_later_rows()
        place = _stored(function)
    if place is None:
        methods = isinstance(function, MethodType)
        places = ((resolve(spelling, methods), meaning) for spelling, meaning in BY_SPELLING.items())
        by_name = (meaning for each, meaning in places if _is_same(each, function))
        place = _store(function, next(by_name, None))
    return place


def _may_be_later(function: Any) -> bool:
    """Whether a callable may have a row of a module of `LATER`; a ufunc does not say of which library it is."""
    if isinstance(function, FunctionType):
        homes = ("scipy", *(home for homes in LATER.values() for home in homes))
        return (function.__module__ or "").startswith(homes)
    return "scipy" in sys.modules


def _stored(function: Any) -> dict[str, Any] | None:
    if isinstance(function, FunctionType):
        return _FUNCTIONS.get(function)
    entry = _OBJECTS.get(_key(function))
    return entry[1] if entry is not None and _is_same(entry[0], function) else None


def _store(function: Any, meaning: Any) -> dict[str, Any]:
    place = {"meaning": meaning}
    if isinstance(function, FunctionType):
        _FUNCTIONS[function] = place
    elif meaning is not None:
        _OBJECTS[_key(function)] = function, place
    return place


def _key(function: Any) -> int:
    """The identity of a callable; that of a method is made of its parts, since each access makes another object."""
    return hash((id(function.__self__), function.__func__)) if isinstance(function, MethodType) else id(function)


def _is_same(a: Any, b: Any) -> bool:
    """Whether two callables are one object, or one method of one object."""
    if isinstance(a, MethodType) and isinstance(b, MethodType):
        return a.__func__ is b.__func__ and a.__self__ is b.__self__
    return a is b
