"""NumPy's functions of whole arrays, on the small arrays of a kernel.

A table from NumPy's function to the function that lowers a call of it. Those of linear algebra are in
`dualbcast.linalg`, in the language of scalar functions.
"""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from dualbcast import linalg
from dualbcast.complex_numbers import abs2
from dualbcast.frontend.arithmetic import apply, as_scalar, binary, chain, select, truth
from dualbcast.frontend.arrays.vectors import (
    array_of,
    atoms_of,
    complex_of,
    elementwise,
    filled,
    moved,
    of_one_kind,
    of_python,
    real_or_imag,
    reshape,
    transpose,
    view_of,
)
from dualbcast.frontend.builtins import ZERO
from dualbcast.frontend.environment import Environment, call_value, register
from dualbcast.frontend.operators import binary_operator, matmul
from dualbcast.frontend.values import Arguments, Record, Static, Value, is_complex
from dualbcast.ir.nodes import FALSE, TRUE, Atom, Const, Kind
from dualbcast.ir.simplification import number

# Those that are also called on numbers: they make arrays.
MAKERS = (np.zeros, np.ones, np.eye, np.identity, np.arange, np.linspace, np.full)
# Those of arrays. Of a number, which is one element of an array of the call, they would not be what the user means.
OF_ARRAYS: dict[Any, Callable[..., Value]] = {}

_builtin = partial(register, OF_ARRAYS)
_added, _subtracted, _multiplied, _divided = [
    partial(binary_operator, syntax) for syntax in (ast.Add, ast.Sub, ast.Mult, ast.Div)
]
_NONE, _ONE, _LAST = Static(None), Const(1, "int"), Const(-1, "int")
_NOTHING = Const(0.0, "float")
_CONJUGATE, _ABS2 = Static(np.conjugate), Static(abs2)


def _known(env: Environment, node: ast.Call, value: Value, what: str) -> Any:
    return env.known_object(value, node, f"{what} must be known when the kernel is compiled")


# --- arrays from numbers, and from other arrays ----------------------------------------------------------------------


@_builtin(np.array, np.copy)
def _array(env: Environment, node: ast.Call, items: Value, /, dtype: Value = _NONE) -> Value:
    atoms = atoms_of(env, items, node)
    if dtype == _NONE:
        return array_of(of_one_kind(env, atoms, node))
    letter = env.evaluate(node, np.dtype, _known(env, node, dtype, "the dtype")).kind
    if letter not in "biufc":
        env.fail(node, f"a kernel has no numbers of the dtype {ast.unparse(node)}", "float")
    if letter == "c":
        return array_of(filled(atoms.shape, [complex_of(env, item, node) for item in atoms.flat]))
    kind: Kind = "float" if letter == "f" else "bool" if letter == "b" else "int"
    return array_of(filled(atoms.shape, [env.convert(as_scalar(env, item, node), kind, node) for item in atoms.flat]))


_builtin(np.asarray, np.asanyarray, np.ascontiguousarray)(
    lambda env, node, items, /, dtype=_NONE: view_of(_array(env, node, items, dtype), [items])
)


def _made(function: Callable[..., Any], env: Environment, node: ast.Call, *args: Value, **named: Value) -> Value:
    """An array that NumPy makes when the kernel is compiled, from numbers that are known."""
    what = f"an argument of {function.__name__}()" if function in (np.arange, np.linspace) else "the shape"
    plain = [_known(env, node, arg, what) for arg in args]
    keywords = {name: _known(env, node, value, name) for name, value in named.items()}
    made = env.evaluate(node, function, *plain, **keywords)
    return array_of(filled(made.shape, [of_python(item.item()) for item in made.flat]))


for _function in MAKERS[:-1]:
    OF_ARRAYS[_function] = partial(_made, _function)


@_builtin(np.full)
def _full(env: Environment, node: ast.Call, shape: Value, value: Value, /) -> Value:
    atoms = atoms_of(env, value, node)
    return array_of(env.evaluate(node, np.full, _known(env, node, shape, "the shape"), atoms.item(), object))


def _like(number_of: float, env: Environment, node: ast.Call, array: Value, /) -> Value:
    atoms = of_one_kind(env, atoms_of(env, array, node), node)
    kinds = {complex if is_complex(each) else {"bool": bool, "int": int}.get(each.kind, float) for each in atoms.flat}
    return array_of(filled(atoms.shape, [of_python(kind(number_of)) for kind in kinds] * atoms.size))


OF_ARRAYS[np.zeros_like], OF_ARRAYS[np.ones_like] = partial(_like, 0.0), partial(_like, 1.0)
OF_ARRAYS[np.real], OF_ARRAYS[np.imag] = partial(real_or_imag, "real"), partial(real_or_imag, "imag")


