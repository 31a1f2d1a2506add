"""A function for calls whose arguments have the same forms: checks tangents and cotangents, and runs the products.

A lowered function with the dtypes of a call comes in. Out go the results of its products, each by a fast path if an
earlier call has left one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from dualbcast.adapters import adapter_for
from dualbcast.api.complex_arguments import joined, parts_of
from dualbcast.api.whole_arrays import apart, places_along, without_block
from dualbcast.errors import ArgumentError, ShapeError
from dualbcast.foreign_objects import as_plain, called, instead
from dualbcast.frontend.lower import Lowered
from dualbcast.ir.nodes import NUMBER, Function, Structure
from dualbcast.program.element import Call, Derivation, Element, Ran, Summed, run_call
from dualbcast.program.outputs import (
    SUM_DTYPE,
    Results,
    Shape,
    SumResults,
    broadcasts_to,
    cotangents_of,
    library_of,
    misfit_of_weights,
    weights_of,
)
from dualbcast.program.products import Which, output_dtypes
from dualbcast.rules.guards import reader
from dualbcast.runtime.arguments import DType, Signature, array_kind, beside, converted, forms_of, one_library
from dualbcast.runtime.iteration_space import result_shape
from dualbcast.runtime.launch_plan import FastPath, Recent

# The dtype of sums of integers and bools.
_COUNTS = np.dtype(np.int64)


class Program:
    """A function lowered for one form of call and the kinds of its arrays: `element`, of these and captured arrays.

    `whole` has the places of whole arrays among the parameters, and how many lengths follow each; `pairs` those of the
    real parts of complex numbers, which their imaginary parts follow. `structure` is that of what the function returns;
    where arrays have core dimensions, `element` returns a tuple of all numbers instead. `noted` lowers it once more,
    with notes of what its steps do, and `speaks` says whether it prints or asserts.
    """

    __slots__ = ("_axes", "_captures", "_guards", "_kinds", "element", "noted", "pairs", "speaks", "structure", "whole")

    def __init__(
        self,
        element: Element,
        lowered: Lowered,
        whole: tuple[tuple[int, int], ...],
        pairs: tuple[int, ...],
        noted: Callable[[], Function],
    ) -> None:
        self.element, self.whole, self.pairs = element, whole, pairs
        self.noted, self.speaks, self.structure = noted, lowered.speaks, lowered.function.structure
        # Each with what reads it without a call of Python code, since every call of the function does that.
        self._guards = tuple((reader(guard), guard.value, guard) for guard in lowered.guards)
        # Without references to the arrays: they may be large, and the names may be given others.
        self._captures = tuple(capture._replace(value=None) for capture in lowered.arrays.values())
        self._axes = lowered.axes
        params = lowered.function.params[: len(lowered.function.params) - len(self._axes)]
        self._kinds = tuple(param.kind for param in params[len(params) - len(self._captures) :])

    def captured(self, values: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """The captured arrays as they are now, and the places of elements for these arguments; None where the function
        must be lowered anew, because a guard does not hold or a captured array is of another kind."""
        try:
            for read, value, guard in self._guards:
                if read() is not value and not guard.holds():
                    return None
            if not self._captures:
                return self.places(values) if self._axes else ()
            arrays = tuple([capture.read() for capture in self._captures])
        except Exception:  # a name is gone, or a property raises; the front end will report it at its line
            return None
        if tuple(map(array_kind, arrays)) != self._kinds or any(array.dtype.kind == "c" for array in arrays):
            return None
        return (*arrays, *self.places((*values, *arrays))) if self._axes else arrays

    def places(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """The places of elements that the function asks for, in the shape that all but whole arrays broadcast to."""
        whole = [place for place, _ in self.whole]
        return places_along(self._axes, [value for at, value in enumerate(values) if at not in whole])


class Specialisation:
    """A function for all calls of one form whose arguments, and captured arrays, have the same forms.

    `wrt` has the positions of the parameters to differentiate in: those that have tangents, or are to get cotangents.
    `gradient` has, for products of a Hessian with tangents, those whose gradient is meant. Where Variables of a graph
    are among the values, `recorder` is how the graph makes the call.
    """

    def __init__(
        self, program: Program, signature: Signature, wrt: tuple[int, ...], gradient: tuple[int, ...], recorder: Any
    ) -> None:
        self.program, self.element = program, program.element
        self.signature, self.wrt, self.gradient, self.recorder = signature, wrt, gradient, recorder
        self.dtypes = output_dtypes([output.value.kind for output in self.element.function.outputs], signature)
        # The dtypes of the tangents and cotangents of the arguments in `wrt`.
        self.tangent_dtypes = tuple([_tangent_dtype(signature, at) for at in wrt])
        # Where results with core dimensions are, as far as they have been asked for.
        self.core_layouts: dict[Any, Any] = {}
        # By the product, and the forms of tangents, of cotangents or of the arrays of `out=`.
        self._paths: Recent[FastPath] = Recent()
        self._results: Results | None = None
        self._sum_results: dict[Summed | None, SumResults] = {}
        # Of the parameters in `wrt` those that are whole arrays, and how many lengths follow each; and the rest.
        self._rest: Specialisation | None = None
        self.whole = {place: axes for place, axes in program.whole if place in wrt}
        self._plain = tuple([at for at in wrt if at not in self.whole])

    def speak(self, values: tuple[Any, ...]) -> None:
        """Run the function's `print` and `assert` statements, of which this one has none, for the values of a call."""

    def stack(self, blocks: Sequence[Any]) -> Any:
        """Arrays of one shape along a new last axis."""
        return np.stack(blocks, axis=-1) if self.recorder is not None else library_of(blocks[0]).stack(blocks, axis=-1)

    def prepare(self, which: Which, values: tuple[Any, ...], out: tuple[Any, ...] | None = None) -> Call:
        """The call of a product of the element function itself; see `Element.prepare`."""
        wrt = () if which == "value" else self._without_whole()
        return self.element.prepare(which, values, wrt, signature=self.signature, out=out)

    def run(self, which: Which, values: tuple[Any, ...], out: tuple[Any, ...] | None = None, forms: Any = None) -> Ran:
        """Make that call; `out` has the arrays to write to, in the order in which the kernel stores them, and `forms`
        stands for their forms where the caller makes new arrays that always have the same."""
        if out is None:
            return run_call(self._paths, which, values, (), self.prepare, which, values)
        if self.program.whole:
            values = apart(values, self.program.whole, out)
        key = which, forms or forms_of(out)
        ran = run_call(self._paths, key, values, out, self.prepare, which, values, out)
        path = None if forms is None else self._paths.get(key)
        if path is not None:
            path.writes_new = True
        return ran

    def results(self, values: tuple[Any, ...]) -> Results:
        """The rule that makes a value and a Jacobian of a kernel's outputs, the same for all calls."""
        if self._results is None:
            with beside(values):
                self._results = self.prepare("value_and_jacobian", values).results
        return self._results

    def forward(
        self, derivation: Derivation, values: tuple[Any, ...], tangents: list[Any], new: tuple[Any, ...] = ()
    ) -> Ran:
        """Values with tangents, or the Jacobian of tangents; `new` are arrays for the outputs that nothing else has."""
        self._without_whole()
        given = self._tangents(values, parts_of(tangents, self.wrt, self.program.pairs))
        return self._derived((derivation, forms_of(given), bool(new)), (*values, *given), new)

    def _derived(self, key: tuple[Derivation, Hashable, bool], arguments: tuple[Any, ...], new: tuple[Any, ...]) -> Ran:
        """The call of a derived function; the key has the forms of the tangents or cotangents."""
        ran = run_call(self._paths, key, arguments, new, self.prepare_derived, key[0], arguments, new or None)
        if new and (path := self._paths.get(key)) is not None:
            path.writes_new = True
        return ran

    def back(self, derivation: Derivation, values: tuple[Any, ...], cotangents: tuple[Any, ...]) -> tuple[Any, ...]:
        """The cotangents of parameters for cotangents of all outputs, or the outputs and then these."""
        parts = self._back(derivation, values, cotangents)
        if not self.program.pairs:
            return parts
        count = len(self.dtypes) if derivation == "value_and_pullback" else 0
        return (*parts[:count], *joined(parts[count:], self.wrt, self.program.pairs))

    def _back(self, derivation: Derivation, values: tuple[Any, ...], cotangents: tuple[Any, ...]) -> tuple[Any, ...]:
        if self.whole:
            return self._back_to_whole(derivation, values, cotangents)
        results, outputs = self.backward(derivation, values, cotangents)
        return results.parts(outputs)

    def backward(
        self, derivation: Derivation, values: tuple[Any, ...], cotangents: tuple[Any, ...], new: tuple[Any, ...] = ()
    ) -> Ran:
        """The same, without whole arrays; see `forward`."""
        given = self._of_floats(cotangents)
        key = derivation, forms_of(given), bool(new)
        if key not in self._paths:
            # Checked cotangents have a form of their own; a call whose cotangents have it already is not checked.
            given = self._cotangents(given, values)
            key = derivation, forms_of(given), bool(new)
        return self._derived(key, (*values, *given), new)

    def _back_to_whole(
        self, derivation: Derivation, values: tuple[Any, ...], given: tuple[Any, ...]
    ) -> tuple[Any, ...]:
        """The same, where whole arrays are among the parameters: each takes launches of its own."""
        from dualbcast.program.whole_arrays import cotangent

        floats = self._cotangents(self._of_floats(given), values)
        one_library((*values, *floats), self.element.names, "a cotangent")
        if self._rest is None:
            self._rest = Specialisation(self.program, self.signature, self._plain, (), None)
        has_values = derivation == "value_and_pullback"
        if self._plain:
            parts = iter(self._rest._back(derivation, values, given))
        else:
            parts = iter(self.element.parts(values, self.dtypes) if has_values else ())
        found = [next(parts) for _ in self.dtypes] if has_values else []
        for at, dtype in zip(self.wrt, self.tangent_dtypes, strict=True):
            axes = self.whole.get(at)
            found.append(next(parts) if axes is None else cotangent(self.element, at, axes, values, floats, dtype))
        return tuple(found)

    @property
    def wrt_names(self) -> tuple[str, ...]:
        """The names of the arguments whose cotangents `back` gives."""
        names = self.element.names
        return joined([names[at] for at in self.wrt], self.wrt, self.program.pairs)

    def require_pullback(self) -> None:
        """Derive the function for cotangents, or raise its error."""
        self.element.derive("pullback", self._plain)

    def _without_whole(self) -> tuple[int, ...]:
        """`wrt`; an ArgumentError where a whole array is in it, or in the gradient of a Hessian's product."""
        for place, _ in self.program.whole:
            if place in self.wrt or place in self.gradient:
                raise without_block(self.element.names[place])
        return self.wrt

    def sums(self, derivation: Summed | None, values: tuple[Any, ...], weights: Any = None) -> Ran:
        """The sums of the outputs, or of those of a derived function, in the shape of the arguments in `wrt`."""
        self._without_whole()
        given = () if weights is None else self._weights(weights, values)
        arguments, key = (*values, *given), (derivation, forms_of(given))
        terms, outputs = run_call(self._paths, key, arguments, (), self.prepare_sums, derivation, arguments)
        outputs = terms.parts(outputs)
        results = self._sum_results.get(derivation)
        if results is None:
            structure, order = self._summed(derivation)
            results = SumResults(terms, self.wrt, structure, order, outputs[0].shape)
            self._sum_results[derivation] = results
        return results, outputs

    def prepare_sums(self, derivation: Summed | None, values: tuple[Any, ...]) -> Call:
        """The call that makes those sums, for values and then weights."""
        one_library(values, self.element.names, "the weight")
        shape, (element, dtypes) = self._kept(values), self._terms(derivation)
        return element.prepare("parts", values, (), dtypes, (shape,) * len(dtypes))

    def numbers(self, values: tuple[Any, ...]) -> tuple[str, ...]:
        """The names of the arguments in `wrt` that have shape ()."""
        numbers = tuple([self.element.names[at] for at in self.wrt if not _shape_of(values[at])])
        if not numbers:
            if not self.wrt:
                raise ArgumentError("no argument is of a float dtype, so that there is none to differentiate in")
            raise ArgumentError(
                "all arguments of a float dtype are arrays. Name those to differentiate in, which have one shape: "
                'wrt=("mu", "sigma")'
            )
        return numbers

    def _terms(self, derivation: Summed | None) -> tuple[Element, tuple[DType, ...]]:
        """The function whose outputs are summed, and the dtypes of the sums."""
        element = self.element if derivation is None else self.element.derive(derivation, self.wrt)
        kinds = [output.value.kind for output in element.function.outputs]
        return element, tuple([SUM_DTYPE if kind == "float" else _COUNTS for kind in kinds])

    def _summed(self, derivation: Summed | None) -> tuple[Structure, int]:
        """The structure of the values among the sums, and how often they are differentiated."""
        if derivation is not None and derivation.endswith("equations"):
            return NUMBER, 2
        orders = {None: 0, "value_and_jacobian": 1, "value_jacobian_and_hessian": 2}
        return self.element.function.structure, orders[derivation]

    def _kept(self, values: tuple[Any, ...]) -> Shape:
        """The shape of sums: that of the arguments in `wrt`, which have the same."""
        shapes = [tuple(_shape_of(values[at])) for at in self.wrt]
        kept = max(shapes, key=lambda shape: (len(shape), shape), default=())
        for at, shape in zip(self.wrt, shapes, strict=True):
            if shape != kept:
                name, most = self.element.names[at], self.element.names[self.wrt[shapes.index(kept)]]
                raise ShapeError(
                    f"the sums have the shape of the arguments in wrt, and these differ: {name} has shape {shape}, and "
                    f"{most} {kept}. Pass np.broadcast_to({name}, {kept}), or leave one of them out of wrt"
                )
        return kept

    def _weights(self, weights: Any, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """A weight for each output, checked, in the dtype of the arithmetic."""
        structure, shape = self.element.function.structure, self.shape_of(values)
        compute = np.dtype(self.signature.compute)
        checked = [self._cast(each, compute, "the weight") for each in weights_of(weights, structure)]
        for each in checked:
            if not self._fits(each, values, shape):
                raise misfit_of_weights(each.shape, shape)
        return tuple(checked) * (structure.count // len(checked))

    def prepare_derived(
        self, derivation: Derivation, values: tuple[Any, ...], out: tuple[Any, ...] | None = None
    ) -> Call:
        """The call of a derived function for values and then tangents or cotangents."""
        element = self.element.derive(derivation, self.wrt)
        one_library(values, self.element.names, "a cotangent" if "pullback" in derivation else "a tangent")
        if derivation == "tangent":
            which: Which = "jacobian" if element.cores is None else "jacobian_blocks"
            return element.prepare(which, values, self.gradient, out=out)
        if derivation == "pushforward":
            return element.prepare("parts", values, out=out)
        # What is given to write to has the result's shape, so that nothing is summed.
        shapes: tuple[Shape | None, ...] = tuple([None if out else _shape_of(values[at]) for at in self.wrt])
        dtypes = self.tangent_dtypes
        if derivation == "value_and_pullback":
            shapes = ((None,) * len(self.dtypes)) + shapes
            dtypes = (*self.dtypes, *dtypes)
        return element.prepare("parts", values, (), dtypes, shapes, out=out)

    def _of_floats(self, given: tuple[Any, ...]) -> tuple[Any, ...]:
        """The cotangents of the float outputs from those of all outputs."""
        structure, floats = self.element.function.structure, self.element.floats
        given = cotangents_of(given, structure)
        return given if len(floats) == len(given) else tuple([given[at] for at in floats])

    def _cotangents(self, given: tuple[Any, ...], values: tuple[Any, ...]) -> tuple[Any, ...]:
        """The cotangents of the float outputs, checked, in the dtype of the result."""
        count, cores = self.element.function.structure.count, self.element.cores
        outputs = range(count) if cores is None else cores.outputs
        shape, checked = self.shape_of(values), []
        for at, cotangent in zip(self.element.floats, given, strict=True):
            name = f"the cotangent of output {outputs[at]}" if outputs[-1] else "the cotangent"
            if cotangent is None:
                raise ArgumentError(f"{name} is None; give zeros where it is zero")
            cotangent = self._cast(cotangent, self.signature.result_dtype, name)
            if not self._fits(cotangent, values, shape, exactly=True):
                rest = "" if cores is None else " before its core dimensions"
                own = f"shape {tuple(cotangent.shape)}{rest}"
                raise ShapeError(f"{name} has {own}; it must have that of the output, {shape}")
            checked.append(cotangent)
        return tuple(checked)

    def _tangents(self, values: tuple[Any, ...], given: list[Any]) -> tuple[Any, ...]:
        """The tangents, checked, in the dtypes that do not change that of the result."""
        self._check_count(given)
        checked = []
        for at, tangent, dtype in zip(self.wrt, given, self.tangent_dtypes, strict=True):
            name = f"the tangent of {self.element.names[at]}"
            tangent, own = self._cast(tangent, dtype, name), _shape_of(values[at])
            if not self._fits(tangent, (values[at],), own):
                raise ShapeError(
                    f"{name} has shape {tuple(tangent.shape)}, which does not broadcast to that of the argument, "
                    f"{tuple(own)}"
                )
            checked.append(tangent)
        return tuple(checked)

    def shape_of(self, values: tuple[Any, ...]) -> Shape:
        """The shape that the values broadcast to."""
        return result_shape(tuple([(_shape_of(value), (), None) for value in values]), self.element.names)

    def _cast(self, value: Any, dtype: DType, name: str) -> Any:
        """A tangent or a cotangent in a dtype."""
        if type(value) is np.ndarray and value.dtype == dtype:
            return value
        value = as_plain(value, name)
        adapter = adapter_for(value)
        if adapter is not None and not adapter.takes_numpy:
            raise ArgumentError(f"{name} is {called(value)}, not an array or a number. {instead(value, name)}")
        return converted(value, dtype, name)

    def _fits(self, array: Any, values: tuple[Any, ...], shape: Shape, exactly: bool = False) -> bool:  # noqa: ARG002
        """Whether an array broadcasts to the shape of the values, or has exactly that."""
        return bool(array.shape == shape) or (not exactly and broadcasts_to(array.shape, shape))

    def _check_count(self, tangents: list[Any]) -> None:
        if not tangents:
            raise ArgumentError("no argument has a tangent; give at least one")
        if len(self.wrt) != len(tangents):
            raise ArgumentError(
                "a tangent is for one argument, and an argument has one tangent; name each argument once"
            )


def _shape_of(value: Any) -> Shape:
    """The shape of an array or a number."""
    return getattr(value, "shape", ())


def _tangent_dtype(signature: Signature, at: int) -> DType:
    """The dtype of an argument's tangents and cotangents: its own; for Python numbers and uint64 that of the result."""
    token = signature.tokens[at]
    if isinstance(token, type) or token.kind in "iu":
        return signature.result_dtype
    # Kernels write in the machine's byte order.
    return token if token.isnative else token.newbyteorder("=")
