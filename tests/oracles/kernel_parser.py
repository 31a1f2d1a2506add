"""The IR of an element function that a test writes as Python text, in the language of kernels' texts.

An output is stored by `out[k] = …`, and may be changed until the end. Constants and helper functions are in a prelude.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dualbcast.ir.nodes import (
    Assign,
    Break,
    Const,
    Continue,
    Expr,
    For,
    Function,
    If,
    Kind,
    Load,
    Op,
    Output,
    Stmt,
    Var,
    While,
)

_SIGNS: dict[type[ast.AST], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floordiv", ast.Mod: "mod",
    ast.BitAnd: "bitand", ast.BitOr: "bitor", ast.BitXor: "bitxor", ast.LShift: "shl", ast.RShift: "shr",
    ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne",
    ast.USub: "neg", ast.Invert: "invert", ast.Not: "not",
}  # fmt: skip
_OF_BOOLS = {"bitand": "and", "bitor": "or"}


def kind_of(dtype: str) -> Kind:
    """The kind of the elements of an array."""
    return "float" if "float" in dtype else "bool" if dtype == "bool" else "int"


def parsed(
    body: str, dtype: str, inputs: Mapping[str, str], outputs: Mapping[str, str], prelude: str = ""
) -> tuple[Function, dict[str, Function]]:
    """The element function, and the helper functions by their names, each for the kinds of its arguments."""
    parser = _Parser(dtype, {name: kind_of(kind) for name, kind in inputs.items()}, outputs)
    for node in ast.parse(prelude).body:
        if isinstance(node, ast.FunctionDef):
            parser.definitions[node.name] = node
        else:
            assert isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
            parser.constants[node.targets[0].id] = parser.expression(node.value, [])
    block = parser.block(ast.parse(body).body)
    params = tuple(Var(name, kind) for name, kind in parser.arrays.items())
    stored = tuple(Output(name, Var(f"{name}@", parser.kinds[f"{name}@"])) for name in outputs)
    return Function("element", params, block, stored), parser.helpers


@dataclass
class _Parser:
    dtype: str
    arrays: dict[str, Kind]
    outputs: Mapping[str, str] = field(default_factory=dict)
    definitions: dict[str, ast.FunctionDef] = field(default_factory=dict)
    constants: dict[str, Expr] = field(default_factory=dict)
    helpers: dict[str, Function] = field(default_factory=dict)
    kinds: dict[str, Kind] = field(default_factory=dict)
    count: int = 0

    def block(self, nodes: Iterable[ast.stmt]) -> tuple[Stmt, ...]:
        new: list[Stmt] = []
        for node in nodes:
            self.statement(node, new)
        return tuple(new)

    def put(self, name: str, value: Expr, new: list[Stmt]) -> Var:
        assert self.kinds.setdefault(name, value.kind) == value.kind, f"{name} changes its kind"
        target = Var(name, value.kind)
        new.append(Assign(target, value))
        return target

    def fresh(self, value: Expr, new: list[Stmt]) -> Var:
        self.count += 1
        return self.put(f"%{self.count}", value, new)

    def statement(self, node: ast.stmt, new: list[Stmt]) -> None:
        match node:
            case ast.Assign(targets=[target], value=value):
                self.put(_name(target), self.expression(value, new), new)
            case ast.AugAssign(target=target, op=op, value=value):
                held = Var(_name(target), self.kinds[_name(target)])
                self.put(held.name, self.operation(op, [held, self.expression(value, new)]), new)
            case ast.Expr(value=ast.Call(func=ast.Name(id=verb), args=[ast.Name(id=name), _, value])):
                assert verb.startswith("store_")
                self.put(f"{name}@", self.expression(value, new), new)
            case ast.If():
                test = self.expression(node.test, new)
                new.append(If(test, self.block(node.body), self.block(node.orelse)))
            case ast.While():
                pre: list[Stmt] = []
                test = self.expression(node.test, pre)
                new.append(While(tuple(pre), test, self.block(node.body)))
            case ast.For(target=ast.Name(id=name), iter=ast.Call(args=[*bounds])):
                step = ast.literal_eval(bounds.pop()) if len(bounds) == 3 else 1
                start, stop = (self.expression(bound, new) for bound in [ast.Constant(0), *bounds][-2:])
                self.count += 1
                counted, inside = Var(f"%{self.count}", "int"), list[Stmt]()
                self.put(name, counted, inside)
                body = (*inside, *self.block(node.body))
                new.append(For(counted, start, stop, Const(step, "int"), body))
            case ast.Break():
                new.append(Break())
            case ast.Continue():
                new.append(Continue())
            case ast.Pass():
                pass
            case _:
                raise SyntaxError(ast.unparse(node))

    def expression(self, node: ast.expr, new: list[Stmt]) -> Expr:
        match node:
            case ast.Constant(value=bool() as value):
                return Const(value, "bool")
            case ast.Constant(value=int() as value):
                return Const(value, "int")
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as value)):
                return Const(-value, "int")
            case ast.Name(id=name):
                return Var(name, self.kinds[name]) if name in self.kinds else self.constants[name]
            case ast.Subscript(value=ast.Name(id=name)):
                stored = f"{name}@"
                return Var(stored, self.kinds[stored]) if name in self.outputs else Load(name, self.arrays[name])
            case ast.BinOp(left=left, op=op, right=right) | ast.Compare(left=left, ops=[op], comparators=[right]):
                return self.operation(op, [self.expression(left, new), self.expression(right, new)])
            case ast.UnaryOp(op=op, operand=operand):
                return self.operation(op, [self.expression(operand, new)])
            case ast.IfExp():
                return self.choice(node, new)
            case ast.Call(func=ast.Name(id=name)):
                return self.call(name, node.args, new)
        raise SyntaxError(ast.unparse(node))

    def operation(self, op: ast.AST, args: list[Expr]) -> Expr:
        name = _SIGNS[type(op)]
        if isinstance(args[0], Load) and args[0].kind == "bool" and name == "ne":
            return args[0]  # what is stored in a byte
        assert len({arg.kind for arg in args}) == 1, f"{name} of {', '.join(arg.kind for arg in args)}"
        kind = args[0].kind
        name = _OF_BOOLS.get(name, name) if kind == "bool" else name
        return Op(name, tuple(args), "bool" if name in ("lt", "le", "gt", "ge", "eq", "ne") else kind)

    def choice(self, node: ast.IfExp, new: list[Stmt]) -> Expr:
        test, then, orelse = self.expression(node.test, new), list[Stmt](), list[Stmt]()
        chosen = self.fresh(self.expression(node.body, then), then)
        self.put(chosen.name, self.expression(node.orelse, orelse), orelse)
        new.append(If(test, tuple(then), tuple(orelse)))
        return chosen

    def call(self, name: str, nodes: Sequence[ast.expr], new: list[Stmt]) -> Expr:
        if name.startswith("load_"):
            assert isinstance(nodes[0], ast.Name)
            return Load(nodes[0].id, "float")
        if name in ("float32", "float64", "int64") and _is_number(nodes[0]):
            value = ast.literal_eval(nodes[0])
            return Const(int(value), "int") if name == "int64" else Const(float(value), "float")
        args = [self.expression(node, new) for node in nodes]
        if name in self.definitions:
            return self.helper(name, args)
        match name:
            case "select":
                return Op(name, tuple(args), args[1].kind)
            case "min":
                return Op("select", (Op("lt", tuple(args), "bool"), *args), args[0].kind)
            case "int64":
                return args[0] if args[0].kind == "int" else Op("to_int", tuple(args), "int")
            case "float32" if self.dtype == "float64" and args[0].kind == "float":
                return Op("single", tuple(args), "float")
            case "float32" | "float64":
                return args[0] if args[0].kind == "float" else Op("to_float", tuple(args), "float")
            case "uint8":
                return args[0]
        return Op(name, tuple(args), "float")

    def helper(self, name: str, args: Sequence[Expr]) -> Expr:
        """A call of a function of the prelude, whose last statement returns."""
        called = "_".join([name, *(arg.kind for arg in args)])
        node = self.definitions[name]
        if called not in self.helpers:
            inner = _Parser(self.dtype, {}, {}, self.definitions, self.constants, self.helpers)
            params = tuple(Var(each.arg, arg.kind) for each, arg in zip(node.args.args, args, strict=True))
            inner.kinds = {param.name: param.kind for param in params}
            *body, last = node.body
            assert isinstance(last, ast.Return) and last.value is not None
            new = list(inner.block(body))
            value = inner.expression(last.value, new)
            self.helpers[called] = Function(called, params, tuple(new), (Output("out", value),))
        return Op(called, tuple(args), self.helpers[called].outputs[0].value.kind)


def _is_number(node: ast.expr) -> bool:
    return isinstance(node.operand if isinstance(node, ast.UnaryOp) else node, ast.Constant)


def _name(target: ast.expr) -> str:
    match target:
        case ast.Name(id=name):
            return name
        case ast.Subscript(value=ast.Name(id=name)):
            return f"{name}@"
    raise SyntaxError(ast.unparse(target))
