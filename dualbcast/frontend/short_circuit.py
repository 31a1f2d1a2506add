"""The front end's choices: `and`, `or` and conditional expressions, evaluated as far as Python does."""

from __future__ import annotations

import ast
from collections.abc import Callable

from dualbcast.frontend.names import Places
from dualbcast.frontend.values import CHOICE, Env, Unassigned, Value, same
from dualbcast.ir.nodes import ARITHMETIC, COMPARISONS, FUSED, LOGIC, Assign, Atom, Const, Op, Stmt, Var

__all__ = ["Choices", "needs_order", "split_and"]

# Operations so cheap and total that running them early costs less than a branch.
_CHEAP = COMPARISONS | LOGIC | (ARITHMETIC - {"floordiv", "mod"}) | {"to_float", "select", *FUSED}


class Choices(Places):
    """Lowers what may not run."""

    def condition(self, node: ast.expr) -> Atom:
        """The truth of an expression."""
        if isinstance(node, ast.BoolOp):
            # Each part's truth decides; as values, `a and b` would be one of a and b.
            return self.truth(self.boolean(node, node.values, self.condition), node)
        return self.truth(self.expression(node), node)

    def boolean(self, node: ast.BoolOp, values: list[ast.expr], part: Callable[[ast.expr], Value]) -> Value:
        """`a and b and …` or `a or b or …`."""
        first = part(values[0])
        if len(values) == 1:
            return first
        name = "and" if isinstance(node.op, ast.And) else "or"
        return self.short_circuit(name, first, lambda: self.boolean(node, values[1:], part), node)

    def short_circuit(self, name: str, first: Value, rest: Callable[[], Value], node: ast.AST) -> Value:
        """`first and rest` or `first or rest`: one of the two, and the rest is evaluated only if it decides."""
        test = self.truth(first, node)
        if isinstance(test, Const):
            return rest() if bool(test.value) == (name == "and") else first
        frame, before = self.frame, self.frame.env
        frame.env = dict(before)
        block: list[Stmt] = []
        with self.into(block):
            other = rest()
        where, after = self.locate(node), frame.env
        both_tests = isinstance(other, Const | Var) and other.kind == "bool" and test == first
        if both_tests and all(map(_is_cheap, block)) and not _assigns(before, after):
            assert isinstance(other, Const | Var)
            self.block.extend(block)
            return self.op(name, test, other, kind="bool", location=where)
        ends = [(block, {**after, CHOICE: other}, True), ([], {**before, CHOICE: first}, True)]
        self.close_branch(test, where, ends if name == "and" else ends[::-1])
        return self._chosen(node)

    def _chosen(self, node: ast.AST) -> Value:
        value = self.frame.env.pop(CHOICE)
        if isinstance(value, Unassigned):
            self.fail(
                node, value.reason, "two numbers, or tuples of one length; of functions, a choice of their results"
            )
        return value

    def conditional(self, node: ast.IfExp) -> Value:
        """`a if test else b`."""
        if needs_order(node.test):
            first, rest = split_and(node.test)
            inner = ast.copy_location(ast.IfExp(rest, node.body, node.orelse), node)
            node = ast.copy_location(ast.IfExp(first, inner, node.orelse), node)
        test = self.condition(node.test)
        if isinstance(test, Const):
            return self.expression(node.body if test.value else node.orelse)
        return self.choose(test, lambda: self.expression(node.body), lambda: self.expression(node.orelse), node)

    def choose(self, test: Atom, then: Callable[[], Value], orelse: Callable[[], Value], node: ast.AST) -> Value:
        """One of two values; only the chosen one is evaluated."""

        def side(make: Callable[[], Value]) -> Callable[[], bool]:
            def run() -> bool:
                self.frame.env[CHOICE] = make()
                return True

            return run

        self.branch(test, self.locate(node), side(then), side(orelse))
        return self._chosen(node)


def needs_order(test: ast.expr) -> bool:
    """Whether a test is an `and` whose later parts assign names: those are there where all of it is true."""
    return (
        isinstance(test, ast.BoolOp)
        and isinstance(test.op, ast.And)
        and any(isinstance(node, ast.NamedExpr) for part in test.values[1:] for node in ast.walk(part))
    )


def split_and(test: ast.expr) -> tuple[ast.expr, ast.expr]:
    """The first part of an `and`, and the rest of it."""
    assert isinstance(test, ast.BoolOp)
    first, *rest = test.values
    return first, rest[0] if len(rest) == 1 else ast.copy_location(ast.BoolOp(test.op, rest), test)


def _assigns(before: Env, after: Env) -> bool:
    return any(name not in before or not same(before[name], value) for name, value in after.items())


def _is_cheap(stmt: Stmt) -> bool:
    return isinstance(stmt, Assign) and isinstance(stmt.value, Op) and stmt.value.name in _CHEAP
