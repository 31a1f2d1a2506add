"""Random kernels' texts, drawn by Hypothesis."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import strategies as st


class Writer:
    """Draws a kernel's body: some variables from the start on, temporaries in blocks, loops that end."""

    integers = ("i[k]", "m[k]", "3", "-2", "i64_7")
    numbers = ("x[k]", "f64_2", "f64_0")

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.lines: list[str] = []
        self.fresh = itertools.count()
        self.statements = 0

    def pick(self, *choices: Any) -> Any:
        return self.data.draw(st.sampled_from(choices))

    def integer(self, known: list[str], depth: int = 2) -> str:
        ints = [name for name in known if name[0] in "abt"]
        if depth == 0 or self.pick(True, False):
            return self.pick(*ints, *self.integers)
        left, right = self.integer(known, depth - 1), self.integer(known, depth - 1)
        match self.pick("op", "op", "shift", "unary", "min", "if", "select", "cast"):
            case "op":
                return f"({left} {self.pick('+', '-', '*', '//', '%', '&', '|', '^')} {right})"
            case "shift":
                return f"({left} {self.pick('<<', '>>')} ({right} & 7))"
            case "unary":
                return f"({self.pick('-', '~')}{left})" if not left[0].isdigit() and left[0] != "-" else left
            case "min":
                return f"min({left}, {right})"
            case "if":
                return f"({left} if {self.test(known)} else {right})"
            case "select":
                return f"select({self.test(known)}, {left}, {right})"
        return f"int64({self.test(known)})"

    def number(self, known: list[str], depth: int = 2) -> str:
        found = [name for name in known if name[0] in "uvs"]
        if depth == 0 or self.pick(True, False):
            return self.pick(*found, *self.numbers)
        left, right = self.number(known, depth - 1), self.number(known, depth - 1)
        match self.pick("op", "op", "neg", "if", "select", "cast", "narrow"):
            case "op":
                return f"({left} {self.pick('+', '-', '*', '/')} {right})"
            case "neg":
                return f"(-{left})"
            case "if":
                return f"({left} if {self.test(known)} else {right})"
            case "select":
                return f"select({self.test(known)}, {left}, {right})"
            case "cast":
                return f"float64({self.integer(known)})"
        return f"float64(float32({left}))"

    def test(self, known: list[str]) -> str:
        sign = self.pick("<", "<=", ">", ">=", "==", "!=")
        kind = self.integer if self.pick(True, False) else self.number
        found = f"({kind(known, 1)} {sign} {kind(known, 1)})"
        match self.pick("", "", "not", "both", "p"):
            case "not":
                return f"(not {found})"
            case "both":
                return f"({found} {self.pick('&', '|', '^')} p)"
            case "p":
                return "p"
        return found

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def block(self, known: list[str], depth: int, loop: bool) -> None:
        known = list(known)
        for _ in range(self.data.draw(st.integers(1, 4))):
            self.statements += 1
            self.statement(known, depth, loop)

    def statement(self, known: list[str], depth: int, loop: bool) -> None:
        kinds = ["assign", "assign", "temporary", "output"]
        if depth < 3 and self.statements < 25:
            kinds += ["if", "for", "while"]
        if loop:
            kinds.append("leave")
        match self.pick(*kinds):
            case "assign":
                self.assign(known, depth, "=", "+=", "-=")
            case "temporary":
                self.temporary(known, depth)
            case "output":
                self.line(depth, f"out[k] {self.pick('=', '+=')} {self.number(known)}")
            case "if":
                self.branch(known, depth, loop, self.test(known), self.test(known))
            case "for":
                name = f"t{next(self.fresh)}"
                start, stop = f"{self.integer(known, 1)} & 3", f"{self.integer(known, 1)} & 7"
                bounds = self.pick(stop, f"{start}, {stop}", f"{stop}, {start}, -1", f"{start}, {stop}, 2")
                self.line(depth, f"for {name} in range({bounds}):")
                self.block([*known, name], depth + 1, True)
            case "while":
                fuel = f"fuel{next(self.fresh)}"
                self.line(depth, f"{fuel} = 0")
                self.line(depth, f"while ({fuel} < 4) & {self.test(known)}:")
                self.line(depth + 1, f"{fuel} += 1")
                self.block(known, depth + 1, True)
            case "leave":
                self.line(depth, f"if {self.test(known)}:")
                self.line(depth + 1, self.pick("break", "continue"))

    def assign(self, known: list[str], depth: int, *operators: str) -> None:
        name = self.pick("a", "b", "u", "v", "p")
        value = self.test(known) if name == "p" else self.value(name, known)
        self.line(depth, f"{name} {self.pick(*operators) if name != 'p' else '='} {value}")

    def temporary(self, known: list[str], depth: int) -> None:
        name = f"{self.pick('t', 's')}{next(self.fresh)}"
        self.line(depth, f"{name} = {self.value(name, known)}")
        known.append(name)

    def branch(self, known: list[str], depth: int, loop: bool, first: str, second: str) -> None:
        self.line(depth, f"if {first}:")
        self.block(known, depth + 1, loop)
        if self.pick(True, False):
            self.line(depth, f"elif {second}:")
            self.block(known, depth + 1, loop)
        if self.pick(True, False):
            self.line(depth, "else:")
            self.block(known, depth + 1, loop)

    def value(self, name: str, known: list[str]) -> str:
        return self.integer(known) if name[0] in "abt" else self.number(known)


class Straight(Writer):
    """Draws an element function that is a straight line but for branches, and knows what all elements have."""

    integers = (*Writer.integers, "n[0]")
    numbers = (*Writer.numbers, "r[0]")

    def statement(self, known: list[str], depth: int, loop: bool) -> None:
        match self.pick("assign", "assign", "temporary", "if" if depth < 3 and self.statements < 25 else "assign"):
            case "assign":
                self.assign(known, depth, "=")
            case "temporary":
                self.temporary(known, depth)
            case "if":
                same = self.pick("r[0] > f64_2", "n[0] == 3", "w", "")
                self.branch(known, depth, loop, same or self.test(known), "not w" if same else self.test(known))
