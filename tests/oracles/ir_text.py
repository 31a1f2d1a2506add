"""Functions of the IR read from the text that the printer writes: `parse(dump(function))` is the function again.

Source locations are lost, and so are the structure of the result and the names of derivatives.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field

from dualbcast.ir.nodes import (
    ARITHMETIC,
    BITWISE,
    COMPARISONS,
    FUSED,
    LOGIC,
    Assign,
    Block,
    Break,
    Const,
    Continue,
    Expr,
    For,
    Function,
    If,
    Kind,
    Load,
    Note,
    Op,
    Output,
    Stmt,
    Var,
    While,
)

__all__ = ["parse"]


def parse(text: str) -> Function:
    """The function that a text is of."""
    lines = [line.split("  # line ")[0].rstrip() for line in text.strip("\n").splitlines() if line.strip()]
    first = len(lines[0]) - len(lines[0].lstrip())
    return _Parser([line[first:] for line in lines]).function()


@dataclass
class _Parser:
    lines: list[str]
    at: int = 0
    kinds: dict[str, Kind] = field(default_factory=dict)

    def function(self) -> Function:
        name, params = re.fullmatch(r"function (\S+)\((.*)\)", self.lines[0]).groups()
        self.kinds = dict(re.findall(r"(\S+): (\w+)", params))
        parameters = tuple(Var(*pair) for pair in self.kinds.items())
        for target, kind in re.findall(r"^ *(\S+): (bool|int|float) = ", "\n".join(self.lines), re.MULTILINE):
            self.kinds[target] = kind
        for target in re.findall(r"^ *for (\S+) in ", "\n".join(self.lines), re.MULTILINE):
            self.kinds[target] = "int"
        self.at = 1
        body = self.block(4)
        outputs = []
        for line in self.lines[self.at :]:
            output, value = re.fullmatch(r" *output (\S+) = (.*)", line).groups()
            outputs.append(Output(output, self.expression(value)))
        return Function(name, parameters, body, tuple(outputs))

    def block(self, depth: int) -> Block:
        """The statements at a depth, or below."""
        stmts: list[Stmt] = []
        while self.at < len(self.lines):
            line = self.lines[self.at].strip()
            if not self.lines[self.at].startswith(" " * depth) or line.startswith(("output ", "else:", "test ")):
                break
            self.at += 1
            stmts.append(self.statement(line, depth))
        return tuple(stmts)

    def statement(self, line: str, depth: int) -> Stmt:
        if line in ("break", "continue"):
            return Break() if line == "break" else Continue()
        if line == "while:":
            pre = self.block(depth + 4)
            test = self.lines[self.at].strip().removeprefix("test ").removesuffix(":")
            self.at += 1
            return While(pre, self.expression(test), self.block(depth + 4))
        if match := re.fullmatch(r"masked while (.*):", line):
            return While((), self.expression(match[1]), self.block(depth + 4), masked=True)
        if match := re.fullmatch(r"for (\S+) in (range\(.*\)):", line):
            bounds = self.expression(match[2])
            return For(Var(match[1], "int"), *bounds.args, self.block(depth + 4))
        if match := re.fullmatch(r"note (\w+) (\[.*\]): (.*)", line):
            values = tuple(map(self.expression, match[3].split(", "))) if match[3] else ()
            return Note(match[1], tuple(ast.literal_eval(match[2])), values)
        if match := re.fullmatch(r"if (.*):", line):
            then, orelse = self.block(depth + 4), ()
            if self.at < len(self.lines) and self.lines[self.at] == " " * depth + "else:":
                self.at += 1
                orelse = self.block(depth + 4)
            return If(self.expression(match[1]), then, orelse)
        target, kind, value = re.fullmatch(r"(\S+): (\w+) = (.*)", line).groups()
        return Assign(Var(target, kind), self.expression(value, kind))

    def expression(self, text: str, kind: Kind | None = None) -> Expr:
        tokens = re.findall(r"[(),]|[^\s(),]+", text)
        expr = self.operand(tokens, kind)
        assert not tokens, text
        return expr

    def operand(self, tokens: list[str], kind: Kind | None = None) -> Expr:
        """The expression that some tokens begin with; they are taken away."""
        name = tokens.pop(0)
        if tokens[:1] != ["("]:
            return self.atom(name)
        args: list[Expr] = []
        while tokens.pop(0) != ")":
            args.append(self.operand(tokens))
        if name == "load":
            return Load(args[0].name, self.kinds[args[0].name])
        return Op(name, tuple(args), kind or _kind(name, args))

    def atom(self, text: str) -> Const | Var:
        if text in ("True", "False"):
            return Const(text == "True", "bool")
        if re.fullmatch(r"-?\d+", text):
            return Const(int(text), "int")
        if re.fullmatch(r"-?(\d.*|inf|nan)", text):
            return Const(float(text), "float")
        return Var(text, self.kinds.get(text, "float"))


def _kind(name: str, args: list[Expr]) -> Kind:
    if name in COMPARISONS | LOGIC:
        return "bool"
    if name == "select":
        return args[1].kind
    if name in {*ARITHMETIC, *BITWISE, *FUSED}:
        return args[0].kind
    return "int" if name == "to_int" else "float"
