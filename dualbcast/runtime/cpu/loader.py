"""Object files to functions of the process, by LLVM's linker; and the loops around kernels, compiled for the numbers
and sizes of a kernel's arguments.
"""

from __future__ import annotations

import ctypes
import itertools
import sys
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

from dualbcast import disk_cache
from dualbcast.codegen.llvm.target import LOCK, assemble, environment
from dualbcast.codegen.loops.recipe import Recipe
from dualbcast.codegen.loops.row_joining import Sums, piece_sizes, write_join
from dualbcast.codegen.loops.scratch import room_of
from dualbcast.codegen.loops.tile_packing import tile_sizes, write_copies, write_gather
from dualbcast.codegen.mathlib import libm
from dualbcast.errors import BackendError

# The library of C's mathematics, which all other libraries of the linker use.
_LIBM = "libm"
_numbers = itertools.count()


def keep_forever(owner: Any) -> None:
    """Keep the owner of memory until the process ends, which is later than the interpreter does: daemon threads may
    still use the memory then."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(owner))


def load(code: bytes, symbols: Mapping[str, int] = MappingProxyType({})) -> Callable[[str], int]:
    """Load an object file, whose code is never unmapped: a thread may be in it while the interpreter ends.

    Parameters
    ----------
    code : bytes
        An object file for this machine.
    symbols : mapping, optional
        The addresses of the functions and variables that it uses beside those of the C library, by name.

    Returns
    -------
    callable
        The address of the function with a name. It raises a `BackendError` where the file uses a symbol that is
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
            return int(function[name])

    return address


def compiled(text: str | Recipe, name: str, optimise: bool = False, elsewhere: tuple[tuple[str, int], ...] = ()) -> int:
    """The address of a function of a module in LLVM's language.

    Parameters
    ----------
    text : str or Recipe
        The module. It must not depend on this process: its code is kept in the cache on disk.
    name : str
        The name of the function.
    optimise : bool
        Whether its loops are worth vectorising.
    elsewhere : tuple of (str, int)
        Names and addresses of the symbols that the module declares and that are not the C library's.
    """
    with LOCK:
        return _module(text, optimise, elsewhere)(name)


@cache
def _module(text: str | Recipe, optimise: bool, elsewhere: tuple[tuple[str, int], ...]) -> Callable[[str], int]:
    key = disk_cache.key("native", repr(text), repr(optimise), environment())
    return load(disk_cache.fetch(key, lambda: assemble(str(text), optimise)), dict(elsewhere))


@cache
def _linker() -> Any:
    """LLVM's linker in this process. It would free all code with itself."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    # JITLink, the newer of LLVM's two, puts code and constants side by side; it is not complete for Windows' format.
    linker = llvm.create_lljit_compiler(use_jit_link=sys.platform != "win32")
    builder = llvm.JITLibraryBuilder()
    for name, place in libm.addresses().items():
        builder.import_symbol(name, place)
    for owner in (linker, builder.link(linker, _LIBM)):
        keep_forever(owner)
    return linker


def _linked(link: Callable[[], Any]) -> Any:
    try:
        return link()
    except RuntimeError as error:
        raise BackendError(f"LLVM cannot load machine code: {error}; backend='python' needs none") from None


class Loop(NamedTuple):
    """A loop around kernels. The last of its arguments are the address of a `Scratch` and its number of places.

    Attributes
    ----------
    address : int
        Of the machine code.
    room : int
        The bytes that a call of it works in.
    """

    address: int
    room: int


@cache
def gathering(
    integers: int, pointers: int, packed: tuple[int, ...], itemsizes: tuple[int, ...], tile: tuple[int, int]
) -> Loop:
    """The loop of `write_gather`, which has the parameters."""
    recipe = Recipe(write_gather, (integers, pointers, packed, itemsizes, tile))
    return Loop(compiled(recipe, "gather", optimise=True), room_of(tile_sizes(itemsizes, tile)))


@cache
def joining(integers: int, pointers: int, joined: tuple[int, ...], itemsizes: tuple[int, ...], sums: Sums) -> Loop:
    """The loop of `write_join`, which has the parameters."""
    recipe = Recipe(write_join, (integers, pointers, joined, itemsizes, sums))
    return Loop(compiled(recipe, "join", optimise=True), room_of(piece_sizes(itemsizes, sums)))


@cache
def copying(sizes: tuple[int, ...]) -> int:
    """The address of the kernel of `write_copies`."""
    return compiled(Recipe(write_copies, (sizes,)), "copies")
