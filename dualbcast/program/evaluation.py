"""One element of a function in IR, evaluated step by step: its arguments come in, the outputs go out.

Operations mean what they mean in the text that the `python` backend runs, in the compute dtype of a call. With each
number goes what a subclass finds out about it: its derivatives, or the operation at which it stopped being finite.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Generic, TypeVar

import numpy as np

from dualbcast.codegen.statement_text import Constants, Writer
from dualbcast.errors import BoundsError, Location
from dualbcast.frontend.lower import helper_of
from dualbcast.ir import nodes as ir
from dualbcast.ir.traversal import whole_arrays
from dualbcast.program.outputs import library_of
from dualbcast.rules.table import CUSTOMS, RULES
from dualbcast.runtime import interpreter

T = TypeVar("T")


class Evaluation(Generic[T]):
    """The evaluation of functions whose floats are of a compute dtype, with something of type T for each number.

    The `label` is the function's in messages.
    """

    def __init__(self, dtype: str, label: str = "") -> None:
        self.dtype, self.label = dtype, label
        self._variables: dict[str, tuple[Any, T | None]] = {}

    # --- for subclasses ------------------------------------------------------------------------------------------

    def known(self, *_args: Any, **_named: Any) -> T | None:
        """What is to be known of a constant that is assigned: takes the number, and its place in the source."""
        return None

    def found(self, *_args: Any, **_named: Any) -> T | None:
        """What is to be known of the result of an operation: takes the operation, its operands, each with what is known
        of it, the result, and its place."""
        return None

    def noted(self, note: ir.Note) -> None:
        """A note is reached."""

    # --- statements ----------------------------------------------------------------------------------------------

    def run(self, function: ir.Function, args: Sequence[tuple[Any, T | None]]) -> list[tuple[Any, T | None]]:
        """The outputs of a function for arguments, each with what is known of it."""
        names = [param.name for param in function.params]
        self._variables = dict(zip(names, args, strict=True))
        with np.errstate(all="ignore"):
            self._block(function.body)
            return [self.value(output.value, function.location) for output in function.outputs]

    def _block(self, block: ir.Block) -> ir.Stmt | None:
        """Run a block; the result is the jump that has left it, if one has."""
        # Without recursion: a chain of branches may be deep.
        open_blocks = [iter(block)]
        while open_blocks:
            stmt = next(open_blocks[-1], None)
            match stmt:
                case None:
                    open_blocks.pop()
                case ir.Assign():
                    self._variables[stmt.target.name] = self.value(stmt.value, stmt.location)
                case ir.If():
                    open_blocks.append(iter(stmt.then if self.number(stmt.test) else stmt.orelse))
                case ir.For():
                    self._for(stmt)
                case ir.While():
                    self._while(stmt)
                case ir.Note():
                    self.noted(stmt)
                case _:
                    return stmt
        return None

    def _for(self, loop: ir.For) -> None:
        for item in range(*[int(self.number(bound)) for bound in (loop.start, loop.stop, loop.step)]):
            self._variables[loop.target.name] = np.int64(item), None
            if isinstance(self._block(loop.body), ir.Break):
                return

    def _while(self, loop: ir.While) -> None:
        while True:
            if isinstance(self._block(loop.pre), ir.Break) or not self.number(loop.test):
                return
            if isinstance(self._block(loop.body), ir.Break):
                return

    # --- expressions ---------------------------------------------------------------------------------------------

    def number(self, expr: ir.Expr) -> Any:
        """The number that an expression is."""
        return self.value(expr, ir.NOWHERE)[0]

    def value(self, expr: ir.Expr, where: Location) -> tuple[Any, T | None]:
        """The number that an expression is, and what is known of it."""
        match expr:
            case ir.Var():
                return self._variables[expr.name]
            case ir.Const():
                number = converted(expr.value, expr.kind, self.dtype)
                return number, self.known(number, where)
            case ir.Op(name=ir.READ, args=(ir.Array(name=name), at)):
                place = int(self.number(at))
                element = converted(self._variables[name][0][place], expr.kind, self.dtype)
                return element, self.found(expr, [(place, None)], element, where)
            case ir.Op():
                where = where if expr.location is ir.NOWHERE else expr.location
                args = [self.value(arg, where) for arg in expr.args]
                if expr.name == ir.BOUNDED:
                    (at, _), (length, _) = args
                    if not -length <= at < length:
                        raise BoundsError(self.label, (), 1, where)
                    return at % length, None
                if expr.name == "select":
                    return args[1 if args[0][0] else 2]
                if expr.name in CUSTOMS:
                    result = args[0][0]
                else:
                    function = _operation(expr.name, tuple([arg.kind for arg in expr.args]), expr.kind, self.dtype)
                    result = function(*[number for number, _ in args])
                return result, self.found(expr, args, result, where)
        raise AssertionError(expr)


def converted(number: Any, kind: ir.Kind, dtype: str) -> Any:
    """A number as a kernel of a compute dtype has it."""
    return np.asarray(number).astype({"float": dtype, "int": "int64", "bool": "bool"}[kind])[()]


class Memory:
    """A whole array, of which the function reads elements at places that it computes."""

    def __init__(self, first: Any) -> None:
        self._first = first

    def __getitem__(self, place: int) -> Any:
        first = self._first
        array = library_of(first).lib.stride_tricks.as_strided(first, (place + 1,), (first.dtype.itemsize,))
        return on_host(array[place])


def on_host(number: Any) -> Any:
    """A number, or an array, that may be on a GPU."""
    return number.get() if hasattr(number, "get") else number


def arguments_at(
    function: ir.Function, arrays: Sequence[Any], index: tuple[int, ...], dtype: str
) -> list[tuple[Any, None]]:
    """The arguments of a function for the element at an index of the shape that its arrays broadcast to."""
    whole, arguments = whole_arrays(function), []
    for array, param in zip(arrays, function.params, strict=True):
        if param.name in whole:
            arguments.append((Memory(array), None))
            continue
        own = index[len(index) - array.ndim :]
        number = array[tuple([at if length > 1 else 0 for at, length in zip(own, array.shape, strict=True)])]
        arguments.append((converted(on_host(number), param.kind, dtype), None))
    return arguments


def shown_arguments(names: Sequence[str], arguments: Sequence[tuple[Any, None]]) -> dict[str, Any]:
    """The numbers among the arguments of an element, by name."""
    pairs = zip(names, arguments, strict=True)
    return {name: number for name, (number, _) in pairs if not isinstance(number, Memory)}


@lru_cache(maxsize=1024)
def _operation(name: str, kinds: tuple[ir.Kind, ...], kind: ir.Kind, dtype: str) -> Callable[..., Any]:
    """An operation as the text of a kernel has it."""
    row = RULES.get(name)
    if row is not None and row.function is not None:
        # Not the one that is there now: a user's rule may be defined anew.
        return lambda *args: Evaluation[None](dtype).run(helper_of(RULES[name]), [(x, None) for x in args])[0][0]
    params = [ir.Var(f"x{at}", each) for at, each in enumerate(kinds)]
    text = Writer(Constants(dtype), {}, {}, {}).expression(ir.Op(name, tuple(params), kind))
    function: Callable[..., Any] = eval(
        f"lambda {', '.join(param.name for param in params)}: {text}", interpreter.namespace(dtype)
    )
    return function


def written(op: ir.Op, numbers: Sequence[Any], result: Any, dtype: str) -> str:
    """An operation and its result as text, with numbers for its operands."""
    if isinstance(op.args[0], ir.Array):
        return f"{op.args[0].name}[{numbers[0]}] = {result}"
    operands = [ir.Var(str(number), arg.kind) for number, arg in zip(numbers, op.args, strict=True)]
    shown = ir.Op(op.name, tuple(operands), op.kind)
    if op.name in ir.FUSED:
        product = ir.Op("mul", tuple(operands[:2]), op.kind)
        ends = (operands[2], product) if op.name == ir.SUBMUL else (product, operands[2])
        shown = ir.Op("add" if op.name == ir.MULADD else "sub", ends, op.kind)
    label = RULES[op.name].label if op.name in RULES else op.name
    return f"{Writer(Constants(dtype), {op.name: label}, {}, {}).expression(shown)} = {result}"
