"""All element-wise arithmetic on Variables: operators, ufuncs, casts, choices, BroadcastFunctions, and the scalar
functions behind them.

Comes in: a ufunc or a BroadcastFunction, with Variables, arrays and numbers that broadcast together. Goes out:
Variables, which may wait for their values until `.array` is read.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dualbcast.api.function import BroadcastFunction, differentiable_broadcast
from dualbcast.api.specialisation import Specialisation
from dualbcast.errors import ArgumentError, CompileError, ShapeError
from dualbcast.graph.arrays import is_complex, is_float, is_inexact, namespace
from dualbcast.graph.batched import level_of
from dualbcast.graph.fused_region import defer
from dualbcast.graph.primitives import arrays_of, constant, run
from dualbcast.graph.tape import STATE, Primitive, observe, unary
from dualbcast.graph.variable import OPERATIONS, Variable, method, registered


class ScalarOperation(NamedTuple):
    """An element-wise operation."""

    # NumPy's function (and CuPy's, by NumPy's protocols), for arrays without a derivative.
    primitive: Primitive
    # The function that kernels contain; None where there is none, and NumPy always computes the operation.
    scalar: BroadcastFunction | None
    # Whether differentiation ends here: the derivative is zero wherever it exists.
    ends: bool


# Ufuncs whose derivative is zero wherever it exists. Kernels contain them, so the operations around them stay together.
_STEPS_IN_KERNELS = {
    *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
    *("isfinite", "isinf", "isnan", "ceil", "floor", "rint", "sign", "trunc"),
}
# Those that NumPy computes; the results of most are no floats.
_STEPS_BY_NUMPY = {
    *("floor_divide", "invert", "gcd", "lcm", "signbit", "logical_and", "logical_or", "logical_xor", "logical_not"),
    *("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift", "bitwise_count"),
}
# Numbers that become part of the kernel as exponents, so it has no general power in it.
_EXPONENTS = {*range(-4, 9), 0.5, -0.5, 1.5}


@functools.cache
def operation(key: str | np.ufunc) -> ScalarOperation:
    """The operation for "where", the name of a NumPy ufunc, or a ufunc of any library that has a derivative rule."""
    if key == "where":
        choice = _scalar_function(lambda condition, x, y: x if condition else y, "where")
        return ScalarOperation(Primitive("where", np.where, None), choice, False)
    ufunc: np.ufunc = getattr(np, key) if isinstance(key, str) else key
    name = ufunc.__name__
    primitive = Primitive(name, ufunc, None)
    is_of_numpy = getattr(np, name, None) is ufunc
    ends = is_of_numpy and name in _STEPS_IN_KERNELS
    if is_of_numpy and name in _STEPS_BY_NUMPY:
        return ScalarOperation(primitive, None, True)
    if ufunc.nout != 1 or ufunc.signature is not None:
        raise ArgumentError(f"{name} does not work on Variables: it is no function of single numbers to one number")
    calls: dict[int, Callable[..., Any]] = {1: lambda x: ufunc(x), 2: lambda x, y: ufunc(x, y)}
    scalar = _scalar_function(calls.get(ufunc.nin, lambda *args: ufunc(*args)), name)
    try:
        if not ends:
            scalar.inspect_ir(*["float64"] * ufunc.nin)
    except CompileError:
        # It is refused where it is used, and not where the derivative is taken.
        raise ArgumentError(
            f"there is no derivative rule for the ufunc {ufunc.__name__}: use it on v.value if its derivative does not "
            "matter, or add a rule (dualbcast.rule)"
        ) from None
    return ScalarOperation(primitive, scalar, ends)


def _scalar_function(function: Callable[..., Any], name: str) -> BroadcastFunction:
    """A BroadcastFunction with this name in messages."""
    scalar = differentiable_broadcast(function)
    scalar.__name__ = scalar.__qualname__ = scalar._binder.name = name
    return scalar


@functools.lru_cache(typed=True)
def _fixed_power(exponent: float) -> BroadcastFunction:
    """The power with an exponent that is compiled in."""
    return _scalar_function(lambda x: x**exponent, f"power {exponent}")


@registered
def apply(name: str | np.ufunc, *inputs: Any) -> Variable:
    """Apply an element-wise operation, by its key, to Variables, arrays and numbers, which broadcast together."""
    # Complex Variables are pairs of others, which may be batched: the call of the scalar function meets these.
    if STATE.batches and level_of(inputs) and not any(map(is_complex, inputs)):
        return OPERATIONS["call_batched"](functools.partial(apply, name), inputs)
    applied = operation(name)
    if applied.scalar is None or not any(is_float(each.dtype) for each in inputs if hasattr(each, "dtype")):
        if not any(map(is_complex, inputs)):
            return _ended(applied, inputs)
        if applied.scalar is None:
            raise _without_complex_numbers(applied.primitive.name)
    elif applied.ends and not any(isinstance(each, Variable) and each._value is None for each in inputs):
        return _ended(applied, inputs)
    scalar = applied.scalar
    if applied.primitive.name == "power":
        exponent = inputs[1]
        # NumPy's float64 is a float, too, but one that widens what is narrower.
        is_weak = type(exponent) is not np.float64 or inputs[0].real.dtype == np.float64
        if isinstance(exponent, int | float) and not isinstance(exponent, bool) and exponent in _EXPONENTS and is_weak:
            scalar, inputs = _fixed_power(exponent), inputs[:1]
    output: Variable = call(scalar, inputs, applied.primitive.name)
    return output


def where(condition: Any, x: Any, y: Any) -> Variable:
    """`x` where the condition holds, else `y`: `numpy.where`.

    Both sides are computed for each element, and the side that is not chosen gets a cotangent of zero. If its
    derivative is not finite, their product is NaN. The `if` of a BroadcastFunction computes one side only.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> graph.grad(lambda v: np.sum(graph.where(v > 2, v * v, 1.0)))(np.array([1.0, 3.0]))
    array([0., 6.])
    """
    if is_complex(x) or is_complex(y):
        # A Python number stays one, which does not widen the result.
        x, y = [each if hasattr(each, "imag") else np.asarray(each) for each in (x, y)]
        return Variable.__join_complex__(where(condition, x.real, y.real), where(condition, x.imag, y.imag))
    return apply("where", condition, x, y)


@registered
def divmod(x: Any, y: Any) -> tuple[Variable, Variable]:
    """The quotients that are rounded down, and the remainders: `numpy.divmod`."""
    return apply("floor_divide", x, y), apply("remainder", x, y)


@method
def clip(x: Any, min: Any = None, max: Any = None) -> Variable:
    """`x` limited to [min, max]; either may be None."""
    x = constant(x)
    if min is not None:
        x = apply("maximum", x, min)
    return x if max is None else apply("minimum", x, max)


@registered
@method
def astype(x: Any, dtype: Any) -> Variable:
    """`x` converted to another dtype. A conversion to integers ends differentiation, as `int()` does."""
    x, dtype = constant(x), np.dtype(dtype)
    if dtype.kind == "c":
        return Variable.__join_complex__(*[astype(part, _dtype_of_parts(dtype)) for part in (x.real, x.imag)])
    if is_complex(x):
        raise ArgumentError(f"a Variable of {x.dtype} as {dtype} would lose its imaginary part; write z.real or abs(z)")
    return x if x.dtype == dtype else run(_ASTYPE, (x,), dtype=dtype)


def _dtype_of_parts(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.empty(0, dtype).real.dtype


def floating(x: Any) -> Variable:
    """Integers and bools become float64, as in NumPy."""
    x = constant(x)
    return x if is_inexact(x.dtype) else astype(x, np.float64)


def call(function: BroadcastFunction, args: tuple[Any, ...], name: str = "") -> Any:
    """Call a BroadcastFunction on Variables, arrays and numbers; messages call it `name`, or by its own name."""
    # The call is bound as for arrays, but the values are the Variables themselves, captured ones too.
    try:
        specialisation, values = function._dispatch.find(args, {}, None)
    except CompileError:
        if any(map(is_complex, args)):
            raise _without_complex_numbers(name or function.__name__) from None
        raise
    return call_bound(specialisation, values, name or function.__name__)


def _without_complex_numbers(name: str) -> ArgumentError:
    return ArgumentError(
        f"np.{name} is of real numbers here, and an argument is complex; write z.real, z.imag or abs(z)"
    )


@registered
def call_bound(specialisation: Specialisation, values: tuple[Any, ...], name: str) -> Any:
    """Call a function of which the specialisation is known, for the values of its parameters; see `call`."""
    if STATE.batches and level_of(values):
        whole = [place for place, _ in specialisation.program.whole]
        return OPERATIONS["call_batched"](lambda *each: call_bound(specialisation, each, name), values, whole)
    element, result = specialisation.element, specialisation.signature.result_dtype
    if specialisation.program.whole:
        opened: Any = OPERATIONS["open_whole"](specialisation, values)
        element, values = opened
    inputs = tuple([each if isinstance(each, Variable) else _operand(each, values) for each in values])
    observe(inputs)
    shapes = [each.shape for each in inputs if isinstance(each, Variable)]
    try:
        # `numpy.broadcast_shapes` takes as long as the rest of this function.
        shape = shapes[0] if len({*shapes}) == 1 else np.broadcast_shapes(*shapes)
    except ValueError:
        described = ", ".join(
            f"{parameter} {each.shape}"
            for parameter, each in zip(element.names, inputs, strict=True)
            if isinstance(each, Variable)
        )
        raise ShapeError(f"{name}: the shapes do not broadcast together: {described}") from None
    return element.function.structure.pack(defer(element, inputs, shape, result, specialisation.dtypes))


def _operand(value: Any, beside: tuple[Any, ...]) -> Any:
    """An argument of an element function as a number of Python, whose dtype does not count, or a Variable."""
    if type(value) in (bool, int, float):
        return value
    if isinstance(value, np.generic):  # it becomes an array of the library of the other arguments
        value = namespace(*[each for each in beside if not isinstance(each, np.generic)]).asarray(value)
    return Variable(value, tracked=False)


def _ended(applied: ScalarOperation, inputs: tuple[Any, ...]) -> Variable:
    """An operation where differentiation ends: only the values take part."""
    if STATE.observer is not None or STATE.recorder is not None:
        inputs = tuple([each if isinstance(each, Variable) else _operand(each, inputs) for each in inputs])
        observe(inputs)
    return run(applied.primitive, arrays_of(inputs))


_ASTYPE = unary(
    "astype", lambda array, dtype: array.astype(dtype), lambda node, cotangent: astype(cotangent, node.inputs[0].dtype)
)
