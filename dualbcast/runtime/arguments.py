"""The arguments of a call: validates them, settles dtypes, and gives their form, which many calls share, and their
addresses, which are a call's own. Nothing has run when an argument is refused.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy import ndarray

from dualbcast.adapters import FORMS, adapter_for
from dualbcast.errors import ArgumentError, DTypeError, a_or_an
from dualbcast.foreign_objects import called, instead, is_variable, refused_variable

Array: TypeAlias = Any  # numpy.ndarray or cupy.ndarray: CuPy is optional and has no types
DType: TypeAlias = "np.dtype[Any]"
Kind = Literal["bool", "int", "float"]
# An argument as promotion sees it: the dtype of an array or a NumPy scalar, or the type of a (weak) Python scalar.
Token: TypeAlias = "DType | type[float] | type[int] | type[bool]"

_INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
# The dtypes of NumPy's own that are supported. A dtype has the same name in either byte order.
STORAGES = ("bool", "float16", "float32", "float64", *_INTEGERS)
WEAK = (bool, int, float)  # bool first: it is a subclass of int
_HOST = (ndarray, np.memmap)
is_writeable = attrgetter("flags.writeable")
# The types whose objects are numbers of one dtype, each with the form of its numbers. That is no bare type, since a
# dtype is equal to the type of its numbers.
_NUMBERS = {kind: (kind,) for kind in (*WEAK, *[np.dtype(name).type for name in STORAGES])}

# Where a NumPy array has the address of its data: by NumPy's stable C ABI it comes first after the object's header.
HEADER = object.__basicsize__


@dataclass(frozen=True, slots=True)
class Signature:
    """The properties of a call that follow from the dtypes of its arguments, made once for each combination.

    `tokens`, `kinds` and `storages` have an entry for each argument. A kind is that of a scalar function's parameter:
    uint64 is "float", as in NumPy, where it meets int64 in float64. A storage is the name of the dtype of the elements
    in memory. `result_dtype` is the dtype of float outputs: NumPy's promotion of the arrays and NumPy scalars, float64
    if none is float. `compute` is that of the arithmetic, "float64" if `result_dtype` is, else "float32". `native` says
    whether all arrays are in native byte order.
    """

    tokens: tuple[Token, ...]
    kinds: tuple[Kind, ...]
    storages: tuple[str, ...]
    result_dtype: DType
    compute: str
    native: bool

    def __hash__(self) -> int:  # at every call, and the dtypes themselves take long
        return hash(self.storages)


class Operands(NamedTuple):
    """The validated arguments of a call, their `names` for error messages, and their `module`, "numpy" or "cupy".

    `arrays` has one for each argument, all of one kind. An argument that is an array is itself there, unless it is
    misaligned or not in native byte order: then it is a copy. Scalars, at the positions `numbers`, are 0-d arrays, of
    NumPy's also beside CuPy's arrays: a kernel on a GPU is given the number itself.
    """

    # A NamedTuple and not a frozen dataclass: making one costs a third, and one is made at every call.
    arrays: tuple[Array, ...]
    names: tuple[str, ...]
    signature: Signature
    module: str
    numbers: tuple[int, ...] = ()


def array_kind(value: object) -> Kind | None:
    """The kind of an array's elements; None for an object that is no array of NumPy's or CuPy's.

    An array of a dtype that is not supported counts as "float": `sign` refuses it later, by its name.
    """
    if type(value) is not ndarray and not (is_array(value, "numpy") or is_array(value, "cupy") or is_variable(value)):
        return None
    dtype: DType = value.dtype  # type: ignore[attr-defined]
    return _kind(storage_name(dtype) or "float64")


def sign(arguments: Sequence[object], names: tuple[str, ...]) -> Signature:
    """The signature of the arguments, which may be as for `classify`; it raises the same errors."""
    tokens = [
        value.dtype if type(value) is ndarray else _token(value, name)
        for value, name in zip(arguments, names, strict=True)
    ]
    return _signature(tuple(tokens), names)


def classify(arguments: Sequence[object], names: tuple[str, ...], signature: Signature | None = None) -> Operands:
    """Validate the arguments of a call and settle its dtypes; `signature` is what `sign` gives for them.

    Promotion is `numpy.result_type`, with Python scalars weak: they never widen the result. Where no argument is a
    float array or a NumPy float, the result is float64 for every integer width and for bool.

    An `ArgumentError` says that an argument is neither an array nor a number, that NumPy and CuPy arrays are mixed,
    that CuPy arrays are not on the current device, or that a Python int does not fit int64; a `DTypeError`, that a
    dtype is not supported, or that NumPy has no common dtype for them (bfloat16 with float16, say).
    """
    if signature is None:
        signature = sign(arguments, names)
    module = "numpy"
    if "cupy" in sys.modules:
        module = _module(arguments, names)
    convert = _on_device if module == "cupy" else on_host
    arrays, numbers = list(arguments), list[int]()
    for position, value in enumerate(arguments):
        if not (type(value) is ndarray and value.flags.aligned and signature.native):
            if is_variable(value):
                raise refused_variable(names[position])
            arrays[position] = convert(value, signature.tokens[position], signature, names[position])
            if isinstance(value, (np.generic, *WEAK)):
                numbers.append(position)
    return Operands(tuple(arrays), names, signature, module, tuple(numbers))


def is_array(value: object, module: str) -> bool:
    """Whether `value` is an array of `module`, "numpy" or "cupy". Subclasses that add meaning to the data are not."""
    if module == "numpy":
        return type(value) in _HOST
    # CuPy is never imported to test for it: where it is not loaded, nothing can be one of its arrays.
    cupy = sys.modules.get("cupy")
    return cupy is not None and isinstance(value, cupy.ndarray)


@lru_cache(maxsize=256)
def storage_name(dtype: DType) -> str:
    """The name of a supported dtype in either byte order, and "" for any other."""
    # ml_dtypes need not be imported to know its bfloat16 by name.
    return dtype.name if dtype.name in (*STORAGES, "bfloat16") else ""


@lru_cache(maxsize=1024)
def _signature(tokens: tuple[Token, ...], names: tuple[str, ...]) -> Signature:
    """Kinds, storages and promotion. The names are for the errors alone (which the cache does not keep)."""
    strong: list[tuple[str, DType]] = []
    for token, name in zip(tokens, names, strict=True):
        if not isinstance(token, type):
            if not storage_name(token):
                raise DTypeError(f"{name} has dtype {token}, which is not supported. {_dtype_hint(token, name)}")
            strong.append((name, token))
    result = _promote(strong)
    compute = "float64" if storage_name(result) == "float64" else "float32"
    weak = {float: compute, int: "int64", bool: "bool"}
    storages = tuple(weak[token] if isinstance(token, type) else storage_name(token) for token in tokens)
    native = all(isinstance(token, type) or token.isnative for token in tokens)
    return Signature(tokens, tuple(map(_kind, storages)), storages, result, compute, native)


def _promote(strong: list[tuple[str, DType]]) -> DType:
    """The dtype of float outputs, from the names and dtypes of all but the Python scalars."""
    if not strong:
        return np.dtype(np.float64)
    try:
        result = np.result_type(*(dtype for _, dtype in strong))
    except np.exceptions.DTypePromotionError:
        listing = ", ".join(f"{name} is {dtype}" for name, dtype in strong)
        raise DTypeError(
            f"NumPy has no common dtype for these arguments: {listing}. "
            "Convert some of them first, for example with .astype('float32')."
        ) from None
    # Integers and bools are computed in float64 at any width; NumPy would take float16 for int8, which helps nobody.
    return np.dtype(np.float64) if result.kind in "biu" else result


def _kind(storage: str) -> Kind:
    if storage == "bool":
        return "bool"
    return "float" if "float" in storage or storage == "uint64" else "int"


def _token(value: object, name: str) -> Token:
    """An argument as promotion sees it. It is refused here if it is neither an array nor a number."""
    if isinstance(value, np.generic) or is_array(value, "numpy") or is_array(value, "cupy") or is_variable(value):
        dtype: DType = value.dtype  # type: ignore[attr-defined]
        return dtype
    adapter = adapter_for(value)
    if adapter is not None:
        token: Token = adapter.token(value, name)
        return token
    for weak in WEAK:
        if isinstance(value, weak):
            return weak
    if isinstance(value, complex):
        raise DTypeError(f"{name} is a complex number, which is not supported. {_dtype_hint(np.dtype(complex), name)}")
    hint = instead(value, name) or "Pass a NumPy array, a CuPy array, a float, an int or a bool."
    if name.isidentifier() and not instead(value, name):
        hint = f"{hint[:-1]}; or decorate with static={name!r}, if it is to be known when the kernel is compiled."
    raise ArgumentError(f"{name} is {called(value)}, not an array or a number. {hint}")


def converted(value: Any, dtype: DType, name: str) -> Any:
    """An array or a number in a float dtype: a tangent or a cotangent. The errors are those of `sign`."""
    token = sign((value,), (name,)).tokens[0]
    if isinstance(token, type):
        return dtype.type(value)
    if token == dtype:
        return value
    with beside((value,)):
        return value.astype(dtype)


def no_derivative(name: str, token: Token) -> str:
    """Says why there is no derivative in an argument that is no float, and which expression to write instead."""
    written = "it" if " " in name else name
    if isinstance(token, type):
        return f"{name} is {a_or_an(token.__name__)}, which carries no derivative; pass float({written})"
    return f"{name} is of dtype {token}, which carries no derivative; pass {written}.astype('float64')"


def _dtype_hint(dtype: DType, name: str) -> str:
    """The expression to write instead of an array of a dtype that is not supported."""
    name = "it" if " " in name else name
    if dtype.names is not None:
        return f"Pass its fields one by one, for example {name}[{dtype.names[0]!r}]."
    if dtype.kind == "c":
        return f"Pass {name}.real and {name}.imag as two arguments."
    if dtype.kind in "mM":
        return f"Divide a difference of times by a unit: {name} / np.timedelta64(1, 's')."
    return f"Pass {name}.astype('float64'), or another of the float, integer and bool dtypes."


def one_library(arguments: Sequence[object], names: Sequence[str], rest: str = "") -> str:
    """The library of the arrays among some arguments, "numpy" or "cupy"; an ArgumentError where there are arrays of
    both. NumPy and Python scalars go with either. Arguments after those that have names are each called `rest`."""
    names = (*names, *[rest] * (len(arguments) - len(names)))
    host = [name for value, name in zip(arguments, names, strict=True) if is_array(value, "numpy")]
    device = [name for value, name in zip(arguments, names, strict=True) if is_array(value, "cupy")]
    if host and device:
        theirs, ours = ("…" if " " in name else name for name in (host[0], device[0]))
        raise ArgumentError(
            f"{host[0]} is a NumPy array and {device[0]} is a CuPy array: a call works on one kind. "
            f"Pass cupy.asarray({theirs}) or cupy.asnumpy({ours})."
        )
    return "cupy" if device else "numpy"


def _module(arguments: Sequence[object], names: tuple[str, ...]) -> str:
    """Which library's arrays the call works on, "numpy" or "cupy", whose arrays have to be on the current device."""
    if one_library(arguments, names) == "numpy":
        return "numpy"
    current = sys.modules["cupy"].cuda.runtime.getDevice()
    for value, name in zip(arguments, names, strict=True):
        if is_array(value, "cupy"):
            where: int = value.data.device_id  # type: ignore[attr-defined]
            if where != current:
                raise ArgumentError(
                    f"{name} is on GPU {where} and the current device is GPU {current}. "
                    f"Call under `with cupy.cuda.Device({where}):`, with all arrays there."
                )
    return "cupy"


