"""The module of a kernel while it is written, with what all of its functions have in common."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from llvmlite import ir

from dualbcast.codegen.llvm.polling import cost, is_long
from dualbcast.codegen.loops.builder import Function, Module
from dualbcast.codegen.mathlib.primitives import Emit
from dualbcast.codegen.program import KernelProgram
from dualbcast.codegen.values import attribute, lone
from dualbcast.ir.nodes import Kind

# Instructions that `fastmath` allows liberties with.
_FLOAT_OPERATIONS = frozenset({"fadd", "fsub", "fmul", "fdiv", "frem", "fcmp"})
# The types that elements are loaded in and stored, where it is not their own.
_STORED = {"bool": "uint8", "float16": "uint16", "bfloat16": "uint16"}


@dataclass(eq=False)
class Unit:
    """The module of a program.

    Its vectors have `lanes` elements, and so many `vectors` are computed side by side; both are 0 if one element is
    computed after the other.
    """

    module: Module
    program: KernelProgram
    mathematics: Mapping[str, Emit]  # functions of floats by name
    attributes: Sequence[str]  # of every function
    liberties: Collection[str] = ()  # LLVM's names of those that it may take with floats
    lanes: int = 0
    vectors: int = 0
    streamed: Collection[int] = ()  # the positions of the pointers to which vectors are stored past the cache
    polls: bool = field(init=False)  # whether loops poll
    units: int = field(init=False)  # the work of an element or a vector

    def __post_init__(self) -> None:
        function = self.program.function
        self.polls = is_long([function.body, *(helper.body for helper in self.program.helpers.values())])
        self.units = 1 + cost(function.body)

    def dtype_of(self, kind: Kind) -> str:
        """The type that numbers of a kind are computed in."""
        return {"float": self.program.spec.dtype, "int": "int64", "bool": "bool"}[kind]

    def pointers(self) -> list[str]:
        """The kinds of all pointers of the kernel."""
        spec = self.program.spec
        return [f"*{_STORED.get(dtype, dtype)}" for dtype in spec.inputs + spec.outputs]

    def function(self, symbol: str, kinds: Sequence[str], returns: str = "void") -> Function:
        """A function of pointers to arrays that do not overlap, which is not inlined."""
        # Else LLVM compares all pairs of pointers at run time and, past about twenty, gives up vectorising.
        attributes = ["nounwind", "noinline", *self.attributes]
        f = self.module.function(symbol, kinds, returns, noalias=True, attributes=attributes)
        f.code.linkage = ""
        return f

    def inlined(self, name: str, result: ir.Type, kinds: Sequence[ir.Type], dtypes: Sequence[str]) -> Function:
        """A function that is inlined into its callers."""
        module = self.module.module
        code = ir.Function(module, ir.FunctionType(result, kinds), module.get_unique_name(name))
        code.linkage = "internal"
        attribute(code, "nounwind", "alwaysinline", *self.attributes)
        return Function(self.module, code, dtypes)

    def take_liberties(self, f: Function) -> None:
        """Allow LLVM what it may do with the floats of a function."""
        for block in f.code.blocks if self.liberties else ():
            for instruction in block.instructions:
                if isinstance(instruction, ir.CallInstr):
                    if lone(instruction.type) in (ir.FloatType(), ir.DoubleType()):
                        instruction.fastmath.update(self.liberties)
                elif instruction.opname in _FLOAT_OPERATIONS and not instruction.flags:
                    instruction.flags.extend(self.liberties)
