"""Binds the arguments of calls to parameters, as Python does, and tells arrays from arguments that are known.

An argument that is known when a kernel is compiled is part of the `Form` of the call, and is compiled into the kernel.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from inspect import Parameter
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from dualbcast.api.callables import BY_NAME, BY_POSITION, find_subject, is_operand, plain_number, static_key
from dualbcast.errors import ArgumentError
from dualbcast.frontend.source import find_source
from dualbcast.frontend.values import Static
from dualbcast.runtime.arguments import Signature, array_kind, no_derivative

Wrt = str | int | Sequence[str | int] | None

# The keywords of the methods of a BroadcastFunction.
_RESERVED = ("out", "wrt")


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """How a call fills the parameters. There is one object for each form, so that it is compared by identity."""

    # For each parameter in the order of the signature, with those of `*args` spread, the known value, or None for an
    # array.
    slots: tuple[Static | None, ...]
    names: tuple[str, ...]  # the parameters that are arrays
    parameters: tuple[str, ...]  # all that a caller can give; positions in `wrt` count these
    spread: tuple[str, ...]  # those of `names` that are of `*args`


class Binder:
    """Binds the arguments of calls to the parameters of a function, as Python does.

    The subject is what was decorated: a function, a method with its object, a `functools.partial`, an object with
    `__call__`, or a function that Numba has compiled. `static` names the parameters that are known when a kernel is
    compiled.
    """

    def __init__(self, subject: Callable[..., Any], static: str | Sequence[str]) -> None:
        self.subject = find_subject(subject)
        self.function: FunctionType = self.subject.function
        find_source(self.function)
        self.name: str = getattr(subject, "__name__", "") or (
            self.function.__name__ if isinstance(subject, partial) else type(subject).__name__
        )
        self._parameters = self.subject.parameters()
        self.signature = self.subject.signature()  # of the parameters that are left to a caller
        varargs = [name for name, each in self._parameters.items() if each.kind is Parameter.VAR_POSITIONAL]
        self.vararg = varargs[0] if varargs else ""
        self._prefix = self.vararg
        while self.vararg and any(re.fullmatch(rf"{self._prefix}_\d+", name) for name in self._parameters):
            self._prefix += "_"
        wanted = frozenset([static] if isinstance(static, str) else static)
        self.static: frozenset[str] = wanted or self.subject.static & set(self.signature.parameters)
        self._fixed = tuple(map(plain_number, self.subject.fixed))
        self._defaults = {
            name: value if name in self.static else plain_number(value)
            for name, value in self.subject.defaults().items()
        }
        self._check_names()
        # By the number of arguments, the forms of calls that give all of them by position, where all must be arrays.
        self.plain: dict[int, Form] = {}
        self._fillings: dict[tuple[Any, ...], _Filling] = {}
        self._forms: dict[tuple[Any, ...], Form] = {}

    def _check_names(self) -> None:
        for name in self.static:
            if name == self.vararg:
                raise ArgumentError(f"static={name!r}: the arguments of *{name} are arrays, in {self}")
            if name not in self.signature.parameters:
                raise ArgumentError(f"static={name!r} names no parameter of {self}")
            if array_kind(self._defaults.get(name)) is not None:
                raise ArgumentError(f"the default of {name} is an array, which cannot be static; see {self}")
        for name, parameter in self._parameters.items():
            if parameter.kind is Parameter.KEYWORD_ONLY and name in _RESERVED:
                raise ArgumentError(
                    f"{self} has a keyword-only parameter {name}, which calls of a BroadcastFunction take "
                    "for themselves; give it another name"
                )

    def check_wrt(self, wanted: Any) -> None:
        """Refuse static parameters in the `wrt` of a decorator."""
        for item in _items(wanted):
            if isinstance(item, str) and item in self.static:
                raise ArgumentError(f"wrt={item!r}: {item} is static, so there is no derivative in it")

    def __str__(self) -> str:
        """The call as messages show it: `f(x, y=1.0, *, mode)`."""
        plain = []
        for parameter in self.signature.parameters.values():
            default = parameter.default
            if default is not Parameter.empty and not isinstance(default, bool | int | float | str | None):
                default = _ELLIPSIS
            plain.append(parameter.replace(annotation=Parameter.empty, default=default))
        return f"{self.name}{inspect.Signature(plain)}"

    def bind(self, args: tuple[Any, ...], named: dict[str, Any], wanted: Any) -> tuple[Form, tuple[Any, ...]]:
        """The form of a call, and its arrays; raises ArgumentError where the arguments do not fit the signature.

        `wanted` is the call's `wrt`, as `wrt_key` gives it: a default number that is named there is an argument.
        """
        filling = self._fillings.get((len(args), *named, wanted))
        if filling is None:
            filling = self._filling(len(args), tuple(named), wanted)
        values = (*args, *named.values(), *filling.defaults)
        marks: tuple[Any, ...] = ()
        if filling.open:
            marks = tuple([self._mark(filling.names[at], values[filling.order[at]]) for at in filling.open])
        filled = filling.forms.get(marks)
        if filled is None:
            filled = filling.forms[marks] = self._form(filling, marks, values)
            if filled[1] is None and not (named or filling.open or filling.defaults):
                self.plain[len(args)] = filled[0]
        form, places = filled
        return form, values if places is None else tuple([values[place] for place in places])

    def _filling(self, count: int, named: tuple[str, ...], wanted: Any) -> _Filling:
        """Bind `count` arguments by position and these by name, whatever their values are."""
        given = count + len(named)
        places = dict(zip(named, range(count, given), strict=True))
        arguments, spread = self._assign(tuple(range(count)), places)
        names = tuple(argument.name for argument in arguments)
        parameters = names[len(self._fixed) :]
        asked = {name for item in _items(wanted) for name in _named(item, parameters, names[spread], self.vararg)}
        order: list[int] = []
        marks: list[Any] = []
        defaults: list[Any] = []
        for name, value, left_out in arguments:
            order.append(given + len(defaults) if left_out else value)
            if left_out:
                defaults.append(value)
                is_array = name not in self.static and is_operand(value)
                marks.append(None if is_array and (name in asked or array_kind(value) is not None) else _OMITTED)
            else:
                can_be_known = name in self.static or not is_operand(self._defaults.get(name, 0))
                marks.append(_OPEN if can_be_known else None)
        undecided = tuple(at for at, mark in enumerate(marks) if mark is _OPEN)
        filling = _Filling(names, parameters, names[spread], tuple(order), tuple(defaults), tuple(marks), undecided)
        self._fillings[count, *named, wanted] = filling
        return filling

    def _mark(self, name: str, value: Any) -> Any:
        """The part of a form's key for an argument that can be known; None for an array."""
        if name in self.static:
            return static_key(value, name)
        # Its default is neither a number nor an array. An argument that is the default counts as left out.
        default = self._defaults[name]
        return _OMITTED if value is default or (isinstance(value, str) and value == default) else None

    def _form(self, filling: _Filling, marks: tuple[Any, ...], values: tuple[Any, ...]) -> _Filled:
        """The form of a call, and the places of its arrays among `values`."""
        decided = iter(marks)
        key = tuple(next(decided) if mark is _OPEN else mark for mark in filling.marks)
        is_array = [mark is None for mark in key]
        places = tuple(place for place, array in zip(filling.order, is_array, strict=True) if array)
        slots = tuple(
            None if array else Static(values[place]) for place, array in zip(filling.order, is_array, strict=True)
        )
        names = tuple(name for name, array in zip(filling.names, is_array, strict=True) if array)
        spread = tuple(name for name in filling.spread if name in names)
        # With setdefault two threads that come here at once get the same object.
        form = self._forms.setdefault(key, Form(slots, names, filling.parameters, spread))
        return form, None if places == tuple(range(len(values))) else places

    def _assign(self, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[list[_Argument], slice]:
        """The arguments in the order of the parameters, those of `*args` spread; the slice says which these are."""
        try:
            given = self.signature.bind(*args, **named).arguments
        except TypeError:
            raise ArgumentError(self._mismatch(len(args), named)) from None
        fixed, spread = list(self._fixed), slice(0, 0)
        arguments: list[_Argument] = []
        for name, parameter in self._parameters.items():
            if parameter.kind is Parameter.VAR_KEYWORD:
                if name in given:
                    raise ArgumentError(self._mismatch(len(args), named))
            elif parameter.kind is Parameter.VAR_POSITIONAL:
                values = [(value, True) for value in fixed] + [(value, False) for value in given.get(name, ())]
                fixed, spread = [], slice(len(arguments), len(arguments) + len(values))
                arguments += [
                    _Argument(f"{self._prefix}_{place}", value, left_out)
                    for place, (value, left_out) in enumerate(values)
                ]
            elif parameter.kind in BY_POSITION and fixed:
                arguments.append(_Argument(name, fixed.pop(0), left_out=True))
            elif name in given:
                arguments.append(_Argument(name, given[name], left_out=False))
            else:
                arguments.append(_Argument(name, self._defaults[name], left_out=True))
        return arguments, spread

    def _mismatch(self, count: int, named: Collection[str]) -> str:
        """Why so many arguments by position, and these by name, do not fit the signature."""
        parameters = self.signature.parameters.values()
        by_name = {each.name for each in parameters if each.kind in BY_NAME}
        positional = [each for each in self._parameters.values() if each.kind in BY_POSITION]
        taken = positional[: len(self._fixed) + count]
        for name in [each.name for each in taken if each.kind is not Parameter.POSITIONAL_ONLY]:
            if name in named or name in self.subject.preset:
                return f"{self} gets two values for {name}"
        kinds = [each.kind for each in parameters]
        accepted = sum(kind in BY_POSITION for kind in kinds)
        if count > accepted and Parameter.VAR_POSITIONAL not in kinds:
            by_position = " by position" if Parameter.KEYWORD_ONLY in kinds else ""
            return f"{self} takes {accepted} argument{'s' * (accepted != 1)}{by_position}, and {count} are given"
        unknown = [name for name in named if name not in by_name]
        if unknown:
            return f"{self} has no parameter {unknown[0]!r}"
        required = [
            each.name for each in parameters if each.kind in BY_POSITION + BY_NAME and each.default is each.empty
        ]
        missing = [name for name in required if name not in named and name not in [each.name for each in taken]]
        return f"{self} lacks a value for {', '.join(missing)}"


class _Argument(NamedTuple):
    """A parameter with its value, or the value's place in the call, and whether the caller has left it out."""

    name: str
    value: Any
    left_out: bool


_Filled = tuple[Form, tuple[int, ...] | None]


@dataclass(frozen=True, slots=True, eq=False)
class _Filling:
    """How calls with one number of arguments and one set of names fill the parameters, whatever the values are."""

    names: tuple[str, ...]  # all parameters, with those of `*args` spread
    parameters: tuple[str, ...]  # as in `Form`
    spread: tuple[str, ...]  # as in `Form`, but all of `*args`
    # For each parameter its place among the arguments, those by name, and `defaults`: the values of the parameters that
    # the caller leaves out.
    order: tuple[int, ...]
    defaults: tuple[Any, ...]
    # For each parameter its part of a form's key, None for an array; `open` has those whose part depends on the value.
    marks: tuple[Any, ...]
    open: tuple[int, ...]
    # By the marks of the parameters in `open`: the form, and the places of its arrays, or None where all values are
    # arrays and stand in order.
    forms: dict[tuple[Any, ...], _Filled] = field(default_factory=dict)


_ELLIPSIS = type("_", (), {"__repr__": lambda _: "..."})()
# In the key of a form: the parameter has its default; its mark depends on the value.
_OMITTED, _OPEN = object(), object()


# --- wrt --------------------------------------------------------------------------------------------------------------


def wrt_key(wrt: Any) -> str | int | tuple[Any, ...] | None:
    """`wrt=` as part of a key; `directions` checks that it names arguments."""
    if wrt is None or isinstance(wrt, str):
        return wrt
    if type(wrt) is tuple:
        for item in wrt:
            if type(item) is not str:
                break
        else:
            return wrt
    if isinstance(wrt, int | np.integer):
        return _position(wrt)
    try:
        items = tuple(_position(item) if isinstance(item, int | np.integer) else item for item in wrt)
        hash(items)
    except TypeError:
        raise ArgumentError(f"wrt={wrt!r} does not name arguments; give names or positions: wrt=('x', 1)") from None
    return items


def _position(item: Any) -> int:
    if isinstance(item, bool):  # True would be 1 in a key
        raise ArgumentError(f"wrt={item!r} is no argument; give names or positions")
    return int(item)


def _items(wanted: Any) -> tuple[Any, ...]:
    return () if wanted is None else wanted if isinstance(wanted, tuple) else (wanted,)


def _named(item: Any, parameters: tuple[str, ...], spread: tuple[str, ...], vararg: str) -> tuple[Any, ...]:
    """The parameters that an item of `wrt` names or counts: for the name of `*args` all of these."""
    name = parameters[item] if isinstance(item, int) and -len(parameters) <= item < len(parameters) else item
    return spread if vararg and name == vararg else (name,)


def directions(
    wanted: Any, form: Form, names: tuple[str, ...], signature: Signature, binder: Binder
) -> tuple[int, ...]:
    """The positions in `names`, the arguments and then the captured arrays, of those to differentiate in.

    Raises ArgumentError where `wanted` names something else, or something that carries no derivative.
    """
    kinds = signature.kinds
    if wanted is None:
        return tuple(position for position, _ in enumerate(form.names) if kinds[position] == "float")
    positions: list[int] = []
    for item in _items(wanted):
        for name in _named(item, form.parameters, form.spread, binder.vararg):
            if name in names:
                positions.append(names.index(name))
            elif name in binder.static:
                raise ArgumentError(f"wrt={item!r}: {name} is static, so there is no derivative in it")
            elif name in form.parameters:
                raise ArgumentError(
                    f"wrt={item!r}: {name} is no array or number in this call, so it carries no derivative"
                )
            else:
                raise ArgumentError(f"wrt={item!r} is no argument of this call; they are {', '.join(names) or 'none'}")
    for position in positions:
        if kinds[position] != "float":
            raise ArgumentError(f"{no_derivative(names[position], signature.tokens[position])}, or leave it out")
    return tuple(dict.fromkeys(positions))
