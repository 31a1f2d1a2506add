"""The arguments of many fits: which are parameters, which dimensions count the fits, and the arrays of some of them.

The parameters' start values broadcast to one shape, beside which the data are broadcast, as in `f.sum`. Dimensions in
which that shape is longer than 1 count fits; all others count the residuals of one fit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from inspect import BoundArguments, Parameter
from typing import Any, NamedTuple

import numpy as np

from dualbcast.api.binding import Wrt
from dualbcast.api.function import BroadcastFunction
from dualbcast.errors import ArgumentError, ShapeError
from dualbcast.foreign_objects import called, instead
from dualbcast.program.core_results import CoreArgument, core_arguments, parts_of, stacked
from dualbcast.program.outputs import Shape, broadcasts_to, misfit_of_weights, weights_of
from dualbcast.runtime.arguments import is_array
from dualbcast.runtime.iteration_space import result_shape

Bounds = Mapping[str, tuple[Any, Any]] | None
_STACK = partial(np.stack, axis=-1)


class Data(NamedTuple):
    """What the residuals of fits depend on beside the parameters: arrays that `Problem.laid_out` has made."""

    arguments: dict[str, Any]
    # One for each output of the function, or one for all; or none.
    weights: tuple[Any, ...] = ()

    def of(self, rows: Any) -> Data:
        """The data of some fits."""
        return Data(
            {name: taken(each, rows) for name, each in self.arguments.items()},
            tuple([taken(each, rows) for each in self.weights]),
        )


class Problem:
    """A function with the arguments of fits.

    Attributes
    ----------
    parameters : list of CoreArgument
        The arguments to fit, in the order of `wrt`.
    names : tuple of str
        Their elements, such as p[0] and p[1]; of numbers, they themselves.
    shape : tuple of int
        Their shape, and that of all results.
    returns_floats : bool
        Whether no output of the function is an integer or a bool.
    count : int
        The number of fits.
    points : int
        The number of elements of the function that belong to one fit.
    structure, returned : Structure
        The outputs of the function for an element, and what it returns.
    data : Data
        The data of all fits.
    """

    def __init__(self, function: BroadcastFunction, arrays: tuple[Any, ...], named: dict[str, Any], wrt: Wrt) -> None:
        self.function, self._bound = function, _bound(function, arrays, named)
        self.wrt = _parameters(function, self._bound, wrt)
        self._bound.arguments.update({name: _start(name, self._bound.arguments[name]) for name in self.wrt})
        specialisation, values = function._dispatch.find(self._bound.args, self._bound.kwargs, self.wrt)
        places = specialisation._without_whole()
        self._specialisation, all_names = specialisation, specialisation.element.names
        self.structure, self.returned = specialisation.element.function.structure, specialisation.program.structure
        self.label = f"{function.__name__}()"
        self.returns_floats = len(specialisation.element.floats) == self.structure.count
        self.parameters, self.names = core_arguments(all_names, places), tuple([all_names[at] for at in places])
        known = dict(zip(all_names, values, strict=True))
        for name, value in known.items():
            _check_array(name, value)
        self.shape: Shape = _shape_of({name: known[name] for name in self.names})
        known |= {name: np.broadcast_to(known[name], self.shape) for name in self.names}
        self._whole = _shape_of(known)
        # Of the axes of an element's place: those that count fits.
        extra = len(self._whole) - len(self.shape)
        self._axes = tuple([extra + axis for axis, length in enumerate(self.shape) if length != 1])
        self.count = math.prod(self.shape)
        self.points = math.prod([n for axis, n in enumerate(self._whole) if axis not in self._axes])
        self.starts = tuple([self.laid_out(known[name]) for name in self.names])
        laid_out = {}
        for each in core_arguments(all_names, range(len(all_names))):
            # A whole array is the same for all fits, and of a complex argument the parts are known.
            name = each.name.removesuffix(".real")
            if name in self._bound.arguments and name not in (*self.wrt, *function._binder.whole):
                parts = [known[all_names[at]] for at in each.positions]
                laid_out[name] = self._laid_out_core(parts, each.shape, self._bound.arguments[name])
        self.data = Data(laid_out)
        owners = {each: each.partition(".")[0].partition("[")[0] for each in known}
        self._check_captured({each: x for each, x in known.items() if owners[each] not in self._bound.arguments})

    @property
    def is_single(self) -> bool:
        """Whether the parameters are numbers, so that the arrays stay as they are."""
        return not self.shape

    def laid_out(self, array: Any) -> Any:
        """An array with one axis for the fits before those of the residuals; of length 1 if it is the same for all."""
        array = np.asarray(array)
        if self.is_single:
            return array
        array = array.reshape((1,) * (len(self._whole) - array.ndim) + array.shape)
        rest = tuple([n for axis, n in enumerate(array.shape) if axis not in self._axes])
        if all(array.shape[axis] == 1 for axis in self._axes):
            return array.reshape(1, *rest)
        spanned = [self._whole[axis] if axis in self._axes else n for axis, n in enumerate(array.shape)]
        moved = np.moveaxis(np.broadcast_to(array, spanned), self._axes, range(len(self._axes)))
        return moved.reshape(self.count, *rest)

    def _laid_out_core(self, parts: Sequence[Any], core: Shape, whole: Any) -> Any:
        """An argument of which these are the elements, laid out, with its core dimensions last."""
        if not core:
            return self.laid_out(parts[0] if not np.iscomplexobj(whole) else whole)
        return whole if self.is_single else stacked([self.laid_out(part) for part in parts], core, _STACK)

    def per_fit(self, value: Any, name: str) -> Any:
        """Numbers of fits, such as bounds, laid out like the parameters."""
        array = np.asarray(value, np.float64)
        if not broadcasts_to(array.shape, self.shape):
            raise ShapeError(f"{name} has shape {array.shape}, which does not broadcast to the fits' {self.shape}")
        return self.laid_out(array) if array.ndim else array

    def add_weights(self, given: Any) -> None:
        """Add the weights of residuals to the data."""
        leaves = weights_of(self.function._flat_weights(self._specialisation, given), self.structure)
        for leaf in leaves:
            _check_array("weights", leaf)
            if not broadcasts_to(np.shape(leaf), self._whole):
                raise misfit_of_weights(np.shape(leaf), self._whole)
            if np.any(np.less(leaf, 0)):
                raise ArgumentError("a weight is negative; weights are the inverse variances of residuals, or 0")
        self.data = self.data._replace(weights=tuple([self.laid_out(leaf) for leaf in leaves]))

    def call(self, parameters: Sequence[Any], data: Data) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of the function, those by position and those by name."""
        bound = BoundArguments(self._bound.signature, self._bound.arguments.copy())
        bound.arguments.update(data.arguments, **by_parameter(self.parameters, parameters))
        return bound.args, bound.kwargs

    def residuals(self) -> Any:
        """The number of residuals of each fit that have a weight other than 0."""
        outputs, weights = self.structure.count, self.data.weights
        if not weights:
            return self.points * outputs
        total = np.zeros(self.count, np.int64)
        for leaf in weights:
            axes = tuple(range(0 if self.is_single else 1, leaf.ndim))
            elements = math.prod([leaf.shape[axis] for axis in axes])
            total += np.count_nonzero(leaf, axis=axes) * (self.points // max(1, elements))
        return total if len(weights) > 1 else total * outputs

    def _check_captured(self, captured: dict[str, Any]) -> None:
        """Refuse captured arrays that would be taken for other elements, where fits are laid out in another order."""
        if self.is_single:
            return
        rank, leading = len(self._whole), self._axes == tuple(range(len(self._axes)))
        for name, value in captured.items():
            dims = np.ndim(value)
            if dims > rank - len(self._axes) or (dims and not leading):
                raise ArgumentError(
                    f"{self.label} captures the array {name}, whose elements belong to different fits or lie across "
                    "them; make it an argument"
                )


def by_parameter(parameters: Sequence[CoreArgument], elements: Sequence[Any]) -> dict[str, Any]:
    """Arrays for the elements of parameters, joined to one for each parameter, by name."""
    remaining = iter(elements)
    return {each.name: stacked([next(remaining) for _ in each.positions], each.shape, _STACK) for each in parameters}


def elements_of(array: Any, core: Shape) -> list[Any]:
    """What an array has for each element of a core, to whose axes its last ones broadcast."""
    array = np.asarray(array)
    return parts_of(np.broadcast_to(array, (*array.shape[: max(0, array.ndim - len(core))], *core)), core, "")


def _shape_of(arrays: dict[str, Any]) -> Shape:
    """The shape that arrays broadcast to."""
    return result_shape(tuple([(np.shape(each), (), np.dtype(float)) for each in arrays.values()]), tuple(arrays))


def taken(array: Any, rows: Any) -> Any:
    """The part of a laid-out array for some fits, contiguous; the array itself if it is the same for all."""
    if not array.ndim or len(array) == 1:
        return array
    return np.ascontiguousarray(array[rows]) if isinstance(rows, slice) else array.take(rows, 0)


def _bound(function: BroadcastFunction, arrays: tuple[Any, ...], named: dict[str, Any]) -> BoundArguments:
    """The arguments by name; raises ArgumentError where they do not fit."""
    signature = function.__signature__
    spread = [p.name for p in signature.parameters.values() if p.kind is Parameter.VAR_POSITIONAL]
    if spread:
        raise ArgumentError(f"{function.__name__}() takes *{spread[0]}; give a function whose arguments all have names")
    try:
        return signature.bind(*arrays, **named)
    except TypeError as error:
        raise ArgumentError(f"{function._binder}: {error}") from None


def _parameters(function: BroadcastFunction, bound: BoundArguments, wrt: Wrt) -> tuple[str, ...]:
    """The names of the parameters; a default that `wrt` names becomes an argument, which is its start value."""
    wanted = function._dispatch.wrt_of(wrt)
    arguments, all_names = bound.arguments, list(function.__signature__.parameters)
    if wanted is None:
        names = [
            name
            for name, value in arguments.items()
            if isinstance(value, float | np.floating) or (isinstance(value, np.ndarray) and value.shape == ())
        ]
        if not names:
            raise ArgumentError('name the parameters to fit: wrt=("amplitude", "rate")')
        return tuple(names)
    names = []
    for item in wanted if isinstance(wanted, tuple) else (wanted,):
        is_place = isinstance(item, int) and -len(all_names) <= item < len(all_names)
        name = all_names[item] if is_place else item
        if name not in all_names:
            raise ArgumentError(f"wrt={item!r} is no argument of {function._binder}")
        arguments.setdefault(name, function.__signature__.parameters[name].default)
        names.append(name)
    if not names:
        raise ArgumentError('name the parameters to fit: wrt=("amplitude", "rate")')
    return tuple(dict.fromkeys(names))


def _start(name: str, value: Any) -> Any:
    """Start values as an array of float64."""
    _check_array(name, value)
    if np.iscomplexobj(value):
        raise ArgumentError(
            f"the start value of {name} is complex, and the unknowns of a fit are real. Take the parts as two "
            f"arguments, and write {name} = real + 1j * imag in the function"
        )
    try:
        start = np.asarray(value)
        if start.dtype.kind not in "fiu" and start.dtype.name != "bfloat16":
            raise TypeError
        return start.astype(np.float64)
    except (TypeError, ValueError):
        raise ArgumentError(f"the start value of {name} is {called(value)}; give a number or an array") from None


def real_array(numbers: Any) -> Any:
    """An array of float64; raises TypeError or ValueError for text and complex numbers."""
    array = np.asarray(numbers)
    if array.dtype.kind in "cSU":
        raise TypeError
    return array.astype(np.float64)


def _check_array(name: str, value: Any) -> None:
    """Refuse arrays of other libraries: some have labels or a mask, which NumPy would not see."""
    if type(value) is not np.ndarray and not isinstance(value, np.generic | float | int | list | tuple):
        hint = f"Pass cupy.asnumpy({name})." if is_array(value, "cupy") else instead(value, name)
        raise ArgumentError(f"{name} is {called(value)}; fits take NumPy's arrays and numbers. {hint}".rstrip())
