"""What kernels find on the machine that they run on: LLVM's description of it, object files for it, the C mathematics
library, and what a kernel's machine code and its callers agree on.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import threading
from functools import cache
from typing import Any

from dualbcast import disk_cache

_PREFIX = "dualbcast_"

# Function and arity, as C names them for double; those for float end in "f".
FUNCTIONS = {
    "acos": 1, "acosh": 1, "asin": 1, "asinh": 1, "atan": 1, "atan2": 2, "atanh": 1, "cbrt": 1, "cos": 1, "cosh": 1,
    "erf": 1, "erfc": 1, "exp": 1, "exp2": 1, "expm1": 1, "fmod": 2, "hypot": 2, "lgamma": 1, "log": 1, "log10": 1,
    "log1p": 1, "log2": 1, "pow": 2, "sin": 1, "sinh": 1, "tan": 1, "tanh": 1, "tgamma": 1,
}  # fmt: skip


def symbol(name: str) -> str:
    """The symbol of the C function `name` in machine code.

    Under its own name LLVM would know the function, and turn the logarithm of what it sees is positive, or a power
    of two, into an operation of its own, which it cannot vectorise.
    """
    return _PREFIX + name


@functools.cache
def addresses() -> dict[str, int]:
    """The addresses of the functions that machine code calls, by symbol."""
    names = [name + suffix for name in FUNCTIONS for suffix in ("", "f")]
    return {symbol(name): ctypes.cast(getattr(_c_library(), name), ctypes.c_void_p).value or 0 for name in names}


@functools.cache
def _c_library() -> ctypes.CDLL:
    if sys.platform == "win32":
        return ctypes.CDLL("ucrtbase")
    try:
        return ctypes.CDLL("libm.so.6")
    except OSError:  # Not glibc: it is a part of the C library, in every process.
        return ctypes.CDLL(None)


# The symbol of a kernel's entry.
KERNEL = "dualbcast_kernel"
# The symbols of the function that a loop calls to ask whether it may go on, and of the number of units of work that
# are left until the next such call. A unit is a statement for one vector.
POLL, WORK_LEFT = "dualbcast_poll", "dualbcast_work_left"
# The units between two calls: some 50 microseconds to a few milliseconds.
PERIOD = 1 << 16
# With fewer units than that a loop ends; and the status that a kernel then returns.
STOPPING, STOPPED = -(1 << 62), 2


# Whoever uses LLVM holds this lock, and forks wait for it: llvmlite's own would stay taken in the child for ever.
LOCK = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=LOCK.acquire, after_in_parent=LOCK.release, after_in_child=LOCK.release)


@cache
def host() -> Any:
    """LLVM's description of this machine, for kernels, which are not to run on another."""
    return machine(own=True, opt=3, jit=True)


def machine(own: bool = False, **options: Any) -> Any:
    """A description of a machine for LLVM; with `own` of this one and all its instructions."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    if own:
        options |= {"cpu": llvm.get_host_cpu_name(), "features": llvm.get_host_cpu_features().flatten()}
    triple = llvm.get_process_triple()
    if "windows" not in triple:
        # The linker puts a file's code and constants into one block, wherever that is.
        options |= {"reloc": "pic", "codemodel": "small"}
    return llvm.Target.from_triple(triple).create_target_machine(**options)


@cache
def features() -> frozenset[str]:
    """The instruction sets that this processor has, by LLVM's names."""
    import llvmlite.binding as llvm

    return frozenset(name for name, is_there in llvm.get_host_cpu_features().items() if is_there)


@cache
def environment() -> str:
    """Everything that machine code depends on beside its text."""
    import llvmlite
    import llvmlite.binding as llvm

    processor = llvm.get_process_triple(), llvm.get_host_cpu_name(), sorted(features())
    return repr([llvmlite.__version__, *processor, disk_cache.STAMP])


def assemble(text: str, optimise: bool) -> bytes:
    """The object file of a module in LLVM's language; `optimise` asks for the vectorisation of its loops."""
    import llvmlite.binding as llvm

    with LOCK:
        # No optimisation takes a third of the time.
        target = machine(own=True, opt=2) if optimise else machine(opt=0)
        module = llvm.parse_assembly(text)
        if optimise:
            options = llvm.create_pipeline_tuning_options(speed_level=2)
            options.loop_vectorization = True
            passes = llvm.create_pass_builder(target, options)
            passes.getModulePassManager().run(module, passes)
        return bytes(target.emit_object(module))
