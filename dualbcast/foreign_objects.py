"""Objects that are no arrays of NumPy's or CuPy's: what messages call them, and what to write in their place."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from numbers import Number
from typing import Any

import numpy as np

from dualbcast.errors import a_or_an

__all__ = ["called", "instead"]

# What DLPack calls the memory of a host.
_HOSTS = (1, 3, 11)  # kDLCPU, kDLCUDAHost, kDLROCMHost


def called(value: object) -> str:
    """An object by its type: None, `a list`, `a torch.Tensor`."""
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return "None" if value is None else a_or_an(name)


def instead(value: Any, name: str) -> str:
    """What to write instead of an object that is no array, as a sentence; empty where nothing is known of it.

    Examples
    --------
    >>> instead([1.0], "x"), instead(iter([1.0]), "x"), instead({}, "x")
    ('Pass np.asarray(x).', 'Pass np.fromiter(x, float).', '')
    """
    name = name if name.isidentifier() else "it"
    if isinstance(value, np.ndarray):
        return f"What the subclass adds (a mask, a unit) would be lost; if that is right, pass np.asarray({name})."
    if _is(value, "jax.core", "Tracer"):
        return (
            "JAX is tracing it, inside jax.jit, jax.grad, jax.vmap or the like, so it has no numbers yet: make this "
            "call outside of them, or by jax.pure_callback."
        )
    if _is(value, "torch", "Tensor"):
        if value.device.type == "cuda":
            return f"Pass cupy.from_dlpack({name}.detach())."
        return f"Pass {name}.detach(){'' if value.device.type == 'cpu' else '.cpu()'}.numpy()."
    if _is(value, "scipy.sparse", "sparray", "spmatrix"):
        return (
            f"Pass {name}.toarray(); or {name}.data, for what is stored alone, if the function gives 0 for all the "
            "elements that are not."
        )
    if hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
        return f"Pass np.asarray({name})."
    if hasattr(value, "__cuda_array_interface__"):
        return f"Pass cupy.asarray({name})."
    if hasattr(value, "__dlpack__"):
        return f"Pass {_library(value)}.from_dlpack({name})."
    if isinstance(value, complex):
        return f"Pass {name}.real and {name}.imag as two arguments."
    if isinstance(value, Number) or (hasattr(type(value), "__float__") and not isinstance(value, type)):
        return f"Pass float({name})."
    if value is None or isinstance(value, str | bytes | dict | set | frozenset | type):
        return ""
    if isinstance(value, Sequence | memoryview) or hasattr(value, "__buffer__"):
        return f"Pass np.asarray({name})."
    return f"Pass np.fromiter({name}, float)." if isinstance(value, Iterable) else ""


def _is(value: object, module: str, *names: str) -> bool:
    """Whether an object is of a class of a module, which is not imported for the question."""
    kinds = tuple(getattr(sys.modules.get(module), name, ()) for name in names)
    return isinstance(value, kinds)


def _library(value: Any) -> str:
    """The library that shares the memory behind a DLPack object."""
    try:
        device, _ = value.__dlpack_device__()
    except Exception:  # whatever somebody else's object may raise
        return "np"
    return "np" if device in _HOSTS else "cupy"
