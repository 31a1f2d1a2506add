"""The LLVM module of a kernel's text while it is written: its constants, and the LLVM functions of its functions."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from llvmlite import ir

from dualbcast.codegen.llvm.polling import PollingLoops
from dualbcast.codegen.llvm.values import TYPES, WORD, Operation, Storage, Typed, llvm_type
from dualbcast.codegen.mathlib.primitives import attribute
from dualbcast.codegen.values import Value
from dualbcast.codegen.vector_types import lone

__all__ = ["Shape", "Unit", "end_with"]

# Instructions that `fastmath` allows liberties with.
_FLOAT_OPERATIONS = frozenset({"fadd", "fsub", "fmul", "fdiv", "frem", "fcmp"})
# The type of a value in the text, and the length of its vector or 0.
Shape: TypeAlias = tuple[str, int]


class _Function(NamedTuple):
    """A function of the module, and the type of its result in the text; empty if there is none."""

    function: ir.Function
    result: str


class Unit:
    """The module of a text.

    Parameters
    ----------
    module : llvmlite.ir.Module
    text : str
        Constants, and functions, callees first.
    names : mapping of str to Operation or Storage
        The free names of the functions.
    element : str
        The function that the entry calls for each element.
    liberties : mapping of str to iterable of str
        By function, LLVM's names of the liberties that it may take with floats.
    attributes : sequence of str
        The attributes of every function.
    lanes : int
        The length of the vectors in which the entry computes a row; 0 if it computes one element after the other.
    vectors : int
        How many vectors it computes side by side.

    Attributes
    ----------
    constants : dict of str to Typed
    definitions : dict of str to ast.FunctionDef
    polling : PollingLoops
    streamed : frozenset of str
        The arrays to which vectors are stored past the cache.
    write : callable
        Writes the body of a function, for arguments of some shapes, and gives the type of the result. Of the unit, the
        empty function, its definition and the shapes.
    """

    def __init__(
        self,
        module: ir.Module,
        text: str,
        names: Mapping[str, Operation | Storage],
        element: str,
        liberties: Mapping[str, Iterable[str]],
        attributes: Sequence[str] = (),
        lanes: int = 0,
        vectors: int = 0,
    ) -> None:
        self.module, self.names, self._liberties, self.attributes = module, names, liberties, attributes
        self.lanes, self.vectors, self.element = lanes, vectors, element
        self.streamed = frozenset[str]()
        self.write: Callable[[Unit, ir.Function, ast.FunctionDef, Sequence[Shape]], str]
        self.constants: dict[str, Typed] = {}
        self.definitions: dict[str, ast.FunctionDef] = {}
        for node in ast.parse(text).body:
            match node:
                case ast.FunctionDef():
                    self.definitions[node.name] = node
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id=dtype), args=[argument])):
                    self.constants[name] = _constant(dtype, ast.literal_eval(argument))
                case _:
                    raise SyntaxError(f"a kernel has no such statement: {ast.unparse(node)}")
        self.polling = PollingLoops(self.definitions, element)
        self._functions: dict[Any, _Function] = {}

    def function(self, name: str, shapes: tuple[Shape, ...]) -> _Function:
        """The LLVM function of a function of the text, for arguments of these shapes; it is inlined into its callers.

        If the function polls, the address of the countdown is one argument more.
        """
        key = name, shapes
        if key not in self._functions:
            kinds = [llvm_type(*shape) for shape in shapes]
            function = self._inlined(name, [*kinds, WORD.as_pointer()] if name in self.polling.functions else kinds)
            result = self.write(self, function, self.definitions[name], shapes)
            self.take_liberties(function, name)
            self._functions[key] = _Function(function, result)
        return self._functions[key]

    def operation(self, name: str, operation: Operation, kinds: Sequence[ir.Type], caller: str) -> ir.Function:
        """The LLVM function of an operation, with the liberties of its caller."""
        key = name, tuple(map(str, kinds)), tuple(self._liberties.get(caller, ()))
        if key not in self._functions:
            function = self._inlined(name, kinds)
            builder = ir.IRBuilder(function.append_basic_block())
            end_with(builder, operation.emit(*[Value(builder, argument) for argument in function.args]).value)
            self.take_liberties(function, caller)
            self._functions[key] = _Function(function, "")
        return self._functions[key].function

    def declared(self, symbol: str, result: ir.Type, params: Mapping[str, str]) -> ir.Function:
        """A function of pointers to arrays that do not overlap, which is not inlined; `params` has their types."""
        kinds = [llvm_type(dtype) for dtype in params.values()]
        function = ir.Function(self.module, ir.FunctionType(result, kinds), symbol)
        attribute(function, "nounwind", "noinline", *self.attributes)
        for name, value in zip(params, function.args, strict=True):
            value.name = name
            if isinstance(value.type, ir.PointerType):
                # Else LLVM compares all pairs of pointers at run time and, past about twenty, gives up vectorising.
                value.add_attribute("noalias")
        return function

    def take_liberties(self, function: ir.Function, name: str) -> None:
        """Allow LLVM with the floats of a function what is allowed in the text's function of a name."""
        liberties = tuple(self._liberties.get(name, ()))
        for block in function.blocks if liberties else ():
            for instruction in block.instructions:
                if isinstance(instruction, ir.CallInstr):
                    if lone(instruction.type) in (ir.FloatType(), ir.DoubleType()):
                        instruction.fastmath.update(liberties)
                elif instruction.opname in _FLOAT_OPERATIONS and not instruction.flags:
                    instruction.flags.extend(liberties)

    def _inlined(self, name: str, kinds: Sequence[ir.Type]) -> ir.Function:
        """A function that is inlined. The type of its result is not known before its body is written."""
        function = ir.Function(self.module, ir.FunctionType(ir.VoidType(), kinds), self.module.get_unique_name(name))
        function.linkage = "internal"
        attribute(function, "nounwind", "alwaysinline", *self.attributes)
        return function


def end_with(builder: ir.IRBuilder, value: ir.Value) -> None:
    """Return a value from a function, whose type it decides."""
    function = builder.function
    builder.ret(value)
    function.ftype = ir.FunctionType(value.type, function.ftype.args)
    function.return_value = ir.values.ReturnValue(function, value.type)
    function.type = function.ftype.as_pointer()


def _constant(dtype: str, value: Any) -> Typed:
    number = float(value) if dtype in ("float32", "float64") else int(value)
    return Typed(ir.Constant(TYPES[dtype], number), dtype)
