"""The results of a call, made of its kernel's outputs: values, and a Jacobian or a Hessian with a block, an array, for
each output and each argument or pair of them.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from dualbcast.errors import ArgumentError, ShapeError, a_or_an
from dualbcast.ir.nodes import NUMBER, Structure
from dualbcast.program.products import TypedProduct
from dualbcast.runtime.arguments import DType, beside, no_derivative
from dualbcast.runtime.iteration_space import Shapes
from dualbcast.runtime.launch_plan import Plan, scalars

Shape = tuple[int, ...]


class Results:
    """Makes the results of a call from the outputs of its kernel, in the same way for all calls of one form.

    It has no reference to the arrays of the call, and can be pickled. `sums` has, for a product of "parts", the shape
    that each is summed to.
    """

    def __init__(self, spec: TypedProduct, planned: Plan, sums: Shapes) -> None:
        product, operands = spec.product, planned.operands
        self.names, self.positions, self.limit = spec.names, spec.wrt, spec.limit
        self.wrt = tuple([spec.names[at] for at in spec.wrt])
        self.structure, self.blocks = product.structure, product.blocks
        # Where the outputs of the kernel begin that are values, first partials, and second partials.
        self.begins = 0, product.values, product.values + product.jacobian
        # The shape that the arguments broadcast to, and the shape of each argument in `wrt`.
        self.shape, self.shapes = planned.geometry.shape, {at: operands.arrays[at].shape for at in spec.wrt}
        # Not the product's, which may be that of an equal one: a dtype is equal to the type of its numbers.
        self.signature, self.module = operands.signature, operands.module
        self._total, self._parts, self._sums = planned.geometry.total, spec.parts, sums
        # Fresh outputs of shape () become scalars, as those of NumPy's own functions do. CuPy's stay arrays, so that
        # nothing waits for the device.
        given = planned.given if spec.limit is None else planned.given[:-1]
        self._given = None if self.shape or self.module != "numpy" else given
        # Whether parts are the arrays that the kernel writes, as they are.
        stored = [block.stored for block in self.blocks.values()]
        shapes = [self.shape if shape is None else shape for shape in sums or (None,)]
        self._are_stored = stored == list(range(len(stored))) and (self.module != "numpy" or () not in shapes)

    def value(self, outputs: Sequence[Any]) -> Any:
        """The structure that the function returns, with arrays."""
        if self._given is not None:
            outputs = scalars(tuple(outputs), self._given)
        return self.structure.pack(outputs[: self.begins[1]])

    def jacobian(self, outputs: Sequence[Any]) -> Jacobian:
        """The first partial derivatives."""
        return Jacobian(self, outputs[self.begins[1] : self.begins[2]])

    def hessian(self, outputs: Sequence[Any]) -> Hessian:
        """The second partial derivatives."""
        if self._given is not None:
            outputs = scalars(tuple(outputs), self._given)
        return Hessian(self, outputs[self.begins[2] :])

    def parts(self, outputs: Sequence[Any]) -> tuple[Any, ...]:
        """The results of a product of "parts": stored arrays, and views of one number where a part is constant."""
        if self._are_stored:
            return tuple(outputs)
        parts = [
            self._constant(place[0], block.constant, outputs) if block.stored is None else outputs[block.stored]
            for place, block in self.blocks.items()
        ]
        if self.module == "numpy" and (self._given is not None or self._sums is not None):
            return tuple([y if y.shape else y[()] for y in parts])
        return tuple(parts)

    def _constant(self, at: int, number: float, outputs: Sequence[Any]) -> Any:
        shape = None if self._sums is None else self._sums[at]
        # The number of elements that are summed into one.
        terms = 1 if shape is None else self._total // max(1, math.prod(shape))
        dtype = self._parts[at] if self._parts else self.signature.result_dtype
        with beside(outputs):
            return self.everywhere(number * terms, dtype, self.shape if shape is None else shape)

    def everywhere(self, number: float, dtype: DType, shape: Shape) -> Any:
        """A read-only array of one number, of the library of the call's arrays."""
        library = np if self.module == "numpy" else sys.modules["cupy"]
        return library.broadcast_to(library.asarray(number, dtype), shape)

    def fits(self, tangent: Any) -> bool:
        """Whether an array or a number broadcasts to the result's shape."""
        return broadcasts_to(np.shape(tangent), self.shape)

    def stack(self, blocks: Sequence[Any]) -> Any:
        """Blocks along a new last axis."""
        return library_of(blocks[0]).stack(blocks, axis=-1)

    def summed(self, array: Any, position: int) -> Any:
        """An array of the result's shape, summed to the shape of the argument at `position`."""
        return _sum_to(array, self.shapes[position])


