"""Machine code as functions of the process: what LLVM made, in a form that is kept, and loaded without LLVM where it
can be, whose import takes longer than all the rest of a first call."""

from __future__ import annotations

import contextlib
import ctypes
import marshal
import mmap
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from dualbcast.codegen.mathlib import libm
from dualbcast.errors import BackendError

__all__ = ["Loaded", "forever", "link", "load"]


def forever(
    owner: Any,
    keep: Callable[[Any], Any] = ctypes.pythonapi.Py_IncRef,
    reference: Callable[[Any], Any] = ctypes.py_object,
) -> None:
    """Keep what owns memory until the process ends, which is later than the interpreter does: threads that it does not
    wait for may still use the memory then. (Modules lose their globals before, so what this calls is a default.)"""
    keep(reference(owner))


class Loaded:
    """Functions of the process, for as long as this object lives.

    Attributes
    ----------
    address : callable
        The address of the function of a name.
    """

    __slots__ = ("_owner", "address")

    def __init__(self, owner: Any, address: Callable[[str], int]) -> None:
        self._owner, self.address = owner, address

    def __del__(
        self,
        is_finalizing: Callable[[], bool] = sys.is_finalizing,
        keep: Callable[[Any], None] = forever,
    ) -> None:
        if is_finalizing():
            keep(self._owner)


def link(code: bytes) -> bytes:
    """An object file for this machine in the form that `load` takes."""
    if sys.platform == "linux":
        from dualbcast.codegen.llvm import elf

        # For what is not known there LLVM has a linker of its own.
        with contextlib.suppress(elf.Unknown):
            return marshal.dumps(tuple(elf.linked(code)))
    return marshal.dumps((code,))


def load(payload: bytes, elsewhere: Mapping[str, int] = MappingProxyType({})) -> Loaded:
    """Make functions of what `link` gave in this process, or another on this machine that has the same Python.

    Parameters
    ----------
    payload : bytes
    elsewhere : mapping, optional
        The addresses of what the functions use beside the C library, by name.

    Raises
    ------
    BackendError
        The system does not let memory become code.
    """
    code, *image = marshal.loads(payload)
    return _placed(code, image[0], image[1], elsewhere) if image else _by_llvm(code, elsewhere)


def _placed(code: bytes, functions: dict[str, int], slots: dict[str, int], elsewhere: Mapping[str, int]) -> Loaded:
    """Those of an `elf.Image`."""
    memory = mmap.mmap(-1, len(code), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.write(code)
    for name, at in slots.items():
        address = elsewhere.get(name) or libm.address(name)
        memory[at : at + 8] = address.to_bytes(8, "little")
    owner = ctypes.c_char.from_buffer(memory)
    start = ctypes.addressof(owner)
    # Not both at once: there are systems that forbid it.
    protection = mmap.PROT_READ | mmap.PROT_EXEC
    if ctypes.CDLL(None).mprotect(ctypes.c_void_p(start), ctypes.c_size_t(len(memory)), protection):
        raise BackendError("this system does not let a process make machine code; backend='python' needs none")
    return Loaded(owner, lambda name: start + functions[name])


def _by_llvm(code: bytes, elsewhere: Mapping[str, int]) -> Loaded:
    import llvmlite.binding as llvm

    from dualbcast.codegen.llvm.target import machine

    libm.register()
    for name, address in elsewhere.items():
        llvm.add_symbol(name, address)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return Loaded(engine, engine.get_function_address)
