"""Functions in LLVM's language, made into machine code of the host, and what that is."""

from __future__ import annotations

import contextlib
import os
import platform
import threading
from functools import cache as once
from typing import Any

from dualbcast import disk_cache
from dualbcast.codegen.llvm.linked import Loaded, link, load

__all__ = ["KERNEL", "compiled", "environment", "host", "machine", "processor"]

# The symbol of a kernel's machine code.
KERNEL = "dualbcast_kernel"


def compiled(text: str, name: str, optimise: bool = False, elsewhere: tuple[tuple[str, int], ...] = ()) -> int:
    """The address of a function, which stays in the process; others of the same module are made with it.

    Parameters
    ----------
    text : str
        A module. It must say nothing that is of this process only: there is a copy of the code in the cache.
    name : str
        The function's.
    optimise : bool
        Whether its loops are worth vectorising.
    elsewhere : tuple of (str, int)
        What the module declares and is not of the C library: names and addresses.
    """
    with _lock:
        return _module(text, optimise, elsewhere).address(name)


@once
def host() -> Any:
    """LLVM's description of this machine, for kernels, which are not to run on another."""
    return machine(own=True, opt=3, jit=True)


def machine(own: bool = False, **options: Any) -> Any:
    """A description of a machine for LLVM, which an engine takes for itself; with `own` of this one and all it has."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    if own:
        options |= {"cpu": llvm.get_host_cpu_name(), "features": llvm.get_host_cpu_features().flatten()}
    triple = llvm.get_process_triple()
    if triple.startswith("x86_64") and "linux" in triple:
        # In one block, which `elf` makes of it, all is near, wherever the block is.
        options |= {"reloc": "pic", "codemodel": "small"}
    return llvm.Target.from_triple(triple).create_target_machine(**options)


@once
def environment() -> str:
    """What machine code depends on beside the text it is made of: LLVM, Python, the processor, how it is loaded."""
    return repr([_llvm_version(), platform.libc_ver(), processor(), disk_cache.STAMP])


@once
def processor() -> str:
    """All that tells this processor's abilities; of the first, if there are several kinds."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        # The rest is of others, and takes long to read where there are many.
        lines = file.read(1 << 12).split("\n\n")[0].splitlines()
        # What changes from one moment, or one start of the machine, to the next.
        kept = [line for line in lines if not line.startswith(("cpu MHz", "bogomips", "processor", "microcode"))]
        if any(line.startswith("flags") for line in kept):
            return "\n".join(kept)
    import llvmlite.binding as llvm

    return f"{llvm.get_process_triple()} {llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"


def _llvm_version() -> str:
    """llvmlite's, each of which has one LLVM. Its file is read, since to import llvmlite takes long."""
    import importlib.util

    found = importlib.util.find_spec("llvmlite")
    for folder in (found.submodule_search_locations or ()) if found else ():
        with contextlib.suppress(OSError), open(os.path.join(folder, "_version.py"), encoding="utf-8") as file:
            return file.read()
    import llvmlite

    return str(llvmlite.__version__)


@once
def _module(text: str, optimise: bool, elsewhere: tuple[tuple[str, int], ...]) -> Loaded:
    made = disk_cache.fetch(
        disk_cache.key("native", text, repr(optimise), environment()), lambda: _built(text, optimise)
    )
    loaded = load(made, dict(elsewhere))
    _every.append(loaded)
    return loaded


def _built(text: str, optimise: bool) -> bytes:
    import llvmlite.binding as llvm

    # No optimisation takes a third of the time.
    target = machine(own=True, opt=2) if optimise else machine(opt=0)
    module = llvm.parse_assembly(text)
    if optimise:
        options = llvm.create_pipeline_tuning_options(speed_level=2)
        options.loop_vectorization = True
        passes = llvm.create_pass_builder(target, options)
        passes.getModulePassManager().run(module, passes)
    return link(bytes(target.emit_object(module)))


# What owns the code.
_every: list[Loaded] = []

# llvmlite has a lock of its own, which would stay taken in the child of a fork in the middle of this: forks wait.
_lock = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)
