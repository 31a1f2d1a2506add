"""A formula as a function of whole arrays, in Python's text: all branches are `where`, all loops are calls of `ops`.

The text is printed from the IR, after the pass that masks loops has made it a straight line. Its free name `ops` is a
system's namespace (`array_ops`). With guards, an operation that only one side of a branch needs gets a harmless operand
where the other side is taken: a zero cotangent times an infinite slope would be NaN ("the double where").
"""

from __future__ import annotations

import keyword
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from bench.formulas.corpus import Formula
from dualbcast.frontend.lower import lower
from dualbcast.ir import nodes as ir
from dualbcast.ir.simplification import number, simplify
from dualbcast.ir.traversal import all_expressions, assigned, remove_dead, renamed, targets
from dualbcast.passes.inlining import drop_custom_derivatives
from dualbcast.passes.masked_loops import _Masking

__all__ = ["ArrayFunction", "array_function"]

_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "lt": "<", "le": "<=", "gt": ">"}
_INFIX |= {"ge": ">=", "eq": "==", "ne": "!=", "floordiv": "//", "mod": "%", "bitand": "&", "bitor": "|"}
# The operand to guard, and a number at which the operation and its slope are finite.
_GUARDS = {
    "div": (1, 1.0),
    "log": (0, 1.0),
    "log2": (0, 1.0),
    "log10": (0, 1.0),
    "log1p": (0, 1.0),
    "sqrt": (0, 1.0),
    "root": (0, 1.0),
    "cbrt": (0, 1.0),
    "inverse_root": (0, 1.0),
    "root_cubed": (0, 1.0),
    "inverse_root_cubed": (0, 1.0),
    "pow": (0, 1.0),
    "hypot": (0, 1.0),
    "atan2": (0, 1.0),
    "lgamma": (0, 1.0),
    "tgamma": (0, 1.0),
    "asin": (0, 0.0),
    "acos": (0, 0.0),
    "atanh": (0, 0.0),
    "acosh": (0, 2.0),
    "exp": (0, 0.0),
    "expm1": (0, 0.0),
    "exp2": (0, 0.0),
    "sinh": (0, 0.0),
    "cosh": (0, 0.0),
    "tan": (0, 0.0),
}
# Conditions that all must hold: the name of a test, and the side.
_Needs = frozenset[tuple[str, bool]]


@dataclass(frozen=True)
class ArrayFunction:
    """A formula of whole arrays.

    Attributes
    ----------
    text : str
        Of a function `formula`, of the parameters that are arrays or are differentiated in.
    parameters : tuple of str
    outputs : int
    while_loops, for_loops : int
        How many loops end where the data says, and how many take a number of iterations that is known.
    """

    text: str
    parameters: tuple[str, ...]
    outputs: int
    while_loops: int
    for_loops: int

    def bind(self, ops: Any) -> Callable[..., Any]:
        """The function, for a namespace of operations."""
        names: dict[str, Any] = {"ops": ops}
        exec(compile(self.text, "<formula of arrays>", "exec"), names)
        return names["formula"]  # type: ignore[no-any-return]


def array_function(formula: Formula, *, guarded: bool = False) -> ArrayFunction:
    """The formula as a function of whole arrays; scalars that are not differentiated in are constants in it."""
    arguments: list[Any] = []
    parameters: list[str] = []  # in the IR they may have other names
    for name, spec in formula.ranges.items():
        if isinstance(spec, tuple):
            arguments.append("int" if spec[0] == "int" else "float")
        else:
            arguments.append("float" if name in formula.wrt else number(spec))
        if not isinstance(arguments[-1], ir.Const):
            parameters.append(name)
    line = _straight(simplify(drop_custom_derivatives(lower(formula.function, arguments).function)))
    if guarded:
        line = _guarded(line)
    return _Printer(line).printed(tuple(parameters))


