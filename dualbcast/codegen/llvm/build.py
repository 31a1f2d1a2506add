"""A kernel's program to machine code of the host, by LLVM; not needed, nor imported, to load a cached kernel."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir

from dualbcast import disk_cache
from dualbcast.codegen import mathlib
from dualbcast.codegen.llvm.element_loops import write_entry
from dualbcast.codegen.llvm.rows import WHOLE
from dualbcast.codegen.llvm.target import LOCK, features, host
from dualbcast.codegen.llvm.unit import Unit
from dualbcast.codegen.loops.builder import Module
from dualbcast.codegen.program import KernelProgram
from dualbcast.errors import kernel_fault
from dualbcast.ir.nodes import dump
from dualbcast.kernel_spec import KernelSpec

# The liberties of fastmath=True. None of them changes the meaning of NaN or infinity, as "nnan" and "ninf" would.
_FASTMATH = frozenset({"contract", "nsz", "arcp", "afn"})
# The lines of LLVM IR up to which instructions are combined. It takes 5 us a line, and makes kernels 2 % faster; where
# thousands of masks depend on each other, it takes 330 us a line.
_MOST_COMBINED = 4_000
# The vector registers that each of some vectors side by side needs at least.
_REGISTERS = 8
_ATTRIBUTES = (
    # Without it LLVM may find too late that vectors are on the stack, and store them across cache lines.
    '"stackrealign"',
    # For Intel's processors LLVM prefers vectors of half the size, from when whole ones slowed the clock.
    '"prefer-vector-width"="512"',
    # Stores of these functions cannot go past the cache.
    '"no-builtin-memset"',
    '"no-builtin-memcpy"',
)


class Built(NamedTuple):
    """A compiled kernel: its optimised module, of type `llvmlite.binding.ModuleRef`."""

    module: Any

    def object_file(self) -> bytes:
        with LOCK:
            return bytes(host().emit_object(self.module))

    @property
    def llvm(self) -> str:
        """The optimised LLVM IR."""
        return str(self.module)

    @property
    def asm(self) -> str:
        """The assembly."""
        with LOCK:
            return str(host().emit_assembly(self.module))


def build(program: KernelProgram, fastmath: bool, streamed: Collection[int] = ()) -> Built:
    """Compile a kernel for the host. A failure is a BackendError, since it is a fault of this package's.

    See `compile_program` in `runtime.cpu.kernel` for `fastmath`. `streamed` has the positions of the arguments to which
    vectors are stored past the cache; the bits are the same.
    """
    try:
        with LOCK:
            return Built(_optimised(_module(program, fastmath, streamed), program.spec))
    except Exception as error:
        name = program.spec.element
        path = disk_cache.write_text(f"{name}_{disk_cache.key(program.identity)[:16]}.txt", dump(program.function))
        raise kernel_fault(name, "LLVM", path, error) from None


def _module(program: KernelProgram, fastmath: bool, streamed: Collection[int]) -> ir.Module:
    module = Module(llvm.get_process_triple(), str(host().target_data))
    functions = mathlib.names()
    if fastmath:  # LLVM, which may multiply by reciprocals, has a shorter way.
        functions = functions | {"divided": (lambda a, b, _: a / b)}
    liberties = _FASTMATH if fastmath else ()
    write_entry(Unit(module, program, functions, _ATTRIBUTES, liberties, *_lanes(program.spec), streamed))
    return module.module


def _lanes(spec: KernelSpec) -> tuple[int, int]:
    """The length of a vector, and how many are computed side by side; both are 0 for one element at a time."""
    if not spec.vectors:
        return 0, 0
    length = 64 if "avx512f" in features() else 32 if "avx2" in features() else 16
    registers = 32 if length == 64 or mathlib.is_arm() else 16
    summed = {len(spec.inputs) + position for position in spec.summed}
    # The arguments that are read or written at each element; those for the rounding of sums are in no class.
    classes = [spec.layout.classes[which] for which in spec.layout.which]
    arguments = enumerate(zip(spec.inputs + spec.outputs, classes, strict=False))
    along = [dtype for position, (dtype, of) in arguments if of[-1] != "0" and position not in summed]
    widest = max(np.dtype(dtype.replace("bfloat", "float")).itemsize for dtype in (spec.dtype, *along))
    return length // widest, min(spec.vectors, registers // _REGISTERS)


def _optimised(lowered: ir.Module, spec: KernelSpec) -> Any:
    text = str(lowered)
    module = llvm.parse_assembly(text)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    if WHOLE in lowered.globals and not spec.summed:
        # The rest is as fast without. (LLVM's `newgvn` made no kernel of `bench/` faster, and an assertion in it ends
        # the process at one loop in thousands.)
        passes = llvm.create_new_module_pass_manager()
        passes.add_always_inliner_pass()
        passes.add_sroa_pass()
        if text.count("\n") <= _MOST_COMBINED:
            passes.add_instruction_combine_pass()
        passes.add_simplify_cfg_pass()
        passes.run(module, llvm.create_pass_builder(host(), llvm.create_pipeline_tuning_options()))
        return module
    # For the loops that add terms up.
    options.loop_vectorization, options.slp_vectorization = bool(spec.summed), False
    builder = llvm.create_pass_builder(host(), options)
    builder.getModulePassManager().run(module, builder)
    return module
