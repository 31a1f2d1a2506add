"""Object files to functions of the process, by LLVM's linker; loops of `codegen.loops` to machine code."""

from __future__ import annotations

import ctypes
import itertools
import sys
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from dualbcast import disk_cache
from dualbcast.codegen.llvm import target
from dualbcast.codegen.llvm.target import LOCK, assemble, environment
from dualbcast.errors import BackendError
from dualbcast.runtime import profiling

# The library of C's mathematics, which all other libraries of the linker use.
_LIBM = "libm"
_numbers = itertools.count()


def keep_forever(owner: Any) -> None:
    """Keep the owner of memory until the process ends, which is later than the interpreter does: daemon threads may
    still use the memory then."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(owner))


def load(code: bytes, symbols: Mapping[str, int] = MappingProxyType({}), label: str = "") -> Callable[[str], int]:
    """Load an object file, whose code is never unmapped: a thread may be in it while the interpreter ends.

    `symbols` are the addresses of what it uses beside the C library, by name, and `label` is for profilers. The result
    gives the address of a function by its name. It raises a `BackendError` where the file uses a symbol that is
    nowhere, or the system does not let memory become code.
    """
    import llvmlite.binding as llvm

    with LOCK:
        linker, library = _linker(), f"kernel {next(_numbers)}"
        builder = llvm.JITLibraryBuilder().add_object_img(code).add_jit_library(_LIBM).add_current_process()
        for name, place in symbols.items():
            builder.import_symbol(name, place)
        keep_forever(_linked(lambda: builder.link(linker, library)))

    def address(name: str) -> int:
        with LOCK:
            function = _linked(lambda: linker.lookup(library, name))
            keep_forever(function)
            if profiling.WANTED:
                profiling.name_code(code, name, int(function[name]), label or f"dualbcast:{name}")
            return int(function[name])

    return address


def compiled(
    name: str,
    write: Callable[..., Any],
    *parameters: Any,
    optimise: bool = False,
    elsewhere: tuple[tuple[str, int], ...] = (),
) -> int:
    """The address of a function of those that `write` writes for these parameters; see `codegen.loops`.

    They must not depend on this process: their code is kept in the cache on disk, so that a loop in it need not be
    written. `optimise` says whether loops are worth vectorising. `elsewhere` has the names and addresses of symbols
    that are declared and are not the C library's.
    """
    with LOCK:
        return _module(write, parameters, optimise, elsewhere)(name)


@cache
def _module(
    write: Callable[..., Any], parameters: tuple[Any, ...], optimise: bool, elsewhere: tuple[tuple[str, int], ...]
) -> Callable[[str], int]:
    def make() -> bytes:
        from dualbcast.codegen.loops.builder import text_of

        return assemble(text_of(write, *parameters), optimise)

    key = disk_cache.key("native", write.__module__, write.__qualname__, repr((parameters, optimise)), environment())
    return load(disk_cache.fetch(key, make), dict(elsewhere))


@cache
def _linker() -> Any:
    """LLVM's linker in this process. It would free all code with itself."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    # JITLink, the newer of LLVM's two, puts code and constants side by side; it is not complete for Windows' format.
    linker = llvm.create_lljit_compiler(use_jit_link=sys.platform != "win32")
    builder = llvm.JITLibraryBuilder()
    for name, place in target.addresses().items():
        builder.import_symbol(name, place)
    for owner in (linker, builder.link(linker, _LIBM)):
        keep_forever(owner)
    return linker


def _linked(link: Callable[[], Any]) -> Any:
    try:
        return link()
    except RuntimeError as error:
        raise BackendError(f"LLVM cannot load machine code: {error}; backend='python' needs none") from None
