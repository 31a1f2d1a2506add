"""The rule that makes results of a kernel's outputs: values in the structure that a function returns, and the places of
the blocks of a Jacobian or a Hessian.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from dualbcast.complex_numbers import Complex
from dualbcast.errors import ArgumentError, DTypeError, ShapeError
from dualbcast.foreign_objects import called
from dualbcast.ir.nodes import Structure
from dualbcast.program.products import Block, Check, TypedProduct
from dualbcast.runtime.arguments import DType, beside, is_array
from dualbcast.runtime.buffer_pool import POOL
from dualbcast.runtime.iteration_space import Shapes
from dualbcast.runtime.launch_plan import Plan, scalars

Shape = tuple[int, ...]

# The dtype of sums of floats.
SUM_DTYPE = np.dtype(np.float64)

# How a message says what `out=` may be for a value and a Jacobian.
OUT_FORMS = (
    "out= must be the pair (value, Jacobian) that an earlier call returned, a pair (value, matrix) of arrays, or "
    "'matrix'"
)


class Results:
    """Makes the results of a call from the outputs of its kernel, in the same way for all calls of one form.

    It has no reference to the arrays of the call, and can be pickled. `sums` has, for a product of "parts", the shape
    that each is summed to.
    """

    def __init__(self, spec: TypedProduct, planned: Plan, sums: Shapes) -> None:
        product, operands = spec.product, planned.operands
        self.names, self.positions, self.checks = spec.names, spec.wrt, spec.checks
        # Whether the outputs are looked at before they are results; and what the option says they are checked for.
        self.check = spec.options.check
        self.is_checked = self.checks is not None or self.check is not None
        self.wrt = tuple([spec.names[at] for at in spec.wrt])
        self.structure, self.blocks = product.structure, product.blocks
        # Where the outputs of the kernel begin that are values, first partials, and second partials.
        self.begins = 0, product.values, product.values + product.jacobian
        # Those of a Jacobian, made here because each call needs it.
        self.first_partials = slice(*self.begins[1:])
        # The shape that the arguments broadcast to, and the shape of each argument in `wrt`.
        self.shape, self.shapes = planned.geometry.shape, {at: operands.arrays[at].shape for at in spec.wrt}
        # Not the product's, which may be that of an equal one: a dtype is equal to the type of its numbers.
        self.signature, self.module = operands.signature, operands.module
        self._total, self._parts, self._sums = planned.geometry.total, spec.parts, sums
        # Fresh outputs of shape () become scalars, as those of NumPy's own functions do. CuPy's stay arrays, so that
        # nothing waits for the device.
        given = planned.given if spec.checks is None else planned.given[:-1]
        self._given = None if self.shape or self.module != "numpy" else given
        # Whether parts are the arrays that the kernel writes, as they are.
        stored = [block.stored for block in self.blocks.values()]
        shapes = [self.shape if shape is None else shape for shape in sums or (None,)]
        self.stores_parts = stored == list(range(len(stored))) and (self.module != "numpy" or () not in shapes)

    @cached_property
    def stored_at(self) -> dict[str, int]:
        """The places among first partials of the blocks that are a stored array, by the names that have been asked for:
        to find such a block anew takes longer than a kernel of few elements."""
        return {}

    def value(self, outputs: Sequence[Any]) -> Any:
        """The structure that the function returns, with arrays."""
        if self._given is not None:
            outputs = scalars(tuple(outputs), self._given)
        return self.structure.pack(outputs[: self.begins[1]])

    def second_partials(self, outputs: Sequence[Any]) -> Sequence[Any]:
        """The blocks of a Hessian that are stored."""
        if self._given is not None:
            outputs = scalars(tuple(outputs), self._given)
        return outputs[self.begins[2] :]

    def parts(self, outputs: Sequence[Any]) -> tuple[Any, ...]:
        """The results of a product of "parts": stored arrays, and views of one number where a part is constant."""
        if self.stores_parts:
            return tuple(outputs)
        parts = self.arrays_of_parts(outputs)
        if self.module == "numpy" and (self._given is not None or self._sums is not None):
            return tuple([y if y.shape else y[()] for y in parts])
        return tuple(parts)

    def arrays_of_parts(self, outputs: Sequence[Any]) -> list[Any]:
        """As `parts`, with arrays of shape () in the place of scalars."""
        return [
            self._constant(place[0], block.constant, outputs) if block.stored is None else outputs[block.stored]
            for place, block in self.blocks.items()
        ]

    def _constant(self, at: int, number: float, outputs: Sequence[Any]) -> Any:
        shape = None if self._sums is None else self._sums[at]
        # The number of elements that are summed into one.
        terms = 1 if shape is None else self._total // max(1, math.prod(shape))
        dtype = self._parts[at] if self._parts else self.signature.result_dtype
        with beside(outputs):
            return self.everywhere(number * terms, dtype, self.shape if shape is None else shape)

    def everywhere(self, number: Any, dtype: DType, shape: Shape) -> Any:
        """A read-only array of one number, or of one array of them, of the library of the call's arrays."""
        library = self._library()
        return library.broadcast_to(library.asarray(number, dtype), shape)

    def fits(self, tangent: Any) -> bool:
        """Whether an array or a number broadcasts to the result's shape."""
        return broadcasts_to(np.shape(tangent), self.shape)

    def require_own_library(self, array: Any, name: str) -> None:
        """Refuse an array of CuPy's where the results are of NumPy's, and the other way round."""
        if is_array(array, "cupy" if self.module == "numpy" else "numpy"):
            ours, convert = ("NumPy", "asnumpy") if self.module == "numpy" else ("CuPy", "asarray")
            raise ArgumentError(f"{name} is {called(array)}, and the blocks are {ours} arrays. Pass cupy.{convert}(…).")

    def stack(self, blocks: Sequence[Any]) -> Any:
        """Blocks along a new last axis."""
        return library_of(blocks[0]).stack(blocks, axis=-1)

    def summed(self, array: Any, position: int) -> Any:
        """An array of the result's shape, summed to the shape of the argument at `position`."""
        return sum_to(array, self.shapes[position])

    # --- a Jacobian as one matrix: a row for each element of each output, a column for each argument ------------------

    def new_matrix(self) -> tuple[Any, tuple[Any, ...]]:
        """A matrix in Fortran order, and the parts of it that a kernel is to write, which are contiguous; see
        `stored_parts`.

        A kernel stores such blocks as fast as arrays of their own. With blocks that are columns of a matrix in C order
        a call takes 1.2 times as long for 1,000 elements and 3 arguments, and 1.5 times for 100,000
        (bench/bench_matrix.py).
        """
        rows, columns = self._matrix_shape
        parts = self._empty((columns, self.structure.count, *self.shape), self.signature.result_dtype)
        return parts.reshape(columns, rows).T, self._stored(parts)

    def new_values(self, dtypes: Sequence[DType]) -> tuple[Any, ...]:
        """Uninitialised arrays for the values of a call."""
        return tuple([self._empty(self.shape, dtype) for dtype in dtypes])

    def stored_parts(self, matrix: Any) -> tuple[Any, ...]:
        """The parts of a matrix that a kernel writes, in its order; all others are filled with their constants."""
        return self._stored(matrix.T.reshape(len(self.wrt), self.structure.count, *self.shape))

    def _stored(self, parts: Any) -> tuple[Any, ...]:
        stored, constants = self.places(1)
        for place, number in constants:
            parts[place] = number
        return tuple([parts[place] for place in stored])

    def matrix(self, stored: Sequence[Any]) -> Any:
        """A new matrix with copies of the stored blocks."""
        matrix, parts = self.new_matrix()
        for part, block in zip(parts, stored, strict=True):
            part[...] = block
        return matrix

    def check_matrix(self, matrix: Any) -> None:
        """Refuse what cannot be the matrix that a kernel writes to."""
        if not is_array(matrix, self.module):
            raise ArgumentError(f"{OUT_FORMS}; the second of the pair is {called(matrix)}")
        if matrix.shape != self._matrix_shape:
            raise ShapeError(
                f"the matrix in out= has shape {matrix.shape}; it must be {self._matrix_shape}: a row for each "
                f"element of each output, and a column for each of ({', '.join(self.wrt)})"
            )
        if matrix.dtype != self.signature.result_dtype:
            raise DTypeError(f"the matrix in out= has dtype {matrix.dtype}; it must be {self.signature.result_dtype}")
        if self.module == "numpy" and not matrix.flags.writeable:
            raise ArgumentError("the matrix in out= is read-only. Pass an array that can be written to.")

    @cached_property
    def _matrix_shape(self) -> tuple[int, int]:
        return self.structure.count * math.prod(self.shape), len(self.wrt)

    def places(self, order: int) -> tuple[list[tuple[Any, ...]], list[tuple[tuple[Any, ...], float]]]:
        """Where the blocks of first or of second partials are in an array with an axis for each argument, and one for
        the outputs: those that the kernel stores, in its order, and the others, each with its number."""
        found = self._places.get(order)
        if found is None:
            stored: dict[int, tuple[Any, ...]] = {}
            constants = []
            for columns in itertools.product(range(len(self.positions)), repeat=order):
                for output in range(self.structure.count):
                    block = self.blocks[output, *[self.positions[column] for column in columns]]
                    # With ..., the part of a single element is an array, too.
                    place = (*columns, output, ...)
                    if block.stored is None:
                        constants.append((place, block.constant))
                    else:
                        stored[block.stored] = place
            found = self._places[order] = [stored[at] for at in sorted(stored)], constants
        return found

    @cached_property
    def _places(self) -> dict[int, Any]:
        return {}

    def _empty(self, shape: Shape, dtype: DType) -> Any:
        return POOL.empty(shape, dtype) if self.module == "numpy" else self._library().empty(shape, dtype)

    def _library(self) -> Any:
        return np if self.module == "numpy" else sys.modules["cupy"]


