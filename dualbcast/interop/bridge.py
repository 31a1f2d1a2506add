"""Calls that other libraries differentiate without knowing the kernels: a function of arrays, and its derivatives.

Comes in: a call of a function with whole arrays, of which some are another library's. Goes out: what computes it on
arrays of NumPy's or CuPy's, and its cotangents and tangents, of any order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dualbcast import graph
from dualbcast.adapters import Adapter, adapter_for
from dualbcast.errors import ArgumentError
from dualbcast.foreign_objects import is_variable
from dualbcast.graph.arrays import leaves


class Results(NamedTuple):
    """How the arrays of a result are packed into the structure that a function returns; their shape and dtypes."""

    pack: Callable[[Sequence[Any]], Any]
    shape: tuple[int, ...]
    dtypes: tuple[np.dtype[Any], ...]


@dataclass(frozen=True, eq=False)
class Call:
    """A call of a function. Its inputs are the library's arrays, which stand in `places`, positions or names; its
    outputs in the positions `floats` have derivatives."""

    function: Any
    args: tuple[Any, ...]
    named: Mapping[str, Any]
    places: tuple[int | str, ...]
    floats: tuple[int, ...] = ()

    def arguments(self, inputs: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of the call with other arrays as its inputs."""
        new: dict[Any, Any] = dict(zip(self.places, inputs, strict=True))
        args = tuple([new.get(at, value) for at, value in enumerate(self.args)])
        return args, {name: new.get(name, value) for name, value in self.named.items()}

    def evaluate(self, *inputs: Any) -> list[Any]:
        """The outputs."""
        args, named = self.arguments(inputs)
        return [*map(_array, leaves(self.function(*args, **named)))]

    def pulled(self, inputs: Sequence[Any], cotangents: Sequence[Any], wanted: Sequence[int]) -> list[Any]:
        """The cotangents of the inputs in `wanted`, by the function's own pullback."""
        args, named = self.arguments(inputs)
        dispatch = self.function._dispatch
        specialisation, values = dispatch.find(args, named, dispatch.wrt_of(tuple([self.places[at] for at in wanted])))
        given: list[Any] = [None] * len(specialisation.dtypes)
        for at, cotangent in zip(self.floats, cotangents, strict=True):
            given[at] = cotangent
        return [*map(_array, specialisation.back("pullback", values, tuple(given)))]


@dataclass(frozen=True, eq=False)
class Pullback:
    """The pullback of a call to those of its `count` inputs that are `wanted`: it takes all inputs, and then a
    cotangent for each output that has derivatives."""

    of: Bridge
    wanted: tuple[int, ...]
    count: int

    @property
    def floats(self) -> tuple[int, ...]:
        """The positions of the outputs, which all have derivatives."""
        return tuple(range(len(self.wanted)))

    def evaluate(self, *arrays: Any) -> list[Any]:
        """The cotangents of the inputs."""
        inputs, cotangents = arrays[: self.count], arrays[self.count :]
        if isinstance(self.of, Call) and not any(map(is_variable, arrays)):
            return self.of.pulled(inputs, cotangents, self.wanted)
        _, pullback = graph.vjp(_in_some(self, inputs), *[inputs[at] for at in self.wanted])
        return [*map(_array, pullback(list(cotangents)))]


@dataclass(frozen=True, eq=False)
class Pushforward:
    """The tangents of a call's outputs that have derivatives: it takes all of the `count` inputs, and then a tangent
    for each that is `wanted`."""

    of: Bridge
    wanted: tuple[int, ...]
    count: int

    @property
    def floats(self) -> tuple[int, ...]:
        """The positions of the outputs, which all have derivatives."""
        return tuple(range(len(self.of.floats)))

    def evaluate(self, *arrays: Any) -> list[Any]:
        """The tangents of the outputs."""
        inputs, tangents = arrays[: self.count], arrays[self.count :]
        _, found = graph.jvp(_in_some(self, inputs), [inputs[at] for at in self.wanted], tangents)
        return [*map(_array, found)]


# What computes arrays from arrays, and can be differentiated.
Bridge = Call | Pullback | Pushforward


def _in_some(derived: Pullback | Pushforward, inputs: Sequence[Any]) -> Callable[..., list[Any]]:
    """The outputs with derivatives of what is derived, as a function of the inputs that are wanted."""

    def varied(*chosen: Any) -> list[Any]:
        new = list(inputs)
        for at, each in zip(derived.wanted, chosen, strict=True):
            new[at] = each
        outputs = derived.of.evaluate(*new)
        return [outputs[at] for at in derived.of.floats]

    return varied


def bridged(
    adapter: Adapter, function: Any, args: tuple[Any, ...], named: Mapping[str, Any]
) -> tuple[Call, list[Any], Results]:
    """A call, its inputs, and what is known of its results before it is made, from the shapes and dtypes of inputs."""
    given: dict[Any, Any] = {**dict(enumerate(args)), **named}
    parameters = [*function._dispatch.binder.signature.parameters]
    # Of the last one, if there are too many arguments or it takes several.
    names = {place: parameters[min(place, len(parameters) - 1)] for place in range(len(args))}
    places = tuple([place for place, value in given.items() if adapter_for(value) is adapter])
    for place, value in given.items():
        if is_variable(value) or adapter_for(value) not in (None, adapter):
            raise ArgumentError(
                f"{function!r}: {names.get(place, place)} is of type {type(value).__name__}, beside {adapter.arrays}s; "
                "the arrays of one call are of one library"
            )
    call, inputs = Call(function, args, named, places), [given[place] for place in places]
    tokens = [adapter.token(each, names.get(place, place)) for place, each in zip(places, inputs, strict=True)]
    stand_ins = [
        np.empty(tuple(each.shape), token) if each.shape or isinstance(token, np.dtype) else token()
        for each, token in zip(inputs, tokens, strict=True)
    ]
    stood, named_too = call.arguments(stand_ins)
    specialisation, values = function._dispatch.find(stood, named_too, None)
    shape, dtypes = specialisation.shape_of(values), specialisation.dtypes
    floats = tuple([at for at, dtype in enumerate(dtypes) if dtype.kind not in "biu"])
    call = Call(function, args, named, places, floats)
    return call, inputs, Results(specialisation.element.function.structure.pack, shape, dtypes)


def _array(value: Any) -> Any:
    """An array that may be written to, without axes for a scalar of NumPy's."""
    if isinstance(value, np.generic):
        return np.asarray(value)
    is_read_only = isinstance(value, np.ndarray) and not value.flags.writeable
    return value.copy() if is_read_only else value
