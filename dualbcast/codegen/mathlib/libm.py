"""The C mathematics library for LLVM's machine code: the functions that kernels call, and their addresses."""

from __future__ import annotations

import ctypes
import functools
import sys

_PREFIX = "dualbcast_"

# Function and arity, as C names them for double; those for float end in "f".
FUNCTIONS = {
    "acos": 1, "acosh": 1, "asin": 1, "asinh": 1, "atan": 1, "atan2": 2, "atanh": 1, "cbrt": 1, "cos": 1, "cosh": 1,
    "erf": 1, "erfc": 1, "exp": 1, "exp2": 1, "expm1": 1, "fmod": 2, "hypot": 2, "lgamma": 1, "log": 1, "log10": 1,
    "log1p": 1, "log2": 1, "pow": 2, "sin": 1, "sinh": 1, "tan": 1, "tanh": 1, "tgamma": 1,
}  # fmt: skip

# Those of which glibc's libmvec has vector versions. They keep IEEE's special values and signs of zero, are wrong by at
# most 4 units in the last place, and differ by as much from the scalar ones, which serve what is the same for a row
# and, without masks, the last few elements of one. (|cos| can be one unit above 1 in float64.)
VECTORISED = FUNCTIONS.keys() - {"fmod", "lgamma", "tgamma"}


def symbol(name: str) -> str:
    """The symbol of the C function `name` in machine code.

    Under its own name LLVM would know the function, and turn the logarithm of what it sees is positive, or a power
    of two, into an operation of its own, which it cannot vectorise.
    """
    return _PREFIX + name


@functools.cache
def addresses() -> dict[str, int]:
    """The addresses of the functions that machine code calls, by symbol; those of libmvec are in the process then."""
    _libmvec()
    names = [name + suffix for name in FUNCTIONS for suffix in ("", "f")]
    return {symbol(name): ctypes.cast(getattr(_c_library(), name), ctypes.c_void_p).value or 0 for name in names}


def has_libmvec() -> bool:
    """Whether glibc's vector mathematics is there, where LLVM finds its symbols, too."""
    # x86-64, and since glibc 2.35, which brought all that 2.22 did not have.
    return hasattr(_libmvec(), "_ZGVbN4v_tanhf")


@functools.cache
def _libmvec() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL("libmvec.so.1", mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return None


@functools.cache
def _c_library() -> ctypes.CDLL:
    if sys.platform == "win32":
        return ctypes.CDLL("ucrtbase")
    try:
        return ctypes.CDLL("libm.so.6")
    except OSError:  # Not glibc: it is a part of the C library, in every process.
        return ctypes.CDLL(None)
