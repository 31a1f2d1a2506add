"""The front end's expressions: from Python syntax to values, with Python's evaluation order and short circuits."""

from __future__ import annotations

import ast
from collections.abc import Callable

from dualbcast.compiler.fold import FALSE, TRUE, number
from dualbcast.compiler.ir import ARITHMETIC, COMPARISONS, LOGIC, Assign, Atom, Const, Op, Stmt, Var
from dualbcast.compiler.places import Places
from dualbcast.compiler.values import CHOICE, Closure, Range, Static, Unassigned, Value, describe

__all__ = ["Expressions"]

_COMPARISONS = {
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Eq: "eq",
    ast.NotEq: "ne",
}
# Operations so cheap and total that running them early costs less than a branch.
_CHEAP = COMPARISONS | LOGIC | (ARITHMETIC - {"floordiv", "mod"}) | {"to_float", "select"}

# Tuples exist at compile time only, and what loops over one is written out.
LONGEST_TUPLE = 1024

# What to write instead of an expression that cannot be compiled.
_UNSUPPORTED = {
    ast.List: ("a list", "a tuple: (a, b)"),
    ast.Dict: ("a dictionary", "separate variables"),
    ast.Set: ("a set", "a tuple"),
    ast.ListComp: ("a list comprehension", "a for loop over a tuple"),
    ast.SetComp: ("a set comprehension", "a for loop over a tuple"),
    ast.DictComp: ("a dictionary comprehension", "a for loop over a tuple"),
    ast.GeneratorExp: ("a generator expression", "a for loop over a tuple"),
    ast.Await: ("await", "plain code: a scalar function runs to its end"),
    ast.Yield: ("yield", "return: a scalar function gives one value for each element"),
    ast.YieldFrom: ("yield from", "return: a scalar function gives one value for each element"),
    ast.JoinedStr: ("an f-string", "numbers only: text cannot be made in a kernel"),
    ast.NamedExpr: ("the walrus operator", "an assignment on a line of its own"),
}