class Index:
    """How the blocks of derivatives are asked for: by output, which is a position or a label, and by argument."""

    # How many arguments a block is for, and how messages say what a key is.
    _order: int
    _keys: str

    def __init__(self, results: Results, stored: Sequence[Any]) -> None:
        # `stored` are the arrays that a kernel wrote, in its order. With `out=` it writes to them again.
        self._results, self._stored = results, stored

    @property
    def wrt(self) -> tuple[str, ...]:
        """The names of the arguments in which the derivatives are taken."""
        return self._results.wrt

    @property
    def structure(self) -> Structure:
        """The structure that the function returns."""
        return self._results.structure

    @property
    def shape(self) -> Shape:
        """The shape of each block, which is the result's."""
        return self._results.shape

    @property
    def outputs(self) -> int:
        """The number of outputs of the function."""
        return self.structure.count

    @property
    def labels(self) -> tuple[str, ...]:
        """For each output its fields and positions, joined by dots; "" if the function returns a number."""
        return self.structure.labels()

    def __getitem__(self, key: Any) -> Any:
        """The block of an output; or, if the key has no output, the structure of the blocks of all outputs."""
        order, keys = self._order, key if isinstance(key, tuple) else (key,)
        if len(keys) not in (order, order + 1):
            raise ArgumentError(f"{a_or_an(type(self).__name__)} is indexed by {self._keys}, not {key!r}")
        arguments = list(map(self._argument, keys[-order:]))
        if order > 1:  # a block is for its arguments in the order of `wrt`
            arguments.sort(key=self._results.positions.index)
        if len(keys) > order:
            return self._block(self._output(keys[0]), *arguments)
        return self.structure.pack([self._block(output, *arguments) for output in range(self.outputs)])

    def _block(self, *place: int) -> Any:
        results = self._results
        stored, number = results.blocks[place]
        if stored is not None:
            return self._stored[stored - results.begins[self._order]]
        if place not in self._constants:
            with beside(self._stored):
                self._constants[place] = results.everywhere(number, results.signature.result_dtype, self.shape)
        return self._constants[place]

    @cached_property
    def _constants(self) -> dict[tuple[int, ...], Any]:
        """The blocks that are one number, as far as they have been asked for."""
        return {}

    def __repr__(self) -> str:
        counted = f"{self.outputs} output{'s' * (self.outputs != 1)}"
        return f"<{type(self).__name__} of {counted} in ({', '.join(self.wrt)}), shape {self.shape}>"

    def _repr_html_(self) -> str:
        from dualbcast.program.html_tables import derivatives_table  # which only notebooks need

        return derivatives_table(self)

    def stacked(self, output: int | str = 0) -> Any:
        """The blocks of one output as one array, with the arguments in the last axes.

        With n arguments in `wrt`, its shape is `(*shape, n)` for a Jacobian and `(*shape, n, n)` for a
        Hessian.
        """
        which, axes = self._output(output), [len(self.wrt)] * self._order
        blocks = [self[which, *arguments] for arguments in product(self.wrt, repeat=self._order)]
        if not blocks:
            return np.empty((*self.shape, *axes))
        with beside(self._stored):
            stacked = self._results.stack(blocks)
            return stacked if self._order == 1 else stacked.reshape(*self.shape, *axes)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """All blocks as one array: as `stacked`, with an axis for the outputs before that for the arguments."""
        if self._results.module != "numpy":
            raise ArgumentError(
                f"the blocks of this {type(self).__name__} are on a GPU; write cupy.asnumpy(….stacked()) to fetch them"
            )
        if copy is False:
            raise ValueError("blocks are arrays of their own, so that one array of all is a copy; leave out copy=False")
        if self.structure == NUMBER:
            return np.asarray(self.stacked(), dtype)
        every_output = [self.stacked(output) for output in range(self.outputs)]
        return np.asarray(np.stack(every_output, axis=len(self.shape)), dtype)

    def _output(self, key: Any) -> int:
        if isinstance(key, str) and key and key in self.labels:
            return self.labels.index(key)
        if not _is_index(key) or not -self.outputs <= key < self.outputs:
            labels = ", ".join(filter(None, self.labels))
            raise ArgumentError(
                f"there is no output {key!r}; the function has {self.outputs}{labels and ': ' + labels}"
            )
        return int(key) % self.outputs

    def _argument(self, key: Any) -> int:
        """The position among all parameters of an argument in `wrt`."""
        wrt = self.wrt
        at = wrt.index(key) if isinstance(key, str) and key in wrt else key
        if _is_index(at) and -len(wrt) <= at < len(wrt):
            return self._results.positions[int(at)]
        kind = type(self).__name__
        raise ArgumentError(f"this {kind} is in ({', '.join(wrt)}), not in {key!r}{self._left_out(key)}")

    def _left_out(self, key: Any = None) -> str:
        """Why arguments are not in `wrt`, as the end of a sentence: the one with the name `key`, or else all."""
        names, signature = self._results.names, self._results.signature
        reasons = {
            name: f"for {name} give wrt={(*self.wrt, name)}" if kind == "float" else no_derivative(name, token)
            for name, kind, token in zip(names, signature.kinds, signature.tokens, strict=False)
            if name not in self.wrt
        }
        if isinstance(key, str):
            return f": {reasons[key]}" if key in reasons else ""
        return "".join(f"; {reason}" for reason in reasons.values())


