"""Element-wise operations as scalar functions.

Comes in: a ufunc, or the name of one. Goes out: the scalar function that kernels contain for it, if there is one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dualbcast.api.function import BroadcastFunction, differentiable_broadcast
from dualbcast.errors import ArgumentError, CompileError

__all__ = ["ScalarOperation", "fixed_power", "operation"]


class ScalarOperation(NamedTuple):
    """An element-wise operation.

    Attributes
    ----------
    name : str
    compute : function
        NumPy's function (and CuPy's, by NumPy's protocols), for arrays without a derivative.
    scalar : BroadcastFunction or None
        The scalar function; None where it has none, and is always computed by NumPy.
    ends : bool
        Whether differentiation ends here: the derivative is zero wherever it exists.
    """

    name: str
    compute: Callable[..., Any]
    scalar: BroadcastFunction | None
    ends: bool


# Ufuncs whose derivative is zero wherever it exists, and ufuncs whose results are no floats.
_WITHOUT_DERIVATIVE = {
    *("ceil", "floor", "floor_divide", "rint", "sign", "trunc", "invert", "gcd", "lcm"),
    *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "signbit"),
    *("isfinite", "isinf", "isnan", "logical_and", "logical_or", "logical_xor", "logical_not"),
    *("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift", "bitwise_count"),
}
# Operations that are written out as scalar functions. Those without a derivative are among them so that kernels can
# contain them, and the operations around them need not be computed apart.
_WRITTEN_OUT: dict[str, Callable[..., Any]] = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "divide": lambda x, y: x / y,
    "negative": lambda x: -x,
    "power": lambda x, p: x**p,
    "absolute": lambda x: abs(x),
    "where": lambda condition, x, y: x if condition else y,
    "equal": lambda x, y: x == y,
    "not_equal": lambda x, y: x != y,
    "less": lambda x, y: x < y,
    "less_equal": lambda x, y: x <= y,
    "greater": lambda x, y: x > y,
    "greater_equal": lambda x, y: x >= y,
    "isnan": lambda x: math.isnan(x),
    "isinf": lambda x: math.isinf(x),
    "isfinite": lambda x: math.isfinite(x),
    "floor": lambda x: np.floor(x),
    "ceil": lambda x: np.ceil(x),
    "trunc": lambda x: np.trunc(x),
    "rint": lambda x: np.rint(x),
    "sign": lambda x: np.sign(x),
}
# Exponents that are part of the kernel, which then has no general power in it.
_EXPONENTS = {*range(-4, 9), 0.5, -0.5, 1.5}


@functools.cache
def operation(key: str | np.ufunc) -> ScalarOperation:
    """The operation of a name, which is "where" or that of a ufunc of NumPy's; or of a ufunc of any library.

    Raises
    ------
    ArgumentError, CompileError
        A ufunc does not work on single numbers, or has no derivative rule.
    """
    if key == "where":
        return ScalarOperation("where", np.where, _scalar_function(_WRITTEN_OUT["where"], "where"), False)
    ufunc: np.ufunc = getattr(np, key) if isinstance(key, str) else key
    name = ufunc.__name__
    is_of_numpy = getattr(np, name, None) is ufunc
    ends = is_of_numpy and name in _WITHOUT_DERIVATIVE
    if not ends and (ufunc.nout != 1 or ufunc.signature is not None):
        raise ArgumentError(f"{name} does not work on Variables: it is no function of single numbers to one number")
    scalar = None
    if is_of_numpy and name in _WRITTEN_OUT:
        scalar = _scalar_function(_WRITTEN_OUT[name], name)
    elif not ends:
        scalar = _with_rule(ufunc)
    return ScalarOperation(name, ufunc, scalar, ends)


def _scalar_function(function: Callable[..., Any], name: str) -> BroadcastFunction:
    """A BroadcastFunction with this name in messages."""
    scalar = differentiable_broadcast(function)
    scalar.__name__ = scalar.__qualname__ = scalar._binder.name = name
    return scalar


def _with_rule(ufunc: np.ufunc) -> BroadcastFunction:
    """The scalar function of a ufunc that the rule table knows.

    A ufunc without a derivative is refused where it is used, and not where the derivative is taken.
    """
    calls: dict[int, Callable[..., Any]] = {
        1: lambda x: ufunc(x),
        2: lambda x, y: ufunc(x, y),
    }
    scalar = _scalar_function(calls.get(ufunc.nin, lambda *args: ufunc(*args)), ufunc.__name__)
    try:
        scalar.inspect_ir(*["float64"] * ufunc.nin)
    except CompileError:
        raise ArgumentError(
            f"there is no derivative rule for the ufunc {ufunc.__name__}: use it on v.value if its derivative does not "
            "matter, or add a rule (dualbcast.rule)"
        ) from None
    return scalar


def fixed_power(exponent: Any) -> BroadcastFunction | None:
    """The power with an exponent that is compiled in; None where it is better left an argument."""
    if isinstance(exponent, int | float) and not isinstance(exponent, bool) and exponent in _EXPONENTS:
        return _fixed(exponent)
    return None


@functools.lru_cache(typed=True)
def _fixed(exponent: float) -> BroadcastFunction:
    return _scalar_function(lambda x: x**exponent, f"power {exponent}")
