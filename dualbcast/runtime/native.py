"""Functions in LLVM's language, made into machine code of the host."""

from __future__ import annotations

import os
import threading
from functools import cache as once
from typing import Any

__all__ = ["KERNEL", "compiled", "host", "machine"]

# The symbol of a kernel's machine code.
KERNEL = "dualbcast_kernel"


def compiled(text: str, name: str, optimise: bool = False) -> int:
    """The address of a function, which stays in the process; others of the same module are made with it.

    Parameters
    ----------
    text : str
        A module.
    name : str
        The function's.
    optimise : bool
        Whether its loops are worth vectorising.
    """
    with _lock:
        return int(_engine(text, optimise).get_function_address(name))


@once
def host() -> Any:
    """LLVM's description of this machine, for kernels, which are not to run on another."""
    import llvmlite.binding as llvm

    # What is loaded where memory happens to be free needs no detours on x86.
    reloc = "static" if llvm.get_process_triple().startswith("x86_64") else "default"
    return machine(own=True, opt=3, reloc=reloc, jit=True)


def machine(own: bool = False, **options: Any) -> Any:
    """A description of a machine for LLVM, which an engine takes for itself; with `own` of this one and all it has."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    if own:
        options |= {"cpu": llvm.get_host_cpu_name(), "features": llvm.get_host_cpu_features().flatten()}
    return llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(**options)


@once
def _engine(text: str, optimise: bool) -> Any:
    import llvmlite.binding as llvm

    # No optimisation takes a third of the time.
    target = machine(own=True, opt=2) if optimise else machine(opt=0)
    module = llvm.parse_assembly(text)
    if optimise:
        options = llvm.create_pipeline_tuning_options(speed_level=2)
        options.loop_vectorization = True
        passes = llvm.create_pass_builder(target, options)
        passes.getModulePassManager().run(module, passes)
    engine = llvm.create_mcjit_compiler(module, target)
    engine.finalize_object()
    _engines.append(engine)
    return engine


# What owns the code.
_engines: list[Any] = []

# llvmlite has a lock of its own, which would stay taken in the child of a fork in the middle of this: forks wait.
_lock = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)
