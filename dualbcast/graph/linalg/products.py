"""Products of matrices and tensors: matmul, multi_dot, tensordot, einsum, diagonals and traces.

Comes in: Variables or arrays. Goes out: Variables, the elements of which are sums of products.
"""

from __future__ import annotations

import math
import operator
import string
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from dualbcast.errors import ArgumentError, ShapeError
from dualbcast.graph import shapes
from dualbcast.graph.arrays import namespace
from dualbcast.graph.elementwise import apply, where
from dualbcast.graph.primitives import constant, run
from dualbcast.graph.tape import Cotangents, Node, Primitive
from dualbcast.graph.variable import Variable, method, registered


def _pullback_of_matmul(node: Node, cotangents: Cotangents, wanted: tuple[bool, ...]) -> Cotangents:
    (a, b), c = node.inputs, cotangents[0]
    return (
        shapes.sum_to(matmul(c, shapes.matrix_transpose(b)), a.shape) if wanted[0] else None,
        shapes.sum_to(matmul(shapes.matrix_transpose(a), c), b.shape) if wanted[1] else None,
    )


MATMUL = Primitive("matmul", lambda a, b: a @ b, _pullback_of_matmul, linear_in="each")


@registered
def matmul(a: Any, b: Any) -> Variable:
    """The product of the matrices in the last two axes; the other axes broadcast. A vector is a row or a column.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> graph.grad(lambda w: np.sum(w @ np.array([1.0, 2.0])))(np.zeros((3, 2)))
    array([[1., 2.],
           [1., 2.],
           [1., 2.]])
    """
    a, b = constant(a), constant(b)
    inner_of_b = b.shape[-2 if b.ndim > 1 else 0] if b.ndim else None
    if a.ndim == 0 or b.ndim == 0 or a.shape[-1] != inner_of_b:
        raise ShapeError(
            f"matmul of shapes {a.shape} and {b.shape}: the last length of the first must be "
            f"{'the second to last' if b.ndim > 1 else 'that'} of the second"
        )
    left = shapes.expand_dims(a, 0) if a.ndim == 1 else a
    right = shapes.expand_dims(b, 1) if b.ndim == 1 else b
    # The product of a column and a row is element-wise, and may be part of a kernel, if those read it.
    is_outer = left.shape[-1] == 1 and max(a.dtype.itemsize, b.dtype.itemsize) <= 8
    product = apply("multiply", left, right) if is_outer else run(MATMUL, (left, right))
    if b.ndim == 1:
        product = shapes.squeeze(product, -1)
    return shapes.squeeze(product, -1 if b.ndim == 1 else -2) if a.ndim == 1 else product


def adjoint(x: Variable) -> Variable:
    """The conjugates of transposed matrices."""
    return shapes.matrix_transpose(x).conj()


def multi_dot(arrays: Sequence[Any]) -> Variable:
    """The product of two or more matrices, in the cheapest order; the first may be a row, and the last a column:
    `numpy.linalg.multi_dot`."""
    factors = [constant(each) for each in arrays]
    if len(factors) < 2:
        raise ArgumentError("multi_dot needs two arrays at least")
    if any(
        each.ndim not in (1, 2) or (each.ndim == 1 and 0 < at < len(factors) - 1) for at, each in enumerate(factors)
    ):
        raise ShapeError(f"multi_dot is of matrices: the shapes are {[each.shape for each in factors]}")
    ends = [factors[0].shape[0] if factors[0].ndim == 2 else 1, *[each.shape[-1] for each in factors]]
    ends[-1] = 1 if factors[-1].ndim == 1 else ends[-1]

    @cache
    def cheapest(first: int, last: int) -> tuple[int, int]:
        """The cost of the product of these factors, and after which of them it is cut in two."""
        return (
            min(
                (
                    cheapest(first, cut)[0] + cheapest(cut + 1, last)[0] + ends[first] * ends[cut + 1] * ends[last + 1],
                    cut,
                )
                for cut in range(first, last)
            )
            if first < last
            else (0, first)
        )

    def product(first: int, last: int) -> Variable:
        cut = cheapest(first, last)[1]
        return matmul(product(first, cut), product(cut + 1, last)) if first < last else factors[first]

    return product(0, len(factors) - 1)


def vecdot(a: Any, b: Any, axis: int = -1) -> Variable:
    """The sums of the products of elements along an axis: `numpy.vecdot`, which conjugates the first."""
    return shapes.sum(apply("multiply", constant(a).conj(), b), axis=axis)


