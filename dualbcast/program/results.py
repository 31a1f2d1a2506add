"""Jacobians and Hessians: the derivatives of a call, with a block, an array, for each output and each argument or pair
of arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np

from dualbcast.errors import ArgumentError, ShapeError
from dualbcast.program import matrices
from dualbcast.program.blocks import Index, identifier
from dualbcast.program.outputs import Results, cotangents_of, library_of
from dualbcast.runtime.arguments import beside


class Jacobian(Index, Mapping[str, Any]):
    """∂output/∂argument of an element-wise function, element by element: a mapping from arguments to blocks.

    Element k of output i depends on each argument only through the element that broadcasting puts at k, so the block
    for output i and argument x is an array of the output's shape. An index is the name or position of an argument, or
    an output and an argument: `J["x"]`, `J[0]`, `J[i, "x"]`, `J[i, j]`. An output is given by its position among all
    outputs, or by its label: the fields and positions that lead to it, joined by dots, as in `J["price", "spot"]` and
    `J["greeks.delta", "spot"]`. If the function returns a tuple or another structure, an index without an output gives
    that structure of blocks. A key that it has no block for raises an error that is a `KeyError` and an
    `ArgumentError`.

    Notes
    -----
    A block that is the same number everywhere (such as a structural zero) is a read-only view of that one number.

    As a mapping it has the names of the arguments as keys. Two Jacobians are equal if they have the same arguments,
    outputs and shape, and equal numbers in all blocks; NaN is equal to nothing.

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
    # The matrix whose parts the stored blocks are, if they are parts of one.
    _matrix: Any = None

    @classmethod
    def _of(cls, results: Results, outputs: Sequence[Any]) -> Self:
        """The first partial derivatives among the outputs of a kernel."""
        return cls(results, outputs[results.first_partials])

    def __iter__(self) -> Iterator[str]:
        return iter(self.wrt)

    def __len__(self) -> int:
        return len(self.wrt)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and identifier(key) in self.wrt

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Jacobian):
            return NotImplemented
        ours, theirs = ((each.wrt, each.labels, each.shape) for each in (self, other))
        return ours == theirs and bool((self.matrix() == other.matrix()).all())

    __hash__ = None  # type: ignore[assignment]

    def __getstate__(self) -> dict[str, Any]:
        # The blocks of a copy are arrays of their own.
        return {**vars(self), "_matrix": None}

    def matrix(self) -> Any:
        """The blocks as one matrix, with a row for each element of each output, and a column for each argument.

        The rows are in the order of `np.ravel(value)`: the elements of the first output, then those of the second. If
        all arguments in `wrt` are numbers, it is the matrix of derivatives that SciPy's solvers want.

        Returns
        -------
        array of shape (outputs * elements, arguments)
            In Fortran order. After `value_and_jacobian(…, out="matrix")` it is the array that the kernel wrote: no copy
            is made, and the blocks are parts of it.

        Examples
        --------
        >>> import numpy as np
        >>> from dualbcast import differentiable_broadcast
        >>> line = differentiable_broadcast(lambda t, slope, offset: slope * t + offset)
        >>> value, J = line.value_and_jacobian(np.array([1.0, 2.0]), 3.0, 0.5, wrt=("slope", "offset"), out="matrix")
        >>> J.matrix()
        array([[1., 1.],
               [2., 1.]])
        >>> J @ [10.0, 1.0]
        array([11., 21.])
        """
        if self._matrix is not None:
            return self._matrix
        with beside(self._stored):
            return self._results.matrix(self._stored)

    @property
    def T(self) -> Any:  # noqa: N802 (NumPy's name)
        """The transpose of `matrix()`."""
        return self.matrix().T

    def __matmul__(self, tangents: Any) -> Any:
        """`matrix() @ tangents`: the change of all outputs for a tangent of each argument, the same in all elements."""
        shape = np.shape(tangents)
        if len(shape) not in (1, 2) or shape[0] != len(self.wrt):
            count = len(self.wrt)
            raise ShapeError(
                f"J @ v takes a number for each of the arguments ({', '.join(self.wrt)}): v has shape ({count},) or "
                f"({count}, k), not {shape}; J.pushforward takes tangents that differ from element to element"
            )
        return self.matrix() @ tangents

    def sparse(self) -> Any:
        """All elements of the outputs differentiated in all elements of the arguments, as a sparse matrix of SciPy's.

        Returns
        -------
        scipy.sparse.csr_array of shape (outputs * elements, elements of all arguments in `wrt`)
            The rows are as in `matrix`. The columns are the elements of the first argument, then those of the second,
            and so on. Blocks that are 0 everywhere have no entries.

        Raises
        ------
        MissingDependencyError
            SciPy is not installed.
        ArgumentError
            The arrays of the call were not NumPy's.

        Examples
        --------
        >>> import numpy as np
        >>> from dualbcast import differentiable_broadcast
        >>> scaled = differentiable_broadcast(lambda x, scale: scale * x)
        >>> scaled.jacobian(np.array([1.0, 2.0, 3.0]), 10.0).sparse().toarray()
        array([[10.,  0.,  0.,  1.],
               [ 0., 10.,  0.,  2.],
               [ 0.,  0., 10.,  3.]])
        """
        self._check_on_host()
        return matrices.sparse(self._results, self._block)

    def linear_operator(self) -> Any:
        """The matrix that `sparse` returns as a `scipy.sparse.linalg.LinearOperator`, which multiplies by the blocks.

        Examples
        --------
        >>> import numpy as np
        >>> from dualbcast import differentiable_broadcast
        >>> scaled = differentiable_broadcast(lambda x, scale: scale * x)
        >>> J = scaled.jacobian(np.array([1.0, 2.0, 3.0]), 10.0).linear_operator()
        >>> J.matvec(np.array([1.0, 0.0, 0.0, 1.0]))
        array([11.,  2.,  3.])
        >>> J.rmatvec(np.ones(3))
        array([10., 10., 10.,  6.])
        """
        self._check_on_host()
        return matrices.linear_operator(self._results, self.pushforward, self.pullback)

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

        Raises
        ------
        ArgumentError, ShapeError
            The tangents are too few or too many, or one does not broadcast to `shape`.
        """
        if len(tangents) != len(self.wrt):
            raise ArgumentError(
                f"{len(self.wrt)} tangents are needed, for {', '.join(self.wrt)}; got {len(tangents)}{self._left_out()}"
            )
        for name, tangent in zip(self.wrt, tangents, strict=True):
            self._results.require_own_library(tangent, f"the tangent of {name}")
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

        Raises
        ------
        ArgumentError, ShapeError
            The cotangents are too few or too many, or one is not of shape `shape`.
        """
        cotangents = cotangents_of(cotangents, self.structure)
        for cotangent in cotangents:
            self._results.require_own_library(cotangent, "a cotangent")
            if getattr(cotangent, "shape", ()) != self.shape:
                raise ShapeError(f"a cotangent must have the output's shape {self.shape}, not {np.shape(cotangent)}")
        results = []
        with beside(self._stored):
            for name, position in zip(self.wrt, self._results.positions, strict=True):
                total = sum(self[output, name] * cotangents[output] for output in range(self.outputs))
                results.append(self._results.summed(total, position))
        return tuple(results)

    def dense(self, output: int | str, argument: int | str) -> Any:
        """The block as a full matrix, for small arrays.

        Parameters
        ----------
        output, argument : int or str
            As in an index of the Jacobian.

        Returns
        -------
        array of shape (elements of the output, elements of the argument)
            It is zero where an element of the output does not depend on one of the argument.

        Raises
        ------
        BlockKeyError
            There is no such block.
        ArgumentError
            The arrays of the call were neither NumPy's nor CuPy's.
        """
        block, shape = self[output, argument], self._results.shapes[self._argument(argument)]
        size = int(np.prod(shape, dtype=np.int64))
        columns = np.broadcast_to(np.arange(size).reshape(shape), self.shape).ravel()
        library = library_of(block)
        with beside((block,)):
            matrix = library.zeros((block.size, size), block.dtype)
            matrix[library.arange(block.size), library.asarray(columns)] = block.ravel()
        return matrix


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

    @classmethod
    def _of(cls, results: Results, outputs: Sequence[Any]) -> Self:
        """The second partial derivatives among the outputs of a kernel."""
        return cls(results, results.second_partials(outputs))