class Jacobian(Index):
    """∂output/∂argument of an element-wise function, element by element.

    Element k of output i depends on each argument only through the element that broadcasting puts at k, so the block
    for output i and argument x is an array of the output's shape. An index is the name or position of an argument, or
    an output and an argument: `J["x"]`, `J[0]`, `J[i, "x"]`, `J[i, j]`. An output is given by its position among all
    outputs, or by its label: the fields and positions that lead to it, joined by dots, as in `J["price", "spot"]` and
    `J["greeks.delta", "spot"]`. If the function returns a tuple or another structure, an index without an output gives
    that structure of blocks.

    Notes
    -----
    A block that is the same number everywhere (such as a structural zero) is a read-only view of that one number.

    `np.asarray(J)` is one array, of shape `(*shape, arguments)` for a function that returns a number, and otherwise of
    shape `(*shape, outputs, arguments)`.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import differentiable_broadcast
    >>> @differentiable_broadcast
    ... def scaled(x, y):
    ...     return 3 * x * y
    >>> _, J = scaled.value_and_jacobian(np.array([1.0, 2.0]), np.array([10.0, 20.0]))
    >>> J["x"]
    array([30., 60.])
    >>> J.pushforward(np.array([1.0, 1.0]), np.array([0.0, 0.0]))
    array([30., 60.])
    >>> J.pullback(np.array([1.0, 1.0]))
    (array([30., 60.]), array([3., 6.]))
    >>> J.dense(0, "x")
    array([[30.,  0.],
           [ 0., 60.]])
    >>> J.stacked()  # the same as np.asarray(J), since the function returns a number
    array([[30.,  3.],
           [60.,  6.]])
    """

    _order, _keys = 1, "[argument] or [output, argument]"

    def __iter__(self) -> Iterator[str]:
        return iter(self.wrt)

    def __len__(self) -> int:
        return len(self.wrt)

    def pushforward(self, *tangents: Any) -> Any:
        """The tangents of the outputs for tangents of the arguments.

        Parameters
        ----------
        *tangents : array
            One for each argument in `wrt`, each of a shape that broadcasts to `shape`.

        Returns
        -------
        array, or structure of arrays
            One for each output, of shape `shape`, in the structure that the function returns.
        """
        if len(tangents) != len(self.wrt):
            raise ArgumentError(
                f"{len(self.wrt)} tangents are needed, for {', '.join(self.wrt)}; got {len(tangents)}{self._left_out()}"
            )
        for name, tangent in zip(self.wrt, tangents, strict=True):
            if not self._results.fits(tangent):
                shape = tuple(np.shape(tangent))
                raise ShapeError(f"the tangent of {name} has shape {shape}, which does not broadcast to {self.shape}")
        with beside(self._stored):
            results = [
                sum(self[output, name] * tangent for name, tangent in zip(self.wrt, tangents, strict=True))
                for output in range(self.outputs)
            ]
        return self.structure.pack(results)

    def pullback(self, *cotangents: Any) -> tuple[Any, ...]:
        """The cotangents of the arguments for cotangents of the outputs.

        Parameters
        ----------
        *cotangents : array
            One for each output, of shape `shape`; or one object with the structure that the function returns.

        Returns
        -------
        tuple of array
            One for each argument in `wrt`, of that argument's shape: summed along the axes where it was broadcast.
        """
        if len(cotangents) == 1 and self.structure.holds(cotangents[0]):
            cotangents = self.structure.flatten(cotangents[0], "the cotangent")
        if len(cotangents) != self.outputs:
            raise ArgumentError(f"{self.outputs} cotangents are needed, one for each output; got {len(cotangents)}")
        for cotangent in cotangents:
            if getattr(cotangent, "shape", ()) != self.shape:
                raise ShapeError(f"a cotangent must have the output's shape {self.shape}, not {np.shape(cotangent)}")
        results = []
        with beside(self._stored):
            for name, position in zip(self.wrt, self._results.positions, strict=True):
                total = sum(self[output, name] * cotangents[output] for output in range(self.outputs))
                results.append(self._results.summed(total, position))
        return tuple(results)

    def dense(self, output: int | str, argument: int | str) -> Any:
        """The block as a matrix of shape (elements of the output, elements of the argument), for small arrays."""
        block, shape = self[output, argument], self._results.shapes[self._argument(argument)]
        size = int(np.prod(shape, dtype=np.int64))
        columns = np.broadcast_to(np.arange(size).reshape(shape), self.shape).ravel()
        library = library_of(block)
        with beside((block,)):
            matrix = library.zeros((block.size, size), block.dtype)
            matrix[library.arange(block.size), library.asarray(columns)] = block.ravel()
        return matrix