def vdot(a: Any, b: Any) -> Variable:
    """The sum of the products of all elements, of which the first are conjugated: `numpy.vdot`."""
    return vecdot(shapes.reshape(a, (-1,)), shapes.reshape(b, (-1,)))


@method
def dot(a: Any, b: Any) -> Variable:
    """The product of matrices or vectors, or of a number and an array: `numpy.dot`."""
    a, b = constant(a), constant(b)
    if a.ndim == 0 or b.ndim == 0:
        return apply("multiply", a, b)
    return tensordot(a, b, ((a.ndim - 1,), (b.ndim - 2 if b.ndim > 1 else 0,)))


def inner(a: Any, b: Any) -> Variable:
    """The sums of products along the last axes, for every pair of places along the others."""
    a, b = constant(a), constant(b)
    return dot(a, b) if a.ndim == 0 or b.ndim == 0 else tensordot(a, b, ((a.ndim - 1,), (b.ndim - 1,)))


def outer(a: Any, b: Any) -> Variable:
    """The matrix of the products of each element of `a` with each element of `b`; both are flattened."""
    return apply("multiply", shapes.reshape(a, (-1, 1)), shapes.reshape(b, (1, -1)))


def tensordot(a: Any, b: Any, axes: int | tuple[Sequence[int] | int, Sequence[int] | int] = 2) -> Variable:
    """Sums of products over pairs of axes: the last of `a` with the first of `b`, or named pairs: `numpy.tensordot`."""
    a, b = constant(a), constant(b)
    if isinstance(axes, int | np.integer):
        axes = tuple(range(a.ndim - axes, a.ndim)), tuple(range(axes))
    over_a, over_b = shapes.axes_of(axes[0], a.ndim, "tensordot"), shapes.axes_of(axes[1], b.ndim, "tensordot")
    if [a.shape[at] for at in over_a] != [b.shape[at] for at in over_b]:
        raise ShapeError(f"tensordot of shapes {a.shape} and {b.shape} over axes {over_a} and {over_b}: they differ")
    left = shapes.moveaxis(a, over_a, tuple(range(a.ndim - len(over_a), a.ndim)))
    right = shapes.moveaxis(b, over_b, tuple(range(len(over_b))))
    free_a, free_b = left.shape[: a.ndim - len(over_a)], right.shape[len(over_b) :]
    length = shapes.size_of(a.shape, over_a)
    rows = shapes.reshape(left, (math.prod(free_a), length))
    return shapes.reshape(matmul(rows, shapes.reshape(right, (length, math.prod(free_b)))), (*free_a, *free_b))


