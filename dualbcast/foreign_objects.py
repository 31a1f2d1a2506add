"""Objects that are no plain arrays of NumPy's or CuPy's: how they are recognised, and how messages speak of them.

A user's object comes in. Out go the answer whether a derivative would be lost in it, its name, and a call that works.
"""

from __future__ import annotations

import array
import operator
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from dualbcast.adapters import adapter_for
from dualbcast.errors import ArgumentError, BackendError, a_or_an

_NUMPYS = (np.ndarray, np.generic)
_NUMBERS = {bool, int, float, complex}
# DLPack's names of the memory of a host: kDLCPU, kDLCUDAHost, kDLROCMHost.
_HOSTS = (1, 3, 11)
# By an attribute of the classes of other libraries, the way to the array inside.
_ARRAY_INSIDE = {"magnitude": ".magnitude", "dims": ".data", "to_numpy": ".to_numpy()", "compute": ".compute()"}


def is_variable(value: object) -> bool:
    """Whether a value is a Variable of a graph: it has a dtype and stands where an array can, but is none."""
    return hasattr(type(value), "__broadcast_function__")


def recorder_of(values: Iterable[object]) -> Callable[..., Any] | None:
    """How the graph makes a call with these arguments; None where no Variable is among them."""
    for value in values:
        recorder: Callable[..., Any] | None = getattr(type(value), "__broadcast_function__", None)
        if recorder is not None:
            return recorder
    return None


def is_plain(value: Any) -> bool:
    """Whether a value is a number or an array of numbers, in which no Variable can hide."""
    kind = type(value)
    if kind in _NUMBERS or isinstance(value, np.generic):
        return kind is not np.void
    return (kind is np.ndarray or kind is np.memmap or _is_of_cupy(kind)) and not value.dtype.hasobject


def has_own_arithmetic(value: Any) -> bool:
    """Whether a value is an array of another library's that means more than its numbers: a unit, an index, a mask."""
    kind = type(value)
    if kind is np.ndarray or kind is float or isinstance(value, _NUMPYS) or is_variable(value) or _is_of_cupy(kind):
        return False
    return hasattr(kind, "__array_ufunc__") or hasattr(kind, "__array_function__")


