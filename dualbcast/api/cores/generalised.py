"""Functions with core dimensions: a BroadcastFunction whose arguments and results are vectors and matrices.

The elements of cores are parameters and outputs of a kernel, one by one. The products of a BroadcastFunction come in
with a result for each of these; out go arrays with the core dimensions as their last axes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from dualbcast.api import complex_arguments
from dualbcast.api.binding import Binder, Wrt
from dualbcast.api.cores.dimensions import CoreBinder, CoreSignature
from dualbcast.api.cores.direct_calls import CoreDirect, are_arrays
from dualbcast.api.cores.targets import CoreTargets, derived, tangent_blocks
from dualbcast.api.derivative_methods import Tangents, directions_of
from dualbcast.api.dispatch import wrt_key
from dualbcast.api.function import BroadcastFunction
from dualbcast.api.specialisation import Specialisation
from dualbcast.api.sum_methods import NormalEquations, SumAndGradient, SumGradientAndHessian
from dualbcast.errors import ArgumentError, entry_point
from dualbcast.program.core_results import CoreHessian, CoreJacobian, CoreLayout, joined, parts_of
from dualbcast.program.element import Derivation
from dualbcast.program.products import Which
from dualbcast.program.results import Hessian, Jacobian
from dualbcast.runtime.arguments import forms_of


class CorePullback:
    """A function that carries cotangents of a function's outputs back to its arguments. `vjp` returns it."""

    def __init__(self, specialisation: Specialisation, layout: CoreLayout, values: tuple[Any, ...]) -> None:
        self._specialisation, self._layout, self._values = specialisation, layout, values

    @property
    def wrt(self) -> tuple[str, ...]:
        """The names of the arguments whose cotangents a call returns."""
        return _whole(self._layout, self._layout.wrt)

    @entry_point
    def __call__(self, *cotangents: Any) -> tuple[Any, ...]:
        """The cotangents of the arguments, of their shapes, for a cotangent of each output."""
        given = cotangents[0] if len(cotangents) == 1 else cotangents
        return _whole(self._layout, _pulled_back(self._specialisation, self._layout, "pullback", self._values, given))


