"""A small language for loops: Python's operators, `with` statements for control flow, pointers and variables, LLVM's
instructions underneath.

A loop is a Python function that is run once, to write the loop. Its numbers and lists are known when the loop is
compiled; a `Value` is known when the loop runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from llvmlite import ir

from dualbcast.codegen.values import INDEX, TYPES, Lanes, Value, attribute, declared, masked_load, operand

ORDER = "seq_cst"
# Writes the end of an iteration, with a function that writes the way out of the loop.
AtEnd = Callable[[Callable[[], Any]], None]


def type_of(kind: str) -> ir.Type:
    """LLVM's type of a kind: "int64", "float32", …, or, of a pointer, "*" and the kind of its elements."""
    if kind == "void":
        return ir.VoidType()
    return ir.PointerType() if kind[0] == "*" else TYPES[kind]


def size_of(kind: str) -> int:
    """The bytes of an element of a kind, which it is aligned to as well."""
    return {"*": 8, "b": 1}.get(kind[0]) or int(kind.lstrip("uintfloa")) // 8


class Pointer:
    """The address of elements of a kind: `p[i]` loads an element, and `p[i] = x` stores one, or a vector from it on."""

    def __init__(self, builder: ir.IRBuilder, value: ir.Value, kind: str) -> None:
        self.builder, self.value, self.kind = builder, value, kind

    def at(self, index: Any) -> Pointer:
        """The address of an element."""
        if type(index) is int and index == 0:
            return self
        address = self.builder.gep(self.value, [operand(index, INDEX)], source_etype=type_of(self.kind))
        return Pointer(self.builder, address, self.kind)

    def skip_bytes(self, count: Any) -> Pointer:
        """The address so many bytes further on."""
        return self.of("int8").at(count).of(self.kind)

    def of(self, kind: str) -> Pointer:
        """The same address, of elements of another kind."""
        return Pointer(self.builder, self.value, kind)

    def address(self) -> Value:
        """The address as a number."""
        return Value(self.builder, self.builder.ptrtoint(self.value, INDEX))

    def __getitem__(self, index: Any) -> Any:
        address, kind = self.at(index).value, type_of(self.kind)
        value = self.builder.load(address, typ=kind, align=size_of(self.kind))
        if self.kind[0] == "*":
            return Pointer(self.builder, value, self.kind[1:])
        return Value(self.builder, value, self.kind)

    def __setitem__(self, index: Any, value: Any) -> None:
        self.builder.store(operand(value, type_of(self.kind)), self.at(index).value, align=size_of(self.kind))

    def vector(self, index: Any, lanes: int) -> Value:
        """The elements from an index on as a vector."""
        kind = Lanes(type_of(self.kind), lanes)
        vector = self.builder.load(self.at(index).value, typ=kind, align=size_of(self.kind))
        return Value(self.builder, vector, self.kind)

    def masked_vector(self, index: Any, lanes: int, mask: Value) -> Value:
        """The elements where a mask is true, and 0 elsewhere, where nothing is read."""
        nothing = ir.Constant(Lanes(type_of(self.kind), lanes), 0)
        address = self.at(index).value
        return Value(self.builder, masked_load(self.builder, address, size_of(self.kind), mask.value, nothing))

    def load_atomic(self) -> Value:
        kind = type_of(self.kind)
        return Value(self.builder, self.builder.load_atomic(self.value, ORDER, size_of(self.kind), typ=kind))

    def add_atomic(self, number: int) -> Value:
        """Add a number; what was there before."""
        old = self.builder.atomic_rmw("add", self.value, operand(number, type_of(self.kind)), ORDER)
        return Value(self.builder, old)

    def store_atomic(self, value: Any) -> None:
        # It is one instruction on x86. (llvmlite's own store wants typed pointers.)
        self.builder.atomic_rmw("xchg", self.value, operand(value, type_of(self.kind)), ORDER)

    def compare_exchange(self, old: Any, new: Any) -> Value:
        """Store a number where another one is; whether it was there."""
        expected, stored = (operand(each, type_of(self.kind)) for each in (old, new))
        pair = self.builder.cmpxchg(self.value, expected, stored, ORDER, ORDER)
        return Value(self.builder, self.builder.extract_value(pair, 1))


