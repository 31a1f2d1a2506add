"""What a function can see beside its arguments: whether that is still as it was.

Comes in: a function. Goes out: guards of all names, cells, containers, attributes and arrays that it, and the functions
that it may call, can read; or the reason why these cannot be watched.
"""

from __future__ import annotations

import builtins
import contextlib
import dis
import functools
import types
from abc import ABC
from collections.abc import Iterable, Iterator
from enum import Enum
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Generic, Protocol

import numpy as np

from dualbcast.api.function import BroadcastFunction
from dualbcast.errors import a_or_an
from dualbcast.frontend.derivative_calls import DerivativeOf
from dualbcast.graph.arrays import leaves
from dualbcast.graph.variable import Variable
from dualbcast.rules import table
from dualbcast.rules.guards import ABSENT, Capture, reader

# Modules of which the functions give the same for the same arguments, and stay what they are.
_TRUSTED = {
    *("abc", "array_api_compat", "builtins", "cmath", "collections", "contextlib", "dataclasses", "dualbcast"),
    *("enum", "functools", "itertools", "math", "ml_dtypes", "numbers", "numpy", "operator", "reprlib", "scipy"),
    *("types", "typing"),
}
_UNTRUSTED = ("numpy.random", "scipy.stats", "scipy.optimize")
_IMPURE = {
    *("__import__", "breakpoint", "compile", "delattr", "eval", "exec", "globals", "id", "input", "locals", "open"),
    *("print", "setattr", "vars"),
}
_CONSTANTS = {bool, int, float, complex, str, bytes, type(None), range, slice, object, CodeType, types.CellType}
_CONSTANTS_BY_CLASS = (np.generic, np.dtype, np.ufunc, Enum)
# Builtin classes of which a user's class may be a subclass: what is in their objects is looked at, or does not change.
_BASES = {object, type, dict, list, tuple, int, float, str, Generic, Protocol, ABC, Enum, types.SimpleNamespace}
# The files of this package with classes of results, which hold arrays that a user may change.
_RESULTS = {
    *("dualbcast.api.derivative_methods", "dualbcast.api.cores.generalised", "dualbcast.fit.results"),
    *("dualbcast.program.core_results", "dualbcast.program.results"),
}
# What only classes have that are written in C, whose objects may hide anything; and what all classes may have of it.
_OF_C = {"method_descriptor", "wrapper_descriptor", "getset_descriptor", "classmethod_descriptor"}
_OF_ALL = {"__dict__", "__weakref__", "__hash__"}
# The most objects that are looked at, and the most bytes of an array, which is compared at every call.
_MOST_OBJECTS, _MOST_BYTES = 2000, 1 << 20


