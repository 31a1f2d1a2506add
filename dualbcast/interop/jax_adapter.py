"""Calls on JAX's arrays and tracers: how they promote, and the primitive applied to them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dualbcast.adapters import Adapter, register
from dualbcast.errors import ArgumentError, DTypeError
from dualbcast.interop import jax_lowering  # noqa: F401 (it registers how XLA runs the primitive)
from dualbcast.interop.bridge import bridged
from dualbcast.interop.jax_primitive import Application, space_of
from dualbcast.interop.jax_whole_arrays import bind
from dualbcast.program.element import Element
from dualbcast.runtime.arguments import DType, sign

# The types of arrays, and of what stands for them while a function is traced.
_TYPES = (type(jnp.zeros(())), jax.core.Tracer)
# Python's numbers, by the kind of a dtype.
_PYTHONS: dict[str, type] = {"b": bool, "i": int, "u": int}


class JaxAdapter(Adapter):
    """For arrays of JAX, and what stands for them while a function is traced.

    Dtypes promote by JAX's rules: integers do not widen a float, and numbers that JAX calls weakly typed promote as
    Python's. Without `jax_enable_x64`, float64 is float32 and int64 is int32.
    """

    name, arrays = "JAX", "JAX array"
    takes_numpy, promotes = True, True

    def token(self, value: Any, name: str) -> Any:
        dtype = value.dtype
        if not isinstance(dtype, np.dtype):  # that of a key for random numbers, say
            raise DTypeError(f"{name} has dtype {dtype}, which is not supported. Pass an array of numbers.")
        sign((np.empty((), dtype),), (name,))
        return _PYTHONS.get(dtype.kind, float) if _is_weak(value) else dtype

    def promoted(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        floats = _floats(values)
        stand_in = np.empty((), jnp.result_type(*floats)) if floats else 0.0

        def like(value: Any) -> Any:
            kind = value.dtype.kind if hasattr(value, "dtype") else ""
            # A uint64 is a float to the scalar function, as it is with NumPy's arrays.
            if not kind or (kind in _PYTHONS and value.dtype != np.uint64):
                return value if not kind else _PYTHONS[kind]()
            return stand_in

        return tuple(map(like, values))

    def on_host(self, element: Element, values: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any] | None:  # noqa: ARG002
        arrays = []
        for value in values:
            if isinstance(value, jax.core.Tracer):  # while derivatives are taken, it has the number
                value = value.to_concrete_value()
                if value is None:
                    return None
            if isinstance(value, jax.Array):
                if any(device.platform != "cpu" for device in value.devices()):
                    return None
                value = np.asarray(value)
            arrays.append(value)
        return tuple(arrays), None

    def form(self, value: Any) -> Hashable:
        return value.dtype, _is_weak(value), jax.config.jax_enable_x64

    def apply(
        self,
        element: Element,
        values: tuple[Any, ...],
        dtypes: tuple[DType, ...],
        sums: tuple[int | None, ...] | None = None,
    ) -> tuple[Any, ...]:
        dtypes = tuple(map(_canonical, dtypes))
        compute = _compute(values, dtypes)
        operands = [_operand(*each, np.dtype(compute)) for each in zip(values, element.names, strict=True)]
        space = space_of(element, [operand.shape for operand in operands])
        shapes: list[tuple[int, ...] | None] = [None] * len(dtypes)
        for at, position in enumerate(sums or ()):
            if position is not None and operands[position].shape != space:
                shapes[at] = operands[position].shape
        return tuple(Application(element, dtypes, tuple(shapes), compute)(*operands))

    def with_whole(self, function: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        call, inputs, results = bridged(self, function, args, named)
        likes = tuple([(results.shape, _canonical(dtype)) for dtype in results.dtypes])
        return results.pack(bind(call, likes, *map(jnp.asarray, inputs)))

    def cast(self, value: Any, dtype: DType, name: str) -> Any:
        if isinstance(value, complex) or getattr(value, "dtype", np.dtype(bool)).kind == "c":
            raise DTypeError(f"{name} is complex, which is not supported. Pass its real and imaginary parts apart.")
        try:
            return jnp.asarray(value, _canonical(dtype))
        except TypeError as error:
            raise ArgumentError(f"{name} is no array of JAX's or NumPy's, nor a number: {error}") from None

    def complex_of(self, real: Any, imag: Any) -> Any:
        return jax.lax.complex(*[part.astype(jnp.promote_types(part.dtype, np.float32)) for part in (real, imag)])

    def stack(self, blocks: Sequence[Any]) -> Any:
        return jnp.stack(blocks, axis=-1)


def _is_weak(value: Any) -> bool:
    """Whether an array promotes as a Python number does."""
    return bool(getattr(value, "weak_type", False))


def _canonical(dtype: Any) -> DType:
    """The dtype that JAX has in place of one: without x64 there are none of 64 bits."""
    return _canonical_with(dtype, jax.config.jax_enable_x64)


@lru_cache(maxsize=256)
def _canonical_with(dtype: Any, x64: bool) -> DType:  # noqa: ARG001 (JAX reads its setting itself)
    canonical: DType = np.dtype(jax.dtypes.canonicalize_dtype(dtype))
    return canonical


@lru_cache(maxsize=256)
def _is_float(dtype: DType) -> bool:
    """Whether a dtype is a float's, bfloat16's too."""
    return bool(jnp.issubdtype(dtype, np.floating))


def _floats(values: Sequence[Any]) -> list[DType]:
    """The float dtypes that promote: those of arrays, and of NumPy's numbers."""
    return [
        _canonical(value.dtype)
        for value in values
        if hasattr(value, "dtype") and _is_float(value.dtype) and not _is_weak(value)
    ]


def _compute(values: Sequence[Any], dtypes: Sequence[DType]) -> str:
    """The dtype of the arithmetic: float64 where an argument or an output is, or where no argument is a float and JAX
    has float64."""
    floats = _floats(values) or [_canonical(np.float64)]
    return "float64" if np.dtype(np.float64) in (*floats, *dtypes) else "float32"


def _operand(value: Any, name: str, compute: DType) -> Any:
    """An argument as an array of JAX's, or a tracer, that a kernel can read."""
    if isinstance(value, _TYPES) and not _is_weak(value) and value.dtype != np.uint64:
        return value  # as most arguments are
    try:
        array = jnp.asarray(value)
    except OverflowError:
        raise ArgumentError(
            f"{name} is {value}, which {_canonical(np.int64)} cannot hold. Pass float({name})."
        ) from None
    # A Python number has the dtype of the arithmetic: beside bfloat16 it is not rounded to that.
    target = compute if (_is_weak(array) and _is_float(array.dtype)) or array.dtype == np.uint64 else array.dtype
    return jax.lax.convert_element_type(array, target)


register(JaxAdapter(), jax.Array, *_TYPES)
