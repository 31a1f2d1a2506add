"""`dataclass`, `field`, `replace` and `NamedTuple` for what is made at each import, and by the thousand in a compiler.

They mean what the ones of `dataclasses` and `typing` mean, and are those as far as types are checked. At run time the
fields of the first can be set, no class derives from another, and the methods of a class are compiled in one piece: it
is made in less than half of the time. A named tuple does not compile its annotations: it is made in two fifths.
"""

from __future__ import annotations

from collections import namedtuple
from typing import TYPE_CHECKING, Any

__all__ = ["NamedTuple", "dataclass", "field", "replace"]

if TYPE_CHECKING:
    from dataclasses import dataclass, field, replace
    from typing import NamedTuple
else:

    class _Named(type):
        """Makes a tuple's class of one that derives from `NamedTuple`."""

        def __new__(cls, name, bases, space):
            if not bases:
                return super().__new__(cls, name, bases, space)
            fields = space.get("__annotations__", {})
            defaults = [space[field] for field in fields if field in space]
            made = namedtuple(name, fields, defaults=defaults, module=space["__module__"])
            for key, value in space.items():
                if key not in made._fields and key != "__module__":
                    setattr(made, key, value)
            return made

    class NamedTuple(metaclass=_Named):
        """`typing.NamedTuple`."""

    _NOTHING = object()

    class field:  # noqa: N801 (it is written as a function)
        """A field with a default made for each object, with no parameter, or not compared or not shown."""

        __slots__ = ("compare", "default", "factory", "init", "repr")

        def __init__(self, *, default=_NOTHING, default_factory=None, init=True, compare=True, repr=True):
            self.default, self.factory = default, default_factory
            self.init, self.compare, self.repr = init, compare, repr

    def dataclass(*, frozen: bool = False, eq: bool = True, slots: bool = False) -> Any:
        """`dataclasses.dataclass`; with `frozen` it is hashed by its fields, if it is compared by them."""

        def made(kind: type) -> type:
            own = {name: thing for name, thing in vars(kind).items() if name not in ("__dict__", "__weakref__")}
            fields = {}
            for name in kind.__annotations__:
                given = own.pop(name, _NOTHING)
                fields[name] = given if isinstance(given, field) else field(default=given)
            methods = _methods(fields, finished="__post_init__" in own)
            if not eq:
                del methods["__eq__"], methods["__hash__"]
            elif not frozen:
                methods["__hash__"] = None
            if own.get("__hash__", methods) is None:  # Python's, where there is an __eq__
                del own["__hash__"]
            space = {
                "__qualname__": kind.__qualname__,
                "__match_args__": tuple([name for name, each in fields.items() if each.init]),
                "_shown": tuple([name for name, each in fields.items() if each.repr]),
                "__repr__": _repr,
                **methods,
                **own,
            }
            if slots:
                space["__slots__"] = tuple(fields)
            return type(kind)(kind.__name__, kind.__bases__, space)

        return made

    def replace(thing: Any, /, **changes: Any) -> Any:
        """A copy of an object with other values in some fields."""
        kind = type(thing)
        return kind(**{name: getattr(thing, name) for name in kind.__match_args__} | changes)

    def _methods(fields: dict[str, field], finished: bool) -> dict[str, Any]:
        """`__init__`, `__eq__` and `__hash__`, and whether there is something to do at the end of the first."""
        scope: dict[str, Any] = {"NOTHING": _NOTHING}
        parameters, body = ["self"], []
        for name, each in fields.items():
            scope[f"default_{name}"], scope[f"make_{name}"] = each.default, each.factory
            made = f"make_{name}()"
            if each.init:
                parameters.append(name)
                if each.factory is not None:
                    parameters[-1] += "=NOTHING"
                    made = f"{made} if {name} is NOTHING else {name}"
                elif each.default is not _NOTHING:
                    parameters[-1] += f"=default_{name}"
            if each.init or each.factory is not None:
                body.append(f"  self.{name} = {name if each.factory is None else made}")
        if finished:
            body.append("  self.__post_init__()")
        compared = [name for name, each in fields.items() if each.compare]
        mine, others = ["".join([f"{side}.{name}, " for name in compared]) for side in ("self", "other")]
        text = [
            f"def __init__({', '.join(parameters)}):",
            *(body or ["  pass"]),
            "def __eq__(self, other):",
            "  if other.__class__ is not self.__class__:",
            "    return NotImplemented",
            f"  return ({mine}) == ({others})",
            "def __hash__(self):",
            f"  return hash(({mine}))",
        ]
        found: dict[str, Any] = {}
        exec("\n".join(text), scope, found)
        return found

    def _repr(self: Any) -> str:
        shown = [f"{name}={getattr(self, name)!r}" for name in self._shown]
        return f"{type(self).__name__}({', '.join(shown)})"
