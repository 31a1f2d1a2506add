"""A kernel's text to machine code of the host, by LLVM; not needed, nor imported, to load a cached kernel."""

from __future__ import annotations

import marshal
import re
from typing import Any, NamedTuple

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir

from dualbcast.codegen.llvm import intrinsics
from dualbcast.codegen.llvm.lower import lower
from dualbcast.codegen.llvm.nontemporal import prefetching
from dualbcast.codegen.llvm.row_loop import WHOLE
from dualbcast.codegen.llvm.target import host
from dualbcast.codegen.mathlib import libm
from dualbcast.codegen.mathlib import table as mathlib
from dualbcast.errors import kernel_fault
from dualbcast.kernel_spec import KernelSource
from dualbcast.runtime.cpu.interrupt import POLL

__all__ = ["Built", "build"]

# What fastmath=True allows: none of these changes the meaning of NaN or infinity, as "nnan" and "ninf" would.
_FASTMATH = frozenset({"contract", "nsz", "arcp", "afn"})
_ATTRIBUTES = (
    # Else LLVM may find too late that vectors are kept on the stack, and keep them across cache lines.
    '"stackrealign"',
    # For Intel's processors LLVM prefers vectors of half the size, from when whole ones slowed the clock.
    '"prefer-vector-width"="512"',
    # Their stores could not be made streaming ones.
    '"no-builtin-memset"',
    '"no-builtin-memcpy"',
)


class Built(NamedTuple):
    """What the compiler made of a kernel: the optimised module.

    Attributes
    ----------
    module : llvmlite.binding.ModuleRef
    """

    module: Any

    def payload(self) -> bytes:
        """The form kept on disk: the code; the module, from which `streams` makes other code where it is wanted; and
        whether it polls."""
        polls = any(function.name == POLL for function in self.module.functions)
        code = bytes(host().emit_object(self.module))
        return marshal.dumps((code, bytes(self.module.as_bitcode()), polls))

    @property
    def llvm(self) -> str:
        """The optimised LLVM IR."""
        return str(self.module)

    @property
    def asm(self) -> str:
        """The assembly."""
        return str(host().emit_assembly(self.module))


def build(source: KernelSource, fastmath: bool, filename: str, vector: bool) -> Built:
    """Compile a kernel for the host.

    Parameters
    ----------
    source : KernelSource
        Text and signature; the entry takes int64s and then pointers.
    fastmath : bool
        See `cpu.compile_kernel`.
    filename : str
        Where the text is kept, for the message.
    vector : bool
        Whether glibc's libmvec is there to be called.

    Raises
    ------
    BackendError
        The text cannot be compiled, which is a fault of this package's.
    """
    try:
        module = ir.Module("kernel")
        module.triple, module.data_layout = llvm.get_process_triple(), str(host().target_data)
        names = intrinsics.names(vector)
        if fastmath:  # LLVM, which may multiply by reciprocals, has a shorter way.
            names = names | {"divided": intrinsics.DIVISION}
        lower(
            module,
            intrinsics.SUM_TERMS + source.text,
            names,
            source.entry,
            _signature(source),
            intrinsics.LIBERTIES | dict.fromkeys(source.functions, _FASTMATH if fastmath else frozenset()),
            _ATTRIBUTES,
            *_lanes(source, vector),
            source.element,
        )
        if WHOLE not in module.globals:
            return Built(llvm.parse_assembly(prefetching(str(_optimised(str(module), source.vectorise)))))
        return Built(_optimised(str(module), source.vectorise) if source.summed else _tidied(str(module)))
    except Exception as error:
        raise kernel_fault(source.element, "LLVM", filename, error) from None


def _lanes(source: KernelSource, vector: bool) -> tuple[int, int]:
    """How many elements are a vector, or 0 where not all are computed so; and how many registers hold vectors."""
    features = llvm.get_host_cpu_features()
    length = 64 if features.get("avx512f") else 32 if features.get("avx2") else 16
    registers = 32 if length == 64 or mathlib.is_arm() else 16
    called = set(re.findall(r"\b(\w+)\(", source.text))
    if not source.straight or (not vector and (libm.FUNCTIONS.keys() - intrinsics.inlined()) & called):
        return 0, registers
    summed = {len(source.inputs) + position for position in source.summed}
    # What is read or written at each element; what sums keep beside them is in no class.
    classes = [source.layout.classes[which] for which in source.layout.which]
    stored = enumerate(zip(source.inputs + source.outputs, classes, strict=False))
    along = [dtype for position, (dtype, of) in stored if of[-1] != "0" and position not in summed]
    widest = max(np.dtype(dtype.replace("bfloat", "float")).itemsize for dtype in (source.dtype, *along))
    return length // widest, registers


def _signature(source: KernelSource) -> list[str]:
    integers = (0 if source.summed else 2) + source.layout.rank + source.layout.stride_count
    storage = {"bool": "uint8", "float16": "uint16", "bfloat16": "uint16"}
    pointers = [f"*{storage.get(dtype, dtype)}" for dtype in source.inputs + source.outputs]
    return ["int64"] * integers + pointers


def _optimised(text: str, vectorise: bool) -> Any:
    module = llvm.parse_assembly(text)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization, options.slp_vectorization = vectorise, False
    builder = llvm.create_pass_builder(host(), options)
    passes = builder.getModulePassManager()
    # The vectoriser makes calls of functions that are to be inlined, and comes after the inliner.
    passes.add_always_inliner_pass()
    passes.run(module, builder)
    return module


def _tidied(text: str) -> Any:
    """What is left to do where loops are vectors already and variables values: the rest is as fast without.

    LLVM's `newgvn` made no kernel of `bench/` faster, and an assertion in it ends the process at one loop in thousands.
    """
    module = llvm.parse_assembly(text)
    module.verify()
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    passes.run(module, llvm.create_pass_builder(host(), llvm.create_pipeline_tuning_options()))
    return module