class Variable:
    """A number, or a vector, that changes while the function runs."""

    def __init__(self, builder: ir.IRBuilder, place: ir.Value, kind: ir.Type) -> None:
        self._builder, self.place, self._type = builder, place, kind

    @property
    def value(self) -> Value:
        return Value(self._builder, self._builder.load(self.place, typ=self._type))

    @value.setter
    def value(self, value: Any) -> None:
        self._builder.store(operand(value, self._type), self.place)


def text_of(write: Callable[..., Any], *parameters: Any) -> str:
    """A module in LLVM's language with the functions that `write` writes and returns, to be called from outside."""
    module = Module()
    written = write(module, *parameters)
    for function in written if isinstance(written, tuple) else (written,):
        function.code.linkage = "external"
    return str(module.module)


class Module:
    """Functions that are compiled together."""

    def __init__(self, triple: str = "", data_layout: str = "") -> None:
        self.module = ir.Module("loops")
        self.module.triple, self.module.data_layout = triple, data_layout  # the target's, where they are empty
        self._written: dict[tuple[Any, ...], Function] = {}

    def function(
        self,
        name: str,
        parameters: Sequence[str],
        returns: str = "void",
        noalias: bool = False,
        attributes: Sequence[str] = (),
    ) -> Function:
        """A new function, to be written, with parameters and a result of these kinds.

        `noalias` says that memory that is written through one of the pointers is used through none of the others. No
        other module sees the function: see `text_of`.
        """
        kind = ir.FunctionType(type_of(returns), [type_of(each) for each in parameters])
        function = Function(self, ir.Function(self.module, kind, name), parameters)
        function.code.linkage = "internal"
        attribute(function.code, *attributes)
        for parameter in function.code.args if noalias else ():
            if isinstance(parameter.type, ir.PointerType):
                parameter.add_attribute("noalias")
        return function

    def use(self, write: Callable[..., Function], *parameters: Any) -> Function:
        """The function that `write` writes for these parameters, written when it is used first."""
        if (write, parameters) not in self._written:
            self._written[write, parameters] = write(self, *parameters)
        return self._written[write, parameters]

    def leave_scalar(self, back: ir.Instruction) -> None:
        """Keep LLVM's vectoriser from the loop that an instruction ends. It may look at a long body for minutes
        (see docs/decisions/032-one-vectoriser.md)."""
        hint = self.module.add_metadata(["llvm.loop.vectorize.enable", ir.Constant(TYPES["bool"], 0)])
        # The name of a loop refers to itself, so that it is like no other.
        loop = ir.MDValue(self.module, [hint], name=str(len(self.module.metadata)))
        loop.operands = (loop, hint)
        back.set_metadata("llvm.loop", loop)

    def external(self, name: str, parameters: Sequence[str], returns: str) -> Any:
        """A function of the C library, of LLVM, or of the process."""
        return declared(self.module, name, type_of(returns), [type_of(each) for each in parameters])


