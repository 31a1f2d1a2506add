"""Functions in LLVM's language, made into machine code of the host."""

from __future__ import annotations

import os
import threading
from functools import cache as once
from typing import Any

__all__ = ["KERNEL", "compiled", "host"]

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

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    triple = llvm.get_process_triple()
    return llvm.Target.from_triple(triple).create_target_machine(
        llvm.get_host_cpu_name(),
        llvm.get_host_cpu_features().flatten(),
        opt=3,
        # What is loaded where memory happens to be free needs no detours on x86.
        reloc="static" if triple.startswith("x86_64") else "default",
        jit=True,
    )


@once
def _engine(text: str, optimise: bool) -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    module = llvm.parse_assembly(text)
    if optimise:
        features = llvm.get_host_cpu_features().flatten()
        machine = target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=2)
        options = llvm.create_pipeline_tuning_options(speed_level=2)
        options.loop_vectorization = True
        passes = llvm.create_pass_builder(machine, options)
        passes.getModulePassManager().run(module, passes)
    else:
        machine = target.create_target_machine(opt=0)  # which takes a third of the time
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    _engines.append(engine)
    return engine


# What owns the code.
_engines: list[Any] = []

# llvmlite has a lock of its own, which would stay taken in the child of a fork in the middle of this: forks wait.
_lock = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)
