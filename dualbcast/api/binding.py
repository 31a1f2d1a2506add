"""Binds the arguments of calls to parameters, as Python does, and tells arrays from arguments that are known.

An argument that is known when a kernel is compiled is part of the `Form` of the call, and is compiled into the kernel.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import Parameter
from itertools import zip_longest
from types import FunctionType, MethodType
from typing import Any, NamedTuple

from dualbcast.adapters import adapter_for
from dualbcast.api.static_arguments import is_operand, plain_number, static_key
from dualbcast.api.whole_arrays import axes_of, spread
from dualbcast.errors import ArgumentError
from dualbcast.frontend.arrays.signatures import Core
from dualbcast.frontend.arrays.vectors import Dims
from dualbcast.frontend.derivative_calls import DerivativeOf, called_with
from dualbcast.frontend.source import find_source
from dualbcast.frontend.values import Axes, Static
from dualbcast.program.blocks import identifier
from dualbcast.runtime.arguments import array_kind

Wrt = str | int | Sequence[str | int] | None

# The slot of an argument of complex numbers.
COMPLEX = "complex"

_BY_POSITION = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
# The keywords of the methods of a BroadcastFunction.
_RESERVED = ("out", "wrt")


# --- the function behind a callable -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """A Python function with some of its arguments; the callable itself where there is no function behind it."""

    function: FunctionType
    # The arguments before those of a call: the object of a method, those of a `functools.partial`.
    fixed: tuple[Any, ...] = ()
    # Arguments by name, which a call may replace.
    preset: dict[str, Any] = field(default_factory=dict)
    # The parameters that a BroadcastFunction on the way takes as static.
    static: frozenset[str] = frozenset()
    # The parameters that it takes as whole arrays.
    whole: frozenset[str] = frozenset()

    def given(self, args: tuple[Any, ...], named: dict[str, Any]) -> Subject:
        """With more arguments."""
        return replace(self, fixed=(*self.fixed, *args), preset={**self.preset, **named})

    def signatures(self) -> tuple[inspect.Signature, inspect.Signature]:
        """All parameters, and those that are left to a caller: none that is fixed; from a preset one on by name only.

        They are those of the function's own code, whatever its `__wrapped__` and `__signature__` say.
        """
        function = self.function
        bare = FunctionType(function.__code__, {}, function.__name__, function.__defaults__, function.__closure__)
        bare.__kwdefaults__ = function.__kwdefaults__
        bare.__annotations__ = function.__annotations__
        whole = inspect.signature(bare)
        for name in self.preset.keys() - whole.parameters:
            raise ArgumentError(f"{function.__name__}() has no parameter {name} for the functools.partial to fill")
        try:
            return whole, inspect.signature(partial(bare, *self.fixed, **self.preset))
        except ValueError as error:
            raise ArgumentError(
                f"the functools.partial does not fit {function.__name__}(): {error.__cause__}"
            ) from None


def find_subject(thing: Any) -> Subject:
    """Look through methods, `functools.partial`, objects with `__call__`, Numba's dispatchers and BroadcastFunctions.

    A function with `__wrapped__` is itself the function, since it may do more than the one that it wraps.
    """
    if isinstance(thing, FunctionType):
        return Subject(thing)
    if isinstance(thing, MethodType):
        return find_subject(thing.__func__).given((thing.__self__,), {})
    if isinstance(thing, partial):
        return find_subject(thing.func).given(thing.args, thing.keywords)
    if isinstance(thing, staticmethod):
        return find_subject(thing.__func__)
    if isinstance(thing, DerivativeOf):
        assert isinstance(called_with, FunctionType)
        return Subject(called_with, (thing, ()))
    decorated = _of_broadcast_function(thing)
    if decorated is not None:
        return decorated
    python_function = getattr(thing, "py_func", None)  # Numba's dispatchers
    if isinstance(python_function, FunctionType):
        return Subject(python_function)
    if not isinstance(thing, type):
        call = getattr(type(thing), "__call__", None)  # noqa: B004 (the function is wanted, not whether there is one)
        if isinstance(call, FunctionType) or _of_broadcast_function(call) is not None:
            return find_subject(call).given((thing,), {})
    return Subject(thing)


def _of_broadcast_function(thing: Any) -> Subject | None:
    binder = getattr(thing, "_binder", None)
    if getattr(thing, "_partials", ()):
        raise ArgumentError(
            f"{thing!r} cannot be decorated by way of another object; decorate first, then take .partial"
        )
    return replace(binder.subject, static=binder.static, whole=binder.whole) if isinstance(binder, Binder) else None


# --- calls ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """How a call fills the parameters. There is one object for each form, so that it is compared by identity."""

    # For each parameter in order, with those of `*args` spread, the known value, None for an array, for a whole array
    # its axes, for one with core dimensions their lengths, or COMPLEX.
    slots: tuple[Static | Core | Axes | str | None, ...]
    # The parameters that are arrays, or elements of cores; the lengths of whole arrays, and the parts of complex ones.
    names: tuple[str, ...]
    parameters: tuple[str, ...]  # all that a caller can give; positions in `wrt` count these
    spread: tuple[str, ...]  # those of `names` that are of `*args`
    whole: tuple[tuple[int, int], ...]  # the places of whole arrays in `names`, and how many lengths follow each
    pairs: tuple[int, ...] = ()  # the places of the real parts of complex numbers in `names`
    returns: tuple[Dims, ...] | None = None  # the core dimensions of the outputs, if there is a signature


class Binder:
    """Binds the arguments of calls to the parameters of a function, as Python does.

    The subject is what was decorated; `static` names the parameters that are known when a kernel is compiled, and
    `whole` those that are whole arrays.
    """

    def __init__(
        self, subject: Callable[..., Any], static: str | Sequence[str], whole: str | Sequence[str] = ()
    ) -> None:
        self.subject = find_subject(subject)
        self.function: FunctionType = self.subject.function
        find_source(self.function)
        self.name: str = getattr(subject, "__name__", "") or (
            self.function.__name__ if isinstance(subject, partial) else type(subject).__name__
        )
        # Of the function, and of the parameters that are left to a caller.
        self._whole, self.signature = self.subject.signatures()
        parameters = self._whole.parameters
        varargs = [name for name, each in parameters.items() if each.kind is Parameter.VAR_POSITIONAL]
        self.vararg = varargs[0] if varargs else ""
        self._prefix = self.vararg
        while self.vararg and any(re.fullmatch(rf"{self._prefix}_\d+", name) for name in parameters):
            self._prefix += "_"
        wanted = frozenset(map(identifier, [static] if isinstance(static, str) else static))
        self.static: frozenset[str] = wanted or self.subject.static & set(self.signature.parameters)
        wanted = frozenset(map(identifier, [whole] if isinstance(whole, str) else whole))
        self.whole: frozenset[str] = wanted or self.subject.whole & set(self.signature.parameters)
        self._fixed = tuple(map(plain_number, self.subject.fixed))
        defaults = {name: each.default for name, each in parameters.items() if each.default is not each.empty}
        self._defaults = {
            name: value if name in self.static else plain_number(value)
            for name, value in {**defaults, **self.subject.preset}.items()
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
        for name in self.whole:
            if name not in self.signature.parameters or name == self.vararg:
                raise ArgumentError(f"whole={name!r} names no parameter of {self}")
            if name in self.static:
                raise ArgumentError(f"{name} is in static= and in whole=; an array cannot be static")
        for name, parameter in self._whole.parameters.items():
            if parameter.kind is Parameter.KEYWORD_ONLY and name in _RESERVED:
                raise ArgumentError(
                    f"{self} has a keyword-only parameter {name}, which calls of a BroadcastFunction take "
                    "for themselves; give it another name"
                )

    def check_wrt(self, wanted: Any) -> None:
        """Refuse static parameters in the `wrt` of a decorator."""
        for item, name in named_in(wanted):
            if name in self.static:
                raise ArgumentError(f"wrt={item!r}: {name} is static, so there is no derivative in it")

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
            filling = self._fillings[len(args), *named, wanted] = self._filling(len(args), tuple(named), wanted)
        values = (*args, *named.values(), *filling.defaults)
        marks: tuple[Any, ...] = ()
        if filling.open:
            marks = tuple([self._mark(name, values[place]) for name, place, _ in filling.open])
        filled = filling.forms.get(marks)
        if filled is None:
            filled = filling.forms[marks] = self._form(filling, marks, values)
            if filled[1] is None and not (named or filling.open or filling.defaults):
                self.plain[len(args)] = filled[0]
        form, places = filled
        values = values if places is None else tuple([values[place] for place in places])
        return form, _with_lengths(values, form) if form.whole else values

    def with_plain_whole(self, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call, with whole arrays of other libraries as arrays of NumPy's or CuPy's."""

        def plain(name: str, value: Any) -> Any:
            adapter = adapter_for(value) if name in self.whole else None
            return value if adapter is None or adapter.with_whole is not None else adapter.whole(value, name)

        by_position = zip_longest(self.signature.parameters, args)
        new = tuple([plain(name or "", value) for name, value in by_position][: len(args)])
        return new, {name: plain(name, value) for name, value in named.items()}

    def _filling(self, count: int, named: tuple[str, ...], wanted: Any) -> _Filling:
        """Bind `count` arguments by position and these by name, whatever their values are."""
        given = count + len(named)
        arguments, spread = self._assign(range(count), dict(zip(named, range(count, given), strict=True)))
        parameters = tuple([name for name, _, _ in arguments[len(self._fixed) :]])
        asked = {name for _, name in named_in(wanted, parameters, spread, self.vararg)}
        # Those of the parts of a complex number, too. What names nothing is refused later.
        asked |= {str(name).removesuffix(".real").removesuffix(".imag") for name in asked}
        slots: list[_Slot] = []
        defaults: list[Any] = []
        for name, value, left_out in arguments:
            if name in self.whole and not (left_out and value is None):
                slots.append(_Slot(name, given + len(defaults) if left_out else value, _OPEN))
                defaults += [value] if left_out else []
            elif left_out:
                is_array = name not in self.static and (is_operand(value) or isinstance(value, complex))
                mark = None if is_array and (name in asked or array_kind(value) is not None) else _OMITTED
                slots.append(_Slot(name, given + len(defaults), mark))
                defaults.append(value)
            else:
                can_be_known = name in self.static or not is_operand(self._defaults.get(name, 0))
                slots.append(_Slot(name, value, _OPEN if can_be_known else None))
        undecided = tuple([slot for slot in slots if slot.mark is _OPEN])
        return _Filling(tuple(slots), tuple(defaults), parameters, spread, undecided)

    def _mark(self, name: str, value: Any) -> Any:
        """The part of a form's key for an argument that can be known; None for an array."""
        if name in self.static:
            return static_key(value, name)
        if name in self.whole:
            return axes_of(value, name)
        # Its default is neither a number nor an array. An argument that is the default counts as left out.
        default = self._defaults[name]
        return _OMITTED if value is default or (isinstance(value, str) and value == default) else None

    def _form(self, filling: _Filling, marks: tuple[Any, ...], values: tuple[Any, ...]) -> _Filled:
        """The form of a call, and the places of its arrays among `values`."""
        decided = iter(marks)
        key = tuple(next(decided) if slot.mark is _OPEN else slot.mark for slot in filling.slots)
        pairs = [*zip(filling.slots, key, strict=True)]
        slots = tuple(mark if mark is None or isinstance(mark, Axes) else Static(values[s.place]) for s, mark in pairs)
        names: list[str] = []
        places: list[int] = []
        whole: list[tuple[int, int]] = []
        for slot, mark in pairs:
            if mark is None or isinstance(mark, Axes):
                whole += [] if mark is None else [(len(names), mark.ndim)]
                names += [slot.name, *[f"{slot.name}.shape[{axis}]" for axis in range(mark.ndim if mark else 0)]]
                places.append(slot.place)
        spread = tuple(name for name in filling.spread if name in names)
        # With setdefault two threads that come here at once get the same object.
        new = Form(slots, tuple(names), filling.parameters, spread, tuple(whole))
        form = self._forms.setdefault(key, new)
        return form, None if places == [*range(len(values))] else tuple(places)

    def _assign(
        self, args: Sequence[Any], named: dict[str, Any]
    ) -> tuple[list[tuple[str, Any, bool]], tuple[str, ...]]:
        """For each parameter, those of `*args` spread, its name, its argument or default, and whether the caller has
        left it out; and the names of those of `*args`."""
        fixed = [(value, True) for value in self._fixed]
        preset = {name: (self._defaults[name], True) for name in self.subject.preset}
        given = {name: (value, False) for name, value in named.items()}
        try:
            bound = self._whole.bind(*fixed, *[(value, False) for value in args], **{**preset, **given}).arguments
        except TypeError:
            raise ArgumentError(self._mismatch(len(args), named)) from None
        spread: tuple[str, ...] = ()
        arguments: list[tuple[str, Any, bool]] = []
        for name, parameter in self._whole.parameters.items():
            if parameter.kind is Parameter.VAR_POSITIONAL:
                values = bound.get(name, ())
                spread = tuple([f"{self._prefix}_{place}" for place in range(len(values))])
                arguments += [(each, *value) for each, value in zip(spread, values, strict=True)]
            elif parameter.kind is not Parameter.VAR_KEYWORD:
                arguments.append((name, *bound.get(name, (self._defaults.get(name), True))))
            elif name in bound:
                raise ArgumentError(self._mismatch(len(args), named))
        return arguments, spread

    def _mismatch(self, count: int, named: Collection[str]) -> str:
        """Why so many arguments by position, and these by name, do not fit the signature."""
        parameters = self.signature.parameters.values()
        by_name = {each.name for each in parameters if each.kind in _BY_NAME}
        positional = [each for each in self._whole.parameters.values() if each.kind in _BY_POSITION]
        taken = positional[: len(self._fixed) + count]
        for name in [each.name for each in taken if each.kind is not Parameter.POSITIONAL_ONLY]:
            if name in named or name in self.subject.preset:
                return f"{self} gets two values for {name}"
        kinds = [each.kind for each in parameters]
        accepted = sum(kind in _BY_POSITION for kind in kinds)
        if count > accepted and Parameter.VAR_POSITIONAL not in kinds:
            by_position = " by position" if Parameter.KEYWORD_ONLY in kinds else ""
            return f"{self} takes {accepted} argument{'s' * (accepted != 1)}{by_position}, and {count} are given"
        unknown = [name for name in named if name not in by_name]
        if unknown:
            return f"{self} has no parameter {unknown[0]!r}"
        filled = {*named, *[each.name for each in taken]}
        required = [each for each in parameters if each.kind in _BY_POSITION + _BY_NAME and each.default is each.empty]
        return f"{self} lacks a value for {', '.join([each.name for each in required if each.name not in filled])}"