def _moves(function: Callable[..., Any], env: Environment, node: ast.Call, /, *args: Value, **named: Value) -> Value:
    """A function that moves elements of its first argument, as the others say, which are known."""
    if not args:
        env.fail(node, f"{function.__name__}() needs an array")
    plain = [_known(env, node, arg, "this argument") for arg in args[1:]]
    keywords = {name: _known(env, node, value, name) for name, value in named.items()}
    return moved(env, lambda atoms: function(atoms, *plain, **keywords), args[:1], node)


def _joins(function: Callable[..., Any], env: Environment, node: ast.Call, arrays: Value, /, **named: Value) -> Value:
    """A function that joins several arrays to one."""
    keywords = {name: _known(env, node, value, name) for name, value in named.items()}
    parts = tuple(arrays) if isinstance(arrays, Record) and (arrays.is_sequence or arrays.is_iterator) else (arrays,)
    return moved(env, lambda *each: function(each, **keywords), parts, node)


_MOVES = "transpose reshape ravel diagonal swapaxes moveaxis roll flip squeeze"
for _name in f"{_MOVES} atleast_1d atleast_2d expand_dims repeat tile take".split():
    OF_ARRAYS[getattr(np, _name)] = partial(_moves, getattr(np, _name))
OF_ARRAYS |= {_method: partial(_moves, _method) for _method in (transpose, reshape)}
for _name in ("stack", "concatenate", "hstack", "vstack", "column_stack"):
    OF_ARRAYS[getattr(np, _name)] = partial(_joins, getattr(np, _name))


@_builtin(np.diag)
def _diag(env: Environment, node: ast.Call, array: Value, /) -> Value:
    return view_of(_with_zeros(moved(env, np.diag, [array], node), env, node), [array])


def _triangle(function: Callable[..., Any], env: Environment, node: ast.Call, array: Value, k: Value, /) -> Value:
    atoms, at = atoms_of(env, array, node), _known(env, node, k, "k")
    kept = function(np.ones(atoms.shape, bool), at)
    none = Const(0.0, "float")
    items = [each if there else none for each, there in zip(atoms.flat, kept.flat, strict=True)]
    return array_of(filled(atoms.shape, items))


def _with_zeros(value: Value, env: Environment, node: ast.Call) -> Value:
    """An array with floats in the place of the integers that NumPy puts beside the diagonal."""
    return array_of(of_one_kind(env, atoms_of(env, value, node), node))


@_builtin(np.triu)
def _triu(env: Environment, node: ast.Call, array: Value, k: Value = ZERO, /) -> Value:
    return _triangle(np.triu, env, node, array, k)


@_builtin(np.tril)
def _tril(env: Environment, node: ast.Call, array: Value, k: Value = ZERO, /) -> Value:
    return _triangle(np.tril, env, node, array, k)


# --- reductions ------------------------------------------------------------------------------------------------------


def _axes(env: Environment, node: ast.Call, ndim: int, axis: Value) -> tuple[int, ...]:
    """The axes that an argument names, by default all."""
    along = _known(env, node, axis, "the axis")
    if along is None:
        return tuple(range(ndim))
    return env.evaluate(node, np.lib.array_utils.normalize_axis_tuple, along, ndim)


def _reduced(
    combine: Callable[..., Value],
    start: Atom | None,
    env: Environment,
    node: ast.Call,
    array: Value,
    /,
    axis: Value = _NONE,
    *,
    keepdims: Value = FALSE,
) -> Value:
    """All elements of an array combined, or those along axes."""
    atoms = atoms_of(env, array, node)
    axes = _axes(env, node, atoms.ndim, axis)
    others = [at for at in range(atoms.ndim) if at not in axes]
    kept, count = [atoms.shape[at] for at in others], math.prod(atoms.shape[at] for at in axes)
    if not count and start is None:
        env.fail(node, "this array is empty, and has neither a smallest nor a largest element", "an array of numbers")
    items: list[Value] = []
    for row in atoms.transpose(*others, *axes).reshape(math.prod(kept), count):
        first, *rest = row if start is None else [start, *row]
        for item in rest:
            first = combine(env, node, first, item)
        items.append(first)
    if _known(env, node, keepdims, "keepdims"):
        kept = [1 if at in axes else length for at, length in enumerate(atoms.shape)]
    return array_of(filled(tuple(kept), items))


def _running(
    combine: Callable[..., Value], env: Environment, node: ast.Call, array: Value, /, axis: Value = _NONE
) -> Value:
    """The elements along an axis combined from the first to each one; without an axis, those of the flattened array."""
    atoms, along = atoms_of(env, array, node), _known(env, node, axis, "the axis")
    rows = atoms.reshape(1, -1) if along is None else env.evaluate(node, np.moveaxis, atoms, along, -1)
    combined = [
        itertools.accumulate([_as_summand(env, node, item) for item in row], partial(combine, env, node))
        for row in rows.reshape(math.prod(rows.shape[:-1]), rows.shape[-1])
    ]
    result = filled(rows.shape, list(itertools.chain(*combined)))
    return array_of(result[0] if along is None else np.moveaxis(result, -1, along))


