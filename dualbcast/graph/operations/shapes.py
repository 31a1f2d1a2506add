"""Operations that move elements about and leave them as they are: transpose, flip, repeat, join and split.

Comes in: Variables or arrays. Goes out: Variables of the same elements in another order, or some of them.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import Any

from dualbcast.errors import ArgumentError, ShapeError
from dualbcast.graph.arrays import namespace
from dualbcast.graph.operations.broadcasting import as_shape, axes_of, axis_of, broadcast_to, reshape
from dualbcast.graph.primitives import constant, run, run_multiple
from dualbcast.graph.tape import Cotangents, Node, Primitive, unary
from dualbcast.graph.variable import Variable, registered

# --- one array --------------------------------------------------------------------------------------------------------


def _pullback_of_permute(node: Node, cotangent: Variable) -> Variable:
    axes = node.static["axes"]
    return permute_dims(cotangent, tuple(sorted(range(len(axes)), key=axes.__getitem__)))


_PERMUTE = unary("permute_dims", lambda array, axes: array.transpose(axes), _pullback_of_permute)


@registered
def permute_dims(x: Any, axes: Sequence[int]) -> Variable:
    """`x` with its axes in another order."""
    x = constant(x)
    order = axes_of(tuple(axes), x.ndim, "permute_dims")
    if len(order) != x.ndim:
        raise ShapeError(f"permute_dims: axes={tuple(axes)} does not name the {x.ndim} axes of an array of {x.shape}")
    return run(_PERMUTE, (x,), axes=order)


def transpose(x: Any, axes: Sequence[int] | None = None) -> Variable:
    """`x` with its axes in another order, by default in reverse: `numpy.transpose`."""
    x = constant(x)
    return permute_dims(x, tuple(range(x.ndim))[::-1] if axes is None else axes)


@registered
def matrix_transpose(x: Any) -> Variable:
    """The transposes of the matrices in the last two axes."""
    x = constant(x)
    if x.ndim < 2:
        raise ShapeError(f"matrix_transpose needs two dimensions, and has shape {x.shape}")
    return swapaxes(x, -2, -1)


@registered
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


@registered
def squeeze(x: Any, axis: int | Sequence[int] | None = None) -> Variable:
    """`x` without these axes, which must be of length 1; by default without all axes of length 1."""
    x = constant(x)
    dropped = [at for at, size in enumerate(x.shape) if size == 1] if axis is None else axes_of(axis, x.ndim, "squeeze")
    if any(x.shape[at] != 1 for at in dropped):
        raise ShapeError(f"squeeze: axis={axis} of an array of shape {x.shape} is not of length 1")
    return reshape(x, tuple(size for at, size in enumerate(x.shape) if at not in dropped))


def broadcast_arrays(*arrays: Any) -> tuple[Variable, ...]:
    """All arrays broadcast to their common shape."""
    inputs = [constant(each) for each in arrays]
    shape = namespace(*inputs).broadcast_shapes(*(each.shape for each in inputs))
    return tuple(broadcast_to(each, shape) for each in inputs)


def flip(x: Any, axis: int | Sequence[int] | None = None) -> Variable:
    """`x` in reverse order along these axes, by default all."""
    x = constant(x)
    reversed_axes = axes_of(axis, x.ndim, "flip")
    key = tuple(slice(None, None, -1) if at in reversed_axes else slice(None) for at in range(x.ndim))
    flipped: Variable = x[key]
    return flipped


def roll(x: Any, shift: int, axis: int | None = None) -> Variable:
    """`x` with its elements moved along an axis; elements that leave at one end come in at the other."""
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
    times = as_shape(repetitions)
    ndim = max(len(times), x.ndim)
    times = (1,) * (ndim - len(times)) + times
    lengths = (1,) * (ndim - x.ndim) + x.shape
    apart = reshape(x, tuple(size for length in lengths for size in (1, length)))
    spread = broadcast_to(apart, tuple(size for pair in zip(times, lengths, strict=True) for size in pair))
    return reshape(spread, tuple(map(operator.mul, times, lengths)))


# --- many arrays ------------------------------------------------------------------------------------------------------


def _pullback_of_concat(node: Node, cotangents: Cotangents, wanted: tuple[bool, ...]) -> Cotangents:
    axis = node.static["axis"]
    parts = _cut(cotangents[0], tuple(each.shape[axis] for each in node.inputs), axis)
    return [part if is_wanted else None for part, is_wanted in zip(parts, wanted, strict=True)]


def _split(array: Any, sizes: tuple[int, ...], axis: int) -> tuple[Any, ...]:
    ends = itertools.accumulate(sizes, initial=0)
    return tuple([array[(slice(None),) * axis + (slice(*pair),)] for pair in itertools.pairwise(ends)])


def _pullback_of_split(node: Node, cotangents: Cotangents, _wanted: tuple[bool, ...]) -> Cotangents:
    (x,), axis = node.inputs, node.static["axis"]
    parts = []
    for part, size in zip(cotangents, node.static["sizes"], strict=True):
        shape = (*x.shape[:axis], size, *x.shape[axis + 1 :])
        parts.append(part if part is not None else Variable._of(namespace(x).zeros(shape, dtype=x.dtype), False))
    return (concat(parts, axis=axis),)


_CONCAT = Primitive(
    "concat", lambda *arrays, axis: namespace(*arrays).concatenate(arrays, axis=axis), _pullback_of_concat
)
_SPLIT = Primitive("split", _split, _pullback_of_split, multiple=True)


def concat(arrays: Sequence[Any], axis: int | None = 0) -> Variable:
    """Arrays one after the other along an axis; with `axis=None` after they are flattened."""
    inputs = [constant(each) for each in arrays]
    if not inputs:
        raise ArgumentError("concat needs one array at least")
    if axis is None:
        inputs, axis = [reshape(each, (-1,)) for each in inputs], 0
    return run(_CONCAT, tuple(inputs), axis=axis_of(axis, inputs[0].ndim, "concat"))


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
    """The parts of `x` along an axis: a number of equal ones, or cut before these positions: `numpy.split`."""
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
    return run_multiple(_SPLIT, (x,), {"sizes": sizes, "axis": axis})


@registered
def unstack(x: Any, axis: int = 0) -> tuple[Variable, ...]:
    """The parts of `x` along an axis, without that axis."""
    x = constant(x)
    at = axis_of(axis, x.ndim, "unstack")
    return tuple(squeeze(part, at) for part in _cut(x, (1,) * x.shape[at], at))
