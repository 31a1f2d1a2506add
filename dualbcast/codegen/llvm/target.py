"""LLVM's description of the machine that code runs on, object files for it, and what a kernel's machine code and its
callers agree on.
"""

from __future__ import annotations

import os
import threading
from functools import cache
from typing import Any

from dualbcast import disk_cache

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
