"""What is neither Variable, array nor number: a derivative would be lost in it without a word, so it is refused."""

from __future__ import annotations

from typing import Any

import numpy as np

from dualbcast.errors import ArgumentError
from dualbcast.graph.trees import map_leaves

__all__ = ["check_results", "has_own_arithmetic", "is_plain", "refused_argument", "refused_result"]

_NUMPYS = (np.ndarray, np.generic)
_NUMBERS = {bool, int, float, complex}
# How the array is taken out of what other libraries put around it, by an attribute that their classes have.
_WAYS_OUT = {"magnitude": ".magnitude", "dims": ".data", "to_numpy": ".to_numpy()", "compute": ".compute()"}


def _is_ours(kind: type) -> bool:
    """Whether a class is Variable."""
    return hasattr(kind, "__broadcast_function__")


def _is_of_cupy(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "cupy"


def is_plain(value: Any) -> bool:
    """Whether a value is a number or an array of numbers, in which no Variable can hide.

    Examples
    --------
    >>> is_plain(1.0), is_plain(np.ones(3)), is_plain(np.array([None])), is_plain(np.ma.ones(3))
    (True, True, False, False)
    """
    kind = type(value)
    if kind in _NUMBERS or isinstance(value, np.generic):
        return kind is not np.void
    return (kind is np.ndarray or kind is np.memmap or _is_of_cupy(kind)) and not value.dtype.hasobject


def has_own_arithmetic(value: Any) -> bool:
    """Whether a value is an array of another library's that means more than its numbers: a unit, an index, a mask."""
    kind = type(value)
    if kind is np.ndarray or kind is float or isinstance(value, _NUMPYS) or _is_ours(kind) or _is_of_cupy(kind):
        return False
    return hasattr(kind, "__array_ufunc__") or hasattr(kind, "__array_function__")


def check_results(result: Any, name: str) -> None:
    """Refuse what a differentiated function returns if it is no container of Variables, arrays, numbers and texts.

    Parameters
    ----------
    result
        What it returns.
    name : str
        What messages call the function.
    """

    def check(path: str, leaf: Any) -> None:
        if not (_is_ours(type(leaf)) or is_plain(leaf) or type(leaf) in (str, bytes)):
            raise refused_result(leaf, name, path)

    map_leaves(check, result, "result")


def refused_result(value: Any, name: str, path: str = "result") -> ArgumentError:
    """The error for something that a differentiated function returns."""
    at = "" if path == "result" else f" in {path}"
    way = _way_out(value)
    if isinstance(value, np.ndarray) or way == ".to_numpy()":
        hint = "Put Variables together with np.stack([…])"
    elif way:
        hint = f"Return the Variable in it, {path}{way}"
    else:
        hint = "Return Variables: one, or a list, tuple, dict or dataclass of them"
    return ArgumentError(
        f"{name} returns {_called(value)}{at}, which is no Variable: no derivative would come through it, not even of "
        f"Variables inside. {hint}"
    )


def refused_argument(value: Any, name: str) -> ArgumentError:
    """The error for an argument, or another value, that is to become a Variable."""
    way = _way_out(value)
    return ArgumentError(
        f"{name} is {_called(value)}: what that adds to its numbers (a unit, an index, a mask) would be lost. Pass "
        f"{f'the array in it, x{way}' if way else 'np.asarray(x)'}"
    )


def _called(value: Any) -> str:
    kind = type(value)
    if kind is np.ndarray or kind is np.memmap:
        return f"an array of dtype {value.dtype}"
    module = "" if kind.__module__ in ("builtins", "__main__") else kind.__module__.partition(".")[0] + "."
    return f"an object of type {module}{kind.__name__}"


def _way_out(value: Any) -> str:
    return next((way for name, way in _WAYS_OUT.items() if hasattr(type(value), name)), "")
