"""Element-wise operations as scalar functions.

Comes in: the name of a ufunc, or a ufunc. Goes out: the scalar function that kernels are made of, where it has one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dualbcast.api.function import BroadcastFunction, differentiable_broadcast
from dualbcast.errors import ArgumentError, CompileError

__all__ = ["ScalarOperation", "fixed_power", "operation"]


class ScalarOperation:
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

    __slots__ = ("compute", "ends", "name", "scalar")

    def __init__(self, name: str, compute: Callable[..., Any], scalar: BroadcastFunction | None, ends: bool) -> None:
        self.name, self.compute, self.scalar, self.ends = name, compute, scalar, ends

    def __repr__(self) -> str:
        return f"<ScalarOperation {self.name}>"


# Ufuncs whose derivative is zero wherever it exists, and ufuncs whose results are no floats.
_WITHOUT_DERIVATIVE = {
    *("ceil", "fix", "floor", "floor_divide", "rint", "sign", "trunc", "invert", "gcd", "lcm"),
    *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "signbit"),
    *("isfinite", "isinf", "isnan", "logical_and", "logical_or", "logical_xor", "logical_not"),
    *("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift", "bitwise_count"),
}


def _named(function: BroadcastFunction, name: str) -> BroadcastFunction:
    function.__name__ = function.__qualname__ = function._binder.name = name
    return function


@differentiable_broadcast
def _add(x: Any, y: Any) -> Any:
    return x + y


@differentiable_broadcast
def _subtract(x: Any, y: Any) -> Any:
    return x - y


@differentiable_broadcast
def _multiply(x: Any, y: Any) -> Any:
    return x * y


@differentiable_broadcast
def _divide(x: Any, y: Any) -> Any:
    return x / y


@differentiable_broadcast
def _negative(x: Any) -> Any:
    return -x


@differentiable_broadcast
def _power(x: Any, p: Any) -> Any:
    return x**p


@differentiable_broadcast
def _absolute(x: Any) -> Any:
    return abs(x)


@differentiable_broadcast
def _where(condition: Any, x: Any, y: Any) -> Any:
    return x if condition else y


_ARITHMETIC = {
    "add": _named(_add, "add"),
    "subtract": _named(_subtract, "subtract"),
    "multiply": _named(_multiply, "multiply"),
    "divide": _named(_divide, "divide"),
    "negative": _named(_negative, "negative"),
    "power": _named(_power, "power"),
    "absolute": _named(_absolute, "absolute"),
}
_WHERE = ScalarOperation("where", np.where, _named(_where, "where"), False)
# Some of them as scalar functions. Kernels can contain these, so the operations around them need not be computed apart.
_IN_KERNELS: dict[str, Callable[..., Any]] = {
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
        return _WHERE
    ufunc: np.ufunc = getattr(np, key) if isinstance(key, str) else key
    name = ufunc.__name__
    own = getattr(np, name, None) is ufunc
    if own and name in _WITHOUT_DERIVATIVE:
        function = _IN_KERNELS.get(name)
        in_kernels = None if function is None else _named(differentiable_broadcast(function), name)
        return ScalarOperation(name, ufunc, in_kernels, True)
    if ufunc.nout != 1 or ufunc.signature is not None:
        raise ArgumentError(f"{name} does not work on Variables: it is no function of single numbers to one number")
    scalar = _ARITHMETIC.get(name) if own else None
    if scalar is None:
        scalar = _spelled(ufunc)
        _check_rule(scalar, ufunc)
    return ScalarOperation(name, ufunc, scalar, False)


def _spelled(ufunc: np.ufunc) -> BroadcastFunction:
    """The scalar function of a ufunc that the rule table knows."""
    if ufunc.nin == 1:
        scalar = differentiable_broadcast(lambda x: ufunc(x))
    elif ufunc.nin == 2:
        scalar = differentiable_broadcast(lambda x, y: ufunc(x, y))
    else:
        scalar = differentiable_broadcast(lambda *args: ufunc(*args))
    return _named(scalar, ufunc.__name__)


def _check_rule(scalar: BroadcastFunction, ufunc: np.ufunc) -> None:
    """Refuse a ufunc without a derivative where it is used, and not where the derivative is taken."""
    try:
        scalar.inspect_ir(*["float64"] * ufunc.nin)
    except CompileError:
        raise ArgumentError(
            f"there is no derivative rule for the ufunc {ufunc.__name__}: use it on v.value if its derivative does not "
            "matter, or add a rule (dualbcast.rule)"
        ) from None


def fixed_power(exponent: Any) -> BroadcastFunction | None:
    """The power with an exponent that is compiled in; None where it is better left an argument."""
    if isinstance(exponent, int | float) and not isinstance(exponent, bool) and exponent in _EXPONENTS:
        return _fixed(exponent)
    return None


@functools.lru_cache(typed=True)
def _fixed(exponent: float) -> BroadcastFunction:
    return _named(differentiable_broadcast(lambda x: x**exponent), f"power {exponent}")
