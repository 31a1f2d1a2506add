"""NumPy's functions on Variables.

Comes in: a function or ufunc of NumPy or CuPy, with its arguments. Goes out: the result of the graph's function.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dualbcast.api.function import differentiable_broadcast
from dualbcast.errors import ArgumentError, ShapeError
from dualbcast.graph import fft, indexing, linalg, reductions, shapes
from dualbcast.graph.array_functions import assembly, averages, order, sequences
from dualbcast.graph.arrays import map_leaves
from dualbcast.graph.batched import Batched
from dualbcast.graph.elementwise import apply, astype, call, clip, divmod, where
from dualbcast.graph.linalg import products
from dualbcast.graph.primitives import constant
from dualbcast.graph.recording import read_by_python
from dualbcast.graph.variable import Variable, registered


@registered
def array_ufunc(ufunc: Any, method: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """`np.tanh(v)` and the like; the reductions of ufuncs, too."""
    name = ufunc.__name__
    if options.pop("out", None) is not None:
        raise ArgumentError(
            f"np.{name} with out=: a derivative cannot follow arrays that change. Write y = np.{name}(…); or, where "
            "this came of `array += v`, array = array + v"
        )
    if method == "reduce" and ufunc in _REDUCE:
        axis = options.pop("axis", 0)
        return _REDUCE[ufunc](inputs[0], axis=axis, **_checked(name, options, {"keepdims"}))
    if method == "accumulate" and ufunc in _ACCUMULATE:
        axis = options.pop("axis", 0)
        return _ACCUMULATE[ufunc](inputs[0], axis=axis, **_checked(name, options, set()))
    if method != "__call__":
        raise ArgumentError(f"np.{name}.{method} does not work on Variables")
    dtype = options.pop("dtype", None)
    _checked(name, options, {"axis"} if ufunc is np.vecdot else set())
    inputs = tuple([np.asarray(each) if isinstance(each, list | tuple) else each for each in inputs])
    if dtype is not None:
        inputs = tuple([astype(each, dtype) for each in inputs])
    special = _SPECIAL.get(ufunc)
    return special(*inputs, **options) if special is not None else apply(ufunc, *inputs)


@registered
def cupy_ufunc(name: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """A ufunc of CuPy's, which goes by `cupy_` and NumPy's name."""
    ufunc = getattr(np, name.removeprefix("cupy_"), None)
    if not isinstance(ufunc, np.ufunc):
        raise ArgumentError(f"CuPy's {name} does not work on Variables; on v.value it works, without a derivative")
    return array_ufunc(ufunc, "__call__", inputs, options)


def _float_power(x: Any, y: Any) -> Variable:
    """In float64 at least, as NumPy computes it."""
    wide = [astype(each, np.result_type(each.dtype, np.float64)) if hasattr(each, "dtype") else each for each in (x, y)]
    return apply("float_power", *wide)


_REDUCE: dict[Any, Callable[..., Any]] = {
    np.add: shapes.sum,
    np.multiply: reductions.prod,
    np.maximum: reductions.max,
    np.minimum: reductions.min,
}
_ACCUMULATE: dict[Any, Callable[..., Any]] = {np.add: reductions.cumsum, np.multiply: sequences.cumprod}
_SPECIAL: dict[Any, Callable[..., Any]] = {
    np.float_power: _float_power,
    np.matmul: products.matmul,
    np.vecdot: products.vecdot,
    np.divmod: divmod,
    np.modf: lambda x: (apply("subtract", x, apply("trunc", x)), apply("trunc", x)),
    np.positive: constant,
    np.conjugate: lambda z: constant(z).conj(),
}


def _checked(name: str, options: dict[str, Any], names: set[str]) -> dict[str, Any]:
    """The options, after a refusal of all that have other names than these."""
    for option in options:
        if option not in names:
            raise ArgumentError(f"np.{name} takes no {option}= for Variables")
    return options


@registered
def array_function(function: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """`np.sum(v)` and the like."""
    name = f"{function.__module__}.{function.__name__}".replace("numpy", "np", 1)
    if options.get("out") is not None:
        raise ArgumentError(f"{name} with out=: a derivative cannot follow arrays that change; use what it returns")
    # NumPy passes these on for options that were not given.
    options = {key: value for key, value in options.items() if not (key == "out" or value is np._NoValue)}
    if not args:
        args = tuple([options.pop(each) for each in _FIRST_PARAMETERS if each in options])
    own = _FUNCTIONS.get(function)
    if own is not None:
        try:
            return own(*args, **options)
        except TypeError as error:
            if "argument" not in str(error) or isinstance(error, ArgumentError):
                raise
            raise ArgumentError(f"{name} on Variables: {str(error).partition(' ')[2]}") from None
    if function.__name__ in _WITHOUT_DERIVATIVE | _OF_FORMS:
        if function.__name__ in _WITHOUT_DERIVATIVE:
            read_by_python(name)
        args, options = _without((args, options), forms=function.__name__ in _OF_FORMS)
        return function(*args, **options)
    raise ArgumentError(
        f"{name} does not work on Variables: it has no derivative here. See dualbcast.graph for what there is; on "
        "v.value it works without one"
    )


def _without(arguments: Any, forms: bool = False) -> Any:
    """The arguments with the array of each Variable in its place; with `forms`, one of its shape and dtype will do."""

    def array_of(_: str, leaf: Any) -> Any:
        if forms and isinstance(leaf, Batched):
            return leaf.namespace.empty(leaf.shape, dtype=leaf.dtype)
        return leaf.array if isinstance(leaf, Variable) else leaf

    return map_leaves(array_of, arguments)


# Their results are integers, bools, texts, or do not depend on the values of the elements.
_WITHOUT_DERIVATIVE = {
    *("all", "any", "allclose", "array_equal", "array_equiv", "isclose", "isin"),
    *("argmax", "argmin", "argsort", "argwhere", "argpartition", "nanargmax", "nanargmin", "searchsorted", "digitize"),
    *("count_nonzero", "nonzero", "flatnonzero", "lexsort"),
    *("shares_memory", "may_share_memory", "array_repr", "array_str", "array2string"),
    *("matrix_rank", "isposinf", "isneginf", "min_scalar_type", "iscomplex", "isreal"),
}
# Those whose results depend on shapes and dtypes alone.
_OF_FORMS = {
    *("ndim", "shape", "size", "result_type", "can_cast", "common_type", "broadcast_shapes"),
    *("zeros_like", "ones_like", "empty_like", "iscomplexobj", "isrealobj"),
}


# The names that NumPy's functions have for their first argument, the array.
_FIRST_PARAMETERS = ("a", "m", "A", "arr", "ary", "array")


def _vstack(tup: Any) -> Variable:
    rows = [constant(each) for each in tup]
    return shapes.concat([shapes.reshape(each, (1, -1)) if each.ndim < 2 else each for each in rows], axis=0)


def _hstack(tup: Any) -> Variable:
    parts = [constant(each) for each in tup]
    parts = [shapes.reshape(each, (1,)) if each.ndim == 0 else each for each in parts]
    return shapes.concat(parts, axis=0 if parts[0].ndim == 1 else 1)


def _where(condition: Any, x: Any = None, y: Any = None, /) -> Any:
    if x is None and y is None:
        read_by_python("np.where of one argument")
        return np.where(_without(condition))
    return where(*(np.asarray(each) if isinstance(each, list | tuple) else each for each in (condition, x, y)))


def _array(object: Any, dtype: Any = None, *, copy: Any = True, ndmin: int = 0) -> Variable:  # noqa: ARG001
    """`np.array(lists, like=v)`: without `like`, NumPy asks each Variable in a list for its array."""
    is_list = isinstance(object, list | tuple)
    made: Variable = shapes.stack([_array(each) for each in object]) if is_list else constant(object)
    made = made if dtype is None else astype(made, dtype)
    return shapes.reshape(made, (1,) * (ndmin - made.ndim) + made.shape)


def _full_like(a: Any, fill_value: Any, dtype: Any = None, *given: Any, shape: Any = None, **named: Any) -> Any:
    if not isinstance(fill_value, Variable):
        return np.full_like(_without(a, forms=True), fill_value, dtype, *given, shape=shape, **named)  # type: ignore[call-overload]
    filled = astype(fill_value, a.dtype if dtype is None else dtype)
    return shapes.broadcast_to(filled, a.shape if shape is None else shape)


def _bincount(x: Any, /, weights: Any = None, minlength: int = 0) -> Any:
    """The counts are integers without a derivative; sums of weights are linear in the weights."""
    if isinstance(x, Variable):
        read_by_python("np.bincount")
    places = np.asarray(_without(x))
    counts = np.bincount(places, minlength=minlength)
    if not isinstance(weights, Variable):
        return counts if weights is None else np.bincount(places, weights, minlength)
    if weights.shape != places.shape:
        raise ShapeError(f"np.bincount of an array of shape {places.shape} with weights of shape {weights.shape}")
    return indexing.scatter(astype(weights, np.float64), places, counts.shape)


def _histogram(a: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None) -> Any:
    """Counts have no derivative, but edges, densities and sums of weights have one, which is not written yet."""
    read_by_python("np.histogram")
    given = [each for each in (bins, weights, *(range or ())) if isinstance(each, Variable)]
    if range is None and np.ndim(bins) == 0 and isinstance(a, Variable):
        given.append(a)  # the edges go from its least element to its greatest
    if any(each.tracked for each in given):
        raise ArgumentError(
            "np.histogram would lose the derivative of its edges, densities or sums of weights. Write "
            "np.histogram(v.value, …) for counts alone; for sums of weights write "
            "np.bincount(np.digitize(v, edges), weights=…) with edges that you choose"
        )
    return np.histogram(*_without((a, bins, range, density, weights)))


def _angle(z: Any, deg: bool = False) -> Variable:
    is_complex = np.dtype(getattr(z, "dtype", type(z))).kind == "c"
    angles: Variable = call(_PHASE if is_complex else _PHASE_OF_REAL, (z,), "angle")
    return angles * (180.0 / math.pi) if deg else angles


def _column_stack(tup: Any) -> Variable:
    columns = [constant(each) for each in tup]
    return shapes.concat([shapes.reshape(each, (-1, 1)) if each.ndim < 2 else each for each in columns], axis=1)


def _ptp(a: Any, axis: Any = None, *, keepdims: bool = False) -> Variable:
    a = constant(a)
    return reductions.max(a, axis=axis, keepdims=keepdims) - reductions.min(a, axis=axis, keepdims=keepdims)


_PHASE = differentiable_broadcast(lambda z: np.angle(z))
_PHASE_OF_REAL = differentiable_broadcast(lambda x: np.arctan2(0.0, x))


def _clip(a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Variable:
    return clip(a, a_min if min is None else min, a_max if max is None else max)


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    # Most of NumPy's functions take the same arguments as those of the graph, except for the name of the first one.
    **{
        getattr(np, name): function
        for module in (indexing, products, reductions, shapes, assembly, averages, order, sequences)
        for name, function in vars(module).items()
        if getattr(function, "__module__", "") == module.__name__ and hasattr(np, name)
    },
    **{getattr(np.linalg, name): getattr(linalg, name) for name in linalg.__all__},
    **{
        getattr(np.linalg, name): function
        for name, function in {**vars(products), **vars(shapes), **vars(assembly)}.items()
        if name in ("cross", "matmul", "matrix_transpose", "outer", "tensordot", "vecdot")
    },
    np.linalg.diagonal: lambda x, /, *, offset=0: products.diagonal(x, offset, -2, -1),
    np.linalg.trace: lambda x, /, *, offset=0: products.trace(x, offset, -2, -1),
    np.amax: reductions.max,
    np.amin: reductions.min,
    np.reshape: shapes.reshape,
    np.ravel: lambda a, order="C": shapes.reshape(a, (-1,), order),
    np.permute_dims: shapes.transpose,
    np.tile: lambda a, reps: shapes.tile(a, reps),
    np.concatenate: shapes.concat,
    np.vstack: _vstack,
    np.hstack: _hstack,
    np.column_stack: _column_stack,
    np.ptp: _ptp,
    np.split: lambda ary, indices_or_sections, axis=0: list(shapes.split(ary, indices_or_sections, axis)),
    np.where: _where,
    np.clip: _clip,
    np.array: _array,
    np.asarray: _array,
    # Which algorithm sorts does not matter.
    np.sort: lambda a, axis=-1, kind=None, *, stable=None: order.sort(a, axis),  # noqa: ARG005
    **{getattr(np.fft, name): getattr(fft, name) for name in fft.__all__},
    np.real: lambda val: constant(val).real,
    np.imag: lambda val: constant(val).imag,
    np.angle: _angle,
    np.fix: functools.partial(apply, "trunc"),
    np.full_like: _full_like,
    np.bincount: _bincount,
    np.histogram: _histogram,
    np.copy: lambda a, order="K", subok=False: constant(a),  # noqa: ARG005
    np.einsum: lambda *operands, optimize=None: products.einsum(*operands),  # noqa: ARG005
}
