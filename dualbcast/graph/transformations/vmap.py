"""`vmap`: a function of single examples becomes one of batches.

Comes in: a function of arrays. Goes out: a function of arrays with one more axis, which applies each operation to the
whole batch; `batching` says how.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dualbcast.errors import ArgumentError, ShapeError, a_or_an, entry_point
from dualbcast.graph import shapes
from dualbcast.graph.arrays import is_array, map_leaves
from dualbcast.graph.backward import check_results, name_of
from dualbcast.graph.batched import batched, is_at
from dualbcast.graph.frozen import thaw_on_failure
from dualbcast.graph.tape import STATE, next_serial, setting
from dualbcast.graph.transformations.arguments import check_callable
from dualbcast.graph.transformations.gradients import Level, named_like
from dualbcast.graph.variable import Variable


@entry_point
def vmap(function: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0) -> Callable[..., Any]:
    """A function of batches, from one of single examples, as `jax.vmap`.

    The function runs once. Each operation in it is applied to the whole batch: element-wise operations in the same
    kernels as without `vmap`, matrix products and decompositions as NumPy's of stacked matrices. A few operations, such
    as `convolve`, run for each element in turn.

    Parameters
    ----------
    function : callable
        It returns Variables, arrays, numbers, or a container of them.
    in_axes : int, None, or container of them
        The axis of the batch in each argument, or None where all elements share it; for an argument that is a
        container, one for all its arrays, or a container like it. Arguments by name have the batch along axis 0.
    out_axes : int, None, or container of them
        The axis of the batch in each array of the result; None for one that does not depend on the batch.

    Returns
    -------
    callable
        A function of the same arguments. Like other transformations it gives arrays for arrays, and Variables for
        Variables and inside other transformations.

    Raises
    ------
    ArgumentError
        Python reads a value, for example in a condition: it would be another one for each element.
    ShapeError
        The lengths of the batch differ.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> def loss(w, x, y):
    ...     return (np.tanh(x @ w) - y) ** 2
    >>> x, y = np.array([[0.0, 1.0], [2.0, 0.0], [1.0, 1.0]]), np.array([0.0, 1.0, 0.0])
    >>> graph.vmap(graph.grad(loss), in_axes=(None, 0, 0))(np.array([0.5, -0.5]), x, y).round(3)
    array([[-0.   , -0.727],
           [-0.4  , -0.   ],
           [ 0.   ,  0.   ]])
    """
    check_callable(function, "vmap")

    @thaw_on_failure()
    def mapped(*args: Any, **named: Any) -> Any:
        level = Level((args, named))
        if isinstance(in_axes, list | tuple) and len(in_axes) != len(args):
            raise ArgumentError(f"vmap: in_axes has {len(in_axes)} entries, and there are {len(args)} arguments")
        axes = tuple(in_axes) if isinstance(in_axes, list) else in_axes
        number, sizes = next_serial(), dict[str, int]()

        def single(path: str, leaf: Any, axis: int | None) -> Any:
            return leaf if axis is None else batched(_front(path, leaf, axis, sizes), number)

        own, own_named = _with_axes(single, args, axes, "arguments"), _with_axes(single, named, 0, "arguments")
        if not sizes:
            raise ArgumentError("vmap: in_axes gives no array an axis, so there is no batch")
        if len({*sizes.values()}) > 1:
            lengths = ", ".join(f"{size} in {path}" for path, size in sizes.items())
            raise ShapeError(f"vmap: the lengths of the batch differ: {lengths}")
        size = next(iter(sizes.values()))
        with setting(batches=(*STATE.batches, (number, size)), depth=STATE.depth + 1):
            result = function(*own, **own_named)
        check_results(result, name_of(function))

        def whole(path: str, leaf: Any, axis: int | None) -> Any:
            if axis is None and is_at(leaf, number):
                raise ArgumentError(f"vmap: {path} depends on the batch, and out_axes is None for it")
            if axis is not None and not isinstance(leaf, str | bytes):
                front = leaf.inner if is_at(leaf, number) else shapes.broadcast_to(leaf, (size, *np.shape(leaf)))
                leaf = shapes.moveaxis(front, 0, axis)
            return level.result(leaf, set()) if isinstance(leaf, Variable) else leaf

        return _with_axes(whole, result, out_axes, "result")

    return named_like(mapped, "vmap", function)


def _front(path: str, leaf: Any, axis: int, sizes: dict[str, int]) -> Variable:
    """An array of the arguments with its batch in front; its length is noted."""
    if not (isinstance(leaf, Variable) or is_array(leaf)) or not -leaf.ndim <= axis < leaf.ndim:
        shape = f"an array of shape {leaf.shape}" if hasattr(leaf, "shape") else a_or_an(type(leaf).__name__)
        raise ShapeError(f"vmap: there is no axis {axis} in {path}, which is {shape}; in_axes=None is for shared ones")
    sizes[path] = leaf.shape[axis]
    return shapes.moveaxis(leaf, axis, 0)


def _with_axes(function: Callable[..., Any], tree: Any, axes: Any, path: str) -> Any:
    """A container like `tree` with `function(path, leaf, axis)` in the place of each leaf."""
    if axes is None or isinstance(axes, int | np.integer):
        return map_leaves(lambda own, leaf: function(own, leaf, axes), tree, path)
    if isinstance(tree, dict) and isinstance(axes, dict) and tree.keys() == axes.keys():
        return {key: _with_axes(function, tree[key], axes[key], f"{path}[{key!r}]") for key in tree}
    if isinstance(tree, list | tuple) and isinstance(axes, list | tuple) and len(tree) == len(axes):
        pairs = enumerate(zip(tree, axes, strict=True))
        parts = [_with_axes(function, part, axis, f"{path}[{at}]") for at, (part, axis) in pairs]
        return tuple.__new__(type(tree), parts) if isinstance(tree, tuple) else parts
    raise ArgumentError(f"vmap: the axes {axes!r} are not like {path}, which is {a_or_an(type(tree).__name__)}")
