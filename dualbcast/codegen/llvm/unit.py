"""The LLVM module of a kernel's text while it is written: its constants, the LLVM functions of its functions, the names
in its statements, and which of its loops poll.

A loop that polls counts down the cost of its iterations. At zero it calls a function, which returns the units of work
until the next call, or says that all loops end. An iteration takes an instruction and a branch more.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple

from llvmlite import ir

from dualbcast.codegen.llvm.operators import promoted
from dualbcast.codegen.llvm.target import PERIOD, POLL, STOPPED, STOPPING, WORK_LEFT
from dualbcast.codegen.mathlib.primitives import Emit
from dualbcast.codegen.values import FLOATS, INDEX, TYPES, Value, attribute, declared, lone, word

# --- names -----------------------------------------------------------------------------------------------------------


class Uses(NamedTuple):
    """The names in some statements or expressions."""

    names: set[str]
    assigned: set[str]  # variables
    stores: bool  # whether an element of an array is stored, there or in a function that is called as a statement


def uses(nodes: Sequence[ast.AST]) -> Uses:
    names, assigned, stores = set[str](), set[str](), False
    pending = list(nodes)
    while pending:
        node = pending.pop()
        match node:
            case ast.Name(name, context):
                names.add(name)
                if isinstance(context, ast.Store):
                    assigned.add(name)
                continue
            case ast.Subscript(ctx=ast.Store()) | ast.Expr():
                stores = True
        pending += ast.iter_child_nodes(node)
    return Uses(names, assigned, stores)


def statements(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """The statements of a block and of all blocks inside it."""
    every = list(body)
    for stmt in every:
        every += [*getattr(stmt, "body", ()), *getattr(stmt, "orelse", ())]
    return every


# --- polling ---------------------------------------------------------------------------------------------------------

# Statements that a loop runs in all, up to which it does not poll; and those of an element's longest loop, up to which
# rows of elements do not. (Fifty steps of an oscillator are 815. If its kernel polled, it would take 1.02 of the time,
# since LLVM distributes the registers otherwise.)
_SHORT_LOOP, _SHORT_ELEMENT = 1 << 14, 1 << 12
# How likely it is that an iteration does not call the function.
_SELDOM = [1 << 20, 1]


def _iterations(loop: ast.For) -> int | None:
    """The number of iterations of a loop; None where it depends on data."""
    bounds = loop.iter.args if isinstance(loop.iter, ast.Call) else [loop.iter]
    try:
        numbers = range(*map(ast.literal_eval, bounds))
    except ValueError:
        return None
    return (numbers[-1] - numbers[0]) // numbers.step + 1 if numbers else 0


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
            pending += uses([definitions[name]]).names
    every = [stmt for name in reached for stmt in statements(definitions[name].body)]
    loops = [stmt for stmt in every if isinstance(stmt, ast.For | ast.While)]
    return reached if any(may_take_long(loop) or cost([loop]) > _SHORT_ELEMENT for loop in loops) else set()


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

    def __post_init__(self) -> None:
        self.definitions: dict[str, ast.FunctionDef] = {}
        self.constants: dict[str, tuple[ir.Constant, str]] = {}
        # The functions that are written already, by name and the types and lanes of their arguments.
        self.functions: dict[tuple[str, tuple[tuple[str, int], ...]], ir.Function] = {}
        self._uses: dict[ast.stmt, Uses] = {}
        for node in ast.parse(self.text).body:
            match node:
                case ast.FunctionDef():
                    self.definitions[node.name] = node
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id=dtype), args=[argument])):
                    value, convert = ast.literal_eval(argument), float if dtype in FLOATS else int
                    self.constants[name] = ir.Constant(TYPES[dtype], convert(value)), dtype
                case _:
                    raise SyntaxError(f"a kernel has no such statement: {ast.unparse(node)}")
        self.polling = _polling_functions(self.definitions, self.element)

    def uses(self, stmt: ast.stmt) -> Uses:
        if stmt not in self._uses:
            self._uses[stmt] = uses([stmt])
        return self._uses[stmt]

    def names_in(self, statements: Sequence[ast.stmt], varying: Set[str]) -> tuple[set[str], set[str]]:
        """The names that vary in statements if `varying` do before; and the variables that one statement assigns."""
        # Variables, and the names that their values depend on, those in the tests of branches among them.
        dependences: list[tuple[set[str], set[str]]] = []
        counts = Counter[str]()
        pending = [(stmt, set[str]()) for stmt in statements]
        while pending:
            stmt, around = pending.pop()
            match stmt:
                case ast.Assign() | ast.AugAssign():
                    names, assigned, _ = self.uses(stmt)
                    dependences.append((assigned, names | around))
                    counts.update(assigned)
                case ast.If(test=test, body=body, orelse=orelse):
                    around = around | uses([test]).names
                    pending += [(inner, around) for inner in (*body, *orelse)]
                case ast.For(body=body) | ast.While(body=body):
                    pending += [(inner, around) for inner in body]
                    counts.update(uses([stmt.target]).assigned if isinstance(stmt, ast.For) else ())
        result, count = set(varying), -1
        while count != len(result):
            count = len(result)
            for targets, sources in dependences:
                if not sources.isdisjoint(result):
                    result |= targets
        return result, {name for name, count in counts.items() if count == 1}

    def units(self, function: str, loop: ast.For | ast.While) -> int:
        """The units of work of an iteration of a loop that polls; 0 for any other loop."""
        if function in self.polling:
            return 1 + cost(loop.body) if may_take_long(loop) else 0
        is_around = self.polling and self.element in uses(loop.body).names
        return 1 + cost(self.definitions[self.element].body) if is_around else 0

    def mathematics(self, name: str, arguments: Sequence[Value]) -> Value:
        """The value of a function of floats that is none of the text's."""
        if name not in self.names:
            raise NameError(f"nothing is called {name}")
        dtypes = [each.dtype for each in arguments]
        if len({*dtypes}) > 1 or dtypes[0] not in FLOATS:
            raise TypeError(f"no {name} of {', '.join(dtypes)}")
        return self.names[name](*promoted(*arguments))

    def is_row(self, block: Sequence[ast.stmt]) -> bool:
        """Whether a block calls the element function, and does nothing else."""
        match block:
            case [ast.Expr(ast.Call(ast.Name(name)))]:
                return name == self.element
        return False

    def inlined(self, name: str, kinds: Sequence[ir.Type]) -> ir.Function:
        """An empty function that is to be inlined; the type of its result is not known before its body is written."""
        function_type = ir.FunctionType(ir.VoidType(), kinds)
        function = ir.Function(self.module, function_type, self.module.get_unique_name(name))
        function.linkage = "internal"
        attribute(function, "nounwind", "alwaysinline", *self.attributes)
        return function

    def declared(self, symbol: str, result: ir.Type, params: Mapping[str, str]) -> ir.Function:
        """A function of pointers to arrays that do not overlap, which is not inlined; `params` has their types."""
        kinds = [TYPES[dtype.lstrip("*")] for dtype in params.values()]
        kinds = [
            kind.as_pointer() if dtype[0] == "*" else kind for dtype, kind in zip(params.values(), kinds, strict=True)
        ]
        function = ir.Function(self.module, ir.FunctionType(result, kinds), symbol)
        attribute(function, "nounwind", "noinline", *self.attributes)
        for name, value in zip(params, function.args, strict=True):
            value.name = name
            if isinstance(value.type, ir.PointerType):
                # Else LLVM compares all pairs of pointers at run time and, past about twenty, gives up vectorising.
                value.add_attribute("noalias")
        return function

    def leave_scalar(self, back: ir.Instruction) -> None:
        """Keep LLVM's vectoriser from the loop over a row that an instruction ends. It may look at the body for minutes
        (see docs/decisions/032-one-vectoriser.md)."""
        hint = self.module.add_metadata(["llvm.loop.vectorize.enable", ir.Constant(TYPES["bool"], 0)])
        # The name of a loop refers to itself, so that it is like no other.
        loop = ir.MDValue(self.module, [hint], name=str(len(self.module.metadata)))
        loop.operands = (loop, hint)
        back.set_metadata("llvm.loop", loop)

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
