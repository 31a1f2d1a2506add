"""Python functions to one object file, with Numba's front end and LLVM's optimiser, each once.

Numba's dispatchers would optimise, compile and load every function by itself before the one that calls it, and keep all
of that in the process. Here functions are lowered into one module, which is optimised and assembled as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import llvmlite.binding as llvm
from numba.core import cgutils, compiler, config, types
from numba.core.cpu_options import FastMathOptions
from numba.core.types.misc import unliteral

from dualbcast.runtime import streams
from dualbcast.runtime.cpu_context import Called, context

__all__ = ["Built", "lower"]


@dataclass(frozen=True, slots=True)
class Built:
    """What the compiler made of a kernel: its symbol in the object file, and the optimised module.

    Attributes
    ----------
    symbol : str
        The entry's.
    module : llvmlite.binding.ModuleRef
    machine : llvmlite.binding.TargetMachine
        What the module is for.
    processor : (str, str)
        The machine's processor and its features, by LLVM's names.
    """

    symbol: str
    module: Any
    machine: Any
    processor: tuple[str, str]

    def payload(self) -> bytes:
        """The form kept on disk: the symbol, the size of the object file, the processor and its features, then the
        object file and the module, from which `streams` makes another object file where one is wanted."""
        code = bytes(self.machine.emit_object(self.module))
        head = "\0".join([self.symbol, str(len(code)), *self.processor, ""])
        return head.encode() + code + bytes(self.module.as_bitcode())

    @property
    def llvm(self) -> str:
        """The optimised LLVM IR."""
        return str(self.module)

    @property
    def asm(self) -> str:
        """The assembly."""
        return str(self.machine.emit_assembly(self.module))


def lower(
    namespace: dict[str, Any],
    functions: Mapping[str, Set[str]],
    entry: str,
    signature: tuple[Any, ...],
    vectorise: bool,
) -> Built:
    """Compile `entry` for arguments of these Numba types.

    Parameters
    ----------
    namespace : dict
        Holds `entry`, and the `functions` that it calls, which become parts of it.
    functions : mapping of str to set of str
        Callees before callers, each with the liberties that LLVM may take with its floats.
    entry : str
    signature : tuple of numba.types.Type
    vectorise : bool
        Whether LLVM may vectorise loops.
    """
    library = _Library(entry)
    callees = {name: _Callee(namespace[name], flags, library) for name, flags in functions.items()}
    namespace.update(callees)
    try:
        symbol = _lower(namespace[entry], signature, _flags(noalias=True), library, types.void).fndesc.llvm_func_name
    finally:
        for callee in callees.values():
            callee.forget()
    return library.optimised(symbol, vectorise)


def _flags(**options: Any) -> Any:
    flags = compiler.Flags()
    flags.error_model = "numpy"
    flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
    for name, value in options.items():
        # `noalias` says that the pointers do not overlap. Without it LLVM compares all pairs of pointers at run time
        # and, past about twenty of them, gives up vectorising.
        setattr(flags, name, value)
    return flags


def _lower(function: Any, signature: tuple[Any, ...], flags: Any, library: _Library, result: Any = None) -> Any:
    return compiler.compile_extra(context().typing_context, context(), function, signature, result, flags, {}, library)


class _Library:
    """What functions are lowered into; to Numba it is a code library."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.codegen = context().codegen()
        self.recorded_timings: Any = None
        self._reload_init: set[Any] = set()
        self._modules: list[Any] = []
        self._others: dict[Any, None] = {}

    def create_ir_module(self, name: str) -> Any:
        """A module for a function."""
        return self.codegen._create_empty_module(name)

    def add_ir_module(self, module: Any) -> None:
        """Take a module with its function in it."""
        for function in module.functions:
            if not function.is_declaration:
                # Else LLVM may find too late that vectors are kept on the stack, and keep them across cache lines.
                # (llvmlite checks attributes against a list that has none of these.)
                set.add(function.attributes, '"stackrealign"')
                # For Intel's processors LLVM prefers vectors of half the size, from when whole ones slowed the clock.
                set.add(function.attributes, '"prefer-vector-width"="512"')
                # Their stores could not be made streaming ones.
                for name in ("memset", "memcpy"):
                    set.add(function.attributes, f'"no-builtin-{name}"')
        self._modules.append(llvm.parse_assembly(cgutils.normalize_ir_text(str(module))))

    def add_linking_library(self, library: Any) -> None:
        """Take what a function calls of Numba's own."""
        if library is not self:
            self._others[library] = None

    def optimised(self, symbol: str, vectorise: bool) -> Built:
        """All of it in one module, optimised, of which only the function `symbol` is there for others."""
        module, *rest = self._modules[::-1]
        for other in self._others:
            other._ensure_finalized()
            module.link_in(other._get_module_for_linking(), preserve=True)
        for part in rest:
            module.link_in(part)
        for function in module.functions:
            if not function.is_declaration and function.name != symbol:
                function.linkage = llvm.Linkage.internal
        manager, passes = self.codegen._module_pass_manager(loop_vectorize=bool(config.LOOP_VECTORIZE and vectorise))
        # The vectoriser makes calls of functions that are to be inlined, and comes after the inliner.
        manager.add_always_inliner_pass()
        manager.run(module, passes)
        module = llvm.parse_assembly(streams.prefetching(str(module), symbol))
        processor = self.codegen._get_host_cpu_name(), self.codegen._tm_features
        return Built(symbol, module, self.codegen._tm, processor)


class _Callee(Called):
    """A function that others call, lowered when the types of its arguments are known."""

    def __init__(self, function: FunctionType, fastmath: Set[str], library: _Library) -> None:
        super().__init__(function)
        self._function, self._library = function, library
        self._flags = _flags(forceinline=True, fastmath=FastMathOptions(set(fastmath)))

    def add(self, args: tuple[Any, ...], key: object) -> Any:
        """Lower it."""
        result = _lower(self._function, tuple(map(unliteral, args)), self._flags, self._library)
        context().insert_user_function(key, result.fndesc)
        return result.signature
