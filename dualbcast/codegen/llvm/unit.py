"""The LLVM module of a kernel's text while it is written: its constants, the LLVM functions of its functions, the names
in its statements, and which of its loops poll.

A loop that polls counts down the cost of its iterations. At zero it calls a function, which returns the units of work
until the next call, or says that all loops end. An iteration takes an instruction and a branch more.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from llvmlite import ir

from dualbcast.codegen.llvm.target import PERIOD, POLL, STOPPED, STOPPING, WORK_LEFT
from dualbcast.codegen.llvm.typed_values import Typed, llvm_type
from dualbcast.codegen.mathlib.primitives import Emit
from dualbcast.codegen.values import INDEX, TYPES, attribute, declared, lone, word

# --- names -----------------------------------------------------------------------------------------------------------


class Uses(NamedTuple):
    """The names in some statements or expressions, but those of functions."""

    names: set[str]
    assigned: set[str]  # variables
    written: set[str]  # arrays
    calls: set[str]  # functions that are called as statements


def uses(nodes: Sequence[ast.AST]) -> Uses:
    found = Uses(set(), set(), set(), set())
    pending = list(nodes)
    while pending:
        node = pending.pop()
        match node:
            case ast.Name(name, context):
                found.names.add(name)
                if isinstance(context, ast.Store):
                    found.assigned.add(name)
            case ast.Call(args=arguments):
                pending += arguments
            case ast.Expr(ast.Call(ast.Name(name), arguments)):
                found.calls.add(name)
                pending += arguments
            case ast.Subscript(ast.Name(name), index, context):
                found.names.add(name)
                if isinstance(context, ast.Store):
                    found.written.add(name)
                pending.append(index)
            case _:
                pending += ast.iter_child_nodes(node)
    return found


def varying_after(statements: Sequence[ast.stmt], varying: Set[str]) -> set[str]:
    """The names that vary between elements after any number of runs of some statements, if `varying` do before."""
    # Names that are assigned, and those that their values depend on.
    dependences: list[tuple[set[str], set[str]]] = []
    result = set(varying)
    pending = list(statements)
    while pending:
        match pending.pop():
            case ast.Assign(targets=[target], value=value):
                dependences.append((uses([target]).names, uses([value]).names))
            case ast.For(body=body) | ast.While(body=body):
                pending += body
            case ast.If(test=test, body=body, orelse=orelse):
                sides = uses([*body, *orelse])
                dependences.append((sides.assigned | sides.written, uses([test]).names))
                pending += [*body, *orelse]
    count = 0
    while count != len(result):
        count = len(result)
        for targets, sources in dependences:
            if sources & result:
                result |= targets
    return result


# --- polling ---------------------------------------------------------------------------------------------------------

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


def _polling_functions(definitions: Mapping[str, ast.FunctionDef], element: str) -> set[str]:
    """The functions that an element runs, if rows of such elements may take long; else none."""
    reached, pending = set[str](), [element]
    while pending:
        name = pending.pop()
        if name not in reached and name in definitions:
            reached.add(name)
            pending += _called_functions(definitions[name])
    nodes = (node for name in reached for node in ast.walk(definitions[name]))
    loops = [node for node in nodes if isinstance(node, ast.For | ast.While)]
    return reached if any(may_take_long(loop) or cost([loop]) > _SHORT_ELEMENT for loop in loops) else set()


def _called_functions(node: ast.AST) -> list[str]:
    """The names of the functions that are called somewhere in a statement."""
    calls = (each.func for each in ast.walk(node) if isinstance(each, ast.Call))
    return [function.id for function in calls if isinstance(function, ast.Name)]


@dataclass(frozen=True)
class Countdown:
    """The units of work that a function has left until it polls, at an address."""

    module: ir.Module
    place: ir.Value

    @staticmethod
    def begin(module: ir.Module, builder: ir.IRBuilder) -> Countdown:
        """The countdown of a kernel, which goes on where the last kernel of any thread has stopped."""
        countdown = Countdown(module, builder.alloca(INDEX, name="units"))
        builder.store(builder.load(_work_left(module), typ=INDEX), countdown.place)
        return countdown

    def end(self, builder: ir.IRBuilder) -> None:
        """Return the status of a kernel."""
        left = builder.load(self.place, typ=INDEX)
        stopping = builder.icmp_signed("<", left, word(STOPPING))
        builder.store(builder.select(stopping, word(PERIOD), left), _work_left(self.module))
        status = ir.IntType(32)
        builder.ret(builder.select(stopping, ir.Constant(status, STOPPED), ir.Constant(status, 0)))

    def copied(self, builder: ir.IRBuilder) -> Countdown:
        """A copy, which LLVM can keep in a register."""
        copy = Countdown(self.module, builder.alloca(INDEX, name="left"))
        self.copy_to(copy, builder)
        return copy

    def copy_to(self, other: Countdown, builder: ir.IRBuilder) -> None:
        builder.store(builder.load(self.place, typ=INDEX), other.place)

    def iterate(self, builder: ir.IRBuilder, units: int, again: ir.Block, after: ir.Block) -> list[ir.Block]:
        """End the last block of an iteration of so many units. The blocks are returned that go on to `again`; the last
        of them may leave the loop and go on to `after`."""
        left = builder.sub(builder.load(self.place, typ=INDEX), word(units))
        builder.store(left, self.place)
        polling = builder.append_basic_block()
        going = builder.icmp_signed(">=", left, word(0))
        start = builder.block
        builder.cbranch(going, again, polling).set_weights(_SELDOM)
        builder.position_at_end(polling)
        poll = declared(self.module, POLL, INDEX, [INDEX], "nounwind", "cold")
        new = builder.call(poll, [left])
        builder.store(new, self.place)
        builder.cbranch(builder.icmp_signed(">=", new, word(0)), again, after)
        return [start, polling]


def _work_left(module: ir.Module) -> ir.Value:
    if WORK_LEFT not in module.globals:
        ir.GlobalVariable(module, INDEX, WORK_LEFT).linkage = "external"
    return module.globals[WORK_LEFT]


# --- the module ------------------------------------------------------------------------------------------------------

# Instructions that `fastmath` allows liberties with.
_FLOAT_OPERATIONS = frozenset({"fadd", "fsub", "fmul", "fdiv", "frem", "fcmp"})
# The type of a value in the text, and the length of its vector or 0.
Shape: TypeAlias = tuple[str, int]


@dataclass
class Unit:
    """The module of a text.

    Its vectors have `lanes` elements, and the entry computes so many `vectors` side by side; both are 0 if it computes
    one element after the other.
    """

    module: ir.Module
    text: str  # constants, and functions, callees first
    names: Mapping[str, Emit]  # the free names of the functions
    element: str  # the function that the entry calls for each element
    liberties: Mapping[str, Iterable[str]]  # by function, LLVM's names of those that it may take with floats
    attributes: Sequence[str] = ()  # of every function
    lanes: int = 0
    vectors: int = 0
    streamed: Set[str] = frozenset()  # the arrays to which vectors are stored past the cache
    constants: dict[str, Typed] = field(default_factory=dict)
    definitions: dict[str, ast.FunctionDef] = field(default_factory=dict)
    # Writes the body of an empty function, from its definition, for arguments of some shapes; the type of the result.
    write: Callable[[Unit, ir.Function, ast.FunctionDef, Sequence[Shape]], str] = field(init=False)

    def __post_init__(self) -> None:
        for node in ast.parse(self.text).body:
            match node:
                case ast.FunctionDef():
                    self.definitions[node.name] = node
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id=dtype), args=[argument])):
                    self.constants[name] = _constant(dtype, ast.literal_eval(argument))
                case _:
                    raise SyntaxError(f"a kernel has no such statement: {ast.unparse(node)}")
        self.polling = _polling_functions(self.definitions, self.element)
        self._functions: dict[tuple[str, tuple[Shape, ...]], tuple[ir.Function, str]] = {}

    def units(self, function: str, loop: ast.For | ast.While) -> int:
        """The units of work of an iteration of a loop that polls; 0 for any other loop."""
        if not self.polling:
            return 0
        if function in self.polling:
            return 1 + cost(loop.body) if may_take_long(loop) else 0
        return 1 + cost(self.definitions[self.element].body) if self.element in _called_functions(loop) else 0

    def function(self, name: str, shapes: tuple[Shape, ...]) -> tuple[ir.Function, str]:
        """The LLVM function of a function of the text, for arguments of these shapes, and the type of its result in the
        text, empty if there is none. It is inlined into its callers.

        If the function polls, the address of the countdown is one argument more.
        """
        key = name, shapes
        if key not in self._functions:
            kinds = [llvm_type(*shape) for shape in shapes]
            kinds += [INDEX.as_pointer()] if name in self.polling else []
            # The type of its result is not known before its body is written.
            function_type = ir.FunctionType(ir.VoidType(), kinds)
            function = ir.Function(self.module, function_type, self.module.get_unique_name(name))
            function.linkage = "internal"
            attribute(function, "nounwind", "alwaysinline", *self.attributes)
            result = self.write(self, function, self.definitions[name], shapes)
            self.take_liberties(function, name)
            self._functions[key] = function, result
        return self._functions[key]

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
        liberties = tuple(self.liberties.get(name, ()))
        for block in function.blocks if liberties else ():
            for instruction in block.instructions:
                if isinstance(instruction, ir.CallInstr):
                    if lone(instruction.type) in (ir.FloatType(), ir.DoubleType()):
                        instruction.fastmath.update(liberties)
                elif instruction.opname in _FLOAT_OPERATIONS and not instruction.flags:
                    instruction.flags.extend(liberties)


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