def _straight(function: ir.Function) -> ir.Function:
    """All paths as one line of assignments, masked loops, and loops with a known number of iterations."""
    # As a user writes it for the peer, with the functions of both sides.
    masking = _Masking(function, set(), fuses=False)
    held: dict[str, ir.Atom] = {}
    body: list[ir.Stmt] = []
    masking.flatten(function.body, held, ir.TRUE, body, is_outer=True)
    outputs = tuple(replace(output, value=renamed(output.value, held)) for output in function.outputs)
    return remove_dead(simplify(replace(function, body=tuple(body), outputs=outputs)))


# --- guards ----------------------------------------------------------------------------------------------------------


def _guarded(function: ir.Function) -> ir.Function:
    """The function with harmless operands where a result is not needed."""
    counted = Counter(assigned(function.body))
    once = {name for name, count in counted.items() if count == 1}
    names = ir.Names([*counted, *(param.name for param in function.params)])

    def visit(block: ir.Block, results: Iterable[ir.Expr]) -> ir.Block:
        needs: dict[str, _Needs] = {}
        for expr in results:
            _need(expr, frozenset(), needs)
        for stmt in reversed(block):
            if isinstance(stmt, ir.Assign):
                here = needs.get(stmt.target.name, frozenset()) if stmt.target.name in once else frozenset()
                _need(stmt.value, here, needs)
            else:
                for expr in all_expressions((stmt,)):
                    _need(expr, frozenset(), needs)
        new: list[ir.Stmt] = []
        known: set[str] = set()
        for stmt in block:
            if isinstance(stmt, ir.Assign):
                known.add(stmt.target.name)
                conditions = {need for need in needs.get(stmt.target.name, ()) if need[0] in known and need[0] in once}
                if stmt.target.name in once and conditions and isinstance(stmt.value, ir.Op):
                    stmt = replace(stmt, value=_harmless(stmt.value, conditions, names, new))
            elif isinstance(stmt, ir.For | ir.While):
                ends = [target for name, target in targets(stmt.body).items()]
                stmt = replace(stmt, body=visit(stmt.body, ends))
            new.append(stmt)
        return tuple(new)

    return replace(function, body=visit(function.body, [output.value for output in function.outputs]))


def _need(expr: ir.Expr, here: _Needs, needs: dict[str, _Needs]) -> None:
    """Note that an expression is needed where the conditions `here` hold."""
    if isinstance(expr, ir.Var):
        needs[expr.name] = needs[expr.name] & here if expr.name in needs else here
    elif isinstance(expr, ir.Op):
        test = expr.args[0]
        if expr.name == "select" and isinstance(test, ir.Var):
            _need(test, here, needs)
            _need(expr.args[1], here | {(test.name, True)}, needs)
            _need(expr.args[2], here | {(test.name, False)}, needs)
        else:
            for arg in expr.args:
                _need(arg, here, needs)


def _harmless(op: ir.Op, conditions: Iterable[tuple[str, bool]], names: ir.Names, new: list[ir.Stmt]) -> ir.Op:
    """The operation with a harmless operand where one of the conditions does not hold."""
    at, safe = _GUARDS.get(op.name, (-1, 0.0))
    if at < 0 or isinstance(op.args[at], ir.Const):
        return op
    args = list(op.args)
    for test, side in sorted(conditions):
        choices = (args[at], ir.Const(safe, "float")) if side else (ir.Const(safe, "float"), args[at])
        chosen = ir.Var(names.fresh("%safe"), "float")
        new.append(ir.Assign(chosen, ir.Op("select", (ir.Var(test, "bool"), *choices), "float")))
        args[at] = chosen
    return replace(op, args=tuple(args))


# --- text ------------------------------------------------------------------------------------------------------------


