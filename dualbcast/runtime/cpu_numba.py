"""A kernel's text to machine code of the host, by Numba; not needed, nor imported, to load a cached kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numba import njit, types
from numba.core import compiler, config, registry
from numba.core.compiler_lock import global_compiler_lock

from dualbcast.abi import KernelSource
from dualbcast.errors import BackendError, kernel_fault
from dualbcast.runtime import cpu_math

__all__ = ["Built", "build"]

# What fastmath=True allows: none of these changes the meaning of NaN or infinity, as "nnan" and "ninf" would.
_FASTMATH = {"contract", "nsz", "arcp", "afn"}

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


@dataclass(frozen=True, slots=True)
class Built:
    """What the compiler made of a kernel: its symbol in the object file, and the code in three forms."""

    symbol: str
    code: bytes
    llvm: str
    asm: str

    def payload(self) -> bytes:
        """The symbol, a null byte, and the object file: the form kept on disk."""
        return self.symbol.encode() + b"\0" + self.code


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
    flags = _FASTMATH if fastmath else False
    # Nothing but the entry calls them: without wrappers for Python and C, compiling takes a fifth less time.
    options = {"forceinline": True, "error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    for name in source.functions:
        namespace[name] = njit(fastmath=flags, **options)(namespace[name])
    integers = (0 if source.summed else 2) + source.layout.rank + source.layout.stride_count
    pointers = [types.CPointer(_STORAGE[dtype]) for dtype in source.inputs + source.outputs]
    signature = (types.int64,) * integers + tuple(pointers)
    vectorise, config.LOOP_VECTORIZE = config.LOOP_VECTORIZE, config.LOOP_VECTORIZE and source.vectorise
    try:
        result = _compile(namespace[source.entry], signature)
    finally:
        config.LOOP_VECTORIZE = vectorise
    library = result.library
    return Built(
        result.fndesc.llvm_func_name, library._get_compiled_object(), library.get_llvm_str(), library.get_asm_str()
    )


def _compile(entry: Any, signature: tuple[Any, ...]) -> Any:
    # `njit` cannot say that the pointers do not overlap; the flags beneath it can. Without this LLVM compares all
    # pairs of pointers at run time and, past about twenty of them, gives up vectorising.
    flags = compiler.Flags()
    flags.noalias = True
    flags.error_model = "numpy"
    flags.no_cpython_wrapper = True
    flags.no_cfunc_wrapper = True
    target = registry.cpu_target
    return compiler.compile_extra(target.typing_context, target.target_context, entry, signature, types.void, flags, {})
