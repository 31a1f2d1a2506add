"""The loop over a row as LLVM IR on vectors, where an element is a straight line.

LLVM's vectoriser would make the same of it, in most of the time that it takes for a kernel. What is the same for the
whole row is computed before the loop, and of a branch that is the same for the row there are two loops.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llvmlite import ir

from dualbcast.record import NamedTuple
from dualbcast.runtime.elementary_steps import is_never_positive
from dualbcast.runtime.expressions import TYPES, WORD, Expressions, Operation, Typed
from dualbcast.runtime.wide import Lanes, splat

if TYPE_CHECKING:
    from dualbcast.runtime.lowering import Unit

__all__ = ["EDGE", "WHOLE", "Rows", "Vectors"]

# Functions of where a part of a row begins and ends, and of what else it takes: of whole vectors, and of any elements.
WHOLE, EDGE = "dualbcast_whole", "dualbcast_edge"
_BOUNDS = {"low#": "int64", "high#": "int64"}
# The most loops that are made of one for the sake of branches.
_LOOPS = 16
# Bytes of a line of the cache.
_LINE = 64
_PLACE = ir.IntType(32)


class Along(NamedTuple):
    """An index that goes along the row.

    Attributes
    ----------
    first : llvmlite.ir.Value
        That of a vector's first element.
    step : llvmlite.ir.Value or None
        From one element to the next; None is 1.
    node : ast.expr or None
        How it is written around the element function.
    """

    first: ir.Value
    step: ir.Value | None = None
    node: ast.expr | None = None


class Access(NamedTuple):
    """How an array is read or written, a vector at a time.

    Attributes
    ----------
    place : ast.expr
        The index of an element, as it is written around the element function.
    stores : bool
        Whether it is written.
    """

    place: ast.expr
    stores: bool


class Vectors(Expressions):
    """Writes a straight line: a name stands for the value that it has at the place where the text is.

    Parameters
    ----------
    unit : Unit
        What the functions of the text share.
    builder : llvmlite.ir.IRBuilder
    values : mapping of str to Typed or Along
        What names stand for at the beginning.
    function : str
        The function of the text that this is, or is part of.
    at_once : int
        How many elements of the row are a vector.
    """

    def __init__(
        self, unit: Unit, builder: ir.IRBuilder, values: Mapping[str, Any], function: str, at_once: int = 0
    ) -> None:
        self.unit, self.builder, self.function, self.at_once = unit, builder, function, at_once
        self.values = dict(values)
        self.accesses: dict[str, Access] = {}

    # --- statements ----------------------------------------------------------------------------------------------

    def block(self, statements: Sequence[ast.stmt]) -> None:
        for stmt in statements:
            match stmt:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self.values[name] = self.expression(value)
                case ast.Assign(targets=[ast.Subscript() as place], value=value):
                    self.store(self.expression(place.value), self.expression(place.slice), self.expression(value))
                case ast.Expr(value=ast.Call() as call):
                    self.call(call)
                case ast.If():
                    self.if_(stmt)
                case ast.Pass():
                    pass
                case _:
                    raise SyntaxError(f"a straight line has no such statement: {ast.unparse(stmt)}")

    def if_(self, stmt: ast.If) -> None:
        """Of a test that is a vector both sides, and of what they assign that of the side that each element takes."""
        test, before = self.test(stmt.test), self.values
        is_vector = isinstance(test.type, ir.VectorType)
        starts = [] if is_vector else [self.builder.append_basic_block() for _ in range(2)]
        if not is_vector:
            self.builder.cbranch(test, *starts)
        sides, ends = [], []
        for position, body in enumerate((stmt.body, stmt.orelse)):
            if not is_vector:
                self.builder.position_at_end(starts[position])
            self.values = dict(before)
            self.block(body)
            sides.append(self.values)
            ends.append(self.builder.block)
        then, orelse = sides
        # What only one side assigns, and nothing before it, is not read later.
        changed = [name for name in then if name in orelse and then[name] is not orelse[name]]
        ways = [(then[name], orelse[name]) for name in changed]
        if is_vector:
            made = [self.select(test, *both) for both in ways]
        else:
            made = self.merged(ways, ends, self.builder.append_basic_block())
        self.values = {**before, **dict(zip(changed, made, strict=True))}

    # --- arrays --------------------------------------------------------------------------------------------------

    def binary(self, op: ast.operator, left: Any, right: Any) -> Any:
        if not isinstance(left, Along) and not isinstance(right, Along):
            return super().binary(op, left, right)
        builder = self.builder
        match op, left, right:
            case ast.Add(), Along(), Typed():
                return left._replace(first=builder.add(left.first, right.value))
            case ast.Add(), Typed(), Along():
                return right._replace(first=builder.add(left.value, right.first))
            case ast.Mult(), Along(step=None), Typed():
                return left._replace(first=builder.mul(left.first, right.value), step=right.value)
        raise TypeError(f"no {type(op).__name__} of an index along the row")

    def load(self, pointer: Typed, index: Any) -> Typed:
        if not isinstance(index, Along):
            return super().load(pointer, index)
        self.accessed(pointer, index, stores=False)
        dtype, builder = pointer.dtype[1:], self.builder
        kind = Lanes(TYPES[dtype], self.at_once)
        if index.step is None:
            return Typed(builder.load(self.element(pointer, index), align=_itemsize(TYPES[dtype]), typ=kind), dtype)
        found: ir.Value = ir.Constant(kind, ir.Undefined)
        for lane in range(self.at_once):
            place = builder.add(index.first, builder.mul(index.step, ir.Constant(WORD, lane)))
            value = builder.load(builder.gep(pointer.value, [place]), typ=TYPES[dtype])
            found = builder.insert_element(found, value, ir.Constant(_PLACE, lane))
        return Typed(found, dtype)

    def store(self, pointer: Typed, index: Any, value: Typed) -> None:
        if not isinstance(index, Along) or index.step is not None:
            raise TypeError("what a vector is stored to lies side by side")
        self.accessed(pointer, index, stores=True)
        dtype = pointer.dtype[1:]
        made = self.spread(self.cast(value, dtype), self.at_once)
        self.builder.store(made.value, self.element(pointer, index), align=_itemsize(TYPES[dtype]))

    def element(self, pointer: Typed, index: Any) -> ir.Value:
        if not isinstance(index, Along):
            return super().element(pointer, index)
        address = self.builder.gep(pointer.value, [index.first])
        address.type = ir.PointerType()  # to a vector, or to a number
        return address

    def accessed(self, pointer: Typed, index: Along, stores: bool) -> None:
        assert index.node is not None
        self.accesses[pointer.value.name] = Access(index.node, stores)

    # --- calls ---------------------------------------------------------------------------------------------------

    def operate(self, name: str, operation: Operation, values: Sequence[ir.Value]) -> ir.Value:
        # What is known of an argument is not seen from inside a function.
        if not operation.is_long or any(map(is_never_positive, values)):
            return super().operate(name, operation, values)
        made = self.unit.operation(name, operation, [value.type for value in values], self.function)
        return self.builder.call(made, values)


class Rows:
    """A loop over a row as two functions.

    Parameters
    ----------
    unit : Unit
    loop : ast.For
        Whose body is a call of the element function.
    given : dict of str to str
        What its body has from around it, by name, and the types.
    at_once : int
        How many elements are a vector.

    Attributes
    ----------
    whole, edge : llvmlite.ir.Function
        Of where a part of the row begins and ends, and of what is given: for as many elements as are whole vectors, and
        for any number, which it copies to the stack and back. So every element is computed by the same instructions.
    """

    def __init__(self, unit: Unit, loop: ast.For, given: dict[str, str], at_once: int) -> None:
        assert isinstance(loop.target, ast.Name)
        assert isinstance(loop.body[0], ast.Expr)
        assert isinstance(loop.body[0].value, ast.Call)
        assert isinstance(loop.body[0].value.func, ast.Name)
        self.unit, self.given, self.at_once = unit, given, at_once
        self.place, call = loop.target.id, loop.body[0].value
        self.element = unit.definitions[loop.body[0].value.func.id]
        self.arguments = dict(zip([each.arg for each in self.element.args.args], call.args, strict=True))
        void = ir.VoidType()
        self.whole = unit.declared(WHOLE, void, _BOUNDS | given)
        self.accesses = self._whole()
        self.edge = unit.declared(EDGE, void, _BOUNDS | given)
        self._edge()

    def around(self, function: ir.Function, builder: ir.IRBuilder, **known: Any) -> Vectors:
        """To write what is around the element function, in a function that has what is given."""
        dtypes = _BOUNDS | self.given
        values = {value.name: Typed(value, dtypes[value.name]) for value in function.args}
        return Vectors(self.unit, builder, values | known, self.element.name, self.at_once)

    # --- whole vectors -------------------------------------------------------------------------------------------

    def _whole(self) -> dict[str, Access]:
        builder = ir.IRBuilder(self.whole.append_basic_block())
        around = self.around(self.whole, builder)
        self.along = {name for name, argument in self.arguments.items() if self.place in _names(argument)}
        steady = {name: around.expression(node) for name, node in self.arguments.items() if name not in self.along}
        line = Vectors(self.unit, builder, steady, self.element.name, self.at_once)
        self.end = self.whole.append_basic_block()
        self._loops(line, self.element.body, 1)
        ir.IRBuilder(self.end).ret_void()
        self.unit.take_liberties(self.whole, self.element.name)
        return line.accesses

    def _loops(self, line: Vectors, statements: Sequence[ast.stmt], loops: int) -> None:
        """A loop of these statements, or several for branches that are the same for the whole row; then the end."""
        inside: list[ast.stmt] = []
        varying, mentioned = set(self.along), set[str]()
        for position, stmt in enumerate(statements):
            names, targets = _names(stmt), _targets(stmt)
            if isinstance(stmt, ast.Assign | ast.If) and not (_stores(stmt) or names & varying or targets & mentioned):
                line.block([stmt])
                continue
            if isinstance(stmt, ast.If) and loops < _LOOPS and not _names(stmt.test) & varying:
                before, rest = line.values, statements[position + 1 :]
                sides = [line.builder.append_basic_block() for _ in range(2)]
                line.builder.cbranch(line.test(stmt.test), *sides)
                for side, body in zip(sides, (stmt.body, stmt.orelse), strict=True):
                    line.builder.position_at_end(side)
                    line.values = dict(before)
                    self._loops(line, [*inside, *body, *rest], 2 * loops)
                return
            inside.append(stmt)
            varying |= targets
            mentioned |= names
        self._turns(line, inside)

    def _turns(self, line: Vectors, statements: Sequence[ast.stmt]) -> None:
        """A loop over whole vectors, of which there is at least one."""
        builder, (low, high, *_) = line.builder, self.whole.args
        before, body = builder.block, builder.append_basic_block()
        builder.branch(body)
        builder.position_at_end(body)
        first = builder.phi(WORD)
        first.add_incoming(low, before)
        around = self.around(self.whole, builder, **{self.place: Along(first)})
        for name in self.along:
            node = self.arguments[name]
            line.values[name] = around.expression(node)._replace(node=node)  # type: ignore[call-arg]
        line.block(statements)
        again = builder.add(first, ir.Constant(WORD, self.at_once), flags=["nsw"])
        first.add_incoming(again, builder.block)
        builder.cbranch(builder.icmp_signed("<", again, high), body, self.end)

    # --- what is left --------------------------------------------------------------------------------------------

    def _edge(self) -> None:
        """The elements are copied to the stack, in vectors whose other elements are like the first, and back."""
        builder, (low, high, *given) = ir.IRBuilder(self.edge.append_basic_block()), self.edge.args
        length = ir.Constant(Lanes(WORD, self.at_once), [*range(self.at_once)])
        mask = builder.icmp_unsigned("<", length, splat(builder, builder.sub(high, low), self.at_once))
        around = self.around(self.edge, builder, **{self.place: Along(low)})
        # On the stack an array begins with the first of them, and all lie side by side.
        handed: dict[str, ir.Value] = {name: ir.Constant(WORD, first) for name, first in self._offsets().items()}
        places: dict[str, Any] = {}
        rooms: dict[str, ir.Value] = {}
        for name, access in self.accesses.items():
            number = TYPES[self.given[name][1:]]
            places[name] = around.expression(access.place)
            rooms[name] = builder.alloca(Lanes(number, self.at_once))
            rooms[name].align = _LINE
            handed[name] = builder.bitcast(rooms[name], number.as_pointer())
            if not access.stores:
                builder.store(self._taken(around, name, places[name], mask), rooms[name], align=_LINE)
        zero, end = ir.Constant(WORD, 0), ir.Constant(WORD, self.at_once)
        builder.call(self.whole, [zero, end, *[handed.get(value.name, value) for value in given]])
        for name, access in self.accesses.items():
            if access.stores:
                number = TYPES[self.given[name][1:]]
                computed = builder.load(rooms[name], align=_LINE, typ=Lanes(number, self.at_once))
                address = around.element(around.name(name), places[name])
                self._masked(builder, "store", computed.type, [computed, address, _alignment(number), mask])
        builder.ret_void()

    def _taken(self, around: Vectors, name: str, place: Any, mask: ir.Value) -> ir.Value:
        """The elements of an array that the mask has, and for others the first."""
        builder, pointer, address = around.builder, around.name(name), around.element(around.name(name), place)
        number = TYPES[self.given[name][1:]]
        taken = splat(builder, builder.load(address, typ=number), self.at_once)
        if place.step is None:
            return self._masked(builder, "load", taken.type, [address, _alignment(number), mask, taken])
        for lane in range(1, self.at_once):
            at = ir.Constant(_PLACE, lane)
            ahead = builder.mul(place.step, ir.Constant(WORD, lane))
            ahead = builder.select(builder.extract_element(mask, at), ahead, ir.Constant(WORD, 0))
            there = around.element(pointer, place._replace(first=builder.add(place.first, ahead)))
            taken = builder.insert_element(taken, builder.load(there, typ=number), at)
        return taken

    def _masked(self, builder: ir.IRBuilder, what: str, kind: Lanes, arguments: Sequence[ir.Value]) -> ir.Value:
        """A load or a store of what the mask has, which is the last of the arguments or the one before."""
        symbol, module = f"llvm.masked.{what}.{kind.intrinsic_name}.p0", self.unit.module
        function = module.globals.get(symbol)
        if function is None:
            shape = [argument.type for argument in arguments]
            result = kind if what == "load" else ir.VoidType()
            function = ir.Function(module, ir.FunctionType(result, shape), symbol)
        return builder.call(function, arguments)

    def _offsets(self) -> dict[str, int]:
        """What indices along the row are made of beside the place: where the row begins, as 0, and strides, as 1."""
        found: dict[str, int] = {}
        for name in self.along:
            for node in ast.walk(self.arguments[name]):
                match node:
                    case ast.BinOp(left=ast.Name(id=self.place), op=ast.Mult(), right=ast.Name(id=stride)):
                        found[stride] = 1
                    case ast.BinOp(left=ast.Name(id=first), op=ast.Add()) if first != self.place:
                        found[first] = 0
        return found


def _itemsize(number: ir.Type) -> int:
    return number.width // 8 if isinstance(number, ir.IntType) else 4 if isinstance(number, ir.FloatType) else 8


def _alignment(number: ir.Type) -> ir.Constant:
    return ir.Constant(_PLACE, _itemsize(number))


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _targets(stmt: ast.stmt) -> set[str]:
    """The names that a statement assigns."""
    assigned = [each for each in ast.walk(stmt) if isinstance(each, ast.Assign)]
    return {target.id for each in assigned for target in each.targets if isinstance(target, ast.Name)}


def _stores(stmt: ast.stmt) -> bool:
    """Whether a statement writes to an array, or may do so."""
    return any(
        isinstance(each, ast.Expr) or (isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Subscript))
        for each in ast.walk(stmt)
    )