class SumResults(Results):
    """Makes the results of sums, all of which are stored, and have the `shape` of the arguments at `wrt`.

    There are sums of the values of a structure, of their first partials from `order` 1 on, and of their second ones
    from 2 on. `terms` are the results of the call that makes the sums.
    """

    def __init__(self, terms: Results, wrt: tuple[int, ...], structure: Structure, order: int, shape: Shape) -> None:
        self.names, self.positions, self.checks = terms.names, wrt, None
        self.wrt, self.structure = tuple([terms.names[at] for at in wrt]), structure
        self.blocks, self.begins = all_stored(structure.count, wrt, order)
        self.first_partials = slice(*self.begins[1:])
        self.shape, self.shapes = shape, dict.fromkeys(wrt, shape)
        self.signature, self.module, self._given = replace(terms.signature, result_dtype=SUM_DTYPE), terms.module, None


def all_stored(count: int, wrt: Sequence[int], order: int) -> tuple[dict[tuple[int, ...], Block], tuple[int, int, int]]:
    """The blocks of `every_result` for so many outputs, and where values, first partials and second ones begin."""
    values, first = [(at,) for at in range(count)], [(at, p) for at in range(count) for p in wrt if order]
    pairs = [(p, q) for at, p in enumerate(wrt) for q in wrt[at:] if order > 1]
    places = [*values, *first, *[(at, *pair) for at in range(count) for pair in pairs]]
    return {place: Block(at) for at, place in enumerate(places)}, (0, count, count + len(first))