def on_host(value: Any, token: Token, signature: Signature, name: str) -> Array:
    """A NumPy array that a kernel can read: the argument itself where possible."""
    if isinstance(token, type):
        return _weak_array(value, token, signature, name)
    array = np.asanyarray(value)  # not asarray: it would put a view in the place of a memmap
    if array.flags.aligned and array.dtype.isnative:
        return array
    # Supported dtypes are aligned to their size, so this also gives strides that are whole numbers of elements.
    return array.astype(array.dtype.newbyteorder("="), order="K", copy=True)


def _on_device(value: Any, token: Token, signature: Signature, name: str) -> Array:
    """A CuPy array that a kernel can read: the argument itself where possible. Numbers stay on the host."""
    if not is_array(value, "cupy"):
        return on_host(value, token, signature, name)
    if is_aligned(value):
        return value
    copy = sys.modules["cupy"].empty_like(value)
    assign(copy, value)
    return copy


def assign(target: Array, values: Array) -> None:
    """Copy an array into another of its library, shape and dtype. Either may be misaligned: a GPU ends a kernel that
    reads or writes a number there, so that CuPy must move single bytes."""
    if is_array(target, "cupy") and not (is_aligned(target) and is_aligned(values)):
        target, values = _bytes_of(target), _bytes_of(values)
    target[...] = values


