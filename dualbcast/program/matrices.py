"""A Jacobian as a sparse matrix or an operator of SciPy's, with a column for each element of each argument.

The rows are the elements of the first output, then those of the second, and so on: the order of `np.ravel(value)`.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from dualbcast.errors import MissingDependencyError
from dualbcast.program.outputs import Results, Shape

# SciPy's sparse matrices have no numbers of two bytes.
_SMALLEST = np.dtype(np.float32)


def sparse(results: Results, block: Callable[[int, int], Any]) -> Any:
    """The derivatives of all elements of the outputs in all elements of the arguments, as a `csr_array` of SciPy's.

    `block` gives the block of an output and a parameter. An entry is stored where the block is no constant 0.
    """
    library = _scipy("scipy.sparse", "J.sparse()")
    total, dtype = math.prod(results.shape), np.promote_types(results.signature.result_dtype, _SMALLEST)
    begins, width = [], 0
    for shape in results.shapes.values():
        begins.append(width)
        width += math.prod(shape)
    columns = [
        np.broadcast_to(np.arange(begin, begin + math.prod(shape)).reshape(shape), results.shape).ravel()
        for begin, shape in zip(begins, results.shapes.values(), strict=True)
    ]
    data, indices, lengths = [], [], []
    for output in range(results.structure.count):
        present = [
            at for at, argument in enumerate(results.positions) if results.blocks[output, argument] != (None, 0.0)
        ]
        entries = np.empty((total, len(present)), dtype)
        for place, at in enumerate(present):
            entries[:, place] = np.ravel(block(output, results.positions[at]))
        data.append(entries.ravel())
        indices.append(np.stack([columns[at] for at in present], axis=-1).ravel() if present else np.empty(0, np.int64))
        lengths.append(np.full(total, len(present)))
    rows = np.concatenate([[0], *lengths]).cumsum()
    return library.csr_array(
        (np.concatenate(data), np.concatenate(indices), rows), shape=(total * results.structure.count, width)
    )


def linear_operator(results: Results, pushforward: Callable[..., Any], pullback: Callable[..., tuple[Any, ...]]) -> Any:
    """The same derivatives as a `LinearOperator` of SciPy's, which multiplies by the blocks and makes no matrix."""
    library = _scipy("scipy.sparse.linalg", "J.linear_operator()")
    arguments = tuple(results.shapes.values())
    outputs = (results.shape,) * results.structure.count

    def forward(tangents: Any) -> Any:
        pushed = results.structure.flatten(pushforward(*_split(tangents, arguments)))
        return np.concatenate([np.ravel(each) for each in pushed])

    def backward(cotangents: Any) -> Any:
        pulled = pullback(*_split(cotangents, outputs))
        return np.concatenate([np.ravel(each) for each in pulled] or [np.empty(0)])

    shape = sum(map(math.prod, outputs)), sum(map(math.prod, arguments))
    dtype = np.promote_types(results.signature.result_dtype, _SMALLEST)
    return library.LinearOperator(shape, matvec=forward, rmatvec=backward, dtype=dtype)


def _split(vector: Any, shapes: Sequence[Shape]) -> Iterator[Any]:
    """The arrays of which a vector has the elements, one after the other."""
    begin = 0
    for shape in shapes:
        end = begin + math.prod(shape)
        yield np.reshape(vector[begin:end], shape)
        begin = end


def _scipy(module: str, purpose: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        raise MissingDependencyError("SciPy", purpose, "scipy") from None