class Captures:
    """What can be seen from some objects, given with paths, as it is now; `refusal` says what cannot be watched."""

    def __init__(self, roots: Iterable[tuple[str, Any]]) -> None:
        self.refusal = ""
        # The Variables among them.
        self.variables: list[Variable] = []
        self._guards: list[tuple[Any, Any, Capture]] = []
        # Containers with their lengths, dicts with their keys, modules with names that they lack, and arrays with their
        # forms and contents.
        self._sizes: list[tuple[Any, int]] = []
        self._keys: list[tuple[Any, list[Any]]] = []
        self._absent: list[tuple[Any, set[str]]] = []
        self._arrays: list[tuple[Any, Any, bytes]] = []
        self._seen: dict[int, Any] = {}
        # Modules, and all names and texts in what is seen, which may be those of attributes of modules.
        self._modules: list[ModuleType] = []
        self._names: set[str] = set()
        for path, root in roots:
            self._see(root, path)
        self._see_modules()

    def hold(self) -> bool:
        """Whether everything is as it was."""
        try:
            for read, value, guard in self._guards:
                if read() is not value and not guard.holds():
                    return False
            for container, size in self._sizes:
                if len(container) != size:
                    return False
            for mapping, keys in self._keys:
                if [*mapping] != keys:
                    return False
            for scope, names in self._absent:
                if not scope.keys().isdisjoint(names):
                    return False
            for array, form, content in self._arrays:
                if (array.shape, array.strides, array.dtype) != form or array.tobytes() != content:
                    return False
        except Exception:  # a name is gone, or a property raises
            return False
        return True

    def _refuse(self, path: str, what: str) -> None:
        self.refusal = self.refusal or f"{path} {what}"

    def _guard(self, place: Any, key: Any, path: str, attribute: bool = False) -> None:
        """Watch the object at a place, and all that can be seen from it."""
        capture = Capture(place, key, None, path, attribute)
        try:
            capture = capture._replace(value=capture.read())
        except ValueError:  # of a cell
            self._refuse(path, "has no value yet")
            return
        self._guards.append((reader(capture), capture.value, capture))
        self._see(capture.value, path)

    def _see(self, value: Any, path: str) -> None:
        """Watch all that can be seen from an object."""
        kind = type(value)
        self._names |= _texts_in(value)
        if self.refusal or kind in _CONSTANTS or isinstance(value, _CONSTANTS_BY_CLASS) or id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if len(self._seen) > _MOST_OBJECTS:
            self._refuse(path, f"is one of more than {_MOST_OBJECTS} objects that the function may read")
        elif isinstance(value, Variable):
            self.variables += leaves(value)
        elif isinstance(value, ModuleType):
            self._modules.append(value)
        elif isinstance(value, np.ndarray):
            self._see_array(value, path)
        elif isinstance(value, dict | list | tuple | frozenset):
            self._see_container(value, path)
        elif kind is FunctionType:
            self._see_function(value, path)
        elif isinstance(value, type):
            self._see_class(value)
        elif (parts := _parts(value)) is not None:
            for part in parts:
                self._see(part, path)
        elif not _is_trusted_object(value):
            self._see_object(value, path)

    def _see_array(self, array: Any, path: str) -> None:
        if array.nbytes > _MOST_BYTES:
            self._refuse(
                path, f"is an array of {array.nbytes:,} bytes, too many to compare at each call: pass it instead"
            )
        elif type(array) not in (np.ndarray, np.memmap) or array.dtype.hasobject:
            self._refuse(path, f"is {a_or_an(type(array).__name__)} of {array.dtype}, which cannot be watched")
        else:
            self._arrays.append((array, (array.shape, array.strides, array.dtype), array.tobytes()))

    def _see_container(self, value: Any, path: str) -> None:
        if isinstance(value, dict | list):
            if isinstance(value, dict):
                self._keys.append((value, [*value]))
            else:
                self._sizes.append((value, len(value)))
            for key in value if isinstance(value, dict) else range(len(value)):
                self._see(key, f"a key of {path}")
                self._guard(value, key, f"{path}[{key!r}]")
        else:
            for at, each in enumerate(value):
                self._see(each, f"{path}[{at}]")
        if type(value) not in (dict, list, tuple, frozenset):
            self._see_object(value, path)

    def _see_object(self, value: Any, path: str) -> None:
        """An object of a class that is written in Python: its class, its attributes and its slots."""
        for each in type(value).__mro__:
            own = {} if each in _BASES else vars(each)
            if any(type(attribute).__name__ in _OF_C for name, attribute in own.items() if name not in _OF_ALL):
                self._refuse(path, f"is {a_or_an(type(value).__name__)}, and what it does cannot be watched")
                return
            for name in [name for name, slot in own.items() if isinstance(slot, types.MemberDescriptorType)]:
                if hasattr(value, name):
                    self._guard(value, name, f"{path}.{name}", attribute=True)
                else:
                    unset = Capture({name: None}, name, ABSENT, f"{path}.{name}")
                    self._guards.append((functools.partial(getattr, value, name, ABSENT), ABSENT, unset))
        self._guard(value, "__class__", type(value).__name__, attribute=True)
        self._see_attributes(value, path)

    def _see_attributes(self, value: Any, path: str) -> None:
        """The attributes that an object or a function has of its own."""
        attributes = getattr(value, "__dict__", {})
        self._sizes.append((attributes, len(attributes)))
        for name in list(attributes):
            self._guard(attributes, name, f"{path}.{name}")

    def _see_class(self, value: type) -> None:
        self._see(type(value), f"the class of {value.__name__}")
        for each in value.__mro__ if not _is_trusted(value) else ():
            if each not in _BASES:
                self._guard(each, "__bases__", f"{each.__name__}.__bases__", attribute=True)
                self._sizes.append((vars(each), len(vars(each))))  # a new name may hide one of a base
            for name, attribute in list(vars(each).items()) if each not in _BASES else ():
                is_for_python = name.startswith(("__", "_abc_")) and not isinstance(attribute, FunctionType)
                if not is_for_python:
                    self._guard(vars(each), name, f"{each.__name__}.{name}")

    def _see_function(self, function: FunctionType, path: str) -> None:
        for name in ("__code__", "__defaults__", "__kwdefaults__"):
            self._guard(function, name, f"{path}.{name}", attribute=True)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            if name != "repr_running":  # the set by which dataclasses notice that they print themselves
                self._guard(cell, "cell_contents", name)
        self._see(getattr(table.lookup(function), "partials", None), f"the partials of {path}")
        if _is_trusted(function):
            return
        self._see_attributes(function, path)
        for operation, name in _names_in(function.__code__):
            if operation in ("STORE_GLOBAL", "DELETE_GLOBAL"):
                self._refuse(path, f"assigns to the global {name}")
            elif operation == "IMPORT_NAME" and name.partition(".")[0] not in _TRUSTED:
                self._refuse(path, f"imports {name}")
            elif operation in ("LOAD_GLOBAL", "LOAD_NAME"):
                self._see_global(function.__globals__, name, path)
            else:
                self._names.add(name)

    def _see_global(self, scope: dict[str, Any], name: str, path: str) -> None:
        if name in scope:
            self._guard(scope, name, name)
            return
        absent = Capture(scope, name, ABSENT, name)
        self._guards.append((reader(absent), ABSENT, absent))
        if name in _IMPURE or not hasattr(builtins, name):
            self._refuse(path, f"uses {name}, which does not depend on its arguments alone")

    def _see_modules(self) -> None:
        """Watch the attributes of modules that functions may read, until no others come up."""
        done = set[tuple[ModuleType, str]]()
        while more := {(each, name) for each in self._modules for name in self._names & vars(each).keys()} - done:
            for module, name in more:
                path, value = f"{module.__name__}.{name}", vars(module)[name]
                if not _is_trusted(module):
                    self._guard(vars(module), name, path)
                elif isinstance(value, ModuleType) and not _is_trusted(value):
                    self._refuse(path, "may give something else each time")
            done |= more
        for module in {id(each): each for each in self._modules if not _is_trusted(each)}.values():
            self._absent.append((vars(module), self._names - vars(module).keys()))


