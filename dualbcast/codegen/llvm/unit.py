"""The LLVM module of a kernel's text while it is written: its constants, the LLVM functions of its functions, and which
of their loops poll.

A loop counts down the cost of its iterations. At zero it calls a function, which returns the units of work until the
next call, or says that all loops end. An iteration takes an instruction and a branch more.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from llvmlite import ir

from dualbcast.codegen.llvm.names import called_functions
from dualbcast.codegen.llvm.target import PERIOD, POLL, STOPPED, STOPPING, WORK_LEFT
from dualbcast.codegen.llvm.typed_values import WORD, Operation, Storage, Typed, llvm_type, word
from dualbcast.codegen.mathlib.primitives import attribute
from dualbcast.codegen.values import TYPES, Value, lone

# Statements that a loop runs in all, up to which it does not poll; and those of an element's longest loop, up to which
# rows of elements do not. (Fifty steps of an oscillator are 815. If its kernel polled, it would take 1.02 of the time,
# since LLVM distributes the registers otherwise.)
_SHORT_LOOP, _SHORT_ELEMENT = 1 << 14, 1 << 12
# How likely it is that an iteration does not call the function.
_SELDOM = [1 << 20, 1]


def _iterations(loop: ast.For) -> int | None:
    """The number of iterations of a loop; None where it depends on data."""
    bounds = []
    for bound in loop.iter.args if isinstance(loop.iter, ast.Call) else [loop.iter]:
        sign = -1 if isinstance(bound, ast.UnaryOp) and isinstance(bound.op, ast.USub) else 1
        number = bound.operand if isinstance(bound, ast.UnaryOp) else bound
        if not (isinstance(number, ast.Constant) and isinstance(number.value, int)):
            return None
        bounds.append(sign * number.value)
    start, stop, step = [0, *bounds, 1][:3] if len(bounds) == 1 else [*bounds, 1][:3]
    return max(0, -(-(stop - start) // step)) if step else None


def cost(statements: Sequence[ast.stmt]) -> int:
    """How many statements run, without those in loops that poll."""
    total = 0
    for stmt in statements:
        total += 1
        match stmt:
            case ast.If():
                total += cost(stmt.body) + cost(stmt.orelse)
            case ast.For() if not may_take_long(stmt):
                total += (_iterations(stmt) or 0) * (1 + cost(stmt.body))
    return total


def may_take_long(stmt: ast.stmt) -> bool:
    """Whether a statement is a loop that may take long."""
    if not isinstance(stmt, ast.For):
        return isinstance(stmt, ast.While)
    iterations = _iterations(stmt)
    return iterations is None or iterations * (1 + cost(stmt.body)) > _SHORT_LOOP


class PollingLoops:
    """Which loops of a kernel poll.

    Parameters
    ----------
    definitions : mapping of str to ast.FunctionDef
        The functions of the text.
    element : str
        The function that is called for each element.

    Attributes
    ----------
    functions : set of str
        The functions that an element runs, if rows of such elements may take long; else empty.
    """

    def __init__(self, definitions: Mapping[str, ast.FunctionDef], element: str) -> None:
        self._definitions, self._element = definitions, element
        reached, pending = set[str](), [element]
        while pending:
            name = pending.pop()
            if name not in reached and name in definitions:
                reached.add(name)
                pending += called_functions(definitions[name])
        nodes = (node for name in reached for node in ast.walk(definitions[name]))
        loops = [node for node in nodes if isinstance(node, ast.For | ast.While)]
        polls = any(may_take_long(loop) or cost([loop]) > _SHORT_ELEMENT for loop in loops)
        self.functions = reached if polls else set[str]()

    def units(self, function: str, loop: ast.For | ast.While) -> int:
        """The units of work of an iteration of a loop that polls; 0 for any other loop."""
        if not self.functions:
            return 0
        if function in self.functions:
            return 1 + cost(loop.body) if may_take_long(loop) else 0
        return 1 + cost(self._definitions[self._element].body) if self._element in called_functions(loop) else 0


class Countdown:
    """The units of work that a function has left until it polls.

    Parameters
    ----------
    module : llvmlite.ir.Module
    place : llvmlite.ir.Value
        The address of the number.
    """

    def __init__(self, module: ir.Module, place: ir.Value) -> None:
        self.module, self.place = module, place

    @staticmethod
    def begin(module: ir.Module, builder: ir.IRBuilder) -> Countdown:
        """The countdown of a kernel, which goes on where the last kernel of any thread has stopped."""
        countdown = Countdown(module, builder.alloca(WORD, name="units"))
        builder.store(builder.load(_work_left(module), typ=WORD), countdown.place)
        return countdown

    def end(self, builder: ir.IRBuilder) -> None:
        """Return the status of a kernel."""
        left = builder.load(self.place, typ=WORD)
        stopping = builder.icmp_signed("<", left, word(STOPPING))
        builder.store(builder.select(stopping, word(PERIOD), left), _work_left(self.module))
        status = ir.IntType(32)
        builder.ret(builder.select(stopping, ir.Constant(status, STOPPED), ir.Constant(status, 0)))

    def copied(self, builder: ir.IRBuilder) -> Countdown:
        """A copy, which LLVM can keep in a register."""
        copy = Countdown(self.module, builder.alloca(WORD, name="left"))
        self.copy_to(copy, builder)
        return copy

    def copy_to(self, other: Countdown, builder: ir.IRBuilder) -> None:
        builder.store(builder.load(self.place, typ=WORD), other.place)

    def iterate(self, builder: ir.IRBuilder, units: int, again: ir.Block, after: ir.Block) -> list[ir.Block]:
        """End the last block of an iteration of so many units. The blocks are returned that go on to `again`; the last
        of them may leave the loop and go on to `after`."""
        left = builder.sub(builder.load(self.place, typ=WORD), word(units))
        builder.store(left, self.place)
        polling = builder.append_basic_block()
        going = builder.icmp_signed(">=", left, word(0))
        start = builder.block
        builder.cbranch(going, again, polling).set_weights(_SELDOM)
        builder.position_at_end(polling)
        new = builder.call(_poll(self.module), [left])
        builder.store(new, self.place)
        builder.cbranch(builder.icmp_signed(">=", new, word(0)), again, after)
        return [start, polling]


def _work_left(module: ir.Module) -> ir.Value:
    if WORK_LEFT not in module.globals:
        ir.GlobalVariable(module, WORD, WORK_LEFT).linkage = "external"
    return module.globals[WORK_LEFT]


def _poll(module: ir.Module) -> ir.Value:
    if POLL not in module.globals:
        attribute(ir.Function(module, ir.FunctionType(WORD, [WORD]), POLL), "nounwind", "cold")
    return module.globals[POLL]


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
