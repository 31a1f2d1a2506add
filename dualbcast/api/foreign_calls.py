"""Calls on the arrays of other libraries: every product is an element function, which the library's adapter applies.

Values that are such arrays come in, as those of NumPy's do in `Specialisation`. Out go results that hold arrays of the
same library.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple, NoReturn

import numpy as np

from dualbcast.adapters import Adapter
from dualbcast.api.complex_arguments import parts_of
from dualbcast.api.specialisation import Program, Specialisation
from dualbcast.autodiff.dual import unused_names
from dualbcast.errors import ArgumentError
from dualbcast.ir.nodes import Function, Output, Var
from dualbcast.program.element import Derivation, Element, Ran, Summed
from dualbcast.program.outputs import Results, Shape, all_stored
from dualbcast.program.products import Block, Options, Which, every_result, output_dtypes
from dualbcast.runtime.arguments import DType, Signature

# Of two parameters the first; to sum an array to the shape of another.
_X, _Y = Var("x", "float"), Var("y", "float")
_FIRST = Element(Function("first", (_X, _Y), (), (Output("out", _X),)), ("x", "y"), "sum", Options())


class Flat(NamedTuple):
    """A product as an element function with an output for each of its results: values, first and second partials."""

    element: Element
    blocks: dict[tuple[int, ...], Block]
    # Where the outputs begin that are values, first partials, and second partials.
    begins: tuple[int, int, int]
    dtypes: tuple[DType, ...]


class ForeignSpecialisation(Specialisation):
    """A function for calls whose arrays an adapter knows, of the dtypes in `signature`."""

    def __init__(
        self, program: Program, signature: Signature, wrt: tuple[int, ...], gradient: tuple[int, ...], adapter: Adapter
    ) -> None:
        super().__init__(program, signature, wrt, gradient, self._call)
        self.adapter, self._pack = adapter, self.element.function.structure.pack
        self._apply = adapter.bound(self.element, self.dtypes)
        self._products: dict[tuple[Element, Which, tuple[int, ...]], Flat] = {}

    def _call(self, function: object, specialisation: object, values: tuple[Any, ...], out: Any) -> Any:  # noqa: ARG002
        """The value of the function, in the structure that it returns: the shortest way, which no results are for."""
        if out is not None:
            self._refuse_out()
        return self._pack(self._apply(values))

    def run(self, which: Which, values: tuple[Any, ...], out: Any = None, _forms: Any = None) -> Ran:
        if out is not None:
            self._refuse_out()
        return self._applied(self.element, which, () if which == "value" else self._without_whole(), values)

    def results(self, _values: tuple[Any, ...]) -> NoReturn:
        self._refuse_out()

    def _refuse_out(self) -> NoReturn:
        raise ArgumentError(
            f"out= takes arrays of NumPy's and CuPy's, and this call is on arrays of {self.adapter.name}'s. "
            "Leave it out."
        )

    def forward(
        self,
        derivation: Derivation,
        values: tuple[Any, ...],
        tangents: list[Any],
        new: tuple[Any, ...] = (),  # noqa: ARG002 (which other libraries make themselves)
    ) -> Ran:
        self._without_whole()
        given = self._tangents(values, parts_of(tangents, self.wrt, self.program.pairs))
        element = self.element.derive(derivation, self.wrt)
        if derivation == "tangent":
            return self._applied(element, "jacobian", self.gradient, (*values, *given))
        return self._applied(element, "value", (), (*values, *given))

    def _back(self, derivation: Derivation, values: tuple[Any, ...], cotangents: tuple[Any, ...]) -> tuple[Any, ...]:
        for place in self.whole:
            name, library = self.element.names[place], self.adapter.name
            raise ArgumentError(
                f"the cotangent of {name}, which is whole, is for calls on arrays of NumPy's and CuPy's, and this one "
                f"is on arrays of {library}'s. Pass their numbers, or name others than {name} in wrt="
            )
        given = self._cotangents(self._of_floats(cotangents), values)
        element, dtypes = self.element.derive(derivation, self.wrt), self.tangent_dtypes
        sums: tuple[int | None, ...] = self.wrt
        if derivation == "value_and_pullback":
            dtypes, sums = (*self.dtypes, *dtypes), (*[None] * len(self.dtypes), *sums)
        return self.adapter.apply(element, (*values, *given), dtypes, sums)

    def sums(self, derivation: Summed | None, values: tuple[Any, ...], weights: Any = None) -> Ran:
        self._without_whole()
        given = () if weights is None else self._weights(weights, values)
        self._kept(values)
        element, dtypes = self._terms(derivation)
        arguments, at = (*values, *given), self.wrt[0] if self.wrt else len(values)
        if not self.wrt:  # the shape of sums over all elements is that of one more argument, a number
            element, arguments = self._with_number, (*values, 0.0)
        outputs = self.adapter.apply(element, arguments, dtypes, (at,) * len(dtypes))
        structure, order = self._summed(derivation)
        blocks, begins = all_stored(structure.count, self.wrt, order)
        flat = Flat(self.element, blocks, begins, dtypes)
        results = ForeignResults(self, flat, self.wrt, (outputs[0],) * len(values), outputs)
        results.structure = structure
        return results, outputs

    @cached_property
    def _with_number(self) -> Element:
        """The function with one more parameter, which it does not read."""
        own, name = self.element, unused_names(self.element.function).fresh("number")
        function = replace(own.function, params=(*own.function.params, Var(name, "float")))
        return Element(function, (*own.names, name), own.label, own.options)

    def _applied(self, element: Element, which: Which, wrt: tuple[int, ...], values: tuple[Any, ...]) -> Ran:
        key = element, which, wrt
        flat = self._products.get(key)
        if flat is None:
            flat = self._products[key] = self._product(*key)
        outputs = self.adapter.apply(flat.element, values, flat.dtypes, None)
        return ForeignResults(self, flat, wrt, values, outputs), outputs

    def _product(self, element: Element, which: Which, wrt: tuple[int, ...]) -> Flat:
        function = element.function
        if which == "value":
            dtypes = output_dtypes([output.value.kind for output in function.outputs], self.signature)
            return Flat(element, {}, (0, len(dtypes), len(dtypes)), dtypes)
        flat, places = every_result(function, which, wrt)
        values = sum(len(place) == 1 for place in places)
        first = sum(len(place) == 2 for place in places)
        blocks = {place: Block(stored=at) for at, place in enumerate(places) if len(place) > 1}
        kinds = [output.value.kind for output in flat.outputs]
        label = f"{element.label}: {which.replace('_', ' ')} in {', '.join(element.names[at] for at in wrt)}"
        flat_element = Element(flat, element.names, label, element.options)
        return Flat(flat_element, blocks, (0, values, values + first), output_dtypes(kinds, self.signature))

    def stack(self, blocks: Sequence[Any]) -> Any:
        return self.adapter.stack(blocks)

    def shape_of(self, values: tuple[Any, ...]) -> Shape:
        return self.adapter.shape(values)

    def _cast(self, value: Any, dtype: DType, name: str) -> Any:
        return self.adapter.cast(value, dtype, name)

    def _fits(self, array: Any, values: tuple[Any, ...], shape: Shape, exactly: bool = False) -> bool:  # noqa: ARG002
        return self.adapter.fits(array, values, exactly)


class ForeignResults(Results):
    """The results of a call on arrays of another library's, in their `outputs`."""

    def __init__(
        self,
        specialisation: ForeignSpecialisation,
        flat: Flat,
        wrt: tuple[int, ...],
        values: tuple[Any, ...],
        outputs: Sequence[Any],
    ) -> None:
        self.names, self.positions, self.checks = flat.element.names, wrt, None
        self.wrt = tuple([self.names[at] for at in wrt])
        self.structure, self.blocks, self.begins = specialisation.element.function.structure, flat.blocks, flat.begins
        self.first_partials = slice(*flat.begins[1:])
        self.signature, self.module = specialisation.signature, "numpy"
        self._adapter, self._values, self._dtypes = specialisation.adapter, values, specialisation.tangent_dtypes
        self._given, self.stores_parts = None, True
        self.shape = tuple(outputs[0].shape) if outputs else self._adapter.shape(values)

    def fits(self, tangent: Any) -> bool:
        return self._adapter.fits(tangent, self._values)

    @property
    def shapes(self) -> NoReturn:  # type: ignore[override]
        raise ArgumentError(
            "J.dense, J.sparse and J.linear_operator are for arrays of NumPy's and CuPy's, and this call was on arrays "
            f"of {self._adapter.name}'s. Pass their numbers as arrays of NumPy's."
        )

    def stack(self, blocks: Sequence[Any]) -> Any:
        return self._adapter.stack(blocks)

    def matrix(self, stored: Sequence[Any]) -> Any:
        count = self.structure.count
        if not stored:
            return np.empty((count * math.prod(self.shape), 0), self.signature.result_dtype)
        blocks = self.stack(stored)  # which are in the order of the outputs, and then of `wrt`
        if not hasattr(blocks, "reshape"):  # a DataArray
            blocks = blocks.data
        blocks = blocks.reshape(-1, count, len(self.wrt)).swapaxes(0, 1)
        return blocks.reshape(-1, len(self.wrt))

    def summed(self, array: Any, position: int) -> Any:
        dtype = np.dtype(self.signature.result_dtype)
        return self._adapter.apply(_FIRST, (array, self._values[position]), (dtype,), (1,))[0]