class Function:
    """A function that is being written, from its first statement to the last."""

    def __init__(self, module: Module, code: ir.Function, parameters: Sequence[str]) -> None:
        self.module, self.code = module, code
        self.builder = ir.IRBuilder(code.append_basic_block("entry"))
        self.parameters = [self._given(each, kind) for each, kind in zip(code.args, parameters, strict=True)]

    def _given(self, value: ir.Value, kind: str) -> Any:
        return Pointer(self.builder, value, kind[1:]) if kind[0] == "*" else Value(self.builder, value)

    def variable(self, value: Any, kind: str = "int64") -> Variable:
        """A variable with its first value: of that value's type, or of a kind if that is Python's number."""
        given = operand(value, type_of(kind))
        with self.builder.goto_entry_block():
            place = self.builder.alloca(given.type)
        variable = Variable(self.builder, place, given.type)
        variable.value = value
        return variable

    def room(self, count: int, kind: str = "int64", align: int | None = None) -> Pointer:
        """Memory on the stack for so many elements of a kind."""
        with self.builder.goto_entry_block():
            place = self.builder.alloca(type_of(kind), count)
        place.align, place.type = align, ir.PointerType()
        return Pointer(self.builder, place, kind)

    @contextmanager
    def range(
        self, start: Any, stop: Any, step: Any = 1, at_end: AtEnd | None = None, is_scalar: bool = False
    ) -> Iterator[Value]:
        """A loop over the numbers from `start` on that are less than `stop`.

        `at_end` writes the end of an iteration. LLVM does not make vectors of the elements of a loop that `is_scalar`.
        """
        builder, before = self.builder, self.builder.block
        head, body, after = (builder.append_basic_block() for _ in range(3))
        builder.branch(head)
        builder.position_at_end(head)
        index = builder.phi(INDEX)
        index.add_incoming(operand(start, INDEX), before)
        builder.cbranch(builder.icmp_signed("<", index, operand(stop, INDEX)), body, after)
        builder.position_at_end(body)
        yield Value(builder, index)
        if at_end is not None:
            at_end(lambda: builder.branch(after))
        index.add_incoming(builder.add(index, operand(step, INDEX), flags=["nsw"]), builder.block)
        back = builder.branch(head)
        if is_scalar:
            self.module.leave_scalar(back)
        builder.position_at_end(after)

    @contextmanager
    def loop(self) -> Iterator[Callable[[], Any]]:
        """A loop that runs until it is left, by the function that it gives."""
        builder = self.builder
        body, after = (builder.append_basic_block() for _ in range(2))
        builder.branch(body)
        builder.position_at_end(body)
        yield lambda: builder.branch(after)
        if not builder.block.is_terminated:
            builder.branch(body)
        builder.position_at_end(after)

    def if_(self, test: Value, likely: bool | None = None) -> AbstractContextManager[Any]:
        """Statements that run where a test is true."""
        context: AbstractContextManager[Any] = self.builder.if_then(test.value, likely)
        return context

    def if_else(self, test: Value) -> AbstractContextManager[tuple[Any, Any]]:
        """Two statements for `with`: one runs where a test is true, the other elsewhere."""
        context: AbstractContextManager[tuple[Any, Any]] = self.builder.if_else(test.value)
        return context

    def return_(self, value: Any = None) -> None:
        if value is None:
            self.builder.ret_void()
        else:
            self.builder.ret(operand(value, self.code.return_value.type))

    def call(self, function: Any, *arguments: Any) -> Value:
        """The result of a function of this module, or of an external one."""
        code = function.code if isinstance(function, Function) else function
        kinds = code.function_type.args
        values = [operand(each, kind) for each, kind in zip(arguments, kinds, strict=True)]
        return Value(self.builder, self.builder.call(code, values))

    def call_address(self, address: Value, returns: str, arguments: Sequence[Any]) -> Value:
        """The result of a function at an address."""
        values = [each.value for each in arguments]
        kind = ir.FunctionType(type_of(returns), [each.type for each in values])
        return Value(self.builder, self.builder.call(self.builder.inttoptr(address.value, kind.as_pointer()), values))

    def variable_of_process(self, name: str) -> Pointer:
        """The address of an integer, or of an object, that has this symbol in the process."""
        module = self.module.module
        return Pointer(self.builder, module.globals.get(name) or ir.GlobalVariable(module, INDEX, name), "int64")

    def address_of(self, function: Function) -> Value:
        """The address of a function of this module."""
        return Pointer(self.builder, function.code, "int8").address()

    def pointer(self, address: Value, kind: str) -> Pointer:
        """The pointer to elements of a kind at an address."""
        return Pointer(self.builder, self.builder.inttoptr(address.value, ir.PointerType()), kind)

    def fence(self) -> None:
        """Make all stores so far visible to other threads before any that follow."""
        self.builder.fence(ORDER)