class Expressions(Places):
    """Lowers expressions; `call` is supplied by the layer above."""

    def call(self, node: ast.Call) -> Value:
        raise NotImplementedError

    # --- entry points --------------------------------------------------------------------------------------------

    def expression(self, node: ast.expr) -> Value:
        """The value of an expression; what it needs is appended to the open block."""
        match node:
            case ast.Constant():
                return self.constant(node)
            case ast.Name():
                return self.name(node)
            case ast.Tuple():
                return self.items(node.elts)
            case ast.BinOp():
                return self._binary(node)
            case ast.UnaryOp():
                operand = self.condition if isinstance(node.op, ast.Not) else self.expression
                return self.unary(node.op, operand(node.operand), node)
            case ast.BoolOp():
                return self._boolean(node, node.values, self.expression)
            case ast.Compare():
                return self._compare(node)
            case ast.IfExp():
                return self._conditional(node)
            case ast.Call():
                return self.call(node)
            case ast.Attribute():
                return self.attribute(node)
            case ast.Subscript():
                return self.subscript(node)
            case ast.Lambda():
                return self.closure(node)
        what, instead = _UNSUPPORTED.get(type(node), (f"this expression ({type(node).__name__})", ""))
        self.fail(node, f"{what} cannot be compiled", instead)

    def scalar(self, node: ast.expr) -> Atom:
        """The value of an expression that must be a number."""
        return self.as_scalar(self.expression(node), node)

    def condition(self, node: ast.expr) -> Atom:
        """The truth of an expression."""
        if isinstance(node, ast.BoolOp):
            # Each part's truth decides; as values, `a and b` would be one of a and b.
            return self.truth(self._boolean(node, node.values, self.condition), node)
        return self.truth(self.expression(node), node)

    def items(self, nodes: list[ast.expr]) -> tuple[Value, ...]:
        """The values of a list of expressions, starred ones spread."""
        found: list[Value] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                found.extend(self.sequence(self.expression(node.value), node.value))
            else:
                found.append(self.expression(node))
        return tuple(found)

    def sequence(self, value: Value, node: ast.AST) -> tuple[Value, ...]:
        """The items of a tuple or of a range with known bounds."""
        if isinstance(value, tuple):
            return value
        if isinstance(value, Range):
            known = value.known()
            if known is not None:
                self.limit(len(known), node)
                return tuple(number(item) for item in known)
            self.fail(node, "the length of this range is not known when the kernel is compiled", "a for loop over it")
        self.fail(node, f"a tuple is needed here, and this is {describe(value)}", "a tuple: (a, b)")

    def limit(self, length: int, node: ast.AST) -> None:
        """Refuse to write out what would be too long to compile."""
        if length > LONGEST_TUPLE:
            self.fail(
                node, f"this would be written out {length:,} times; {LONGEST_TUPLE} is the most", "a loop over range"
            )

    def closure(self, node: ast.FunctionDef | ast.Lambda) -> Closure:
        defaults = tuple(self.expression(default) for default in node.args.defaults)
        keywords = tuple(None if default is None else self.expression(default) for default in node.args.kw_defaults)
        return Closure(node, self.frame, defaults, keywords)

    # --- operators -----------------------------------------------------------------------------------------------

    def _binary(self, node: ast.BinOp) -> Value:
        left, right = self.expression(node.left), self.expression(node.right)
        if isinstance(left, tuple) and isinstance(right, tuple) and isinstance(node.op, ast.Add):
            return left + right
        if isinstance(node.op, ast.Mult):
            for items, count in ((left, right), (right, left)):
                if isinstance(items, tuple) and isinstance(count, Const) and count.kind == "int":
                    self.limit(len(items) * int(count.value), node)
                    return items * int(count.value)
        return self.binary(node.op, self.as_scalar(left, node.left), self.as_scalar(right, node.right), node)

    def _compare(self, node: ast.Compare) -> Value:
        left = self.expression(node.left)

        def link(position: int, left: Value) -> Value:
            operator, right_node = node.ops[position], node.comparators[position]
            right = self.expression(right_node)
            test = self._compare_two(operator, left, right, node)
            if position + 1 == len(node.ops):
                return test
            return self._short_circuit("and", test, lambda: link(position + 1, right), node)

        return link(0, left)

    def _compare_two(self, operator: ast.cmpop, left: Value, right: Value, node: ast.Compare) -> Atom:
        if isinstance(operator, ast.Is | ast.IsNot):
            if isinstance(left, Static) and isinstance(right, Static):
                same = left.object is right.object
            elif Static(None) in (left, right):
                same = False
            else:
                self.fail(node, "numbers have no identity in a kernel", "== instead of `is`")
            return TRUE if same == isinstance(operator, ast.Is) else FALSE
        if type(operator) not in _COMPARISONS:
            self.fail(node, "`in` cannot be compiled", "comparisons joined by `or`")
        if isinstance(left, Static) and isinstance(right, Static) and isinstance(operator, ast.Eq | ast.NotEq):
            return TRUE if (left.object == right.object) == isinstance(operator, ast.Eq) else FALSE
        return self.comparison(
            _COMPARISONS[type(operator)], self.as_scalar(left, node), self.as_scalar(right, node), self.locate(node)
        )

    # --- what may not run ----------------------------------------------------------------------------------------

    def _boolean(self, node: ast.BoolOp, values: list[ast.expr], part: Callable[[ast.expr], Value]) -> Value:
        first = part(values[0])
        if len(values) == 1:
            return first
        name = "and" if isinstance(node.op, ast.And) else "or"
        return self._short_circuit(name, first, lambda: self._boolean(node, values[1:], part), node)

    def _short_circuit(self, name: str, first: Value, rest: Callable[[], Value], node: ast.AST) -> Value:
        """`first and rest` or `first or rest`: one of the two, and the rest is evaluated only if it decides."""
        test = self.truth(first, node)
        if isinstance(test, Const):
            return rest() if bool(test.value) == (name == "and") else first
        block: list[Stmt] = []
        with self.into(block):
            other = rest()
        where, env = self.locate(node), self.frame.env
        both_tests = isinstance(other, Const | Var) and other.kind == "bool" and test == first
        if both_tests and all(_is_cheap(stmt) for stmt in block):
            assert isinstance(other, Const | Var)
            self.block.extend(block)
            return self.op(name, test, other, kind="bool", location=where)
        ends = [(block, {**env, CHOICE: other}, True), ([], {**env, CHOICE: first}, True)]
        self.close_branch(test, where, ends if name == "and" else ends[::-1])
        return self._chosen(node)

    def _chosen(self, node: ast.AST) -> Value:
        value = self.frame.env.pop(CHOICE)
        if isinstance(value, Unassigned):
            self.fail(
                node, "the two sides of this expression are not of one kind", "two numbers, or tuples of one length"
            )
        return value

    def _conditional(self, node: ast.IfExp) -> Value:
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


def _is_cheap(stmt: Stmt) -> bool:
    return isinstance(stmt, Assign) and isinstance(stmt.value, Op) and stmt.value.name in _CHEAP
