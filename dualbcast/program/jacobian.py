"""The Jacobian and the Hessian of a broadcast: a block, an array, for each output and each argument or pair of them."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from dualbcast.errors import ArgumentError, ShapeError
from dualbcast.ir.nodes import NUMBER, Structure
from dualbcast.runtime.arguments import beside


class Frame(NamedTuple):
    """A Jacobian or a Hessian without its arrays: the part that all calls of one form share.

    Attributes
    ----------
    wrt, structure, shape
        See `Jacobian`.
    shapes : dict
        The shapes of the arguments in `wrt`, by name.
    places : tuple
        For each block: its key, the position of its array among those that a kernel wrote (None if it has none), and
        otherwise the number that the whole block is.
    dtype : numpy.dtype
        Of blocks that are one number.
    module : str
        "numpy" or "cupy".
    others : dict
        For each argument or captured array that is not in `wrt`, by name, the reason why it is not.
    """

    wrt: tuple[str, ...]
    structure: Structure
    shape: tuple[int, ...]
    shapes: dict[str, tuple[int, ...]]
    places: tuple[tuple[Any, int | None, float], ...]
    dtype: np.dtype[Any]
    module: str
    others: dict[str, str]


class Index:
    """How the blocks of derivatives are asked for: by output, which is a position or a label, and by argument."""

    def __init__(self, frame: Frame, stored: Sequence[Any]) -> None:
        # `stored` are the arrays that a kernel wrote, in its order. With `out=` it writes to them again.
        self._frame, self._stored = frame, stored

    @functools.cached_property
    def _blocks(self) -> dict[Any, Any]:
        """The blocks by their keys."""
        frame = self._frame
        with beside(self._stored):
            return {
                key: everywhere(number, frame.dtype, frame.shape, frame.module) if at is None else self._stored[at]
                for key, at, number in frame.places
            }

    @property
    def wrt(self) -> tuple[str, ...]:
        """The arguments that were differentiated in."""
        return self._frame.wrt

    @property
    def structure(self) -> Structure:
        """The structure that the function returns."""
        return self._frame.structure

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of each block, which is the result's."""
        return self._frame.shape

    @property
    def outputs(self) -> int:
        """How many outputs the function has."""
        return self.structure.count

    @property
    def labels(self) -> tuple[str, ...]:
        """The outputs' names, where the function names them."""
        return self.structure.labels()

    def stacked(self, output: int | str = 0) -> Any:
        """The blocks of one output as one array, with the arguments in the last axes."""
        raise NotImplementedError

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """All blocks as one array: as `stacked`, with an axis for the outputs before that for the arguments."""
        if self._frame.module != "numpy":
            kind = type(self).__name__
            raise ArgumentError(
                f"the blocks of this {kind} are on a GPU; write cupy.asnumpy(….stacked()) to fetch them"
            )
        if copy is False:
            raise ValueError("blocks are arrays of their own, so that one array of all is a copy; leave out copy=False")
        if self.structure == NUMBER:
            return np.asarray(self.stacked(), dtype)
        every_output = [self.stacked(output) for output in range(self.outputs)]
        return np.asarray(np.stack(every_output, axis=len(self.shape)), dtype)

    def _counted(self) -> str:
        return f"{self.outputs} output{'s' * (self.outputs != 1)}"

    def _output(self, key: Any) -> int:
        if isinstance(key, str) and key and key in self.labels:
            return self.labels.index(key)
        if not _is_index(key) or not -self.outputs <= key < self.outputs:
            labels = ", ".join(filter(None, self.labels))
            raise ArgumentError(
                f"there is no output {key!r}; the function has {self.outputs}{labels and ': ' + labels}"
            )
        return int(key) % self.outputs

    def _argument(self, key: Any) -> str:
        if _is_index(key) and -len(self.wrt) <= key < len(self.wrt):
            return self.wrt[int(key)]
        if isinstance(key, str) and key in self.wrt:
            return key
        others = self._frame.others
        reason = f": {others[key]}" if isinstance(key, str) and key in others else ""
        if not isinstance(key, str):
            reason = self._left_out()
        raise ArgumentError(f"this {type(self).__name__} is in ({', '.join(self.wrt)}), not in {key!r}{reason}")

    def _left_out(self) -> str:
        """Why the other arguments are not in `wrt`, as the end of a sentence."""
        return "".join(f"; {reason}" for reason in self._frame.others.values())