def _as_summand(env: Environment, node: ast.AST, item: Value) -> Value:
    """A truth value as an integer, and any other number as it is."""
    return env.convert(item, "int", node) if isinstance(item, Atom) and item.kind == "bool" else item


def _plus(env: Environment, node: ast.AST, total: Value, item: Value) -> Value:
    # 0 + x, which is the beginning of a sum, is x; -0.0 is as good as 0.0 here, as NumPy has it.
    is_first = total == number(0) and not (isinstance(item, Atom) and item.kind == "bool")
    return item if is_first else _added(env, node, total, item)


def _extremum(name: str, env: Environment, node: ast.AST, best: Value, item: Value) -> Value:
    best, item = as_scalar(env, best, node), as_scalar(env, item, node)
    is_better = binary(name, env, node, item, best)
    if item.kind == "float":  # NaN is what NumPy gives if there is one
        is_better = chain(env, "or", (is_better, binary("ne", env, node, item, item)), node)
    return select(env, is_better, item, best, node)


def _test(name: str, env: Environment, node: ast.AST, before: Atom, item: Value) -> Atom:
    return chain(env, name, [before, truth(env, node, item)], node)


OF_ARRAYS[np.sum] = partial(_reduced, _plus, number(0))
OF_ARRAYS[np.prod] = partial(_reduced, _multiplied, number(1))
OF_ARRAYS[np.max] = partial(_reduced, partial(_extremum, "gt"), None)
OF_ARRAYS[np.min] = partial(_reduced, partial(_extremum, "lt"), None)
OF_ARRAYS[np.all] = partial(_reduced, partial(_test, "and"), Const(True, "bool"))
OF_ARRAYS[np.any] = partial(_reduced, partial(_test, "or"), Const(False, "bool"))


OF_ARRAYS[np.cumsum] = partial(_running, _plus)
OF_ARRAYS[np.cumprod] = partial(_running, _multiplied)


@_builtin(np.mean)
def _mean(env: Environment, node: ast.Call, array: Value, /, axis: Value = _NONE, *, keepdims: Value = FALSE) -> Value:
    total = _reduced(_plus, number(0), env, node, array, axis, keepdims=keepdims)
    return _over(env, node, total, _count(env, node, array, axis))


@_builtin(np.var)
def _var(
    env: Environment,
    node: ast.Call,
    array: Value,
    /,
    axis: Value = _NONE,
    *,
    ddof: Value = ZERO,
    keepdims: Value = FALSE,
) -> Value:
    deviations = elementwise(
        env, partial(_subtracted, env, node), (array, _mean(env, node, array, axis, keepdims=TRUE)), node
    )
    squares = elementwise(env, lambda x: call_value(env, _ABS2, Arguments((x,)), node), (deviations,), node)
    total = _reduced(_plus, number(0), env, node, squares, axis, keepdims=keepdims)
    return _over(env, node, total, _subtracted(env, node, _count(env, node, array, axis), as_scalar(env, ddof, node)))


@_builtin(np.std)
def _std(env: Environment, node: ast.Call, array: Value, /, axis: Value = _NONE, **named: Value) -> Value:
    variances = atoms_of(env, _var(env, node, array, axis, **named), node)
    return array_of(filled(variances.shape, [apply(env, "sqrt", (item,), node) for item in variances.flat]))


@_builtin(np.diff)
def _diff(env: Environment, node: ast.Call, array: Value, /, n: Value = _ONE, axis: Value = _LAST) -> Value:
    along = _known(env, node, axis, "the axis")

    def cut(part: slice) -> Value:
        return moved(env, lambda atoms: np.moveaxis(np.moveaxis(atoms, along, 0)[part], 0, along), [array], node)

    for _ in range(_known(env, node, n, "n")):
        array = elementwise(env, partial(_subtracted, env, node), (cut(slice(1, None)), cut(slice(-1))), node)
    return array


def _count(env: Environment, node: ast.Call, array: Value, axis: Value) -> Const:
    """How many elements there are along axes."""
    shape = atoms_of(env, array, node).shape
    return number(math.prod(shape[at] for at in _axes(env, node, len(shape), axis)))


def _over(env: Environment, node: ast.Call, array: Value, count: Value) -> Value:
    return elementwise(env, partial(_divided, env, node), (array, count), node)


# --- products --------------------------------------------------------------------------------------------------------


OF_ARRAYS[np.matmul] = matmul