def is_aligned(array: Array) -> bool:
    """Whether each element of an array lies where kernels can read it: on a GPU at a multiple of its size."""
    if not is_array(array, "cupy"):
        return bool(array.flags.aligned)
    steps = [step for step, length in zip(array.strides, array.shape, strict=True) if length > 1]
    return all(number % array.itemsize == 0 for number in (array.data.ptr, *steps))


def _bytes_of(array: Array) -> Array:
    """A view of the bytes of a CuPy array's elements, along one more axis."""
    shape, strides = (*array.shape, array.itemsize), (*array.strides, 1)
    return sys.modules["cupy"].ndarray(shape, np.uint8, array.data, strides)


def _weak_array(value: Any, token: type, signature: Signature, name: str) -> Array:
    """A Python scalar as a 0-d array. A float has the compute dtype: beside float16 it is not rounded to float16."""
    if token is float:
        return np.array(value, signature.compute)
    try:
        return np.array(value, np.bool_ if token is bool else np.int64)
    except OverflowError:
        raise ArgumentError(f"{name} is {value}, which int64 cannot hold. Pass float({name}).") from None


# ---- forms and addresses ---------------------------------------------------------------------------------------------


def forms_of(values: tuple[Any, ...]) -> Hashable:
    """A key of the form of a call: an array's shape, strides and dtype, a number's type.

    Arguments with the same forms have the same signature and broadcast to the same shape. Where they `are_plain`, calls
    differ only in the arrays' contents and addresses.
    """
    # A flat tuple takes the least time to make, to hash and to compare. It is unambiguous: a NumPy array is as many
    # integers as it has lengths and strides, and then a dtype; anything else is a tuple.
    key: list[Any] = []
    for x in values:
        if type(x) is ndarray:
            key += x.shape
            key += x.strides
            key.append(x.dtype)
        else:
            kind = type(x)
            form = FORMS.get(kind)
            key.append(_other_form(x) if form is None else (kind, form(x)))
    return tuple(key)