def _names_in(code: CodeType) -> Iterator[tuple[str, str]]:
    """The names of globals, attributes and modules in a function and in those inside it, each with its instruction.
    Texts are among them, since `getattr` may be given them."""
    for each in dis.get_instructions(code):
        if isinstance(each.argval, str) and "FAST" not in each.opname and "DEREF" not in each.opname:
            yield each.opname, each.argval
        elif isinstance(each.argval, tuple | frozenset):
            yield from [(each.opname, text) for part in each.argval for text in _texts_in(part)]
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


def _texts_in(value: Any) -> set[str]:
    """A text, or the texts that a member of an Enum stands for."""
    if isinstance(value, Enum):
        return {value.name, str(value.value)}
    return {value} if isinstance(value, str) else set()


def _parts(value: Any) -> tuple[Any, ...] | None:
    """What a callable calls, or is bound to, or what a result of this package holds; None for any other object."""
    if isinstance(value, MethodType):
        return value.__func__, value.__self__
    if isinstance(value, functools.partial):
        return value.func, value.args, value.keywords
    if isinstance(value, property):
        return value.fget, value.fset
    if isinstance(value, BroadcastFunction):
        return (value._function,)
    if isinstance(value, DerivativeOf):
        return (value.function,)
    if isinstance(value, contextlib._GeneratorContextManager):  # a decorator makes it anew for each call
        return value.func, value.args, value.kwds
    if isinstance(value, staticmethod | classmethod | functools._lru_cache_wrapper):
        return (value.__wrapped__,)
    if isinstance(value, BuiltinFunctionType | types.MethodWrapperType) and not isinstance(value.__self__, ModuleType):
        return (value.__self__,)
    if type(value).__module__ in _RESULTS:
        return tuple(vars(value).values())
    return (value.__wrapped__,) if type(value).__module__ == "dualbcast.graph.transformations.compilation" else None


def _is_trusted(value: Any) -> bool:
    """Whether a module, class or function stays what it is and is pure."""
    if isinstance(value, FunctionType):
        name = value.__globals__.get("__name__", "")  # `functools.wraps` copies __module__ from another function
    else:
        name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None) or ""
    return name.partition(".")[0] in _TRUSTED and not name.startswith(_UNTRUSTED)


def _is_trusted_object(value: Any) -> bool:
    """Whether an object that is no function written in Python, and no class, stays what it is."""
    kind = type(value)
    if isinstance(value, BuiltinFunctionType) or kind.__name__ == "_ArrayFunctionDispatcher":
        return _is_trusted(value) and value.__name__ not in _IMPURE
    is_of_class = kind.__name__ in ("_tuplegetter", "member_descriptor", "getset_descriptor", "wrapper_descriptor")
    is_alias = isinstance(value, types.GenericAlias | types.UnionType)
    return is_of_class or is_alias or kind.__module__.partition(".")[0] in ("dualbcast", "typing")