class GeneralisedFunction(BroadcastFunction):
    """A Python function of vectors and matrices that broadcasts over arrays of them and knows its exact derivatives.

    `differentiable_broadcast(signature=…)` makes it. It has the methods of a `BroadcastFunction`. Arrays have the core
    dimensions of the signature as their last axes; those before them broadcast.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import differentiable_broadcast
    >>> @differentiable_broadcast(signature="(3),(3,3)->(3)")
    ... def rotated(v, R):
    ...     return R @ v
    >>> v, R = np.ones((5, 3)), np.eye(3)
    >>> value, J = rotated.value_and_jacobian(v, R)
    >>> value.shape, J["v"].shape, J["R"].shape
    ((5, 3), (5, 3, 3), (5, 3, 3, 3))
    """

    def _bind_to(
        self, function: Callable[..., Any], static: str | Sequence[str], whole: str | Sequence[str] = ()
    ) -> Binder:
        return CoreBinder(function, static, whole, CoreSignature.parse(self._more.get("signature")))

    # --- products ------------------------------------------------------------------------------------------------

    @entry_point
    def __call__(self, *arrays: Any, out: Any = None, **named: Any) -> Any:
        """The value of the function; see `BroadcastFunction`. Arrays of `out` have the outputs' core dimensions."""
        return self._call("value", arrays, named, None, out)[0]

    @entry_point
    def value_and_jacobian(  # type: ignore[override]
        self, *arrays: Any, wrt: Wrt = None, out: Any = None, **named: Any
    ) -> tuple[Any, CoreJacobian]:
        """The value and its partial derivatives, from one launch; see `BroadcastFunction`.

        `out` is the pair (value, Jacobian) that an earlier call with the same shapes, dtypes and `wrt` returned.
        """
        return self._call("value_and_jacobian", arrays, named, self._dispatch.wrt_of(wrt), out)[:2]

    @entry_point
    def jacobian(self, *arrays: Any, wrt: Wrt = None, **named: Any) -> CoreJacobian:  # type: ignore[override]
        """The partial derivatives without the value."""
        jacobian: CoreJacobian = self._call("jacobian", arrays, named, self._dispatch.wrt_of(wrt), None)[1]
        return jacobian

    @entry_point
    def hessian(self, *arrays: Any, wrt: Wrt = None, **named: Any) -> CoreHessian:  # type: ignore[override]
        """The second partial derivatives, from one launch."""
        hessian: CoreHessian = self._call("hessian", arrays, named, self._dispatch.wrt_of(wrt), None)[2]
        return hessian

    @entry_point
    def value_jacobian_and_hessian(  # type: ignore[override]
        self, *arrays: Any, wrt: Wrt = None, **named: Any
    ) -> tuple[Any, CoreJacobian, CoreHessian]:
        """The value, its first and its second partial derivatives, from one launch."""
        return self._call("value_jacobian_and_hessian", arrays, named, self._dispatch.wrt_of(wrt), None)

    @entry_point
    def jvp(self, primals: Sequence[Any], tangents: Tangents, /, **named: Any) -> tuple[Any, Any]:
        """The value and its tangent along given tangents of the arguments; see `BroadcastFunction`."""
        wanted, given = directions_of(primals, tangents)
        specialisation, values = self._dispatch.find(tuple(primals), named, wanted)
        layout = _layout(specialisation)
        elements = tuple(_tangents(given, layout))
        count, cores = len(layout.outputs), [each.shape for each in layout.outputs] * 2
        run = partial(specialisation.forward, "pushforward", values, [*elements])
        arrays = derived(specialisation, layout, ("pushforward", forms_of(elements)), cores, values, run)
        return layout.structure.pack(arrays[:count]), layout.structure.pack(arrays[count:])

    @entry_point
    def vjp(self, *arrays: Any, wrt: Wrt = None, **named: Any) -> tuple[Any, CorePullback]:  # type: ignore[override]
        """The value, and the function that pulls cotangents of it back to the arguments."""
        specialisation, values = self._dispatch.find(arrays, named, self._dispatch.wrt_of(wrt))
        specialisation.element.derive("pullback", specialisation.wrt)
        results, outputs = specialisation.run("value", values)
        layout = _layout(specialisation)
        pullback = CorePullback(specialisation, layout, values)
        return layout.pack(results.value(outputs), results.stack), pullback

    @entry_point
    def value_and_vjp(
        self, primals: Sequence[Any], cotangents: Any, /, wrt: Wrt = None, **named: Any
    ) -> tuple[Any, tuple[Any, ...]]:
        """The value and the cotangents of the arguments from one launch; see `BroadcastFunction`."""
        if not isinstance(primals, tuple | list):
            raise ArgumentError(
                "the primals are a tuple with one for each argument: f.value_and_vjp((x, y), cotangent)"
            )
        specialisation, values = self._dispatch.find(tuple(primals), named, self._dispatch.wrt_of(wrt))
        layout = _layout(specialisation)
        arrays = _pulled_back(specialisation, layout, "value_and_pullback", values, cotangents)
        count = len(layout.outputs)
        return layout.structure.pack(arrays[:count]), _whole(layout, arrays[count:])

    @entry_point
    def hvp(  # type: ignore[override]
        self, primals: Sequence[Any], tangents: Tangents, /, wrt: Wrt = None, **named: Any
    ) -> CoreJacobian:
        """The change of the gradient along tangents; see `BroadcastFunction`."""
        wanted, given = directions_of(primals, tangents)
        gradient = None if wrt is None else wrt_key(wrt)
        specialisation, values = self._dispatch.find(tuple(primals), named, wanted, gradient)
        elements = _tangents(given, _layout(specialisation))
        return tangent_blocks(specialisation, _layout(specialisation, specialisation.gradient), values, elements)

    @entry_point
    def sum(self, *arrays: Any, wrt: Wrt = None, order: int = 0, **named: Any) -> Any:
        """The sum over all elements before the cores, with its derivatives; see `BroadcastFunction`."""
        specialisation, (results, outputs) = self._sums(arrays, named, wrt, order)
        layout = _layout(specialisation)
        value = layout.pack(results.value(outputs), results.stack)
        if not order:
            return value
        gradient = CoreJacobian(results, layout, Jacobian._of(results, outputs))
        if order == 1:
            return SumAndGradient(value, gradient)  # type: ignore[arg-type]
        return SumGradientAndHessian(value, gradient, CoreHessian(results, layout, Hessian._of(results, outputs)))  # type: ignore[arg-type]

    @entry_point
    def normal_equations(self, *arrays: Any, wrt: Wrt = None, weights: Any = None, **named: Any) -> NormalEquations:
        """∑ r², Jᵀr and JᵀJ over all elements of the residuals; see `BroadcastFunction`.

        `np.asarray` of the gradient and the matrix has the elements of the arguments in `wrt`, one argument after the
        other. A weight has the core dimensions of its residual.
        """
        specialisation, (results, outputs) = self._equations(arrays, named, wrt, weights)
        layout = CoreLayout(results.structure, specialisation.element.names, specialisation.wrt)
        gradient = CoreJacobian(results, layout, Jacobian._of(results, outputs))
        matrix = CoreHessian(results, layout, Hessian._of(results, outputs))
        return NormalEquations(results.value(outputs), gradient, matrix)  # type: ignore[arg-type]

    def _flat_weights(self, specialisation: Specialisation, weights: Any) -> Any:
        return tuple(_layout(specialisation).weights(weights))

    # --- how they are run ----------------------------------------------------------------------------------------

    def _call(
        self, which: Which, arrays: tuple[Any, ...], named: dict[str, Any], wrt: Any, out: Any
    ) -> tuple[Any, Any, Any]:
        """The value, the Jacobian and the Hessian, of those that the product has."""
        dispatch = self._dispatch
        key = (which, wrt, forms_of(arrays)) if not named and out is None and are_arrays(arrays) else None
        direct = dispatch.direct.get(key)
        found: tuple[Any, Any, Any] | None = direct.run(arrays) if direct else None
        if found is not None:
            return found
        specialisation, values = dispatch.find(arrays, named, wrt)
        found = self._run(specialisation, which, values, out)
        if key is not None and direct is not False:
            targets = _layout(specialisation).targets.get(which)
            direct = targets and CoreDirect.of(specialisation, targets, arrays, values)
            dispatch.direct.keep(key, direct or False)
        return found

    def _run(
        self, specialisation: Specialisation, which: Which, values: tuple[Any, ...], out: Any
    ) -> tuple[Any, Any, Any]:
        """The same, where the call is known."""
        layout = _layout(specialisation)
        if specialisation.recorder is not None and which == "value":
            # A graph records the call, or another library makes it.
            parts = specialisation.recorder(self, specialisation, values, out)
            return layout.pack(parts, specialisation.stack), None, None
        targets: CoreTargets | None = layout.targets.get(which)
        if targets is None:
            targets = layout.targets[which] = CoreTargets(specialisation, layout, which, values)
        return targets.run(values, out)


