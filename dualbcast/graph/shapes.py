"""Operations that move elements about and leave them as they are: reshape, transpose, broadcast, join and split."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from typing import Any

from dualbcast.errors import ArgumentError, ShapeError
from dualbcast.graph.tape import IndexingError, Node, Primitive, Pulled, constant, namespace, run
from dualbcast.graph.variable import Variable

__all__ = [
    "broadcast_arrays",
    "broadcast_to",
    "concat",
    "expand_dims",
    "flip",
    "matrix_transpose",
    "moveaxis",
    "permute_dims",
    "repeat",
    "reshape",
    "roll",
    "split",
    "squeeze",
    "stack",
    "swapaxes",
    "tile",
    "transpose",
    "unstack",
]

Cotangents = tuple[Variable | None, ...]


def lengths_of(shape: int | Sequence[int]) -> tuple[int, ...]:
    """A shape, which may be given as its only length."""
    # NumPy's integers are no ints, and have no length either.
    if isinstance(shape, tuple) or isinstance(shape, Sequence):  # noqa: SIM101 (the second question takes long)
        return tuple(map(operator.index, shape))
    return (operator.index(shape),)


def axis_of(axis: Any, ndim: int, name: str) -> int:
    """An axis counted from the front."""
    position = operator.index(axis)
    if not -ndim <= position < ndim:
        raise IndexingError(f"{name}: there is no axis {position} in an array of {ndim} dimensions")
    return position % ndim


def axes_of(axis: Any, ndim: int, name: str) -> tuple[int, ...]:
    """The axes that an argument `axis` means, each once; None means all."""
    if axis is None:
        return tuple(range(ndim))
    found = [axis_of(each, ndim, name) for each in (axis if isinstance(axis, tuple | list) else (axis,))]
    if len(set(found)) != len(found):
        raise ShapeError(f"{name}: axis={axis} names an axis twice")
    return tuple(found)


# --- one array --------------------------------------------------------------------------------------------------------


def _pull_reshape(node: Node, cotangents: Cotangents, wanted: tuple[bool, ...]) -> Pulled:  # noqa: ARG001
    return (reshape(_given(cotangents), node.inputs[0].shape),)


def _pull_permute(node: Node, cotangents: Cotangents, wanted: tuple[bool, ...]) -> Pulled:  # noqa: ARG001
    axes = node.static["axes"]
    return (permute_dims(_given(cotangents), tuple(sorted(range(len(axes)), key=axes.__getitem__))),)


def _pull_broadcast(node: Node, cotangents: Cotangents, wanted: tuple[bool, ...]) -> Pulled:  # noqa: ARG001
    return (elementwise.sum_to(_given(cotangents), node.inputs[0].shape),)


_RESHAPE = Primitive("reshape", lambda array, shape: array.reshape(shape), _pull_reshape)
_PERMUTE = Primitive("permute_dims", lambda array, axes: array.transpose(axes), _pull_permute)
_BROADCAST = Primitive(
    "broadcast_to", lambda array, shape: namespace(array).broadcast_to(array, shape), _pull_broadcast
)


def _given(cotangents: Cotangents) -> Variable:
    """The cotangent of the only output; a node is not asked where it is None."""
    assert cotangents[0] is not None
    return cotangents[0]


def reshape(x: Any, shape: int | Sequence[int]) -> Variable:
    """The elements of `x` in the same order in another shape; one length may be -1."""
    made, lengths = constant(x), lengths_of(shape)
    if lengths != made.shape:
        made = run(_RESHAPE, (made,), shape=lengths)
    return made


def permute_dims(x: Any, axes: Sequence[int]) -> Variable:
    """`x` with its axes in another order."""
    x = constant(x)
    order = axes_of(tuple(axes), x.ndim, "permute_dims")
    if len(order) != x.ndim:
        raise ShapeError(f"permute_dims: axes={tuple(axes)} does not name the {x.ndim} axes of an array of {x.shape}")
    made: Variable = run(_PERMUTE, (x,), axes=order)
    return made


def transpose(x: Any, axes: Sequence[int] | None = None) -> Variable:
    """`x` with its axes in another order, by default in reverse: `numpy.transpose`."""
    x = constant(x)
    return permute_dims(x, tuple(range(x.ndim))[::-1] if axes is None else axes)


def matrix_transpose(x: Any) -> Variable:
    """The transposes of the matrices in the last two axes."""
    x = constant(x)
    if x.ndim < 2:
        raise ShapeError(f"matrix_transpose needs two dimensions, and has shape {x.shape}")
    return swapaxes(x, -2, -1)


def swapaxes(x: Any, axis1: int, axis2: int) -> Variable:
    """`x` with two axes exchanged."""
    x = constant(x)
    order = list(range(x.ndim))
    first, second = axis_of(axis1, x.ndim, "swapaxes"), axis_of(axis2, x.ndim, "swapaxes")
    order[first], order[second] = second, first
    return permute_dims(x, order)


def moveaxis(x: Any, source: int | Sequence[int], destination: int | Sequence[int]) -> Variable:
    """`x` with some axes at other positions, and the rest in their order."""
    x = constant(x)
    start, end = axes_of(source, x.ndim, "moveaxis"), axes_of(destination, x.ndim, "moveaxis")
    if len(start) != len(end):
        raise ShapeError(f"moveaxis: source={source} and destination={destination} are not of the same length")
    order = [axis for axis in range(x.ndim) if axis not in start]
    for target, axis in sorted(zip(end, start, strict=True)):
        order.insert(target, axis)
    return permute_dims(x, order)


def expand_dims(x: Any, axis: int | Sequence[int] = 0) -> Variable:
    """`x` with axes of length 1 at these positions of the result."""
    x = constant(x)
    count = 1 if not isinstance(axis, tuple | list) else len(axis)
    new = axes_of(axis, x.ndim + count, "expand_dims")
    lengths = iter(x.shape)
    return reshape(x, tuple(1 if at in new else next(lengths) for at in range(x.ndim + count)))


def squeeze(x: Any, axis: int | Sequence[int] | None = None) -> Variable:
    """`x` without these axes, which must be of length 1; by default without all that are."""
    x = constant(x)
    gone = [at for at, size in enumerate(x.shape) if size == 1] if axis is None else axes_of(axis, x.ndim, "squeeze")
    if any(x.shape[at] != 1 for at in gone):
        raise ShapeError(f"squeeze: axis={axis} of an array of shape {x.shape} is not of length 1")
    return reshape(x, tuple(size for at, size in enumerate(x.shape) if at not in gone))


def broadcast_to(x: Any, shape: int | Sequence[int]) -> Variable:
    """`x` broadcast to a shape."""
    made, lengths = constant(x), lengths_of(shape)
    if lengths != made.shape:
        made = run(_BROADCAST, (made,), shape=lengths)
    return made


def broadcast_arrays(*arrays: Any) -> tuple[Variable, ...]:
    """All arrays broadcast to their common shape."""
    inputs = [constant(each) for each in arrays]
    shape = namespace(*inputs).broadcast_shapes(*(each.shape for each in inputs))
    return tuple(broadcast_to(each, shape) for each in inputs)


def flip(x: Any, axis: int | Sequence[int] | None = None) -> Variable:
    """`x` in reverse order along these axes, by default all."""
    x = constant(x)
    turned = axes_of(axis, x.ndim, "flip")
    made: Variable = x[tuple(slice(None, None, -1) if at in turned else slice(None) for at in range(x.ndim))]
    return made


def roll(x: Any, shift: int, axis: int | None = None) -> Variable:
    """`x` with its elements moved along an axis, those that leave at one end coming in at the other."""
    x = constant(x)
    if axis is None:
        return reshape(roll(reshape(x, (-1,)), shift, 0), x.shape)
    at = axis_of(axis, x.ndim, "roll")
    start = -shift % (x.shape[at] or 1)
    before = (slice(None),) * at
    return concat([x[(*before, slice(start, None))], x[(*before, slice(None, start))]], axis=at)


def repeat(x: Any, repeats: int, axis: int | None = None) -> Variable:
    """`x` with each element repeated along an axis; by default along the only axis of the flattened array."""
    x = constant(x)
    if axis is None:
        return repeat(reshape(x, (-1,)), repeats, 0)
    at = axis_of(axis, x.ndim, "repeat")
    shape = (*x.shape[: at + 1], operator.index(repeats), *x.shape[at + 1 :])
    result = (*x.shape[:at], x.shape[at] * shape[at + 1], *x.shape[at + 1 :])
    return reshape(broadcast_to(expand_dims(x, at + 1), shape), result)


def tile(x: Any, repetitions: int | Sequence[int]) -> Variable:
    """`x` laid out again and again along its axes."""
    x = constant(x)
    times = lengths_of(repetitions)
    ndim = max(len(times), x.ndim)
    times = (1,) * (ndim - len(times)) + times
    lengths = (1,) * (ndim - x.ndim) + x.shape
    apart = reshape(x, tuple(size for length in lengths for size in (1, length)))
    spread = broadcast_to(apart, tuple(size for pair in zip(times, lengths, strict=True) for size in pair))
    return reshape(spread, tuple(map(operator.mul, times, lengths)))


# --- many arrays ------------------------------------------------------------------------------------------------------


def _concatenate(*arrays: Any, axis: int) -> Any:
    return namespace(*arrays).concatenate(arrays, axis=axis)


def _pull_concat(node: Node, cotangents: Cotangents, wanted: tuple[bool, ...]) -> Pulled:
    axis = node.static["axis"]
    parts = _cut(_given(cotangents), tuple(each.shape[axis] for each in node.inputs), axis)
    return [part if is_wanted else None for part, is_wanted in zip(parts, wanted, strict=True)]


def _split(array: Any, sizes: tuple[int, ...], axis: int) -> tuple[Any, ...]:
    found, start = [], 0
    for size in sizes:
        found.append(array[(slice(None),) * axis + (slice(start, start + size),)])
        start += size
    return tuple(found)


def _pull_split(node: Node, cotangents: Cotangents, wanted: tuple[bool, ...]) -> Pulled:  # noqa: ARG001
    axis, xp, (shape, dtype) = (
        node.static["axis"],
        namespace(*node.inputs),
        (node.inputs[0].shape, node.inputs[0].dtype),
    )
    parts = []
    for part, size in zip(cotangents, node.static["sizes"], strict=True):
        missing = (*shape[:axis], size, *shape[axis + 1 :])
        parts.append(part if part is not None else Variable._of(xp.zeros(missing, dtype=dtype), False))
    return (concat(parts, axis=axis),)


_CONCAT = Primitive("concat", _concatenate, _pull_concat)
_SPLIT = Primitive("split", _split, _pull_split, multiple=True)


def concat(arrays: Sequence[Any], axis: int | None = 0) -> Variable:
    """Arrays one after the other along an axis; with `axis=None` after they are flattened."""
    inputs = [constant(each) for each in arrays]
    if not inputs:
        raise ArgumentError("concat needs one array at least")
    if axis is None:
        inputs, axis = [reshape(each, (-1,)) for each in inputs], 0
    made: Variable = run(_CONCAT, tuple(inputs), axis=axis_of(axis, inputs[0].ndim, "concat"))
    return made


def stack(arrays: Sequence[Any], axis: int = 0) -> Variable:
    """Arrays of one shape side by side along a new axis."""
    inputs = [constant(each) for each in arrays]
    if not inputs:
        raise ArgumentError("stack needs one array at least")
    at = axis_of(axis, inputs[0].ndim + 1, "stack")
    if any(each.shape != inputs[0].shape for each in inputs):
        raise ShapeError(f"stack: the shapes differ: {', '.join(str(each.shape) for each in inputs)}")
    return concat([expand_dims(each, at) for each in inputs], axis=at)


def split(x: Any, indices_or_sections: int | Sequence[int], axis: int = 0) -> tuple[Variable, ...]:
    """The parts of `x` along an axis: so many of equal length, or cut before these positions: `numpy.split`."""
    x = constant(x)
    at = axis_of(axis, x.ndim, "split")
    length = x.shape[at]
    if isinstance(indices_or_sections, int):
        if indices_or_sections < 1 or length % indices_or_sections:
            raise ShapeError(f"split: an axis of length {length} cannot be cut into {indices_or_sections} equal parts")
        return _cut(x, (length // indices_or_sections,) * indices_or_sections, at)
    cuts = [slice(None, operator.index(each)).indices(length)[1] for each in indices_or_sections]
    ends = [0, *cuts, length]
    if ends == sorted(ends):
        return _cut(x, tuple(end - start for start, end in itertools.pairwise(ends)), at)
    # Parts may be empty, and overlap.
    return tuple(x[(slice(None),) * at + (slice(*pair),)] for pair in itertools.pairwise(ends))


def _cut(x: Variable, sizes: tuple[int, ...], axis: int) -> tuple[Variable, ...]:
    made: tuple[Variable, ...] = run(_SPLIT, (x,), sizes=sizes, axis=axis)
    return made


def unstack(x: Any, axis: int = 0) -> tuple[Variable, ...]:
    """The parts of `x` along an axis, without that axis."""
    x = constant(x)
    at = axis_of(axis, x.ndim, "unstack")
    return tuple(squeeze(part, at) for part in _cut(x, (1,) * x.shape[at], at))


def size_of(shape: Sequence[int], axes: Sequence[int]) -> int:
    """How many elements there are along these axes together."""
    return math.prod(shape[axis] for axis in axes)


# At the end, because it works on Variables by way of this module.
import dualbcast.graph.elementwise as elementwise  # noqa: E402