@method
def diagonal(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Variable:
    """The elements of two axes whose second index is by `offset` above the first, along a new last axis:
    `numpy.diagonal`."""
    x = constant(x)
    first, second = shapes.axes_of((axis1, axis2), x.ndim, "diagonal")
    front = shapes.moveaxis(x, (first, second), (0, 1))
    below, above = max(-operator.index(offset), 0), max(operator.index(offset), 0)
    places = namespace(x).arange(max(0, min(front.shape[0] - below, front.shape[1] - above)))
    return shapes.moveaxis(front[places + below, places + above], 0, -1)


def diag(v: Any, k: int = 0) -> Variable:
    """The k-th diagonal of a matrix, or the matrix with a vector there and zeros elsewhere: `numpy.diag`."""
    v = constant(v)
    if v.ndim == 2:
        return diagonal(v, k)
    if v.ndim != 1:
        raise ShapeError(f"diag is of a vector or a matrix; this has shape {v.shape}")
    filled = shapes.concat([v, v.namespace.zeros(abs(k), v.dtype)]) if k else v
    places = v.namespace.eye(filled.shape[0], k=k, dtype=bool)
    return where(places, filled[:, None] if k >= 0 else filled[None, :], v.dtype.type(0))


@method
def trace(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Variable:
    """The sum of the diagonal: `numpy.trace`."""
    return shapes.sum(diagonal(x, offset, axis1, axis2), axis=-1)


def einsum(subscripts: str, *operands: Any) -> Variable:
    """Sums of products by the names of the axes: `numpy.einsum`.

    Parameters
    ----------
    subscripts : str
        As for NumPy, with `...`, repeated names, and with or without `->`.
    *operands : Variable or array

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> graph.grad(lambda a: graph.einsum("ii->", a))(np.zeros((2, 2)))
    array([[1., 0.],
           [0., 1.]])
    """
    if not isinstance(subscripts, str):
        raise ArgumentError("einsum takes the names of the axes as text first: einsum('ij,jk->ik', a, b)")
    inputs = [constant(each) for each in operands]
    names, result = _parse(subscripts, inputs)
    sizes: dict[str, int] = {}
    for labels, operand in zip(names, inputs, strict=True):
        for label, size in zip(labels, operand.shape, strict=True):
            if sizes.get(label, 1) == 1:
                sizes[label] = size
            elif size not in (1, sizes[label]):
                raise ShapeError(f"{_shown(subscripts, inputs)}: {label} is {sizes[label]} and {size} long")
    # Each operand is brought to the form in which all its axes have different names, none of them is broadcast, and
    # each is in the result or in another operand: then the derivative is an einsum of the same form.
    apart = [_without_broadcast(labels, each, sizes) for labels, each in zip(names, inputs, strict=True)]
    parts = []
    for at, (labels, operand) in enumerate(apart):
        others = set(result).union(*[own for own, _ in apart[:at] + apart[at + 1 :]])
        parts.append(_simplified(labels, operand, others))
    present = "".join(label for label in result if any(label in labels for labels, _ in parts))
    product = run(_EINSUM, tuple(each for _, each in parts), names=tuple(each for each, _ in parts), result=present)
    return shapes.reshape(product, tuple(sizes[label] for label in result))


def _without_broadcast(labels: str, operand: Variable, sizes: dict[str, int]) -> tuple[str, Variable]:
    broadcast = [at for at, label in enumerate(labels) if operand.shape[at] == 1 and sizes[label] != 1]
    return "".join(label for at, label in enumerate(labels) if at not in broadcast), shapes.squeeze(operand, broadcast)


def _simplified(labels: str, operand: Variable, others: set[str]) -> tuple[str, Variable]:
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            operand = diagonal(operand, 0, first, second)
            labels = labels[:first] + labels[first + 1 : second] + labels[second + 1 :] + label
    alone = tuple(at for at, label in enumerate(labels) if label not in others)
    if alone:
        operand = shapes.sum(operand, axis=alone)
        labels = "".join(label for at, label in enumerate(labels) if at not in alone)
    return labels, operand


def _einsum(*arrays: Any, names: tuple[str, ...], result: str) -> Any:
    return namespace(*arrays).einsum(f"{','.join(names)}->{result}", *arrays, optimize=len(arrays) > 1)


def _pullback_of_einsum(node: Node, cotangents: Cotangents, wanted: tuple[bool, ...]) -> Cotangents:
    names, result = node.static["names"], node.static["result"]

    def pulled(at: int) -> Variable:
        others = [result, *names[:at], *names[at + 1 :]]
        values = [*node.inputs[:at], *node.inputs[at + 1 :]]
        return einsum(f"{','.join(others)}->{names[at]}", cotangents[0], *values)

    return [pulled(at) if is_wanted else None for at, is_wanted in enumerate(wanted)]


_EINSUM = Primitive("einsum", _einsum, _pullback_of_einsum, linear_in="each")


def _parse(subscripts: str, inputs: Sequence[Variable]) -> tuple[list[str], str]:
    """The names of the axes of each operand and of the result, with `...` written out."""
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    letters = text.replace("->", "").replace("...", "").replace(",", "")
    if len(terms) != len(inputs) or not (letters.isalpha() or not letters):
        raise ArgumentError(f"{_shown(subscripts, inputs)}: {len(terms)} operands are named, {len(inputs)} given")
    missing = [each.ndim - len(term.replace("...", "")) for term, each in zip(terms, inputs, strict=True)]
    for term, operand, count in zip(terms, inputs, missing, strict=True):
        if count < 0 or (count > 0 and "..." not in term):
            raise ShapeError(f"{_shown(subscripts, inputs)}: {term!r} does not name the axes of shape {operand.shape}")
    free = [letter for letter in string.ascii_letters if letter not in letters]
    spread = "".join(free[: max(missing)])
    names = [term.replace("...", spread[len(spread) - count :]) for term, count in zip(terms, missing, strict=True)]
    every = "".join(names)
    if arrow:
        result = right.replace("...", spread)
    else:
        once = sorted(label for label in set(every) if every.count(label) == 1 and label not in spread)
        result = spread + "".join(once)
    if len(set(result)) != len(result) or not set(result) <= set(every):
        raise ArgumentError(f"{_shown(subscripts, inputs)}: the result names an axis twice, or one that is nowhere")
    return names, result


def _shown(subscripts: str, inputs: Sequence[Variable]) -> str:
    return f"einsum {subscripts!r} of shapes {', '.join(str(each.shape) for each in inputs)}"