def _layout(specialisation: Specialisation, wrt: tuple[int, ...] | None = None) -> Any:
    wrt = specialisation.wrt if wrt is None else wrt
    layout = specialisation.core_layouts.get(wrt)
    if layout is None:
        layout = CoreLayout(specialisation.program.structure, specialisation.element.names, wrt)
        specialisation.core_layouts[wrt] = layout
    return layout


def _tangents(given: Sequence[Any], layout: CoreLayout) -> list[Any]:
    """The tangents of the elements."""
    given = complex_arguments.parts_of(given, range(len(layout.arguments)), layout.pairs)
    if len(given) != len(layout.arguments):
        raise ArgumentError("a tangent is for one argument, and an argument has one tangent; name each argument once")
    pairs = zip(given, layout.arguments, strict=True)
    return [part for tangent, each in pairs for part in parts_of(tangent, each.shape, f"the tangent of {each.name}")]


def _whole(layout: CoreLayout, of_arguments: Sequence[Any]) -> tuple[Any, ...]:
    """What there is for each argument, where the parts of a complex one are one."""
    return complex_arguments.joined(of_arguments, range(len(layout.arguments)), layout.pairs)


def _pulled_back(
    specialisation: Specialisation, layout: CoreLayout, derivation: Derivation, values: tuple[Any, ...], given: Any
) -> list[Any]:
    """The cotangents of the arguments for those of the outputs, after the outputs if the derivation has these."""
    elements = tuple(layout.split(given, "the cotangent", or_none=True))
    cores = [each.shape for each in (*(layout.outputs if derivation[0] == "v" else ()), *layout.arguments)]
    if specialisation.whole or type(specialisation) is not Specialisation:
        return joined(specialisation.back(derivation, values, elements), cores, specialisation.stack)
    run = partial(specialisation.backward, derivation, values, elements)
    return derived(specialisation, layout, (derivation, forms_of(elements)), cores, values, run)


BroadcastFunction._with_cores = GeneralisedFunction
