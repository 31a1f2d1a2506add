"""The Hessian of a broadcast: one block, an array, for each output and each pair of arguments."""

from __future__ import annotations

from typing import Any

import numpy as np

from dualbcast.errors import ArgumentError
from dualbcast.program.jacobian import Index, library_of
from dualbcast.runtime.cuda.memory import beside

__all__ = ["Hessian"]


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