def _with_lengths(values: tuple[Any, ...], form: Form) -> tuple[Any, ...]:
    """The values of a form's names, where the whole arrays among the arguments stand for several."""
    whole, every = dict(form.whole), list[Any]()
    for value in values:
        place = len(every)
        every += spread(value, form.names[place]) if place in whole else (value,)
    return tuple(every)


class _Slot(NamedTuple):
    """A parameter, the place of its value, and its part of a form's key, None for an array."""

    name: str
    place: int
    mark: Any


_Filled = tuple[Form, tuple[int, ...] | None]


@dataclass(slots=True, eq=False)
class _Filling:
    """How calls with one number of arguments and one set of names fill the parameters, whatever the values are."""

    # One for each parameter, with those of `*args` spread. A place counts the arguments, those by name, and then
    # `defaults`, the values of the parameters that the caller leaves out.
    slots: tuple[_Slot, ...]
    defaults: tuple[Any, ...]
    parameters: tuple[str, ...]  # as in `Form`
    spread: tuple[str, ...]  # as in `Form`, but all of `*args`
    open: tuple[_Slot, ...]  # those whose mark depends on the value
    # By their marks: the form, and the places of its arrays, or None where all values are arrays and in order.
    forms: dict[tuple[Any, ...], _Filled] = field(default_factory=dict)


_ELLIPSIS = type("_", (), {"__repr__": lambda _: "..."})()
# In the key of a form: the parameter has its default; its mark depends on the value.
_OMITTED, _OPEN = object(), object()


def named_in(
    wanted: Any, parameters: tuple[str, ...] = (), spread: tuple[str, ...] = (), vararg: str = ""
) -> Iterator[tuple[Any, Any]]:
    """Each item of a `wrt` with a parameter that it names or counts: for the name of `*args` all of these."""
    for given in () if wanted is None else wanted if isinstance(wanted, tuple) else (wanted,):
        item = identifier(given)
        name = parameters[item] if isinstance(item, int) and -len(parameters) <= item < len(parameters) else item
        for each in spread if vararg and name == vararg else (name,):
            yield item, each