class _Printer:
    def __init__(self, function: ir.Function) -> None:
        self.function = function
        self.lines: list[str] = []
        self.names: dict[str, str] = {}
        self.taken = {"ops", "formula", "range", *keyword.kwlist}
        self.whiles = self.fors = 0

    def printed(self, parameters: tuple[str, ...]) -> ArrayFunction:
        function = self.function
        names = [param.name for param in function.params]
        self.lines.append(f"def formula({', '.join(map(self.name, names))}):")
        self.block(function.body, 1, set(names))
        outputs = ", ".join(self.expression(output.value) for output in function.outputs)
        self.lines.append(f"    return ops.outputs({outputs})")
        text = "\n".join(self.lines) + "\n"
        return ArrayFunction(text, parameters, len(function.outputs), self.whiles, self.fors)

    def name(self, name: str) -> str:
        """A name as one of Python's."""
        if name not in self.names:
            base = "".join(letter if letter.isalnum() else "_" for letter in name.lstrip(ir.TEMPORARY)) or "t"
            base = base if not base[0].isdigit() else f"t{base}"
            fresh, count = base, 0
            while fresh in self.taken:
                count += 1
                fresh = f"{base}_{count}"
            self.taken.add(fresh)
            self.names[name] = fresh
        return self.names[name]

    def block(self, block: ir.Block, depth: int, known: set[str]) -> None:
        indent = "    " * depth
        for stmt in block:
            match stmt:
                case ir.Assign():
                    self.lines.append(f"{indent}{self.name(stmt.target.name)} = {self.expression(stmt.value)}")
                case ir.For():
                    self.fors += 1
                    bounds = ", ".join(map(self.expression, (stmt.start, stmt.stop, stmt.step)))
                    self.loop(stmt, f"ops.count({bounds}, ", [stmt.target.name], depth, known)
                case ir.While(masked=True, test=ir.Var() as flag):
                    self.whiles += 1
                    self.loop(stmt, f"ops.loop({self.whiles - 1}, ", [], depth, known, flag.name)
                case _:
                    raise NotImplementedError(f"{type(stmt).__name__} in the formula of whole arrays")
            known |= {stmt.target.name} if isinstance(stmt, ir.Assign) else set(assigned((stmt,)))

    def loop(
        self, stmt: ir.For | ir.While, call: str, first: list[str], depth: int, known: set[str], flag: str = ""
    ) -> None:
        """An iteration as a function of the variables that it changes, and the call that repeats it."""
        indent = "    " * depth
        kinds: Mapping[str, ir.Var] = targets(stmt.body)
        state = [name for name in kinds if name in known and name != flag]
        state = [flag, *state] if flag else state
        function = self.name(f"iteration_{self.whiles}_{self.fors}")
        self.lines.append(f"{indent}def {function}({', '.join(map(self.name, [*first, *state]))}):")
        self.block(stmt.body, depth + 1, known | set(state) | set(first))
        names = "".join(f"{self.name(name)}, " for name in state)
        self.lines.append(f"{indent}    return ({names})")
        described = tuple(kinds[name].kind for name in state)
        self.lines.append(f"{indent}({names}) = {call}{function}, ({names}), {described})")

    def expression(self, expr: ir.Expr) -> str:
        match expr:
            case ir.Const(value=value):
                text = repr(value)
                return {"inf": "ops.inf", "-inf": "(-ops.inf)", "nan": "ops.nan"}.get(text, f"({text})")
            case ir.Var():
                return self.name(expr.name)
            case ir.Op(name=name, args=args) if name in _INFIX:
                return f"({self.expression(args[0])} {_INFIX[name]} {self.expression(args[1])})"
            case ir.Op(name="neg", args=(arg,)):
                return f"(-{self.expression(arg)})"
            case ir.Op(name=name, args=args):
                called = "where" if name == "select" else name
                return f"ops.{self.called(called)}({', '.join(map(self.expression, args))})"
        raise NotImplementedError(f"{expr} in the formula of whole arrays")

    @staticmethod
    def called(name: str) -> str:
        """The method of `ops` for an operation."""
        return f"{name}_" if keyword.iskeyword(name) else name
