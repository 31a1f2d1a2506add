"""A Jacobian as a matrix: a dense one with a column for each argument; a sparse one, or an operator of SciPy's, with a
column for each element of each argument.

The rows are the elements of the first output, then those of the second, and so on: the order of `np.ravel(value)`.
"""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from dualbcast.errors import ArgumentError, DTypeError, MissingDependencyError, ShapeError
from dualbcast.program.outputs import Results, Shape
from dualbcast.runtime.arguments import DType, is_array

# SciPy's sparse matrices have no numbers of two bytes.
_SMALLEST = np.dtype(np.float32)


def new_matrix(results: Results) -> Any:
    """An uninitialised matrix in Fortran order, in which each block of the Jacobian is contiguous.

    A kernel stores such blocks as fast as arrays of their own. Blocks that are columns of a matrix in C order take 1.3
    to 1.7 times as long, for 3 arguments and 1,000 or 100,000 elements.
    """
    library = np if results.module == "numpy" else sys.modules["cupy"]
    rows = results.structure.count * math.prod(results.shape)
    return library.empty((len(results.wrt), rows), results.signature.result_dtype).T


def new_values(results: Results, dtypes: Sequence[DType]) -> tuple[Any, ...]:
    """Uninitialised arrays for the values of a call."""
    library = np if results.module == "numpy" else sys.modules["cupy"]
    return tuple([library.empty(results.shape, dtype) for dtype in dtypes])


def stored_parts(matrix: Any, results: Results) -> tuple[Any, ...]:
    """The parts of a matrix that a kernel writes, in its order; all others are filled with their constants."""
    parts = matrix.T.reshape(len(results.wrt), results.structure.count, *results.shape)
    stored, constants = results.matrix_places
    for place, number in constants:
        parts[place] = number
    # With ..., the part of one element is an array too.
    return tuple([parts[*place, ...] for place in stored])


def checked_matrix(matrix: Any, results: Results) -> Any:
    """A matrix that a user gives to be written to."""
    if not is_array(matrix, results.module):
        raise ArgumentError("out= must be the pair (value, Jacobian) that an earlier call returned")
    rows, columns = results.structure.count * math.prod(results.shape), len(results.wrt)
    if matrix.shape != (rows, columns):
        raise ShapeError(
            f"the matrix in out= has shape {matrix.shape}; it must be {(rows, columns)}: a row for each element "
            f"of each output, and a column for each of ({', '.join(results.wrt)})"
        )
    if matrix.dtype != results.signature.result_dtype:
        raise DTypeError(f"the matrix in out= has dtype {matrix.dtype}; it must be {results.signature.result_dtype}")
    if results.module == "numpy" and not matrix.flags.writeable:
        raise ArgumentError("the matrix in out= is read-only. Pass an array that can be written to.")
    return matrix


# --- all elements of all arguments ------------------------------------------------------------------------------------


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