def _other_form(value: Any) -> tuple[Any, ...]:
    kind = type(value)
    number = _NUMBERS.get(kind)
    if number is not None:
        return number
    variable = getattr(value, "__form__", None)
    if variable is not None:  # a Variable of the graph
        return kind, variable
    cupy = sys.modules.get("cupy")
    if cupy is not None and kind is cupy.ndarray:
        FORMS[kind] = _device_form  # found there from now on, in a third of the time
        return kind, _device_form(value)
    dtype = getattr(value, "dtype", None)
    lengths = [getattr(value, name, None) for name in ("shape", "strides")]
    known = dtype if isinstance(dtype, np.dtype) else None
    return kind, known, *[each if type(each) is tuple else None for each in lengths]


def _device_form(array: Array) -> tuple[Any, ...]:
    return array.shape, array.strides, array.dtype


def are_plain(values: Sequence[object]) -> bool:
    """Whether all are NumPy arrays or numbers, of no other class."""
    return all(type(value) is ndarray or type(value) in _NUMBERS for value in values)


# `array.ctypes.data` and `__array_interface__` build objects and take 0.75 µs an array; a call has ten arrays.
_read_pointer = ctypes.c_size_t.from_address


def host_addresses(arrays: Sequence[Array]) -> tuple[int, ...]:
    """The addresses of the data of NumPy's arrays."""
    return tuple([_read_pointer(id(array) + HEADER).value for array in arrays])


def device_addresses(arrays: Sequence[Array]) -> tuple[int, ...]:
    """The addresses of CuPy arrays; 0 for numbers, which are on the host."""
    return tuple([0 if type(array) is ndarray else array.data.ptr for array in arrays])


# ---- devices ---------------------------------------------------------------------------------------------------------


def beside(values: Sequence[object]) -> AbstractContextManager[Any]:
    """A context in which the current device is the one that has the arrays among `values`; none needed for NumPy's. An
    `ArgumentError` says that two devices have arrays of the call."""
    cupy = sys.modules.get("cupy")
    if cupy is None:
        return nullcontext()
    devices = {value.data.device_id for value in values if isinstance(value, cupy.ndarray)}
    if len(devices) > 1:
        listed = " and ".join(map(str, sorted(devices)))
        raise ArgumentError(f"The arrays of one call are on GPUs {listed}; copy them to one of these.")
    if not devices or devices == {cupy.cuda.runtime.getDevice()}:
        return nullcontext()
    context: AbstractContextManager[Any] = cupy.cuda.Device(*devices)
    return context