def _is_index(key: Any) -> bool:
    return isinstance(key, int | np.integer) and not isinstance(key, bool)


def library_of(array: Any) -> Any:
    """NumPy or CuPy, whichever an array belongs to."""
    return np if isinstance(array, np.ndarray | np.generic) else sys.modules["cupy"]


def broadcasts_to(shape: Shape, whole: Shape) -> bool:
    """Whether an array of one shape can stand for one of the other."""
    extra = len(whole) - len(shape)
    return extra >= 0 and all(size in (1, length) for size, length in zip(shape, whole[extra:], strict=True))


def _sum_to(array: Any, shape: Shape) -> Any:
    """Sum over the axes along which an argument of `shape` was broadcast."""
    extra = array.ndim - len(shape)
    axes = (*range(extra), *(extra + axis for axis, size in enumerate(shape) if size == 1 != array.shape[extra + axis]))
    return array.sum(axis=axes).reshape(shape) if axes else array.reshape(shape)


class Hessian(Index):
    """∂²output/∂argument∂argument of an element-wise function, element by element.

    An index is two arguments by name or position, or an output and two arguments: `H["x", "y"]`, `H[0, 1]`,
    `H[i, "x", "y"]`. Blocks are arrays of the output's shape, and `H["x", "y"]` is `H["y", "x"]`. If the function
    returns a tuple or another structure, an index without an output gives that structure of blocks.

    Notes
    -----
    A block that is the same number everywhere (such as a structural zero) is a read-only view of that one number.

    `np.asarray(H)` is one array, of shape `(*shape, arguments, arguments)` for a function that returns a number, and
    otherwise of shape `(*shape, outputs, arguments, arguments)`.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import differentiable_broadcast
    >>> @differentiable_broadcast
    ... def f(x, y):
    ...     return x * x * y
    >>> H = f.hessian(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    >>> H["x", "y"]
    array([2., 4.])
    >>> H.stacked()[0]
    array([[6., 2.],
           [2., 0.]])
    """

    _order, _keys = 2, "[argument, argument] or [output, argument, argument]"