class Jacobian(Index):
    """∂output/∂argument of an element-wise function, element by element.

    Element k of output i depends on each argument only through the element that broadcasting puts at k, so the block
    for output i and argument x is an array of the output's shape. Index by argument name or position, with the output
    first where there are several: `J["x"]`, `J[0]`, `J[i, "x"]`, `J[i, j]`. An output is its position among all
    outputs, or a label: the names of fields and the positions that lead to it, joined by dots, as in
    `J["price", "spot"]` and `J["greeks.delta", "spot"]`. Without an output, a function that returns a tuple, or any
    other structure, gives that structure of blocks.

    Attributes
    ----------
    wrt : tuple of str
        The arguments that were differentiated in.
    outputs : int
        How many outputs the function has.
    labels : tuple of str
        One for each output; "" where the function returns a number.
    shape : tuple of int
        The shape of each block, which is the result's.
    structure : Structure
        The structure that the function returns.

    Notes
    -----
    A block that is the same number everywhere (such as a structural zero) is a read-only view of that one number.

    `np.asarray(J)` is one array, of shape (*shape, arguments) for a function that returns a number, and otherwise of
    shape (*shape, outputs, arguments).

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
    >>> np.asarray(J)
    array([[30.,  3.],
           [60.,  6.]])
    """

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, tuple):
            if len(key) != 2:
                raise ArgumentError(f"a Jacobian is indexed by [output, argument], not by {key!r}")
            return self._blocks[self._output(key[0]), self._argument(key[1])]
        name = self._argument(key)
        return self.structure.pack([self._blocks[output, name] for output in range(self.outputs)])

    def __iter__(self) -> Iterator[str]:
        return iter(self.wrt)

    def __len__(self) -> int:
        return len(self.wrt)

    def __repr__(self) -> str:
        return f"<Jacobian of {self._counted()} in ({', '.join(self.wrt)}), shape {self.shape}>"

    def stacked(self, output: int | str = 0) -> Any:
        """The blocks of one output as one array of shape (*shape, n), for n arguments in `wrt`."""
        which = self._output(output)
        if not self.wrt:
            return np.empty((*self.shape, 0))
        blocks = [self._blocks[which, name] for name in self.wrt]
        with beside(self._stored):
            return library_of(blocks[0]).stack(blocks, axis=-1)

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
            shape = np.shape(tangent)
            if not broadcasts_to(shape, self.shape):
                raise ShapeError(f"the tangent of {name} has shape {shape}, which does not broadcast to {self.shape}")
        with beside(self._stored):
            results = [
                sum(self._blocks[output, name] * tangent for name, tangent in zip(self.wrt, tangents, strict=True))
                for output in range(self.outputs)
            ]
        return self.structure.pack(results)

    def pullback(self, *cotangents: Any) -> tuple[Any, ...]:
        """The cotangents of the arguments for cotangents of the outputs.

        Parameters
        ----------
        *cotangents : array
            One for each output, of shape `shape`; or one object such as the function returns, with them in it.

        Returns
        -------
        tuple of array
            One for each argument in `wrt`, of that argument's shape: summed where it was broadcast.
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
            for name in self.wrt:
                total = sum(self._blocks[output, name] * cotangents[output] for output in range(self.outputs))
                results.append(_sum_to(total, self._frame.shapes[name]))
        return tuple(results)

    def dense(self, output: int | str, argument: int | str) -> Any:
        """The block as a matrix of shape (elements of the output, elements of the argument). For small arrays."""
        name = self._argument(argument)
        block = self._blocks[self._output(output), name]
        shape = self._frame.shapes[name]
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


def everywhere(number: float, dtype: np.dtype[Any], shape: tuple[int, ...], module: str = "numpy") -> Any:
    """A read-only array of one number."""
    library: Any = np if module == "numpy" else sys.modules["cupy"]
    return library.broadcast_to(library.asarray(number, dtype), shape)


def broadcasts_to(shape: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    """Whether an array of one shape can stand for one of the other."""
    extra = len(whole) - len(shape)
    return extra >= 0 and all(size in (1, length) for size, length in zip(shape, whole[extra:], strict=True))


def _sum_to(array: Any, shape: tuple[int, ...]) -> Any:
    """Sum over the axes along which an argument of `shape` was broadcast."""
    extra = array.ndim - len(shape)
    axes = (*range(extra), *(extra + axis for axis, size in enumerate(shape) if size == 1 != array.shape[extra + axis]))
    return array.sum(axis=axes).reshape(shape) if axes else array.reshape(shape)


class Hessian(Index):
    """∂²output/∂argument∂argument of an element-wise function, element by element.

    Index by two arguments, by name or position, with the output first where there are several: `H["x", "y"]`,
    `H[0, 1]`, `H[i, "x", "y"]`. Blocks are arrays of the output's shape, and `H["x", "y"]` is `H["y", "x"]`. Without an
    output, a function that returns a tuple, or any other structure, gives that structure of blocks.

    Attributes
    ----------
    wrt : tuple of str
        The arguments that were differentiated in.
    labels : tuple of str
        One for each output; "" where the function returns a number.
    shape : tuple of int
        The shape of each block, which is the result's.
    structure : Structure
        The structure that the function returns.

    Notes
    -----
    A block that is the same number everywhere (such as a structural zero) is a read-only view of that one number.

    `np.asarray(H)` is one array, of shape (*shape, arguments, arguments) for a function that returns a number, and
    otherwise of shape (*shape, outputs, arguments, arguments).

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

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, tuple) or len(key) not in (2, 3):
            raise ArgumentError(
                f"a Hessian is indexed by [argument, argument] or [output, argument, argument], not {key!r}"
            )
        first, second = map(self._argument, key[-2:])
        if self.wrt.index(first) > self.wrt.index(second):
            first, second = second, first
        if len(key) == 3:
            return self._blocks[self._output(key[0]), first, second]
        return self.structure.pack([self._blocks[output, first, second] for output in range(self.outputs)])

    def __repr__(self) -> str:
        return f"<Hessian of {self._counted()} in ({', '.join(self.wrt)}), shape {self.shape}>"

    def stacked(self, output: int | str = 0) -> Any:
        """The blocks of one output as one array of shape (*shape, n, n), for n arguments in `wrt`."""
        which = self._output(output)
        if not self.wrt:
            return np.empty((*self.shape, 0, 0))
        rows = [[self[which, first, second] for second in self.wrt] for first in self.wrt]
        library = library_of(rows[0][0])
        with beside(self._stored):
            return library.stack([library.stack(row, axis=-1) for row in rows], axis=-2)
