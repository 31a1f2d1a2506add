"""The C mathematics library for machine code made by LLVM: which functions kernels call, and where they are."""

from __future__ import annotations

import ctypes
import functools
import sys

from dualbcast.errors import BackendError

__all__ = ["FUNCTIONS", "VECTORISED", "has_libmvec", "register", "symbol"]

# Function and arity, as C names them for double; those for float end in "f".
FUNCTIONS = {
    "acos": 1, "acosh": 1, "asin": 1, "asinh": 1, "atan": 1, "atan2": 2, "atanh": 1, "cbrt": 1, "cos": 1, "cosh": 1,
    "erf": 1, "erfc": 1, "exp": 1, "exp2": 1, "expm1": 1, "hypot": 2, "lgamma": 1, "log": 1, "log10": 1, "log1p": 1,
    "log2": 1, "pow": 2, "sin": 1, "sinh": 1, "tan": 1, "tanh": 1, "tgamma": 1,
}  # fmt: skip

# Those of which glibc's libmvec has vector versions. They keep IEEE's special values and signs of zero, are wrong by at
# most 4 units in the last place, and differ by as much from the scalar ones, which serve the last few elements of a
# row. (|cos| can be one unit above 1 in float64.)
VECTORISED = FUNCTIONS.keys() - {"lgamma", "tgamma"}


def symbol(name: str) -> str:
    """What machine code calls the C function `name`.

    Under its own name LLVM would know the function, and turn the logarithm of what it sees is positive, or a power
    of two, into an operation of its own, which it cannot vectorise.
    """
    return f"dualbcast_{name}"


@functools.cache
def register() -> None:
    """Tell LLVM, in this process, where the symbols are; to be called before it loads or compiles a kernel."""
    import llvmlite.binding as llvm

    has_libmvec()
    library = _c_library()
    for name in FUNCTIONS:
        for function in (name, f"{name}f"):
            try:
                address = ctypes.cast(getattr(library, function), ctypes.c_void_p).value
            except AttributeError:
                raise BackendError(f"the C library of this system has no {function}()") from None
            llvm.add_symbol(symbol(function), address)


@functools.cache
def has_libmvec() -> bool:
    """Load glibc's vector mathematics into the process, where LLVM finds its symbols; whether it is there."""
    import llvmlite.binding as llvm

    try:
        llvm.load_library_permanently("libmvec.so.1")
    except RuntimeError:
        return False
    # x86-64, and since glibc 2.35, which brought all that 2.22 did not have.
    return hasattr(ctypes.CDLL("libmvec.so.1"), "_ZGVbN4v_tanhf")


def _c_library() -> ctypes.CDLL:
    if sys.platform == "win32":
        return ctypes.CDLL("ucrtbase")
    try:
        return ctypes.CDLL("libm.so.6")
    except OSError:  # Not glibc: it is a part of the C library, in every process.
        return ctypes.CDLL(None)