@_builtin(np.dot)
def _dot(env: Environment, node: ast.Call, left: Value, right: Value, /) -> Value:
    if () in (atoms_of(env, left, node).shape, atoms_of(env, right, node).shape):
        return _products(env, node, left, right)
    return matmul(env, node, left, right)


@_builtin(np.inner)
def _inner(env: Environment, node: ast.Call, left: Value, right: Value, /) -> Value:
    return _dot(env, node, left, moved(env, np.transpose, [right], node))


@_builtin(np.vdot)
def _vdot(env: Environment, node: ast.Call, left: Value, right: Value, /) -> Value:
    conjugates = elementwise(env, lambda z: call_value(env, _CONJUGATE, Arguments((z,)), node), (left,), node)
    return matmul(env, node, *[moved(env, np.ravel, [value], node) for value in (conjugates, right)])


@_builtin(np.outer)
def _outer(env: Environment, node: ast.Call, left: Value, right: Value, /) -> Value:
    column = moved(env, lambda atoms: atoms.reshape(-1, 1), [left], node)
    return _products(env, node, column, moved(env, np.ravel, [right], node))


def _products(env: Environment, node: ast.Call, left: Value, right: Value) -> Value:
    return elementwise(env, partial(_multiplied, env, node), (left, right), node)


@_builtin(np.trace)
def _trace(env: Environment, node: ast.Call, array: Value, /) -> Value:
    return _reduced(_plus, number(0), env, node, moved(env, np.diagonal, [array], node))


@_builtin(np.einsum)
def _einsum(env: Environment, node: ast.Call, subscripts: Value, /, *arrays: Value) -> Value:
    """A sum of products, term by term, as its subscripts say."""
    text = str(_known(env, node, subscripts, "the subscripts")).replace(" ", "")
    every = [atoms_of(env, array, node) for array in arrays]
    given, arrow, wanted = text.partition("->")
    labels = given.split(",")
    if len(labels) != len(every) or any(len(own) != each.ndim for own, each in zip(labels, every, strict=False)):
        env.fail(node, f"the subscripts {text!r} do not fit the arrays", "a letter for each axis of each array")
    letters = "".join(dict.fromkeys(given.replace(",", "")))
    if not arrow:
        wanted = "".join(sorted(letter for letter in letters if given.count(letter) == 1))
    sizes: dict[str, int] = {}
    for own, each in zip(labels, every, strict=True):
        for letter, size in zip(own, each.shape, strict=True):
            if sizes.setdefault(letter, size) != size:
                env.fail(node, f"the axes {letter!r} of {text!r} have lengths {sizes[letter]} and {size}", "one length")
    if not set(wanted) <= set(letters) or not text.replace(",", "").replace("->", "").isalpha():
        env.fail(node, f"the subscripts {text!r} are not letters, each of them of an array", "'ij,j->i'")
    summed = [letter for letter in letters if letter not in wanted]
    items: list[Value] = []
    for index in np.ndindex(*[sizes[letter] for letter in wanted]):
        total: Value = number(0)
        for rest in np.ndindex(*[sizes[letter] for letter in summed]):
            place = dict(zip([*wanted, *summed], (*index, *rest), strict=True))
            factors = [each[tuple(place[at] for at in own)] for own, each in zip(labels, every, strict=True)]
            term = factors[0]
            for factor in factors[1:]:
                term = _multiplied(env, node, term, factor)
            total = _plus(env, node, total, term)
        items.append(total)
    return array_of(filled(tuple(sizes[letter] for letter in wanted), items))


# --- linear algebra, which is written in the language itself ---------------------------------------------------------


@_builtin(linalg.rows_of_square)
def _rows_of_square(env: Environment, node: ast.Call, matrix: Value, /) -> Value:
    shape = atoms_of(env, matrix, node).shape
    if len(shape) != 2 or shape[0] != shape[1]:
        env.fail(node, f"a square matrix is needed, and this has shape {shape}")
    return Const(shape[0], "int")


def _from_linalg(function: Callable[..., Any], env: Environment, node: ast.Call, /, *args: Value) -> Value:
    every = [atoms_of(env, arg, node) for arg in args]
    if function in (linalg.eigh, linalg.eigvalsh) and any(is_complex(item) for atoms in every for item in atoms.flat):
        env.fail(node, f"{function.__name__} of complex matrices is not known in a kernel", "one of real matrices")
    arrays = tuple([array_of(atoms) for atoms in every])
    return call_value(env, Static(function), Arguments(arrays), node)


for _name in ("norm", "det", "inv", "solve", "eigvalsh", "cholesky", "slogdet"):
    OF_ARRAYS[getattr(np.linalg, _name)] = partial(_from_linalg, getattr(linalg, _name))
OF_ARRAYS[np.cross] = partial(_from_linalg, linalg.cross)
OF_ARRAYS[np.linalg.eigh] = partial(_from_linalg, linalg.eigh)