def _is_of_cupy(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "cupy"


# --- what NumPy or CuPy takes as an array -----------------------------------------------------------------------------

_SEQUENCES = (list, tuple, range, memoryview, array.array)
# DLPack's name of the memory of CUDA devices.
_CUDA = 2


def plain_arrays(values: tuple[Any, ...], names: Sequence[str]) -> tuple[Any, ...]:
    """The values, with arrays in place of those that `as_plain` makes arrays of; the same object if there are none."""
    converted = tuple([as_plain(value, name) for value, name in zip(values, names, strict=True)])
    return values if all(map(operator.is_, converted, values)) else converted


def as_plain(value: Any, name: str) -> Any:
    """An array that shares the memory of an object where it can; any other object itself.

    Lists, tuples, ranges, `memoryview` and `array.array` become arrays as NumPy makes them. Objects with
    `__array_interface__`, `__cuda_array_interface__` or DLPack's methods become arrays if they have no arithmetic of
    their own, such as units, which would be lost.
    """
    kind = type(value)
    if kind is np.ndarray or kind in _NUMBERS or value is None:
        return value
    if isinstance(value, _SEQUENCES):
        return _converted(np.asarray, value, name)
    if isinstance(value, (*_NUMPYS, str, bytes, type)) or is_variable(value) or _is_of_cupy(kind):
        return value
    if adapter_for(value) is not None or has_own_arithmetic(value):
        return value
    if hasattr(value, "__array_interface__"):
        return _converted(np.asarray, value, name)
    if hasattr(value, "__cuda_array_interface__"):
        return _converted(_cupy(name).asarray, value, name)
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        device = value.__dlpack_device__()[0]
        if device in _HOSTS:
            return _converted(np.from_dlpack, value, name)
        if device == _CUDA:
            return _converted(_cupy(name).from_dlpack, value, name)
    return value


def _converted(convert: Callable[[Any], Any], value: Any, name: str) -> Any:
    """An object as an array, by a function of NumPy's or CuPy's."""
    try:
        converted = convert(value)
    except ArgumentError:
        raise
    except Exception as error:  # whatever somebody else's object may raise
        raise ArgumentError(f"{name} is {called(value)} that no array can be made of: {error}") from error
    if converted.dtype.hasobject:
        raise ArgumentError(
            f"{name} is {called(value)} of objects that are no numbers. Pass an array, or lists of numbers."
        )
    return converted


def _cupy(name: str) -> Any:
    """CuPy, for an argument in the memory of a GPU."""
    try:
        return import_module("cupy")
    except ImportError:
        raise BackendError(
            f"{name} is in the memory of a GPU, where a call takes CuPy: pip install 'dualbcast[cuda13]'"
        ) from None


# --- what messages say ------------------------------------------------------------------------------------------------


def called(value: object) -> str:
    """An object by its type: None, `a list`, `a torch.Tensor`."""
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return "None" if value is None else a_or_an(name)


def instead(value: Any, name: str) -> str:
    """A sentence that names the call to write in place of an object that is no array; empty where none is known."""
    name = name if name.isidentifier() else "it"
    return next((sentence.format(name=name) for holds, sentence in _INSTEAD if holds(value)), "")


def _is(module: str, *names: str) -> Callable[[object], bool]:
    """Whether an object is of a class of a module, which is not imported for the question."""
    return lambda value: isinstance(value, tuple(getattr(sys.modules.get(module), name, ()) for name in names))


def _has(*names: str) -> Callable[[object], bool]:
    """Whether an object has one of these attributes."""
    return lambda value: any(hasattr(value, name) for name in names)


def _is_on_device(value: Any) -> bool:
    """Whether DLPack says that the memory of an object is not a host's."""
    try:
        return value.__dlpack_device__()[0] not in _HOSTS
    except Exception:  # whatever somebody else's object may raise
        return False


_is_tensor = _is("torch", "Tensor")
# What to write in place of an object: the sentence of the first question whose answer is yes.
_INSTEAD: list[tuple[Callable[[Any], bool], str]] = [
    (
        lambda value: isinstance(value, np.ndarray),
        "A mask, a unit or whatever the subclass adds would be lost; if that is right, pass np.asarray({name}).",
    ),
    (lambda value: _is_tensor(value) and value.device.type == "cuda", "Pass cupy.from_dlpack({name}.detach())."),
    (lambda value: _is_tensor(value) and value.device.type == "cpu", "Pass {name}.detach().numpy()."),
    (_is_tensor, "Pass {name}.detach().cpu().numpy()."),
    (
        _is("scipy.sparse", "sparray", "spmatrix"),
        "Pass {name}.toarray(); or {name}.data, for its stored elements alone, if the function gives 0 for all others.",
    ),
    (is_variable, "Pass {name}.value, which has no derivative."),
    (_is("jax.core", "Tracer"), "It has no numbers while JAX traces it; make the call outside of jit, grad and vmap."),
    (_has("__array__", "__array_interface__"), "Pass np.asarray({name})."),
    (_has("__cuda_array_interface__"), "Pass cupy.asarray({name})."),
    (_is_on_device, "Pass cupy.from_dlpack({name})."),
    (_has("__dlpack__"), "Pass np.from_dlpack({name})."),
    (lambda value: isinstance(value, complex), "Pass {name}.real and {name}.imag as two arguments."),
    (lambda value: hasattr(type(value), "__float__"), "Pass float({name})."),
    (lambda value: value is None or isinstance(value, str | bytes | dict | set | frozenset | type), ""),
    (
        lambda value: isinstance(value, Sequence | memoryview) or hasattr(value, "__buffer__"),
        "Pass np.asarray({name}).",
    ),
    (lambda value: isinstance(value, Iterable), "Pass np.fromiter({name}, float)."),
]


def refused_result(value: Any, name: str, path: str = "result") -> ArgumentError:
    """The error for an object that the function `name` returns at `path`, where a derivative would be lost in it."""
    at = "" if path == "result" else f" in {path}"
    inside = _array_inside(value)
    if isinstance(value, np.ndarray) or inside == ".to_numpy()":
        hint = "Put Variables together with np.stack([…])"
    elif inside:
        hint = f"Return the Variable in it, {path}{inside}"
    else:
        hint = "Return Variables: one, or a list, tuple, dict or dataclass of them"
    return ArgumentError(
        f"{name} returns {_described(value)}{at}, which is no Variable: no derivative would come through it, not even "
        f"of Variables inside. {hint}"
    )


def refused_argument(value: Any, name: str) -> ArgumentError:
    """The error for an argument, or another value, that is to become a Variable."""
    inside = _array_inside(value)
    return ArgumentError(
        f"{name} is {_described(value)}: a unit, an index or a mask that it adds to its numbers would be lost. Pass "
        f"{f'the array in it, x{inside}' if inside else 'np.asarray(x)'}"
    )


def refused_variable(name: str) -> ArgumentError:
    """The error for a Variable as an argument, or as a captured array, of a method that works on arrays."""
    return ArgumentError(
        f"{name} is a Variable. Calls of a BroadcastFunction take it, and derivatives then come from "
        f"dualbcast.graph: grad, vjp or jvp of a function that makes the call. For this, pass {name}.value"
    )


def _described(value: Any) -> str:
    kind = type(value)
    if kind is np.ndarray or kind is np.memmap:
        return f"an array of dtype {value.dtype}"
    module = "" if kind.__module__ in ("builtins", "__main__") else kind.__module__.partition(".")[0] + "."
    return f"an object of type {module}{kind.__name__}"


def _array_inside(value: Any) -> str:
    return next((way for name, way in _ARRAY_INSIDE.items() if hasattr(type(value), name)), "")
