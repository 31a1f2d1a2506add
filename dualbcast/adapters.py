"""The adapters of other libraries' arrays, by the types of these arrays.

An argument of a call comes in. Out goes the `Adapter` that makes the call, from a module of `interop/` that is imported
when the first array of its library is met.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from dualbcast.errors import ArgumentError, a_or_an

# By the beginning of the name of a type's module, the module that registers an adapter for such types.
_MODULES = {
    "dask.": "dualbcast.interop.dask_arrays",
    "jax.": "dualbcast.interop.jax_adapter",
    "jaxlib.": "dualbcast.interop.jax_adapter",
    "numpy.ma.": "dualbcast.interop.masked_arrays",
    "torch.": "dualbcast.interop.pytorch.adapter",
    "xarray.": "dualbcast.interop.xarray_arrays",
    "pandas.": "dualbcast.interop.pandas_series",
}

# By the exact type of an argument; None for types that no adapter is for.
ADAPTERS: dict[type, Adapter | None] = {}
# By the exact type of an argument, the `form` of its adapter, if there is one.
FORMS: dict[type, Callable[[Any], Hashable]] = {}
# In the order of registration; a type's own adapter is that of the first of its bases that is here.
_REGISTERED: dict[type, Adapter] = {}


class Adapter(ABC):
    """How calls on the arrays of one library are made. All arrays of a call have the same adapter.

    `name` is the library's for messages, and `arrays` what it calls its arrays.
    """

    name: str
    arrays: str
    # Whether a call may also have arrays of NumPy's that are not of shape ().
    takes_numpy = False
    # The library's module of NumPy's functions, if Variables of the graph may hold its arrays. These do not change,
    # and are computed when somebody asks for them; `parts` makes calls on them.
    namespace: Any = None
    # Whether dtypes promote by rules of the library's own; see `promoted`.
    promotes = False

    @abstractmethod
    def token(self, value: Any, name: str) -> Any:
        """The NumPy dtype of an array's elements; for an array that promotes as a Python number, that number's type.

        A `DTypeError` or an `ArgumentError` with the `name` of the argument says that it is not supported.
        """

    def promoted(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """Where the library promotes otherwise than NumPy: stand-ins that NumPy promotes to the library's result."""
        return values

    @abstractmethod
    def apply(
        self,
        element: Any,
        values: tuple[Any, ...],
        dtypes: tuple[np.dtype[Any], ...],
        sums: tuple[int | None, ...] | None = None,
    ) -> tuple[Any, ...]:
        """The outputs of an element function (`program.element.Element`), each as an array of the library's.

        The `values` are in the order of its parameters: arrays of the library's, numbers, and captured arrays of
        NumPy's. Output k has dtype `dtypes[k]`. If `sums` is given and `sums[k]` is a position, output k is summed to
        the shape of `values[sums[k]]`, over the axes along which that was broadcast.
        """

    def bound(self, element: Any, dtypes: tuple[np.dtype[Any], ...]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
        """`apply` without sums as a function of the values."""
        return lambda values: self.apply(element, values, dtypes)

    def parts(
        self,
        element: Any,
        values: tuple[Any, ...],
        dtypes: tuple[np.dtype[Any], ...],
        shapes: tuple[tuple[int, ...] | None, ...] | None = None,
    ) -> tuple[Any, ...]:
        """The same, where `shapes[k]` is None, or the shape that output k is summed to; see `Element.parts`."""
        raise NotImplementedError

    # Where the library differentiates calls of functions with whole arrays: what makes one, from the function and the
    # arguments by position and by name, on arrays some of which are the library's.
    with_whole: Callable[[Any, tuple[Any, ...], Mapping[str, Any]], Any] | None = None

    def whole(self, value: Any, name: str) -> Any:
        """An array of the library's that is a whole one, as an array of NumPy's or CuPy's. Elsewhere, where no library
        differentiates the call, it is one that other arguments broadcast beside."""
        raise NotImplementedError

    def on_host(self, element: Any, values: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any] | None:  # noqa: ARG002
        """For statements that run beside a call of `apply`: the values, with arrays of NumPy's that have their numbers,
        and which of the elements are masked, if any are. None where there are no numbers yet, or not on the host."""
        return None

    def form(self, value: Any) -> Hashable:
        """A key of the properties of an array on which its token depends, as part of the key of a call."""
        return getattr(value, "dtype", None)

    def stand_ins(self, values: tuple[Any, ...], names: Sequence[str]) -> tuple[Any, ...]:
        """Arrays of NumPy's in the places of the library's, of such shapes and dtypes, with any contents."""
        stand_ins = []
        for value, name in zip(values, names, strict=True):
            token = None if adapter_for(value) is None else self.token(value, name)
            if isinstance(token, np.dtype):
                value = np.empty(self.shape((value,)), token)
            stand_ins.append(token() if isinstance(token, type) else value)
        return tuple(stand_ins)

    def shape(self, values: tuple[Any, ...]) -> tuple[int, ...]:
        """The shape that the values broadcast to."""
        return np.broadcast_shapes(*[tuple(getattr(value, "shape", ())) for value in values])

    def fits(self, value: Any, values: tuple[Any, ...], exactly: bool = False) -> bool:
        """Whether an array or a number broadcasts to the shape that the values broadcast to, or has exactly that."""
        shape, own = self.shape(values), self.shape((value,))
        extra = len(shape) - len(own)
        if exactly or extra < 0:
            return own == shape
        return all(length in (1, whole) for length, whole in zip(own, shape[extra:], strict=True))

    @abstractmethod
    def cast(self, value: Any, dtype: np.dtype[Any], name: str) -> Any:
        """A tangent or cotangent in a dtype, as an array of the library's or a number."""

    def complex_of(self, real: Any, imag: Any) -> Any:  # noqa: ARG002
        """The array of complex numbers with these parts."""
        raise ArgumentError(
            f"arrays of complex numbers are not made of {self.name}'s arrays. Return their parts, z.real and z.imag, "
            "and pass those of an argument as two"
        )

    @abstractmethod
    def stack(self, blocks: Sequence[Any]) -> Any:
        """Arrays of one shape along a new last axis."""


def register(adapter: Adapter, *types: type) -> None:
    """Have an adapter make the calls on arrays of these types, and of types derived from them."""
    _REGISTERED.update(dict.fromkeys(types, adapter))
    ADAPTERS.clear()
    FORMS.clear()


def adapter_for(value: Any) -> Adapter | None:
    """The adapter for an argument; None for arrays of NumPy's and CuPy's, numbers, and what nobody knows."""
    kind = type(value)
    try:
        return ADAPTERS[kind]
    except KeyError:
        pass
    bases = kind.__mro__
    for beginning, module in _MODULES.items():
        if any(f"{base.__module__}.".startswith(beginning) for base in bases):
            import_module(module)
    adapter = next((_REGISTERED[base] for base in bases if base in _REGISTERED), None)
    ADAPTERS[kind] = adapter
    if adapter is not None:
        FORMS[kind] = adapter.form
    return adapter


def refuse_other_libraries(what: str, values: Iterable[Any]) -> None:
    """Raise an `ArgumentError` if one of the values is an array that is neither NumPy's nor CuPy's."""
    for adapter in filter(None, map(adapter_for, values)):
        if adapter.name != "numpy.ma":
            raise ArgumentError(
                f"{what} takes arrays of NumPy's and CuPy's, and this call is on arrays of {adapter.name}'s. "
                "Pass their numbers as arrays of NumPy's."
            )


def is_lazy(value: Any) -> bool:
    """Whether a value is an array of another library's that a Variable of the graph may hold."""
    adapter = adapter_for(value)
    return adapter is not None and adapter.namespace is not None


def adapter_of(values: Iterable[Any], names: Collection[str]) -> Adapter | None:
    """The adapter for a call with these arguments; None where all are arrays of NumPy's or CuPy's, or numbers.

    An `ArgumentError` says that the arrays are of several libraries.
    """
    named = [(value, name, adapter_for(value)) for value, name in zip(values, names, strict=True)]
    found = [(name, adapter) for _, name, adapter in named if adapter is not None]
    if not found:
        return None
    name, adapter = found[0]
    for value, other, its in named:
        if its is adapter or (its is None and not has_shape(value)) or f"{other}.shape[0]" in names:
            continue  # one of its arrays, a number, or a whole array
        if its is not None:
            described = a_or_an(its.arrays)
        elif hasattr(type(value), "__broadcast_function__"):
            if adapter.namespace is not None:
                continue
            described = "a Variable"
        elif isinstance(value, np.ndarray):
            if adapter.takes_numpy:
                continue
            described = "a NumPy array"
        else:
            described = "a CuPy array"
        raise ArgumentError(
            f"{name} is {a_or_an(adapter.arrays)} and {other} is {described}: the arrays of one call are of one "
            f"library. Convert one of them, or pass np.asarray({name})."
        )
    return adapter


def has_shape(value: Any) -> bool:
    """Whether a value is an array of any library, or a Variable, and no number."""
    return not isinstance(value, np.generic) and hasattr(value, "shape")
