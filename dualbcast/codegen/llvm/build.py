"""A kernel's text to machine code of the host, by LLVM; not needed, nor imported, to load a cached kernel.

Numba compiles the same text to the same results. But its type inference, which is made for all of Python, and the
imports for that take several times as long as LLVM's optimisation of a kernel.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir

from dualbcast.codegen import mathlib
from dualbcast.codegen.llvm.rows import WHOLE, Entry
from dualbcast.codegen.llvm.target import KERNEL, LOCK, features, host
from dualbcast.codegen.llvm.unit import Countdown, Unit
from dualbcast.errors import kernel_fault
from dualbcast.kernel_spec import KernelSource


def lower(unit: Unit, entry: str, signature: Sequence[str], streamed: Collection[int] = ()) -> None:
    """Put the functions of a text into its module.

    The entry is the function that is called from outside; `signature` has the types of its parameters, as of `Value`.
    Its symbol is `KERNEL`, it returns a status, and its pointers do not overlap. All others are inlined. Vectors are
    stored past the cache to the `streamed` pointers, by position among its pointers.

    A TypeError means that an operation cannot take its operands, a SyntaxError that kernels have no such construct.
    """
    node = unit.definitions[entry]
    params = {argument.arg: dtype for argument, dtype in zip(node.args.args, signature, strict=True)}
    pointers = [name for name, dtype in params.items() if dtype[0] == "*"]
    unit.streamed = frozenset(pointers[position] for position in streamed)
    body = Entry(unit, unit.declared(KERNEL, ir.IntType(32), params), node, signature)
    if unit.polling:
        body.countdown = Countdown.begin(unit.module, body.start)
    body.block(node.body)
    if body.countdown is None:
        body.builder.ret(ir.Constant(ir.IntType(32), 0))
    else:
        body.countdown.end(body.builder)


# The sum of a row's first elements in float64, in an order that suits vectors but depends on nothing else: LLVM may
# change the order of its additions.
_SUM_TERMS = """\
def sum_terms(terms, count):
    total = float64(0)
    for j in range(count):
        total += float64(terms[j])
    return total
"""
# The liberties of fastmath=True. None of them changes the meaning of NaN or infinity, as "nnan" and "ninf" would.
_FASTMATH = frozenset({"contract", "nsz", "arcp", "afn"})
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


def build(source: KernelSource, fastmath: bool, filename: str, vector: bool, streamed: Collection[int] = ()) -> Built:
    """Compile a kernel, whose entry takes int64s and then pointers, for the host. A failure is a BackendError, since it
    is a fault of this package's.

    See `compile_program` in `runtime.cpu.kernel` for `fastmath`. The `filename` of the text is for the message, and
    `vector` says whether glibc's libmvec can be called. `streamed` has the positions of the arguments to which vectors
    are stored past the cache; the bits are the same.
    """
    try:
        with LOCK:
            return Built(_optimised(_module(source, fastmath, vector, streamed), source))
    except Exception as error:
        raise kernel_fault(source.element, "LLVM", filename, error) from None


def _module(source: KernelSource, fastmath: bool, vector: bool, streamed: Collection[int]) -> ir.Module:
    module = ir.Module("kernel")
    module.triple, module.data_layout = llvm.get_process_triple(), str(host().target_data)
    names = mathlib.names(vector)
    if fastmath:  # LLVM, which may multiply by reciprocals, has a shorter way.
        names = names | {"divided": (lambda a, b, _: a / b)}
    text = _SUM_TERMS + source.text
    liberties = dict.fromkeys(source.functions, _FASTMATH if fastmath else frozenset[str]())
    liberties["sum_terms"] = frozenset({"reassoc"})
    unit = Unit(module, text, names, source.element, liberties, _ATTRIBUTES, *_lanes(source))
    lower(unit, source.entry, _signature(source), streamed)
    return module


def _lanes(source: KernelSource) -> tuple[int, int]:
    """The length of a vector, and how many are computed side by side; both are 0 for one element at a time."""
    if not source.vectors:
        return 0, 0
    length = 64 if "avx512f" in features() else 32 if "avx2" in features() else 16
    registers = 32 if length == 64 or mathlib.is_arm() else 16
    summed = {len(source.inputs) + position for position in source.summed}
    # The arguments that are read or written at each element; those for the rounding of sums are in no class.
    classes = [source.layout.classes[which] for which in source.layout.which]
    arguments = enumerate(zip(source.inputs + source.outputs, classes, strict=False))
    along = [dtype for position, (dtype, of) in arguments if of[-1] != "0" and position not in summed]
    widest = max(np.dtype(dtype.replace("bfloat", "float")).itemsize for dtype in (source.dtype, *along))
    return length // widest, min(source.vectors, registers // _REGISTERS)


def _signature(source: KernelSource) -> list[str]:
    integers = (0 if source.summed else 2) + source.layout.rank + source.layout.stride_count
    storage = {"bool": "uint8", "float16": "uint16", "bfloat16": "uint16"}
    pointers = [f"*{storage.get(dtype, dtype)}" for dtype in source.inputs + source.outputs]
    return ["int64"] * integers + pointers


def _optimised(lowered: ir.Module, source: KernelSource) -> Any:
    module = llvm.parse_assembly(str(lowered))
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    has_vectors = WHOLE in lowered.globals
    if has_vectors and not source.summed:
        # The rest is as fast without. (LLVM's `newgvn` made no kernel of `bench/` faster, and an assertion in it ends
        # the process at one loop in thousands.)
        passes = llvm.create_new_module_pass_manager()
        passes.add_always_inliner_pass()
        passes.add_sroa_pass()
        passes.add_instruction_combine_pass()
        passes.add_simplify_cfg_pass()
        passes.run(module, llvm.create_pass_builder(host(), llvm.create_pipeline_tuning_options()))
        return module
    # For the loops that add terms up.
    options.loop_vectorization, options.slp_vectorization = bool(source.summed), False
    builder = llvm.create_pass_builder(host(), options)
    builder.getModulePassManager().run(module, builder)
    return module