def library_of(array: Any) -> Any:
    """NumPy or CuPy, whichever an array belongs to."""
    return np if isinstance(array, np.ndarray | np.generic) else sys.modules["cupy"]


def is_float(array: Any) -> bool:
    """Whether the elements of an array are floats, which may not be finite."""
    return bool(array.dtype.kind == "f" or array.dtype.name == "bfloat16")


def unsound(array: Any, check: Check) -> Any:
    """Which elements of an array of floats the option `check` refuses."""
    library = library_of(array)
    return library.isnan(array) if check == "nan" else ~library.isfinite(array)


def is_sound(outputs: Sequence[Any], check: Check) -> bool:
    """Whether the option `check` refuses no element of any output."""
    with beside(outputs):
        return not any(bool(unsound(array, check).any()) for array in outputs if is_float(array))


def broadcasts_to(shape: Shape, whole: Shape) -> bool:
    """Whether an array of one shape can stand for one of the other."""
    extra = len(whole) - len(shape)
    return extra >= 0 and all(size in (1, length) for size, length in zip(shape, whole[extra:], strict=True))


def cotangents_of(given: tuple[Any, ...], structure: Structure) -> tuple[Any, ...]:
    """The cotangents of the numbers of a result: from one object of its structure, from one for each number, or from
    one for each of several outputs, of which some are complex."""
    if len(given) == 1 and structure.holds(given[0]):
        given = structure.flatten(given[0], "the cotangent")
    elif (
        structure.type
        and len(given) == len(structure.parts)
        and all(part.type in (None, Complex) for part in structure.parts)
    ):
        given = structure.flatten(given, "the cotangent")
    if len(given) != structure.count:
        raise ArgumentError(f"{structure.count} cotangents are needed, one for each output; got {len(given)}")
    return given


def weights_of(given: Any, structure: Structure) -> Sequence[Any]:
    """Weights of residuals: one for each of the structure that a function returns, or one for all.

    A complex residual has one weight, which is that of both of its parts.
    """
    if structure.type is Complex or not structure.holds(given):
        return (given,)
    numbers, parts = of_numbers(structure)
    return [each for each, count in zip(numbers.flatten(given, "weights"), parts, strict=True) for _ in range(count)]


def of_numbers(structure: Structure) -> tuple[Structure, list[int]]:
    """The structure with each complex number as one leaf, and how many parts each of the leaves has."""
    if structure.type is None or structure.type is Complex:
        return Structure(), [structure.count]
    pairs = [of_numbers(part) for part in structure.parts]
    whole = Structure(structure.type, tuple([part for part, _ in pairs]), structure.fields)
    return whole, [count for _, counts in pairs for count in counts]


def misfit_of_weights(shape: Shape, whole: Shape) -> ShapeError:
    """The error for weights of one shape, and residuals of another."""
    return ShapeError(
        f"the weights have shape {tuple(shape)}, which does not broadcast to that of the residuals, {tuple(whole)}"
    )


def another_wrt(given: Sequence[str], wrt: Sequence[str]) -> ArgumentError:
    """The error for a Jacobian in `out=` that is in other arguments than those of the call."""
    return ArgumentError(
        f"the Jacobian in out= is in ({', '.join(given)}), and that of this call is in ({', '.join(wrt)}). Pass one "
        "that a call with the same wrt= returned"
    )


def sum_to(array: Any, shape: Shape) -> Any:
    """Sum over the axes along which an argument of `shape` was broadcast."""
    extra = array.ndim - len(shape)
    axes = (*range(extra), *(extra + axis for axis, size in enumerate(shape) if size == 1 != array.shape[extra + axis]))
    return array.sum(axis=axes).reshape(shape) if axes else array.reshape(shape)
