"""A kernel's text to machine code of the host, by Numba; not needed, nor imported, to load a cached kernel."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core import config
from numba.core.compiler_lock import global_compiler_lock

from dualbcast.abi import KernelSource
from dualbcast.errors import BackendError, kernel_fault
from dualbcast.runtime import cpu_math
from dualbcast.runtime.cpu_lowering import Built, lower

__all__ = ["Built", "build"]

# What fastmath=True allows: none of these changes the meaning of NaN or infinity, as "nnan" and "ninf" would.
_FASTMATH = frozenset({"contract", "nsz", "arcp", "afn"})

_STORAGE = {
    "bool": types.uint8,
    "float16": types.uint16,
    "bfloat16": types.uint16,
    "float32": types.float32,
    "float64": types.float64,
    "int8": types.int8,
    "int16": types.int16,
    "int32": types.int32,
    "int64": types.int64,
    "uint8": types.uint8,
    "uint16": types.uint16,
    "uint32": types.uint32,
    "uint64": types.uint64,
}


def build(source: KernelSource, fastmath: bool, filename: str, vector: bool) -> Built:
    """Compile a kernel for the host.

    Parameters
    ----------
    source : KernelSource
        Text and signature; the entry takes int64s and then pointers.
    fastmath : bool
        See `cpu.compile_kernel`.
    filename : str
        What tracebacks and debuggers call the text.
    vector : bool
        Whether glibc's libmvec is there to be called.

    Raises
    ------
    BackendError
        Numba refuses the text, which is a fault of this package's, or is switched off.
    """
    if config.DISABLE_JIT:
        raise BackendError(
            "NUMBA_DISABLE_JIT is set, so the CPU backend cannot compile; unset it or use backend='python'"
        )
    try:
        with global_compiler_lock:
            return _build(source, fastmath, filename, vector)
    except Exception as error:
        raise kernel_fault(source.element, "Numba", filename, error) from None


def _build(source: KernelSource, fastmath: bool, filename: str, vector: bool) -> Built:
    namespace: dict[str, Any] = {"__name__": "dualbcast.kernel", **cpu_math.namespace(vector)}
    exec(compile(source.text, filename, "exec"), namespace)
    integers = (0 if source.summed else 2) + source.layout.rank + source.layout.stride_count
    pointers = [types.CPointer(_STORAGE[dtype]) for dtype in source.inputs + source.outputs]
    flags = _FASTMATH if fastmath else frozenset[str]()
    functions = {**cpu_math.HELPERS, **dict.fromkeys(source.functions, flags)}
    signature = (types.int64,) * integers + tuple(pointers)
    return lower(namespace, functions, source.entry, signature, source.vectorise)
